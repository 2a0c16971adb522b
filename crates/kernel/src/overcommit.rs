//! What the kernel refuses to map because of its size alone, see proc_sys_vm(5), overcommit_memory.

use core::sync::atomic::{AtomicU8, Ordering};

use crate::sys;

/// Bytes of the address space of a process, at most: the kernel places nothing above unless it is asked to.
pub const ADDRESS_SPACE: u64 = 1 << 47;
/// overcommit_memory of a kernel that refuses what is more than all memory and swap, whatever else is in use.
const GUESS: u8 = b'0';
/// overcommit_memory of a kernel that counts what all processes have mapped, and refuses more than a part of memory.
const STRICT: u8 = b'2';

/// Whether private memory of `bytes` is refused, whatever the process has mapped already. Allocates nothing; errno
/// stays as the system calls leave it.
pub fn is_never_mapped(bytes: u64) -> bool {
    bytes >= ADDRESS_SPACE || (all_memory().is_some_and(|all| bytes > all) && mode() == Some(GUESS))
}

/// Whether the kernel counts what is mapped, so that memory which one process has mapped is refused to others.
/// Allocates nothing; errno stays as the system calls leave it.
pub fn is_strict() -> bool {
    mode() == Some(STRICT)
}

/// Bytes of memory and swap.
fn all_memory() -> Option<u64> {
    // SAFETY: zeroes are a value of the plain structure.
    let mut info: libc::sysinfo = unsafe { core::mem::zeroed() };
    // SAFETY: the structure is writable.
    let done = unsafe { libc::syscall(libc::SYS_sysinfo, &raw mut info) } == 0;
    done.then(|| info.totalram.saturating_add(info.totalswap).saturating_mul(u64::from(info.mem_unit)))
}

/// What was read; 0 before.
static MODE: AtomicU8 = AtomicU8::new(0);

/// Read once in the life of the process: best at its start, since later another thread may be after the descriptor.
fn mode() -> Option<u8> {
    let known = MODE.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let fd = sys::open(c"/proc/sys/vm/overcommit_memory", libc::O_RDONLY)?;
    let mut text = [0; 1];
    let len = sys::read(fd, &mut text);
    sys::close(fd);
    MODE.store(text[0], Ordering::Relaxed);
    (len == Some(1)).then_some(text[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_address_space_is_never_mapped() {
        assert!(is_never_mapped(1 << 62) && is_never_mapped(ADDRESS_SPACE));
        assert!(!is_never_mapped(1) && !is_never_mapped(all_memory().unwrap()));
        assert_eq!(is_never_mapped(all_memory().unwrap() + 1), mode() == Some(GUESS));
        assert!(mode().is_some() && !(is_strict() && mode() == Some(GUESS)));
    }
}
