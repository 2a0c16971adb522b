//! Which code accesses an entry: its accesses folded by function and loop nest as well.
//!
//! The recorder names the unit of every instruction ([`CodeUnit`]). Of an entry that several units use, the
//! [`MAX_PARTS`] with the most accesses get cells of their own; the rest are one part together, so that memory grows
//! with pages x threads x few units. An entry with one unit that matters is not divided.

use rustc_hash::{FxHashMap, FxHashSet};

use super::entries::Layout;
use super::identity::{frame_name, frame_place, short_function};
use super::stacks::{NameTables, outermost};
use super::tables::Tables;
use super::types::{Cell, CodePart};
use super::uses::{UseId, Used, Uses};
use crate::profile::records::{CodeUnit, Frame};

/// Bits of a part's number in the key of a cell; number 0 is the rest.
pub(super) const PART_BITS: u32 = 4;
/// Units with cells of their own.
pub(crate) const MAX_PARTS: usize = (1 << PART_BITS) - 1;
/// Share of an entry's accesses from which one unit is all that matters: what is left is less than what the detectors
/// tolerate as noise.
const ALONE: f64 = 0.98;

/// The part of every (entry, instruction) of the entries that are divided.
#[derive(Debug, Default)]
pub(super) struct CodeParts {
    /// Units of every entry in order of their numbers, from 1; empty for entries that are not divided.
    units: Vec<Vec<Unit>>,
    numbers: FxHashMap<(u32, Frame), u8>,
    /// Of every pair of the first pass whose object is one entry: the entry, and the part.
    by_use: Vec<Option<(u32, u8)>>,
}

#[derive(Debug)]
struct Unit {
    place: CodeUnit,
    accesses: u64,
    /// Its instruction with the most accesses, and their number.
    hottest: (Frame, u64),
}

impl CodeParts {
    /// Divides the entries by the instructions that accessed each object, without those that wait for a thread.
    pub(super) fn build(tables: &Tables, layout: &Layout, spun: &FxHashSet<Frame>) -> CodeParts {
        let mut parts = CodeParts::default();
        parts.units.resize_with(layout.entries.len(), Vec::new);
        let mut sums: FxHashMap<(u32, Frame), u64> = FxHashMap::default();
        for used in tables.uses.all.iter().filter(|u| !spun.contains(&u.ip)) {
            // Of an object in parts it is not known yet which part: all get the units of the whole.
            for entry in layout.entries_of(used.object) {
                *sums.entry((entry, used.ip)).or_default() += used.counters.accesses();
            }
        }
        let mut sums: Vec<((u32, Frame), u64)> = sums.into_iter().collect();
        sums.sort_unstable();
        for uses in sums.chunk_by(|a, b| a.0.0 == b.0.0) {
            let units = units_of(uses, &tables.code);
            if units.len() < 2 {
                continue;
            }
            let entry = uses[0].0.0;
            for &((_, frame), _) in uses {
                let Some(own) = tables.code.get(&frame) else { continue };
                let number = units.iter().take(MAX_PARTS).position(|u| same(&u.place, own));
                if let Some(number) = number {
                    parts.numbers.insert((entry, frame), number as u8 + 1);
                }
            }
            parts.units[entry as usize] = units;
        }
        parts.by_use = tables.uses.all.iter().map(|u| Some(parts.of_whole(layout.whole(u.object)?, u.ip))).collect();
        parts
    }

    fn of_whole(&self, entry: u32, ip: Frame) -> (u32, u8) {
        (entry, self.of(entry, ip))
    }

    /// The part of the accesses of a pair of the first pass; none when that goes by their address.
    #[inline]
    pub(super) fn of_use(&self, id: UseId) -> Option<u8> {
        self.by_use.get(id as usize).copied().flatten().map(|(_, part)| part)
    }

    /// The pairs of the first pass that belong to one entry as a whole, with that entry.
    pub(super) fn whole<'a>(&'a self, uses: &'a Uses) -> impl Iterator<Item = (u32, &'a Used)> {
        uses.all.iter().zip(&self.by_use).filter_map(|(used, of)| Some(((*of)?.0, used)))
    }

    /// The part of an access, 0 for the rest.
    #[inline]
    pub(super) fn of(&self, entry: u32, ip: Frame) -> u8 {
        if self.units[entry as usize].is_empty() {
            return 0;
        }
        self.numbers.get(&(entry, ip)).copied().unwrap_or(0)
    }

    /// Whether an entry has parts.
    pub(super) fn divides(&self, entry: usize) -> bool {
        !self.units[entry].is_empty()
    }

    /// Makes the parts of one entry from its cells, each with the number of its part.
    pub(super) fn divide(&self, entry: usize, cells: Vec<(u8, Cell)>, names: &NameTables<'_>) -> Vec<CodePart> {
        let units = &self.units[entry];
        if units.is_empty() {
            return Vec::new();
        }
        let named = units.iter().take(MAX_PARTS).map(|u| part(u, names));
        let mut parts: Vec<CodePart> = std::iter::once(CodePart::default()).chain(named).collect();
        for (number, cell) in cells {
            let Some(part) = parts.get_mut(usize::from(number)) else { continue };
            part.total.add(&cell.counters);
            part.cells.push(cell);
        }
        parts.retain(|p| !p.cells.is_empty());
        // The rest comes last.
        if parts.first().is_some_and(|p| p.function.is_empty()) {
            parts.rotate_left(1);
        }
        parts
    }
}

/// Orders the code of a part of an object, which was numbered for the whole object; none when one unit is all that
/// matters for the part.
pub(crate) fn of_part(mut code: Vec<CodePart>) -> Vec<CodePart> {
    let accesses = |p: &CodePart| p.total.accesses();
    let all: u64 = code.iter().map(accesses).sum();
    if code.iter().any(|p| accesses(p) as f64 >= ALONE * all as f64) {
        return Vec::new();
    }
    code.sort_by_key(|p| (p.function.is_empty(), std::cmp::Reverse(accesses(p))));
    code
}

fn same(a: &CodeUnit, b: &CodeUnit) -> bool {
    (a.frame.module, a.nest) == (b.frame.module, b.nest)
}

/// The units of one entry's instructions, most accesses first; none when one has nearly all.
fn units_of(uses: &[((u32, Frame), u64)], code: &FxHashMap<Frame, CodeUnit>) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let mut index: FxHashMap<(u32, u64), usize> = FxHashMap::default();
    let mut all = 0;
    for &((_, frame), n) in uses {
        all += n;
        let Some(&place) = code.get(&frame) else { continue };
        let i = *index.entry((frame.module, place.nest)).or_insert_with(|| {
            units.push(Unit { place, accesses: 0, hottest: (frame, 0) });
            units.len() - 1
        });
        units[i].accesses += n;
        if n > units[i].hottest.1 {
            units[i].hottest = (frame, n);
        }
    }
    units.sort_by_key(|u| (std::cmp::Reverse(u.accesses), u.place.frame));
    if units.first().is_none_or(|u| u.accesses as f64 >= ALONE * all as f64) { Vec::new() } else { units }
}

fn part(unit: &Unit, names: &NameTables<'_>) -> CodePart {
    let frame = unit.hottest.0;
    let outermost = names.symbols.get(&frame).and_then(|l| outermost(l));
    let start = Frame { module: frame.module, offset: unit.place.function };
    let function = outermost.and_then(|l| l.function.as_deref()).map(|f| short_function(f).to_owned());
    CodePart {
        function: function.unwrap_or_else(|| frame_place(start, names.modules)),
        place: frame_name(frame, names),
        nest: Some(Frame { module: frame.module, offset: unit.place.nest }),
        ..CodePart::default()
    }
}
