//! Forgets the unwinding rules of the module that a dlclose unloads, and no others if it is the only one: to derive all
//! rules again takes microseconds for each call site.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::{errno, fork_wiped, modules, unwind};

/// Modules that had been unloaded when the loader was last asked.
static UNLOADED: AtomicU64 = AtomicU64::new(0);

/// Modules that were ever unloaded. Takes the lock of the loader.
fn count() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid info; the data is the number of `count`.
        unsafe { *data.cast::<u64>() = (*info).dlpi_subs };
        1 // ends the walk
    }
    let mut count = 0_u64;
    // SAFETY: the callback follows dl_iterate_phdr's contract and the number outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}

/// Calls `close`, which closes `handle` and may unload modules, and forgets their unwinding rules before their
/// addresses can be used again by a later call.
///
/// The loader is asked only if it has unloaded a module, and so has held the lock itself; in a forked child never: a
/// thread of the parent may have held the lock.
///
/// # Safety
/// `handle` is one that dlclose accepts.
pub unsafe fn forget_after<R>(handle: *mut c_void, close: impl FnOnce() -> R) -> R {
    // SAFETY: the caller's promise.
    let dynamic = unsafe { modules::dynamic_section(handle) };
    let before = dynamic.and_then(modules::place_of);
    let result = close();
    if dynamic.is_some_and(modules::may_be_loaded) && dynamic.and_then(modules::place_of) == before {
        return result;
    }
    if fork_wiped::is_forked_child() {
        unwind::invalidate();
        return result;
    }
    let _errno = errno::Saved::now();
    let now = count();
    let counted = UNLOADED.swap(now, Ordering::AcqRel);
    match before {
        Some(place) if now == counted.wrapping_add(1) => unwind::invalidate_range(place.start, place.end),
        _ => unwind::invalidate(),
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_is_asked_only_if_it_has_unloaded_something() {
        // SAFETY: a library that is there; the handles are closed once.
        unsafe {
            let open = || libc::dlopen(c"libutil.so.1".as_ptr(), libc::RTLD_NOW);
            let (one, two) = (open(), open());
            assert!(!one.is_null() && one == two);
            let place = modules::place_of(modules::dynamic_section(one).unwrap());
            assert!(place.is_some() || !modules::asks_loader());
            UNLOADED.store(u64::MAX, Ordering::Relaxed);
            assert_eq!(forget_after(one, || libc::dlclose(one)), 0);
            assert_eq!(UNLOADED.load(Ordering::Relaxed), u64::MAX);
            assert_eq!(forget_after(two, || libc::dlclose(two)), 0);
            assert_eq!(UNLOADED.load(Ordering::Relaxed), count());
        }
    }
}
