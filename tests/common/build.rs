//! Programs of the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{run, skipped};

/// The source tree.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file of the tests; `path` is relative to tests/.
pub fn source(path: &str) -> PathBuf {
    root().join("tests").join(path)
}

/// Compiles `path`, relative to tests/, to `out`, and returns `out`. `flags` follow the source, so libraries may be
/// among them.
pub fn compile(compiler: &str, path: &str, out: PathBuf, flags: &[&str]) -> PathBuf {
    compile_in(root(), compiler, path, out, flags)
}

/// The same from the directory `dir`, which relative paths in `out` and `flags` go by.
pub fn compile_in(dir: &Path, compiler: &str, path: &str, out: PathBuf, flags: &[&str]) -> PathBuf {
    run(Command::new(compiler).current_dir(dir).arg("-o").arg(&out).arg(source(path)).args(flags)).success();
    out
}

/// A program that `make programs` built.
pub fn program(name: &str) -> PathBuf {
    let path = root().join("target/programs").join(name);
    assert!(path.exists(), "{} is not built: run `make programs` (the Fortran ones need gfortran)", path.display());
    path
}

/// LLVM's OpenMP runtime; its Debian package is installed by `make setup`.
pub fn libomp() -> Option<PathBuf> {
    let there = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|e| e.path().join("lib/libomp.so.5"));
    let found = there.chain([PathBuf::from("/usr/lib/x86_64-linux-gnu/libomp.so.5")]).find(|p| p.exists());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "libomp.so.5 is missing, and CI must have it: run `make setup`");
        skipped("programs under LLVM's OpenMP runtime (make setup installs it)");
    }
    found
}
