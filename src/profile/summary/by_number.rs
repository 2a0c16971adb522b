//! Instances of one call site as several entries, told apart by the order of their allocation.

use numamma_plan::nodes::format_runs;

use super::code_parts;
use super::types::{Cell, CodePart, Counters, Details, Entry, Extrapolated, Numbers, PageRange, TouchRun};

impl Numbers {
    /// Of `all` instances those with these indices, ascending: `1-2/8` where they are the same of every eight.
    pub fn of(indices: &[u32], all: u32) -> Numbers {
        let periodic = |every: &u32| {
            let first = indices.partition_point(|i| i < every);
            let again = indices.iter().skip(first).zip(indices).all(|(later, before)| later - every == *before);
            let expected: u32 = indices[..first].iter().map(|place| (all - place).div_ceil(*every)).sum();
            first > 0 && again && expected as usize == indices.len()
        };
        let every = (2..=all / 2).find(periodic);
        let first = every.map_or(indices.len(), |every| indices.partition_point(|i| *i < every));
        let numbers: Vec<u64> = indices[..first].iter().map(|i| u64::from(*i) + 1).collect();
        Numbers { list: format_runs(&numbers), every: every.map(u64::from), all: all.into() }
    }

    /// As a policy writes them: `1`, `2-3`, `1-2/8`.
    pub fn in_policy(&self) -> String {
        let every = self.every.map(|every| format!("/{every}")).unwrap_or_default();
        format!("{}{every}", self.list)
    }

    /// `instance 1 of 2`, `instances 1-2 of each 8`.
    pub fn words(&self) -> String {
        let plural = if self.list.contains(['-', ',']) { "s" } else { "" };
        match self.every {
            Some(every) => format!("instance{plural} {} of each {every}", self.list),
            None => format!("instance{plural} {} of {}", self.list, self.all),
        }
    }
}

impl Entry {
    /// The entry as one for each group of its instances; each of them is in one group, whose indices ascend. Counters
    /// without an instance belong to the group with the most accesses.
    pub fn by_number(&self, groups: &[Vec<u32>]) -> Vec<Entry> {
        let all = self.seen.len() as u32;
        let mut out: Vec<Entry> =
            groups.iter().map(|group| self.of_instances(group, Numbers::of(group, all))).collect();
        let mut details: Vec<&mut Details> = out.iter_mut().map(|e| &mut e.details).collect();
        self.share_code(&mut details, |number, cells| {
            let own = Own(groups.get(number).map_or(&[], Vec::as_slice));
            cells.iter().filter(move |c| own.at(c.instance).is_some())
        });
        if let Some(most) = out.iter_mut().max_by_key(|e| e.total.accesses()) {
            most.details.unpaged = self.details.unpaged;
            most.details.unpaged_by.clone_from(&self.details.unpaged_by);
            most.total.add(&self.details.unpaged);
        }
        out
    }

    fn of_instances(&self, group: &[u32], numbers: Numbers) -> Entry {
        let own = Own(group);
        let seen: Vec<_> = group.iter().filter_map(|i| self.seen.get(*i as usize).copied()).collect();
        let cells = own.cells(&self.cells);
        let Details { backing, is_shared_memory, extrapolated, left_out, .. } = &self.details;
        let details = Details {
            backing: backing.clone(),
            is_shared_memory: *is_shared_memory,
            extrapolated: Extrapolated {
                between: own.ranges(&extrapolated.between),
                around: own.ranges(&extrapolated.around),
            },
            left_out: *left_out,
            page_entries: self.details.page_entries,
            ..Details::default()
        };
        let code = |part: &CodePart| {
            let cells = own.cells(&part.cells);
            (!cells.is_empty()).then(|| CodePart { total: sum(&cells), cells, ..part.clone() })
        };
        Entry {
            name: format!("{} [{}]", self.name, numbers.words()),
            size: seen.iter().map(|i| i.size).max().unwrap_or(self.size),
            numbers: Some(numbers),
            instances: seen.len() as u64,
            total: sum(&cells),
            touches: self
                .touches
                .iter()
                .filter_map(|run| Some(TouchRun { instance: own.at(run.instance)?, ..*run }))
                .collect(),
            by_code: code_parts::of_part(self.by_code.iter().filter_map(code).collect()),
            cells,
            seen,
            details,
            id: self.id,
            kind: self.kind,
            linkage: self.linkage.clone(),
            module: self.module,
            vaddr: self.vaddr,
            part: self.part.clone(),
            site: self.site.clone(),
            size_class: self.size_class,
        }
    }
}

fn sum(cells: &[Cell]) -> Counters {
    let mut total = Counters::default();
    cells.iter().for_each(|c| total.add(&c.counters));
    total
}

/// Some of the instances, ascending.
struct Own<'a>(&'a [u32]);

impl Own<'_> {
    /// The index of an instance among them.
    fn at(&self, instance: u32) -> Option<u32> {
        self.0.binary_search(&instance).ok().map(|at| at as u32)
    }

    fn cells(&self, cells: &[Cell]) -> Vec<Cell> {
        cells.iter().filter_map(|c| Some(Cell { instance: self.at(c.instance)?, ..*c })).collect()
    }

    fn ranges(&self, ranges: &[PageRange]) -> Vec<PageRange> {
        ranges.iter().filter_map(|r| Some(PageRange { instance: self.at(r.instance)?, ..*r })).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::records::Instance;

    #[test]
    fn numbers_are_words_of_a_policy() {
        let of = |indices: &[u32], all| {
            let numbers = Numbers::of(indices, all);
            (numbers.in_policy(), numbers.words())
        };
        let is = |policy: &str, words: &str| (policy.to_owned(), words.to_owned());
        assert_eq!(of(&[0], 2), is("1", "instance 1 of 2"));
        assert_eq!(of(&[1, 2, 4], 5), is("2-3,5", "instances 2-3,5 of 5"));
        assert_eq!(of(&[0, 2, 4], 5), is("1/2", "instance 1 of each 2"));
        assert_eq!(of(&[1, 3], 5), is("2/2", "instance 2 of each 2"));
        assert_eq!(of(&[0, 1, 4, 5], 8), is("1-2/4", "instances 1-2 of each 4"));
        assert_eq!(of(&[0, 2], 6), is("1,3", "instances 1,3 of 6"), "the fifth is another");
    }

    #[test]
    fn every_counter_belongs_to_one_group() {
        let counted = |reads| Counters { reads, cost_ns: 10 * reads, ..Counters::default() };
        let cell = |instance, page, reads| Cell { instance, page, thread: 0, slot: 0, counters: counted(reads) };
        let run = |instance| TouchRun { instance, page: 0, pages: 2, thread: 0, time_ns: 0 };
        let instance = |base, size| Instance { base, size, ..Instance::default() };
        let mut entry = Entry {
            name: "a".into(),
            size: 300,
            instances: 3,
            seen: vec![instance(1, 100), instance(2, 300), instance(3, 200)],
            cells: vec![cell(0, 0, 1), cell(1, 5, 2), cell(1, 6, 4), cell(2, 1, 8)],
            touches: vec![run(0), run(1), run(2)],
            ..Entry::default()
        };
        entry.details.unpaged = counted(16);
        entry.total = counted(31);
        let two = entry.by_number(&[vec![0, 2], vec![1]]);
        assert_eq!(two[0].cells, [cell(0, 0, 1), cell(1, 1, 8)]);
        assert_eq!((two[0].seen.len(), two[0].size, two[0].instances), (2, 200, 2));
        assert_eq!((two[0].total.reads, two[1].total.reads), (25, 6));
        assert_eq!(two[1].touches, [run(0)]);
        assert_eq!((two[1].name.as_str(), two[1].size), ("a [instance 2 of 3]", 300));
    }
}
