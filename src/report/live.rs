//! One screen of a program that runs: objects by cost, and the pages and threads of one of them.

use std::collections::HashMap;

use super::matrix::Matrix;
use super::style::Paint;
use super::table::{Column, fit};
use super::units::{bytes, count, duration, middle, percent, plural};
use super::{View, by_others_words};
use crate::profile::summary::Entry;

/// Narrowest column in which names of objects still differ.
const MIN_NAME: usize = 18;
/// Lines of the matrix beside its rows.
const MATRIX_MARGIN: usize = 4;
/// Rows from which a matrix tells something.
const MIN_ROWS: usize = 4;

/// What the last screen counted, for what happened since.
#[derive(Debug, Default)]
pub struct Before {
    cost_ns: HashMap<String, u64>,
    samples: u64,
    duration_ns: u64,
}

impl Before {
    /// What this screen counts.
    pub fn of(view: &View) -> Before {
        let entries = view.summary.entries.iter();
        Before {
            cost_ns: entries.map(|e| (e.name.clone(), e.total.cost_ns)).collect(),
            samples: view.summary.stats.samples,
            duration_ns: view.summary.stats.duration_ns,
        }
    }

    fn since(&self, e: &Entry) -> u64 {
        e.total.cost_ns.saturating_sub(self.cost_ns.get(&e.name).copied().unwrap_or(0))
    }
}

/// Lines of text, each at most as wide as the screen.
#[derive(Debug, Default)]
pub struct Frame {
    /// The lines.
    pub lines: Vec<String>,
    /// Index of the line of the chosen object.
    pub chosen: Option<usize>,
    /// Names of the objects shown, in their order.
    pub objects: Vec<String>,
}

/// The screen. `chosen`: name of the object whose pages are shown, else the first; `keys`: what keys do; `height`:
/// lines, none without a limit.
pub fn frame(view: &View, before: &Before, chosen: Option<&str>, keys: &str, height: Option<usize>) -> Frame {
    let width = view.options.width;
    let mut frame = Frame { lines: vec![head(view, before, width), middle(keys, width)], ..Frame::default() };
    let entries: Vec<&Entry> = view.ranked();
    let lines_left = height.map_or(usize::MAX, |h| h.saturating_sub(frame.lines.len() + 2));
    // A third of the screen for the objects, more where the pages of one cannot be shown.
    let rows = view.options.top.unwrap_or(usize::MAX).min(lines_left / 2);
    let shown: Vec<&Entry> = entries.into_iter().take(rows.max(1)).collect();
    if shown.is_empty() {
        frame.lines.push("no sample was attributed to an object so far".into());
        return frame;
    }
    let (table, _) = fit(columns(view, before, &shown), width, MIN_NAME, false);
    let first = frame.lines.len();
    frame.lines.extend(table.lines().map(|line| line.trim_end().to_owned()));
    let index = chosen.and_then(|name| shown.iter().position(|e| e.name == name)).unwrap_or(0);
    // The table has its rows at its end.
    frame.chosen = (frame.lines.len() - shown.len()).checked_add(index).filter(|line| *line >= first);
    frame.objects = shown.iter().map(|e| e.name.clone()).collect();
    let rows = height.map_or(view.options.height, |h| h.saturating_sub(frame.lines.len() + MATRIX_MARGIN));
    if rows >= MIN_ROWS {
        frame.lines.push(String::new());
        frame.lines.extend(pages(view, shown[index], rows.min(view.options.height), width));
    }
    frame
}

/// `./app  12.3 s, 4 threads, 5,120 samples (2,000 a second), 99 % at a memory access`.
fn head(view: &View, before: &Before, width: usize) -> String {
    let stats = &view.summary.stats;
    let (samples, ns) =
        (stats.samples.saturating_sub(before.samples), stats.duration_ns.saturating_sub(before.duration_ns));
    let rate = samples as f64 * 1e9 / ns.max(1) as f64;
    let living = view.summary.threads.iter().filter(|t| t.end_ns.is_none()).count();
    let lost = if stats.lost > 0 { format!(", {} lost", count(stats.lost)) } else { String::new() };
    let text = format!(
        "{}, {}, {} samples ({rate:.0} a second{lost}), {} at a memory access",
        duration(stats.duration_ns),
        plural(living as u64, "thread"),
        count(stats.samples),
        percent(crate::profile::summary::ratio(stats.resolved, stats.samples)),
    );
    let name = middle(&view.summary.header.program.path, width.saturating_sub(text.len() + 2).max(MIN_NAME));
    cut(format!("{name}  {text}"), width)
}

fn columns(view: &View, before: &Before, shown: &[&Entry]) -> Vec<Column> {
    let column = |f: &dyn Fn(&Entry) -> String| shown.iter().map(|e| f(e)).collect::<Vec<_>>();
    let recent: u64 = view.summary.entries.iter().map(|e| before.since(e)).sum();
    let now = |e: &Entry| percent(crate::profile::summary::ratio(before.since(e), recent));
    let mut columns = vec![
        Column::new("object", false, 0, column(&|e| e.name.clone())),
        Column::new("size", true, 3, column(&|e| bytes(e.size))),
        Column::new("cost", true, 0, column(&|e| percent(view.cost_share(e)))),
        Column::new("now", true, 0, column(&now)),
        Column::new("accesses", true, 4, column(&|e| count(view.accesses(e)))),
        Column::new("threads", true, 2, column(&|e| e.threads().len().to_string())),
    ];
    if view.summary.header.topology.nodes.len() > 1 {
        let remote = |e: &Entry| view.remote_share(&e.total).map_or("?".into(), percent);
        columns.push(Column::new("remote", true, 1, column(&remote)));
    }
    columns.push(Column::new("by others", true, 1, column(&|e| by_others_words(&view.by_others(e, None)))));
    columns
}

/// Pages against threads of one object.
fn pages(view: &View, entry: &Entry, rows: usize, width: usize) -> Vec<String> {
    // Beside the cells: the offset, the frame and the first toucher.
    let columns = width.saturating_sub(32).max(1);
    let Some(matrix) = Matrix::of(view, entry, rows, columns) else {
        return vec![cut(format!("{}: no page of it is known", entry.name), width)];
    };
    let bold = Paint(false).bold(&format!("{}, {}", entry.name, plural(matrix.pages, "page")));
    let lines = matrix.draw(view.summary.header.page_size, false);
    std::iter::once(bold).chain(lines).map(|line| cut(line, width)).collect()
}

fn cut(line: String, width: usize) -> String {
    if line.chars().count() <= width { line } else { line.chars().take(width).collect() }
}
