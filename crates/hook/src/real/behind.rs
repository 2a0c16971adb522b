//! The allocators behind this library: the files that the loader searches after it, and that define `free`.
//!
//! The C library is always one of them. Another one is a preloaded or linked allocator (jemalloc), or a library that
//! wraps the one behind it.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::loaded_file::{self, LoadedFile};

/// Most of them that are known; programs have one or two.
pub const MOST: usize = 4;

static FOUND: AtomicPtr<Vec<LoadedFile>> = AtomicPtr::new(core::ptr::null_mut());
/// Start of the file that this code is in; 0 before [`find`].
static OWN: AtomicUsize = AtomicUsize::new(0);

/// The allocators behind this library in the order of search, the C library last. Empty before [`find`], and where the
/// C library's symbols cannot be read.
pub fn allocators() -> &'static [LoadedFile] {
    // SAFETY: null or a leaked vector, published with Release. The program was started with these files, so that they
    // are never unloaded.
    unsafe { FOUND.load(Ordering::Acquire).as_ref() }.map_or(&[], Vec::as_slice)
}

/// Where the next malloc is.
pub enum Provider {
    /// In the C library.
    Libc,
    /// In another file.
    Other(&'static LoadedFile),
    /// Not known, as before [`find`].
    Unknown,
}

/// Where the next malloc is.
pub fn provider() -> Provider {
    let Some(malloc) = super::symbol::malloc() else { return Provider::Unknown };
    let all = allocators();
    match all.iter().position(|file| file.contains(malloc as usize)) {
        Some(last) if last + 1 == all.len() => Provider::Libc,
        Some(index) => all.get(index).map_or(Provider::Unknown, Provider::Other),
        None => Provider::Unknown,
    }
}

/// Start of the file that this code is in.
pub fn own_start() -> usize {
    OWN.load(Ordering::Relaxed)
}

/// Looks for them; to be called once at start-up, where memory may be allocated.
pub fn find() {
    unsafe extern "C" {
        fn gnu_get_libc_version() -> *const core::ffi::c_char;
    }
    let is_libc = |file: &LoadedFile| file.contains(gnu_get_libc_version as *const () as usize);
    let (mut files, mut is_behind) = (Vec::with_capacity(MOST), false);
    loaded_file::each(|file| {
        if file.contains(find as *const () as usize) {
            is_behind = true;
            OWN.store(file.start(), Ordering::Relaxed);
        }
        // Old C libraries have a free in the loader, too, which serves the loader alone.
        let is_loader = || file.defines(c"__tls_get_addr");
        if !is_behind || file.start() == own_start() || !file.defines(c"free") || is_loader() {
            return ControlFlow::Continue(());
        }
        // The last place is the C library's, behind which no definition has an effect.
        if is_libc(&file) || files.len() < MOST - 1 {
            files.push(file);
        }
        if is_libc(&file) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if files.last().is_some_and(is_libc) {
        FOUND.store(Box::into_raw(Box::new(files)), Ordering::Release);
        super::of_libc::find();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_behind_this_program() {
        find();
        assert_eq!(allocators().iter().map(LoadedFile::file_name).collect::<Vec<_>>(), [b"libc.so.6"]);
        assert_ne!(own_start(), 0);
    }
}
