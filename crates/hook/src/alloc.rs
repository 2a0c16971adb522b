//! The preloads' own allocator, so that their data never lies on the program's heap.
//!
//! A lock-free bump allocator over anonymous mappings: no lock can be left held by a fork or a signal.
//! Block sizes are powers of two, and each size has a list of freed blocks: the preloads allocate most at start-up, but
//! they may start and end a thousand threads of their own. Blocks of [`LARGE`] bytes and more have a mapping each,
//! which is unmapped when they are freed.
//!
//! Where there is no memory, the work that asks for it is abandoned (see [`own_stack`]). A block is therefore only
//! asked for on a stack of the library: elsewhere Rust would end the program.

mod freed_blocks;

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::{own_stack, sys};
use freed_blocks::FreedBlocks;

/// Bytes mapped at a time.
const CHUNK: usize = 512 << 10;
/// Bytes of the reserve: as much as [`ensure`] is asked for, and a header. A program may lock all that it has mapped,
/// the reserve included, and often 8 MiB are allowed.
const RESERVE_BYTES: usize = MOST_ENSURED + sys::PAGE;
/// The most that [`ensure`] is asked for, bytes.
pub(crate) const MOST_ENSURED: usize = 128 << 10;
/// From this size on a block gets its own mapping.
const LARGE: usize = CHUNK / 4;

/// Alignment of every block, and the bytes of the smallest.
const SMALLEST: usize = 16;

/// Freed blocks by the logarithm of their size.
static FREED: [FreedBlocks; LARGE.trailing_zeros() as usize + 1] =
    [const { FreedBlocks::new() }; LARGE.trailing_zeros() as usize + 1];

/// Bytes of the block for `size` bytes, less than [`LARGE`] or that.
fn rounded(size: usize) -> usize {
    size.next_power_of_two().max(SMALLEST)
}

fn list(size: usize) -> Option<&'static FreedBlocks> {
    FREED.get(rounded(size).trailing_zeros() as usize)
}

/// Declared by each cdylib: `#[global_allocator] static PRIVATE: Private = Private;`
pub struct Private;

/// Start of every chunk; the blocks follow.
#[repr(C, align(64))]
struct Chunk {
    /// Address of the first free byte.
    cursor: AtomicUsize,
    /// Address behind the last byte.
    end: usize,
}

impl Chunk {
    /// The header of a chunk of `bytes` at `start`.
    fn new(start: *mut Chunk, bytes: usize) -> Chunk {
        Chunk { cursor: AtomicUsize::new(start as usize + size_of::<Chunk>()), end: start as usize + bytes }
    }
}

static CURRENT: AtomicPtr<Chunk> = AtomicPtr::new(core::ptr::null_mut());

fn own_mapping(layout: &Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= sys::PAGE
}

/// Claims `layout` in `chunk`, or `None` when it does not fit.
///
/// # Safety
/// `chunk` is a live chunk.
unsafe fn claim(chunk: *mut Chunk, layout: &Layout) -> Option<*mut u8> {
    // SAFETY: chunks are never unmapped once published.
    let Chunk { cursor, end: last } = unsafe { &*chunk };
    let mut at = cursor.load(Ordering::Relaxed);
    loop {
        let align = layout.align().max(SMALLEST);
        let start = at.checked_add(align - 1)? & !(align - 1);
        let end = start.checked_add(rounded(layout.size())).filter(|end| end <= last)?;
        // Relaxed: bytes in [start, end) belong to this thread alone; a user that passes them on orders that itself.
        match cursor.compare_exchange_weak(at, end, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(start as *mut u8),
            Err(now) => at = now,
        }
    }
}

/// A chunk for the time when no other can be mapped; null when it is in use.
static RESERVE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Maps the chunk that is used when no other can be mapped: address space, which takes no memory before that.
pub fn reserve() {
    let _errno = crate::errno::Saved::now();
    if RESERVE.load(Ordering::Relaxed).is_null()
        && let Some(fresh) = sys::map_anonymous(RESERVE_BYTES)
        && RESERVE.compare_exchange(core::ptr::null_mut(), fresh, Ordering::Release, Ordering::Relaxed).is_err()
    {
        // SAFETY: no other thread has the address of this mapping.
        unsafe { sys::unmap(fresh, RESERVE_BYTES) };
    }
}

/// Maps a chunk, or takes the reserve, and publishes it unless another thread replaced `old` first.
fn next_chunk(old: *mut Chunk) -> bool {
    let mapped = sys::map_anonymous(CHUNK).map(|fresh| (fresh, CHUNK));
    let found = mapped.or_else(|| {
        let reserve = RESERVE.swap(core::ptr::null_mut(), Ordering::Acquire);
        (!reserve.is_null()).then_some((reserve, RESERVE_BYTES))
    });
    let Some((fresh, bytes)) = found else { return false };
    let chunk = fresh.cast::<Chunk>();
    // SAFETY: the mapping is new and large enough for the header.
    unsafe { chunk.write(Chunk::new(chunk, bytes)) };
    // Release pairs with the Acquire loads of CURRENT: a thread that sees the chunk sees its header.
    if CURRENT.compare_exchange(old, chunk, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // SAFETY: no other thread has the address of this mapping.
        unsafe { sys::unmap(fresh, bytes) };
    }
    true
}

/// Whether the current chunk has room for `bytes` (at most [`MOST_ENSURED`]), after another one was mapped if need be.
pub fn ensure(bytes: usize) -> bool {
    let _errno = crate::errno::Saved::now();
    loop {
        let chunk = CURRENT.load(Ordering::Acquire);
        // SAFETY: null or a live chunk.
        let left = unsafe { chunk.as_ref() }.map_or(0, |c| c.end - c.cursor.load(Ordering::Relaxed));
        if left >= bytes {
            return true;
        }
        if !next_chunk(chunk) {
            return false;
        }
    }
}

/// A block for `layout`; null without memory.
fn obtain(layout: Layout) -> *mut u8 {
    let _errno = crate::errno::Saved::now();
    if own_mapping(&layout) {
        return sys::map_anonymous(layout.size()).map_or(core::ptr::null_mut(), |p| p.cast());
    }
    if layout.align() <= SMALLEST
        && let Some(block) = list(layout.size()).and_then(FreedBlocks::take)
    {
        return block;
    }
    if rounded(layout.size()) + layout.align() > CHUNK - size_of::<Chunk>() {
        return core::ptr::null_mut(); // no preload asks for an alignment near the size of a chunk
    }
    loop {
        let chunk = CURRENT.load(Ordering::Acquire);
        // SAFETY: a non-null CURRENT is a live chunk.
        if let Some(block) = (!chunk.is_null()).then(|| unsafe { claim(chunk, &layout) }).flatten() {
            return block;
        }
        if !next_chunk(chunk) {
            return core::ptr::null_mut();
        }
    }
}

// SAFETY: blocks never overlap (each is claimed by one successful exchange), have the alignment asked for,
// and stay mapped until deallocated.
unsafe impl GlobalAlloc for Private {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        elsewhere::look();
        let found = if exhaustion::reached() { core::ptr::null_mut() } else { obtain(layout) };
        if found.is_null() {
            // Rust ends a process that has no memory. So all work that allocates runs where it can be abandoned.
            own_stack::abandon();
        }
        found
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if own_mapping(&layout) {
            let _errno = crate::errno::Saved::now();
            // SAFETY: the block is a whole mapping made by `alloc`, and its owner frees it.
            unsafe { sys::unmap(block.cast(), layout.size()) };
            return;
        }
        // SAFETY: the caller frees the block; the exchange of `move_end` succeeds only for the last block of the chunk.
        unsafe {
            if !move_end(block, rounded(layout.size()), 0)
                && let Some(list) = list(layout.size())
            {
                list.put(block);
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let _errno = crate::errno::Saved::now();
        // SAFETY: the new layout is valid by the contract of realloc.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if own_mapping(&layout) && own_mapping(&new_layout) {
            elsewhere::look();
            let moved = (!exhaustion::reached()).then(|| {
                // SAFETY: the block is a whole mapping made by `alloc`.
                unsafe { sys::remap(block.cast(), layout.size(), new_size) }
            });
            let moved = moved.flatten();
            if moved.is_none() {
                own_stack::abandon();
            }
            return moved.map_or(core::ptr::null_mut(), |p| p.cast());
        }
        // SAFETY: the block is the caller's; the end moves only if nothing follows it.
        let in_place = !own_mapping(&layout)
            && !own_mapping(&new_layout)
            && (rounded(new_size) == rounded(layout.size())
                || unsafe { move_end(block, rounded(layout.size()), rounded(new_size)) });
        if in_place {
            return block;
        }
        // SAFETY: `alloc`, the copy and `dealloc` follow the contract of realloc: sizes are the blocks' own.
        unsafe {
            let fresh = self.alloc(new_layout);
            if !fresh.is_null() {
                core::ptr::copy_nonoverlapping(block, fresh, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            fresh
        }
    }
}

/// Moves the end of the last block of the current chunk from `old` to `new` bytes; false if it is not last.
///
/// # Safety
/// The caller owns `block`, which has `old` bytes.
unsafe fn move_end(block: *mut u8, old: usize, new: usize) -> bool {
    // SAFETY: null or a live chunk.
    let Some(chunk) = (unsafe { CURRENT.load(Ordering::Acquire).as_ref() }) else { return false };
    let inside = (core::ptr::from_ref(chunk) as usize..chunk.end).contains(&(block as usize));
    if !inside || block as usize + new > chunk.end {
        return false;
    }
    // If the cursor is at the end of this block then the block is the last one, even if others came and went since.
    let end = block as usize + old;
    chunk.cursor.compare_exchange(end, block as usize + new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Finds code that asks for a block where it could not be abandoned. So each test that loads a debug build of a preload
/// is also one of that, whether memory ends in it or not.
pub mod elsewhere {
    #[cfg(debug_assertions)]
    use core::{
        cell::Cell,
        sync::atomic::{AtomicBool, Ordering},
    };

    #[cfg(debug_assertions)]
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);

    #[cfg(debug_assertions)]
    crate::static_tls!(fn depth() -> Cell<u32>, "numamma_hook_fallible_depth");

    /// From now on a debug build ends the process where such code runs. Does nothing in a release build.
    pub fn watch() {
        #[cfg(debug_assertions)]
        IS_WATCHED.store(true, Ordering::Relaxed);
    }

    /// Runs `work`, which goes on without the memory that it asks for, as after `Vec::try_reserve`.
    pub fn fallibly<T>(work: impl FnOnce() -> T) -> T {
        #[cfg(debug_assertions)]
        depth().set(depth().get() + 1);
        let result = work();
        #[cfg(debug_assertions)]
        depth().set(depth().get() - 1);
        result
    }

    /// Not in a process that has confined itself: there the work of `own_stack::run` has no stack of its own.
    #[inline(always)]
    pub(super) fn look() {
        #[cfg(debug_assertions)]
        if IS_WATCHED.load(Ordering::Relaxed)
            && depth().get() == 0
            && !crate::own_stack::is_inside()
            && !crate::sandbox::entered()
        {
            crate::say!("a library asks for memory on a stack of the program");
            // SAFETY: it takes no arguments.
            unsafe { libc::abort() };
        }
    }
}

/// The end of all memory after a number of allocations, which tests of a debug build ask for.
pub mod exhaustion {
    #[cfg(debug_assertions)]
    use core::sync::atomic::{AtomicU64, Ordering};

    /// Variable with the number of allocations that succeed. With `+` behind the number only one fails, the next.
    #[cfg(debug_assertions)]
    const VARIABLE: &str = "NUMAMMA_TEST_ALLOCATIONS";

    #[cfg(debug_assertions)]
    static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);
    #[cfg(debug_assertions)]
    static ONE: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);

    /// Reads the variable. Does nothing in a release build.
    pub fn start() {
        #[cfg(debug_assertions)]
        if let Some(text) = crate::environment::value(VARIABLE).and_then(|v| core::str::from_utf8(v).ok()) {
            ONE.store(text.ends_with('+'), Ordering::Relaxed);
            LEFT.store(text.trim_end_matches('+').parse().unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Whether this allocation is to fail. Always false in a release build.
    #[inline(always)]
    pub(super) fn reached() -> bool {
        #[cfg(debug_assertions)]
        {
            let take = |left: u64| (left != u64::MAX).then(|| left.saturating_sub(1));
            let failed = LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) == Ok(0);
            if failed && ONE.load(Ordering::Relaxed) {
                LEFT.store(u64::MAX, Ordering::Relaxed);
            }
            failed
        }
        #[cfg(not(debug_assertions))]
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// The tests share one chunk, and the one about its last block needs that no other test allocates.
    static CHUNK_IN_USE: Mutex<()> = Mutex::new(());

    #[test]
    fn last_block_grows_in_place_and_is_reused() {
        let _alone = CHUNK_IN_USE.lock().unwrap();
        let layout = Layout::from_size_align(100, 8).unwrap();
        let big = Layout::from_size_align(LARGE, 8).unwrap();
        // SAFETY: every block is used within its layout and freed with it.
        unsafe {
            let a = Private.alloc(layout);
            a.write_bytes(7, 100);
            let b = Private.realloc(a, layout, 1000);
            assert_eq!(a, b);
            let other = Private.alloc(layout);
            let moved = Private.realloc(b, Layout::from_size_align(1000, 8).unwrap(), LARGE);
            assert_ne!(b, moved);
            assert_eq!(*moved.add(99), 7);
            let larger = Private.realloc(moved, big, 4 * LARGE);
            assert_eq!(*larger.add(99), 7);
            Private.dealloc(larger, Layout::from_size_align(4 * LARGE, 8).unwrap());
            Private.dealloc(other, layout);
        }
    }

    #[test]
    fn threads_get_disjoint_blocks() {
        let _alone = CHUNK_IN_USE.lock().unwrap();
        let layout = Layout::from_size_align(48, 16).unwrap();
        let blocks: Vec<usize> = std::thread::scope(|s| {
            // SAFETY: blocks are only compared by address.
            let work = move || (0..5000).map(|_| unsafe { Private.alloc(layout) } as usize).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| s.spawn(work)).collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        let mut sorted = blocks;
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|w| w[1] - w[0] >= 48));
    }

    #[test]
    fn freed_blocks_are_reused() {
        let _alone = CHUNK_IN_USE.lock().unwrap();
        let used = || {
            let chunk = CURRENT.load(Ordering::Acquire);
            // SAFETY: null or a live chunk.
            (chunk as usize, unsafe { chunk.as_ref() }.map_or(0, |c| c.cursor.load(Ordering::Relaxed)))
        };
        let round = || {
            std::thread::scope(|s| {
                for size in [1000_usize, 50_000] {
                    s.spawn(move || {
                        let layout = Layout::from_size_align(size, 8).unwrap();
                        for _ in 0..2000 {
                            // SAFETY: each block is written within its layout, freed once, and not the last one.
                            unsafe {
                                let blocks = [(); 3].map(|()| Private.alloc(layout));
                                blocks.iter().zip(1..).for_each(|(block, mark)| block.write_bytes(mark, size));
                                assert!(
                                    blocks.iter().zip(1..).all(|(b, mark)| *b.add(size - 1) == mark && **b == mark)
                                );
                                blocks.iter().for_each(|block| Private.dealloc(*block, layout));
                            }
                        }
                    });
                }
            });
        };
        round();
        let before = used();
        round();
        round();
        let after = used();
        let grown = if after.0 == before.0 { after.1.saturating_sub(before.1) } else { CHUNK };
        assert!(grown < 600_000, "{grown} bytes more, of 900 MB that were allocated");
    }
}
