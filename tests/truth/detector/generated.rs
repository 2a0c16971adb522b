//! The bars over generated traces.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use numamma::detect::{Pattern, PatternKind, classify, samples_needed};

use super::plan::Plan;
use super::random::Random;
use super::trace::PAGE;
use crate::common::beside_others;
use crate::seeds::on_all_cores;

/// Bars of the project: class right, period right, the worst class, false block-cyclic among random.
const CLASS_BAR: f64 = 0.99;
const PERIOD_BAR: f64 = 0.99;
const WORST_BAR: f64 = 0.97;
const FALSE_BAR: f64 = 0.001;
/// Verdicts that say "not enough samples" where samples are too few may be this share.
const UNSURE_BAR: f64 = 0.05;
/// Verdicts with at least this confidence must be right this often.
const SURE: f64 = 0.9;
const SURE_BAR: f64 = 0.99;

/// Traces of the short test of all classes: the bars are shares of each class, so few traces say little.
const ALL_CLASSES: u64 = 1000;
/// Traces of the short test of one class.
const ONE_CLASS: u64 = 500;
/// Traces of the long tests unless `NUMAMMA_TRUTH_TRACES` asks for others.
const LONG: u64 = 2000;
/// Distance of the seeds of the two tests.
const APART: u64 = 1_000_000;

/// Number of traces and first seed of the long tests.
fn asked() -> (u64, u64) {
    let number = |name, default| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    (number("NUMAMMA_TRUTH_TRACES", LONG), number("NUMAMMA_TRUTH_SEED", 1))
}

fn short(plan: &Plan, got: &Pattern) -> String {
    let flag = |set: bool, word: &'static str| if set { word } else { "" };
    format!(
        "seed {} {:?} T={}/{} pages={} n={} noise={:.2} period={:?}{}{}{}{} x{} -> {:?} {:.2} period={:?}: {}",
        plan.seed,
        plan.kind,
        plan.order.len(),
        plan.threads,
        plan.pages,
        plan.samples,
        plan.noise,
        plan.period,
        flag(plan.permuted, " permuted"),
        flag(plan.unequal, " unequal"),
        flag(plan.initialised, " init"),
        flag(plan.rows.is_some(), " rows"),
        plan.instances,
        got.kind,
        got.confidence,
        got.period.map(|p| p as f64 / PAGE as f64),
        got.evidence
    )
}

/// How verdicts compared with the truth.
#[derive(Default)]
struct Score {
    /// Per class: traces, right.
    classes: BTreeMap<&'static str, (u64, u64)>,
    wrong: Vec<String>,
    /// Periods that the data determine, those not exact, those more than 1 % off (of all).
    determined: u64,
    inexact: Vec<String>,
    periods: u64,
    off: Vec<String>,
    unsure: u64,
    sure: u64,
    sure_wrong: Vec<String>,
    false_cyclic: u64,
    slow: (Duration, u64),
    classify: Duration,
}

impl Score {
    fn add(&mut self, plan: &Plan, got: &Pattern, took: Duration) {
        self.slow = self.slow.max((took, plan.seed));
        self.classify += took;
        let few = f64::from(plan.samples) < samples_needed(plan.order.len());
        if few && got.kind == PatternKind::Unsure {
            self.unsure += 1;
            return;
        }
        let right = got.kind == plan.kind && got.group.is_some() == plan.rows.is_some();
        let class = self.classes.entry(plan.kind.as_str()).or_default();
        *class = (class.0 + 1, class.1 + u64::from(right));
        self.false_cyclic += u64::from(plan.kind == PatternKind::Random && got.kind == PatternKind::BlockCyclic);
        let sure = got.confidence >= SURE && got.kind != PatternKind::Unsure;
        self.sure += u64::from(sure);
        if !right {
            self.wrong.push(short(plan, got));
            if sure {
                self.sure_wrong.push(short(plan, got));
            }
            return;
        }
        let Some(period) = plan.period else { return };
        let (want, found) = (u64::from(period) * PAGE, got.period.unwrap_or(0));
        self.periods += 1;
        if want.abs_diff(found) as f64 > 0.01 * want as f64 {
            self.off.push(short(plan, got));
        }
        if plan.period_is_determined() {
            self.determined += 1;
            if found != want {
                self.inexact.push(short(plan, got));
            }
        }
    }

    fn print(&self, name: &str, elapsed: Duration) {
        let (all, right) = self.classes.values().fold((0, 0), |s, c| (s.0 + c.0, s.1 + c.1));
        eprintln!(
            "{name}: {right} of {all} right, {} unsure for want of samples; periods: {} of {} over 1 % off, {} of {} \
             determined ones inexact; {} of {} sure verdicts wrong; {} random called block-cyclic; {elapsed:.1?}, detection \
             {:.1?} in all, slowest {:.1?} (seed {})",
            self.unsure,
            self.off.len(),
            self.periods,
            self.inexact.len(),
            self.determined,
            self.sure_wrong.len(),
            self.sure,
            self.false_cyclic,
            self.classify,
            self.slow.0,
            self.slow.1
        );
        for (class, (n, right)) in &self.classes {
            eprintln!("  {class}: {right} of {n}");
        }
        let lists = [("wrong", &self.wrong), ("off", &self.off), ("inexact", &self.inexact)];
        for (what, list) in lists {
            list.iter().for_each(|line| eprintln!("  {what}: {line}"));
        }
    }
}

/// Classifies the traces of the seeds on all cores.
fn run(seeds: std::ops::Range<u64>, draw: impl Fn(u64) -> (Plan, Random) + Sync) -> (Score, Duration) {
    let (score, start) = (Mutex::new(Score::default()), Instant::now());
    on_all_cores(seeds, |seed| {
        let (plan, mut r) = draw(seed);
        let view = plan.view(&mut r);
        let start = Instant::now();
        let got = classify(&view);
        let took = start.elapsed();
        score.lock().expect("no panic while scoring").add(&plan, &got, took);
    });
    (score.into_inner().expect("no panic while scoring"), start.elapsed())
}

/// `bad` of `all` keeps a bar.
fn within(bad: usize, all: u64, bar: f64) -> bool {
    bad as f64 <= (1.0 - bar) * all as f64
}

/// `traces` traces of all classes, from seed `first`.
fn keep_the_bars(traces: u64, first: u64) {
    let _beside = beside_others();
    let (score, elapsed) = run(first..first + traces, Plan::draw);
    score.print("all classes", elapsed);
    let judged: u64 = score.classes.values().map(|c| c.0).sum();
    assert!(within(score.wrong.len(), judged, CLASS_BAR), "{} of {judged} of the wrong class", score.wrong.len());
    for (class, (n, right)) in &score.classes {
        assert!(within((n - right) as usize, *n, WORST_BAR), "{class}: only {right} of {n} right");
    }
    assert!(within(score.off.len(), score.periods, PERIOD_BAR), "{} of {} periods", score.off.len(), score.periods);
    let inexact = score.inexact.len();
    assert!(within(inexact, score.determined, PERIOD_BAR), "{inexact} of {} periods inexact", score.determined);
    assert!(within(score.sure_wrong.len(), score.sure, SURE_BAR), "{:#?}", score.sure_wrong);
    assert!(score.unsure as f64 <= UNSURE_BAR * traces as f64, "{} of {traces} unsure", score.unsure);
}

/// `traces` traces without structure: a block-cyclic policy for such an object costs what interleaving would have
/// saved.
fn random_is_not_cyclic(traces: u64, first: u64) {
    let _beside = beside_others();
    let (score, elapsed) = run(first..first + traces, |seed| Plan::of(PatternKind::Random, seed));
    score.print("random", elapsed);
    assert!(score.false_cyclic as f64 <= FALSE_BAR * traces as f64, "{} of {traces}", score.false_cyclic);
    assert!(within(score.wrong.len(), traces, CLASS_BAR), "{} of {traces} wrong", score.wrong.len());
}

#[test]
fn generated_traces() {
    keep_the_bars(ALL_CLASSES, 1);
}

#[test]
fn random_is_not_called_block_cyclic() {
    random_is_not_cyclic(ONE_CLASS, APART);
}

#[test]
#[ignore = "long: make test-long"]
fn many_generated_traces() {
    let (traces, first) = asked();
    keep_the_bars(traces, first);
}

#[test]
#[ignore = "long: make test-long"]
fn random_is_not_called_block_cyclic_in_many_traces() {
    let (traces, first) = asked();
    random_is_not_cyclic(traces, first + APART);
}
