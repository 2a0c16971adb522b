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
//! Hundreds of threads with tens of thousands of instructions each have millions of counts. They wait in few bytes
//! ([`waiting`]), and when there are [`MOST_SUMS`] sums these are written before there are more.
//!
//! Each access is charged one nanosecond. A trace says how often memory is accessed, not how long that takes: the
//! program spends most of its time in the hooks.

use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use numamma_channel::trace::reader::{Owner, Tally, Trace};
use numamma_kernel::clock::monotonic_ns;
use rustc_hash::FxHasher;

use self::waiting::Waiting;
use super::shared_lines::Lines;
use crate::profile::PAGE;
use crate::profile::records::{Folded, Frame, ObjectId, ThreadId};

pub mod waiting;

/// Longest time between two readings.
const READ: Duration = Duration::from_secs(1);
/// A reading may take one in so many parts of the time.
const READING: u32 = 10;
/// Charge of an access, and with it the period of the sampler: an access is a sample.
pub const CHARGE_NS: u64 = 1;
/// Sums that wait to be written at most, but for those that one event adds: some 20 MiB.
pub const MOST_SUMS: usize = 1 << 17;

/// What was counted and not written yet.
#[derive(Debug, Default)]
pub struct Tallies {
    /// The memory; none when the sampler is another one.
    pub trace: Option<Trace>,
    /// Read and not attributed.
    pub waiting: Waiting,
    sums: Sums,
    /// Cache lines that threads share.
    pub lines: Lines,
    /// When the counts were read last, and when they may be read again.
    read: Option<(Instant, Instant)>,
}

/// Sums in the order in which they came, which is nearly that of time.
#[derive(Debug, Default)]
struct Sums {
    folded: Vec<Folded>,
    /// [`Tally::until_ns`] of each.
    until_ns: Vec<u64>,
    /// Hash table of their places in the list, [`NONE`] where there is none; at most half of it is used. Of the sums
    /// themselves it would not fit into a core's caches.
    places: Vec<u32>,
}

const NONE: u32 = u32::MAX;
/// Least size of that table.
const LEAST_PLACES: usize = 1 << 10;

impl Sums {
    /// Adds what one counter counted to the sum of its thread, object, page, instruction and stretch of time.
    fn add(&mut self, new: Folded, until_ns: u64) {
        if self.places.len() <= 2 * self.folded.len() {
            self.grow();
        }
        let is_same = |sum: &Folded, until: u64| {
            until == until_ns
                && (sum.thread, sum.object, sum.addr / PAGE, sum.ip)
                    == (new.thread, new.object, new.addr / PAGE, new.ip)
                && (sum.writes > 0) == (new.writes > 0)
        };
        let mut at = self.first_place(&new);
        loop {
            match self.places[at] {
                NONE => break,
                place if is_same(&self.folded[place as usize], self.until_ns[place as usize]) => {
                    let sum = &mut self.folded[place as usize];
                    sum.reads += new.reads;
                    sum.writes += new.writes;
                    sum.cost_ns += new.cost_ns;
                    return;
                }
                _ => at = (at + 1) & (self.places.len() - 1),
            }
        }
        self.places[at] = self.folded.len() as u32;
        self.folded.push(new);
        self.until_ns.push(until_ns);
    }

    fn first_place(&self, sum: &Folded) -> usize {
        let mut hasher = FxHasher::default();
        (sum.thread, sum.addr / PAGE, sum.ip.offset).hash(&mut hasher);
        hasher.finish() as usize & (self.places.len() - 1)
    }

    fn grow(&mut self) {
        self.places = vec![NONE; (2 * self.places.len()).max(LEAST_PLACES)];
        for place in 0..self.folded.len() {
            let mut at = self.first_place(&self.folded[place]);
            while self.places[at] != NONE {
                at = (at + 1) & (self.places.len() - 1);
            }
            self.places[at] = place as u32;
        }
    }
}

impl Tallies {
    /// Whether it is time to read the counts. `ends`: some object ends now.
    pub fn is_due(&self, ends: bool) -> bool {
        let now = Instant::now();
        self.trace.is_some() && self.read.is_none_or(|(last, next)| now >= last + READ || ends && now >= next)
    }

    /// Reads what the tables of these threads, and those to which nothing more is written, have counted since the last
    /// time. The other tables, perhaps of hundreds of threads, are not looked at for each thread that ends.
    pub fn read_of(&mut self, wanted: impl Fn(&Owner) -> bool) {
        let Some(trace) = &mut self.trace else { return };
        self.waiting.read(trace, wanted, monotonic_ns);
    }

    /// Reads what was counted since the last time.
    pub fn read(&mut self) {
        let begun = Instant::now();
        self.read_of(|_| true);
        let Some(trace) = &mut self.trace else { return };
        self.lines.read(trace);
        let end = Instant::now();
        self.read = Some((end, end + (end - begun) * READING));
    }

    /// Adds accesses to an object.
    pub fn add(&mut self, time_ns: u64, thread: ThreadId, (object, addr): (ObjectId, u64), ip: Frame, tally: &Tally) {
        let (reads, writes) = if tally.write { (0, tally.count) } else { (tally.count, 0) };
        let new = Folded {
            time_ns,
            thread,
            object,
            addr,
            object_only: false,
            ip,
            reads,
            writes,
            remote: 0,
            placed: 0,
            cost_ns: tally.count * CHARGE_NS,
        };
        self.sums.add(new, tally.until_ns);
    }

    /// Whether the sums are to be written before there are more.
    pub fn is_full(&self) -> bool {
        self.sums.folded.len() >= MOST_SUMS
    }

    /// Sums that wait to be written.
    pub fn pending(&self) -> usize {
        self.sums.folded.len()
    }

    /// The sums since the last call, in the order of time.
    pub fn take_sums(&mut self) -> Vec<Folded> {
        let mut sums = std::mem::take(&mut self.sums.folded);
        self.sums.until_ns.clear();
        self.sums.places.fill(NONE);
        // They are in this order for the most part: of what each thread counted, by address.
        sums.sort_by_key(|f| (f.time_ns, f.thread, f.addr));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
