//! Instances of one call site laid end to end as rows of one object, in order of allocation: `for i { row[i] =
//! malloc(n) }` makes a matrix whose rows are distributed over the threads in contiguous ranges or cyclically.

use super::points::{self, Points};
use super::samples::Samples;
use super::{ObjectView, Owner, Pattern, Row, private};

/// Fewest rows of a group, and fewest rows per thread: fewer instances are taken for per-thread buffers.
const FEWEST_ROWS: usize = 16;
const FEWEST_PER_THREAD: f64 = 3.0;
/// Share of the instances allocated by the thread that uses them from which they are taken for per-thread buffers.
const OWN_ROWS: f64 = 0.9;
/// Share of the rows with samples whose owner the slices must say, too, to be believed of the others: as many as must
/// be known before rows are placed by number.
const AGREEING: f64 = 0.75;
/// Largest number of distinct pages of a group, the same as for one object.
const MOST_PAGES: u64 = 1 << 21;

/// The rows laid end to end.
#[derive(Debug)]
pub(crate) struct Group {
    /// Points over the pages of all rows.
    pub points: Points,
    /// Bytes per page of `points`.
    pub unit: u64,
    /// Number of rows.
    pub rows: u32,
}

/// Lays the instances end to end, when there are enough and their sizes are known.
pub(crate) fn lay_out(view: &ObjectView, samples: &Samples) -> Option<Group> {
    if view.rows.len() < FEWEST_ROWS {
        return None;
    }
    let mut first = Vec::with_capacity(view.rows.len());
    let mut pages = 0u64;
    for row in &view.rows {
        first.push(pages);
        pages += pages_of(row, samples);
    }
    let grain = pages.div_ceil(MOST_PAGES).next_power_of_two();
    let place = |instance: u32, page: u32| {
        let first = first.get(instance as usize)?;
        Some(((first + u64::from(page)) / grain) as u32)
    };
    let raw = samples.list.iter().filter_map(|s| Some((place(s.instance, s.page)?, s.thread, s.weight)));
    let points = points::gather(pages.div_ceil(grain) as u32, samples, raw);
    let unit = samples.unit.saturating_mul(grain);
    Some(Group { points, unit, rows: u32::try_from(view.rows.len()).unwrap_or(u32::MAX) })
}

/// The owners of private rows that follow the slices of `pattern`: of a row with more than one sample of its main user
/// the one that `sampled` says, and of the others, those without a sample included, the one that the slices say. Where
/// the slices do not say the same as the samples, only the sampled owners.
pub(crate) fn owners(view: &ObjectView, samples: &Samples, pattern: &Pattern, sampled: Vec<Owner>) -> Vec<Owner> {
    let said = by_slices(view, samples, pattern, &sampled);
    let of = |owner: &Owner| said.get(owner.instance as usize).copied().flatten();
    let same = sampled.iter().filter(|owner| of(owner) == Some(owner.thread)).count();
    if (same as f64) < AGREEING * sampled.len() as f64 {
        return sampled;
    }
    let mut sums = vec![0.0; samples.threads()];
    let mut sure = vec![false; said.len()];
    for list in private::instances(samples) {
        // A single sample may be a stray one.
        let (_, top, _) = private::main_user(list, &mut sums);
        if let Some(sure) = sure.get_mut(list[0].instance as usize) {
            *sure = top > 1.0;
        }
    }
    let is_sure = |owner: &&Owner| sure.get(owner.instance as usize) == Some(&true);
    let mut threads = said.clone();
    for owner in sampled.iter().filter(|owner| is_sure(owner) || of(owner).is_none()) {
        if let Some(thread) = threads.get_mut(owner.instance as usize) {
            *thread = Some(owner.thread);
        }
    }
    let owner = |(instance, thread): (u32, Option<u32>)| Some(Owner { instance, thread: thread? });
    (0..).zip(threads).filter_map(owner).collect()
}

/// The thread that the slices of a group's pattern say for each row: that of the slice in which its middle lies. Only
/// between the first and the last row of the slice that samples show to be its thread's: the edge between two slices
/// lies halfway, and rows of a thread without samples may lie there.
fn by_slices(view: &ObjectView, samples: &Samples, pattern: &Pattern, sampled: &[Owner]) -> Vec<Option<u32>> {
    let mut start = 0u64;
    let middle = |row: &Row| {
        let bytes = pages_of(row, samples).saturating_mul(samples.unit);
        let at = start.saturating_add(bytes / 2);
        start = start.saturating_add(bytes);
        pattern.period.map_or(at, |period| at % period.max(1))
    };
    let middles: Vec<u64> = view.rows.iter().map(middle).collect();
    let slice = |at: u64| pattern.slices.iter().position(|slice| (slice.start..slice.end).contains(&at));
    let mut known: Vec<Option<(u64, u64)>> = vec![None; pattern.slices.len()];
    for owner in sampled {
        let Some(&at) = middles.get(owner.instance as usize) else { continue };
        if let Some(i) = slice(at).filter(|i| pattern.slices[*i].thread == owner.thread) {
            let (low, high) = known[i].unwrap_or((at, at));
            known[i] = Some((low.min(at), high.max(at)));
        }
    }
    // The middles of rows at one place of a period differ by what the period is wrong by, so each reaches half a row.
    let reach = view.rows.iter().map(|row| pages_of(row, samples)).min().unwrap_or(0).saturating_mul(samples.unit) / 2;
    let thread = |at: &u64| {
        let i = slice(*at)?;
        let (low, high) = known[i]?;
        (low.saturating_sub(reach)..high.saturating_add(reach)).contains(at).then_some(pattern.slices[i].thread)
    };
    middles.iter().map(thread).collect()
}

/// Pages of a row among the pages of all rows.
fn pages_of(row: &Row, samples: &Samples) -> u64 {
    row.size.div_ceil(samples.unit).clamp(1, u64::from(samples.pages))
}

/// Whether private instances may be rows of one object: enough of them for each thread, and most not allocated by the
/// thread that uses them.
pub(crate) fn may_be_rows(view: &ObjectView, owners: &[Owner]) -> bool {
    let mut users: Vec<u32> = owners.iter().map(|o| o.thread).collect();
    users.sort_unstable();
    users.dedup();
    let allocator = |o: &Owner| view.rows.get(o.instance as usize).and_then(|r| r.allocator);
    let known = owners.iter().filter(|o| allocator(o).is_some()).count();
    let own = owners.iter().filter(|o| allocator(o) == Some(o.thread)).count();
    let buffers = own as f64 >= OWN_ROWS * known as f64;
    users.len() >= 2 && !buffers && view.rows.len() as f64 >= FEWEST_PER_THREAD * users.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{PageAccess, PatternKind, Slice, classify};
    use crate::profile::summary::AccessFilter;

    /// 200 rows of 8 pages that thread 0 allocates, row r for thread r % 4, with `accesses` in (row, thread).
    fn rows(accesses: impl Iterator<Item = (u32, u32)>) -> ObjectView {
        let access = |(k, (instance, thread)): (u32, (u32, u32))| {
            let slot = (k % 50) as u16;
            PageAccess { instance, page: k * 5 % 8, thread, slot, reads: 1.0, writes: 0.0 }
        };
        ObjectView {
            size: 8 * 4096,
            skew: 0,
            page_size: 4096,
            threads: 4,
            others: 0,
            instances: 200,
            cost_share: 1.0,
            hot: true,
            accesses: (0..).zip(accesses).map(access).collect(),
            rows: vec![Row { size: 8 * 4096, allocator: Some(0) }; 200],
            filter: AccessFilter::All,
            sampling: super::super::Sampling::default(),
            by_code: Vec::new(),
        }
    }

    #[test]
    fn the_period_tells_the_owners_of_rows_without_samples() {
        // Two rows in five have samples, each four.
        let sampled = |row: &u32| matches!(row % 10, 1 | 2 | 5 | 6);
        let own = (0..200).filter(sampled).flat_map(|row| [(row, row % 4); 4]);
        // Other rows have one of another thread, and one row so many that it is an exception.
        let strays = [(3, 1), (57, 3), (120, 2), (180, 1), (188, 0), (94, 3), (94, 3), (94, 3), (94, 3)];
        let pattern = classify(&rows(own.chain(strays)));
        assert_eq!((pattern.kind, pattern.group), (PatternKind::BlockCyclic, Some(200)), "{}", pattern.evidence);
        let wanted = |row: u32| Owner { instance: row, thread: if row == 94 { 3 } else { row % 4 } };
        assert_eq!(pattern.owners, (0..200).map(wanted).collect::<Vec<_>>());
    }

    #[test]
    fn slices_that_say_something_else_than_the_samples_are_not_believed() {
        let view = rows((0..100).map(|row| (2 * row, row % 3)));
        let samples = Samples::of(&view);
        let slices = (0..4).map(|t| Slice { start: t * 32768, end: (t + 1) * 32768, thread: t as u32 }).collect();
        let pattern =
            Pattern { period: Some(4 * 32768), slices, ..Pattern::new(PatternKind::BlockCyclic, 1.0, "".into()) };
        let sampled: Vec<Owner> = (0..100).map(|row| Owner { instance: 2 * row, thread: row % 3 }).collect();
        assert_eq!(owners(&view, &samples, &pattern, sampled.clone()), sampled);
    }

    /// Samples of thread 0 are missing: its rows lie between the slices of two others, which end halfway.
    #[test]
    fn rows_of_a_thread_without_samples_are_not_given_to_its_neighbours() {
        let pattern =
            classify(&rows((0..200).filter(|row| row % 4 != 0 && row % 5 > 1).flat_map(|row| [(row, row % 4); 4])));
        assert_eq!((pattern.kind, pattern.group), (PatternKind::BlockCyclic, Some(200)), "{}", pattern.evidence);
        let wanted = (0..200).filter(|row| row % 4 != 0).map(|row| Owner { instance: row, thread: row % 4 });
        assert_eq!(pattern.owners, wanted.collect::<Vec<_>>(), "{}", pattern.evidence);
    }
}
