//! A profile folded for reading: one entry per global, call site, mapping or stack, with its counters per
//! page, thread and time slot. Memory is bounded by objects and pages touched, not by samples.
//!
//! [`Summary::load`] reads tables (threads, objects, names) and the extent of the run first, then the accesses: again
//! from the file, unless they are few enough to be kept in memory. Unusable parts (a damaged end, ids that are in no
//! table) are reported in [`Summary::notes`]; a file without a header is refused.

use std::collections::HashMap;
use std::path::Path;

use super::file::{Ahead, FileError, Reader};
use super::records::{CallSite, Frame, Location};

mod by_number;
mod by_others;
mod chains;
mod code_parts;
mod code_shares;
mod distinct;
mod divided;
mod entries;
mod extrapolate;
mod first_touches;
mod fold;
mod identity;
mod page_entries;
mod parts;
mod reuse;
mod selection;
mod shared_lines;
mod shared_pages;
mod size_classes;
mod spinning;
mod stacks;
mod stays;
mod tables;
mod tally;
#[cfg(test)]
pub(crate) mod tests;
mod turnover;
mod types;
mod unresolved;
mod uses;
mod wrappers;

pub use by_others::ByOthers;
pub(crate) use code_parts::{MAX_PARTS, of_part as ordered_code};
pub(crate) use divided::rank;
pub use identity::{base_name, demangle};
pub use selection::Selection;
pub(crate) use spinning::SpinTally;
pub use spinning::{SpinCell, Spinning};
pub use stacks::{CallStacks, How, LostTable, NameTables, Step, outermost};
pub use stays::Stay;
pub use turnover::{Turnover, duration};
pub use types::*;
pub(crate) use unresolved::note as unresolved_note;

/// The function that an instruction is in, as parts by code name it.
pub(crate) fn function_of(symbols: &HashMap<Frame, Vec<Location>>, frame: Frame) -> Option<&str> {
    let function = outermost(symbols.get(&frame)?)?.function.as_deref()?;
    Some(identity::short_function(function))
}

/// What reading a profile may use.
struct Means {
    read: fn(Reader) -> Ahead,
    /// Bytes of the accesses that are kept for the second pass; where they are more, the file is read twice.
    held: usize,
    cores: usize,
}

impl Means {
    /// For a profile that is read alone.
    fn alone() -> Means {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Means { read: Ahead::of, held: uses::HELD_ALONE, cores }
    }

    /// For one of several that are read at a time.
    fn beside_others() -> Means {
        Means { read: Ahead::here, held: uses::HELD_BESIDE_OTHERS, cores: 1 }
    }
}

impl Summary {
    /// Reads and folds a profile. A damaged or cut-off file is read up to the damage, with a note.
    ///
    /// # Errors
    /// [`FileError`] when the file cannot be read, is no profile, has another version or holds no header.
    pub fn load(path: &Path) -> Result<Summary, FileError> {
        Summary::load_by(path, &Means::alone())
    }

    /// The same on one core, where others read other profiles.
    pub(crate) fn load_beside_others(path: &Path) -> Result<Summary, FileError> {
        Summary::load_by(path, &Means::beside_others())
    }

    fn load_by(path: &Path, means: &Means) -> Result<Summary, FileError> {
        let reader = Reader::open(path)?;
        let bytes = reader.file_len;
        let mut tables = tables::Tables::read(path, (means.read)(reader), bytes, uses::Held::new(means.held))?;
        let layout = entries::Layout::build(&mut tables);
        fold::fold(path, tables, layout, means)
    }

    /// What names of call sites are made from.
    pub fn names(&self) -> NameTables<'_> {
        NameTables { modules: &self.modules, symbols: &self.symbols, stacks: &self.stacks }
    }

    /// `function file:line` of a frame as far as known, `module+0x..` otherwise.
    pub fn frame_name(&self, frame: Frame) -> String {
        identity::frame_name(frame, &self.names())
    }

    /// The same of one function of a call stack.
    pub fn step_name(&self, step: &Step<'_>) -> String {
        identity::step_name(step, &self.names())
    }

    /// `module+0x..`: the form of a call site in a policy.
    pub fn frame_place(&self, frame: Frame) -> String {
        identity::frame_place(frame, &self.modules)
    }

    /// All functions of a call stack, innermost first, and the index of the one that names the object.
    pub fn steps(&self, site: &CallSite) -> (Vec<Step<'_>>, usize) {
        let steps = self.names().steps(&site.frames);
        let naming = self.names().naming_step(&steps);
        (steps, naming)
    }

    /// Index of the frame of the function that names the object of a stack.
    pub fn user_frame(&self, site: &CallSite) -> usize {
        let (steps, naming) = self.steps(site);
        steps.get(naming).map_or(0, |step| step.index)
    }

    /// The innermost frame of the user's own code in a stack; none when the stack holds only runtimes.
    pub fn user_frame_of(&self, frames: &[Frame]) -> Option<Frame> {
        frames.iter().copied().find(|frame| !self.is_of_runtime(*frame))
    }

    /// Whether a place in code belongs to a runtime or standard library, as a whole.
    pub fn is_of_runtime(&self, frame: Frame) -> bool {
        self.names().steps(&[frame]).iter().all(|step| self.names().is_known_wrapper(step))
    }
}
