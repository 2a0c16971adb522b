//! Parts of variables: the members of a COMMON block or of a struct as entries of their own.
//!
//! A member of at least [`PART_LEAST`] bytes is a part. Smaller neighbours between two of them are a part together,
//! named `first..last`, if they are that large together, and belong to the part before them otherwise (at the beginning
//! to the one behind). While the profile is folded an access belongs to the part that holds its address; of pages that
//! two parts share see [`super::shared_pages`].

use crate::profile::records::{Instance, Member, PART_LEAST};

/// Most parts of one variable; with more it stays whole.
const MOST_PARTS: usize = 1 << 10;
/// Parts of all variables from which on nothing is divided any more, and bytes of the name of a variable with parts:
/// what bounds the memory for a damaged file.
pub(super) const MOST_PARTS_OF_ALL: usize = 1 << 16;
pub(super) const LONGEST_NAME: usize = 1 << 10;

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

/// Where the accesses of an object are counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Index into the layout's entries.
    pub entry: u32,
    /// Index over all instances of all entries, ascending with the entry.
    pub instance: u32,
    /// Page that counts as page 0.
    pub first_page: u64,
    /// Pages of all instances before this one: a number for every page of the profile.
    pub pages_before: u64,
    /// Of an object in parts, whose first one this is: index into the layout's divisions.
    pub division: Option<u32>,
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

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
