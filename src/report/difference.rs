//! Two profiles compared: the whole run, then the objects whose share of the cost changed most.

use super::style::{Paint, indent, labelled};
use super::table::{Column, fit};
use super::units::{bytes, count, duration, middle, percent, plural, wrap};
use crate::merge::diff::condition::{Condition, Judged, Metric};
use crate::merge::diff::intervals::{Proportion, Range};
use crate::merge::diff::pairs::By;
use crate::merge::diff::{Difference, Figure, Row, Side};

/// Narrowest column in which names of objects still differ.
const MIN_NAME: usize = 18;
/// Narrowest report; a smaller terminal wraps it.
const MIN_WIDTH: usize = 60;
/// Characters of an old name in a column of short words.
const OLD_NAME: usize = 28;
/// Characters of a name in a sentence.
const NAME: usize = 60;
/// Objects that the verdict names, and that a message lists.
const NAMED: usize = 3;
const LISTED: usize = 10;

/// How a difference is written.
#[derive(Debug, Clone)]
pub struct Style {
    /// What the two sides are called.
    pub names: (String, String),
    /// Objects shown at most.
    pub top: Option<usize>,
    /// Columns of the terminal.
    pub width: usize,
    /// The terminal shows escape sequences.
    pub color: bool,
}

/// Writes the difference for people.
pub fn render(d: &Difference, style: &Style) -> String {
    let (width, paint) = (style.width.max(MIN_WIDTH), Paint(style.color));
    let mut out = format!("{}\n", paint.bold(&middle(&format!("{} -> {}", style.names.0, style.names.1), width)));
    labelled(&mut out, "before", &side(&d.before), width);
    labelled(&mut out, "after", &side(&d.after), width);
    labelled(&mut out, "verdict", &verdict(d), width);
    d.notes.iter().for_each(|note| labelled(&mut out, "note", note, width));
    out.push_str(&format!("\n{}\n", paint.bold("The whole run")));
    let (table, _) = fit(run_columns(d), width - 2, MIN_NAME, style.color);
    indent(&mut out, &table);
    out.push_str(&format!("\n{}\n", paint.bold("Objects by the change of their share of the cost")));
    let shown: Vec<&Row> = shown(d).take(style.top.unwrap_or(usize::MAX)).collect();
    if shown.is_empty() {
        labelled(&mut out, "none", "no sample of either profile was attributed to an object", width);
        return out;
    }
    let (table, hidden) = fit(object_columns(d, &shown), width - 2, MIN_NAME, style.color);
    indent(&mut out, &table);
    let mut below = vec![format!(
        "points: change of the share of the cost, with its 95 % interval. *: more than chance makes of {} together. \
         Intervals are those of the samples; how much runs vary besides is not in them.",
        plural(d.figures as u64, "figure")
    )];
    if !hidden.is_empty() {
        below.push(format!("hidden: {} (COLUMNS=200 shows them, or --json)", hidden.join(", ")));
    }
    let lines = below.iter().flat_map(|text| wrap(text, width - 2));
    lines.for_each(|line| out.push_str(&format!("  {}\n", paint.dim(&line))));
    out
}

/// The objects of the table: what can be placed and has a sample on a side.
fn shown(d: &Difference) -> impl Iterator<Item = &Row> {
    let has = |p: Option<Proportion>| p.is_some_and(|p| p.part > 0.0);
    d.rows.iter().filter(move |row| row.placeable && (has(row.compared.cost.share.0) || has(row.compared.cost.share.1)))
}

fn side(s: &Side) -> String {
    let profiles = if s.profiles == 1 { String::new() } else { format!(", {} profiles", s.profiles) };
    format!(
        "{} on {}, {}, {}, {} taken, {} at memory accesses{profiles}",
        s.program,
        s.host,
        duration(s.duration_ns),
        plural(s.threads as u64, "thread"),
        plural(s.samples.round() as u64, "sample"),
        count(s.charged.round() as u64)
    )
}

/// One sentence or two: what changed more than chance makes it, or that nothing did.
pub fn verdict(d: &Difference) -> String {
    if d.is_too_small() {
        return format!(
            "too few samples to tell anything: {} at memory accesses before and {} after; run longer, or sample faster (-F)",
            count(d.before.charged.round() as u64),
            count(d.after.charged.round() as u64)
        );
    }
    let figures = [("by others", d.run.by_others), ("remote", d.run.remote)];
    let changed = figures.iter().filter(|(_, figure)| d.is_sure(figure));
    let mut parts: Vec<String> = changed
        .filter_map(|(name, figure)| {
            let points = figure.points()?;
            Some(format!(
                "{name} of the run {} ({} points, {})",
                arrow(figure.share),
                signed(points.value),
                ends(&points)
            ))
        })
        .collect();
    let objects: Vec<&Row> = d.rows.iter().filter(|row| row.placeable && is_sure(d, row)).collect();
    if !objects.is_empty() {
        let named: Vec<String> = objects.iter().take(NAMED).map(|row| middle(&row.name, NAME)).collect();
        let more = if objects.len() > NAMED { ", ..." } else { "" };
        let word = plural(objects.len() as u64, "object");
        parts.push(format!("{word} changed more than by chance: {}{more}", named.join(", ")));
    }
    if parts.is_empty() {
        let least = format!("{:.1}", 100.0 * d.smallest_seen());
        parts.push(format!(
            "no difference beyond chance; an object with half of the cost would have to change by about {least} points"
        ));
    }
    if let Some(change) = cpu_change(d) {
        let (before, after) = (duration(d.before.cpu_ns), duration(d.after.cpu_ns));
        parts.push(format!("CPU time {before} -> {after} ({change})"));
    }
    parts.join("; ")
}

fn is_sure(d: &Difference, row: &Row) -> bool {
    row.compared.figures().iter().any(|figure| d.is_sure(figure))
}

/// CPU time of the program, which the kernel measures: there is no interval.
fn cpu_change(d: &Difference) -> Option<String> {
    let (before, after) = (d.before.cpu_ns as f64, d.after.cpu_ns as f64);
    (before > 0.0 && after > 0.0).then(|| format!("{}%", signed(after / before - 1.0)))
}

/// Hundredths with a sign and one decimal; no sign where that is 0.
fn signed(share: f64) -> String {
    let text = format!("{:+.1}", 100.0 * share);
    if share.is_infinite() {
        "+inf".to_owned()
    } else if text == "+0.0" || text == "-0.0" {
        "0.0".to_owned()
    } else {
        text
    }
}

fn ends(range: &Range) -> String {
    format!("{} to {}", signed(range.low), signed(range.high))
}

/// `75.0% -> 2.0%`; `?` for what a side does not know.
fn arrow((before, after): (Option<Proportion>, Option<Proportion>)) -> String {
    let text = |p: Option<Proportion>| p.map_or("?".to_owned(), |p| percent(p.value()));
    match (before, after) {
        (None, None) => "-".to_owned(),
        _ => format!("{} -> {}", text(before), text(after)),
    }
}

fn run_columns(d: &Difference) -> Vec<Column> {
    let (a, b) = (&d.before, &d.after);
    let mut rows: Vec<[String; 5]> = Vec::new();
    let plain = |name: &str, before: String, after: String, change: String| {
        [name.to_owned(), before, after, change, String::new()]
    };
    rows.push(plain("CPU time", duration(a.cpu_ns), duration(b.cpu_ns), cpu_change(d).unwrap_or_default()));
    let samples = |s: &Side| count(s.samples.round() as u64);
    rows.push(plain("samples", samples(a), samples(b), String::new()));
    let relative = d.run.cost.relative();
    rows.push([
        "cost: CPU time at accesses".to_owned(),
        duration(a.cost_ns),
        duration(b.cost_ns),
        relative.map_or(String::new(), |r| format!("{}%", signed(r.value))),
        relative.map_or(String::new(), |r| format!("{}%", ends(&r))),
    ]);
    let star = |figure: &Figure| if d.is_sure(figure) { " *" } else { "" };
    let shares = [("cost, share of samples", d.run.cost), ("remote", d.run.remote), ("by others", d.run.by_others)];
    for (name, figure) in shares {
        let value = |p: Option<Proportion>| p.map_or("-".to_owned(), |p| percent(p.value()));
        let points = figure.points();
        rows.push([
            name.to_owned(),
            value(figure.share.0),
            value(figure.share.1),
            points.map_or(String::new(), |p| format!("{} points", signed(p.value))),
            points.map_or(String::new(), |p| ends(&p) + star(&figure)),
        ]);
    }
    let heads = ["figure", "before", "after", "change", "95 % interval"];
    let column = |(at, head): (usize, &&'static str)| {
        Column::new(head, (1..4).contains(&at), 0, rows.iter().map(|row| row[at].clone()).collect())
    };
    heads.iter().enumerate().map(column).collect()
}

fn object_columns(d: &Difference, shown: &[&Row]) -> Vec<Column> {
    let cells = |f: &dyn Fn(&Row) -> String| shown.iter().map(|row| f(row)).collect::<Vec<_>>();
    let star = |figure: &Figure| if d.is_sure(figure) { " *" } else { "" };
    let points = |row: &Row| {
        let cost = &row.compared.cost;
        cost.points().map_or("?".to_owned(), |p| format!("{} ({}){}", signed(p.value), ends(&p), star(cost)))
    };
    let seconds = |p: Option<Proportion>| p.map_or("?".to_owned(), |p| duration((p.value() * 1e9) as u64));
    let time = |row: &Row| {
        let (before, after) = row.compared.cost.amount;
        format!("{} -> {}", seconds(before), seconds(after))
    };
    let share = |figure: &Figure| arrow(figure.share) + star(figure);
    let mut columns = vec![
        Column::new("object", false, 0, cells(&|row| row.name.clone())),
        Column::new("size", true, 6, cells(&size)),
        Column::new("cost", true, 0, cells(&|row| arrow(row.compared.cost.share))),
        Column::new("points", false, 0, cells(&points)),
        Column::new("CPU time", true, 5, cells(&time)),
    ];
    if shown.iter().any(|row| row.compared.remote.share != (None, None)) {
        columns.push(Column::new("remote", true, 4, cells(&|row| share(&row.compared.remote))));
    }
    columns.push(Column::new("by others", true, 2, cells(&|row| share(&row.compared.by_others))));
    if shown.iter().any(|row| !matched(row).is_empty()) {
        columns.push(Column::new("matched", false, 1, cells(&matched)));
    }
    columns
}

fn size(row: &Row) -> String {
    match row.sizes {
        (Some(before), Some(after)) if before != after => format!("{} -> {}", bytes(before), bytes(after)),
        (before, after) => after.or(before).map_or(String::new(), bytes),
    }
}

/// What is particular about the match of a row.
fn matched(row: &Row) -> String {
    match (row.pair.before, row.pair.after, row.pair.by) {
        (None, ..) => "new".to_owned(),
        (_, None, _) => "gone".to_owned(),
        (.., By::OtherLine) => {
            row.old_name.as_ref().map_or(String::new(), |old| format!("was {}", middle(old, OLD_NAME)))
        }
        (.., By::OtherSize) => "other size".to_owned(),
        (.., By::Identity | By::Name) => String::new(),
    }
}

/// The object that a condition names: by its name on either side, or by a part of it that no other name has.
///
/// # Errors
/// The message for the user: which names there are.
pub fn row<'a>(d: &'a Difference, wanted: &str) -> Result<&'a Row, String> {
    let names = |row: &'a Row| [Some(&row.name), row.old_name.as_ref()].into_iter().flatten();
    let exact = d.rows.iter().find(|row| names(row).any(|name| name == wanted));
    if let Some(row) = exact {
        return Ok(row);
    }
    let found: Vec<&Row> = d.rows.iter().filter(|row| names(row).any(|name| name.contains(wanted))).collect();
    let listed = |rows: &[&Row]| -> String {
        rows.iter().take(LISTED).map(|row| format!("\n{}", middle(&row.name, NAME))).collect()
    };
    match found[..] {
        [only] => Ok(only),
        [] => {
            let all: Vec<&Row> = shown(d).collect();
            Err(format!("no object is called '{wanted}' in either profile; there are:{}", listed(&all)))
        }
        _ => Err(format!("several objects have '{wanted}' in their names:{}", listed(&found))),
    }
}

/// Why a figure of the run is not known, if that is known; it continues a sentence.
pub fn why_unknown(d: &Difference, condition: &Condition) -> &'static str {
    match condition.metric {
        _ if d.before.charged.min(d.after.charged) <= 0.0 => ": a profile has no sample at a memory access",
        Metric::Remote if d.before.nodes.min(d.after.nodes) < 2 => {
            ": nothing is remote on a machine with one node; use by_others"
        }
        _ => "",
    }
}

/// What a condition came to, in one line.
pub fn judged(condition: &Condition, judged: &Judged) -> String {
    let of = condition.object.as_deref().map_or("the run".to_owned(), |object| middle(object, NAME));
    let unit = if condition.relative { "%" } else { " points" };
    let Condition { text, metric, .. } = condition;
    match &judged.change {
        Some(change) => format!(
            "--fail-if '{text}': {metric} of {of} changed by {}{unit} (95 % interval: {})",
            signed(change.value),
            ends(change)
        ),
        None => format!("--fail-if '{text}': {metric} of {of} is not known before and after, so this is not checked"),
    }
}
