//! Heaps for small objects, without the memory behind them: see [`crate::objects::small_objects`].
//!
//! These structures are in this folder because each placing of a rule owns homes.
//!
//! A heap is an instance of `dlmalloc`, the algorithm that glibc's malloc comes from: neighbouring free blocks become
//! one whatever their sizes were, so a rule's heap takes about the memory that the same objects would take in glibc.
//! Its memory comes in extents; an extent without an object is given back, except for a bounded rest (see [`SLACK`] and
//! [`KEPT_EMPTY`]). What all heaps keep together is bounded, too: see [`super::heap_account`] and
//! [`super::coming_again`]; but a heap that needs again what it gave back is [patient](super::patience).
//!
//! A heap has a lock for which no thread waits long. A thread that cannot take it allocates from another heap of the
//! home, or puts the object to be freed on a list that the holder of the lock empties. Of a child that was forked while another
//! thread held the lock, that heap gets no object any more and frees none: the lock has the number of the process that
//! took it ([`fork_wiped::generation`]), and another heap takes the place of one whose holder does not exist.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

use dlmalloc::{Allocator, Dlmalloc};
use numamma_hook::{allocating, errno, fork_wiped, own_stack, sandbox};
use numamma_kernel::clock;
use numamma_kernel::sys::{self, PAGE};
use numamma_kernel::window::Window;
use numamma_plan::policy::PolicyKind;

use super::coming_again::{self, Class, Link};
use super::extent::{self, Extent};
use super::heap_account::{self, Part};
use super::patience::Patience;

/// The addresses of all extents.
pub static WINDOW: Window = Window::new();

/// Most heaps of a home; a power of two. A home uses one heap until threads meet there.
const HEAPS: usize = 8;
/// Looks at a lock that another thread holds before the next heap is tried: about 100 ns, in which a call ends.
const SPINS: usize = 30;
/// A home gets more heaps when more than every 64th allocation meets another thread, among as many meetings.
const MEETINGS: u32 = 64;
const OFTEN_MET: u32 = 64;
/// Heaps tried before the real allocator is called.
const TRIES: usize = 6;
/// Least alignment of every object, as malloc guarantees on x86_64.
pub const ALIGN: usize = 16;
/// Bytes of the smallest extent: twice what dlmalloc asks for at a time, because each takes two pages and one of the
/// heap table.
const SMALLEST_EXTENT: usize = 128 << 10;
/// Bytes of the largest extent. An extent with one object is not given back; one of two huge pages can be a huge page
/// wherever it begins.
const LARGEST_EXTENT: usize = 4 << 20;
const _: () = assert!(LARGEST_EXTENT <= numamma_kernel::window::SLOT);
/// An extent has this part (1/4) of the bytes that the heap has already: few extents, and little address space unused.
const GROWTH_DIVISOR: usize = 4;
/// Bytes up to which an extent has as many as the heap has already, see [`SMALLEST_EXTENT`].
const DOUBLES: usize = 512 << 10;
/// Free bytes that a heap may keep in extents without an object, beside an eighth of the bytes in use: what a program
/// frees and allocates again in turns would otherwise cost system calls and page faults each time.
const SLACK: usize = 256 << 10;
const SLACK_DIVISOR: usize = 8;
/// Bytes that all heaps without an object may keep together, so that the first object of a rule that has no other does
/// not cost system calls and page faults each time.
const KEPT_EMPTY: usize = 1 << 20;
/// Objects with which a heap counts as one that is in use. With fewer it keeps its part of [`EMPTY_BYTES`]: a cache line
/// that all threads would write if each of them allocated and freed one object at a time.
const HAS_OBJECTS: usize = 64;
/// Times that a heap has to become empty until it keeps what it needs from then on: a buffer that a function allocates at
/// each call, a list that every step of the program builds and frees.
const OFTEN: u32 = 4;
/// Times from which it may keep much if its objects differ each time: each rule of many may do something in turn a few
/// dozen times, and all of them together would keep what they never needed at once.
const VERY_OFTEN: u32 = 32;
/// Part (1/8) by which the objects and bytes of a heap may differ from those before it was empty last, so that they count
/// as the same again.
const ALIKE_DIVISOR: usize = 8;
/// Times that such a heap has to need less than half of what it keeps, in turn, until it gives that back: sizes that vary
/// are seldom on one side so often, and what keeps too much for one list of these keeps it not for long.
const SMALLER: u32 = 16;
/// An empty heap is given up when this many times as much as it keeps was allocated and freed elsewhere.
const UNUSED: usize = 8;
/// Pages that an empty heap has touched beside those of its objects: the header and both ends of its extent.
const TOUCHED: usize = 3 * PAGE;
/// Bytes that are freed between two searches for memory to give back, at least; also this part (1/512) of the bytes
/// that the heap has, because a search looks at each extent.
const TRIM_AFTER: usize = 16 << 10;
const TRIM_DIVISOR: usize = 512;

/// Bytes at the end of an extent that dlmalloc uses itself. It never gives an extent back whose last object left 16
/// bytes before these, too few for another; so objects of one size must not end there.
const FOOT: usize = 80;

/// Estimated resident bytes of the heaps without an object.
static EMPTY_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The rule and placing that memory belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// Index of the rule.
    pub rule: usize,
    /// Index of the rule's placing.
    pub placing: usize,
    /// Node of a `local` placing.
    pub node: u32,
}

/// Where a heap gets its extents.
#[derive(Clone, Copy)]
pub struct Extents {
    /// Maps and places an extent of so many bytes for the heap, at a multiple of `SLOT`, and writes its header; returns
    /// the usable memory behind that.
    pub map: fn(&Owner, &'static Heap, usize) -> Option<(usize, usize)>,
    /// Unmaps the extent with this usable memory, which no object is in.
    pub unmap: fn(usize),
}

/// A freed object that waits for the lock of its heap.
struct Free {
    next: *mut Free,
}

/// dlmalloc's source of memory.
struct Source {
    owner: Owner,
    extents: Extents,
    /// The heap that this source is part of; null until it is used.
    heap: *const Heap,
    /// Bytes of all extents.
    mapped: core::cell::Cell<usize>,
    /// Bytes of all objects.
    used: usize,
    /// Bytes of the object that is being allocated.
    asked: usize,
    /// Bytes that the heap keeps when it is empty, see [`coming_again`].
    again: usize,
    /// The heap searches for memory to give back. dlmalloc alone would do so at every second call.
    trimming: bool,
    /// Extents without an object may be unmapped, which dlmalloc tries on its own, too.
    releasing: bool,
    /// Bytes that were unmapped, less those mapped since; and the bytes of these that were mapped since.
    unmapped: core::cell::Cell<usize>,
    mapped_again: core::cell::Cell<usize>,
    /// Free bytes that the heap may keep in extents without an object: [`SLACK`], or none while it gives all back.
    slack: usize,
    list: extent::Extents,
}

// SAFETY: the pointer refers to a heap that is never freed and is only used by the thread that holds its lock.
unsafe impl Send for Source {}

// SAFETY: memory that `map` returned belongs to the heap until `unmap`.
unsafe impl Allocator for Source {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let mapped = self.mapped.get();
        let wanted = (mapped / GROWTH_DIVISOR)
            .max(mapped.min(DOUBLES))
            .clamp(SMALLEST_EXTENT, LARGEST_EXTENT)
            .next_power_of_two();
        // SAFETY: null, or the heap that holds this source.
        let heap = unsafe { self.heap.as_ref() };
        let _errno = errno::Saved::now();
        let Some((start, len)) = heap.and_then(|heap| (self.extents.map)(&self.owner, heap, wanted.max(size))) else {
            return (ptr::null_mut(), 0, 0);
        };
        let rest = len.saturating_sub(FOOT) % (self.asked + size_of::<usize>()).next_multiple_of(ALIGN);
        let len = if rest == ALIGN { len - ALIGN } else { len };
        self.mapped.set(self.mapped.get() + len);
        let again = len.min(self.unmapped.get());
        self.unmapped.set(self.unmapped.get() - again);
        self.mapped_again.set(self.mapped_again.get() + again);
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

/// What the lock of a heap protects.
struct Inner {
    core: Dlmalloc<Source>,
    /// Live objects.
    objects: usize,
    /// Most bytes in use since the heap was empty.
    peak: usize,
    /// Bytes freed since the last search for memory to give back, and the objects that were left then.
    freed: usize,
    left: usize,
    /// Most objects since the heap was empty.
    most: usize,
    /// Times that the heap has become empty, and that it needed much less than it keeps, see [`SMALLER`].
    emptied: u32,
    smaller: u32,
    /// Of these, the last ones with about as many objects and bytes as before; and how many these were.
    alike: u32,
    last: (usize, usize),
    /// The most bytes that an empty heap needed, and the times that it was at least about half of that.
    large: (usize, u32),
    /// Whose bound `again` is within.
    class: Class,
    /// When heaps that are not used were last looked for and objects had been allocated since the time before: how many so
    /// far, when that was, ns, and what all heaps had turned over.
    looked: (u32, u64, usize),
    patience: Patience,
    /// The part of [`EMPTY_BYTES`] that this heap has; 0 once it has had [`HAS_OBJECTS`] objects at a time.
    kept: usize,
    account: Part,
}

/// A word before each object that dlmalloc writes: its size with the word, and three bits. dlmalloc has no function for
/// the size of an object; the test `sizes_are_read_from_the_header` fails if this layout changes.
pub const FLAGS: usize = 7;
/// The flag of a chunk that is an object.
pub const IN_USE: usize = 2;
/// The object before this one is in use.
const BEFORE_IN_USE: usize = 1;

/// Bytes that the object at `address` can hold; 0 if none is there.
///
/// # Safety
/// `address` lies in an extent, at least a word behind its first usable byte.
pub unsafe fn usable(address: usize) -> usize {
    // SAFETY: the caller's promise: the word before is readable. It is read atomically because the flag for the object
    // before this one changes with that.
    let word = unsafe { (*((address - size_of::<usize>()) as *const AtomicUsize)).load(Ordering::Relaxed) };
    if word & IN_USE == 0 { 0 } else { (word & !FLAGS).saturating_sub(size_of::<usize>()) }
}

/// Whether the words around `address` are those of an object in an extent that ends at `end`: the word before says that
/// it is in use, and so does the one before the next object. Free neighbours become one, so after an object is freed
/// the first may still say so.
///
/// # Safety
/// As [`usable`]; the extent is mapped up to `end`.
pub unsafe fn is_object(address: usize, end: usize) -> bool {
    if !address.is_multiple_of(ALIGN) {
        return false;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { usable(address) };
    let next = address.saturating_add(bytes);
    let inside = bytes > 0 && next.is_multiple_of(size_of::<usize>());
    // SAFETY: the word lies in the extent, by the comparison.
    inside && next < end && unsafe { (*(next as *const AtomicUsize)).load(Ordering::Relaxed) } & BEFORE_IN_USE != 0
}

impl Inner {
    unsafe fn allocate(&mut self, heap: &'static Heap, size: usize, align: usize, zero: bool) -> Option<usize> {
        if self.objects == HAS_OBJECTS {
            EMPTY_BYTES.fetch_sub(core::mem::take(&mut self.kept), Ordering::Relaxed);
        }
        if self.objects == 0 {
            self.patience.used(clock::coarse_ns);
        }
        let source = self.core.allocator_mut();
        (source.heap, source.asked) = (heap, size);
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
        self.patience.needed_again(taken);
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
    unsafe fn resize(&mut self, heap: &'static Heap, address: usize, size: usize) -> Option<usize> {
        // SAFETY: the caller passes an address in an extent of this heap.
        let (before, is_live) = unsafe { (usable(address), is_object(address, usize::MAX)) };
        if !is_live || self.objects == 0 {
            return None;
        }
        let source = self.core.allocator_mut();
        (source.heap, source.asked) = (heap, size);
        // SAFETY: the lock is held; a live object of this heap.
        let resized = unsafe { self.core.c_realloc(address as *mut u8, size) } as usize;
        if resized == 0 {
            return None;
        }
        let source = self.core.allocator_mut();
        // SAFETY: the object as it is now.
        let (bytes, extent) = unsafe { (usable(resized), Extent::of(resized)) };
        self.patience.needed_again(extent.hand_out(resized, resized + bytes).1);
        source.used = (source.used + bytes).saturating_sub(before);
        self.account.allocated(source.used, bytes.saturating_sub(before));
        self.peak = self.peak.max(source.used);
        Some(resized)
    }

    /// False when there is no object at `address`: it was freed twice, as far as that can be seen.
    unsafe fn free(&mut self, address: usize) -> bool {
        // SAFETY: the caller passes an address in an extent of this heap.
        let (bytes, is_live) = unsafe { (usable(address), is_object(address, usize::MAX)) };
        if !is_live || self.objects == 0 {
            return false;
        }
        let source = self.core.allocator_mut();
        source.used = source.used.saturating_sub(bytes);
        let (mapped, enough, used) = (source.mapped.get(), source.enough(), source.used);
        self.account.freed(used, bytes);
        self.objects -= 1;
        self.freed += bytes;
        // SAFETY: a live object that the program gives up.
        unsafe { self.core.c_free(address as *mut u8) };
        if sandbox::entered() {
            // Giving memory back takes system calls that the program's own free would not make.
        } else if self.objects == 0 {
            self.keep_or_unmap();
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

    /// Whether the heap may give memory back, see [`super::patience`].
    #[cold]
    #[inline(never)]
    fn is_impatient(&mut self) -> bool {
        let source = self.core.allocator();
        self.patience.needed_again(source.mapped_again.take() / PAGE);
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
    fn give_back(&mut self) {
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
        // Its part of `EMPTY_BYTES` or of `AGAIN` counts instead.
        self.account.gave_back(0);
        let mapped = self.core.allocator().mapped.get();
        let touched = mapped.min(self.peak + self.peak / SLACK_DIVISOR + TOUCHED);
        let wanted = self.peak + self.peak / SLACK_DIVISOR + TOUCHED;
        let keeps = self.comes_again() && self.keeps_again(wanted);
        (self.peak, self.most, self.freed, self.left) = (0, 0, 0, 0);
        if keeps {
            // A patient heap has what it gave back to nobody.
            if mapped > self.core.allocator().enough() {
                self.trim();
            }
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

    /// Whether the heap has become empty [`OFTEN`]: since the start, or with about the same objects each time, which
    /// decides how much it may keep.
    fn comes_again(&mut self) -> bool {
        let alike = |now: usize, before: usize| now.abs_diff(before) <= before / ALIKE_DIVISOR;
        let now = (self.peak, self.most);
        self.emptied = self.emptied.saturating_add(1);
        self.alike =
            if alike(now.0, self.last.0) && alike(now.1, self.last.1) { self.alike.saturating_add(1) } else { 0 };
        self.last = now;
        self.emptied >= OFTEN
    }

    /// Whether the heap may keep `wanted` bytes when it is empty.
    #[inline(never)]
    fn keeps_again(&mut self, wanted: usize) -> bool {
        let again = self.core.allocator().again;
        self.smaller = if wanted < again / 2 { self.smaller + 1 } else { 0 };
        let (most, times) = self.large;
        self.large = match wanted {
            _ if wanted / 2 > most => (wanted, 1),
            _ if wanted >= most / 2 => (wanted.max(most), times.saturating_add(1)),
            _ => self.large,
        };
        let is_much = self.alike >= OFTEN || (self.large.1 >= VERY_OFTEN && wanted.max(again) <= KEPT_EMPTY);
        let shrank = self.smaller >= if self.alike >= OFTEN { OFTEN } else { SMALLER };
        if wanted <= again && !shrank && (self.class == Class::Much || !is_much) {
            return true;
        }
        coming_again::give(self.class, again);
        let now = wanted.max(again);
        let classes = [(is_much, Class::Much), (true, Class::Little)];
        let allowed = classes.into_iter().find(|&(fits, class)| fits && !shrank && coming_again::take(class, now));
        let now = if allowed.is_some() { now } else { 0 };
        self.class = allowed.map_or(Class::Little, |(_, class)| class);
        self.smaller = 0;
        self.core.allocator_mut().again = now;
        self.account.allow(now);
        if allowed.is_some() {
            self.enter();
        }
        allowed.is_some()
    }

    /// Enters the heap in the list of those that give memory back when it is short.
    fn enter(&self) {
        // SAFETY: null, or the heap that holds this structure.
        unsafe { self.core.allocator().heap.as_ref() }.inspect(|heap| coming_again::enter(heap));
    }

    /// Gives up what the heap keeps; true if it had memory.
    #[inline(never)]
    fn release(&mut self) -> bool {
        if self.core.allocator().mapped.get() == 0 {
            return false;
        }
        if self.objects > 0 {
            let keeps = self.account.keeps() && (self.patience.has_regretted() || self.core.allocator().again > 0);
            if keeps {
                self.give_back();
            }
            return keeps;
        }
        coming_again::give(self.class, core::mem::take(&mut self.core.allocator_mut().again));
        EMPTY_BYTES.fetch_sub(core::mem::take(&mut self.kept), Ordering::Relaxed);
        self.account.allow(0);
        self.account.gave_back(0);
        own_stack::run(|| self.unmap_all()).is_some()
    }

    /// Gives up what the heap keeps if it has not been used for long, in which it allocated no object beside the
    /// `allocations`; true if it did.
    #[inline(never)]
    fn release_unused(&mut self, allocations: u32, now: u64) -> bool {
        let turned = heap_account::turned_over();
        if allocations != self.looked.0 {
            self.looked = (allocations, now, turned);
            return false;
        }
        let bytes = self.core.allocator().again.max(SLACK);
        let is_unused = turned.wrapping_sub(self.looked.2) / UNUSED > bytes
            && now.saturating_sub(self.looked.1) >= self.patience.length()
            && self.patience.has_ended(now);
        let done = is_unused && self.release();
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
        let fresh = Dlmalloc::new_with_allocator(own);
        // SAFETY: there are no objects. `destroy` only reads the list of segments, which does not point into the
        // structure that moves here.
        unsafe { core::mem::replace(&mut self.core, fresh).destroy() };
    }
}

impl Source {
    const fn new(owner: Owner, extents: Extents) -> Source {
        Source {
            owner,
            extents,
            heap: ptr::null(),
            mapped: core::cell::Cell::new(0),
            used: 0,
            asked: 0,
            again: 0,
            trimming: false,
            releasing: false,
            unmapped: core::cell::Cell::new(0),
            mapped_again: core::cell::Cell::new(0),
            slack: SLACK,
            list: extent::Extents::new(),
        }
    }

    /// Bytes that the heap should have for its objects.
    fn enough(&self) -> usize {
        self.used + self.used / SLACK_DIVISOR + self.slack + self.again
    }
}

/// One heap, with its lock.
#[repr(align(64))]
pub struct Heap {
    /// The lock: 0, or the number of the process in which a thread holds it.
    busy: AtomicU32,
    /// Objects that were allocated, modulo 2^32.
    allocations: AtomicU32,
    /// Objects that were freed while another thread held the lock.
    returned: AtomicPtr<Free>,
    link: Link,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only touched by the thread that holds `busy`.
unsafe impl Sync for Heap {}

/// The lock of a heap; released on drop.
struct Held<'a>(&'a Heap);

impl Held<'_> {
    /// Locks `heap` if no other thread holds it.
    fn take(heap: &Heap) -> Option<Held<'_>> {
        // The load keeps the cache line shared while another thread holds the lock.
        let free = heap.busy.load(Ordering::Relaxed) == 0 && heap.lock();
        // then_some would make a Held and drop it, which unlocks.
        free.then(|| Held(heap))
    }

    fn free_returned(&self) {
        // Acquire pairs with the Release of the pushes; the whole list belongs to this thread from here on.
        let mut object = self.0.returned.swap(ptr::null_mut(), Ordering::Acquire);
        while !object.is_null() {
            // SAFETY: a freed object that only this list knows; the lock is held.
            unsafe {
                let next = (*object).next;
                if !(*self.0.inner.get()).free(object as usize) {
                    return; // an object that was put on the list twice leads in a circle
                }
                object = next;
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        loop {
            if !self.0.returned.load(Ordering::Relaxed).is_null() {
                self.free_returned();
            }
            self.0.busy.store(0, Ordering::Release);
            // Pairs with the fence of `Heap::free`: either this thread sees the object that was returned meanwhile, or
            // the thread that returned it sees the lock free.
            fence(Ordering::SeqCst);
            if self.0.returned.load(Ordering::Relaxed).is_null() || !self.0.lock() {
                return;
            }
        }
    }
}

impl Heap {
    fn new(owner: Owner, extents: Extents) -> Heap {
        let core = Dlmalloc::new_with_allocator(Source::new(owner, extents));
        let inner = UnsafeCell::new(Inner {
            core,
            objects: 0,
            peak: 0,
            freed: 0,
            left: 0,
            most: 0,
            emptied: 0,
            smaller: 0,
            alike: 0,
            last: (0, 0),
            large: (0, 0),
            class: Class::Little,
            looked: (0, 0, 0),
            patience: Patience::default(),
            kept: 0,
            account: Part::default(),
        });
        let (busy, allocations, returned, link) = Default::default();
        Heap { busy, allocations, returned, link, inner }
    }

    #[inline]
    fn lock(&self) -> bool {
        self.busy.compare_exchange(0, fork_wiped::generation(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether a thread holds the lock that does not exist in this process.
    #[cold]
    fn is_lost(&self) -> bool {
        ![0, fork_wiped::generation()].contains(&self.busy.load(Ordering::Relaxed))
    }

    /// The object at `address` with `size` bytes; `None` when the heap is in use or gets no memory: it is as it was.
    ///
    /// # Safety
    /// `address` is an object of this heap; if another address is returned, it has been freed.
    pub unsafe fn resize(&'static self, address: usize, size: usize) -> Option<usize> {
        let held = Held::take(self)?;
        // SAFETY: the lock is held; the caller's promise.
        unsafe { (*held.0.inner.get()).resize(self, address, size) }
    }

    /// Waits for about as long as a call takes that holds the lock; at every second `step` it lets that thread run.
    #[cold]
    fn let_go_on(&self, step: usize) {
        if step % 2 == 1 && !sandbox::entered() {
            sys::yield_now();
        }
        for _ in 0..SPINS {
            if self.busy.load(Ordering::Relaxed) == 0 {
                return;
            }
            core::hint::spin_loop();
        }
    }

    /// Its place in the list of heaps that have kept memory.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Gives back what the heap keeps that it does not need, if no thread uses it; true if there was any.
    pub fn release(&self) -> bool {
        let _errno = errno::Saved::now();
        let held = Held::take(self);
        // SAFETY: the lock is held.
        held.is_some_and(|held| unsafe { (*held.0.inner.get()).release() })
    }

    /// As [`Heap::release`], if the heap has not been used for long at the time `now`, ns.
    pub fn release_unused(&self, now: u64) -> bool {
        let _errno = errno::Saved::now();
        let (held, allocations) = (Held::take(self), self.allocations.load(Ordering::Relaxed));
        // SAFETY: the lock is held.
        held.is_some_and(|held| unsafe { (*held.0.inner.get()).release_unused(allocations, now) })
    }

    /// Frees an object, from any thread.
    ///
    /// # Safety
    /// `address` is an object of this heap that the program gives up.
    pub unsafe fn free(&self, address: usize) {
        if let Some(held) = Held::take(self) {
            // SAFETY: the lock is held; the caller's promise.
            unsafe { (*held.0.inner.get()).free(address) };
            return;
        }
        let object = address as *mut Free;
        let mut head = self.returned.load(Ordering::Relaxed);
        loop {
            // SAFETY: the object is not used any more and at least as large as a pointer.
            unsafe { object.write(Free { next: head }) };
            // Release: the thread that takes the list sees the link.
            match self.returned.compare_exchange_weak(head, object, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        fence(Ordering::SeqCst); // see the drop of `Held`
        drop(Held::take(self));
    }
}

/// Memory for the small objects of one placing of a rule; for `local`, of one node of the placing.
pub struct Home {
    owner: Owner,
    extents: Extents,
    /// Heaps in use: 1 to [`HEAPS`], a power of two.
    in_use: AtomicUsize,
    /// Times that a thread met another one, and the objects that had been allocated at the last look.
    met: AtomicU32,
    looked: AtomicU32,
    /// Each is made when it is first used: of 200 rules, most have one. Null before.
    heaps: [AtomicPtr<Heap>; HEAPS],
}

impl Home {
    /// A home without memory.
    pub fn new(owner: Owner, extents: Extents) -> Home {
        let (met, looked, heaps) = Default::default();
        Home { owner, extents, in_use: AtomicUsize::new(1), met, looked, heaps }
    }

    /// An object of `size` bytes aligned to [`ALIGN`] and to `align`, a power of two below a page; with `zero` its bytes
    /// are zero. `thread` differs between threads. `None` when no heap is free or none gets memory.
    pub fn allocate(&'static self, size: usize, align: usize, zero: bool, thread: usize) -> Option<usize> {
        for step in 0..TRIES {
            let in_use = self.in_use.load(Ordering::Relaxed);
            let number = (thread + step) % in_use.clamp(1, HEAPS);
            let heap = self.heap(number)?;
            if let Some(held) = Held::take(heap) {
                // Only the thread that holds the lock changes it.
                heap.allocations.store(heap.allocations.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                // SAFETY: the lock is held.
                return unsafe { (*held.0.inner.get()).allocate(heap, size, align, zero) };
            }
            if heap.is_lost() {
                self.new_heap(number, heap)?;
                continue;
            }
            // A second heap is needed when the thread that holds the lock does not run.
            if in_use < HEAPS && (self.is_contended(in_use) || (in_use == 1 && step + 2 == TRIES)) {
                // If another thread did so meanwhile, its number stays.
                let _ = self.in_use.compare_exchange(in_use, in_use * 2, Ordering::Relaxed, Ordering::Relaxed);
            } else {
                heap.let_go_on(step);
            }
        }
        None
    }

    /// Called when a thread has met another one: whether that happens often. Each heap more takes memory of its own, and
    /// on a processor with fewer cores than threads a thread is now and then interrupted while it holds a lock.
    #[cold]
    fn is_contended(&self, in_use: usize) -> bool {
        let met = self.met.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if !met.is_multiple_of(MEETINGS) {
            return false;
        }
        let heaps = (0..in_use).filter_map(|number| self.heap(number));
        let now = heaps.fold(0, |sum: u32, heap| sum.wrapping_add(heap.allocations.load(Ordering::Relaxed)));
        now.wrapping_sub(self.looked.swap(now, Ordering::Relaxed)) < MEETINGS * OFTEN_MET
    }

    fn heap(&self, number: usize) -> Option<&'static Heap> {
        // SAFETY: null, or a leaked box that was published with Release.
        unsafe { self.heaps[number].load(Ordering::Acquire).as_ref() }.or_else(|| self.new_heap(number, ptr::null()))
    }

    /// A heap in place of `before`, which is null or lost.
    #[cold]
    #[inline(never)]
    fn new_heap(&self, number: usize, before: *const Heap) -> Option<&'static Heap> {
        if sandbox::entered() {
            return None;
        }
        let _errno = errno::Saved::now();
        let fresh = allocating::run(|| boxed(self.owner, self.extents))?;
        let slot = &self.heaps[number];
        // The thread that loses the race leaves its heap unused.
        let found = slot.compare_exchange(before.cast_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
        // SAFETY: as in `heap`; no slot becomes null again.
        unsafe { found.map_or_else(|first| first, |_| fresh).as_ref() }
    }
}

/// Not inlined: a heap is 1 KiB, which would be in the stack frame of the caller, too.
#[cold]
#[inline(never)]
fn boxed(owner: Owner, extents: Extents) -> *mut Heap {
    Box::into_raw(Box::new(Heap::new(owner, extents)))
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

#[cfg(test)]
mod tests;
