//! Counts that were read and whose object is not looked up yet: 20 bytes for each.

use std::collections::BTreeMap;

use numamma_channel::trace::reader::{Owner, Place, Trace};

/// All readings that have some.
#[derive(Debug, Default)]
pub struct Waiting {
    readings: Vec<Reading>,
}

/// What was read of one process at one time.
#[derive(Debug)]
struct Reading {
    /// CLOCK_MONOTONIC.
    read_ns: u64,
    pid: u32,
    owners: Vec<Owner>,
    /// By address.
    counts: Vec<Count>,
    /// Their indices by owner, and where those of each owner begin.
    by_owner: Vec<u32>,
    begins: Vec<u32>,
    /// All before were taken.
    next: usize,
}

/// 16 bytes: there are millions.
#[derive(Debug)]
struct Count {
    place: Place,
    /// 0 when it was taken.
    count: u32,
    owner: u32,
}

impl Count {
    fn take(&mut self, owners: &[Owner], with: &mut impl FnMut(&Owner, Place, u64)) {
        let count = std::mem::take(&mut self.count);
        if count > 0 {
            with(&owners[self.owner as usize], self.place, count.into());
        }
    }
}

impl Reading {
    /// All owners are of the process.
    fn new(read_ns: u64, pid: u32, Unsorted { owners, mut counts }: Unsorted) -> Reading {
        counts.shrink_to_fit();
        counts.sort_unstable_by_key(|of| of.place.addr());
        let mut begins = vec![0_u32; owners.len() + 1];
        counts.iter().for_each(|of| begins[of.owner as usize + 1] += 1);
        (0..owners.len()).for_each(|n| begins[n + 1] += begins[n]);
        let (mut ends, mut by_owner) = (begins.clone(), vec![0; counts.len()]);
        for (index, of) in (0..).zip(&counts) {
            let end = &mut ends[of.owner as usize];
            by_owner[*end as usize] = index;
            *end += 1;
        }
        Reading { read_ns, pid, owners, counts, by_owner, begins, next: 0 }
    }
}

/// What is read of one process, while it is.
#[derive(Debug, Default)]
struct Unsorted {
    owners: Vec<Owner>,
    counts: Vec<Count>,
}

impl Unsorted {
    fn add(&mut self, owner: &Owner, place: Place, mut count: u64) {
        if self.owners.last() != Some(owner) {
            self.owners.push(*owner);
        }
        let owner = self.owners.len() as u32 - 1;
        while count > 0 {
            let part = u32::try_from(count).unwrap_or(u32::MAX);
            self.counts.push(Count { place, count: part, owner });
            count -= u64::from(part);
        }
    }
}

impl Waiting {
    /// Reads what a program has counted in the tables of `wanted` threads; `now` is asked for the time after that.
    pub fn read(&mut self, trace: &mut Trace, wanted: impl Fn(&Owner) -> bool, now: impl FnOnce() -> u64) {
        let mut processes = BTreeMap::<u32, Unsorted>::new();
        trace.collect_of(wanted, |owner, place, count| {
            processes.entry(owner.pid).or_default().add(owner, place, count);
        });
        self.readings.retain(|reading| reading.next < reading.counts.len());
        let read_ns = now();
        let new = processes.into_iter().filter(|(_, read)| !read.counts.is_empty());
        self.readings.extend(new.map(|(pid, read)| Reading::new(read_ns, pid, read)));
    }

    /// Takes what is known of `len` bytes of a process, but for what was counted after that time only.
    pub fn take(&mut self, pid: u32, (addr, len): (u64, u64), until_ns: u64, mut with: impl FnMut(&Owner, Place, u64)) {
        let end = addr.saturating_add(len.max(1));
        for Reading { owners, counts, next, .. } in self.readings.iter_mut().filter(|reading| reading.pid == pid) {
            let from = counts.partition_point(|of| of.place.addr() < addr).max(*next);
            let within = counts[from..].iter_mut().take_while(|of| of.place.addr() < end);
            let is_older = |of: &&mut Count| owners[of.owner as usize].since_ns < until_ns;
            within.filter(is_older).for_each(|of| of.take(owners, &mut with));
        }
    }

    /// Takes what is known of a thread that ended at that time.
    pub fn take_thread(&mut self, pid: u32, tid: u32, end_ns: u64, mut with: impl FnMut(&Owner, Place, u64)) {
        for Reading { owners, counts, by_owner, begins, .. } in self.readings.iter_mut().filter(|r| r.pid == pid) {
            let is_of = |owner: &Owner| owner.tid == tid && owner.since_ns < end_ns;
            for n in (0..owners.len()).filter(|n| is_of(&owners[*n])) {
                let of_thread = &by_owner[begins[n] as usize..begins[n + 1] as usize];
                of_thread.iter().for_each(|index| counts[*index as usize].take(owners, &mut with));
            }
        }
    }

    /// Takes about `most` counts that were read before that time; false when there were no more.
    pub fn take_until(&mut self, until_ns: u64, most: usize, mut with: impl FnMut(&Owner, Place, u64)) -> bool {
        let mut left = most;
        for Reading { owners, counts, next, .. } in self.readings.iter_mut().filter(|r| r.read_ns <= until_ns) {
            let end = counts.len().min(*next + left);
            counts[*next..end].iter_mut().for_each(|of| of.take(owners, &mut with));
            left -= end - *next;
            *next = end;
        }
        let is_done = |reading: &Reading| reading.next == reading.counts.len();
        let more = self.readings.iter().any(|reading| reading.read_ns <= until_ns && !is_done(reading));
        self.readings.retain(|reading| !is_done(reading));
        more
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use numamma_channel::trace::writer;

    /// An access by each of these threads of process 1 to each of so many pages.
    pub fn pages_of(threads: std::ops::Range<u32>, pages: u32) -> Waiting {
        let place = |page: u32| Place::new(writer::key(u64::from(page + 1) << 12, 0).unwrap());
        let of = |owner| (0..pages).map(move |page| Count { place: place(page), count: 1, owner });
        let mut waiting = Waiting::default();
        let owners = threads.clone().map(|tid| owner(1, tid)).collect();
        let read = Unsorted { owners, counts: (0..threads.len() as u32).flat_map(of).collect() };
        waiting.readings.push(Reading::new(6, 1, read));
        waiting
    }

    fn owner(pid: u32, tid: u32) -> Owner {
        Owner { pid, tid, since_ns: 5, until_ns: u64::MAX }
    }

    fn waiting(readings: &[(u64, &[(Owner, u64)])]) -> Waiting {
        let mut waiting = Waiting::default();
        for (read_ns, all) in readings {
            let place = |addr| Place::new(writer::key(addr, 0).unwrap());
            let counts = (0..).zip(*all).map(|(n, (_, addr))| Count { place: place(*addr), count: 3, owner: n });
            let read = Unsorted { owners: all.iter().map(|(owner, _)| *owner).collect(), counts: counts.collect() };
            waiting.readings.push(Reading::new(*read_ns, all[0].0.pid, read));
        }
        waiting
    }

    type Taken = Vec<(u32, u64, u64)>;

    fn taken(take: impl FnOnce(&mut dyn FnMut(&Owner, Place, u64))) -> Taken {
        let mut out = Vec::new();
        take(&mut |owner: &Owner, place: Place, count| out.push((owner.tid, place.addr(), count)));
        out
    }

    #[test]
    fn counts_are_taken_once_and_by_address() {
        let first = [(owner(1, 1), 0x3000), (owner(1, 1), 0x1000), (owner(1, 4), 0x2ff8)];
        let mut all = waiting(&[(1, &first), (2, &[(owner(2, 2), 0x2000)])]);
        let (below, whole) = ((0x1000, 0x2000), (0, u64::MAX));
        assert_eq!(taken(|with| all.take(1, below, 5, with)), [], "the program before");
        assert_eq!(taken(|with| all.take(1, below, 6, with)), [(1, 0x1000, 3), (4, 0x2ff8, 3)]);
        assert_eq!(taken(|with| all.take(1, below, 6, with)), []);
        assert_eq!(taken(|with| assert!(!all.take_until(1, 9, with))), [(1, 0x3000, 3)]);
        assert_eq!(taken(|with| all.take_thread(2, 3, 6, with)), []);
        assert_eq!(taken(|with| all.take_thread(2, 2, 6, with)), [(2, 0x2000, 3)]);
        assert_eq!(taken(|with| all.take(2, whole, 6, with)), []);
        assert_eq!(taken(|with| assert!(!all.take_until(9, 9, with))), []);
        assert!(all.readings.is_empty());
    }

    #[test]
    fn some_are_taken_at_a_time() {
        let of = |tid: u32| -> Vec<(Owner, u64)> { (1..=4).map(|page| (owner(1, tid), page << 12)).collect() };
        let mut all = waiting(&[(1, &of(1)), (2, &of(2))]);
        assert_eq!(taken(|with| all.take_thread(1, 2, 9, with)).len(), 4);
        assert_eq!(taken(|with| assert!(all.take_until(1, 3, with))).len(), 3);
        // A block that ends in between.
        assert_eq!(taken(|with| all.take(1, (0x4000, 1), 9, with)), [(1, 0x4000, 3)]);
        assert_eq!(taken(|with| assert!(!all.take_until(2, 9, with))), []);
        assert!(all.readings.is_empty());
    }
}
