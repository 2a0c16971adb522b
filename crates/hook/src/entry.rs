//! Entry stubs, which give a hook the return address of its caller.
//!
//! A Rust function cannot read its own return address. A naked stub can: it passes the return address, the
//! caller's stack pointer after the call (the CFA) and rbp as three more arguments and jumps, so that no
//! frame is added. Functions of more than three arguments get them through the stack and a real call.

use core::ffi::{c_int, c_void};

use crate::real;

/// The caller of a hook, as the stubs see it.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Return address into the caller.
    pub ra: usize,
    /// The caller's stack pointer once the hook has returned.
    pub cfa: usize,
    /// The caller's rbp.
    pub rbp: usize,
}

/// Defines exported C functions: `entry! { fn free(ptr: *mut c_void) => imp::free; }`.
///
/// The implementation is `unsafe extern "C" fn(<the arguments>, ra: usize, cfa: usize, rbp: usize) -> <the
/// result>`. One to three or exactly six integer or pointer arguments; declare six to hook functions of
/// four or five (the extra ones have the values left in the registers).
#[macro_export]
macro_rules! entry {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),+ $(,)?) $(-> $ret:ty)? => $imp:path;)+) => {
        $($crate::entry!(@one [$(#[$doc])*] $name ($($arg: $ty),+) [$($ret)?] $imp);)+
    };
    (@one $doc:tt $name:ident ($a:ident: $ta:ty) $ret:tt $imp:path) => {
        $crate::entry!(@emit $doc $name ($a: $ta) $ret $imp,
            "mov rsi, qword ptr [rsp]", "lea rdx, [rsp + 8]", "mov rcx, rbp", "jmp {imp}");
    };
    (@one $doc:tt $name:ident ($a:ident: $ta:ty, $b:ident: $tb:ty) $ret:tt $imp:path) => {
        $crate::entry!(@emit $doc $name ($a: $ta, $b: $tb) $ret $imp,
            "mov rdx, qword ptr [rsp]", "lea rcx, [rsp + 8]", "mov r8, rbp", "jmp {imp}");
    };
    (@one $doc:tt $name:ident ($a:ident: $ta:ty, $b:ident: $tb:ty, $c:ident: $tc:ty) $ret:tt $imp:path) => {
        $crate::entry!(@emit $doc $name ($a: $ta, $b: $tb, $c: $tc) $ret $imp,
            "mov rcx, qword ptr [rsp]", "lea r8, [rsp + 8]", "mov r9, rbp", "jmp {imp}");
    };
    (@one $doc:tt $name:ident ($a:ident: $ta:ty, $b:ident: $tb:ty, $c:ident: $tc:ty,
                               $d:ident: $td:ty, $e:ident: $te:ty, $f:ident: $tf:ty) $ret:tt $imp:path) => {
        // Three pushes after the return address leave rsp aligned to 16 for the call.
        $crate::entry!(@emit $doc $name ($a: $ta, $b: $tb, $c: $tc, $d: $td, $e: $te, $f: $tf) $ret $imp,
            "mov r10, qword ptr [rsp]", "lea rax, [rsp + 8]",
            "push rbp", ".cfi_adjust_cfa_offset 8",
            "push rax", ".cfi_adjust_cfa_offset 8",
            "push r10", ".cfi_adjust_cfa_offset 8",
            "call {imp}",
            "add rsp, 24", ".cfi_adjust_cfa_offset -24",
            "ret");
    };
    (@emit [$($doc:tt)*] $name:ident ($($arg:ident: $ty:ty),+) [$($ret:ty)?] $imp:path, $($line:literal),+) => {
        $($doc)*
        ///
        /// # Safety
        /// C's contract of the function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($arg: $ty),+) $(-> $ret)? {
            core::arch::naked_asm!(".cfi_startproc", "endbr64", $($line,)+ ".cfi_endproc", imp = sym $imp)
        }
    };
}

/// Defines the exported functions of the malloc family that need their caller, but for malloc itself; `$imp` is a
/// module with a function of the same name, as [`entry!`] wants it, for each.
#[macro_export]
macro_rules! malloc_family_entries {
    ($imp:ident) => {
        $crate::entry! {
            /// calloc(3).
            fn calloc(count: usize, size: usize) -> *mut ::core::ffi::c_void => $imp::calloc;
            /// realloc(3).
            fn realloc(ptr: *mut ::core::ffi::c_void, size: usize) -> *mut ::core::ffi::c_void => $imp::realloc;
            /// memalign(3).
            fn memalign(align: usize, size: usize) -> *mut ::core::ffi::c_void => $imp::memalign;
            /// aligned_alloc(3).
            fn aligned_alloc(align: usize, size: usize) -> *mut ::core::ffi::c_void => $imp::aligned_alloc;
            /// valloc(3).
            fn valloc(size: usize) -> *mut ::core::ffi::c_void => $imp::valloc;
            /// pvalloc(3).
            fn pvalloc(size: usize) -> *mut ::core::ffi::c_void => $imp::pvalloc;
            /// reallocarray(3).
            fn reallocarray(ptr: *mut ::core::ffi::c_void, count: usize, size: usize) -> *mut ::core::ffi::c_void
                => $imp::reallocarray;
            /// posix_memalign(3).
            fn posix_memalign(out: *mut *mut ::core::ffi::c_void, align: usize, size: usize) -> ::core::ffi::c_int
                => $imp::posix_memalign;
        }
    };
}

/// Defines the exported functions of C23 that release a block of known size: both forward to the `free` in effect, as
/// glibc's own do.
#[macro_export]
macro_rules! sized_release_entries {
    () => {
        /// free_sized(3).
        ///
        /// # Safety
        /// C's contract.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn free_sized(ptr: *mut ::core::ffi::c_void, _size: usize) {
            // SAFETY: C's contract: a block that free accepts.
            unsafe { $crate::real::in_effect::free(ptr) }
        }

        /// free_aligned_sized(3).
        ///
        /// # Safety
        /// C's contract.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn free_aligned_sized(ptr: *mut ::core::ffi::c_void, _align: usize, _size: usize) {
            // SAFETY: C's contract: a block that free accepts.
            unsafe { $crate::real::in_effect::free(ptr) }
        }
    };
}

/// The arguments of mmap(2).
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the names of the manual page
pub struct MmapArguments {
    pub addr: *mut c_void,
    pub len: usize,
    pub prot: c_int,
    pub flags: c_int,
    pub fd: c_int,
    pub offset: i64,
}

impl MmapArguments {
    /// Calls the real mmap.
    ///
    /// # Safety
    /// C's contract of mmap.
    pub unsafe fn forward(&self) -> *mut c_void {
        // SAFETY: forwarded unchanged.
        unsafe { real::mmap(self.addr, self.len, self.prot, self.flags, self.fd, self.offset) }
    }
}

/// Defines the exported mmap and mmap64, which are the same function on x86_64. `$hook` is an
/// `unsafe fn(&MmapArguments, &Caller) -> *mut c_void`.
#[macro_export]
macro_rules! mmap_entries {
    ($hook:path) => {
        $crate::deferred_entry! {
            /// mmap(2).
            fn mmap(addr: *mut ::core::ffi::c_void, len: usize, prot: ::core::ffi::c_int, flags: ::core::ffi::c_int,
                    fd: ::core::ffi::c_int, offset: i64) -> *mut ::core::ffi::c_void => mmap_with_caller;
            /// mmap(2) with 64-bit offsets.
            fn mmap64(addr: *mut ::core::ffi::c_void, len: usize, prot: ::core::ffi::c_int, flags: ::core::ffi::c_int,
                      fd: ::core::ffi::c_int, offset: i64) -> *mut ::core::ffi::c_void => mmap_with_caller;
        }

        #[allow(clippy::too_many_arguments)] // the six of mmap and the caller
        unsafe extern "C" fn mmap_with_caller(
            addr: *mut ::core::ffi::c_void,
            len: usize,
            prot: ::core::ffi::c_int,
            flags: ::core::ffi::c_int,
            fd: ::core::ffi::c_int,
            offset: i64,
            ra: usize,
            cfa: usize,
            rbp: usize,
        ) -> *mut ::core::ffi::c_void {
            let arguments = $crate::entry::MmapArguments { addr, len, prot, flags, fd, offset };
            if !$crate::static_tls::exists() {
                // SAFETY: C's contract of mmap.
                return unsafe { arguments.forward() };
            }
            // SAFETY: C's contract of mmap; the caller as the stub saw it.
            unsafe { $hook(&arguments, &$crate::entry::Caller { ra, cfa, rbp }) }
        }
    };
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering};

    static SEEN: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

    fn note(ra: usize, cfa: usize, rbp: usize) {
        for (slot, value) in SEEN.iter().zip([ra, cfa, rbp]) {
            slot.store(value, Ordering::Relaxed);
        }
    }

    unsafe extern "C" fn two(a: usize, b: usize, ra: usize, cfa: usize, rbp: usize) -> usize {
        note(ra, cfa, rbp);
        a * 10 + b
    }

    #[allow(clippy::too_many_arguments)]
    unsafe extern "C" fn six(
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        e: usize,
        f: usize,
        ra: usize,
        cfa: usize,
        rbp: usize,
    ) -> usize {
        note(ra, cfa, rbp);
        [a, b, c, d, e, f].iter().fold(0, |n, x| n * 10 + x)
    }

    crate::entry! {
        /// A hook of two arguments.
        fn numamma_test_entry_two(a: usize, b: usize) -> usize => two;
        /// A hook of six arguments.
        fn numamma_test_entry_six(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize => six;
    }

    #[inline(never)]
    fn check(call: fn() -> usize, expected: usize) {
        let local = 0_u8;
        assert_eq!(std::hint::black_box(call)(), expected);
        let sp = &raw const local as usize;
        let cfa = SEEN[1].load(Ordering::Relaxed);
        assert!(cfa.abs_diff(sp) < 4096);
        let ra = SEEN[0].load(Ordering::Relaxed);
        assert!(ra.wrapping_sub(call as usize) < 256);
    }

    #[test]
    fn stubs_pass_arguments_and_caller() {
        // SAFETY: the stubs only take numbers.
        check(|| std::hint::black_box(unsafe { numamma_test_entry_two(1, 2) }), 12);
        // SAFETY: as above.
        check(|| std::hint::black_box(unsafe { numamma_test_entry_six(1, 2, 3, 4, 5, 6) }), 123456);
    }
}
