//! The files that this library reads while threads of the program run: opened before, see
//! [`numamma_kernel::held_file`].

use numamma_kernel::{maps, overcommit, own_stat, pagemap, statm, threads};
use numamma_plan::policy::PolicyKind;

use crate::rules::state;

/// Opens those that are not open, if the process has one thread: at the start, and in a forked child before it has
/// more.
pub fn open() {
    statm::hold();
    maps::hold();
    overcommit::is_strict();
    let Some(state) = state::get() else { return };
    if state.rules.iter().any(|rule| rule.placings.len() > 1) {
        pagemap::hold();
        own_stat::hold();
    }
    let mut placings = state.rules.iter().flat_map(|rule| &rule.placings);
    if placings.any(|placing| placing.place.policy == PolicyKind::BindBlock) {
        threads::hold();
    }
}
