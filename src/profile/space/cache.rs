//! Answers of the last attributions, by page and by 2 MiB region.
//!
//! An entry holds a range inside which one object answers, clipped to the page or region of its slot: a change
//! of an address range therefore only has to visit the slots of that range. Large changes bump an epoch instead.

use crate::profile::records::ObjectId;

const PAGE_SHIFT: u32 = 12;
const REGION_SHIFT: u32 = 21;
/// 64 MiB of pages: with its 512 KiB the table stays in a core's second-level cache.
const PAGES: usize = 1 << 14;
/// 8 GiB of regions in 128 KiB.
const REGIONS: usize = 1 << 12;
/// Ranges from this size on are kept by region; smaller ones would displace each other from its one slot.
const REGION_RANGE: u64 = 64 << 10;
/// Parts of a region that are marked together when a page of theirs is kept: 64 of them.
const PART_SHIFT: u32 = REGION_SHIFT - 6;
/// Changes of more slots than this drop the whole table: visiting them costs more than refilling it.
const MAX_SLOTS: u64 = 1024;

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    low: u64,
    high: u64,
    serial: u32,
    epoch: u32,
    object: ObjectId,
}

#[derive(Debug)]
struct Table {
    entries: Box<[Entry]>,
    shift: u32,
    epoch: u32,
}

impl Table {
    fn new(size: usize, shift: u32) -> Table {
        Table { entries: vec![Entry::default(); size].into_boxed_slice(), shift, epoch: 1 }
    }

    fn slot(&self, serial: u32, number: u64) -> usize {
        (number as usize).wrapping_add(serial as usize * 0x9e5) & (self.entries.len() - 1)
    }

    fn get(&self, serial: u32, addr: u64) -> Option<ObjectId> {
        let e = &self.entries[self.slot(serial, addr >> self.shift)];
        let hit = e.low <= addr && addr < e.high && e.serial == serial && e.epoch == self.epoch;
        hit.then_some(e.object)
    }

    fn put(&mut self, serial: u32, addr: u64, low: u64, high: u64, object: ObjectId) {
        let number = addr >> self.shift;
        let first = number << self.shift;
        let entry = Entry {
            low: low.max(first),
            high: high.min(first.saturating_add(1 << self.shift)),
            serial,
            epoch: self.epoch,
            object,
        };
        let slot = self.slot(serial, number);
        self.entries[slot] = entry;
    }

    fn forget(&mut self, serial: u32, low: u64, high: u64) {
        let (first, last) = (low >> self.shift, (high - 1) >> self.shift);
        if last - first >= MAX_SLOTS {
            self.epoch = self.epoch.wrapping_add(1);
            return;
        }
        for number in first..=last {
            let slot = self.slot(serial, number);
            let e = &mut self.entries[slot];
            if e.low < high && low < e.high && e.serial == serial {
                e.high = e.low;
            }
        }
    }
}

/// The parts of a region of which a page is kept.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    /// Which region and address space; [`MIXED`] when several share the slot, whose bits then stay.
    tag: u64,
    parts: u64,
}

const MIXED: u64 = u64::MAX;

fn tag(serial: u32, region: u64) -> u64 {
    // Regions are below 2^43: the sum is unique for the first two million address spaces, and MIXED never.
    u64::from(serial) << 43 ^ region
}

/// The cache of a [`super::Space`]; `serial` distinguishes address spaces and is never reused.
#[derive(Debug)]
pub struct Cache {
    pages: Table,
    regions: Table,
    /// By region slot, the parts with cached pages: most changes concern parts without any, and are skipped.
    marks: Box<[Mark]>,
}

impl Default for Cache {
    fn default() -> Self {
        Cache {
            pages: Table::new(PAGES, PAGE_SHIFT),
            regions: Table::new(REGIONS, REGION_SHIFT),
            marks: vec![Mark::default(); REGIONS].into_boxed_slice(),
        }
    }
}

impl Cache {
    /// The object at `addr`, if cached.
    pub fn get(&self, serial: u32, addr: u64) -> Option<ObjectId> {
        self.regions.get(serial, addr).or_else(|| self.pages.get(serial, addr))
    }

    /// Remembers that `object` answers everywhere in `low..high`, which holds `addr`.
    pub fn put(&mut self, serial: u32, addr: u64, low: u64, high: u64, object: ObjectId) {
        if high.saturating_sub(low) >= REGION_RANGE {
            self.regions.put(serial, addr, low, high, object);
        } else {
            self.pages.put(serial, addr, low, high, object);
            let region = addr >> REGION_SHIFT;
            let mark = &mut self.marks[self.regions.slot(serial, region)];
            let tag = tag(serial, region);
            mark.tag = if mark.parts == 0 || mark.tag == tag { tag } else { MIXED };
            mark.parts |= 1 << ((addr >> PART_SHIFT) % 64);
        }
    }

    /// Drops all answers in `low..high` (not empty).
    pub fn forget(&mut self, serial: u32, low: u64, high: u64) {
        debug_assert!(low < high);
        self.regions.forget(serial, low, high);
        let (first, last) = (low >> REGION_SHIFT, (high - 1) >> REGION_SHIFT);
        if last - first >= MAX_SLOTS {
            self.pages.forget(serial, low, high);
            self.marks.fill(Mark::default());
            return;
        }
        for region in first..=last {
            let start = region << REGION_SHIFT;
            let (low, last) = (low.max(start), (high - 1).min(start | ((1 << REGION_SHIFT) - 1)).min(u64::MAX - 1));
            let parts = u64::MAX << ((low >> PART_SHIFT) % 64) & u64::MAX >> (63 - (last >> PART_SHIFT) % 64);
            let mark = &mut self.marks[self.regions.slot(serial, region)];
            if mark.parts & parts == 0 {
                continue;
            }
            let whole = ((low - start).div_ceil(1 << PART_SHIFT), (last + 1 - start) >> PART_SHIFT);
            if mark.tag == tag(serial, region) && whole.0 < whole.1 {
                mark.parts &= !(u64::MAX << whole.0 & u64::MAX >> (64 - whole.1));
            }
            self.pages.forget(serial, low, last + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_stay_inside_their_range_and_address_space() {
        let mut c = Cache::default();
        c.put(1, 0x10_0100, 0x10_0080, 0x10_2000, 5);
        assert_eq!(c.get(1, 0x10_0080), Some(5));
        assert_eq!(c.get(1, 0x10_007f), None);
        assert_eq!(c.get(1, 0x10_1000), None, "clipped to the page of the slot");
        assert_eq!(c.get(2, 0x10_0080), None);
    }

    #[test]
    fn regions_that_share_a_mark_do_not_hide_each_other() {
        let far = (REGIONS as u64) << REGION_SHIFT;
        let mut c = Cache::default();
        c.put(1, 0x4000_0000, 0x4000_0000, 0x4000_1000, 5);
        c.put(1, 0x4000_3000 + far, 0x4000_3000 + far, 0x4000_4000 + far, 6);
        c.forget(1, 0x4000_0000, 0x4020_0000);
        c.forget(1, 0x4000_0000 + far, 0x4020_0000 + far);
        assert_eq!((c.get(1, 0x4000_0000), c.get(1, 0x4000_3000 + far)), (None, None));
        c.put(1, 0x4000_7000, 0x4000_7000, 0x4000_7100, 7);
        c.put(1, 0x4000_8000, 0x4000_8000, 0x4000_8100, 8);
        c.forget(1, 0x4000_0000, 0x4000_8000);
        assert_eq!((c.get(1, 0x4000_7000), c.get(1, 0x4000_8000)), (None, Some(8)));
        c.forget(1, 0x4000_8010, 0x4020_0000);
        assert_eq!(c.get(1, 0x4000_8000), None);
    }

    #[test]
    fn a_change_forgets_what_it_overlaps_only() {
        let mut c = Cache::default();
        c.put(1, 0x4000_0000, 0x4000_0000, 0x5000_0000, 5);
        c.put(1, 0x4020_0000, 0x4000_0000, 0x5000_0000, 5);
        c.put(1, 0x6000_0000, 0x6000_0000, 0x6000_0100, 6);
        c.forget(1, 0x401f_fff0, 0x4020_0000);
        assert_eq!(c.get(1, 0x4000_0000), None);
        assert_eq!(c.get(1, 0x4020_0000), Some(5));
        c.forget(1, 0x4000_0000, 0x4000_0000 + (9 << 30));
        assert_eq!(c.get(1, 0x4020_0000), None);
        assert_eq!(c.get(1, 0x6000_0000), None);
    }
}
