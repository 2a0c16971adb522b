use core::ffi::c_void;
use core::sync::atomic::AtomicUsize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use numamma_kernel::mappings;
use numamma_kernel::sys::PAGE;

use super::caches::HEAPS;
use super::chunk::{ALIGN, usable};
use super::home::{Home, Number};
use super::source::{Extents, Owner};
use super::*;
use crate::rules::extent::HEADER;

fn map(_: &Owner, heap: HeapAddress, len: usize, _: bool) -> Option<(usize, usize)> {
    MAPPED.fetch_add(1, Ordering::Relaxed);
    let start = mappings::map_aligned(len, numamma_kernel::window::SLOT)?;
    // SAFETY: the mapping was made above.
    unsafe { (start as *mut Extent).write(Extent::new(heap)) };
    LENGTHS.lock().unwrap().insert(start, len);
    Some((start + HEADER, len - HEADER))
}

fn unmap(usable: usize) {
    MAPPED.fetch_sub(1, Ordering::Relaxed);
    let start = usable - HEADER;
    let len = LENGTHS.lock().unwrap().remove(&start).unwrap();
    // SAFETY: `map` made this mapping.
    unsafe { sys::unmap(start as *mut c_void, len) };
}

impl Heap {
    /// Frees an object as the thread of the first heap.
    ///
    /// # Safety
    /// As [`Heap::give_up`].
    unsafe fn free_here(&self, address: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.free(address, |_| 0) };
    }
}

static LENGTHS: std::sync::Mutex<BTreeMap<usize, usize>> = std::sync::Mutex::new(BTreeMap::new());

static MAPPED: AtomicUsize = AtomicUsize::new(0);
/// The tests count the mappings of all heaps.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn home() -> &'static Home {
    let owner = Owner { rule: 0, placing: 0, node: 0, is_shared: false };
    Box::leak(Box::new(Home::new(owner, Extents { map, unmap })))
}

#[test]
fn sizes_are_read_from_the_header() {
    let _alone = ALONE.lock().unwrap();
    let home = home();
    for size in (1..4096).step_by(7) {
        let objects = [(); 3].map(|()| home.allocate(size, 1, false, |_| 0).unwrap());
        for object in objects {
            assert!(object.is_multiple_of(ALIGN));
            // SAFETY: an object of this heap, written within its size.
            unsafe {
                let found = usable(object);
                assert!((size..=size + 40).contains(&found), "{size}: {found}");
                (object as *mut u8).write_bytes(0xff, found);
            }
        }
        for object in objects {
            // SAFETY: as above; it is given up here.
            unsafe { home.heap(0).unwrap().free_here(object) };
        }
    }
    // SAFETY: no other thread uses the heap.
    assert_eq!(unsafe { (*home.heap(0).unwrap().inner.get()).objects }, 0);
}

#[test]
fn memory_of_freed_objects_serves_other_sizes_and_is_given_back() {
    let _alone = ALONE.lock().unwrap();
    let (home, before) = (home(), MAPPED.load(Ordering::Relaxed));
    for size in [40, 100, 333, 1000, 2500, 4000] {
        let objects: Vec<usize> =
            (0..(16 << 20) / size).map(|_| home.allocate(size, 1, false, |_| 0).unwrap()).collect();
        // SAFETY: no other thread uses the heap.
        let mapped = unsafe { (*home.heap(0).unwrap().inner.get()).core.allocator().mapped.get() };
        assert!(mapped < 27 << 20, "{mapped} bytes for 16 MiB of {size} bytes");
        // SAFETY: live objects of this heap.
        objects.iter().for_each(|object| unsafe { home.heap(0).unwrap().free_here(*object) });
    }
    assert!(MAPPED.load(Ordering::Relaxed) <= before + 1, "the last extent may stay");
}

#[test]
fn one_object_keeps_one_extent() {
    let _alone = ALONE.lock().unwrap();
    for size in (16..1100).step_by(16) {
        let (home, before) = (home(), MAPPED.load(Ordering::Relaxed));
        let stays = home.allocate(size, 1, false, |_| 0);
        let objects: Vec<usize> =
            (0..(2 << 20) / size).map(|_| home.allocate(size, 1, false, |_| 0).unwrap()).collect();
        // SAFETY: live objects of this heap.
        objects.iter().for_each(|object| unsafe { home.heap(0).unwrap().free_here(*object) });
        // The first, the last, and what fits into the slack.
        let left = MAPPED.load(Ordering::Relaxed) - before;
        assert!(stays.is_some() && left <= 5, "{size}: {left} extents");
    }
}

#[test]
fn objects_freed_while_the_lock_is_held_come_back() {
    let _alone = ALONE.lock().unwrap();
    let home = home();
    let objects: Vec<usize> = (0..100).map(|_| home.allocate(64, 1, false, |_| 0).unwrap()).collect();
    let held = Held::take(home.heap(0).unwrap()).unwrap();
    // SAFETY: live objects of this heap.
    objects.iter().for_each(|object| unsafe { home.heap(0).unwrap().free_here(*object) });
    assert!(Held::take(home.heap(0).unwrap()).is_none() && home.in_use.load(Ordering::Relaxed) == 1);
    // Nobody lets the lock go.
    assert!(home.allocate(64, 1, false, |_| 0).is_some() && home.in_use.load(Ordering::Relaxed) == 2);
    drop(held);
    // SAFETY: no other thread uses the heap.
    assert_eq!(unsafe { (*home.heap(0).unwrap().inner.get()).objects }, 0);
}

/// Threads that a signal handler ended inside of malloc: with the locks of all heaps each allocation took 0.6 ms.
#[test]
fn heaps_whose_lock_nobody_lets_go_are_replaced() {
    let _alone = ALONE.lock().unwrap();
    let home = home();
    home.in_use.store(HEAPS, Ordering::Relaxed);
    for number in 0..HEAPS {
        std::mem::forget(Held::take(home.heap(number).unwrap()).unwrap());
    }
    let begun = Instant::now();
    while home.allocate(64, 1, false, |_| 0).is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    let is_taken = |number: usize| Held::take(home.heap(number).unwrap()).is_none();
    assert!((0..HEAPS).filter(|number| is_taken(*number)).count() < HEAPS);
    let again = Instant::now();
    (0..100).for_each(|_| assert!(home.allocate(64, 1, false, |_| 0).is_some()));
    assert!(again.elapsed() < begun.elapsed(), "a hundred take less than the first: {:?}", again.elapsed());
}

#[test]
fn an_object_that_is_freed_twice_stops_no_thread() {
    let _alone = ALONE.lock().unwrap();
    let home = home();
    let objects = [(); 3].map(|()| home.allocate(64, 1, false, |_| 0).unwrap());
    let held = Held::take(home.heap(0).unwrap()).unwrap();
    // SAFETY: the heap sees the second time.
    [objects[1], objects[1]].iter().for_each(|object| unsafe { home.heap(0).unwrap().free_here(*object) });
    drop(held);
    // SAFETY: no other thread uses the heap.
    assert_eq!(unsafe { (*home.heap(0).unwrap().inner.get()).objects }, 2);
}

#[test]
fn objects_that_are_to_be_zero_are() {
    let _alone = ALONE.lock().unwrap();
    let (home, mut random) = (home(), 1_usize);
    let mut held: Vec<(usize, usize)> = vec![(0, 0); 300];
    for round in 0..60_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (slot, most) = ((random >> 40) % 300, if random >> 63 == 0 { 300 } else { 30_000 });
        let size = 1 + (random >> 20) % most;
        let heap = || home.heap(0).unwrap();
        if held[slot].0 != 0 {
            // SAFETY: a live object, which is given up.
            unsafe { heap().free_here(held[slot].0) };
        }
        let align = if round % 7 == 0 { 512 } else { 1 };
        let mut object = home.allocate(size, align, true, |_| 0).unwrap();
        // SAFETY: an object of `size` bytes.
        let bytes = unsafe { core::slice::from_raw_parts(object as *const u8, size) };
        assert!(bytes.iter().all(|byte| *byte == 0), "{round}: {size} bytes");
        // SAFETY: as above; nothing else uses the heap.
        unsafe {
            (object as *mut u8).write_bytes(0xff, usable(object));
            if round % 11 == 0 {
                object = heap().resize(object, size + 1000).unwrap();
                (object as *mut u8).write_bytes(0xff, usable(object));
            }
            if round % 500 == 0 {
                (*heap().inner.get()).give_back();
            }
        }
        held[slot] = (object, size);
    }
}

#[test]
fn threads_get_objects_of_their_own() {
    let _alone = ALONE.lock().unwrap();
    let home = home();
    let work = |mark: u8| {
        let sizes = (0..20_000).map(|round| 8 + (round * 37) % 900);
        let objects: Vec<(usize, usize)> =
            sizes.filter_map(|size| Some((home.allocate(size, 1, false, |_| usize::from(mark))?, size))).collect();
        for &(object, size) in &objects {
            // SAFETY: an object of `size` bytes that belongs to this thread.
            unsafe { (object as *mut u8).write_bytes(mark, size) };
        }
        // SAFETY: as above, and written.
        let bytes = |&(object, size)| unsafe { core::slice::from_raw_parts(object as *const u8, size) };
        objects.iter().all(|object| bytes(object).iter().all(|b| *b == mark))
    };
    std::thread::scope(|s| {
        let threads: Vec<_> = (1..5).map(|mark| s.spawn(move || work(mark))).collect();
        assert!(threads.into_iter().all(|t| t.join().unwrap()));
    });
}

/// Resident pages of the extents of a heap.
fn resident() -> usize {
    let of_extent = |(start, len): (&usize, &usize)| {
        let mut found = vec![0_u8; len / PAGE];
        // SAFETY: the vector has a byte for each page of the mapping.
        assert_eq!(unsafe { libc::mincore(*start as *mut c_void, *len, found.as_mut_ptr()) }, 0);
        found.iter().filter(|page| **page & 1 != 0).count()
    };
    LENGTHS.lock().unwrap().iter().map(of_extent).sum()
}

#[test]
fn pages_are_given_back_whatever_objects_left_in_them() {
    const BYTES: usize = 30_000;
    /// Bytes that the program does not write: padding, for instance.
    const HOLE: core::ops::Range<usize> = 32..64;
    let _alone = ALONE.lock().unwrap();
    let (home, before) = (home(), resident());
    let heap = || home.heap(0).unwrap();
    let mut objects = [0; 300];
    for _ in 0..3 {
        for object in objects.iter_mut().filter(|object| **object == 0) {
            *object = home.allocate(BYTES, 1, false, |_| 0).unwrap();
            // SAFETY: an object of that many bytes.
            unsafe {
                (*object as *mut u8).write_bytes(1, HOLE.start);
                ((*object + HOLE.end) as *mut u8).write_bytes(1, BYTES - HOLE.end);
            }
        }
        for (_, object) in objects.iter_mut().enumerate().filter(|(number, _)| number % 10 != 0) {
            // SAFETY: a live object.
            unsafe { heap().free_here(core::mem::take(object)) };
        }
        // SAFETY: nothing else uses the heap.
        unsafe { (*heap().inner.get()).give_back() };
    }
    let (left, live) = (resident() - before, 30 * BYTES / PAGE);
    assert!(left <= live + live / 2, "{left} pages resident, objects in {live}");
}

/// The lock of a heap that a thread of the parent held during fork is never released.
#[test]
fn another_heap_takes_the_place_of_one_that_no_thread_will_unlock() {
    let _alone = ALONE.lock().unwrap();
    let home = home();
    let object = home.allocate(100, 1, false, |_| 0).unwrap();
    let lost = home.heap(0).unwrap();
    lost.lock.busy.store(fork_wiped::generation() + 1, Ordering::Relaxed);
    let others: Vec<usize> = (0..1000).map(|_| home.allocate(100, 1, false, |_| 0).unwrap()).collect();
    assert!(!ptr::eq(home.heap(0).unwrap(), lost) && home.in_use.load(Ordering::Relaxed) == 1);
    // SAFETY: objects of these heaps.
    unsafe {
        lost.free_here(object);
        others.iter().for_each(|object| home.heap(0).unwrap().free_here(*object));
        assert_eq!((*home.heap(0).unwrap().inner.get()).objects, 0);
    }
}

/// Of locked memory the kernel takes no page.
#[test]
fn free_keeps_errno() {
    let _alone = ALONE.lock().unwrap();
    let home = home();
    let heap = || home.heap(0).unwrap();
    let objects: Vec<usize> = (0..1000).map(|_| home.allocate(4000, 1, false, |_| 0).unwrap()).collect();
    for object in &objects {
        // SAFETY: locks pages that are mapped.
        unsafe { libc::mlock(*object as *const c_void, 4000) };
    }
    errno::set(77);
    for (number, object) in objects.iter().enumerate().filter(|(number, _)| number % 100 != 50) {
        // SAFETY: a live object.
        unsafe { heap().free_here(*object) };
        assert_eq!(errno::get(), 77, "{number}");
    }
    // SAFETY: nothing else uses the heap.
    unsafe { (*heap().inner.get()).give_back() };
    assert_eq!(errno::get(), 77);
}

/// However patient: without the library the memory would have been used.
#[test]
fn a_patient_heap_gives_way_to_what_is_mapped_elsewhere() {
    const COUNT: usize = 40_000;
    let _alone = ALONE.lock().unwrap();
    let (home, before) = (home(), resident());
    let heap = || home.heap(0).unwrap();
    let mut objects: Vec<usize> = Vec::new();
    let is_patient = || resident() - before > COUNT / 2 * 1000 / PAGE;
    // A tenth is left each time, so that the heap is never nearly empty. How long a round takes is the machine's
    // affair.
    for round in 0..400 {
        if round >= 20 && is_patient() {
            break;
        }
        objects.extend((objects.len()..COUNT).map(|_| home.allocate(1000, 1, false, |_| 0).unwrap()));
        // SAFETY: live objects; those of 1,000 bytes are written.
        unsafe {
            objects.iter().for_each(|object| (*object as *mut u8).write_bytes(1, 1000));
            objects.drain(COUNT / 10..).for_each(|object| heap().free_here(object));
        }
    }
    let (now, kept) = (numamma_kernel::clock::coarse_ns(), resident() - before);
    assert!(is_patient(), "with {kept} pages");
    assert!(!heap().release_unused(now) && !heap().release_unused(now));
    crate::rules::heap_account::mapped_elsewhere(COUNT / 2 * 1000);
    assert!(heap().release_unused(now) && resident() - before < kept / 4, "of {kept} pages {}", resident() - before);
    // SAFETY: live objects.
    unsafe { objects.drain(..).for_each(|object| heap().free_here(object)) };
}

/// Allocates and gives up as one thread.
fn allocated(home: &'static Home, size: usize) -> usize {
    home.allocate(size, 1, false, |_| 0).unwrap()
}

fn give_up(object: usize) {
    // SAFETY: a live object, which is given up.
    unsafe { Heap::at(Extent::of(object).heap).give_up(object, |_| 0) };
}

/// A home in which as many objects were freed as make caches worth it; and objects that it has.
fn with_caches() -> (&'static Home, Vec<usize>) {
    let home = home();
    let objects: Vec<usize> = (0..2 * turnover::LEAST).map(|_| allocated(home, 100)).collect();
    (0..turnover::WORTH).for_each(|_| give_up(allocated(home, 100)));
    assert!(home.caches.are_on());
    (home, objects)
}

#[test]
fn freed_objects_are_taken_again_without_the_lock() {
    let _alone = ALONE.lock().unwrap();
    let (home, objects) = with_caches();
    let held = Held::take(home.heap(0).unwrap()).unwrap();
    objects[..3].iter().for_each(|object| give_up(*object));
    assert!(held.0.lock.returned.load(Ordering::Relaxed).is_null(), "they do not wait for the lock");
    let zero = home.allocate(100, 1, true, |_| 0).unwrap();
    let again = [allocated(home, 104), allocated(home, 89)];
    assert_eq!([again[1], again[0], zero], objects[..3], "the last one first");
    // SAFETY: a live object of 100 bytes.
    let bytes = unsafe { core::slice::from_raw_parts(zero as *const u8, 100) };
    assert!(bytes.iter().all(|byte| *byte == 0));
    drop(held);
    // Another size, and an alignment, are not there.
    give_up(again[0]);
    let others = [allocated(home, 200), home.allocate(100, 256, false, |_| 0).unwrap()];
    assert!(!others.contains(&again[0]) && others[1].is_multiple_of(256));
    assert_eq!(allocated(home, 100), again[0]);
    // Freed twice.
    (0..2).for_each(|_| give_up(again[0]));
    assert_ne!(allocated(home, 100), allocated(home, 100));
}

#[test]
fn caches_end_when_most_objects_are_gone() {
    let _alone = ALONE.lock().unwrap();
    let (home, objects) = with_caches();
    objects.iter().for_each(|object| give_up(*object));
    // SAFETY: no other thread uses the heap.
    let left = unsafe { (*home.heap(0).unwrap().inner.get()).objects };
    assert!(left == 0 && !home.caches.are_on(), "{left} objects");
}

#[test]
fn caches_end_when_memory_is_needed() {
    let _alone = ALONE.lock().unwrap();
    let (home, objects) = with_caches();
    // SAFETY: no other thread uses the heap.
    let of_heap = || unsafe { (*home.heap(0).unwrap().inner.get()).objects };
    objects[..4].iter().for_each(|object| give_up(*object));
    let before = of_heap();
    home.heap(0).unwrap().release(Why::Needed);
    assert!(!home.caches.are_on() && of_heap() == before - 4, "{} of {before}", of_heap());
    objects[4..].iter().for_each(|object| give_up(*object));
    assert_eq!(of_heap(), 0);
}

#[test]
fn an_object_is_in_one_cache_at_a_time() {
    const SLOTS: usize = 1000;
    let _alone = ALONE.lock().unwrap();
    let (home, _) = with_caches();
    let slots: Vec<AtomicUsize> = (0..SLOTS).map(|_| AtomicUsize::new(0)).collect();
    let first = |number: usize| move |_| number;
    // Each thread marks what it allocates, puts it where any thread finds it, and frees what was there.
    let work = |number: usize| {
        let (mut random, mut damaged) = (number, 0);
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 33
        };
        let mut free = |object: usize| {
            // SAFETY: a marked object that this thread took out of the slots.
            unsafe {
                let size = (object as *const usize).read();
                damaged += usize::from(((object + size - 8) as *const usize).read_unaligned() != object);
                Heap::at(Extent::of(object).heap).give_up(object, first(number));
            }
        };
        for round in 0..100_000 {
            let size = 16 + next() % 300;
            let object = home.allocate(size, 1, round % 5 == 0, first(number)).unwrap();
            // SAFETY: an object of that many bytes.
            unsafe {
                (object as *mut usize).write(size);
                ((object + size - 8) as *mut usize).write_unaligned(object);
            }
            let before = slots[next() % SLOTS].swap(object, Ordering::AcqRel);
            if before != 0 {
                free(before);
            }
            if round % 10_000 == 0 {
                home.caches.end();
            }
        }
        slots.iter().map(|slot| slot.swap(0, Ordering::AcqRel)).filter(|object| *object != 0).for_each(&mut free);
        damaged
    };
    home.in_use.store(4, Ordering::Relaxed);
    let work = &work;
    let damaged: usize = std::thread::scope(|s| {
        let threads: Vec<_> = (1..5).map(|number| s.spawn(move || work(number))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(damaged, 0);
}

#[test]
fn heaps_are_shared_while_threads_free_each_others_objects() {
    let home = home();
    home.in_use.store(8, Ordering::Relaxed);
    let is_shared = || home.number(|number| if number == Number::OfCpu { 3 } else { 2 }, 0) != 2;
    let samples = |by_another: &[bool]| (0..64).for_each(|n| home.sample(by_another[n % by_another.len()]));
    samples(&[true, false]);
    assert!(!is_shared(), "half of them are not most");
    samples(&[true, true, false]);
    assert!(is_shared());
    samples(&[true, false, false, false]);
    assert!(is_shared(), "a few are enough to go on");
    samples(&[false]);
    assert!(!is_shared());
}

#[test]
fn a_heap_whose_memory_is_free_lends_it_before_another_gets_more() {
    let _alone = ALONE.lock().unwrap();
    let home = home();
    let of = |thread: usize, size| home.allocate(size, 1, false, move |_| thread).unwrap();
    // The heap of the first thread has the objects of all until there is a second one.
    let mut objects: Vec<usize> = (0..80_000).map(|_| of(0, 100)).collect();
    home.in_use.store(2, Ordering::Relaxed);
    let mut others: Vec<usize> = (0..10_000).map(|_| of(1, 100)).collect();
    let mut half = false;
    objects.retain(|object| {
        half = !half;
        if half {
            give_up(*object);
        }
        !half
    });
    let mapped = || -> usize {
        let heaps = (0..2).map(|number| home.heap(number).unwrap());
        // SAFETY: no other thread uses the heaps.
        heaps.map(|heap| unsafe { (*heap.inner.get()).core.allocator().mapped.get() }).sum()
    };
    let before = mapped();
    // SAFETY: live objects.
    let heap = |object: &usize| unsafe { Extent::of(*object).heap.0 };
    others.extend((0..30_000).map(|_| of(1, 100)));
    assert!(mapped() <= before + (1 << 20), "{} bytes more", mapped() - before);
    let lender = heap(&objects[0]);
    assert!(others.iter().filter(|object| heap(object) == lender).count() > 20_000);
    // Without free memory there nothing is lent.
    objects.extend((0..40_000).map(|_| of(0, 100)));
    let before = mapped();
    others.extend((0..30_000).map(|_| of(1, 100)));
    assert!(mapped() > before);
    objects.into_iter().chain(others).for_each(give_up);
}
