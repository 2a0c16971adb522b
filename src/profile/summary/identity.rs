//! The names of call sites: the innermost frame of the user's own code, and how it is displayed.
//!
//! Frames of runtimes and of allocators stand between the user's line and `malloc`; [`super::stacks`] recognises them.

use numamma_plan::callsite::function::without_parameters;
use numamma_plan::policy::Size;

use super::stacks::{NameTables, Step};
use crate::profile::records::{Frame, Module};

/// `function file:line` of a frame, as far as it is known; `module+0x..` where nothing is. Of inlined functions the
/// innermost one that is no runtime's.
pub(super) fn frame_name(frame: Frame, names: &NameTables<'_>) -> String {
    let steps = names.steps(&[frame]);
    match steps.iter().find(|s| !names.is_known_wrapper(s)).or(steps.first()) {
        Some(step) => step_name(step, names),
        None => frame_place(frame, names.modules),
    }
}

/// The same of one function of a stack.
pub(super) fn step_name(step: &Step<'_>, names: &NameTables<'_>) -> String {
    let place = || frame_place(step.frame, names.modules);
    let Some(location) = step.location else { return place() };
    let line = match (&location.file, location.line) {
        (Some(file), Some(line)) => Some(format!("{}:{line}", base_name(file))),
        (Some(file), None) => Some(base_name(file).to_owned()),
        _ => None,
    };
    match (&location.function, line) {
        (Some(f), Some(line)) => format!("{} {line}", short_function(f)),
        (Some(f), None) => format!("{} {}", short_function(f), place()),
        (None, Some(line)) => line,
        (None, None) => place(),
    }
}

/// `module+0x..`, or the bare address of code outside every ELF file.
pub(super) fn frame_place(frame: Frame, modules: &[Module]) -> String {
    match modules.get(frame.module as usize) {
        Some(m) => format!("{}+{:#x}", base_name(&m.path), frame.offset),
        None => format!("{:#x}", frame.offset),
    }
}

/// A function without its parameter list and Rust hash: what a person calls it.
pub(super) fn short_function(function: &str) -> &str {
    let name = without_parameters(function);
    match name.rsplit_once("::h") {
        Some((head, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => head,
        _ => name,
    }
}

/// Last component of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A linkage name as its author wrote it; see [`numamma_plan::callsite::demangle`].
pub fn demangle(linkage: &str) -> String {
    numamma_plan::callsite::demangle::demangle(linkage).into_owned()
}

/// Bytes with the largest unit of which they are a whole number, `40 MiB`; rounded to KiB where they are none.
pub(super) fn size_text(bytes: u64) -> String {
    let whole = if bytes.is_multiple_of(1024) { bytes } else { (bytes + 512) / 1024 * 1024 };
    let text = Size(whole).to_string();
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..]).trim_end().to_owned()
}
