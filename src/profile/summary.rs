//! A profile folded for reading: one entry per global, call site, mapping or stack, with its counters per
//! page, thread and time slot. Memory is bounded by objects and pages touched, not by samples.
//!
//! [`Summary::load`] reads the file twice: tables (threads, objects, names) and the extent of the run first,
//! then the accesses, which are not kept in memory. Unusable parts (a damaged end, ids that are in no table) are
//! reported in [`Summary::notes`]; a file without a header is refused.

use std::path::Path;

use super::file::FileError;
use super::records::{CallSite, Frame};

mod entries;
mod fold;
mod identity;
mod reuse;
mod tables;
mod tally;
#[cfg(test)]
pub(crate) mod tests;
mod turnover;
mod types;

pub use identity::{base_name, demangle};
pub use turnover::Turnover;
pub use types::*;

impl Summary {
    /// Reads and folds a profile. A damaged or cut-off file is read up to the damage, with a note.
    ///
    /// # Errors
    /// [`FileError`] when the file cannot be read, is no profile, has another version or holds no header.
    pub fn load(path: &Path) -> Result<Summary, FileError> {
        let mut tables = tables::Tables::read(path)?;
        let layout = entries::Layout::build(&mut tables);
        fold::fold(path, tables, layout)
    }

    /// `function file:line` of a frame as far as known, `module+0x..` otherwise.
    pub fn frame_name(&self, frame: Frame) -> String {
        identity::frame_name(frame, &self.modules, &self.symbols)
    }

    /// `module+0x..`: the form of a call site in a policy.
    pub fn frame_place(&self, frame: Frame) -> String {
        identity::frame_place(frame, &self.modules)
    }

    /// Index of the innermost frame of the user's own code in a stack.
    pub fn user_frame(&self, site: &CallSite) -> usize {
        identity::user_frame(&site.frames, &self.modules, &self.symbols)
    }
}
