//! The version of the C library that the process runs with, which is not the one that this library was built with.

use core::ffi::{CStr, c_char};

/// Whether it is 2.`minor` or newer.
pub fn is_at_least(minor: u32) -> bool {
    unsafe extern "C" {
        fn gnu_get_libc_version() -> *const c_char;
    }
    // SAFETY: it has no preconditions, and gives a constant string.
    let text = unsafe { CStr::from_ptr(gnu_get_libc_version()) };
    text.to_str().is_ok_and(|text| version(text).is_some_and(|version| version >= [2, minor]))
}

fn version(text: &str) -> Option<[u32; 2]> {
    let mut numbers = text.split('.').map(|number| number.parse::<u32>().ok());
    Some([numbers.next()??, numbers.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(["2.36", "2.4.1", "2"].map(version), [Some([2, 36]), Some([2, 4]), None]);
        assert!([2, 36] >= [2, 35] && [2, 34] < [2, 35] && [3, 0] >= [2, 35]);
        assert!(is_at_least(17) && !is_at_least(1000));
    }
}
