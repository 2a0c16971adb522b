//! shmat and shmdt: System V shared memory attached at a matched call site is placed like other shared memory.

use core::ffi::{c_int, c_void};

use numamma_hook::entry::Caller;
use numamma_hook::{errno, real, static_tls};

use super::contained;
use crate::matching::cached::unmatched;
use crate::matching::call_sites;
use crate::objects::backing::Backing;
use crate::objects::{mapping_list, mappings, released};

type Ptr = *mut c_void;

numamma_hook::deferred_entry! {
    /// shmat(2).
    fn shmat(id: c_int, addr: *const c_void, flags: c_int) -> Ptr => attach;
    /// shmdt(2).
    fn shmdt(addr: *const c_void) -> c_int => detach;
}

/// shmat(2).
///
/// # Safety
/// C's contract; three arguments of C, and the last three from the entry stub.
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn attach(
    id: c_int,
    addr: *const c_void,
    flags: c_int,
    _: usize,
    _: usize,
    _: usize,
    ra: usize,
    cfa: usize,
    rbp: usize,
) -> Ptr {
    if !static_tls::exists() {
        // SAFETY: forwarded unchanged.
        return unsafe { real::shmat(id, addr, flags) };
    }
    if flags & libc::SHM_REMAP != 0 {
        let _errno = errno::Saved::now();
        released::changing(addr as usize, segment_len(id).unwrap_or(1));
    }
    // SAFETY: forwarded unchanged.
    let found = unsafe { real::shmat(id, addr, flags) };
    // SAFETY: the caller as the stub saw it.
    if found == libc::MAP_FAILED || unsafe { unmatched::is_unmatched(ra, cfa) } {
        return found;
    }
    let _errno = errno::Saved::now();
    let Some(len) = segment_len(id) else { return found };
    contained(|| {
        // SAFETY: the caller as the stub saw it.
        let rule = unsafe { call_sites::find(&Caller { ra, cfa, rbp }, len, None) }?;
        if flags & libc::SHM_REMAP != 0 {
            mappings::forget_range(found as usize, len);
        }
        mappings::place_mapping(rule, found as usize, len, Ok(Backing::of_shmat(found as usize)));
        Some(())
    });
    found
}

/// Bytes of the segment `id`.
fn segment_len(id: c_int) -> Option<usize> {
    // SAFETY: an all-zero structure is valid, and the kernel fills it.
    let (rc, info) = unsafe {
        let mut info: libc::shmid_ds = core::mem::zeroed();
        (libc::shmctl(id, libc::IPC_STAT, &raw mut info), info)
    };
    (rc == 0 && info.shm_segsz > 0).then_some(info.shm_segsz)
}

/// shmdt(2).
///
/// # Safety
/// C's contract.
unsafe extern "C" fn detach(addr: *const c_void) -> c_int {
    if static_tls::exists()
        && !mapping_list::is_empty()
        && let Some(whole) = mapping_list::piece_at(addr as usize).filter(|m| m.part.first == 0)
    {
        mappings::forget_range(whole.object.base, whole.object.size);
    }
    // SAFETY: forwarded unchanged.
    unsafe { real::shmdt(addr) }
}
