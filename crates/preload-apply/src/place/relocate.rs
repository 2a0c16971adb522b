//! Moves the resident pages of a range to where its plan wants them.

use core::ffi::c_int;

use numamma_kernel::pages::{self, BATCH};
use numamma_kernel::sys::PAGE;
use numamma_plan::home_node::{Context, Home};
use numamma_plan::plan::PagePlan;

use super::resident_nodes::for_each_batch;
use super::{Part, interleaving};

/// Moves the resident pages of `part` of the object at `base` to the nodes on which a new page fault would allocate
/// them. Pages that may be on any of several nodes stay.
pub fn move_resident(plan: &PagePlan<'_>, base: usize, part: Part) {
    if plan.interleaves() && plan.nodes.len() < 2 {
        return;
    }
    let interleaving = interleaving::of(plan);
    let context = Context { node: 0, order: 0, address: Some((base, &interleaving)) };
    let start = base + part.first as usize * PAGE;
    for_each_batch(start, start + part.pages as usize * PAGE, true, |pages, status| {
        let mut wrong = [0_usize; BATCH];
        let mut target = [0 as c_int; BATCH];
        let mut count = 0;
        for (&page, &now) in pages.iter().zip(status) {
            if let (true, Home::One(node)) = (now >= 0, plan.home(((page - base) / PAGE) as u64, &context))
                && node as c_int != now
            {
                wrong[count] = page;
                target[count] = node as c_int;
                count += 1;
            }
        }
        if count > 0 {
            pages::move_to(&wrong[..count], &target[..count]);
        }
    });
}
