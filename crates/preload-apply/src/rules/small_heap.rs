//! Free lists and slabs of small objects, without the memory behind them: see [`crate::objects::small_objects`].
//!
//! These structures are in this folder because each placing of a rule owns homes.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use numamma_plan::policy::PolicyKind;

/// Bytes of a slab, which holds objects of one size.
pub const SLAB: usize = 64 << 10;
/// Number of heaps of a home, each with a lock.
pub const SHARDS: usize = 8;
/// Alignment of every object, as malloc guarantees on x86_64.
pub const ALIGN: usize = 16;
/// Object sizes: multiples of 16 up to 256, then four sizes to each doubling, up to a page.
pub const SIZES: [u16; 32] = [
    16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 320, 384, 448, 512, 640, 768, 896, 1024,
    1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096,
];

const _: () = assert!(SIZES.len() <= 64 && align_of::<Heap>() >= 64, "a class fits below a heap's address");

/// A freed object.
pub struct Free {
    /// The object freed before it.
    pub next: *mut Free,
}

/// Objects of one size: the freed ones, and the unused rest of the current slab.
#[derive(Clone, Copy)]
struct Class {
    free: *mut Free,
    next: usize,
    end: usize,
}

/// Objects of all sizes behind one lock.
#[repr(align(64))]
pub struct Heap {
    busy: AtomicBool,
    classes: UnsafeCell<[Class; SIZES.len()]>,
    /// Freed objects of each size, pushed without the lock.
    pub returned: [AtomicPtr<Free>; SIZES.len()],
}

// SAFETY: `classes` is only touched by the thread that holds `busy`.
unsafe impl Sync for Heap {}

/// Memory for the small objects of one placing of a rule; for `local`, of one node of the placing.
pub struct Home {
    /// Index of the rule.
    pub rule: usize,
    /// Index of the rule's placing.
    pub placing: usize,
    /// Node of a `local` placing.
    pub node: u32,
    /// Address of the next slab in the current extent; a multiple of the size of an extent when none is left.
    pub cursor: AtomicUsize,
    pub shards: [Heap; SHARDS],
}

/// Homes of a rule: one, or one for each node of its list.
pub type Homes = Vec<AtomicPtr<Home>>;

/// Null pointers for the homes that a placing may need; a home is built when it is first used.
pub fn homes(policy: PolicyKind, nodes: usize) -> Homes {
    let count = match policy {
        PolicyKind::Local => nodes,
        PolicyKind::Bind
        | PolicyKind::Preferred
        | PolicyKind::PreferredMany
        | PolicyKind::Interleave
        | PolicyKind::WeightedInterleave => 1,
        _ => 0,
    };
    (0..count).map(|_| AtomicPtr::new(ptr::null_mut())).collect()
}

/// The lock of a heap; released on drop.
pub struct Held<'a>(&'a Heap);

impl<'a> Held<'a> {
    /// Locks `heap` if no other thread holds it.
    pub fn take(heap: &'a Heap) -> Option<Held<'a>> {
        // The load keeps the cache line shared while another thread holds the lock.
        let free = !heap.busy.load(Ordering::Relaxed) && !heap.busy.swap(true, Ordering::Acquire);
        // then_some would make a Held and drop it, which unlocks.
        free.then(|| Held(heap))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

impl Heap {
    /// A heap without objects.
    pub const fn empty() -> Heap {
        Heap {
            busy: AtomicBool::new(false),
            classes: UnsafeCell::new([Class { free: ptr::null_mut(), next: 0, end: 0 }; SIZES.len()]),
            returned: [const { AtomicPtr::new(ptr::null_mut()) }; SIZES.len()],
        }
    }

    /// An object of size class `class`: a freed one, or the next of the current slab. `fresh` provides a new slab.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub unsafe fn object(&self, class: usize, fresh: impl FnOnce() -> Option<usize>) -> Option<usize> {
        // SAFETY: the lock is held, so no other reference exists.
        let Class { free, next, end } = unsafe { (*self.classes.get()).get_mut(class)? };
        if free.is_null() {
            // Acquire pairs with the Release of the pushes; the whole list belongs to this thread from here on.
            *free = self.returned[class].swap(ptr::null_mut(), Ordering::Acquire);
        }
        // SAFETY: null, or a freed object that only this list knows.
        if let Some(object) = unsafe { free.as_ref() } {
            let address = ptr::from_ref(object) as usize;
            *free = object.next;
            return Some(address);
        }
        let size = usize::from(SIZES[class]);
        if *end - *next < size {
            *next = fresh()?;
            *end = *next + SLAB;
        }
        let address = *next;
        *next += size;
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numamma_kernel::sys::PAGE;

    #[test]
    fn sizes_waste_little_and_cover_a_page() {
        assert!(SIZES.windows(2).all(|w| w[0] < w[1] && w[1].is_multiple_of(ALIGN as u16)));
        assert!(SIZES.windows(2).skip(4).all(|w| f64::from(w[1]) <= 1.26 * f64::from(w[0])));
        assert_eq!(usize::from(SIZES[SIZES.len() - 1]), PAGE);
    }
}
