//! Thread-local storage with the initial-exec model.
//!
//! Rust's `thread_local!` in a shared library goes through `__tls_get_addr`, which may allocate after the
//! program dlopened a library, and that allocation would access the thread-local again. A `.tbss` symbol
//! read with `@GOTTPOFF` is one load and one add, never calls anything, and works before constructors.
//! It takes a few bytes of the static TLS area, which every library loaded at start-up may use.

/// Whether the calling task has the C library's thread-local storage: what clone(2) makes with CLONE_SETTLS and zeroed
/// memory, as Chromium's sandbox does, or with a block of the program's own, has none. It may call the functions that
/// need none in the C library, such as `_exit`, execve, mmap and prctl: their hooks leave them to the C library there.
/// No block of `static_tls!` and no errno may be touched.
#[inline]
pub fn exists() -> bool {
    let (this, own): (usize, usize);
    // SAFETY: reads two words of the thread's control block, or of what the program has in its place. The first is its
    // own address (Drepper, ELF Handling For Thread-Local Storage, 3.4.6), and in glibc the third is, too (`self` of
    // tcbhead_t, sysdeps/x86_64/nptl/tls.h).
    unsafe {
        core::arch::asm!(
            "mov {this}, qword ptr fs:[0]",
            "mov {own}, qword ptr fs:[16]",
            this = out(reg) this,
            own = out(reg) own,
            options(pure, readonly, nostack),
        );
    }
    this != 0 && this == own
}

/// Defines a function that returns this thread's zero-initialised block of a type.
///
/// `static_tls!(fn block() -> Block, "unique_symbol");` The type must be valid when all its bytes are zero,
/// must not need dropping, and must only be changed through cells: signal handlers run on the same thread.
#[macro_export]
macro_rules! static_tls {
    ($(#[$doc:meta])* $vis:vis fn $name:ident() -> $ty:ty, $symbol:literal) => {
        core::arch::global_asm!(
            concat!(".pushsection .tbss.", $symbol, ",\"awT\",@nobits"),
            ".balign 64",
            concat!(".globl ", $symbol),
            concat!(".hidden ", $symbol),
            concat!(".type ", $symbol, ",@object"),
            concat!(".size ", $symbol, ", {size}"),
            concat!($symbol, ":"),
            ".zero {size}",
            ".popsection",
            size = const core::mem::size_of::<$ty>(),
        );

        $(#[$doc])*
        #[inline(always)]
        $vis fn $name() -> &'static $ty {
            const { assert!(core::mem::align_of::<$ty>() <= 64 && !core::mem::needs_drop::<$ty>()) };
            let block: *const $ty;
            // SAFETY: the symbol lies in this thread's static TLS block; the two instructions compute its
            // address and touch nothing else. The reference cannot leave the thread: cells are not Sync.
            unsafe {
                core::arch::asm!(
                    "mov {p}, qword ptr fs:[0]",
                    concat!("add {p}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    p = out(reg) block,
                    options(pure, nomem, nostack),
                );
                &*block
            }
        }
    };
}
