//! Hooks of loads and stores.
//!
//! A hook is called with the address, right before the access; its return address names the instruction. Whether an
//! instruction loads or stores, and how much, is always the same, so the common case need not know it.

use core::arch::{global_asm, naked_asm};
use core::sync::atomic::Ordering;

use crate::block::{self, Thread};
use crate::cancellation::with_deferred_cancellation;
use crate::lines::{Ends, Line};
use crate::process;

/// Read of a hook's instruction, as it is given to [`slow`].
const READ: u32 = 0;
/// Write.
const WRITE: u32 = 1;

global_asm!(include_str!("thread.s"));

/// Counts one access at the address in rdi by the instruction behind the call; with its kind in `$kind`. Goes to the
/// end of the function it stands in.
macro_rules! count_one {
    ($kind:expr) => {
        naked_asm!(
            include_str!("fast.s"),
            include_str!("again.s"),
            "mov rcx, qword ptr [rip + numamma_trace_file@GOTTPOFF]",
            "mov esi, {kind}",
            "add rcx, qword ptr fs:[0]",
            "jmp {slow}",
            ".p2align 5", // also of the section, and so of its beginning, the hook
            kind = const $kind,
            slow = sym numamma_trace_slow_2,
        )
    };
}

macro_rules! hooks {
    ($kind:expr, $($name:ident)*) => {
        $(
            /// Called by the compiler's code.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            extern "C" fn $name(address: *const u8) {
                count_one!($kind)
            }
        )*
    };
}

hooks!(READ, __tsan_read1 __tsan_read2 __tsan_read4 __tsan_read8 __tsan_read16);
hooks!(WRITE, __tsan_write1 __tsan_write2 __tsan_write4 __tsan_write8 __tsan_write16);
hooks!(READ, __tsan_volatile_read1 __tsan_volatile_read2 __tsan_volatile_read4 __tsan_volatile_read8
    __tsan_volatile_read16);
hooks!(WRITE, __tsan_volatile_write1 __tsan_volatile_write2 __tsan_volatile_write4 __tsan_volatile_write8
    __tsan_volatile_write16);
// An access that is not aligned and reaches into a second page counts for the first.
hooks!(READ, __tsan_unaligned_read1 __tsan_unaligned_read2 __tsan_unaligned_read4 __tsan_unaligned_read8
    __tsan_unaligned_read16 __tsan_unaligned_volatile_read1 __tsan_unaligned_volatile_read2
    __tsan_unaligned_volatile_read4 __tsan_unaligned_volatile_read8 __tsan_unaligned_volatile_read16);
hooks!(WRITE, __tsan_unaligned_write1 __tsan_unaligned_write2 __tsan_unaligned_write4 __tsan_unaligned_write8
    __tsan_unaligned_write16 __tsan_unaligned_volatile_write1 __tsan_unaligned_volatile_write2
    __tsan_unaligned_volatile_write4 __tsan_unaligned_volatile_write8 __tsan_unaligned_volatile_write16);
// clang: a load and a store of the same address by one statement (`x += 1`) in one call. It counts as a store, as a
// read-modify-write does with the other samplers.
hooks!(WRITE, __tsan_read_write1 __tsan_read_write2 __tsan_read_write4 __tsan_read_write8 __tsan_read_write16
    __tsan_unaligned_read_write1 __tsan_unaligned_read_write2 __tsan_unaligned_read_write4
    __tsan_unaligned_read_write8 __tsan_unaligned_read_write16);
// The pointer to the virtual table of a C++ object.
hooks!(READ, __tsan_vptr_read);
hooks!(WRITE, __tsan_vptr_update);

with_deferred_cancellation! {
    /// [`slow`]; the hooks that are linked into a program go on here, too. The number in the name is that of what they
    /// know of [`Line`] and of blocks: a program that was linked before that changed does not start, and says which
    /// symbol it lacks.
    #[unsafe(no_mangle)]
    numamma_trace_slow_2 => slow
}
with_deferred_cancellation! {
    /// [`slow_line`], for the code of inline.s.
    #[unsafe(no_mangle)]
    numamma_trace_slow_line_2 => slow_line
}

/// Counts an access that the line of its instruction does not tell.
extern "C" fn slow(address: u64, write: u64, ip: u64, thread: &Thread) {
    if process::OFF.load(Ordering::Relaxed) != 0 {
        return thread.switch_off();
    }
    block::count_for(thread, address, write != 0, ip);
}

/// As [`slow`], with the line of the access, and the ends of the lines of its file.
extern "C" fn slow_line(address: u64, write: u64, ip: u64, thread: &Thread, line: *const Line, ends: &Ends) {
    if process::OFF.load(Ordering::Relaxed) != 0 {
        return thread.switch_off();
    }
    block::count_at(thread, address, write != 0, ip, line, ends);
}
