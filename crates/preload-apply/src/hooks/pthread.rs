//! pthread_create: new threads are bound to their nodes.

use core::ffi::{c_int, c_void};

use numamma_hook::entry::Caller;
use numamma_hook::thread_start;
use numamma_hook::{errno, fork_wiped, real, sandbox};

use crate::held_files;
use crate::matching::{call_sites, pending};
use crate::objects::released;
use crate::phases::mover_request;
use crate::threads::{binding, thread_nodes};

numamma_hook::entry! {
    /// pthread_create(3): four arguments.
    fn pthread_create(thread: *mut libc::pthread_t, attr: *const libc::pthread_attr_t, routine: real::StartRoutine,
                      arg: *mut c_void, unused: usize, unused_too: usize) -> c_int => create_bound;
}

#[allow(clippy::too_many_arguments)] // those of pthread_create and the caller
unsafe extern "C" fn create_bound(
    thread: *mut libc::pthread_t,
    attr: *const libc::pthread_attr_t,
    routine: real::StartRoutine,
    arg: *mut c_void,
    _: usize,
    _: usize,
    ra: usize,
    cfa: usize,
    rbp: usize,
) -> c_int {
    mover_request::keep_stacks();
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
    let token = {
        let _errno = errno::Saved::now();
        // SAFETY: the caller as the stub saw it.
        unsafe { binding::token(routine as usize, &Caller { ra, cfa, rbp }) }
    };
    // SAFETY: forwarded unchanged, with a callback that runs before the start routine.
    let rc = or_give_way(|| unsafe { thread_start::create(thread, attr, routine, arg, token, binding::on_start) });
    if rc != 0 {
        binding::not_created(token);
    }
    rc
}

/// What `create` returns; if it finds no memory for a stack while freed memory is kept, what it returns once that has
/// been given back.
fn or_give_way(create: impl Fn() -> c_int) -> c_int {
    if fork_wiped::is_forked_child() && !sandbox::entered() {
        let _errno = errno::Saved::now();
        held_files::open();
    }
    // Before and after: the new thread may allocate at once.
    thread_nodes::created();
    let found = match create() {
        libc::EAGAIN | libc::ENOMEM if released::give_way() => create(),
        found => found,
    };
    thread_nodes::created();
    found
}

/// Whether the program set CPUs in the attributes: glibc returns a set of all ones when it did not. The
/// set is not to stand on the stack while the thread is created.
#[inline(never)]
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
