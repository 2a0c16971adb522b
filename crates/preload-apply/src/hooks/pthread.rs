//! pthread_create: new threads are bound to their nodes.

use core::ffi::{c_int, c_void};

use numamma_hook::thread_start;
use numamma_hook::{errno, real, sandbox};

use crate::matching::{call_sites, pending};
use crate::objects::released;
use crate::threads::binding;

/// pthread_create(3).
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attr: *const libc::pthread_attr_t,
    routine: real::StartRoutine,
    arg: *mut c_void,
) -> c_int {
    if pending::is_pending() {
        let _errno = errno::Saved::now();
        call_sites::ensure_known(routine as usize);
    }
    // SAFETY: C's contract of the attributes.
    if !binding::active() || sandbox::entered() || unsafe { sets_affinity(attr) } {
        let Some(real) = real::symbol::pthread_create() else { return libc::EAGAIN };
        // SAFETY: forwarded unchanged.
        return or_give_way(|| unsafe { real(thread, attr, routine, arg) });
    }
    let rank = {
        let _errno = errno::Saved::now();
        binding::next_rank()
    };
    // SAFETY: forwarded unchanged, with a callback that runs before the start routine.
    or_give_way(|| unsafe { thread_start::create(thread, attr, routine, arg, u64::from(rank), binding::on_start) })
}

/// What `create` returns; if it finds no memory for a stack while freed memory is kept, what it returns once that has
/// been given back.
fn or_give_way(create: impl Fn() -> c_int) -> c_int {
    match create() {
        libc::EAGAIN | libc::ENOMEM if released::give_way() => create(),
        found => found,
    }
}

/// Whether the program set CPUs in the attributes: glibc returns a set of all ones when it did not.
unsafe fn sets_affinity(attr: *const libc::pthread_attr_t) -> bool {
    if attr.is_null() {
        return false;
    }
    // SAFETY: an all-zero set is valid; `attr` is initialised by C's contract.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        let rc = libc::pthread_attr_getaffinity_np(attr, size_of::<libc::cpu_set_t>(), &raw mut set);
        rc == 0 && libc::CPU_COUNT(&set) < 8 * size_of::<libc::cpu_set_t>() as c_int
    }
}
