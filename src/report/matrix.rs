//! Pages against threads: which thread accesses which part of an object.

use super::View;
use super::style::Paint;
use super::units::bytes;
use crate::profile::records::ThreadId;
use crate::profile::summary::{Entry, TIME_SLOTS};

/// Shades from no access to the most accesses, for terminals without colour.
const ASCII: &[u8] = b" .:-=+*#%@";
/// The same steps as colours, dark blue to yellow (xterm's 256 colours).
const COLORS: [u8; 9] = [17, 18, 54, 90, 126, 162, 203, 215, 226];
/// Heights of a bar, for terminals that show them.
const BARS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Counts of an object by range of pages and group of threads. Instances of a call site lie on each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// Pages of the object (the largest instance).
    pub pages: u64,
    /// Threads of each column, first and last.
    pub columns: Vec<(ThreadId, ThreadId)>,
    /// `counts[row][column]`.
    pub counts: Vec<Vec<u64>>,
    /// Threads that first touched pages of the row with their number of pages, most first.
    pub touchers: Vec<Vec<(ThreadId, u64)>>,
}

impl Matrix {
    /// Bins an entry to at most `rows` and `columns`. None when no access has a page.
    pub fn of(view: &View, entry: &Entry, rows: usize, columns: usize) -> Option<Matrix> {
        let pages = pages_of(view, entry)?;
        let last_thread = entry.cells.iter().map(|c| c.thread).max()? as usize;
        // All threads up to the last that takes part: a thread that stays away must show as a gap.
        let threads = last_thread + 1;
        let rows = (rows.max(1) as u64).min(pages) as usize;
        let columns = columns.clamp(1, threads);
        let row_of = |page: u64| (page.min(pages - 1) * rows as u64 / pages) as usize;
        let column_of = |thread: usize| thread * columns / threads;
        let mut counts = vec![vec![0; columns]; rows];
        for cell in &entry.cells {
            let n = view.options.access.count(&cell.counters);
            counts[row_of(u64::from(cell.page))][column_of(cell.thread as usize)] += n;
        }
        let mut groups = vec![(ThreadId::MAX, 0); columns];
        for thread in 0..threads {
            let group = &mut groups[column_of(thread)];
            *group = (group.0.min(thread as ThreadId), group.1.max(thread as ThreadId));
        }
        Some(Matrix { pages, columns: groups, counts, touchers: touchers(entry, pages, rows) })
    }

    /// First page of a row.
    fn first_page(&self, row: usize) -> u64 {
        (row as u64 * self.pages).div_ceil(self.counts.len() as u64)
    }

    /// Draws the matrix: offset, one cell per thread, first toucher.
    pub fn draw(&self, page_size: u64, color: bool) -> Vec<String> {
        let paint = Paint(color);
        let most = self.counts.iter().flatten().copied().max().unwrap_or(0);
        let cell = if self.columns.len() <= 16 { 2 } else { 1 };
        let mut lines = self.heading(cell);
        for (row, counts) in self.counts.iter().enumerate() {
            let cells: String = counts.iter().map(|&n| shade(paint, n, most, cell)).collect();
            let offset = bytes(self.first_page(row) * page_size);
            let by = match self.touchers[row][..] {
                [] => "?".into(),
                [(thread, _)] => format!("{thread}"),
                [(thread, _), ..] => format!("{thread} and {} more", self.touchers[row].len() - 1),
            };
            lines.push(format!("{offset:>9} |{cells}| {by}"));
        }
        lines
    }

    /// What a row, a column and a shade are.
    pub fn legend(&self, page_size: u64, color: bool) -> Vec<String> {
        let pages = (self.pages as f64 / self.counts.len() as f64).ceil() as u64;
        let row = bytes(pages * page_size);
        let shades = match color {
            true => "dark is few, bright is many".to_owned(),
            false => format!("from few to many: {}", ASCII[1..].iter().map(|&c| c as char).collect::<String>()),
        };
        vec![format!("a row is {row}, a column a thread; a cell its accesses there, {shades}; empty: none seen")]
    }

    /// Thread numbers above the columns, digits below each other, and what the sides mean.
    fn heading(&self, cell: usize) -> Vec<String> {
        let first: Vec<String> = self.columns.iter().map(|c| c.0.to_string()).collect();
        let digits = first.iter().map(|t| t.len()).max().unwrap_or(1);
        let mut lines = Vec::new();
        for d in 0..digits {
            let last = d + 1 == digits;
            let line: String = first
                .iter()
                .map(|t| {
                    let at = (d + t.len()).checked_sub(digits);
                    let digit = at.and_then(|i| t.as_bytes().get(i)).map_or(' ', |&b| b as char);
                    format!("{digit:>cell$}")
                })
                .collect();
            let (left, right) = if last { ("offset", "first touch by thread") } else { ("", "") };
            lines.push(format!("{left:>9}  {line}  {right}").trim_end().to_owned());
        }
        lines
    }
}

/// Pages of the largest instance, never fewer than were seen.
pub(super) fn pages_of(view: &View, entry: &Entry) -> Option<u64> {
    let page_size = view.summary.header.page_size.max(1);
    let seen = entry.cells.iter().map(|c| u64::from(c.page) + 1).max()?;
    let sized = entry.seen.iter().map(|i| (i.base % page_size).saturating_add(i.size).div_ceil(page_size)).max();
    // Objects without a size of their own (grouped small ones, stacks, unknown) are as large as what was seen.
    let by_size = if entry.kind == crate::profile::records::ObjectKind::SmallHeap { 0 } else { sized.unwrap_or(0) };
    Some(seen.max(by_size))
}

pub(super) fn touchers(entry: &Entry, pages: u64, rows: usize) -> Vec<Vec<(ThreadId, u64)>> {
    let rows = rows as u64;
    let mut maps = vec![std::collections::BTreeMap::<ThreadId, u64>::new(); rows as usize];
    for run in &entry.touches {
        let (mut page, end) = (u64::from(run.page), (u64::from(run.page) + u64::from(run.pages)).min(pages));
        while page < end {
            let row = page * rows / pages;
            let next = ((row + 1) * pages).div_ceil(rows).min(end);
            *maps[row as usize].entry(run.thread).or_default() += next - page;
            page = next;
        }
    }
    let sorted = |map: std::collections::BTreeMap<ThreadId, u64>| {
        let mut list: Vec<_> = map.into_iter().collect();
        list.sort_by_key(|&(thread, n)| (std::cmp::Reverse(n), thread));
        list
    };
    maps.into_iter().map(sorted).collect()
}

/// One cell. The scale is the square root: a tenth of the peak must still be seen.
fn shade(paint: Paint, n: u64, most: u64, width: usize) -> String {
    let steps = ASCII.len() - 1;
    let level = level(n, most, steps);
    if !paint.0 || level == 0 {
        return (ASCII[level] as char).to_string().repeat(width);
    }
    paint.indexed(COLORS[level - 1], &"█".repeat(width))
}

/// 0 for nothing, 1 to `steps` for something.
fn level(n: u64, most: u64, steps: usize) -> usize {
    if n == 0 || most == 0 {
        return 0;
    }
    (((n as f64 / most as f64).sqrt() * steps as f64).ceil() as usize).clamp(1, steps)
}

/// Accesses of an entry over the run, one character per time slot.
pub fn sparkline(view: &View, entry: &Entry) -> String {
    let mut slots = vec![0; usize::from(TIME_SLOTS)];
    for cell in &entry.cells {
        if let Some(slot) = slots.get_mut(usize::from(cell.slot)) {
            *slot += view.options.access.count(&cell.counters);
        }
    }
    let most = slots.iter().copied().max().unwrap_or(0);
    let bar = |&n: &u64| match view.options.color {
        true => BARS[level(n, most, BARS.len() - 1)].to_owned(),
        false => (ASCII[level(n, most, ASCII.len() - 1)] as char).to_string(),
    };
    slots.iter().map(bar).collect()
}
