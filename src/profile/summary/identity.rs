//! The names of call sites: the innermost frame of the user's own code, and how it is displayed.
//!
//! Frames of runtimes and of allocators stand between the user's line and `malloc`; [`wrapper`] recognises them by
//! module and function name.

use std::collections::HashMap;

use numamma_plan::callsite::function::without_parameters;
use numamma_plan::callsite::wrapper;

use crate::profile::records::{Frame, Location, Module, NO_MODULE};

/// The name of the user's function in a frame: the innermost location (inlined ones included) that is not
/// the runtime's. None when the whole frame is the runtime's.
fn user_location<'a>(
    frame: Frame,
    modules: &[Module],
    symbols: &'a HashMap<Frame, Vec<Location>>,
) -> Option<Option<&'a Location>> {
    let module = modules.get(frame.module as usize);
    if frame.module != NO_MODULE && module.is_some_and(|m| wrapper::is_library_module(base_name(&m.path).as_bytes())) {
        return None;
    }
    let Some(locations) = symbols.get(&frame).filter(|l| !l.is_empty()) else { return Some(None) };
    let own = locations.iter().find(|l| l.function.as_deref().is_none_or(|f| wrapper::of_function(f).is_none()));
    own.map(Some)
}

/// Index of the innermost user frame of a stack; the innermost frame where all are the runtime's.
pub(super) fn user_frame(frames: &[Frame], modules: &[Module], symbols: &HashMap<Frame, Vec<Location>>) -> usize {
    frames.iter().position(|&f| user_location(f, modules, symbols).is_some()).unwrap_or(0)
}

/// `function file:line` of a frame, as far as it is known; `module+0x..` where nothing is.
pub(super) fn frame_name(frame: Frame, modules: &[Module], symbols: &HashMap<Frame, Vec<Location>>) -> String {
    let innermost = || symbols.get(&frame).and_then(|l| l.first());
    let location = user_location(frame, modules, symbols).flatten().or_else(innermost);
    let place = || frame_place(frame, modules);
    let Some(location) = location else { return place() };
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
fn short_function(function: &str) -> &str {
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
