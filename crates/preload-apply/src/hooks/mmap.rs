//! mmap, munmap and mremap: mappings from a matched call site are placed if their kind of memory takes a policy.
//!
//! The program may unmap, replace or move parts of a placed mapping at any time; the list of placed mappings follows.

use core::ffi::{c_int, c_void};

use numamma_hook::entry::{Caller, MmapArguments};
use numamma_hook::{errno, real};
use numamma_kernel::sys::PAGE;

use super::contained;
use crate::matching::{call_sites, unmatched};
use crate::objects::backing::{Backing, Kind};
use crate::objects::mapping_list::{self, Piece};
use crate::objects::mappings::{self, forget_range};
use crate::objects::object::Object;
use crate::rules::counters::add;
use crate::rules::state;

type Ptr = *mut c_void;

numamma_hook::mmap_entries!(place_mmap);

/// mmap(2) and mmap64.
///
/// # Safety
/// C's contract; `caller` comes from the entry stub.
unsafe fn place_mmap(arguments: &MmapArguments, caller: &Caller) -> Ptr {
    let MmapArguments { addr, len, prot, flags, fd, .. } = *arguments;
    if flags & libc::MAP_FIXED != 0 && len > 0 && !mapping_list::is_empty() {
        // The range is forgotten before the call, because afterwards it belongs to the new mapping.
        forget_range(addr as usize, len);
    }
    // SAFETY: forwarded unchanged.
    let found = unsafe { arguments.forward() };
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

/// munmap(2).
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: Ptr, len: usize) -> c_int {
    if !mapping_list::is_empty() && len > 0 && (addr as usize).is_multiple_of(PAGE) {
        forget_range(addr as usize, len);
    }
    // SAFETY: forwarded unchanged.
    unsafe { real::munmap(addr, len) }
}

/// mremap(2); variadic in C, which passes integers the same way.
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(addr: Ptr, old: usize, new: usize, flags: c_int, new_addr: Ptr) -> Ptr {
    // SAFETY: forwarded unchanged.
    let forward = || unsafe { real::mremap(addr, old, new, flags, new_addr) };
    if mapping_list::is_empty() {
        return forward();
    }
    let whole = mapping_list::piece_at(addr as usize).filter(|m| m.len() == old.next_multiple_of(PAGE) && old > 0);
    let Some(m) = whole else {
        if new < old {
            forget_range((addr as usize).saturating_add(new.next_multiple_of(PAGE)), old - new);
        }
        return forward();
    };
    if new.next_multiple_of(PAGE) <= m.len() && flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) == 0 {
        forget_range(addr as usize + new.next_multiple_of(PAGE), m.len() - new.next_multiple_of(PAGE));
        return forward();
    }
    if m.object.backing.kind != Kind::Private
        || flags & libc::MREMAP_MAYMOVE == 0
        || flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0
    {
        // Only the kernel can do this; the moved object is no longer tracked.
        forget_range(addr as usize, old);
        return forward();
    }
    // SAFETY: the object is a live private anonymous mapping of `old` bytes that the program wants moved.
    unsafe { grow(&m, old, new) }.unwrap_or_else(|| {
        forget_range(addr as usize, old);
        forward()
    })
}

/// Moves a placed mapping by copying: the kernel refuses to grow a range of several mappings (EFAULT), and only the
/// placement made it several. If the memory is not readable and writable, the kernel decides.
///
/// # Safety
/// `m` is a live private anonymous mapping of `old` bytes.
unsafe fn grow(m: &Piece, old: usize, new: usize) -> Option<Ptr> {
    let state = state::get()?;
    if m.object.plan(state)?.run_count() <= 1 {
        return None; // one mapping: the kernel can move it
    }
    // SAFETY: a new anonymous mapping; the check below keeps the copy inside readable memory.
    unsafe {
        let found = real::mmap(
            core::ptr::null_mut(),
            new,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if found == libc::MAP_FAILED {
            return None;
        }
        let len = new.next_multiple_of(PAGE);
        let placing = state.rules.get(m.object.rule).map_or(0, |r| r.current_index());
        let (base, pages) = (found as usize, (len / PAGE) as u64);
        let fresh = Object { base, size: len, pages, block: 0, placing, waiting: false, ..m.object };
        let placed = mappings::place_whole(state, fresh);
        if !copy_by_kernel(m.start(), found as usize, old) {
            forget_range(found as usize, len);
            real::munmap(found, len);
            return None;
        }
        if let Some(rule) = state.rules.get(m.object.rule).filter(|_| !placed) {
            add(&rule.counters.unplaced, 1);
        }
        forget_range(m.start(), m.len());
        real::munmap(m.start() as Ptr, m.len());
        Some(found)
    }
}

/// Copies with process_vm_readv, which fails on unreadable memory where memcpy would end the program with SIGSEGV.
unsafe fn copy_by_kernel(from: usize, to: usize, len: usize) -> bool {
    let mut done = 0;
    while done < len {
        let local = libc::iovec { iov_base: (to + done) as Ptr, iov_len: len - done };
        let remote = libc::iovec { iov_base: (from + done) as Ptr, iov_len: len - done };
        // SAFETY: `to` is writable for `len`; the kernel checks `from`.
        let rc = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(rc) {
            Ok(n) if n > 0 => done += n,
            _ => return false,
        }
    }
    true
}
