//! All blocks of this process, and those that no thread has.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use numamma_hook::sys;
use numamma_kernel::mappings::map_wiped_on_fork;

use super::Block;

/// Blocks of threads that have ended, linked by `next`; taken as a whole, so that no other thread can have put a block
/// back in between.
static FREE: AtomicPtr<Block> = AtomicPtr::new(null_mut());
/// The block that was made last.
static NEWEST: AtomicPtr<Block> = AtomicPtr::new(null_mut());

/// A block that a thread left, or a new one.
pub(super) fn free_block() -> Option<*mut Block> {
    let first = FREE.swap(null_mut(), Ordering::Acquire);
    if first.is_null() {
        return new_block();
    }
    // SAFETY: the list is this thread's since the exchange, and blocks are never unmapped.
    let rest = unsafe { (*first).next.replace(null_mut()) };
    if !rest.is_null() {
        give_back(rest);
    }
    Some(first)
}

fn new_block() -> Option<*mut Block> {
    let new: *mut Block = map_wiped_on_fork(size_of::<Block>().next_multiple_of(sys::PAGE))?.cast();
    // SAFETY: zeroed memory that this thread alone knows.
    let block = unsafe { &*new };
    let mut newest = NEWEST.load(Ordering::Relaxed);
    loop {
        block.older.store(newest, Ordering::Relaxed);
        match NEWEST.compare_exchange(newest, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return Some(new),
            Err(other) => newest = other,
        }
    }
}

/// Lets no instruction of any thread keep its counter of a page.
#[cold]
pub(super) fn forget_page(page: u64) {
    let mut block = NEWEST.load(Ordering::Acquire);
    // SAFETY: blocks are never unmapped, and of another thread's only atomic fields are used. In a forked child those of
    // the parent are zero, and end the list.
    while let Some(known) = unsafe { block.as_ref() } {
        for line in &known.lines {
            if line.page.load(Ordering::Relaxed) == page {
                line.ip.store(0, Ordering::Relaxed);
            }
        }
        block = known.older.load(Ordering::Relaxed);
    }
}

/// Puts a list of blocks back.
pub(super) fn give_back(list: *mut Block) {
    let mut last = list;
    // SAFETY: the list is this thread's, and blocks are never unmapped.
    unsafe {
        while !(*last).next.get().is_null() {
            last = (*last).next.get();
        }
        let mut first = FREE.load(Ordering::Relaxed);
        loop {
            (*last).next.set(first);
            match FREE.compare_exchange(first, list, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }
}
