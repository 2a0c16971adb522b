//! First pass over a profile: all records, and of the accesses the length of the run and the address range of each
//! object, which must be known before they are folded.

use std::collections::HashMap;
use std::path::Path;

use numamma_kernel::affinity::MAX_CPUS;
use numamma_kernel::policy::MAX_NODES;
use rustc_hash::{FxHashMap, FxHashSet};

use super::page_entries::Entered;
use super::stacks::LostTable;
use super::stays::Stays;
use super::uses::{Held, NO_USE, Row, Uses};
use crate::profile::file::{Ahead, FileError};
use crate::profile::folded::CpuNodes;
use crate::profile::record::TRACE;
use crate::profile::records::*;

/// Thread and module ids are dense; more ids than this without a record are damage. Large enough for records out of
/// order, small enough not to cost memory.
pub(super) const MAX_ID_GAP: usize = 1 << 16;

/// What all records but the accesses may take together: bytes of memory, or bytes for each byte of the file if that is
/// more. Profiles of real programs unpack to 5 to 30 times their size.
const MAX_KEPT: u64 = 512 << 20;
const MAX_GROWTH: u64 = 64;
/// About the bytes of memory for an object that is accessed, in all tables together.
const SEEN_BYTES: u64 = 256;
/// Page sizes of Linux on any processor are in this range.
const PAGE_SIZES: std::ops::RangeInclusive<u64> = 1 << 12..=1 << 30;

/// Records with dense ids; the last record of an id counts.
#[derive(Debug, Default)]
pub(super) struct Table<T> {
    rows: Vec<Option<T>>,
    /// Rows without a record.
    holes: usize,
    refused: u64,
}

impl<T> Table<T> {
    fn put(&mut self, id: u32, row: T) {
        let id = id as usize;
        if id >= self.rows.len() {
            let holes = self.holes + id - self.rows.len();
            if holes > MAX_ID_GAP {
                self.refused += 1;
                return;
            }
            self.holes = holes;
            self.rows.resize_with(id + 1, || None);
        } else if self.rows[id].is_none() {
            self.holes -= 1;
        }
        self.rows[id] = Some(row);
    }

    /// All rows in order, holes filled.
    pub(super) fn filled(&mut self, missing: impl Fn(u32) -> T) -> Vec<T> {
        let rows = std::mem::take(&mut self.rows);
        (0..).zip(rows).map(|(id, row)| row.unwrap_or_else(|| missing(id))).collect()
    }
}

/// Addresses and first time of one object's accesses and touches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Lowest address.
    pub lowest: u64,
    /// Highest address.
    pub highest: u64,
    /// Time of the first.
    pub first_ns: u64,
}

impl Seen {
    #[inline]
    pub(super) fn extend(&mut self, addr: u64, time_ns: u64) {
        self.join(&Seen { lowest: addr, highest: addr, first_ns: time_ns });
    }

    #[inline]
    fn join(&mut self, other: &Seen) {
        self.lowest = self.lowest.min(other.lowest);
        self.highest = self.highest.max(other.highest);
        self.first_ns = self.first_ns.min(other.first_ns);
    }
}

/// All records of a profile, and what the first pass tells of its accesses.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub header: Header,
    pub modules: Table<Module>,
    pub threads: Table<Thread>,
    /// What threads of std::thread run.
    pub tasks: FxHashMap<ThreadId, Task>,
    pub waits: FxHashMap<ThreadId, Waits>,
    pub sites: FxHashMap<SiteId, CallSite>,
    pub counts: FxHashMap<SiteId, SiteCount>,
    pub frees: FxHashMap<SiteId, SiteFrees>,
    pub objects: FxHashMap<ObjectId, Object>,
    /// How many objects like this one are not in the file.
    pub more: FxHashMap<ObjectId, u64>,
    /// What realloc made others of.
    pub before: FxHashMap<ObjectId, Resized>,
    pub seen: FxHashMap<ObjectId, Seen>,
    pub touches: Vec<Touch>,
    /// Those of the time in which not all page faults were recorded, of one page each.
    pub sampled: Vec<Touch>,
    pub symbols: HashMap<Frame, Vec<Location>>,
    /// Where the instructions of the accesses belong.
    pub code: FxHashMap<Frame, CodeUnit>,
    /// What they tell of the time of their accesses.
    pub access_code: FxHashMap<Frame, AccessCode>,
    /// Accesses by object and instruction.
    pub uses: Uses,
    /// Where their pages are entered; of a trace.
    pub entered: Entered,
    /// The accesses themselves, if they are few.
    pub held: Held,
    pub lost: LostTable,
    /// CPUs over time.
    pub stays: Stays,
    /// Members of the variables at these addresses of modules.
    pub members: FxHashMap<(ModuleId, u64), Vec<Member>>,
    /// Cache lines that threads share.
    pub lines: Vec<SharedLine>,
    pub stats: Stats,
    pub ending: Option<Ended>,
    pub rank: Option<u32>,
    pub notes: Vec<String>,
    /// Good records in the file: the second pass reads no more, so that the file may still grow.
    pub records: usize,
}

impl Tables {
    /// The records of the file at `path` of `file_len` bytes; `held`: where accesses are kept.
    pub(super) fn read(path: &Path, mut reader: Ahead, file_len: u64, held: Held) -> Result<Tables, FileError> {
        let mut header = None;
        let mut tables = Tables { held, ..Tables::default() };
        let mut cpu_nodes = CpuNodes::of(&tables.header.topology);
        let mut last_ns = 0;
        let most = MAX_KEPT.max(file_len.saturating_mul(MAX_GROWTH));
        let mut kept: u64 = 0;
        while let Some((record, decoded)) = reader.next() {
            if !matches!(record, Record::Accesses(_) | Record::Folded(_)) {
                kept = kept.saturating_add(decoded);
            }
            if kept + tables.seen.len() as u64 * SEEN_BYTES > most {
                let (path, records, most) = (path.display(), tables.records, most >> 20);
                reader.damage = Some(format!(
                    "{path}: it unpacks to more than {most} MiB after {records} records, which are reported"
                ));
                break;
            }
            tables.records += 1;
            match record {
                Record::Header(h) => {
                    let checked = tables.checked(h);
                    cpu_nodes = CpuNodes::of(&checked.topology);
                    header = Some(checked);
                }
                Record::Accesses(list) => {
                    list.iter().for_each(|a| tables.stays.add(a));
                    tables.used(list.iter().map(|a| cpu_nodes.fold(a)), &mut last_ns);
                }
                Record::Folded(list) => {
                    if header.as_ref().is_some_and(|h: &Header| h.sampling.sampler == TRACE) {
                        list.iter().for_each(|a| tables.entered.add(a));
                    }
                    tables.used(list.iter().copied(), &mut last_ns);
                }
                Record::Touches(list) => {
                    for t in list.iter().filter(|t| t.object != NO_OBJECT) {
                        tables.extend_range(t.object, t.addr, t.time_ns);
                    }
                    tables.touches.extend(list);
                }
                Record::SampledTouches(list) => {
                    for t in &list {
                        tables.extend_range(t.object, t.addr, t.time_ns);
                    }
                    tables.sampled.extend(list.into_iter().map(|t| Touch { pages: 1, ..t }));
                }
                other => tables.take(other),
            }
        }
        for used in &tables.uses.all {
            tables.seen.entry(used.object).or_insert(used.seen).join(&used.seen);
        }
        tables.header = header.ok_or_else(|| FileError::Empty(path.into()))?;
        tables.stats.duration_ns = tables.stats.duration_ns.max(last_ns);
        tables.note_damage(reader.damage);
        Ok(tables)
    }

    /// Instructions that wait for another thread.
    pub(super) fn spun(&self) -> FxHashSet<Frame> {
        let spins = |code: &&AccessCode| code.address == AddressKind::Spun;
        self.access_code.values().filter(spins).map(|code| code.frame).collect()
    }

    /// The header with a page size and a number of nodes that can be true.
    fn checked(&mut self, mut header: Header) -> Header {
        if !PAGE_SIZES.contains(&header.page_size) {
            header.page_size = 0;
        }
        let nodes = &mut header.topology.nodes;
        if nodes.len() > MAX_NODES || nodes.iter().any(|n| n.cpus.len() > MAX_CPUS) {
            self.notes.push("the header describes a machine with more nodes or CPUs than Linux supports".to_owned());
            nodes.truncate(MAX_NODES);
            nodes.iter_mut().for_each(|n| n.cpus.truncate(MAX_CPUS));
        }
        header
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Modules(list) => list.into_iter().for_each(|m| self.modules.put(m.id, m)),
            Record::Threads(list) => list.into_iter().for_each(|t| self.threads.put(t.id, t)),
            Record::ThreadTasks(list) => self.tasks.extend(list.into_iter().map(|t| (t.thread, t.task))),
            Record::ThreadWaits(list) => self.waits.extend(list.into_iter().map(|t| (t.thread, t.waits))),
            Record::Sites(list) => self.sites.extend(list.into_iter().map(|s| (s.id, s))),
            Record::SiteCounts(list) => self.counts.extend(list.into_iter().map(|c| (c.site, c))),
            Record::SiteFrees(list) => self.frees.extend(list.into_iter().map(|f| (f.site, f))),
            Record::Objects(list) => self.objects.extend(list.into_iter().map(|o| (o.id, o))),
            Record::Like(list) => self.more.extend(list.into_iter().map(|like| (like.object, like.more))),
            Record::Resized(list) => self.before.extend(list.into_iter().map(|r| (r.object, r))),
            Record::Symbols(list) => self.symbols.extend(list.into_iter().map(|s| (s.frame, s.locations))),
            Record::Code(list) => self.code.extend(list.into_iter().map(|u| (u.frame, u))),
            Record::AccessCode(list) => self.access_code.extend(list.into_iter().map(|u| (u.frame, u))),
            Record::LostFrames(list) => self.lost.extend(list.into_iter().map(|l| ((l.inner, l.outer), l.locations))),
            Record::Members(list) => self.members.extend(list.into_iter().map(|m| ((m.module, m.vaddr), m.members))),
            Record::SharedLines(list) => self.lines.extend(list),
            Record::Stats(stats) => self.stats = Stats { events: self.stats.events, ..stats },
            Record::EventCounts(counts) => self.stats.events = counts,
            Record::End(ending) => self.ending = Some(ending),
            Record::Rank(rank) => self.rank = Some(rank),
            Record::Notes(list) => {
                for note in list {
                    if !self.notes.contains(&note) {
                        self.notes.push(note);
                    }
                }
            }
            // The caller takes these.
            Record::Header(_)
            | Record::Accesses(_)
            | Record::Folded(_)
            | Record::Touches(_)
            | Record::SampledTouches(_) => {}
        }
    }

    #[inline]
    fn extend_range(&mut self, object: ObjectId, addr: u64, time_ns: u64) {
        let seen = Seen { lowest: addr, highest: addr, first_ns: time_ns };
        self.seen.entry(object).or_insert(seen).join(&seen);
    }

    /// Takes note of the accesses of a record, and of the time of the last ones.
    #[inline(always)]
    fn used(&mut self, list: impl ExactSizeIterator<Item = Folded>, last_ns: &mut u64) {
        let mut rows = self.held.room(list.len());
        for a in list {
            *last_ns = (*last_ns).max(a.time_ns);
            let id = self.uses.add(&a);
            if let Some(rows) = &mut rows {
                rows.push(Row::new(&a, id));
            }
            if id == NO_USE {
                self.extend_range(a.object, a.addr, a.time_ns);
                self.held.give_up();
                rows = None;
            }
        }
        self.held.keep(rows);
    }

    fn note_damage(&mut self, damage: Option<String>) {
        if self.ending.is_none() && damage.is_none() {
            self.notes.push(
                "the recording has no end record: the recorder was stopped or is still running; \
                 what it wrote until then is reported"
                    .into(),
            );
        }
        self.notes.extend(damage);
        let refused = self.modules.refused + self.threads.refused;
        if refused > 0 {
            self.notes
                .push(format!("{refused} records have ids far outside their tables and were left out: record again"));
        }
    }
}
