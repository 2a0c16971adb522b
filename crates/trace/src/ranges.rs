//! Copies, fills and ranges: calls that stand for many accesses.
//!
//! A range counts one access for each eight bytes that it begins in a page, as a loop over words makes them.

use core::arch::naked_asm;
use core::cell::Cell;
use core::ffi::{c_int, c_void};

use numamma_channel::trace::layout::PAGE_SHIFT;
use numamma_hook::static_tls;

use crate::cancellation::with_deferred_cancellation;
use crate::{block, process};

/// Bytes for which one access is counted.
const WORD: u64 = 8;

/// Counts a range page by page.
pub fn count(address: u64, bytes: u64, write: bool, ip: u64) {
    if process::OFF.load(core::sync::atomic::Ordering::Relaxed) != 0 {
        return;
    }
    let (mut at, end) = (address, address.saturating_add(bytes));
    while at < end {
        let next = ((at >> PAGE_SHIFT) + 1) << PAGE_SHIFT;
        let part = next.min(end) - at;
        block::count(at, write, ip, part.div_ceil(WORD));
        at = next;
    }
}

/// What the hooks of ranges were last told on this thread.
struct Announced {
    read: Cell<(u64, u64)>,
    write: Cell<(u64, u64)>,
}

static_tls!(fn announced() -> Announced, "numamma_trace_announced");

/// For a structure that is assigned, gcc calls the hook of each side that is not constant, and then lets memcpy or
/// memset do it if it is large. Whether the hooks of the two sides of such a call have counted it: what it reads, what
/// it writes.
pub fn counted_before(read: u64, write: u64, bytes: u64) -> (bool, bool) {
    let last = announced();
    let is_write = last.write.get() == (write, bytes);
    let is_read = is_write && last.read.get() == (read, bytes);
    if is_write {
        last.write.set((0, 0));
    }
    (is_read, is_write)
}

extern "C" fn announce(address: u64, bytes: u64, write: bool, ip: u64) {
    let side = if write { &announced().write } else { &announced().read };
    side.set((address, bytes));
    count(address, bytes, write, ip);
}

macro_rules! range_hooks {
    ($write:expr, $($name:ident)*) => {
        $(
            /// Called by the compiler's code with an address and a number of bytes.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            extern "C" fn $name(address: *const u8, bytes: u64) {
                naked_asm!(
                    "mov edx, {write}",
                    "mov rcx, qword ptr [rsp]",
                    "jmp {announce}",
                    write = const $write,
                    announce = sym announced_range,
                )
            }
        )*
    };
}

range_hooks!(0, __tsan_read_range);
range_hooks!(1, __tsan_write_range);

/// An entry that passes its caller on, as a fourth argument, to a function of three.
macro_rules! with_caller {
    ($name:ident, $inner:ident) => {
        /// Called by clang's code in place of the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            naked_asm!("mov rcx, qword ptr [rsp]", "jmp {inner}", inner = sym $inner)
        }
    };
}

with_deferred_cancellation! { announced_range => announce }
with_deferred_cancellation! { counted_copy => copy }
with_deferred_cancellation! { counted_fill => fill }

with_caller!(__tsan_memcpy, counted_copy);
with_caller!(__tsan_memmove, counted_copy);
with_caller!(__tsan_memset, counted_fill);

/// An address in the call behind which is `ip`. The instruction at `ip` may be of another line, unlike that behind the
/// call of a hook, which is the access.
pub fn call_before(ip: u64) -> u64 {
    ip - 1
}

/// memmove serves both: it is right for what does not overlap, too.
extern "C" fn copy(to: *mut c_void, from: *const c_void, bytes: usize, ip: u64) -> *mut c_void {
    count(from as u64, bytes as u64, false, call_before(ip));
    // The loads and the stores are told apart by their instruction.
    count(to as u64, bytes as u64, true, call_before(ip));
    // SAFETY: by the contract of memcpy and memmove, which the program called.
    unsafe { libc::memmove(to, from, bytes) }
}

extern "C" fn fill(to: *mut c_void, byte: c_int, bytes: usize, ip: u64) -> *mut c_void {
    count(to as u64, bytes as u64, true, call_before(ip));
    // SAFETY: by the contract of memset, which the program called.
    unsafe { libc::memset(to, byte, bytes) }
}
