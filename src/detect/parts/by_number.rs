//! Instances of one call site that the program uses in different ways: a function that allocates two matrices at one
//! line.
//!
//! Instances are grouped as long as that describes the threads of their accesses shorter ([`judge_instances`]): each is
//! a group at first, or, where there are many, the first of every so many. Then groups whose patterns need the same
//! placement are one. Rows that one thread each uses have a pattern of their own and are left alone, and so is what a
//! policy cannot name by number ([`known_order`]).

use super::alike::same_use;
use super::judge::judge_instances;
use super::line::Line;
use super::search::{LEAST_OF_PART, PAYS};
use crate::detect::cores::on_all;
use crate::detect::hot::hot;
use crate::detect::limits::EVIDENCE_NATS;
use crate::detect::order::known_order;
use crate::detect::roles::{Roles, roles};
use crate::detect::view::{Weight, cost_shares, view_with};
use crate::detect::{Pattern, PatternKind, classify};
use crate::profile::summary::{AccessFilter, Entry, Summary, rank};

/// Most instances that are judged one by one; each pair of them is judged, too.
const MOST_ALONE: usize = 8;
/// Longest period of more instances, for the same reason: a loop that allocates again in each of its steps.
const LONGEST_PERIOD: usize = 8;
/// Most groups: with more, the order of the profiled run says more of this run than of the program.
const MOST_GROUPS: usize = 4;

/// Replaces each hot object whose instances are used in different ways by an entry for each of them.
pub fn tell_apart(summary: &mut Summary) {
    let hot = hot(summary);
    let several = |index: &usize| {
        let entry = &summary.entries[*index];
        hot[*index] && entry.seen.len() > 1 && entry.part.is_none() && known_order(summary, entry).is_ok()
    };
    let several: Vec<usize> = (0..hot.len()).filter(several).collect();
    if several.is_empty() {
        return;
    }
    let (roles, shares) = (roles(summary), cost_shares(summary));
    let apart = |index: usize| {
        let of = Of { summary, roles: &roles, weight: Weight { share: shares[index], hot: true } };
        Some((index, of.told_apart(&summary.entries[index])?))
    };
    let apart: Vec<(usize, Vec<Entry>)> = on_all(several, apart).into_iter().flatten().collect();
    if apart.is_empty() {
        return;
    }
    for (index, new) in apart.into_iter().rev() {
        summary.entries.splice(index..=index, new);
    }
    rank(&mut summary.entries);
}

/// What a view is made from.
struct Of<'a> {
    summary: &'a Summary,
    roles: &'a Roles,
    weight: Weight,
}

impl Of<'_> {
    /// An entry for each group of instances; none where they are used alike.
    fn told_apart(&self, entry: &Entry) -> Option<Vec<Entry>> {
        let view = view_with(entry, self.summary, self.roles, self.weight, AccessFilter::All);
        let line = Line::of(&view);
        let count = u32::try_from(entry.seen.len()).ok()?;
        let found = groups(&line, count)?;
        let whole = classify(&view);
        if whole.kind == PatternKind::Private || whole.group.is_some() {
            return None;
        }
        let mut found = found;
        loop {
            let entries = entry.by_number(&found);
            let pattern = |e: &Entry| classify(&view_with(e, self.summary, self.roles, self.weight, AccessFilter::All));
            let patterns: Vec<Pattern> = entries.iter().map(pattern).collect();
            let pairs = (0..found.len()).flat_map(|a| (a + 1..patterns.len()).map(move |b| (a, b)));
            let Some((a, b)) = pairs.into_iter().find(|(a, b)| same_use(&patterns[*a], &patterns[*b])) else {
                return (entries.len() > 1).then_some(entries);
            };
            let other = found.swap_remove(b);
            found[a].extend(other);
            found[a].sort_unstable();
            found.sort_unstable();
        }
    }
}

/// Some of the instances, as far as they were judged.
#[derive(Clone)]
struct Group {
    /// Ascending.
    instances: Vec<u32>,
    nats: f64,
    weight: f64,
}

impl Group {
    fn of(line: &Line, instances: Vec<u32>) -> Group {
        let (nats, weight) = judge_instances(line, &instances);
        Group { instances, nats, weight }
    }

    fn with(&self, other: &Group, line: &Line) -> Group {
        let mut instances = [self.instances.as_slice(), &other.instances].concat();
        instances.sort_unstable();
        Group::of(line, instances)
    }
}

/// The groups of `count` instances whose accesses are described shorter apart, in the order of their first instance;
/// none where all are one.
fn groups(line: &Line, count: u32) -> Option<Vec<Vec<u32>>> {
    let whole = Group::of(line, (0..count).collect());
    if whole.nats < EVIDENCE_NATS || whole.weight < 2.0 * LEAST_OF_PART {
        return None;
    }
    let every = |period: u32| (0..period).map(|place| (place..count).step_by(period as usize).collect()).collect();
    let tried: Vec<Vec<Vec<u32>>> = if count as usize <= MOST_ALONE {
        vec![every(count)]
    } else {
        // Of a period that is a part of another one the other shows it as well.
        let longest = LONGEST_PERIOD.min(count as usize / 2) as u32;
        (longest / 2 + 1..=longest).map(every).collect()
    };
    let found = tried.into_iter().filter_map(|units| joined(line, units, &whole));
    let best = found.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(best.1)
}

/// The nats that the best groups of `units` save, and these; none where one is as good.
fn joined(line: &Line, units: Vec<Vec<u32>>, whole: &Group) -> Option<(f64, Vec<Vec<u32>>)> {
    // For each unit, which of two groups it is in.
    let price = EVIDENCE_NATS + units.len() as f64 * 2.0_f64.ln();
    let mut groups: Vec<Group> = units.into_iter().map(|unit| Group::of(line, unit)).collect();
    let mut both: Vec<(usize, usize, Group)> = Vec::new();
    for b in 1..groups.len() {
        both.extend((0..b).map(|a| (a, b, groups[a].with(&groups[b], line))));
    }
    while groups.len() > 1 {
        let saved = |(a, b, both): &(usize, usize, Group)| both.nats - groups[*a].nats - groups[*b].nats;
        let few = |(a, b, _): &(usize, usize, Group)| groups[*a].weight.min(groups[*b].weight);
        // First those that have too few samples, each with the group that is most like it.
        let order = |pair: &(usize, usize, Group)| (few(pair) >= LEAST_OF_PART, saved(pair));
        let best = both.iter().min_by(|x, y| {
            let (x, y) = (order(x), order(y));
            x.0.cmp(&y.0).then_with(|| x.1.total_cmp(&y.1))
        })?;
        if few(best) >= LEAST_OF_PART && saved(best) >= price + PAYS * few(best) {
            break;
        }
        let (a, b, new) = (best.0.min(best.1), best.0.max(best.1), best.2.clone());
        groups[a] = new;
        groups.swap_remove(b);
        both.retain(|(x, y, _)| ![a, b].contains(x) && ![a, b].contains(y));
        let last = groups.len();
        // The last one is where the second was.
        both.iter_mut().for_each(|(x, y, _)| {
            for at in [x, y] {
                if *at == last {
                    *at = b;
                }
            }
        });
        both.extend(
            (0..last).filter(|other| *other != a).map(|other| (a, other, groups[a].with(&groups[other], line))),
        );
    }
    let saved = whole.nats - groups.iter().map(|g| g.nats + price).sum::<f64>() + price;
    if !(2..=MOST_GROUPS).contains(&groups.len()) || saved <= 0.0 {
        return None;
    }
    let mut found: Vec<Vec<u32>> = groups.into_iter().map(|g| g.instances).collect();
    found.sort_unstable();
    Some((saved, found))
}

#[cfg(test)]
#[path = "by_number_tests.rs"]
mod tests;
