//! The system calls of the measurement: where a thread runs, where memory lies, and what this process may use.

use std::fs;
use std::io;

use numamma_kernel::affinity::CpuMask;
use numamma_kernel::sys::PAGE;
use numamma_kernel::{lists, meminfo, pages, policy};

fn result(outcome: Result<(), i32>) -> io::Result<()> {
    outcome.map_err(io::Error::from_raw_os_error)
}

/// CPUs the calling thread may run on, ascending.
pub fn allowed_cpus() -> Vec<u32> {
    CpuMask::of_thread(0).map_or_else(Vec::new, |mask| mask.cpus().collect())
}

/// Lets the calling thread run on `cpus` only.
///
/// # Errors
/// When none of them is allowed here (cpuset).
pub fn run_on(cpus: &[u32]) -> io::Result<()> {
    result(CpuMask::of(cpus).apply())
}

/// Nodes this process may have memory on; `None` when the kernel does not say.
pub fn allowed_nodes() -> Option<Vec<u32>> {
    lists::allowed_nodes(&fs::read_to_string("/proc/self/status").ok()?)
}

/// Bytes free on a node; `None` when the kernel does not say.
pub fn free_memory(node: u32) -> Option<u64> {
    let of_node = fs::read_to_string(format!("/sys/devices/system/node/node{node}/meminfo"));
    meminfo::field(&of_node.unwrap_or_else(|_| meminfo::read()), "MemFree:")
}

/// Anonymous memory, with huge pages where they are to be had.
pub struct Memory {
    start: *mut u64,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value, and all access goes through it.
unsafe impl Send for Memory {}
// SAFETY: shared access only reads; writing needs the value for itself.
unsafe impl Sync for Memory {}

impl Memory {
    /// Reserves `bytes`, rounded up to whole pages; nothing is touched.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn new(bytes: usize) -> io::Result<Memory> {
        let bytes = bytes.div_ceil(PAGE).max(1) * PAGE;
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is ours; advice changes no contents, and that it is refused does not matter.
        unsafe { libc::madvise(start, bytes, libc::MADV_HUGEPAGE) };
        Ok(Memory { start: start.cast(), bytes })
    }

    /// Asks for its pages to come from `node`.
    ///
    /// # Errors
    /// As mbind(2); EPERM and ENOSYS where a container refuses the call.
    pub fn prefer(&self, node: u32) -> io::Result<()> {
        result(policy::mbind(self.start as usize, self.bytes, policy::Mode::Preferred, &[node], false))
    }

    /// Its words.
    pub fn words(&self) -> &[u64] {
        // SAFETY: the mapping is `bytes` long, aligned to pages, zero where nothing was written, and lives as long as
        // this.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes / 8) }
    }

    /// Its words, to be written.
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, and nobody else has it now.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes / 8) }
    }

    /// Share of `probes` evenly spaced pages that lie on `node`.
    ///
    /// # Errors
    /// As move_pages(2), which is only asked where pages are.
    pub fn share_on(&self, node: u32, probes: usize) -> io::Result<f64> {
        let count = self.bytes / PAGE;
        let step = (count / probes.max(1)).max(1);
        let wanted: Vec<usize> = (0..count).step_by(step).map(|p| self.start as usize + p * PAGE).collect();
        let mut status = vec![-1i32; wanted.len()];
        result(pages::page_nodes(&wanted, &mut status))?;
        Ok(status.iter().filter(|s| **s == node as i32).count() as f64 / status.len() as f64)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody borrows it any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
