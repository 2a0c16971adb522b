//! Frames between the caller and the allocator: runtime libraries, standard libraries compiled into the program, and
//! functions that are named like an allocator (`xmalloc`). These frames do not identify an object, so matching skips
//! them.
//!
//! One list for naming objects, for `predict` and for the preload. The preload decides on the linkage names of whole
//! symbol tables ([`is_passed_linkage`]), where demangling every name would take too long; the tests hold that against
//! the decision on the demangled name ([`of_function`]).

use super::demangle::{MAX_LINKAGE, any_identifier, function_name, is_legacy_rust, without_suffix};
use super::function::without_parameters;

/// What kind of a wrapper a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrapper {
    /// Part of a runtime or standard library: which of its functions are on the stack depends on the compiler.
    Library,
    /// A function of the program that is named like an allocator.
    Named,
}

/// Libraries whose frames are never the user's, by the start of the file name.
const LIBRARY_MODULES: &[&str] = &[
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

/// Name spaces of the C++ standard library.
const CPP_SPACES: &[&str] = &["std", "__gnu_cxx", "__cxxabiv1"];
/// Crates of the Rust standard library.
const RUST_CRATES: &[&str] = &["std", "core", "alloc", "hashbrown", "__rustc"];

/// Functions of allocators and runtimes that may be linked into the program.
const LIBRARY_FUNCTIONS: &[&str] = &[
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
    "exchange_malloc",
];

/// Starts of function names with the same meaning.
const LIBRARY_PREFIXES: &[&str] = &["__rdl_", "__rg_", "__rust_", "__libc_", "_gfortran_", "GOMP_"];

/// Ends of function names, whatever their case, that programs and libraries give their wrappers around the allocator:
/// `xmalloc`, `sb_memalign`, `PyMem_RawMalloc`, `av_realloc`. Not plain `alloc`: `grid_alloc` names an object.
const NAMED_ENDINGS: &[&str] = &["malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc"];

/// Directories of the sources of compilers' libraries.
const LIBRARY_SOURCES: &[&str] =
    &["/usr/include/", "/usr/lib/", "/usr/lib64/", "/usr/bin/../lib", "/usr/local/include/", "/rustc/", "/rust/deps/"];
/// The same for Rust with its sources installed, anywhere in a path.
const RUST_SOURCES: &[u8] = b"/rustlib/src/";

/// Whether a module is part of a runtime, by its file name.
pub fn is_library_module(file_name: &[u8]) -> bool {
    LIBRARY_MODULES.iter().any(|start| file_name.starts_with(start.as_bytes()))
}

/// Whether a source file is of a compiler's library, by its path or directory.
pub fn is_library_source(path: &[u8]) -> bool {
    LIBRARY_SOURCES.iter().any(|start| path.starts_with(start.as_bytes()))
        || path.windows(RUST_SOURCES.len()).any(|part| part == RUST_SOURCES)
}

/// What a function is, by its demangled name.
pub fn of_function(function: &str) -> Option<Wrapper> {
    let name = without_parameters(function);
    // A demangled C++ function has parameters, Rust's and C's have none: a C++ program may have a name space `core`.
    of_plain(name, function.len() > name.len() && function.contains('('))
}

/// What a function is, by its demangled name without parameters.
pub fn of_plain(name: &str, is_cpp: bool) -> Option<Wrapper> {
    let library = LIBRARY_FUNCTIONS.contains(&name)
        || LIBRARY_PREFIXES.iter().any(|p| name.starts_with(p))
        || is_allocating_operator(name)
        || in_library_space(name, is_cpp);
    if library { Some(Wrapper::Library) } else { is_named_like_one(name).then_some(Wrapper::Named) }
}

/// What a function is, by its name in a rule: demangled or the linkage name.
pub fn of_written(function: &str) -> Option<Wrapper> {
    if function.starts_with('_') { of_function(&function_name(function)) } else { of_function(function) }
}

/// Whether [`of_function`] recognises a linkage name, in most cases without demangling the name.
fn is_wrapper_linkage(linkage: &[u8]) -> bool {
    let is_mangled = linkage.starts_with(b"_Z") || linkage.starts_with(b"_R");
    if is_mangled && is_library_linkage(linkage) {
        return true;
    }
    let may_be_one = (linkage.len() <= MAX_LINKAGE && may_be_named(linkage, is_mangled))
        || (!is_mangled && is_plain_library(linkage));
    let Some(linkage) = core::str::from_utf8(linkage).ok().filter(|_| may_be_one) else { return false };
    of_function(&if is_mangled { function_name(linkage) } else { without_suffix(linkage).into() }).is_some()
}

/// Whether a rule for functions skips a frame of `function`. In the modules of runtime libraries it skips only the
/// allocator's own functions: other memory that a library allocates (stdio, streams, OpenMP teams) is not an object of
/// the program.
pub fn is_passed(in_library_module: bool, function: &str) -> bool {
    if in_library_module { is_allocator(without_parameters(function)) } else { of_function(function).is_some() }
}

/// The same for a linkage name.
pub fn is_passed_linkage(in_library_module: bool, linkage: &[u8]) -> bool {
    if !in_library_module {
        return is_wrapper_linkage(linkage);
    }
    let is_operator_new = linkage.starts_with(b"_Znw") || linkage.starts_with(b"_Zna");
    is_operator_new || core::str::from_utf8(linkage).is_ok_and(is_allocator)
}

fn is_allocator(name: &str) -> bool {
    LIBRARY_FUNCTIONS.contains(&name) || name.starts_with("__libc_") || is_allocating_operator(name)
}

/// `std::vector<..>::f`, and Rust's `<alloc::vec::Vec<T>>::f` and `<T as alloc::..::SpecFromElem>::f`.
fn in_library_space(name: &str, is_cpp: bool) -> bool {
    let spaces = if is_cpp { CPP_SPACES } else { RUST_CRATES };
    let in_space = |n: &str| n.split_once("::").is_some_and(|(first, _)| spaces.contains(&first) || first == "std");
    let Some(inner) = name.strip_prefix('<') else { return in_space(name) };
    match inner.split_once(" as ") {
        // An implementation belongs to the crate of the type or of the trait: to the standard library when no other
        // crate is named before the arguments. A builtin or generic type has no crate.
        Some((of, by)) => in_space(by) && (in_space(of) || !of.contains("::")),
        None => in_space(inner),
    }
}

fn is_allocating_operator(name: &str) -> bool {
    name.strip_prefix("operator new").is_some_and(|rest| rest.is_empty() || rest == "[]")
}

fn is_named_like_one(name: &str) -> bool {
    NAMED_ENDINGS.iter().any(|end| ends_with(name.as_bytes(), end))
}

/// Whether a linkage name holds one of [`NAMED_ENDINGS`] or may be in [`LIBRARY_FUNCTIONS`], or is mangled and spells
/// out the crate or trait that begins a Rust name, which is inside brackets: all but a few do not, also of those that
/// hold `allocate` or `xcallocator`.
fn may_be_named(linkage: &[u8], is_mangled: bool) -> bool {
    const ALLOC: u32 = u32::from_le_bytes(*b"allo");
    const ALIGN: u32 = u32::from_le_bytes(*b"alig");
    const BRACKET: u32 = u32::from_le_bytes(*b"$lt$");
    // The last four letters, as if all were small: this is asked of every function of a program.
    let mut letters = 0_u32;
    linkage.iter().enumerate().any(|(last, letter)| {
        letters = letters >> 8 | u32::from(letter | 0x20) << 24;
        let (before, after) = linkage.split_at_checked(last + 1).unwrap_or_default();
        let before = before.get(..before.len().saturating_sub(4)).unwrap_or_default();
        let is_named = |starts: &[&str], end: &str| {
            starts.iter().any(|start| ends_with(before, start))
                && after.get(..end.len()).is_some_and(|start| start.eq_ignore_ascii_case(end.as_bytes()))
                && (!is_mangled || ends_identifier(linkage, last + 1 + end.len()))
        };
        match letters {
            ALLOC => is_named(&["m", "c", "re", "v", "aligned_"], "c") || is_named(&["re"], "carray"),
            ALIGN => is_named(&["mem"], "n"),
            BRACKET => is_mangled,
            _ => false,
        }
    })
}

fn ends_with(text: &[u8], end: &str) -> bool {
    let tail = text.len().checked_sub(end.len()).and_then(|at| text.get(at..));
    tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end.as_bytes()))
}

/// Whether an identifier of a mangled name may end before the byte at `end`.
fn ends_identifier(linkage: &[u8], end: usize) -> bool {
    let of_v0 = |start| usize::from(linkage.get(start) == Some(&b'_'));
    any_identifier(linkage, |start, length| start + length == end || start.saturating_add(length + of_v0(start)) == end)
}

fn is_plain_library(linkage: &[u8]) -> bool {
    matches!(linkage, b"free" | b"mmap" | b"mmap64" | b"mremap")
        || LIBRARY_PREFIXES.iter().any(|p| linkage.starts_with(p.as_bytes()))
}

/// Whether a mangled name begins in a name space or crate of a standard library, or is `operator new`.
fn is_library_linkage(linkage: &[u8]) -> bool {
    if let Some(v0) = linkage.strip_prefix(b"_R") {
        return crate_of(v0).is_some_and(|name| RUST_CRATES.iter().any(|c| c.as_bytes() == name));
    }
    let Some(encoding) = linkage.strip_prefix(b"_Z") else { return false };
    if encoding.starts_with(b"nw") || encoding.starts_with(b"na") {
        return true;
    }
    // Entities inside of functions; the name space is that of the function.
    let mut name = encoding;
    while let [b'Z' | b'L', rest @ ..] = name {
        name = rest;
    }
    if let [b'N', rest @ ..] = name {
        name = rest;
        // Qualifiers of a member function.
        while let [b'K' | b'V' | b'r' | b'R' | b'O', rest @ ..] = name {
            name = rest;
        }
    } else if name.first() == Some(&b'S') {
        // `St` and a name; the other abbreviations are of types.
        return name.get(1) == Some(&b't');
    }
    if let [b'S', kind, ..] = name {
        return b"tabsiod".contains(kind);
    }
    let Some(first) = first_identifier(name, b"") else { return false };
    let is_one_of = |spaces: &[&str]| spaces.iter().any(|space| space.as_bytes() == first);
    // A function of that very name is no name space: only nested names have one.
    if encoding == name || !(is_one_of(CPP_SPACES) || is_one_of(RUST_CRATES)) {
        return false;
    }
    let is_rust = core::str::from_utf8(linkage).is_ok_and(is_legacy_rust);
    is_one_of(if is_rust { RUST_CRATES } else { CPP_SPACES })
}

/// The identifier at the start of `<length><identifier>`, or of `<length><separator><identifier>`.
fn first_identifier<'a>(name: &'a [u8], separator: &[u8]) -> Option<&'a [u8]> {
    let digits = name.iter().take_while(|b| b.is_ascii_digit()).count();
    let (length, identifier) = name.split_at_checked(digits).filter(|_| digits > 0)?;
    let add = |sum: usize, digit: &u8| sum.checked_mul(10)?.checked_add(usize::from(digit - b'0'));
    let length = length.iter().try_fold(0, add)?;
    identifier.strip_prefix(separator).unwrap_or(identifier).get(..length)
}

/// The crate that a function of Rust's v0 mangling is defined in: `NvMs_NtCsfLf_5alloc7raw_vec..` (rustc book, symbol
/// mangling: a crate root is C, a disambiguator, the length of its name, the name).
fn crate_of(name: &[u8]) -> Option<&[u8]> {
    let root = name.windows(2).position(|two| two == b"Cs")?;
    let disambiguator = name.get(root + 2..)?;
    let end = disambiguator.iter().position(|&b| b == b'_')?;
    // A name that begins with a digit or underscore has an underscore before it.
    first_identifier(&disambiguator[end + 1..], b"_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_runtime_libraries_only_the_allocator_is_passed() {
        for (linkage, function, passed) in [
            ("_Znwm", "operator new(unsigned long)", true),
            ("__libc_calloc", "__libc_calloc", true),
            ("_IO_file_doallocate", "_IO_file_doallocate", false),
            ("gomp_malloc", "gomp_malloc", false),
            ("_ZNSs6_Rep9_S_createEmmRKSaIcE", "std::string::_Rep::_S_create(unsigned long)", false),
        ] {
            assert_eq!(is_passed(true, function), passed, "{function}");
            assert_eq!(is_passed_linkage(true, linkage.as_bytes()), passed, "{linkage}");
        }
        assert!(is_passed(false, "std::vector<int>::reserve(unsigned long)") && is_passed(false, "xmalloc"));
    }

    #[test]
    fn linkage_and_demangled_names_are_decided_alike() {
        let library = [
            "malloc",
            "__libc_calloc",
            "mmap64",
            "_Znwm",
            "_ZnamSt11align_val_tRKSt9nothrow_t",
            "_ZNSt6vectorIdSaIdEEC1EmRKS0_",
            "_ZNKSt6vectorIdSaIdEE4sizeEv",
            "_ZSt4swapIiEvRT_S1_",
            "_ZNSaIcEC1Ev",
            "_ZN9__gnu_cxx13new_allocatorIdE8allocateEmPKv",
            "_ZN5alloc7raw_vec6RawVec4grow17h0123456789abcdefE",
            "_ZN56_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..Clone$GT$5clone17h0123456789abcdefE",
            "_RNvCsfLfy6EI15iL_7___rustc12___rust_alloc",
            "_RNvMs_NtCsfdfd2bd8_5alloc7raw_vecNtB4_11RawVecInner15try_allocate_in",
        ];
        let named = [
            "xmalloc",
            "PyMem_RawMalloc",
            "xmalloc.constprop.0",
            "_ZN3lib8xxmallocEm",
            "_RNvCs1234_3lib7_malloc",
            "_Z7REALLOCi",
        ];
        let neither = [
            "grid_alloc",
            "main",
            "_ZN4Grid4fillEi",
            "_ZN4core4initEv", // a C++ name space of the program
            "_Z4coreSt6vectorIiSaIiEE",
            "_ZN5lines4main17h0123456789abcdefE",
            "_ZN48_$LT$app..Grid$u20$as$u20$core..clone..Clone$GT$5clone17h0123456789abcdefE",
            "_RINvCs1234_5lines3fooNtNtCsfLf_5alloc3vec3VecE",
            "_R",
            "_RNvCs_",
            "object_allocate",
            "_ZN10hash_tableI25tree_vec_map_cache_hasherLb0E11xcallocatorE6expandEv",
        ];
        let cases = [(Some(Wrapper::Library), &library[..]), (Some(Wrapper::Named), &named), (None, &neither)];
        for (expected, linkage) in cases.iter().flat_map(|(expected, list)| list.iter().map(move |l| (*expected, *l))) {
            assert_eq!(is_wrapper_linkage(linkage.as_bytes()), expected.is_some(), "{linkage}");
            let demangled = function_name(linkage);
            assert_eq!(of_function(&demangled), expected, "{linkage}: {demangled}");
        }
        assert!(is_library_module(b"libc.so.6") && !is_library_module(b"libcrypto.so"));
        assert!(is_library_source(b"/usr/include/c++/12") && !is_library_source(b"/home/me/include"));
        assert!(is_library_source(b"/opt/lib/rustlib/src/rust/library"));
    }
}
