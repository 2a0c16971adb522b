//! Globals: from the symbols that a rule names to placed ranges.
//!
//! Only whole pages inside the object are placed, so that neighbours are not dragged along. Objects are kept
//! in a list that only grows, for the check at the end of the run.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use numamma_kernel::pages;
use numamma_kernel::pages::Residency;

use numamma_hook::say;
use numamma_kernel::sys::PAGE;
use numamma_plan::plan::PagePlan;

use crate::matching::elf::{Elf, Kind, Symbol};
use crate::matching::modules::Loaded;
use crate::place::{self, Part};
use crate::state::{Rule, State, add};
use crate::{check, cost, mover};

/// One placed global.
pub struct Global {
    /// Index of the rule.
    pub rule: usize,
    /// Its first whole page.
    pub base: usize,
    /// Bytes of the variable.
    size: u64,
    /// Its whole pages.
    pub parts: Vec<Part>,
    /// It belongs to the program, which is never unloaded.
    pub program: bool,
    plan: PagePlan<'static>,
    /// waiting 1 | unloaded 1 | placing 8 | block pages 32 (low); written by the mover and by [`forget`].
    standing: AtomicU64,
    next: *mut Global,
}

const UNLOADED: u64 = 1 << 62;
const WAITING: u64 = 1 << 63;
const BLOCK_BITS: u32 = 32;

/// How a global is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Index of the rule's placing its memory policy is that of.
    pub placing: usize,
    /// Its policy is that of `placing`, but not all of its pages have been moved yet.
    pub waiting: bool,
    /// Pages per block, 0 when the layout has none.
    pub block: u64,
}

impl Standing {
    fn word(self) -> u64 {
        let block = if self.block >> BLOCK_BITS == 0 { self.block } else { 0 };
        (if self.waiting { WAITING } else { 0 }) | (self.placing as u64 & 0xff) << BLOCK_BITS | block
    }
}

impl Global {
    /// How it is placed; `None` once its module was unloaded.
    pub fn standing(&self) -> Option<Standing> {
        let word = self.standing.load(Ordering::Acquire);
        let block = word & ((1 << BLOCK_BITS) - 1);
        (word & UNLOADED == 0).then_some(Standing {
            placing: (word >> BLOCK_BITS & 0xff) as usize,
            waiting: word & WAITING != 0,
            block,
        })
    }

    /// The mover has brought it from `before` to `after`.
    pub fn set(&self, before: Standing, after: Standing) {
        // Fails when the module was unloaded meanwhile: then there is nothing to remember.
        let _ = self.standing.compare_exchange(before.word(), after.word(), Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The plan of place number `placing`, with blocks of `block` pages if that is not 0.
    pub fn plan(&self, state: &'static State, placing: usize, block: u64) -> Option<PagePlan<'static>> {
        let mut plan = state.plan(self.rule, placing, self.size, self.plan.pages)?;
        plan.set_block_pages(block);
        Some(plan)
    }
}

static PLACED: AtomicPtr<Global> = AtomicPtr::new(ptr::null_mut());

/// A global that was found and not placed yet.
pub struct Found {
    rule: usize,
    /// First byte and size in memory.
    start: usize,
    size: u64,
    /// Ranges to place: the whole object, or what is left of a section.
    ranges: Vec<(usize, usize)>,
}

/// Picks from the symbols that carry the name of rule `index` those that it means.
pub fn choose(state: &State, index: usize, mut candidates: Vec<Symbol>, module: &Loaded) -> Vec<Found> {
    let Some(Rule { rule, .. }) = state.rules.get(index) else { return Vec::new() };
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
        Found { rule: index, start, size: s.size, ranges: vec![(start, start.saturating_add(s.size as usize))] }
    };
    candidates.iter().map(found).collect()
}

/// What no variable of the section occupies, for a rule that names `.bss` or `.data`.
pub fn remainder(index: usize, name: &[u8], elf: &Elf, module: &Loaded) -> Option<Found> {
    let (address, size) = elf.section(name)?;
    let end = address.checked_add(size)?;
    let mut taken = Vec::new();
    elf.symbols(|s| {
        if s.kind == Kind::Object && s.address < end && s.address.saturating_add(s.size) > address {
            taken.push((s.address, s.address.saturating_add(s.size)));
        }
    });
    taken.sort_unstable();
    let place = |at: u64| module.bias.wrapping_add(at as usize);
    let (mut ranges, mut at) = (Vec::new(), address);
    for (from, to) in taken.into_iter().chain([(end, end)]) {
        if from > at {
            ranges.push((place(at), place(from)));
        }
        at = at.max(to);
    }
    Some(Found { rule: index, start: place(address), size, ranges })
}

/// Places what was found; together within the budget of mappings.
pub fn place_all(state: &'static State, module: &Loaded, found: Vec<Found>) {
    let mut placed: Vec<Box<Global>> = found.into_iter().filter_map(|f| plan_one(state, module, f)).collect();
    share_budget(state, &mut placed);
    placed.sort_by_key(|g| g.base); // so that neighbours share what is known of their residency
    let mut residency = Residency::new();
    for mut global in placed {
        let Some(rule) = state.rules.get(global.rule) else { continue };
        if !place::fit(state, global.rule, &mut global.plan) {
            add(&rule.counters.over_budget, 1);
            add(&rule.counters.unplaced, 1);
            continue;
        }
        if let Some(block) = global.plan.block_pages() {
            rule.counters.block.store(block * PAGE as u64, Ordering::Relaxed);
            let known = global.standing().unwrap_or(Standing { placing: 0, waiting: false, block });
            global.standing = AtomicU64::new(Standing { block, ..known }.word());
        }
        let mut parts = global.parts.iter();
        let done = cost::measure(&rule.counters, || {
            parts.try_for_each(|&part| place_part(module, &global, part, &mut residency))
        });
        if let Err(error) = done {
            place::refused(rule.rule.name(), error);
            add(&rule.counters.unplaced, 1);
            continue;
        }
        let placing = global.standing().map(|s| s.placing);
        remember(global);
        // A phase that began in between may have been over the list already.
        if placing != Some(rule.now()) {
            mover::request();
        }
    }
}

fn plan_one(state: &'static State, module: &Loaded, found: Found) -> Option<Box<Global>> {
    let rule = state.rules.get(found.rule)?;
    add(&rule.counters.instances, 1);
    add(&rule.counters.bytes, found.size);
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
    let placing = rule.now();
    let plan = state.plan(found.rule, placing, found.size, pages)?;
    let standing = AtomicU64::new(Standing { placing, waiting: false, block: 0 }.word());
    let (size, program) = (found.size, module.program);
    Some(Box::new(Global { rule: found.rule, base, size, parts, program, plan, standing, next: ptr::null_mut() }))
}

/// When all globals together want more mappings than there are, each gives up the same share.
fn share_budget(state: &State, placed: &mut [Box<Global>]) {
    let total: u64 = placed.iter().map(|g| g.plan.run_count()).sum();
    let budget = state.budget().saturating_sub(state.used_mappings());
    if total <= budget {
        return;
    }
    for global in placed.iter_mut() {
        // u128: both counts can be as large as the address space has pages.
        let share = (u128::from(global.plan.run_count()) * u128::from(budget) / u128::from(total.max(1))) as u64;
        global.plan.coarsen(share.max(global.plan.nodes.len() as u64));
    }
    say!(
        "the policy's blocks need {total} mappings, more than a quarter of vm.max_map_count ({budget} left): using larger blocks"
    );
}

/// The file-backed pages of `.data` are there already, at least in the page cache: they get their own copies,
/// each where the plan wants it. Pages of `.bss` are moved only if something has touched them, because moving
/// makes the kernel drain every CPU's page lists.
fn place_part(module: &Loaded, global: &Global, part: Part, residency: &mut Residency) -> Result<(), i32> {
    let segment = module.writable.iter().find(|&&(start, _, end)| (start..end).contains(&global.base));
    let (file_end, limit) = segment.map_or((0, 0), |&(_, file_end, end)| (file_end.next_multiple_of(PAGE), end));
    let start = global.base + part.first as usize * PAGE;
    let end = start + part.pages as usize * PAGE;
    let split = file_end.clamp(start, end);
    let split_page = part.first + ((split - start) / PAGE) as u64;
    if split > start {
        let file = Part { first: part.first, pages: split_page - part.first };
        place::apply(&global.plan, global.base, file, 0, true)?;
        // Without MADV_POPULATE_WRITE (before 5.14) pages that are only read stay in the page cache.
        pages::populate_write(start, split - start);
    }
    let rest = Part { first: split_page, pages: part.first + part.pages - split_page };
    let touched = split < end && residency.any(split, end, limit);
    place::apply(&global.plan, global.base, rest, 0, touched)
}

fn remember(global: Box<Global>) {
    let node = Box::into_raw(global);
    let mut head = PLACED.load(Ordering::Acquire);
    loop {
        // SAFETY: the node is ours until the exchange publishes it.
        unsafe { (*node).next = head };
        match PLACED.compare_exchange_weak(head, node, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
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

/// What lies in `[start, end)` was unloaded.
pub fn forget(start: usize, end: usize) {
    for_each(|global| {
        if (start..end).contains(&global.base) {
            global.standing.fetch_or(UNLOADED, Ordering::AcqRel);
        }
    });
}

/// Checks every placed global whose module is still loaded.
pub fn examine_all(state: &'static State) {
    for_each(|global| {
        let (Some(rule), Some(standing)) = (state.rules.get(global.rule), global.standing()) else { return };
        if numamma_hook::modules::find(global.base).is_none() {
            return;
        }
        let late = standing.placing != rule.now();
        let plan = global.plan(state, rule.now(), if late { 0 } else { standing.block });
        for &part in &global.parts {
            if let Some(plan) = &plan {
                check::examine(plan, global.base, part, 0, late || standing.waiting, &rule.counters);
            }
        }
    });
}
