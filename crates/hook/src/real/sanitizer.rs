//! Runtimes of the sanitizers (AddressSanitizer, HWASan, LeakSanitizer, MemorySanitizer, ThreadSanitizer). Such a
//! runtime has a heap of its own and keeps a record of every block: pointers in memory that it does not know look like
//! leaks, and an address that it does not see released and allocated again looks like a race.
//!
//! A runtime is a library, or part of the program, where clang exports its functions. gcc's static runtimes export the
//! malloc family alone, which then comes before this library in the order of search: no call arrives here.

use core::ops::ControlFlow;
use std::string::String;

use crate::loaded_file;

/// A function of `sanitizer/allocator_interface.h`, which every runtime with a heap of its own exports. That of
/// UndefinedBehaviorSanitizer has neither.
const OWNERSHIP: &core::ffi::CStr = c"__sanitizer_get_ownership";

/// Name of the file that has a sanitizer's heap; `None` when no file that the program was started with has one.
pub fn find() -> Option<String> {
    let mut found = None;
    loaded_file::each(|file| {
        if file.defines(OWNERSHIP) {
            found = Some(String::from_utf8_lossy(file.file_name()).into_owned());
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_program_has_none() {
        assert_eq!(super::find(), None);
    }
}
