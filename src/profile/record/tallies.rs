//! The `trace` sampler: what the hooks of a program have counted, as sums of accesses to objects.
//!
//! The counts have no time: they are read about once a second, and whenever objects or threads end, because an access
//! belongs to the object that was there. When a process gets a second thread, or one thread of several is left, that
//! one goes on with another table, so that what it did alone, such as initialisation, is told from what all do
//! together. What was read waits until all events before that moment are processed: the allocation of the object and
//! the start of the thread are among them. Of an object that begins and ends between two readings they are found by its
//! addresses; of several at one address, one after the other between two readings, the first gets what all of them
//! have.
//!
//! Each access is charged one nanosecond. A trace says how often memory is accessed, not how long that takes: the
//! program spends most of its time in the hooks.

use std::time::{Duration, Instant};

use numamma_channel::trace::reader::{Tally, Trace};
use numamma_kernel::clock::monotonic_ns;
use rustc_hash::FxHashMap;

use super::shared_lines::Lines;
use crate::profile::PAGE;
use crate::profile::records::{Folded, Frame, ObjectId, ThreadId};

/// Longest time between two readings.
const READ: Duration = Duration::from_secs(1);
/// A reading may take one in so many parts of the time.
const READING: u32 = 10;
/// Charge of an access, and with it the period of the sampler: an access is a sample.
pub const CHARGE_NS: u64 = 1;

/// What was counted and not written yet.
#[derive(Debug, Default)]
pub struct Tallies {
    /// The memory; none when the sampler is another one.
    pub trace: Option<Trace>,
    /// Read and not attributed, by process and address.
    waiting: Vec<Waiting>,
    sums: FxHashMap<Key, Folded>,
    /// Cache lines that threads share.
    pub lines: Lines,
    /// When the counts were read last, and when they may be read again.
    read: Option<(Instant, Instant)>,
}

#[derive(Debug)]
struct Waiting {
    tally: Tally,
    /// When it was read, CLOCK_MONOTONIC.
    read_ns: u64,
    /// Whether it was attributed.
    done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    thread: ThreadId,
    object: ObjectId,
    page: u64,
    ip: Frame,
    write: bool,
    /// [`Tally::until_ns`].
    until_ns: u64,
}

impl Waiting {
    fn take(&mut self) -> Tally {
        self.done = true;
        self.tally
    }
}

impl Tallies {
    /// Whether it is time to read the counts. `ends`: some object ends now.
    pub fn is_due(&self, ends: bool) -> bool {
        let now = Instant::now();
        self.trace.is_some() && self.read.is_none_or(|(last, next)| now >= last + READ || ends && now >= next)
    }

    /// Reads what was counted since the last time.
    pub fn read(&mut self) {
        let Some(trace) = &mut self.trace else { return };
        let begun = Instant::now();
        let mut tallies = Vec::new();
        trace.collect(&mut tallies);
        self.lines.read(trace);
        self.waiting.retain(|waiting| !waiting.done);
        let read_ns = monotonic_ns();
        self.waiting.extend(tallies.into_iter().map(|tally| Waiting { tally, read_ns, done: false }));
        self.waiting.sort_unstable_by_key(|waiting| (waiting.tally.pid, waiting.tally.addr));
        let end = Instant::now();
        self.read = Some((end, end + (end - begun) * READING));
    }

    /// Takes what is known of `len` bytes of a process, but for what was counted after that time only.
    pub fn take(&mut self, pid: u32, (addr, len): (u64, u64), until_ns: u64) -> Vec<Tally> {
        let end = addr.saturating_add(len.max(1));
        let from = self.waiting.partition_point(|w| (w.tally.pid, w.tally.addr) < (pid, addr));
        let within = self.waiting.iter_mut().skip(from).take_while(|w| w.tally.pid == pid && w.tally.addr < end);
        let not_done = within.filter(|w| !w.done && w.tally.since_ns < until_ns);
        not_done.map(Waiting::take).collect()
    }

    /// Takes what is known of a thread that ended at that time.
    pub fn take_thread(&mut self, pid: u32, tid: u32, end_ns: u64) -> Vec<Tally> {
        self.take_where(|w| (w.tally.pid, w.tally.tid) == (pid, tid) && w.tally.since_ns < end_ns)
    }

    /// Takes what was read before that time.
    pub fn take_until(&mut self, until_ns: u64) -> Vec<Tally> {
        self.take_where(|waiting| waiting.read_ns <= until_ns)
    }

    fn take_where(&mut self, is_wanted: impl Fn(&Waiting) -> bool) -> Vec<Tally> {
        let not_done = self.waiting.iter_mut().filter(|w| !w.done && is_wanted(w));
        not_done.map(Waiting::take).collect()
    }

    /// Adds accesses to an object.
    pub fn add(&mut self, time_ns: u64, thread: ThreadId, (object, addr): (ObjectId, u64), ip: Frame, tally: &Tally) {
        let key = Key { thread, object, page: addr / PAGE, ip, write: tally.write, until_ns: tally.until_ns };
        let new = || Folded {
            time_ns,
            thread,
            object,
            addr,
            object_only: false,
            ip,
            reads: 0,
            writes: 0,
            remote: 0,
            placed: 0,
            cost_ns: 0,
        };
        let sum = self.sums.entry(key).or_insert_with(new);
        *(if tally.write { &mut sum.writes } else { &mut sum.reads }) += tally.count;
        sum.cost_ns += tally.count * CHARGE_NS;
    }

    /// Sums that wait to be written.
    pub fn pending(&self) -> usize {
        self.sums.len()
    }

    /// The sums since the last call, in the order of time.
    pub fn take_sums(&mut self) -> Vec<Folded> {
        let mut sums: Vec<Folded> = std::mem::take(&mut self.sums).into_values().collect();
        sums.sort_unstable_by_key(|f| (f.time_ns, f.thread, f.addr, f.ip));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_taken_once_and_by_address() {
        let tally =
            |pid, addr, write| Tally { pid, tid: pid, addr, ip: 1, write, since_ns: 5, until_ns: u64::MAX, count: 3 };
        let waiting = [(1, 0x1000), (1, 0x2ff8), (1, 0x3000), (2, 0x2000)].map(|(pid, addr)| Waiting {
            tally: tally(pid, addr, false),
            read_ns: u64::from(pid),
            done: false,
        });
        let mut tallies = Tallies { waiting: waiting.into(), ..Tallies::default() };
        assert_eq!(tallies.take(1, (0x1000, 0x2000), 5), [], "the program before");
        assert_eq!(tallies.take(1, (0x1000, 0x2000), 6).len(), 2);
        assert_eq!(tallies.take(1, (0x1000, 0x2000), 6), []);
        assert_eq!(tallies.take_until(1), [tally(1, 0x3000, false)]);
        assert_eq!(tallies.take_thread(2, 3, 6), []);
        assert_eq!(tallies.take_thread(2, 2, 6), [tally(2, 0x2000, false)]);
        assert_eq!(tallies.take_until(9), []);
    }

    #[test]
    fn accesses_of_one_page_by_one_instruction_are_one_sum() {
        let mut tallies = Tallies::default();
        let tally =
            |write, count| Tally { pid: 1, tid: 1, addr: 0, ip: 1, write, since_ns: 0, until_ns: u64::MAX, count };
        let ip = Frame { module: 0, offset: 1 };
        for (addr, write, count) in [(0x1000, false, 2), (0x1ff8, false, 3), (0x2000, false, 4), (0x1000, true, 5)] {
            tallies.add(7, 0, (9, addr), ip, &tally(write, count));
        }
        let sums = tallies.take_sums();
        let mut seen: Vec<_> = sums.iter().map(|f| (f.addr, f.reads, f.writes, f.cost_ns)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [(0x1000, 0, 5, 5), (0x1000, 5, 0, 5), (0x2000, 4, 0, 4)]);
        assert!(tallies.take_sums().is_empty() && tallies.pending() == 0);
    }
}
