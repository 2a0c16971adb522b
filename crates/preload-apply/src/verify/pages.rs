//! Counts pages that are on plan, off plan (and why), swapped out, or waiting to be moved.
//!
//! [`PagePlan::home`] computes where a page belongs. Kernels before 6.7 interleave by fewer bits of the page number. A
//! kernel may have the change without the version, so an object is compared by both formulas and the better fit counts.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use numamma_kernel::pagemap;
use numamma_kernel::pages::BATCH;
use numamma_kernel::policy::MAX_NODES;
use numamma_kernel::sys::PAGE;
use numamma_plan::home_node::{Context, HUGE_ORDER, Home, Interleaving, Width};
use numamma_plan::plan::{HUGE_PAGE, Layout, PagePlan};
use numamma_plan::reason::Reason;

use super::reasons::{Reasons, Tally};
use crate::place::resident_nodes::for_each_batch;
use crate::place::{Part, interleaving};
use crate::rules::counters::{Counters, add};

/// What a check found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Pages that exist.
    pub present: u64,
    /// Of these, where the plan wants them.
    pub on_plan: u64,
    /// Why the others are elsewhere.
    pub reasons: Tally,
    /// A bit for each node from which pages spilled.
    pub full_nodes: [u64; MAX_NODES / 64],
    /// Pages that do not exist because they were swapped out.
    pub swapped: u64,
}

impl Found {
    /// Stores that pages spilled from `node`.
    fn full(&mut self, node: u32) {
        if let Some(word) = self.full_nodes.get_mut(node as usize / 64) {
            *word |= 1 << (node % 64);
        }
    }
}

/// Checks `part` of the object at `base` and adds to `counters`. If pages of the object are still `waiting` to be
/// moved, pages that are not on plan count as waiting.
pub fn examine(plan: &PagePlan<'_>, base: usize, part: Part, node: u32, waiting: bool, counters: &Counters) {
    if plan.layout == Layout::Default || part.pages == 0 {
        return;
    }
    let found = count(plan, base, part, node, &counters.by_node);
    add(&counters.planned, part.pages);
    add(&counters.present, found.present);
    add(&counters.on_plan, found.on_plan);
    add(&counters.swapped, found.swapped);
    let elsewhere = found.present - found.on_plan;
    if waiting {
        add(&counters.waiting, elsewhere);
    } else {
        add(&counters.off_plan, elsewhere);
        counters.reasons.iter().zip(found.reasons).for_each(|(counter, pages)| add(counter, pages));
        for (all, nodes) in counters.full_nodes.iter().zip(found.full_nodes).filter(|(_, nodes)| *nodes != 0) {
            all.fetch_or(nodes, Ordering::Relaxed);
        }
    }
}

/// One object being checked.
struct Checked<'a> {
    plan: &'a PagePlan<'a>,
    base: usize,
    /// Node of a `local` object.
    node: u32,
}

impl<'a> Checked<'a> {
    fn home(&self, address: usize, interleaving: &Interleaving, order: u32) -> Home<'a> {
        let context = Context { node: self.node, order, address: Some((self.base, interleaving)) };
        self.plan.home(((address - self.base) / PAGE) as u64, &context)
    }

    /// Whether the batch is one huge page, all of it on the node that interleaving by 2 MiB gives.
    fn is_whole_huge(&self, batch: &Batch<'_>, interleaving: &Interleaving) -> bool {
        let Some(&first) = batch.pages.first() else { return false };
        self.plan.interleaves()
            && batch.pages.len() == BATCH
            && (first as u64).is_multiple_of(HUGE_PAGE)
            && match self.home(first, interleaving, HUGE_ORDER) {
                Home::One(node) => batch.status.iter().all(|&s| u32::try_from(s) == Ok(node)),
                _ => false,
            }
    }

    /// Adds a batch of pages to `found`, judged by one formula of interleaving.
    fn judge(&self, batch: &Batch<'_>, interleaving: &Interleaving, reasons: &mut Reasons, found: &mut Found) {
        let present = batch.status.iter().filter(|s| **s >= 0).count() as u64;
        found.present += present;
        if self.is_whole_huge(batch, interleaving) {
            found.on_plan += present;
            return;
        }
        let mut first_off = None;
        for (i, (&address, &status)) in batch.pages.iter().zip(batch.status).enumerate() {
            let Ok(now) = u32::try_from(status) else { continue };
            if self.home(address, interleaving, 0).allows(now) {
                found.on_plan += 1;
            } else if first_off.is_none() {
                first_off = Some(i);
            }
        }
        if let Some(first) = first_off {
            self.explain(batch, first, interleaving, reasons, found);
        }
    }

    /// Adds the reasons of a batch whose first page off plan is `first`.
    #[cold]
    fn explain(
        &self,
        batch: &Batch<'_>,
        first: usize,
        interleaving: &Interleaving,
        reasons: &mut Reasons,
        found: &mut Found,
    ) {
        let clipped = batch.pages.len() < BATCH;
        let home = |page: &usize| self.home(*page, interleaving, 0);
        let begin = batch.pages.first().map(home);
        let mixed = clipped || batch.pages.iter().any(|page| Some(home(page)) != begin);
        let collapsed = mixed && reasons.collapsed(batch.pages, batch.status);
        let mut words = [0; BATCH];
        reasons.words(batch.pages, &mut words);
        for ((&address, &status), &word) in batch.pages.iter().zip(batch.status).zip(&words).skip(first) {
            let home = home(&address);
            let one;
            let planned: &[u32] = match home {
                Home::Any => &[],
                Home::One(node) => {
                    one = [node];
                    &one
                }
                Home::AnyOf(nodes) | Home::InTurn(nodes) => nodes,
            };
            if u32::try_from(status).is_ok_and(|now| !home.allows(now)) {
                let reason = reasons.of(word, collapsed, planned, self.plan.layout);
                found.reasons[reason as usize] += 1;
                if reason == Reason::Spilled {
                    planned.iter().for_each(|&node| found.full(node));
                }
            }
        }
    }
}

/// Pages of one 2 MiB range, with their nodes (negative: no page).
struct Batch<'a> {
    pages: &'a [usize],
    status: &'a [c_int],
}

/// Adds the present pages to those of their nodes, `by_node`.
fn count(plan: &PagePlan<'_>, base: usize, part: Part, node: u32, by_node: &[AtomicU64]) -> Found {
    let start = base + part.first as usize * PAGE;
    let end = start + part.pages as usize * PAGE;
    let several = plan.interleaves() && plan.nodes.len() > 1;
    let new_formula = Interleaving { width: Width::Bits64, ..interleaving::of(plan) };
    let old_formula = several.then(|| Interleaving { width: Width::Bits32, ..new_formula.clone() });
    let checked = Checked { plan, base, node };
    let (mut wide, mut narrow) = (Found::default(), Found::default());
    let mut reasons = Reasons::default();
    // Reading a hidden page could make NUMA balancing move it when its memory has no policy, so hidden pages of
    // populated blocks are not read.
    for_each_batch(start, end, !plan.populates(), |pages, status| {
        let batch = Batch { pages, status };
        for same in status.chunk_by(|a, b| a == b) {
            let node = same.first().and_then(|s| usize::try_from(*s).ok());
            node.and_then(|node| by_node.get(node)).inspect(|counter| add(counter, same.len() as u64));
        }
        checked.judge(&batch, &new_formula, &mut reasons, &mut wide);
        if let Some(old_formula) = &old_formula {
            checked.judge(&batch, old_formula, &mut reasons, &mut narrow);
        }
        if status.iter().any(|s| *s < 0) {
            let mut words = [0; BATCH];
            reasons.words(pages, &mut words);
            let swapped = words.iter().zip(status).filter(|(word, now)| **now < 0 && pagemap::swapped(**word));
            wide.swapped += swapped.count() as u64;
        }
    });
    if narrow.on_plan > wide.on_plan { Found { swapped: wide.swapped, ..narrow } } else { wide }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numamma_kernel::mappings;
    use numamma_plan::policy::{Huge, Mode};

    #[test]
    fn touched_pages_are_present_and_on_node_0_here() {
        let len = 64 * PAGE;
        let base = mappings::map_aligned(len, PAGE).unwrap();
        for page in 0..10 {
            // SAFETY: the test made this writable mapping.
            unsafe { ((base + page * PAGE) as *mut u8).write(1) };
        }
        let (nodes, mode) = (vec![0].into(), Mode::Policy);
        let plan = PagePlan { pages: 64, nodes, layout: Layout::Strict, huge: Huge::Keep, mode };
        let counters = Counters::of_nodes(1);
        examine(&plan, base, Part { first: 0, pages: 64 }, 0, false, &counters);
        let read = |c: &AtomicU64| c.load(Ordering::Relaxed);
        assert_eq!((read(&counters.planned), read(&counters.present), read(&counters.off_plan)), (64, 10, 0));
        let nowhere = PagePlan { nodes: vec![7].into(), ..plan };
        assert_eq!(read(&counters.by_node[0]), 10);
        let found = count(&nowhere, base, Part { first: 0, pages: 64 }, 0, &[]);
        assert_eq!((found.present, found.on_plan, found.swapped), (10, 0, 0));
        assert_eq!(found.reasons.iter().sum::<u64>(), 10, "{found:?}");
    }
}
