//! The threads of the run.

use serde_json::{Value, json};

use super::View;
use super::style::{heading, indent, table};
use super::table::Column;
use super::units::{count, duration, middle, percent, ranges};
use crate::detect::{KindLoad, MIGRATION_SCORE, Rank, Role, is_uneven, loads, migration, waits_for_threads};
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
    table(out, columns(view, &shown), width, MIN_NAME, view.options.color);
    score(out, view);
    kinds(out, view, width);
}

/// Writes the thread-migration score.
fn score(out: &mut String, view: &View) {
    let Some(found) = migration(view.summary) else { return };
    let above = if found.score > MIGRATION_SCORE { "above" } else { "not above" };
    let bound = if found.bound > 0.0 {
        format!("; {} of them of threads that are bound and stay where they are", percent(found.bound))
    } else {
        String::new()
    };
    let crowded = if found.crowded > 0.0 {
        let share = percent(found.crowded);
        format!("; {share} of them in OpenMP teams with more threads than the {} CPUs, which do not count", found.cpus)
    } else {
        String::new()
    };
    indent(
        out,
        &format!(
            "migration score {:.0}: waits for other threads, after which a thread may be on another CPU, per thread and s; \
             {above} {MIGRATION_SCORE}{bound}{crowded}",
            found.score
        ),
    );
}

/// Writes the table of kinds that run beside each other.
fn kinds(out: &mut String, view: &View, width: usize) {
    let loads = loads(view.summary, &view.roles);
    if loads.is_empty() {
        return;
    }
    heading(out, view, width, "Threads by kind, of those that run beside each other");
    let all: u64 = loads.iter().map(|load| load.accesses).sum();
    let cells = |f: &dyn Fn(&KindLoad) -> String| loads.iter().map(f).collect::<Vec<_>>();
    let share = |n: f64| percent(n / all.max(1) as f64);
    let mut columns = vec![
        Column::new("runs", false, 0, cells(&|load| load.name.clone())),
        Column::new("kind", true, 4, cells(&|load| load.kind.to_string())),
        Column::new("threads", true, 0, cells(&|load| load.threads.to_string())),
        Column::new("accesses", true, 0, cells(&|load| share(load.accesses as f64))),
        Column::new("per thread", true, 1, cells(&|load| share(load.mean()))),
    ];
    if is_uneven(&loads) {
        columns.push(Column::new("better", true, 0, cells(&|load| load.proposed.to_string())));
    }
    table(out, columns, width, MIN_NAME, view.options.color);
}

/// For scripts: the score and what it is made of; null where waits are not known.
pub(super) fn migration_json(view: &View) -> Value {
    let Some(found) = migration(view.summary) else { return Value::Null };
    json!({
        "score": found.score,
        "threshold": MIGRATION_SCORE,
        "waits": found.waits,
        "threads": found.threads,
        "parallel_share": found.parallel,
        "bound_share": found.bound,
        "crowded_share": found.crowded,
    })
}

/// For scripts: the kinds that run beside each other.
pub(super) fn kinds_json(view: &View) -> Value {
    let loads = loads(view.summary, &view.roles);
    let uneven = is_uneven(&loads);
    let row = |load: &KindLoad| {
        json!({
            "kind": load.kind,
            "name": load.name,
            "threads": load.threads,
            "accesses": load.accesses,
            "proposed_threads": if uneven { load.proposed } else { load.threads },
        })
    };
    loads.iter().map(row).collect()
}

fn columns(view: &View, shown: &[&Thread]) -> Vec<Column> {
    let total: u64 = view.summary.threads.iter().map(|t| t.samples).sum();
    let threads = &view.summary.threads;
    let waits = waits_for_threads(threads);
    let waited = |t: &Thread| {
        let of = waits.get(t.id as usize).copied().flatten();
        of.map_or("?".into(), |waits| count(waits.round() as u64))
    };
    let blocked = |t: &Thread| match t.waits.filter(|waits| waits.seen_ns > 0) {
        Some(waits) => percent(crate::profile::summary::ratio(waits.blocked_ns, waits.seen_ns)),
        None => "?".into(),
    };
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
    if threads.iter().any(|t| t.waits.is_some()) {
        columns.push(Column::new("waits", true, 0, cells(&waited)));
        columns.push(Column::new("blocked", true, 1, cells(&blocked)));
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
