//! Ranges of predictions against programs whose speed-up follows from their description: samples are drawn from the
//! description again and again, and the range of each draw has to cover the truth as often as it says.

use std::time::Instant;

use numamma_plan::machine::Thp;

use super::resample::{Groups, draws, range};
use super::{Demands, Placement, Spill, World};
use crate::advise::tests::{Random, entry, in_sequence, profile};
use crate::advise::{Advice, PolicyPrice, Target, advise, predict};
use crate::detect::classify_all;
use crate::profile::records::{AccessCode, AddressKind};
use crate::profile::summary::{Summary, TouchRun};
use crate::topology::caches::Caches;
use crate::topology::model::Model;

const PAGE: u64 = 4096;
const THREADS: u64 = 8;
/// Neighbouring pages with one first toucher.
const STRIPE: u64 = 8;
/// Of `profile`.
const PERIOD_NS: u64 = 4_000_000;
/// Instructions between two accesses.
pub(super) const GAP: u32 = 11;

/// What is true of a program that follows pointers through a block for each thread, on two nodes of four CPUs.
pub(super) struct Truth {
    /// Part of the CPU time that is charged to the object.
    pub charged: f64,
    /// Part of it that waits.
    pub waits: f64,
    /// One in so many stripes of the second node's blocks was touched first by the first node; those of the first node
    /// never by the second.
    pub one_in: u64,
}

impl Truth {
    /// The threads of the second node wait longest, twice as long for each remote page, and all wait for them at the
    /// end.
    fn speedup(&self) -> f64 {
        1.0 + self.charged * self.waits / self.one_in as f64
    }

    /// So many samples of it.
    pub fn drawn(&self, samples: u64, run: u64) -> Summary {
        let mut r = Random(run.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut count =
            |n: u64, part: f64| (0..n).filter(|_| (r.below(1 << 30) as f64) < part * f64::from(1 << 30)).count() as u64;
        let own = count(samples, self.charged);
        let behind = count(own, self.waits + (1.0 - self.waits) / f64::from(GAP));
        // The size seeds the places of the samples.
        let size = (1024 + 2 * STRIPE * THREADS * self.one_in * run) * PAGE;
        let mut e =
            in_sequence(entry("list", size, own * PERIOD_NS / 1_000_000, own, |at, _| (at * THREADS / size) as u32));
        e.details.access_code[0] = AccessCode {
            address: AddressKind::Chained,
            gap: GAP,
            behind,
            later: own - behind,
            ..e.details.access_code[0]
        };
        let far = |stripe: u64| stripe * STRIPE * PAGE * 2 >= size && !stripe.is_multiple_of(self.one_in);
        let touch = |stripe: u64| TouchRun {
            instance: 0,
            page: (stripe * STRIPE) as u32,
            pages: STRIPE as u32,
            thread: if far(stripe) { THREADS as u32 - 1 } else { 0 },
            time_ns: stripe,
        };
        e.touches = (0..size / PAGE / STRIPE).map(touch).collect();
        let mut summary = profile(THREADS as u32, "never", vec![e]);
        (summary.stats.cpu_ns, summary.stats.samples, summary.stats.achieved) = (samples * PERIOD_NS, samples, 1.0);
        summary
    }
}

pub(super) fn target() -> Target {
    let mut model = Model::uniform(2, THREADS as u32);
    (model.numa_balancing, model.caches) = (Some(false), Caches::NONE);
    Target::of(model, THREADS as u32, Thp::Never)
}

pub(super) fn advised(summary: &Summary) -> Advice {
    advise(summary, &classify_all(summary), &target()).unwrap()
}

/// The price of blocks, in which every page is where it is used.
fn of_blocks(summary: &Summary) -> PolicyPrice {
    let found = predict(summary, &classify_all(summary), &target(), &advised(summary), &[]).unwrap();
    assert_eq!(found.baseline, "first-touch");
    let base = &found.policies[0];
    assert!((base.low, base.high) == (Some(1.0), Some(1.0)), "a time over itself: {base:?}");
    found.policies.into_iter().find(|p| p.name == "block-naive").unwrap()
}

/// Runs are few, so that the share itself is a draw: 120 at 95 % are between 107 and 120 but once in a thousand times.
#[test]
fn ranges_cover_the_true_speed_up_as_often_as_they_say() {
    for truth in [
        Truth { charged: 0.4, waits: 0.6, one_in: 2 },
        Truth { charged: 0.9, waits: 0.9, one_in: 4 },
        Truth { charged: 0.3, waits: 0.3, one_in: 1 },
    ] {
        let (mut covered, mut widths) = (0, 0.0);
        for run in 1..=120 {
            let found = of_blocks(&truth.drawn(3_000, run));
            let (low, high) = (found.low.unwrap(), found.high.unwrap());
            assert!(low <= found.speedup && found.speedup <= high, "{found:?}");
            covered += u32::from((low..=high).contains(&truth.speedup()));
            widths += (high - low) / 120.0;
        }
        println!("true {:.3}: covered {covered} of 120, mean width {widths:.3}", truth.speedup());
        assert!((107..=120).contains(&covered), "{covered} of 120 cover {}", truth.speedup());
        assert!(widths < 0.2, "{widths}");
    }
}

/// Four times as many samples halve a range, and the same profile gives the same one.
#[test]
fn ranges_shrink_with_the_samples_and_are_fixed() {
    let truth = Truth { charged: 0.4, waits: 0.6, one_in: 2 };
    let width = |samples| {
        let each = |run| {
            of_blocks(&truth.drawn(samples, run)).high.unwrap() - of_blocks(&truth.drawn(samples, run)).low.unwrap()
        };
        (1..=10).map(each).sum::<f64>() / 10.0
    };
    let ratio = width(2_000) / width(8_000);
    assert!((1.6..2.4).contains(&ratio), "{ratio}");
    let summary = truth.drawn(2_000, 3);
    assert_eq!(of_blocks(&summary), of_blocks(&summary));
}

/// One page in sixty-four is remote: some draws show a gain above the limit by chance.
#[test]
fn what_may_be_chance_is_not_placed() {
    let truth = Truth { charged: 0.9, waits: 1.0, one_in: 32 };
    let (mut placed, mut open) = (0, 0);
    for run in 1..=60 {
        let advice = advised(&truth.drawn(400, run));
        match &advice.items[0].rule {
            Ok(_) => placed += 1,
            Err(why) if why.contains("too few to tell whether placing it pays") => open += 1,
            Err(_) => {}
        }
    }
    println!("placed {placed}, open {open} of 60");
    assert!(open >= 3, "{open} of 60");
    let sure = Truth { charged: 0.9, waits: 1.0, one_in: 2 };
    let advice = advised(&sure.drawn(400, 1));
    let why = advice.items[0].rule.as_ref().unwrap().why.clone().unwrap();
    let range = why.split("less waiting (").nth(1).unwrap_or_else(|| panic!("{why}"));
    let low: f64 = range.split(' ').next().unwrap().parse().unwrap();
    assert!((15.0..45.0).contains(&low), "{why}");
}

/// Prints what ranges cost beside all else that advice takes.
#[test]
#[ignore = "long: make test-long"]
fn time_that_ranges_take() {
    let truth = Truth { charged: 0.9, waits: 0.9, one_in: 2 };
    for samples in [3_000, 30_000, 300_000] {
        let summary = truth.drawn(samples, 1);
        let start = Instant::now();
        let advice = advised(&summary);
        let whole = start.elapsed();
        assert!(advice.items[0].rule.is_ok(), "{advice:#?}");
        let (roles, target) = (crate::detect::roles(&summary), target());
        let world = World::new(&summary, &roles, &target);
        let entry = &summary.entries[0];
        let demands = Demands::of(&world, entry, None);
        let start = Instant::now();
        for _ in 0..2 {
            let mut groups = Groups::sparse(&world, demands.list.len()).unwrap();
            let first = Placement::first_touch(&world, entry);
            groups.load().add(&demands, &first, &Spill::of(&world, &first.bytes(), &[]));
            assert!(groups.times(&draws()).iter().all(|time| *time > 0.0));
        }
        let ranges = start.elapsed();
        println!("{samples} samples: {whole:?} with ranges, which take {ranges:?}");
    }
}

/// A range from every third demand or fewer is as wide as one from all of them.
#[test]
fn some_of_many_samples_give_the_same_range() {
    let truth = Truth { charged: 0.9, waits: 0.9, one_in: 2 };
    let (mut all, mut some) = (0.0, 0.0);
    for run in 1..=20 {
        let summary = truth.drawn(40_000, run);
        let (roles, target) = (crate::detect::roles(&summary), target());
        let world = World::new(&summary, &roles, &target);
        let entry = &summary.entries[0];
        let demands = Demands::of(&world, entry, None);
        let first = Placement::first_touch(&world, entry);
        let width = |mut groups: Groups<'_>| {
            groups.load().add(&demands, &first, &Spill::of(&world, &first.bytes(), &[]));
            let found = range(0.0, &groups.times(&draws())).of_more(0.0, 1.0 / groups.taken());
            found.high - found.low
        };
        all += width(Groups::new(&world).unwrap());
        let sparse = Groups::sparse(&world, demands.list.len()).unwrap();
        assert!(sparse.taken() < 0.5, "{}", sparse.taken());
        some += width(sparse);
    }
    assert!((0.8..1.25).contains(&(some / all)), "{}", some / all);
}
