//! Cache lines that threads share, as the hooks of the `trace` sampler counted them, summed up over the run.
//!
//! They are read with the other counts, belong to an object by the same rules, and are written at the end: there are at
//! most as many as the shared memory has room for, each perhaps of several objects that were there one after the other.

use std::collections::BTreeMap;

use numamma_channel::trace::lines::{LINE, SharedLine as Counted, SharedWord as CountedWord, WORD};
use numamma_channel::trace::reader::Trace;
use numamma_kernel::clock::monotonic_ns;

use crate::profile::records::{Frame, ObjectId, Record, SharedLine, SharedWord};

/// Lines that are kept: four objects at each that can be counted.
const MOST: usize = 1 << 17;

/// What was read and not written yet.
#[derive(Debug, Default)]
pub struct Lines {
    /// With the time at which it was read, CLOCK_MONOTONIC.
    waiting: Vec<(u64, Counted)>,
    sums: BTreeMap<(ObjectId, u64), SharedLine>,
}

impl Lines {
    /// Reads what was counted since the last time.
    pub fn read(&mut self, trace: &mut Trace) {
        let mut lines = Vec::new();
        trace.collect_lines(&mut lines);
        let now = monotonic_ns();
        self.waiting.extend(lines.into_iter().map(|line| (now, line)));
    }

    /// Takes what is known of lines whose word that was used most is in a range of memory of a process, but for what
    /// was counted after that time only.
    pub fn take(&mut self, pid: u32, (addr, len): (u64, u64), until_ns: u64) -> Vec<Counted> {
        let range = addr..addr.saturating_add(len.max(1));
        self.take_where(|_, line| line.pid == pid && line.since_ns < until_ns && range.contains(&most_used(line)))
    }

    /// Takes what was read before that time.
    pub fn take_until(&mut self, until_ns: u64) -> Vec<Counted> {
        self.take_where(|read_ns, _| read_ns <= until_ns)
    }

    fn take_where(&mut self, is_wanted: impl Fn(u64, &Counted) -> bool) -> Vec<Counted> {
        self.waiting.extract_if(.., |(read_ns, line)| is_wanted(*read_ns, line)).map(|(_, line)| line).collect()
    }

    /// Adds what happened in a line of an object, whose address in the profile is `addr`.
    pub fn add(&mut self, object: ObjectId, addr: u64, line: &Counted, mut frame: impl FnMut(u64) -> Frame) {
        if self.sums.len() >= MOST && !self.sums.contains_key(&(object, addr)) {
            return;
        }
        let sum = self.sums.entry((object, addr)).or_insert_with(|| SharedLine { object, addr, ..Default::default() });
        sum.other_words += line.other_words;
        sum.same_word += line.same_word;
        for counted in &line.words {
            let offset = counted.word * WORD as u8;
            let at = sum.words.binary_search_by_key(&offset, |word| word.offset).unwrap_or_else(|at| {
                sum.words.insert(at, SharedWord { offset, ..SharedWord::default() });
                at
            });
            add_word(&mut sum.words[at], counted, &mut frame);
        }
    }

    /// The record of all lines that a thread lost to another one; none without any.
    pub fn record(&mut self, mut field: impl FnMut(ObjectId, u64) -> String) -> Option<Record> {
        let sums = std::mem::take(&mut self.sums).into_values();
        let mut lines: Vec<SharedLine> = sums.filter(|line| line.other_words + line.same_word > 0).collect();
        for line in &mut lines {
            for word in &mut line.words {
                word.field = field(line.object, line.addr + u64::from(word.offset));
            }
        }
        (!lines.is_empty()).then_some(Record::SharedLines(lines))
    }
}

fn add_word(word: &mut SharedWord, counted: &CountedWord, frame: &mut impl FnMut(u64) -> Frame) {
    word.readers |= counted.readers;
    word.writers |= counted.writers;
    word.reads += counted.reads;
    word.writes += counted.writes;
    for (place, ip) in [(&mut word.read_ip, counted.read_ip), (&mut word.write_ip, counted.write_ip)] {
        if ip != 0 {
            *place = Some(frame(ip));
        }
    }
}

/// Address of the word of a line that was used most.
pub fn most_used(line: &Counted) -> u64 {
    let word = line.words.iter().max_by_key(|word| word.reads + word.writes).map_or(0, |word| word.word);
    line.addr + u64::from(word) * WORD as u64
}

/// Address of the line of a word.
pub fn line_of(addr: u64) -> u64 {
    addr / LINE as u64 * LINE as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_belongs_to_the_object_of_its_time() {
        let word = CountedWord { word: 2, readers: 1, writers: 2, reads: 3, writes: 4, read_ip: 5, write_ip: 0 };
        let line = Counted { pid: 7, addr: 0x1000, since_ns: 5, other_words: 2, same_word: 1, words: vec![word] };
        let mut lines = Lines { waiting: vec![(10, line.clone()), (20, line.clone())], ..Lines::default() };
        assert_eq!(lines.take(7, (0x1000, 8), 30), [], "the word is behind");
        assert_eq!(lines.take(7, (0x1008, 8), 5), [], "the object ended before");
        assert_eq!(lines.take_until(10), std::slice::from_ref(&line));
        assert_eq!(lines.take(7, (0x1008, 8), 6), std::slice::from_ref(&line));
        let frame = |offset| Frame { module: 0, offset };
        lines.add(1, 0x1000, &line, frame);
        lines.add(1, 0x1000, &line, frame);
        lines.add(2, 0x2000, &Counted { other_words: 0, same_word: 0, ..line }, frame);
        let Some(Record::SharedLines(list)) = lines.record(|_, addr| format!("{addr:x}")) else { panic!() };
        assert_eq!(list.len(), 1, "nobody lost the other line");
        assert_eq!((list[0].other_words, list[0].same_word, list[0].words.len()), (4, 2, 1));
        let word = &list[0].words[0];
        assert_eq!((word.offset, word.reads, word.writes, word.field.as_str()), (8, 6, 8, "1008"));
        assert_eq!((word.read_ip, word.write_ip), (Some(frame(5)), None));
    }
}
