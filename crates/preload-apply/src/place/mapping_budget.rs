//! The share of vm.max_map_count that placed objects may use: block sizes that keep within it.

use core::sync::atomic::{AtomicBool, Ordering};

use numamma_hook::say;
use numamma_plan::plan::{Layout, PagePlan};
use numamma_plan::policy::Mode;

use crate::rules::state::State;

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
        let populated = state.rules.get(rule).is_some_and(|r| r.rule.place.mode == Some(Mode::Populate));
        let next = if populated { "" } else { "; mode = \"populate\" keeps them small" };
        say!(
            "{}: {asked} blocks are more mappings than the {left} left of a quarter of vm.max_map_count; using blocks of {} KiB{next}",
            name(),
            block * 4
        );
    }
    true
}
