//! Two profiles compared: a program before and after a change, two versions, two ranks.
//!
//! Objects are matched by identity, then by name and size ([`pairs`]). Figures are shares of samples, so each change
//! has an interval ([`intervals`]). Of twenty intervals of 95 % one misses by chance, so a change is called sure by an
//! exact test at a level that all figures keep together (Bonferroni).

pub mod condition;
pub mod intervals;
pub mod pairs;
mod side;
#[cfg(test)]
mod tests;

use self::intervals::{Proportion, Range, deviations};
use self::pairs::Pair;
use super::Many;
use crate::profile::records::ObjectKind;
use crate::profile::summary::{Entry, Summary, base_name};
pub use side::{Object, Side};

/// Samples at accesses below which a side says next to nothing: a share of a half is then known to within 18 points.
const FEW: f64 = 30.0;

/// Two profiles.
#[derive(Debug)]
pub struct Difference {
    /// The first.
    pub before: Side,
    /// The second.
    pub after: Side,
    /// The figures of the whole run.
    pub run: Compared,
    /// The objects that were accessed on a side, the largest change of the share of the cost first.
    pub rows: Vec<Row>,
    /// What limits the comparison, a line each.
    pub notes: Vec<String>,
    /// Figures that are compared, which [`Difference::is_sure`] takes together.
    pub figures: usize,
}

/// One object.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name, of the second profile where it is in that.
    pub name: String,
    /// Its name in the first profile.
    pub old_name: Option<String>,
    /// Its kind.
    pub kind: ObjectKind,
    /// Whether it can be placed.
    pub placeable: bool,
    /// Bytes on both sides.
    pub sizes: (Option<u64>, Option<u64>),
    /// Where it is, and how it was matched.
    pub pair: Pair,
    /// Its figures.
    pub compared: Compared,
}

/// The figures of the run or of an object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// CPU time at memory accesses; its share is that of the run's samples or, of an object, of all cost.
    pub cost: Figure,
    /// Share of the accesses to another node.
    pub remote: Figure,
    /// Share of the accesses to pages that another thread touched first.
    pub by_others: Figure,
}

/// A figure before and after.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// As a share, for changes in points.
    pub share: (Option<Proportion>, Option<Proportion>),
    /// As an amount, for relative changes.
    pub amount: (Option<Proportion>, Option<Proportion>),
}

impl Figure {
    fn of_shares(before: Option<Proportion>, after: Option<Proportion>) -> Figure {
        Figure { share: (before, after), amount: (before, after) }
    }

    /// The change of the share.
    pub fn points(&self) -> Option<Range> {
        Some(intervals::difference(&self.share.0?, &self.share.1?, deviations(1)))
    }

    /// The change relative to the amount before; none where there was nothing on either side.
    pub fn relative(&self) -> Option<Range> {
        intervals::relative(&self.amount.0?, &self.amount.1?, deviations(1))
    }
}

impl Compared {
    /// All figures.
    pub fn figures(&self) -> [Figure; 3] {
        [self.cost, self.remote, self.by_others]
    }
}

impl Difference {
    /// Compares two profiles.
    pub fn of(before: &Many, after: &Many) -> Difference {
        let (a, b) = (Side::of(before), Side::of(after));
        let rows = rows(&a, &b, &before.whole, &after.whole);
        let notes = notes(&a, &b);
        Difference::new(a, b, rows, notes)
    }

    fn new(before: Side, after: Side, mut rows: Vec<Row>, notes: Vec<String>) -> Difference {
        let change = |row: &Row| row.compared.cost.points().map_or(0.0, |c| c.value.abs());
        let cost = |row: &Row| {
            let (before, after) = row.compared.cost.share;
            before.map_or(0.0, |p| p.value()).max(after.map_or(0.0, |p| p.value()))
        };
        rows.sort_by(|x, y| {
            let by_change = change(y).total_cmp(&change(x));
            by_change.then_with(|| cost(y).total_cmp(&cost(x))).then_with(|| x.name.cmp(&y.name))
        });
        let run = side::whole(&before, &after);
        let known = |c: &Compared| c.figures().iter().filter(|f| f.points().is_some()).count();
        let figures = known(&run) + rows.iter().map(|row| known(&row.compared)).sum::<usize>();
        Difference { before, after, run, rows, notes, figures }
    }

    /// Whether a change is beyond chance, all figures that are compared taken together.
    pub fn is_sure(&self, figure: &Figure) -> bool {
        let (Some(before), Some(after)) = figure.share else { return false };
        intervals::chance(&before, &after) < (1.0 - intervals::LEVEL) / self.figures.max(1) as f64
    }

    /// Whether a side has too few samples to tell anything.
    pub fn is_too_small(&self) -> bool {
        self.before.charged.min(self.after.charged) < FEW
    }

    /// The smallest change of a share of a half of the cost that would be sure.
    pub fn smallest_seen(&self) -> f64 {
        let each = |side: &Side| 0.25 / side.charged.max(1.0);
        (deviations(self.figures) * (each(&self.before) + each(&self.after)).sqrt()).min(1.0)
    }
}

fn rows(a: &Side, b: &Side, before: &Summary, after: &Summary) -> Vec<Row> {
    let seen = |e: &Entry| e.total.accesses() > 0 || e.total.cost_ns > 0;
    let of = |pair: Pair| {
        let (old, new) = (pair.before.map(|i| &before.entries[i]), pair.after.map(|i| &after.entries[i]));
        let entry = new.or(old)?;
        let is_seen = old.is_some_and(seen) || new.is_some_and(seen);
        let compared = side::compared(a, b, pair.before.map(|i| &a.objects[i]), pair.after.map(|i| &b.objects[i]));
        is_seen.then(|| Row {
            name: entry.name.clone(),
            old_name: old.map(|e| e.name.clone()),
            kind: entry.kind,
            placeable: entry.placeable(),
            sizes: (old.map(|e| e.size), new.map(|e| e.size)),
            pair,
            compared,
        })
    };
    pairs::pairs(before, after).into_iter().filter_map(of).collect()
}

/// What the two sides do not have in common.
fn notes(a: &Side, b: &Side) -> Vec<String> {
    let mut notes = Vec::new();
    let is_same_build = a.build_id == b.build_id;
    if base_name(&a.program) != base_name(&b.program) && (!is_same_build || a.build_id.is_none()) {
        notes.push(format!(
            "these are profiles of different programs, {} and {}: objects are matched by their names only",
            a.program, b.program
        ));
    } else if !is_same_build {
        notes.push("these are two builds of the program: objects are matched by their names and sizes".to_owned());
    }
    let mut differ = |what: &str, before: usize, after: usize, so: &str| {
        if before != after {
            notes.push(format!("the number of {what} differs, {before} before and {after} after: {so}"));
        }
    };
    differ("NUMA nodes", a.nodes, b.nodes, "remote shares are of different machines");
    differ("threads", a.threads, b.threads, "shares by others rise with the threads");
    differ("profiles", a.profiles, b.profiles, "CPU times are sums over all of them, so compare shares");
    if a.whole.by_others.is_some() != b.whole.by_others.is_some() {
        notes.push(
            "on one side the first touchers of most pages are not known, so `by others` is not compared".to_owned(),
        );
    }
    notes
}
