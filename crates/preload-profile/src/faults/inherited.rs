//! A child that was forked in a window: its memory is registered, too, until the parent's thread has copied to it the
//! pages that are away. mremap(2) may fail there as it does in the parent.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use numamma_hook::sys;
use numamma_kernel::lines;

use super::state::{RUNS, STATE, WINDOW};
use super::{end_window, runs};

/// 1: a sampler was started in a child that was forked in a window.
static SERVED: AtomicU32 = AtomicU32::new(0);

/// Time between two looks whether the parent has finished.
const PAUSE_NS: i64 = 1_000_000;
/// Most looks: memory is copied within seconds.
const MOST_LOOKS: usize = 10_000;

/// Called in a child before its own sampler starts.
pub fn remember() {
    if WINDOW.load(Relaxed) == 1 {
        SERVED.store(1, Relaxed);
    }
}

/// Whether the window of a parent may still hold memory of this process.
pub fn may_be_served() -> bool {
    SERVED.load(Relaxed) == 1 || (STATE.load(Acquire) == RUNS && WINDOW.load(Relaxed) == 1 && !runs())
}

/// Returns when the parent's thread has finished.
pub fn wait_for_parent() {
    for _ in 0..MOST_LOOKS {
        if runs() {
            end_window();
        }
        if !is_registered() {
            break;
        }
        sys::wait_while(&SERVED, SERVED.load(Relaxed), PAUSE_NS);
    }
    SERVED.store(0, Relaxed);
    // The copy of the parent's word; with a sampler of its own the word says what that does.
    if !runs() {
        WINDOW.store(0, Relaxed);
    }
}

/// Whether a mapping of this process is registered with a userfaultfd: `um` of proc_pid_smaps(5), for missing pages.
fn is_registered() -> bool {
    let mut found = false;
    lines::for_each(c"/proc/self/smaps", |line| {
        found = line.strip_prefix("VmFlags:").is_some_and(|flags| flags.split(' ').any(|flag| flag == "um"));
        !found
    });
    found
}
