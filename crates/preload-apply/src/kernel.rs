//! The kernel's placement calls, made directly: constants and calls that libc crates and old headers lack.
//!
//! Results are `Err(errno)`; callers hold an [`numamma_hook::errno::Saved`].

use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicU32;

use numamma_hook::errno;

/// Largest node number + 1 a mask can hold (CONFIG_NODES_SHIFT is at most 10).
const MASK_NODES: usize = 1024;
/// Pages asked about in one move_pages call: a whole huge page, on a stack of 6 KiB.
pub const BATCH: usize = 512;

const MPOL_DEFAULT: c_int = 0;
const MPOL_PREFERRED: c_int = 1;
const MPOL_BIND: c_int = 2;
const MPOL_INTERLEAVE: c_int = 3;
/// Since Linux 5.15; EINVAL before.
const MPOL_PREFERRED_MANY: c_int = 5;
/// Since Linux 6.9; EINVAL before.
const MPOL_WEIGHTED_INTERLEAVE: c_int = 6;
const MPOL_MF_MOVE: u32 = 2;
/// Since Linux 5.14, like the next one; EINVAL before.
const MADV_POPULATE_READ: c_int = 22;
const MADV_POPULATE_WRITE: c_int = 23;
/// Since Linux 5.4.
const MADV_COLD: c_int = 20;
/// Since Linux 4.14.
const MADV_WIPEONFORK: c_int = 18;

/// A memory policy of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As the thread's own policy says, usually first touch; takes no nodes.
    Default,
    /// This node first, others when it is full: a full node must not kill the program.
    Preferred,
    /// The nodes of the mask first, others when they are full.
    PreferredMany,
    /// Only the nodes of the mask.
    Bind,
    /// The nodes of the mask in turn.
    Interleave,
    /// In turn by the system's weights.
    WeightedInterleave,
}

fn result(rc: i64) -> Result<(), c_int> {
    if rc == 0 { Ok(()) } else { Err(errno::get()) }
}

/// mbind(2) over `[start, start + len)`, both multiples of the page size. `move_pages` also moves what is
/// resident already.
pub fn mbind(start: usize, len: usize, mode: Mode, nodes: &[u32], move_pages: bool) -> Result<(), c_int> {
    let mut mask = [0_u64; MASK_NODES / 64];
    for &node in nodes {
        if let Some(word) = mask.get_mut(node as usize / 64) {
            *word |= 1 << (node % 64);
        }
    }
    let mode = match mode {
        Mode::Default => MPOL_DEFAULT,
        Mode::Preferred => MPOL_PREFERRED,
        Mode::PreferredMany => MPOL_PREFERRED_MANY,
        Mode::Bind => MPOL_BIND,
        Mode::Interleave => MPOL_INTERLEAVE,
        Mode::WeightedInterleave => MPOL_WEIGHTED_INTERLEAVE,
    };
    let flags = if move_pages { MPOL_MF_MOVE } else { 0 };
    crate::cost::note_mbind();
    // SAFETY: the mask is readable for its length; a policy changes where pages go, not what they hold.
    // The kernel takes one bit less than it is told.
    result(unsafe { libc::syscall(libc::SYS_mbind, start, len, mode, mask.as_ptr(), MASK_NODES + 1, flags) })
}

/// Cuts the huge page that `page` is a part of, if it is, into small ones that keep their place and contents: marking a part of it
/// as cold makes the kernel split it (madvise_cold_or_pageout_pte_range of mm/madvise.c). Before Linux 5.4 it stays.
pub fn split_huge_page(page: usize) {
    // SAFETY: the advice changes the order in which pages are reclaimed, not what they hold.
    unsafe { libc::syscall(libc::SYS_madvise, page, numamma_hook::sys::PAGE, MADV_COLD) };
}

/// A page of zeroes that a forked child finds empty again, whatever its parent wrote, and a vforked one shares.
pub fn map_forgotten_by_forks(len: usize) -> Option<*mut c_void> {
    let start = numamma_hook::sys::map_anonymous(len)?;
    // SAFETY: the mapping is fresh and ours.
    let wiped = unsafe { libc::syscall(libc::SYS_madvise, start, len, MADV_WIPEONFORK) } == 0;
    if !wiped {
        // SAFETY: nobody has seen it.
        unsafe { numamma_hook::sys::unmap(start, len) };
    }
    wiped.then_some(start)
}

/// Nanoseconds of the monotonic clock.
pub fn clock_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps while `word` is `value`, at most `ns`; wakes early for any reason.
pub fn sleep_on(word: &AtomicU32, value: u32, ns: u64) {
    let limit = libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time are readable during the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, &raw const limit) };
}

/// Wakes whoever sleeps on `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: only the address of the word is used.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX) };
}

/// Node of each page of `pages` (its base address), or a negative errno for a page that does not exist.
pub fn page_nodes(pages: &[usize], status: &mut [c_int]) -> Result<(), c_int> {
    if status.len() < pages.len() {
        return Err(libc::EINVAL);
    }
    let nodes: *const c_int = core::ptr::null();
    // SAFETY: both arrays are as long as the count says; with no target nodes nothing is moved.
    result(unsafe {
        libc::syscall(libc::SYS_move_pages, 0, pages.len(), pages.as_ptr(), nodes, status.as_mut_ptr(), 0)
    })
}

/// Moves each page to its node; pages that do not exist or cannot move are left.
pub fn move_to(pages: &[usize], nodes: &[c_int]) {
    let mut status = [0 as c_int; BATCH];
    let count = pages.len().min(nodes.len()).min(BATCH);
    // SAFETY: all arrays hold `count` entries; moving a page keeps its contents and address.
    unsafe {
        libc::syscall(libc::SYS_move_pages, 0, count, pages.as_ptr(), nodes.as_ptr(), status.as_mut_ptr(), MPOL_MF_MOVE)
    };
}

/// Which pages of anonymous memory are resident, asked for 16 MiB at a time: a thousand small neighbours cost a
/// handful of system calls.
pub struct Residency {
    start: usize,
    end: usize,
    map: [u8; Residency::PAGES],
}

impl Residency {
    const PAGES: usize = 4096;

    /// Knows nothing yet.
    pub fn new() -> Residency {
        Residency { start: 0, end: 0, map: [0; Residency::PAGES] }
    }

    /// Whether any page of `[start, end)` is resident; the mapping is known to reach to `limit`.
    pub fn any(&mut self, start: usize, end: usize, limit: usize) -> bool {
        let page = numamma_hook::sys::PAGE;
        let mut at = start;
        while at < end {
            if !(self.start..self.end).contains(&at) && !self.look(at, limit.max(end)) {
                return true; // unknown: moving nothing is harmless
            }
            let stop = end.min(self.end);
            let pages = (at - self.start) / page..(stop - self.start) / page;
            if self.map.get(pages).is_some_and(|m| m.iter().any(|&b| b & 1 != 0)) {
                return true;
            }
            at = stop;
        }
        false
    }

    fn look(&mut self, start: usize, limit: usize) -> bool {
        let page = numamma_hook::sys::PAGE;
        let len = limit.next_multiple_of(page).saturating_sub(start).min(Self::PAGES * page);
        // SAFETY: the array has a byte for each page of the range; mincore reads page tables only.
        let known = len > 0 && unsafe { libc::syscall(libc::SYS_mincore, start, len, self.map.as_mut_ptr()) } == 0;
        (self.start, self.end) = if known { (start, start + len) } else { (0, 0) };
        known
    }
}

/// Maps the pages of a range that will be read, in one go. Without it they come one by one.
pub fn populate_read(start: usize, len: usize) {
    let page = numamma_hook::sys::PAGE;
    let first = start & !(page - 1);
    let end = start.saturating_add(len).next_multiple_of(page);
    // SAFETY: prefaulting for reading changes no contents; a range that is not mapped is refused.
    unsafe { libc::syscall(libc::SYS_madvise, first, end - first, MADV_POPULATE_READ) };
}

/// Asks for huge pages in a range, or for none. A kernel without them has nothing to refuse that matters.
pub fn huge_pages(start: usize, len: usize, wanted: bool) {
    let advice = if wanted { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: the advice changes how memory is backed, not what it holds.
    unsafe { libc::syscall(libc::SYS_madvise, start, len, advice) };
}

/// Gives every page of a writable private range its own copy now, where its policy wants it.
pub fn populate_write(start: usize, len: usize) -> bool {
    // SAFETY: prefaulting for writing changes no contents.
    unsafe { libc::syscall(libc::SYS_madvise, start, len, MADV_POPULATE_WRITE) == 0 }
}

/// The memory policy of a thread, to be put back.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TaskPolicy {
    mode: c_int,
    mask: [u64; MASK_NODES / 64],
}

impl TaskPolicy {
    /// That of the calling thread; `None` when the kernel does not say (a seccomp filter).
    pub fn now() -> Option<TaskPolicy> {
        let mut now = TaskPolicy { mode: 0, mask: [0; MASK_NODES / 64] };
        // SAFETY: both results are writable for their lengths; no address is asked about.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut now.mode,
                now.mask.as_mut_ptr(),
                MASK_NODES,
                core::ptr::null::<c_void>(),
                0,
            )
        };
        (rc == 0).then_some(now)
    }

    /// One node first, for what the calling thread touches in ranges without a policy.
    pub fn prefer(node: u32) -> Result<(), c_int> {
        let mut mask = [0_u64; MASK_NODES / 64];
        *mask.get_mut(node as usize / 64).ok_or(libc::EINVAL)? |= 1 << (node % 64);
        TaskPolicy { mode: MPOL_PREFERRED, mask }.set()
    }

    /// Gives it to the calling thread.
    pub fn set(&self) -> Result<(), c_int> {
        // SAFETY: the mask is readable for its length; a policy changes where pages go, not what they hold.
        result(unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, self.mask.as_ptr(), MASK_NODES + 1) })
    }
}

/// Whether the kernel can populate a range at once (5.14).
pub fn can_populate() -> bool {
    let page = numamma_hook::sys::PAGE;
    let Some(at) = numamma_hook::sys::map_anonymous(page) else { return false };
    let can = populate_write(at as usize, page);
    // SAFETY: the page is ours.
    unsafe { numamma_hook::sys::unmap(at, page) };
    can
}

/// Anonymous private memory of `len` bytes whose address is a multiple of `align` (a power of two of at
/// least a page).
pub fn map_aligned(len: usize, align: usize) -> Option<usize> {
    let page = numamma_hook::sys::PAGE;
    if align <= page {
        return numamma_hook::sys::map_anonymous(len).map(|p| p as usize);
    }
    let whole = len.checked_add(align)?;
    let raw = numamma_hook::sys::map_anonymous(whole)? as usize;
    let start = raw.checked_next_multiple_of(align)?;
    // SAFETY: the trimmed ends belong to the fresh mapping and nobody has seen them.
    unsafe {
        if start > raw {
            numamma_hook::sys::unmap(raw as *mut c_void, start - raw);
        }
        if raw + whole > start + len {
            numamma_hook::sys::unmap((start + len) as *mut c_void, raw + whole - start - len);
        }
    }
    Some(start)
}

/// Address space of `len` bytes that nothing can be read from or written to, and that counts as no memory.
pub fn reserve(len: usize) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let at = unsafe { libc::syscall(libc::SYS_mmap, 0_usize, len, libc::PROT_NONE, flags, -1, 0_usize) };
    (at != -1).then_some(at as usize)
}

/// Makes reserved address space readable and writable.
pub fn make_usable(start: usize, len: usize) -> bool {
    // SAFETY: the range is ours and holds nothing yet.
    unsafe { libc::syscall(libc::SYS_mprotect, start, len, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}

/// A CPU mask as sched_setaffinity takes it: up to 8,192 CPUs (CONFIG_NR_CPUS_RANGE_END).
pub type CpuMask = [u64; 128];

/// CPUs the calling thread may run on, as a mask; `None` when the kernel does not say.
pub fn affinity() -> Option<CpuMask> {
    affinity_of(0)
}

/// The same for another thread.
pub fn affinity_of(thread: i32) -> Option<CpuMask> {
    let mut mask: CpuMask = [0; 128];
    // SAFETY: the mask is writable for the size that is told.
    let rc = unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread, size_of::<CpuMask>(), mask.as_mut_ptr()) };
    (rc > 0).then_some(mask)
}

/// Lets the calling thread run where `mask` says.
pub fn set_mask(mask: &CpuMask) {
    // SAFETY: the mask is readable for the size that is told; only the calling thread is concerned.
    unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of::<CpuMask>(), mask.as_ptr()) };
}

/// Lets the calling thread run on `cpus` only.
pub fn set_affinity(cpus: &[u32]) -> Result<(), c_int> {
    let mut mask: CpuMask = [0; 128];
    for &cpu in cpus {
        if let Some(word) = mask.get_mut(cpu as usize / 64) {
            *word |= 1 << (cpu % 64);
        }
    }
    // SAFETY: the mask is readable for the size that is told; only the calling thread is concerned.
    result(unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of::<CpuMask>(), mask.as_ptr()) })
}

/// The CPU the calling thread runs on.
pub fn current_cpu() -> Option<u32> {
    let mut cpu = 0_u32;
    let none: *mut u32 = core::ptr::null_mut();
    // SAFETY: `cpu` is writable, the other results are not wanted.
    (unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, none, none) } == 0).then_some(cpu)
}
