//! The record of a placed object: its place, the plan that follows from it, and its check.
//!
//! The lists of this folder store an [`Object`] in the form their concurrency needs, and return it as this one record.

use std::borrow::Cow;

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use numamma_hook::{allocating, own_stack, say_once};
use numamma_kernel::policy;
use numamma_kernel::sys::PAGE;
use numamma_plan::plan::{HUGE_PAGE, Layout, PagePlan, page_size_of};
use numamma_plan::policy::{Huge, Mode};

use super::backing::{Backing, Kind};
use crate::place::{Part, apply, counted_calls, mapping_budget, refusals};
use crate::rules::churn::allocator;
use crate::rules::state::{Rule, State};
use crate::threads::thread_nodes;
use crate::verify;

/// One placed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    pub rule: usize,
    /// Index of the rule's placing that its memory policy follows.
    pub placing: usize,
    /// The memory policy follows `placing`, but not all pages have been moved yet.
    pub waiting: bool,
    /// Node of a `local` object; for `bind-block` which list of nodes it uses, see [`thread_nodes`].
    pub node: u32,
    /// Pages per block as placed (the budget of mappings may have enlarged it); 0 when the layout has no blocks.
    pub block: u64,
    /// Address of the first whole page.
    pub base: usize,
    /// Bytes from there to the first byte of the object, see [`colour`](super::heap::colour); 0 of all but arrays on
    /// the heap.
    pub colour: u16,
    /// Bytes of the object.
    pub size: usize,
    /// Whole pages from `base` on.
    pub pages: u64,
    /// Kind of memory and size of its pages.
    pub backing: Backing,
}

impl Object {
    /// All of its pages.
    pub fn whole(&self) -> Part {
        Part { first: 0, pages: self.pages }
    }

    /// Bytes of its pages.
    pub fn bytes(&self) -> usize {
        self.pages as usize * PAGE
    }

    /// Address of its first byte.
    pub fn address(&self) -> usize {
        self.base + usize::from(self.colour)
    }

    /// Bytes from its first one to the end of its pages.
    pub fn usable(&self) -> usize {
        self.bytes() - usize::from(self.colour)
    }

    /// Bytes that the program is expected to touch of it.
    pub fn touched(&self) -> usize {
        self.backing.touched.of(self.bytes())
    }

    /// Its pages as an object that begins with them.
    pub fn as_pages(&self) -> Object {
        if self.colour == 0 { *self } else { Object { colour: 0, size: self.bytes(), ..*self } }
    }

    /// The parts of it that rules place, each as an object of its own under its rule; none for an object that one rule
    /// places as a whole. Allocates nothing.
    fn in_parts(&self, state: &'static State) -> impl Iterator<Item = Object> {
        let (rules, whole) = (state.rules.get(self.rule).map_or(&[][..], Rule::parts), *self);
        rules.iter().filter_map(move |&index| {
            let range = state.rules.get(index)?.rule.bytes()?;
            let (low, high) = range.pages_of(whole.base as u64, whole.bytes() as u64, whole.backing.unit() as u64)?;
            let (base, pages) = (low as usize, (high - low) / PAGE as u64);
            let size = range.bytes_of(whole.bytes() as u64) as usize;
            Some(Object { rule: index, base, size, pages, block: 0, ..whole })
        })
    }

    /// What `part` of the object has of its part `of`.
    fn within(&self, part: Part, of: &Object) -> Part {
        let first = ((of.base - self.base) / PAGE) as u64;
        let (low, high) = (part.first.max(first), (part.first + part.pages).min(first + of.pages));
        Part { first: low.saturating_sub(first), pages: high.saturating_sub(low) }
    }

    /// The plan that its memory policy follows; of an object in parts one that leaves it to the kernel. Allocates
    /// nothing.
    pub fn plan(&self, state: &'static State) -> Option<PagePlan<'static>> {
        if state.divides(self.rule) {
            let (nodes, layout) = (Cow::Borrowed(&[][..]), Layout::Default);
            return Some(PagePlan { pages: self.pages, nodes, layout, huge: Huge::Keep, mode: Mode::Policy });
        }
        self.own_plan(state)
    }

    #[inline(never)]
    fn own_plan(&self, state: &'static State) -> Option<PagePlan<'static>> {
        let (size, unit) = (self.size as u64, self.backing.unit() as u64);
        let mut plan = match self.backing.kind {
            Kind::Private | Kind::Reserved => state.plan(self.rule, self.placing, size, self.pages)?,
            Kind::Shared | Kind::Huge => state.plan_of_pages(self.rule, self.placing, size, self.pages, unit)?,
        };
        if self.backing.kind != Kind::Private {
            // Populating would make shared memory resident for all processes, and reserved address space cannot be
            // populated.
            plan.mode = Mode::Policy;
        }
        if self.backing.kind == Kind::Huge && plan.layout == Layout::Strict {
            // hugetlb pages are reserved for the mapping on all nodes together: if the nodes of the plan have none
            // left, a strict policy would end the program with SIGBUS.
            plan.layout = Layout::Preferred;
        }
        plan.round_blocks(unit);
        thread_nodes::apply(&mut plan, state.rules.get(self.rule)?, self.placing, self.node);
        plan.set_block_pages(self.block);
        Some(plan)
    }

    /// Whether a heap object gets huge pages because the program's allocator would ask for them
    /// ([`allocator::wants_huge_pages`]): one that may hold one, and whose rule says nothing else.
    pub fn follows_allocator(&self, state: &State) -> bool {
        let says_nothing = || state.rules.get(self.rule)?.placings.get(self.placing).map(|p| p.place.huge.is_none());
        allocator::wants_huge_pages() && self.bytes() >= HUGE_PAGE as usize && says_nothing() == Some(true)
    }

    /// Whether a heap object may have huge pages.
    pub fn may_be_huge(&self, state: &State) -> bool {
        let (bytes, rule) = (self.bytes() as u64, state.rules.get(self.rule));
        let place = rule.and_then(|rule| rule.placings.get(self.placing)).map(|placing| &placing.place);
        bytes >= HUGE_PAGE
            && (place.is_some_and(|place| page_size_of(place, bytes, state.machine.thp) == HUGE_PAGE)
                || self.follows_allocator(state))
    }

    /// Mappings that all of it takes of the budget, where that is known without a plan: no object of the rule has
    /// blocks or parts.
    pub fn known_mappings(&self, state: &State) -> Option<u64> {
        let Some(rule) = state.rules.get(self.rule) else { return Some(0) };
        match rule.placings.get(self.placing)?.layout? {
            _ if !rule.parts().is_empty() => None,
            Layout::Blocks(..) => None,
            Layout::Default => Some(0),
            _ => Some(u64::from(self.pages > 0)),
        }
    }

    /// Mappings that `part` takes of the budget.
    pub fn mappings(&self, state: &'static State, part: Part) -> u64 {
        if state.divides(self.rule) {
            return self.mappings_in_parts(state, part);
        }
        self.own_plan(state).map_or(0, |plan| mappings_of(&plan, part))
    }

    /// On a stack of this library and not inlined, as all work on parts: it takes much of a stack.
    #[cold]
    #[inline(never)]
    fn mappings_in_parts(&self, state: &'static State, part: Part) -> u64 {
        let of = |view: Object| {
            let part = self.within(part, &view);
            if part.pages == 0 { None } else { Some(mappings_of(&view.own_plan(state)?, part)) }
        };
        let sum = || self.in_parts(state).filter_map(of).sum();
        own_stack::run_or_directly(sum)
    }

    /// Takes mappings for the whole object from the budget, with larger blocks if they are short. Returns the plan that
    /// fits; `None` when not even one block on each node does.
    pub fn fit(&mut self, state: &'static State) -> Option<PagePlan<'static>> {
        self.fit_replacing(state, 0)
    }

    /// As [`Object::fit`], for an object whose `old` mappings the new ones replace. It keeps those on `None`.
    pub fn fit_replacing(&mut self, state: &'static State, old: u64) -> Option<PagePlan<'static>> {
        let mut plan = self.plan(state)?;
        if state.divides(self.rule) {
            return self.fit_parts(state, old).then_some(plan);
        }
        mapping_budget::make_room(state, plan.run_count(), old);
        let rule = state.rules.get(self.rule)?;
        if !mapping_budget::fit_replacing(state, self.rule, &mut plan, old) {
            rule.counters.over_budget.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.block = plan.block_pages();
        rule.counters.block.store(plan.block_bytes().unwrap_or(0), Ordering::Relaxed);
        Some(plan)
    }

    /// Takes mappings for all parts from the budget in place of `old` ones. Their blocks are as large as asked for: the
    /// object is not placed when they do not fit.
    #[cold]
    #[inline(never)]
    fn fit_parts(&mut self, state: &'static State, old: u64) -> bool {
        self.block = 0;
        let wanted = self.mappings(state, self.whole());
        mapping_budget::make_room(state, wanted, old);
        let fits = state.take_mappings(wanted, old).is_ok();
        if !fits {
            state.rules_of(self.rule).for_each(|rule| _ = rule.counters.over_budget.fetch_add(1, Ordering::Relaxed));
            return false;
        }
        let count = || {
            for part in self.in_parts(state) {
                let block = part.own_plan(state).and_then(|plan| plan.block_bytes()).unwrap_or(0);
                if let Some(rule) = state.rules.get(part.rule) {
                    rule.counters.block.store(block, Ordering::Relaxed);
                }
            }
        };
        own_stack::run_or_directly(count);
        true
    }

    /// Places the whole object by `plan`, counts the cost, and reports a refusal once. `resident`: pages may exist
    /// already.
    ///
    /// # Errors
    /// The kernel's error code.
    pub fn place(&self, state: &'static State, plan: &PagePlan<'_>, resident: bool) -> Result<(), c_int> {
        if state.divides(self.rule) {
            return self.place_parts(state, resident);
        }
        self.place_whole(state, plan, resident)
    }

    #[cold]
    #[inline(never)]
    fn place_parts(&self, state: &'static State, resident: bool) -> Result<(), c_int> {
        let place = || {
            self.in_parts(state).try_for_each(|part| match part.own_plan(state) {
                Some(plan) => part.place_whole(state, &plan, resident),
                None => Ok(()),
            })
        };
        allocating::run(place).unwrap_or(Err(libc::ENOMEM))
    }

    /// Gives the last page of an object in parts its policy. Whether it has one, or the kernel chooses the node; `None`
    /// where it cannot be set.
    pub fn place_last_page(&self, state: &'static State) -> Option<bool> {
        let end = self.base + self.bytes();
        let Some(part) = self.in_parts(state).find(|part| part.base + part.bytes() == end) else { return Some(false) };
        let mut plan = part.own_plan(state).filter(|plan| !plan.populates())?;
        let last = Object { base: end - PAGE, size: PAGE, pages: 1, ..part };
        if matches!(plan.layout, Layout::Blocks(..)) {
            let run = plan.runs_of(part.pages - 1, 1).next()?;
            let node = *plan.nodes.get(run.node as usize)?;
            return counted_calls::mbind(last.base, PAGE, policy::Mode::Preferred, &[node], false).ok().map(|()| true);
        }
        // The parts have their huge pages when they are placed.
        plan.huge = Huge::Keep;
        last.place_whole(state, &plan, false).ok()?;
        Some(plan.layout != Layout::Default)
    }

    fn place_whole(&self, state: &'static State, plan: &PagePlan<'_>, resident: bool) -> Result<(), c_int> {
        let Some(rule) = state.rules.get(self.rule) else { return Ok(()) };
        let apply =
            || apply::apply(plan, self.base, self.whole(), self.node, resident, self.backing.kind == Kind::Shared);
        // Populating and moving pages need more stack than a hook may take, and weights are read from files.
        let is_short = !resident && !plan.populates() && plan.layout != Layout::Weighted;
        let place = || if is_short { apply() } else { allocating::run(apply).unwrap_or(Err(libc::ENOMEM)) };
        counted_calls::measure(&rule.counters, place).inspect_err(|&error| refusals::report(rule.rule.name(), error))
    }

    /// Adds the pages of `part` to the counters of the rule. A live object is compared with the place of the current
    /// phase, one that is being released with the place it was last moved to.
    pub fn examine(&self, state: &'static State, part: Part, live: bool) {
        if state.divides(self.rule) {
            return self.examine_parts(state, part);
        }
        let now = state.rules.get(self.rule).map_or(self.placing, |rule| rule.current_index());
        if live && self.placing != now {
            Object { placing: now, block: 0, waiting: true, ..*self }.count(state, part);
        } else {
            self.count(state, part);
        }
    }

    #[cold]
    #[inline(never)]
    fn examine_parts(&self, state: &'static State, part: Part) {
        self.in_parts(state).for_each(|view| view.count(state, self.within(part, &view)));
    }

    /// Adds the pages of `part` to the counters of the rule, by the object's own placing.
    pub fn count(&self, state: &'static State, part: Part) {
        if let (Some(rule), Some(plan)) = (state.rules.get(self.rule), self.own_plan(state)) {
            let examine = || verify::pages::examine(&plan, self.base, part, self.node, self.waiting, &rule.counters);
            if allocating::run(examine).is_none() {
                say_once!("memory is short: some pages could not be checked, and the report leaves them out");
            }
        }
    }

    /// The object under its placing number `placing`, and its plan.
    pub fn under(&self, state: &'static State, placing: usize) -> Option<(Object, PagePlan<'static>)> {
        let node = thread_nodes::moved_node(state.rules.get(self.rule)?, placing, self.node);
        let next = Object { placing, node, block: 0, ..*self };
        let plan = next.plan(state)?;
        Some((Object { node: local_node(&plan, node), waiting: plan.layout != Layout::Default, ..next }, plan))
    }
}

/// Node of a `local` object under `plan`: its present node if the plan has that, else the first of the plan.
pub fn local_node(plan: &PagePlan<'_>, node: u32) -> u32 {
    if plan.layout != Layout::Local || plan.nodes.contains(&node) {
        node
    } else {
        plan.nodes.first().copied().unwrap_or(node)
    }
}

/// Mappings that `part` of an object takes under `plan`. Each block counts for the part that has its first page, so
/// that the parts of an object together take as many as the whole, however it was cut.
pub fn mappings_of(plan: &PagePlan<'_>, part: Part) -> u64 {
    match (plan.blocks_before(part.first), plan.blocks_before(part.first + part.pages), plan.run_count()) {
        (Some(before), Some(until), 2..) => until - before,
        (.., whole) if part.first == 0 => whole,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numamma_plan::block_order::Order;

    #[test]
    fn pieces_take_together_what_the_whole_took() {
        for (layout, nodes) in [
            (Layout::Blocks(3 * PAGE as u64, Order::Cyclic), vec![0, 1]),
            (Layout::Blocks(7001, Order::Cyclic), vec![0, 1]),
            (Layout::Blocks(40 * PAGE as u64, Order::Cyclic), vec![0, 1]),
            (Layout::Blocks(3 * PAGE as u64, Order::Cyclic), vec![1]),
            (Layout::Interleave, vec![0, 1]),
            (Layout::Default, vec![]),
        ] {
            for mode in [Mode::Policy, Mode::Populate] {
                let plan = PagePlan { pages: 20, nodes: nodes.clone().into(), layout, huge: Huge::Keep, mode };
                let share = |first, end| mappings_of(&plan, Part { first, pages: end - first });
                assert_eq!(share(0, 20), plan.run_count(), "{layout:?}");
                for (one, two) in (1..20).flat_map(|one| (one..20).map(move |two| (one, two))) {
                    assert_eq!(
                        share(0, one) + share(one, two) + share(two, 20),
                        share(0, 20),
                        "{layout:?} {one} {two}"
                    );
                }
            }
        }
    }
}
