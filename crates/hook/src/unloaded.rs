//! Forgets the unwinding rules of the modules that a dlclose unloads, and no others: to derive all rules again takes
//! microseconds for each call site.

use core::ffi::{c_int, c_void};

use crate::{errno, unwind};

/// The loaded modules.
#[derive(Default)]
struct Modules {
    /// Lowest and one past the highest address of each.
    ranges: Vec<(usize, usize)>,
    /// There was no memory for all of them.
    incomplete: bool,
    /// Modules that were ever loaded, and unloaded.
    counts: (u64, u64),
    /// Only the counts are wanted.
    counts_only: bool,
}

impl Modules {
    /// Takes the lock of the loader.
    fn now(counts_only: bool) -> Modules {
        let mut modules = Modules { counts_only, ..Modules::default() };
        // SAFETY: the callback follows dl_iterate_phdr's contract and `modules` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut modules).cast()) };
        modules
    }
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid info, and the data is the `Modules` of `now`.
    let (info, modules) = unsafe { (&*info, &mut *data.cast::<Modules>()) };
    modules.counts = (info.dlpi_adds, info.dlpi_subs);
    if modules.counts_only {
        return 1; // ends the walk
    }
    // SAFETY: the loader's table of program headers has dlpi_phnum entries.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let segments = headers.iter().filter(|h| h.p_type == libc::PT_LOAD).map(|h| {
        let start = (info.dlpi_addr as usize).wrapping_add(h.p_vaddr as usize);
        (start, start.wrapping_add(h.p_memsz as usize))
    });
    let range = segments.fold((usize::MAX, 0), |all, (start, end)| (all.0.min(start), all.1.max(end)));
    if modules.ranges.try_reserve(1).is_err() {
        modules.incomplete = true;
        return 1;
    }
    modules.ranges.push(range);
    0
}

/// Calls `close`, which may unload modules, and forgets their unwinding rules before their addresses can be used again
/// by a later call.
pub fn forget_after<R>(close: impl FnOnce() -> R) -> R {
    let before = {
        let _errno = errno::Saved::now();
        Modules::now(false)
    };
    let result = close();
    let _errno = errno::Saved::now();
    if Modules::now(true).counts.1 == before.counts.1 {
        return result;
    }
    let after = Modules::now(false);
    if before.incomplete || after.incomplete || after.counts.0 != before.counts.0 {
        // What another thread loaded meanwhile may be where an unloaded module was.
        unwind::invalidate();
        return result;
    }
    for (start, end) in before.ranges.iter().filter(|range| !after.ranges.contains(range)) {
        unwind::invalidate_range(*start, *end);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_are_listed_with_their_counts() {
        let here = visit as *const () as usize;
        let modules = Modules::now(false);
        assert!(modules.ranges.iter().any(|(start, end)| (*start..*end).contains(&here)) && !modules.incomplete);
        assert!(modules.counts.0 >= modules.ranges.len() as u64);
        assert!(Modules::now(true).ranges.is_empty() && Modules::now(true).counts.0 > 0);
        assert_eq!(forget_after(|| 5), 5);
    }
}
