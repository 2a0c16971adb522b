//! What a heap remembers of the times that it became empty: whether its objects come again, and how much it keeps then.

use crate::rules::coming_again::{self, Class};
use crate::rules::in_use::TIMES;

/// Bytes that all heaps without an object may keep together, so that the first object of a rule that has no other does
/// not cost system calls and page faults each time.
pub(super) const KEPT_EMPTY: usize = 1 << 20;
/// Times that a heap has to become empty until it keeps what it needs from then on: a buffer that a function allocates
/// at each call, a list that every step of the program builds and frees.
const OFTEN: u32 = 4;
/// Times from which it may keep much if its objects differ each time: each rule of many may do something in turn a few
/// dozen times, and all of them together would keep what they never needed at once.
const VERY_OFTEN: u32 = 32;
/// Part (1/8) by which the objects and bytes of a heap may differ from those before it was empty last, so that they
/// count as the same again.
const ALIKE_DIVISOR: usize = 8;
/// Times that such a heap has to need less than half of what it keeps, in turn, until it gives that back: sizes that
/// vary are seldom on one side so often, and what keeps too much for one list of these keeps it not for long.
const SMALLER: u32 = 16;

/// Bytes that a heap must have mapped anew until it keeps what it needs even if its objects differ each time: page
/// faults of a quarter of a second, at 1 us each. It must also have become empty [`VERY_OFTEN`]: a program that builds
/// some tables, however large, and then goes on without them does not get there.
const WORTH: usize = coming_again::LENT;

/// See the module.
pub(super) struct Emptied {
    /// How often the heap has become empty.
    times: u32,
    /// The last of these times, in turn, at which it needed much less than it keeps, see [`SMALLER`].
    smaller: u32,
    /// The last of these times, in turn, with about as many bytes and objects as before; and how many these were.
    alike: u32,
    last: (usize, usize),
    /// The most bytes that it needed, and the times that it needed at least about half of that.
    large: (usize, u32),
    /// Bytes that were mapped anew, after they had been given back. With [`TIMES`] what it needs the heap keeps that
    /// however large it is, as of arrays (see [`crate::rules::in_use`]); whether it is the same each time or not with
    /// [`WORTH`].
    anew: usize,
    /// What it kept so was in the way of others once.
    in_vain: bool,
    /// Whose bound the bytes that it keeps are within.
    pub(super) class: Class,
}

impl Emptied {
    pub(super) const fn new() -> Emptied {
        Emptied {
            times: 0,
            smaller: 0,
            alike: 0,
            last: (0, 0),
            large: (0, 0),
            anew: 0,
            in_vain: false,
            class: Class::Little,
        }
    }

    /// Notes that the heap became empty. It held at most `bytes` in `objects` since it was empty before, and mapped
    /// `anew` bytes again that it had given back. Returns whether it has become empty [`OFTEN`].
    pub(super) fn comes_again(&mut self, bytes: usize, objects: usize, anew: usize) -> bool {
        let alike = |now: usize, before: usize| now.abs_diff(before) <= before / ALIKE_DIVISOR;
        self.times = self.times.saturating_add(1);
        self.alike =
            if alike(bytes, self.last.0) && alike(objects, self.last.1) { self.alike.saturating_add(1) } else { 0 };
        self.last = (bytes, objects);
        self.anew = self.anew.saturating_add(anew);
        self.times >= OFTEN
    }

    /// Bytes that the heap may map anew, without being charged, until it is empty again. It needed `wanted` bytes the
    /// last time, and keeps `again` of them. Paying this for a while is worth it for a heap that keeps all it needs
    /// later.
    pub(super) fn rent(&self, wanted: usize, again: usize) -> usize {
        let may_keep = || coming_again::has_room(Class::Together, wanted.saturating_sub(again));
        if self.in_vain || wanted <= KEPT_EMPTY || !may_keep() {
            return 0;
        }
        let is_rent = self.anew / TIMES < wanted || (self.anew < WORTH && coming_again::lend(wanted));
        if is_rent { wanted + wanted / ALIKE_DIVISOR } else { 0 }
    }

    /// Notes that the heap gives back what it keeps because that is in the way of others.
    pub(super) fn forget(&mut self) {
        if self.class == Class::Together {
            (self.anew, self.in_vain) = (0, true);
        }
    }

    /// Bytes that the heap may keep from now on, which needed `wanted` of the `again` bytes that it keeps so far; 0 if
    /// it must give all back.
    #[inline(never)]
    pub(super) fn keeps(&mut self, wanted: usize, again: usize) -> usize {
        self.smaller = if wanted < again / 2 { self.smaller + 1 } else { 0 };
        let (most, times) = self.large;
        self.large = match wanted {
            _ if wanted / 2 > most => (wanted, 1),
            _ if wanted >= most / 2 => (wanted.max(most), times.saturating_add(1)),
            _ => self.large,
        };
        let is_much = self.alike >= OFTEN || (self.large.1 >= VERY_OFTEN && wanted.max(again) <= KEPT_EMPTY);
        let shrank = self.smaller >= if self.alike >= OFTEN { OFTEN } else { SMALLER };
        if wanted <= again && !shrank && (self.class != Class::Little || !is_much) {
            return again;
        }
        coming_again::give(self.class, again);
        let now = wanted.max(again);
        let much = if now <= coming_again::MOST_SMALL { Class::Much } else { Class::Large };
        let is_worth = self.anew >= WORTH && self.times >= VERY_OFTEN;
        let is_paid = self.anew / TIMES >= now && (is_worth || self.alike >= OFTEN);
        // What is needed more than before is rent.
        let before = if self.class == Class::Together { again } else { 0 };
        let classes = [
            (is_much, much, now),
            (is_paid, Class::Together, now),
            (true, Class::Little, now),
            (before > 0, Class::Together, before),
        ];
        let mut allowed = classes.into_iter().filter(|(fits, ..)| *fits && !shrank);
        let allowed = allowed.find(|&(_, class, bytes)| coming_again::take(class, bytes));
        self.class = allowed.map_or(Class::Little, |(_, class, _)| class);
        self.smaller = 0;
        allowed.map_or(0, |(.., bytes)| bytes)
    }
}
