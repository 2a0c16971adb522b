//! Relative file names in the environment, made absolute for the processes that inherit it.
//!
//! A program that is started with `NUMAMMA_POLICY=policy.toml` and changes its directory gives its children a name that
//! leads nowhere: they would run unplaced, or with NUMAMMA_STRICT not at all. The first process with the library
//! therefore replaces the values that the library reads, and the relative name of the library itself in LD_PRELOAD.
//! Only pointers in the array of the environment change, as putenv(3) would do; no other variable is touched, and none
//! at all without a policy that can be read. What the kernel shows as /proc/PID/environ stays.

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use core::ffi::c_char;

use numamma_plan::environment::{POLICY_ENV, REPORT_ENV};

const PRELOAD_ENV: &str = "LD_PRELOAD";

unsafe extern "C" {
    /// The environment of the process (environ(7)).
    static mut environ: *mut *mut c_char;
}

/// Makes the names absolute, if `policy` is relative or another of them may be. Called once, before `main`.
pub fn make_absolute(policy: &OsStr) {
    let Some(directory) = std::env::current_dir().ok().filter(|d| d.is_absolute()) else { return };
    if fs::metadata(policy).is_err() {
        return;
    }
    replace(POLICY_ENV, |name| joined(&directory, name));
    // The name is a pattern, in which a `%` of the directory would have a meaning.
    if !directory.as_os_str().as_bytes().contains(&b'%') {
        replace(REPORT_ENV, |name| joined(&directory, name));
    }
    if let Some(library) = own_name() {
        replace(PRELOAD_ENV, |list| with_absolute(list, library, &directory));
    }
}

/// `name` in `directory`; none for a name that is absolute or empty.
fn joined(directory: &Path, name: &[u8]) -> Option<Vec<u8>> {
    let name = Path::new(OsStr::from_bytes(name));
    let relative = name.is_relative() && !name.as_os_str().is_empty();
    relative.then(|| directory.join(name).into_os_string().as_bytes().to_vec())
}

/// The list of LD_PRELOAD with the entries `library` made absolute; none when there is none, or when the loader would
/// read the result in another way: it separates by spaces and colons and expands `$`.
fn with_absolute(list: &[u8], library: &[u8], directory: &Path) -> Option<Vec<u8>> {
    let absolute = joined(directory, library)?;
    if !library.contains(&b'/') || absolute.iter().any(|b| b" :$\t\n".contains(b)) {
        return None;
    }
    let mut out = Vec::with_capacity(list.len() + absolute.len());
    let mut found = false;
    for part in list.split_inclusive(|b| b" :".contains(b)) {
        let (entry, separator) = match part.split_last() {
            Some((last, entry)) if b" :".contains(last) => (entry, &part[entry.len()..]),
            _ => (part, &[][..]),
        };
        let own = entry == library;
        found |= own;
        out.extend_from_slice(if own { &absolute } else { entry });
        out.extend_from_slice(separator);
    }
    found.then_some(out)
}

/// The name that the loader was given for this library.
fn own_name() -> Option<&'static [u8]> {
    // SAFETY: all zeroes is a value of the structure.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: the address is one of this library, and the structure is writable.
    let known = unsafe { libc::dladdr(own_name as *const () as *const _, &raw mut info) } != 0;
    // SAFETY: the loader keeps the name as long as the library is loaded, and this library is never unloaded while its
    // code runs.
    (known && !info.dli_fname.is_null()).then(|| unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes())
}

/// Replaces the value of the variable `name` by what `change` returns.
fn replace(name: &str, change: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    // SAFETY: before `main` the environment is the array that the kernel made, or one that a constructor put in its
    // place; it ends in a null pointer, and its strings in NUL.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            let value = text.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            if let Some(new) = value.and_then(&change) {
                let text = [name.as_bytes(), b"=", &new].concat();
                if let Ok(text) = CString::new(text) {
                    // Never freed: the program may hold the pointer.
                    *entry = text.into_raw();
                }
            }
            entry = entry.add(1);
        }
    }
}

/// `path` in the directory of now, so that the program can change it.
pub fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_relative_entry_of_the_list_changes() {
        let change = |list: &str, library: &str, directory: &str| {
            let new = with_absolute(list.as_bytes(), library.as_bytes(), Path::new(directory))?;
            Some(String::from_utf8(new).unwrap())
        };
        assert_eq!(change("./a.so", "./a.so", "/d").as_deref(), Some("/d/./a.so"));
        assert_eq!(change("x/b.so:./a.so /c.so", "./a.so", "/d").as_deref(), Some("x/b.so:/d/./a.so /c.so"));
        for (list, library, directory) in
            [("/a.so", "/a.so", "/d"), ("a.so", "a.so", "/d"), ("./a.so", "./a.so", "/d e"), ("./b.so", "./a.so", "/d")]
        {
            assert_eq!(change(list, library, directory), None, "{list}");
        }
        assert_eq!(joined(Path::new("/d"), b"p.toml").as_deref(), Some(&b"/d/p.toml"[..]));
        assert_eq!((joined(Path::new("/d"), b"/p"), joined(Path::new("/d"), b"")), (None, None));
    }
}
