//! The judge: exact counts of programs compiled for the `trace` sampler say how right the samples of the same programs
//! are, compiled as usual, and the placement that is advised from the samples.
//!
//! The witnesses share no code: hooks of the compiler count every access; samples are replayed machine code. The lab's
//! meter is the third (`make bench-meter`, whose table has both).

use std::collections::BTreeMap;
use std::fmt::Write;

use numamma_plan::check;

use crate::common::judge::{Object, Page, local};
use crate::common::{Tracing, alone, program};

const MIB: u64 = 1 << 20;
/// Samples from which on shares are compared: neighbouring pages are put together until they have as many.
const ENOUGH: u64 = 1000;
/// Bar of the shares of a thread, and of the local share of the placement.
const SHARES: f64 = 0.03;
const LOCAL: f64 = 0.02;

/// A program of tests/programs.
struct Case {
    name: &'static str,
    compiler: &'static str,
    source: &'static str,
    arguments: &'static [&'static str],
}

const fn case(
    compiler: &'static str,
    name: &'static str,
    source: &'static str,
    arguments: &'static [&'static str],
) -> Case {
    Case { name, compiler, source, arguments }
}

const SHORT: [Case; 2] =
    [case("gfortran", "lu", "programs/lu.f90", &["40"]), case("gfortran", "stencil", "programs/stencil.f90", &["60"])];
const LONG: [Case; 8] = [
    case("gfortran", "tiles", "programs/tiles.f90", &["500"]),
    case("gcc", "cluster", "programs/cluster.c", &["60", "8"]),
    case("gcc", "gather", "programs/gather.c", &["30"]),
    case("gcc", "firsttouch", "programs/firsttouch.c", &["200"]),
    case("gcc", "triangle", "programs/triangle.c", &["3000"]),
    case("gcc", "wavefront", "programs/wavefront.c", &["300"]),
    case("g++", "hashtable", "programs/hashtable.cpp", &["150", "8"]),
    case("g++", "particles", "programs/particles.cpp", &["400", "8"]),
];

/// How far the samples of a program are from the counts.
#[derive(Debug, Default)]
struct Shares {
    /// Groups of pages that have enough samples.
    groups: u32,
    /// Of them: the largest difference of a thread's share is within the bar; within it and twice the standard
    /// deviation of so many samples.
    within: u32,
    by_chance: u32,
    worst: f64,
    sum: f64,
}

impl Shares {
    fn compare(&mut self, expected: &BTreeMap<u32, f64>, sampled: &Page) {
        let n = sampled.total() as f64;
        let mut worst = 0.0_f64;
        let mut right = true;
        for thread in expected.keys().chain(sampled.by_thread.keys()) {
            let truth = expected.get(thread).copied().unwrap_or(0.0) / n;
            let off = (sampled.share(*thread) - truth).abs();
            right &= off <= SHARES + 2.0 * (truth * (1.0 - truth) / n).max(0.0).sqrt();
            worst = worst.max(off);
        }
        self.groups += 1;
        self.within += u32::from(worst <= SHARES);
        self.by_chance += u32::from(right);
        self.worst = self.worst.max(worst);
        self.sum += worst;
    }

    /// Of an object: pages in order, put together until they have enough samples. What is expected of a group are the
    /// counted shares of its pages, each page with its number of samples: how long an access to a page takes is not
    /// what counts say.
    fn object(&mut self, counted: &Object, sampled: &Object) {
        let counted = counted.by_page();
        let (mut expected, mut group) = (BTreeMap::<u32, f64>::new(), Page::default());
        for (number, page) in sampled.by_page() {
            let samples = page.total() as f64;
            if let Some(truth) = counted.get(&number) {
                truth.by_thread.keys().for_each(|t| *expected.entry(*t).or_default() += samples * truth.share(*t));
            }
            group.add(&page);
            if group.total() >= ENOUGH {
                self.compare(&std::mem::take(&mut expected), &std::mem::take(&mut group));
            }
        }
    }
}

/// A line of the table.
struct Judged {
    line: String,
    shares: Shares,
    /// What the placement is below the best one.
    below_best: f64,
}

fn judge(case: &Case) -> Judged {
    let tracing = Tracing::new(&format!("judge-{}", case.name));
    let traced = tracing.compile_for_counts(case.compiler, case.source, case.name);
    let plainly = program(case.name).to_str().expect("a name in UTF-8").to_owned();
    let counted = tracing.record("traced", &["--sampler", "trace"], &traced, case.arguments);
    let sampled = tracing.record("sampled", &["-F", "4000"], &plainly, case.arguments);
    let mut shares = Shares::default();
    for (name, object) in counted.objects.iter().filter(|(_, object)| object.size >= MIB) {
        if let Some(sampled) = sampled.objects.get(name) {
            shares.object(object, sampled);
        }
    }
    let advice = tracing.numamma(&["advise", "-q", "--nodes", "4", "--threads", "8", "sampled"]).success().stdout;
    let policy = check::parse(&advice).unwrap_or_else(|e| panic!("{e}\n{advice}"));
    let local = local(&counted, &sampled, &policy, MIB).unwrap_or_else(|e| panic!("{e}\n{advice}"));
    let percent = |part: u64| 100.0 * local.share(part);
    let mut line = String::new();
    let of = |n: u32| 100.0 * f64::from(n) / f64::from(shares.groups.max(1));
    let _ = write!(
        line,
        "| {} | {} | {:.1} | {:.0} | {:.0} | {:.1} | {:.1} | {:.1} | {:.1} |",
        case.name,
        shares.groups,
        100.0 * shares.sum / f64::from(shares.groups.max(1)),
        of(shares.within),
        of(shares.by_chance),
        100.0 * shares.worst,
        percent(local.first),
        percent(local.placed),
        percent(local.best),
    );
    let below_best = local.share(local.best) - local.share(local.placed);
    Judged { line, shares, below_best }
}

/// Recordings of which the placement of one must be near the best: what is detected in few samples differs by chance
/// (docs/measurements.md). All are printed.
const RECORDINGS: usize = 3;

/// Prints the table, and fails where a bar is missed that is not among `explained`, each with its reason in
/// docs/measurements.md.
fn table(cases: &[Case], explained: &[(&str, &str)]) {
    let _alone = alone();
    println!("| program | groups | mean off | within 3 | within 3 and chance | worst | first touch | placed | best |");
    let mut missed = Vec::new();
    for case in cases {
        let mut judged = judge(case);
        println!("{}", judged.line);
        for _ in 1..RECORDINGS {
            if judged.below_best <= LOCAL || explained.contains(&(case.name, "local")) {
                break;
            }
            let again = judge(case);
            println!("{} again", again.line);
            judged.below_best = judged.below_best.min(again.below_best);
        }
        let mut bar = |name, holds: bool| missed.extend((!holds).then_some((case.name, name)));
        bar("groups", judged.shares.groups > 0);
        bar("shares", f64::from(judged.shares.by_chance) >= 0.95 * f64::from(judged.shares.groups));
        bar("local", judged.below_best <= LOCAL);
    }
    missed.retain(|m| !explained.contains(m));
    assert!(missed.is_empty(), "missed: {missed:?}");
}

#[test]
fn samples_and_advice_by_exact_counts() {
    table(&SHORT, &[]);
}

#[test]
#[ignore = "long: make test-long"]
fn samples_and_advice_of_more_programs_by_exact_counts() {
    let explained = [
        ("cluster", "shares"),
        ("gather", "shares"),
        ("hashtable", "shares"),
        ("particles", "shares"),
        ("gather", "local"),
        ("hashtable", "local"),
    ];
    table(&LONG, &explained);
}
