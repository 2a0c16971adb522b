//! Where the preload libraries are.
//!
//! `NUMAMMA_LIB` names their directory outright. Otherwise they are looked for beside the executable, in
//! the lib directories of its prefix, and where cargo leaves them in a build tree.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use super::executable::{self, Executable};
use super::exit::Failure;

/// Environment variable that names the directory of the preload libraries.
pub const LIB_ENV: &str = "NUMAMMA_LIB";

/// Lib directories below an installation prefix, relative to the executable's directory: GNU's, Fedora's, Debian's.
const INSTALLED: [&str; 4] = [".", "../lib", "../lib64", "../lib/x86_64-linux-gnu"];
/// Where cargo leaves a cdylib, relative to the executable's directory.
const BUILD_TREE: [&str; 3] = [".", "deps", ".."];

/// Absolute path of `libnumamma-<kind>.so`; `kind` is `apply` or `profile`.
///
/// # Errors
/// Where it was looked for, or why it cannot be preloaded from where it is, with what to do.
pub fn find(kind: &str) -> Result<PathBuf, String> {
    let exe_dir = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let path = search(kind, std::env::var_os(LIB_ENV).map(PathBuf::from), exe_dir.as_deref())?;
    if path.as_os_str().as_bytes().iter().any(|b| b" :\t\n".contains(b)) {
        return Err(format!(
            "cannot preload {}: LD_PRELOAD takes spaces and colons as separators; move the library or set {LIB_ENV}",
            path.display()
        ));
    }
    Ok(path)
}

/// The same for `program`, whose loader must be able to load it.
///
/// # Errors
/// As [`find`]; and what the C library of the program lacks.
pub fn find_for(program: &Executable, kind: &str) -> Result<PathBuf, Failure> {
    let library = find(kind)?;
    let Some(loader) = program.loader.as_deref().filter(|loader| !loads_this_process(loader)) else {
        return Ok(library);
    };
    let Some(missing) = missing_version(&listed(loader, &program.elf, &library), &program.elf) else {
        return Ok(library);
    };
    Err(Failure::cannot_execute(format!(
        "{} is loaded by {}, whose C library is too old for {}: it, or a library that it needs, wants {missing}; build \
         NumaMMA where glibc is no newer than that one",
        program.elf.display(),
        loader.display(),
        library.display(),
    )))
}

/// A program that another loader loads than this process may bring a C library of its own.
fn loads_this_process(loader: &Path) -> bool {
    let own = executable::image(Path::new("/proc/self/exe"), "this program").ok().and_then(|image| image.loader);
    own.is_some_and(|own| own.canonicalize().ok() == loader.canonicalize().ok())
}

/// What the loader says of the libraries of a program, which it does not start, with `library` among them. A library that
/// needs a newer C library makes it end the program with status 1.
fn listed(loader: &Path, program: &Path, library: &Path) -> String {
    let mut list = Command::new(loader);
    list.arg("--list").arg(program).env("LD_PRELOAD", library).stdin(Stdio::null());
    list.output().map_or_else(|_| String::new(), |said| String::from_utf8_lossy(&said.stderr).into_owned())
}

/// The newest version of symbols that a library needs and that does not exist, from what the loader said: lines "FILE:
/// version `NAME' not found (required by LIBRARY)". What `program` itself lacks is not counted.
fn missing_version(said: &str, program: &Path) -> Option<String> {
    let own = format!("{})", program.display());
    let name = |line: &str| {
        let (before, by) = line.rsplit_once("' not found (required by ")?;
        (by != own).then(|| before.rsplit_once('`').map(|(_, name)| name.to_owned()))?
    };
    let number = |name: &String| name.split(['_', '.']).filter_map(|word| word.parse().ok()).collect::<Vec<u32>>();
    said.lines().filter_map(name).max_by_key(number)
}

fn search(kind: &str, given: Option<PathBuf>, exe_dir: Option<&Path>) -> Result<PathBuf, String> {
    let installed = format!("libnumamma-{kind}.so");
    let built = format!("libnumamma_preload_{kind}.so");
    let not_found = |searched: &[PathBuf]| {
        let searched: Vec<String> = searched.iter().map(|p| p.display().to_string()).collect();
        let searched = searched.join(", ");
        format!("{installed} is not installed (looked in {searched}); install it or set {LIB_ENV} to its directory")
    };
    let mut searched = Vec::new();
    if let Some(dir) = given {
        for name in [&installed, &built] {
            if let Some(found) = existing(&dir.join(name)) {
                return Ok(found);
            }
        }
        // A wrong NUMAMMA_LIB must not silently give another library than the one in that directory.
        return Err(not_found(&[dir]));
    }
    if let Some(dir) = exe_dir {
        for sub in INSTALLED {
            if let Some(found) = existing(&dir.join(sub).join(&installed)) {
                return Ok(found);
            }
            searched.push(dir.join(sub));
        }
        // cargo build and cargo test leave the library in different places: the younger one is current.
        let candidates = BUILD_TREE.iter().filter_map(|sub| existing(&dir.join(sub).join(&built)));
        if let Some(youngest) = candidates.max_by_key(|p| modified(p)) {
            return Ok(youngest);
        }
    }
    Err(not_found(&searched))
}

/// The directory with what programs are linked to whose accesses are to be traced.
const TRACE_DIR: &str = "numamma-trace";
/// The library in it, under the name by which gcc's programs look for ThreadSanitizer's.
pub const TRACE_LIBRARY: &str = "libtsan.so.2";
/// The object file in it with the hooks that are called most.
pub const TRACE_HOOKS: &str = "hooks.o";

/// Absolute path of the directory with [`TRACE_LIBRARY`] and [`TRACE_HOOKS`].
///
/// # Errors
/// Where it was looked for, with what to do.
pub fn find_trace() -> Result<PathBuf, String> {
    let exe_dir = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let beside = |dir: PathBuf| INSTALLED.iter().chain(&BUILD_TREE).map(|sub| dir.join(sub)).collect();
    let given = std::env::var_os(LIB_ENV).map(|dir| vec![PathBuf::from(dir)]);
    let searched: Vec<PathBuf> = given.or(exe_dir.map(beside)).unwrap_or_default();
    let found = searched.iter().map(|dir| dir.join(TRACE_DIR)).find(|dir| dir.join(TRACE_LIBRARY).is_file());
    found.and_then(|dir| dir.canonicalize().ok()).ok_or_else(|| {
        let searched: Vec<String> = searched.iter().map(|p| p.display().to_string()).collect();
        format!(
            "{TRACE_DIR}/{TRACE_LIBRARY} is not there (looked in {}); make it with `make` or `make install`, or set \
             {LIB_ENV} to the directory of {TRACE_DIR}",
            searched.join(", ")
        )
    })
}

/// What must be in the environment for a program to take the hooks of the directory: one that was built for
/// ThreadSanitizer would load its library.
pub fn trace_environment(dir: &Path) -> (OsString, OsString) {
    ("LD_LIBRARY_PATH".into(), chain(dir, std::env::var_os("LD_LIBRARY_PATH")))
}

fn existing(path: &Path) -> Option<PathBuf> {
    path.is_file().then(|| path.canonicalize().unwrap_or_else(|_| path.to_owned()))
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|m| m.modified()).ok()
}

/// The value of LD_PRELOAD or LD_LIBRARY_PATH with `library` in front of what is there already.
pub fn chain(library: &Path, already: Option<OsString>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(rest) = already.filter(|r| !r.is_empty()) {
        value.push(":");
        value.push(rest);
    }
    value
}

/// Options of AddressSanitizer's runtime, and the one that lets another library be loaded before it: with the check a
/// program built with gcc's -fsanitize=address would not start (sanitizer_common_flags.inc, AddressSanitizerFlags
/// wiki).
const ASAN_ENV: &str = "ASAN_OPTIONS";
const ASAN_ANY_ORDER: &str = "verify_asan_link_order=0";

/// What must be in the environment for `program` to load `library`.
pub fn environment(program: &Executable, library: &Path) -> Vec<(OsString, OsString)> {
    let mut env = vec![("LD_PRELOAD".into(), chain(library, std::env::var_os("LD_PRELOAD")))];
    if program.needs_asan {
        let mut options = std::env::var_os(ASAN_ENV).filter(|o| !o.is_empty()).unwrap_or_default();
        if !options.is_empty() {
            options.push(":");
        }
        options.push(ASAN_ANY_ORDER);
        env.push((ASAN_ENV.into(), options));
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_names_are_found_beside_and_in_lib() {
        let root = std::env::temp_dir().join(format!("numamma-library-{}", std::process::id()));
        let (bin, lib) = (root.join("bin"), root.join("lib"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        assert!(search("apply", None, Some(&bin)).unwrap_err().contains("not installed (looked in "));
        std::fs::write(lib.join("libnumamma-apply.so"), b"").unwrap();
        assert!(search("apply", None, Some(&bin)).unwrap().ends_with("lib/libnumamma-apply.so"));
        std::fs::write(bin.join("libnumamma_preload_apply.so"), b"").unwrap();
        assert!(search("apply", None, Some(&bin)).unwrap().ends_with("lib/libnumamma-apply.so"));
        assert!(
            search("profile", Some(lib), Some(&bin)).is_err(),
            "no other directory is searched when NUMAMMA_LIB is set"
        );
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_newest_version_that_a_library_lacks_is_read_from_what_the_loader_says() {
        let said = "./a: /old/libc.so.6: version `GLIBC_2.3.4' not found (required by /a/b.so)\n\
                    ./a: /old/libc.so.6: version `GLIBC_2.14' not found (required by /a/b.so)\n\
                    ./a: /old/libc.so.6: version `GLIBC_ABI_DT_RELR' not found (required by /lib/libdl.so.2)\n\
                    ./a: /old/libc.so.6: version `GLIBC_2.35' not found (required by ./a)\n";
        assert_eq!(missing_version(said, Path::new("./a")).as_deref(), Some("GLIBC_2.14"));
        assert_eq!(missing_version("./a: no such file", Path::new("./a")), None);
    }

    #[test]
    fn what_is_preloaded_already_stays() {
        assert_eq!(chain(Path::new("/a.so"), None), "/a.so");
        assert_eq!(chain(Path::new("/a.so"), Some("".into())), "/a.so");
        assert_eq!(chain(Path::new("/a.so"), Some("/b.so /c.so".into())), "/a.so:/b.so /c.so");
    }
}
