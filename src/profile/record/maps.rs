//! Mappings from /proc/PID/maps, where the kernel gives no events.

use std::collections::HashSet;
use std::fs;

/// One line of /proc/PID/maps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the file.
    pub pgoff: u64,
    /// PROT_* bits.
    pub prot: u32,
    /// File, `[heap]`, ..., or `//anon`.
    pub path: String,
}

/// Remembers what was seen, to tell what is new.
#[derive(Debug, Default)]
pub struct Maps {
    seen: HashSet<Mapping>,
}

impl Maps {
    /// Mappings of `pid` that were not there at the last look.
    pub fn new_mappings(&mut self, pid: u32) -> Vec<Mapping> {
        let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let now: HashSet<Mapping> = text.lines().filter_map(parse).collect();
        let mut new: Vec<Mapping> = now.difference(&self.seen).cloned().collect();
        new.sort_by_key(|m| m.addr);
        self.seen = now;
        new
    }
}

fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (low, high) = words.next()?.split_once('-')?;
    let (low, high) = (u64::from_str_radix(low, 16).ok()?, u64::from_str_radix(high, 16).ok()?);
    let flags = words.next()?;
    let pgoff = u64::from_str_radix(words.next()?, 16).ok()?;
    let path = words.nth(2).map_or("", str::trim);
    let prot = [('r', libc::PROT_READ), ('w', libc::PROT_WRITE), ('x', libc::PROT_EXEC)]
        .iter()
        .filter(|(c, _)| flags.contains(*c))
        .fold(0, |p, (_, bit)| p | *bit as u32);
    let path = if path.is_empty() { "//anon" } else { path };
    Some(Mapping { addr: low, len: high.checked_sub(low)?, pgoff, prot, path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_maps() {
        let m = parse("55d0-75d0 r-xp 00001000 08:01 123                        /bin/a b").expect("a mapping");
        assert_eq!((m.addr, m.len, m.pgoff, m.prot, m.path.as_str()), (0x55d0, 0x2000, 0x1000, 5, "/bin/a b"));
        assert_eq!(parse("10-20 rw-p 00000000 00:00 0 ").expect("anonymous").path, "//anon");
        assert_eq!(parse("garbage"), None);
    }

    #[test]
    fn own_mappings_are_new_once() {
        let mut maps = Maps::default();
        assert!(maps.new_mappings(std::process::id()).len() > 5);
        assert!(maps.new_mappings(std::process::id()).len() < 5);
    }
}
