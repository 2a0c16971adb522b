//! mmap and munmap: mappings from a matched call site are placed if their kind of memory takes a policy.
//!
//! The program may unmap or replace parts of a placed mapping at any time; the list of placed mappings follows.
//! Calls that change attributes of memory are in mmap/attributes.rs, mremap is in mmap/mremap.rs.

pub mod attributes;
pub mod mremap;

use core::ffi::{c_int, c_void};

use numamma_hook::entry::{Caller, MmapArguments};
use numamma_hook::{errno, real, static_tls};
use numamma_kernel::sys::PAGE;

use super::contained;
use crate::matching::cached::unmatched;
use crate::matching::call_sites;
use crate::objects::backing::Backing;
use crate::objects::mappings::{self, set_aside};
use crate::objects::released::{elsewhere, fitting};
use crate::objects::{mapping_list, released};

type Ptr = *mut c_void;

numamma_hook::mmap_entries!(place_mmap);

/// mmap(2) and mmap64.
///
/// # Safety
/// C's contract; `caller` comes from the entry stub.
unsafe fn place_mmap(arguments: &MmapArguments, caller: &Caller) -> Ptr {
    let MmapArguments { addr, len, prot, flags, fd, .. } = *arguments;
    if flags & libc::MAP_FIXED != 0 {
        released::changing(addr as usize, len);
    }
    if prot & libc::PROT_WRITE != 0 {
        elsewhere::mapping(len);
    }
    // The range is taken off the list before the call, because afterwards it belongs to the new mapping.
    let replaces = flags & libc::MAP_FIXED != 0 && len > 0 && mapping_list::may_have(addr as usize, len);
    let replaced = replaces.then(|| set_aside(addr as usize, len));
    // SAFETY: forwarded unchanged.
    let mut found = unsafe { arguments.forward() };
    if found == libc::MAP_FAILED && is_shortage() && fitting::can_be_mapped(len) && released::give_way() {
        // SAFETY: as above.
        found = unsafe { arguments.forward() };
    }
    if let Some(replaced) = replaced {
        // Without memory for the new mapping the kernel may have unmapped the old one.
        let untouched = found == libc::MAP_FAILED && !is_shortage();
        if untouched { replaced.restore() } else { replaced.forget() }
    }
    // SAFETY: the caller as the stub saw it.
    if found == libc::MAP_FAILED || unsafe { unmatched::is_unmatched(caller.ra, caller.cfa) } {
        return found;
    }
    let _errno = errno::Saved::now();
    contained(|| {
        // SAFETY: the caller as the stub saw it.
        let rule = unsafe { call_sites::find(caller, len, None) }?;
        mappings::place_mapping(rule, found as usize, len, Backing::of_mmap(prot, flags, fd));
        Some(())
    });
    found
}

/// Whether the call that just failed found no memory, or more locked than the process may lock.
fn is_shortage() -> bool {
    matches!(errno::get(), libc::ENOMEM | libc::EAGAIN)
}

numamma_hook::deferred_entry! {
    /// munmap(2).
    fn munmap(addr: Ptr, len: usize) -> c_int => unmap;
}

/// munmap(2).
///
/// # Safety
/// C's contract.
unsafe extern "C" fn unmap(addr: Ptr, len: usize) -> c_int {
    released::changing(addr as usize, len);
    if !static_tls::exists() {
        // SAFETY: forwarded unchanged.
        return unsafe { real::munmap(addr, len) };
    }
    let known = len > 0 && (addr as usize).is_multiple_of(PAGE) && mapping_list::may_have(addr as usize, len);
    let gone = known.then(|| set_aside(addr as usize, len));
    // SAFETY: forwarded unchanged.
    let rc = unsafe { real::munmap(addr, len) };
    if let Some(gone) = gone {
        if rc == 0 { gone.forget() } else { gone.restore() }
    }
    rc
}
