//! The accesses of the whole program by address and time, for the cartography, and by thread and time, for the memory
//! Gantt. Both tell pages of one thread from those that several threads use, as MOCA does (INRIA RR-8694).

use rustc_hash::FxHashMap;

use crate::profile::records::ThreadId;
use crate::profile::summary::{Cell, Entry, TIME_SLOTS};
use crate::report::View;

/// Rows of the cartography at most; the page halves them while it aggregates, so their number is a power of two.
const MOST_ROWS: u64 = 1024;
/// Addresses without an access are left out where there are more of them in a row, bytes: a huge page.
const GAP: u64 = 2 << 20;
/// Threads of the Gantt and of the sharing matrix at most; more are joined.
const MOST_THREADS: usize = 128;

/// Accesses by group of threads and time slot, those to pages of one thread apart from those to pages of several.
#[derive(Debug)]
pub struct Gantt {
    /// Groups of threads, and threads in each.
    pub groups: usize,
    /// See [`Gantt::groups`].
    pub per_group: usize,
    /// By group and slot: to pages of one thread, and to pages of several.
    pub accesses: Vec<[u64; 2]>,
}

impl Gantt {
    /// That of some entries.
    pub fn of<'a>(view: &View, entries: impl IntoIterator<Item = &'a Entry>) -> Gantt {
        let threads = view.summary.threads.len().max(1);
        let per_group = threads.div_ceil(MOST_THREADS);
        let groups = threads.div_ceil(per_group);
        let mut gantt = Gantt { groups, per_group, accesses: vec![[0; 2]; groups * SLOTS] };
        for (cell, is_shared) in entries.into_iter().flat_map(cells) {
            let at = gantt.group(cell.thread) * SLOTS + slot(cell);
            gantt.accesses[at][usize::from(is_shared)] += cell.counters.accesses();
        }
        gantt
    }

    /// The group of a thread.
    pub fn group(&self, thread: ThreadId) -> usize {
        (thread as usize / self.per_group).min(self.groups - 1)
    }
}

/// The pictures of the whole program.
#[derive(Debug)]
pub struct Pictures {
    /// Rows of the cartography.
    pub rows: u64,
    /// Bytes of addresses that they show.
    pub bytes: u64,
    /// By row, the object with most accesses: its id + 1, 0 for none.
    pub owners: Vec<u64>,
    /// By row and slot: accesses to pages of one thread, and to pages of several.
    pub map: Vec<[u64; 2]>,
    /// The threads over time.
    pub gantt: Gantt,
    /// Accesses by group of the thread that makes them and group of the first toucher.
    pub sharing: Vec<u64>,
}

impl Pictures {
    /// Computes them from the entries whose addresses are known.
    pub fn of(view: &View) -> Pictures {
        let stretches = Stretches::of(view);
        let gantt = Gantt::of(view, &view.summary.entries);
        let rows = stretches.pages.next_power_of_two().clamp(1, MOST_ROWS);
        let mut map = vec![[0_u64; 2]; rows as usize * SLOTS];
        let mut sharing = vec![0_u64; gantt.groups * gantt.groups];
        let mut owners: FxHashMap<(u64, u32), u64> = FxHashMap::default();
        for entry in &view.summary.entries {
            for (cell, is_shared) in cells(entry) {
                let n = cell.counters.accesses();
                if let Some(row) = stretches.row(page_of(view, entry, cell), rows) {
                    map[row as usize * SLOTS + slot(cell)][usize::from(is_shared)] += n;
                    *owners.entry((row, entry.id)).or_default() += n;
                }
            }
            for (cell, toucher) in entry.cells_and_touchers() {
                if let Some(toucher) = toucher {
                    sharing[gantt.group(cell.thread) * gantt.groups + gantt.group(toucher)] += cell.counters.accesses();
                }
            }
        }
        let bytes = stretches.pages * view.summary.header.page_size;
        Pictures { rows, bytes, owners: objects(rows, &owners), map, gantt, sharing }
    }
}

/// Time slots of the pictures.
const SLOTS: usize = TIME_SLOTS as usize;

fn slot(cell: &Cell) -> usize {
    usize::from(cell.slot).min(SLOTS - 1)
}

/// By row, the object with most accesses: its id + 1.
fn objects(rows: u64, owners: &FxHashMap<(u64, u32), u64>) -> Vec<u64> {
    let mut best = vec![(0, u32::MAX); rows as usize];
    for (&(row, id), &n) in owners {
        let kept = &mut best[row as usize];
        if (n, std::cmp::Reverse(id)) > (kept.0, std::cmp::Reverse(kept.1)) {
            *kept = (n, id);
        }
    }
    best.iter().map(|(n, id)| if *n > 0 { u64::from(*id) + 1 } else { 0 }).collect()
}

/// The counters of an entry, each with whether several threads use its page.
fn cells(entry: &Entry) -> impl Iterator<Item = (&Cell, bool)> {
    let pages = entry.cells.chunk_by(|a, b| (a.instance, a.page) == (b.instance, b.page));
    pages.flat_map(|page| {
        let is_shared = page.iter().any(|cell| cell.thread != page[0].thread);
        page.iter().map(move |cell| (cell, is_shared))
    })
}

/// Number of the page in the address space; none where the memory of the entry is not known.
fn page_of(view: &View, entry: &Entry, cell: &Cell) -> Option<u64> {
    let base = entry.seen.get(cell.instance as usize)?.base / view.summary.header.page_size.max(1);
    base.checked_add(cell.page.into())
}

/// The addresses with accesses, without the gaps between them.
struct Stretches {
    /// First page, one past the last, pages before.
    list: Vec<(u64, u64, u64)>,
    pages: u64,
}

impl Stretches {
    fn of(view: &View) -> Stretches {
        let page_size = view.summary.header.page_size.max(1);
        let of_entry = |e: &Entry| e.cells.iter().filter_map(|c| page_of(view, e, c)).collect::<Vec<u64>>();
        let mut all: Vec<u64> = view.summary.entries.iter().flat_map(of_entry).collect();
        all.sort_unstable();
        all.dedup();
        let (mut list, mut pages): (Vec<(u64, u64, u64)>, u64) = (Vec::new(), 0);
        for page in all {
            match list.last_mut().filter(|(_, end, _)| page - *end <= GAP / page_size) {
                Some((_, end, _)) => {
                    pages += page + 1 - *end;
                    *end = page + 1;
                }
                None => {
                    list.push((page, page + 1, pages));
                    pages += 1;
                }
            }
        }
        Stretches { list, pages }
    }

    fn row(&self, page: Option<u64>, rows: u64) -> Option<u64> {
        let page = page?;
        let at = self.list.partition_point(|(first, ..)| *first <= page).checked_sub(1)?;
        let (first, _, before) = self.list[at];
        Some(((before + page - first) * rows / self.pages.max(1)).min(rows - 1))
    }
}
