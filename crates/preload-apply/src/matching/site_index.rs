//! Which call sites of the policy a stack may fit, by the name of their innermost frame: of the thousands that a policy
//! may have, those that begin elsewhere are never looked at.

use crate::matching::facts::code_map::NameId;
use crate::matching::facts::names::{LIBRARY, Site, WRAPPER};
use numamma_plan::callsite::rule::Passed;

/// Lists of sites that one stack may lead to: names of its innermost frame and of frames behind wrappers. With more of
/// them all sites are looked at. Few, since they are on the stack of the program.
const MOST_LISTS: usize = 8;

/// A list of sites: from here to there in `SiteIndex::sites`.
type List = (u32, u32);

/// Indices of sites, ascending in each list.
#[derive(Default)]
pub struct SiteIndex {
    /// Where the list of each name begins in `sites`, by its number; one more for the end of the last list.
    begins: Vec<u32>,
    /// The lists, one after the other: those of the names, then `anywhere`, then `all`.
    sites: Vec<u32>,
    /// Sites whose innermost frame is any.
    anywhere: List,
    /// All sites.
    all: List,
    /// One of them begins behind wrappers, or behind code of libraries, too.
    passes_wrappers: bool,
    passes_libraries: bool,
}

impl SiteIndex {
    /// Of the sites of these indices, which are ascending; `names` is how many names there are.
    pub fn of(all_sites: &[Site], indices: impl Iterator<Item = usize>, names: usize) -> SiteIndex {
        let all: Vec<u32> = indices.map(|at| at as u32).collect();
        let first = |at: &u32| all_sites.get(*at as usize).and_then(|site| *site.frames.first()?);
        let mut by_name: Vec<(NameId, u32)> = all.iter().filter_map(|at| Some((first(at)?, *at))).collect();
        by_name.sort_unstable();
        let mut begins = vec![0; names + 1];
        for (name, _) in &by_name {
            if let Some(count) = begins.get_mut(*name as usize + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        begins.iter_mut().for_each(|count| {
            sum += *count;
            *count = sum;
        });
        let mut sites: Vec<u32> = by_name.into_iter().map(|(_, at)| at).collect();
        let mut append = |list: &mut dyn Iterator<Item = u32>| {
            let begin = sites.len() as u32;
            sites.extend(list);
            (begin, sites.len() as u32)
        };
        let anywhere = append(&mut all.iter().copied().filter(|at| first(at).is_none()));
        let all = append(&mut all.iter().copied());
        let passed = sites.iter().filter_map(|at| Some(all_sites.get(*at as usize)?.passed));
        let passes_wrappers = passed.clone().any(|passed| passed != Passed::Nothing);
        let passes_libraries = passed.clone().any(|passed| passed == Passed::LibrarySources);
        SiteIndex { begins, sites, anywhere, all, passes_wrappers, passes_libraries }
    }

    /// All sites.
    pub fn all(&self) -> Candidates<'_> {
        let mut candidates = Candidates { sites: &self.sites, lists: [(0, 0); MOST_LISTS] };
        candidates.add(self.all);
        candidates
    }

    /// Whether a site begins with this name.
    pub fn begins_with(&self, name: NameId) -> bool {
        let (begin, end) = self.of_name(name);
        begin < end
    }

    /// Whether a site begins at any address.
    pub fn begins_anywhere(&self) -> bool {
        self.anywhere.0 < self.anywhere.1
    }

    /// Whether a site begins at an address with these names.
    pub fn is_innermost(&self, names: &[NameId]) -> bool {
        self.begins_anywhere() || names.iter().any(|&name| self.begins_with(name))
    }

    /// Whether a site may begin further out than an address with these names.
    pub fn may_pass(&self, names: &[NameId]) -> bool {
        (self.passes_wrappers && names.contains(&WRAPPER)) || (self.passes_libraries && names.contains(&LIBRARY))
    }

    /// Whether an allocation that returns to an address with these names may be one of a site.
    pub fn may_begin(&self, names: &[NameId]) -> bool {
        self.is_innermost(names) || self.may_pass(names)
    }

    /// Whether sites pass frames that those of `other` do not.
    pub fn passes_more_than(&self, other: &SiteIndex) -> bool {
        (self.passes_wrappers && !other.passes_wrappers) || (self.passes_libraries && !other.passes_libraries)
    }

    fn of_name(&self, name: NameId) -> List {
        let begin = |at: usize| self.begins.get(at).copied();
        begin(name as usize).zip(begin(name as usize + 1)).unwrap_or_default()
    }

    /// The sites that begin at one of the frames with these names.
    pub fn candidates<'a>(&self, frames: impl Iterator<Item = &'a [NameId]>) -> Candidates<'_> {
        let mut found = Candidates { sites: &self.sites, lists: [(0, 0); MOST_LISTS] };
        found.add(self.anywhere);
        for &name in frames.flatten() {
            if !found.add(self.of_name(name)) {
                return self.all();
            }
        }
        found
    }
}

/// Indices of sites, ascending, each once.
pub struct Candidates<'a> {
    sites: &'a [u32],
    /// What is left of each list; empty where there is none.
    lists: [List; MOST_LISTS],
}

impl Candidates<'_> {
    /// False if there is no room.
    fn add(&mut self, (begin, end): List) -> bool {
        let room = self.lists.iter_mut().find(|(begin, end)| begin == end);
        begin == end || room.map(|room| *room = (begin, end)).is_some()
    }
}

impl Iterator for Candidates<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let first = |&(begin, end): &List| self.sites.get(begin as usize).filter(|_| begin < end);
        let least = *self.lists.iter().filter_map(first).min()?;
        for list in &mut self.lists {
            if list.0 < list.1 && self.sites.get(list.0 as usize) == Some(&least) {
                list.0 += 1;
            }
        }
        Some(least as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::facts::names::Target;

    #[test]
    fn the_sites_of_a_stack_come_in_their_order_and_once() {
        let (target, passed, is_idle) = (Target::Phase(0), Passed::Nothing, false);
        let site = |first: Option<NameId>| Site { target, frames: vec![first], passed, is_idle };
        let sites: Vec<Site> = [Some(5), None, Some(3), Some(5), Some(4), Some(3)].map(site).into();
        let index = SiteIndex::of(&sites, (0..6).filter(|at| *at != 4), 7);
        let of = |frames: &[&[NameId]]| index.candidates(frames.iter().copied()).collect::<Vec<_>>();
        assert_eq!(of(&[&[0, 5], &[3, 5]]), [0, 1, 2, 3, 5]);
        assert_eq!((of(&[&[3]]), of(&[&[4]]), of(&[]), of(&[&[99]])), (vec![1, 2, 5], vec![1], vec![1], vec![1]));
        assert_eq!(of(&[&[3; MOST_LISTS]]), [0, 1, 2, 3, 5], "no room: all");
        assert_eq!(index.all().collect::<Vec<_>>(), [0, 1, 2, 3, 5]);
        assert!(index.begins_with(5) && !index.begins_with(4) && !index.begins_with(7) && index.begins_anywhere());
    }
}
