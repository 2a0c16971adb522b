//! The system calls of the measurement: where a thread runs, where memory lies, and what this process may use.

use std::fs;
use std::io;

use crate::topology::description::MOST_CPUS;
use crate::topology::parse_list;

/// Largest node number + 1 a mask can hold (CONFIG_NODES_SHIFT is at most 10).
const MASK_NODES: usize = 1024;
/// include/uapi/linux/mempolicy.h: this node first, others when it is full.
const MPOL_PREFERRED: i32 = 1;
const PAGE: usize = 4096;

type CpuMask = [u64; MOST_CPUS / 64];

fn result(rc: i64) -> io::Result<()> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// CPUs the calling thread may run on, ascending.
pub fn allowed_cpus() -> Vec<u32> {
    let mut mask: CpuMask = [0; MOST_CPUS / 64];
    // SAFETY: the mask is writable for the size that is told.
    let rc = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of::<CpuMask>(), mask.as_mut_ptr()) };
    let set = |cpu: &u32| mask[*cpu as usize / 64] >> (cpu % 64) & 1 == 1;
    if rc < 0 { Vec::new() } else { (0..MOST_CPUS as u32).filter(set).collect() }
}

/// Lets the calling thread run on `cpus` only.
///
/// # Errors
/// When none of them is allowed here (cpuset).
pub fn run_on(cpus: &[u32]) -> io::Result<()> {
    let mut mask: CpuMask = [0; MOST_CPUS / 64];
    cpus.iter().filter(|cpu| (**cpu as usize) < MOST_CPUS).for_each(|cpu| mask[*cpu as usize / 64] |= 1 << (cpu % 64));
    // SAFETY: the mask is readable for the size that is told; only the calling thread is concerned.
    result(unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of::<CpuMask>(), mask.as_ptr()) })
}

/// Nodes this process may have memory on; `None` when the kernel does not say.
pub fn allowed_nodes() -> Option<Vec<u32>> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|l| l.strip_prefix("Mems_allowed_list:")).map(|list| parse_list(list.trim()))
}

/// Bytes free on a node; `None` when the kernel does not say.
pub fn free_memory(node: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/sys/devices/system/node/node{node}/meminfo"))
        .or_else(|_| fs::read_to_string("/proc/meminfo"))
        .ok()?;
    let line = text.lines().find(|l| l.contains("MemFree"))?;
    line.split_whitespace().rev().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes this process's control group may still take: beyond them the kernel kills. `None` without a limit.
pub fn group_memory() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|l| l.strip_prefix("0::"))?;
    let number = |dir: &str, file: &str| {
        fs::read_to_string(format!("/sys/fs/cgroup{dir}/{file}")).ok()?.trim().parse::<u64>().ok()
    };
    let mut dir = path.trim_end_matches('/');
    let mut least = None;
    loop {
        let left =
            number(dir, "memory.max").zip(number(dir, "memory.current")).map(|(max, now)| max.saturating_sub(now));
        least = [least, left].into_iter().flatten().min();
        match dir.rfind('/') {
            Some(at) => dir = &dir[..at],
            None => return least,
        }
    }
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
        let mut mask = [0u64; MASK_NODES / 64];
        if let Some(word) = mask.get_mut(node as usize / 64) {
            *word |= 1 << (node % 64);
        }
        // SAFETY: the mask is readable for its length; a policy changes where pages go, not what they hold. The
        // kernel takes one bit less than it is told.
        result(unsafe {
            libc::syscall(libc::SYS_mbind, self.start, self.bytes, MPOL_PREFERRED, mask.as_ptr(), MASK_NODES + 1, 0)
        })
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
        let pages = self.bytes / PAGE;
        let step = (pages / probes.max(1)).max(1);
        let wanted: Vec<usize> = (0..pages).step_by(step).map(|p| self.start as usize + p * PAGE).collect();
        let mut status = vec![-1i32; wanted.len()];
        // SAFETY: both arrays have as many entries as is told; without target nodes nothing is moved.
        result(unsafe {
            let (n, none) = (wanted.len(), std::ptr::null::<i32>());
            libc::syscall(libc::SYS_move_pages, 0, n, wanted.as_ptr(), none, status.as_mut_ptr(), 0)
        })?;
        Ok(status.iter().filter(|s| **s == node as i32).count() as f64 / status.len() as f64)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody borrows it any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
