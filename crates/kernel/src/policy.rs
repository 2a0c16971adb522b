//! Memory policies of ranges and threads. Constants: include/uapi/linux/mempolicy.h.

use core::ffi::{c_int, c_void};

use crate::mask_of;

/// Largest node number + 1 a mask can hold (CONFIG_NODES_SHIFT is at most 10).
pub const MAX_NODES: usize = 1024;

const MPOL_MF_MOVE: u32 = 2;
/// Flags that get_mempolicy(2) returns with the mode.
const MPOL_F_STATIC_NODES: c_int = 1 << 15;
const MPOL_F_RELATIVE_NODES: c_int = 1 << 14;
const MPOL_F_NUMA_BALANCING: c_int = 1 << 13;

/// A memory policy of a range, with the kernel's number of the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Mode {
    /// The policy of the faulting thread, usually first touch; the node list is empty.
    Default = 0,
    /// One node; other nodes when that node is full, so that a full node causes no out-of-memory kill.
    Preferred = 1,
    /// Only the nodes of the mask.
    Bind = 2,
    /// Page by page over the nodes of the mask.
    Interleave = 3,
    /// The nodes of the mask; other nodes when these are full. Since Linux 5.15; EINVAL before.
    PreferredMany = 5,
    /// Page by page over the nodes of the mask, in proportion to the system's weights (sysfs, weighted_interleave).
    /// Since Linux 6.9; EINVAL before.
    WeightedInterleave = 6,
}

/// mbind(2) over `[start, start + len)`, both multiples of the page size. `move_pages` also moves pages that are
/// resident already.
///
/// # Errors
/// As mbind(2); EPERM and ENOSYS where a container refuses the call.
pub fn mbind(start: usize, len: usize, mode: Mode, nodes: &[u32], move_pages: bool) -> Result<(), c_int> {
    let mask: [u64; MAX_NODES / 64] = mask_of(nodes);
    let mode = mode as c_int;
    let flags = if move_pages { MPOL_MF_MOVE } else { 0 };
    // SAFETY: the mask is readable for its length; a policy changes where pages go, not what they hold.
    // The kernel reads one bit less than the length that is passed (get_nodes of mm/mempolicy.c).
    crate::result(unsafe { libc::syscall(libc::SYS_mbind, start, len, mode, mask.as_ptr(), MAX_NODES + 1, flags) })
}

/// As [`mbind`], for a part of a mapping of shared memory (tmpfs, System V): the policy belongs to the object, so it is
/// set through a second, short mapping of the part. The mapping itself stays in one piece: its pieces would count as
/// mappings of the process, and for System V as users of the segment (`shm_nattch`). Resident pages are not moved.
///
/// # Errors
/// As mremap(2) and mbind(2).
pub fn mbind_shared(start: usize, len: usize, mode: Mode, nodes: &[u32]) -> Result<(), c_int> {
    // SAFETY: an old length of 0 duplicates a shared mapping at an address that the kernel chooses, and leaves the old
    // one as it is; other memory is refused (EINVAL since Linux 4.14).
    let second = unsafe { libc::syscall(libc::SYS_mremap, start, 0, len, libc::MREMAP_MAYMOVE, 0) };
    if second == -1 {
        return Err(crate::errno::get());
    }
    let outcome = mbind(second as usize, len, mode, nodes, false);
    // SAFETY: the mapping was made above, and nobody else knows its address.
    unsafe { libc::syscall(libc::SYS_munmap, second, len) };
    outcome
}

/// The memory policy of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskPolicy {
    mode: c_int,
    mask: [u64; MAX_NODES / 64],
}

impl TaskPolicy {
    /// The policy of the calling thread; `None` when the kernel refuses the call (a seccomp filter).
    pub fn now() -> Option<TaskPolicy> {
        let mut now = TaskPolicy { mode: 0, mask: [0; MAX_NODES / 64] };
        // SAFETY: both results are writable for their lengths; no address is passed.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut now.mode,
                now.mask.as_mut_ptr(),
                MAX_NODES,
                core::ptr::null::<c_void>(),
                0,
            )
        };
        (rc == 0).then_some(now)
    }

    /// A policy of the mode and the words that the kernel wrote.
    pub fn of_words(mode: c_int, mask: [u64; MAX_NODES / 64]) -> TaskPolicy {
        TaskPolicy { mode, mask }
    }

    /// The nodes to which the policy restricts all memory (MPOL_BIND, `numactl --membind`), ascending; `None` when it
    /// restricts none. `allowed` are the nodes of the cpuset, which relative numbers (MPOL_F_RELATIVE_NODES) count.
    pub fn bound_nodes(&self, allowed: &[u32]) -> Option<Vec<u32>> {
        let flags = MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES | MPOL_F_NUMA_BALANCING;
        if self.mode & !flags != Mode::Bind as c_int {
            return None;
        }
        let listed = (0..MAX_NODES).filter(|n| self.mask[n / 64] >> (n % 64) & 1 == 1);
        let mut nodes: Vec<u32> = match self.mode & MPOL_F_RELATIVE_NODES {
            0 => listed.map(|n| n as u32).filter(|n| allowed.contains(n)).collect(),
            // Numbers beyond the last node begin again with the first (mpol_relative_nodemask of mm/mempolicy.c).
            _ => listed.filter_map(|n| allowed.get(n.checked_rem(allowed.len())?).copied()).collect(),
        };
        nodes.sort_unstable();
        nodes.dedup();
        Some(nodes)
    }

    /// Makes `node` the preferred node of pages that the calling thread touches in ranges without a policy of their
    /// own.
    ///
    /// # Errors
    /// As set_mempolicy(2); EINVAL for a node number that no mask can hold.
    pub fn prefer(node: u32) -> Result<(), c_int> {
        if node as usize >= MAX_NODES {
            return Err(libc::EINVAL);
        }
        TaskPolicy { mode: Mode::Preferred as c_int, mask: mask_of(&[node]) }.set()
    }

    /// The policy `mode` with `nodes`.
    pub fn of(mode: Mode, nodes: &[u32]) -> TaskPolicy {
        TaskPolicy { mode: mode as c_int, mask: mask_of(nodes) }
    }

    /// Makes this the policy of the calling thread. Makes only a system call, so a child may call it between fork and
    /// exec.
    ///
    /// # Errors
    /// As set_mempolicy(2).
    pub fn set(&self) -> Result<(), c_int> {
        // SAFETY: the mask is readable for its length; a policy changes where pages go, not what they hold.
        crate::result(unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, self.mask.as_ptr(), MAX_NODES + 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bind_restricts_memory() {
        let of = |mode: c_int, listed: &[u32]| TaskPolicy::of_words(mode, mask_of(listed)).bound_nodes(&[1, 2, 5]);
        assert_eq!(of(0, &[]), None);
        assert_eq!(of(Mode::Preferred as c_int, &[1]), None);
        assert_eq!(of(Mode::Interleave as c_int, &[1]), None);
        assert_eq!(of(2, &[2, 3, 5]), Some(vec![2, 5]));
        assert_eq!(of(2 | MPOL_F_STATIC_NODES | MPOL_F_NUMA_BALANCING, &[2]), Some(vec![2]));
        assert_eq!(of(2 | MPOL_F_RELATIVE_NODES, &[0, 2, 3]), Some(vec![1, 5]), "0 and 3 are the first node");
    }
}
