//! A cache of what was decided for call stacks: that no rule takes the allocations made there, or which one does.
//!
//! An entry belongs to the return addresses of one or more innermost frames, by their hash. It says what decides, or
//! that the frame further out must be looked at, too. So an allocation behind a wrapper costs one lookup for each frame
//! that the decision rests on, and neither names nor rules are searched.

use core::sync::atomic::{AtomicUsize, Ordering};

use numamma_hook::entry::Caller;
use numamma_hook::{stackbounds, unwind};

use super::Fact;
use super::groups::Groups;
use crate::matching::facts::names::MAX_FRAMES;
use crate::matching::pending;

/// Sets of entries: 64 KiB in all. Programs have thousands of call sites behind one wrapper. A program that locks its
/// memory (mlockall) pays for the whole table.
const SETS: usize = 1024;
/// Entries of a set, which are one cache line: of 4,000 stacks, which spread evenly, one in 140 finds its set full.
const WAYS: usize = 8;
/// 2^64 divided by the golden ratio: multiplying by it spreads the bits of an address (Knuth, The Art of Computer
/// Programming, volume 3, 6.4).
const SPREAD: usize = 0x9e37_79b9_7f4a_7c15;
/// Bits by which a hash is turned before the next return address is mixed in.
const TURN: u32 = 23;
/// Bits of an entry for the number of a rule or a list of groups, and for what it is a number of; the tag is above
/// them. With the bits that choose the set, 56 of 64 bits of a hash are compared: a stack would be taken for one of
/// 8,192 others once in 10^13.
const NUMBER_BITS: u32 = 16;
const KIND_BITS: u32 = 2;
const TAG_BITS: u32 = usize::BITS - NUMBER_BITS - KIND_BITS;

static TABLE: [Set; SETS] = [const { Set([const { AtomicUsize::new(0) }; WAYS]) }; SETS];
/// What all hashes begin with. Another one makes what was decided before unreachable.
static SEED: AtomicUsize = AtomicUsize::new(SPREAD);

/// Entries of stacks that are found at one place: a cache line.
#[repr(align(64))]
struct Set([AtomicUsize; WAYS]);

/// What decides on the allocations of a call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No rule takes them, and no phase counts them.
    Nothing,
    /// This rule takes them all.
    Rule(usize),
    /// Rules of these groups take those whose size and number they say, and phases count them.
    Groups(Groups),
}

/// What an entry says.
enum Found {
    Decided(Decision),
    Deeper,
}

/// The hash of a stack, innermost frame first.
#[derive(Clone, Copy)]
struct Hash(usize);

impl Hash {
    /// Of no frames. Acquire: who sees a new seed sees the matcher that it was changed for.
    fn empty() -> Hash {
        Hash(SEED.load(Ordering::Acquire))
    }

    fn with(self, ra: usize) -> Hash {
        Hash((self.0.rotate_left(TURN) ^ ra).wrapping_mul(SPREAD))
    }

    fn set(self) -> &'static [AtomicUsize; WAYS] {
        &TABLE[self.0 >> (usize::BITS - SETS.trailing_zeros())].0
    }

    /// The entry for this stack: its own, an empty one, or one that belongs to another stack.
    fn entry(self) -> &'static AtomicUsize {
        let set = self.set();
        let tag = |entry: &&AtomicUsize| entry.load(Ordering::Relaxed) >> (NUMBER_BITS + KIND_BITS);
        let own = set.iter().find(|entry| tag(entry) == self.tag());
        let free = || set.iter().find(|entry| entry.load(Ordering::Relaxed) == 0);
        // The lowest bits of a hash, which do not choose the set, are as good as random.
        own.or_else(free).unwrap_or(&set[self.0 % WAYS])
    }

    fn tag(self) -> usize {
        self.0 & ((1 << TAG_BITS) - 1)
    }

    fn look_up(self) -> Option<Found> {
        let words = self.set().iter().map(|entry| entry.load(Ordering::Relaxed));
        let word = words.into_iter().find(|word| word >> (NUMBER_BITS + KIND_BITS) == self.tag())?;
        let number = word & ((1 << NUMBER_BITS) - 1);
        match word >> NUMBER_BITS & ((1 << KIND_BITS) - 1) {
            0 => (word != 0).then_some(Found::Deeper),
            1 => Some(Found::Decided(Decision::Nothing)),
            2 => Some(Found::Decided(Decision::Rule(number))),
            _ => Some(Found::Decided(Decision::Groups(Groups::of(number)))),
        }
    }

    /// None when the entry cannot hold the number.
    fn fact(self, found: &Found) -> Option<Fact> {
        let (kind, number) = match *found {
            Found::Deeper => (0, 1),
            Found::Decided(Decision::Nothing) => (1, 0),
            Found::Decided(Decision::Rule(rule)) => (2, rule),
            Found::Decided(Decision::Groups(groups)) => (3, groups.number()),
        };
        let word = (self.tag() << KIND_BITS | kind) << NUMBER_BITS | number;
        (number < 1 << NUMBER_BITS).then(|| Fact { entry: self.entry(), word })
    }
}

/// What decides on the allocation of `caller`; `None` when that is not in the cache.
///
/// # Safety
/// `caller` comes from an entry stub of a hook that has not returned yet.
pub unsafe fn look_up(caller: &Caller) -> Option<Decision> {
    if pending::is_pending() {
        return None;
    }
    let mut hash = Hash::empty().with(caller.ra);
    if let Found::Decided(decision) = hash.look_up()? {
        return Some(decision);
    }
    // SAFETY: the caller's frame is live, and the bound is that of its stack.
    let mut stack = unsafe { unwind::Known::of(caller, stackbounds::high_for(caller.cfa)) };
    for _ in 0..MAX_FRAMES {
        hash = hash.with(stack.outer()?);
        if let Found::Decided(decision) = hash.look_up()? {
            return Some(decision);
        }
    }
    None
}

/// Gives `cache` what the cache needs to know that `decision` rests on the frames of `stack`, innermost first.
pub fn facts(stack: &[u64], decision: Decision, mut cache: impl FnMut(Fact)) {
    let mut hash = Hash::empty();
    for (k, &ra) in stack.iter().enumerate() {
        hash = hash.with(ra as usize);
        let found = if k + 1 < stack.len() { Found::Deeper } else { Found::Decided(decision) };
        match hash.fact(&found) {
            Some(fact) => cache(fact),
            None => return,
        }
    }
}

/// Forgets all that was decided.
pub fn clear() {
    SEED.fetch_add(SPREAD, Ordering::AcqRel);
}

/// Held by tests that [`clear`], and by those that look at what was decided before.
#[cfg(test)]
pub static CLEARED: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    fn known(stack: &[usize]) -> Option<Decision> {
        let mut hash = Hash::empty();
        for &ra in stack {
            hash = hash.with(ra);
            match hash.look_up()? {
                Found::Decided(decision) => return Some(decision),
                Found::Deeper => {}
            }
        }
        None
    }

    #[test]
    fn decisions_are_found_by_the_frames_they_rest_on() {
        let _alone = CLEARED.lock();
        let stacks: [(&[u64], Decision); 4] = [
            (&[0x40_1000], Decision::Rule(7)),
            (&[0x40_2000, 0x40_3000, 0x40_4000], Decision::Nothing),
            (&[0x40_2000, 0x40_3000, 0x40_5000], Decision::Groups(Groups::of(65_535))),
            (&[0x40_6000, 0x40_1000], Decision::Rule(65_536)),
        ];
        for (stack, decision) in stacks {
            facts(stack, decision, |fact| fact.store());
        }
        assert_eq!(known(&[0x40_1000, 1, 2]), Some(Decision::Rule(7)));
        assert_eq!(known(&[0x40_2000, 0x40_3000, 0x40_4000, 9]), Some(Decision::Nothing));
        assert_eq!(known(&[0x40_2000, 0x40_3000, 0x40_5000]), Some(Decision::Groups(Groups::of(65_535))));
        assert_eq!(known(&[0x40_2000, 0x40_3000, 0x40_6000]), None, "another caller");
        assert_eq!(known(&[0x40_6000, 0x40_1000]), None, "an entry cannot hold the number");
        assert_eq!(known(&[0x40_2000]), None, "the stack ends");
        clear();
        assert_eq!(known(&[0x40_1000]), None);
    }

    #[test]
    fn thousands_of_call_sites_behind_a_wrapper_are_known() {
        let _alone = CLEARED.lock();
        let stack = |n: u64| [0x7f12_3456_7000, 0x55d0_0000_1000 + n * 0x1b];
        (0..5000).for_each(|n| facts(&stack(n), Decision::Nothing, |fact| fact.store()));
        let is_known = |n: &u64| known(&stack(*n).map(|ra| ra as usize)) == Some(Decision::Nothing);
        let count = (0..5000).filter(is_known).count();
        assert!(count >= 4900, "{count}");
    }
}
