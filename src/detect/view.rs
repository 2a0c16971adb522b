//! The input of the detectors, made from the summary of a profile.

use crate::profile::record::FAULT;
use crate::profile::records::ObjectKind;
use crate::profile::summary::{AccessFilter, Cell, CodePart, Entry, Summary};

use super::hot::hot;
use super::roles::{Roles, roles};

/// Counters of one page of an object by thread and time slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PageAccess {
    /// Instance (0 for globals), in order of allocation.
    pub instance: u32,
    /// Page from the instance's first page.
    pub page: u32,
    /// Thread rank, 0 .. `threads`; from `threads` on threads that do not work.
    pub thread: u32,
    /// Time slot, 0 .. [`crate::profile::summary::TIME_SLOTS`].
    pub slot: u16,
    /// Number of reads.
    pub reads: f32,
    /// Number of writes.
    pub writes: f32,
}

impl PageAccess {
    /// Number of accesses.
    pub fn weight(&self) -> f64 {
        f64::from(self.reads) + f64::from(self.writes)
    }
}

/// An instance of a call site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Bytes.
    pub size: u64,
    /// Rank of the thread that allocated it.
    pub allocator: Option<u32>,
}

/// How the run was sampled; messages use it to recommend a length or a rate.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sampling {
    /// Length of the run, seconds; 0 when unknown.
    pub duration_s: f64,
    /// Samples per second and thread; 0 when unknown.
    pub rate_hz: f64,
    /// Whether each page is seen once in a window of time, however often it is used.
    pub once: bool,
}

/// The input of the detectors for one object.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectView {
    /// Bytes of the object (largest instance); of small objects of one call site, those from the first to the last.
    pub size: u64,
    /// Offset of the first byte in its page, bytes.
    pub skew: u64,
    /// Base page size, bytes.
    pub page_size: u64,
    /// Workers of the team that uses the object; ranks of workers are below it.
    pub threads: u32,
    /// Threads of the run that are no workers; their ranks follow those of the workers.
    pub others: u32,
    /// Instances seen.
    pub instances: u32,
    /// Share of the run's cost, 0 to 1.
    pub cost_share: f64,
    /// Whether it matters, alone or together with others ([`super::hot()`]).
    pub hot: bool,
    /// Accesses, any order.
    pub accesses: Vec<PageAccess>,
    /// The instances in order of allocation; empty when the profile does not list them.
    pub rows: Vec<Row>,
    /// Whether `accesses` are reads, writes or both. Only both can show that an object is written before it is read.
    pub filter: AccessFilter,
    /// How the run was sampled.
    pub sampling: Sampling,
    /// The accesses again, by the code that made them; empty when one function makes nearly all.
    pub by_code: Vec<CodeAccesses>,
}

/// The accesses of one function, or of one of its loop nests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CodeAccesses {
    /// Name of the function; empty for all code without a part of its own.
    pub function: String,
    /// `function file:line` of one of its instructions, to tell the loops of a function apart.
    pub place: String,
    /// Its accesses, any order.
    pub accesses: Vec<PageAccess>,
}

/// Share of the run's cost of every entry, in the order of `summary.entries`. When no sample carries a cost
/// (imported profiles), the number of accesses is used instead.
pub fn cost_shares(summary: &Summary) -> Vec<f64> {
    let costs: Vec<u64> = summary.entries.iter().map(|e| e.total.cost_ns).collect();
    let weights =
        if costs.iter().any(|c| *c > 0) { costs } else { summary.entries.iter().map(|e| e.total.accesses()).collect() };
    let total: u64 = weights.iter().sum();
    weights.into_iter().map(|w| if total == 0 { 0.0 } else { w as f64 / total as f64 }).collect()
}

/// The view of one entry of a summary.
pub fn view_of(entry: &Entry, summary: &Summary) -> ObjectView {
    let index = summary.entries.iter().position(|e| e.id == entry.id);
    let share = index.and_then(|i| cost_shares(summary).get(i).copied()).unwrap_or(0.0);
    let hot = index.is_some_and(|i| hot(summary)[i]);
    view_with(entry, summary, &roles(summary), Weight { share, hot }, AccessFilter::All)
}

/// What an entry means for the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Weight {
    /// Share of the run's cost, 0 to 1.
    pub share: f64,
    /// See [`super::hot()`].
    pub hot: bool,
}

/// As [`view_of`], with precomputed roles and weight, and only the accesses that pass `filter`. The view of a cold
/// entry has no accesses, because no detector needs them.
pub(crate) fn view_with(
    entry: &Entry,
    summary: &Summary,
    roles: &Roles,
    weight: Weight,
    filter: AccessFilter,
) -> ObjectView {
    let page_size = summary.header.page_size.max(1);
    let threads = roles.team_of(entry);
    let hot = weight.hot;
    let skew = entry.seen.first().map_or(entry.vaddr, |i| i.base) % page_size;
    let pool = Pool::of(entry, page_size);
    let accesses = |cells: &[Cell]| {
        let mut list = page_accesses(cells, roles, threads, filter);
        if let Some(pool) = &pool {
            list.iter_mut().for_each(|a| a.page = pool.page(a.instance, a.page));
        }
        list
    };
    let of_code = |part: &CodePart| CodeAccesses {
        function: part.function.clone(),
        place: part.place.clone(),
        accesses: accesses(&part.cells),
    };
    let row = |i: &crate::profile::records::Instance| Row {
        size: i.size,
        allocator: i.thread.and_then(|t| roles.number(t, threads)),
    };
    let period_ns = summary.header.sampling.period_ns;
    ObjectView {
        size: pool.as_ref().map_or(entry.size, |p| entry.size.max((p.pages * page_size).saturating_sub(skew))),
        skew,
        page_size,
        threads,
        others: roles.idlers(),
        instances: u32::try_from(entry.instances).unwrap_or(u32::MAX),
        cost_share: weight.share,
        hot,
        accesses: if hot { accesses(&entry.cells) } else { Vec::new() },
        rows: if hot { entry.seen.iter().map(row).collect() } else { Vec::new() },
        by_code: if hot { entry.by_code.iter().map(of_code).collect() } else { Vec::new() },
        filter,
        sampling: Sampling {
            duration_s: summary.duration_ns() as f64 / 1e9,
            rate_hz: if period_ns == 0 { 0.0 } else { 1e9 / period_ns as f64 },
            once: summary.header.sampling.sampler == FAULT,
        },
    }
}

/// The pages among which the small objects of a call site lie. Objects of other call sites and free memory lie between
/// them, so they may extend over many more pages than their bytes fill.
struct Pool {
    /// From this instance and page on, pages to leave out before; ascending.
    gaps: Vec<((u32, u32), u32)>,
    /// Pages from the first to the last that is used, without what is left out; of the instance with most.
    pages: u64,
}

impl Pool {
    /// The pool of an entry of small objects that fill a page. A gap of more pages than all its objects fill says
    /// nothing of them (heaps of different threads lie far apart), and is shortened to so many.
    fn of(entry: &Entry, page_size: u64) -> Option<Pool> {
        if entry.kind != ObjectKind::SmallHeap || entry.size < page_size {
            return None;
        }
        let most = u32::try_from(entry.size.div_ceil(page_size)).unwrap_or(u32::MAX);
        let mut pool = Pool { gaps: Vec::new(), pages: 0 };
        // Cells ascend by instance and page.
        for cells in entry.cells.chunk_by(|a, b| a.instance == b.instance) {
            let (mut last, mut left_out) = (0, 0);
            pool.gaps.push(((cells[0].instance, 0), 0));
            for cell in cells {
                let gap = cell.page.saturating_sub(last);
                if gap > most {
                    left_out += gap - most;
                    pool.gaps.push(((cell.instance, cell.page), left_out));
                }
                last = cell.page;
            }
            pool.pages = pool.pages.max(u64::from(last - left_out) + 1);
        }
        Some(pool)
    }

    /// Number of a page without what is left out before it.
    fn page(&self, instance: u32, page: u32) -> u32 {
        let after = self.gaps.partition_point(|(from, _)| *from <= (instance, page));
        let gap = after.checked_sub(1).and_then(|i| self.gaps.get(i)).filter(|(from, _)| from.0 == instance);
        page - gap.map_or(0, |(_, left_out)| *left_out)
    }
}

/// Cells as accesses of thread ranks among `threads` workers, those that pass `filter`.
fn page_accesses(cells: &[Cell], roles: &Roles, threads: u32, filter: AccessFilter) -> Vec<PageAccess> {
    let (reads, writes) = (filter != AccessFilter::Write, filter != AccessFilter::Read);
    let count = |wanted: bool, n: u64| if wanted { n as f32 } else { 0.0 };
    cells
        .iter()
        .filter(|c| filter.count(&c.counters) > 0)
        .filter_map(|c| {
            Some(PageAccess {
                instance: c.instance,
                page: c.page,
                thread: roles.number(c.thread, threads)?,
                slot: c.slot,
                reads: count(reads, c.counters.reads),
                writes: count(writes, c.counters.writes),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::summary::Counters;

    /// Small objects that fill so many pages, with accesses to (instance, page).
    fn pool(pages: u64, used: &[(u32, u32)]) -> Entry {
        let counters = Counters { reads: 1, ..Counters::default() };
        let cell = |&(instance, page): &(u32, u32)| Cell { instance, page, thread: 0, slot: 0, counters };
        let cells = used.iter().map(cell).collect();
        Entry { kind: ObjectKind::SmallHeap, size: pages * 4096, cells, ..Entry::default() }
    }

    #[test]
    fn gaps_of_a_pool_are_at_most_as_long_as_its_objects_together() {
        let far = 1 << 30;
        let entry = pool(10, &[(0, 2), (0, 12), (0, far), (0, far + 3), (1, 0), (1, 40)]);
        let pool = Pool::of(&entry, 4096).unwrap();
        let pages: Vec<u32> = entry.cells.iter().map(|c| pool.page(c.instance, c.page)).collect();
        assert_eq!((pages, pool.pages), (vec![2, 12, 22, 25, 0, 10], 26));
        assert!(Pool::of(&Entry { kind: ObjectKind::Heap, ..entry.clone() }, 4096).is_none());
        assert!(Pool::of(&Entry { size: 4095, ..entry }, 4096).is_none(), "less than a page is small wherever it lies");
    }
}
