//! `mode = "populate"`: allocates the pages of each block on its node at once, under a memory policy of the calling
//! thread. The blocks then need no policies, hence no mappings, of their own, but all of the object becomes resident.
//!
//! The kernel does not know the plan afterwards: pages that are swapped in again, copied after fork, touched again
//! after MADV_DONTNEED or collapsed by khugepaged may be allocated on any node, and automatic NUMA balancing moves
//! pages. The object is kept without huge pages unless
//! its blocks consist of whole ones, so that khugepaged and NUMA balancing do not move several blocks at once.

use core::ffi::c_int;
use numamma_kernel::pages;
use numamma_kernel::policy::TaskPolicy;

use numamma_hook::{errno, say};
use numamma_kernel::sys::PAGE;
use numamma_plan::plan::{HUGE_PAGE, PagePlan};
use numamma_plan::policy::{Huge, Mode, ObjectRule};

use super::refusals::{self, NO_MEMORY};
use super::{Part, may_take, relocate};

/// Replaces the mode by `policy` in all places, with a message, if the kernel does not support it.
pub fn check_support(objects: &mut [ObjectRule]) {
    if !objects
        .iter()
        .any(|r| core::iter::once(&r.place).chain(r.phases.values()).any(|p| p.mode == Some(Mode::Populate)))
    {
        return;
    }
    let why = if !pages::can_populate() {
        "needs Linux 5.14 (MADV_POPULATE_WRITE)"
    } else if TaskPolicy::now().is_none_or(|now| now.set().is_err()) {
        "needs get_mempolicy and set_mempolicy, which a filter refuses"
    } else {
        return;
    };
    say!("mode = \"populate\" {why}: blocks get a memory policy each instead");
    let places = objects.iter_mut().flat_map(|r| core::iter::once(&mut r.place).chain(r.phases.values_mut()));
    places.filter(|p| p.mode == Some(Mode::Populate)).for_each(|p| p.mode = Some(Mode::Policy));
}

/// Allocates every page of `part` on its node and moves pages that exist already. [`NO_MEMORY`] when the available
/// memory is too small: the program might never touch all of the object and must not be killed for it.
pub fn populate_blocks(plan: &PagePlan<'_>, base: usize, part: Part) -> Result<(), c_int> {
    let (start, len) = (base + part.first as usize * PAGE, part.pages as usize * PAGE);
    if !may_take(len as u64) {
        return Err(NO_MEMORY);
    }
    disallow_huge_pages(plan, base, start, len);
    populate_missing(plan, base, part)?;
    relocate::move_resident(plan, base, part);
    Ok(())
}

/// Disallows huge pages in `[start, start + len)` of the object at `base`, unless its blocks consist of whole ones: a
/// huge page would put parts of several blocks on one node.
pub fn disallow_huge_pages(plan: &PagePlan<'_>, base: usize, start: usize, len: usize) {
    let whole = plan.block_bytes().is_some_and(|block| block.is_multiple_of(HUGE_PAGE));
    if !(whole && (base as u64).is_multiple_of(HUGE_PAGE)) && plan.huge != Huge::Split {
        pages::huge_pages(start, len, false);
    }
}

/// Allocates the missing pages of `part`, each on its node.
pub fn populate_missing(plan: &PagePlan<'_>, base: usize, part: Part) -> Result<(), c_int> {
    let before = TaskPolicy::now().ok_or(libc::ENOSYS)?;
    let outcome: Result<(), c_int> = plan.runs_of(part.first, part.pages).try_for_each(|run| {
        let Some(&node) = plan.nodes.get(run.node as usize) else { return Ok(()) };
        TaskPolicy::prefer(node)?;
        // Memory is short or the range is not writable: the rest of the object is left to first touch.
        let outcome = pages::populate_write(base + run.first as usize * PAGE, run.pages as usize * PAGE);
        if outcome { Ok(()) } else { Err(errno::get()) }
    });
    if let Err(error) = before.set() {
        refusals::report("the thread's own memory policy again", error);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use numamma_kernel::mappings;
    use numamma_plan::block_order::Order;
    use numamma_plan::plan::Layout;

    #[test]
    fn all_pages_exist_and_the_threads_policy_is_as_before() {
        let len = 64 * PAGE;
        let base = mappings::map_aligned(len, PAGE).unwrap();
        let layout = Layout::Blocks(3 * PAGE as u64, Order::Cyclic);
        let plan = PagePlan { pages: 64, nodes: vec![0].into(), layout, huge: Huge::Keep, mode: Mode::Populate };
        TaskPolicy::prefer(0).unwrap();
        let before = TaskPolicy::now();
        assert_ne!(before, Some(TaskPolicy::default()));
        assert_eq!(populate_blocks(&plan, base, Part { first: 0, pages: 64 }), Ok(()));
        let pages: Vec<usize> = (0..64).map(|i| base + i * PAGE).collect();
        let mut status = [-1; 64];
        pages::page_nodes(&pages, &mut status).unwrap();
        assert_eq!(status, [0; 64]);
        assert_eq!(TaskPolicy::now(), before);
        let all = PagePlan { pages: 1 << 40, ..plan };
        assert_eq!(populate_blocks(&all, base, Part { first: 0, pages: 1 << 40 }), Err(NO_MEMORY));
        let beyond = PagePlan { pages: 128, ..all };
        let (past, pages) = (mappings::reserve(len).unwrap(), 64);
        assert!(populate_blocks(&beyond, past, Part { first: 0, pages }).is_err(), "not writable");
        assert_eq!(TaskPolicy::now(), before);
        TaskPolicy::default().set().unwrap();
    }
}
