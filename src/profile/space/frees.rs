//! Which thread frees what which thread has allocated.
//!
//! The allocators of threads keep arenas: a block that another thread frees goes back to the arena that it is of, under
//! its lock, and so to the memory of the node where that thread has touched it.

use super::Space;
use super::heap::Block;
use super::processes::process_in;
use crate::profile::records::ThreadId;

impl Space {
    /// The block at `addr`, which `thread` is going to free, counts for its call site. `is_of`: whether a thread is of
    /// this process: what a child inherited was allocated by a thread of its parent, which is no other thread in it.
    pub fn count_free(&mut self, pid: u32, addr: u64, thread: ThreadId, is_of: impl Fn(ThreadId) -> bool) {
        let Some(slot) = self.find(pid) else { return };
        let heap = &mut process_in(&mut self.slots, slot).heap;
        let Some(found) = heap.at_or_before(addr).filter(|found| found.low == addr) else { return };
        let (site, is_small, by) = match found.value {
            Block::Small { site, thread: Some(by), .. } => (site, true, by),
            Block::Small { thread: None, .. } => return,
            Block::Large(index) => {
                let block = heap.large(index);
                (block.site, false, block.thread)
            }
        };
        self.sites.freed(site, is_small, by != thread && is_of(by));
    }
}

#[cfg(test)]
mod tests {
    use numamma_channel::Origin;

    use crate::profile::records::{FreeCount, Record, SiteFrees};
    use crate::profile::space::Space;

    const PID: u32 = 7;

    fn space(blocks: &[(u64, u64, u32)]) -> Space {
        let mut space = Space::of(vec![PID], false);
        for &(addr, size, thread) in blocks {
            space.alloc(1, PID, thread, addr, size, &[0x40_0000], Origin::Heap);
        }
        space
    }

    fn frees(space: &mut Space) -> Vec<SiteFrees> {
        let list = |record| if let Record::SiteFrees(list) = record { Some(list) } else { None };
        space.take_records().into_iter().filter_map(list).flatten().collect()
    }

    fn count(all: u64, by_others: u64) -> FreeCount {
        FreeCount { all, by_others }
    }

    #[test]
    fn frees_count_by_thread_and_size() {
        let mut s = space(&[(0x1000, 16, 1), (0x2000, 16, 1), (0x3000, 16, 2), (0x10_0000, 8192, 1)]);
        let all = |_| true;
        s.count_free(PID, 0x1000, 1, all);
        s.count_free(PID, 0x2000, 2, all);
        s.count_free(PID, 0x3000, 1, all);
        s.count_free(PID, 0x10_0000, 3, all);
        s.count_free(PID, 0x1008, 3, all);
        s.count_free(PID, 0x9000, 3, all);
        assert_eq!(frees(&mut s), [SiteFrees { site: 0, reported: 4, small: count(3, 2), large: count(1, 1) }]);
        assert_eq!(frees(&mut s), [], "nothing is new");
    }

    #[test]
    fn a_child_that_frees_what_it_inherited_is_no_other_thread() {
        let mut s = space(&[(0x1000, 16, 1)]);
        s.count_free(PID, 0x1000, 2, |thread| thread > 1);
        assert_eq!(frees(&mut s), [SiteFrees { site: 0, reported: 1, small: count(1, 0), large: count(0, 0) }]);
    }
}
