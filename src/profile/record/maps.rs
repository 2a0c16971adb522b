//! Mappings from /proc/PID/maps, where the kernel gives no events.

use std::collections::HashSet;
use std::fs;

use numamma_kernel::maps;

use crate::profile::perf::{Inode, Mapping};

/// The mappings of the last read, to find the new ones.
#[derive(Debug, Default)]
pub struct Maps {
    seen: HashSet<Mapping>,
}

impl Maps {
    /// Mappings of `pid` that were not there at the last look.
    pub fn new_mappings(&mut self, pid: u32) -> Vec<Mapping> {
        let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let now: HashSet<Mapping> = maps::parse(&text).map(mapping_of).collect();
        let mut new: Vec<Mapping> = now.difference(&self.seen).cloned().collect();
        new.sort_by_key(|m| m.addr);
        self.seen = now;
        new
    }
}

fn mapping_of(m: maps::Mapping<'_>) -> Mapping {
    // The kernel's events do not have the names that programs give to anonymous memory (PR_SET_VMA_ANON_NAME).
    let path = if m.path.is_empty() || m.path.starts_with("[anon:") { "//anon" } else { m.path };
    let (addr, pgoff) = (m.start as u64, m.offset as u64);
    // Segments of System V have their number for an inode, which counts anew in each IPC namespace.
    let is_shared = m.shared && m.inode != 0 && !path.starts_with("/SYSV");
    let shared = is_shared.then_some(Inode { device: m.device, number: m.inode as u64, generation: None });
    Mapping { addr, len: (m.end - m.start) as u64, pgoff, prot: m.prot as u32, path: path.to_owned(), shared }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_maps() {
        let of = |line| maps::parse_line(line).map(mapping_of);
        let m = of("55d0-75d0 r-xp 00001000 08:01 123                        /bin/a b").expect("a mapping");
        assert_eq!((m.addr, m.len, m.pgoff, m.prot, m.path.as_str()), (0x55d0, 0x2000, 0x1000, 5, "/bin/a b"));
        assert_eq!(of("10-20 rw-p 00000000 00:00 0 ").expect("anonymous").path, "//anon");
        assert_eq!(of("garbage"), None);
        let shared = |line| of(line).expect("a mapping").shared;
        let inode = Inode { device: (0, 0x1a), number: 77, generation: None };
        assert_eq!(shared("10-20 rw-s 00000000 00:1a 77    /dev/shm/a"), Some(inode));
        assert_eq!(shared("10-20 rw-p 00000000 00:1a 77    /dev/shm/a"), None);
        assert_eq!(shared("10-20 rw-s 00000000 00:01 77    /SYSV00000000 (deleted)"), None);
    }

    #[test]
    fn own_mappings_are_new_once() {
        let mut maps = Maps::default();
        assert!(maps.new_mappings(std::process::id()).len() > 5);
        assert!(maps.new_mappings(std::process::id()).len() < 5);
    }
}
