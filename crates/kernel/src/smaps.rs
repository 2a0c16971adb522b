//! /proc/PID/smaps: the page sizes of each mapping, and which mappings only memory policies divide.

use crate::lines;
use crate::maps::range;
use crate::meminfo::kib;
use crate::sys;

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

/// Reads the lines of the file one by one.
#[derive(Default)]
struct Reader {
    /// The mapping whose lines are being read.
    current: Option<Backing>,
}

impl Reader {
    /// Takes the next line; returns the mapping before it if the line begins another.
    fn feed(&mut self, line: &str) -> Option<Backing> {
        let bytes = |value: &str| kib(value).map_or(0, |bytes| bytes as usize);
        if let Some((start, end)) = line.split_once(' ').and_then(|(first, _)| range(first)) {
            return self.current.replace(Backing { start, end, ..Backing::default() });
        }
        if let Some(current) = &mut self.current {
            if let Some(value) = line.strip_prefix("KernelPageSize:") {
                current.page_bytes = bytes(value);
            } else if let Some(value) = line.strip_prefix("AnonHugePages:") {
                current.huge_bytes = bytes(value);
            }
        }
        None
    }
}

/// Calls `visit` with each mapping of the calling process until it returns false; with none when the file cannot be
/// read. Allocates nothing.
pub fn for_each_own(mut visit: impl FnMut(Backing) -> bool) {
    let (mut reader, mut goes_on) = (Reader::default(), true);
    lines::for_each(c"/proc/thread-self/smaps", |line| {
        goes_on = reader.feed(line).is_none_or(&mut visit);
        goes_on
    });
    if let Some(last) = reader.current.filter(|_| goes_on) {
        visit(last);
    }
}

/// The memory areas of the calling process that make up `[start, end)`, clipped to it, if memory policies and advice
/// about huge pages are all that distinguishes them: without these they would be one area. `None` when there is a hole,
/// when the areas differ in access rights, file, name or other flags, and when the file cannot be read.
pub fn alike(start: usize, end: usize) -> Option<Vec<(usize, usize)>> {
    let fd = sys::open(c"/proc/thread-self/smaps", libc::O_RDONLY)?;
    let mut areas = Areas { start, end, areas: Vec::new(), first: None, open: None, differ: false };
    let (mut buffer, mut line, mut len) = ([0_u8; 512], [0_u8; LONGEST], 0);
    'file: while let Some(got @ 1..) = sys::read(fd, &mut buffer) {
        for &byte in buffer.iter().take(got) {
            if byte != b'\n' {
                // The end of a longer line is not needed.
                if let Some(place) = line.get_mut(len) {
                    (*place, len) = (byte, len + 1);
                }
                continue;
            }
            if !areas.feed(line.get(..len).unwrap_or_default()) {
                break 'file;
            }
            len = 0;
        }
    }
    sys::close(fd);
    areas.finish()
}

/// Bytes of a line of smaps that are compared; only paths are longer.
const LONGEST: usize = 256;

/// Flags that do not count: what placing asks for beside a policy (hg and nh, huge pages and none), and whether pages
/// were written since a tracer looked (sd), which never keeps two areas apart.
const BESIDE_POLICIES: [&str; 3] = ["hg", "nh", "sd"];

/// An area being read: its range, and a hash of all that must agree.
type Open = (usize, usize, u64);

struct Areas {
    start: usize,
    end: usize,
    areas: Vec<(usize, usize)>,
    /// Hash of the first area.
    first: Option<u64>,
    open: Option<Open>,
    differ: bool,
}

impl Areas {
    /// Takes the next line; false when no further line is needed.
    fn feed(&mut self, line: &[u8]) -> bool {
        let Ok(line) = core::str::from_utf8(line) else {
            // A path; whether it is that of another area of the range is unknown.
            self.differ |= self.open.is_some();
            return true;
        };
        if let Some((from, to)) = line.split_once(' ').and_then(|(first, _)| range(first)) {
            self.close();
            if to > self.start && from < self.end {
                self.open = Some((from, to, hash_of(line, from)));
            }
            return from < self.end && !self.differ;
        }
        if let (Some(flags), Some((_, _, hash))) = (line.strip_prefix("VmFlags:"), &mut self.open) {
            for flag in flags.split_ascii_whitespace().filter(|flag| !BESIDE_POLICIES.contains(flag)) {
                *hash = mix(*hash, flag.as_bytes());
            }
        }
        true
    }

    /// Ends the area being read.
    fn close(&mut self) {
        let Some((from, to, hash)) = self.open.take() else { return };
        let (from, to) = (from.max(self.start), to.min(self.end));
        let hole = self.areas.last().map_or(self.start, |last| last.1) != from;
        self.differ |= hole || *self.first.get_or_insert(hash) != hash || self.areas.try_reserve(1).is_err();
        if !self.differ {
            self.areas.push((from, to));
        }
    }

    fn finish(mut self) -> Option<Vec<(usize, usize)>> {
        self.close();
        let complete = self.areas.last().is_some_and(|last| last.1 == self.end);
        (complete && !self.differ).then_some(self.areas)
    }
}

/// Hash of access rights, file and name in the first line of an area, and of the place in the file where the address 0
/// would be, which continuing areas share.
fn hash_of(line: &str, start: usize) -> u64 {
    let mut words = line.splitn(6, ' ').skip(1);
    let mut next = || words.next().unwrap_or_default();
    let (rights, offset) = (next(), usize::from_str_radix(next(), 16).unwrap_or(0));
    let (device, inode, name) = (next(), next(), next());
    let origin = if inode == "0" { 0 } else { offset.wrapping_sub(start) };
    [rights, device, inode, name.trim_start()]
        .iter()
        .fold(mix(FNV_BASIS, &origin.to_le_bytes()), |hash, word| mix(mix(hash, word.as_bytes()), b" "))
}

/// FNV-1a, 64 bits.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

fn mix(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_with_their_pages() {
        let text = "\
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
        let mut reader = Reader::default();
        let complete: Vec<Backing> = text.lines().filter_map(|line| reader.feed(line)).collect();
        assert_eq!((&complete[..], reader.current), (&[first][..], Some(second)));
    }

    fn areas_of(text: &str, start: usize, end: usize) -> Option<Vec<(usize, usize)>> {
        let mut areas = Areas { start, end, areas: Vec::new(), first: None, open: None, differ: false };
        for line in text.lines() {
            if !areas.feed(line.as_bytes()) {
                break;
            }
        }
        areas.finish()
    }

    #[test]
    fn areas_that_only_placing_divides() {
        let text = "\
1000-3000 rw-p 00000000 00:00 0 
Size: 8 kB
VmFlags: rd wr mr mw me ac sd 
3000-4000 rw-p 00000000 00:00 0 
VmFlags: rd wr mr mw me ac 
4000-5000 rw-p 00000000 00:00 0 
VmFlags: rd wr mr mw me ac hg 
5000-6000 rw-p 00000000 00:00 0 
VmFlags: rd wr mr mw me ac dd 
7000-8000 rw-p 00000000 00:00 0                          [anon: x]
VmFlags: rd wr mr mw me ac dd 
8000-9000 rw-p 00000000 00:00 0                          [anon: y]
VmFlags: rd wr mr mw me ac dd 
a000-b000 rw-s 00001000 00:01 77                         /memfd:m
VmFlags: rd wr
b000-c000 rw-s 00002000 00:01 77                         /memfd:m
VmFlags: rd wr
c000-d000 rw-s 00007000 00:01 77                         /memfd:m
VmFlags: rd wr
";
        assert_eq!(areas_of(text, 0x1000, 0x4000), Some(vec![(0x1000, 0x3000), (0x3000, 0x4000)]));
        assert_eq!(areas_of(text, 0x3000, 0x5000), Some(vec![(0x3000, 0x4000), (0x4000, 0x5000)]), "huge pages");
        assert_eq!(areas_of(text, 0x2000, 0x3000), Some(vec![(0x2000, 0x3000)]));
        assert_eq!(areas_of(text, 0xa000, 0xc000), Some(vec![(0xa000, 0xb000), (0xb000, 0xc000)]));
        for (start, end, why) in [
            (0x3000, 0x6000, "flags differ"),
            (0x5000, 0x8000, "a hole"),
            (0x7000, 0x9000, "names differ"),
            (0xb000, 0xd000, "another part of the file"),
            (0xc000, 0xe000, "nothing behind"),
            (0x0, 0x2000, "nothing before"),
            (0x6000, 0x7000, "nothing at all"),
        ] {
            assert_eq!(areas_of(text, start, end), None, "{why}");
        }
        let local = 0_u8;
        let page = &raw const local as usize & !(sys::PAGE - 1);
        assert_eq!(alike(page, page + sys::PAGE), Some(vec![(page, page + sys::PAGE)]));
    }

    #[test]
    fn the_stack_of_this_process_has_base_pages() {
        let local = 0_u8;
        let at = &raw const local as usize;
        let (mut found, mut visited) = (None, 0);
        for_each_own(|m| {
            visited += 1;
            found = found.or(Some(m).filter(|m| (m.start..m.end).contains(&at)));
            true
        });
        assert_eq!(found.unwrap().page_bytes, crate::sys::PAGE);
        let count = crate::maps::parse(&crate::maps::read_own()).count();
        assert!((count / 2..=count * 2).contains(&visited), "{visited} of {count}");
    }
}
