//! mremap: the kernel moves and resizes placed mappings, so they keep every attribute: access rights, locks, advice,
//! names. The list of placed mappings follows.
//!
//! The kernel refuses a range of several areas with EFAULT. The blocks of a placement are such areas, where the program
//! knows of one mapping. So after EFAULT the areas are moved one by one ([`by_areas`]).

use core::ffi::{c_int, c_void};

use numamma_hook::held_signals::HeldSignals;
use numamma_hook::remap::{Call, by_areas};
use numamma_hook::{errno, own_stack, real, sandbox, static_tls};

use crate::objects::mappings::{forget_range, set_aside};
use crate::objects::released::{elsewhere, fitting};
use crate::objects::{mapping_list, released};

type Ptr = *mut c_void;

numamma_hook::deferred_entry! {
    /// mremap(2); variadic in C, which passes integers the same way.
    fn mremap(addr: Ptr, old: usize, new: usize, flags: c_int, new_addr: Ptr) -> Ptr => remap;
}

/// mremap(2).
///
/// # Safety
/// C's contract.
unsafe extern "C" fn remap(addr: Ptr, old: usize, new: usize, flags: c_int, new_addr: Ptr) -> Ptr {
    released::changing(addr as usize, old.max(1));
    if flags & libc::MREMAP_FIXED != 0 {
        released::changing(new_addr as usize, new);
    }
    elsewhere::mapping(new.saturating_sub(old));
    // SAFETY: forwarded unchanged.
    let once = || unsafe { real::mremap(addr, old, new, flags, new_addr) };
    if !static_tls::exists() {
        return once();
    }
    let is_shortage = || errno::get() == libc::ENOMEM && fitting::can_be_mapped(new);
    let forward = || match once() {
        libc::MAP_FAILED if is_shortage() && released::give_way() => once(),
        found => found,
    };
    let call = Call::new(addr as usize, old, new, flags, new_addr as usize);
    let replaces = call.has(libc::MREMAP_FIXED) && mapping_list::may_have(call.to, call.new);
    if !call.is_valid() || !(replaces || mapping_list::may_have(call.from, call.old)) {
        return forward();
    }
    // What the call changes is not left half done by a signal handler, either.
    let _held = HeldSignals::hold();
    if call.has(libc::MREMAP_FIXED) {
        forget_range(call.to, call.new);
    }
    if call.new < call.old {
        forget_range(call.from + call.new, call.old - call.new);
    }
    // What remains of the old range; nothing when a shared mapping is duplicated (old = 0).
    let kept = call.old.min(call.new);
    if kept == 0 {
        return forward();
    }
    let (pieces, before) = (set_aside(call.from, kept), errno::get());
    let mut found = forward();
    // A program that confined itself may be killed for reading a file.
    let divided = found == libc::MAP_FAILED && errno::get() == libc::EFAULT && !pieces.is_empty();
    if divided && !sandbox::entered() {
        // SAFETY: C's contract: the program wants this range moved. The kernel has unmapped the end of a range that
        // becomes smaller.
        match unsafe { move_areas(Call { old: kept, ..call }) } {
            Ok(moved) => {
                found = moved as Ptr;
                errno::set(before);
            }
            Err(error) => errno::set(error),
        }
    }
    if found == libc::MAP_FAILED || call.has(libc::MREMAP_DONTUNMAP) {
        // MREMAP_DONTUNMAP leaves the old range mapped, with its policies.
        pieces.restore();
    } else {
        pieces.enter_moved(call.from, found as usize, kept, call.new);
    }
    found
}

/// Not inlined: what it takes of a stack would be taken by every call.
///
/// # Safety
/// As [`by_areas`].
#[cold]
#[inline(never)]
unsafe fn move_areas(call: Call) -> Result<usize, c_int> {
    // SAFETY: the caller's promise.
    own_stack::run(|| unsafe { by_areas(&call) }).unwrap_or(Err(libc::EFAULT))
}
