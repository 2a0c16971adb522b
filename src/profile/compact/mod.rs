//! Keeps the file of a long recording small.
//!
//! A recording appends what it sees. Whenever the file has doubled, a thread reads it and writes it anew, as logs are
//! compacted (Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File System", 1992):
//! of records that replace each other the last stays, accesses are summed by page, instruction, thread and stretch of
//! time ([`cells`]), and of objects that ended some stay for all that were like them ([`objects`], [`touches`]). What
//! was recorded meanwhile is appended, and the new file takes the place of the old one, which is whole until then. Each
//! byte is read about twice, however long the run.

mod cells;
mod objects;
mod running;
mod table;
#[cfg(test)]
mod tests;
mod touches;

use std::collections::BTreeMap;

use self::cells::{Cells, Coarseness};
use self::objects::Objects;
pub use self::running::{COMPACT_AT, Compaction};
use super::folded::CpuNodes;
use super::records::*;
use crate::topology::Topology;

/// Folded accesses in one record.
const PER_RECORD: usize = 1 << 16;

/// The records of a file, as far as they stay. Of those with a key the last.
pub(super) struct Compacted {
    header: Option<Header>,
    modules: BTreeMap<ModuleId, Module>,
    threads: BTreeMap<ThreadId, Thread>,
    tasks: BTreeMap<ThreadId, ThreadTask>,
    waits: BTreeMap<ThreadId, ThreadWaits>,
    sites: BTreeMap<SiteId, CallSite>,
    counts: BTreeMap<SiteId, SiteCount>,
    frees: BTreeMap<SiteId, SiteFrees>,
    objects: Objects,
    touches: Vec<Touch>,
    sampled: Vec<Touch>,
    cells: Cells,
    cpu_nodes: CpuNodes,
    page_shift: u32,
    /// Those that are written at the end of a recording, of which only one that was cut off in mid-air has a part.
    others: Vec<Record>,
    stats: Option<Stats>,
    events: Option<EventCounts>,
    rank: Option<u32>,
}

impl Compacted {
    /// Of a run that has taken `run_ns` so far, with at most `cells` sums of accesses; `before`: how coarse they were
    /// the last time.
    fn new(run_ns: u64, cells: usize, before: Option<Coarseness>) -> Compacted {
        let page_shift = super::PAGE.trailing_zeros();
        Compacted {
            header: None,
            modules: BTreeMap::new(),
            threads: BTreeMap::new(),
            tasks: BTreeMap::new(),
            waits: BTreeMap::new(),
            sites: BTreeMap::new(),
            counts: BTreeMap::new(),
            frees: BTreeMap::new(),
            objects: Objects::default(),
            touches: Vec::new(),
            sampled: Vec::new(),
            cells: Cells::new(page_shift, run_ns, cells, before),
            cpu_nodes: CpuNodes::of(&Topology::default()),
            page_shift,
            others: Vec::new(),
            stats: None,
            events: None,
            rank: None,
        }
    }

    /// Adds the next record of the file.
    pub fn take(&mut self, record: Record) {
        match record {
            Record::Header(header) => {
                self.cpu_nodes = CpuNodes::of(&header.topology);
                self.header = Some(header);
            }
            Record::Modules(list) => self.modules.extend(list.into_iter().map(|m| (m.id, m))),
            Record::Threads(list) => self.threads.extend(list.into_iter().map(|t| (t.id, t))),
            Record::ThreadTasks(list) => self.tasks.extend(list.into_iter().map(|t| (t.thread, t))),
            Record::ThreadWaits(list) => self.waits.extend(list.into_iter().map(|t| (t.thread, t))),
            Record::Sites(list) => self.sites.extend(list.into_iter().map(|s| (s.id, s))),
            Record::SiteCounts(list) => self.counts.extend(list.into_iter().map(|c| (c.site, c))),
            Record::SiteFrees(list) => self.frees.extend(list.into_iter().map(|f| (f.site, f))),
            Record::Objects(list) => self.objects.put(list),
            Record::Like(list) => self.objects.put_more(list),
            Record::Resized(list) => self.objects.put_resized(list),
            Record::Accesses(list) => list.iter().for_each(|a| self.cells.add(&self.cpu_nodes.fold(a))),
            Record::Folded(list) => list.iter().for_each(|f| self.cells.add(f)),
            Record::Touches(list) => self.touches.extend(list),
            Record::SampledTouches(list) => self.sampled.extend(list),
            Record::Stats(stats) => self.stats = Some(stats),
            Record::EventCounts(counts) => self.events = Some(counts),
            Record::Rank(rank) => self.rank = Some(rank),
            Record::Symbols(_)
            | Record::Code(_)
            | Record::AccessCode(_)
            | Record::LostFrames(_)
            | Record::Members(_)
            | Record::SharedLines(_)
            | Record::Notes(_)
            | Record::End(_) => self.others.push(record),
        }
    }

    /// How coarse the sums are; none where there is room for finer ones.
    fn coarseness(&self) -> Option<Coarseness> {
        self.cells.coarseness()
    }

    /// What is left, definitions before their use.
    pub fn into_records(self) -> Vec<Record> {
        let Compacted { mut cells, page_shift, .. } = self;
        let left = self.objects.left(&cells.users());
        cells.relocate(&left.moved);
        let kept = left.kept();
        let (slot_ns, thinned) = (cells.slot_ns(), cells.thinned());
        let cells = cells.into_sorted();
        let touches = touches::left(self.touches, &kept, (page_shift, slot_ns));
        let mut sampled = self.sampled;
        sampled.retain(|t| kept.contains(&t.object));
        let mut out: Vec<Record> = self.header.map(Record::Header).into_iter().collect();
        out.extend(self.rank.map(Record::Rank));
        out.push(Record::Modules(self.modules.into_values().collect()));
        out.push(Record::Threads(self.threads.into_values().collect()));
        out.push(Record::ThreadTasks(self.tasks.into_values().collect()));
        out.push(Record::ThreadWaits(self.waits.into_values().collect()));
        out.push(Record::Sites(self.sites.into_values().collect()));
        out.push(Record::SiteCounts(self.counts.into_values().collect()));
        out.push(Record::SiteFrees(self.frees.into_values().collect()));
        out.push(Record::Objects(left.objects));
        out.push(Record::Like(left.more));
        out.push(Record::Resized(left.resized));
        out.push(Record::Touches(touches));
        out.push(Record::SampledTouches(sampled));
        out.extend(cells.chunks(PER_RECORD).map(|part| Record::Folded(part.to_vec())));
        out.extend(self.stats.map(Record::Stats));
        out.extend(self.events.map(Record::EventCounts));
        let note = (thinned > 0).then(|| Record::Notes(vec![note(thinned)]));
        out.extend(note.filter(|note| !self.others.contains(note)));
        out.extend(self.others);
        out
    }
}

/// What is left of the records of a file.
#[cfg(test)]
pub(in crate::profile) fn compacted(records: Vec<Record>, run_ns: u64, cells: usize) -> Vec<Record> {
    let mut compacted = Compacted::new(run_ns, cells, None);
    records.into_iter().for_each(|record| compacted.take(record));
    compacted.into_records()
}

fn note(thinned: usize) -> String {
    let (objects, their) = if thinned == 1 { ("one object", "its") } else { ("some objects", "their") };
    format!(
        "the accesses to {objects} were too many to keep for each page: some of {their} pages are known, the others \
         count for the whole object (--max-memory allows more)"
    )
}
