//! A matched allocation against the system calls that placing it takes. Bar: 1 MiB costs at most its mbind (with the
//! mmap and munmap that give it pages of its own) plus 1 us.

use std::process::{Command, Stdio};

use crate::paired::{Spread, within};

/// Of each size, in turns within one process.
const ROUNDS: usize = 25;
const PAIRS: usize = 2000;
const BAR_NS: f64 = 1000.0;
/// From 2 MiB on, the mapping is made larger and trimmed so that it can hold huge pages: two more system calls.
const SIZES: [(&str, usize, bool); 3] =
    [("64 KiB", 64 << 10, true), ("1 MiB", 1 << 20, true), ("64 MiB", 64 << 20, false)];

pub fn run() -> Result<(), String> {
    let program = crate::compile("matched_pair")?;
    let policy = crate::release_dir().join("bench-matched.toml");
    let text = "version = 1\n[[object]]\nfunction = [\"matched\"]\nplace = { policy = \"interleave\" }\n";
    std::fs::write(&policy, text).map_err(|e| format!("{}: {e}", policy.display()))?;
    println!(
        "CPU time of malloc and free of a matched object, untouched, over mmap + mbind + munmap; {ROUNDS} rounds in turn.\n"
    );
    println!("| size | system calls ns | matched ns | + min | + median | 95 % of the median | + max | bar | |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (name, bytes, barred) in SIZES {
        let mut command = Command::new(&program);
        command.args([bytes, PAIRS, ROUNDS].map(|n| n.to_string())).stdin(Stdio::null());
        command.env("LD_PRELOAD", crate::preload("apply")).env("NUMAMMA_POLICY", &policy);
        let out = command.output().map_err(|e| format!("{}: {e}", program.display()))?;
        let text = String::from_utf8_lossy(&out.stdout);
        let pair = |line: &str| {
            let (a, b) = line.split_once(' ')?;
            Some((a.parse::<f64>().ok()?, b.parse::<f64>().ok()?))
        };
        let rounds: Vec<(f64, f64)> = text.lines().filter_map(pair).collect();
        if rounds.len() != ROUNDS {
            return Err(format!("{}: {}, {}", program.display(), out.status, String::from_utf8_lossy(&out.stderr)));
        }
        let (placed, direct) = (rounds.iter().map(|r| r.0).collect(), rounds.iter().map(|r| r.1).collect());
        let extra = Spread::of(rounds.iter().map(|r| r.0 - r.1).collect());
        println!(
            "| {name} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} to {:.0} | {:.0} | {} | {} |",
            Spread::of(direct).median,
            Spread::of(placed).median,
            extra.min,
            extra.median,
            extra.interval.0,
            extra.interval.1,
            extra.max,
            if barred { format!("{BAR_NS:.0} ns") } else { String::new() },
            if barred { within(&extra, BAR_NS) } else { "" }
        );
    }
    Ok(())
}
