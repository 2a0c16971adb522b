//! Periods of rows that are not used from end to end.
//!
//! Rows of a triangle are used up to the diagonal: the unused part of a row becomes smaller, or larger, from repeat to
//! repeat. Every period from the distance between the first used pages to the distance between the last ones then gives
//! all samples to their threads, and folding cannot tell which one is the distance between the rows. In a triangle, in
//! either order of its elements, it is the shorter of the two: where the rows begin in one line the ends move away from
//! each other, and where they end in one line the beginnings do. Both distances are slopes of straight lines through
//! the edges, by least squares.

use super::fold::{Cut, Fit, Folder, noise_of};
use super::limits::WHOLE_TOLERANCE;
use super::points::{Point, Points};

/// Standard errors by which the two distances must differ: one chance in 15,000.
const DIFFERENT_SIGMA: f64 = 4.0;
/// Pages by which the unused part must grow or shrink over all repeats: less moves no edge to another page.
const LEAST_GROWTH: f64 = 1.0;
/// Standard errors within which a whole number of pages is the distance (95 %): programs pad rows to pages.
const WHOLE_SIGMA: f64 = 2.0;
/// Part of the samples of a page shared by two slices that belong to the wrong one, for edges anywhere in the page.
const SHARED_PAGE: f64 = 0.25;
/// Pages of shift within which a whole number of pages is the distance where the slope was too small: the shared pages
/// at either end of the rows leave one each open.
const MOVED: f64 = 2.0;
/// Steps per page of shift between the first repeat and the last one.
const STEPS: f64 = 4.0;
/// Mean absolute residuals from which an edge does not count: where no sample fell on the first part of a row, the edge
/// is that of the next row.
const OUTLIER: f64 = 4.0;
/// Least mean absolute residual, pages: an edge anywhere in a page has the same number, so that residuals are uniform
/// in half a page to either side.
const LEAST_RESIDUAL: f64 = 0.25;
/// Rounds in which such edges are left out.
const ROUNDS: usize = 3;

/// Where one thread's slice ends and the next one's begins in one repeat, in pages.
#[derive(Debug, Clone, Copy)]
struct Edge {
    /// Index of the first of the two cuts.
    boundary: usize,
    repeat: f64,
    /// First page after the slice before.
    end: f64,
    /// First page of the slice after.
    start: f64,
}

/// A slope common to all boundaries, each with an offset of its own.
#[derive(Debug, Clone, Copy)]
struct Slope {
    value: f64,
    error: f64,
}

/// The fit at the distance between the rows, when the unused part of the rows grows or shrinks from repeat to repeat;
/// with the standard error in pages; none when it does not, and the found period stands.
pub(crate) fn rows(points: &Points, folder: &mut Folder, found: &Fit) -> Option<(Fit, f64)> {
    let edges = edges(points, found);
    let repeats = f64::from(points.pages) / found.period;
    let unused = slope(&edges, found, |e| e.start - e.end)?;
    let growth = unused.value.abs();
    if growth < DIFFERENT_SIGMA * unused.error || growth * repeats < LEAST_GROWTH {
        return None;
    }
    let (start, end) = (slope(&edges, found, |e| e.start)?, slope(&edges, found, |e| e.end)?);
    let rows = if start.value < end.value { start } else { end };
    if rows.value >= found.period {
        return None;
    }
    // The first parts of rows without samples make the slope too small, and then samples of other threads lie in the
    // slices. A page in which one slice ends and the next one begins cannot be right for both.
    let noise = noise_of(found);
    let top = folder.fit_with(points, found.period, noise).likelihood;
    let slice = found.period / found.cuts.len().max(1) as f64;
    let least = top - (SHARED_PAGE / slice).min(1.0) * top.max(0.0);
    let step = LEAST_GROWTH / (STEPS * repeats);
    let count = ((found.period - rows.value) / step) as u32;
    let at = |i: u32| rows.value + f64::from(i) * step;
    let first = (0..=count).find(|i| folder.fit_with(points, at(*i), noise).likelihood >= least)?;
    let shortest = at(first);
    let whole = shortest.round();
    let off = (shortest - whole).abs();
    let near = match first {
        0 => off * repeats < LEAST_GROWTH || off <= WHOLE_SIGMA * rows.error,
        _ => off * repeats < MOVED,
    };
    let as_good = |fit: &Fit| fit.likelihood >= top - WHOLE_TOLERANCE;
    let period = if near && as_good(&folder.fit_with(points, whole, noise)) { whole } else { shortest };
    Some((folder.fit(points, period), rows.error))
}

/// The edges between the slices of different threads in every repeat in which both threads have samples there.
fn edges(points: &Points, fit: &Fit) -> Vec<Edge> {
    let parts = f64::from(fit.parts);
    let repeats = (f64::from(points.pages) / fit.period).ceil();
    let noise = noise_of(fit);
    let mut edges = Vec::new();
    for (boundary, pair) in fit.cuts.windows(2).enumerate().filter(|(_, p)| p[0].thread != p[1].thread) {
        let before = Slice::of(&pair[0], points, parts, repeats, noise);
        let after = Slice::of(&pair[1], points, parts, repeats, noise);
        for repeat in 0..repeats as u32 {
            let page = |at: f64| (f64::from(repeat) * fit.period + at).max(0.0) as u32;
            let (first, last) = (page(before.first), page(after.last));
            let from = points.list.partition_point(|p| p.page < first);
            let to = from + points.list[from..].partition_point(|p| p.page <= last);
            if let Some((end, start)) = between(&points.list[from..to], first, &before, &after) {
                edges.push(Edge { boundary, repeat: f64::from(repeat), end, start });
            }
        }
    }
    edges
}

/// A slice, and what its samples weigh for and against a page being a used one (Poisson).
struct Slice {
    thread: u16,
    first: f64,
    last: f64,
    /// Nats by which a sample of the thread speaks for its page being used.
    sample: f64,
    /// Nats by which a page without any speaks against it.
    page: f64,
}

impl Slice {
    fn of(cut: &Cut, points: &Points, parts: f64, repeats: f64, noise: f64) -> Slice {
        let (first, last) = (f64::from(cut.first) / parts, f64::from(cut.last) / parts);
        let inside = (cut.matched / ((last - first).max(1.0) * repeats)).max(f64::MIN_POSITIVE);
        let of_thread = points.threads[usize::from(cut.thread)].weight;
        let outside = (noise * of_thread / f64::from(points.pages)).clamp(f64::MIN_POSITIVE, 0.5 * inside);
        Slice { thread: cut.thread, first, last, sample: (inside / outside).ln(), page: inside - outside }
    }
}

/// The first unused page after the slice `before` and the first used one of `after`, so that the samples of both are
/// most likely; none unless each of them has a used page. `list` begins at the page `first`.
fn between(list: &[Point], first: u32, before: &Slice, after: &Slice) -> Option<(f64, f64)> {
    // Evidence for all pages up to here being used by `before`, and by `after`, and the best division so far.
    let (mut used, mut other) = (0.0f64, 0.0f64);
    let (mut best_end, mut end) = (0.0f64, None);
    let (mut best, mut found) = (f64::NEG_INFINITY, None);
    let mut next = first;
    for of_page in list.chunk_by(|a, b| a.page == b.page) {
        let page = of_page[0].page;
        let weight =
            |s: &Slice| -> f64 { of_page.iter().filter(|p| p.thread == s.thread).map(|p| f64::from(p.weight)).sum() };
        let skipped = f64::from(page - next);
        next = page + 1;
        (used, other) = (used - skipped * before.page, other - skipped * after.page);
        // From this page on: all that speaks for `after` comes later, so that the least sum before it is best.
        if let Some(end) = end
            && best_end - other > best
        {
            (best, found) = (best_end - other, Some((end, page)));
        }
        used += weight(before) * before.sample - before.page;
        other += weight(after) * after.sample - after.page;
        if used > best_end {
            (best_end, end) = (used, Some(page + 1));
        }
    }
    let (end, start) = found?;
    Some((f64::from(end), f64::from(start)))
}

/// Least squares through one coordinate of the edges, without those that lie far off.
fn slope(edges: &[Edge], fit: &Fit, of: impl Fn(&Edge) -> f64) -> Option<Slope> {
    let mut used: Vec<&Edge> = edges.iter().collect();
    let mut found = None;
    for _ in 0..ROUNDS {
        let mut groups = vec![(0.0, 0.0, 0.0); fit.cuts.len()];
        for e in &used {
            let g = &mut groups[e.boundary];
            *g = (g.0 + 1.0, g.1 + e.repeat, g.2 + of(e));
        }
        let centred = |e: &Edge| {
            let (n, x, y) = groups[e.boundary];
            (e.repeat - x / n, of(e) - y / n)
        };
        let (xx, xy) = used.iter().map(|e| centred(e)).fold((0.0, 0.0), |s, (x, y)| (s.0 + x * x, s.1 + x * y));
        let offsets = groups.iter().filter(|g| g.0 > 0.0).count() as f64;
        let free = used.len() as f64 - offsets - 1.0;
        if xx <= 0.0 || free < 1.0 {
            return found;
        }
        let value = xy / xx;
        let off = |e: &Edge| {
            let (x, y) = centred(e);
            (y - value * x).abs()
        };
        let square: f64 = used.iter().map(|e| off(e).powi(2)).sum();
        found = Some(Slope { value, error: (square / free / xx).sqrt() });
        let mean = used.iter().map(|e| off(e)).sum::<f64>() / used.len() as f64;
        let limit = OUTLIER * mean.max(LEAST_RESIDUAL);
        let kept: Vec<&Edge> = used.iter().copied().filter(|e| off(e) <= limit).collect();
        if kept.len() == used.len() {
            break;
        }
        used = kept;
    }
    found
}
