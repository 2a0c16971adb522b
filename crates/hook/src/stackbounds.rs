//! Bounds of the calling thread's stack: how far the unwinder may read.
//!
//! A thread made through the pthread_create hook records its bounds when it starts; those of the main thread and of any
//! other are looked up once in /proc/self/maps with plain system calls. A stack pointer outside these bounds means a
//! coroutine or an alternate signal stack, whose bounds are not known.

use core::cell::Cell;

use numamma_kernel::{maps, sys};

use crate::own_stack;

/// The stack of one thread, addresses in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Lowest address it may grow to.
    pub low: usize,
    /// One past its highest address.
    pub high: usize,
}

#[repr(C)]
struct Block {
    low: Cell<usize>,
    high: Cell<usize>,
}

crate::static_tls!(fn block() -> Block, "numamma_hook_stackbounds");

/// `high` after a lookup that failed: no stack pointer lies below it.
const UNKNOWN: usize = 1;

/// Span assumed for a main stack without limit (`ulimit -s unlimited`); mappings of the program lie far lower.
const UNLIMITED_STACK: usize = 64 << 30;

/// Records this thread's bounds; called by the thread start trampoline.
pub fn set(bounds: Bounds) {
    block().low.set(bounds.low);
    block().high.set(bounds.high);
}

/// Upper bound for a walk that starts at `sp`, or 0 when `sp` is outside the thread's known stack.
#[inline(always)]
pub fn high_for(sp: usize) -> usize {
    let block = block();
    if block.high.get() == 0 {
        look_up(sp);
    }
    if sp >= block.low.get() && sp < block.high.get() { block.high.get() } else { 0 }
}

/// This thread's bounds, or `None` when they are not known. `sp` is any address on its current stack.
pub fn bounds(sp: usize) -> Option<Bounds> {
    if block().high.get() == 0 {
        look_up(sp);
    }
    let (low, high) = (block().low.get(), block().high.get());
    (high > UNKNOWN).then_some(Bounds { low, high })
}

/// Address of the thread control block, which glibc puts just above the stack of a thread it made.
pub fn thread_pointer() -> usize {
    let tp: usize;
    // SAFETY: the first word of the thread control block points to itself (x86_64 TLS ABI).
    unsafe {
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) tp, options(pure, nomem, nostack, preserves_flags))
    };
    tp
}

#[cold]
#[inline(never)]
fn look_up(sp: usize) {
    if crate::sandbox::entered() {
        return set(Bounds { low: UNKNOWN, high: UNKNOWN });
    }
    let _errno = crate::errno::Saved::now();
    let Some(range) = own_stack::run(|| maps::own_range_of(sp)) else { return };
    let found = range.map(|(low, high)| {
        if sys::pid() == sys::tid() {
            return Bounds { low: high.saturating_sub(main_stack_limit()).min(low), high };
        }
        // The mapping may have merged with another one above; the thread control block ends the stack.
        let tp = thread_pointer();
        Bounds { low, high: if (sp..high).contains(&tp) { tp } else { high } }
    });
    set(found.unwrap_or(Bounds { low: UNKNOWN, high: UNKNOWN }));
}

fn main_stack_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    if rc == 0 && limit.rlim_cur != libc::RLIM_INFINITY { limit.rlim_cur as usize } else { UNLIMITED_STACK }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_stack_is_found_and_elsewhere_is_not() {
        let local = 0_u8;
        let sp = &raw const local as usize;
        let high = high_for(sp);
        assert!(high > sp && high - sp < 64 << 20);
        let boxed = Box::new(0_u8);
        assert_eq!(high_for(&raw const *boxed as usize), 0);
    }

    #[test]
    fn main_thread_stack_reaches_its_limit() {
        let limit = main_stack_limit();
        assert!(limit >= 64 << 10);
    }
}
