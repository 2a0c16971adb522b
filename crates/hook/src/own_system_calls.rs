//! System calls under their C names, for this library alone.
//!
//! A C program may define functions called `read`, `close` or `syscall`: these names are not C's. The loader binds what
//! a library imports to the first definition, which is the program's, so that the Rust library's `File::open` would
//! call it. A wrapper that a tool preloads would be called, too, and may hold a lock while it allocates. The
//! definitions here are hidden: whatever this library links, std included, uses them, and nobody else sees them. No
//! cancellation point is among them, so a hook is none.
//!
//! Not covered, as they are more than a system call: directory streams, `realpath`, `getenv`, threads, and
//! `clock_gettime`, which programs replace in order to change the time.

use core::ffi::c_int;

core::arch::global_asm!(
    ".macro numamma_own name, number",
    ".globl \\name",
    ".hidden \\name",
    ".type \\name, @function",
    "\\name:",
    ".cfi_startproc",
    "endbr64",
    "mov eax, \\number",
    "mov r10, rcx", // the fourth argument of a system call
    "syscall",
    "cmp rax, -4095",
    "jae numamma_own_failed",
    "ret",
    ".cfi_endproc",
    ".size \\name, . - \\name",
    ".endm",
    ".pushsection .text.numamma_own_system_calls, \"ax\", @progbits",
    // Sets errno and returns -1.
    ".type numamma_own_failed, @function",
    "numamma_own_failed:",
    ".cfi_startproc",
    "neg eax",
    "push rax", // also aligns the stack for the call
    ".cfi_adjust_cfa_offset 8",
    "call __errno_location@PLT",
    "pop rcx",
    ".cfi_adjust_cfa_offset -8",
    "mov dword ptr [rax], ecx",
    "mov rax, -1",
    "ret",
    ".cfi_endproc",
    ".size numamma_own_failed, . - numamma_own_failed",
    // syscall(2): the number first, then six arguments.
    ".globl syscall",
    ".hidden syscall",
    ".type syscall, @function",
    "syscall:",
    ".cfi_startproc",
    "endbr64",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, qword ptr [rsp + 8]",
    "syscall",
    "cmp rax, -4095",
    "jae numamma_own_failed",
    "ret",
    ".cfi_endproc",
    ".size syscall, . - syscall",
    // getcwd(3) with a buffer, as std calls it: the system call returns a length, the function the buffer.
    ".globl getcwd",
    ".hidden getcwd",
    ".type getcwd, @function",
    "getcwd:",
    ".cfi_startproc",
    "endbr64",
    "mov eax, {getcwd}",
    "syscall",
    "cmp rax, -4095",
    "jae 2f",
    "mov rax, rdi",
    "ret",
    "2:",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call numamma_own_failed",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".size getcwd, . - getcwd",
    // open(2) and stat(2) as glibc calls them, so that a filter for programs of glibc allows them.
    ".globl open64",
    ".hidden open64",
    ".type open64, @function",
    "open64:",
    ".cfi_startproc",
    "endbr64",
    "mov r10d, edx",
    "mov edx, esi",
    "mov rsi, rdi",
    "mov edi, {at_fdcwd}",
    "mov eax, {openat}",
    "syscall",
    "cmp rax, -4095",
    "jae numamma_own_failed",
    "ret",
    ".cfi_endproc",
    ".size open64, . - open64",
    // The kernel's struct stat is glibc's on x86_64.
    ".globl stat64",
    ".hidden stat64",
    ".type stat64, @function",
    "stat64:",
    ".cfi_startproc",
    "endbr64",
    "xor r10d, r10d",
    "mov rdx, rsi",
    "mov rsi, rdi",
    "mov edi, {at_fdcwd}",
    "mov eax, {newfstatat}",
    "syscall",
    "cmp rax, -4095",
    "jae numamma_own_failed",
    "ret",
    ".cfi_endproc",
    ".size stat64, . - stat64",
    "numamma_own read, {read}",
    "numamma_own write, {write}",
    "numamma_own openat, {openat}",
    "numamma_own openat64, {openat}",
    "numamma_own close, {close}",
    "numamma_own fstat64, {fstat}",
    "numamma_own fstatat, {newfstatat}",
    "numamma_own fstatat64, {newfstatat}",
    "numamma_own statx, {statx}",
    "numamma_own lseek64, {lseek}",
    "numamma_own pread64, {pread64}",
    "numamma_own writev, {writev}",
    "numamma_own poll, {poll}",
    "numamma_own fcntl, {fcntl}",
    "numamma_own ftruncate64, {ftruncate}",
    "numamma_own fchmod, {fchmod}",
    "numamma_own readlink, {readlink}",
    "numamma_own readlinkat, {readlinkat}",
    "numamma_own renameat, {renameat}",
    "numamma_own unlinkat, {unlinkat}",
    "numamma_own getpid, {getpid}",
    "numamma_own getppid, {getppid}",
    "numamma_own geteuid, {geteuid}",
    "numamma_own gettid, {gettid}",
    "numamma_own getrandom, {getrandom}",
    "numamma_own getrlimit, {getrlimit}",
    "numamma_own getrusage, {getrusage}",
    "numamma_own process_vm_readv, {process_vm_readv}",
    "numamma_own shmctl, {shmctl}",
    ".popsection",
    getcwd = const libc::SYS_getcwd,
    read = const libc::SYS_read,
    write = const libc::SYS_write,
    at_fdcwd = const libc::AT_FDCWD,
    openat = const libc::SYS_openat,
    close = const libc::SYS_close,
    fstat = const libc::SYS_fstat,
    newfstatat = const libc::SYS_newfstatat,
    statx = const libc::SYS_statx,
    lseek = const libc::SYS_lseek,
    pread64 = const libc::SYS_pread64,
    writev = const libc::SYS_writev,
    poll = const libc::SYS_poll,
    fcntl = const libc::SYS_fcntl,
    ftruncate = const libc::SYS_ftruncate,
    fchmod = const libc::SYS_fchmod,
    readlink = const libc::SYS_readlink,
    readlinkat = const libc::SYS_readlinkat,
    renameat = const libc::SYS_renameat,
    unlinkat = const libc::SYS_unlinkat,
    getpid = const libc::SYS_getpid,
    getppid = const libc::SYS_getppid,
    geteuid = const libc::SYS_geteuid,
    gettid = const libc::SYS_gettid,
    getrandom = const libc::SYS_getrandom,
    getrlimit = const libc::SYS_getrlimit,
    getrusage = const libc::SYS_getrusage,
    process_vm_readv = const libc::SYS_process_vm_readv,
    shmctl = const libc::SYS_shmctl,
);

unsafe extern "C" {
    fn close(fd: c_int) -> c_int;
}

/// Makes the linker take the definitions of this file, which it searches for before those of libc. Called once when a
/// library starts; closes no file.
pub fn link() {
    let _errno = crate::errno::Saved::now();
    // SAFETY: -1 is never an open file.
    unsafe { close(-1) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno;

    #[test]
    fn calls_return_and_fail_as_those_of_libc() {
        // SAFETY: plain system calls on data of this function.
        unsafe {
            assert_eq!((close(-1), errno::get()), (-1, libc::EBADF));
            assert_eq!(libc::getpid(), std::process::id() as i32);
            let mut buffer = [0_u8; 4];
            let fd = libc::open64(c"/dev/zero".as_ptr(), libc::O_RDONLY);
            buffer.fill(1);
            assert_eq!((libc::read(fd, buffer.as_mut_ptr().cast(), 4), buffer), (4, [0; 4]));
            let page = libc::syscall(libc::SYS_mmap, 0, 4096, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0_usize);
            assert!(page > 0, "six arguments arrive");
            libc::syscall(libc::SYS_munmap, page, 4096);
            assert_eq!(close(fd), 0);
            assert!(libc::getcwd(buffer.as_mut_ptr().cast(), 1).is_null() && errno::get() == libc::ERANGE);
            let mut stat: libc::stat64 = core::mem::zeroed();
            assert_eq!(libc::stat64(c"/".as_ptr(), &raw mut stat), 0);
            assert_eq!(stat.st_mode & libc::S_IFMT, libc::S_IFDIR);
        }
        assert_eq!(std::env::current_dir().unwrap(), std::fs::canonicalize(".").unwrap());
        assert!(std::fs::read_to_string("/nonexistent").is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound));
    }
}
