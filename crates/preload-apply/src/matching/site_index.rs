//! Which call sites of the policy a stack may fit, by the name of their innermost frame: of the thousands that a policy
//! may have, those that begin elsewhere are never looked at.

use crate::matching::facts::code_map::NameId;
use crate::matching::facts::names::Site;

/// Lists of sites that one stack may lead to: names of its innermost frame and of frames behind wrappers. With more of
/// them all sites are looked at.
const MOST_LISTS: usize = 16;

/// Indices of sites, ascending in each list.
#[derive(Default)]
pub struct SiteIndex {
    /// Where the list of each name begins in `sites`, by its number; one more for the end of the last list.
    begins: Vec<u32>,
    /// The lists, one after the other.
    sites: Vec<u32>,
    /// Sites whose innermost frame is any.
    anywhere: Vec<u32>,
    /// All sites.
    all: Vec<u32>,
}

impl SiteIndex {
    /// Of the sites of these indices, which are ascending; `names` is how many names there are.
    pub fn of(all_sites: &[Site], indices: impl Iterator<Item = usize>, names: usize) -> SiteIndex {
        let mut index = SiteIndex { begins: vec![0; names + 1], ..SiteIndex::default() };
        let first = |at: &u32| all_sites.get(*at as usize).and_then(|site| *site.frames.first()?);
        index.all = indices.map(|at| at as u32).collect();
        index.anywhere = index.all.iter().copied().filter(|at| first(at).is_none()).collect();
        let mut by_name: Vec<(NameId, u32)> = index.all.iter().filter_map(|at| Some((first(at)?, *at))).collect();
        by_name.sort_unstable();
        for (name, _) in &by_name {
            if let Some(count) = index.begins.get_mut(*name as usize + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        index.begins.iter_mut().for_each(|count| {
            sum += *count;
            *count = sum;
        });
        index.sites = by_name.into_iter().map(|(_, at)| at).collect();
        index
    }

    /// All sites.
    pub fn all(&self) -> Candidates<'_> {
        let mut candidates = Candidates::default();
        candidates.add(&self.all);
        candidates
    }

    /// Whether a site begins with this name.
    pub fn begins_with(&self, name: NameId) -> bool {
        !self.of_name(name).is_empty()
    }

    /// Whether a site begins at any address.
    pub fn begins_anywhere(&self) -> bool {
        !self.anywhere.is_empty()
    }

    fn of_name(&self, name: NameId) -> &[u32] {
        let range = || Some(*self.begins.get(name as usize)? as usize..*self.begins.get(name as usize + 1)? as usize);
        range().and_then(|range| self.sites.get(range)).unwrap_or_default()
    }

    /// The sites that begin at one of the frames with these names.
    pub fn candidates<'a>(&self, frames: impl Iterator<Item = &'a [NameId]>) -> Candidates<'_> {
        let mut found = Candidates::default();
        found.add(&self.anywhere);
        for &name in frames.flatten() {
            if !found.add(self.of_name(name)) {
                return self.all();
            }
        }
        found
    }
}

/// Indices of sites, ascending, each once.
#[derive(Default)]
pub struct Candidates<'a> {
    lists: [&'a [u32]; MOST_LISTS],
    count: usize,
}

impl<'a> Candidates<'a> {
    /// False if there is no room.
    fn add(&mut self, list: &'a [u32]) -> bool {
        if list.is_empty() {
            return true;
        }
        let room = self.lists.get_mut(self.count);
        let has_room = room.is_some();
        if let Some(room) = room {
            *room = list;
            self.count += 1;
        }
        has_room
    }
}

impl Iterator for Candidates<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let lists = self.lists.get_mut(..self.count)?;
        let least = lists.iter().filter_map(|list| list.first().copied()).min()?;
        for list in lists {
            if let Some((_, rest)) = list.split_first().filter(|(first, _)| **first == least) {
                *list = rest;
            }
        }
        Some(least as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::facts::names::Target;
    use numamma_plan::callsite::rule::Passed;

    #[test]
    fn the_sites_of_a_stack_come_in_their_order_and_once() {
        let site =
            |first: Option<NameId>| Site { target: Target::Phase(0), frames: vec![first], passed: Passed::Nothing };
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
