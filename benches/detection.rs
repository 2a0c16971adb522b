//! How fast objects are classified: 1,000 objects of all classes with 100,000 samples each, as the truth suite plants
//! them (2 to 256 threads, 64 to a million pages, noise, permuted orders).
//!
//! Bars: 10 s of one core in all, and memory that more samples of the same pages do not raise.
//! `cargo bench --bench detection`; CPU time of the classifying thread, without the making of the traces.
//! `-- --check` makes a missed bar an error, `-- --objects N` takes fewer, `-- --only KIND` those of one class.

#[path = "../tests/truth/detector/plan.rs"]
#[allow(dead_code)]
mod plan;
#[path = "../tests/truth/detector/random.rs"]
#[allow(dead_code)]
mod random;
#[path = "../tests/truth/detector/trace.rs"]
#[allow(dead_code)]
mod trace;

use std::collections::BTreeMap;
use std::process::ExitCode;

use numamma::detect::{PatternKind, classify};

const OBJECTS: u64 = 1000;
const SAMPLES: u32 = 100_000;
const SECONDS_BAR: f64 = 10.0;
/// Growth of the peak that a hundred times the samples of the same pages may cause.
const GROWTH_BAR: f64 = 0.10;

/// CPU time of this thread, seconds: other load on the machine does not count.
fn cpu_seconds() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec to the pointer, which is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// Largest resident size so far, MiB.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// Peak after classifying an object of few pages whose cells hold `weight` accesses each.
fn peak_with(weight: f32) -> f64 {
    let (mut plan, mut r) = plan::Plan::of(PatternKind::Random, 4);
    (plan.pages, plan.samples) = (4096, SAMPLES);
    let mut view = plan.view(&mut r);
    view.accesses.iter_mut().for_each(|a| {
        a.reads *= weight;
        a.writes *= weight;
    });
    assert!(!classify(&view).evidence.is_empty());
    peak_mib()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1)?.parse().ok());
    let objects = value("--objects").unwrap_or(OBJECTS);
    let only = args.iter().position(|a| a == "--only").and_then(|i| args.get(i + 1));
    // The first runs make the allocator keep what the others reuse; which detectors run depends on the samples, too.
    let peaks = [1.0, 10.0, 100.0, 1000.0].map(peak_with);
    let (few, many) = (peaks[1], peaks[3]);
    let mut kinds: BTreeMap<&str, (u64, f64, f64)> = BTreeMap::new();
    let mut right = 0;
    for seed in 0..objects {
        let (mut plan, mut r) = plan::Plan::draw(seed);
        if only.is_some_and(|k| k != plan.kind.as_str()) {
            continue;
        }
        plan.samples = SAMPLES;
        let view = plan.view(&mut r);
        let start = cpu_seconds();
        let got = classify(&view);
        let took = cpu_seconds() - start;
        right += u64::from(got.kind == plan.kind);
        if got.kind != plan.kind {
            println!("object {seed} is {}, found {}: {}", plan.kind, got.kind, got.evidence);
        }
        let kind = kinds.entry(plan.kind.as_str()).or_default();
        *kind = (kind.0 + 1, kind.1 + took, kind.2.max(took));
    }
    for (kind, (n, sum, most)) in &kinds {
        println!("{kind:>13}: {n:4} objects, {:6.1} ms each, at most {:6.1} ms", 1e3 * sum / *n as f64, 1e3 * most);
    }
    let total: f64 = kinds.values().map(|k| k.1).sum();
    let bar = SECONDS_BAR * objects as f64 / OBJECTS as f64;
    println!(
        "detection of {objects} objects with {:.0} million samples: {total:.2} s (bar {bar:.1} s), {right} right",
        objects as f64 * f64::from(SAMPLES) / 1e6
    );
    println!(
        "peak of 4,096 pages with 0.1, 1, 10 and 100 million samples, MiB: {peaks:.0?} (bar +{:.0} % from 1 to 100 million)",
        100.0 * GROWTH_BAR
    );
    let kept = total <= bar && many <= few * (1.0 + GROWTH_BAR);
    if args.iter().any(|a| a == "--check") && !kept { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
