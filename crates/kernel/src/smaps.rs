//! /proc/PID/smaps: the page sizes of each mapping.

use crate::maps::range;
use crate::meminfo::kib;

/// The page sizes of one mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backing {
    /// First address.
    pub start: usize,
    /// Address behind the last byte.
    pub end: usize,
    /// Page size, bytes: the huge page size for hugetlb, else the base page size.
    pub page_bytes: usize,
    /// Bytes of anonymous memory in transparent huge pages.
    pub huge_bytes: usize,
}

/// The mappings in the text of the file.
pub fn parse(text: &[u8]) -> Vec<Backing> {
    let mut found: Vec<Backing> = Vec::new();
    for line in text.split(|&b| b == b'\n').filter_map(|line| core::str::from_utf8(line).ok()) {
        let bytes = |value: &str| kib(value).map_or(0, |bytes| bytes as usize);
        if let Some((start, end)) = line.split_once(' ').and_then(|(first, _)| range(first)) {
            found.push(Backing { start, end, ..Backing::default() });
        } else if let Some(last) = found.last_mut() {
            if let Some(value) = line.strip_prefix("KernelPageSize:") {
                last.page_bytes = bytes(value);
            } else if let Some(value) = line.strip_prefix("AnonHugePages:") {
                last.huge_bytes = bytes(value);
            }
        }
    }
    found
}

/// The mappings of the calling process; empty when the file cannot be read.
pub fn own() -> Vec<Backing> {
    parse(&std::fs::read("/proc/self/smaps").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_with_their_pages() {
        let text = b"\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
Size:               4096 kB
KernelPageSize:        4 kB
AnonHugePages:      2048 kB
VmFlags: rd wr
7f0000400000-7f0000600000 rw-p 00000000 00:00 0 
KernelPageSize:     2048 kB
AnonHugePages:         0 kB
";
        let first = Backing { start: 0x7f00_0000_0000, end: 0x7f00_0040_0000, page_bytes: 4096, huge_bytes: 2 << 20 };
        let second = Backing { start: 0x7f00_0040_0000, end: 0x7f00_0060_0000, page_bytes: 2 << 20, huge_bytes: 0 };
        assert_eq!(parse(text), [first, second]);
        assert_eq!(parse(b""), []);
    }

    #[test]
    fn the_stack_of_this_process_has_base_pages() {
        let local = 0_u8;
        let at = &raw const local as usize;
        assert_eq!(own().iter().find(|m| (m.start..m.end).contains(&at)).unwrap().page_bytes, crate::sys::PAGE);
    }
}
