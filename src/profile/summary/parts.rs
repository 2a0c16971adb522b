//! Parts of variables: the members of a COMMON block or of a struct as entries of their own.
//!
//! A member of at least [`PART_LEAST`] bytes is a part. Smaller neighbours between two of them are a part together, named
//! `first..last`, if they are that large together, and belong to the part before them otherwise (at the beginning to the
//! one behind). While the profile is folded an access belongs to the part that holds its address; then every page that
//! two parts share goes, with all accesses to it, to the part that accesses it at the higher cost, because memory is
//! placed by pages.

use rustc_hash::FxHashMap;

use super::entries::{Layout, Place};
use super::types::Counters;
use crate::profile::records::{Instance, Member, PART_LEAST};

/// Most parts of one variable; with more it stays whole.
const MOST_PARTS: usize = 1 << 10;
/// Entries from which on nothing is divided any more, which bounds the memory for a damaged file.
pub(super) const MOST_ENTRIES: usize = 1 << 18;

/// Name of the bytes between members.
const REST: &str = "(rest)";

/// One part of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub name: String,
    pub offset: u64,
    pub size: u64,
}

/// The parts of a variable of `size` bytes, which hold all of its bytes; empty when it is not divided.
pub(super) fn pieces(members: &[Member], size: u64) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    let mut small: Vec<&str> = Vec::new();
    let mut end = 0;
    for member in members {
        let past = member.offset.checked_add(member.size);
        let Some(past) = past.filter(|past| member.offset >= end && *past <= size) else { continue };
        if member.size < PART_LEAST {
            small.push(&member.name);
            continue;
        }
        between(&mut out, &mut small, end, member.offset);
        let start = if out.is_empty() { 0 } else { member.offset };
        out.push(Piece { name: member.name.clone(), offset: start, size: past - start });
        end = past;
    }
    between(&mut out, &mut small, end, size);
    if (2..=MOST_PARTS).contains(&out.len()) { out } else { Vec::new() }
}

/// Adds the bytes from `low` to `high` that no large member holds: as a part, or to the part before them.
fn between(out: &mut Vec<Piece>, small: &mut Vec<&str>, low: u64, high: u64) {
    let names = std::mem::take(small);
    if high - low >= PART_LEAST {
        let name = match names.as_slice() {
            [] => REST.to_owned(),
            [one] => (*one).to_owned(),
            [first, .., last] => format!("{first}..{last}"),
        };
        out.push(Piece { name, offset: low, size: high - low });
    } else if let Some(before) = out.last_mut() {
        before.size = high - before.offset;
    }
}

/// The memory of each part of an instance of a variable.
pub(super) fn instances(pieces: &[Piece], whole: &Instance) -> impl Iterator<Item = Instance> {
    let part = |p: &Piece| Instance { base: whole.base.saturating_add(p.offset), size: p.size, ..*whole };
    pieces.iter().map(part).collect::<Vec<_>>().into_iter()
}

/// An object in parts: the first address of each, and its place.
#[derive(Debug, Default)]
pub(super) struct Division {
    pub starts: Vec<u64>,
    pub places: Vec<Place>,
}

impl Division {
    /// The place of an access to `addr`.
    #[inline]
    pub fn at(&self, addr: u64) -> Option<Place> {
        let after = self.starts.partition_point(|start| *start <= addr);
        self.places.get(after.saturating_sub(1)).copied()
    }
}

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

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
