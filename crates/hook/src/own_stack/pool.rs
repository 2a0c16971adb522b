//! The stacks of the process.
//!
//! A stack is mapped when it is first needed and never unmapped. Which stacks are taken is noted on a page that a
//! forked child finds zeroed, since the threads that hold them do not exist there; the one that a thread forked on (in
//! a signal handler, while its work breathed) is left out by its own list.

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use numamma_kernel::mappings;

use super::{Perform, Wish, begin, switch};
use crate::sys::PAGE;

/// Stacks of a process. Each serves one thread at a time, for microseconds; a thread that finds none goes on without.
const STACKS: usize = 64;

/// Bytes of a stack. Checking pages needs 24 KiB, reading symbols and line tables 40 KiB in a debug build.
pub const BYTES: usize = 256 << 10;

/// One stack. The record lies at the upper end of its memory, below which the stack grows down to a page that cannot be
/// touched.
#[repr(C, align(16))]
pub struct Stack {
    number: usize,
    /// The stack pointer of the thread's own stack while it is on this one.
    pub caller_sp: Cell<usize>,
    /// The stack pointer of this stack while its code waits to be resumed.
    pub own_sp: Cell<usize>,
    /// Why the code left the stack.
    pub wish: Cell<Wish>,
    /// The code to run, and its argument.
    pub perform: Cell<Perform>,
    pub job: Cell<*mut c_void>,
    /// The stack that the thread held already when it took this one.
    outer: Cell<*const Stack>,
}

impl Stack {
    /// Whether `address` is on this stack.
    pub fn holds(&self, address: usize) -> bool {
        (core::ptr::from_ref(self) as usize).wrapping_sub(address) < BYTES
    }

    /// Makes the next switch to the stack call `perform(job)`.
    pub fn prepare(&'static self, perform: Perform, job: *mut c_void) {
        self.perform.set(perform);
        self.job.set(job);
        let top = core::ptr::from_ref(self);
        // SAFETY: the stack has just been taken, so no code uses it; it ends at its record, which is aligned to 16.
        self.own_sp.set(unsafe { switch::prepare(top as usize, top, begin) });
    }
}

static MAPPED: [AtomicPtr<Stack>; STACKS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; STACKS];

/// 1 for a stack that is taken.
type Taken = [AtomicU32; STACKS];

/// Used until [`start`], and where the kernel cannot wipe a page on fork (before 4.14): there a forked child does
/// without the stacks that other threads of its parent held.
static BEFORE_START: Taken = [const { AtomicU32::new(0) }; STACKS];
static TAKEN: AtomicPtr<Taken> = AtomicPtr::new(&raw const BEFORE_START as *mut Taken);

fn taken() -> &'static Taken {
    // SAFETY: `BEFORE_START` or a page that is never unmapped; all zero bytes are valid.
    unsafe { &*TAKEN.load(Ordering::Acquire) }
}

/// Maps the first stack, so that there is one when memory is exhausted. To be called before the program has threads.
pub fn start() {
    const { assert!(size_of::<Taken>() <= PAGE) };
    if core::ptr::eq(taken(), &raw const BEFORE_START)
        && let Some(page) = mappings::map_wiped_on_fork(PAGE)
    {
        TAKEN.store(page.cast(), Ordering::Release);
    }
    if let Some(stack) = take(core::ptr::null()) {
        give(stack);
    }
}

/// A stack for this thread, which holds `outer` and the stacks that `outer` names already. `None` when all are taken
/// and no other can be mapped.
pub fn take(outer: *const Stack) -> Option<&'static Stack> {
    let mapped = |number: usize| -> Option<&'static Stack> {
        // SAFETY: null, or a stack, which is never unmapped.
        unsafe { MAPPED.get(number)?.load(Ordering::Acquire).as_ref() }
    };
    let claim = |number: usize| {
        let word = taken().get(number)?;
        let free = !holds(outer, number) && word.load(Ordering::Relaxed) == 0;
        // Acquire pairs with the Release of `give`: the previous owner has left the stack.
        (free && word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()).then_some(number)
    };
    let used_before = || (0..STACKS).filter(|&n| mapped(n).is_some()).find_map(claim).and_then(mapped);
    let fresh = || {
        let number = (0..STACKS).filter(|&n| mapped(n).is_none()).find_map(claim)?;
        let stack = mapped(number).or_else(|| map(number));
        if stack.is_none() {
            release(number);
        }
        stack
    };
    let stack = used_before().or_else(fresh)?;
    stack.outer.set(outer);
    Some(stack)
}

/// Whether stack `number` is `outer` or one that `outer` names.
fn holds(mut outer: *const Stack, number: usize) -> bool {
    // SAFETY: null, or a stack, which is never unmapped.
    while let Some(stack) = unsafe { outer.as_ref() } {
        if stack.number == number {
            return true;
        }
        outer = stack.outer.get();
    }
    false
}

/// Makes a stack available to all threads.
pub fn give(stack: &'static Stack) {
    release(stack.number);
}

fn release(number: usize) {
    if let Some(word) = taken().get(number) {
        word.store(0, Ordering::Release);
    }
}

/// Maps stack `number`, which this thread has claimed.
#[cold]
fn map(number: usize) -> Option<&'static Stack> {
    let low = mappings::reserve(PAGE + BYTES)?;
    if !mappings::make_usable(low + PAGE, BYTES) {
        // SAFETY: the mapping was made above, and no pointer to it has left this function.
        unsafe { crate::sys::unmap(low as *mut c_void, PAGE + BYTES) };
        return None;
    }
    let stack = (low + PAGE + BYTES - size_of::<Stack>()) as *mut Stack;
    /// Never called: each use of the stack sets the code to run.
    unsafe fn nothing(_job: *mut c_void) {}
    let (null, zero) = (core::ptr::null_mut(), || Cell::new(0));
    let record = Stack {
        number,
        caller_sp: zero(),
        own_sp: zero(),
        wish: Cell::new(Wish::End),
        perform: Cell::new(nothing),
        job: Cell::new(null),
        outer: Cell::new(core::ptr::null()),
    };
    // SAFETY: the record lies in the fresh mapping, aligned, since the mapping ends at a page and the record's size is
    // a multiple of its alignment.
    unsafe { stack.write(record) };
    valgrind_stack(low + PAGE, stack as usize);
    MAPPED.get(number)?.store(stack, Ordering::Release);
    // SAFETY: written above, never unmapped.
    unsafe { stack.as_ref() }
}

/// Tells valgrind of a stack (its client request VG_USERREQ__STACK_REGISTER), which would otherwise take a switch for a
/// very large frame. Elsewhere the instructions do nothing.
fn valgrind_stack(low: usize, high: usize) {
    const STACK_REGISTER: usize = 0x1501;
    let request = [STACK_REGISTER, low, high, 0, 0, 0];
    // SAFETY: four rotations by 128 bits in all and an exchange of a register with itself; valgrind reads `request` and
    // writes rdx.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            inout("rdi") 0_usize => _,
            in("rax") request.as_ptr(),
            inout("rdx") 0_usize => _,
            options(nostack),
        );
    }
}
