//! What the lock of a heap protects: the objects, and the decision what memory is given back.

use core::sync::atomic::{AtomicUsize, Ordering};

use dlmalloc::Dlmalloc;
use numamma_hook::{errno, own_stack, sandbox};
use numamma_kernel::clock;
use numamma_kernel::sys::PAGE;

use super::Heap;
use super::chunk::{ALIGN, is_object, usable};
use super::emptied::{Emptied, KEPT_EMPTY};
use super::handed::Handed;
use super::source::{Extents, Owner, SLACK, SLACK_DIVISOR, Source};
use super::turnover::{HAS_OBJECTS, Turnover};
use crate::rules::coming_again::{self, Class, Why};
use crate::rules::extent::{Extent, HeapAddress};
use crate::rules::heap_account::{self, Part};
use crate::rules::patience::Patience;

/// An empty heap is given up when this many times as much as it keeps was allocated and freed elsewhere.
const UNUSED: usize = 8;
/// However patient a heap is, it gives back what it keeps when this part (1/4) of that was mapped elsewhere while it
/// allocated nothing: without the library that memory would have been used.
const CROWDED_DIVISOR: usize = 4;
/// Pages that an empty heap has touched beside those of its objects: the header and both ends of its extent.
const TOUCHED: usize = 3 * PAGE;
/// Bytes that are freed between two searches for memory to give back, at least; also this part (1/512) of the bytes
/// that the heap has, because a search looks at each extent.
const TRIM_AFTER: usize = 16 << 10;
const TRIM_DIVISOR: usize = 512;
/// A heap with this part (1/16) of the bytes that it had is nearly empty, which counts as empty: of a list that is
/// freed something often stays.
const NEARLY_EMPTY: usize = 16;

/// Estimated resident bytes of the heaps without an object.
static EMPTY_BYTES: AtomicUsize = AtomicUsize::new(0);

/// What the lock of a heap protects.
pub(super) struct Inner {
    pub(super) core: Dlmalloc<Source>,
    /// Live objects.
    pub(super) objects: usize,
    /// Heaps of the home that are in use: they have about equal parts of what its objects cost.
    pub(super) heaps: usize,
    pub(super) turnover: Turnover,
    pub(super) handed: Handed,
    /// Most bytes in use since the heap was empty, or nearly so.
    peak: usize,
    /// The bytes that were left then.
    rest: usize,
    /// Bytes freed since the last search for memory to give back, and the objects that were left then.
    freed: usize,
    left: usize,
    /// Most objects since then.
    most: usize,
    /// When heaps that are not used were last looked for and objects had been allocated since the time before: how many
    /// so far, when that was, ns, what all heaps had turned over, and what had been mapped for objects in no heap.
    looked: (u32, u64, usize, usize),
    emptied: Emptied,
    patience: Patience,
    /// The part of [`EMPTY_BYTES`] that this heap has; 0 once it has had [`HAS_OBJECTS`] objects at a time.
    kept: usize,
    account: Part,
}

impl Inner {
    pub(super) fn new(owner: Owner, extents: Extents) -> Inner {
        Inner {
            core: Dlmalloc::new_with_allocator(Source::new(owner, extents)),
            objects: 0,
            heaps: 1,
            turnover: Turnover::default(),
            handed: Handed::default(),
            peak: 0,
            rest: 0,
            freed: 0,
            left: 0,
            most: 0,
            looked: (0, 0, 0, 0),
            emptied: Emptied::new(),
            patience: Patience::default(),
            kept: 0,
            account: Part::default(),
        }
    }

    /// An object as [`super::home::Home::allocate`] says. Without `may_map` only of memory that the heap has.
    pub(super) unsafe fn allocate(
        &mut self,
        heap: HeapAddress,
        size: usize,
        align: usize,
        zero: bool,
        may_map: bool,
    ) -> Option<usize> {
        if self.objects == HAS_OBJECTS {
            EMPTY_BYTES.fetch_sub(core::mem::take(&mut self.kept), Ordering::Relaxed);
        }
        if self.objects == 0 {
            self.patience.used(clock::coarse_ns);
        }
        let source = self.core.allocator_mut();
        (source.heap, source.asked, source.may_map) = (Some(heap), size, may_map);
        // SAFETY: the lock is held, and the heap stays where it is, as dlmalloc needs.
        let address = unsafe {
            match align {
                ..=ALIGN => self.core.c_malloc(size),
                more => self.core.c_memalign(more, size),
            }
        } as usize;
        if address == 0 {
            return None;
        }
        // SAFETY: a fresh object, in an extent of this heap.
        let (bytes, extent) = unsafe { (usable(address), Extent::of(address)) };
        // dlmalloc cuts an aligned object out of a larger one.
        let cut_from = if align > ALIGN { 2 * align } else { 0 };
        let (written, taken) = extent.hand_out(address, address + bytes + cut_from);
        self.needed_again(taken);
        if zero {
            // SAFETY: the object has `bytes` bytes. What is fresh is zero, but for the last word: the end of a free
            // chunk is there.
            unsafe {
                let fresh = written.clamp(address, address + size);
                (address as *mut u8).write_bytes(0, fresh - address);
                ((address + bytes) as *mut usize).sub(1).write_unaligned(0);
            }
        }
        let source = self.core.allocator_mut();
        source.used += bytes;
        self.account.allocated(source.used, bytes);
        self.peak = self.peak.max(source.used);
        self.objects += 1;
        self.left = self.left.max(self.objects);
        self.most = self.most.max(self.objects);
        Some(address)
    }

    /// Changes the size of an object, in place if there is room behind it.
    pub(super) unsafe fn resize(&mut self, heap: HeapAddress, address: usize, size: usize) -> Option<usize> {
        // SAFETY: the caller passes an address in an extent of this heap.
        let (before, is_live) = unsafe { (usable(address), is_object(address, usize::MAX)) };
        if !is_live || self.objects == 0 {
            return None;
        }
        let source = self.core.allocator_mut();
        (source.heap, source.asked, source.may_map) = (Some(heap), size, true);
        // SAFETY: the lock is held; a live object of this heap.
        let resized = unsafe { self.core.c_realloc(address as *mut u8, size) } as usize;
        if resized == 0 {
            return None;
        }
        let source = self.core.allocator_mut();
        // SAFETY: the object as it is now.
        let (bytes, extent) = unsafe { (usable(resized), Extent::of(resized)) };
        source.used = (source.used + bytes).saturating_sub(before);
        self.account.allocated(source.used, bytes.saturating_sub(before));
        self.peak = self.peak.max(source.used);
        self.needed_again(extent.hand_out(resized, resized + bytes).1);
        Some(resized)
    }

    /// False when there is no object at `address`: it was freed twice, as far as that can be seen.
    pub(super) unsafe fn free(&mut self, address: usize) -> bool {
        // SAFETY: the caller passes an address in an extent of this heap.
        let (bytes, is_live) = unsafe { (usable(address), is_object(address, usize::MAX)) };
        if !is_live || self.objects == 0 {
            return false;
        }
        let source = self.core.allocator_mut();
        source.used = source.used.saturating_sub(bytes);
        let (mapped, enough, used) = (source.mapped.get(), source.enough(), source.used);
        self.objects -= 1;
        // Of an empty heap [`Inner::keep_or_unmap`] settles the account.
        if self.objects > 0 || sandbox::entered() {
            self.account.freed(used, bytes);
        }
        self.freed += bytes;
        // SAFETY: a live object that the program gives up.
        unsafe { self.core.c_free(address as *mut u8) };
        if sandbox::entered() {
            // Giving memory back takes system calls that the program's own free would not make.
        } else if self.objects == 0 {
            self.keep_or_unmap();
        } else if used <= self.peak / NEARLY_EMPTY && self.peak > SLACK {
            self.keep_or_give_back();
        } else if self.account.is_over(used) {
            if self.is_impatient() {
                self.give_back();
            }
        } else if mapped > enough
            && (self.freed >= TRIM_AFTER.max(mapped / TRIM_DIVISOR) || self.objects <= self.left / 2)
            && self.is_impatient()
        {
            self.trim();
        }
        true
    }

    /// The bytes of all objects, if there are half or twice as many objects as when this was last told.
    #[inline]
    pub(super) fn changed_much(&mut self) -> Option<usize> {
        self.turnover.has_changed(self.objects).then(|| self.core.allocator().used)
    }

    /// Notes that objects got `pages` pages that had been given back.
    #[inline]
    fn needed_again(&mut self, pages: usize) {
        if pages > 0 {
            self.patience.needed_again(pages * self.heaps);
            let anew = &self.core.allocator().anew;
            anew.set(anew.get() + pages * PAGE);
        }
    }

    /// Whether the heap may give memory back, see [`crate::rules::patience`].
    #[cold]
    #[inline(never)]
    fn is_impatient(&mut self) -> bool {
        let source = self.core.allocator();
        self.patience.needed_again(source.mapped_again.take() / PAGE * self.heaps);
        let is_over = self.patience.is_over(clock::coarse_ns);
        if !is_over {
            self.enter();
        }
        is_over
    }

    /// Gives extents without an object back, but for the slack.
    #[cold]
    #[inline(never)]
    fn trim(&mut self) {
        let _errno = errno::Saved::now();
        (self.freed, self.left) = (0, self.objects);
        let source = self.core.allocator_mut();
        let again = source.again;
        (source.trimming, source.releasing) = (true, true);
        // SAFETY: the lock is held.
        unsafe { self.core.trim(SLACK + again) };
        let source = self.core.allocator_mut();
        (source.trimming, source.releasing) = (false, false);
    }

    /// Gives all memory back that lies in whole pages without an object, for the account of the process.
    #[cold]
    #[inline(never)]
    pub(super) fn give_back(&mut self) {
        let _errno = errno::Saved::now();
        (self.freed, self.left) = (0, self.objects);
        let source = self.core.allocator_mut();
        (source.slack, source.releasing) = (0, true);
        // SAFETY: the lock is held.
        unsafe { self.core.trim(0) };
        let source = self.core.allocator_mut();
        (source.slack, source.releasing) = (SLACK, false);
        source.list.give_back_pages();
        self.account.gave_back(source.used);
    }

    /// Keeps the extents of a heap without objects within [`KEPT_EMPTY`], else unmaps them.
    #[inline(never)]
    fn keep_or_unmap(&mut self) {
        // Its part of [`EMPTY_BYTES`] or of what comes again counts instead.
        self.account.gave_back(0);
        let mapped = self.core.allocator().mapped.get();
        let touched = mapped.min(self.peak + self.peak / SLACK_DIVISOR + TOUCHED);
        if self.keeps_again() {
            self.account.keeps_again();
            return;
        }
        let touched = if self.patience.has_regretted() { mapped } else { touched };
        let more = touched.saturating_sub(self.kept);
        if more == 0 || EMPTY_BYTES.fetch_add(more, Ordering::Relaxed) + more <= KEPT_EMPTY {
            self.kept += more;
            return;
        }
        EMPTY_BYTES.fetch_sub(more + core::mem::take(&mut self.kept), Ordering::Relaxed);
        let _errno = errno::Saved::now();
        // Without memory for another stack the extents stay.
        own_stack::run(|| self.unmap_all());
    }

    /// As [`Inner::keep_or_unmap`], for a heap that is nearly empty. However patient it is, it keeps no more than an
    /// empty one: nobody knows whether the program ever comes back.
    #[cold]
    #[inline(never)]
    fn keep_or_give_back(&mut self) {
        if !self.keeps_again() {
            self.give_back();
        }
    }

    /// Whether the heap, which is empty or nearly so, keeps what it needed, because that comes again. Gives back more.
    #[inline(never)]
    fn keeps_again(&mut self) -> bool {
        let source = self.core.allocator_mut();
        let (bytes, objects) = (self.peak.saturating_sub(source.used), self.most.saturating_sub(self.objects));
        // A heap that only becomes empty after it was nearly so has decided before.
        if self.peak > self.rest {
            let wanted = bytes + bytes / SLACK_DIVISOR + TOUCHED;
            let often = self.emptied.comes_again(bytes, objects, source.anew.take());
            if often {
                source.again = self.emptied.keeps(wanted, source.again);
            }
            source.rent.set(self.emptied.rent(wanted, source.again));
            self.account.allow(source.again, self.emptied.class == Class::Together);
        }
        let (keeps, is_more) = (source.again > 0, source.mapped.get() > source.enough());
        (self.peak, self.rest, self.most) = (source.used, source.used, self.objects);
        (self.freed, self.left) = (0, self.objects);
        if keeps {
            self.enter();
            if is_more {
                // A patient heap has what it gave back to nobody.
                self.trim();
            }
        }
        keeps
    }

    /// Enters the heap in the list of those that give memory back when it is short.
    fn enter(&self) {
        if let Some(heap) = self.core.allocator().heap {
            // SAFETY: the heap that holds this structure has named itself.
            coming_again::enter(unsafe { Heap::at(heap) }.link(), heap);
        }
    }

    /// Gives up what the heap keeps; true if it had memory. Before a fork it is not searched for less than is worth
    /// that: a program may fork all the time.
    #[inline(never)]
    pub(super) fn release(&mut self, why: Why) -> bool {
        if why == Why::Needed {
            self.emptied.forget();
        } else if self.objects > 0 && !self.account.is_much(self.core.allocator().used) {
            return false;
        }
        self.give_up()
    }

    /// Gives up what the heap keeps; true if it had memory.
    #[inline(never)]
    fn give_up(&mut self) -> bool {
        let source = self.core.allocator_mut();
        if source.mapped.get() == 0 {
            return false;
        }
        source.rent.set(0);
        let again = core::mem::take(&mut source.again);
        coming_again::give(self.emptied.class, again);
        self.account.allow(0, false);
        if self.objects > 0 {
            let keeps = self.account.kept() > 0 && (self.patience.has_regretted() || again > 0);
            if keeps {
                self.give_back();
            }
            return keeps;
        }
        EMPTY_BYTES.fetch_sub(core::mem::take(&mut self.kept), Ordering::Relaxed);
        self.account.gave_back(0);
        own_stack::run(|| self.unmap_all()).is_some()
    }

    /// Gives up what the heap keeps if its patience is over, or if it has not been used for long, in which it allocated
    /// no object beside the `allocations`; true if it did.
    #[inline(never)]
    pub(super) fn release_unused(&mut self, allocations: u32, now: u64) -> bool {
        let used = self.core.allocator().used;
        if self.objects > 0 && self.account.is_over(used) && self.patience.has_ended(now) {
            self.give_back();
            return true;
        }
        let (turned, mapped) = (heap_account::turned_over(), heap_account::all_mapped_elsewhere());
        if allocations != self.looked.0 {
            self.looked = (allocations, now, turned, mapped);
            return false;
        }
        let is_crowded = mapped.wrapping_sub(self.looked.3) > self.account.kept().max(SLACK) / CROWDED_DIVISOR;
        if self.objects > 0 && is_crowded && self.account.is_over(used) {
            self.give_back();
            return true;
        }
        let bytes = self.core.allocator().again.max(SLACK);
        let is_unused = turned.wrapping_sub(self.looked.2) / UNUSED > bytes
            && now.saturating_sub(self.looked.1) >= self.patience.length()
            && self.patience.has_ended(now);
        let done = is_unused && self.give_up();
        if done {
            self.patience.given_up(now);
        }
        done
    }

    /// Not inlined: two structures of 1 KiB each would be in the stack frame of the caller, too.
    #[cold]
    #[inline(never)]
    fn unmap_all(&mut self) {
        let source = self.core.allocator_mut();
        source.releasing = true;
        (source.slack, source.used) = (0, 0);
        let again = core::mem::take(&mut source.again);
        let unmapped = source.unmapped.get() + source.mapped.get();
        let own = Source { again, heap: source.heap, ..Source::new(source.owner, source.extents) };
        own.unmapped.set(unmapped);
        own.mapped_again.set(source.mapped_again.get());
        own.anew.set(source.anew.get());
        own.rent.set(source.rent.get());
        let fresh = Dlmalloc::new_with_allocator(own);
        // SAFETY: there are no objects. `destroy` only reads the list of segments, which does not point into the
        // structure that moves here.
        unsafe { core::mem::replace(&mut self.core, fresh).destroy() };
    }
}
