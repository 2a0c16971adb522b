//! Several profiles of one program: how many, which differ from the others, and the objects by rank, host or thread.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use super::View;
use super::style::{heading, labelled, table};
use super::table::Column;
use super::units::{bytes, count, duration, percent, plural, printable, ranges};
use crate::detect::Pattern;
use crate::merge::{Difference, Many, Member, Outlier};
use crate::profile::summary::{Counters, Entry, Summary, ratio};

/// What the rows of an object are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// A row for each MPI rank; for each profile without one
    Rank,
    /// A row for each host
    Host,
    /// A row for each thread, with its number among the workers of its process
    Thread,
}

impl By {
    fn word(self) -> &'static str {
        match self {
            By::Rank => "rank",
            By::Host => "host",
            By::Thread => "thread",
        }
    }
}

/// The profiles behind a report.
#[derive(Debug)]
pub struct Processes<'a> {
    /// The profiles.
    pub many: &'a Many,
    /// Verdicts on the entries of each group, in its order.
    pub verdicts: Vec<Vec<Pattern>>,
    /// Which rows are asked for.
    pub by: Option<By>,
}

/// Narrowest column of names.
const MIN_NAME: usize = 18;
/// Names that are longer do not fit in front of a line.
const LABEL: usize = 12;
/// Outliers, names of profiles, and rows of an object shown without --all.
const MOST_ROWS: usize = 8;

/// A row of an object.
struct Row {
    name: String,
    profiles: u64,
    cost: f64,
    /// Of the cost of the rank, host or thread.
    share: f64,
    accesses: u64,
}

impl Processes<'_> {
    /// `8 ranks on 2 hosts`, `3 runs`; none for one profile.
    fn title(&self) -> Option<String> {
        let members = &self.many.members;
        if members.len() < 2 {
            return None;
        }
        let mut hosts: Vec<&str> = members.iter().map(|m| m.host.as_str()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let mut ranks: Vec<u32> = members.iter().filter_map(|m| m.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let what = match ranks.len() {
            n if n == members.len() => plural(n as u64, "rank"),
            0 => plural(members.len() as u64, "run"),
            n => format!("{} of {}", plural(members.len() as u64, "profile"), plural(n as u64, "rank")),
        };
        let on = if hosts.len() == 1 { hosts[0].to_owned() } else { plural(hosts.len() as u64, "host") };
        let ranks = if ranks.is_empty() { String::new() } else { format!(" (ranks {})", self::ranges(ranks)) };
        Some(format!("{what} on {on} as one{ranks}: counters are sums, times those of the longest run"))
    }

    /// Adds the line at the top of a report.
    pub(super) fn head(&self, out: &mut String, width: usize) {
        if let Some(title) = self.title() {
            labelled(out, "profiles", &title, width);
        }
        if self.many.unlike {
            labelled(out, "profiles", UNLIKE, width);
        }
        if !self.many.left_out.is_empty() {
            let text = format!("{} left out, see the messages", plural(self.many.left_out.len() as u64, "file"));
            labelled(out, "profiles", &text, width);
        }
    }

    /// Adds the processes that differ from the others, and the rows that were asked for.
    pub(super) fn render(&self, out: &mut String, view: &View, width: usize) {
        self.outliers(out, view, width);
        if let Some(by) = self.by {
            self.rows_by(by, out, view, width);
        }
    }

    fn outliers(&self, out: &mut String, view: &View, width: usize) {
        let told = self.told();
        if told.is_empty() {
            return;
        }
        let limit = view.options.top.map_or(usize::MAX, |_| MOST_ROWS);
        let more =
            if told.len() > limit { format!(" (first {limit} of {}; --all)", told.len()) } else { String::new() };
        heading(out, view, width, &format!("Differ from the others{more}"));
        for (who, object, how) in told.into_iter().take(limit) {
            match printable(&who) {
                short if short.chars().count() < LABEL => labelled(out, &short, &format!("{object}: {how}"), width),
                _ => labelled(out, "profiles", &format!("{who}: {object}: {how}"), width),
            }
        }
    }

    /// Who differs in which object, and how: ranks that differ alike in one line.
    fn told(&self) -> Vec<(String, String, String)> {
        let mut lines: BTreeMap<(u32, usize, u8), Vec<Outlier>> = BTreeMap::new();
        for outlier in self.many.outliers() {
            let kind = match outlier.difference {
                Difference::Share(own, others) => u8::from(own > others),
                Difference::Size(..) => 2,
                Difference::Pattern(_) => 3,
                Difference::Cost(own, others) => 4 + u8::from(own > others),
            };
            lines.entry((outlier.object, outlier.group, kind)).or_default().push(outlier);
        }
        let mut told: Vec<(usize, String, String, String)> = Vec::new();
        for outliers in lines.into_values() {
            let Some(first) = outliers.first() else { continue };
            let object = self.object(first.object);
            told.push((first.member, self.names(&outliers), object, self.how(&outliers)));
        }
        told.sort();
        told.into_iter().map(|(_, who, object, how)| (who, object, how)).collect()
    }

    /// How many profiles there are, and who differs in an object.
    pub(super) fn of_entry(&self, entry: &Entry, out: &mut String, width: usize) {
        if let Some(title) = self.title() {
            labelled(out, "profiles", &title, width);
        }
        for (who, _, how) in self.told().into_iter().filter(|(_, object, _)| *object == entry.name) {
            labelled(out, "differs", &format!("{who}: {how}"), width);
        }
    }

    fn object(&self, object: u32) -> String {
        self.many.objects.get(object as usize).map_or_else(|| "?".into(), |o| o.name.clone())
    }

    fn names(&self, outliers: &[Outlier]) -> String {
        let members: Vec<&Member> = outliers.iter().filter_map(|o| self.many.members.get(o.member)).collect();
        // Of several profiles of one rank, all must be meant.
        let meant: HashSet<usize> = outliers.iter().map(|o| o.member).collect();
        let is_one = |m: &Member| members.iter().any(|own| own.rank == m.rank);
        let by_rank = self.many.members.iter().enumerate().all(|(at, m)| meant.contains(&at) || !is_one(m));
        let ranks = members.iter().map(|m| m.rank).collect::<Option<Vec<u32>>>();
        match ranks.filter(|_| by_rank) {
            Some(mut ranks) => {
                ranks.sort_unstable();
                ranks.dedup();
                let word = if ranks.len() == 1 { "rank" } else { "ranks" };
                format!("{word} {}", ranges(ranks))
            }
            None => {
                let names: Vec<String> = members.iter().take(MOST_ROWS).map(|m| m.file_and_rank()).collect();
                let more = members.len() - names.len();
                if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
            }
        }
    }

    /// How they differ, of several the mean figures.
    fn how(&self, outliers: &[Outlier]) -> String {
        let n = outliers.len().max(1) as f64;
        let mean = |of: fn(Difference) -> (f64, f64)| {
            let sum = outliers.iter().map(|o| of(o.difference)).fold((0.0, 0.0), |s, d| (s.0 + d.0, s.1 + d.1));
            (sum.0 / n, sum.1 / n)
        };
        let (own, others) = mean(|d| match d {
            Difference::Share(a, b) | Difference::Cost(a, b) => (a, b),
            Difference::Size(a, b) => (a as f64, b as f64),
            Difference::Pattern(a) => (a, 0.0),
        });
        let Some(first) = outliers.first() else { return String::new() };
        let how = match first.difference {
            Difference::Share(..) => {
                format!("{} of the cost of what can be placed, elsewhere {}", percent(own), percent(others))
            }
            Difference::Size(..) => format!("{}, elsewhere {}", bytes(own as u64), bytes(others as u64)),
            Difference::Pattern(_) => {
                format!("{} of the accesses are by other threads, or to other parts, than elsewhere", percent(own))
            }
            Difference::Cost(..) => {
                format!("cost {}, elsewhere {} (median)", duration(own as u64), duration(others as u64))
            }
        };
        match (self.verdict(first.group, first.object), self.verdict(0, first.object)) {
            (Some(own), Some(usual)) if first.group > 0 && own != usual => {
                format!("{how}; pattern {own}, elsewhere {usual}")
            }
            _ => how,
        }
    }

    /// Pattern of an object in a group.
    fn verdict(&self, group: usize, object: u32) -> Option<String> {
        let name = &self.many.objects.get(object as usize)?.name;
        let summary: &Summary = &self.many.groups.get(group)?.summary;
        let entry = summary.entries.iter().position(|e| e.name == *name)?;
        Some(self.verdicts.get(group)?.get(entry)?.kind.to_string())
    }

    /// The rows of each object of the report that are asked for.
    fn rows(&self, by: By, view: &View) -> Vec<(String, Vec<Row>)> {
        match by {
            By::Thread => view.shown().into_iter().map(|e| (e.name.clone(), of_threads(view, e))).collect(),
            By::Rank | By::Host => self.of_members(by, view.options.top),
        }
    }

    fn of_members(&self, by: By, top: Option<usize>) -> Vec<(String, Vec<Row>)> {
        let mut objects: BTreeMap<u32, f64> = BTreeMap::new();
        for (object, one) in self.many.members.iter().flat_map(|m| &m.digest.objects) {
            *objects.entry(*object).or_default() += one.cost;
        }
        let placeable = |o: u32| self.many.objects.get(o as usize).is_some_and(|o| o.placeable);
        let mut order: Vec<(u32, f64)> = objects.into_iter().filter(|(o, _)| placeable(*o)).collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        order.truncate(top.unwrap_or(usize::MAX));
        order.into_iter().map(|(object, _)| (self.object(object), self.of_object(by, object))).collect()
    }

    fn of_object(&self, by: By, object: u32) -> Vec<Row> {
        let mut rows: Vec<(Row, f64)> = Vec::new();
        for member in &self.many.members {
            let name = if by == By::Host { member.host.clone() } else { member.name() };
            let at = rows.iter().position(|(row, _)| row.name == name).unwrap_or(rows.len());
            if at == rows.len() {
                rows.push((Row { name, profiles: 0, cost: 0.0, share: 0.0, accesses: 0 }, 0.0));
            }
            let (row, all) = &mut rows[at];
            let (cost, accesses) = member.digest.objects.get(&object).map_or((0.0, 0), |o| (o.cost, o.accesses));
            row.profiles += 1;
            row.cost += cost;
            row.accesses += accesses;
            *all += member.digest.total;
        }
        rows.into_iter().map(|(row, all)| Row { share: if all > 0.0 { row.cost / all } else { 0.0 }, ..row }).collect()
    }

    fn rows_by(&self, by: By, out: &mut String, view: &View, width: usize) {
        heading(out, view, width, &format!("Objects by {}", by.word()));
        let limit = view.options.top.map_or(usize::MAX, |_| MOST_ROWS);
        let mut list: Vec<(String, Row)> = Vec::new();
        let mut cut = 0;
        for (object, mut rows) in self.rows(by, view) {
            if rows.len() > limit {
                rows.sort_by(|a, b| b.cost.total_cmp(&a.cost));
                cut += rows.len() - limit;
                rows.truncate(limit);
            }
            list.extend(rows.into_iter().map(|row| (object.clone(), row)));
        }
        let cells = |f: &dyn Fn(&(String, Row)) -> String| list.iter().map(f).collect::<Vec<_>>();
        let columns = vec![
            Column::new("object", false, 0, cells(&|(object, _)| object.clone())),
            Column::new(by.word(), false, 0, cells(&|(_, row)| row.name.clone())),
            Column::new("profiles", true, 3, cells(&|(_, row)| count(row.profiles))),
            Column::new("cost", true, 0, cells(&|(_, row)| duration(row.cost as u64))),
            Column::new("of its cost", true, 0, cells(&|(_, row)| percent(row.share))),
            Column::new("accesses", true, 1, cells(&|(_, row)| count(row.accesses))),
        ];
        table(out, columns, width, MIN_NAME, view.options.color);
        if cut > 0 {
            out.push_str(&format!("  {cut} rows of less cost are not shown (--all)\n"));
        }
    }

    /// The same for scripts.
    pub(super) fn add_json(&self, row: &mut Value, view: &View) {
        let group_of = |m: usize| self.many.groups.iter().position(|g| g.members.contains(&m)).unwrap_or(0);
        let profile = |(at, m): (usize, &Member)| {
            json!({
                "file": m.file.display().to_string(),
                "rank": m.rank,
                "host": m.host,
                "samples": m.samples,
                "duration_s": m.duration_ns as f64 / 1e9,
                "cost_s": m.digest.total / 1e9,
                "group": group_of(at),
            })
        };
        row["profiles"] = self.many.members.iter().enumerate().map(profile).collect();
        row["left_out"] = self.many.left_out.iter().map(|l| json!(l.why)).collect();
        row["outliers"] = self.many.outliers().iter().map(|o| self.outlier_json(o)).collect();
        if let Some(by) = self.by {
            let of = |(object, rows): (String, Vec<Row>)| {
                let rows = rows.into_iter().map(|r| {
                    let mut row = json!({
                        "profiles": r.profiles,
                        "cost_s": r.cost / 1e9,
                        "cost_share": r.share,
                        "accesses": r.accesses,
                    });
                    row[by.word()] = json!(r.name);
                    row
                });
                json!({ "object": object, "rows": rows.collect::<Vec<_>>() })
            };
            row[format!("by_{}", by.word())] = self.rows(by, view).into_iter().map(of).collect();
        }
    }

    fn outlier_json(&self, o: &Outlier) -> Value {
        let (what, own, others) = match o.difference {
            Difference::Share(own, others) => ("share", json!(own), json!(others)),
            Difference::Size(own, others) => ("size", json!(own), json!(others)),
            Difference::Pattern(moved) => ("pattern", json!(moved), Value::Null),
            Difference::Cost(own, others) => ("cost", json!(own / 1e9), json!(others / 1e9)),
        };
        let member = self.many.members.get(o.member);
        json!({
            "profile": member.map(|m| m.file.display().to_string()),
            "rank": member.and_then(|m| m.rank),
            "object": self.object(o.object),
            "differs_in": what,
            "own": own,
            "others": others,
            "pattern": self.verdict(o.group, o.object).filter(|_| o.group > 0),
            "others_pattern": self.verdict(0, o.object).filter(|_| o.group > 0),
        })
    }
}

/// What is said when there are too many ways to do.
const UNLIKE: &str = "they use their objects in too many different ways for groups, so what follows is of all together";

/// The counters of an object by thread.
fn of_threads(view: &View, entry: &Entry) -> Vec<Row> {
    let mut all: BTreeMap<u32, Counters> = BTreeMap::new();
    for (thread, counters) in view.summary.entries.iter().flat_map(Entry::threads) {
        all.entry(thread).or_default().add(&counters);
    }
    let name = |thread: u32| match view.roles.rank(thread) {
        Some(rank) => format!("worker {} of {} (thread {thread})", rank.rank, rank.of),
        None => format!("thread {thread}"),
    };
    let row = |(thread, counters): (u32, Counters)| Row {
        name: name(thread),
        profiles: u64::from(view.summary.profiles),
        cost: counters.cost_ns as f64,
        share: ratio(counters.cost_ns, all.get(&thread).map_or(0, |c| c.cost_ns)),
        accesses: counters.accesses(),
    };
    entry.threads().into_iter().map(row).collect()
}
