//! The functions that end a process or confine it: each writes the report.
//!
//! Whichever runs first writes the report: the destructor of this library (exit, return from main), `_exit`, `_Exit`,
//! quick_exit, or prctl before the program confines itself with seccomp. A process that ends by a signal or calls exec
//! writes none.

use core::cell::Cell;
use core::ffi::{c_int, c_void};

use numamma_hook::sandbox::Reactions;
use numamma_hook::{real, static_tls};

use crate::phases::mover_request;
use crate::report::json as report;
use crate::rules::state;

unsafe extern "C" {
    /// What at_quick_exit(3) calls.
    fn __cxa_at_quick_exit(function: extern "C" fn(*mut c_void), dso: *mut c_void) -> c_int;
}

extern "C" fn at_quick_exit(_argument: *mut c_void) {
    report::finish();
}

/// Registers the report for quick_exit. Handlers run in reverse order, so the report comes after all handlers of the
/// program.
pub fn register() {
    if state::get().is_some() {
        // SAFETY: the function lives as long as the process: preloaded libraries are not unloaded.
        unsafe { __cxa_at_quick_exit(at_quick_exit, core::ptr::null_mut()) };
    }
}

numamma_hook::prctl_entry!(Reactions {
    before: before_confinement,
    entered: mover_request::end,
    refused: mover_request::resume
});

/// Writes the report, and makes the real allocator ready: bare, it was when the objects that are placed were allocated.
fn before_confinement(_strict: bool) {
    report::finish();
    if state::get().is_some() {
        // SAFETY: a block that is freed at once. glibc's first malloc in a thread calls getrandom and brk.
        unsafe { real::free(core::hint::black_box(real::malloc(1))) };
    }
}

#[repr(C)]
struct Block {
    /// An address on the stack below which the next library's `_exit` is running; 0: it is not. The same of `_Exit`.
    in_exit: Cell<usize>,
    in_capital_exit: Cell<usize>,
}

numamma_hook::static_tls!(fn block() -> Block, "numamma_apply_exit");

/// Stack that the `_exit` of another library may use before it calls ours again, at most.
const DEPTH: usize = 256 << 10;

/// Ends the process through `next`, the same function of the next library in the chain: that may have a hook, too. If
/// the hook calls its own function by name, which leads here again, or returns, the system call ends the process.
fn end(status: c_int, next: Option<unsafe extern "C" fn(c_int)>, ending_at: fn(&Block) -> &Cell<usize>) -> ! {
    if !static_tls::exists() {
        end_here(status);
    }
    let ending_at = ending_at(block());
    // A vfork child shares memory with its parent but has another process id, so `finish` does nothing there.
    report::finish();
    let here = (&raw const status) as usize;
    // A vforked child that ended leaves its mark in the memory of its parent, mostly at the same depth. If the parent
    // ends further down the stack, the next library's hook is skipped.
    let again = (here + 1..here.saturating_add(DEPTH)).contains(&ending_at.get());
    if let (false, Some(next)) = (again, next) {
        ending_at.set(here);
        // SAFETY: C's contract of _exit, forwarded unchanged.
        unsafe { next(status) };
    }
    end_here(status)
}

fn end_here(status: c_int) -> ! {
    loop {
        // SAFETY: what glibc's _exit does; it does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

numamma_hook::deferred_entry! {
    /// _exit(2).
    fn _exit(status: c_int) -> ! => exit_at_once;
    /// _Exit(3).
    fn _Exit(status: c_int) -> ! => capital_exit;
}

unsafe extern "C" fn exit_at_once(status: c_int) -> ! {
    end(status, real::symbol::_exit(), |block| &block.in_exit)
}

unsafe extern "C" fn capital_exit(status: c_int) -> ! {
    end(status, real::symbol::_Exit(), |block| &block.in_capital_exit)
}
