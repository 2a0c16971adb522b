//! The overview: what ran, the objects by cost, where the other samples went, the threads, what to do next.

use numamma_kernel::terminal::shell_word;

use super::style::{Paint, heading, labelled, table};
use super::table::Column;
use super::units::{bytes, count, date, duration, middle, percent, percents, plural};
use super::{Overhead, View, by_others_words, kind_word, sample_account, shared_lines, thread_table};
use crate::detect::{Pattern, PatternKind};
use crate::profile::record::{CHARGE_NS, FAULT, NOT_FOLLOWED, behind};
use crate::profile::records::{Ended, KernelCost, Stats};
use crate::profile::summary::{Entry, base_name, ratio};

/// Narrowest column in which names of objects still differ.
const MIN_NAME: usize = 18;
/// Narrowest report; a smaller terminal wraps it.
const MIN_WIDTH: usize = 60;
/// Share of spinning from which the head says so: as little as an object that can be hot.
const LEAST_SPINNING: f64 = 0.01;
/// Files with spinning code that are named.
const MOST_PLACES: usize = 3;
/// CPU time of a program below which shares of it say nothing.
const LEAST_CPU_NS: u64 = 20_000_000;

/// Writes the overview.
pub fn render(view: &View) -> String {
    let width = view.options.width.max(MIN_WIDTH);
    let mut out = String::new();
    head(&mut out, view, width);
    objects(&mut out, view, width);
    if let Some(processes) = &view.processes {
        processes.render(&mut out, view, width);
    }
    account(&mut out, view, width);
    shared_lines::render(&mut out, view, width);
    thread_table::render(&mut out, view, width);
    next_step(&mut out, view, width);
    out
}

/// What ran, where, and how well it was sampled.
pub(super) fn head(out: &mut String, view: &View, width: usize) {
    let paint = Paint(view.options.color);
    let (h, stats) = (&view.summary.header, &view.summary.stats);
    out.push_str(&paint.bold(&middle(&h.program.path, width)));
    out.push('\n');
    if h.program.argv.len() > 1 {
        labelled(out, "arguments", &h.program.argv[1..].join(" "), width);
    }
    let ended = match view.summary.ending {
        Some(Ended::Exited(code)) => format!("exit status {code}"),
        Some(Ended::Signalled(signal)) => format!("killed by signal {signal}"),
        Some(Ended::Runs) => "the program went on".into(),
        Some(Ended::Unknown) => "it ended (how is known to its parent only)".into(),
        None => "its end is not recorded".into(),
    };
    let run = format!("{} on {}, {}, {ended}", date(h.started_unix), h.host, duration(stats.duration_ns));
    labelled(out, "run", &run, width);
    if let Some(processes) = &view.processes {
        processes.head(out, width);
    }
    labelled(out, "machine", &machine(view), width);
    labelled(out, "sampler", &sampler(view), width);
    labelled(out, "samples", &samples(view), width);
    if let Some(text) = spinning(view) {
        labelled(out, "spinning", &text, width);
    }
    labelled(out, "overhead", &overhead(view), width);
    labelled(out, "verdict", &super::run_verdict::of(view), width);
    if let Some(predicted) = &view.predicted {
        let text = format!("share of remote accesses under first touch on {}", predicted.target);
        labelled(out, "predicted", &text, width);
    }
    for note in &view.summary.notes {
        labelled(out, "note", note, width);
    }
}

fn machine(view: &View) -> String {
    let h = &view.summary.header;
    let nodes = &h.topology.nodes;
    let memory: u64 = nodes.iter().map(|n| n.memory).sum();
    let mut text =
        format!("{}, {}", plural(nodes.len() as u64, "NUMA node"), plural(h.topology.cpu_count() as u64, "CPU"));
    if memory > 0 {
        text.push_str(&format!(", {}", bytes(memory)));
    }
    text.push_str(&format!(", {} pages, transparent huge pages: {}", bytes(h.page_size), h.thp));
    text
}

fn sampler(view: &View) -> String {
    let h = &view.summary.header;
    let rate = match h.sampling.period_ns {
        0 | CHARGE_NS => String::new(),
        period => format!(", {:.0} Hz (every {} of CPU time of each thread)", 1e9 / period as f64, duration(period)),
    };
    let reason = if h.sampling.reason.is_empty() { String::new() } else { format!("; {}", h.sampling.reason) };
    format!("{}{rate}{reason}", h.sampling.sampler)
}

fn samples(view: &View) -> String {
    let s = &view.summary.stats;
    if s.samples == 0 && view.total.accesses() > 0 {
        let seen = count(view.total.accesses());
        return format!("{seen} accesses seen; the counters of the recording are missing");
    }
    let share = |n: u64, of: u64| percent(ratio(n, of));
    if view.summary.header.sampling.period_ns == CHARGE_NS {
        let lost = share(s.lost, s.samples + s.lost);
        if view.summary.header.sampling.sampler == FAULT {
            return format!(
                "{} first uses of pages, {} lost ({lost}); each counts as one access, whatever follows it before the page \
                 faults again",
                count(s.samples),
                count(s.lost)
            );
        }
        return format!("{} accesses counted, {} lost ({lost})", count(s.samples), count(s.lost));
    }
    let mut text = format!(
        "{} taken, {} ({}) attributed to a memory access, {} lost ({}); {} accesses seen",
        count(s.samples),
        count(s.resolved),
        share(s.resolved, s.samples),
        count(s.lost),
        share(s.lost, s.samples + s.lost),
        count(view.total.accesses()),
    );
    if s.achieved > 0.0 {
        text.push_str(&format!("; {} of the samples expected from the CPU time", percent(s.achieved)));
    }
    text
}

/// Share of the charged CPU time in which threads waited for others, and in which files; none where it is too little to
/// matter.
fn spinning(view: &View) -> Option<String> {
    let spinning = &view.summary.spinning;
    let share = ratio(spinning.cost_ns(), spinning.cost_ns() + view.total.cost_ns);
    if share < LEAST_SPINNING {
        return None;
    }
    let mut places: Vec<&str> = Vec::new();
    for (frame, _) in &spinning.code {
        let module =
            view.summary.modules.get(frame.module as usize).map_or("code without a file", |m| base_name(&m.path));
        if !places.contains(&module) {
            places.push(module);
        }
    }
    places.truncate(MOST_PLACES);
    let places = if places.is_empty() { String::new() } else { format!(" ({})", places.join(", ")) };
    Some(format!(
        "threads wait for others in {} of the charged CPU time, in loops{places}; it is left out of the costs, and shrinks \
         with the work of the slowest thread",
        percent(share)
    ))
}

fn overhead(view: &View) -> String {
    let sampling = &view.summary.header.sampling;
    let (each, allowed) = (duration(sampling.cost_ns), percent(sampling.max_overhead));
    let stats = &view.summary.stats;
    if stats.samples > 0 && (1..LEAST_CPU_NS).contains(&stats.cpu_ns) {
        return format!("not known: the program used the CPU for {} only", duration(stats.cpu_ns));
    }
    match view.overhead_shares() {
        _ if stats.samples == 0 => overhead_without_samples(stats),
        Some(Overhead { samples, tracking: 0.0, faults: 0.0, mappings: 0.0, .. }) => {
            format!("at least {} of the program's CPU time ({each} per sample; allowed {allowed})", percent(samples))
        }
        Some(parts) => {
            let mappings = match parts.mappings {
                0.0 => String::new(),
                share => format!("; mappings {}", percent(share)),
            };
            format!(
                "about {} of the program's CPU time (samples {}, {each} each; tracking of allocations {}; page faults \
                 {}{mappings}; allowed {allowed}), without what the caches lose by it; besides, the recorder used {} \
                 ({} of the program's time)",
                percent(parts.of_program()),
                percent(parts.samples),
                percent(parts.tracking),
                percent(parts.faults),
                duration(stats.recorder_cpu_ns),
                percent(parts.recorder)
            )
        }
        None if sampling.sampler == FAULT => {
            format!(
                "threads wait for faults at most {} of the time, or as long as NUMA balancing takes where that makes the \
                 pages fault",
                percent(sampling.max_overhead)
            )
        }
        None if sampling.period_ns == CHARGE_NS => {
            "not measured: the hooks make the program several times slower, which changes none of the counts".into()
        }
        None if sampling.cost_ns == 0 => "not measured (with -F or -c the cost of a sample is not calibrated)".into(),
        None => "not known: the CPU time of the program was not recorded".into(),
    }
}

/// Without samples nothing tells what the tracking of allocations takes.
fn overhead_without_samples(stats: &Stats) -> String {
    let Some(KernelCost { faults_ns, mappings_ns }) = stats.events.kernel.filter(|_| stats.cpu_ns > 0) else {
        return match stats.alloc_events + stats.faults {
            0 => "no samples, no overhead".into(),
            _ => "not known: no samples tell what the tracking of allocations takes".into(),
        };
    };
    let of_program = |ns: u64| percent(ratio(ns, stats.cpu_ns));
    format!(
        "page faults {}, mappings {} of the program's CPU time; no samples tell what the tracking of allocations \
         takes; besides, the recorder used {}",
        of_program(faults_ns),
        of_program(mappings_ns),
        duration(stats.recorder_cpu_ns)
    )
}

/// The table of objects.
fn objects(out: &mut String, view: &View, width: usize) {
    let shown = view.shown();
    let order = match view.options.sort {
        super::Sort::Cost if view.summary.header.sampling.sampler == FAULT => "first uses of their pages (cost)",
        super::Sort::Cost => "CPU time at their accesses (cost)",
        super::Sort::Accesses => "accesses seen",
    };
    heading(out, view, width, &format!("Objects by {order}"));
    if shown.is_empty() {
        labelled(out, "none", "no sample was attributed to an object; see below where the samples went", width);
        return;
    }
    table(out, columns(view, &shown), width, MIN_NAME, view.options.color);
}

fn columns(view: &View, shown: &[&Entry]) -> Vec<Column> {
    let paint = |f: &dyn Fn(&Entry) -> String| shown.iter().map(|e| f(e)).collect::<Vec<_>>();
    let mut columns = vec![
        Column::new("object", false, 0, paint(&|e| e.name.clone())),
        Column::new("#", true, 4, paint(&|e| e.id.to_string())),
        Column::new("kind", false, 8, paint(&|e| kind_word(e.kind).into())),
        Column::new("size", true, 0, paint(&|e| bytes(e.size))),
    ];
    if shown.iter().any(|e| e.instances > 1) {
        columns.push(Column::new("count", true, 4, paint(&|e| count(e.instances))));
    }
    columns.push(Column::new("cost", true, 0, paint(&|e| percent(view.cost_share(e)))));
    let head = match view.options.access {
        super::AccessFilter::All => "accesses",
        super::AccessFilter::Read => "reads",
        super::AccessFilter::Write => "writes",
    };
    columns.push(Column::new(head, true, 5, paint(&|e| percent(view.share(e)))));
    columns.push(Column::new("read/write", true, 7, paint(&|e| read_write(e))));
    columns.push(Column::new("threads", true, 3, paint(&|e| e.threads().len().to_string())));
    columns.push(Column::new("first touch", false, 2, paint(&|e| first_touch(e))));
    if shown.iter().any(|e| e.total.placed > 0) {
        let remote = |e: &Entry| super::remote_words(view, &e.total);
        columns.push(Column::new("remote", true, 1, paint(&remote)));
    }
    columns.push(Column::new("by others", true, 1, paint(&|e| by_others_words(&view.by_others(e, None)))));
    if view.predicted.is_some() {
        let remote = |e: &Entry| view.predicted_remote(e).map_or("?".into(), percent);
        columns.push(Column::new("predicted remote", true, 0, paint(&remote)));
    }
    if !view.patterns.is_empty() {
        columns.push(Column::new("pattern", false, 0, paint(&|e| view.pattern(e).map_or("?".into(), pattern))));
        let sure = |e: &Entry| view.pattern(e).map_or(String::new(), sureness);
        columns.push(Column::new("confidence", true, 6, paint(&sure)));
    }
    columns
}

/// Percent of reads and of writes: `75/25%`.
fn read_write(e: &Entry) -> String {
    let reads = (ratio(e.total.reads, e.total.accesses()) * 100.0).round() as u64;
    format!("{reads}/{}%", 100 - reads)
}

/// Share of the pages from which one first toucher stands for all: what the paper calls a master touch.
const ONE_TOUCHER: f64 = 0.9;

/// `thread 0`, `thread 0 92%` when others touched a little, `8 threads`.
fn first_touch(e: &Entry) -> String {
    let touchers = e.first_touchers();
    let pages: u64 = touchers.iter().map(|(_, n)| n).sum();
    match touchers[..] {
        [] => "not seen".into(),
        [(thread, _)] => format!("thread {thread}"),
        [(thread, n), ..] if n as f64 >= pages as f64 * ONE_TOUCHER => {
            format!("thread {thread} {:.0}%", (n as f64 / pages as f64 * 100.0).floor())
        }
        _ => format!("{} threads", touchers.len()),
    }
}

/// `block-cyclic 160 MiB`: the pattern with its period.
fn pattern(p: &Pattern) -> String {
    let kind = super::pattern_words(p.kind);
    p.period.map_or(kind.to_owned(), |period| format!("{kind} {}", bytes(period)))
}

/// Confidence of a verdict; of those that are none, nothing.
fn sureness(p: &Pattern) -> String {
    match p.kind {
        PatternKind::Small | PatternKind::Cold | PatternKind::Unsure => String::new(),
        _ => format!("{:.0}%", p.confidence * 100.0),
    }
}

/// `block-cyclic 160 MiB, confidence 97%`.
pub(super) fn verdict(p: &Pattern) -> String {
    match sureness(p) {
        sure if sure.is_empty() => pattern(p),
        sure => format!("{}, confidence {sure}", pattern(p)),
    }
}

/// Where all samples went.
fn account(out: &mut String, view: &View, width: usize) {
    let (total, rows) = sample_account::of(view);
    heading(out, view, width, &format!("Where the samples went (100% = {} taken or lost)", count(total)));
    let costs: Vec<f64> = rows.iter().filter_map(|r| r.cost).collect();
    let mut cost = percents(&costs);
    // Rows without a cost follow those with one.
    cost.resize(rows.len(), String::new());
    let samples: Vec<f64> = rows.iter().map(|r| r.samples).collect();
    let columns = vec![
        Column::new("where", false, 0, rows.iter().map(|r| r.label.clone()).collect()),
        Column::new("share of cost", true, 0, cost),
        Column::new("share of samples", true, 0, percents(&samples)),
    ];
    table(out, columns, width, MIN_NAME, view.options.color);
}

fn next_step(out: &mut String, view: &View, width: usize) {
    if let Some(behind) = behind(&view.summary.notes) {
        out.push_str(&format!("\nNext: {behind}\n"));
        return;
    }
    let profile = view.options.profile.as_ref().map_or(String::new(), |p| format!(" {p}"));
    let Some(hot) = view.shown().first().copied() else {
        let argv = &view.summary.header.program.argv;
        let program: Vec<String> = argv.iter().map(|word| shell_word(word)).collect();
        let program = program.join(" ");
        let has_others = view.summary.notes.iter().any(|note| note.contains(NOT_FOLLOWED));
        let (option, text) = if has_others {
            ("--follow ", "which records the processes that it starts, too")
        } else if view.summary.stats.samples == 0 {
            (
                "",
                "with work for a few seconds; work that it leaves to a process that runs already is recorded with \
                 numamma profile -p PID",
            )
        } else {
            ("-F 1000 ", "and let it run longer, then report again")
        };
        // Commands are for copying: they are neither wrapped nor cut.
        out.push_str(&format!("\nNext: numamma profile {option}-- {program}\n"));
        super::units::wrap(text, width - 6).iter().for_each(|line| out.push_str(&format!("      {line}\n")));
        return;
    };
    let mut name = if hot.linkage.is_empty() || hot.part.is_some() { hot.name.clone() } else { hot.linkage.clone() };
    if view.summary.entries.iter().filter(|e| e.name == hot.name).count() > 1 {
        name = format!("#{}", hot.id);
    }
    out.push_str(&format!("\nNext: numamma advise{profile} > policy.toml\n"));
    out.push_str(&format!("  or: numamma report{profile} --object={}\n", shell_word(&name)));
}
