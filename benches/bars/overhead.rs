//! Profiling overhead at defaults over the test programs: bar median <= 3 %, worst <= 5 %. Run time pair by pair, and
//! the CPU time of the program, which other guests of the machine disturb less.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use numamma::profile::file::Reader;
use numamma::profile::records::Record;

use crate::paired::{Spread, pairs, verdict, within};

/// Pairs per program.
const PAIRS: usize = 11;
const BAR_MEDIAN: f64 = 1.03;
const BAR_WORST: f64 = 1.05;
const PROGRAMS: [&str; 10] =
    ["lu", "cluster", "private", "stencil", "gather", "linked", "allocs", "slices", "firsttouch", "remap"];

pub fn run() -> Result<(), String> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/programs");
    println!("Run time of the program under `numamma profile` over bare, {PAIRS} pairs each, 2 threads.");
    println!("`whole` adds the recorder's own start (calibration) and end (symbols).\n");
    println!(
        "| program | bare s | ratio min | median | 95 % of the median | ratio max | CPU time | best over best | whole +s | |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut medians = Vec::new();
    for name in PROGRAMS {
        let program = dir.join(name);
        if !program.exists() {
            println!("| {name} | not built | | | | | | | | |");
            continue;
        }
        let figures = pairs(PAIRS, || bare(&program), || profiled(&program))?;
        let ratio = Spread::of(figures.iter().map(|(a, b)| b.run / a.run).collect());
        let whole = Spread::of(figures.iter().map(|(a, b)| b.whole - a.whole).collect());
        let cpu = Spread::of(figures.iter().map(|(a, b)| b.cpu / a.cpu).collect());
        let base = Spread::of(figures.iter().map(|(a, _)| a.run).collect());
        let best = Spread::of(figures.iter().map(|(_, b)| b.run).collect()).min / base.min;
        println!(
            "| {name} | {:.2} | {:.3} | {:.3} | {:.3} to {:.3} | {:.3} | {:.3} | {best:.3} | {:.2} | {} |",
            base.median,
            ratio.min,
            ratio.median,
            ratio.interval.0,
            ratio.interval.1,
            ratio.max,
            cpu.median,
            whole.median,
            within(&ratio, BAR_WORST)
        );
        medians.push(ratio.median);
    }
    if medians.is_empty() {
        return Err("no test program is built; run `make programs`".into());
    }
    let all = Spread::of(medians);
    println!("\nmedian over programs {:.3}, bar 1.03: {}", all.median, verdict(all.median <= BAR_MEDIAN));
    println!("worst program median {:.3}, bar 1.05: {}", all.max, verdict(all.max <= BAR_WORST));
    Ok(())
}

/// Seconds of the program itself, of its CPU time, and of the whole command.
struct Times {
    run: f64,
    cpu: f64,
    whole: f64,
}

fn bare(program: &Path) -> Result<Times, String> {
    let (start, before) = (Instant::now(), children_cpu());
    let status = command(program).status().map_err(|e| e.to_string())?;
    let run = start.elapsed().as_secs_f64();
    if status.success() {
        Ok(Times { run, cpu: children_cpu() - before, whole: run })
    } else {
        Err(format!("{}: {status}", program.display()))
    }
}

fn profiled(program: &Path) -> Result<Times, String> {
    let out = crate::release_dir().join("bench-overhead.prof");
    let mut command = command(&crate::release_dir().join("numamma"));
    command.args(["profile", "-q", "-o"]).arg(&out).arg("--").arg(program);
    let start = Instant::now();
    let status = command.status().map_err(|e| e.to_string())?;
    let whole = start.elapsed().as_secs_f64();
    if !status.success() {
        return Err(format!("numamma profile {}: {status}", program.display()));
    }
    let stats = Reader::open(&out)
        .map_err(|e| e.to_string())?
        .filter_map(|r| if let Record::Stats(s) = r { Some(s) } else { None })
        .last()
        .ok_or("profile without counters")?;
    Ok(Times { run: stats.duration_ns as f64 / 1e9, cpu: stats.cpu_ns as f64 / 1e9, whole })
}

/// Seconds of CPU time of all children waited for so far.
pub fn children_cpu() -> f64 {
    // SAFETY: an all-zero rusage is valid, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    [usage.ru_utime, usage.ru_stime].iter().map(|t| t.tv_sec as f64 + t.tv_usec as f64 / 1e6).sum()
}

fn command(program: &Path) -> Command {
    let mut c = Command::new(program);
    c.env("OMP_NUM_THREADS", "2").stdin(Stdio::null()).stdout(Stdio::null());
    c
}
