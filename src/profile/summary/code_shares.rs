//! The instructions that access some of an entry's memory, where the entry becomes several.
//!
//! Of an instruction only its sum over the entry is kept, and the pages between which its accesses lie. Its loop nest
//! says which part of the sum belongs to which memory: the cells of the nest, or of all code where one nest makes
//! nearly all of the accesses. Of these cells those count that the instruction can have: on its pages, and reads or
//! writes as it makes them.

use std::cmp::Reverse;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::entries::Layout;
use super::types::{Cell, CodePart, Counters, Details, Entry};
use super::uses::Used;
use crate::profile::records::{AccessCode, Frame};

/// Gives the instructions of each entry of one instance the pages between which their accesses lie.
pub(super) fn assign_pages<'u>(layout: &mut Layout, uses: impl Iterator<Item = (u32, &'u Used)>) {
    let mut found: FxHashMap<(u32, Frame), Range<u32>> = FxHashMap::default();
    for (entry, used) in uses {
        let Some(place) = layout.places.get(&used.object) else { continue };
        let page =
            |addr: u64| (addr >> layout.page_shift).saturating_sub(place.first_page).min(u64::from(u32::MAX - 1));
        let (low, high) = (page(used.seen.lowest) as u32, page(used.seen.highest) as u32 + 1);
        let pages = found.entry((entry, used.ip)).or_insert(low..high);
        *pages = pages.start.min(low)..pages.end.max(high);
    }
    for (entry, number) in layout.entries.iter_mut().zip(0..).filter(|(entry, _)| entry.seen.len() == 1) {
        let Details { code, code_pages, .. } = &mut entry.details;
        *code_pages = code.iter().filter_map(|(ip, _)| Some((*ip, found.remove(&(number, *ip))?))).collect();
    }
}

impl Entry {
    /// The cells among which are the accesses of an instruction.
    fn cells_around(&self, ip: Frame) -> &[Cell] {
        let before = |part: &&CodePart| part.nest.is_some_and(|n| n.module == ip.module && n.offset <= ip.offset);
        let nest = self.by_code.iter().filter(before).max_by_key(|part| part.nest);
        nest.map_or(&self.cells, |nest| &nest.cells)
    }

    /// Adds the instructions that access them to the details of entries that this one becomes: `cells` are those of a
    /// list that belong to an entry, by its number.
    pub(super) fn share_code<'c, I>(&'c self, of: &mut [&mut Details], cells: impl Fn(usize, &'c [Cell]) -> I)
    where
        I: Iterator<Item = &'c Cell>,
    {
        for (ip, all) in &self.details.code {
            let pages = self.details.code_pages.iter().find(|(frame, _)| frame == ip).map(|(_, pages)| pages);
            let around = self.cells_around(*ip);
            let mut whole = sum(around.iter(), all, pages);
            let narrow = whole.accesses() > 0;
            // Where only the object of its accesses is known, they are taken to be distributed as the others.
            let list = if narrow { around } else { &self.cells };
            if !narrow {
                whole = sum(list.iter(), &BOTH, None);
            }
            for (number, details) in of.iter_mut().enumerate() {
                let own = cells(number, list);
                let own = if narrow { sum(own, all, pages) } else { sum(own, &BOTH, None) };
                let counters = all.part(&own, &whole);
                if counters.accesses() > 0 {
                    details.code.push((*ip, counters));
                }
            }
        }
        for details in of {
            details.code.sort_unstable_by_key(|&(ip, c)| (Reverse((c.cost_ns, c.accesses())), ip));
            let known = |ip: &Frame| self.details.access_code.iter().find(|known| known.frame == *ip).copied();
            details.access_code = details.code.iter().filter_map(|(ip, _)| known(ip)).collect::<Vec<AccessCode>>();
        }
    }
}

/// Stands for an instruction that both reads and writes, so that all cells count for it.
const BOTH: Counters = Counters { reads: 1, writes: 1, remote: 0, placed: 0, cost_ns: 0 };

/// The accesses in cells that an instruction with the counters `all` can have made, and their cost.
fn sum<'c>(cells: impl Iterator<Item = &'c Cell>, all: &Counters, pages: Option<&Range<u32>>) -> Counters {
    let mut total = Counters::default();
    for cell in cells.filter(|cell| pages.is_none_or(|pages| pages.contains(&cell.page))) {
        let Counters { reads, writes, cost_ns, .. } = cell.counters;
        let (reads, writes) = (if all.reads > 0 { reads } else { 0 }, if all.writes > 0 { writes } else { 0 });
        let of_all = (reads + writes) as f64 / cell.counters.accesses().max(1) as f64;
        let cost_ns = (cost_ns as f64 * of_all).round() as u64;
        total.add(&Counters { reads, writes, cost_ns, ..Counters::default() });
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;
    const LOOP: u64 = 0x100;

    fn ip(offset: u64) -> Frame {
        Frame { module: 0, offset }
    }

    fn reads(reads: u64) -> Counters {
        Counters { reads, cost_ns: 10 * reads, ..Counters::default() }
    }

    fn writes(writes: u64) -> Counters {
        Counters { writes, cost_ns: 10 * writes, ..Counters::default() }
    }

    fn cell(page: u32, counters: Counters) -> Cell {
        Cell { instance: 0, page, thread: 0, slot: 0, counters }
    }

    fn entry(cells: Vec<Cell>, code: Vec<(Frame, Counters)>) -> Entry {
        let details = Details { code, ..Details::default() };
        let seen = vec![crate::profile::records::Instance { size: 100 * PAGE, ..Default::default() }];
        Entry { size: 100 * PAGE, seen, cells, details, ..Entry::default() }
    }

    fn shares(entry: &Entry) -> Vec<Vec<(u64, u64, u64)>> {
        let of = |e: Entry| e.details.code.iter().map(|(ip, c)| (ip.offset, c.accesses(), c.cost_ns)).collect();
        entry.divided(&[50], PAGE).into_iter().map(of).collect()
    }

    #[test]
    fn parts_share_the_instructions_of_the_only_loop_as_their_samples() {
        let mut whole = entry(vec![cell(0, reads(30)), cell(50, reads(10))], vec![(ip(LOOP), reads(40))]);
        let known = |frame| AccessCode {
            frame,
            address: crate::profile::records::AddressKind::Counted,
            body: 7,
            gap: 3,
            behind: 5,
            later: 15,
        };
        whole.details.access_code = vec![known(ip(LOOP))];
        assert_eq!(shares(&whole), [[(LOOP, 30, 300)], [(LOOP, 10, 100)]]);
        assert!(whole.divided(&[50], PAGE).iter().all(|part| part.details.access_code == [known(ip(LOOP))]));
    }

    #[test]
    fn each_loop_has_its_own_cells() {
        let cells = [cell(0, reads(30)), cell(50, reads(10)), cell(60, reads(60))];
        let code = vec![(ip(2 * LOOP + 8), reads(60)), (ip(LOOP + 8), reads(40))];
        let mut whole = entry(cells.to_vec(), code);
        let part =
            |nest, cells: &[Cell]| CodePart { nest: Some(ip(nest)), cells: cells.to_vec(), ..CodePart::default() };
        whole.by_code = vec![part(2 * LOOP, &cells[2..]), part(LOOP, &cells[..2])];
        assert_eq!(shares(&whole), [vec![(LOOP + 8, 30, 300)], vec![(2 * LOOP + 8, 60, 600), (LOOP + 8, 10, 100)]]);
    }

    /// Two arrays in one block, in one loop: `b[i] += a[i]`, and `a` is half as large again.
    #[test]
    fn an_instruction_belongs_to_the_array_whose_pages_it_accesses() {
        let cells = vec![cell(0, reads(30)), cell(50, reads(20)), cell(60, writes(10))];
        let code = vec![(ip(LOOP), reads(30)), (ip(LOOP + 4), reads(20)), (ip(LOOP + 8), writes(10))];
        let mut whole = entry(cells, code);
        let even =
            [vec![(LOOP, 18, 180), (LOOP + 4, 12, 120)], vec![(LOOP, 12, 120), (LOOP + 8, 10, 100), (LOOP + 4, 8, 80)]];
        assert_eq!(shares(&whole), even, "only the second is written");
        whole.details.code_pages = vec![(ip(LOOP), 0..50), (ip(LOOP + 4), 50..100), (ip(LOOP + 8), 50..100)];
        let apart = [vec![(LOOP, 30, 300)], vec![(LOOP + 4, 20, 200), (LOOP + 8, 10, 100)]];
        assert_eq!(shares(&whole), apart);
    }

    #[test]
    fn accesses_without_a_page_are_distributed_as_the_others() {
        let whole = entry(vec![cell(0, writes(30)), cell(50, writes(10))], vec![(ip(LOOP), reads(40))]);
        assert_eq!(shares(&whole), [[(LOOP, 30, 300)], [(LOOP, 10, 100)]]);
    }
}
