//! Identity of a call site: frames as `module+0xvaddr`, innermost first.
//!
//! The module is a file name without directories, so that a policy survives a move of the program; the
//! address is the return address minus the module's load bias, so that it survives ASLR. Two builds of a
//! module have different addresses: the caller checks the build-id before it compares frames.

use std::fmt;
use std::str::FromStr;

use crate::unusable::Unusable;

/// One return address of a call stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frame {
    /// File name of the ELF module, without directories.
    pub module: String,
    /// Return address minus the load bias: the address in the ELF file's own terms.
    pub vaddr: u64,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", self.module, self.vaddr)
    }
}

/// What a frame is.
const FRAME: &str = "a call-site frame; write module+0xaddress, for example \"lu.C.x+0x1a2b\"";

impl FromStr for Frame {
    type Err = Unusable;

    fn from_str(text: &str) -> Result<Frame, Unusable> {
        let bad = || Unusable::form(text, FRAME);
        // From the right: module names may hold a plus (libstdc++.so.6).
        let (module, address) = text.trim().rsplit_once("+0x").ok_or_else(bad)?;
        let vaddr = u64::from_str_radix(address, 16).map_err(|_| bad())?;
        let module = file_name(module);
        if module.is_empty() {
            return Err(bad());
        }
        Ok(Frame { module: module.to_owned(), vaddr })
    }
}

/// The part after the last slash.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_may_hold_a_plus() {
        let f: Frame = "libstdc++.so.6+0xae9a".parse().unwrap();
        assert_eq!(f, Frame { module: "libstdc++.so.6".into(), vaddr: 0xae9a });
        assert_eq!(f.to_string(), "libstdc++.so.6+0xae9a");
    }

    #[test]
    fn directories_are_dropped() {
        assert_eq!("/opt/x/lu.C.x+0x10".parse::<Frame>().unwrap().module, "lu.C.x");
    }

    #[test]
    fn unreadable_frames_are_named() {
        for bad in ["main", "+0x10", "a+10", "a+0x", "a+0xzz", ""] {
            let e = bad.parse::<Frame>().unwrap_err().to_string();
            assert!(e.contains(&format!("`{bad}`")), "{e}");
        }
    }
}
