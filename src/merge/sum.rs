//! Processes laid over each other: the accesses of the same thread to the same page of the same object are one cell.
//!
//! Each process has an address space of its own and is placed by itself, so slices and owners are those of one process;
//! several processes that do alike are more samples of it.

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxHashMap;

use super::catalog::{Catalog, Process, RUN, scaled};
use super::cells::{Cells, Thinning};
use super::object::Sum;
use crate::profile::records::{Ended, Frame, Header, Idle, KernelCost, Location, Stats, Thread, ThreadId};
use crate::profile::summary::{CallStacks, SpinTally, Summary, rank};

/// Cells kept of all objects together, their parts by code included: 60 bytes each, and as many as one profile may
/// have.
const MOST_CELLS: usize = 1 << 21;

/// Most halvings of the cells.
const LEAST_PART: u32 = 32;

/// The sum of some processes.
#[derive(Debug)]
pub(super) struct Processes {
    header: Header,
    stats: Stats,
    /// Of all of them, see [`Summary::idle`].
    idle: Idle,
    /// Samples that were expected, and the sums that means are made of.
    expected: f64,
    period_sum: f64,
    cost_sum: f64,
    ending: Option<Ended>,
    threads: BTreeMap<ThreadId, Thread>,
    objects: BTreeMap<u32, Sum>,
    spinning: SpinTally,
    count: u32,
    thinning: Thinning,
    /// Cells after the last count.
    cells: usize,
}

impl Processes {
    /// A sum without processes, with the header of one that will be added.
    pub fn new(header: Header) -> Processes {
        Processes {
            header,
            stats: Stats::default(),
            idle: Idle::default(),
            expected: 0.0,
            period_sum: 0.0,
            cost_sum: 0.0,
            ending: Some(Ended::Exited(0)),
            threads: BTreeMap::new(),
            objects: BTreeMap::new(),
            spinning: SpinTally::default(),
            count: 0,
            thinning: Thinning::default(),
            cells: 0,
        }
    }

    /// Adds a process, whose names the catalog has.
    pub fn add(&mut self, process: &Process, symbols: &HashMap<Frame, Vec<Location>>) {
        let Process { summary, objects } = process;
        self.count += 1;
        self.add_stats(&summary.header, &summary.stats);
        self.add_idle(summary);
        self.ending = worse(self.ending, summary.ending);
        summary.threads.iter().for_each(|t| self.add_thread(t));
        summary.spinning.cells.iter().for_each(|c| self.spinning.add(c.thread, c.slot, &c.counters));
        let mut cells = 0;
        for (entry, &object) in summary.entries.iter().zip(objects) {
            let sum = self.objects.entry(object).or_insert_with(|| Sum::like(entry));
            let before = sum.len();
            sum.add(entry, symbols, |cell| self.thinning.keeps(object, cell));
            cells += sum.len().saturating_sub(before);
        }
        self.cells += cells;
        if self.cells > MOST_CELLS {
            self.thin();
        }
    }

    /// Adds a sum of processes.
    pub fn absorb(&mut self, process: &Sums, symbols: &HashMap<Frame, Vec<Location>>) {
        self.thinning.level = self.thinning.level.max(process.thinning.level);
        let before = self.count;
        self.add(&process.process, symbols);
        self.count = before + process.process.summary.profiles;
    }

    /// The sum as if it were one process.
    pub fn as_process(&mut self) -> Sums {
        let (header, stats) = (self.header(), self.stats());
        let entries = self.objects.values_mut().map(Sum::as_entry).collect();
        let objects = self.objects.keys().copied().collect();
        let summary = Summary {
            header,
            modules: Vec::new(),
            threads: self.threads.values().cloned().collect(),
            symbols: HashMap::new(),
            stacks: CallStacks::default(),
            entries,
            stays: Vec::new(),
            spinning: self.spinning.finish(Some),
            shared_lines: Vec::new(),
            stats,
            ending: self.ending,
            rank: None,
            profiles: self.count,
            notes: Vec::new(),
        };
        Sums { process: Process { summary, objects }, thinning: self.thinning }
    }

    /// The header, with the means of how the processes were sampled.
    fn header(&self) -> Header {
        let (samples, mut header) = (self.stats.samples as f64, self.header.clone());
        if samples > 0.0 {
            header.sampling.period_ns = (self.period_sum / samples) as u64;
            header.sampling.cost_ns = (self.cost_sum / samples) as u64;
        }
        header
    }

    fn stats(&self) -> Stats {
        let achieved = if self.expected > 0.0 { self.stats.samples as f64 / self.expected } else { 0.0 };
        Stats { achieved, ..self.stats }
    }

    /// Leaves out as many cells as needed.
    fn thin(&mut self) {
        self.objects.values_mut().for_each(Sum::settle);
        loop {
            self.cells = self.objects.values().map(Sum::len).sum();
            if self.cells <= MOST_CELLS * 3 / 4 || self.thinning.level >= LEAST_PART {
                return;
            }
            self.thinning.level += 1;
            let thinning = self.thinning;
            self.objects.iter_mut().for_each(|(object, sum)| sum.thin(*object, thinning));
        }
    }

    fn add_thread(&mut self, thread: &Thread) {
        match self.threads.get_mut(&thread.id) {
            None => {
                self.threads.insert(thread.id, thread.clone());
            }
            Some(known) => {
                known.samples = known.samples.saturating_add(thread.samples);
                known.migrations = known.migrations.saturating_add(thread.migrations);
                match (&mut known.waits, &thread.waits) {
                    (Some(known), Some(own)) => known.add(own),
                    (known, own) => *known = known.or(*own),
                }
                known.cpus.extend(&thread.cpus);
                known.cpus.sort_unstable();
                known.cpus.dedup();
            }
        }
    }

    fn add_stats(&mut self, header: &Header, s: &Stats) {
        let sum = &mut self.stats;
        sum.duration_ns = sum.duration_ns.max(s.duration_ns);
        sum.achieved = 0.0;
        for (total, own) in [
            (&mut sum.cpu_ns, s.cpu_ns),
            (&mut sum.samples, s.samples),
            (&mut sum.resolved, s.resolved),
            (&mut sum.lost, s.lost),
            (&mut sum.no_access, s.no_access),
            (&mut sum.unresolved, s.unresolved),
            (&mut sum.vsib, s.vsib),
            (&mut sum.undecoded, s.undecoded),
            (&mut sum.own, s.own),
            (&mut sum.tls, s.tls),
            (&mut sum.faults, s.faults),
            (&mut sum.faults_lost, s.faults_lost),
            (&mut sum.alloc_events, s.alloc_events),
            (&mut sum.alloc_lost, s.alloc_lost),
            (&mut sum.recorder_cpu_ns, s.recorder_cpu_ns),
            (&mut sum.events.faults_sampled, s.events.faults_sampled),
            (&mut sum.events.thinned_ns, s.events.thinned_ns),
            (&mut sum.events.unseen_ns, s.events.unseen_ns),
            (&mut sum.events.mappings_lost, s.events.mappings_lost),
            (&mut sum.events.starts_lost, s.events.starts_lost),
        ] {
            *total = total.saturating_add(own);
        }
        sum.events.fault_ns = sum.events.fault_ns.max(s.events.fault_ns);
        if let Some(KernelCost { faults_ns, mappings_ns }) = s.events.kernel {
            let total = sum.events.kernel.get_or_insert_default();
            total.faults_ns = total.faults_ns.saturating_add(faults_ns);
            total.mappings_ns = total.mappings_ns.saturating_add(mappings_ns);
        }
        sum.events.fault_period = sum.events.fault_period.max(s.events.fault_period);
        let samples = s.samples as f64;
        self.expected += if s.achieved > 0.0 { samples / s.achieved } else { samples };
        self.period_sum += samples * header.sampling.period_ns as f64;
        self.cost_sum += samples * header.sampling.cost_ns as f64;
        self.header.started_unix = self.header.started_unix.min(header.started_unix);
    }

    fn add_idle(&mut self, summary: &Summary) {
        let own = summary.idle();
        self.idle.idle_ns = self.idle.idle_ns.saturating_add(own.idle_ns);
        self.idle.waited_ns = self.idle.waited_ns.saturating_add(own.waited_ns);
        // Of earlier profiles the sum knows no more than each of them.
        if summary.stats.events.idle.is_some() || self.stats.events.idle.is_some() {
            self.stats.events.idle = Some(self.idle);
        }
    }

    /// The sum as one profile.
    pub fn finish(self, catalog: &Catalog) -> Summary {
        let (header, stats) = (self.header(), self.stats());
        let run = self.stats.duration_ns;
        let ns = |part: u64| scaled(part, RUN, run);
        let (threads, number) = numbered(self.threads, &ns);
        let mut entries: Vec<_> = self.objects.into_values().map(|sum| sum.finish(&number, &ns)).collect();
        rank(&mut entries);
        let mut notes = Vec::new();
        if self.thinning.level > 0 {
            notes.push(format!(
                "the accesses of all processes to one in {} pages, threads and times were kept, chosen by chance; costs and \
                 numbers of accesses are complete",
                1u64 << self.thinning.level
            ));
        }
        Summary {
            header,
            modules: catalog.modules.clone(),
            threads,
            symbols: catalog.symbols.clone(),
            stacks: catalog.stacks.clone(),
            entries,
            stays: Vec::new(),
            spinning: self.spinning.finish(|thread| number.get(&thread).copied()),
            shared_lines: Vec::new(),
            stats,
            ending: self.ending,
            rank: None,
            profiles: self.count,
            notes,
        }
    }
}

/// A sum of processes as one, to be added to another sum.
#[derive(Debug)]
pub(super) struct Sums {
    process: Process,
    thinning: Thinning,
}

impl Sums {
    /// The header of the sum.
    pub fn header(&self) -> &Header {
        &self.process.summary.header
    }
}

/// The ending of two that says more: a recording that was cut off, a signal, a status that is not 0.
fn worse(a: Option<Ended>, b: Option<Ended>) -> Option<Ended> {
    let badness = |e: &Option<Ended>| match e {
        None => 3,
        Some(Ended::Signalled(_)) => 2,
        // A recording that ended before the program is a part of a run.
        Some(Ended::Runs | Ended::Unknown) => 1,
        Some(Ended::Exited(code)) => u8::from(*code != 0),
    };
    if badness(&b) > badness(&a) { b } else { a }
}

/// The threads numbered in the order in which they start, and the number of each.
fn numbered(
    threads: BTreeMap<ThreadId, Thread>,
    ns: &impl Fn(u64) -> u64,
) -> (Vec<Thread>, FxHashMap<ThreadId, ThreadId>) {
    let mut list: Vec<Thread> = threads.into_values().collect();
    // Of a catalog's threads, creators have the lower numbers.
    list.sort_by_key(|t| (t.start_ns, t.id));
    let number: FxHashMap<ThreadId, ThreadId> = list.iter().map(|t| t.id).zip(0..).collect();
    for t in &mut list {
        t.id = number.get(&t.id).copied().unwrap_or(t.id);
        t.creator = t.creator.and_then(|c| number.get(&c).copied());
        (t.start_ns, t.end_ns) = (ns(t.start_ns), t.end_ns.map(ns));
    }
    (list, number)
}

/// The cells of an object, as a profile lists them: numbered by [`numbered`].
pub(super) fn renumbered(
    cells: &mut Cells,
    instance: &[u32],
    number: &FxHashMap<ThreadId, ThreadId>,
) -> Vec<crate::profile::summary::Cell> {
    let mut list = cells.take();
    list.retain_mut(|c| {
        let (Some(&i), Some(&t)) = (instance.get(c.instance as usize), number.get(&c.thread)) else { return false };
        (c.instance, c.thread) = (i, t);
        true
    });
    list.sort_unstable_by_key(|c| (c.instance, c.page, c.thread, c.slot));
    list
}
