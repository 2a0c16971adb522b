//! One pass of the mover over all placed objects.
//!
//! First every object gets its new memory policy, so that pages touched later are allocated by it; then resident pages
//! are moved in bounded steps ([`super::steps`]). A pass compares the placing of each object with the current one of
//! its rule: a phase that begins during a pass makes the mover start another. [`crate::phases::exclusion`] describes
//! what the mover may touch and when.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use numamma_kernel::policy::Mode;
use numamma_kernel::sys::{self, PAGE};
use numamma_kernel::{clock, futex};
use numamma_plan::plan::{Layout, PagePlan};

use super::program_end::program_ended;
use super::steps::{Done, Goal, Pace, step_end};
use crate::matching::pending;
use crate::objects::backing::Kind;
use crate::objects::globals::{self, Global};
use crate::objects::mapping_list::{self, Ticket};
use crate::objects::object::{Object, local_node, mappings_of};
use crate::objects::{heap_table, released, small_objects};
use crate::phases::begin;
use crate::phases::exclusion::{self, Shared, Step};
use crate::place::{Part, apply, counted_calls, mapping_budget, populate, refusals};
use crate::rules::counters::add;
use crate::rules::state::{self, State};

/// Blocks whose policy one step sets, 1.5 to 3.3 us each: shorter than a step that moves pages.
const STEP_BLOCKS: u64 = 256;
/// Longest time between two checks whether the program still runs, ns.
pub const END_CHECK_NS: u64 = 500_000_000;

/// One pass over all placed objects.
pub struct Mover {
    /// The rules and the machine.
    pub state: &'static State,
    /// The state shared with the hooks, which counts requests.
    pub shared: &'static Shared,
    /// Number of requests when the pass began.
    pub seen: u32,
    /// Decides when to rest.
    pub pace: Pace,
    /// Time of the last check whether the program still runs.
    pub end_checked_ns: u64,
    /// An object could not be touched for the moment, so the pass must be repeated.
    pub retry: Cell<bool>,
    /// The program has ended.
    pub program_has_ended: bool,
}

/// The list that an object is in, with what is needed to check that it is still there once a step is published.
#[derive(Clone, Copy)]
enum Owner {
    Heap,
    /// A piece of a mapping, and its pages.
    Mapped(Ticket, Part),
    Global(&'static Global),
}

impl Owner {
    /// Pages of `object` that are placed.
    fn parts(self, object: &Object) -> Vec<Part> {
        match self {
            Owner::Heap => vec![object.whole()],
            Owner::Mapped(_, part) => vec![part],
            Owner::Global(global) => global.parts.clone(),
        }
    }

    /// Pages whose mappings the object has taken from the budget.
    fn counted(self, object: &Object) -> Part {
        match self {
            Owner::Mapped(_, part) => part,
            _ => object.whole(),
        }
    }
}

impl Mover {
    /// Whether a newer request or the end of the program ends this pass.
    pub fn interrupted(&self) -> bool {
        self.program_has_ended || self.shared.requests.load(Ordering::Relaxed) != self.seen || exclusion::stopped()
    }

    /// Runs `work` on `[start, end)` of `object` if that still belongs to `owner`; false when it does not.
    fn step(&self, owner: Owner, object: &Object, start: usize, end: usize, work: impl FnOnce()) -> bool {
        let Some(step) = Step::begin(start, end) else { return false };
        match owner {
            Owner::Mapped(ticket, _) if mapping_list::reliable() && mapping_list::is_unchanged(ticket) => work(),
            Owner::Global(global) if may_touch(global, &step) => work(),
            Owner::Heap => return heap_step(object, None, work),
            Owner::Global(global) => {
                self.retry.set(self.retry.get() || global.object().is_some());
                return false;
            }
            Owner::Mapped(..) => {
                self.retry_pieces();
                return false;
            }
        }
        true
    }

    /// Requests another pass because a mapping was unmapped or cut: its remaining pieces may be at entries that this
    /// pass has visited.
    fn retry_pieces(&self) {
        self.retry.set(self.retry.get() || mapping_list::reliable());
    }

    /// Stores that the object of `owner` changed from `before` to `after`; false when it was released meanwhile.
    fn store(&self, owner: Owner, before: &Object, after: &Object) -> bool {
        match owner {
            Owner::Global(global) => {
                global.set(before, after);
                true
            }
            Owner::Mapped(ticket, _) => {
                let stored = mapping_list::change(ticket, after).is_some();
                if !stored {
                    self.retry_pieces();
                }
                stored
            }
            Owner::Heap => {
                let Some(_step) = Step::begin(before.base, before.base + before.bytes()) else { return false };
                heap_step(before, Some(after), || {})
            }
        }
    }

    /// Calls `visit` with every placed object.
    fn for_each(&mut self, mut visit: impl FnMut(&mut Mover, Owner, Object)) {
        globals::for_each(|global| {
            if let Some(object) = global.object() {
                visit(self, Owner::Global(global), object);
            }
        });
        heap_table::for_each(|object, _| visit(self, Owner::Heap, object));
        mapping_list::for_each_entry(|ticket, piece| {
            visit(self, Owner::Mapped(ticket, piece.part), piece.object);
        });
    }

    /// Sets the current policy for every object whose placing is not the current one of its rule.
    pub fn set_policies(&mut self) {
        self.for_each(|mover, owner, object| _ = mover.set_policy(owner, object));
    }

    /// The current placing of the rule, if the object must change to it.
    fn newer_placing(&self, object: &Object) -> Option<usize> {
        let rule = self.state.rules.get(object.rule)?;
        let follows = !small_objects::owns(object.base) || small_objects::can_follow(rule);
        (rule.current_index() != object.placing && follows && !self.interrupted()).then(|| rule.current_index())
    }

    /// Sets the policy of the current placing for one object; `None` if it stays as it is.
    fn set_policy(&self, owner: Owner, before: Object) -> Option<()> {
        let now = self.newer_placing(&before)?;
        let rule = self.state.rules.get(before.rule)?;
        let (mut after, mut plan) = before.under(self.state, now)?;
        let old = before.mappings(self.state, owner.counted(&before));
        if !mapping_budget::fit_replacing(self.state, before.rule, &mut plan, old) {
            return None;
        }
        after.block = plan.block_pages();
        let set = owner.parts(&before).iter().all(|part| self.set_policy_of(owner, &before, &after, &plan, *part));
        if set && self.store(owner, &before, &after) {
            let counted = mappings_of(&plan, owner.counted(&after));
            self.state.give_mappings(plan.run_count().saturating_sub(counted));
            rule.counters.block.store(plan.block_bytes().unwrap_or(0), Ordering::Relaxed);
            return Some(());
        }
        // If the object was released meanwhile, the releasing thread returned its `old` mappings to the budget.
        self.state.mappings.fetch_add(old as i64 - plan.run_count() as i64, Ordering::Relaxed);
        None
    }

    /// Sets the policy of `plan` for `part` of an object in bounded steps; false when that was not finished.
    fn set_policy_of(&self, owner: Owner, before: &Object, after: &Object, plan: &PagePlan<'_>, part: Part) -> bool {
        let chunk =
            plan.block_bytes().map_or(part.pages, |block| block.saturating_mul(STEP_BLOCKS) / PAGE as u64).max(1);
        let (mut first, end) = (part.first, part.first + part.pages);
        while first < end {
            let part = Part { first, pages: chunk.min(end - first) };
            let at = after.base + first as usize * PAGE;
            let mut done = Ok(());
            let there = self.step(owner, before, at, at + part.pages as usize * PAGE, || {
                done = set_range_policy(plan, after, part);
            });
            if let (Err(error), Some(rule)) = (done, self.state.rules.get(after.rule)) {
                refusals::report(rule.rule.name(), error);
            }
            // A newer request does not stop it: an object between two placings would keep the number of the old one.
            if !there || done.is_err() || self.program_has_ended || exclusion::stopped() {
                return false;
            }
            first += part.pages;
        }
        true
    }

    /// Moves the resident pages of every object whose policy is new.
    pub fn move_all_pages(&mut self) {
        self.for_each(|mover, owner, object| _ = mover.move_pages(owner, object));
    }

    /// Moves the resident pages of one object; `None` unless all are where they belong afterwards.
    fn move_pages(&mut self, owner: Owner, before: Object) -> Option<()> {
        if !before.waiting || self.interrupted() {
            return None;
        }
        let plan = before.plan(self.state)?;
        let goal = Goal::new(&plan, before.base, local_node(&plan, before.node), self.state.machine.thp);
        let goal = goal.with_backing(before.backing);
        if !owner.parts(&before).iter().all(|part| self.move_range(owner, &before, &goal, *part)) {
            return None;
        }
        let after = Object { waiting: false, ..before };
        self.store(owner, &before, &after).then_some(())
    }

    /// Moves the pages of `part` of `object`, step by step with rests; false when that was not finished.
    fn move_range(&mut self, owner: Owner, object: &Object, goal: &Goal<'_>, part: Part) -> bool {
        let statistics = begin::of_rule(self.state, object.rule);
        let mut at = object.base + part.first as usize * PAGE;
        let end = at + part.pages as usize * PAGE;
        while at < end {
            if self.interrupted() {
                return false;
            }
            let stop = step_end(at, end);
            let began = clock::monotonic_ns();
            let mut done = Done::default();
            let there = self.step(owner, object, at, stop, || done = goal.step(at, stop));
            let worked = clock::monotonic_ns().saturating_sub(began);
            if let Some(statistics) = statistics {
                add(&statistics.moved, done.moved);
                add(&statistics.failed, done.failed);
                add(&statistics.worked_ns, worked);
            }
            if !there {
                return false;
            }
            self.rest(worked);
            at = stop;
        }
        true
    }

    /// Rests if enough work was done. Phases whose time has passed begin meanwhile and interrupt the pass.
    fn rest(&mut self, worked_ns: u64) {
        let Some(ns) = self.pace.worked(worked_ns) else { return };
        futex::wait(&self.shared.requests, self.seen, ns);
        if sys::pid() == self.state.pid {
            begin::begin_due();
        }
        let now = clock::monotonic_ns();
        if now.saturating_sub(self.end_checked_ns) > END_CHECK_NS {
            self.end_checked_ns = now;
            self.program_has_ended = program_ended();
        }
    }
}

/// Sets the memory policy of `part` of `object`; resident pages are not moved.
fn set_range_policy(plan: &PagePlan<'_>, object: &Object, part: Part) -> Result<(), i32> {
    let base = object.base;
    let (start, len) = (base + part.first as usize * PAGE, part.pages as usize * PAGE);
    let populates = plan.populates();
    if populates {
        // Populated blocks have no policies; [`Goal::step`] allocates and moves their pages.
        populate::disallow_huge_pages(plan, base, start, len);
    }
    if plan.layout == Layout::Default || populates {
        return counted_calls::mbind(start, len, Mode::Default, &[], false);
    }
    apply::apply(plan, base, part, object.node, false, object.backing.kind == Kind::Shared)
}

/// Whether a global is loaded and cannot be unloaded while `step` lasts.
fn may_touch(global: &Global, step: &Step) -> bool {
    global.program || (step.no_library_unloads() && !pending::is_pending() && global.object().is_some())
}

/// Whether the object now at an address is the one seen before, in the same state.
fn is_same(now: &Object, before: &Object) -> bool {
    (now.rule, now.placing, now.waiting, now.pages) == (before.rule, before.placing, before.waiting, before.pages)
}

/// Runs `work` on a heap object that was `seen` when it was looked up, and stores `after` if it is still there.
fn heap_step(seen: &Object, after: Option<&Object>, work: impl FnOnce()) -> bool {
    let Some(before) = heap_table::begin_step(seen.base) else { return false };
    let same = is_same(&before, seen);
    if same {
        work();
    }
    // realloc may have changed the size within the last page meanwhile.
    let changed = after.filter(|_| same).map(|after| Object { size: before.size, ..*after });
    let after = changed.unwrap_or(before);
    if !heap_table::end_step(&before, &after) {
        // The program freed the object meanwhile. A change counts as made, so the new share of the budget is returned.
        if let Some(state) = state::get() {
            released::examine_and_unmap(state, &after, false);
        }
        return changed.is_some();
    }
    same
}
