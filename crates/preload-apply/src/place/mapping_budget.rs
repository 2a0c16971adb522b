//! Keeps placed objects within their share of vm.max_map_count by enlarging blocks.

use core::sync::atomic::Ordering;
use std::sync::OnceLock;

use numamma_hook::{say, say_once};
use numamma_plan::plan::{Layout, PagePlan};
use numamma_plan::policy::Mode;

use crate::rules::state::State;

/// Unmaps freed memory that is kept for later objects; see [`on_shortage`].
static UNMAP_KEPT: OnceLock<fn() -> bool> = OnceLock::new();

/// Sets what is called when the budget is short.
pub fn on_shortage(unmap_kept: fn() -> bool) {
    let _ = UNMAP_KEPT.set(unmap_kept);
}

/// Has the memory that is kept unmapped if the budget is too small for `wanted` mappings in place of `old` ones.
pub fn make_room(state: &State, wanted: u64, old: u64) {
    if state.used_mappings().saturating_add(wanted.saturating_sub(old)) > state.budget() {
        UNMAP_KEPT.get().map(|unmap_kept| unmap_kept());
    }
}

/// Enlarges the blocks of `plan` until its mappings fit the budget, and takes these mappings from the budget. False
/// when not even one block on each node fits.
pub fn fit(state: &State, rule: usize, plan: &mut PagePlan<'_>) -> bool {
    fit_replacing(state, rule, plan, 0)
}

/// As [`fit`], for an object whose `old` mappings those of `plan` replace. When the result is false, the object keeps
/// the old mappings.
pub fn fit_replacing(state: &State, rule: usize, plan: &mut PagePlan<'_>, old: u64) -> bool {
    let smallest = plan.nodes.len() as u64;
    let asked = plan.run_count();
    let mut left_for_blocks = None;
    loop {
        let wanted = plan.run_count();
        let Err(left) = state.take_mappings(wanted, old) else { break };
        if left < smallest {
            say_used(state, rule);
            return false;
        }
        left_for_blocks = Some(left);
        // Takes half of the remaining budget, so that later objects can be placed, too.
        plan.coarsen((left / 2).max(smallest));
    }
    if let (Some(left), Layout::Blocks(block, _)) = (left_for_blocks, plan.layout) {
        say_enlarged(state, rule, [asked, left, block]);
    }
    true
}

/// Says that the budget is used up. Not inlined: messages take much of the stack.
#[cold]
#[inline(never)]
fn say_used(state: &State, rule: usize) {
    say_once!(
        "{}: placed objects use all {} mappings they may (see vm.max_map_count); further ones are left to \
                 first touch; use larger blocks or mode = \"populate\", or raise vm.max_map_count",
        name_of(state, rule),
        state.budget()
    );
}

/// Says, once for a rule, that instead of `asked` blocks, for which `left` mappings are too few, there are larger ones of
/// `block` bytes. Not inlined, as [`say_used`].
#[cold]
#[inline(never)]
fn say_enlarged(state: &State, rule: usize, [asked, left, block]: [u64; 3]) {
    if state.rules.get(rule).is_none_or(|r| r.said_enlarged.swap(true, Ordering::Relaxed)) {
        return;
    }
    // The plan of reserved and shared memory never populates, so the mode is read from the rule.
    let populated = state.rules.get(rule).is_some_and(|r| r.rule.place.mode == Some(Mode::Populate));
    let hint = if populated { "" } else { "; mode = \"populate\" keeps them small" };
    say!(
        "{}: {asked} blocks are more mappings than the {left} left of a quarter of vm.max_map_count; \
         using blocks of {} KiB{hint}",
        name_of(state, rule),
        block / 1024
    );
}

fn name_of(state: &State, rule: usize) -> &str {
    state.rules.get(rule).map_or("?", |r| r.rule.name())
}
