//! Which object of one profile is which of another.
//!
//! First by identity, as the processes of one program are matched ([`super::super::catalog`]). What that leaves,
//! because the program was built anew, is matched by name: a variable by its own, an allocation by its functions and
//! size. Allocations of one size in the same functions are paired in the order of their lines, where there are as many
//! of them on both sides: edits move lines, but seldom change their order.

use std::collections::BTreeMap;

use crate::merge::catalog::Catalog;
use crate::profile::records::ObjectKind;
use crate::profile::summary::{Entry, Summary, base_name};

/// What two objects have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The same variable, call stack or mapping of the same build.
    Identity,
    /// The same names and size.
    Name,
    /// The same functions and size, on other lines.
    OtherLine,
    /// The same names, of another size.
    OtherSize,
}

/// An object of either profile, by its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// In the first profile; none if it is new.
    pub before: Option<usize>,
    /// In the second one; none if it is gone.
    pub after: Option<usize>,
    /// How it was matched, where it is in both.
    pub by: By,
}

/// What is known of an object in any build.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Names {
    kind: u8,
    /// The functions that allocate it, innermost first; a variable's own name.
    functions: Vec<String>,
    /// File and line of each.
    lines: Vec<(String, u32)>,
    /// Bytes, where they tell objects apart.
    size: u64,
}

/// Pairs all objects of two profiles: those in both, then the others.
pub(super) fn pairs(before: &Summary, after: &Summary) -> Vec<Pair> {
    let mut open = Open::new(before, after);
    open.by_identity(before, after);
    open.all_by_names(&names(before), &names(after));
    open.finish()
}

/// Objects that have no counterpart yet, and the pairs so far.
struct Open {
    before: Vec<bool>,
    after: Vec<bool>,
    found: Vec<Pair>,
}

impl Open {
    fn new(before: &Summary, after: &Summary) -> Open {
        Open { before: vec![true; before.entries.len()], after: vec![true; after.entries.len()], found: Vec::new() }
    }

    fn join(&mut self, before: usize, after: usize, by: By) {
        (self.before[before], self.after[after]) = (false, false);
        self.found.push(Pair { before: Some(before), after: Some(after), by });
    }

    /// Pairs objects with the same number in one catalog. Offsets in files without a build-id say little of other
    /// builds of them: there the names must be the same, too.
    fn by_identity(&mut self, before: &Summary, after: &Summary) {
        let mut catalog = Catalog::default();
        let (a, b) = (catalog.objects(before), catalog.objects(after));
        let built = |s: &Summary| s.header.program.build_id.is_some();
        let sure = built(before) && built(after);
        let mut by_number: BTreeMap<u32, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        a.into_iter().enumerate().for_each(|(i, number)| by_number.entry(number).or_default().0.push(i));
        b.into_iter().enumerate().for_each(|(i, number)| by_number.entry(number).or_default().1.push(i));
        for (own, other) in by_number.into_values() {
            for (i, j) in own.into_iter().zip(other) {
                if sure || before.entries[i].name == after.entries[j].name {
                    self.join(i, j, By::Identity);
                }
            }
        }
    }

    /// Pairs by functions and size, then by functions and lines.
    fn all_by_names(&mut self, a: &[Option<Names>], b: &[Option<Names>]) {
        self.by_names(a, b, |n| (n.kind, &n.functions, n.size), By::Name);
        self.by_names(a, b, |n| (n.kind, &n.functions, &n.lines), By::OtherSize);
    }

    /// Pairs those that are still open and have the same key.
    fn by_names<'a, K: Ord>(
        &mut self,
        a: &'a [Option<Names>],
        b: &'a [Option<Names>],
        key: impl Fn(&'a Names) -> K,
        by: By,
    ) {
        let mut groups: BTreeMap<K, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        for (i, names) in a.iter().enumerate().filter(|(i, _)| self.before[*i]) {
            names.iter().for_each(|n| groups.entry(key(n)).or_default().0.push(i));
        }
        for (i, names) in b.iter().enumerate().filter(|(i, _)| self.after[*i]) {
            names.iter().for_each(|n| groups.entry(key(n)).or_default().1.push(i));
        }
        let lines = |list: &'a [Option<Names>], i: usize| list[i].as_ref().map(|n| &n.lines);
        for (mut own, mut other) in groups.into_values() {
            own.sort_by_key(|i| lines(a, *i));
            other.sort_by_key(|i| lines(b, *i));
            if own.len() != other.len() {
                own.retain(|i| {
                    let same = other.iter().position(|j| lines(a, *i) == lines(b, *j));
                    same.map(|at| self.join(*i, other.remove(at), by)).is_none()
                });
            }
            for (i, j) in own.into_iter().zip(other) {
                self.join(i, j, if lines(a, i) == lines(b, j) { by } else { By::OtherLine });
            }
        }
    }

    fn finish(mut self) -> Vec<Pair> {
        let left = |open: &[bool]| (0..open.len()).filter(|i| open[*i]).collect::<Vec<_>>();
        let by = By::Identity;
        self.found.extend(left(&self.before).into_iter().map(|i| Pair { before: Some(i), after: None, by }));
        self.found.extend(left(&self.after).into_iter().map(|i| Pair { before: None, after: Some(i), by }));
        self.found
    }
}

fn names(summary: &Summary) -> Vec<Option<Names>> {
    summary.entries.iter().map(|e| names_of(e, summary)).collect()
}

/// The names of a variable or an allocation; none where a function is not known, and of anything else.
fn names_of(entry: &Entry, summary: &Summary) -> Option<Names> {
    let kind = entry.kind as u8;
    // Small objects are counted together, so that their size is that of many.
    let size = if entry.kind == ObjectKind::SmallHeap { 0 } else { entry.size };
    if matches!(entry.kind, ObjectKind::Global | ObjectKind::Section) {
        let own = if entry.linkage.is_empty() || entry.part.is_some() { &entry.name } else { &entry.linkage };
        let path = entry.module.and_then(|m| summary.modules.get(m as usize)).map(|m| m.path.as_str());
        let library = path.filter(|path| *path != summary.header.program.path).map(base_name);
        let functions = library.into_iter().map(str::to_owned).chain([own.clone()]).collect();
        return Some(Names { kind, functions, lines: Vec::new(), size });
    }
    let site = entry.site.as_ref()?;
    let (steps, naming) = summary.steps(site);
    let own = summary.names().innermost_own(&steps);
    let (mut functions, mut lines) = (Vec::new(), Vec::new());
    for step in steps.get(own..=naming)? {
        functions.push(step.function()?.to_owned());
        let place = step.location.map(|l| (l.file.as_deref().map_or("", base_name).to_owned(), l.line.unwrap_or(0)));
        lines.extend(place);
    }
    Some(Names { kind, functions, lines, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alloc(function: &str, line: u32, size: u64) -> Option<Names> {
        let lines = vec![("app.c".to_owned(), line)];
        Some(Names { kind: 2, functions: vec![function.to_owned()], lines, size })
    }

    fn paired(a: &[Option<Names>], b: &[Option<Names>]) -> Vec<(Option<usize>, Option<usize>, By)> {
        let mut open = Open { before: vec![true; a.len()], after: vec![true; b.len()], found: Vec::new() };
        open.all_by_names(a, b);
        let mut found: Vec<_> = open.finish().into_iter().map(|p| (p.before, p.after, p.by)).collect();
        found.sort_by_key(|(before, after, _)| (before.is_none(), *before, *after));
        found
    }

    #[test]
    fn lines_that_moved_keep_their_order() {
        let before = [alloc("main", 15, 64), alloc("main", 16, 64), alloc("main", 17, 64)];
        let after = [alloc("main", 18, 64), alloc("main", 17, 64), alloc("main", 16, 64)];
        let (on, line) = (Some, By::OtherLine);
        assert_eq!(paired(&before, &after), [(on(0), on(2), line), (on(1), on(1), line), (on(2), on(0), line)]);
        assert!(paired(&before, &before).iter().all(|(a, b, by)| a == b && *by == By::Name));
    }

    #[test]
    fn one_more_of_the_same_function_leaves_the_others() {
        let before = [alloc("main", 15, 64), alloc("main", 17, 64)];
        let after = [alloc("main", 15, 64), alloc("main", 16, 64), alloc("main", 17, 64)];
        let found = paired(&before, &after);
        assert_eq!(found[..2], [(Some(0), Some(0), By::Name), (Some(1), Some(2), By::Name)]);
        assert_eq!(found[2], (None, Some(1), By::Identity));
    }

    #[test]
    fn a_size_tells_objects_of_one_function_apart_unless_it_changed() {
        let before = [alloc("main", 15, 64), alloc("main", 16, 128), alloc("init", 7, 10)];
        let after = [alloc("main", 20, 128), alloc("main", 19, 64), alloc("init", 7, 20), alloc("other", 7, 10)];
        let found = paired(&before, &after);
        assert_eq!(found[0], (Some(0), Some(1), By::OtherLine));
        assert_eq!(found[1], (Some(1), Some(0), By::OtherLine));
        assert_eq!(found[2], (Some(2), Some(2), By::OtherSize));
        assert_eq!(found[3], (None, Some(3), By::Identity));
    }

    #[test]
    fn what_has_no_names_is_not_matched_by_them() {
        assert_eq!(paired(&[None], &[None]).len(), 2);
    }
}
