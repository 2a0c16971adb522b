//! Start-up of the apply preload: 1,000 objects in the policy, a program with 100,000 symbols. Bar: <= 10 ms.
//!
//! Elapsed time is what the user waits for; CPU time (user and system, of the whole process, exit included) is
//! printed beside it, since on a busy machine the first mostly measures the neighbours.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::paired::{Spread, pairs, verdict};

const SYMBOLS: usize = 100_000;
const OBJECTS: usize = 1_000;
/// Pages of each placed object.
const OBJECT_PAGES: usize = 16;
const PAIRS: usize = 21;
const BAR_MS: f64 = 10.0;
/// What follows the name and size of each object. The last one is valid, but only the general TOML parser reads it.
const POLICIES: [(&str, &str); 3] = [
    ("block", "place = { policy = \"block\", nodes = \"all\" }"),
    (
        "block-cyclic",
        "pattern = { kind = \"block-cyclic\", period = \"16KiB\" }\nplace = { policy = \"block-cyclic\", block = \"auto\" }",
    ),
    ("dotted", "place.policy = \"block\""),
];

pub fn run() -> Result<(), String> {
    let dir = crate::release_dir();
    let program = build(&dir)?;
    println!("`true`-like program, {SYMBOLS} symbols, policy of {OBJECTS} globals, {PAIRS} pairs.\n");
    println!("| policy | | ms min | ms median | ms max | bar | |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (name, keys) in POLICIES {
        let policy = write_policy(&dir, name, keys)?;
        let figures = pairs(PAIRS, || time(&program, None), || time(&program, Some(&policy)))?;
        let extra = |of: fn(&Times) -> f64| Spread::of(figures.iter().map(|(a, b)| (of(b) - of(a)) * 1e3).collect());
        for (what, extra) in [("elapsed", extra(|t| t.elapsed)), ("CPU", extra(|t| t.cpu))] {
            println!(
                "| {name} | {what} | {:.2} | {:.2} | {:.2} | {BAR_MS} | {} |",
                extra.min,
                extra.median,
                extra.max,
                verdict(extra.median <= BAR_MS)
            );
        }
    }
    Ok(())
}

fn build(dir: &Path) -> Result<PathBuf, String> {
    let mut text = String::from(".bss\n");
    for i in 0..SYMBOLS {
        let size = if i % (SYMBOLS / OBJECTS) == 0 { OBJECT_PAGES * 4096 } else { 64 };
        let _ = writeln!(
            text,
            ".globl symbol_{i}\n.type symbol_{i},@object\n.size symbol_{i},{size}\n.balign 64\nsymbol_{i}: .zero {size}"
        );
    }
    text.push_str(".text\n.globl main\nmain: xor %eax,%eax\nret\n.section .note.GNU-stack,\"\",@progbits\n");
    let source = dir.join("bench-symbols.s");
    let program = dir.join("bench-symbols");
    fs::write(&source, text).map_err(|e| e.to_string())?;
    let status = Command::new("cc").arg("-o").arg(&program).arg(&source).status().map_err(|e| format!("cc: {e}"))?;
    if status.success() { Ok(program) } else { Err("cc could not assemble the program".into()) }
}

fn write_policy(dir: &Path, name: &str, keys: &str) -> Result<PathBuf, String> {
    let mut text = String::from("version = 1\n[program]\npath = \"bench-symbols\"\n");
    for i in 0..OBJECTS {
        let _ = writeln!(
            text,
            "[[object]]\nglobal = \"symbol_{}\"\nsize = {}\n{keys}\nwhy = \"bench\"",
            i * (SYMBOLS / OBJECTS),
            OBJECT_PAGES * 4096
        );
    }
    let path = dir.join(format!("bench-symbols-{name}.toml"));
    fs::write(&path, text).map_err(|e| e.to_string())?;
    Ok(path)
}

/// Seconds from start to end of a process, and of CPU time it used.
struct Times {
    elapsed: f64,
    cpu: f64,
}

fn time(program: &Path, policy: Option<&Path>) -> Result<Times, String> {
    let mut c = Command::new(program);
    c.stdin(Stdio::null()).stdout(Stdio::null());
    if let Some(policy) = policy {
        c.env("LD_PRELOAD", crate::preload("apply")).env("NUMAMMA_POLICY", policy);
    }
    let start = Instant::now();
    let child = c.spawn().map_err(|e| e.to_string())?;
    let mut status = 0;
    // SAFETY: all zero bytes are a valid rusage, and wait4 fills it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: waits for the child started above, whose handle is not used any more; both results are writable.
    let waited = unsafe { libc::wait4(child.id() as libc::pid_t, &raw mut status, 0, &raw mut usage) };
    let elapsed = start.elapsed().as_secs_f64();
    if waited < 0 || status != 0 {
        return Err(format!("{} ended with wait status {status:#x}", program.display()));
    }
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Ok(Times { elapsed, cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime) })
}
