//! The keys that a person presses, read from the terminal.
//!
//! crossterm's reader is not used: it waits for the rest of a sequence without a limit, and on a terminal that was
//! closed it reads the end again and again. Neither returns, so that no signal would end the command.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

const ESCAPE: u8 = 0x1b;
/// Raw mode takes Ctrl-C and Ctrl-\ from the terminal's signals.
const CONTROL_C: u8 = 0x03;
const CONTROL_BACKSLASH: u8 = 0x1c;

/// A key that means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Quit,
    Up,
    Down,
    Order,
    Hold,
}

/// What came from the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    Key(Key),
    /// Nothing in the time to wait, or a part of what a key sends, or a key without a meaning.
    Nothing,
    /// The terminal was closed.
    Closed,
}

/// The keyboard.
#[derive(Debug)]
pub struct Keys {
    terminal: File,
    sequence: Sequence,
}

impl Keys {
    /// The terminal that stdin is, or else the controlling one.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open() -> io::Result<Keys> {
        let stdin = io::stdin();
        let terminal =
            if stdin.is_terminal() { File::from(stdin.as_fd().try_clone_to_owned()?) } else { File::open("/dev/tty")? };
        Ok(Keys { terminal, sequence: Sequence::None })
    }

    /// Waits at most `wait` for a byte. A signal ends the wait.
    pub fn next(&mut self, wait: Duration) -> Input {
        let wait = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        let mut ready = libc::pollfd { fd: self.terminal.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, which lives as long as the call.
        match unsafe { libc::poll(&raw mut ready, 1, wait) } {
            0 => return self.sequence.pause().map_or(Input::Nothing, Input::Key),
            ..0 => return Input::Nothing,
            _ => {}
        }
        if ready.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0 {
            return Input::Closed;
        }
        let mut byte = [0];
        match self.terminal.read(&mut byte) {
            Ok(1..) => self.sequence.take(byte[0]).map_or(Input::Nothing, Input::Key),
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => Input::Nothing,
            _ => Input::Closed,
        }
    }
}

/// The part of an escape sequence that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sequence {
    None,
    /// ESC, or the key Escape.
    Escape,
    /// ESC [
    Control,
    /// ESC O: one byte follows.
    Single,
}

impl Sequence {
    fn take(&mut self, byte: u8) -> Option<Key> {
        let (next, key) = match (*self, byte) {
            (Sequence::Escape, b'[') => (Sequence::Control, None),
            (Sequence::Escape, b'O') => (Sequence::Single, None),
            (Sequence::Escape, ESCAPE) => (Sequence::None, Some(Key::Quit)),
            (_, ESCAPE) => (Sequence::Escape, None),
            // Parameters; any other byte is the last one.
            (Sequence::Control, 0x20..=0x3f) => (Sequence::Control, None),
            (Sequence::Control | Sequence::Single, b'A') => (Sequence::None, Some(Key::Up)),
            (Sequence::Control | Sequence::Single, b'B') => (Sequence::None, Some(Key::Down)),
            (Sequence::Control | Sequence::Single, 0x20..) => (Sequence::None, None),
            (_, b'q' | CONTROL_C | CONTROL_BACKSLASH) => (Sequence::None, Some(Key::Quit)),
            (_, b'k') => (Sequence::None, Some(Key::Up)),
            (_, b'j') => (Sequence::None, Some(Key::Down)),
            (_, b's') => (Sequence::None, Some(Key::Order)),
            (_, b' ') => (Sequence::None, Some(Key::Hold)),
            _ => (Sequence::None, None),
        };
        *self = next;
        key
    }

    /// Nothing followed: an ESC alone is the key Escape.
    fn pause(&mut self) -> Option<Key> {
        let before = std::mem::replace(self, Sequence::None);
        (before == Sequence::Escape).then_some(Key::Quit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut sequence = Sequence::None;
        let mut keys: Vec<Key> = bytes.iter().filter_map(|b| sequence.take(*b)).collect();
        keys.extend(sequence.pause());
        keys
    }

    #[test]
    fn sequences_of_keys() {
        use Key::{Down, Hold, Order, Quit, Up};
        assert_eq!(keys(b"js k"), [Down, Order, Hold, Up]);
        assert_eq!(keys(b"\x1b[A\x1b[B\x1bOA\x1bOB"), [Up, Down, Up, Down]);
        assert_eq!(keys(b"\x1b"), [Quit]);
        assert_eq!(keys(b"\x1b\x1b"), [Quit]);
        assert_eq!(keys(b"\x1b[5~\x1b[1;5Ck"), [Up], "Page Up and Ctrl-Right have no meaning");
        assert_eq!(keys(b"\x1b["), [], "a sequence that was cut off");
        assert_eq!(keys(b"\x1b[\x03"), [Quit], "Ctrl-C in any place");
        assert_eq!(keys("ä€".as_bytes()), []);
    }
}
