//! Where a heap gets its memory: extents, which grow with the heap, and what is left of them when they are given back.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;

use dlmalloc::Allocator;
use numamma_hook::{errno, sandbox};
use numamma_kernel::sys::{self, PAGE};

use super::chunk::ALIGN;
use crate::rules::extent::{self, Extent, HeapAddress};

/// Bytes of the smallest extent: twice what dlmalloc asks for at a time, because each takes two pages and one of the
/// heap table.
const SMALLEST_EXTENT: usize = 128 << 10;
/// An extent has this part (1/4) of the bytes that the heap has already: few extents, and little address space unused.
const GROWTH_DIVISOR: usize = 4;
/// Bytes up to which an extent has as many as the heap has already, see [`SMALLEST_EXTENT`].
const DOUBLES: usize = 512 << 10;
/// Free bytes that a heap may keep in extents without an object, beside an eighth of the bytes in use: what a program
/// frees and allocates again in turns would otherwise cost system calls and page faults each time.
pub(super) const SLACK: usize = 256 << 10;
pub(super) const SLACK_DIVISOR: usize = 8;
/// A heap lends memory when it has this part (1/4) more than its objects take: as much as all heaps may take beyond
/// what the objects would take in glibc.
const LENDS_DIVISOR: usize = 4;
/// Bytes at the end of an extent that dlmalloc uses itself. It never gives an extent back whose last object left 16
/// bytes before these, too few for another; so objects of one size must not end there.
const FOOT: usize = 80;

/// The rule and placing that memory belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// Index of the rule.
    pub rule: usize,
    /// Index of the rule's placing.
    pub placing: usize,
    /// Node of a `local` placing.
    pub node: u32,
    /// It has objects of other rules, too, see [`share_memory`](crate::rules::state::share_memory).
    pub is_shared: bool,
}

/// Maps and places an extent of so many bytes for the heap, at a multiple of `SLOT`, and writes its header; returns the
/// usable memory behind that. With true it is rent: the heap will keep such memory later.
pub type Map = fn(&Owner, HeapAddress, usize, bool) -> Option<(usize, usize)>;

/// Where a heap gets its extents.
#[derive(Clone, Copy)]
pub struct Extents {
    pub map: Map,
    /// Unmaps the extent with this usable memory, which no object is in.
    pub unmap: fn(usize),
}

/// dlmalloc's source of memory.
pub(super) struct Source {
    pub(super) owner: Owner,
    pub(super) extents: Extents,
    /// The heap that this source is part of; none until it is used.
    pub(super) heap: Option<HeapAddress>,
    /// Bytes of all extents.
    pub(super) mapped: Cell<usize>,
    /// Bytes of all objects.
    pub(super) used: usize,
    /// Bytes of the object that is being allocated.
    pub(super) asked: usize,
    /// The heap may map memory now; and it would have mapped some when it might not.
    pub(super) may_map: bool,
    pub(super) is_refused: Cell<bool>,
    /// Bytes that the heap keeps when it is empty, see [`crate::rules::coming_again`].
    pub(super) again: usize,
    /// The heap searches for memory to give back. dlmalloc alone would do so at every second call.
    pub(super) trimming: bool,
    /// Extents without an object may be unmapped, which dlmalloc tries on its own, too.
    pub(super) releasing: bool,
    /// Bytes that were unmapped, less those mapped since; and the bytes of these that were mapped since.
    pub(super) unmapped: Cell<usize>,
    pub(super) mapped_again: Cell<usize>,
    /// Bytes of these, and of pages that were needed again, since the heap was empty; and the bytes that it may still
    /// map so until it keeps them: they are not charged, see [`crate::rules::churn`].
    pub(super) anew: Cell<usize>,
    pub(super) rent: Cell<usize>,
    /// Free bytes that the heap may keep in extents without an object: [`SLACK`], or none while it gives all back.
    pub(super) slack: usize,
    pub(super) list: extent::Extents,
}

// SAFETY: memory that `map` returned belongs to the heap until `unmap`.
unsafe impl Allocator for Source {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let mapped = self.mapped.get();
        // A small heap is worth no memory of others.
        if !self.may_map && mapped >= DOUBLES {
            self.is_refused.set(true);
            return (ptr::null_mut(), 0, 0);
        }
        let wanted = (mapped / GROWTH_DIVISOR)
            .max(mapped.min(DOUBLES))
            .clamp(SMALLEST_EXTENT, extent::LARGEST)
            .next_power_of_two();
        let _errno = errno::Saved::now();
        let is_rent = self.rent.get() > 0 && self.unmapped.get() > 0;
        let map = |heap| (self.extents.map)(&self.owner, heap, wanted.max(size), is_rent);
        let Some((start, len)) = self.heap.and_then(map) else { return (ptr::null_mut(), 0, 0) };
        let rest = len.saturating_sub(FOOT) % (self.asked + size_of::<usize>()).next_multiple_of(ALIGN);
        let len = if rest == ALIGN { len - ALIGN } else { len };
        self.mapped.set(self.mapped.get() + len);
        let again = len.min(self.unmapped.get());
        self.unmapped.set(self.unmapped.get() - again);
        self.mapped_again.set(self.mapped_again.get() + again);
        self.anew.set(self.anew.get() + again);
        self.rent.set(self.rent.get().saturating_sub(again));
        // SAFETY: a fresh extent of this heap.
        let extent = unsafe { Extent::of(start) };
        extent.begin(start + len);
        self.list.add(extent);
        (start as *mut u8, len, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        ptr::null_mut()
    }

    /// The last extent is never given back; the end of it that no object has used since loses its pages.
    fn free_part(&self, start: *mut u8, old: usize, new: usize) -> bool {
        let first = (start as usize + new).next_multiple_of(PAGE);
        let len = (start as usize + old).saturating_sub(first);
        // SAFETY: dlmalloc does not use the range again.
        let done = self.trimming && len > 0 && unsafe { sys::advise(first as *mut c_void, len, libc::MADV_DONTNEED) };
        if done {
            self.mapped.set(self.mapped.get().saturating_sub(old - new));
            self.unmapped.set(self.unmapped.get() + old - new);
        }
        done
    }

    fn free(&self, start: *mut u8, len: usize) -> bool {
        let rest = self.mapped.get().saturating_sub(len);
        if !self.releasing || rest < self.enough() || sandbox::entered() {
            return false;
        }
        self.mapped.set(rest);
        self.unmapped.set(self.unmapped.get() + len);
        // SAFETY: an extent of this heap.
        self.list.remove(unsafe { Extent::of(start as usize) });
        (self.extents.unmap)(start as usize);
        true
    }

    /// Whole extents are given back.
    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

impl Source {
    pub(super) const fn new(owner: Owner, extents: Extents) -> Source {
        Source {
            owner,
            extents,
            heap: None,
            mapped: Cell::new(0),
            used: 0,
            asked: 0,
            may_map: true,
            is_refused: Cell::new(false),
            again: 0,
            trimming: false,
            releasing: false,
            unmapped: Cell::new(0),
            mapped_again: Cell::new(0),
            anew: Cell::new(0),
            rent: Cell::new(0),
            slack: SLACK,
            list: extent::Extents::new(),
        }
    }

    /// Whether the heap has so much more than its objects take that threads with other heaps are to use it.
    pub(super) fn lends(&self) -> bool {
        self.mapped.get() > self.used + self.used / LENDS_DIVISOR + SLACK
    }

    /// Bytes that the heap should have for its objects.
    pub(super) fn enough(&self) -> usize {
        self.used + self.used / SLACK_DIVISOR + self.slack + self.again
    }
}
