//! One object in detail: its figures, where it was allocated, which threads access which pages, when and from which
//! code.

use super::matrix::{Matrix, sparkline};
use super::style::{Paint, heading, labelled, table};
use super::table::Column;
use super::units::{bytes, count, duration, middle, percent, plural, ranges};
use super::{View, by_others_words, kind_word};
use crate::profile::summary::{Entry, How, TIME_SLOTS, base_name, ratio};

/// Columns a matrix needs beside its cells: offset, borders, first toucher.
const MATRIX_SIDES: usize = 36;
/// Instructions listed.
const MAX_SHOWN_CODE: usize = 8;
/// Threads listed; the matrix shows all.
const MAX_SHOWN_THREADS: usize = 16;

/// Writes the details of one entry.
pub fn render(view: &View, entry: &Entry) -> String {
    let width = view.options.width.max(60);
    let paint = Paint(view.options.color);
    let mut out = format!("{}\n", paint.bold(&middle(&entry.name, width)));
    facts(&mut out, view, entry, width);
    if let Some(processes) = &view.processes {
        processes.of_entry(entry, &mut out, width);
    }
    stack(&mut out, view, entry, width);
    matrix(&mut out, view, entry, width);
    time(&mut out, view, entry, width);
    threads(&mut out, view, entry, width);
    code(&mut out, view, entry, width);
    out
}

fn facts(out: &mut String, view: &View, e: &Entry, width: usize) {
    let mut line = |label: &str, text: &str| labelled(out, label, text, width);
    line("kind", &kind(view, e));
    let plurality = if e.instances > 1 {
        let each = if e.kind == crate::profile::records::ObjectKind::SmallHeap { "at most alive" } else { "largest" };
        format!("{} ({each}), {}, {} seen", bytes(e.size), plural(e.instances, "instance"), count(e.seen.len() as u64))
    } else {
        bytes(e.size)
    };
    line("size", &plurality);
    line(
        "cost",
        &format!("{} of the CPU time at all accesses ({})", percent(view.cost_share(e)), duration(e.total.cost_ns)),
    );
    line(
        "accesses",
        &format!(
            "{} of all ({}): {}, {}",
            percent(view.share(e)),
            count(view.accesses(e)),
            plural(e.total.reads, "read"),
            plural(e.total.writes, "write")
        ),
    );
    let unpaged = e.details.unpaged.accesses();
    if unpaged > 0 {
        line(
            "",
            &format!("{} of them without a page: only the object is known (as in vector gathers)", count(unpaged)),
        );
    }
    match view.remote_share(&e.total) {
        Some(share) => line(
            "remote",
            &format!("{} of {} accesses to pages whose node is known", percent(share), count(e.total.placed)),
        ),
        None if view.summary.header.topology.nodes.len() < 2 => line(
            "remote",
            "- (one node): nothing is remote where the program was recorded; --nodes N or --target predicts it for another \
             machine",
        ),
        None => line("remote", "unknown: the nodes of its pages were not recorded"),
    }
    if let Some(predicted) = &view.predicted {
        let share = view.predicted_remote(e).map_or("unknown".into(), percent);
        line("predicted", &format!("{share} remote under first touch on {}", predicted.target));
    }
    line("by others", &by_others(view, e));
    if let Some(p) = view.pattern(e) {
        line("pattern", &super::overview::verdict(p));
        line("", &p.evidence);
        p.segments.iter().for_each(|s| line("", &phase(s)));
        p.by_code.iter().for_each(|c| line("", &of_function(c)));
    }
    line("touched by", &touched_by(e));
    if let Some(text) = lifetime(view, e) {
        line("lifetime", &text);
    }
    let frees = e.details.frees;
    if frees.all > 0 {
        let share = percent(ratio(frees.by_others, frees.all));
        line("freed", &format!("{}, {share} by another thread than the one that allocated", plural(frees.all, "time")));
    }
}

/// `83.1% of 1,200 accesses are to pages that another thread touched first; for 3.0% of all, the first touch is not
/// known`.
fn by_others(view: &View, e: &Entry) -> String {
    let by = view.by_others(e, None);
    let Some(share) = by.share() else { return "unknown: no first touch of its pages was recorded".into() };
    let unknown = if by.unknown > 0 {
        format!("; for {} of all, the first touch is not known", percent(1.0 - by.known_share()))
    } else {
        String::new()
    };
    format!(
        "{} of {} accesses are to pages that another thread touched first{unknown}",
        percent(share),
        count(by.known)
    )
}

/// `1.5 ms (median of those seen), 2000 allocations (400 a second) by 4 threads`; none where nothing was freed.
pub(super) fn lifetime(view: &View, e: &Entry) -> Option<String> {
    let t = view.summary.turnover(e).filter(|t| t.kept_share < 1.0)?;
    Some(format!(
        "{} (median of those seen), {} by {}",
        duration(t.median_ns),
        t.count(),
        plural(t.threads as u64, "thread")
    ))
}

/// `0.40 s to 2.10 s (35%): block, confidence 97%`.
fn phase(s: &crate::detect::Segment) -> String {
    let what = if s.initialisation {
        format!("initialisation, {}", s.pattern.evidence)
    } else {
        super::overview::verdict(&s.pattern)
    };
    format!("{:.2} s to {:.2} s ({}): {what}", s.start_s, s.end_s, percent(s.share))
}

/// `solve._omp_fn.0 (62%): block, confidence 97%; each of 8 threads has one contiguous part ...`.
fn of_function(c: &crate::detect::CodePattern) -> String {
    let what = super::overview::verdict(&c.pattern);
    format!("{} ({}): {what}; {}", c.function, percent(c.share), c.pattern.evidence)
}

pub(super) fn kind(view: &View, e: &Entry) -> String {
    let module = e.module.and_then(|m| view.summary.modules.get(m as usize));
    let part = e.part.as_ref().map_or(String::new(), |p| {
        format!("bytes {} to {} of {}, a ", p.offset, p.offset + e.size, bytes(p.parent_size))
    });
    match module {
        Some(m) => {
            let symbol = if e.linkage.is_empty() { String::new() } else { format!(" {}", e.linkage) };
            format!("{part}{}{symbol} at {:#x} in {}", kind_word(e.kind), e.vaddr, base_name(&m.path))
        }
        None => format!("{part}{}", kind_word(e.kind)),
    }
}

pub(super) fn touched_by(e: &Entry) -> String {
    let touchers = e.first_touchers();
    let pages: u64 = touchers.iter().map(|(_, n)| n).sum();
    if touchers.is_empty() {
        return "unknown: no first touch was recorded".into();
    }
    let each: Vec<String> = touchers
        .iter()
        .take(6)
        .map(|(thread, n)| format!("thread {thread} {} ({})", plural(*n, "page"), percent(ratio(*n, pages))))
        .collect();
    let more = touchers.len().saturating_sub(6);
    let more = if more > 0 { format!(", {} more", plural(more as u64, "thread")) } else { String::new() };
    let extrapolated = match e.extrapolated_touches() {
        0.0 => String::new(),
        share => format!("; {} of them extrapolated from some of the page faults", percent(share)),
    };
    format!("first by {}{more}{extrapolated}", each.join(", "))
}

fn stack(out: &mut String, view: &View, e: &Entry, width: usize) {
    let Some(site) = &e.site else { return };
    heading(out, view, width, "Allocated by (innermost first; > is the line that names it)");
    let (steps, naming) = view.summary.steps(site);
    for (i, step) in steps.iter().enumerate() {
        let mark = if i == naming { ">" } else { " " };
        let (name, place) = (view.summary.step_name(step), view.summary.frame_place(step.frame));
        let text = match step.how {
            How::Inlined => format!("{name}  (inlined)"),
            How::TailCalled => format!("{name}  (left by a tail call)"),
            How::Called if name.contains(&place) => name,
            How::Called => format!("{name}  [{place}]"),
        };
        out.push_str(&format!("  {mark} {}\n", middle(&text, width - 4)));
    }
}

fn matrix(out: &mut String, view: &View, e: &Entry, width: usize) {
    let page_size = view.summary.header.page_size;
    let Some(matrix) = Matrix::of(view, e, view.options.height, width.saturating_sub(MATRIX_SIDES)) else { return };
    let binned = if matrix.columns.iter().any(|(a, b)| a != b) { "; several threads per column" } else { "" };
    let overlaid = if e.seen.len() > 1 { "; instances on top of each other" } else { "" };
    let title = format!(
        "Pages x threads ({} of {}, {} rows{binned}{overlaid})",
        plural(matrix.pages, "page"),
        bytes(page_size),
        matrix.counts.len()
    );
    heading(out, view, width, &title);
    let lines = matrix.draw(page_size, view.options.color);
    lines.iter().for_each(|line| out.push_str(&format!("{}\n", line.trim_end())));
    let legend = matrix.legend(page_size, view.options.color);
    legend.iter().for_each(|text| labelled(out, "", text, width));
}

fn time(out: &mut String, view: &View, e: &Entry, width: usize) {
    let duration_ns = view.summary.duration_ns();
    let slot = duration(duration_ns / u64::from(TIME_SLOTS));
    heading(out, view, width, &format!("Accesses over the run (each character {slot})"));
    out.push_str(&format!("  0 |{}| {}\n", sparkline(view, e), duration(duration_ns)));
}

fn threads(out: &mut String, view: &View, e: &Entry, width: usize) {
    let threads = e.threads();
    if threads.is_empty() {
        return;
    }
    heading(out, view, width, &format!("Threads ({} of {})", threads.len(), view.summary.threads.len()));
    let shown = &threads[..threads.len().min(MAX_SHOWN_THREADS)];
    let cells =
        |f: &dyn Fn(&(u32, crate::profile::summary::Counters)) -> String| shown.iter().map(f).collect::<Vec<_>>();
    let name = |t: u32| view.summary.threads.get(t as usize).map_or("?".into(), |t| t.name.clone());
    let total = e.total;
    let mut columns = vec![
        Column::new("name", false, 0, cells(&|(t, _)| name(*t))),
        Column::new("thread", true, 0, cells(&|(t, _)| t.to_string())),
        Column::new("cost", true, 0, cells(&|(_, c)| percent(ratio(c.cost_ns, total.cost_ns)))),
        Column::new("accesses", true, 0, cells(&|(_, c)| percent(ratio(c.accesses(), total.accesses())))),
        Column::new("reads", true, 2, cells(&|(_, c)| count(c.reads))),
        Column::new("writes", true, 2, cells(&|(_, c)| count(c.writes))),
    ];
    if total.placed > 0 {
        columns.push(Column::new("remote", true, 1, cells(&|(_, c)| super::remote_words(view, c))));
    }
    columns.push(Column::new("by others", true, 1, cells(&|(t, _)| by_others_words(&view.by_others(e, Some(*t))))));
    table(out, columns, width, 8, view.options.color);
    if threads.len() > shown.len() {
        let rest = ranges(threads[shown.len()..].iter().map(|t| t.0));
        out.push_str(&format!("  and threads {}\n", middle(&rest, width - 14)));
    }
}

fn code(out: &mut String, view: &View, e: &Entry, width: usize) {
    let code = &e.details.code[..e.details.code.len().min(MAX_SHOWN_CODE)];
    if code.is_empty() {
        return;
    }
    heading(out, view, width, "Code that accesses it");
    let total = e.total;
    type Row = (crate::profile::records::Frame, crate::profile::summary::Counters);
    let cells = |f: &dyn Fn(&Row) -> String| code.iter().map(f).collect::<Vec<_>>();
    let columns = vec![
        Column::new("function and line", false, 0, cells(&|(ip, _)| view.summary.frame_name(*ip))),
        Column::new("instruction", false, 1, cells(&|(ip, _)| view.summary.frame_place(*ip))),
        Column::new("cost", true, 0, cells(&|(_, c)| percent(ratio(c.cost_ns, total.cost_ns)))),
        Column::new("reads", true, 0, cells(&|(_, c)| count(c.reads))),
        Column::new("writes", true, 0, cells(&|(_, c)| count(c.writes))),
    ];
    table(out, columns, width, 20, view.options.color);
}
