//! Where the samples went: every sample taken or lost is in exactly one row, so that shares add up.

use super::View;
use crate::profile::records::{ObjectKind, SMALL_OBJECT};
use crate::profile::summary::ratio;

/// One row of the account.
#[derive(Debug)]
pub struct Row {
    /// What it is and why it is left out.
    pub label: String,
    /// Share of the CPU time charged to accesses (the `cost` column); none for samples that charged nothing.
    pub cost: Option<f64>,
    /// Share of all samples, taken and lost.
    pub samples: f64,
}

/// Samples by what became of them, in samples.
#[derive(Debug)]
pub(super) struct Fates {
    /// Charged to an access of any entry.
    pub charged: f64,
    /// Of those, to thread stacks.
    pub stack: f64,
    /// Of those, to thread-local variables.
    pub tls: f64,
    /// Of those, to unknown addresses.
    pub unknown: f64,
    /// Of those, to small allocations.
    pub small: f64,
    /// Charged to accesses that wait for another thread, and so to no entry.
    pub spinning: f64,
    /// Waited on a TLS access that was not resolved to an entry.
    pub tls_only: f64,
    /// Waited on a gather or scatter that is charged to no object.
    pub gather_only: f64,
}

impl Fates {
    /// Counts a profile's samples from the cost of its entries.
    pub fn of(view: &View) -> Fates {
        let stats = &view.summary.stats;
        let period = view.summary.header.sampling.period_ns;
        // Without a period each resolved sample still stands for an equal part of the cost.
        let spun_ns = view.summary.spinning.cost_ns();
        let (charged, spinning) = if period > 0 {
            (view.total.cost_ns as f64 / period as f64, spun_ns as f64 / period as f64)
        } else {
            let spinning = ratio(spun_ns, spun_ns + view.total.cost_ns);
            (stats.resolved as f64 * (1.0 - spinning), stats.resolved as f64 * spinning)
        };
        let of_kind = |kind: ObjectKind| {
            let cost: u64 = view.summary.entries.iter().filter(|e| e.kind == kind).map(|e| e.total.cost_ns).sum();
            charged * ratio(cost, view.total.cost_ns)
        };
        // Gathers (and TLS accesses) whose object was found are charged beyond those that were resolved.
        let beyond = (charged + spinning - stats.resolved as f64).max(0.0);
        let (gathers, tls) = (stats.vsib as f64, stats.tls as f64);
        Fates {
            charged,
            stack: of_kind(ObjectKind::Stack),
            tls: of_kind(ObjectKind::Tls),
            unknown: of_kind(ObjectKind::Unknown),
            small: of_kind(ObjectKind::SmallHeap),
            spinning,
            tls_only: (tls - (beyond - gathers).max(0.0)).max(0.0),
            gather_only: (gathers - beyond).max(0.0),
        }
    }
}

/// Samples taken and lost, which are 100 %, and the rows that add up to them, those of objects first.
pub fn of(view: &View) -> (u64, Vec<Row>) {
    let stats = &view.summary.stats;
    let fates = Fates::of(view);
    let named = [
        ("waiting for other threads in spin loops (no object's cost)", fates.spinning),
        ("no memory access on the path to the sample", stats.no_access as f64),
        ("unresolved: the address was overwritten before the sample", stats.unresolved as f64),
        ("vector gathers and scatters that name no object", fates.gather_only),
        ("thread-local variables, address not resolved", fates.tls_only),
        ("numamma's own tracking of allocations", stats.own as f64),
        ("code that could not be read or decoded", stats.undecoded as f64),
    ];
    let known = fates.charged + named.iter().map(|(_, n)| n).sum::<f64>();
    let taken = (stats.samples as f64).max(known);
    let total = taken + stats.lost as f64;
    let share = |n: f64| if total > 0.0 { n / total } else { 0.0 };
    let mut rows = charged_rows(view, share(fates.charged));
    let mut other = |label: &str, n: f64| {
        // Half a sample is rounding of the cost, not a fate.
        if n >= 0.5 {
            rows.push(Row { label: label.into(), cost: None, samples: share(n) });
        }
    };
    named.iter().for_each(|(label, n)| other(label, *n));
    other("in the kernel, or not accounted for by the sampler", taken - known);
    other("lost in full buffers", stats.lost as f64);
    (total.round() as u64, rows)
}

/// Rows of the samples that were charged to an access.
fn charged_rows(view: &View, charged: f64) -> Vec<Row> {
    let shown = view.shown();
    let is_shown = |id: u32| shown.iter().any(|e| e.id == id);
    let mut above = (0, 0.0);
    let mut below = (0, 0.0);
    let mut kinds = [
        (
            ObjectKind::SmallHeap,
            format!("small allocations (under {}; `small heap` in the table)", super::units::bytes(SMALL_OBJECT)),
        ),
        (ObjectKind::Stack, "thread stacks (their own threads touch them first)".into()),
        (ObjectKind::Tls, "thread-local variables (as stacks)".into()),
        (ObjectKind::Unknown, "unknown addresses (no object known there at that time)".into()),
    ]
    .map(|(kind, label)| (kind, label, 0.0));
    for entry in view.summary.entries.iter().filter(|e| e.total.accesses() > 0) {
        let cost = view.cost_share(entry);
        if let Some(kind) = kinds.iter_mut().find(|k| k.0 == entry.kind) {
            kind.2 += cost;
        } else {
            let sum = if is_shown(entry.id) { &mut above } else { &mut below };
            *sum = (sum.0 + 1, sum.1 + cost);
        }
    }
    let row = |label: String, cost: f64| Row { label, cost: Some(cost), samples: cost * charged };
    let mut rows = vec![row(format!("{} in the table", super::units::plural(above.0, "larger object")), above.1)];
    if below.0 > 0 {
        let selected = view.summary.entries.iter().any(|e| e.details.left_out);
        let options = if selected { "--all, --access, --include, --exclude" } else { "--all, --access" };
        rows.push(row(
            format!("{} not in the table (see {options})", super::units::plural(below.0, "larger object")),
            below.1,
        ));
    }
    rows.extend(kinds.into_iter().filter(|k| k.2 > 0.0).map(|(_, label, cost)| row(label, cost)));
    rows
}
