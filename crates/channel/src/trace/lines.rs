//! Cache lines of pages that several threads use and one of them writes: who has each line, and what writes cost the
//! others.
//!
//! A line has a cache of unlimited size for each thread, as in NumaPerf (Zhao et al., ICS 2021) and Predator (Liu et
//! al., PPoPP 2014): an access makes the thread a holder, and a write takes the line from all other holders, each of
//! which counts as an invalidation. Holders are kept by word, so that those that used the written word since the write
//! before (true sharing) are told apart from those that used only other words of the line (false sharing).
//!
//! All operations are atomic and none waits: of two writes at once each takes the holders that the other did not, so
//! that no loss of a line counts twice.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use numamma_kernel::clock::monotonic_ns;

use super::layout::{Map, PAGE_SHIFT};

/// Bytes of a cache line: x86-64 has no other.
pub const LINE: usize = 64;
/// Bytes of a word, within which uses are not told apart.
pub const WORD: usize = 4;
/// Words of a line.
pub const WORDS: usize = LINE / WORD;
/// Lines of a page.
pub const LINES: usize = (1 << PAGE_SHIFT) / LINE;
/// Pages that have lines in one run: 24 MiB.
pub const BLOCKS: usize = 512;
/// Those that have memory from the start on.
pub const FIRST_BLOCKS: usize = 16;

/// A line of 64 bytes. A set of threads has bit n for those whose number modulo 64 is n.
#[repr(C)]
struct Line {
    /// By word, threads that have used it since another thread wrote to the line.
    holders: [AtomicU64; WORDS],
    readers: [AtomicU64; WORDS],
    writers: [AtomicU64; WORDS],
    reads: [AtomicU32; WORDS],
    writes: [AtomicU32; WORDS],
    /// Site of the last read, and of the last write.
    read_site: [AtomicU32; WORDS],
    write_site: [AtomicU32; WORDS],
    /// Invalidations of holders that used other words only.
    other_words: AtomicU64,
    /// Invalidations of holders that used the written word.
    same_word: AtomicU64,
    _rest: [u64; 6],
}

/// The lines of a page.
#[repr(C, align(4096))]
pub struct PageLines {
    /// Page number; 0 until the block is used.
    page: AtomicU64,
    /// When it was taken, CLOCK_MONOTONIC.
    since_ns: AtomicU64,
    /// Process.
    pid: AtomicU32,
    _rest: [u32; 1019],
    lines: [Line; LINES],
}

const _: () = assert!(size_of::<Line>() == 704 && size_of::<PageLines>() == 49152);

/// Takes the lines of a page for as long as the run lasts; `None` when no memory is ready. The index is that of
/// [`Map::lines`].
pub fn take(map: Map, pid: u32, page: u64) -> Option<usize> {
    let header = map.header();
    // Acquire pairs with the recorder's Release: the memory is there.
    let ready = header.blocks_ready.load(Acquire).min(BLOCKS as u32);
    let taken = header.blocks_taken.fetch_update(AcqRel, Relaxed, |taken| (taken < ready).then_some(taken + 1));
    let index = taken.ok()? as usize;
    let block = map.lines(index);
    block.pid.store(pid, Relaxed);
    block.since_ns.store(monotonic_ns(), Relaxed);
    // Release pairs with the recorder's Acquire: it sees the process and the time.
    block.page.store(page, Release);
    Some(index)
}

impl PageLines {
    /// Whether these are the lines of that page.
    pub fn is_of(&self, pid: u32, page: u64) -> bool {
        self.page.load(Relaxed) == page && self.pid.load(Relaxed) == pid
    }

    /// Counts `count` accesses at an address by the thread of that number at a site, as one use of the line.
    pub fn access(&self, addr: u64, thread: u32, site: u32, write: bool, count: u64) {
        let offset = addr as usize % (LINES * LINE);
        let (line, word) = (&self.lines[offset / LINE], offset % LINE / WORD);
        let own = 1_u64 << (thread % u64::BITS);
        let set = |place: &AtomicU64| {
            if place.load(Relaxed) & own == 0 {
                place.fetch_or(own, Relaxed);
            }
        };
        set(&line.holders[word]);
        if !write {
            set(&line.readers[word]);
            line.reads[word].fetch_add(count as u32, Relaxed);
            line.read_site[word].store(site, Relaxed);
            return;
        }
        set(&line.writers[word]);
        line.writes[word].fetch_add(count as u32, Relaxed);
        line.write_site[word].store(site, Relaxed);
        let (mut lost, mut same) = (0, 0);
        for (n, holders) in line.holders.iter().enumerate() {
            if holders.load(Relaxed) & !own == 0 {
                continue;
            }
            let taken = holders.fetch_and(own, Relaxed) & !own;
            lost |= taken;
            if n == word {
                same = taken;
            }
        }
        for (count, threads) in [(&line.same_word, same), (&line.other_words, lost & !same)] {
            if threads != 0 {
                count.fetch_add(threads.count_ones().into(), Relaxed);
            }
        }
    }
}

/// Accesses to a word since they were read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedWord {
    /// Which word of the line.
    pub word: u8,
    /// Threads that have read it so far, by number modulo 64.
    pub readers: u64,
    /// Threads that have written it so far.
    pub writers: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// The instruction that read last, as in a [`super::reader::Tally`]; 0 when not known.
    pub read_ip: u64,
    /// The instruction that wrote last.
    pub write_ip: u64,
}

/// What happened in a line since it was read before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedLine {
    /// Process.
    pub pid: u32,
    /// Address of the line.
    pub addr: u64,
    /// When lines of its page began to be counted, CLOCK_MONOTONIC.
    pub since_ns: u64,
    /// Invalidations of holders that used other words only.
    pub other_words: u64,
    /// Invalidations of holders that used the written word.
    pub same_word: u64,
    /// The words that were used.
    pub words: Vec<SharedWord>,
}

/// What was read before.
#[derive(Debug, Default)]
pub(super) struct LinesReader {
    blocks: Vec<Vec<Before>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Before {
    reads: [u32; WORDS],
    writes: [u32; WORDS],
    other_words: u64,
    same_word: u64,
}

impl LinesReader {
    /// Appends what is new in the first `blocks` blocks.
    pub fn collect(&mut self, map: Map, blocks: usize, out: &mut Vec<SharedLine>) {
        for index in 0..blocks {
            let block = map.lines(index);
            // Acquire pairs with the Release of `take`.
            let page = block.page.load(Acquire);
            if page == 0 {
                break; // the next time
            }
            if self.blocks.len() <= index {
                self.blocks.push(vec![Before::default(); LINES]);
            }
            let (pid, since_ns) = (block.pid.load(Relaxed), block.since_ns.load(Relaxed));
            for (n, (line, before)) in block.lines.iter().zip(&mut self.blocks[index]).enumerate() {
                let addr = (page << PAGE_SHIFT) + (n * LINE) as u64;
                out.extend(line.since(map, before).map(|line| SharedLine { pid, addr, since_ns, ..line }));
            }
        }
    }
}

impl Line {
    fn since(&self, map: Map, before: &mut Before) -> Option<SharedLine> {
        let new = |count: &AtomicU32, before: &mut u32| {
            let now = count.load(Relaxed);
            u64::from(now.wrapping_sub(std::mem::replace(before, now)))
        };
        let new_wide = |count: &AtomicU64, before: &mut u64| {
            let now = count.load(Relaxed);
            now.wrapping_sub(std::mem::replace(before, now))
        };
        let mut words = Vec::new();
        for n in 0..WORDS {
            let (reads, writes) =
                (new(&self.reads[n], &mut before.reads[n]), new(&self.writes[n], &mut before.writes[n]));
            let ip = |site: &AtomicU32| map.site(site.load(Relaxed) as usize).load(Relaxed) >> 1;
            if reads + writes > 0 {
                words.push(SharedWord {
                    word: n as u8,
                    readers: self.readers[n].load(Relaxed),
                    writers: self.writers[n].load(Relaxed),
                    reads,
                    writes,
                    read_ip: ip(&self.read_site[n]),
                    write_ip: ip(&self.write_site[n]),
                });
            }
        }
        let other_words = new_wide(&self.other_words, &mut before.other_words);
        let same_word = new_wide(&self.same_word, &mut before.same_word);
        (!words.is_empty()).then_some(SharedLine { pid: 0, addr: 0, since_ns: 0, other_words, same_word, words })
    }
}
