//! The rows of each table.

use std::collections::HashMap;
use std::io;

use numamma_plan::nodes::format_runs;

use super::batch::{Batch, Value};
use super::source::Source;
use crate::detect::{Pattern, waits_for_threads};
use crate::profile::records::{ObjectKind, Thread, ThreadId};
use crate::profile::summary::{Cell, Entry, Summary, TIME_SLOTS};
use crate::report::View;

/// Cells that become rows at a time: what the processor's first caches hold.
const CELLS_AT_A_TIME: usize = 1024;

/// What is called after rows were added.
type Added<'a> = &'a mut dyn FnMut(&mut Batch) -> io::Result<()>;

/// Adds the rows that a profile has for the table of `batch`.
pub(super) fn add(source: &Source, batch: &mut Batch, added: Added<'_>) -> io::Result<()> {
    let rows = Rows::of(source);
    match batch.table().name {
        "profiles" => rows.profile(batch, added),
        "objects" => rows.objects(batch, added),
        "tallies" => rows.tallies(batch, added),
        "allocations" => rows.allocations(batch, added),
        "threads" => rows.threads(batch, added),
        "verdicts" => rows.verdicts(batch, added),
        other => Err(io::Error::other(format!("no table {other}"))),
    }
}

struct Rows<'a> {
    /// The first columns of every table.
    from: [Value<'a>; 3],
    view: &'a View<'a>,
    /// Entries that were accessed, highest cost first, each with the number of its part.
    entries: Vec<(&'a Entry, Value<'a>)>,
}

impl<'a> Rows<'a> {
    fn of(source: &'a Source<'a>) -> Rows<'a> {
        let (view, summary) = (source.view, source.view.summary);
        let ranked = view.ranked();
        let parts = parts(&ranked);
        let entries = ranked.into_iter().map(|e| (e, Value::from(parts.get(&e.id).copied()))).collect();
        let from = [Value::Text(&source.file), summary.rank.into(), summary.header.pid.into()];
        Rows { from, view, entries }
    }

    /// A row that begins with the columns that every table has.
    fn row<const N: usize>(&self, rest: [Value<'_>; N], batch: &mut Batch, added: Added<'_>) -> io::Result<()> {
        let mut row = [Value::Null; MOST_COLUMNS];
        row[..3].copy_from_slice(&self.from);
        for (to, value) in row[3..].iter_mut().zip(rest) {
            *to = value;
        }
        batch.push(&row[..3 + N]);
        added(batch)
    }

    fn profile(&self, batch: &mut Batch, added: Added<'_>) -> io::Result<()> {
        let (summary, h, stats) = (self.view.summary, &self.view.summary.header, &self.view.summary.stats);
        let row = [
            h.host.as_str().into(),
            h.program.path.as_str().into(),
            h.started_unix.into(),
            stats.duration_ns.into(),
            stats.cpu_ns.into(),
            self.view.total.cost_ns.into(),
            stats.samples.into(),
            stats.lost.into(),
            h.sampling.period_ns.into(),
            h.page_size.into(),
            (summary.duration_ns() / u64::from(TIME_SLOTS)).into(),
            (h.topology.nodes.len() as u64).into(),
        ];
        self.row(row, batch, added)
    }

    fn objects(&self, batch: &mut Batch, added: Added<'_>) -> io::Result<()> {
        let summary = self.view.summary;
        self.entries.iter().try_for_each(|(e, part)| {
            let module = e.module.and_then(|m| summary.modules.get(m as usize));
            let numbers = e.numbers.as_ref().map(|n| n.in_policy());
            let callsite = callsite(summary, e);
            let by_others = self.view.by_others(e, None);
            let pattern = self.view.pattern(e).map_or("", |p| p.kind.as_str());
            let of_part = e.part.as_ref();
            let row = [
                e.id.into(),
                *part,
                kind(e.kind).into(),
                e.name.as_str().into(),
                (!e.linkage.is_empty()).then_some(e.linkage.as_str()).into(),
                module.map(|m| m.path.as_str()).into(),
                e.module.map(|_| e.vaddr).into(),
                of_part.map(|p| p.parent.as_str()).into(),
                of_part.map(|p| p.member.as_str()).filter(|m| !m.is_empty()).into(),
                of_part.map(|p| p.offset).into(),
                numbers.as_deref().into(),
                callsite.as_deref().into(),
                e.size.into(),
                e.instances.into(),
                e.total.reads.into(),
                e.total.writes.into(),
                e.total.remote.into(),
                e.total.placed.into(),
                e.total.cost_ns.into(),
                self.view.cost_share(e).into(),
                by_others.share().into(),
                by_others.known_share().into(),
                pattern.into(),
                e.details.frees.all.into(),
                e.details.frees.by_others.into(),
            ];
            self.row(row, batch, added)
        })
    }

    fn tallies(&self, batch: &mut Batch, added: Added<'_>) -> io::Result<()> {
        for (e, part) in &self.entries {
            let mut cells = e.cells_and_touchers();
            loop {
                let cells: Vec<(&Cell, Option<ThreadId>)> = cells.by_ref().take(CELLS_AT_A_TIME).collect();
                if cells.is_empty() {
                    break;
                }
                let of = |value: fn(&Cell) -> u64| cells.iter().map(move |(cell, _)| value(cell));
                let [profile, rank, pid] = self.from;
                let begun = batch.fill(cells.len()).same(profile).same(rank).same(pid).same(e.id.into()).same(*part);
                let place = begun.ints(of(|c| c.instance.into())).ints(of(|c| c.page.into()));
                let place = place.ints(of(|c| c.thread.into())).ints(of(|c| c.slot.into()));
                place
                    .known(cells.iter().map(|(_, toucher)| *toucher))
                    .ints(of(|c| c.counters.reads))
                    .ints(of(|c| c.counters.writes))
                    .ints(of(|c| c.counters.remote))
                    .ints(of(|c| c.counters.placed))
                    .ints(of(|c| c.counters.cost_ns));
                added(batch)?;
            }
            for (thread, c) in &e.details.unpaged_by {
                let counters = [c.reads, c.writes, c.remote, c.placed, c.cost_ns].map(Value::from);
                let [reads, writes, remote, placed, cost] = counters;
                let (object, unknown) = (e.id.into(), Value::Null);
                let place = [object, *part, unknown, unknown, (*thread).into(), unknown, unknown];
                let [a, b, c, d, e, f, g] = place;
                self.row([a, b, c, d, e, f, g, reads, writes, remote, placed, cost], batch, added)?;
            }
        }
        Ok(())
    }

    fn allocations(&self, batch: &mut Batch, added: Added<'_>) -> io::Result<()> {
        for (e, part) in &self.entries {
            let (Some(callsite), Some(stack)) = (callsite(self.view.summary, e), stack(self.view.summary, e)) else {
                continue;
            };
            for (instance, seen) in (0_u32..).zip(&e.seen) {
                let row = [
                    e.id.into(),
                    *part,
                    instance.into(),
                    seen.thread.into(),
                    seen.base.into(),
                    seen.size.into(),
                    seen.born_ns.into(),
                    seen.died_ns.into(),
                    callsite.as_str().into(),
                    stack.as_str().into(),
                ];
                self.row(row, batch, added)?;
            }
        }
        Ok(())
    }

    fn threads(&self, batch: &mut Batch, added: Added<'_>) -> io::Result<()> {
        let threads = &self.view.summary.threads;
        threads.iter().zip(waits_for_threads(threads)).try_for_each(|(t, for_threads)| {
            let role = self.view.roles.of(t.id);
            let rank = role.and_then(|role| role.rank);
            let start_routine = t.start_routine.map(|frame| self.view.summary.frame_name(frame));
            let cpus = format_runs(&t.cpus.iter().map(|&cpu| u32::from(cpu)).collect::<Vec<_>>());
            let row = [
                t.id.into(),
                t.pid.into(),
                t.tid.into(),
                t.name.as_str().into(),
                start_routine.as_deref().into(),
                t.creator.into(),
                role.map(|role| role.kind as u64).into(),
                role.map(|role| role.slot).into(),
                rank.is_some().into(),
                rank.map(|rank| rank.rank).into(),
                rank.map(|rank| rank.of).into(),
                node(self.view.summary, t).into(),
                cpus.as_str().into(),
                t.migrations.into(),
                t.start_ns.into(),
                t.end_ns.into(),
                t.samples.into(),
                t.waits.map(|waits| waits.all).into(),
                for_threads.into(),
                t.waits.map(|waits| waits.blocked_ns).into(),
                t.waits.map(|waits| waits.seen_ns).into(),
                t.waits.map(|waits| waits.bound).into(),
            ];
            self.row(row, batch, added)
        })
    }

    fn verdicts(&self, batch: &mut Batch, added: Added<'_>) -> io::Result<()> {
        let ns = |seconds: f64| (seconds * 1e9).round() as u64;
        for (e, part) in &self.entries {
            let Some(whole) = self.view.pattern(e) else { continue };
            let mut row = |scope: &str, function: Option<&str>, time: Option<(u64, u64)>, share: f64, p: &Pattern| {
                let row = [
                    e.id.into(),
                    *part,
                    scope.into(),
                    function.into(),
                    time.map(|t| t.0).into(),
                    time.map(|t| t.1).into(),
                    share.into(),
                    p.kind.as_str().into(),
                    p.period.into(),
                    p.confidence.into(),
                    p.figures.samples.into(),
                    p.evidence.as_str().into(),
                ];
                self.row(row, batch, added)
            };
            row("run", None, None, 1.0, whole)?;
            for s in &whole.segments {
                row("phase", None, Some((ns(s.start_s), ns(s.end_s))), s.share, &s.pattern)?;
            }
            for c in &whole.by_code {
                row("code", Some(&c.function), None, c.share, &c.pattern)?;
            }
        }
        Ok(())
    }
}

/// Columns of the widest table at most.
const MOST_COLUMNS: usize = 32;

/// The number of each part among those of its object, by the id of the entry.
fn parts(entries: &[&Entry]) -> HashMap<u32, u32> {
    let mut of_parents: HashMap<_, Vec<(u64, u32)>> = HashMap::new();
    for e in entries {
        if let Some(part) = &e.part {
            let site = e.site.as_ref().map(|site| site.id);
            let parent = (part.parent.as_str(), part.parent_size, e.module, site);
            of_parents.entry(parent).or_default().push((part.offset, e.id));
        }
    }
    let mut numbers = HashMap::new();
    for mut own in of_parents.into_values() {
        own.sort_unstable();
        numbers.extend(own.into_iter().map(|(_, id)| id).zip(0..));
    }
    numbers
}

/// The words of `report --json`.
fn kind(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::SmallHeap => "smallheap",
        other => crate::report::kind_word(other),
    }
}

/// The function that names the objects of a call site, with its line.
fn callsite(summary: &Summary, entry: &Entry) -> Option<String> {
    let (steps, naming) = summary.steps(entry.site.as_ref()?);
    steps.get(naming).map(|step| summary.step_name(step))
}

/// The functions of the call site, outermost first.
fn stack(summary: &Summary, entry: &Entry) -> Option<String> {
    let (steps, _) = summary.steps(entry.site.as_ref()?);
    let names: Vec<String> = steps.iter().rev().map(|step| summary.step_name(step).replace(';', ":")).collect();
    Some(names.join(";"))
}

/// The node of all CPUs that a thread was sampled on.
fn node(summary: &Summary, thread: &Thread) -> Option<u32> {
    let mut nodes = thread.cpus.iter().map(|&cpu| summary.header.topology.node_of_cpu(cpu.into()));
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}
