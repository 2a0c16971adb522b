//! The cache lines that threads take from each other, and the scores of NumaPerf.

use serde_json::{Value, json};

use super::View;
use super::style::{heading, indent, table};
use super::table::Column;
use super::units::{count, middle};
use crate::detect::{REMOTE_SCORE, SHARING_SCORE, Shared, Side, sharing, sharing_score};

/// Lines shown without --all.
const MOST: usize = 16;
/// Narrowest useful name of an object.
const MIN_NAME: usize = 8;
/// Widest name of a place in the source.
const MAX_PLACE: usize = 44;

/// The scores of a run, where every access is counted: sharing and remote.
fn scores(view: &View) -> Option<(f64, f64)> {
    let sharing = sharing_score(view.summary)?;
    let ms = (view.summary.stats.duration_ns as f64 / 1e6).max(1.0);
    let others: u64 = view.summary.entries.iter().map(|entry| view.by_others(entry, None).others).sum();
    Some((sharing, others as f64 / ms))
}

/// Writes the scores and the table of lines.
pub(super) fn render(out: &mut String, view: &View, width: usize) {
    let Some((score, remote)) = scores(view) else { return };
    let lines = sharing(view.summary);
    let limit = if view.options.top.is_none() { usize::MAX } else { MOST };
    let more = match lines.len().saturating_sub(limit) {
        0 => String::new(),
        n => format!(" (first {limit} of {}; --all shows the other {n})", lines.len()),
    };
    heading(out, view, width, &format!("Shared lines{more}"));
    let above = |value: f64, threshold: f64| if value > threshold { "above" } else { "not above" };
    indent(
        out,
        &format!(
            "sharing score {score:.2}: lines lost to writes of other threads, per ms and thread; {} {SHARING_SCORE}\n\
             remote score {remote:.0}: accesses to pages that another thread touched first, per ms; {} {REMOTE_SCORE}",
            above(score, SHARING_SCORE),
            above(remote, REMOTE_SCORE),
        ),
    );
    if lines.is_empty() {
        return indent(out, none_reported(score));
    }
    let shown = &lines[..lines.len().min(limit)];
    table(out, columns(view, shown), width, MIN_NAME, view.options.color);
}

/// What stands in place of the table. The score is the sum of all lines, and also of what costs the run next to
/// nothing.
fn none_reported(score: f64) -> &'static str {
    if score > SHARING_SCORE {
        "no line alone is lost so often, or its losses take too small a part of the time, that a change of it would pay"
    } else {
        "no line is lost to other threads often"
    }
}

fn columns(view: &View, shown: &[Shared]) -> Vec<Column> {
    let cells = |f: &dyn Fn(&Shared) -> String| shown.iter().map(f).collect::<Vec<_>>();
    let side = |shared: &Shared, n: usize| shared.sides.get(n).map_or("-".into(), |side| words(view, side));
    vec![
        Column::new("object", false, 0, cells(&|s| s.object.clone())),
        Column::new("offset", true, 2, cells(&|s| s.offset.map_or("-".into(), |offset| offset.to_string()))),
        Column::new("sharing", false, 0, cells(&|s| s.kind.name().into())),
        Column::new("lost", true, 0, cells(&|s| count(s.invalidations))),
        Column::new("score", true, 1, cells(&|s| format!("{:.1}", s.score))),
        Column::new("readers", true, 4, cells(&|s| s.readers.to_string())),
        Column::new("writers", true, 3, cells(&|s| s.writers.to_string())),
        Column::new("pad", true, 1, cells(&|s| s.padding.map_or("-".into(), |bytes| format!("{bytes} B")))),
        Column::new("one side", false, 5, cells(&|s| side(s, 0))),
        Column::new("other side", false, 5, cells(&|s| side(s, 1))),
    ]
}

/// `write hits in work counters.c:12`.
fn words(view: &View, side: &Side) -> String {
    let verb = if side.write { "write" } else { "read" };
    let field =
        [side.object.as_deref(), Some(side.field.as_str())].into_iter().flatten().filter(|name| !name.is_empty());
    let field: String = field.map(|name| format!(" {name}")).collect();
    let place = side.ip.map_or("?".into(), |ip| middle(&view.summary.frame_name(ip), MAX_PLACE));
    format!("{verb}{field} in {place}")
}

/// The same for scripts; null where lines are not counted.
pub(super) fn json(view: &View) -> Value {
    let Some((score, remote)) = scores(view) else { return Value::Null };
    let side = |side: &Side| {
        json!({
            "object": side.object,
            "offset": side.offset,
            "field": Some(&side.field).filter(|field| !field.is_empty()),
            "write": side.write,
            "place": side.ip.map(|ip| view.summary.frame_name(ip)),
        })
    };
    let line = |shared: &Shared| {
        json!({
            "object": shared.object,
            "offset": shared.offset,
            "kind": shared.kind.name(),
            "invalidations": shared.invalidations,
            "same_word": shared.same_word,
            "score": shared.score,
            "readers": shared.readers,
            "writers": shared.writers,
            "padding": shared.padding,
            "sides": shared.sides.iter().map(side).collect::<Vec<_>>(),
        })
    };
    json!({
        "sharing_score": { "value": score, "threshold": SHARING_SCORE },
        "remote_score": { "value": remote, "threshold": REMOTE_SCORE },
        "lines": sharing(view.summary).iter().map(line).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_above_its_threshold_is_not_followed_by_the_opposite() {
        assert_eq!(none_reported(SHARING_SCORE), "no line is lost to other threads often");
        assert!(none_reported(1.1 * SHARING_SCORE).starts_with("no line alone"));
    }
}
