//! What a call site is to the user: the innermost frame of the user's own code, and how things are called.
//!
//! Frames of the C, C++, Fortran, OpenMP and Rust runtimes and of allocators stand between the user's line
//! and `malloc`; they are recognised by module name and, where the runtime is linked in, by function name.

use std::collections::HashMap;
use std::path::Path;

use crate::profile::model::{Frame, Location, Module, NO_MODULE};

/// Libraries whose frames are never the user's, by the start of the file name.
const RUNTIME_MODULES: &[&str] = &[
    "libc.so",
    "libc-2.",
    "ld-linux",
    "ld-2.",
    "ld.so",
    "libm.so",
    "libmvec.so",
    "libpthread",
    "libdl.so",
    "librt.so",
    "libgcc_s.so",
    "libstdc++.so",
    "libc++.so",
    "libc++abi.so",
    "libgfortran.so",
    "libquadmath.so",
    "libgomp.so",
    "libomp.so",
    "libiomp5.so",
    "libatomic.so",
    "libtsan.so",
    "libasan.so",
    "libnumamma",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "linux-vdso",
];

/// Name spaces of the C++ and Rust standard libraries, compiled into the user's program.
const RUNTIME_SPACES: &[&str] =
    &["std::", "__gnu_cxx::", "__cxxabiv1::", "core::", "alloc::", "hashbrown::", "__rustc::"];

/// Functions of allocators and runtimes linked into the program.
const RUNTIME_FUNCTIONS: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "mmap",
    "mmap64",
    "mremap",
    "__rust_alloc",
    "__rust_alloc_zeroed",
    "__rust_realloc",
    "exchange_malloc",
];

/// Starts of function names with the same meaning.
const RUNTIME_PREFIXES: &[&str] =
    &["operator new", "_Znw", "_Zna", "__rdl_", "__rg_", "__rust_", "__libc_", "_gfortran_", "GOMP_"];

/// Ends of function names, whatever their case, that programs and libraries give their wrappers around the allocator:
/// xmalloc, sb_memalign, PyMem_RawMalloc, av_realloc. Objects of all kinds come through them, so they say nothing about
/// one. Not plain `alloc`: a function called `grid_alloc` is the user's own word for an object.
const WRAPPER_ENDINGS: &[&str] = &["malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc"];

fn wrapper(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    WRAPPER_ENDINGS.iter().any(|end| name.ends_with(end))
}

/// Whether a module is part of a runtime, by its file name.
fn runtime_module(path: &str) -> bool {
    let name = Path::new(path).file_name().and_then(|n| n.to_str()).unwrap_or(path);
    RUNTIME_MODULES.iter().any(|m| name.starts_with(m))
}

/// Whether a demangled function belongs to a runtime.
fn runtime_function(function: &str) -> bool {
    let name = qualified_name(function);
    RUNTIME_FUNCTIONS.contains(&name)
        || RUNTIME_PREFIXES.iter().any(|p| name.starts_with(p))
        || in_runtime_space(name)
        || wrapper(name)
}

/// `std::vector<..>::f`, and Rust's `<alloc::vec::Vec<T>>::f` and `<T as alloc::..::SpecFromElem>::f`.
fn in_runtime_space(name: &str) -> bool {
    let in_space = |n: &str| RUNTIME_SPACES.iter().any(|s| n.starts_with(s));
    let Some(inner) = name.strip_prefix('<') else { return in_space(name) };
    if in_space(inner) {
        return true;
    }
    // A trait of the standard library on a builtin or generic type; on a user's type it is the user's code.
    inner.split_once(" as ").is_some_and(|(own, of)| !own.contains("::") && in_space(of))
}

/// The name of a demangled C++ or Rust function without return type and parameters.
fn qualified_name(function: &str) -> &str {
    if function.starts_with("operator ") || function.starts_with('<') {
        return function;
    }
    let (mut depth, mut start) = (0u32, 0);
    for (i, c) in function.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 => return &function[start..i],
            // A return type ends here; what follows `operator` is part of the name.
            ' ' if depth == 0 && !function[start..i].ends_with("operator") => start = i + 1,
            _ => {}
        }
    }
    &function[start..]
}

/// The name of the user's function in a frame: the innermost location (inlined ones included) that is not
/// the runtime's. None when the whole frame is the runtime's.
fn user_location<'a>(
    frame: Frame,
    modules: &[Module],
    symbols: &'a HashMap<Frame, Vec<Location>>,
) -> Option<Option<&'a Location>> {
    let module = modules.get(frame.module as usize);
    if frame.module != NO_MODULE && module.is_some_and(|m| runtime_module(&m.path)) {
        return None;
    }
    let Some(locations) = symbols.get(&frame).filter(|l| !l.is_empty()) else { return Some(None) };
    let own = locations.iter().find(|l| l.function.as_deref().is_none_or(|f| !runtime_function(f)));
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
    let name = qualified_name(function);
    match name.rsplit_once("::h") {
        Some((head, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => head,
        _ => name,
    }
}

/// Last component of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A linkage name as its author wrote it: C++, Rust and gfortran module variables (`__mod_MOD_var`).
pub fn demangle(linkage: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(linkage) {
        return format!("{rust:#}");
    }
    if linkage.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(linkage)
        && let Ok(text) = symbol.demangle()
    {
        return text;
    }
    if let Some((module, name)) = linkage.strip_prefix("__").and_then(|l| l.split_once("_MOD_"))
        && !module.is_empty()
        && !name.is_empty()
    {
        return format!("{module}::{name}");
    }
    linkage.to_owned()
}
