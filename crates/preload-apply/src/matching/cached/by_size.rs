//! A cache for call stacks that many groups of rules fit: which rule takes objects of a size, and whether realloc
//! leaves an object to its rule. To look at each group would take microseconds among a thousand.
//!
//! What is cached follows from the policy alone and stays true. Any thread may overwrite an entry at any time, a signal
//! handler and a forked child included.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Entries: 32 KiB, of which those that are used are in memory.
const ENTRIES: usize = 4096;
/// 2^64 divided by the golden ratio, as in [`super::decided`].
const SPREAD: usize = 0x9e37_79b9_7f4a_7c15;
/// Bits of an entry for who takes the objects: [`NOBODY`], or the number of a rule and [`RULE`].
const TAKER_BITS: u32 = 17;
const NOBODY: usize = 1;
const RULE: usize = 2;
/// Bits for what an entry is about. Larger objects are few, and take microseconds to be mapped.
const ABOUT_BITS: u32 = 32;
/// In these bits, with a rule: whether that is one of the groups.
const IS_RULE: usize = 1 << 31;
/// With a size less one in units of [`STEP`]: all sizes from there to the next one.
const IS_STEP: usize = 1 << 30;
/// Sizes in a step, which share an entry where one answer is right for all of them: as many as share a chunk size in
/// glibc's malloc.
const STEP: usize = 16;

/// 0 is an entry without anything: it has no taker.
static TABLE: [AtomicUsize; ENTRIES] = [const { AtomicUsize::new(0) }; ENTRIES];

/// What is asked about one list of groups.
#[derive(Clone, Copy)]
pub struct Question(usize);

impl Question {
    fn of(list: usize, about: usize) -> Option<Question> {
        let fits = list >> (usize::BITS - ABOUT_BITS - TAKER_BITS) == 0 && about >> ABOUT_BITS == 0;
        fits.then_some(Question(list << ABOUT_BITS | about))
    }

    /// Which rule takes objects of `size` bytes; none where that does not fit an entry.
    pub fn of_size(list: usize, size: usize) -> Option<Question> {
        if size < IS_STEP { Question::of(list, size) } else { None }
    }

    /// The same of all sizes of a step.
    pub fn of_step(list: usize, size: usize) -> Option<Question> {
        let step = size.checked_sub(1)? / STEP;
        if size < IS_STEP { Question::of(list, step | IS_STEP) } else { None }
    }

    /// Whether `rule` is in one of the groups: then it is the answer, and else nobody is.
    pub fn of_rule(list: usize, rule: usize) -> Option<Question> {
        if rule < IS_STEP { Question::of(list, rule | IS_RULE) } else { None }
    }

    fn entry(self) -> &'static AtomicUsize {
        &TABLE[self.0.wrapping_mul(SPREAD) >> (usize::BITS - ENTRIES.trailing_zeros())]
    }

    /// The rule, if there is one; an outer none where that is not known.
    pub fn answer(self) -> Option<Option<usize>> {
        let word = self.entry().load(Ordering::Relaxed);
        let taker = word & ((1 << TAKER_BITS) - 1);
        (word >> TAKER_BITS == self.0 && taker > 0).then(|| taker.checked_sub(RULE))
    }

    /// Notes the rule, or that there is none.
    pub fn note(self, rule: Option<usize>) {
        let taker = rule.map_or(NOBODY, |rule| rule + RULE);
        if taker >> TAKER_BITS == 0 {
            self.entry().store(self.0 << TAKER_BITS | taker, Ordering::Relaxed);
        }
    }
}

/// The first and the last size of the step that has `size`, which is not 0.
pub fn step(size: usize) -> (usize, usize) {
    let first = (size - 1) / STEP * STEP + 1;
    (first, first + STEP - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_found_for_that_question_and_list_only() {
        let of = |list, size| Question::of_size(list, size).unwrap();
        assert_eq!(of(0, 0).answer(), None);
        of(0, 0).note(None);
        of(7, 100).note(Some(0));
        of(32_767, IS_STEP - 1).note(Some(65_535));
        assert_eq!(of(0, 0).answer(), Some(None));
        assert_eq!((of(7, 100).answer(), of(8, 100).answer(), of(7, 101).answer()), (Some(Some(0)), None, None));
        assert_eq!(of(32_767, IS_STEP - 1).answer(), Some(Some(65_535)));
        assert!(Question::of_size(32_768, 1).is_none() && Question::of_size(1, IS_STEP).is_none());
        of(9, 100).note(Some(1 << TAKER_BITS));
        assert_eq!(of(9, 100).answer(), None, "its number does not fit");
        let (rule, step) = (Question::of_rule(7, 100).unwrap(), |size| Question::of_step(7, size).unwrap());
        assert_eq!((rule.answer(), step(1601).answer()), (None, None));
        rule.note(Some(100));
        step(1601).note(Some(3));
        assert_eq!((rule.answer(), Question::of_rule(7, 101).unwrap().answer()), (Some(Some(100)), None));
        assert_eq!(
            [1600, 1601, 1616, 1617].map(|size| step(size).answer()),
            [None, Some(Some(3)), Some(Some(3)), None]
        );
        assert!(Question::of_step(7, 0).is_none() && super::step(1616) == (1601, 1616) && super::step(1) == (1, 16));
    }
}
