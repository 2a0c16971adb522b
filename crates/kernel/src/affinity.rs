//! The CPUs a thread may run on, and the one it runs on.

use core::ffi::c_int;

/// Largest CPU number + 1 a mask can hold (CONFIG_NR_CPUS_RANGE_END).
pub const MAX_CPUS: usize = 8192;

/// A CPU mask as sched_setaffinity(2) takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuMask([u64; MAX_CPUS / 64]);

impl CpuMask {
    /// A mask of `cpus`; numbers from [`MAX_CPUS`] on are left out.
    pub fn of(cpus: &[u32]) -> CpuMask {
        CpuMask(crate::mask_of(cpus))
    }

    /// A mask of all CPUs, also of those that are not there: the kernel leaves out what the cpuset does not allow.
    pub fn all() -> CpuMask {
        CpuMask([u64::MAX; MAX_CPUS / 64])
    }

    /// A mask of the words that the kernel wrote.
    pub fn of_words(words: [u64; MAX_CPUS / 64]) -> CpuMask {
        CpuMask(words)
    }

    /// The affinity of `thread` (a kernel thread id; 0: the calling thread); `None` when the kernel refuses the call.
    pub fn of_thread(thread: i32) -> Option<CpuMask> {
        let mut mask = [0_u64; MAX_CPUS / 64];
        // SAFETY: the mask is writable for the size that is passed.
        let rc = unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread, MAX_CPUS / 8, mask.as_mut_ptr()) };
        (rc > 0).then_some(CpuMask(mask))
    }

    /// Whether `cpu` is in the mask.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.get(cpu as usize / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// The CPUs of the mask, ascending.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        (0..MAX_CPUS as u32).filter(|cpu| self.contains(*cpu))
    }

    /// Restricts the calling thread to the CPUs of the mask.
    ///
    /// # Errors
    /// EINVAL when the cpuset allows no CPU of the mask.
    pub fn apply(&self) -> Result<(), c_int> {
        // SAFETY: the mask is readable for the size that is passed; only the calling thread is affected.
        crate::result(unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, MAX_CPUS / 8, self.0.as_ptr()) })
    }
}

/// The CPU the calling thread runs on; `None` when the kernel refuses the call.
pub fn current_cpu() -> Option<u32> {
    let mut cpu = 0_u32;
    let none: *mut u32 = core::ptr::null_mut();
    // SAFETY: `cpu` is writable; the kernel does not write through the null pointers.
    (unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, none, none) } == 0).then_some(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_hold_what_they_are_given() {
        let mask = CpuMask::of(&[1, 64, 8191, 8192]);
        assert_eq!(mask.cpus().collect::<Vec<_>>(), [1, 64, 8191]);
        assert!(!mask.contains(0) && !mask.contains(8192));
    }

    #[test]
    fn the_calling_thread_may_run_where_it_runs() {
        let allowed = CpuMask::of_thread(0).unwrap();
        assert!(allowed.contains(current_cpu().unwrap()));
        assert_eq!(allowed.apply(), Ok(()));
        assert_eq!(CpuMask::of(&[]).apply(), Err(libc::EINVAL));
    }
}
