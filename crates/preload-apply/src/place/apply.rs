//! Places one range: its memory policy, huge page advice, and the pages that exist already.

use core::ffi::c_int;

use numamma_hook::{say, say_once};
use numamma_kernel::pages;
use numamma_kernel::policy::Mode;
use numamma_kernel::sys::PAGE;
use numamma_plan::plan::{Layout, PagePlan};
use numamma_plan::policy::Huge;

use super::{Part, counted_calls, interleaving, populate, relocate};

/// Places `part` of the object whose first whole page is at `base`. `resident`: pages may exist already.
/// `node` is the node of a `local` object. `shared`: the memory is shared memory of base pages, so that the policy
/// belongs to the memory and not to its mapping.
pub fn apply(
    plan: &PagePlan<'_>,
    base: usize,
    part: Part,
    node: u32,
    resident: bool,
    shared: bool,
) -> Result<(), c_int> {
    let at = |page: u64| base + page as usize * PAGE;
    let (start, len) = (at(part.first), part.pages as usize * PAGE);
    if part.pages == 0 {
        return Ok(());
    }
    match plan.huge {
        Huge::Keep => {}
        Huge::Split => pages::huge_pages(start, len, false),
        Huge::Want => pages::huge_pages(start, len, true),
    }
    match plan.layout {
        Layout::Default => Ok(()),
        Layout::Strict => counted_calls::mbind(start, len, Mode::Bind, &plan.nodes, resident),
        Layout::Preferred => prefer(start, len, &plan.nodes, resident),
        Layout::Local => counted_calls::mbind(start, len, Mode::Preferred, &[node], resident),
        Layout::Interleave | Layout::Weighted => {
            interleave(plan.layout, start, len, &plan.nodes, resident)?;
            if resident {
                // mbind does not move resident pages that are on any node of the mask.
                relocate::move_resident(plan, base, part);
            }
            Ok(())
        }
        Layout::Blocks(..) if plan.populates() => populate::populate_blocks(plan, base, part),
        // An object of one block needs no second mapping, as it is not split.
        Layout::Blocks(..) if shared && (plan.run_count() > 1 || part.pages < plan.pages) => {
            plan.runs_of(part.first, part.pages).try_for_each(|run| {
                let Some(&node) = plan.nodes.get(run.node as usize) else { return Ok(()) };
                counted_calls::mbind_shared(at(run.first), run.pages as usize * PAGE, Mode::Preferred, &[node])
            })?;
            if resident {
                relocate::move_resident(plan, base, part);
            }
            Ok(())
        }
        Layout::Blocks(..) => plan.runs_of(part.first, part.pages).try_for_each(|run| {
            let Some(&node) = plan.nodes.get(run.node as usize) else { return Ok(()) };
            counted_calls::mbind(at(run.first), run.pages as usize * PAGE, Mode::Preferred, &[node], resident)
        }),
    }
}

/// Prefers one node, which every kernel supports; several nodes since Linux 5.15, before that the first of them.
fn prefer(start: usize, len: usize, nodes: &[u32], resident: bool) -> Result<(), c_int> {
    let (Some(first), several) = (nodes.first(), nodes.len() > 1) else { return Ok(()) };
    if several {
        match counted_calls::mbind(start, len, Mode::PreferredMany, nodes, resident) {
            Err(libc::EINVAL) => {
                say_once!(
                    "preferred-many, and bind on several nodes, need Linux 5.15: only the first node of each list, \
                     here {first}, is preferred"
                );
            }
            outcome => return outcome,
        }
    }
    counted_calls::mbind(start, len, Mode::Preferred, &[*first], resident)
}

fn interleave(layout: Layout, start: usize, len: usize, nodes: &[u32], resident: bool) -> Result<(), c_int> {
    if layout == Layout::Weighted && interleaving::weights_count() {
        match counted_calls::mbind(start, len, Mode::WeightedInterleave, nodes, resident) {
            Err(libc::EINVAL) => {
                if interleaving::ignore_weights() {
                    say!("weighted-interleave needs Linux 6.9: pages are interleaved without weights");
                }
            }
            outcome => return outcome,
        }
    }
    counted_calls::mbind(start, len, Mode::Interleave, nodes, resident)
}
