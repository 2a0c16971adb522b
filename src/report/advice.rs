//! The summary of an advice: a title, and a line for each object.

use numamma_plan::policy::{Block, Place, PolicyKind};

use super::units::{bytes, plural, printable};
use crate::advise::unprofiled::{StaticAdvice, Verdict};
use crate::advise::{Advice, Item};

/// Title and lines of advice from a profile: share, class, placement and name of each object.
pub fn profiled(advice: &Advice) -> (String, Vec<String>) {
    let placed: usize = advice.items.iter().filter(|i| i.rule.is_ok()).map(|i| i.rules().count()).sum();
    // A fold from 0.0: the sum of no floats is -0.0, which would be printed with its sign.
    let share = advice.items.iter().filter(|i| i.rule.is_ok()).fold(0.0, |sum, i| sum + i.share);
    let objects = if placed == 1 { "object" } else { "objects" };
    let kind = |i: &Item| i.pattern.as_ref().map_or("-", |p| super::pattern_words(p.kind));
    let place = place_words;
    let kinds = advice.items.iter().map(|i| kind(i).len()).max().unwrap_or(0);
    let places = advice.items.iter().map(|i| place(i).chars().count()).max().unwrap_or(0);
    let line = |i: &Item| {
        let (share, name) = (100.0 * i.share, printable(&i.name));
        format!("{share:5.1} %  {:kinds$}  {:places$}  {name}", kind(i), place(i))
    };
    let title = format!("{placed} {objects} placed, {:.0} % of the cost", 100.0 * share);
    (title, advice.items.iter().map(line).collect())
}

/// The placement of an object in words.
pub(super) fn place_words(item: &Item) -> String {
    match &item.rule {
        Ok(rule) if item.more.is_empty() => placement(&rule.place),
        Ok(rule) => format!("{} by number", rule.place.policy),
        Err(_) => "not placed".to_owned(),
    }
}

fn placement(place: &Place) -> String {
    let block = match place.block {
        Some(Block::Size(size)) => format!(" of {size}"),
        Some(Block::Auto(_)) if place.policy == PolicyKind::Block => ", one per node".into(),
        Some(Block::Auto(_)) => " of a size that fits the nodes".into(),
        None => String::new(),
    };
    let nodes = place.nodes.as_deref().filter(|n| *n != "all").map(|n| format!(" on {n}")).unwrap_or_default();
    format!("{}{block}{nodes}", place.policy)
}

/// Title and lines of advice without a run: size, placement and name of each object.
pub fn unprofiled(advice: &StaticAdvice) -> (String, Vec<String>) {
    let placed = plural(advice.policy.objects.len() as u64, "object");
    let line = |v: &Verdict| {
        let place = v.rule.as_ref().map_or("not placed".to_owned(), |rule| rule.place.policy.to_string());
        let module = v.object.module.as_deref().map(|m| format!(" of {m}")).unwrap_or_default();
        format!("{:>9}  {place:10}  {}", bytes(v.object.size), printable(&(v.object.name.clone() + &module)))
    };
    (format!("{placed} placed by Minas' heuristic, without a run"), advice.items.iter().map(line).collect())
}
