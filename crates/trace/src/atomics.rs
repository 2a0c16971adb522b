//! Atomic operations, which the compiler leaves to these hooks: each counts an access and does what was asked for.
//!
//! All are done in the strongest order, whatever was asked for. A load counts as a read, all others as a write: a
//! compare-and-exchange that fails takes the line from the other processors, too.

use core::arch::naked_asm;
use core::ffi::c_int;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, compiler_fence, fence};

use crate::block;
use crate::cancellation::with_deferred_cancellation;

/// Order of an operation, an `enum` of C.
type Order = c_int;

with_deferred_cancellation! { count => counted }

extern "C" fn counted(address: u64, write: u64, ip: u64) {
    block::count(address, write != 0, ip, 1);
}

/// A hook that counts an access to its first argument and goes on in a function with the same arguments.
macro_rules! counted {
    ($write:expr, $name:ident, $inner:path) => {
        /// Called by the compiler's code.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            naked_asm!(
                "cmp dword ptr [rip + {off}], 0",
                "jne {inner}",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "sub rsp, 8", // the stack is aligned for the call
                "mov rdx, qword ptr [rsp + 56]",
                "mov esi, {write}",
                "call {count}",
                "add rsp, 8",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp {inner}",
                off = sym crate::process::OFF,
                write = const $write,
                count = sym count,
                inner = sym $inner,
            )
        }
    };
}

/// The operations on an integer type, in a module of their own, and their hooks.
macro_rules! operations {
    ($module:ident, $int:ty, $atomic:ty, [$load:ident $store:ident $exchange:ident $add:ident $sub:ident $and:ident
        $or:ident $xor:ident $nand:ident $strong:ident $weak:ident $val:ident]) => {
        mod $module {
            use super::*;

            fn at<'a>(address: *mut $int) -> &'a $atomic {
                // SAFETY: the program's operation is an atomic access of an aligned integer there.
                unsafe { <$atomic>::from_ptr(address) }
            }

            pub extern "C" fn load(address: *mut $int, _: Order) -> $int {
                at(address).load(SeqCst)
            }

            pub extern "C" fn store(address: *mut $int, value: $int, _: Order) {
                at(address).store(value, SeqCst);
            }

            pub extern "C" fn exchange(address: *mut $int, value: $int, _: Order) -> $int {
                at(address).swap(value, SeqCst)
            }

            pub extern "C" fn add(address: *mut $int, value: $int, _: Order) -> $int {
                at(address).fetch_add(value, SeqCst)
            }

            pub extern "C" fn sub(address: *mut $int, value: $int, _: Order) -> $int {
                at(address).fetch_sub(value, SeqCst)
            }

            pub extern "C" fn and(address: *mut $int, value: $int, _: Order) -> $int {
                at(address).fetch_and(value, SeqCst)
            }

            pub extern "C" fn or(address: *mut $int, value: $int, _: Order) -> $int {
                at(address).fetch_or(value, SeqCst)
            }

            pub extern "C" fn xor(address: *mut $int, value: $int, _: Order) -> $int {
                at(address).fetch_xor(value, SeqCst)
            }

            pub extern "C" fn nand(address: *mut $int, value: $int, _: Order) -> $int {
                at(address).fetch_nand(value, SeqCst)
            }

            pub extern "C" fn compare(
                address: *mut $int,
                expected: *mut $int,
                value: $int,
                _: Order,
                _: Order,
            ) -> c_int {
                // SAFETY: the program passes the address of its expected value.
                let wanted = unsafe { *expected };
                let found = val(address, wanted, value, 0, 0);
                if found != wanted {
                    // SAFETY: as above.
                    unsafe { *expected = found };
                }
                (found == wanted).into()
            }

            pub extern "C" fn val(address: *mut $int, expected: $int, value: $int, _: Order, _: Order) -> $int {
                match at(address).compare_exchange(expected, value, SeqCst, SeqCst) {
                    Ok(found) | Err(found) => found,
                }
            }
        }

        counted!(0, $load, $module::load);
        counted!(1, $store, $module::store);
        counted!(1, $exchange, $module::exchange);
        counted!(1, $add, $module::add);
        counted!(1, $sub, $module::sub);
        counted!(1, $and, $module::and);
        counted!(1, $or, $module::or);
        counted!(1, $xor, $module::xor);
        counted!(1, $nand, $module::nand);
        counted!(1, $strong, $module::compare);
        counted!(1, $weak, $module::compare);
        counted!(1, $val, $module::val);
    };
}

operations!(of_8, u8, AtomicU8, [__tsan_atomic8_load __tsan_atomic8_store __tsan_atomic8_exchange
    __tsan_atomic8_fetch_add __tsan_atomic8_fetch_sub __tsan_atomic8_fetch_and __tsan_atomic8_fetch_or
    __tsan_atomic8_fetch_xor __tsan_atomic8_fetch_nand __tsan_atomic8_compare_exchange_strong
    __tsan_atomic8_compare_exchange_weak __tsan_atomic8_compare_exchange_val]);
operations!(of_16, u16, AtomicU16, [__tsan_atomic16_load __tsan_atomic16_store __tsan_atomic16_exchange
    __tsan_atomic16_fetch_add __tsan_atomic16_fetch_sub __tsan_atomic16_fetch_and __tsan_atomic16_fetch_or
    __tsan_atomic16_fetch_xor __tsan_atomic16_fetch_nand __tsan_atomic16_compare_exchange_strong
    __tsan_atomic16_compare_exchange_weak __tsan_atomic16_compare_exchange_val]);
operations!(of_32, u32, AtomicU32, [__tsan_atomic32_load __tsan_atomic32_store __tsan_atomic32_exchange
    __tsan_atomic32_fetch_add __tsan_atomic32_fetch_sub __tsan_atomic32_fetch_and __tsan_atomic32_fetch_or
    __tsan_atomic32_fetch_xor __tsan_atomic32_fetch_nand __tsan_atomic32_compare_exchange_strong
    __tsan_atomic32_compare_exchange_weak __tsan_atomic32_compare_exchange_val]);
operations!(of_64, u64, AtomicU64, [__tsan_atomic64_load __tsan_atomic64_store __tsan_atomic64_exchange
    __tsan_atomic64_fetch_add __tsan_atomic64_fetch_sub __tsan_atomic64_fetch_and __tsan_atomic64_fetch_or
    __tsan_atomic64_fetch_xor __tsan_atomic64_fetch_nand __tsan_atomic64_compare_exchange_strong
    __tsan_atomic64_compare_exchange_weak __tsan_atomic64_compare_exchange_val]);
operations!(of_128, u128, AtomicU128, [__tsan_atomic128_load __tsan_atomic128_store __tsan_atomic128_exchange
    __tsan_atomic128_fetch_add __tsan_atomic128_fetch_sub __tsan_atomic128_fetch_and __tsan_atomic128_fetch_or
    __tsan_atomic128_fetch_xor __tsan_atomic128_fetch_nand __tsan_atomic128_compare_exchange_strong
    __tsan_atomic128_compare_exchange_weak __tsan_atomic128_compare_exchange_val]);

/// Sixteen bytes by cmpxchg16b, which every processor has for which a compiler makes these operations without a lock.
#[repr(transparent)]
struct AtomicU128(core::cell::UnsafeCell<u128>);

impl AtomicU128 {
    /// # Safety
    /// As those of the standard library's types; the address is aligned to 16 bytes.
    unsafe fn from_ptr<'a>(address: *mut u128) -> &'a AtomicU128 {
        // SAFETY: by the contract of this function.
        unsafe { &*address.cast() }
    }

    fn compare_exchange(
        &self,
        expected: u128,
        value: u128,
        _: core::sync::atomic::Ordering,
        _: core::sync::atomic::Ordering,
    ) -> Result<u128, u128> {
        let [mut low, mut high] = [expected as u64, (expected >> 64) as u64];
        // The intrinsic would need libatomic where the processor is not known to have the instruction.
        // SAFETY: the address is valid and aligned; rbx, which a compiler keeps for itself, is put back.
        unsafe {
            core::arch::asm!(
                "xchg rbx, {value}",
                "lock cmpxchg16b xmmword ptr [{at}]",
                "mov rbx, {value}",
                at = in(reg) self.0.get(),
                value = inout(reg) value as u64 => _,
                in("rcx") (value >> 64) as u64,
                inout("rax") low,
                inout("rdx") high,
                options(nostack),
            );
        }
        let found = u128::from(high) << 64 | u128::from(low);
        if found == expected { Ok(found) } else { Err(found) }
    }

    fn change(&self, change: impl Fn(u128) -> u128) -> u128 {
        let mut before = 0;
        while let Err(found) = self.compare_exchange(before, change(before), SeqCst, SeqCst) {
            before = found;
        }
        before
    }

    fn load(&self, _: core::sync::atomic::Ordering) -> u128 {
        self.change(|now| now)
    }

    fn store(&self, value: u128, _: core::sync::atomic::Ordering) {
        self.change(|_| value);
    }

    fn swap(&self, value: u128, _: core::sync::atomic::Ordering) -> u128 {
        self.change(|_| value)
    }

    fn fetch_add(&self, value: u128, _: core::sync::atomic::Ordering) -> u128 {
        self.change(|now| now.wrapping_add(value))
    }

    fn fetch_sub(&self, value: u128, _: core::sync::atomic::Ordering) -> u128 {
        self.change(|now| now.wrapping_sub(value))
    }

    fn fetch_and(&self, value: u128, _: core::sync::atomic::Ordering) -> u128 {
        self.change(|now| now & value)
    }

    fn fetch_or(&self, value: u128, _: core::sync::atomic::Ordering) -> u128 {
        self.change(|now| now | value)
    }

    fn fetch_xor(&self, value: u128, _: core::sync::atomic::Ordering) -> u128 {
        self.change(|now| now ^ value)
    }

    fn fetch_nand(&self, value: u128, _: core::sync::atomic::Ordering) -> u128 {
        self.change(|now| !(now & value))
    }
}

/// A fence between threads.
#[unsafe(no_mangle)]
extern "C" fn __tsan_atomic_thread_fence(_: Order) {
    fence(SeqCst);
}

/// A fence between a thread and its signal handlers.
#[unsafe(no_mangle)]
extern "C" fn __tsan_atomic_signal_fence(_: Order) {
    compiler_fence(SeqCst);
}
