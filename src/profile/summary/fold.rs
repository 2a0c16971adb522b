//! Second pass over a profile: adds every access to its cell.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Means;
use super::code_parts::{CodeParts, PART_BITS, of_part};
use super::code_shares;
use super::distinct;
use super::divided::rank;
use super::entries::{Layout, missing_thread};
use super::first_touches::FirstTouches;
use super::parts::Place;
use super::shared_lines;
use super::shared_pages::share;
use super::spinning::SpinTally;
use super::stacks::NameTables;
use super::tables::{MAX_ID_GAP, Tables};
use super::tally::Tally;
use super::types::{Cell, Counters, Entry, MAX_CODE, Summary, TIME_SLOTS, WordUse};
use super::unresolved;
use super::uses::{NO_USE, Row, Used, Uses};
use crate::profile::file::{FileError, Reader};
use crate::profile::folded::CpuNodes;
use crate::profile::records::*;

/// (entry, instruction) pairs counted; programs have few hot instructions, and memory must stay bounded.
const MAX_INSTRUCTIONS: usize = 1 << 16;

/// (entry, word, thread) triples of objects of less than a page that are counted.
const MAX_WORDS: usize = 1 << 16;

/// Cells that are kept, about 200 bytes of memory each: one for so many bytes of the file, and at least so many. The
/// recorder needs more bytes than that for an access.
const BYTES_PER_CELL: usize = 4;
const MIN_CELLS: usize = 1 << 21;
/// Rows that are worth a core: some 10 ms of work.
const LEAST_ROWS: usize = 1 << 18;
/// Identity of a cell over all entries, in the order cells are kept: page over all instances, thread, slot, code.
type CellKey = u64;
const SLOT_BITS: u32 = TIME_SLOTS.ilog2();
const THREAD_BITS: u32 = 20;
const PAGE_BITS: u32 = u64::BITS - THREAD_BITS - SLOT_BITS - PART_BITS;
/// Threads that a cell key can hold.
const MAX_THREADS: usize = 1 << THREAD_BITS;
const _: () = assert!(TIME_SLOTS.is_power_of_two());

/// Counters while the file is read.
struct Fold<'a> {
    layout: &'a Layout,
    uses: Uses,
    /// Where the accesses of each pair of the first pass are counted.
    targets: Arc<[Target]>,
    /// The access before, and its key without a part. Most accesses have that of the one before: both are of one
    /// sample.
    last: (Near, Option<CellKey>),
    cells: Tally<CellKey>,
    parts: &'a CodeParts,
    /// Counters of accesses without a page, per entry and thread.
    unpaged: FxHashMap<(u32, ThreadId), Counters>,
    code: Tally<(u32, Frame)>,
    /// Accesses by entry, address and thread, of the entries of less than a page.
    words: Tally<(u32, u64, ThreadId)>,
    /// Instructions that wait for another thread, and what they were charged with.
    spun: &'a FxHashSet<Frame>,
    spinning: SpinTally,
    slots_per_ns: f64,
    /// One more than the highest thread id used.
    threads: usize,
    /// Accesses with ids that are in no table.
    unknown_ids: u64,
}

/// Where the accesses of a pair are counted: the place of the object, and the part, if it is the same for all.
#[derive(Debug, Clone, Copy)]
struct Target {
    place: Option<Place>,
    part: Option<u8>,
    ip: Frame,
    /// Waits for another thread.
    spins: bool,
}

/// What accesses with one key, but for the part, have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Near {
    instance: u32,
    thread: ThreadId,
    page: u64,
    time_ns: u64,
}

/// Adds up the accesses of the profile at `path`, which is read again if they are not kept.
pub(super) fn fold(path: &Path, mut tables: Tables, mut layout: Layout, means: &Means) -> Result<Summary, FileError> {
    let reader = Reader::open(path)?;
    let cpu_nodes = CpuNodes::of(&tables.header.topology);
    let spun = tables.spun();
    let parts = CodeParts::build(&tables, &layout, &spun);
    let mut fold = Fold::new(&layout, &mut tables, (&parts, &spun), reader.file_len);
    match tables.held.take() {
        Some(lists) => fold.add_all(&lists, means.cores),
        None => (means.read)(reader).take(tables.records).for_each(|(record, _)| fold.add_record(&record, &cpu_nodes)),
    }
    let mut plausible = |t: &Touch| fold.thread_is_plausible(t.thread);
    let seen: Vec<Touch> = tables.touches.into_iter().filter(|t| plausible(t)).collect();
    let sampled: Vec<Touch> = tables.sampled.into_iter().filter(|t| plausible(t)).collect();
    let Fold { uses, mut cells, unpaged, mut code, mut words, mut spinning, threads, unknown_ids, .. } = fold;
    let known = layout.threads.len();
    layout.threads.extend((known..threads).map(|id| missing_thread(id as ThreadId)));
    let mut notes = tables.notes;
    if unknown_ids > 0 {
        notes.push(format!(
            "{unknown_ids} accesses refer to threads or objects that are missing in the file and were left out"
        ));
    }
    notes.extend(unresolved::note(&tables.stats));
    let sums = cells.finish();
    if cells.dropped > 0 {
        let dropped = cells.dropped;
        notes.push(format!("{dropped} accesses have more different pages, threads and times than fit in memory"));
    }
    assign_cells(&mut layout, sums, unpaged, (&parts, &tables.symbols));
    for (entry, used) in parts.whole(&uses).filter(|(_, used)| !spun.contains(&used.ip)) {
        code.add((entry, used.ip), &used.counters);
    }
    uses.all.iter().filter(|u| spun.contains(&u.ip)).for_each(|u| spinning.add_code(u.ip, &u.counters));
    assign_code(&mut layout, code.finish(), &tables.access_code);
    for ((entry, addr, thread), counters) in words.finish() {
        layout.entries[entry as usize].details.words.push(WordUse { addr, thread, counters });
    }
    // Not of the parts of objects that are divided.
    let undivided =
        |object| layout.places.get(&object).filter(|place| place.division.is_none()).map(|place| place.entry);
    for (entry, found) in tables.entered.by_entry(undivided) {
        layout.entries[entry as usize].details.page_entries = found;
    }
    code_shares::assign_pages(&mut layout, parts.whole(&uses));
    let touches = FirstTouches { seen, sampled, period: tables.stats.events.fault_period };
    touches.assign(&mut layout);
    let names = NameTables { modules: &layout.modules, symbols: &tables.symbols, stacks: &layout.stacks };
    distinct::separate(&mut layout.entries, &names);
    let shared_lines = shared_lines::named(&mut tables.lines, &tables.objects, &layout);
    let mut entries = layout.entries;
    rank(&mut entries);
    Ok(Summary {
        header: tables.header,
        modules: layout.modules,
        threads: layout.threads,
        symbols: tables.symbols,
        stacks: layout.stacks,
        entries,
        stays: tables.stays.finish(),
        spinning: spinning.finish(Some),
        shared_lines,
        stats: tables.stats,
        ending: tables.ending,
        rank: tables.rank,
        profiles: 1,
        notes,
    })
}

impl<'a> Fold<'a> {
    fn new(
        layout: &'a Layout,
        tables: &mut Tables,
        (parts, spun): (&'a CodeParts, &'a FxHashSet<Frame>),
        file_len: u64,
    ) -> Fold<'a> {
        let uses = std::mem::take(&mut tables.uses);
        let target = |(u, of): (&Used, u32)| {
            let (place, part) = (layout.places.get(&u.object).copied(), parts.of_use(of));
            Target { place, part, ip: u.ip, spins: spun.contains(&u.ip) }
        };
        let targets = uses.all.iter().zip(0..).map(target).collect();
        let most_cells = MIN_CELLS.max(file_len as usize / BYTES_PER_CELL);
        let slots_per_ns = f64::from(TIME_SLOTS) / tables.stats.duration_ns.max(1) as f64;
        Fold { uses, ..Fold::empty((layout, parts, spun), targets, most_cells, slots_per_ns) }
    }

    fn empty(
        (layout, parts, spun): (&'a Layout, &'a CodeParts, &'a FxHashSet<Frame>),
        targets: Arc<[Target]>,
        most_cells: usize,
        slots_per_ns: f64,
    ) -> Fold<'a> {
        Fold {
            layout,
            targets,
            uses: Uses::default(),
            last: (Near { instance: u32::MAX, thread: 0, page: 0, time_ns: 0 }, None),
            cells: Tally::new(most_cells),
            parts,
            unpaged: FxHashMap::default(),
            code: Tally::new(MAX_INSTRUCTIONS),
            words: Tally::new(MAX_WORDS),
            spun,
            spinning: SpinTally::default(),
            slots_per_ns,
            threads: layout.threads.len(),
            unknown_ids: 0,
        }
    }

    /// One that counts other accesses of the same profile.
    fn another(&self) -> Fold<'a> {
        Fold::empty((self.layout, self.parts, self.spun), self.targets.clone(), self.cells.limit(), self.slots_per_ns)
    }

    /// Adds the accesses that the first pass has kept, on several cores where that pays.
    fn add_all(&mut self, lists: &[Vec<Row>], cores: usize) {
        let rows: usize = lists.iter().map(Vec::len).sum();
        let cores = cores.min(rows / LEAST_ROWS).max(1);
        let mut shares = shares(lists, rows.div_ceil(cores));
        let own = shares.pop().unwrap_or_default();
        thread::scope(|scope| {
            let begin = |share| {
                let mut part = self.another();
                let work = move || {
                    part.add_lists(share);
                    part
                };
                (share, thread::Builder::new().name("numamma-fold".into()).spawn_scoped(scope, work))
            };
            let begun: Vec<_> = shares.into_iter().map(begin).collect();
            self.add_lists(own);
            for (share, thread) in begun {
                match thread.ok().and_then(|thread| thread.join().ok()) {
                    Some(part) => self.join(part),
                    None => self.add_lists(share),
                }
            }
        });
    }

    fn add_lists(&mut self, lists: &[Vec<Row>]) {
        lists.iter().flatten().for_each(|row| self.add(row));
    }

    /// Adds what another has counted of the same profile.
    fn join(&mut self, other: Fold<'_>) {
        self.cells.join(other.cells);
        self.code.join(other.code);
        self.words.join(other.words);
        self.spinning.join(other.spinning);
        for (of, counters) in other.unpaged {
            self.unpaged.entry(of).or_default().add(&counters);
        }
        self.threads = self.threads.max(other.threads);
        self.unknown_ids += other.unknown_ids;
    }

    /// Adds the accesses of a record, if it holds some.
    fn add_record(&mut self, record: &Record, cpu_nodes: &CpuNodes) {
        match record {
            Record::Accesses(list) => list.iter().for_each(|a| self.add_again(&cpu_nodes.fold(a))),
            Record::Folded(list) => list.iter().for_each(|a| self.add_again(a)),
            _ => {}
        }
    }

    /// Adds accesses that the first pass has not kept.
    #[inline(always)]
    fn add_again(&mut self, a: &Folded) {
        let of = self.uses.find(a.object, a.ip);
        let row = Row::new(a, of);
        if of == NO_USE {
            let place = self.layout.places.get(&a.object).copied();
            self.count(&row, Target { place, part: None, ip: a.ip, spins: self.spun.contains(&a.ip) });
        } else {
            self.add(&row);
        }
    }

    /// Adds accesses of a pair of the first pass.
    // Not inlined, it spends half of its time on handing over the access.
    #[inline(always)]
    fn add(&mut self, row: &Row) {
        self.count(row, self.targets[row.of() as usize]);
    }

    #[inline(always)]
    fn count(&mut self, row: &Row, target: Target) {
        let place = target.place.and_then(|place| self.place(place, row.addr));
        let Some(place) = place.filter(|_| self.thread_is_plausible(row.thread)) else {
            self.unknown_ids += 1;
            return;
        };
        let counters = row.counters();
        if target.spins {
            self.spinning.add(row.thread, self.slot(row.time_ns), &counters);
            return;
        }
        // One access has the address of its row, a sum of several has that of the first.
        if counters.accesses() == 1 && self.has_words(place.entry) && !row.object_only() {
            self.words.add((place.entry, row.addr & !7, row.thread), &counters);
        }
        // What one entry has of the pair as a whole is summed already.
        let part = target.part.unwrap_or_else(|| {
            self.code.add((place.entry, target.ip), &counters);
            self.parts.of(place.entry, target.ip)
        });
        match self.key(place, row) {
            Some(key) => self.cells.add(key | u64::from(part), &counters),
            None => self.unpaged.entry((place.entry, row.thread)).or_default().add(&counters),
        }
    }

    /// Whether an entry is so small that its words are counted.
    #[inline(always)]
    fn has_words(&self, entry: u32) -> bool {
        let is_small = |e: &Entry| e.size < 1 << self.layout.page_shift && e.kind != ObjectKind::Stack;
        self.layout.entries.get(entry as usize).is_some_and(is_small)
    }

    #[inline(always)]
    fn place(&self, place: Place, addr: u64) -> Option<Place> {
        match place.division {
            None => Some(place),
            Some(division) => self.layout.divisions.get(division as usize)?.at(addr),
        }
    }

    /// Whether the id can be a thread's. A cut-off file can lack the records of its last threads, which are added
    /// without a name.
    #[inline]
    fn thread_is_plausible(&mut self, thread: ThreadId) -> bool {
        let thread = thread as usize;
        if thread >= MAX_THREADS.min(self.layout.threads.len() + MAX_ID_GAP) {
            return false;
        }
        self.threads = self.threads.max(thread + 1);
        true
    }

    /// The key of an access without its part; none without a page.
    #[inline(always)]
    fn key(&mut self, place: Place, row: &Row) -> Option<CellKey> {
        if row.object_only() {
            return None;
        }
        let page = row.addr >> self.layout.page_shift;
        let near = Near { instance: place.instance, thread: row.thread, page, time_ns: row.time_ns };
        if self.last.0 != near {
            self.last = (near, self.key_of(place, near));
        }
        self.last.1
    }

    fn key_of(&self, place: Place, near: Near) -> Option<CellKey> {
        let page = u32::try_from(near.page.checked_sub(place.first_page)?).ok()?;
        let global_page = place.pages_before + u64::from(page);
        if global_page >> PAGE_BITS != 0 {
            return None;
        }
        let slot = u64::from(self.slot(near.time_ns));
        Some(((global_page << THREAD_BITS | u64::from(near.thread)) << SLOT_BITS | slot) << PART_BITS)
    }

    /// The time slot of an access; one at the very end of the run belongs to the last.
    fn slot(&self, time_ns: u64) -> u16 {
        ((time_ns as f64 * self.slots_per_ns) as u64).min(u64::from(TIME_SLOTS) - 1) as u16
    }
}

/// Parts of `lists`, each of at least `rows` rows but the last.
fn shares(mut lists: &[Vec<Row>], rows: usize) -> Vec<&[Vec<Row>]> {
    let mut shares = Vec::new();
    while !lists.is_empty() {
        let mut sum = 0;
        let full = |list: &Vec<Row>| {
            sum += list.len();
            sum >= rows
        };
        let end = lists.iter().position(full).map_or(lists.len(), |last| last + 1);
        let (share, rest) = lists.split_at(end);
        shares.push(share);
        lists = rest;
    }
    shares
}

fn assign_cells(
    layout: &mut Layout,
    mut cells: Vec<(CellKey, Counters)>,
    unpaged: FxHashMap<(u32, ThreadId), Counters>,
    (parts, symbols): (&CodeParts, &HashMap<Frame, Vec<Location>>),
) {
    const BELOW_PAGE: u32 = THREAD_BITS + SLOT_BITS + PART_BITS;
    let page_of = |key: CellKey| key >> BELOW_PAGE;
    if !layout.divisions.is_empty() {
        let moves = share(layout, cells.iter().map(|&(key, counters)| (page_of(key), counters)));
        for (key, _) in &mut cells {
            if let Some(to) = moves.get(&page_of(*key)) {
                *key = to << BELOW_PAGE | (*key & ((1 << BELOW_PAGE) - 1));
            }
        }
    }
    // They are sorted already where nothing was moved.
    cells.sort_unstable_by_key(|&(key, _)| key);
    // A page of two parts may have had counters in both.
    cells.dedup_by(|again, first| {
        let same = again.0 == first.0;
        if same {
            first.1.add(&again.1);
        }
        same
    });
    let mut rest = cells.as_slice();
    for (i, entry) in layout.entries.iter_mut().enumerate() {
        let first = layout.first_instance[i] as usize;
        let instances = &layout.pages_before[first..=layout.first_instance[i + 1] as usize];
        let mut own_parts: Vec<(u8, Cell)> = Vec::new();
        for (instance, pages) in instances.windows(2).enumerate() {
            let own = rest.partition_point(|&(key, _)| page_of(key) < pages[1]);
            let lost = u64::from(layout.without_first_page.contains(&(first + instance)));
            for of_cell in rest[..own].chunk_by(|a, b| a.0 >> PART_BITS == b.0 >> PART_BITS) {
                let (key, counters) = of_cell[0];
                let mut cell = Cell {
                    instance: instance as u32,
                    page: (page_of(key) - pages[0]).saturating_sub(lost) as u32,
                    thread: (key >> (SLOT_BITS + PART_BITS)) as u32 % MAX_THREADS as u32,
                    slot: (key >> PART_BITS) as u16 % TIME_SLOTS,
                    counters,
                };
                if parts.divides(i) {
                    own_parts.extend(of_cell.iter().map(|&(key, counters)| (part_of(key), Cell { counters, ..cell })));
                }
                of_cell[1..].iter().for_each(|(_, more)| cell.counters.add(more));
                entry.cells.push(cell);
            }
            rest = &rest[own..];
        }
        let names = NameTables { modules: &layout.modules, symbols, stacks: &layout.stacks };
        entry.by_code = parts.divide(i, own_parts, &names);
        if entry.part.is_some() {
            entry.by_code = of_part(std::mem::take(&mut entry.by_code));
        }
        entry.cells.iter().for_each(|c| entry.total.add(&c.counters));
    }
    for ((entry, thread), counters) in unpaged {
        let entry = &mut layout.entries[entry as usize];
        entry.total.add(&counters);
        entry.details.unpaged.add(&counters);
        entry.details.unpaged_by.push((thread, counters));
    }
    layout.entries.iter_mut().for_each(|e| e.details.unpaged_by.sort_unstable_by_key(|by| by.0));
}

fn part_of(key: CellKey) -> u8 {
    (key % (1 << PART_BITS)) as u8
}

fn assign_code(layout: &mut Layout, code: Vec<((u32, Frame), Counters)>, known: &FxHashMap<Frame, AccessCode>) {
    for ((entry, ip), counters) in code {
        layout.entries[entry as usize].details.code.push((ip, counters));
    }
    for entry in &mut layout.entries {
        let code = &mut entry.details.code;
        code.sort_unstable_by_key(|&(ip, c)| (std::cmp::Reverse((c.cost_ns, c.accesses())), ip));
        code.truncate(MAX_CODE);
        entry.details.access_code = code.iter().filter_map(|(ip, _)| known.get(ip).copied()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::super::uses::Held;
    use super::*;
    use crate::profile::file::Ahead;

    fn tables(path: &Path) -> Tables {
        let reader = Reader::open(path).expect("just written");
        let bytes = reader.file_len;
        Tables::read(path, Ahead::here(reader), bytes, Held::new(Means::alone().held)).expect("just written")
    }

    /// Folding loses no access, however many share a cell.
    #[test]
    fn every_access_is_in_a_cell_or_charged_without_a_page() {
        let path = std::env::temp_dir().join(format!("numamma-fold-{}.prof", std::process::id()));
        let accesses = crate::profile::summary::tests::many_accesses(1 << 18);
        crate::profile::summary::tests::write_many(&path, &accesses);
        let mut tables = tables(&path);
        let layout = Layout::build(&mut tables);
        let spun = tables.spun();
        let parts = CodeParts::build(&tables, &layout, &spun);
        let mut fold = Fold::new(&layout, &mut tables, (&parts, &spun), 0);
        fold.add_all(&tables.held.take().expect("few"), 3);
        let cells = fold.cells.finish();
        let counted: u64 = cells.iter().map(|c| c.1.accesses()).sum();
        assert_eq!(counted, accesses.len() as u64);
        assert!(cells.len() < accesses.len() / 2, "{} cells", cells.len());
        let _ = std::fs::remove_file(path);
    }

    /// A profile whose accesses do not fit in memory is read twice, and folds to the same.
    #[test]
    fn accesses_that_are_not_kept_are_read_again() {
        let path = std::env::temp_dir().join(format!("numamma-again-{}.prof", std::process::id()));
        let accesses = crate::profile::summary::tests::many_accesses(1 << 14);
        crate::profile::summary::tests::write_many(&path, &accesses);
        let folded = |too_many: bool| {
            let mut tables = tables(&path);
            if too_many {
                tables.held.give_up();
            }
            let layout = Layout::build(&mut tables);
            super::fold(&path, tables, layout, &Means::beside_others()).expect("just written").entries
        };
        let (kept, again) = (folded(false), folded(true));
        assert_eq!(kept.iter().map(|e| e.total.accesses()).sum::<u64>(), accesses.len() as u64);
        assert_eq!(format!("{kept:?}"), format!("{again:?}"));
        let _ = std::fs::remove_file(path);
    }
}
