//! /proc/PID/maps: the mappings of a process.
//!
//! ```text
//! 55a0c000-55a0d000 rw-p 00003000 fe:01 1234                    /bin/program
//! start    end      perm offset   device inode                  path, may contain spaces
//! ```

use core::ffi::{CStr, c_int};
use std::fs;

use crate::held_file::{HeldFile, Of};
use crate::lines;

/// One mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mapping<'a> {
    /// First address.
    pub start: usize,
    /// Address behind the last byte.
    pub end: usize,
    /// PROT_READ, PROT_WRITE and PROT_EXEC.
    pub prot: c_int,
    /// MAP_SHARED.
    pub shared: bool,
    /// Offset in the file, bytes.
    pub offset: usize,
    /// Major and minor number of the device that holds the file.
    pub device: (u32, u32),
    /// Inode number of the file; 0 for anonymous memory.
    pub inode: usize,
    /// Path of the file, `[heap]`, `[stack]` ...; empty for anonymous memory.
    pub path: &'a str,
}

impl Mapping<'_> {
    /// Whether `address` is inside.
    pub fn contains(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// Parses one line of the file; `None` when the text has another form.
pub fn parse_line(line: &str) -> Option<Mapping<'_>> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = range(words.next()?)?;
    let flags = words.next()?;
    let offset = usize::from_str_radix(words.next()?, 16).ok()?;
    let device = device(words.next()?)?;
    let inode = words.next()?.parse().ok()?;
    let bits = [('r', libc::PROT_READ), ('w', libc::PROT_WRITE), ('x', libc::PROT_EXEC)];
    let prot = bits.iter().filter(|(letter, _)| flags.contains(*letter)).fold(0, |prot, (_, bit)| prot | bit);
    let path = words.next().map_or("", str::trim);
    Some(Mapping { start, end, prot, shared: flags.ends_with('s'), offset, device, inode, path })
}

/// `major:minor` in hexadecimal.
fn device(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    hex(major).zip(hex(minor))
}

/// `start-end` in hexadecimal, with `start <= end`.
pub(crate) fn range(text: &str) -> Option<(usize, usize)> {
    let (start, end) = text.split_once('-')?;
    let hex = |text: &str| usize::from_str_radix(text, 16).ok();
    hex(start).zip(hex(end)).filter(|(start, end)| start <= end)
}

/// The mappings in the text of the file; lines with a path that is not UTF-8 are skipped.
pub fn parse(text: &[u8]) -> impl Iterator<Item = Mapping<'_>> {
    text.split(|&b| b == b'\n').filter_map(|line| parse_line(core::str::from_utf8(line).ok()?))
}

/// Text of /proc/self/maps; empty when the file cannot be read.
pub fn read_own() -> Vec<u8> {
    fs::read("/proc/self/maps").unwrap_or_default()
}

/// Calls `visit` with each mapping of the calling process; with none when the file cannot be read. Allocates nothing;
/// long paths are cut.
pub fn for_each_own(mut visit: impl FnMut(Mapping<'_>)) {
    lines::for_each_of(&FILE, PATH, |line| {
        parse_line(line).into_iter().for_each(&mut visit);
        true
    });
}

const PATH: &CStr = c"/proc/self/maps";
static FILE: HeldFile = HeldFile::new(Of::Process);

/// Opens the file, see [`HeldFile`]: while the process has one thread.
pub fn hold() {
    FILE.hold(PATH);
}

/// Number of mappings of the calling process, without allocating; `None` when the file is not open and cannot be opened
/// now.
pub fn count_own() -> Option<u64> {
    let (mut buffer, mut lines, mut at) = ([0_u8; 4096], 0, 0);
    loop {
        let text = FILE.read_at(PATH, &mut buffer, at)?;
        if text.is_empty() {
            return Some(lines);
        }
        lines += text.iter().filter(|&&b| b == b'\n').count() as u64;
        at += text.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let file = parse_line("55a0c000-55a0d000 r-xp 00003000 fe:01 1234                   /bin/x y").unwrap();
        let prot = libc::PROT_READ | libc::PROT_EXEC;
        let wanted = Mapping {
            start: 0x55a0_c000,
            end: 0x55a0_d000,
            prot,
            shared: false,
            offset: 0x3000,
            device: (0xfe, 1),
            inode: 1234,
            path: "/bin/x y",
        };
        assert_eq!(file, wanted);
        let heap = parse_line("55a0d000-55a2e000 rw-p 00000000 00:00 0      [heap]").unwrap();
        assert_eq!((heap.inode, heap.path, heap.shared), (0, "[heap]", false));
        let shared = parse_line("7f00-9f00 rw-s 00002000 00:01 77   /dev/shm/a b").unwrap();
        assert!(shared.shared && shared.contains(0x7f00) && !shared.contains(0x9f00));
        assert_eq!(parse_line("10-20 rw-p 00000000 00:00 0 ").unwrap().path, "");
        assert_eq!((parse_line("garbage"), parse_line("20-10 rw-p 0 00:00 0 ")), (None, None));
    }

    #[test]
    fn own_mappings_hold_the_stack_and_are_counted() {
        let local = 0_u8;
        let text = read_own();
        assert!(parse(&text).any(|m| m.contains(&raw const local as usize) && m.prot & libc::PROT_WRITE != 0));
        FILE.open(PATH);
        assert!(count_own() > Some(5));
    }
}
