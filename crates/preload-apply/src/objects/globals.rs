//! Places globals: from the symbols that a rule names to placed ranges.
//!
//! Only whole pages inside the object are placed, so that neighbouring variables keep their place. Objects are kept in
//! a list that only grows, for the check at exit.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use numamma_kernel::pages;
use numamma_kernel::pages::Residency;

use numamma_hook::say;
use numamma_kernel::sys::PAGE;
use numamma_plan::plan::PagePlan;

use super::backing::Backing;
use super::object::Object;
use crate::matching::elf::{Section, Symbol};
use crate::matching::modules::Loaded;
use crate::matching::name_table::Kind;
use crate::phases::mover_request;
use crate::place::{Part, apply, counted_calls, mapping_budget, refusals};
use crate::rules::counters::add;
use crate::rules::state::{Rule, State};
use crate::threads::thread_nodes;

/// One placed global.
pub struct Global {
    /// The variable as first placed.
    fixed: Object,
    /// Its whole pages.
    pub parts: Vec<Part>,
    /// The variable belongs to the program, which is never unloaded.
    pub program: bool,
    /// Number of the module's load, see [`forget`].
    load: AtomicU64,
    /// waiting 1 | unloaded 1 | placing 8 | block pages 32 (low); written by the mover and by [`forget`].
    state_word: AtomicU64,
    next: *mut Global,
}

const UNLOADED: u64 = 1 << 62;
const WAITING: u64 = 1 << 63;
const BLOCK_BITS: u32 = 32;

impl Global {
    /// The variable in its current state; `None` once its module was unloaded.
    pub fn object(&self) -> Option<Object> {
        let word = self.state_word.load(Ordering::Acquire);
        let (placing, block) = ((word >> BLOCK_BITS & 0xff) as usize, word & ((1 << BLOCK_BITS) - 1));
        (word & UNLOADED == 0).then_some(Object { placing, waiting: word & WAITING != 0, block, ..self.fixed })
    }

    /// Stores that the mover has changed the variable from `before` to `after`.
    pub fn set(&self, before: &Object, after: &Object) {
        // Fails when the module was unloaded meanwhile; its state is not needed any more.
        let _ = self.state_word.compare_exchange(
            pack_state(before),
            pack_state(after),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }
}

/// The fields that change, as one word.
fn pack_state(object: &Object) -> u64 {
    let block = if object.block >> BLOCK_BITS == 0 { object.block } else { 0 };
    (if object.waiting { WAITING } else { 0 }) | (object.placing as u64 & 0xff) << BLOCK_BITS | block
}

static PLACED: AtomicPtr<Global> = AtomicPtr::new(ptr::null_mut());

/// A global that was found and is not placed yet.
pub struct Found {
    rule: usize,
    /// First byte and size in memory.
    start: usize,
    size: u64,
    /// Ranges to place: the whole object, or the unoccupied ranges of a section.
    ranges: Vec<(usize, usize)>,
}

/// Chooses from the symbols with the name of rule `index` those that the rule means.
pub fn choose(state: &State, index: usize, candidates: &[Symbol], module: &Loaded) -> Vec<Found> {
    let Some(Rule { rule, .. }) = state.rules.get(index) else { return Vec::new() };
    let mut candidates = candidates.to_vec();
    candidates.retain(|s| s.kind == Kind::Object);
    candidates.sort_by_key(|s| s.address);
    candidates.dedup_by_key(|s| s.address); // aliases of one variable
    if candidates.len() > 1 {
        let by_address = |s: &Symbol| state.same_build && Some(s.address) == rule.address;
        let by_size = |s: &Symbol| Some(s.size) == rule.size;
        if candidates.iter().any(by_address) {
            candidates.retain(by_address);
        } else if candidates.iter().any(by_size) {
            candidates.retain(by_size);
        }
        if candidates.len() > 1 && state.verbose {
            say!(
                "{} names {} variables; all of them are placed (address or size tells them apart)",
                rule.name(),
                candidates.len()
            );
        }
    }
    let found = |s: &Symbol| {
        let start = module.bias.wrapping_add(s.address as usize);
        let range = rule.bytes();
        if let (Some(range), Some(size)) = (&range, rule.size.filter(|size| *size != s.size)) {
            say!(
                "{}: its range {range} is of a variable of {size} bytes, and this one has {}; it is left where it is",
                rule.name(),
                s.size
            );
            return None;
        }
        let (start, size, ranges) = match range {
            None => (start, s.size, vec![(start, start.saturating_add(s.size as usize))]),
            Some(range) => {
                let pages = range.pages_of(start as u64, s.size, PAGE as u64);
                let pages = pages.map(|(low, high)| (low as usize, high as usize));
                (pages.map_or(start, |p| p.0), range.bytes_of(s.size), Vec::from_iter(pages))
            }
        };
        Some(Found { rule: index, start, size, ranges })
    };
    candidates.iter().filter_map(|s| found(s).or_else(|| count_unplaced(state, index))).collect()
}

/// Counts a variable that is not placed.
fn count_unplaced(state: &State, index: usize) -> Option<Found> {
    let counters = &state.rules.get(index)?.counters;
    counters.found.count(0, 0);
    add(&counters.unplaced, 1);
    None
}

/// The ranges of a section that no variable occupies, for rule `index` that names `.bss` or `.data`.
pub fn of_section(index: usize, section: &Section, module: &Loaded) -> Found {
    let place = |at: u64| module.bias.wrapping_add(at as usize);
    let ranges = section.unoccupied.iter().map(|&(from, to)| (place(from), place(to))).collect();
    Found { rule: index, start: place(section.address), size: section.size, ranges }
}

/// Places globals; all of them together stay within the budget of mappings.
///
/// `load` is a number that no other module has, also not the same file when it is loaded again.
pub fn place_all(state: &'static State, module: &Loaded, load: u64, found: Vec<Found>) {
    let mut placed: Vec<Unplaced> = found.into_iter().filter_map(|f| plan_global(state, module, f)).collect();
    share_budget(state, &mut placed);
    placed.sort_by_key(|u| u.object.base); // neighbours share one query of residency
    let mut residency = Residency::default();
    let unloaded = unloaded();
    for Unplaced { mut object, mut plan, parts } in placed {
        let Some(rule) = state.rules.get(object.rule) else { continue };
        if !mapping_budget::fit(state, object.rule, &mut plan) {
            add(&rule.counters.over_budget, 1);
            add(&rule.counters.unplaced, 1);
            continue;
        }
        if let Some(block) = plan.block_bytes() {
            rule.counters.block.store(block, Ordering::Relaxed);
            object.block = plan.block_pages();
        }
        let done = counted_calls::measure(&rule.counters, || {
            parts.iter().try_for_each(|&part| place_part(module, &plan, object.base, part, &mut residency))
        });
        if let Err(error) = done {
            refusals::report(rule.rule.name(), error);
            add(&rule.counters.unplaced, 1);
            continue;
        }
        if !revive(&unloaded, &object, &parts, load) {
            let (state_word, load) = (AtomicU64::new(pack_state(&object)), AtomicU64::new(load));
            let (program, next) = (module.program, ptr::null_mut());
            push_placed(Box::new(Global { fixed: object, parts, program, load, state_word, next }));
        }
        mover_request::placed(rule, object.placing);
    }
}

/// A variable with a plan that is not applied yet.
struct Unplaced {
    object: Object,
    plan: PagePlan<'static>,
    parts: Vec<Part>,
}

fn plan_global(state: &'static State, module: &Loaded, found: Found) -> Option<Unplaced> {
    let rule = state.rules.get(found.rule)?;
    rule.counters.found.count(0, found.size as usize);
    let base = found.start.next_multiple_of(PAGE);
    let whole = |&(start, end): &(usize, usize)| {
        let (first, last) = (start.next_multiple_of(PAGE), end & !(PAGE - 1));
        (first < last).then(|| Part { first: ((first - base) / PAGE) as u64, pages: ((last - first) / PAGE) as u64 })
    };
    let parts: Vec<Part> = found.ranges.iter().filter_map(whole).collect();
    let pages = parts.last().map_or(0, |p| p.first + p.pages);
    if pages == 0 {
        add(&rule.counters.too_small, 1);
        if state.verbose {
            say!("{}: less than a whole page, left where it is", rule.rule.name());
        }
        return None;
    }
    let writable = module.writable.iter().any(|&(start, _, end)| (start..end).contains(&base));
    if !writable || (module.relro.0..module.relro.1).contains(&base) {
        say!("{}: read-only data of a file stays in the page cache, where no policy reaches it", rule.rule.name());
        add(&rule.counters.out_of_reach, 1);
        add(&rule.counters.unplaced, 1);
        return None;
    }
    let (placing, backing, waiting) = (rule.current_index(), Backing::PRIVATE, false);
    let (node, block, size) = (thread_nodes::EXPECTED, 0, found.size as usize);
    let object = Object { rule: found.rule, placing, waiting, node, block, base, colour: 0, size, pages, backing };
    Some(Unplaced { object, plan: object.plan(state)?, parts })
}

/// If all globals together need more mappings than the budget has, each gets the same share of what it needs.
fn share_budget(state: &State, placed: &mut [Unplaced]) {
    let total: u64 = placed.iter().map(|u| u.plan.run_count()).sum();
    let budget = state.budget().saturating_sub(state.used_mappings());
    if total <= budget {
        return;
    }
    for Unplaced { plan, .. } in placed.iter_mut() {
        // u128: both counts can be as large as the address space has pages.
        let share = (u128::from(plan.run_count()) * u128::from(budget) / u128::from(total.max(1))) as u64;
        plan.coarsen(share.max(plan.nodes.len() as u64));
    }
    say!(
        "the policy's blocks need {total} mappings, more than a quarter of vm.max_map_count ({budget} left): \
         using larger blocks"
    );
}

/// File-backed pages of `.data` exist already, at least in the page cache: each gets a private copy on its planned
/// node. Pages of `.bss` are moved only if one has been touched, because moving makes the kernel drain the page lists
/// of every CPU.
fn place_part(
    module: &Loaded,
    plan: &PagePlan<'_>,
    base: usize,
    part: Part,
    residency: &mut Residency,
) -> Result<(), i32> {
    let segment = module.writable.iter().find(|&&(start, _, end)| (start..end).contains(&base));
    let (file_end, limit) = segment.map_or((0, 0), |&(_, file_end, end)| (file_end.next_multiple_of(PAGE), end));
    let start = base + part.first as usize * PAGE;
    let end = start + part.pages as usize * PAGE;
    let split = file_end.clamp(start, end);
    let split_page = part.first + ((split - start) / PAGE) as u64;
    if split > start {
        let file = Part { first: part.first, pages: split_page - part.first };
        apply::apply(plan, base, file, 0, true, false)?;
        // Without MADV_POPULATE_WRITE (before 5.14) pages that are only read stay in the page cache.
        pages::populate_write(start, split - start);
    }
    let rest = Part { first: split_page, pages: part.first + part.pages - split_page };
    let touched = split < end && residency.any(split, end, limit);
    apply::apply(plan, base, rest, 0, touched, false)
}

fn push_placed(global: Box<Global>) {
    let node = Box::into_raw(global);
    // The closure never refuses, so the result is not needed.
    let _ = PLACED.fetch_update(Ordering::AcqRel, Ordering::Acquire, |head| {
        // SAFETY: no other thread has the node until the exchange publishes it.
        unsafe { (*node).next = head };
        Some(node)
    });
}

/// Calls `visit` with every global that was placed.
pub fn for_each(mut visit: impl FnMut(&'static Global)) {
    let mut at = PLACED.load(Ordering::Acquire);
    // SAFETY: nodes are leaked boxes, published with Release.
    while let Some(global) = unsafe { at.as_ref() } {
        visit(global);
        at = global.next;
    }
}

/// The globals whose modules were unloaded: few, where thousands may be placed.
fn unloaded() -> Vec<&'static Global> {
    let mut unloaded = Vec::new();
    for_each(|global| {
        if global.object().is_none() {
            unloaded.push(global);
        }
    });
    unloaded
}

/// Uses the entry of the same variable at the same address, whose module was unloaded, for module number `load`: a
/// library that is loaded again and again is usually mapped where it was. False when there is none in `unloaded`.
fn revive(unloaded: &[&'static Global], object: &Object, parts: &[Part], load: u64) -> bool {
    unloaded.iter().any(|global| {
        let before = global.load.load(Ordering::Acquire);
        let same = Object { placing: global.fixed.placing, block: global.fixed.block, ..*object } == global.fixed;
        let revived = same
            && global.parts == parts
            && global.object().is_none()
            && global.load.compare_exchange(before, load, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if revived {
            global.state_word.store(pack_state(object), Ordering::Release);
        }
        revived
    })
}

/// Marks the globals of module number `load` as unloaded.
pub fn forget(load: u64) {
    for_each(|global| {
        if global.load.load(Ordering::Acquire) == load {
            global.state_word.fetch_or(UNLOADED, Ordering::AcqRel);
        }
    });
}

/// Checks every placed global whose module is still loaded.
pub fn examine_all(state: &'static State) {
    for_each(|global| {
        if let Some(object) = global.object().filter(|o| numamma_hook::modules::may_be_loaded(o.base)) {
            global.parts.iter().for_each(|&part| object.examine(state, part, true));
        }
    });
}
