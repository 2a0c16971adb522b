//! A matched allocation against the system calls that placing it takes, and the same again and again against one that
//! is not placed. Bars: a fresh 1 MiB costs at most its mbind (with the mmap and munmap that give it pages of its own)
//! plus
//! 1 us; memory that was freed and serves the next allocation costs at most 200 ns more than bare.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::paired::{Spread, within};

/// Of each size, in turns within one process.
const ROUNDS: usize = 25;
const PAIRS: usize = 2000;
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
    let all = SIZES.iter().map(|size| rounds(&program, &policy, size.bytes)).collect::<Result<Vec<_>, _>>()?;
    println!("CPU time of malloc and free of a matched, untouched object; {ROUNDS} rounds in turn.\n");
    head("system calls", "Of up to 64 live objects, over mmap + mbind + munmap:");
    for (size, rounds) in SIZES.iter().zip(&all) {
        line(size.name, rounds.iter().map(|r| (r[0], r[1])), size.fresh);
    }
    head("unmatched", "\nThe same object again and again, over one that no rule matches:");
    for (size, rounds) in SIZES.iter().zip(&all) {
        line(size.name, rounds.iter().map(|r| (r[2], r[3])), size.again);
    }
    Ok(())
}

/// The figures of matched_pair.c, round by round.
fn rounds(program: &Path, policy: &Path, bytes: usize) -> Result<Vec<[f64; 4]>, String> {
    let mut command = Command::new(program);
    command.args([bytes, PAIRS, ROUNDS].map(|n| n.to_string())).stdin(Stdio::null());
    command.env("LD_PRELOAD", crate::preload("apply")).env("NUMAMMA_POLICY", policy);
    let out = command.output().map_err(|e| format!("{}: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let figures = |line: &str| {
        let figures: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        figures.try_into().ok()
    };
    let rounds: Vec<[f64; 4]> = text.lines().filter_map(figures).collect();
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
