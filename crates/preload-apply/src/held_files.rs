//! The files that this library reads while threads of the program run: opened before, see [`numamma_kernel::held_file`].

use numamma_kernel::{maps, overcommit, own_stat, pagemap, statm};

use crate::rules::state;

/// Opens those that are not open, if the process has one thread: at the start, and in a forked child before it has more.
pub fn open() {
    statm::hold();
    maps::hold();
    overcommit::is_strict();
    if state::get().is_some_and(|state| state.rules.iter().any(|rule| rule.placings.len() > 1)) {
        pagemap::hold();
        own_stat::hold();
    }
}
