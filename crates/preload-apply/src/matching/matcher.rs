//! The names of the policy at the addresses of the loaded modules, and the rule of a call stack.
//!
//! A [`Matcher`] says which modules are loaded; [`Facts`] of their files say which names stand for an address.
//! [`rule::choose`] decides which rule takes an allocation.

use core::sync::atomic::AtomicBool;
use std::sync::Arc;

use numamma_hook::unwind;
use numamma_plan::callsite::group::RuleGroup;
use numamma_plan::callsite::rule::{self, Passed};

use crate::matching::cached::Fact;
use crate::matching::cached::decided::Decision;
use crate::matching::cached::groups::Draft;
use crate::matching::cached::unmatched;
use crate::matching::facts::Facts;
use crate::matching::facts::code_map::NameId;
use crate::matching::facts::names::{LIBRARY, MAX_FRAMES, Names, Site, Target, WRAPPER};
use crate::matching::modules::{Counts, Search};
use crate::matching::site_index::{Candidates, SiteIndex};
use crate::phases::begin;

/// Frames that the profile preload may have between the program and this library: the entry stub with its arguments on
/// the stack, the hook, and functions that were not inlined into the hook.
const PROFILER_FRAMES: usize = 4;
/// Frames of the longest stack that is looked at.
pub const MOST: usize = MAX_FRAMES + PROFILER_FRAMES;

/// One loaded module.
#[derive(Clone)]
pub struct Module {
    /// First and one past the last address.
    pub start: usize,
    pub end: usize,
    /// Difference between addresses in memory and in the file.
    pub bias: usize,
    /// Number of this load; no two are equal.
    pub load: u64,
    pub is_program: bool,
    pub search: Search,
    pub facts: Arc<Facts>,
}

impl Module {
    fn contains(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// A set of small numbers.
#[derive(Default)]
struct Set(Vec<u64>);

impl Set {
    fn with_room(count: usize) -> Set {
        Set(vec![0; count.div_ceil(64)])
    }

    fn insert(&mut self, n: usize) {
        if let Some(word) = self.0.get_mut(n / 64) {
            *word |= 1 << (n % 64);
        }
    }

    fn contains(&self, n: usize) -> bool {
        self.0.get(n / 64).is_some_and(|word| word >> (n % 64) & 1 == 1)
    }
}

/// The loaded modules, and what follows from them for the sites of the policy.
#[derive(Default)]
pub struct Matcher {
    names: Option<&'static Names>,
    /// Ascending by address.
    pub modules: Vec<Module>,
    /// Facts of files that are not loaded now; the one that was unloaded last is the last.
    pub idle: Vec<Arc<Facts>>,
    /// What the loader had counted when the modules were listed.
    pub counts: Counts,
    /// Start and end of the profile preload, when a placed run is profiled: its hooks call this library, and their
    /// frames are skipped.
    profiler: Option<(usize, usize)>,
    /// The sites all of whose frames have code.
    fitting: SiteIndex,
    /// Of these, without those that are idle ([`Site::is_idle`]); absent if none is.
    acting: Option<SiteIndex>,
    /// Frames of the longest site that fits.
    most_frames: usize,
    /// The cache of unmatched return addresses agrees with this matcher; absent in the matcher without sites, which is
    /// made without allocating.
    pub is_cache_right: Option<Arc<AtomicBool>>,
}

impl Matcher {
    /// For these modules, which are in ascending order.
    pub fn new(names: &'static Names, modules: Vec<Module>, idle: Vec<Arc<Facts>>, counts: Counts) -> Matcher {
        let mut present = Set::with_room(names.count());
        modules.iter().flat_map(|m| m.facts.code.names()).for_each(|&name| present.insert(name as usize));
        let profiler = modules.iter().find(|m| m.facts.is_profiler).map(|m| (m.start, m.end));
        let fits = |site: &Site| site.frames.iter().flatten().all(|&name| present.contains(name as usize));
        let fitting = names.sites.iter().enumerate().filter(|(_, site)| fits(site)).map(|(index, _)| index);
        let fitting = SiteIndex::of(&names.sites, fitting, names.count());
        let is_acting = |index: &usize| names.sites.get(*index).is_some_and(|site| !site.is_idle);
        let acting = names.sites.iter().any(|site| site.is_idle);
        let acting = acting.then(|| SiteIndex::of(&names.sites, fitting.all().filter(is_acting), names.count()));
        let most_frames = fitting.all().filter_map(|index| names.sites.get(index)).map(|site| site.frames.len()).max();
        let names_of_sites = Some(names);
        Matcher {
            names: names_of_sites,
            modules,
            idle,
            counts,
            profiler,
            fitting,
            acting,
            most_frames: most_frames.unwrap_or(0),
            is_cache_right: Some(Arc::default()),
        }
    }

    /// The sites all of whose functions are loaded.
    pub fn fitting(&self) -> &SiteIndex {
        &self.fitting
    }

    /// Those for which something is to be done or counted.
    pub fn acting(&self) -> &SiteIndex {
        self.acting.as_ref().unwrap_or(&self.fitting)
    }

    /// Whether the policy names call sites.
    pub fn has_names(&self) -> bool {
        self.names.is_some()
    }

    /// Whether all functions of any site are loaded.
    pub fn any_site_fits(&self) -> bool {
        self.fitting.all().next().is_some()
    }

    /// Whether a site of several frames waits for a function that is not loaded.
    pub fn a_stack_waits(&self) -> bool {
        let all = self.names.map_or(&[][..], |names| &names.sites);
        let several = |site: &Site| site.frames.len() > 1;
        let fitting = self.fitting.all().filter_map(|index| all.get(index));
        fitting.filter(|site| several(site)).count() < all.iter().filter(|site| several(site)).count()
    }

    /// Sites by their indices.
    fn sites(&self, indices: Candidates<'_>) -> impl Iterator<Item = &'static Site> {
        let all = self.names.map_or(&[][..], |names| &names.sites);
        indices.filter_map(|index| all.get(index))
    }

    /// How many of these frames, innermost first, are passed by any site.
    fn passed_frames<'a>(&self, frames: impl Iterator<Item = &'a [NameId]>) -> usize {
        frames.take_while(|names| self.fitting.may_pass(names)).count()
    }

    /// Whether the code at `ra` is the profile preload's.
    pub fn in_profiler(&self, ra: usize) -> bool {
        self.profiler.is_some_and(|(start, end)| (start..end).contains(&ra))
    }

    /// The module of an address.
    pub fn module_of(&self, address: usize) -> Option<&Module> {
        let after = self.modules.partition_point(|m| m.start <= address);
        after.checked_sub(1).and_then(|i| self.modules.get(i)).filter(|m| m.contains(address))
    }

    /// Whether the loader finds the same library for the code at `ra` as for this library, which was loaded for the
    /// program and has no directories of its own.
    pub fn searches_as_we_do(&self, ra: usize) -> bool {
        // The directories of the program count for both.
        let inherits = |m: &Module| m.search == Search::Inherited && !m.is_program;
        self.module_of(ra).is_some_and(|m| m.search != Search::Own) && !self.modules.iter().any(inherits)
    }

    /// The wanted names of a return address.
    pub fn names_of(&self, ra: usize) -> &[NameId] {
        self.module_of(ra).map_or(&[], |m| m.facts.code.at(ra.wrapping_sub(m.bias) as u64))
    }

    fn is_passed(passed: Passed, names: &[NameId]) -> bool {
        (passed != Passed::Nothing && names.contains(&WRAPPER))
            || (passed == Passed::LibrarySources && names.contains(&LIBRARY))
    }

    /// Whether no site for which something is to be done fits a stack whose innermost frames are `stack`: the first one
    /// that is not passed begins none.
    pub fn is_unmatched(&self, stack: &[u64]) -> bool {
        let acting = self.acting();
        for &ra in stack {
            let names = self.names_of(ra as usize);
            if !acting.may_begin(names) {
                return true;
            }
            if acting.is_innermost(names) {
                return false;
            }
        }
        false
    }

    /// Whether a site for which something is to be done begins at an address of which an older matcher, `old`, says
    /// that none begins there. Addresses of modules that are not in `old` do not count.
    pub fn begins_more_than(&self, old: &Matcher) -> bool {
        let is_old = |m: &&Module| old.module_of(m.start).is_some_and(|o| o.load == m.load);
        let (acting, before) = (self.acting(), old.acting());
        let gained = |&name: &NameId| acting.begins_with(name) && !before.begins_with(name);
        (acting.begins_anywhere() && !before.begins_anywhere())
            || acting.passes_more_than(before)
            || self.modules.iter().filter(is_old).any(|m| m.facts.code.names().iter().any(gained))
    }

    /// Gives `cache` what the cache of unmatched addresses needs to decide on `stack` without a walk.
    pub fn facts_of(&self, stack: &[u64], mut cache: impl FnMut(Fact)) {
        for ra in stack.iter().map(|&ra| ra as usize) {
            if self.module_of(ra).is_none() || self.in_profiler(ra) {
                return;
            }
            if !self.acting().may_begin(self.names_of(ra)) {
                return cache(unmatched::no_rule_begins_at(ra));
            }
            match unwind::frame_size(ra).and_then(|size| unmatched::frame_size(ra, size)) {
                Some(fact) => cache(fact),
                None => return,
            }
        }
    }

    /// What decides on the allocations of a stack of these frames, innermost first, and of how many of them; none when
    /// frames further out may count.
    ///
    /// Not inlined, as [`Matcher::choose_and_count`]: what they hold would be in the stack frame of the call that
    /// places the object, too.
    #[inline(never)]
    pub fn decide(&self, stack: &[u64]) -> Option<(usize, Decision)> {
        let names = || stack.iter().map(|&ra| self.names_of(ra as usize));
        let passed = self.passed_frames(names());
        // Where all are passed, a site may begin further out.
        let candidates = match passed < stack.len() {
            true => self.fitting.candidates(names().take(passed + 1)),
            false => self.fitting.all(),
        };
        let mut frames = passed.min(stack.len().saturating_sub(1)) + 1;
        // The group that takes the allocation, with its number of frames, and whether all groups take all sizes.
        let mut best: Option<(usize, &RuleGroup)> = None;
        let (mut groups, mut all, mut is_counted) = (Draft::new(), true, false);
        let acts = |site: &Site| !matches!(site.target, Target::Phase(phase) if !begin::counts(phase));
        for site in self.sites(candidates).filter(|site| acts(site)) {
            let (fits, looked_at) = self.fits_start(site, stack)?;
            frames = frames.max(looked_at);
            if !fits {
                continue;
            }
            let (index, group) = match site.target {
                Target::Rules(index, group) => (index, group),
                Target::Phase(phase) => {
                    groups.add_phase(phase);
                    is_counted = true;
                    continue;
                }
            };
            groups.add(site.frames.len(), index);
            all &= group.takes_all().is_some();
            let better = |&(most, first): &(usize, &RuleGroup)| {
                site.frames.len() > most || (site.frames.len() == most && group.first() < first.first())
            };
            if best.as_ref().is_none_or(better) {
                best = Some((site.frames.len(), group));
            }
        }
        let decision = match best {
            None if !is_counted => Decision::Nothing,
            Some((_, group)) if all && !is_counted => Decision::Rule(group.takes_all()?),
            _ => Decision::Groups(groups.list()?),
        };
        Some((frames, decision))
    }

    /// Whether `site` fits a stack that begins with these frames, and how many were looked at; none when that depends
    /// on further ones.
    fn fits_start(&self, site: &Site, stack: &[u64]) -> Option<(bool, usize)> {
        let names = |at: usize| stack.get(at).map(|&ra| self.names_of(ra as usize));
        let mut looked_at = 0;
        for start in 0..=stack.len() {
            let mut fits = true;
            for (k, frame) in site.frames.iter().enumerate() {
                let names = names(start + k)?;
                looked_at = looked_at.max(start + k + 1);
                fits = frame.is_none_or(|name| names.contains(&name));
                if !fits {
                    break;
                }
            }
            if fits || !Matcher::is_passed(site.passed, names(start)?) {
                return Some((fits, looked_at));
            }
        }
        None
    }

    /// Whether the frames of `site` fit a stack, innermost frame first.
    fn fits(&self, site: &Site, stack: &[u64]) -> bool {
        let names = |ra: &u64| self.names_of(*ra as usize);
        let holds = |frame: &Option<NameId>, ra: &u64| frame.is_none_or(|name| names(ra).contains(&name));
        rule::fits(&site.frames, stack, holds, |ra| Matcher::is_passed(site.passed, names(ra)))
    }

    /// Frames that must be known to decide on an allocation that returns to `ra`.
    pub fn depth(&self, ra: usize) -> usize {
        let profiler_frames = if self.in_profiler(ra) { PROFILER_FRAMES } else { 0 };
        // Skipped frames come in addition to those of a rule.
        let all = if self.fitting.may_pass(self.names_of(ra)) || profiler_frames > 0 { MAX_FRAMES } else { 1 };
        self.most_frames.max(all).clamp(1, MAX_FRAMES) + profiler_frames
    }

    /// Rule of an allocation of `size` bytes with this stack of return addresses. Phases that count a site
    /// of the stack have counted the allocation. `owner` is the rule of an object that realloc changes.
    #[inline(never)]
    pub fn choose_and_count(&self, stack: &[u64], size: usize, owner: Option<usize>) -> Option<usize> {
        let found = self.choose_rule(stack, size, owner);
        if is_new(found, owner) {
            self.counting_phases(stack, begin::allocated);
        }
        found
    }

    /// The sites that begin at one of these frames, innermost first, behind frames that are passed.
    fn candidates(&self, stack: &[u64]) -> impl Iterator<Item = &'static Site> {
        let names = || stack.iter().map(|&ra| self.names_of(ra as usize));
        self.sites(self.fitting.candidates(names().take(self.passed_frames(names()) + 1)))
    }

    /// Gives `visit` the phases that count an allocation with this stack.
    #[inline(never)]
    fn counting_phases(&self, stack: &[u64], mut visit: impl FnMut(usize)) {
        for site in self.candidates(stack) {
            if let Target::Phase(index) = site.target
                && self.fits(site, stack)
            {
                visit(index);
            }
        }
    }

    #[inline(never)]
    fn choose_rule(&self, stack: &[u64], size: usize, owner: Option<usize>) -> Option<usize> {
        let of_rules = || {
            self.candidates(stack).filter_map(|site| match site.target {
                Target::Rules(_, group) => Some((site.frames.len(), group, site)),
                Target::Phase(_) => None,
            })
        };
        let fits = |site: &Site| self.fits(site, stack);
        if let Some(own) = owner
            && rule::keeps(of_rules().map(|(_, group, site)| (group, site)), own, fits)
        {
            return owner;
        }
        rule::choose(of_rules(), size, fits)
    }
}

/// Whether an object counts as a new allocation: an object that realloc changes and that keeps its rule `owner` does
/// not, neither for rules nor for phases.
pub fn is_new(found: Option<usize>, owner: Option<usize>) -> bool {
    owner.is_none() || found.is_some_and(|rule| Some(rule) != owner)
}

#[cfg(test)]
mod tests {
    use numamma_hook::entry::Caller;
    use numamma_plan::policy::ObjectRule;

    use super::*;
    use crate::matching::cached::decided;
    use crate::matching::call_sites;
    use crate::matching::facts::code_map::CodeMap;

    /// Frames of the tests: the number of a name is the address where its code is.
    fn at(names: &[NameId]) -> Vec<Option<NameId>> {
        names.iter().map(|&name| Some(name)).collect()
    }

    /// A site for each group of rules with the given (function, instances, sizes).
    fn sites(rules: &[(&str, &str, &str)], frames: Vec<Vec<Option<NameId>>>) -> Vec<Site> {
        let some = |text: &str| Some(text.to_owned()).filter(|t| !t.is_empty());
        let rules: Vec<ObjectRule> = rules
            .iter()
            .map(|(function, instances, sizes)| ObjectRule {
                function: Some(vec![(*function).to_owned()]),
                instances: some(instances),
                sizes: some(sizes),
                ..ObjectRule::default()
            })
            .collect();
        let selections: &'static [RuleGroup] = RuleGroup::of_all(rules.iter(), true).leak();
        assert_eq!(selections.len(), frames.len());
        let site = |(index, (selection, frames))| Site {
            target: Target::Rules(index, selection),
            frames,
            passed: Passed::Nothing,
            is_idle: false,
        };
        selections.iter().zip(frames).enumerate().map(site).collect()
    }

    fn facts(code: Vec<(u64, u64, NameId)>) -> Arc<Facts> {
        Arc::new(Facts { code: CodeMap::of(code), ..Facts::nothing(b"") })
    }

    fn module(load: u64, (start, end): (usize, usize), facts: &Arc<Facts>) -> Module {
        let (is_program, search) = (false, Search::Common);
        Module { start, end, bias: 0, load, is_program, search, facts: Arc::clone(facts) }
    }

    /// Each name of `sites` has its number as address, in one module, with more `code`.
    fn matcher_with(mut sites: Vec<Site>, more: &[(u64, u64, NameId)]) -> Matcher {
        sites.sort_by_key(|s| core::cmp::Reverse(s.frames.len()));
        let names = sites.iter().flat_map(|s| &s.frames).flatten();
        let mut code: Vec<_> = names.map(|&name| (u64::from(name), u64::from(name) + 1, name)).collect();
        code.extend_from_slice(more);
        let names = Box::leak(Box::new(Names::with_sites(sites)));
        Matcher::new(names, vec![module(1, (1, 1 << 20), &facts(code))], Vec::new(), Counts::default())
    }

    fn matcher(sites: Vec<Site>) -> Matcher {
        matcher_with(sites, &[])
    }

    #[test]
    fn what_does_not_fit_by_size_or_number_lets_the_next_rule_try() {
        let rules = [("f", "2", ""), ("g", "", "100-"), ("f", "4-", ""), ("h", "", ""), ("i", "", "-50")];
        let frames = vec![at(&[5]), at(&[5, 6]), at(&[5]), at(&[5])];
        let m = matcher(sites(&rules, frames));
        let found = |stack: &[u64], size| m.choose_and_count(stack, size, None);
        assert_eq!(found(&[5, 6, 7], 100), Some(1), "longest frames first; it is number 1 of the others, too");
        assert_eq!(found(&[5, 6, 7], 99), Some(0), "number 2");
        assert_eq!(found(&[5, 7], 10), Some(3), "number 3 is nobody's, so the next in the file takes it");
        assert_eq!(found(&[5], 10), Some(2), "number 4");
        assert_eq!((found(&[6, 5], 10), found(&[], 10)), (None, None));
    }

    #[test]
    fn a_realloc_keeps_its_rule_and_is_no_new_instance() {
        let m = matcher(sites(&[("f", "1", ""), ("f", "2", ""), ("g", "", "")], vec![at(&[5]), at(&[6])]));
        assert_eq!(m.choose_and_count(&[5], 10, None), Some(0));
        assert_eq!(m.choose_and_count(&[5], 20, Some(0)), Some(0));
        assert_eq!(m.choose_and_count(&[5], 10, None), Some(1), "the realloc was not counted");
        assert_eq!(m.choose_and_count(&[6], 10, Some(0)), Some(2), "a rule of its own call site claims the object");
        assert_eq!(m.choose_and_count(&[7], 10, Some(0)), None);
        let rules = [("f", "1-3", "1000-"), ("f", "", ""), ("g", "", "")];
        let m = matcher(sites(&rules, vec![at(&[5]), at(&[5]), at(&[5, 6])]));
        let found = |owner| m.choose_and_count(&[5, 6], 5000, owner);
        assert_eq!([found(Some(1)), found(Some(0))], [Some(1), Some(0)], "whatever rule would take a new one");
        assert_eq!((0..4).map(|_| m.choose_and_count(&[5], 5000, None)).collect::<Vec<_>>(), [0, 0, 0, 1].map(Some));
    }

    #[test]
    fn decisions_rest_on_as_few_frames_as_can_be() {
        let rules = ["a", "b", "c", "d", "e", "f", "g"].map(|name| match name {
            "b" => (name, "", "100-"),
            "c" => (name, "2", ""),
            _ => (name, "", ""),
        });
        let frames = [at(&[5]), at(&[6]), at(&[7]), at(&[8, 9]), at(&[8]), at(&[10]), at(&[10])].to_vec();
        let sites = || sites(&rules, frames.clone());
        let m = matcher(sites());
        let decide = |stack: &[u64]| m.decide(stack);
        assert_eq!(decide(&[5, 1, 2]), Some((1, Decision::Rule(0))));
        assert_eq!(decide(&[6]), Some((1, groups(&[(1, 1)]))), "the size decides");
        assert_eq!(decide(&[7]), Some((1, groups(&[(1, 2)]))), "the number decides");
        assert_eq!([decide(&[8]), decide(&[])], [None, None], "more frames are needed");
        assert_eq!(decide(&[8, 9, 1]), Some((2, Decision::Rule(3))), "the site with the most frames");
        assert_eq!(decide(&[8, 1, 9]), Some((2, Decision::Rule(4))));
        assert_eq!([decide(&[9, 8]), decide(&[11])], [Some((1, Decision::Nothing)); 2]);
        assert_eq!(decide(&[10]), Some((1, Decision::Rule(5))), "the first in the file");
        let found = |ra| m.choose_and_count(&[ra], 1, None);
        assert_eq!((found(5), found(10)), (Some(0), Some(5)), "the same");
        let mut all = sites();
        all.push(Site { target: Target::Phase(0), frames: at(&[5]), passed: Passed::Nothing, is_idle: false });
        let mut draft = Draft::new();
        draft.add(1, 0);
        draft.add_phase(0);
        let counted = Decision::Groups(draft.list().unwrap());
        assert_eq!(matcher(all).decide(&[5, 1]), Some((1, counted)), "a phase counts the allocations");
    }

    #[test]
    fn decisions_behind_wrappers_rest_on_the_first_frame_that_is_none() {
        let mut all = sites(&[("f", "", ""), ("g", "", "")], vec![at(&[0x100, 0x101]), at(&[0x200])]);
        all.iter_mut().for_each(|site| site.passed = Passed::Wrappers);
        let m = matcher_with(all, &[(10, 20, WRAPPER)]);
        assert_eq!(m.decide(&[10, 11, 0x200, 7]), Some((3, Decision::Rule(1))));
        assert_eq!(m.decide(&[10, 0x300, 7]), Some((2, Decision::Nothing)));
        assert_eq!(m.decide(&[10, 0x100, 0x101, 7]), Some((3, Decision::Rule(0))));
        assert_eq!(m.decide(&[10, 0x100, 7]), Some((3, Decision::Nothing)));
        assert_eq!([m.decide(&[10, 11]), m.decide(&[10, 0x100])], [None, None]);
    }

    #[test]
    fn the_groups_of_one_stack_are_known_together_where_sizes_tell_them_apart() {
        let rules = [("f", "", "100-"), ("g", "", ""), ("h", "2", "")];
        let m = matcher(sites(&rules, vec![at(&[5]), at(&[5, 6]), at(&[5])]));
        assert_eq!(m.decide(&[5, 7]), Some((2, groups(&[(1, 0), (1, 2)]))));
        assert_eq!(m.decide(&[5, 6, 7]), Some((2, groups(&[(2, 1), (1, 0), (1, 2)]))));
    }

    fn groups(list: &[(usize, usize)]) -> Decision {
        let mut draft = Draft::new();
        list.iter().for_each(|&(frames, group)| draft.add(frames, group));
        Decision::Groups(draft.list().unwrap())
    }

    #[test]
    fn phases_count_what_rules_count() {
        let mut all = sites(&[("f", "", ""), ("g", "", "")], vec![at(&[5, 6]), at(&[7])]);
        let phase =
            |index, frames| Site { target: Target::Phase(index), frames, passed: Passed::Nothing, is_idle: false };
        all.extend([phase(4, at(&[5])), phase(5, at(&[5, 6])), phase(6, at(&[9]))]);
        let m = matcher(all);
        let counting_phases = |stack: &[u64]| {
            let mut found = Vec::new();
            m.counting_phases(stack, |index| found.push(index));
            found
        };
        assert_eq!(
            (counting_phases(&[5, 6]), counting_phases(&[5, 7]), counting_phases(&[6])),
            (vec![5, 4], vec![4], vec![])
        );
        let choose = |stack: &[u64], owner| m.choose_rule(stack, 9, owner);
        assert!(is_new(choose(&[5, 6], None), None) && is_new(None, None));
        assert!(!is_new(choose(&[5, 6], Some(0)), Some(0)), "a realloc at its own call site");
        assert!(!is_new(choose(&[9], Some(0)), Some(0)), "and at one that only a phase names");
        assert!(is_new(choose(&[7], Some(0)), Some(0)), "at one of another rule it is that rule's");
    }

    #[test]
    fn frames_of_wrappers_are_passed_by_rules_for_lines() {
        let mut line = sites(&[("f", "", "")], vec![at(&[0x100])]);
        line[0].passed = Passed::Wrappers;
        let m = matcher_with(line, &[(10, 20, WRAPPER), (30, 40, WRAPPER)]);
        let found = |stack: &[u64]| m.choose_and_count(stack, 1, None);
        assert_eq!((found(&[0x100]), found(&[10, 39, 0x100, 7])), (Some(0), Some(0)));
        assert_eq!((found(&[20, 0x100]), found(&[10, 29, 0x100]), found(&[10, 30])), (None, None, None));
        let may_begin = |ra| m.fitting.may_begin(m.names_of(ra));
        assert!(may_begin(19) && !may_begin(20) && may_begin(0x100) && !may_begin(0x101));
        assert_eq!((m.depth(10), m.depth(0x100)), (MAX_FRAMES, 1));
    }

    #[test]
    fn a_stack_is_unmatched_when_its_first_frame_that_is_not_passed_begins_no_rule() {
        let with = |mut rules: Vec<Site>| {
            rules.iter_mut().for_each(|site| site.passed = Passed::Wrappers);
            matcher_with(rules, &[(10, 20, WRAPPER), (30, 40, WRAPPER)])
        };
        let m = with(sites(&[("f", "", ""), ("g", "", "")], vec![at(&[0x100, 10]), at(&[35])]));
        assert!(m.is_unmatched(&[10, 31, 0x200]) && m.is_unmatched(&[0x200]));
        assert!(!m.is_unmatched(&[10, 31]), "a frame further out may begin a rule");
        assert!(!m.is_unmatched(&[10, 0x100]) && !m.is_unmatched(&[35, 0x200]) && !m.is_unmatched(&[10, 35, 0x200]));
        assert!(!with(sites(&[("f", "", "")], vec![vec![None]])).is_unmatched(&[0x200]));
    }

    #[test]
    fn a_site_where_nothing_is_done_is_cached_as_unmatched_unless_another_begins_there() {
        let rules = [("f", "", ""), ("g", "", ""), ("h", "", ""), ("i", "", "")];
        let frames = vec![at(&[0x100]), at(&[0x200]), at(&[0x200, 0x300]), vec![None]];
        let with = |idle: [bool; 4]| {
            let mut all = sites(&rules, frames.clone());
            all.iter_mut().zip(idle).for_each(|(site, is_idle)| site.is_idle = is_idle);
            all.iter_mut().for_each(|site| site.passed = Passed::Wrappers);
            matcher_with(all, &[(10, 20, WRAPPER)])
        };
        let is_unmatched =
            |m: &Matcher| [&[0x100][..], &[0x200], &[10, 0x100], &[7]].map(|stack| m.is_unmatched(stack));
        assert_eq!(is_unmatched(&with([true, false, false, false])), [false; 4], "one begins anywhere");
        let (some, all) = (with([true, true, false, true]), with([true; 4]));
        assert_eq!(is_unmatched(&some), [true, false, true, true], "0x300 may call 0x200");
        assert_eq!(is_unmatched(&all), [true; 4]);
        assert_eq!(some.choose_and_count(&[0x100], 1, None), Some(0), "it is known nevertheless");
        assert!(some.begins_more_than(&all) && !all.begins_more_than(&some));
    }

    #[test]
    fn sites_fit_once_all_their_functions_are_loaded() {
        let rules = sites(&[("f", "", ""), ("g", "", "")], vec![at(&[5, 600]), at(&[601])]);
        let names: &'static Names = Box::leak(Box::new(Names::with_sites(rules)));
        let program = module(1, (1, 100), &facts(vec![(5, 6, 5)]));
        let library = facts(vec![(0x10, 0x20, 600)]);
        let plugin = facts(vec![(0x10, 0x20, 601)]);
        let with = |more: Vec<Module>| {
            let all = [vec![program.clone()], more].concat();
            Matcher::new(names, all, Vec::new(), Counts::default())
        };
        let loaded = |facts, load| Module { bias: 0x1000, ..module(load, (0x1000, 0x2000), facts) };
        let (alone, both) = (with(vec![]), with(vec![loaded(&library, 2)]));
        assert!(!alone.fitting.may_begin(alone.names_of(5)) && both.fitting.may_begin(both.names_of(5)));
        assert_eq!(both.choose_and_count(&[5, 0x1010], 1, None), Some(0));
        assert_eq!(both.choose_and_count(&[5, 0x10], 1, None), None);
        assert!(both.begins_more_than(&alone), "what was unmatched in the program may be cached");
        assert!(!alone.begins_more_than(&both));
        let other = with(vec![loaded(&plugin, 3)]);
        assert!(!other.begins_more_than(&alone) && other.choose_and_count(&[0x101f], 1, None) == Some(1));
        assert!(both.module_of(0x0fff).is_none() && both.module_of(0x1000).is_some_and(|m| m.load == 2));
    }

    #[test]
    fn the_longest_rule_wins_and_the_rest_is_cached_as_unmatched() {
        let sites = sites(
            &[("a", "", ""), ("b", "", ""), ("c", "", "")],
            vec![at(&[900]), vec![Some(901), None], vec![None, Some(902)]],
        );
        let names: &'static Names = Box::leak(Box::new(Names::with_sites(sites)));
        let of_rules = facts(vec![(0x10_0000, 0x10_0001, 900), (0x20_0000, 0x20_0001, 901)]);
        let profiler = Arc::new(Facts { is_profiler: true, ..Facts::nothing(b"") });
        let modules = vec![module(1, (0x10_0000, 0x30_0000), &of_rules), module(2, (0x40_0000, 0x50_0000), &profiler)];
        assert!(
            call_sites::replace(call_sites::read(), Matcher::new(names, modules, Vec::new(), Counts::default()))
                .is_ok()
        );
        let find = |ra: usize| {
            // SAFETY: with no readable stack the walk ends after the first frame.
            unsafe { call_sites::find(&Caller { ra, cfa: 0, rbp: 0 }, 1, None) }
        };
        assert_eq!(find(0x10_0000), Some(0));
        assert_eq!(find(0x20_0000), None, "its second frame cannot be seen");
        assert_eq!(find(0x30_0000), None);
        assert_eq!(find(0x40_0000), None, "the program's frame cannot be seen");
        // SAFETY: nothing is passed, so no stack is read.
        let is_unmatched = |ra: usize| unsafe { unmatched::is_unmatched(ra, 0) };
        assert!(is_unmatched(0x30_0000) && !is_unmatched(0x10_0000) && !is_unmatched(0x20_0000));
        assert!(!is_unmatched(0x40_0000), "a caller in the profile preload is never cached as unmatched");
        let _alone = decided::CLEARED.lock();
        unmatched::clear_range(0x30_0000, 0x30_0001);
        assert!(!is_unmatched(0x30_0000));
    }
}
