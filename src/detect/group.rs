//! Instances of one call site as rows of one object, in order of allocation: `for i { row[i] = malloc(n) }` makes a
//! matrix, and each thread works on a run of rows, or rows are dealt out in turn.

use super::points::{self, Points};
use super::samples::Samples;
use super::structure::Trial;
use super::{ObjectView, Owner, Row};

/// Fewest rows of a group, and fewest per thread that uses them: fewer are buffers of the threads.
const FEWEST_ROWS: usize = 16;
const FEWEST_PER_THREAD: f64 = 3.0;
/// Share of the rows allocated by their own user from which they are buffers of the threads.
const OWN_ROWS: f64 = 0.9;
/// Pages of a group that are told apart, as of one object.
const MOST_PAGES: u64 = 1 << 21;

/// The rows laid end to end.
#[derive(Debug)]
pub(crate) struct Group {
    /// Its points.
    pub points: Points,
    /// Bytes per page of `points`.
    pub unit: u64,
    /// Rows.
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

/// The description of private instances as one object, when they are rows that one thread made for others and their
/// users follow a formula along the group.
pub(crate) fn rows(view: &ObjectView, samples: &Samples, owners: &[Owner]) -> Option<Trial> {
    let mut users: Vec<u32> = owners.iter().map(|o| o.thread).collect();
    users.sort_unstable();
    users.dedup();
    let allocator = |o: &Owner| view.rows.get(o.instance as usize).and_then(|r| r.allocator);
    let known = owners.iter().filter(|o| allocator(o).is_some()).count();
    let own = owners.iter().filter(|o| allocator(o) == Some(o.thread)).count();
    let buffers = own as f64 >= OWN_ROWS * known as f64;
    if users.len() < 2 || buffers || (view.rows.len() as f64) < FEWEST_PER_THREAD * users.len() as f64 {
        return None;
    }
    let trial = Trial::of_group(lay_out(view, samples)?);
    trial.has_formula().then_some(trial)
}
