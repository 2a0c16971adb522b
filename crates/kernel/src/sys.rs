//! System calls for memory, files and process identifiers, without libc's wrappers: a preload that called libc's `mmap`
//! would enter its own hook.
//!
//! Every function sets `errno` on failure, as libc does.

use core::ffi::{CStr, c_int, c_long, c_void};
use core::sync::atomic::AtomicU32;

/// Bytes of a base page on x86_64.
pub const PAGE: usize = 4096;

/// Maps `len` bytes of zeroed anonymous private memory; `None` when the kernel refuses.
pub fn map_anonymous(len: usize) -> Option<*mut c_void> {
    map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
}

/// Maps room for `len` bytes of pages that come from elsewhere: none of it is counted as promised memory, unless the
/// machine counts all (vm.overcommit_memory 2); `None` when the kernel refuses.
pub fn map_room(len: usize) -> Option<*mut c_void> {
    map(len, ROOM, -1, 0)
}

/// The same at `addr`; `None` with EEXIST when something is mapped there.
pub fn map_room_at(addr: usize, len: usize) -> Option<*mut c_void> {
    map_at(addr, len, ROOM | libc::MAP_FIXED_NOREPLACE, -1, 0)
}

const ROOM: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Maps `len` bytes of zeroed anonymous memory that forked children share; `None` when the kernel refuses.
pub fn map_inherited(len: usize) -> Option<*mut c_void> {
    map(len, libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0)
}

/// Maps `len` bytes of `fd` from `offset`, shared and writable; `None` when the kernel refuses.
pub fn map_shared(fd: c_int, offset: usize, len: usize) -> Option<*mut c_void> {
    map(len, libc::MAP_SHARED, fd, offset)
}

fn map(len: usize, flags: c_int, fd: c_int, offset: usize) -> Option<*mut c_void> {
    map_at(0, len, flags, fd, offset)
}

fn map_at(addr: usize, len: usize, flags: c_int, fd: c_int, offset: usize) -> Option<*mut c_void> {
    // SAFETY: none of the callers sets MAP_FIXED, so a new mapping touches no existing memory.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            addr as c_long,
            len as c_long,
            c_long::from(libc::PROT_READ | libc::PROT_WRITE),
            c_long::from(flags),
            c_long::from(fd),
            offset as c_long,
        )
    };
    (rc != -1).then_some(rc as *mut c_void)
}

/// Unmaps `len` bytes at `addr`.
///
/// # Safety
/// Nothing uses the range after the call.
pub unsafe fn unmap(addr: *mut c_void, len: usize) {
    // SAFETY: by this function's contract nothing uses the range any more.
    unsafe { libc::syscall(libc::SYS_munmap, addr, len) };
}

/// Grows or shrinks a mapping from `old` to `new` bytes, at another address if needed. On `None` the mapping is
/// unchanged.
///
/// # Safety
/// `addr` and `old` describe a whole mapping of [`map_anonymous`]; the old addresses are not used after success.
pub unsafe fn remap(addr: *mut c_void, old: usize, new: usize) -> Option<*mut c_void> {
    // SAFETY: the caller owns the mapping.
    let rc = unsafe { libc::syscall(libc::SYS_mremap, addr, old, new, c_long::from(libc::MREMAP_MAYMOVE)) };
    (rc != -1).then_some(rc as *mut c_void)
}

/// `madvise(2)`; true on success.
///
/// # Safety
/// The advice may discard the contents of the range; the caller owns it.
pub unsafe fn advise(addr: *mut c_void, len: usize, advice: c_int) -> bool {
    // SAFETY: the caller owns the range and chose the advice.
    unsafe { libc::syscall(libc::SYS_madvise, addr, len, c_long::from(advice)) == 0 }
}

/// Lets other threads run on the processor of this one.
pub fn yield_now() {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::syscall(libc::SYS_sched_yield) };
}

/// Waits for `ns` nanoseconds, or a signal, as long as `word` is `value` at the beginning: futex(2), which every
/// allocator of a program with threads calls, too. False when the time was up. Changes errno.
pub fn wait_while(word: &AtomicU32, value: u32, ns: i64) -> bool {
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: ns };
    // SAFETY: the word and the timeout are readable for the length of the call.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            &raw const timeout,
        )
    };
    rc == 0 || crate::errno::get() != libc::ETIMEDOUT
}

/// Wakes all threads that wait for `word`, see [`wait_while`].
pub fn wake_all(word: &AtomicU32) {
    // SAFETY: only the address of the word is used.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX) };
}

/// Opens a file, close-on-exec; `None` on failure.
pub fn open(path: &CStr, flags: c_int) -> Option<c_int> {
    // SAFETY: `path` is a valid C string for the length of the call.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_openat,
            c_long::from(libc::AT_FDCWD),
            path.as_ptr(),
            c_long::from(flags | libc::O_CLOEXEC),
            0 as c_long,
        )
    };
    (rc >= 0).then_some(rc as c_int)
}

/// Reads once into `buf`, again after EINTR; `None` on failure, `Some(0)` at the end of the file.
pub fn read(fd: c_int, buf: &mut [u8]) -> Option<usize> {
    loop {
        // SAFETY: `buf` is writable for its length.
        let rc = unsafe { libc::syscall(libc::SYS_read, c_long::from(fd), buf.as_mut_ptr(), buf.len()) };
        match rc {
            -1 if crate::errno::get() == libc::EINTR => {}
            -1 => return None,
            n => return Some(n as usize),
        }
    }
}

/// As [`read`], from byte `offset` of the file on, and without a change of its position.
pub fn read_at(fd: c_int, buf: &mut [u8], offset: u64) -> Option<usize> {
    loop {
        // SAFETY: `buf` is writable for its length.
        let rc = unsafe { libc::syscall(libc::SYS_pread64, c_long::from(fd), buf.as_mut_ptr(), buf.len(), offset) };
        match rc {
            -1 if crate::errno::get() == libc::EINTR => {}
            -1 => return None,
            n => return Some(n as usize),
        }
    }
}

/// The lowest free descriptor from `least` on, made to lead to the file of `fd`; closed by execve.
pub fn duplicate_from(fd: c_int, least: c_int) -> Option<c_int> {
    // SAFETY: takes numbers only.
    let rc = unsafe { libc::syscall(libc::SYS_fcntl, c_long::from(fd), libc::F_DUPFD_CLOEXEC, c_long::from(least)) };
    (rc >= 0).then_some(rc as c_int)
}

/// Closes a descriptor that the calling code opened and that no other code uses.
pub fn close(fd: c_int) {
    // SAFETY: by this function's contract no other code uses the descriptor.
    unsafe { libc::syscall(libc::SYS_close, c_long::from(fd)) };
}

/// Process id, from the kernel: a libc cache would be wrong in children of a raw clone(2).
pub fn pid() -> u32 {
    // SAFETY: takes no arguments, cannot fail.
    (unsafe { libc::syscall(libc::SYS_getpid) }) as u32
}

/// Links of /proc/self/task besides those of its subdirectories, of which each thread has one.
const OTHER_LINKS: u64 = 2;

/// Threads of this process, without a descriptor; `None` without /proc.
pub fn thread_count() -> Option<u64> {
    // SAFETY: an all-zero stat is valid, and the call fills it.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the path is a C string, `stat` is writable.
    let done = unsafe {
        libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, c"/proc/self/task".as_ptr(), &raw mut stat, 0) == 0
    };
    done.then(|| stat.st_nlink.saturating_sub(OTHER_LINKS)).filter(|count| *count > 0)
}

/// CPU time of the process, ns; `None` when the kernel refuses the call.
pub fn cpu_time_ns() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure.
    let rc = unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    (rc == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Kernel thread id.
pub fn tid() -> u32 {
    // SAFETY: takes no arguments, cannot fail.
    (unsafe { libc::syscall(libc::SYS_gettid) }) as u32
}

/// Process id of the parent.
pub fn parent() -> u32 {
    // SAFETY: takes no arguments, cannot fail.
    (unsafe { libc::syscall(libc::SYS_getppid) }) as u32
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_more_is_counted() {
        let listed = || std::fs::read_dir("/proc/self/task").map_or(0, |list| list.count()) as u64;
        // Others of the tests begin and end meanwhile.
        assert!((0..100).any(|_| super::thread_count() == Some(listed())));
        let (counted, before) = (std::sync::Barrier::new(2), super::thread_count().unwrap_or(0));
        std::thread::scope(|scope| {
            scope.spawn(|| counted.wait());
            let more = (0..1000).any(|_| super::thread_count().unwrap_or(0) > 1);
            counted.wait();
            assert!(before > 0 && more);
        });
    }
}
