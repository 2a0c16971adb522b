//! `make bench`: the project's bars, measured.
//!
//! Machines are shared and noisy, so everything is paired: bare and loaded runs take turns, and what is quoted is the
//! median of the ratios (or differences) pair by pair. Each section prints a table with its bar and whether it was met;
//! nothing here fails the build, the figures are for reading.
//!
//! `cargo bench --bench bars [-- SECTION...]` with sections `malloc`, `matched`, `startup`, `compile`, `overhead`.

mod compile;
mod malloc;
mod matched;
mod overhead;
mod paired;
mod startup;

use std::path::{Path, PathBuf};

/// Where the build is: the release directory that holds the benchmark's own build profile.
pub fn release_dir() -> PathBuf {
    let mut dir = std::env::current_exe().unwrap_or_default();
    dir.pop();
    if dir.ends_with("deps") {
        dir.pop();
    }
    dir
}

/// A library of ours, as it was built with this program: cargo leaves those of dependencies beside it, and only `cargo
/// build` renews the ones in the directory above.
pub fn preload(name: &str) -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name(format!("libnumamma_preload_{name}.so"))
}

/// Compiles one C program of `benches/programs` into the build tree and returns its path.
pub fn compile(name: &str) -> Result<PathBuf, String> {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/programs").join(format!("{name}.c"));
    compile_with(&source, release_dir().join(format!("bench-{name}")), &[])
}

fn compile_with(source: &Path, out: PathBuf, flags: &[&str]) -> Result<PathBuf, String> {
    let status = std::process::Command::new("cc")
        .args(["-O2", "-g", "-pthread", "-o"])
        .arg(&out)
        .args(flags)
        .arg(source)
        .status()
        .map_err(|e| format!("cc: {e}; install gcc"))?;
    if status.success() { Ok(out) } else { Err(format!("cc could not compile {}", source.display())) }
}

/// Compiles one library of `benches/programs` into the build tree and returns its path.
pub fn compile_library(name: &str) -> Result<PathBuf, String> {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/programs").join(format!("{name}.c"));
    compile_with(&source, release_dir().join(format!("libbench-{name}.so")), &["-shared", "-fPIC"])
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let on = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    for (name, section) in [
        ("malloc", malloc::run as fn() -> Result<(), String>),
        ("matched", matched::run),
        ("startup", startup::run),
        ("compile", compile::run),
        ("overhead", overhead::run),
    ] {
        if on(name) {
            println!("\n## {name}\n");
            if let Err(why) = section() {
                println!("not measured: {why}");
            }
        }
    }
}
