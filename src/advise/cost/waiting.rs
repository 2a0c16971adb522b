//! How much of the CPU time charged to an object waits, and how many lines are under way meanwhile, from the code that
//! makes the accesses.
//!
//! *Waiting*: a sample lies right behind an instruction that waits, and anywhere in code that computes. So the samples
//! charged to an access that lie at later instructions tell what an instruction takes without waiting; so much of those
//! right behind the access is issue, too, and the rest is waiting.
//!
//! *Lines*: an address that registers count up is known long before the access, so a core fetches as many lines as it
//! has buffers, or as its prefetchers are measured to. An address that the loop loads is known as soon as that load is
//! done, for as many turns of the loop as the core looks ahead. An address that is loaded through a loaded address is
//! known when the one before has arrived, so one line is under way.

use super::resample::{GROUPS, mixed, spread};
use super::turns::{Turn, Turns};
use super::{LINE_BYTES, World};
use crate::profile::records::{AccessCode, AddressKind};
use crate::profile::summary::Entry;
use crate::topology::model::{ModelNode, Source};

/// Line fill buffers of the first-level data cache, the most lines that a core fetches at a time: 10 (Intel 64 and
/// IA-32 Optimization Reference Manual, Sandy Bridge to Skylake; 12 from Ice Lake on).
pub(super) const FILL_BUFFERS: f64 = 10.0;
/// Instructions that a core looks ahead: entries of the reorder buffer (224: same manual, Skylake; Zen 2 has the same
/// number by AMD's Software Optimization Guide for Family 17h).
const WINDOW: f64 = 224.0;
/// Lines of code of which nothing is known: the geometric middle of the bounds, 1 and [`FILL_BUFFERS`].
pub(super) const UNKNOWN_LINES: f64 = 3.162_277_66;
/// Part of the time charged to code of which nothing is known that waits: the upper bound.
pub(super) const UNKNOWN_WAITING: f64 = 1.0;

/// Lines under way while an access waits; `swept` where its addresses are counted up.
fn lines(code: &AccessCode, swept: f64) -> f64 {
    match code.address {
        AddressKind::Unknown => UNKNOWN_LINES,
        AddressKind::Counted => swept,
        AddressKind::Loaded => (WINDOW / f64::from(code.body.max(1))).clamp(1.0, FILL_BUFFERS),
        AddressKind::Chained | AddressKind::Spun => 1.0,
    }
}

/// What the samples of an access tell.
struct Told {
    seed: u64,
    behind: f64,
    later: f64,
    /// The samples that lie right behind without waiting, and from what they are known; none where that is not known.
    turn: Option<Turn>,
}

impl Told {
    fn of(code: &AccessCode, turns: &Turns) -> Told {
        let (behind, later) = (code.behind as f64, code.later as f64);
        // The samples decide, too: the ranges of two runs are two draws.
        let seed = code.frame.offset;
        let own = (code.gap > 1).then(|| Turn { seed, later, others: f64::from(code.gap - 1) });
        Told { seed, behind, later, turn: own.or_else(|| turns.at(code.frame)) }
    }

    /// Part that waits. Where nothing tells what the instruction takes without waiting, as outside of loops, all that
    /// lies right behind it does: the upper bound.
    fn waiting(&self) -> f64 {
        let issue = self.turn.map_or(0.0, |turn| turn.later / turn.others);
        let all = self.behind + self.later;
        if all > 0.0 { (self.behind - issue).max(0.0) / all } else { UNKNOWN_WAITING }
    }

    fn is_known(&self) -> bool {
        self.turn.is_some() && self.behind + self.later > 0.0
    }

    /// The part that a random group of the samples tells, for each group; the mean is [`Told::waiting`].
    fn by_group(&self) -> [f64; GROUPS] {
        let (part, all) = (self.waiting(), self.behind + self.later);
        if part <= 0.0 || all <= 0.0 {
            return [part; GROUPS];
        }
        let issue = self.turn.map_or([0.0; GROUPS], |turn| {
            spread(mixed(turn.seed, turn.later as u64), turn.later, turn.later / turn.others)
        });
        let (near, far) = (
            spread(mixed(!self.seed, self.behind as u64), self.behind, self.behind),
            spread(mixed(self.seed, self.later as u64), self.later, self.later),
        );
        // The number of samples in a group counts with the accesses, so only their places do here.
        let scale = GROUPS as f64 / all;
        std::array::from_fn(|g| part + scale * (near[g] - issue[g] - part * (near[g] + far[g])))
    }
}

impl World<'_> {
    /// Lines that are fetched while one access to an entry waits.
    pub fn lines_in_flight(&self, entry: &Entry) -> f64 {
        let swept = self.swept_lines();
        entry.mean_of_code(|code| lines(code, swept)).unwrap_or(UNKNOWN_LINES)
    }

    /// Lines that a core of the target has under way in a sweep: what the buffers of its first level hold, or more
    /// where the bandwidth of a node is measured, which its CPUs reach together by reading in sequence. Each of them
    /// then has at least its share of the bandwidth times the latency under way (Little's law), by the prefetchers of
    /// farther caches.
    pub fn swept_lines(&self) -> f64 {
        let model = self.model();
        if (model.latency_source, model.bandwidth_source) != (Source::Measured, Source::Measured) {
            return FILL_BUFFERS;
        }
        let with_cpus = model.nodes.iter().enumerate().filter(|(_, node)| !node.cpus.is_empty() && node.memory > 0);
        let under_way = |(n, node): (usize, &ModelNode)| {
            model.bandwidth[n][n] / node.cpus.len() as f64 * model.latency[n][n] * 1e-9 / LINE_BYTES
        };
        with_cpus.map(under_way).fold(FILL_BUFFERS, f64::max)
    }

    fn turns(&self) -> &Turns {
        self.turns.get_or_init(|| Turns::of(&self.summary.entries))
    }

    /// The instructions that access an entry with their cost, and what is told of them.
    fn told<'e>(&'e self, entry: &'e Entry) -> impl Iterator<Item = (f64, Option<Told>)> + 'e {
        entry.details.code.iter().map(|(frame, counters)| {
            let code = entry.details.access_code.iter().find(|code| code.frame == *frame);
            (counters.cost_ns as f64, code.map(|code| Told::of(code, self.turns())))
        })
    }

    /// What a random group of the samples tells of [`World::stalled_part`], over what all of them tell: the places of
    /// samples behind an access are a draw, too. 1 where all time is taken to wait.
    pub fn waiting_by_group(&self, entry: &Entry) -> [f64; GROUPS] {
        let (mut sums, mut weights) = ([0.0; GROUPS], 0.0);
        for (cost, told) in self.told(entry) {
            let parts = told.as_ref().map_or([UNKNOWN_WAITING; GROUPS], Told::by_group);
            sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += cost * part);
            weights += cost * told.as_ref().map_or(UNKNOWN_WAITING, Told::waiting);
        }
        if weights > 0.0 { sums.map(|sum| sum / weights) } else { [1.0; GROUPS] }
    }

    /// Part of the CPU time charged to an entry that waits, for memory or for a cache.
    pub fn stalled_part(&self, entry: &Entry) -> f64 {
        let waiting = |told: Option<Told>| told.map_or(UNKNOWN_WAITING, |told| told.waiting());
        let add = |sum: (f64, f64), (cost, told)| (sum.0 + cost * waiting(told), sum.1 + cost);
        let (sum, weights) = self.told(entry).fold((0.0, 0.0), add);
        if weights > 0.0 { sum / weights } else { UNKNOWN_WAITING }
    }

    /// Share of the charged CPU time of which the code is known, 0 to 1.
    pub fn known_code(&self) -> f64 {
        let (mut known, mut all) = (0.0, 0.0);
        for entry in self.summary.entries.iter().filter(|e| self.waits(e)) {
            let charged = self.charged(entry);
            let (mut told, mut of) = (0.0, 0.0);
            for (cost, code) in self.told(entry) {
                told += if code.is_some_and(|code| code.is_known()) { cost } else { 0.0 };
                of += cost;
            }
            all += charged;
            known += if of > 0.0 { charged * told / of } else { 0.0 };
        }
        if all > 0.0 { known / all } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::records::Frame;

    fn code(address: AddressKind, body: u32, gap: u32, behind: u64, later: u64) -> AccessCode {
        AccessCode { frame: Frame { module: 0, offset: 0 }, address, body, gap, behind, later }
    }

    #[test]
    fn lines_by_the_way_to_the_address() {
        let of = |address, body| lines(&code(address, body, 1, 0, 0), FILL_BUFFERS);
        assert_eq!(of(AddressKind::Chained, 4), 1.0);
        assert_eq!(of(AddressKind::Counted, 400), 10.0, "prefetched");
        assert_eq!(of(AddressKind::Loaded, 5), 10.0, "45 turns are looked ahead, but there are 10 buffers");
        assert_eq!(of(AddressKind::Loaded, 56), 4.0);
        assert_eq!(of(AddressKind::Loaded, 1_000), 1.0);
        assert!((UNKNOWN_LINES * UNKNOWN_LINES - FILL_BUFFERS).abs() < 1e-6);
    }

    /// A machine of two nodes of two CPUs, of which each node is measured to deliver 35 GB/s at 150 ns.
    #[test]
    fn a_measured_bandwidth_says_how_many_lines_a_core_has_under_way() {
        let summary = crate::advise::tests::profile(4, "never", Vec::new());
        let roles = crate::detect::Roles::in_order(4);
        let lines = |bandwidth: f64, source| {
            let mut model = crate::topology::model::Model::uniform(2, 4);
            (0..2).for_each(|n| (model.latency[n][n], model.bandwidth[n][n]) = (150.0, bandwidth));
            (model.latency_source, model.bandwidth_source) = (Source::Measured, source);
            let target = crate::advise::Target::of(model, 4, crate::advise::target_machine::huge_pages("never"));
            World::new(&summary, &roles, &target).swept_lines()
        };
        assert!((lines(35e9, Source::Measured) - 17.5 * 150.0 / 64.0).abs() < 1e-6, "each CPU reads 17.5 GB/s");
        assert_eq!(lines(5e9, Source::Measured), FILL_BUFFERS, "the controller was busy, and the cores were not");
        assert_eq!(lines(35e9, Source::Default), FILL_BUFFERS, "the default says nothing of the cores");
    }

    #[test]
    fn waiting_is_what_lies_right_behind_beyond_an_instruction_s_share() {
        let of = |gap, behind, later| {
            let told = Told::of(&code(AddressKind::Counted, 20, gap, behind, later), &Turns::default());
            (told.waiting(), told.is_known())
        };
        // Ten instructions that each take 1 of 10: nothing waits.
        assert_eq!(of(10, 100, 900), (0.0, true));
        assert_eq!(of(10, 1_000, 0), (1.0, true));
        // 9 instructions take 100 each, and so does the tenth; 500 of 1,500 wait.
        assert_eq!(of(10, 600, 900), (500.0 / 1_500.0, true));
        // Alone, or outside of loops, at most what lies right behind.
        assert_eq!((of(1, 10, 0), of(0, 10, 30), of(5, 0, 0)), ((1.0, false), (0.25, false), (1.0, false)));
    }

    /// An access right before another one has no instruction of its own that would tell what one takes: the rest of the
    /// loop does, and no other loop.
    #[test]
    fn an_access_right_before_another_one_is_measured_by_its_loop() {
        let at = |offset, gap, behind, later| AccessCode {
            frame: Frame { module: 0, offset },
            ..code(AddressKind::Counted, 7, gap, behind, later)
        };
        // The loop of 7 instructions: 100 samples at each of the four that access nothing.
        let list = [at(0x10, 2, 400, 100), at(0x19, 1, 900, 0), at(0x1e, 4, 100, 300), at(0x40, 7, 600, 6_000)];
        let mut entry = crate::advise::tests::entry("a", 4096, 1, 1, |_, _| 0);
        entry.details.access_code = list.to_vec();
        let turns = Turns::of(&[entry]);
        let waiting = |code: &AccessCode| Told::of(code, &turns).waiting();
        assert_eq!(list.each_ref().map(waiting), [0.6, 800.0 / 900.0, 0.0, 0.0]);
        assert!(Told::of(&list[1], &turns).is_known());
        let mut far = crate::advise::tests::entry("b", 4096, 1, 1, |_, _| 0);
        far.details.access_code = vec![at(0x19, 1, 900, 0), at(0x40, 2, 400, 100)];
        assert_eq!(Turns::of(&[far]).at(list[1].frame), None, "more bytes away than an instruction has");
    }

    #[test]
    fn groups_tell_of_places_of_samples_and_not_of_their_number() {
        let told = |gap, behind, later| {
            let turns = Turns::default();
            let groups = Told::of(&code(AddressKind::Counted, 20, gap, behind, later), &turns).by_group();
            let mean = groups.iter().sum::<f64>() / GROUPS as f64;
            (mean, (groups.iter().map(|part| (part - mean).powi(2)).sum::<f64>() / (GROUPS as f64 - 1.0)).sqrt())
        };
        assert_eq!(told(1, 5_000, 0), (1.0, 0.0), "all of them wait, however many a group has");
        let (mean, deviation) = told(11, 6_000, 4_000);
        assert!((mean - 0.56).abs() < 1e-9, "{mean}");
        // A binomial share of 0.6, times 1 + 1 / 10, in 10,000 / 32 samples.
        let wanted = 1.1 * (0.6 * 0.4 * GROUPS as f64 / 10_000.0).sqrt();
        assert!((0.7..1.4).contains(&(deviation / wanted)), "{deviation} instead of {wanted}");
    }
}
