//! The environment, read without an allocation.

use core::ffi::{CStr, c_char};

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Value of the variable `name`. To be called at start-up, before the program changes its environment.
pub fn value(name: &str) -> Option<&'static [u8]> {
    // SAFETY: null or a list of C strings that ends with null; no other code changes it at start-up.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            let rest = CStr::from_ptr(*at).to_bytes().strip_prefix(name.as_bytes());
            if let Some(value) = rest.and_then(|rest| rest.strip_prefix(b"=")) {
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let path = std::env::var_os("PATH").unwrap();
        assert_eq!(super::value("PATH"), Some(path.as_encoded_bytes()));
        assert_eq!((super::value("PAT"), super::value("PATHX")), (None, None));
    }
}
