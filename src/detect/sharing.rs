//! Cache lines that threads take from each other: whether by writing the same words or different ones, and the padding
//! that cures the latter.
//!
//! The scores are those of NumaPerf (Zhao et al.: NumaPerf: Predictive NUMA Profiling, ICS 2021). A line is reported where
//! its own score passes the threshold that NumaPerf has for a program, or where every eighth access takes it from another
//! thread, however slow the run was; and only where the losses of its object take a part of the program's time that is
//! worth a change. Small blocks that one thread writes and hands to others are no shared lines.

use std::collections::BTreeMap;

use super::limits::HOT_SHARE;
use crate::profile::record::{CHARGE_NS, TRACE};
use crate::profile::records::{Frame, SharedWord};
use crate::profile::summary::{LineOfObject, Summary};

/// Invalidations per millisecond and thread above which sharing is reported (NumaPerf, section 5).
pub const SHARING_SCORE: f64 = 1.0;
/// Accesses per millisecond to pages that another thread touched first, above which remote memory is reported (there).
pub const REMOTE_SCORE: f64 = 1500.0;
/// Accesses to a line for each of its invalidations up to which it is reported however slowly the run went. A line of eight
/// numbers that one thread writes and another one reads, as at the border of two parts of an array, has sixteen.
const OFTEN: u64 = 8;
/// Invalidations below which a line is not reported for that.
const LEAST: u64 = 128;
/// Nanoseconds that a thread waits for a line that another one has written: some 100 (documented latencies between cores and
/// sockets, as for frees by other threads in the fixes).
const LOSS_NS: f64 = 100.0;
/// Part of the program's time from which on the losses of an object are reported, as for what is hot.
const WORTH: f64 = HOT_SHARE;
/// CPU time of a traced run over that of the program by itself where threads seldom take lines from each other: 4 to 18
/// were measured for C, C++ and Fortran at -O2. Near the low end, so that the time of the program is rather too long.
const TRACED: f64 = 5.0;
/// Bytes of a cache line.
const LINE: u64 = 64;
/// Share of the invalidations from which on a kind of sharing counts: a tenth is what padding, or a change of the
/// algorithm, would leave.
const PART: f64 = 0.1;
/// Nanoseconds of a millisecond.
const MS: f64 = 1e6;

/// How a line is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharingKind {
    /// Threads use different words: padding cures it.
    False,
    /// Threads use the same words: no padding helps.
    True,
    /// Both.
    Mixed,
}

impl SharingKind {
    /// The name in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            SharingKind::False => "false",
            SharingKind::True => "true",
            SharingKind::Mixed => "mixed",
        }
    }
}

/// A use of a line by some of its threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// Offset of the word in the object, or in the line where the object is many.
    pub offset: u64,
    /// Member of the variable; empty when not known.
    pub field: String,
    /// Whether it is a write.
    pub write: bool,
    /// The instruction that did it last.
    pub ip: Option<Frame>,
}

/// The verdict on a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Shared {
    /// Name of the object.
    pub object: String,
    /// Offset of its first used word in the object; none where the object is many small ones.
    pub offset: Option<u64>,
    /// Kind.
    pub kind: SharingKind,
    /// Times that a write took the line from a thread.
    pub invalidations: u64,
    /// Of these, from threads that had used the written word.
    pub same_word: u64,
    /// Per millisecond and thread.
    pub score: f64,
    /// Threads that read it.
    pub readers: u32,
    /// Threads that wrote it.
    pub writers: u32,
    /// Two uses that take the line from each other.
    pub sides: Vec<Side>,
    /// Bytes to add behind each part that threads use by themselves; none for true sharing.
    pub padding: Option<u64>,
}

/// The lines that are shared so often that it matters, those with most invalidations first.
pub fn sharing(summary: &Summary) -> Vec<Shared> {
    let ms = (summary.stats.duration_ns as f64 / MS).max(1.0);
    let mut found: Vec<Shared> = summary.shared_lines.iter().filter_map(|of| judge(of, ms)).collect();
    retain_costly(&mut found, program_ns(summary));
    // Parts of one size lie differently in each line: the line that shows most of a part tells its size.
    let mut least = BTreeMap::<String, u64>::new();
    for shared in &found {
        if let Some(padding) = shared.padding {
            let known = least.entry(shared.object.clone()).or_insert(padding);
            *known = padding.min(*known);
        }
    }
    for shared in &mut found {
        if let (Some(padding), Some(known)) = (&mut shared.padding, least.get(&shared.object)) {
            *padding = *known;
        }
    }
    found
}

/// CPU time of the program without the hooks, as far as a trace tells: a nanosecond for each access, or the part of the
/// traced CPU time that is the program's where it does more than access memory.
fn program_ns(summary: &Summary) -> f64 {
    let accesses: u64 = summary.entries.iter().map(|entry| entry.total.accesses()).fold(0, u64::saturating_add);
    (accesses as f64 * CHARGE_NS as f64).max(summary.stats.cpu_ns as f64 / TRACED)
}

/// Keeps the lines of objects whose lines cost the threads enough together.
fn retain_costly(found: &mut Vec<Shared>, program_ns: f64) {
    let mut lost = BTreeMap::<String, u64>::new();
    for shared in found.iter() {
        let sum = lost.entry(shared.object.clone()).or_default();
        *sum = sum.saturating_add(shared.invalidations);
    }
    found.retain(|shared| lost[&shared.object] as f64 * LOSS_NS >= WORTH * program_ns);
}

/// Invalidations per millisecond and thread of the whole run; none where the sampler does not count them.
pub fn sharing_score(summary: &Summary) -> Option<f64> {
    let is_counted = summary.header.sampling.sampler == TRACE && summary.profiles == 1;
    let ms = (summary.stats.duration_ns as f64 / MS).max(1.0);
    let all: u64 = summary.shared_lines.iter().map(invalidations).sum();
    is_counted.then(|| all as f64 / (ms * summary.threads.len().max(1) as f64))
}

fn invalidations(of: &LineOfObject) -> u64 {
    of.line.other_words.saturating_add(of.line.same_word)
}

fn judge(of: &LineOfObject, ms: f64) -> Option<Shared> {
    let words = &of.line.words;
    let union = |set: fn(&SharedWord) -> u64| words.iter().fold(0, |all, word| all | set(word));
    let (readers, writers) = (union(|w| w.readers), union(|w| w.writers));
    let threads = (readers | writers).count_ones();
    let all = invalidations(of);
    let score = all as f64 / (ms * f64::from(threads.max(1)));
    let accesses: u64 = words.iter().map(|word| word.reads.saturating_add(word.writes)).fold(0, u64::saturating_add);
    let is_often = all >= LEAST && all.saturating_mul(OFTEN) >= accesses;
    if threads < 2 || score <= SHARING_SCORE && !is_often {
        return None;
    }
    let same = of.line.same_word as f64 / all as f64;
    let starts = starts(words);
    // Blocks of the allocator, each written once before the next thread reads it.
    let is_handed_on = of.base.is_none() && writers.count_ones() == 1 && same > 1.0 - PART;
    if is_handed_on {
        return None;
    }
    let kind = match (same < PART, starts.len() < 2 || same > 1.0 - PART && !is_separable(words)) {
        (true, _) => SharingKind::False,
        (false, true) => SharingKind::True,
        (false, false) => SharingKind::Mixed,
    };
    let offset_of = |word: &SharedWord| match of.base {
        Some(base) => (of.line.addr + u64::from(word.offset)).saturating_sub(base),
        None => u64::from(word.offset),
    };
    Some(Shared {
        object: of.object.clone(),
        offset: of.base.and_then(|_| words.first().map(offset_of)),
        kind,
        invalidations: all,
        same_word: of.line.same_word,
        score,
        readers: readers.count_ones(),
        writers: writers.count_ones(),
        sides: sides(words, kind, offset_of),
        padding: (kind != SharingKind::True).then(|| padding(&starts)).flatten(),
    })
}

/// Whether two words are written by different threads only.
fn is_separable(words: &[SharedWord]) -> bool {
    let written = || words.iter().filter(|word| word.writers != 0);
    written().any(|a| written().any(|b| a.writers & b.writers == 0))
}

/// Offsets in the line at which the words of other threads begin: words in a row with the same users are one part.
fn starts(words: &[SharedWord]) -> Vec<u64> {
    let users = |word: &SharedWord| (word.readers | word.writers, word.writers);
    let parts = words.chunk_by(|a, b| users(a) == users(b));
    parts.map(|part| u64::from(part[0].offset)).collect()
}

/// Bytes that are missing from the least distance of two parts to a line. The first part may have begun in the line
/// before.
fn padding(starts: &[u64]) -> Option<u64> {
    let whole = if starts.len() > 2 { &starts[1..] } else { starts };
    let least = whole.windows(2).map(|pair| pair[1] - pair[0]).max()?;
    Some(LINE - least % LINE)
}

/// The most used written word, and the most used word of other threads (or, of true sharing, the other use of that word).
fn sides(words: &[SharedWord], kind: SharingKind, offset_of: impl Fn(&SharedWord) -> u64) -> Vec<Side> {
    let side = |word: &SharedWord, write: bool| Side {
        offset: offset_of(word),
        field: word.field.clone(),
        write,
        ip: if write { word.write_ip } else { word.read_ip },
    };
    let Some(first) = words.iter().max_by_key(|word| word.writes) else { return Vec::new() };
    let mut out = vec![side(first, true)];
    if kind == SharingKind::True {
        out.extend((first.reads > 0).then(|| side(first, false)));
        return out;
    }
    let others = words.iter().filter(|word| {
        word.offset != first.offset
            && (word.readers | word.writers, word.writers) != (first.readers | first.writers, first.writers)
    });
    // A write rather than a read of the same word: it takes the line away, too.
    out.extend(others.max_by_key(|word| word.reads + word.writes).map(|word| side(word, word.writes > 0)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::records::SharedLine;

    fn word(offset: u8, readers: u64, writers: u64) -> SharedWord {
        let count = |set: u64| if set == 0 { 0 } else { 1000 };
        SharedWord { offset, readers, writers, reads: count(readers), writes: count(writers), ..SharedWord::default() }
    }

    fn line(words: Vec<SharedWord>, other_words: u64, same_word: u64) -> LineOfObject {
        let line = SharedLine { object: 1, addr: 0x1040, other_words, same_word, words };
        LineOfObject { object: "x".into(), base: Some(0x1000), size: 4096, line }
    }

    fn judged(words: Vec<SharedWord>, other_words: u64, same_word: u64) -> Option<(SharingKind, Option<u64>)> {
        judge(&line(words, other_words, same_word), 10.0).map(|shared| (shared.kind, shared.padding))
    }

    #[test]
    fn kinds_and_paddings_of_lines() {
        let counters = || (0..8).map(|n| word(8 * n, 1 << n, 1 << n)).collect::<Vec<_>>();
        assert_eq!(judged(counters(), 9000, 0), Some((SharingKind::False, Some(56))));
        assert_eq!(judged(counters(), 50, 0), None, "rare");
        // Structs of 24 bytes of which two words are used; one lies across the beginning of the line.
        let structs =
            vec![word(0, 1, 1), word(8, 2, 2), word(24, 2, 2), word(32, 4, 4), word(48, 4, 4), word(56, 8, 8)];
        assert_eq!(judged(structs, 9000, 0), Some((SharingKind::False, Some(40))));
        assert_eq!(judged(vec![word(0, 15, 15)], 0, 9000), Some((SharingKind::True, None)));
        // A flag that one thread writes and all read, beside a counter of another thread.
        let mixed = vec![word(0, 15, 1), word(8, 2, 2)];
        assert_eq!(judged(mixed, 5000, 4000), Some((SharingKind::Mixed, Some(56))));
        assert_eq!(judged(vec![word(0, 1, 1)], 9000, 0), None, "one thread");
    }

    #[test]
    fn lines_are_reported_where_their_losses_cost_a_hundredth_of_the_time() {
        let of = |object: &str, losses| {
            let of = line((0..8).map(|n| word(8 * n, 1 << n, 1 << n)).collect(), losses, 0);
            judge(&LineOfObject { object: object.into(), ..of }, 1.0).expect("shared often")
        };
        // A work counter beside 200 million accesses, and an object whose lines each lose little.
        let found = || vec![of("counter", 4000), of("array", 15_000), of("array", 15_000)];
        let kept = |program_ns| {
            let mut all = found();
            retain_costly(&mut all, program_ns);
            all.iter().map(|shared| shared.object.clone()).collect::<Vec<_>>()
        };
        assert_eq!(kept(2e8), ["array", "array"]);
        assert_eq!(kept(2e7).len(), 3);
        assert!(kept(4e8).is_empty());
    }

    #[test]
    fn small_blocks_that_one_thread_writes_for_others_are_handed_on() {
        let judged = |base, writers| {
            let of = line(vec![word(0, 6, writers), word(4, 6, writers)], 0, 9000);
            judge(&LineOfObject { base, ..of }, 10.0).is_some()
        };
        assert!(!judged(None, 1), "a producer and its consumers");
        assert!(judged(Some(0x1000), 1), "a flag");
        assert!(judged(None, 3), "a counter");
    }

    #[test]
    fn both_sides_are_named() {
        let words =
            vec![SharedWord { field: "a".into(), ..word(8, 0, 1) }, SharedWord { field: "b".into(), ..word(16, 2, 0) }];
        let shared = judge(&line(words, 9000, 0), 10.0).unwrap();
        let sides: Vec<_> = shared.sides.iter().map(|s| (s.offset, s.field.as_str(), s.write)).collect();
        assert_eq!(sides, [(0x48, "a", true), (0x50, "b", false)]);
        assert_eq!((shared.offset, shared.readers, shared.writers), (Some(0x48), 1, 1));
    }
}
