//! Runs a callback in each new thread before the program's start routine.
//!
//! [`create`] gives the real pthread_create a trampoline that records the stack bounds, calls back, and then *jumps*
//! to the program's start routine: no frame of this library stays on the new stack, so its unwinding, cancellation
//! and exit are as without this library.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::real::{self, StartRoutine};
use crate::stackbounds::{self, Bounds};
use crate::sys;

/// What the callback is told about the new thread.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// The program's start routine.
    pub start_routine: usize,
    /// The argument that it will get.
    pub argument: usize,
    /// Its stack.
    pub stack: Bounds,
    /// Value given to [`create`], for instance the creation number.
    pub token: u64,
}

/// Called in the new thread before the start routine. Must not panic.
pub type OnStart = fn(&Started);

/// Data for the new thread, filled by the creating thread. Records are reused, never unmapped.
#[repr(C)]
struct Record {
    next: AtomicUsize,
    start: Option<StartRoutine>,
    arg: *mut c_void,
    on_start: Option<OnStart>,
    token: u64,
    /// Lowest address of a stack the program supplied; 0 for glibc's own.
    stack_low: usize,
    /// Bytes of the stack; 0 unknown.
    stack_size: usize,
}

/// Head of the list of free records: address in the low 48 bits, above it a counter that prevents ABA.
static FREE: AtomicU64 = AtomicU64::new(0);
const ADDRESS_BITS: u32 = 48;
const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;

fn take() -> Option<*mut Record> {
    loop {
        let head = FREE.load(Ordering::Acquire);
        let record = (head & ADDRESS_MASK) as *mut Record;
        if record.is_null() {
            if !refill() {
                return None;
            }
            continue;
        }
        // SAFETY: records are never unmapped; a stale `next` makes the exchange below fail.
        let next = unsafe { (*record).next.load(Ordering::Relaxed) } as u64;
        let tagged = next | (head & !ADDRESS_MASK).wrapping_add(1 << ADDRESS_BITS);
        // Acquire pairs with the Release of `give`: the record's old contents have been read.
        if FREE.compare_exchange(head, tagged, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Some(record);
        }
    }
}

fn give(record: *mut Record) {
    loop {
        let head = FREE.load(Ordering::Relaxed);
        // SAFETY: the record belongs to this thread until the exchange.
        unsafe { (*record).next.store((head & ADDRESS_MASK) as usize, Ordering::Relaxed) };
        let tagged = record as u64 | (head & !ADDRESS_MASK).wrapping_add(1 << ADDRESS_BITS);
        if FREE.compare_exchange(head, tagged, Ordering::Release, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// Maps one page of records.
#[cold]
fn refill() -> bool {
    let Some(page) = sys::map_anonymous(sys::PAGE) else { return false };
    for i in 0..sys::PAGE / size_of::<Record>() {
        give(page.cast::<Record>().wrapping_add(i));
    }
    true
}

/// pthread_create(3) with `on_start` called in the new thread first.
///
/// # Safety
/// C's contract of pthread_create.
pub unsafe fn create(
    thread: *mut libc::pthread_t,
    attr: *const libc::pthread_attr_t,
    start: StartRoutine,
    arg: *mut c_void,
    token: u64,
    on_start: OnStart,
) -> c_int {
    let Some(real) = real::symbol::pthread_create() else { return libc::EAGAIN };
    // SAFETY: C's contract of the attributes.
    let Some(record) = (unsafe { record_of(attr, start, arg, token, on_start) }) else {
        // SAFETY: forwarded unchanged; the thread looks its bounds up when needed.
        return unsafe { real(thread, attr, start, arg) };
    };
    // SAFETY: the trampoline is a start routine, its argument the record.
    let rc = unsafe { real(thread, attr, trampoline, record.cast()) };
    if rc != 0 {
        give(record);
    }
    rc
}

/// What the trampoline is to know; `None` without memory for it. A function of its own, so that the real call, which
/// may allocate, has the stack that this took.
///
/// # Safety
/// `attr` is null or valid by C's contract of pthread_create.
#[inline(never)]
unsafe fn record_of(
    attr: *const libc::pthread_attr_t,
    start: StartRoutine,
    arg: *mut c_void,
    token: u64,
    on_start: OnStart,
) -> Option<*mut Record> {
    let _errno = crate::errno::Saved::now();
    let record = take()?;
    // SAFETY: the caller's promise.
    let (stack_low, stack_size) = unsafe { stack_of(attr) };
    // SAFETY: the record belongs to this thread until the new thread releases it.
    unsafe {
        (*record).start = Some(start);
        (*record).arg = arg;
        (*record).on_start = Some(on_start);
        (*record).token = token;
        (*record).stack_low = stack_low;
        (*record).stack_size = stack_size;
    }
    Some(record)
}

/// Lowest address (0 when glibc allocates the stack) and size of the stack an attribute asks for.
unsafe fn stack_of(attr: *const libc::pthread_attr_t) -> (usize, usize) {
    let (mut size, mut addr) = (0_usize, core::ptr::null_mut());
    if attr.is_null() {
        return (0, default_stack_size());
    }
    // SAFETY: `attr` is initialised by C's contract; both results are writable.
    unsafe {
        if libc::pthread_attr_getstacksize(attr, &raw mut size) != 0 {
            return (0, 0);
        }
        // Without a stack set, glibc reports 0 - size as the address.
        let mut explicit_size = 0;
        let rc = libc::pthread_attr_getstack(attr, &raw mut addr, &raw mut explicit_size);
        let explicit = rc == 0 && (addr as usize) != 0 && (addr as usize) < 1 << 47;
        (if explicit { addr as usize } else { 0 }, size)
    }
}

/// Bytes of a stack for which the program does not ask a size; 0 unknown. glibc decides on them when the program
/// starts, so a limit that the program has changed since says nothing about them.
fn default_stack_size() -> usize {
    let (mut attr, mut size) = (MaybeUninit::<libc::pthread_attr_t>::uninit(), 0);
    // SAFETY: `attr` is initialised before it is read, and both results are writable. Attributes without a size of
    // their own have the default one.
    unsafe {
        if libc::pthread_attr_init(attr.as_mut_ptr()) != 0 {
            return 0;
        }
        let rc = libc::pthread_attr_getstacksize(attr.as_ptr(), &raw mut size);
        libc::pthread_attr_destroy(attr.as_mut_ptr());
        if rc == 0 { size } else { 0 }
    }
}

/// Target and argument of the trampoline's jump; returned in rax and rdx.
#[repr(C)]
struct Jump {
    start: usize,
    arg: usize,
}

/// First code of the new thread: calls [`begin`] and jumps to what it returns.
#[unsafe(naked)]
unsafe extern "C" fn trampoline(record: *mut c_void) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "sub rsp, 8", // the ABI wants rsp aligned to 16 at the call
        ".cfi_adjust_cfa_offset 8",
        "call {begin}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rdx",
        "jmp rax",
        ".cfi_endproc",
        begin = sym begin,
    )
}

unsafe extern "C" fn begin(record: *mut Record) -> Jump {
    let _errno = crate::errno::Saved::now();
    // SAFETY: the creating thread filled the record before the thread existed.
    let (start, arg, on_start, token, low, size) = unsafe {
        let r = &*record;
        (r.start.map_or(0, |f| f as *const () as usize), r.arg as usize, r.on_start, r.token, r.stack_low, r.stack_size)
    };
    give(record);
    let high = stackbounds::thread_pointer();
    // The control block takes less than a page, and glibc's stack mappings end at a page boundary.
    let top = high.next_multiple_of(sys::PAGE);
    let low = if low != 0 { low } else { top.saturating_sub(size) };
    let stack = Bounds { low, high };
    stackbounds::set(stack);
    if let Some(on_start) = on_start {
        on_start(&Started { start_routine: start, argument: arg, stack, token });
    }
    Jump { start, arg }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    static SEEN: Mutex<Vec<Started>> = Mutex::new(Vec::new());

    unsafe extern "C" fn routine(arg: *mut c_void) -> *mut c_void {
        let local = 0_u8;
        let sp = &raw const local as usize;
        assert!(stackbounds::high_for(sp) > sp);
        (arg as usize + 1) as *mut c_void
    }

    #[test]
    fn start_routine_runs_with_its_argument_and_known_bounds() {
        for i in 0..200_usize {
            // SAFETY: plain use of pthread_create and pthread_join.
            unsafe {
                let mut thread = 0;
                let note: OnStart = |s| SEEN.lock().unwrap().push(*s);
                assert_eq!(create(&raw mut thread, core::ptr::null(), routine, i as *mut c_void, i as u64, note), 0);
                let mut result = core::ptr::null_mut();
                libc::pthread_join(thread, &raw mut result);
                assert_eq!(result as usize, i + 1);
            }
        }
        let seen = SEEN.lock().unwrap();
        assert_eq!(seen.len(), 200);
        let all = seen.iter().enumerate();
        for (i, s) in all {
            assert_eq!(s.token, i as u64);
            assert_eq!(s.start_routine, routine as *const () as usize);
            assert!(s.stack.low < s.stack.high);
        }
    }
}
