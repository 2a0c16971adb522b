//! Why a page is not where its plan wants it, as far as the kernel tells a process without privileges.
//!
//! /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst) has a word per page: bit 56 exclusively mapped (since
//! 4.2), 61 a file's or shared, 62 swapped, 63 present. Which pages are parts of huge ones only root may ask, so that is
//! concluded from /proc/self/smaps. What cannot be read gives fewer reasons. Nothing is read before a page is off plan.

use core::ffi::c_int;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use numamma_hook::sys::PAGE;
use numamma_plan::plan::HUGE_PAGE;
use numamma_plan::reason::Reason;

use crate::kernel::BATCH;

const EXCLUSIVE: u64 = 1 << 56;
const FILE: u64 = 1 << 61;
const SWAPPED: u64 = 1 << 62;
const PRESENT: u64 = 1 << 63;

/// A node is full when it has at most so many times the pages the kernel holds back: allocations go elsewhere below the low
/// watermark, and the kernel frees pages up to the high one (mm/page_alloc.c, mm/vmscan.c), so it stays around there.
const NEAR_WATERMARK: u64 = 2;

/// Counts by reason.
pub type Tally = [u64; Reason::ALL.len()];

/// A mapping that holds huge pages.
struct Huge {
    start: usize,
    end: usize,
}

/// Answers for one object; reads what it needs, once.
#[derive(Default)]
pub struct Reasons {
    pagemap: Option<Option<File>>,
    huge: Option<Vec<Huge>>,
    full: Option<Vec<u32>>,
}

impl Reasons {
    /// The pagemap words of `pages`, which follow one another; zeroes where they cannot be read.
    pub fn words(&mut self, pages: &[usize], words: &mut [u64; BATCH]) {
        words.fill(0);
        let file = self.pagemap.get_or_insert_with(|| File::open("/proc/self/pagemap").ok());
        let (Some(file), Some(&first)) = (file, pages.first()) else { return };
        let mut bytes = [0_u8; BATCH * 8];
        let wanted = &mut bytes[..pages.len().min(BATCH) * 8];
        if file.read_exact_at(wanted, (first / PAGE * 8) as u64).is_ok() {
            for (word, bytes) in words.iter_mut().zip(wanted.chunks_exact(8)) {
                *word = bytes.try_into().map_or(0, u64::from_le_bytes);
            }
        }
    }

    /// Why a page is off plan. `word` is its pagemap word, `gathered` the answer of [`Reasons::gathered`] for its batch,
    /// `planned` are the nodes where it should be.
    pub fn of(&mut self, word: u64, gathered: bool, planned: &[u32]) -> Reason {
        if word & FILE != 0 {
            return Reason::File;
        }
        if word & PRESENT != 0 && word & EXCLUSIVE == 0 {
            return Reason::Shared;
        }
        if gathered {
            return Reason::Gathered;
        }
        let full = self.full.get_or_insert_with(full_nodes);
        if !planned.is_empty() && planned.iter().all(|node| full.contains(node)) { Reason::Full } else { Reason::Moved }
    }

    /// Whether pages that lie together in 2 MiB, not all planned on one node, are parts of one huge page.
    pub fn gathered(&mut self, pages: &[usize], status: &[c_int]) -> bool {
        let (Some(&first), Some(&node)) = (pages.first(), status.first()) else { return false };
        if node < 0 || status.iter().any(|&s| s != node) {
            return false;
        }
        let start = first & !(HUGE_PAGE as usize - 1);
        let end = start + HUGE_PAGE as usize;
        let huge =
            self.huge.get_or_insert_with(|| huge_mappings(&fs::read_to_string("/proc/self/smaps").unwrap_or_default()));
        huge.iter().any(|m| m.start <= start && end <= m.end)
    }
}

/// Whether a page is present.
pub fn present(word: u64) -> bool {
    word & PRESENT != 0
}

/// Whether a page that is not present was swapped out.
pub fn swapped(word: u64) -> bool {
    word & (SWAPPED | PRESENT) == SWAPPED
}

/// The mappings of /proc/self/smaps with huge pages that belong to the process.
fn huge_mappings(smaps: &str) -> Vec<Huge> {
    let mut found = Vec::new();
    let mut current = None;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(first), Some(second)) = (words.next(), words.next()) else { continue };
        if first == "AnonHugePages:" {
            found.extend(current.take().filter(|_| second != "0"));
        } else if !first.ends_with(':') {
            let hex = |text: &str| usize::from_str_radix(text, 16).ok();
            current = first.split_once('-').and_then(|(a, b)| Some(Huge { start: hex(a)?, end: hex(b)? }));
        }
    }
    found
}

/// Nodes that have next to no free memory, by /proc/zoneinfo.
fn full_nodes() -> Vec<u32> {
    full_of(&fs::read_to_string("/proc/zoneinfo").unwrap_or_default())
}

fn full_of(zoneinfo: &str) -> Vec<u32> {
    // Node, free pages and pages held back; the zones of a node follow one another.
    let mut nodes: Vec<(u32, u64, u64)> = Vec::new();
    for line in zoneinfo.lines() {
        let mut words = line.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
        let (Some(first), Some(second)) = (words.next(), words.next()) else { continue };
        if first == "Node" {
            let node = second.parse().unwrap_or(u32::MAX);
            if nodes.last().is_none_or(|(last, ..)| *last != node) {
                nodes.push((node, 0, 0));
            }
            continue;
        }
        let Some((_, free, held)) = nodes.last_mut() else { continue };
        let number = |word: &str| word.parse::<u64>().unwrap_or(0);
        match first {
            "pages" if second == "free" => *free += words.next().map_or(0, number),
            "high" => *held += number(second),
            "protection" => *held += words.map(number).chain([number(second)]).max().unwrap_or(0),
            _ => {}
        }
    }
    nodes.into_iter().filter(|(_, free, held)| *free <= NEAR_WATERMARK * held).map(|(node, ..)| node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONES: &str = "\
Node 0, zone      DMA
  pages free     1000
        boost    0
        min      10
        low      12
        high     15
        protection: (0, 100, 300, 300)
  per-node stats
      nr_inactive_anon 7
Node 0, zone    DMA32
  pages free     900
        high     60
        protection: (0, 0, 0, 0)
      high:  9
Node 1, zone   Normal
  pages free     90
        min      40
        high     60
        protection: (0, 0, 0, 0)
    pagesets
";

    #[test]
    fn nodes_near_their_watermarks_are_full() {
        assert_eq!(full_of(ZONES), [1]);
        assert_eq!(full_of(&ZONES.replace("free     900", "free     10").replace("free     1000", "free 600")), [0, 1]);
        assert_eq!(full_of(""), [0; 0]);
        assert!(!full_of(&fs::read_to_string("/proc/zoneinfo").unwrap()).contains(&u32::MAX));
    }

    #[test]
    fn mappings_with_huge_pages() {
        let smaps = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
Size:               4096 kB
AnonHugePages:      2048 kB
VmFlags: rd wr
7f0000400000-7f0000600000 rw-p 00000000 00:00 0 
AnonHugePages:         0 kB
";
        let found = huge_mappings(smaps);
        assert_eq!(found.iter().map(|m| (m.start, m.end)).collect::<Vec<_>>(), [(0x7f00_0000_0000, 0x7f00_0040_0000)]);
        let mut reasons = Reasons { huge: Some(found), ..Reasons::default() };
        let pages: Vec<usize> = (0..10).map(|i| 0x7f00_0020_0000 + i * PAGE).collect();
        assert!(reasons.gathered(&pages, &[1; 10]) && !reasons.gathered(&pages, &[-2; 10]));
        assert!(!reasons.gathered(&pages, &[1, 1, 1, 1, 0, 1, 1, 1, 1, 1]), "a huge page is on one node");
        assert!(!reasons.gathered(&[0x7f00_0050_0000], &[1]));
    }

    #[test]
    fn reasons_come_in_their_order() {
        let mut reasons = Reasons { full: Some(vec![1, 2]), ..Reasons::default() };
        assert_eq!(reasons.of(PRESENT | FILE, true, &[1]), Reason::File);
        assert_eq!(reasons.of(PRESENT, true, &[1]), Reason::Shared);
        assert_eq!(reasons.of(PRESENT | EXCLUSIVE, true, &[1]), Reason::Gathered);
        assert_eq!(reasons.of(PRESENT | EXCLUSIVE, false, &[2, 1]), Reason::Full);
        assert_eq!(reasons.of(0, false, &[1]), Reason::Full, "without a pagemap fewer reasons are known");
        assert_eq!(reasons.of(PRESENT | EXCLUSIVE, false, &[1, 3]), Reason::Moved);
        assert!(swapped(SWAPPED) && !swapped(PRESENT) && !swapped(0));
    }

    #[test]
    fn a_touched_page_of_our_own_is_exclusive() {
        let base = crate::kernel::map_aligned(4 * PAGE, PAGE).unwrap();
        // SAFETY: the mapping is ours and writable.
        unsafe { (base as *mut u8).write(1) };
        let mut words = [0; BATCH];
        Reasons::default().words(&[base, base + PAGE], &mut words);
        assert_eq!(words[0] & (PRESENT | FILE | EXCLUSIVE | SWAPPED), PRESENT | EXCLUSIVE);
        assert_eq!(words[1] & (PRESENT | SWAPPED), 0);
    }
}
