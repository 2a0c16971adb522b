//! A difference of two profiles for scripts. Names are part of the interface: fields may be added, none renamed or
//! removed. Shares are 0 to 1, their changes -1 to 1, times seconds, sizes bytes.

use serde_json::{Value, json};

use super::difference::{Style, verdict};
use crate::merge::diff::condition::{Condition, Judged};
use crate::merge::diff::intervals::{LEVEL, Proportion, Range};
use crate::merge::diff::pairs::By;
use crate::merge::diff::{Compared, Difference, Figure, Row, Side};

/// Writes the difference as JSON: every object that was accessed, or the first of [`Style::top`].
pub fn render(d: &Difference, style: &Style, conditions: &[(Condition, Judged)]) -> Value {
    let rows = d.rows.iter().take(style.top.unwrap_or(usize::MAX));
    json!({
        "before": side(&d.before, &style.names.0),
        "after": side(&d.after, &style.names.1),
        "verdict": verdict(d),
        "enough_samples": !d.is_too_small(),
        // Of each interval.
        "confidence": LEVEL,
        // Compared together by `sure`.
        "figures": d.figures,
        "run": compared(d, &d.run),
        "objects": rows.map(|row| object(d, row)).collect::<Vec<_>>(),
        "notes": d.notes,
        "fail_if": conditions.iter().map(condition).collect::<Vec<_>>(),
    })
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn side(s: &Side, name: &str) -> Value {
    json!({
        "name": name,
        "program": s.program,
        "build_id": s.build_id,
        "host": s.host,
        "profiles": s.profiles,
        "nodes": s.nodes,
        "threads": s.threads,
        "duration_s": seconds(s.duration_ns),
        "cpu_s": seconds(s.cpu_ns),
        "cost_s": seconds(s.cost_ns),
        "samples": s.samples.round() as u64,
        "samples_at_accesses": s.charged.round() as u64,
    })
}

fn object(d: &Difference, row: &Row) -> Value {
    let matched = match (row.pair.before, row.pair.after, row.pair.by) {
        (None, ..) => "new",
        (_, None, _) => "gone",
        (.., By::Identity) => "identity",
        (.., By::Name) => "name",
        (.., By::OtherLine) => "other-line",
        (.., By::OtherSize) => "other-size",
    };
    let mut value = json!({
        "name": row.name,
        "old_name": row.old_name,
        "kind": row.kind,
        "placeable": row.placeable,
        "matched": matched,
        "size_before": row.sizes.0,
        "size_after": row.sizes.1,
    });
    if let (Value::Object(value), Value::Object(figures)) = (&mut value, compared(d, &row.compared)) {
        value.extend(figures);
    }
    value
}

fn compared(d: &Difference, c: &Compared) -> Value {
    let mut cost = figure(d, &c.cost);
    let value = |p: Option<Proportion>| p.map(|p| p.value());
    (cost["before_s"], cost["after_s"]) = (json!(value(c.cost.amount.0)), json!(value(c.cost.amount.1)));
    json!({ "cost": cost, "remote": figure(d, &c.remote), "by_others": figure(d, &c.by_others) })
}

fn figure(d: &Difference, f: &Figure) -> Value {
    let value = |p: Option<Proportion>| p.map(|p| p.value());
    json!({
        "before": value(f.share.0),
        "after": value(f.share.1),
        "points": f.points().map(range),
        "relative": f.relative().map(range),
        "sure": d.is_sure(f),
    })
}

/// An end that is open, and a change from nothing, are null.
fn range(r: Range) -> Value {
    json!({ "change": r.value, "low": r.low, "high": r.high })
}

fn condition((condition, judged): &(Condition, Judged)) -> Value {
    json!({
        "condition": condition.text,
        "change": judged.change.map(range),
        "fulfilled": judged.fulfilled,
    })
}
