//! What a program prints while the screen has the terminal: the beginning and the end, in memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes kept of the beginning, and of the end: more than people look through in a terminal.
const KEPT: usize = 1 << 20;
/// Longest wait of the thread for output, after which it looks whether it should end.
const WAIT_MS: libc::c_int = 50;
/// Time to read what is in the pipe at the end, if processes that are left go on writing.
const LAST: Duration = Duration::from_secs(1);
/// Bytes read at once: what a pipe holds by default.
const PIPE: usize = 64 << 10;

/// A thread that reads from a pipe, so that writers never wait for long.
pub struct KeptOutput {
    reader: JoinHandle<Ends>,
    over: Arc<AtomicBool>,
}

impl KeptOutput {
    /// Starts the thread; the second value is where to write.
    ///
    /// # Errors
    /// When there is no pipe or no thread to be had.
    pub fn start() -> io::Result<(KeptOutput, OwnedFd)> {
        let mut ends = [0; 2];
        // SAFETY: two descriptors are written to an array of two.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both are new and owned by nothing else.
        let (from, to) = unsafe { (File::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        let over = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&over);
        let reader = Builder::new().name("output".into()).spawn(move || read_all(from, &asked))?;
        Ok((KeptOutput { reader, over }, to))
    }

    /// What was printed so far; where bytes are missing a line says how many.
    pub fn end(self) -> Vec<u8> {
        // Only a request: the bytes come with the end of the thread.
        self.over.store(true, Ordering::Relaxed);
        self.reader.join().map(Ends::into_bytes).unwrap_or_default()
    }
}

/// Reads until there is no writer any more, or until nothing is left when it is `over`.
fn read_all(mut from: File, over: &AtomicBool) -> Ends {
    let (mut ends, mut bytes, mut last) = (Ends::default(), vec![0; PIPE], None);
    loop {
        if over.load(Ordering::Relaxed) && last.get_or_insert_with(Instant::now).elapsed() > LAST {
            return ends;
        }
        let mut poll = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd, for the time of the call.
        let ready = unsafe { libc::poll(&mut poll, 1, if last.is_some() { 0 } else { WAIT_MS }) };
        if ready == 0 && last.is_some() {
            return ends;
        }
        if ready <= 0 {
            continue;
        }
        match from.read(&mut bytes) {
            Ok(0) => return ends,
            Ok(n) => ends.add(&bytes[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return ends,
        }
    }
}

/// The first and the last bytes of a stream.
#[derive(Default)]
struct Ends {
    first: Vec<u8>,
    last: VecDeque<u8>,
    missing: u64,
}

impl Ends {
    fn add(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(KEPT - self.first.len()));
        self.first.extend_from_slice(first);
        self.last.extend(rest);
        let excess = self.last.len().saturating_sub(KEPT);
        self.last.drain(..excess);
        self.missing += excess as u64;
    }

    fn into_bytes(self) -> Vec<u8> {
        let mut all = self.first;
        if self.missing > 0 {
            all.extend(format!("\n[{} bytes of the output are not shown]\n", self.missing).bytes());
        }
        all.extend(self.last);
        all
    }
}
