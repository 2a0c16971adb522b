//! Programs that use an allocator's own interface: functions beside those of C, such as `sallocx` of jemalloc or
//! `mi_usable_size`. They know the blocks of their allocator alone, not memory that a hook returned in its place.
//!
//! No list of names: such a function is one that an allocator behind this library defines and no other loaded file
//! does, neither the C library nor a C++ runtime nor this library, and that a file which is no allocator uses. Whether
//! the function takes a block cannot be seen. A program that only asks for the allocator's version counts as well.
//!
//! A function that is looked up by name (dlsym) is not seen.

use core::ffi::CStr;
use core::ops::ControlFlow;
use std::string::String;

use super::behind;
use crate::loaded_file::{self, LoadedFile};

/// A use of an allocator's own interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Name of the file that uses the function.
    pub by: String,
    /// Name of the function.
    pub function: String,
    /// Name of the allocator's file.
    pub allocator: String,
}

/// Mangled names of `operator new` and `operator delete`, which an allocator may define where no C++ runtime is loaded.
const OPERATORS: [&[u8]; 4] = [b"_Znw", b"_Zna", b"_Zdl", b"_Zda"];

/// Whether there is an allocator beside the C library's, so that [`find`] has to look at files and take the lock of the
/// loader.
pub fn is_possible() -> bool {
    behind::allocators().len() > 1
}

/// The first use of an allocator's own interface by one of the loaded files that `is_asked` for, by their start.
/// Nothing is looked at when the C library's allocator is the only one.
pub fn find(is_asked: impl Fn(usize) -> bool) -> Option<Use> {
    let (libc, others) = behind::allocators().split_last()?;
    if others.is_empty() {
        return None;
    }
    let mut found = None;
    loaded_file::each(|file| {
        let start = file.start();
        let is_allocator = others.iter().chain([libc]).any(|allocator| allocator.start() == start);
        if !is_allocator && start != behind::own_start() && is_asked(start) {
            file.uses(|name| {
                let definer = others.iter().find(|allocator| allocator.defines(name));
                match definer.filter(|allocator| is_its_own(allocator, libc, name)) {
                    Some(allocator) => {
                        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                        let [by, function, allocator] =
                            [file.file_name(), name.to_bytes(), allocator.file_name()].map(text);
                        found = Some(Use { by, function, allocator });
                        ControlFlow::Break(())
                    }
                    None => ControlFlow::Continue(()),
                }
            });
        }
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

/// Whether `allocator` alone defines the function `name`.
fn is_its_own(allocator: &LoadedFile, libc: &LoadedFile, name: &CStr) -> bool {
    // First the C library, which has most of the names that come here.
    if libc.defines(name) || OPERATORS.iter().any(|operator| name.to_bytes().starts_with(operator)) {
        return false;
    }
    let mut alone = true;
    loaded_file::each(|file| {
        alone = file.start() == allocator.start() || !file.defines(name);
        if alone { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    alone
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_c_library_has_no_interface_of_its_own() {
        super::behind::find();
        assert_eq!(super::find(|_| true), None);
    }
}
