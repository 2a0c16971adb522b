//! Processes that a bound thread starts may use the CPUs that it could use before it was bound.
//!
//! A child inherits the CPUs of the thread that starts it. A child that was kept to a node would count the CPUs of that
//! node alone, and all children of one thread would share them. So they are given back where the child still runs code
//! of this library, or where its parent does:
//!
//! - after fork in the child, as LLVM's OpenMP runtime does with its own binding (`__kmp_atfork_child`);
//! - before exec in the task that calls it: a vforked child shares memory with its parent, but not the CPUs;
//! - for posix_spawn, system and popen, whose children call no hook, by giving them back to the parent's thread for
//!   the time of the call.
//!
//! Nothing is handed on in the environment: a program without this library gets the same CPUs (statically linked, with
//! an empty environment), and what a taskset in between sets stays, because the taskset itself starts unbound.
//!
//! Not covered: children by the system call clone or by `_Fork` that go on without exec, tasks without thread-local
//! storage ([`static_tls::exists`]), and system calls `execve` that are not made by the C library's functions.

use numamma_hook::{errno, sandbox, static_tls};

use super::binding;

/// Registers what a forked child does first. Called before threads are bound.
pub fn start() {
    // SAFETY: the function lives as long as the process: preloaded libraries are not unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
}

/// In a forked child. Neither allocates nor waits.
unsafe extern "C" fn after_fork() {
    before_exec();
    binding::end_in_child();
}

/// What a thread does before it replaces the program. If that fails, the thread stays unbound.
#[inline]
pub fn before_exec() {
    if static_tls::exists() && binding::was_bound() && !sandbox::entered() {
        let _errno = errno::Saved::now();
        binding::lift();
    }
}

/// What a thread does before a call that starts a process. Whether [`after_start`] is to follow.
#[inline]
pub fn before_start() -> bool {
    if !binding::was_bound() || sandbox::entered() {
        return false;
    }
    let _errno = errno::Saved::now();
    binding::lift()
}

/// What a thread does after a call that started a process.
pub fn after_start() {
    let _errno = errno::Saved::now();
    if !sandbox::entered() {
        binding::bind_again();
    }
}
