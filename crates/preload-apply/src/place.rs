//! Putting one range where its plan says.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

use numamma_hook::say;
use numamma_hook::sys::PAGE;
use numamma_plan::plan::{Layout, PagePlan};

use crate::check;
use crate::kernel::{self, Mode};
use crate::state::State;

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
    let name = || state.rules.get(rule).map_or("?", |r| r.rule.name());
    let smallest = plan.nodes.len() as u64;
    loop {
        let wanted = plan.run_count();
        let Err(left) = state.take_mappings(wanted) else { return true };
        if left < smallest {
            static SAID: AtomicBool = AtomicBool::new(false);
            if !SAID.swap(true, Ordering::Relaxed) {
                say!(
                    "{}: placed objects use all {} mappings they may (a quarter of vm.max_map_count); further ones are left to first touch; use larger blocks or raise vm.max_map_count",
                    name(),
                    state.budget()
                );
            }
            return false;
        }
        // Half of what is left, so that later objects find room, too.
        plan.coarsen((left / 2).max(smallest));
        static SAID: AtomicBool = AtomicBool::new(false);
        if let (Layout::Blocks(block), false) = (plan.layout, SAID.swap(true, Ordering::Relaxed)) {
            say!(
                "{}: {wanted} blocks are more mappings than the {left} left of a quarter of vm.max_map_count; using blocks of {} KiB",
                name(),
                block * 4
            );
        }
    }
}

/// Places `part` of the object whose first whole page is at `base`. `resident`: pages may exist already.
/// `node` is the node of a `local` object.
pub fn apply(plan: &PagePlan<'_>, base: usize, part: Part, node: u32, resident: bool) -> Result<(), c_int> {
    let at = |page: u64| base + page as usize * PAGE;
    let (start, len) = (at(part.first), part.pages as usize * PAGE);
    match plan.layout {
        Layout::Default => Ok(()),
        _ if part.pages == 0 => Ok(()),
        Layout::Bind => kernel::mbind(start, len, Mode::Bind, &plan.nodes, resident),
        Layout::Local => kernel::mbind(start, len, Mode::Preferred, &[node], resident),
        Layout::Interleave => {
            kernel::mbind(start, len, Mode::Interleave, &plan.nodes, resident)?;
            if resident {
                // The kernel leaves resident pages that are on any node of the mask.
                check::settle_interleave(plan, start, len);
            }
            Ok(())
        }
        Layout::Blocks(_) => plan.runs().try_for_each(|run| {
            let first = run.first.max(part.first);
            let end = (run.first + run.pages).min(part.first + part.pages);
            let Some(&node) = plan.nodes.get(run.node as usize).filter(|_| first < end) else { return Ok(()) };
            kernel::mbind(at(first), (end - first) as usize * PAGE, Mode::Preferred, &[node], resident)
        }),
    }
}

/// Says once that the kernel refuses placement, with the reason.
pub fn refused(what: &str, error: c_int) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let why = match error {
        libc::EPERM => "not permitted (a container's seccomp filter? allow mbind or add CAP_SYS_NICE)",
        libc::ENOSYS => "not known to this kernel or filtered (mbind)",
        libc::ENOMEM => "out of mappings or memory (see vm.max_map_count)",
        libc::EINVAL => "invalid (a node without memory, or outside the cpuset?)",
        _ => "failed",
    };
    say!("cannot place {what}: {why}, error {error}; it stays where the system puts it");
}
