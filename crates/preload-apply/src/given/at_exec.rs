//! What the kernel gave this process at exec, read before any other code of the process can change it.
//!
//! The loader runs the constructors of the program's libraries before that of a preloaded library, and OpenMP runtimes
//! bind the main thread in theirs: libgomp in `initialize_env` of env.c. The resolver of an indirect function
//! (STT_GNU_IFUNC) runs earlier: while the loader relocates the library that holds it, and the loader relocates all
//! libraries before it runs the first constructor (`dl_main` of elf/rtld.c, `_dl_init` of elf/dl-init.c). Not even the
//! DT_PREINIT_ARRAY of the executable comes before that. DF_1_INITFIRST is no alternative: only one library of a
//! process can have it, and up to glibc 2.33 libpthread needs it.
//!
//! A resolver runs before libc is initialised, and thread-local storage may not exist yet (before glibc 2.34 it is set
//! up after the relocation). So [`read`] calls nothing outside of this library and touches no `errno`.

use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicIsize, AtomicU64, Ordering};

use numamma_kernel::affinity::{CpuMask, MAX_CPUS};
use numamma_kernel::policy::{MAX_NODES, TaskPolicy};
use numamma_plan::environment::POLICY_ENV;

static DONE: AtomicBool = AtomicBool::new(false);
/// Results of sched_getaffinity(2) and get_mempolicy(2).
static CPUS_RESULT: AtomicIsize = AtomicIsize::new(-1);
static POLICY_RESULT: AtomicIsize = AtomicIsize::new(-1);
static CPUS: [AtomicU64; MAX_CPUS / 64] = [const { AtomicU64::new(0) }; MAX_CPUS / 64];
static POLICY_MODE: AtomicI32 = AtomicI32::new(0);
static POLICY_NODES: [AtomicU64; MAX_NODES / 64] = [const { AtomicU64::new(0) }; MAX_NODES / 64];

/// CPUs that the process could use at exec; `None` when the kernel did not say.
pub fn cpus() -> Option<CpuMask> {
    if !DONE.load(Ordering::Relaxed) {
        return CpuMask::of_thread(0); // the policy was not in the environment at exec
    }
    let read = CPUS_RESULT.load(Ordering::Relaxed) > 0;
    read.then(|| CpuMask::of_words(core::array::from_fn(|i| CPUS[i].load(Ordering::Relaxed))))
}

/// Memory policy that the process inherited at exec; `None` when the kernel did not say.
pub fn memory_policy() -> Option<TaskPolicy> {
    if !DONE.load(Ordering::Relaxed) {
        return TaskPolicy::now();
    }
    let read = POLICY_RESULT.load(Ordering::Relaxed) == 0;
    let nodes = || core::array::from_fn(|i| POLICY_NODES[i].load(Ordering::Relaxed));
    read.then(|| TaskPolicy::of_words(POLICY_MODE.load(Ordering::Relaxed), nodes()))
}

unsafe extern "C" {
    /// The words that the kernel puts on the stack of a new program: argc, argv, null, environment, null. Exported by
    /// the loader (GLIBC_2.2.5), which sets it before it relocates anything.
    static __libc_stack_end: *const usize;

    /// The indirect function below.
    fn numamma_apply_at_exec();
}

// The reference makes the linker emit the relocation (R_X86_64_IRELATIVE) for which the loader calls the resolver.
#[used]
static KEEP: unsafe extern "C" fn() = numamma_apply_at_exec;

core::arch::global_asm!(
    ".globl numamma_apply_at_exec",
    ".hidden numamma_apply_at_exec",
    ".type numamma_apply_at_exec, @gnu_indirect_function",
    ".set numamma_apply_at_exec, {resolver}",
    resolver = sym resolver,
);

/// The resolver: reads what the process was given, and returns the address of a function that is never called.
extern "C" fn resolver() -> usize {
    // SAFETY: the loader has set the pointer to the words of the kernel.
    if unsafe { has_policy(__libc_stack_end) } {
        read();
    }
    nothing as *const () as usize
}

extern "C" fn nothing() {}

/// Whether the environment of the new program names a policy: without one this library makes no system calls.
///
/// # Safety
/// `words` is null or points to argc, followed by the pointers of the arguments and of the environment.
unsafe fn has_policy(words: *const usize) -> bool {
    if words.is_null() {
        return false;
    }
    // SAFETY: the caller's promise; both lists of pointers end with null, and all strings are terminated.
    unsafe {
        let mut variable = words.add(*words + 2).cast::<*const c_char>();
        while !(*variable).is_null() {
            if names_policy(*variable) {
                return true;
            }
            variable = variable.add(1);
        }
    }
    false
}

/// Whether a variable is the policy's, and not empty. Compares byte by byte: strlen and memcmp are functions of libc.
///
/// # Safety
/// `variable` is a terminated string.
unsafe fn names_policy(variable: *const c_char) -> bool {
    let name = POLICY_ENV.as_bytes();
    let mut at = 0;
    // SAFETY: every byte before this one was equal to one of the name, so the string has not ended.
    let byte = |at: usize| unsafe { *variable.add(at) } as u8;
    while at < name.len() {
        if byte(at) != name[at] {
            return false;
        }
        at += 1;
    }
    byte(at) == b'=' && byte(at + 1) != 0
}

fn read() {
    let cpus = CPUS.as_ptr() as usize;
    // SAFETY: the mask is writable for the size that is passed, through atomics.
    CPUS_RESULT.store(unsafe { system_call(libc::SYS_sched_getaffinity, 0, MAX_CPUS / 8, cpus) }, Ordering::Relaxed);
    let (mode, nodes) = (POLICY_MODE.as_ptr() as usize, POLICY_NODES.as_ptr() as usize);
    // SAFETY: mode and mask are writable for their sizes, through atomics; no address is asked about.
    POLICY_RESULT.store(unsafe { system_call(libc::SYS_get_mempolicy, mode, nodes, MAX_NODES) }, Ordering::Relaxed);
    DONE.store(true, Ordering::Relaxed);
}

/// A system call of up to five arguments, the last two 0; a negative result is an error number.
///
/// # Safety
/// The contract of the call.
unsafe fn system_call(number: i64, a: usize, b: usize, c: usize) -> isize {
    let result: isize;
    // SAFETY: the kernel changes rax, rcx and r11, and the memory that the caller vouches for.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") 0,
            in("r8") 0,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

const _: () = assert!(size_of::<c_int>() == size_of::<AtomicI32>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_the_kernel_says() {
        read();
        assert_eq!(cpus(), CpuMask::of_thread(0));
        assert_eq!(memory_policy(), TaskPolicy::now());
    }

    #[test]
    fn a_policy_in_the_environment_is_found() {
        let of = |variables: &[&core::ffi::CStr]| {
            let argument = c"program";
            let mut words = vec![1, argument.as_ptr() as usize, 0];
            words.extend(variables.iter().map(|v| v.as_ptr() as usize));
            words.push(0);
            // SAFETY: the words of the kernel for a program without arguments.
            unsafe { has_policy(words.as_ptr()) }
        };
        assert!(of(&[c"HOME=/", c"NUMAMMA_POLICY=p.toml"]));
        assert!(!of(&[]));
        assert!(!of(&[c"NUMAMMA_POLICY=", c"NUMAMMA_POLIC", c"NUMAMMA_POLICY", c"NUMAMMA_POLICY_=1", c""]));
    }
}
