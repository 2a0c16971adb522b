//! How much may be kept: so much that what is kept and what is in use together take little more than was in use at a
//! time. A program whose arrays are most of its memory would otherwise take twice as much.
//!
//! - Beside the arrays in use there is room for little more than the most of them at a time.
//! - Memory that the program uses otherwise, objects that no rule places and small ones, is not known here. So before
//!   such memory is allocated the kernel tells what the process holds, now and then: if that and what is about to be
//!   allocated are more than an eighth above the most that the process held beside what was kept, or more than what may
//!   be kept as a part of the arrays in use, all is given back. Both pages that exist and memory that can be written are
//!   compared, because what was allocated may not be touched yet, or never.
//! - In a control group with a limit of memory, what is kept is no more than the group has left beside all that the
//!   process has asked for, touched or not: it may touch that without a call that is seen here, and the kernel would
//!   kill it.
//! - What is not used for some time, while as much was allocated otherwise, is given back. Where that was a mistake the
//!   time becomes twice as long, as for heaps of small objects ([`crate::rules::patience`]).

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use std::sync::OnceLock;

use numamma_hook::{errno, own_stack, sandbox};
use numamma_kernel::cgroup::Group;
use numamma_kernel::statm::{self, Statm};
use numamma_kernel::{clock, sys};

use super::{glibc, sum};
use crate::objects::heap::trim;
use crate::rules::{churn, coming_again, heap_account, in_use, patience};

/// Part (1/4) of the most bytes at a time by which what is in use and what is kept may together be more.
const MORE_DIVISOR: usize = 4;
/// Part (1/5) of the arrays in use that may be kept. Of a cache of arrays of varying size, of which one is replaced at
/// a time, so much is free that one of another size finds a place, as in glibc's heap; and the sum stays below
/// [`MORE_DIVISOR`].
const LIVE_DIVISOR: usize = 5;
/// Mean size of the arrays from which that pays: among so many free blocks, finding one takes some us, more where
/// threads do so at the same time; it saves 32 page faults and more of 0.5 to 2 us, and calls for which all threads
/// wait. Where policies go by blocks there are smaller ones.
const LARGE: usize = 128 << 10;
/// Part (1/8) of the most that the process held at a time by which that and what is kept may together be more: half of
/// the former, because not all that the program allocates is seen.
const OTHERS_DIVISOR: usize = 8;
/// Bytes that may be kept beside that in any case: what the library takes itself.
const ALWAYS: usize = 2 << 20;
/// Bytes that are allocated between two looks at what the process holds, at least: a look takes 3 us, the page faults
/// of so much 100 times that ([`LOOK_NS`]).
const STEP: usize = 1 << 20;
/// Time that a look takes, ns.
const LOOK_NS: u64 = 3_000;
/// Part (1/2) of the room that is left after which the process is looked at again: the rest is for what is not seen.
const STEP_DIVISOR: usize = 2;
/// Bytes that are allocated between two looks at the clock, at most, while the process does not grow: what is allocated
/// may come from what its allocator has. Then the process is looked at once in a tick of the coarse clock, and while
/// something is kept after so many bytes: a tick may be long where the machine is shared.
const LONGEST_STEP: usize = 8 << 20;

/// Bytes that a group must have left beyond what the process has asked for: two steps that are not looked at.
const SPARE: usize = ALWAYS + 2 * STEP;
/// Part (1/512) of memory that the kernel takes for the page tables of it.
const TABLES_DIVISOR: usize = sys::PAGE / size_of::<u64>();

/// The groups of the process that have a limit, and the bytes that may be kept in them.
static GROUPS: OnceLock<Vec<Group>> = OnceLock::new();
static ALLOWED: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Bytes that were freed and not kept since that was found out; as many as make it be found out at first.
static NOT_KEPT: AtomicUsize = AtomicUsize::new(STEP);

/// Most bytes that may be kept in any case.
static IN_ANY_CASE: AtomicUsize = AtomicUsize::new(0);

/// What the process holds, and when.
static PROCESS: Process = Process::new();
/// How long what is not used is kept.
static UNUSED: Unused = Unused::new();

struct Process {
    /// The most bytes of each measure beside what was kept.
    most: [AtomicUsize; 2],
    /// Bytes that were allocated since the last look, and those after which the next one is.
    pending: AtomicUsize,
    step: AtomicUsize,
    /// Bytes that were allocated since what it holds was last asked.
    unasked: AtomicUsize,
    /// When it was last looked at, ns, what it held then, and whether that was more than before.
    looked: AtomicU64,
    last: [AtomicUsize; 2],
    grew: AtomicBool,
}

impl Process {
    const fn new() -> Process {
        Process {
            most: [const { AtomicUsize::new(0) }; 2],
            pending: AtomicUsize::new(0),
            step: AtomicUsize::new(STEP),
            unasked: AtomicUsize::new(0),
            looked: AtomicU64::new(0),
            last: [const { AtomicUsize::new(0) }; 2],
            grew: AtomicBool::new(true),
        }
    }

    /// Whether the process is to be asked for what it holds, at the time `now`, ns, after `bytes` more were allocated
    /// while `kept` bytes are kept.
    fn is_due(&self, bytes: usize, kept: usize, now: u64) -> bool {
        let unasked = self.unasked.load(Ordering::Relaxed).saturating_add(bytes);
        let is_much = kept > 0 && unasked >= LONGEST_STEP;
        let is_due = is_much || self.grew.load(Ordering::Relaxed) || self.looked.load(Ordering::Relaxed) != now;
        self.unasked.store(if is_due { 0 } else { unasked }, Ordering::Relaxed);
        let step = self.step.load(Ordering::Relaxed);
        if is_due {
            self.looked.store(now, Ordering::Relaxed);
        } else if step < LONGEST_STEP {
            self.step.store(2 * step, Ordering::Relaxed);
        }
        is_due
    }

    /// Whether the `kept` bytes must go before `bytes` more are allocated, if `part` of them may be kept in any case.
    /// The process holds `now`, by each measure.
    fn is_crowded(&self, now: [usize; 2], bytes: usize, kept: usize, part: usize) -> bool {
        let (mut room, mut grew) = (usize::MAX, false);
        for ((most, last), now) in self.most.iter().zip(&self.last).zip(now) {
            grew |= last.swap(now, Ordering::Relaxed) < now;
            let others = now.saturating_sub(kept);
            let highest = most.fetch_max(others, Ordering::Relaxed).max(others);
            let may = highest.saturating_add(part.max(highest / OTHERS_DIVISOR)).saturating_add(ALWAYS);
            room = room.min(may.saturating_sub(now.saturating_add(bytes)));
        }
        self.grew.store(grew, Ordering::Relaxed);
        let least = if grew { STEP } else { self.step.load(Ordering::Relaxed).min(LONGEST_STEP) };
        self.step.store((room / STEP_DIVISOR).max(least), Ordering::Relaxed);
        room == 0 && kept > 0
    }
}

/// When kept memory is given up because nothing uses it.
struct Unused {
    /// Bytes that were allocated since something was kept or served, and when that was, ns.
    others: AtomicUsize,
    since: AtomicU64,
    /// How long memory must not have been used, and when that last changed, ns.
    patience: AtomicU64,
    changed: AtomicU64,
    /// When memory was given up that was not needed again since then, ns, else 0.
    given_up: AtomicU64,
    /// What [`heap_account::uses`] was last.
    of_heaps: AtomicUsize,
}

impl Unused {
    const fn new() -> Unused {
        Unused {
            others: AtomicUsize::new(0),
            since: AtomicU64::new(0),
            patience: AtomicU64::new(patience::SHORTEST_NS),
            changed: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            of_heaps: AtomicUsize::new(0),
        }
    }

    fn used(&self, now: u64) {
        if self.since.load(Ordering::Relaxed) != now {
            self.since.store(now, Ordering::Relaxed);
        }
        if self.others.load(Ordering::Relaxed) > 0 {
            self.others.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the `kept` bytes are given up after `bytes` were allocated, at the time `now`, ns.
    fn is_over(&self, bytes: usize, kept: usize, now: u64) -> bool {
        let others = self.others.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let length = self.patience.load(Ordering::Relaxed);
        let is_over = kept > 0 && others >= kept && now.saturating_sub(self.since.load(Ordering::Relaxed)) >= length;
        if is_over {
            if now.saturating_sub(self.changed.load(Ordering::Relaxed)) >= patience::CALM * length {
                self.set((length / 2).max(patience::SHORTEST_NS), now);
            }
            self.given_up.store(now, Ordering::Relaxed);
        }
        is_over
    }

    /// Notes that memory was mapped that might have been kept: at the time `now`, ns.
    fn needed(&self, now: u64) {
        let length = self.patience.load(Ordering::Relaxed);
        let given_up = self.given_up.swap(0, Ordering::Relaxed);
        if given_up > 0 && now.saturating_sub(given_up) < length.max(patience::WINDOW_NS) {
            self.set((2 * length).min(patience::LONGEST_NS), now);
        }
    }

    fn set(&self, length: u64, now: u64) {
        self.patience.store(length, Ordering::Relaxed);
        self.changed.store(now, Ordering::Relaxed);
    }
}

/// Heeds the limits of `groups` from now on.
pub fn start(groups: Vec<Group>) {
    if !groups.is_empty() {
        ALLOWED.store(0, Ordering::Relaxed);
    }
    let _ = GROUPS.set(groups);
}

/// Bytes of arrays that may be kept in the groups of the process, asked when `bytes` are freed while `kept` are kept,
/// by arrays and by heaps.
pub fn allowed_by_groups(bytes: usize, kept: usize) -> usize {
    if GROUPS.get().is_none_or(|groups| groups.is_empty()) {
        return usize::MAX;
    }
    if kept.saturating_add(bytes) > ALLOWED.load(Ordering::Relaxed) {
        find_out_again(bytes, kept);
    }
    ALLOWED.load(Ordering::Relaxed).saturating_sub(heap_account::standing())
}

/// What is freed and not kept leaves room for more.
#[cold]
#[inline(never)]
fn find_out_again(bytes: usize, kept: usize) {
    if NOT_KEPT.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) < STEP || sandbox::entered() {
        return;
    }
    NOT_KEPT.store(0, Ordering::Relaxed);
    let _errno = errno::Saved::now();
    if let Some(now) = statm::read() {
        find_out(&now, kept);
    }
}

/// Finds out how much may be kept while the process holds `now` and `kept` are kept.
fn find_out(now: &Statm, kept: usize) {
    let Some(groups) = GROUPS.get().filter(|groups| !groups.is_empty()) else { return };
    let needed = needed(now.untouched());
    let enough = needed.saturating_mul(2).saturating_add(now.data) as u64;
    let left = own_stack::run(|| groups.iter().filter_map(|group| group.left(enough)).min()).flatten();
    let Some(left) = left else { return };
    let allowed = kept.saturating_add(left as usize).saturating_sub(needed);
    ALLOWED.store(allowed, Ordering::Relaxed);
    coming_again::keep_below(allowed);
}

/// Bytes that a group must have left for a process that has asked for `untouched` bytes more than it has touched.
fn needed(untouched: usize) -> usize {
    untouched.saturating_add(untouched / TABLES_DIVISOR).saturating_add(SPARE)
}

/// Notes that `bytes` are about to be allocated that no kept block serves; true when the `kept` bytes are to be given
/// back.
#[inline]
pub fn is_needed(bytes: usize, kept: usize) -> bool {
    let pending = PROCESS.pending.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    pending >= PROCESS.step.load(Ordering::Relaxed) && look(bytes, kept)
}

/// As [`is_needed`], for memory that is mapped: the process grows.
pub fn is_needed_for_new(bytes: usize, kept: usize) -> bool {
    if !PROCESS.grew.swap(true, Ordering::Relaxed) {
        PROCESS.step.fetch_min(STEP, Ordering::Relaxed);
    }
    is_needed(bytes, kept)
}

/// As [`is_needed`], when an array is freed: what the process holds then may be the most. Once in a tick of the coarse
/// clock.
pub fn is_left(kept: usize) -> bool {
    let now = clock::coarse_ns();
    UNUSED.used(now);
    PROCESS.looked.load(Ordering::Relaxed) != now && look(0, kept)
}

/// Notes that what is kept served.
pub fn serves() {
    UNUSED.used(clock::coarse_ns());
}

/// Notes that memory for an array was mapped.
pub fn mapped() {
    if UNUSED.given_up.load(Ordering::Relaxed) > 0 {
        UNUSED.needed(clock::coarse_ns());
    }
}

/// Looks at what the process holds when `bytes` are about to be allocated.
#[cold]
#[inline(never)]
fn look(bytes: usize, kept: usize) -> bool {
    let (pending, now) = (PROCESS.pending.swap(0, Ordering::Relaxed), clock::coarse_ns());
    let of_heaps = heap_account::uses();
    if UNUSED.of_heaps.swap(of_heaps, Ordering::Relaxed) != of_heaps {
        UNUSED.used(now);
    }
    let is_unused = UNUSED.is_over(pending, kept, now);
    if !PROCESS.is_due(pending, kept, now) || sandbox::entered() {
        return is_unused;
    }
    let _errno = errno::Saved::now();
    churn::also_took(LOOK_NS);
    let is_crowded = match statm::read() {
        Some(now) => {
            find_out(&now, kept);
            let until_trim = trim::holds(now.resident.saturating_sub(kept));
            let is_crowded = PROCESS.is_crowded([now.resident, now.data], bytes, kept, part_of_live())
                || (kept > 0 && kept > ALLOWED.load(Ordering::Relaxed).saturating_sub(bytes));
            PROCESS.step.fetch_min(until_trim.max(STEP), Ordering::Relaxed);
            is_crowded
        }
        // What cannot be known must be little.
        None => kept > 0 && UNUSED.others.load(Ordering::Relaxed) > kept / MORE_DIVISOR + ALWAYS,
    };
    if is_crowded {
        in_use::kept_in_vain();
    }
    is_crowded || is_unused
}

/// Bytes that may be kept as a part of what is in use.
pub fn part_of_live() -> usize {
    if in_use::mean() >= LARGE { in_use::bytes() / LIVE_DIVISOR } else { 0 }
}

/// Bytes that may be kept now beside the arrays in use.
pub fn left() -> usize {
    beside(in_use::bytes(), in_use::most())
}

/// Most bytes that may be kept in any case.
pub fn in_any_case() -> usize {
    IN_ANY_CASE.load(Ordering::Relaxed)
}

/// Lets `bytes` be kept in any case.
pub fn keep_in_any_case(bytes: usize) {
    IN_ANY_CASE.fetch_max(bytes, Ordering::Relaxed);
}

/// Whether what is in use and kept, and `bytes` more that neither counts now, may take more than a little more than the
/// arrays in use were expected to touch at a time, and more than the allocator of the program would keep.
pub fn is_beyond_touched(bytes: usize) -> bool {
    let live = in_use::bytes();
    let may = beside(live, in_use::most_touched()).max(glibc::kept().saturating_sub(live));
    sum::bytes().saturating_add(bytes) > may
}

fn beside(live: usize, most: usize) -> usize {
    most.saturating_add(most / MORE_DIVISOR).saturating_add(ALWAYS).saturating_sub(live)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const MS: u64 = 1_000_000;

    #[test]
    fn what_is_kept_and_in_use_is_little_more_than_was_in_use() {
        assert_eq!(beside(0, 0), 2 * MIB);
        assert_eq!(beside(0, 8 * MIB), 12 * MIB);
        assert_eq!(beside(8 * MIB, 8 * MIB), 4 * MIB);
        assert_eq!(beside(usize::MAX, usize::MAX), 0);
    }

    #[test]
    fn a_group_must_have_left_what_the_process_may_touch() {
        assert_eq!((needed(0), needed(512 * MIB), needed(usize::MAX)), (4 * MIB, 517 * MIB, usize::MAX));
        assert_eq!(allowed_by_groups(MIB, 0), usize::MAX, "no group has a limit");
    }

    #[test]
    fn what_is_kept_does_not_stand_beside_others() {
        let process = Process::new();
        let is_over =
            |now: [usize; 2], kept, part| process.is_crowded(now.map(|n| n * MIB), MIB, kept * MIB, part * MIB);
        let is_crowded = |now: [usize; 2], kept| is_over(now, kept, 0);
        assert!(!is_crowded([40, 60], 0), "nothing is kept");
        assert!(!is_crowded([40, 60], 38), "what was freed is kept");
        assert!(!is_crowded([45, 60], 38) && is_crowded([46, 60], 38));
        assert!(!is_over([48, 60], 38, 8) && is_over([49, 60], 38, 8), "a part of the arrays in use");
        assert!(!is_crowded([40, 68], 38) && is_crowded([40, 69], 38), "of what is not touched yet");
        assert!(!is_crowded([80, 100], 0) && !is_crowded([80, 100], 38), "so much was held without it");
        assert_eq!(process.step.load(Ordering::Relaxed), 11 * MIB / 2);
    }

    #[test]
    fn a_process_that_does_not_grow_is_looked_at_once_in_a_tick() {
        let process = Process::new();
        let looks = |resident: usize, at_ms: u64| {
            let due = (0..100).filter(|_| process.is_due(0, MIB, at_ms * MS)).count();
            process.is_crowded([resident * MIB, 0], 0, MIB, 0);
            (due, process.step.load(Ordering::Relaxed) / MIB)
        };
        assert_eq!(looks(10, 4), (100, 1), "it grew");
        assert_eq!((looks(10, 8), looks(10, 12)), ((100, 1), (1, 8)));
        assert_eq!((looks(11, 16), looks(11, 20)), ((1, 1), (100, 1)));
    }

    #[test]
    fn a_process_is_looked_at_within_a_tick_after_much_was_allocated_beside_what_is_kept() {
        let process = Process::new();
        process.is_due(0, 0, MS);
        process.is_crowded([0, 0], 0, 0, 0);
        let looks = |kept| (0..100).filter(|_| process.is_due(MIB, kept, MS)).count();
        assert_eq!((looks(0), looks(MIB)), (0, 13));
    }

    #[test]
    fn what_is_not_used_is_given_up_and_regretted_if_it_is_needed_again() {
        let unused = Unused::new();
        unused.used(1000 * MS);
        assert!(!unused.is_over(8 * MIB, 8 * MIB, 1019 * MS), "20 ms");
        assert!(unused.is_over(0, 8 * MIB, 1020 * MS));
        unused.needed(1021 * MS);
        unused.used(1030 * MS);
        assert!(!unused.is_over(9 * MIB, 8 * MIB, 1069 * MS), "40 ms");
        unused.used(1100 * MS);
        assert!(!unused.is_over(7 * MIB, 8 * MIB, 9000 * MS), "less was allocated");
        assert!(unused.is_over(MIB, 8 * MIB, 9000 * MS));
        assert_eq!(unused.patience.load(Ordering::Relaxed), 20 * MS, "after a calm time");
        unused.needed(10_001 * MS);
        assert_eq!(unused.patience.load(Ordering::Relaxed), 20 * MS, "too late");
    }
}
