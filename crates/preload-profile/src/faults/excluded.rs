//! Memory whose pages stay where they are: stacks, and what the loader and libc had before the program began, which
//! holds thread-local storage and what a system call of any thread may need.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, AtomicUsize};

use numamma_channel::layout::SLOTS;
use numamma_kernel::maps::{self, Mapping};

/// Anonymous mappings of a process before its program begins: two or three for each library.
const MOST: usize = 1024;

struct Range {
    start: AtomicU64,
    end: AtomicU64,
}

impl Range {
    const fn none() -> Range {
        Range { start: AtomicU64::new(0), end: AtomicU64::new(0) }
    }

    /// An end of 0 means that there is none, so it is written last.
    fn set(&self, start: u64, end: u64) {
        self.end.store(0, Relaxed);
        self.start.store(start, Release);
        self.end.store(end, Release);
    }

    fn get(&self) -> (usize, usize) {
        let end = self.end.load(Acquire);
        (self.start.load(Relaxed) as usize, end as usize)
    }
}

/// Stack of the thread of each slot of the channel.
static STACKS: [Range; SLOTS] = [const { Range::none() }; SLOTS];
static LOADER: [Range; MOST] = [const { Range::none() }; MOST];
static LOADER_LEN: AtomicUsize = AtomicUsize::new(0);

/// The thread of a slot has this stack.
pub fn set_stack(slot: usize, low: usize, high: usize) {
    if let Some(range) = STACKS.get(slot) {
        range.set(low as u64, high as u64);
    }
}

/// Whether the pages of a mapping can be moved: private memory without a file that is not a stack.
pub fn can_move(mapping: &Mapping<'_>) -> bool {
    let wanted = libc::PROT_READ | libc::PROT_WRITE;
    let named = mapping.path.is_empty() || mapping.path == "[heap]" || mapping.path.starts_with("[anon:");
    mapping.prot == wanted && !mapping.shared && mapping.inode == 0 && named
}

/// Remembers what is mapped now, but for the heap and the program's own data. Called once, before the program begins.
pub fn remember_loader() {
    // SAFETY: no pointers are involved; the kernel said where the program begins.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    let (mut len, mut program, mut behind) = (0, 0, 0);
    maps::for_each_own(|mapping| {
        // Mappings of one file follow each other, and data without a file follows them.
        if mapping.inode != 0 {
            if mapping.contains(entry) {
                program = mapping.inode;
            }
            behind = if mapping.inode == program { mapping.end } else { 0 };
            return;
        }
        let is_programs = mapping.start == behind && behind != 0;
        if !can_move(&mapping) || mapping.path == "[heap]" || is_programs {
            return;
        }
        if let Some(range) = LOADER.get(len) {
            range.set(mapping.start as u64, mapping.end as u64);
            len += 1;
        }
    });
    LOADER_LEN.store(len, Release);
}

/// Calls `visit` with the parts of `start..end` that are not excluded. `threads`: the slots of living threads.
pub fn parts(
    start: usize,
    end: usize,
    own: (usize, usize),
    threads: impl Iterator<Item = usize> + Clone,
    mut visit: impl FnMut(usize, usize),
) {
    let loader = LOADER.iter().take(LOADER_LEN.load(Acquire));
    let stacks = threads.filter_map(|slot| STACKS.get(slot));
    let all = || loader.clone().chain(stacks.clone()).map(Range::get).chain(core::iter::once(own));
    let mut at = start;
    while at < end {
        let next = all().filter(|&(low, high)| low < end && high > at && low < high).min_by_key(|&(low, _)| low);
        let Some((low, high)) = next else { return visit(at, end) };
        if low > at {
            visit(at, low);
        }
        at = high;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluded_parts_are_cut_out() {
        set_stack(0, 20, 30);
        set_stack(1, 25, 40);
        set_stack(2, 90, 120);
        let mut seen = Vec::new();
        parts(10, 100, (50, 60), 0..3, |start, end| seen.push((start, end)));
        assert_eq!(seen, [(10, 20), (40, 50), (60, 90)]);
    }
}
