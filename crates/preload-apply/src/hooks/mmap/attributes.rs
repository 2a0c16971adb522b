//! Calls that change attributes of the program's memory: access rights, advice, locks.
//!
//! They are forwarded. A placed heap object in their range is unmapped when it is freed, instead of being kept for the
//! next one, see [`released::changing`]. The functions read no more than atomic variables: a program may call them in a
//! signal handler, and a library that protects pages does so often.
//!
//! mbind is not among them, which only libnuma defines: programs with weak references to libnuma take a definition as a
//! sign that it is there. remap_file_pages is not among them: it takes shared mappings only, and one in place of a heap
//! object came by mmap.

use core::ffi::c_int;

use numamma_hook::errno;
use numamma_hook::real::range_calls as next;

use crate::objects::released;

/// Advice that says something about the contents of pages, and nothing that holds for later contents: MADV_WILLNEED,
/// MADV_DONTNEED, MADV_FREE, MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE and
/// MADV_DONTNEED_LOCKED. Allocators give it often.
const OF_CONTENTS: [c_int; 8] = [3, 4, 8, 20, 21, 22, 23, 24];
/// POSIX_MADV_WILLNEED and POSIX_MADV_DONTNEED.
const POSIX_OF_CONTENTS: [c_int; 2] = [3, 4];

/// Defines exported functions that forward their registers, whatever is in them: `$before(a, b, c)` runs first, and
/// `$forward` calls the real function.
macro_rules! exported {
    ($($(#[$doc:meta])* $name:ident => $before:expr, $forward:path;)*) => {
        $(
            numamma_hook::deferred_entry! {
                $(#[$doc])*
                fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize => of::$name;
            }
        )*

        mod of {
            use super::*;
            $(
                pub unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize {
                    $before(a, b, c);
                    // SAFETY: forwarded unchanged.
                    unsafe { $forward([a, b, c, d, e, f]) }
                }
            )*
        }
    };
}

exported! {
    /// mprotect(2).
    mprotect => range, next::mprotect;
    /// pkey_mprotect(2).
    pkey_mprotect => range, next::pkey_mprotect;
    /// madvise(2).
    madvise => advised, next::madvise;
    /// posix_madvise(3).
    posix_madvise => posix_advised, next::posix_madvise;
    /// mlock(2).
    mlock => range, lock;
    /// mlock2(2).
    mlock2 => range, lock2;
    /// munlock(2): after mlockall(2) new memory is locked.
    munlock => range, next::munlock;
    /// mlockall(2).
    mlockall => |_, _, _| (), lock_all;
}

fn range(address: usize, len: usize, _: usize) {
    released::changing(address, len);
}

fn advised(address: usize, len: usize, advice: usize) {
    if !OF_CONTENTS.contains(&(advice as c_int)) {
        released::changing(address, len);
    }
}

fn posix_advised(address: usize, len: usize, advice: usize) {
    if !POSIX_OF_CONTENTS.contains(&(advice as c_int)) {
        released::changing(address, len);
    }
}

/// What `call` returns; if the process may not lock that much while freed memory is kept, which may be locked, what it
/// returns once that has been given back.
fn or_give_way(call: impl Fn() -> usize) -> usize {
    match call() {
        found if found as c_int == -1 && matches!(errno::get(), libc::ENOMEM | libc::EAGAIN) => {
            if released::give_way() { call() } else { found }
        }
        found => found,
    }
}

unsafe fn lock(registers: next::Registers) -> usize {
    // SAFETY: forwarded unchanged.
    or_give_way(|| unsafe { next::mlock(registers) })
}

unsafe fn lock2(registers: next::Registers) -> usize {
    // SAFETY: forwarded unchanged.
    or_give_way(|| unsafe { next::mlock2(registers) })
}

/// Kept memory is given back before, as it would be locked, and after, as it may not be locked while new memory is.
unsafe fn lock_all(registers: next::Registers) -> usize {
    released::give_way();
    // SAFETY: forwarded unchanged.
    let found = unsafe { next::mlockall(registers) };
    released::changing(0, usize::MAX);
    released::give_way();
    found
}
