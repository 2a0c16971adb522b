//! The counts of one side of a difference: samples of the run and of each object.

use super::Figure;
use super::intervals::Proportion;
use crate::detect;
use crate::merge::Many;
use crate::profile::summary::{ByOthers, Entry, Summary};

/// One side.
#[derive(Debug, Clone, Default)]
pub struct Side {
    /// Path of the program.
    pub program: String,
    /// Its build.
    pub build_id: Option<String>,
    /// Where it ran.
    pub host: String,
    /// Profiles that are summed up.
    pub profiles: usize,
    /// NUMA nodes of the machine.
    pub nodes: usize,
    /// Threads of a process.
    pub threads: usize,
    /// Length of the run, ns; of several the longest.
    pub duration_ns: u64,
    /// CPU time of all threads and processes, ns.
    pub cpu_ns: u64,
    /// CPU time at memory accesses, ns.
    pub cost_ns: u64,
    /// Samples taken.
    pub samples: f64,
    /// Samples whose CPU time went to an access.
    pub charged: f64,
    /// The accesses to all objects that can be placed.
    pub whole: Accesses,
    /// The objects, in the order of the profile.
    pub objects: Vec<Object>,
}

/// Counts of an object.
#[derive(Debug, Clone, Default)]
pub struct Object {
    /// CPU time at its accesses, ns.
    pub cost_ns: u64,
    /// Samples that this is.
    pub samples: f64,
    /// Its accesses.
    pub accesses: Accesses,
}

/// Shares of accesses, in samples that are independent of each other.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Accesses {
    /// Of those whose node is known, those on another node; none on one node.
    pub remote: Option<Proportion>,
    /// Of those whose page's first toucher is known, those by another thread; none where most are not known.
    pub by_others: Option<Proportion>,
}

impl Side {
    /// Counts a profile.
    pub fn of(many: &Many) -> Side {
        let summary = &many.whole;
        let (header, stats, total) = (&summary.header, &summary.stats, summary.total());
        let period = header.sampling.period_ns;
        let samples_of = |cost_ns: u64| if period > 0 { cost_ns as f64 / period as f64 } else { 0.0 };
        let charged = samples_of(total.cost_ns);
        let usual = per_sample(total.accesses(), charged);
        let mut side = Side {
            program: header.program.path.clone(),
            build_id: header.program.build_id.clone(),
            host: header.host.clone(),
            profiles: many.members.len(),
            nodes: header.topology.nodes.len(),
            threads: summary.threads.len(),
            duration_ns: stats.duration_ns,
            cpu_ns: stats.cpu_ns,
            cost_ns: total.cost_ns,
            samples: (stats.samples as f64).max(charged),
            charged,
            ..Side::default()
        };
        side.count(summary, usual, samples_of);
        side
    }

    fn count(&mut self, summary: &Summary, usual: f64, samples_of: impl Fn(u64) -> f64) {
        let roles = detect::roles(summary);
        let (mut remote, mut placed, mut others) = (0, 0, ByOthers::default());
        for entry in &summary.entries {
            let by = entry.by_others(None, |thread| roles.place(thread));
            let samples = samples_of(entry.total.cost_ns);
            let each = usual.max(per_sample(entry.total.accesses(), samples));
            self.objects.push(Object {
                cost_ns: entry.total.cost_ns,
                samples,
                accesses: self.accesses((entry.total.remote, entry.total.placed), &by, each),
            });
            if counts(entry) {
                (remote, placed) = (remote + entry.total.remote, placed + entry.total.placed);
                others.known += by.known;
                others.others += by.others;
                others.unknown += by.unknown;
            }
        }
        self.whole = self.accesses((remote, placed), &others, usual);
    }

    /// Accesses of one sample are seen together, so that only one of each counts as independent.
    fn accesses(&self, (remote, placed): (u64, u64), by: &ByOthers, each: f64) -> Accesses {
        let share = |part: u64, of: u64| Proportion::share(part as f64 / each, of as f64 / each);
        Accesses {
            remote: share(remote, placed).filter(|_| self.nodes > 1),
            by_others: by.known_to_most().and_then(|_| share(by.others, by.known)),
        }
    }
}

/// Whether the run's shares count the accesses to an object.
fn counts(entry: &Entry) -> bool {
    entry.placeable()
}

/// Accesses that one sample shows, at least 1.
fn per_sample(accesses: u64, samples: f64) -> f64 {
    (accesses as f64 / samples.max(1.0)).max(1.0)
}

/// The figures of an object of both sides; none stands for one that a side does not have.
pub(super) fn compared(a: &Side, b: &Side, before: Option<&Object>, after: Option<&Object>) -> super::Compared {
    let samples = |object: Option<&Object>| object.map_or(0.0, |o| o.samples);
    let share = |side: &Side, object| Proportion::share(samples(object), side.charged);
    let of = |object: Option<&Object>| object.map_or(Accesses::default(), |o| o.accesses);
    let (own, other) = (of(before), of(after));
    super::Compared {
        cost: Figure {
            share: (share(a, before), share(b, after)),
            amount: (a.seconds(samples(before)), b.seconds(samples(after))),
        },
        remote: Figure::of_shares(own.remote, other.remote),
        by_others: Figure::of_shares(own.by_others, other.by_others),
    }
}

/// The figures of the runs.
pub(super) fn whole(a: &Side, b: &Side) -> super::Compared {
    let share = |side: &Side| Proportion::share(side.charged, side.samples);
    super::Compared {
        cost: Figure { share: (share(a), share(b)), amount: (a.seconds(a.charged), b.seconds(b.charged)) },
        remote: Figure::of_shares(a.whole.remote, b.whole.remote),
        by_others: Figure::of_shares(a.whole.by_others, b.whole.by_others),
    }
}

impl Side {
    /// CPU time of so many samples; none of a side without any.
    fn seconds(&self, samples: f64) -> Option<Proportion> {
        (self.charged > 0.0).then(|| Proportion::count(samples, self.cost_ns as f64 / self.charged / 1e9))
    }
}
