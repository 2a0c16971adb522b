//! Instances of one call site laid end to end as rows of one object, in order of allocation: `for i { row[i] =
//! malloc(n) }` makes a matrix whose rows are distributed over the threads in contiguous ranges or cyclically.

use super::points::{self, Points};
use super::samples::Samples;
use super::{ObjectView, Owner, Row};

/// Fewest rows of a group, and fewest rows per thread: fewer instances are taken for per-thread buffers.
const FEWEST_ROWS: usize = 16;
const FEWEST_PER_THREAD: f64 = 3.0;
/// Share of the instances allocated by the thread that uses them from which they are taken for per-thread buffers.
const OWN_ROWS: f64 = 0.9;
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
    let pages_of = |row: &Row| row.size.div_ceil(samples.unit).clamp(1, u64::from(samples.pages));
    let mut first = Vec::with_capacity(view.rows.len());
    let mut pages = 0u64;
    for row in &view.rows {
        first.push(pages);
        pages += pages_of(row);
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
