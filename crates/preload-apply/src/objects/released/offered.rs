//! Memory that is kept and offered to the kernel (MADV_FREE in madvise(2)): while memory is short, on the machine or in
//! a control group, the kernel takes its pages as it takes those of files, without writing them anywhere. Else they
//! stay, and cost no page fault when an object is written there again. Until then they hold what they held, or zeroes.
//!
//! So the share of the memory that is kept in any case does not bound what is kept so; what others need does, as far as
//! the kernel does not see to it: address space and data of a process that is limited in these, and what may be mapped
//! where the kernel counts that (overcommit_memory in proc_sys_vm(5)).
//!
//! The pages of populated objects are not offered: those that the kernel took would come back where they are touched.
//!
//! The kernel refuses it for locked memory, and where it is older than 4.5. Before 4.12 one without swap takes the
//! pages at once, which is as if nothing were kept.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU8, Ordering};

use numamma_hook::errno;
use numamma_kernel::{overcommit, sys};
use numamma_plan::policy::Mode;

use super::sparse;
use crate::objects::object::Object;
use crate::rules::state::{Rule, State};

/// Whether memory can be kept so, as far as is known.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const POSSIBLE: u8 = 1;
const REFUSED: u8 = 2;

/// Whether memory can be kept so; asked before the first time, too.
pub fn is_possible() -> bool {
    match STATE.load(Ordering::Relaxed) {
        UNKNOWN => find_out(),
        known => known == POSSIBLE,
    }
}

#[cold]
#[inline(never)]
fn find_out() -> bool {
    let _errno = errno::Saved::now();
    let is_possible = !overcommit::is_strict();
    STATE.store(if is_possible { POSSIBLE } else { REFUSED }, Ordering::Relaxed);
    is_possible
}

/// Offers the pages of `object`, which the program has given up; false when that must not be or does not pay, or when
/// the kernel refuses, as it will from then on.
#[cold]
#[inline(never)]
pub fn offer(state: &'static State, object: &Object) -> bool {
    if is_populated(state, object) {
        return false;
    }
    let _errno = errno::Saved::now();
    if sparse::is_sparse(object.base, object.bytes()) {
        return false;
    }
    // SAFETY: the program gave the object up: what it holds is not needed.
    let done = unsafe { sys::advise(object.base as *mut c_void, object.bytes(), libc::MADV_FREE) };
    if !done {
        STATE.store(REFUSED, Ordering::Relaxed);
    }
    done
}

/// Whether the place of any page of `object` does not follow from a memory policy.
pub fn is_populated(state: &'static State, object: &Object) -> bool {
    let populates =
        |rule: &Rule| rule.placings.get(object.placing).is_none_or(|p| p.place.mode == Some(Mode::Populate));
    state.rules_of(object.rule).any(populates)
}
