//! The addresses of the real functions, looked up once with `dlsym(RTLD_NEXT)`.
//!
//! A function here returns `None` when no library later in the chain defines the name, or while this thread is inside
//! [`resolve`].

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::StartRoutine;
use crate::{errno, glibc};

#[repr(C)]
pub(super) struct Block {
    /// This thread is inside [`resolve`].
    pub(super) resolving: Cell<bool>,
}

crate::static_tls!(pub(super) fn block() -> Block, "numamma_hook_real");

static RESOLVED: AtomicBool = AtomicBool::new(false);

macro_rules! table {
    ($($name:ident($($ty:ty),*) $(-> $ret:ty)?;)*) => {
        /// The variables that hold the addresses, for stubs in assembly; null until they are looked up.
        #[allow(non_upper_case_globals, missing_docs)] // the names of the functions
        pub mod slot {
            use super::*;
            $(pub static $name: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());)*
        }

        $(
            #[doc = concat!("The next `", stringify!($name), "`.")]
            #[allow(non_snake_case)]
            #[inline(always)]
            pub fn $name() -> Option<unsafe extern "C" fn($($ty),*) $(-> $ret)?> {
                let mut found = slot::$name.load(Ordering::Relaxed);
                if found.is_null() {
                    found = resolve_cold(&slot::$name);
                }
                // SAFETY: null becomes None; otherwise dlsym found a function of this C prototype.
                unsafe { core::mem::transmute(found) }
            }
        )*

        fn resolve_all() {
            $(
                // The name is a literal without inner NUL; the fallback never occurs.
                let name = CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()).unwrap_or(c"");
                if exists(name) {
                    slot::$name.store(next(name), Ordering::Relaxed);
                }
            )*
        }
    };
}

table! {
    malloc(usize) -> *mut c_void;
    calloc(usize, usize) -> *mut c_void;
    realloc(*mut c_void, usize) -> *mut c_void;
    reallocarray(*mut c_void, usize, usize) -> *mut c_void;
    free(*mut c_void);
    memalign(usize, usize) -> *mut c_void;
    aligned_alloc(usize, usize) -> *mut c_void;
    posix_memalign(*mut *mut c_void, usize, usize) -> c_int;
    valloc(usize) -> *mut c_void;
    pvalloc(usize) -> *mut c_void;
    malloc_usable_size(*mut c_void) -> usize;
    mallopt(c_int, c_int) -> c_int;
    malloc_trim(usize) -> c_int;
    // The C library's own entries, which programs that wrap malloc call.
    __libc_free(*mut c_void);
    __libc_realloc(*mut c_void, usize) -> *mut c_void;
    mmap(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
    mmap64(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
    munmap(*mut c_void, usize) -> c_int;
    // Variadic in C; with integer arguments the calling convention is the same.
    mremap(*mut c_void, usize, usize, c_int, *mut c_void) -> *mut c_void;
    shmat(c_int, *const c_void, c_int) -> *mut c_void;
    shmdt(*const c_void) -> c_int;
    pthread_create(*mut libc::pthread_t, *const libc::pthread_attr_t, StartRoutine, *mut c_void) -> c_int;
    dlopen(*const c_char, c_int) -> *mut c_void;
    dlclose(*mut c_void) -> c_int;
    fork() -> libc::pid_t;
    system(*const c_char) -> c_int;
    popen(*const c_char, *const c_char) -> *mut c_void;
    // As registers: file actions, attributes and lists of strings are handed on unread.
    posix_spawn(usize, usize, usize, usize, usize, usize) -> c_int;
    posix_spawnp(usize, usize, usize, usize, usize, usize) -> c_int;
    // By their address only: some are variadic.
    execl() -> c_int;
    execlp() -> c_int;
    execle() -> c_int;
    execv() -> c_int;
    execve() -> c_int;
    execvp() -> c_int;
    execvpe() -> c_int;
    fexecve() -> c_int;
    _exit(c_int);
    _Exit(c_int);
    // Variadic in C; with integer arguments the calling convention is the same.
    ioctl(c_int, c_ulong, *mut c_void) -> c_int;
    prctl(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
    // As registers, see `range_calls`.
    mprotect(usize, usize, usize, usize, usize, usize) -> usize;
    madvise(usize, usize, usize, usize, usize, usize) -> usize;
    posix_madvise(usize, usize, usize, usize, usize, usize) -> usize;
    mlock(usize, usize, usize, usize, usize, usize) -> usize;
    munlock(usize, usize, usize, usize, usize, usize) -> usize;
    mlockall(usize, usize, usize, usize, usize, usize) -> usize;
    _dl_find_object(*mut c_void, *mut c_void) -> c_int;
}

/// Whether the C library has `name`. A hook that looked up another name would have to clear the error away by dlerror,
/// which takes and releases locks of gettext, also those that the program holds where it calls malloc: the next
/// bindtextdomain would wait forever.
fn exists(name: &CStr) -> bool {
    name != c"_dl_find_object" || glibc::is_at_least(35)
}

/// The next definition of `name` in the chain of libraries.
pub(super) fn next(name: &CStr) -> *mut c_void {
    look_up(libc::RTLD_NEXT, name)
}

/// One dlsym. Not a tail call: RTLD_NEXT finds the calling library by the return address.
#[inline(never)]
pub(super) fn look_up(scope: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: `scope` is one of the loader's, and `name` is a C string.
    let found = unsafe { libc::dlsym(scope, name.as_ptr()) };
    if found.is_null() {
        // A failed lookup leaves an error text that the program's own dlerror() would return.
        // SAFETY: dlerror has no preconditions.
        unsafe { libc::dlerror() };
    }
    core::hint::black_box(found)
}

#[cold]
#[inline(never)]
fn resolve_cold(slot: &AtomicPtr<c_void>) -> *mut c_void {
    // Before glibc 2.34 the first dlsym of a thread calls calloc. An allocator in the program itself may hold its lock
    // when it maps memory, as jemalloc does when it starts: it would wait for itself.
    if !is_done_without(slot) || glibc::is_at_least(34) {
        resolve();
    }
    slot.load(Ordering::Relaxed)
}

/// Whether callers of the function in `slot` do without it as long as it is not known: they make the system call
/// themselves, or ask nothing, where glibc is older than the function.
fn is_done_without(slot: &AtomicPtr<c_void>) -> bool {
    let mappings = [&slot::mmap, &slot::mmap64, &slot::munmap, &slot::mremap, &slot::shmat, &slot::shmdt];
    let ranges = [&slot::mprotect, &slot::madvise, &slot::mlock, &slot::munlock, &slot::mlockall, &slot::prctl];
    mappings.iter().chain(&ranges).chain([&&slot::_dl_find_object]).any(|call| core::ptr::eq(*call, slot))
}

/// Looks up all functions once. Two threads that call this at the same time both look them up and store the same
/// pointers; neither waits.
pub fn resolve() {
    let resolving = &block().resolving;
    if RESOLVED.load(Ordering::Acquire) || resolving.get() {
        return;
    }
    let _errno = errno::Saved::now();
    resolving.set(true);
    resolve_all();
    super::in_effect::resolve();
    resolving.set(false);
    // Release pairs with the Acquire above: a thread that sees the flag sees the pointers.
    RESOLVED.store(true, Ordering::Release);
}
