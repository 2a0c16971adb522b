//! Slots among the living threads of a kind, from the recorded starts and ends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::profile::records::Thread;

/// Time before its recorded end from which a thread counts as ended: pthread_join returns before the kernel records the
/// end, by as much as the ended thread waits for a CPU. At most half of its life.
const JOINED_NS: u64 = 20_000_000;

/// Free slots of a kind below one creator.
#[derive(Default)]
pub(super) struct Living {
    /// When threads end, with their slots.
    ends: BinaryHeap<Reverse<(u64, u32)>>,
    free: BinaryHeap<Reverse<u32>>,
    slots: u32,
}

impl Living {
    /// The lowest slot that is free when the thread starts, until it ends.
    pub fn take(&mut self, thread: &Thread) -> u32 {
        let now = thread.start_ns;
        while let Some(Reverse((_, slot))) = self.ends.peek().copied().filter(|Reverse((end, _))| *end <= now) {
            self.ends.pop();
            self.free.push(Reverse(slot));
        }
        let slot = self.free.pop().map_or(self.slots, |Reverse(slot)| slot);
        self.slots = self.slots.max(slot + 1);
        self.ends.push(Reverse((released(thread), slot)));
        slot
    }
}

/// When the slot of a thread is free again.
fn released(thread: &Thread) -> u64 {
    let Some(end) = thread.end_ns else { return u64::MAX };
    let life = end.saturating_sub(thread.start_ns);
    end - (life / 2).min(JOINED_NS).min(end)
}

/// Slots of the threads that one thread makes for its OpenMP regions inside regions, in the order of creation. GNU's
/// runtime makes them anew for every region and detaches them, so some of one region still end while those of the next
/// begin; but none ends before the whole region does. They are numbered in turn within a region, as the apply preload
/// numbers them.
pub(super) fn in_regions(threads: &[&Thread]) -> Vec<u32> {
    let mut regions = Regions::default();
    let slots: Vec<u32> = threads.iter().map(|thread| regions.take(thread)).collect();
    match usual_size(&slots) {
        Some(size) => (0..threads.len() as u32).map(|at| at % size).collect(),
        None => slots,
    }
}

/// Slots of threads of one kind that their creator makes anew for every round and waits for, where `slots`, those among
/// the living, say that some rounds are larger than most: threads of the last round still waited for a CPU to end. None
/// where that does not explain all of it.
pub(super) fn in_rounds(threads: &[(&Thread, u32)]) -> Option<Vec<u32>> {
    let slots: Vec<u32> = threads.iter().map(|(_, slot)| *slot).collect();
    let size = usual_size(&slots).filter(|size| *size <= slots.iter().copied().max().unwrap_or(0))?;
    let is_late = |(before, next): (&(&Thread, u32), &(&Thread, u32))| ends_late(before.0, next.0);
    let successors = threads.iter().zip(threads.iter().skip(size as usize));
    successors.into_iter().all(is_late).then(|| (0..threads.len() as u32).map(|at| at % size).collect())
}

/// Whether the one thread ended before the other one began, or so soon after it that the time in which it waited for a
/// CPU, as far as is known, explains it.
fn ends_late(before: &Thread, next: &Thread) -> bool {
    let Some(end) = before.end_ns else { return false };
    let both = end.saturating_sub(next.start_ns);
    let life = end.saturating_sub(before.start_ns);
    let lives = life.min(next.end_ns.unwrap_or(u64::MAX).saturating_sub(next.start_ns));
    // Its last wait, which made it late, came after the recorder looked at it last.
    let waited = before.waits.map_or(0, |w| life.saturating_sub(w.ran_ns.saturating_add(w.blocked_ns)));
    both <= waited.max(JOINED_NS.min(lives / 2))
}

/// The size of most regions, if all threads can be of regions of this size: then the few that seem to be larger or
/// smaller begin where a thread was kept from starting or ending for as long as a region takes.
fn usual_size(slots: &[u32]) -> Option<u32> {
    let first = |at: &usize| slots.get(*at).is_none_or(|slot| *slot == 0);
    let starts: Vec<usize> = (0..=slots.len()).filter(first).collect();
    let mut counts: HashMap<usize, usize> = HashMap::new();
    starts.windows(2).for_each(|pair| *counts.entry(pair[1] - pair[0]).or_default() += 1);
    let (size, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (2 * count > starts.len() - 1 && slots.len().is_multiple_of(size)).then_some(size as u32)
}

/// The regions of one thread so far.
#[derive(Default)]
struct Regions {
    /// Threads of the last one so far.
    threads: u32,
    /// The life of the one of them that ended first.
    first: Option<(u64, u64)>,
}

impl Regions {
    /// The number of a thread in its region, in the order of creation.
    fn take(&mut self, thread: &Thread) -> u32 {
        // The threads of one region start together and end together, but for what each waits for a CPU. So where this
        // thread starts nearer to the end of the first one than to its start, and that ended nearer to this one's
        // start than to its end, they are of two regions.
        let middle = |(start, end): (u64, u64)| start + end.saturating_sub(start) / 2;
        let own = (thread.start_ns, thread.end_ns.unwrap_or(u64::MAX));
        if self.first.is_some_and(|first| middle(first) < own.0 && first.1 < middle(own)) {
            *self = Regions::default();
        }
        let slot = self.threads;
        self.threads += 1;
        let ended = thread.end_ns.map(|end| (thread.start_ns, end));
        self.first = self.first.into_iter().chain(ended).min_by_key(|(_, end)| *end);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::records::Waits;

    fn slots(lives: &[(u64, Option<u64>)]) -> Vec<u32> {
        let thread = |(start_ns, end_ns): &(u64, Option<u64>)| Thread {
            start_ns: *start_ns,
            end_ns: *end_ns,
            ..Thread::default()
        };
        let threads: Vec<Thread> = lives.iter().map(thread).collect();
        in_regions(&threads.iter().collect::<Vec<_>>())
    }

    /// Two of the three threads of each region end long after the next region has begun.
    #[test]
    fn threads_that_end_late_do_not_widen_the_next_region() {
        let regions = (0..6).flat_map(|step| {
            let begin = step * 100;
            [(begin, Some(begin + 190)), (begin + 5, Some(begin + 110)), (begin + 10, Some(begin + 170))]
        });
        assert_eq!(slots(&regions.collect::<Vec<_>>()), [0, 1, 2].repeat(6));
    }

    #[test]
    fn a_thread_that_ends_late_is_of_the_region_it_began_with() {
        let regions = (0..3).flat_map(|step| {
            let begin = step * 100;
            [(begin, Some(begin + 95)), (begin + 5, Some(begin + 96)), (begin + 10, Some(begin + 290))]
        });
        assert_eq!(slots(&regions.collect::<Vec<_>>()), [0, 1, 2].repeat(3));
    }

    #[test]
    fn a_region_of_more_threads_has_more_slots() {
        let wide = (100..105).map(|start| (start, Some(210)));
        let lives: Vec<_> = (0..3).map(|start| (start, Some(99))).chain(wide).collect();
        assert_eq!(slots(&lives), [0, 1, 2, 0, 1, 2, 3, 4]);
    }

    /// The first thread of the third region starts when the first one of the second has not come far.
    #[test]
    fn one_region_that_is_mistaken_is_of_the_usual_size() {
        let mut lives: Vec<_> = (0..18).map(|at| (at / 3 * 100 + at % 3, Some(at / 3 * 100 + 97))).collect();
        (lives[3].1, lives[4].1, lives[5].1) = (Some(260), Some(270), Some(290));
        assert_eq!(slots(&lives), [0, 1, 2].repeat(6));
    }

    /// Rounds of four threads, each of 340 ms, of which the last waits for a CPU until the next round runs for 27 ms,
    /// in each third round.
    fn rounds(waited_ms: u64) -> Vec<Thread> {
        let thread = |at: u64| {
            let (start, late) = (at / 4 * 350, if at % 12 == 11 { 27 } else { 0 });
            let (start_ns, end_ns) = (MS * (start + at % 4), MS * (start + 340 + 10 * late.min(1) + late));
            let seen_ns = end_ns - start_ns;
            let waits = Waits { seen_ns, ran_ns: seen_ns - MS * waited_ms, ..Waits::default() };
            Thread { start_ns, end_ns: Some(end_ns), waits: Some(waits), ..Thread::default() }
        };
        (0..48).map(thread).collect()
    }

    const MS: u64 = 1_000_000;

    fn rounds_of(threads: &[Thread]) -> (u32, Option<Vec<u32>>) {
        let mut living = Living::default();
        let slots: Vec<(&Thread, u32)> = threads.iter().map(|thread| (thread, living.take(thread))).collect();
        (slots.iter().map(|(_, slot)| slot + 1).max().unwrap_or(0), in_rounds(&slots))
    }

    #[test]
    fn a_thread_that_waits_for_a_cpu_to_end_makes_no_worker_more() {
        assert_eq!(rounds_of(&rounds(200)), (5, Some([0, 1, 2, 3].repeat(12))));
        assert_eq!(rounds_of(&rounds(0)), (5, None), "it ran while the next round did");
        let mut unseen = rounds(0);
        for waits in unseen.iter_mut().filter_map(|thread| thread.waits.as_mut()) {
            (waits.seen_ns, waits.ran_ns) = (300 * MS, 300 * MS);
        }
        assert_eq!(rounds_of(&unseen).1, Some([0, 1, 2, 3].repeat(12)), "nobody saw what it did at its end");
        let mut pool = rounds(200);
        pool.truncate(4);
        assert_eq!(rounds_of(&pool), (4, None), "nothing to change");
    }

    #[test]
    fn threads_of_a_pool_stay() {
        assert_eq!(slots(&[(0, None), (1, None), (500, None)]), [0, 1, 2]);
    }
}
