//! The threads of the run.

use super::View;
use super::style::{heading, indent};
use super::table::{Column, fit};
use super::units::{count, duration, middle, percent, ranges};
use crate::detect::{Rank, Role};
use crate::profile::records::Thread;

/// Threads shown without --all: two per core of a large node already fill a screen.
const MAX_THREADS: usize = 32;
/// Narrowest useful thread name.
const MIN_NAME: usize = 8;
/// Widest list of CPUs; a longer list is cut, and the thread moved often.
const MAX_CPUS: usize = 16;

/// Writes the table of threads.
pub(super) fn render(out: &mut String, view: &View, width: usize) {
    let threads = &view.summary.threads;
    if threads.is_empty() {
        return;
    }
    let limit = if view.options.top.is_none() { usize::MAX } else { MAX_THREADS };
    let shown: Vec<&Thread> = threads.iter().take(limit).collect();
    let more = match threads.len() - shown.len() {
        0 => String::new(),
        n => format!(" (first {} of {}; --all shows the other {n})", shown.len(), threads.len()),
    };
    heading(out, view, width, &format!("Threads, in order of creation{more}"));
    indent(out, &fit(columns(view, &shown), width.saturating_sub(2), MIN_NAME, view.options.color).0);
}

fn columns(view: &View, shown: &[&Thread]) -> Vec<Column> {
    let total: u64 = view.summary.threads.iter().map(|t| t.samples).sum();
    let cells = |f: &dyn Fn(&Thread) -> String| shown.iter().map(|t| f(t)).collect::<Vec<_>>();
    let role = |t: &Thread| view.roles.of(t.id);
    let start = |t: &Thread| match t.start_routine {
        Some(frame) => middle(&view.summary.frame_name(frame), 40),
        None if t.tid == t.pid && t.pid != 0 => "main".into(),
        None => "?".into(),
    };
    let life = |t: &Thread| {
        let end = t.end_ns.unwrap_or(view.summary.duration_ns()).max(t.start_ns);
        format!("{} - {}", duration(t.start_ns), duration(end))
    };
    let node_list = |t: &Thread| {
        let topology = &view.summary.header.topology;
        let mut nodes: Vec<u32> = t.cpus.iter().filter_map(|&c| topology.node_of_cpu(u32::from(c))).collect();
        nodes.sort_unstable();
        known_ranges(nodes)
    };
    let mut columns = vec![
        Column::new("name", false, 0, cells(&|t| t.name.clone())),
        Column::new("id", true, 0, cells(&|t| t.id.to_string())),
        Column::new("kind", true, 5, cells(&|t| role(t).map_or("?".into(), |role| role.kind.to_string()))),
        Column::new("slot", true, 6, cells(&|t| role(t).map_or("?".into(), |role| role.slot.to_string()))),
        Column::new("worker", true, 0, cells(&|t| worker(role(t)))),
        Column::new("start routine", false, 3, cells(&start)),
        Column::new("alive", true, 2, cells(&life)),
        Column::new("samples", true, 0, cells(&|t| count(t.samples))),
        Column::new("share", true, 4, cells(&|t| percent(crate::profile::summary::ratio(t.samples, total)))),
        Column::new("CPUs", true, 0, cells(&|t| middle(&known_ranges(t.cpus.iter().map(|&c| u32::from(c))), MAX_CPUS))),
    ];
    if view.summary.header.topology.nodes.len() > 1 {
        columns.push(Column::new("nodes", true, 0, cells(&node_list)));
    }
    columns.push(Column::new("CPU changes", true, 0, cells(&|t| count(t.migrations))));
    if view.summary.threads.iter().any(|t| t.pid != view.summary.header.pid && t.pid != 0) {
        columns.push(Column::new("pid", true, 1, cells(&|t| t.pid.to_string())));
    }
    columns
}

/// `2 of 8`, or `-` for a thread that does not work in the compute phase.
fn worker(role: Option<Role>) -> String {
    role.and_then(|role| role.rank).map_or("-".into(), |Rank { rank, of }| format!("{rank} of {of}"))
}

fn known_ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let text = ranges(numbers);
    if text.is_empty() { "?".into() } else { text }
}
