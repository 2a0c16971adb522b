//! What the background thread ([`crate::mover`]) does: it brings what is there already to the place that holds now.
//!
//! First every object gets its new memory policy, so that pages that are touched from then on go right; then resident pages are
//! moved in bounded steps ([`crate::steps`]). It does not follow phases but the difference between the place an object has and the one that holds for its rule: a phase that begins
//! meanwhile makes it start over, and what the older one wanted is forgotten where the newer one wants something else.
//! What it may touch and when: [`crate::gate`].

use crate::cost;
use core::cell::Cell;
use core::sync::atomic::Ordering;
use numamma_kernel::policy::Mode;
use numamma_kernel::{clock, futex};

use numamma_kernel::sys::{self, PAGE};
use numamma_plan::plan::{Layout, PagePlan};

use crate::arena::{self, EXTENT_BYTES, Extent};
use crate::gate::{self, Shared, Step};
use crate::globals::{self, Global, Standing};
use crate::mapped::{self, Mapped, Ticket};
use crate::matching::resolve;
use crate::mover::{LOOK_NS, program_ended};
use crate::place::{self, Part};
use crate::state::{State, add};
use crate::steps::{Done, Goal, Pace, step_end};
use crate::table::{self, Placed};
use crate::{heap, maps, observed, phases, populate};

/// Blocks that one step gives their policy, 1.5 to 3.3 us each: less than a step of moving pages.
const STEP_BLOCKS: u64 = 256;

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

/// What is about to be touched, and how to know that it is still there once the step is published.
enum Owner {
    Heap(Placed),
    Mapped(Ticket),
    Global(&'static Global),
    Extent,
}

impl Mover {
    /// Something newer is wanted, or nothing any more.
    pub fn interrupted(&self) -> bool {
        self.ended || self.shared.requests.load(Ordering::Relaxed) != self.seen || gate::stopped()
    }

    /// Does `work` on `[start, end)` if that still belongs to `owner`; false when it does not.
    fn step(&self, owner: &Owner, start: usize, end: usize, work: impl FnOnce()) -> bool {
        let Some(step) = Step::begin(start, end) else { return false };
        match owner {
            Owner::Extent => work(),
            Owner::Mapped(ticket) if mapped::reliable() && mapped::still(*ticket) => work(),
            Owner::Global(global) if may_touch(global, &step) => work(),
            Owner::Heap(placed) => return heap_step(placed, work),
            Owner::Global(global) => {
                self.again.set(self.again.get() || global.standing().is_some());
                return false;
            }
            Owner::Mapped(_) => {
                self.cut();
                return false;
            }
        }
        true
    }

    /// A mapping went or was cut: what is left of it is entered anew, perhaps where this pass has been already.
    fn cut(&self) {
        self.again.set(self.again.get() || mapped::reliable());
    }

    /// Gives everything whose place is not the one that holds now the policy of that one.
    pub fn policies(&mut self) {
        globals::for_each(|global| self.global_policy(global));
        table::for_each(|placed| self.heap_policy(&placed));
        mapped::for_each_entry(|ticket, m| self.mapped_policy(ticket, m));
        arena::for_each(|start, extent| self.extent_policy(start, extent));
    }

    /// The placing that holds now for `rule`, if it is another than `placing`.
    fn newer(&self, rule: usize, placing: usize) -> Option<usize> {
        let now = self.state.rules.get(rule)?.now();
        (now != placing && !self.interrupted()).then_some(now)
    }

    fn global_policy(&self, global: &'static Global) {
        let Some(before) = global.standing() else { return };
        let Some(now) = self.newer(global.rule, before.placing) else { return };
        let Some(mut plan) = global.plan(self.state, now, 0) else { return };
        let old = global.plan(self.state, before.placing, before.block).map_or(0, |p| p.run_count());
        let last = global.parts.last().map_or(0, |p| p.first + p.pages);
        let mut after = None;
        self.step(&Owner::Global(global), global.base, global.base + last as usize * PAGE, || {
            let set = |plan: &PagePlan<'_>| global.parts.iter().try_for_each(|p| policy(plan, global.base, *p, 0));
            if self.exchange(global.rule, &mut plan, old, set) {
                let block = plan.block_pages().unwrap_or(0);
                after = Some(Standing { placing: now, waiting: plan.layout != Layout::Default, block });
            }
        });
        if let Some(after) = after {
            global.set(before, after);
        }
    }

    fn heap_policy(&self, seen: &Placed) {
        let Some(now) = self.newer(seen.rule, seen.placing) else { return };
        let Some(step) = Step::begin(seen.address, seen.address + seen.mapped()) else { return };
        let Some(before) = table::begin_step(seen.address) else { return };
        let mut after = before;
        let old = heap::plan_of(self.state, &before).map_or(0, |p| p.run_count());
        let pages = (before.mapped() / PAGE) as u64;
        // Another object than the one seen before has come by the place that holds now, or is met again.
        let same = before.rule == seen.rule && before.placing == seen.placing;
        let plan = self.state.plan(before.rule, now, before.size as u64, pages).filter(|_| same);
        if let Some(mut plan) = plan {
            let Some(rule) = self.state.rules.get(before.rule) else { return };
            let node = observed::moved_node(rule, now, before.node);
            observed::apply(&mut plan, rule, now, node);
            let node = local(&plan, node);
            let set = |plan: &PagePlan<'_>| policy(plan, before.address, Part { first: 0, pages }, node);
            if self.exchange(before.rule, &mut plan, old, set) {
                let (block, waiting) = (plan.block_pages().unwrap_or(0), plan.layout != Layout::Default);
                after = Placed { placing: now, node, block, waiting, ..before };
            }
        }
        if !table::end_step(&before, &after) {
            heap::discard(&after);
        }
        drop(step);
    }

    /// Sets a policy and keeps the budget of mappings, of which the old plan had `old`.
    fn exchange(
        &self,
        rule: usize,
        plan: &mut PagePlan<'_>,
        old: u64,
        set: impl FnOnce(&PagePlan<'_>) -> Result<(), i32>,
    ) -> bool {
        let Some(found) = self.state.rules.get(rule) else { return false };
        if !place::fit_instead(self.state, rule, plan, old) {
            return false;
        }
        if let Err(error) = set(plan) {
            place::refused(found.rule.name(), error);
            self.state.mappings.fetch_add(old as i64 - plan.run_count() as i64, Ordering::Relaxed);
            return false;
        }
        found.counters.block.store(plan.block_pages().unwrap_or(0) * PAGE as u64, Ordering::Relaxed);
        true
    }

    fn mapped_policy(&self, ticket: Ticket, m: Mapped) {
        let Some(now) = self.newer(m.rule, m.placing) else { return };
        let Some(rule) = self.state.rules.get(m.rule) else { return };
        let next = Mapped { placing: now, block: 0, node: observed::moved_node(rule, now, m.node), ..m };
        let Some(mut plan) = maps::plan_of(self.state, &next) else { return };
        let node = local(&plan, next.node);
        let old = maps::share(self.state, &m);
        if !place::fit_instead(self.state, m.rule, &mut plan, old) {
            return;
        }
        let (block, waiting) = (plan.block_pages().unwrap_or(0), plan.layout != Layout::Default);
        let next = Mapped { node, block, waiting, ..next };
        let set = self.mapped_blocks(ticket, &next, &plan);
        if set && mapped::change(ticket, &next).is_some() {
            self.state.give_mappings(plan.run_count().saturating_sub(maps::share_of(&plan, next.part())));
            rule.counters.block.store(block * PAGE as u64, Ordering::Relaxed);
        } else {
            // When it went meanwhile, what it had was given back by whoever took it.
            self.state.mappings.fetch_add(old as i64 - plan.run_count() as i64, Ordering::Relaxed);
            if set {
                self.cut();
            }
        }
    }

    /// Gives a mapping the policy of `plan` in bounded steps; false when that was not finished.
    fn mapped_blocks(&self, ticket: Ticket, m: &Mapped, plan: &PagePlan<'_>) -> bool {
        let whole = m.part();
        let chunk = plan.block_pages().map_or(whole.pages, |block| block.saturating_mul(STEP_BLOCKS)).max(1);
        let (mut first, end) = (whole.first, whole.first + whole.pages);
        while first < end {
            let part = Part { first, pages: chunk.min(end - first) };
            let at = m.object + first as usize * PAGE;
            let mut done = Ok(());
            let there = self.step(&Owner::Mapped(ticket), at, at + part.pages as usize * PAGE, || {
                done = policy(plan, m.object, part, m.node);
            });
            if !there || done.is_err() || self.interrupted() {
                return false;
            }
            first += part.pages;
        }
        true
    }

    fn extent_policy(&self, start: usize, extent: Extent) -> Extent {
        let follows = self.state.rules.get(extent.rule).is_some_and(arena::can_follow);
        let Some(now) = self.newer(extent.rule, extent.placing).filter(|_| follows) else { return extent };
        let after = Extent { placing: now, waiting: true, ..extent };
        let Some(plan) = after.plan(self.state) else { return extent };
        let mut done = Err(0);
        self.step(&Owner::Extent, start, start + EXTENT_BYTES, || {
            done = policy(&plan, start, Part { first: 0, pages: plan.pages }, extent.node);
        });
        if done.is_ok() { after } else { extent }
    }

    /// Moves the resident pages of everything whose policy is new.
    pub fn pages(&mut self) {
        globals::for_each(|global| self.global_pages(global));
        table::for_each(|placed| self.heap_pages(&placed));
        mapped::for_each_entry(|ticket, m| self.mapped_pages(ticket, &m));
        arena::for_each(|start, extent| self.extent_pages(start, extent));
    }

    fn global_pages(&mut self, global: &'static Global) {
        let Some(before) = global.standing().filter(|s| s.waiting && !self.interrupted()) else { return };
        let Some(plan) = global.plan(self.state, before.placing, before.block) else { return };
        let goal = Goal::new(&plan, global.base, 0, self.state.machine.thp);
        let owner = Owner::Global(global);
        let moved = global.parts.iter().all(|part| self.range(&owner, &goal, global.rule, global.base, *part));
        if moved {
            global.set(before, Standing { waiting: false, ..before });
        }
    }

    fn heap_pages(&mut self, placed: &Placed) {
        if !placed.waiting || self.interrupted() {
            return;
        }
        let Some(plan) = heap::plan_of(self.state, placed) else { return };
        let goal = Goal::new(&plan, placed.address, placed.node, self.state.machine.thp);
        let part = Part { first: 0, pages: plan.pages };
        if !self.range(&Owner::Heap(*placed), &goal, placed.rule, placed.address, part) {
            return;
        }
        let Some(step) = Step::begin(placed.address, placed.address + placed.mapped()) else { return };
        let Some(before) = table::begin_step(placed.address) else { return };
        let waiting = before.waiting && !is_same(&before, placed);
        let after = Placed { waiting, ..before };
        if !table::end_step(&before, &after) {
            heap::discard(&after);
        }
        drop(step);
    }

    fn mapped_pages(&mut self, ticket: Ticket, m: &Mapped) {
        if !m.waiting || self.interrupted() {
            return;
        }
        let Some(plan) = maps::plan_of(self.state, m) else { return };
        let goal = Goal::new(&plan, m.object, local(&plan, m.node), self.state.machine.thp).of(m.backing);
        if self.range(&Owner::Mapped(ticket), &goal, m.rule, m.object, m.part())
            && mapped::change(ticket, &Mapped { waiting: false, ..*m }).is_none()
        {
            self.cut();
        }
    }

    fn extent_pages(&mut self, start: usize, extent: Extent) -> Extent {
        let Some(plan) = extent.plan(self.state).filter(|_| extent.waiting && !self.interrupted()) else {
            return extent;
        };
        let goal = Goal::new(&plan, start, extent.node, self.state.machine.thp);
        let part = Part { first: 0, pages: plan.pages };
        let moved = self.range(&Owner::Extent, &goal, extent.rule, start, part);
        Extent { waiting: extent.waiting && !moved, ..extent }
    }

    /// Moves the pages of `part` of the object at `base`, step by step with rests; false when that was not finished.
    fn range(&mut self, owner: &Owner, goal: &Goal<'_>, rule: usize, base: usize, part: Part) -> bool {
        let statistics = phases::of_rule(self.state, rule);
        let mut at = base + part.first as usize * PAGE;
        let end = at + part.pages as usize * PAGE;
        while at < end {
            if self.interrupted() {
                return false;
            }
            let stop = step_end(at, end);
            let began = clock::monotonic_ns();
            let mut done = Done::default();
            let there = self.step(owner, at, stop, || done = goal.step(at, stop));
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
            phases::begin_due();
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
        // Blocks without a policy each are brought about by moving what exists, see [`Goal::step`].
        populate::keep_apart(plan, base, start, len);
    }
    if plan.layout == Layout::Default || populates {
        return cost::mbind(start, len, Mode::Default, &[], false);
    }
    place::apply(plan, base, part, node, false)
}

/// Node of a `local` object under `plan`: the one it remembers, if that is among its nodes.
fn local(plan: &PagePlan<'_>, node: u32) -> u32 {
    if plan.layout != Layout::Local || plan.nodes.contains(&node) {
        node
    } else {
        plan.nodes.first().copied().unwrap_or(node)
    }
}

/// Whether a global is there and stays while `step` lasts.
fn may_touch(global: &Global, step: &Step) -> bool {
    global.program || (step.nothing_unloads() && !resolve::pending() && global.standing().is_some())
}

/// What is at the address of `placed` is that object, in the state it had.
fn is_same(now: &Placed, placed: &Placed) -> bool {
    (now.rule, now.placing, now.waiting, now.mapped()) == (placed.rule, placed.placing, placed.waiting, placed.mapped())
}

/// A step on a heap object that was `placed` when it was looked up.
fn heap_step(placed: &Placed, work: impl FnOnce()) -> bool {
    let Some(before) = table::begin_step(placed.address) else { return false };
    let same = is_same(&before, placed);
    if same {
        work();
    }
    if !table::end_step(&before, &before) {
        heap::discard(&before);
        return false;
    }
    same
}
