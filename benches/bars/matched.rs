//! A matched allocation against the system calls that placing it takes, and the same again and again against one that
//! is not placed. Bars: a fresh 1 MiB costs at most its mbind (with the mmap and munmap that give it pages of its own)
//! plus 1 us; memory that was freed and serves the next allocation costs at most 200 ns more than bare, and so do small
//! blocks that other threads free.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::paired::{Spread, within};

/// Of each size, in turns within one process.
const ROUNDS: usize = 25;
const PAIRS: usize = 2000;
/// Of blocks that other threads free, in each round; and how many threads.
const HANDED: usize = 1_000_000;
const THREADS: [usize; 4] = [1, 2, 8, 64];
const FRESH_NS: f64 = 1000.0;
const AGAIN_NS: f64 = 200.0;

/// One size, and which bars hold for it. From 2 MiB on, the mapping is made larger and trimmed so that it can hold huge
/// pages: two more system calls. The C library maps 64 MiB anew each time, too.
struct Size {
    name: &'static str,
    bytes: usize,
    fresh: Option<f64>,
    again: Option<f64>,
}

const SIZES: [Size; 4] = [
    Size { name: "8 KiB", bytes: 8 << 10, fresh: Some(FRESH_NS), again: Some(AGAIN_NS) },
    Size { name: "64 KiB", bytes: 64 << 10, fresh: Some(FRESH_NS), again: Some(AGAIN_NS) },
    Size { name: "1 MiB", bytes: 1 << 20, fresh: Some(FRESH_NS), again: Some(AGAIN_NS) },
    Size { name: "64 MiB", bytes: 64 << 20, fresh: None, again: None },
];

pub fn run() -> Result<(), String> {
    let program = crate::compile("matched_pair")?;
    let policy = crate::release_dir().join("bench-matched.toml");
    let text = "version = 1\n[[object]]\nfunction = [\"matched\"]\nplace = { policy = \"interleave\" }\n";
    std::fs::write(&policy, text).map_err(|e| format!("{}: {e}", policy.display()))?;
    let rounds = |size: &Size| figures::<4>(&program, &policy, [size.bytes, PAIRS, ROUNDS]);
    let all = SIZES.iter().map(rounds).collect::<Result<Vec<_>, _>>()?;
    println!("CPU time of malloc and free of a matched, untouched object; {ROUNDS} rounds in turn.\n");
    head("system calls", "Of up to 64 live objects, over mmap + mbind + munmap:");
    for (size, rounds) in SIZES.iter().zip(&all) {
        line(size.name, rounds.iter().map(|r| (r[0], r[1])), size.fresh);
    }
    head("unmatched", "\nThe same object again and again, over one that no rule matches:");
    for (size, rounds) in SIZES.iter().zip(&all) {
        line(size.name, rounds.iter().map(|r| (r[2], r[3])), size.again);
    }
    let program = crate::compile("handed_pair")?;
    head("unmatched", "\nBlocks of 16 to 515 bytes that other threads free, over those that no rule matches:");
    for threads in THREADS {
        let rounds: Vec<[f64; 2]> = figures(&program, &policy, [threads, HANDED, ROUNDS])?;
        line(&format!("{threads} threads"), rounds.iter().map(|r| (r[0], r[1])), Some(AGAIN_NS));
    }
    Ok(())
}

/// What a program prints under the preload, round by round.
fn figures<const N: usize>(program: &Path, policy: &Path, arguments: [usize; 3]) -> Result<Vec<[f64; N]>, String> {
    let mut command = Command::new(program);
    command.args(arguments.map(|n| n.to_string())).stdin(Stdio::null());
    command.env("LD_PRELOAD", crate::preload("apply")).env("NUMAMMA_POLICY", policy);
    let out = command.output().map_err(|e| format!("{}: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let of_line = |line: &str| {
        let figures: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        figures.try_into().ok()
    };
    let rounds: Vec<[f64; N]> = text.lines().filter_map(of_line).collect();
    if rounds.len() != ROUNDS {
        return Err(format!("{}: {}, {}", program.display(), out.status, String::from_utf8_lossy(&out.stderr)));
    }
    Ok(rounds)
}

fn head(other: &str, title: &str) {
    println!("{title}\n\n| size | {other} ns | matched ns | + min | + median | 95 % of the median | + max | bar | |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
}

/// Of pairs of a matched and another figure.
fn line(name: &str, pairs: impl Iterator<Item = (f64, f64)> + Clone, bar: Option<f64>) {
    let (matched, other) = (pairs.clone().map(|p| p.0).collect(), pairs.clone().map(|p| p.1).collect());
    let extra = Spread::of(pairs.map(|p| p.0 - p.1).collect());
    println!(
        "| {name} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} to {:.0} | {:.0} | {} | {} |",
        Spread::of(other).median,
        Spread::of(matched).median,
        extra.min,
        extra.median,
        extra.interval.0,
        extra.interval.1,
        extra.max,
        bar.map_or_else(String::new, |bar| format!("{bar:.0} ns")),
        bar.map_or("", |bar| within(&extra, bar))
    );
}
