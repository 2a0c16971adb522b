//! Pages that two parts of a variable share. Memory is placed by pages, so each goes, with all accesses to it, to the
//! part that accesses it at the higher cost.

use rustc_hash::FxHashMap;

use super::entries::Layout;
use super::types::Counters;

/// A page that two parts of one object share: its number in the one before and in the one behind.
struct Shared {
    before: u64,
    behind: u64,
    /// Entry of the part before.
    entry: u32,
    /// More than half of its bytes belong to the part before.
    mostly_before: bool,
}

/// Gives each page that two parts share to one of them. `cells` are counters with the number of their page.
/// Returns the pages that move, with their new number; the entries know their pages afterwards.
pub(super) fn share(layout: &mut Layout, cells: impl Iterator<Item = (u64, Counters)>) -> FxHashMap<u64, u64> {
    let shared = shared_pages(layout);
    let mut side: FxHashMap<u64, (u32, bool)> = FxHashMap::default();
    for page in &shared {
        side.insert(page.before, (page.entry, true));
        side.insert(page.behind, (page.entry, false));
    }
    // Of all instances together: a rule is for all of them.
    let mut costs: FxHashMap<u32, [Counters; 2]> = FxHashMap::default();
    for (page, counters) in cells {
        if let Some(&(entry, before)) = side.get(&page) {
            costs.entry(entry).or_default()[usize::from(before)].add(&counters);
        }
    }
    let mut goes_before: FxHashMap<u32, bool> = FxHashMap::default();
    for page in &shared {
        let [behind, before] = costs.get(&page.entry).copied().unwrap_or_default();
        let of = |c: Counters| (c.cost_ns, c.accesses());
        let is_before = if of(before) == of(behind) { page.mostly_before } else { of(before) > of(behind) };
        goes_before.entry(page.entry).or_insert(is_before);
    }
    let moves = shared.iter().map(|page| match goes_before.get(&page.entry) {
        Some(true) => (page.behind, page.before),
        _ => (page.before, page.behind),
    });
    let moves = moves.collect();
    cut_entries(layout, &goes_before);
    moves
}

fn shared_pages(layout: &Layout) -> Vec<Shared> {
    let page = 1_u64 << layout.page_shift;
    let mut out = Vec::new();
    for division in &layout.divisions {
        for (two, start) in division.places.windows(2).zip(&division.starts[1..]) {
            let inside = start % page;
            if inside == 0 {
                continue;
            }
            let before = two[0].pages_before + (start >> layout.page_shift).saturating_sub(two[0].first_page);
            let mostly_before = 2 * inside > page;
            out.push(Shared { before, behind: two[1].pages_before, entry: two[0].entry, mostly_before });
        }
    }
    out
}

/// Sets the bounds of all parts to those of their pages.
fn cut_entries(layout: &mut Layout, goes_before: &FxHashMap<u32, bool>) {
    let page = 1_u64 << layout.page_shift;
    let cut = |address: u64, is_before: bool| {
        let low = address & !(page - 1);
        if is_before && low != address { low.saturating_add(page) } else { low }
    };
    for index in 0..layout.entries.len() {
        let begins = index.checked_sub(1).and_then(|i| goes_before.get(&(i as u32))).copied();
        let ends = goes_before.get(&(index as u32)).copied();
        let entry = &mut layout.entries[index];
        let Some(part) = &mut entry.part else { continue };
        let old = entry.seen.first().copied();
        for (number, instance) in entry.seen.iter_mut().enumerate() {
            let first_page = instance.base >> layout.page_shift;
            let end = instance.base.saturating_add(instance.size);
            let low = begins.map_or(instance.base, |is_before| cut(instance.base, is_before));
            let high = ends.map_or(end, |is_before| cut(end, is_before));
            (instance.base, instance.size) = (low, high.saturating_sub(low));
            if low >> layout.page_shift > first_page {
                layout.without_first_page.insert(layout.first_instance[index] as usize + number);
            }
        }
        if let Some((old, new)) = old.zip(entry.seen.first()) {
            let moved = new.base.wrapping_sub(old.base);
            part.offset = part.offset.wrapping_add(moved);
            entry.vaddr = entry.vaddr.wrapping_add(moved);
            entry.size = new.size;
        }
    }
}
