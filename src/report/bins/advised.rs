//! What the advice says of an object and of its pages.

use numamma_plan::policy::{ObjectRule, PolicyKind};

use super::Tile;
use crate::advise::{Advice, Item, Target, page_nodes};
use crate::profile::summary::Entry;
use crate::report::View;

/// What the advice says of an entry.
pub fn item_of<'a>(view: &View, entry: &Entry, advice: &'a Advice) -> Option<&'a Item> {
    let share = view.cost_share(entry);
    let named = advice.items.iter().filter(|i| i.pattern.is_some() && i.name == entry.name);
    named.min_by(|a, b| (a.share - share).abs().total_cmp(&(b.share - share).abs()))
}

/// The nodes that the advice gives to the marked pages of an entry, where a rule tells the node of a page: what is
/// interleaved goes by addresses that are not known, and instances with rules of their own have no picture together.
pub fn nodes_of(view: &View, entry: &Entry, tile: &Tile, (target, advice): (&Target, &Advice)) -> Vec<u32> {
    let Some(item) = item_of(view, entry, advice) else { return Vec::new() };
    let told = |rule: &ObjectRule| {
        matches!(rule.place.policy, PolicyKind::Block | PolicyKind::BlockCyclic | PolicyKind::Map)
            && rule.phases.is_empty()
    };
    if !item.more.is_empty() || !item.rule.as_ref().is_ok_and(told) {
        return Vec::new();
    }
    let wanted = [(entry, tile.marked_pages())];
    page_nodes(view.summary, target, &advice.policy, &wanted).ok().and_then(|mut all| all.pop()).unwrap_or_default()
}
