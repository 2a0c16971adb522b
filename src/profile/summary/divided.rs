//! An entry cut at pages into entries of their own: parts that no debug information names.

use std::cmp::Reverse;

use super::code_parts;
use super::types::{Cell, CodePart, Counters, Details, Entry, Extrapolated, PageRange, Part, TouchRun};

impl Entry {
    /// The parts of an entry of one instance that begin at its first page and at each of `pages`, ascending numbers of
    /// pages below the last one. Every counter belongs to one of them: those without a page to the part with the most
    /// accesses. A part of parts is not made.
    pub fn divided(&self, pages: &[u32], page_size: u64) -> Vec<Entry> {
        if self.seen.len() != 1 || self.part.is_some() {
            return vec![self.clone()];
        }
        let firsts = || [0].into_iter().chain(pages.iter().copied());
        let ends = || pages.iter().copied().map(Some).chain([None]);
        let mut out: Vec<Entry> =
            firsts().zip(ends()).map(|(first, end)| self.between(first, end, page_size)).collect();
        let ranges: Vec<Inside> =
            firsts().zip(ends()).map(|(first, end)| Inside { first, end: end.unwrap_or(u32::MAX) }).collect();
        let mut details: Vec<&mut Details> = out.iter_mut().map(|e| &mut e.details).collect();
        self.share_code(&mut details, |part, cells| ranges.get(part).map_or(&[][..], |r| r.of(cells)).iter());
        if let Some(most) = out.iter_mut().max_by_key(|e| e.total.accesses()) {
            most.details.unpaged = self.details.unpaged;
            most.details.unpaged_by.clone_from(&self.details.unpaged_by);
            most.total.add(&self.details.unpaged);
        }
        out
    }

    /// The part of an entry of one instance from the page `first` to before the page `end`, or to its last one; without
    /// the counters that belong to no page, and without the instructions that access it.
    pub fn between(&self, first: u32, end: Option<u32>, page_size: u64) -> Entry {
        let whole = self.seen.first().copied().unwrap_or_default();
        let skew = whole.base % page_size;
        // A rule's range is rounded to the nearest page, so that it can be written from the object's first byte.
        let offset = |page: u32| {
            let offset = u64::from(page) * page_size;
            if 2 * skew < page_size { offset } else { offset - skew }
        };
        let low = if first == 0 { 0 } else { offset(first) };
        let high = end.map_or(self.size, offset).min(self.size);
        let base = if first == 0 { whole.base } else { whole.base - skew + u64::from(first) * page_size };
        let part = Part { parent: self.name.clone(), parent_size: self.size, member: String::new(), offset: low };
        let size = high.saturating_sub(low);
        let inside = Inside { first, end: end.unwrap_or(u32::MAX) };
        let cells = inside.cells(&self.cells);
        let mut total = Counters::default();
        cells.iter().for_each(|c| total.add(&c.counters));
        let shown = |page: u64| super::identity::size_text(page * page_size);
        let to = end.map_or_else(|| super::identity::size_text(self.size), |end| shown(end.into()));
        Entry {
            name: format!("{} [{}..{to}]", self.name, shown(first.into())),
            vaddr: if self.vaddr == 0 { 0 } else { self.vaddr.wrapping_add(low) },
            size,
            part: Some(part),
            seen: vec![crate::profile::records::Instance { base, size, ..whole }],
            total,
            cells,
            touches: inside.touches(&self.touches),
            by_code: code_parts::of_part(inside.code(&self.by_code)),
            details: inside.details(&self.details),
            id: self.id,
            kind: self.kind,
            linkage: self.linkage.clone(),
            module: self.module,
            site: self.site.clone(),
            size_class: self.size_class,
            numbers: self.numbers.clone(),
            instances: self.instances,
        }
    }
}

/// Pages of a part.
struct Inside {
    first: u32,
    end: u32,
}

impl Inside {
    /// Those of a list that are inside.
    fn of<'c>(&self, cells: &'c [Cell]) -> &'c [Cell] {
        // Of one instance they are in the order of pages.
        let at = |page| cells.partition_point(|c| c.page < page);
        &cells[at(self.first)..at(self.end)]
    }

    fn cells(&self, cells: &[Cell]) -> Vec<Cell> {
        self.of(cells).iter().map(|c| Cell { page: c.page - self.first, ..*c }).collect()
    }

    fn touches(&self, touches: &[TouchRun]) -> Vec<TouchRun> {
        let own = |run: &TouchRun| {
            let (low, high) = (run.page.max(self.first), run.page.saturating_add(run.pages).min(self.end));
            (low < high).then(|| TouchRun { page: low - self.first, pages: high - low, ..*run })
        };
        touches.iter().filter_map(own).collect()
    }

    /// Details of the whole that hold for its part as well.
    fn details(&self, whole: &Details) -> Details {
        let ranges = |ranges: &[PageRange]| {
            let own = ranges.iter().map(|r| PageRange { low: r.low.max(self.first), high: r.high.min(self.end), ..*r });
            let own = own.filter(|r| r.low < r.high);
            own.map(|r| PageRange { low: r.low - self.first, high: r.high - self.first, ..r }).collect()
        };
        let Extrapolated { between, around } = &whole.extrapolated;
        let extrapolated = Extrapolated { between: ranges(between), around: ranges(around) };
        let (backing, is_shared_memory) = (whole.backing.clone(), whole.is_shared_memory);
        let page_entries = whole.page_entries;
        Details { backing, is_shared_memory, extrapolated, page_entries, ..Details::default() }
    }

    fn code(&self, code: &[CodePart]) -> Vec<CodePart> {
        let own = |part: &CodePart| {
            let cells = self.cells(&part.cells);
            let mut total = Counters::default();
            cells.iter().for_each(|c| total.add(&c.counters));
            (!cells.is_empty()).then(|| CodePart { total, cells, ..part.clone() })
        };
        code.iter().filter_map(own).collect()
    }
}

/// Sorts entries by cost and numbers them so.
pub(crate) fn rank(entries: &mut [Entry]) {
    entries.sort_by(|a, b| {
        let rank = |e: &Entry| Reverse((e.total.cost_ns, e.total.accesses()));
        rank(a).cmp(&rank(b)).then_with(|| a.name.cmp(&b.name))
    });
    entries.iter_mut().zip(0..).for_each(|(entry, id)| entry.id = id);
}

#[cfg(test)]
#[path = "divided_tests.rs"]
mod tests;
