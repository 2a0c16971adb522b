//! Cache lines that threads take from each other: whether by writing the same words or different ones, and the padding
//! that cures the latter.
//!
//! The scores are those of NumaPerf (Zhao et al.: NumaPerf: Predictive NUMA Profiling, ICS 2021). A line is reported
//! where its own score passes the threshold that NumaPerf has for a program, or where every eighth access takes it from
//! another thread, however slow the run was; and only where the losses of its object take a part of the program's time
//! that is worth a change. Small blocks that one thread writes and hands to others are no shared lines.

use std::borrow::Cow;
use std::collections::BTreeMap;

use self::apart::{Distances, are_apart};
use super::limits::HOT_SHARE;
use crate::profile::record::{CHARGE_NS, TRACE};
use crate::profile::records::{Frame, ObjectKind, SharedWord};
use crate::profile::summary::{Entry, LineOfObject, Summary};

mod apart;
mod sampled;

pub use sampled::{SampledSharing, sampled_sharing};

/// Invalidations per millisecond and thread above which sharing is reported (NumaPerf, section 5).
pub const SHARING_SCORE: f64 = 1.0;
/// Accesses per millisecond to pages that another thread touched first, above which remote memory is reported (there).
pub const REMOTE_SCORE: f64 = 1500.0;
/// Accesses to a line for each of its invalidations up to which it is reported however slowly the run went. A line of
/// eight numbers that one thread writes and another one reads, as at the border of two parts of an array, has sixteen.
const OFTEN: u64 = 8;
/// Invalidations below which a line is not reported for that.
const LEAST: u64 = 128;
/// Nanoseconds that a thread waits for a line that another one has written: some 100 (documented latencies between
/// cores and sockets, as for frees by other threads in the fixes).
const LOSS_NS: f64 = 100.0;
/// Part of the program's time from which on the losses of an object are reported, as for what is hot.
const WORTH: f64 = HOT_SHARE;
/// CPU time of a traced run over that of the program by itself where threads seldom take lines from each other: 4 to 18
/// were measured for C, C++ and Fortran at -O2. Above the high end: hooks that take lines from each other are slower
/// still.
const TRACED: f64 = 20.0;
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
    /// Name of its object, where that is another one than that of the line.
    pub object: Option<String>,
    /// Offset of the word in its object, or in the line where the object is many.
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
    /// Bytes between the parts that threads use by themselves, which put them on lines of their own where the first one
    /// begins at a multiple of 64 bytes; none for true sharing, for two objects, and where the parts need different
    /// ones.
    pub padding: Option<u64>,
}

/// The lines that are shared so often that it matters, those with most invalidations first.
pub fn sharing(summary: &Summary) -> Vec<Shared> {
    let ms = (summary.stats.duration_ns as f64 / MS).max(1.0);
    let lines = joined(&summary.shared_lines);
    let mut by_object = BTreeMap::<(&str, Option<u64>), Vec<&LineOfObject>>::new();
    for of in &lines {
        // Small blocks of a call site are no array.
        by_object.entry((&of.object, of.base.or(Some(of.line.addr)))).or_default().push(of);
    }
    let distances = |mut of_object: Vec<&LineOfObject>| {
        of_object.sort_by_key(|of| of.line.addr);
        of_object.dedup_by_key(|of| of.line.addr);
        Distances::of(&of_object)
    };
    let by_object: BTreeMap<_, Distances> = by_object.into_iter().map(|(key, of)| (key, distances(of))).collect();
    let other = |addr: u64| other_object(&summary.entries, addr);
    let judged = |of: &LineOfObject| {
        let distances = by_object.get(&(of.object.as_str(), of.base.or(Some(of.line.addr))))?;
        judge(of, distances, ms, &other)
    };
    let mut found: Vec<Shared> = lines.iter().filter_map(|of| judged(of)).collect();
    found.retain(|shared| !is_argument(summary, shared));
    retain_costly(&mut found, program_ns(summary));
    found
}

/// Whether a line of a stack holds what its thread hands to others: the arguments of a parallel region, say, which are
/// written once for each. No variable of each thread replaces it.
fn is_argument(summary: &Summary, shared: &Shared) -> bool {
    let is_stack = || summary.entries.iter().any(|e| e.kind == ObjectKind::Stack && e.name == shared.object);
    shared.kind == SharingKind::True && shared.writers == 1 && is_stack()
}

/// The lines, each once: one that lies across two objects is counted for the one whose word was used more at a time.
fn joined(lines: &[LineOfObject]) -> Vec<Cow<'_, LineOfObject>> {
    let mut out: Vec<Cow<'_, LineOfObject>> = Vec::new();
    let mut by_addr = BTreeMap::<u64, Vec<usize>>::new();
    for of in lines {
        let same_addr = by_addr.entry(of.line.addr).or_default();
        let Some(at) = same_addr.iter().copied().find(|at| are_beside(&out[*at], of)) else {
            same_addr.push(out.len());
            out.push(Cow::Borrowed(of));
            continue;
        };
        let sum = &mut out[at].to_mut().line;
        sum.other_words = sum.other_words.saturating_add(of.line.other_words);
        sum.same_word = sum.same_word.saturating_add(of.line.same_word);
        of.line.words.iter().for_each(|word| add_word(&mut sum.words, word));
    }
    out.sort_by_key(|of| std::cmp::Reverse(invalidations(of)));
    out
}

/// Whether two objects are there at the same time: neither has memory of the other.
fn are_beside(a: &LineOfObject, b: &LineOfObject) -> bool {
    let (Some(of_a), Some(of_b)) = (a.base, b.base) else { return false };
    a.object != b.object && (of_a.saturating_add(a.size) <= of_b || of_b.saturating_add(b.size) <= of_a)
}

fn add_word(words: &mut Vec<SharedWord>, word: &SharedWord) {
    match words.binary_search_by_key(&word.offset, |w| w.offset) {
        Ok(at) => {
            let sum = &mut words[at];
            (sum.readers, sum.writers) = (sum.readers | word.readers, sum.writers | word.writers);
            sum.reads = sum.reads.saturating_add(word.reads);
            sum.writes = sum.writes.saturating_add(word.writes);
            (sum.read_ip, sum.write_ip) = (sum.read_ip.or(word.read_ip), sum.write_ip.or(word.write_ip));
        }
        Err(at) => words.insert(at, word.clone()),
    }
}

/// Name and address of the variable or block that has an address.
fn other_object(entries: &[Entry], addr: u64) -> Option<(String, u64)> {
    let has = |entry: &&Entry| matches!(entry.kind, ObjectKind::Global | ObjectKind::Heap);
    entries.iter().filter(has).find_map(|entry| {
        let of = entry.seen.iter().find(|of| addr >= of.base && addr - of.base < of.size)?;
        Some((entry.part.as_ref().map_or(&entry.name, |part| &part.parent).clone(), of.base))
    })
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

/// `distances` are those of the object, and `other` tells which other one has an address.
fn judge(
    of: &LineOfObject,
    distances: &Distances,
    ms: f64,
    other: &dyn Fn(u64) -> Option<(String, u64)>,
) -> Option<Shared> {
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
    // Blocks of the allocator, each written once before the next thread reads it.
    let is_handed_on = of.base.is_none() && writers.count_ones() == 1 && same > 1.0 - PART;
    if is_handed_on {
        return None;
    }
    // Words with fewer accesses cannot cause a part of the losses that counts: a write takes the line from all others.
    let causes = |word: &&SharedWord| {
        let accesses = word.reads.saturating_add(word.writes) as f64;
        accesses * f64::from(threads) >= PART * all as f64
    };
    let causing: Vec<&SharedWord> = words.iter().filter(causes).collect();
    let kind = match (same < PART, !is_divided(&causing) || same > 1.0 - PART && !is_separable(&causing)) {
        (true, _) => SharingKind::False,
        (false, true) => SharingKind::True,
        (false, false) => SharingKind::Mixed,
    };
    let place_of = |word: &SharedWord| {
        let addr = of.line.addr.saturating_add(word.offset.into());
        let Some(base) = of.base else { return (None, word.offset.into()) };
        let is_beside = addr < base || addr - base >= of.size;
        match is_beside.then(|| other(addr)).flatten() {
            Some((object, base)) => (Some(object), addr - base),
            None => (None, addr.saturating_sub(base)),
        }
    };
    let sides = sides(words, kind, place_of);
    let is_of_one = sides.iter().all(|side| side.object.is_none());
    Some(Shared {
        object: of.object.clone(),
        offset: of.base.and_then(|_| words.first().map(|word| place_of(word).1)),
        kind,
        invalidations: all,
        same_word: of.line.same_word,
        score,
        readers: readers.count_ones(),
        writers: writers.count_ones(),
        sides,
        padding: (kind != SharingKind::True && is_of_one).then(|| distances.padding(of)).flatten(),
    })
}

/// Whether two words are written by different threads only.
fn is_separable(words: &[&SharedWord]) -> bool {
    let written = || words.iter().filter(|word| word.writers != 0);
    written().any(|a| written().any(|b| a.writers & b.writers == 0))
}

/// Whether there are words with different users.
fn is_divided(words: &[&SharedWord]) -> bool {
    words.windows(2).any(|pair| users(pair[0]) != users(pair[1]))
}

/// All threads that use a word, and those that write it.
fn users(word: &SharedWord) -> (u64, u64) {
    (word.readers | word.writers, word.writers)
}

/// The most used written word, and the most used word of other threads (or, of true sharing, the other use of that
/// word).
fn sides(
    words: &[SharedWord],
    kind: SharingKind,
    place_of: impl Fn(&SharedWord) -> (Option<String>, u64),
) -> Vec<Side> {
    let side = |word: &SharedWord, write: bool| {
        let (object, offset) = place_of(word);
        let ip = if write { word.write_ip } else { word.read_ip };
        Side { object, offset, field: word.field.clone(), write, ip }
    };
    let Some(first) = words.iter().max_by_key(|word| word.writes) else { return Vec::new() };
    let mut out = vec![side(first, true)];
    if kind == SharingKind::True {
        out.extend((first.reads > 0).then(|| side(first, false)));
        return out;
    }
    // Of words that are used about as often the nearest: the next part of an array.
    let uses = |word: &SharedWord| [word.reads.saturating_add(word.writes), word.writes].map(|n| n.checked_ilog2());
    let hottest = |is_other: &dyn Fn(&SharedWord) -> bool| {
        let others = words.iter().filter(|word| is_other(word));
        others.max_by_key(|word| (uses(word), std::cmp::Reverse(word.offset.abs_diff(first.offset))))
    };
    let other = hottest(&|word| are_apart(first, word)).or_else(|| hottest(&|word| users(word) != users(first)));
    // A write rather than a read of the same word: it takes the line away, too.
    out.extend(other.map(|word| side(word, word.writes > 0)));
    out
}

#[cfg(test)]
mod tests;
