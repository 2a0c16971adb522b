//! Linkage names as their author wrote them: C++, Rust (v0 and legacy) and gfortran's module procedures and variables.
//!
//! The names come from files of strangers, and the preload demangles them inside a stranger's process: length,
//! recursion and output are limited, and a name beyond a limit stays as it is.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

/// Longest linkage name that is demangled, bytes. The longest ones of LLVM and Boost have about 4,000.
pub(super) const MAX_LINKAGE: usize = 8 << 10;
/// Digits of the length of an identifier in a name of [`MAX_LINKAGE`].
const MAX_DIGITS: usize = 4;
/// Longest demangled name, bytes: substitutions let a short linkage name stand for an exponentially long one.
const MAX_NAME: usize = 64 << 10;
/// Most pieces a C++ name is written in: empty pieces are not bounded by [`MAX_NAME`].
const MAX_PIECES: usize = 1 << 16;
/// Nesting of C++ names, in levels of cpp_demangle: its own default for parsing, which all of libstdc++ and LLVM fit.
const MAX_DEPTH: u32 = 96;

/// Text that refuses to grow beyond [`MAX_NAME`].
#[derive(Default)]
struct Bounded {
    text: String,
    pieces: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.pieces += 1;
        if self.text.len().saturating_add(piece.len()) > MAX_NAME || self.pieces > MAX_PIECES {
            return Err(fmt::Error);
        }
        self.text.push_str(piece);
        Ok(())
    }
}

/// A linkage name demangled: C++ with parameters and without the return type, Rust without its hash, Fortran as
/// `module::name`. Other names, and those beyond the limits of this module, are returned as they are.
pub fn demangle(linkage: &str) -> Cow<'_, str> {
    if linkage.len() > MAX_LINKAGE {
        return Cow::Borrowed(linkage);
    }
    rust(linkage).or_else(|| cpp(linkage)).or_else(|| fortran(linkage)).map_or(Cow::Borrowed(linkage), Cow::Owned)
}

/// A function's linkage name demangled, without the suffix of a clone (`.constprop.0`, `.part.1`, `.cold`, `.isra.0`)
/// and of gfortran's internal procedures (`inner.0`).
pub fn function_name(linkage: &str) -> Cow<'_, str> {
    demangle(without_suffix(linkage))
}

/// A linkage name without what the compiler added behind its first dot.
pub fn without_suffix(linkage: &str) -> &str {
    // Legacy Rust names have dots of their own, before the hash that ends them.
    if let Some(end) = legacy_hash_end(linkage) {
        return &linkage[..end];
    }
    match linkage.find('.') {
        Some(dot) if dot > 0 => &linkage[..dot],
        _ => linkage,
    }
}

/// End of `17h<16 hexadecimal digits>E` in a Rust legacy name.
fn legacy_hash_end(linkage: &str) -> Option<usize> {
    let start = linkage.starts_with("_ZN").then(|| linkage.rfind("17h"))?? + 3;
    let hash = linkage.get(start..start + 17)?;
    (hash.ends_with('E') && is_hash(&hash[..16])).then_some(start + 17)
}

/// Whether `text` is the hash of a Rust legacy name, without its `h`.
pub(super) fn is_hash(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether `wanted` holds for the start and length of any identifier that a mangled name may spell out, as
/// `<length><identifier>`. The digits before a length may belong to something else, `3foo13bar`, so each end of a
/// number is tried.
pub(super) fn any_identifier(mangled: &[u8], mut wanted: impl FnMut(usize, usize) -> bool) -> bool {
    let mut digits = 0_usize;
    mangled.iter().enumerate().any(|(at, &byte)| {
        let number = if byte.is_ascii_digit() { 0 } else { digits };
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        let (mut length, mut place) = (0, 1);
        (1..=number.min(MAX_DIGITS)).any(|back| {
            length += usize::from(mangled[at - back] - b'0') * place;
            place *= 10;
            length > 0 && wanted(at, length)
        })
    })
}

/// Whether a linkage name is of Rust's legacy mangling, which shares its beginning with C++.
pub(super) fn is_legacy_rust(linkage: &str) -> bool {
    legacy_hash_end(linkage).is_some()
}

fn rust(linkage: &str) -> Option<String> {
    if !linkage.starts_with("_R") && !is_legacy_rust(linkage) {
        return None;
    }
    let name = rustc_demangle::try_demangle(linkage).ok()?;
    let mut out = Bounded::default();
    write!(out, "{name:#}").ok()?;
    Some(out.text)
}

fn cpp(linkage: &str) -> Option<String> {
    if !linkage.starts_with("_Z") {
        return None;
    }
    let limit = ParseOptions::default().recursion_limit(MAX_DEPTH);
    let (symbol, rest) = BorrowedSymbol::with_tail_and_options(linkage.as_bytes(), &limit).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let options = DemangleOptions::new().no_return_type().recursion_limit(MAX_DEPTH);
    let mut out = Bounded::default();
    symbol.structured_demangle(&mut out, &options).ok()?;
    Some(out.text)
}

fn fortran(linkage: &str) -> Option<String> {
    let (module, name) = linkage.strip_prefix("__")?.split_once("_MOD_")?;
    (!module.is_empty() && !name.is_empty()).then(|| format!("{module}::{name}"))
}
