//! Putting one range where its plan says.

use crate::cost;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use numamma_kernel::pages;
use numamma_kernel::policy::Mode;

use numamma_hook::say;
use numamma_kernel::sys::PAGE;
use numamma_plan::plan::{Layout, PagePlan};
use numamma_plan::policy::Huge;

use crate::state::State;
use crate::{check, populate};

/// Pages of an object, counted from its first whole page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First page.
    pub first: u64,
    /// Number of pages.
    pub pages: u64,
}

/// Enlarges the blocks of `plan` until its mappings fit the budget, and takes them out of it. False when not
/// even one round over the nodes fits.
pub fn fit(state: &State, rule: usize, plan: &mut PagePlan<'_>) -> bool {
    fit_instead(state, rule, plan, 0)
}

/// The same for an object that has `old` mappings already and will have those of `plan` in their stead; it keeps the old
/// ones when it is false.
pub fn fit_instead(state: &State, rule: usize, plan: &mut PagePlan<'_>, old: u64) -> bool {
    let name = || state.rules.get(rule).map_or("?", |r| r.rule.name());
    let smallest = plan.nodes.len() as u64;
    let asked = plan.run_count();
    let mut coarse = None;
    loop {
        let wanted = plan.run_count();
        let Err(left) = state.take_mappings(wanted, old) else { break };
        if left < smallest {
            static SAID: AtomicBool = AtomicBool::new(false);
            if !SAID.swap(true, Ordering::Relaxed) {
                say!(
                    "{}: placed objects use all {} mappings they may (see vm.max_map_count); further ones are left to first touch; use larger blocks or mode = \"populate\", or raise vm.max_map_count",
                    name(),
                    state.budget()
                );
            }
            return false;
        }
        coarse = Some(left);
        // Half of what is left, so that later objects find room, too.
        plan.coarsen((left / 2).max(smallest));
    }
    if let (Some(left), Layout::Blocks(block, _)) = (coarse, plan.layout)
        && state.rules.get(rule).is_some_and(|r| !r.said_coarse.swap(true, Ordering::Relaxed))
    {
        // Reserved and shared memory is not populated.
        let populated = state.rules.get(rule).is_some_and(|r| r.rule.place.mode == Some(populate::ON));
        let next = if populated { "" } else { "; mode = \"populate\" keeps them small" };
        say!(
            "{}: {asked} blocks are more mappings than the {left} left of a quarter of vm.max_map_count; using blocks of {} KiB{next}",
            name(),
            block * 4
        );
    }
    true
}

/// Places `part` of the object whose first whole page is at `base`. `resident`: pages may exist already.
/// `node` is the node of a `local` object.
pub fn apply(plan: &PagePlan<'_>, base: usize, part: Part, node: u32, resident: bool) -> Result<(), c_int> {
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
        Layout::Bind => cost::mbind(start, len, Mode::Bind, &plan.nodes, resident),
        Layout::Preferred => prefer(start, len, &plan.nodes, resident),
        Layout::Local => cost::mbind(start, len, Mode::Preferred, &[node], resident),
        Layout::Interleave | Layout::Weighted => {
            in_turn(plan.layout, start, len, &plan.nodes, resident)?;
            if resident {
                // The kernel leaves resident pages that are on any node of the mask.
                check::settle_interleave(plan, start, len);
            }
            Ok(())
        }
        Layout::Blocks(..) if plan.populates() => populate::blocks(plan, base, part),
        Layout::Blocks(..) => plan.runs_of(part.first, part.pages).try_for_each(|run| {
            let Some(&node) = plan.nodes.get(run.node as usize) else { return Ok(()) };
            cost::mbind(at(run.first), run.pages as usize * PAGE, Mode::Preferred, &[node], resident)
        }),
    }
}

/// One node as every kernel knows it; several since 5.15, before that the first of them.
fn prefer(start: usize, len: usize, nodes: &[u32], resident: bool) -> Result<(), c_int> {
    let (Some(first), several) = (nodes.first(), nodes.len() > 1) else { return Ok(()) };
    if several {
        match cost::mbind(start, len, Mode::PreferredMany, nodes, resident) {
            Err(libc::EINVAL) => {
                static SAID: AtomicBool = AtomicBool::new(false);
                if !SAID.swap(true, Ordering::Relaxed) {
                    say!(
                        "preferred-many needs Linux 5.15: only the first node of each list, here {first}, is preferred"
                    );
                }
            }
            done => return done,
        }
    }
    cost::mbind(start, len, Mode::Preferred, &[*first], resident)
}

/// The kernel does not know weighted interleaving: weights count as 1 from then on.
static UNWEIGHTED: AtomicBool = AtomicBool::new(false);

/// Whether the system's weights count.
pub fn weighted(layout: Layout) -> bool {
    layout == Layout::Weighted && !UNWEIGHTED.load(Ordering::Relaxed)
}

fn in_turn(layout: Layout, start: usize, len: usize, nodes: &[u32], resident: bool) -> Result<(), c_int> {
    if weighted(layout) {
        match cost::mbind(start, len, Mode::WeightedInterleave, nodes, resident) {
            Err(libc::EINVAL) => {
                if !UNWEIGHTED.swap(true, Ordering::Relaxed) {
                    say!("weighted-interleave needs Linux 6.9: pages are interleaved without weights");
                }
            }
            done => return done,
        }
    }
    cost::mbind(start, len, Mode::Interleave, nodes, resident)
}

/// The first error that the kernel refused placement with; 0: none yet.
static REFUSED: AtomicI32 = AtomicI32::new(0);

/// The error that the kernel refused placement with, if it has.
pub fn was_refused() -> Option<c_int> {
    Some(REFUSED.load(Ordering::Relaxed)).filter(|error| *error != 0)
}

/// Says once that the kernel refuses placement, with the reason.
pub fn refused(what: &str, error: c_int) {
    if REFUSED.compare_exchange(0, error, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    let why = match error {
        libc::EPERM => "not permitted (a container's seccomp filter? allow mbind or add CAP_SYS_NICE)",
        libc::ENOSYS => "not known to this kernel or filtered (mbind)",
        libc::ENOMEM => "out of mappings or memory (see vm.max_map_count)",
        populate::NO_MEMORY => {
            "mode = \"populate\" would take more memory than is available to this process; leave the mode out"
        }
        libc::EINVAL => "invalid (a node without memory, or outside the cpuset?)",
        _ => "failed",
    };
    say!("cannot place {what}: {why}, error {error}; it stays where the system puts it");
}
