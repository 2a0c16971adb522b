//! Replaces the objects of a summary by their parts, at the boundaries that are found in the accesses of each hot one.
//! Neighbours that are placed together as each alone are one part: where the samples are noisy, or two functions use
//! one array, boundaries are found that mean nothing for a placement.

use super::alike::is_both;
use super::search::part_boundaries;
use crate::detect::cores::on_all;
use crate::detect::hot::hot;
use crate::detect::roles::roles;
use crate::detect::view::{Weight, cost_shares, view_with};
use crate::detect::{Pattern, classify};
use crate::profile::records::ObjectKind;
use crate::profile::summary::{AccessFilter, Entry, Summary, rank};

/// Replaces each hot object that is several arrays by its parts, which are entries of their own. Members known from
/// debug information are not divided again; neither is what a policy cannot name a range of: stacks, unknown addresses,
/// sections, the small allocations of a call site together, and files.
pub fn divide(summary: &mut Summary) {
    let (roles, shares, hot) = (roles(summary), cost_shares(summary), hot(summary));
    let page_size = summary.header.page_size.max(1);
    let whole: Vec<usize> = (0..hot.len()).filter(|&index| hot[index] && has_parts(&summary.entries[index])).collect();
    let divided = |index: usize| {
        let entry = &summary.entries[index];
        let weight = Weight { share: shares[index], hot: true };
        let view = |entry: &Entry| view_with(entry, summary, &roles, weight, AccessFilter::All);
        let pages = part_boundaries(&view(entry));
        Some((index, joined(entry, pages, page_size, |part| classify(&view(part)))?))
    };
    let parts: Vec<(usize, Vec<Entry>)> = on_all(whole, divided).into_iter().flatten().collect();
    if parts.is_empty() {
        return;
    }
    for (index, new) in parts.into_iter().rev() {
        summary.entries.splice(index..=index, new);
    }
    rank(&mut summary.entries);
}

fn has_parts(entry: &Entry) -> bool {
    let kind = matches!(entry.kind, ObjectKind::Heap | ObjectKind::Mapping | ObjectKind::Global);
    kind && entry.part.is_none() && entry.seen.len() == 1 && entry.file().is_none()
}

/// The parts of an entry at `pages`, without the boundaries between neighbours that are placed together as each alone;
/// none where no boundary is left. `judge` gives the pattern of a part.
fn joined(entry: &Entry, mut pages: Vec<u32>, page_size: u64, judge: impl Fn(&Entry) -> Pattern) -> Option<Vec<Entry>> {
    if pages.is_empty() {
        return None;
    }
    let mut patterns: Vec<Pattern> = entry.divided(&pages, page_size).iter().map(&judge).collect();
    let mut i = 0;
    while i < pages.len() {
        let next = i + 1;
        let first = if i == 0 { 0 } else { pages[i - 1] };
        let end = |page: Option<&u32>| page.map_or(entry.size, |page| u64::from(*page) * page_size);
        if patterns[i].kind == patterns[next].kind {
            let both = judge(&entry.between(first, pages.get(next).copied(), page_size));
            let [low, mid, high] = [end(Some(&first)), end(pages.get(i)), end(pages.get(next))];
            if is_both(&both, (&patterns[i], mid - low), (&patterns[next], high.saturating_sub(mid))) {
                patterns.splice(i..=next, [both]);
                pages.remove(i);
                i = i.saturating_sub(1);
                continue;
            }
        }
        i = next;
    }
    (!pages.is_empty()).then(|| entry.divided(&pages, page_size))
}

#[cfg(test)]
#[path = "divide_tests.rs"]
mod tests;
