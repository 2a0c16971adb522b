//! Replaces the objects of a summary by their parts, at the boundaries that are found in the accesses of each hot one.

use super::search::part_boundaries;
use crate::detect::cores::on_all;
use crate::detect::hot::hot;
use crate::detect::roles::roles;
use crate::detect::view::{Weight, cost_shares, view_with};
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
        let pages = part_boundaries(&view_with(entry, summary, &roles, weight, AccessFilter::All));
        (!pages.is_empty()).then(|| (index, entry.divided(&pages, page_size)))
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
