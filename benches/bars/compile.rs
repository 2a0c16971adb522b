//! What a compile job pays for a library that it inherits: gcc on a large file, under a policy for another program and
//! under one for the compiler proper, which allocates millions of times. Bar: <= 1 %, paired.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::overhead::children_cpu;
use crate::paired::{Spread, pairs, within};

const PAIRS: usize = 21;
const FUNCTIONS: usize = 150;
const BAR: f64 = 1.01;
/// Under which every allocation is placed: to know what that costs.
const NO_BAR: &str = "?";
/// Name, program of the policy, and the function that its rule names.
const POLICIES: [(&str, &str, &str); 3] = [
    ("for another program", "other", "main"),
    ("for cc1, nothing matches", "cc1", "no_such_function"),
    ("for cc1, every allocation placed", "cc1", NO_BAR),
];

pub fn run() -> Result<(), String> {
    let dir = crate::release_dir();
    let source = write_source(&dir)?;
    println!("`gcc -O1 -c` of {FUNCTIONS} functions (driver, cc1, as), {PAIRS} pairs.\n");
    println!(
        "| policy | bare s | ratio min | median | 95 % of the median | max | CPU time median | 95 % | bar | elapsed | CPU |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (name, program, function) in POLICIES {
        let policy = dir.join("bench-compile.toml");
        let text = format!(
            "version = 1\n[program]\npath = \"{program}\"\n[[object]]\nfunction = [\"{function}\"]\nplace = {{ policy = \"interleave\" }}\n"
        );
        std::fs::write(&policy, text).map_err(|e| format!("{}: {e}", policy.display()))?;
        let figures = pairs(PAIRS, || compile(&source, None), || compile(&source, Some(&policy)))?;
        // Of the CPU time: what the neighbours disturbed least on both sides.
        let least = |times: &mut dyn Iterator<Item = f64>| times.fold(f64::INFINITY, f64::min);
        let best = least(&mut figures.iter().map(|(_, b)| b.1)) / least(&mut figures.iter().map(|(a, _)| a.1));
        let barred = function != NO_BAR;
        let elapsed = Spread::of(figures.iter().map(|(a, b)| b.0 / a.0).collect());
        let cpu = Spread::of(figures.iter().map(|(a, b)| b.1 / a.1).collect());
        println!(
            "| {name} | {:.2} | {:.3} | {:.3} | {:.3} to {:.3} | {:.3} | {:.3} | {:.3} to {:.3} | {best:.3} | {} | {} | {} |",
            Spread::of(figures.iter().map(|(a, _)| a.0).collect()).median,
            elapsed.min,
            elapsed.median,
            elapsed.interval.0,
            elapsed.interval.1,
            elapsed.max,
            cpu.median,
            cpu.interval.0,
            cpu.interval.1,
            if barred { BAR.to_string() } else { String::new() },
            if barred { within(&elapsed, BAR) } else { "" },
            if barred { within(&cpu, BAR) } else { "" }
        );
    }
    Ok(())
}

/// Loops, calls and switches that differ from function to function.
fn write_source(dir: &Path) -> Result<PathBuf, String> {
    let mut text = String::from("extern int outside(int, const char *);\n");
    for i in 0..FUNCTIONS {
        let _ = writeln!(
            text,
            "int f{i}(int *a, int n) {{ int s = {i}; for (int k = 0; k < n; k++) {{ s += a[k] * {}; \
             switch (s & 7) {{ case 0: s ^= outside(s, \"{i}\"); break; case 3: s -= {}; break; default: a[k] = s; }} }} \
             return s > {i} ? s : {} + f{i}(a, n - 1); }}",
            i % 17 + 3,
            i % 5,
            i * 7
        );
    }
    let path = dir.join("bench-compile.c");
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

/// Seconds elapsed and of CPU time, of the driver and all it starts.
fn compile(source: &Path, policy: Option<&Path>) -> Result<(f64, f64), String> {
    let mut command = Command::new("gcc");
    command.args(["-O1", "-c", "-o"]).arg(source.with_extension("o")).arg(source).stdin(Stdio::null());
    if let Some(policy) = policy {
        command.env("LD_PRELOAD", crate::preload("apply")).env("NUMAMMA_POLICY", policy);
    }
    let (start, before) = (Instant::now(), children_cpu());
    // A rule that matched nothing is named by each compiler.
    let status = command.stderr(Stdio::null()).status().map_err(|e| format!("gcc: {e}"))?;
    let times = (start.elapsed().as_secs_f64(), children_cpu() - before);
    if status.success() { Ok(times) } else { Err(format!("gcc: {status}")) }
}
