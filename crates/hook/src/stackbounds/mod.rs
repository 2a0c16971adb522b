//! Bounds of the calling thread's stack: how far the unwinder may read.
//!
//! A thread made through the pthread_create hook records its bounds when it starts. The main thread has the initial
//! stack of the process, which grows: its bounds are what /proc/self/maps showed to be mapped, and the file is read
//! again for a stack pointer below them, unless another mapping lies between. A thread made in another way is looked
//! up in the file, too.
//!
//! A stack pointer outside the bounds means a coroutine or an alternate signal stack. Their bounds are not known: a
//! guard page may adjoin them, and the program may unmap them at any time. Coroutines on memory of the thread's own
//! stack are inside the bounds and are read as that.

mod seen;

use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};

use numamma_kernel::sys;

use crate::own_stack;
use seen::{Initial, Seen};

/// The stack of one thread, addresses in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Lowest address it may grow to.
    pub low: usize,
    /// One past its highest address.
    pub high: usize,
}

impl Bounds {
    fn contains(&self, address: usize) -> bool {
        (self.low..self.high).contains(&address)
    }
}

#[repr(C)]
struct Block {
    /// Lowest address known to be readable stack.
    low: Cell<usize>,
    /// 0 not known.
    high: Cell<usize>,
    /// A stack pointer below this is on another stack.
    floor: Cell<usize>,
    /// See [`may_look_up`].
    spent: Cell<usize>,
}

crate::static_tls!(fn block() -> Block, "numamma_hook_stackbounds");

/// Lines of /proc/self/maps that a thread may read at once: a main stack that grows to 8 MiB (the usual limit) page by
/// page is looked up 2,000 times, in programs that mostly have 40 to 130 mappings. 800 lookups of 30 mappings were
/// measured to take 30 ms.
const LINES: usize = 1 << 18;

/// Lines that take as long as opening and closing the file.
const LINES_TO_OPEN: usize = 32;

/// Lines charged when the file cannot be read, which will hardly change.
const LINES_IF_UNREADABLE: usize = 1 << 12;

/// Span assumed for a main stack without limit (`ulimit -s unlimited`).
const UNLIMITED_STACK: usize = 64 << 30;

/// Records this thread's bounds, which do not change; called by the thread start trampoline.
pub fn set(bounds: Bounds) {
    record(bounds, bounds.low);
}

fn record(bounds: Bounds, floor: usize) {
    let block = block();
    block.floor.set(floor);
    block.low.set(bounds.low);
    // A signal handler that allocates in between finds `high` = 0, or the same `high` as now.
    compiler_fence(Ordering::Release);
    block.high.set(bounds.high);
}

fn known() -> Bounds {
    Bounds { low: block().low.get(), high: block().high.get() }
}

/// Upper bound for a walk that starts at `sp`, or 0 when `sp` is outside the thread's known stack.
#[inline(always)]
pub fn high_for(sp: usize) -> usize {
    let block = block();
    let high = block.high.get();
    if sp >= block.low.get() && sp < high { high } else { high_beyond(sp) }
}

/// [`high_for`] outside what is known.
#[cold]
#[inline(never)]
fn high_beyond(sp: usize) -> usize {
    let Bounds { high, .. } = known();
    let elsewhere = high != 0 && (sp >= high || sp < block().floor.get());
    if elsewhere || !may_look_up(&block().spent) {
        return 0;
    }
    look_up(sp);
    if known().contains(sp) { known().high } else { 0 }
}

/// Whether another lookup is not too much: those of a thread read [`LINES`] lines and then one for each call.
fn may_look_up(spent: &Cell<usize>) -> bool {
    spent.set(spent.get().saturating_sub(1));
    spent.get() < LINES
}

/// This thread's bounds, as far as its stack may grow; `None` when they are not known. `sp` is any address on its
/// current stack.
pub fn bounds(sp: usize) -> Option<Bounds> {
    if block().high.get() == 0 {
        high_beyond(sp);
    }
    let (Bounds { low, high }, floor) = (known(), block().floor.get());
    let reach = if floor < low { high.saturating_sub(main_stack_limit()).max(floor) } else { low };
    (high != 0).then_some(Bounds { low: low.min(reach), high })
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

fn look_up(sp: usize) {
    if crate::sandbox::entered() {
        return;
    }
    let _errno = crate::errno::Saved::now();
    let tp = thread_pointer();
    let Some(seen) = own_stack::run(|| Seen::now(tp)) else { return charge(LINES_IF_UNREADABLE) };
    charge(if seen.lines == 0 { LINES_IF_UNREADABLE } else { seen.lines + LINES_TO_OPEN });
    if sys::pid() != sys::tid() {
        // The stack may have merged with mappings below, but nothing separates them.
        return seen.below_control_block.filter(|own| own.contains(sp)).map_or((), set);
    }
    let Some(initial) = seen.initial else { return };
    let is_first = block().high.get() == 0;
    let floor = floor(&initial, !is_first && !initial.mapped.contains(sp));
    record(initial.mapped, floor.max(block().floor.get()));
}

fn charge(lines: usize) {
    let spent = &block().spent;
    spent.set(spent.get().saturating_add(lines));
}

/// Where stack pointers of other stacks are told without a lookup. `in_vain` when the last lookup was for one of them:
/// then the program maps stacks above all mappings, and new ones will be nearer to those than to the initial stack.
fn floor(initial: &Initial, in_vain: bool) -> usize {
    let gap = initial.mapped.low.saturating_sub(initial.below);
    if in_vain { initial.below + gap / 2 } else { initial.below }
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

    /// Threads of libtest are not made through the hook.
    #[test]
    fn a_thread_that_is_on_another_stack_first_finds_its_own_later() {
        let boxed = Box::new(0_u8);
        assert_eq!(high_for(&raw const *boxed as usize), 0);
        assert_eq!(bounds(&raw const *boxed as usize), None);
        let local = 0_u8;
        assert_eq!(high_for(&raw const local as usize), thread_pointer());
    }

    #[test]
    fn main_thread_stack_reaches_its_limit() {
        let limit = main_stack_limit();
        assert!(limit >= 64 << 10);
    }

    #[test]
    fn lookups_in_vain_are_bounded() {
        let boxed = Box::new(0_u8);
        let calls = LINES;
        let mut lookups = 0;
        for _ in 0..calls {
            let before = block().spent.get();
            assert_eq!(high_beyond(&raw const *boxed as usize), 0);
            lookups += usize::from(block().spent.get() > before);
        }
        // Each took a line at least, and more to open the file.
        assert!((2..(LINES + calls) / LINES_TO_OPEN).contains(&lookups), "{lookups} in {calls} calls");
        assert!(block().spent.get() < LINES + (1 << 16));
    }

    #[test]
    fn the_floor_is_below_the_stack_and_rises_towards_it_in_vain() {
        let mut initial = Initial { mapped: Bounds { low: 1 << 40, high: (1 << 40) + 4096 }, below: 0 };
        assert_eq!(floor(&initial, false), 0);
        for lookups in 1..=40 {
            initial.below = floor(&initial, true); // the next stack is mapped just there
            assert_eq!((1_usize << 40) - initial.below, 1 << (40 - lookups));
        }
        initial.below = initial.mapped.low;
        assert_eq!(floor(&initial, true), initial.mapped.low);
    }
}
