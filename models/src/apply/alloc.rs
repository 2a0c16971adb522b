//! The list of freed blocks of the preloads' own allocator: a block has one owner, and none is lost.

#[path = "../../../crates/hook/src/alloc/freed_blocks.rs"]
mod freed_blocks;

use loom::thread;

use crate::atomics::Unshared;
use crate::explore::{SWITCHES, explore};
use freed_blocks::{Free, FreedBlocks};

/// A list with blocks, which live for one execution.
fn list(blocks: usize) -> &'static FreedBlocks {
    let list: &FreedBlocks = Box::leak(Box::new(FreedBlocks::new()));
    (0..blocks).for_each(|_| put(list, Box::leak(Box::new(Free { next: Unshared::new(std::ptr::null_mut()) }))));
    list
}

/// Uses a block and frees it.
fn put(list: &FreedBlocks, block: *mut Free) {
    // SAFETY: the caller's block; loom reports another owner.
    unsafe {
        Unshared::write(&raw const (*block).next, block);
        list.put(block.cast());
    }
}

/// Allocates a block and uses it.
fn take(list: &FreedBlocks) -> Option<*mut Free> {
    let block = list.take()?.cast::<Free>();
    // SAFETY: this thread's block; loom reports another owner.
    unsafe { Unshared::write(&raw const (*block).next, block) };
    Some(block)
}

/// Takes the blocks that are left.
fn rest(list: &FreedBlocks) -> usize {
    std::iter::from_fn(|| take(list)).count()
}

pub fn run() {
    explore("freed blocks, 2 threads that take them and free them again", Some(SWITCHES), || {
        let list = list(2);
        let other = thread::spawn(move || {
            if let Some(block) = take(list) {
                put(list, block);
            }
        });
        let own = take(list).map_or(0, |_| 1);
        other.join().unwrap();
        assert_eq!(own + rest(list), 2);
    });
    explore("freed blocks, 2 threads that take them while one frees another", Some(SWITCHES), || {
        let list = list(3);
        let own = take(list).unwrap();
        let others = [(); 2].map(|()| thread::spawn(move || take(list).map_or(0, |_| 1)));
        put(list, own);
        let taken: usize = others.map(|other| other.join().unwrap()).into_iter().sum();
        assert_eq!(taken + rest(list), 3);
    });
}
