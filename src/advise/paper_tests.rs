//! The two programs of the NumaMMA paper (ICPP 2018), profiled with 32 threads, on its machine AMD48: four packages of
//! two nodes of six cores.
//!
//! The profiles are generated from what the paper says: sizes, shares of the samples, which thread works where; and
//! from the programs' sources: the loops go through their arrays in sequence (`jacld`, `blts` and `buts` of LU, `dist`
//! of Streamcluster). Nothing in the model knows these programs. What the paper does not say is assumed, and said at
//! each program.

use numamma_plan::policy::{Block, Huge, PolicyKind, Size};

use super::tests::{Random, entry, heap, in_sequence, numbered, profile};
use super::*;
use crate::detect::classify_all;
use crate::profile::summary::{Entry, TouchRun};
use crate::topology::caches::{Cache, CacheSource, Caches};
use crate::topology::model::Model;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const THREADS: u64 = 32;

/// Of an Opteron 6100: 512 KiB for each core, and 6 MiB for the six cores of a node, of which HT Assist takes 1 MiB
/// (AMD, BIOS and Kernel Developer's Guide for Family 10h).
fn opteron_caches() -> Caches {
    let (second, last) = (Cache { bytes: 512 << 10, cpus: 1 }, Cache { bytes: 5 << 20, cpus: 6 });
    Caches { second, last, source: CacheSource::Described }
}

/// Two channels of DDR3-1333 for a node at the part of their peak that the default assumes, HyperTransport 3 at 6.4
/// GT/s with 16 bits inside a package and 8 between packages, and the distances 10, 16 and 22 of such machines.
fn opteron_memory(model: &mut Model) {
    const CHANNELS: f64 = 0.8 * 2.0 * 10.667e9;
    for i in 0..8 {
        for j in 0..8 {
            let (distance, bandwidth) = match (i == j, i / 2 == j / 2, i % 2 == j % 2) {
                (true, ..) => (10.0, CHANNELS),
                (_, true, _) => (16.0, 12.8e9),
                (.., true) => (16.0, 6.4e9),
                _ => (22.0, 6.4e9),
            };
            model.latency[i][j] = crate::topology::model::DEFAULT_LATENCY_NS * distance / 10.0;
            model.bandwidth[i][j] = bandwidth;
        }
    }
}

fn amd48(thp: &str) -> Target {
    let mut model = crate::topology::synthetic::parse("pack:4 numa:2 core:6").unwrap().model().unwrap();
    model.caches = opteron_caches();
    Target::of(model, 48, target_machine::huge_pages(thp))
}

/// First touches in pieces of `step` bytes.
fn touched(mut e: Entry, step: u64, mut by: impl FnMut(u64) -> u32) -> Entry {
    let run = |i: u64| TouchRun {
        instance: 0,
        page: (i * step / PAGE) as u32,
        pages: (step.min(e.size - i * step) / PAGE) as u32,
        thread: by(i * step),
        time_ns: i,
    };
    e.touches = (0..e.size.div_ceil(step)).map(run).collect();
    e
}

/// The thread that works at `at` when every `whole` bytes are split over the threads in order.
fn split(at: u64, whole: u64) -> u32 {
    (at % whole * THREADS / whole) as u32
}

fn stack(cost: u64, samples: u64) -> Entry {
    let mut stack = entry("stack", 8 * MIB, cost, samples, |_, r| r.below(THREADS) as u32);
    stack.kind = ObjectKind::Stack;
    stack
}

/// NPB LU: `cvar` 58 % of the samples, `cexact` 23 %, `cjac` 10 %; what is left is taken for stack.
///
/// First touch is not in the paper. `cjac` is initialised by a parallel loop over the same index as the computation
/// (at the top of `ssor`), and `cvar` is assumed to be, so that with threads that stay where they are first touch
/// would be as good as the advice. The published time (102.53 s, against 81.05 s placed with threads bound) says that
/// it was not. So the threads are taken to have moved between initialisation and computation: each plane of `cvar` (1
/// MiB) was first touched by any thread. An assumption that explains the published order, not a measurement.
fn lu(thp: &str, samples: u64) -> Summary {
    let mut r = Random(41);
    let cvar = in_sequence(entry("cvar", 558 * MIB, 58, samples, |at, _| split(at, 160 * MIB)));
    let cjac = in_sequence(entry("cjac", 20 * MIB, 10, samples / 5, |at, _| split(at, 5 * MIB)));
    profile(
        THREADS as u32,
        thp,
        numbered(vec![
            touched(cvar, MIB, |_| r.below(THREADS) as u32),
            entry("cexact", 520, 23, samples / 10, |_, r| r.below(THREADS) as u32),
            touched(cjac, 5 * MIB / THREADS / PAGE * PAGE, |at| split(at, 5 * MIB)),
            stack(9, samples / 5),
        ]),
    )
}

/// PARSEC Streamcluster: 88 % of the samples on the stack; of the rest `block` has 66 % and `points` 31 %. The main
/// thread reads the input into both (`SimStream::read` and the loop in `streamCluster`), so it touches them first.
fn streamcluster(samples: u64) -> Summary {
    let points = in_sequence(entry("points", 6 * MIB, 37, samples / 3, |at, _| split(at, 6 * MIB)));
    let block = in_sequence(entry("block", 98 * MIB, 79, samples, |_, r| r.below(THREADS) as u32));
    profile(
        THREADS as u32,
        "never",
        numbered(vec![
            stack(880, samples),
            touched(heap(block, &[0x100, 0x200]), 98 * MIB, |_| 0),
            touched(heap(points, &[0x110, 0x200]), 6 * MIB, |_| 0),
        ]),
    )
}

fn advised(summary: &Summary, thp: &str) -> Advice {
    advise(summary, &classify_all(summary), &amd48(thp)).unwrap()
}

fn rule<'a>(advice: &'a Advice, name: &str) -> &'a ObjectRule {
    advice
        .items
        .iter()
        .find(|i| i.name == name)
        .and_then(|i| i.rule.as_ref().ok())
        .unwrap_or_else(|| panic!("{advice:#?}"))
}

/// The same objects, filled by the main thread: the case in which the block sizes matter.
fn filled_by_main(mut summary: Summary) -> Summary {
    for e in &mut summary.entries {
        e.touches = vec![TouchRun { instance: 0, page: 0, pages: (e.size / PAGE) as u32, thread: 0, time_ns: 0 }];
    }
    summary
}

#[test]
fn block_sizes_of_lu() {
    let block = |thp: &str, name: &str| {
        let advice = advised(&filled_by_main(lu(thp, 20_000)), thp);
        let rule = rule(&advice, name).clone();
        assert_eq!(rule.place.policy, PolicyKind::BlockCyclic, "{rule:#?}");
        assert_eq!(rule.place.nodes.as_deref(), Some("all"));
        assert!(rule.why.as_ref().unwrap().contains("priced: "), "{rule:#?}");
        rule.place.block
    };
    assert_eq!(block("always", "cvar"), Some(Block::Size(Size(20 * MIB))));
    assert_eq!(block("never", "cvar"), Some(Block::Size(Size(20 * MIB))));
    assert_eq!(block("never", "cjac"), Some(Block::Size(Size(640 << 10))));
}

/// The paper rounds `cjac`'s blocks up to 2 MiB, so that an eighth of it is where it is used.
#[test]
fn a_short_period_of_lu_costs_the_huge_pages() {
    let advice = advised(&filled_by_main(lu("always", 20_000)), "always");
    let place = |name: &str| rule(&advice, name).place.clone();
    assert_eq!((place("cvar").block, place("cvar").huge), (Some(Block::Size(Size(20 * MIB))), None));
    assert_eq!((place("cjac").block, place("cjac").huge), (Some(Block::Size(Size(640 << 10))), Some(Huge::Split)));
}

#[test]
fn lu_leaves_what_first_touch_does_right() {
    let advice = advised(&lu("never", 20_000), "never");
    assert_eq!(rule(&advice, "cvar").place.block, Some(Block::Size(Size(20 * MIB))));
    let cjac = advice.items.iter().find(|i| i.name == "cjac").unwrap();
    assert!(cjac.rule.as_ref().is_err_and(|e| e.contains("first touch is as good")), "{cjac:#?}");
}

#[test]
fn policies_of_streamcluster() {
    let advice = advised(&streamcluster(10_000), "never");
    assert_eq!(rule(&advice, "block").place.policy, PolicyKind::Interleave);
    let points = &rule(&advice, "points").place;
    assert_eq!((points.policy, points.block), (PolicyKind::Block, Some(Block::Size(Size(768 << 10)))));
}

#[test]
fn slices_of_less_than_a_huge_page_cost_the_huge_pages() {
    let mut summary = streamcluster(10_000);
    summary.header.thp = "always".into();
    let points = rule(&advised(&summary, "always"), "points").place.clone();
    assert_eq!((points.policy, points.block), (PolicyKind::Block, Some(Block::Size(Size(768 << 10)))));
    assert_eq!(points.huge, Some(Huge::Split));
}

/// The policies by time, fastest first.
fn order(summary: &Summary) -> Vec<(String, f64)> {
    let (patterns, target) = (classify_all(summary), amd48("never"));
    let advice = advise(summary, &patterns, &target).unwrap();
    let found = predict(summary, &patterns, &target, &advice, &[]).unwrap();
    println!("{:#?}", found.policies);
    // The made-up run is too short for the kernel to move pages, and what the published runs had is not known.
    let published = |name: &str| !["best possible", "first-touch, balanced"].contains(&name);
    let mut order: Vec<(String, f64)> =
        found.policies.into_iter().filter(|p| published(&p.name)).map(|p| (p.name, p.time)).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    assert!(order.windows(2).all(|w| w[0].1 < w[1].1 * 0.999), "no order among equals: {order:?}");
    order
}

fn names(order: &[(String, f64)]) -> Vec<&str> {
    order.iter().map(|(name, _)| name.as_str()).collect()
}

/// The order must not hang on the number of samples of the hottest object.
const SAMPLES: [u64; 4] = [5_000, 10_000, 20_000, 80_000];

/// Published: 81.05, 102.53, 106.86 and 109.88 s.
#[test]
fn lu_in_the_published_order() {
    for samples in SAMPLES {
        let order = order(&lu("never", samples));
        assert_eq!(names(&order), ["advised", "first-touch", "interleave", "block-naive"], "{samples}: {order:?}");
    }
}

/// Published: 73.32, 76.76, 79.75 and 93.72 s.
#[test]
fn streamcluster_in_the_published_order() {
    for samples in SAMPLES {
        let order = order(&streamcluster(samples));
        assert_eq!(names(&order), ["advised", "interleave", "block-naive", "first-touch"], "{samples}: {order:?}");
    }
}

/// Error of each predicted time over that of first touch against the published one, percent: on the machine of the
/// other tests, and on one of the documented figures of the Opteron. Nothing is fitted to them; they are in
/// docs/measurements.md. The bounds are what they are today, so that they do not grow unseen.
#[test]
fn errors_of_the_published_ratios() {
    let mut documented = amd48("never");
    opteron_memory(&mut documented.model);
    let programs = [
        ("LU", lu("never", 20_000), [("advised", 81.05), ("interleave", 106.86), ("block-naive", 109.88)], 102.53),
        (
            "Streamcluster",
            streamcluster(20_000),
            [("advised", 73.32), ("interleave", 76.76), ("block-naive", 79.75)],
            93.72,
        ),
    ];
    for (machine, target, most) in [("default figures", amd48("never"), 25.0), ("Opteron", documented, 60.0)] {
        for (program, summary, published, first) in &programs {
            let patterns = classify_all(summary);
            let advice = advise(summary, &patterns, &target).unwrap();
            let found = predict(summary, &patterns, &target, &advice, &[]).unwrap();
            for (policy, seconds) in published {
                let time = found.policies.iter().find(|p| p.name == *policy).unwrap().time;
                let error = 100.0 * (time / (seconds / first) - 1.0);
                println!(
                    "{machine}, {program}, {policy}: {time:.3}, published {:.3}, error {error:.1} %",
                    seconds / first
                );
                assert!(error.abs() <= most, "{machine}, {program}, {policy}: {error:.1} %");
            }
        }
    }
}
