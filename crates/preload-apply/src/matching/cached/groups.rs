//! The groups of rules that fit a call stack, which sizes and numbers tell apart, and the phases that count its
//! allocations: a list is written once, and stays.
//!
//! Lists are equal for most stacks of a program, so that one that is there already serves again. Any thread may add one
//! at any time, a signal handler and a forked child included: each takes entries of its own.

use core::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use numamma_plan::callsite::group::RuleGroup;
use numamma_plan::callsite::rule;
use numamma_plan::check::MOST_PHASES;

use super::by_size::{self, Question};
use crate::phases::begin;

/// Entries of all lists: 64 KiB, of which those that are used are in memory.
const ENTRIES: usize = 1 << 15;
/// Entries of a list, with its end: 8 KiB while it is put together, on a stack of this library. Where more groups fit a
/// call stack, nothing is kept, and each allocation searches the stack again.
const MOST: usize = 4096;
/// Entries of a list from which on [`by_size`] knows it: about as many take as long as a look there.
const LONG: usize = 8;
/// In the number of a list that is as long, and has no phase. Above the numbers of the entries.
const IS_LONG: usize = ENTRIES;
/// After the last entry.
const END: u16 = u16::MAX;
/// Before the groups of call sites with fewer frames.
const FEWER: u16 = END - 1;
/// The entry of the first phase; the next ones have those behind.
const FIRST_PHASE: u16 = FEWER - MOST_PHASES as u16;

/// Numbers of groups, one more: 0 is what is not written yet.
static TABLE: [AtomicU16; ENTRIES] = [const { AtomicU16::new(0) }; ENTRIES];
static USED: AtomicUsize = AtomicUsize::new(0);

/// A list of groups, by its first entry and whether it [is long](IS_LONG).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups(usize);

/// Who takes an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    /// No rule does, and nobody counts it.
    Nobody,
    /// This rule, and nobody counts it.
    Rule(usize),
    /// It must be counted for that, or the stack must be looked at.
    Unknown,
}

/// A list that is being put together.
pub struct Draft {
    entries: [u16; MOST],
    len: usize,
    frames: usize,
    /// All groups so far are in it.
    fits: bool,
    has_phases: bool,
}

impl Draft {
    /// Without groups.
    pub fn new() -> Draft {
        Draft { entries: [END; MOST], len: 0, frames: usize::MAX, fits: true, has_phases: false }
    }

    fn push(&mut self, entry: u16) {
        match self.entries.get_mut(self.len) {
            // The last entry is the end.
            Some(place) if self.len + 1 < MOST => {
                *place = entry;
                self.len += 1;
            }
            _ => self.fits = false,
        }
    }

    /// Adds group number `group` of a call site of so many frames; those with most frames come first.
    pub fn add(&mut self, frames: usize, group: usize) {
        if frames < self.frames && self.len > 0 {
            self.push(FEWER);
        }
        self.frames = frames;
        match u16::try_from(group + 1) {
            Ok(entry) if entry < FIRST_PHASE => self.push(entry),
            _ => self.fits = false,
        }
    }

    /// Adds phase number `phase`, which counts the allocations.
    pub fn add_phase(&mut self, phase: usize) {
        self.has_phases = true;
        match u16::try_from(phase) {
            Ok(phase) if phase < FEWER - FIRST_PHASE => self.push(FIRST_PHASE + phase),
            _ => self.fits = false,
        }
    }

    /// The list; none when there is no room for it.
    pub fn list(&self) -> Option<Groups> {
        let entries = self.entries.get(..=self.len).filter(|_| self.fits)?;
        let used = USED.load(Ordering::Acquire).min(ENTRIES);
        let from = known(entries, used).or_else(|| {
            let from = USED
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                    Some(used + entries.len()).filter(|end| *end <= ENTRIES)
                })
                .ok()?;
            entries.iter().zip(&TABLE[from..]).for_each(|(entry, place)| place.store(*entry, Ordering::Relaxed));
            Some(from)
        })?;
        // A phase takes part for as long as it counts, so that what is cached would not stay true.
        Some(Groups(if self.len >= LONG && !self.has_phases { from | IS_LONG } else { from }))
    }
}

/// Where these entries already stand in a row, among the first `used` entries of the table.
fn known(entries: &[u16], used: usize) -> Option<usize> {
    let is_here = |from: &usize| {
        let here = TABLE[*from..].iter().map(|entry| entry.load(Ordering::Relaxed));
        here.take(entries.len()).eq(entries.iter().copied())
    };
    (0..used).find(is_here)
}

impl Groups {
    /// The list that [`Groups::number`] is the number of.
    pub fn of(number: usize) -> Groups {
        Groups(number)
    }

    /// A number for an entry of a cache.
    pub fn number(self) -> usize {
        self.0
    }

    fn entries(self) -> impl Iterator<Item = u16> {
        let from = TABLE.get(self.0 & !IS_LONG..).unwrap_or_default();
        from.iter().map(|entry| entry.load(Ordering::Relaxed)).take_while(|entry| *entry != END)
    }

    /// The groups, among all, with a number that is the smaller the fewer frames their call sites have. None in place
    /// of what this thread does not see yet.
    #[inline(always)]
    fn each(self, all: &[RuleGroup]) -> impl Iterator<Item = Option<(usize, &RuleGroup)>> {
        let mut frames = MOST;
        self.entries().filter_map(move |entry| match entry {
            FEWER => {
                frames -= 1;
                None
            }
            FIRST_PHASE.. => None,
            entry => Some(usize::from(entry).checked_sub(1).and_then(|group| Some((frames, all.get(group)?)))),
        })
    }

    /// Gives `visit` the phases.
    #[inline(never)]
    pub fn phases(self, visit: impl FnMut(usize)) {
        self.entries().filter_map(phase_of).for_each(visit);
    }

    /// Who takes an allocation of `size` bytes, as [`rule::choose`] says, as far as that is known without counting.
    pub fn taker(self, all: &[RuleGroup], size: usize) -> Taker {
        if self.0 & IS_LONG == 0 {
            return self.taker_among(all, size);
        }
        let list = self.0 & !IS_LONG;
        let known = |question: Option<Question>| question.and_then(Question::answer);
        match known(Question::of_step(list, size)).or_else(|| known(Question::of_size(list, size))) {
            Some(None) => Taker::Nobody,
            Some(Some(rule)) => Taker::Rule(rule),
            None => self.note_taker(all, size),
        }
    }

    #[cold]
    #[inline(never)]
    fn note_taker(self, all: &[RuleGroup], size: usize) -> Taker {
        let taker = self.taker_among(all, size);
        let rule = match taker {
            Taker::Unknown => return taker,
            Taker::Nobody => None,
            Taker::Rule(rule) => Some(rule),
        };
        let list = self.0 & !IS_LONG;
        let alike = |(first, last): (usize, usize)| {
            self.each(all).all(|found| found.is_some_and(|(_, group)| group.fits_alike(first, last)))
        };
        let is_for_all = size > 0 && alike(by_size::step(size));
        let question = if is_for_all { Question::of_step(list, size) } else { Question::of_size(list, size) };
        question.inspect(|question| question.note(rule));
        taker
    }

    /// Whether rule `own` is in one of the groups; none where this thread does not see all of them yet.
    fn has(self, all: &[RuleGroup], own: usize) -> Option<bool> {
        let is_long = self.0 & IS_LONG != 0;
        let question = if is_long { Question::of_rule(self.0 & !IS_LONG, own) } else { None };
        if let Some(found) = question.and_then(Question::answer) {
            return Some(found.is_some());
        }
        if self.each(all).any(|found| found.is_none()) {
            return None;
        }
        let has = rule::keeps(self.each(all).flatten().map(|(_, group)| (group, ())), own, |()| true);
        question.inspect(|question| question.note(has.then_some(own)));
        Some(has)
    }

    /// In one pass over the list, since each small allocation of the call site waits for it.
    #[inline]
    fn taker_among(self, all: &[RuleGroup], size: usize) -> Taker {
        let (mut best, mut frames) = (None::<(usize, usize)>, MOST);
        // As `each` gives them. A loop is faster where little is inlined.
        for entry in TABLE.get(self.0 & !IS_LONG..).unwrap_or_default() {
            let group = match entry.load(Ordering::Relaxed) {
                END => break,
                FEWER => {
                    frames -= 1;
                    continue;
                }
                entry if phase_of(entry).is_some_and(begin::counts) => return Taker::Unknown,
                FIRST_PHASE.. => continue,
                entry => usize::from(entry).wrapping_sub(1),
            };
            let Some(group) = all.get(group) else { return Taker::Unknown };
            if !group.fits(size) {
                continue;
            }
            if group.counts() {
                return Taker::Unknown;
            }
            let rule = group.first();
            if best.is_none_or(|(most, first)| frames == most && rule < first) {
                best = Some((frames, rule));
            }
        }
        best.map_or(Taker::Nobody, |(_, rule)| Taker::Rule(rule))
    }

    /// The rule that takes an allocation of `size` bytes, and which groups count it, as [`rule::choose`] says; an error
    /// where the stack must be looked at.
    pub fn choose(self, all: &[RuleGroup], size: usize, owner: Option<usize>) -> Result<Option<usize>, ()> {
        if let Some(own) = owner
            && self.has(all, own).ok_or(())?
        {
            return Ok(owner);
        }
        if self.0 & IS_LONG != 0 {
            match self.taker(all, size) {
                Taker::Nobody => return Ok(None),
                Taker::Rule(rule) => return Ok(Some(rule)),
                Taker::Unknown => {}
            }
        }
        if self.each(all).any(|found| found.is_none()) {
            return Err(());
        }
        let found = self.each(all).flatten().map(|(frames, group)| (frames, group, ()));
        Ok(rule::choose(found, size, |()| true))
    }
}

/// The number of the phase that an entry is for.
fn phase_of(entry: u16) -> Option<usize> {
    (FIRST_PHASE..FEWER).contains(&entry).then(|| usize::from(entry - FIRST_PHASE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use numamma_plan::policy::ObjectRule;

    fn list(groups: &[(usize, usize)]) -> Option<Groups> {
        let mut draft = Draft::new();
        groups.iter().for_each(|&(frames, group)| draft.add(frames, group));
        draft.list()
    }

    #[test]
    fn a_list_is_written_once() {
        let (a, b) = (list(&[(3, 700), (3, 701), (1, 702)]).unwrap(), list(&[(3, 700), (2, 701), (1, 702)]).unwrap());
        assert_ne!(a, b);
        assert_eq!((list(&[(9, 700), (9, 701), (4, 702)]), list(&[(3, 700), (2, 701), (1, 702)])), (Some(a), Some(b)));
        assert_eq!((Groups::of(a.number()), list(&[(1, 65_533)])), (a, None), "its number does not fit");
        let many: Vec<(usize, usize)> = (0..MOST).map(|n| (1, n)).collect();
        assert!(list(&many).is_none() && list(&many[1..]).is_some());
    }

    #[test]
    fn what_a_long_list_says_of_a_size_is_kept() {
        let sizes: Vec<String> = (1..=1000).map(|n| format!("{}-{}", 16 * n, 16 * n + 15)).collect();
        let rule = |sizes: &String| ObjectRule { sizes: Some(sizes.clone()), ..ObjectRule::default() };
        let rules: Vec<ObjectRule> = sizes.iter().map(rule).collect();
        let all = RuleGroup::of_all(rules.iter(), true);
        let long = list(&(0..1000).map(|n| (1, n)).collect::<Vec<_>>()).unwrap();
        assert!(Groups::of(long.number()) == long && long.number() < 1 << 16);
        let takers = |all: &[RuleGroup]| [15, 16, 8_000, 16_015, 16_016].map(|size| long.taker(all, size));
        let expected = [Taker::Nobody, Taker::Rule(0), Taker::Rule(499), Taker::Rule(999), Taker::Nobody];
        assert_eq!((takers(&all), takers(&[])), (expected, expected), "the groups are looked at once");
        let chosen = [15, 16, 8_000, 16_015, 16_016].map(|size| long.choose(&all, size, None).unwrap());
        assert_eq!(chosen, [None, Some(0), Some(499), Some(999), None]);
        let resized = |all: &[RuleGroup], own| long.choose(all, 16, Some(own));
        assert_eq!((resized(&all[..999], 5), resized(&all, 5)), (Err(()), Ok(Some(5))), "it keeps its rule");
        assert_eq!((resized(&all, 1000), resized(&[], 5)), (Ok(Some(0)), Ok(Some(5))), "of another call site");
        let mut draft = Draft::new();
        (0..1000).for_each(|n| draft.add(1, n));
        draft.add_phase(0);
        assert_eq!(draft.list().unwrap().number() & IS_LONG, 0, "what a phase does changes");
    }

    #[test]
    fn phases_that_count_are_in_the_list() {
        let mut draft = Draft::new();
        draft.add(2, 800);
        draft.add_phase(3);
        draft.add(1, 801);
        draft.add_phase(MOST_PHASES - 1);
        let both = draft.list().unwrap();
        let mut phases = Vec::new();
        both.phases(|phase| phases.push(phase));
        assert_eq!(phases, [3, MOST_PHASES - 1]);
        list(&[(2, 800), (1, 801)]).unwrap().phases(|phase| panic!("{phase}"));
        assert_eq!(both.taker(&[], 9), Taker::Unknown, "no such group");
        let mut draft = Draft::new();
        draft.add_phase(0);
        let phase = draft.list().unwrap();
        assert_eq!((phase.taker(&[], 9), phase.choose(&[], 9, None)), (Taker::Unknown, Ok(None)), "it counts");
        let mut draft = Draft::new();
        draft.add_phase(MOST_PHASES);
        assert_eq!(draft.list(), None);
    }

    #[test]
    fn sizes_and_frames_decide_among_the_groups_of_a_list() {
        let rule = |sizes: &str, instances: Option<&str>, function: &str| ObjectRule {
            function: Some(vec![function.into()]),
            sizes: Some(sizes.into()),
            instances: instances.map(str::to_owned),
            ..ObjectRule::default()
        };
        let rules = [rule("100-", None, "a"), rule("10-", None, "a"), rule("1000-", Some("2-"), "b")];
        let all = RuleGroup::of_all(rules.iter(), true);
        let found = |list: Groups, sizes: &[usize]| -> Vec<_> {
            sizes.iter().map(|&size| list.choose(&all, size, None).unwrap()).collect()
        };
        let deep = list(&[(2, 1), (1, 0)]).unwrap();
        assert_eq!(found(deep, &[9, 10, 100]), [None, Some(1), Some(1)], "more frames");
        let equal = list(&[(1, 0), (1, 1), (1, 2)]).unwrap();
        assert_eq!(found(equal, &[9, 10, 100, 1000, 1000]), [None, Some(1), Some(0), Some(0), Some(0)]);
        let takers = |list: Groups| [9, 10, 100, 999, 1000].map(|size| list.taker(&all, size));
        let (first, second) = (Taker::Rule(0), Taker::Rule(1));
        assert_eq!(takers(equal), [Taker::Nobody, second, first, first, Taker::Unknown], "one counts from 1000 on");
        assert_eq!(takers(deep), [Taker::Nobody, second, second, second, second]);
        assert_eq!(equal.choose(&all, 1000, Some(1)), Ok(Some(1)), "a realloc keeps its rule, and nobody counts it");
        let counting = list(&[(1, 2), (1, 3)]).unwrap();
        assert_eq!(counting.choose(&all, 1000, None), Err(()), "no such group");
        assert_eq!(counting.taker(&all, 9), Taker::Unknown);
        assert_eq!(list(&[(1, 2)]).unwrap().choose(&all, 1000, None), Ok(Some(2)), "two were counted before");
    }
}
