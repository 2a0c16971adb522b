//! One pass of the mover over everything that is placed.
//!
//! First every object gets its new memory policy, so that pages that are touched from then on are placed by it; then
//! resident pages are moved in bounded steps ([`super::steps`]). A pass does not follow phases but the difference between an
//! object's placing and the current one of its rule: a phase that begins during a pass makes it start over. What the mover
//! may touch and when: [`crate::phases::exclusion`].

use core::cell::Cell;
use core::sync::atomic::Ordering;

use numamma_kernel::policy::Mode;
use numamma_kernel::sys::{self, PAGE};
use numamma_kernel::{clock, futex};
use numamma_plan::plan::{Layout, PagePlan};

use super::steps::{Done, Goal, Pace, step_end};
use crate::matching::pending;
use crate::objects::globals::{self, Global};
use crate::objects::mapping_list::{self, Ticket};
use crate::objects::object::{Object, local_node, mappings_of};
use crate::objects::{heap, heap_table, small_objects};
use crate::phases::begin;
use crate::phases::exclusion::{self, Shared, Step};
use crate::place::{Part, apply, cost, mapping_budget, populate, refusals};
use crate::rules::counters::add;
use crate::rules::state::State;

/// Blocks that one step gives their policy, 1.5 to 3.3 us each: less than a step of moving pages.
const STEP_BLOCKS: u64 = 256;
/// Longest sleep between two looks whether the program still runs, ns.
pub const LOOK_NS: u64 = 500_000_000;

/// One pass over everything that is placed.
pub struct Mover {
    /// What is placed.
    pub state: &'static State,
    /// Where requests are counted.
    pub shared: &'static Shared,
    /// Requests when it began.
    pub seen: u32,
    /// Work and rest.
    pub pace: Pace,
    /// When it last looked whether the program still runs.
    pub looked_ns: u64,
    /// Something could not be touched for the moment.
    pub again: Cell<bool>,
    /// The program does not.
    pub ended: bool,
}

/// The list an object comes from, and how to know that it is still there once a step is published.
#[derive(Clone, Copy)]
enum Owner {
    Heap,
    /// A piece of a mapping, and its pages.
    Mapped(Ticket, Part),
    Global(&'static Global),
    Extent,
}

impl Owner {
    /// Pages of `object` that are placed.
    fn parts(self, object: &Object) -> Vec<Part> {
        match self {
            Owner::Heap | Owner::Extent => vec![object.whole()],
            Owner::Mapped(_, part) => vec![part],
            Owner::Global(global) => global.parts.clone(),
        }
    }

    /// Pages whose mappings the object has taken out of the budget.
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
        self.ended || self.shared.requests.load(Ordering::Relaxed) != self.seen || exclusion::stopped()
    }

    /// Does `work` on `[start, end)` of `object` if that still belongs to `owner`; false when it does not.
    fn step(&self, owner: Owner, object: &Object, start: usize, end: usize, work: impl FnOnce()) -> bool {
        let Some(step) = Step::begin(start, end) else { return false };
        match owner {
            Owner::Extent => work(),
            Owner::Mapped(ticket, _) if mapping_list::reliable() && mapping_list::still(ticket) => work(),
            Owner::Global(global) if may_touch(global, &step) => work(),
            Owner::Heap => return heap_step(object, None, work),
            Owner::Global(global) => {
                self.again.set(self.again.get() || global.object().is_some());
                return false;
            }
            Owner::Mapped(..) => {
                self.try_pieces_again();
                return false;
            }
        }
        true
    }

    /// A mapping was unmapped or cut: its remaining pieces are entered anew, perhaps where this pass has been already.
    fn try_pieces_again(&self) {
        self.again.set(self.again.get() || mapping_list::reliable());
    }

    /// Stores that the object of `owner` changed from `before` to `after`; false when it was released meanwhile.
    fn store(&self, owner: Owner, before: &Object, after: &Object) -> bool {
        match owner {
            Owner::Extent => true, // stored by the caller
            Owner::Global(global) => {
                global.set(before, after);
                true
            }
            Owner::Mapped(ticket, _) => {
                let stored = mapping_list::change(ticket, after).is_some();
                if !stored {
                    self.try_pieces_again();
                }
                stored
            }
            Owner::Heap => {
                let Some(_step) = Step::begin(before.base, before.base + before.bytes()) else { return false };
                heap_step(before, Some(after), || {})
            }
        }
    }

    /// Calls `visit` with every placed object; what it returns is stored for extents.
    fn for_each(&mut self, mut visit: impl FnMut(&mut Mover, Owner, Object) -> Object) {
        globals::for_each(|global| {
            if let Some(object) = global.object() {
                visit(self, Owner::Global(global), object);
            }
        });
        heap_table::for_each(|object, _| _ = visit(self, Owner::Heap, object));
        mapping_list::for_each_entry(|ticket, piece| {
            visit(self, Owner::Mapped(ticket, piece.part), piece.object);
        });
        small_objects::for_each(|extent| visit(self, Owner::Extent, extent));
    }

    /// Gives every object whose placing is not the current one of its rule the policy of that one.
    pub fn policies(&mut self) {
        self.for_each(|mover, owner, object| mover.set_policy(owner, object).unwrap_or(object));
    }

    /// The current placing of `object`'s rule, if the object is to follow it and does not yet.
    fn newer(&self, owner: Owner, object: &Object) -> Option<usize> {
        let rule = self.state.rules.get(object.rule)?;
        let follows = !matches!(owner, Owner::Extent) || small_objects::can_follow(rule);
        (rule.now() != object.placing && follows && !self.interrupted()).then(|| rule.now())
    }

    /// Gives one object the policy of the current placing; the changed object if that was done.
    fn set_policy(&self, owner: Owner, before: Object) -> Option<Object> {
        let now = self.newer(owner, &before)?;
        let rule = self.state.rules.get(before.rule)?;
        let (mut after, mut plan) = before.under(self.state, now)?;
        let old = before.mappings(self.state, owner.counted(&before));
        if !mapping_budget::fit_instead(self.state, before.rule, &mut plan, old) {
            return None;
        }
        after.block = plan.block_pages().unwrap_or(0);
        let set = owner.parts(&before).iter().all(|part| self.set_policy_of(owner, &before, &after, &plan, *part));
        if set && self.store(owner, &before, &after) {
            let counted = mappings_of(&plan, owner.counted(&after));
            self.state.give_mappings(plan.run_count().saturating_sub(counted));
            rule.counters.block.store(after.block * PAGE as u64, Ordering::Relaxed);
            return Some(after);
        }
        // If the object was released meanwhile, the releasing thread gave back what it had before.
        self.state.mappings.fetch_add(old as i64 - plan.run_count() as i64, Ordering::Relaxed);
        None
    }

    /// Gives `part` of an object the policy of `plan` in bounded steps; false when that was not finished.
    fn set_policy_of(&self, owner: Owner, before: &Object, after: &Object, plan: &PagePlan<'_>, part: Part) -> bool {
        let chunk = plan.block_pages().map_or(part.pages, |block| block.saturating_mul(STEP_BLOCKS)).max(1);
        let (mut first, end) = (part.first, part.first + part.pages);
        while first < end {
            let part = Part { first, pages: chunk.min(end - first) };
            let at = after.base + first as usize * PAGE;
            let mut done = Ok(());
            let there = self.step(owner, before, at, at + part.pages as usize * PAGE, || {
                done = policy(plan, after.base, part, after.node);
            });
            if let (Err(error), Some(rule)) = (done, self.state.rules.get(after.rule)) {
                refusals::report(rule.rule.name(), error);
            }
            if !there || done.is_err() || self.interrupted() {
                return false;
            }
            first += part.pages;
        }
        true
    }

    /// Moves the resident pages of every object whose policy is new.
    pub fn pages(&mut self) {
        self.for_each(|mover, owner, object| mover.move_pages(owner, object).unwrap_or(object));
    }

    /// Moves the resident pages of one object; the changed object when all are where they belong.
    fn move_pages(&mut self, owner: Owner, before: Object) -> Option<Object> {
        if !before.waiting || self.interrupted() {
            return None;
        }
        let plan = before.plan(self.state)?;
        let goal = Goal::new(&plan, before.base, local_node(&plan, before.node), self.state.machine.thp);
        let goal = goal.of(before.backing);
        if !owner.parts(&before).iter().all(|part| self.range(owner, &before, &goal, *part)) {
            return None;
        }
        let after = Object { waiting: false, ..before };
        self.store(owner, &before, &after).then_some(after)
    }

    /// Moves the pages of `part` of `object`, step by step with rests; false when that was not finished.
    fn range(&mut self, owner: Owner, object: &Object, goal: &Goal<'_>, part: Part) -> bool {
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

    /// Rests after enough work; phases whose time has come begin meanwhile, and interrupt.
    fn rest(&mut self, worked_ns: u64) {
        let Some(ns) = self.pace.worked(worked_ns) else { return };
        futex::wait(&self.shared.requests, self.seen, ns);
        if sys::pid() == self.state.pid {
            begin::begin_due();
        }
        let now = clock::monotonic_ns();
        if now.saturating_sub(self.looked_ns) > LOOK_NS {
            self.looked_ns = now;
            self.ended = program_ended();
        }
    }
}

/// Gives `part` of the object at `base` its memory policy; resident pages stay where they are.
fn policy(plan: &PagePlan<'_>, base: usize, part: Part, node: u32) -> Result<(), i32> {
    let (start, len) = (base + part.first as usize * PAGE, part.pages as usize * PAGE);
    let populates = plan.populates();
    if populates {
        // Blocks without a policy each come from moving the pages that exist, see [`Goal::step`].
        populate::keep_apart(plan, base, start, len);
    }
    if plan.layout == Layout::Default || populates {
        return cost::mbind(start, len, Mode::Default, &[], false);
    }
    apply::apply(plan, base, part, node, false)
}

/// Whether a global is there and stays while `step` lasts.
fn may_touch(global: &Global, step: &Step) -> bool {
    global.program || (step.nothing_unloads() && !pending::pending() && global.object().is_some())
}

/// Whether the object at one address is the one it was, in the state it had.
fn is_same(now: &Object, before: &Object) -> bool {
    (now.rule, now.placing, now.waiting, now.pages) == (before.rule, before.placing, before.waiting, before.pages)
}

/// A step on a heap object that was `seen` when it was looked up; stores `after` if it is still there.
fn heap_step(seen: &Object, after: Option<&Object>, work: impl FnOnce()) -> bool {
    let Some(before) = heap_table::begin_step(seen.base) else { return false };
    let same = is_same(&before, seen);
    if same {
        work();
    }
    // Within its last page an object may have been given another size meanwhile.
    let changed = after.filter(|_| same).map(|after| Object { size: before.size, ..*after });
    let after = changed.unwrap_or(before);
    if !heap_table::end_step(&before, &after) {
        // The program freed it meanwhile. A change counts as made: its share of the budget is given back here.
        heap::discard(&after);
        return changed.is_some();
    }
    same
}

/// Main thread and all others have ended by pthread_exit: the process ends with this thread.
pub fn program_ended() -> bool {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold anything; the state follows, and as the 18th field the number of threads.
    let mut fields = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    let zombie = fields.next() == Some("Z");
    let threads = fields.nth(16).and_then(|n| n.parse::<u32>().ok());
    zombie && threads.is_some_and(|n| n <= 2)
}
