//! First touches: the first fault of every page; consecutive pages of one thread are joined.
//!
//! A huge page is present after one fault. Its other pages may fault later for other reasons (the hint faults of
//! numa_balancing), which must not count as first touches. The kernel is asked about blocks with few faults: if all
//! their pages are present, all of them count as touched by the thread that touched the block first.
//!
//! A page of shared memory is touched once, whichever process does it: another one that maps it faults, too, and finds
//! the page there.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profile::PAGE;
use crate::profile::records::{ObjectId, ThreadId, Touch};
use crate::profile::space::View;

/// Whose pages are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    Process(u32),
    /// Memory that several processes may map.
    Shared(u32),
}

/// An address of a process, and where that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    owner: Owner,
    /// The address among those of the owner.
    addr: u64,
    pid: u32,
    /// From an address of the process to one of the owner, added with wrapping.
    shift: u64,
}

impl At {
    /// `view`: the shared memory that the process has there.
    pub fn of(pid: u32, addr: u64, view: Option<View>) -> At {
        match view {
            Some(view) => At { owner: Owner::Shared(view.memory), addr: view.place(addr), pid, shift: view.shift },
            None => At { owner: Owner::Process(pid), addr, pid, shift: 0 },
        }
    }

    /// The address among those of the owner.
    pub fn addr(&self) -> u64 {
        self.addr
    }
}

/// Pages remembered together: one bit each.
const BLOCK_PAGES: u64 = 512;

type Bits = [u64; (BLOCK_PAGES / 64) as usize];

/// The pages of a block.
#[derive(Debug, Clone, Copy, Default)]
struct Block {
    /// Those of which the first touch was seen.
    touched: Bits,
    /// Those that faulted since they were mapped. The kernel reports a mapping that was merged with its neighbours as
    /// one that is new, so that pages may be forgotten which are as present as before.
    faulted: Bits,
}

fn set(bits: &mut Bits, page: u64) -> bool {
    let (word, bit) = ((page % BLOCK_PAGES / 64) as usize, 1u64 << (page % 64));
    let first = bits[word] & bit == 0;
    bits[word] |= bit;
    first
}

/// Clears the bits of the pages from `first` to before `end` of a block. By words: a heap that grows by 33 pages at a
/// time is reported as a whole each time.
fn clear(bits: &mut Bits, first: u64, end: u64) {
    for (low, word) in (0..BLOCK_PAGES).step_by(64).zip(bits) {
        let (from, to) = (first.clamp(low, low + 64) - low, end.clamp(low, low + 64) - low);
        if from < to {
            *word &= !(u64::MAX >> (64 - (to - from)) << from);
        }
    }
}

/// A block of base pages with at most this many faults may be a huge page: one fault made it, a few more are hint
/// faults. Touching a block page by page takes 512.
const FEW_FAULTS: u32 = 64;

/// A block that may be a huge page, waiting for the kernel's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The process that touched it.
    pub pid: u32,
    /// First address of the block, among those of its owner.
    pub addr: u64,
    owner: Owner,
    shift: u64,
    /// The object that was touched first, by whom, and when.
    pub object: ObjectId,
    /// As above.
    pub thread: ThreadId,
    /// As above.
    pub time_ns: u64,
}

/// Which pages were touched, and the runs not yet written.
#[derive(Debug, Default)]
pub struct Touches {
    touched: FxHashMap<(Owner, u64), Block>,
    /// Where in `runs` a thread's last run is.
    last: FxHashMap<ThreadId, usize>,
    runs: Vec<Touch>,
    /// Touches of the time in which not all page faults were recorded.
    sampled: Vec<Touch>,
    /// Blocks first touched in this round; none are kept where there are no huge pages.
    this_round: Vec<Candidate>,
    /// Blocks first touched in the round before.
    last_round: Vec<Candidate>,
    huge_pages: bool,
}

impl Touches {
    /// `huge_pages`: the kernel may use transparent huge pages.
    pub fn new(huge_pages: bool) -> Touches {
        Touches { huge_pages, ..Touches::default() }
    }

    /// Marks the page at `at` as touched; true when it was not marked before.
    pub fn mark_touched(&mut self, at: At) -> bool {
        let page = at.addr / PAGE;
        let block = self.touched.entry((at.owner, page / BLOCK_PAGES)).or_default();
        set(&mut block.faulted, page);
        set(&mut block.touched, page)
    }

    /// Marks the pages from `first` on that `present` names, in order, as touched.
    pub fn mark_present(&mut self, first: At, present: impl Iterator<Item = bool>) {
        for page in (0..).zip(present).filter(|(_, present)| *present).map(|(page, _)| page) {
            self.mark_touched(At { addr: first.addr.wrapping_add(page * PAGE), ..first });
        }
    }

    /// Marks the pages of a mapping that the kernel reports as untouched: of an old one, its parts may be new.
    pub fn forget(&mut self, pid: u32, addr: u64, len: u64) {
        self.forget_in(pid, addr, len, |block, first, end| clear(&mut block.touched, first, end));
    }

    /// Marks the pages of memory that was just mapped, or unmapped, as untouched.
    pub fn forget_unmapped(&mut self, pid: u32, addr: u64, len: u64) {
        self.forget_in(pid, addr, len, |block, first, end| {
            clear(&mut block.touched, first, end);
            clear(&mut block.faulted, first, end);
        });
    }

    /// Drops the pages of shared memory that is gone.
    pub fn forget_shared(&mut self, gone: &[u32]) {
        if !gone.is_empty() {
            let gone: FxHashSet<u32> = gone.iter().copied().collect();
            self.touched.retain(|(owner, _), _| !matches!(owner, Owner::Shared(memory) if gone.contains(memory)));
        }
    }

    fn forget_in(&mut self, pid: u32, addr: u64, len: u64, forget: impl Fn(&mut Block, u64, u64)) {
        let owner = Owner::Process(pid);
        let (first, last) = (addr / PAGE, addr.saturating_add(len).div_ceil(PAGE));
        let (low, high) = (first / BLOCK_PAGES, last.div_ceil(BLOCK_PAGES));
        // The pages to forget of a block, counted from its first.
        let pages = |block: u64| {
            let at = block * BLOCK_PAGES;
            (first.max(at) - at, last.min(at + BLOCK_PAGES) - at)
        };
        if high - low > self.touched.len() as u64 {
            let inside = |of: Owner, block: u64| of == owner && (low..high).contains(&block);
            for ((_, block), bits) in self.touched.iter_mut().filter(|((of, block), _)| inside(*of, *block)) {
                let (first, end) = pages(*block);
                forget(bits, first, end);
            }
            self.touched.retain(|_, block| block.faulted != Bits::default());
            return;
        }
        for block in low..high {
            if let Some(bits) = self.touched.get_mut(&(owner, block)) {
                let (first, end) = pages(block);
                forget(bits, first, end);
            }
        }
    }

    /// Drops the pages of a process that ended or executed another program.
    pub fn forget_process(&mut self, pid: u32) {
        self.touched.retain(|(owner, _), _| *owner != Owner::Process(pid));
    }

    /// Adds a first touch of the page at `addr`, one of those that are sampled. It makes no [`Candidate`]: a block of
    /// which few faults were seen may have had many.
    pub fn add_sampled(&mut self, object: ObjectId, addr: u64, thread: ThreadId, time_ns: u64) {
        self.sampled.push(Touch { object, addr: addr / PAGE * PAGE, pages: 1, thread, time_ns });
    }

    /// Forgets the blocks that wait for the kernel's answer: not all of their faults will be seen.
    pub fn forget_candidates(&mut self) {
        self.this_round.clear();
        self.last_round.clear();
    }

    /// Adds a first touch of the page at `at`.
    pub fn add(&mut self, at: At, object: ObjectId, thread: ThreadId, time_ns: u64) {
        let At { owner, pid, shift, .. } = at;
        let addr = at.addr / PAGE * PAGE;
        let block = addr / PAGE / BLOCK_PAGES;
        if self.huge_pages && self.faults_in(owner, block) == 1 {
            let addr = block * BLOCK_PAGES * PAGE;
            self.this_round.push(Candidate { pid, addr, owner, shift, object, thread, time_ns });
        }
        if let Some(run) = self.last.get(&thread).and_then(|&i| self.runs.get_mut(i))
            && run.object == object
            && run.addr + run.pages * PAGE == addr
        {
            run.pages += 1;
            return;
        }
        self.last.insert(thread, self.runs.len());
        self.runs.push(Touch { object, addr, pages: 1, thread, time_ns });
    }

    /// The object of the thread's latest run, if that has pages of the block at `addr`.
    pub fn last_in(&self, thread: ThreadId, addr: u64, size: u64) -> Option<ObjectId> {
        let run = self.last.get(&thread).and_then(|&i| self.runs.get(i))?;
        let end = run.addr + run.pages * PAGE;
        (addr < end && addr.saturating_add(size) > run.addr).then_some(run.object)
    }

    /// Makes those pages of the thread's latest run that belong to the block at `addr` first touches of `object`.
    pub fn reassign(&mut self, thread: ThreadId, addr: u64, size: u64, object: ObjectId) {
        let Some(&index) = self.last.get(&thread) else { return };
        let Some(&run) = self.runs.get(index) else { return };
        let end = run.addr + run.pages * PAGE;
        let low = (addr / PAGE * PAGE).clamp(run.addr, end);
        let high = addr.saturating_add(size).div_ceil(PAGE).saturating_mul(PAGE).clamp(low, end);
        for c in self.this_round.iter_mut().chain(&mut self.last_round) {
            // The address of the fault inside a huge page is not kept; the run's first page is used instead.
            let block = c.addr..c.addr + BLOCK_PAGES * PAGE;
            if c.thread == thread && c.object == run.object && block.contains(&low) {
                c.object = object;
            }
        }
        let part = |from: u64, to: u64, object| Touch { addr: from, pages: (to - from) / PAGE, object, ..run };
        let parts = [part(run.addr, low, run.object), part(high, end, run.object), part(low, high, object)];
        let mut parts = parts.into_iter().filter(|p| p.pages > 0);
        if let Some(first) = parts.next() {
            self.runs[index] = first;
        }
        for more in parts {
            self.last.insert(thread, self.runs.len());
            self.runs.push(more);
        }
    }

    fn faults_in(&self, owner: Owner, block: u64) -> u32 {
        self.touched.get(&(owner, block)).map_or(0, |block| block.faulted.iter().map(|word| word.count_ones()).sum())
    }

    /// Blocks first touched in an earlier round and since then not touched page by page: the kernel must be asked about
    /// them.
    pub fn take_candidates(&mut self) -> Vec<Candidate> {
        let waited = std::mem::replace(&mut self.last_round, std::mem::take(&mut self.this_round));
        waited.into_iter().filter(|c| self.faults_in(c.owner, c.addr / PAGE / BLOCK_PAGES) <= FEW_FAULTS).collect()
    }

    /// Addresses of the pages of a candidate in its process.
    pub fn pages(&self, candidate: &Candidate) -> Vec<u64> {
        let first = candidate.addr.wrapping_sub(candidate.shift);
        (0..BLOCK_PAGES).map(|page| first.wrapping_add(page * PAGE)).collect()
    }

    /// Marks all pages of the candidate, a huge page, as first touched by the thread that touched it first. `object_of`
    /// tells the object at an address of a page; where it says none, the page is left out.
    pub fn touch_whole_block(&mut self, candidate: &Candidate, mut object_of: impl FnMut(u64) -> Option<ObjectId>) {
        let block = candidate.addr / PAGE / BLOCK_PAGES;
        let all = Block { touched: [u64::MAX; 8], faulted: [u64::MAX; 8] };
        let Some(Block { faulted, .. }) = self.touched.insert((candidate.owner, block), all) else { return };
        let Candidate { thread, time_ns, .. } = *candidate;
        for (page, addr) in (0..BLOCK_PAGES).map(|page| (page, candidate.addr + page * PAGE)) {
            if faulted[(page / 64) as usize] & (1 << (page % 64)) != 0 {
                continue;
            }
            let Some(object) = object_of(addr) else { continue };
            match self.runs.last_mut() {
                Some(run) if run.object == object && run.thread == thread && run.addr + run.pages * PAGE == addr => {
                    run.pages += 1;
                }
                _ => self.runs.push(Touch { object, addr, pages: 1, thread, time_ns }),
            }
        }
    }

    /// Number of runs waiting.
    pub fn len(&self) -> usize {
        self.runs.len() + self.sampled.len()
    }

    /// The sampled touches since the last call.
    pub fn take_sampled(&mut self) -> Vec<Touch> {
        std::mem::take(&mut self.sampled)
    }

    /// The runs since the last call.
    pub fn take(&mut self) -> Vec<Touch> {
        self.last.clear();
        std::mem::take(&mut self.runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(addr: u64) -> At {
        At::of(1, addr, None)
    }

    #[test]
    fn a_huge_page_is_touched_by_its_first_toucher() {
        let mut t = Touches::new(true);
        let block = BLOCK_PAGES * 4096;
        assert!(t.mark_touched(own(block + 5 * 4096)));
        t.add(own(block + 5 * 4096), 7, 3, 10);
        assert!(t.take_candidates().is_empty(), "it may still be touched page by page");
        let found = t.take_candidates();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].addr, block);
        t.touch_whole_block(&found[0], |_| Some(7));
        assert!(!t.mark_touched(own(block + 100 * 4096)), "a later hint fault is no first touch");
        let runs = t.take();
        assert_eq!(runs.iter().map(|r| r.pages).sum::<u64>(), BLOCK_PAGES);
        assert!(runs.iter().all(|r| r.thread == 3 && r.object == 7));
    }

    #[test]
    fn pages_touched_by_the_allocator_go_to_the_block() {
        let runs = |addr: u64, size: u64| {
            let mut t = Touches::new(false);
            (10..14u64).for_each(|page| t.add(own(page * 4096), 5, 2, 0));
            if t.last_in(2, addr, size).is_some() {
                t.reassign(2, addr, size, 9);
            }
            t.add(own(14 * 4096), 9, 2, 1);
            t.take().iter().map(|r| (r.object, r.addr / 4096, r.pages)).collect::<Vec<_>>()
        };
        assert_eq!(runs(13 * 4096 + 16, 100_000), [(5, 10, 3), (9, 13, 2)], "the header's page, and it goes on");
        assert_eq!(runs(9 * 4096, 100_000), [(9, 10, 5)], "all of it");
        assert_eq!(runs(11 * 4096 + 16, 4000), [(5, 10, 1), (5, 12, 2), (9, 11, 1), (9, 14, 1)]);
        assert_eq!(runs(20 * 4096, 4096), [(5, 10, 4), (9, 14, 1)], "another block");
        assert_eq!(runs(0, 4096), [(5, 10, 4), (9, 14, 1)]);
    }

    #[test]
    fn runs_grow_per_thread_and_pages_count_once() {
        let mut t = Touches::new(true);
        for page in 0..4u64 {
            for thread in 0..2u32 {
                let addr = (u64::from(thread) * 100 + page) * 4096 + 8;
                assert!(t.mark_touched(own(addr)));
                assert!(!t.mark_touched(own(addr + 100)));
                t.add(own(addr), 5, thread, page);
            }
        }
        let runs = t.take();
        assert_eq!(runs.len(), 2);
        assert!(runs.iter().all(|r| r.pages == 4));
        t.forget_unmapped(1, 4096, 4096);
        assert!(t.mark_touched(own(4096)) && !t.mark_touched(own(0)) && !t.mark_touched(own(8192)));
        t.forget_unmapped(1, 0, u64::MAX);
        assert!(t.mark_touched(own(0)));
    }

    #[test]
    fn any_part_of_a_block_is_forgotten() {
        for (first, end) in (0..=BLOCK_PAGES).flat_map(|first| (first..=BLOCK_PAGES).map(move |end| (first, end))) {
            let mut bits = [u64::MAX; 8];
            clear(&mut bits, first, end);
            let is_set = |page: u64| bits[(page / 64) as usize] >> (page % 64) & 1 == 1;
            let left: u64 = bits.iter().map(|word| u64::from(word.count_ones())).sum();
            assert_eq!(left, BLOCK_PAGES - (end - first), "{first} {end}");
            let edges = [first.checked_sub(1), Some(first), end.checked_sub(1), Some(end)];
            for page in edges.into_iter().flatten().filter(|page| *page < BLOCK_PAGES) {
                assert_eq!(is_set(page), !(first..end).contains(&page), "{first} {end} {page}");
            }
        }
    }

    #[test]
    fn pages_of_a_mapping_that_was_merged_are_no_huge_page() {
        let mut t = Touches::new(true);
        let touch = |t: &mut Touches, pages: std::ops::Range<u64>, object| {
            for addr in pages.map(|page| page * PAGE) {
                t.mark_touched(own(addr)).then(|| t.add(own(addr), object, 0, 0));
            }
        };
        // A mapping of 200 pages, and one of 40 below it, with which it is reported again.
        touch(&mut t, 550..750, 1);
        t.forget(1, 510 * PAGE, 240 * PAGE);
        touch(&mut t, 512..550, 2);
        t.take_candidates();
        assert!(t.take_candidates().is_empty());
        // As one that is new.
        t.forget_unmapped(1, 0, 2000 * PAGE);
        touch(&mut t, 512..550, 2);
        t.take_candidates();
        assert_eq!(t.take_candidates().len(), 1);
    }
}
