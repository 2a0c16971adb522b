//! Small objects of matched call sites: linked structures, rows, tables of strings.
//!
//! An object of less than a page cannot have pages of its own, so each rule (for `local`, each node of a rule) has a
//! home of its own for them: extents of 2 MiB, placed like any object before they are touched, cut into slabs of one
//! object size. Where the plan follows the object's own offsets (block, skew, map ...) there is nothing to follow, and
//! small objects stay where the real allocator puts them.
//!
//! Never waits: an allocation takes one of a few shards by a lock that it only tries, and goes to the real allocator when
//! all are busy (also for ever, in a child that was forked while a lock was held). Freed objects are pushed on a list
//! without a lock, by any thread, and taken back all at once by the next allocation of their size: no ABA. The address
//! alone tells whose an object is, by its slab.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use numamma_kernel::mappings;

use numamma_kernel::sys::PAGE;
use numamma_plan::plan::PagePlan;
use numamma_plan::policy::PolicyKind;

use crate::place::{self, Part};
use crate::state::{Rule, State};
use crate::{binding, check, cost, mover};

/// Address space set aside, once the first small object is to be placed. Not memory: nothing is readable before it is
/// handed out. Where that much is refused (`ulimit -v`), small objects are not placed.
const REGION: usize = 64 << 30;
/// Placed at a time: a huge page, so that the system may use one.
const EXTENT: usize = 2 << 20;
/// Holds objects of one size.
const SLAB: usize = 64 << 10;
/// Parts of a home with a lock each.
const SHARDS: usize = 8;
/// Shards tried before the real allocator is asked.
const TRIES: usize = 3;
/// Alignment of every object, that of malloc on x86_64.
pub const ALIGN: usize = 16;
/// Object sizes: steps of 16 to 256, then four to each doubling, up to a page.
const SIZES: [u16; 32] = [
    16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 320, 384, 448, 512, 640, 768, 896, 1024,
    1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096,
];

/// Start of the region, and its length once it is there: until then nothing is inside.
static BASE: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);
/// Nobody asks twice for what was refused.
static REFUSED: AtomicBool = AtomicBool::new(false);
static RESERVING: AtomicBool = AtomicBool::new(false);
/// Bytes of the region handed out.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// For each slab its heap's address and, in the low bits, its size class; 0: not in use. Behind a mapping of its own.
static SLABS: AtomicPtr<AtomicUsize> = AtomicPtr::new(ptr::null_mut());
/// For each extent, 0 while not in use: waiting 1 | placing 8 | node 16 | rule index + 1 32 (low). See [`Extent`].
static EXTENTS: [AtomicU64; REGION / EXTENT] = [const { AtomicU64::new(0) }; REGION / EXTENT];

const _: () = assert!(SIZES.len() <= 64 && align_of::<Heap>() >= 64, "a class fits below a heap's address");

/// A freed object.
struct Free {
    next: *mut Free,
}

/// Objects of one size: what was taken back, and the rest of the current slab.
#[derive(Clone, Copy)]
struct Class {
    free: *mut Free,
    next: usize,
    end: usize,
}

/// One shard.
#[repr(align(64))]
struct Heap {
    busy: AtomicBool,
    classes: UnsafeCell<[Class; SIZES.len()]>,
    returned: [AtomicPtr<Free>; SIZES.len()],
}

// SAFETY: `classes` is only touched by whoever holds `busy`.
unsafe impl Sync for Heap {}

/// An extent: memory that is never unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Index of the rule.
    pub rule: usize,
    /// Node of a `local` one.
    pub node: u32,
    /// Index of the rule's placing its memory policy is that of.
    pub placing: usize,
    /// Its policy is that of `placing`, but not all of its pages have been moved yet.
    pub waiting: bool,
}

impl Extent {
    fn word(self) -> u64 {
        (if self.waiting { 1 << 63 } else { 0 })
            | (self.placing as u64 & 0xff) << 48
            | u64::from(self.node & 0xffff) << 32
            | (self.rule as u64 + 1)
    }

    fn from_word(word: u64) -> Option<Extent> {
        let rule = (word as u32 as usize).checked_sub(1)?;
        let (node, placing) = ((word >> 32 & 0xffff) as u32, (word >> 48 & 0xff) as usize);
        Some(Extent { rule, node, placing, waiting: word >> 63 == 1 })
    }

    /// The plan of its placing.
    pub fn plan(self, state: &'static State) -> Option<PagePlan<'static>> {
        state.plan(self.rule, self.placing, EXTENT as u64, (EXTENT / PAGE) as u64)
    }
}

/// Calls `visit` with the address of every extent; what it returns is what the extent is from then on. Only the mover
/// changes extents.
pub fn for_each(mut visit: impl FnMut(usize, Extent) -> Extent) {
    let base = BASE.load(Ordering::Relaxed);
    for (number, word) in EXTENTS.iter().enumerate().take(NEXT.load(Ordering::Acquire).min(REGION) / EXTENT) {
        if let Some(before) = Extent::from_word(word.load(Ordering::Acquire)) {
            let after = visit(base + number * EXTENT, before);
            word.store(after.word(), Ordering::Release);
        }
    }
}

/// Bytes of an extent.
pub const EXTENT_BYTES: usize = EXTENT;

/// Where the small objects of one placing of a rule go (for `local`: those of one node).
pub struct Home {
    rule: usize,
    placing: usize,
    node: u32,
    /// Next slab of the current extent; a multiple of [`EXTENT`]: none is left.
    cursor: AtomicUsize,
    shards: [Heap; SHARDS],
}

/// Homes of a rule: one, or one for each node of its list.
pub type Homes = Vec<AtomicPtr<Home>>;

/// As many homes as a rule may need; they are built when first used.
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

/// Whether `address` is an object (or at least in the region) of ours.
#[inline(always)]
pub fn owns(address: usize) -> bool {
    address.wrapping_sub(BASE.load(Ordering::Relaxed)) < LENGTH.load(Ordering::Relaxed)
}

/// A small object under rule `index`, aligned to [`ALIGN`]; its contents are whatever they are.
pub fn allocate(state: &'static State, index: usize, size: usize) -> Option<usize> {
    let class = SIZES.iter().position(|s| usize::from(*s) >= size)?;
    let home = home(state, index)?;
    let first = binding::thread_number();
    (0..TRIES).find_map(|step| {
        let heap = &home.shards[(first + step) % SHARDS];
        let _held = Held::take(heap)?;
        // SAFETY: the lock is held.
        unsafe { heap.object(class, home, state) }
    })
}

/// Bytes an object can hold.
pub fn usable(address: usize) -> usize {
    slab(address).map_or(0, |(_, class)| usize::from(SIZES[class]))
}

/// Rule of an object.
pub fn rule_of(address: usize) -> Option<usize> {
    let extent = EXTENTS.get(address.wrapping_sub(BASE.load(Ordering::Relaxed)) / EXTENT)?.load(Ordering::Acquire);
    Some(Extent::from_word(extent)?.rule)
}

/// Takes an object back, from any thread.
///
/// # Safety
/// A live object of ours, which the program gives up.
pub unsafe fn release(address: usize) {
    let Some((heap, class)) = slab(address) else { return };
    let object = address as *mut Free;
    let list = &heap.returned[class];
    let mut head = list.load(Ordering::Relaxed);
    loop {
        // SAFETY: the object is nobody's any more and at least as large as a pointer.
        unsafe { object.write(Free { next: head }) };
        // Release: whoever takes the list sees the link.
        match list.compare_exchange_weak(head, object, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Checks the pages of every extent: whole ones, since the system may have put a huge page there. Extents stay in the place
/// they have, when the one that holds now has none for small objects.
pub fn examine_all(state: &'static State) {
    for_each(|start, extent| {
        if let (Some(rule), Some(plan)) = (state.rules.get(extent.rule), extent.plan(state)) {
            let late = extent.waiting || (extent.placing != rule.now() && can_follow(rule));
            check::examine(&plan, start, Part { first: 0, pages: plan.pages }, extent.node, late, &rule.counters);
        }
        extent
    });
}

/// Whether extents can go where the rule's place is now: it must have one home for all small objects.
pub fn can_follow(rule: &Rule) -> bool {
    rule.placing().is_some_and(|p| p.homes.len() == 1 && p.place.policy != PolicyKind::Local)
}

/// Heap and size class of the slab at `address`.
fn slab(address: usize) -> Option<(&'static Heap, usize)> {
    let offset = address.wrapping_sub(BASE.load(Ordering::Relaxed));
    let table = SLABS.load(Ordering::Acquire);
    if table.is_null() || offset >= REGION {
        return None;
    }
    // SAFETY: the table has a word for every slab of the region and is never unmapped.
    let word = unsafe { (*table.add(offset / SLAB)).load(Ordering::Acquire) };
    // SAFETY: a word that is not 0 holds the address of a leaked heap, above its low bits.
    let heap = unsafe { ((word & !63) as *const Heap).as_ref() }?;
    Some((heap, (word & 63).min(SIZES.len() - 1)))
}

fn home(state: &'static State, index: usize) -> Option<&'static Home> {
    let rule: &Rule = state.rules.get(index)?;
    let now = rule.now();
    let placing = rule.placings.get(now)?;
    let (place, node) = match placing.place.policy {
        PolicyKind::Local => {
            let node = binding::local_node(state, &placing.nodes);
            (placing.nodes.iter().position(|n| *n == node)?, node)
        }
        _ => (0, 0),
    };
    let cell = placing.homes.get(place)?;
    let found = cell.load(Ordering::Acquire);
    // SAFETY: null, or a leaked box that was published with Release.
    if let Some(home) = unsafe { found.as_ref() } {
        return Some(home);
    }
    let fresh = Box::into_raw(Box::new(Home {
        rule: index,
        placing: now,
        node,
        cursor: AtomicUsize::new(0),
        shards: [const { Heap::empty() }; SHARDS],
    }));
    // The loser of a race leaves a few KiB unused.
    let home = match cell.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(first) => first,
    };
    // SAFETY: as above.
    unsafe { home.as_ref() }
}

/// The lock of a heap, while it lives.
struct Held<'a>(&'a Heap);

impl<'a> Held<'a> {
    fn take(heap: &'a Heap) -> Option<Held<'a>> {
        // A swap when it is likely to be free only: a line that all write to is slow.
        let free = !heap.busy.load(Ordering::Relaxed) && !heap.busy.swap(true, Ordering::Acquire);
        // Not then_some: a Held that is made and dropped would unlock.
        free.then(|| Held(heap))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

impl Heap {
    const fn empty() -> Heap {
        Heap {
            busy: AtomicBool::new(false),
            classes: UnsafeCell::new([Class { free: ptr::null_mut(), next: 0, end: 0 }; SIZES.len()]),
            returned: [const { AtomicPtr::new(ptr::null_mut()) }; SIZES.len()],
        }
    }

    /// # Safety
    /// The caller holds the lock.
    unsafe fn object(&'static self, class: usize, home: &'static Home, state: &'static State) -> Option<usize> {
        // SAFETY: the lock is held, so nobody else has a reference.
        let Class { free, next, end } = unsafe { (*self.classes.get()).get_mut(class)? };
        if free.is_null() {
            // Acquire pairs with the Release of the pushes; the whole list is ours from here on.
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
            *next = home.slab(state, self, class)?;
            *end = *next + SLAB;
        }
        let address = *next;
        *next += size;
        Some(address)
    }
}

impl Home {
    /// A fresh slab for `heap`.
    fn slab(&self, state: &'static State, heap: &'static Heap, class: usize) -> Option<usize> {
        let mut at = self.cursor.load(Ordering::Relaxed);
        let slab = loop {
            let (slab, fresh) = match at.is_multiple_of(EXTENT) {
                true => (extent(state, self)?, true),
                false => (at, false),
            };
            match self.cursor.compare_exchange(at, slab + SLAB, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break slab,
                // Another shard has brought an extent, too: of ours only this slab is used.
                Err(_) if fresh => break slab,
                Err(now) => at = now,
            }
        };
        let number = (slab - BASE.load(Ordering::Relaxed)) / SLAB;
        // SAFETY: the table was mapped before the region was published, with a word for every slab.
        let word = unsafe { &*SLABS.load(Ordering::Acquire).add(number) };
        word.store(ptr::from_ref(heap) as usize | class, Ordering::Release);
        Some(slab)
    }
}

/// The next extent, readable, writable and placed.
fn extent(state: &'static State, home: &Home) -> Option<usize> {
    let Home { rule: index, placing, node, .. } = *home;
    if REFUSED.load(Ordering::Relaxed) || !(LENGTH.load(Ordering::Acquire) > 0 || reserve()) {
        return None;
    }
    let at = NEXT.fetch_add(EXTENT, Ordering::AcqRel);
    if at + EXTENT > REGION {
        NEXT.fetch_sub(EXTENT, Ordering::AcqRel);
        return None;
    }
    let start = BASE.load(Ordering::Relaxed) + at;
    let rule = state.rules.get(index)?;
    let fresh = Extent { rule: index, node, placing, waiting: false };
    let mut plan = fresh.plan(state)?;
    let part = Part { first: 0, pages: plan.pages };
    let done = if place::fit(state, index, &mut plan) && mappings::make_usable(start, EXTENT) {
        cost::measure(&rule.counters, || place::apply(&plan, start, part, node, false))
    } else {
        Err(libc::ENOMEM)
    };
    if let Err(error) = done {
        REFUSED.store(true, Ordering::Relaxed);
        place::refused(rule.rule.name(), error);
        return None;
    }
    EXTENTS.get(at / EXTENT)?.store(fresh.word(), Ordering::Release);
    // A phase that began in between may have been over the extents already.
    if state.rules.get(index).is_some_and(|r| r.now() != placing) {
        mover::request();
    }
    Some(start)
}

/// Sets the region and the table of slabs aside. False while another thread does it, and when it is refused.
#[cold]
fn reserve() -> bool {
    if RESERVING.swap(true, Ordering::AcqRel) {
        return LENGTH.load(Ordering::Acquire) > 0;
    }
    let table = mappings::reserve(REGION / SLAB * size_of::<AtomicUsize>());
    let (Some(table), Some(region)) = (table, mappings::reserve(REGION + EXTENT)) else {
        REFUSED.store(true, Ordering::Relaxed);
        return false;
    };
    if !mappings::make_usable(table, REGION / SLAB * size_of::<AtomicUsize>()) {
        REFUSED.store(true, Ordering::Relaxed);
        return false;
    }
    SLABS.store(table as *mut c_void as *mut AtomicUsize, Ordering::Release);
    BASE.store(region.next_multiple_of(EXTENT), Ordering::Relaxed);
    // Release: who sees the length sees base and table.
    LENGTH.store(REGION, Ordering::Release);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_waste_little_and_cover_a_page() {
        assert!(SIZES.windows(2).all(|w| w[0] < w[1] && w[1].is_multiple_of(ALIGN as u16)));
        assert!(SIZES.windows(2).skip(4).all(|w| f64::from(w[1]) <= 1.26 * f64::from(w[0])));
        assert_eq!(usize::from(SIZES[SIZES.len() - 1]), PAGE);
    }

    #[test]
    fn nothing_is_owned_before_there_is_a_region() {
        assert!(!owns(0) && !owns(0x1000) && !owns(usize::MAX));
        assert_eq!(usable(0x1000), 0);
    }
}
