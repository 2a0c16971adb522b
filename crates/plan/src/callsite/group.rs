//! Rules that name the same allocations, by call site and size, and differ in which instances they take.
//!
//! The rules of a group share one counter: of two threads that allocate at once one gets number 4 and the other number
//! 5, for all these rules. A rule of another call site or size has its own counter, which also counts allocations that
//! another rule takes.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;

use super::rule::compared;
use super::selection::{Instances, Sizes};
use crate::policy::ObjectRule;

/// One rule of several.
struct Member {
    rule: usize,
    /// All when absent.
    instances: Option<Instances>,
}

/// Rules of one call site and one range of sizes, in the order of the file.
pub struct RuleGroup {
    members: Vec<Member>,
    sizes: Sizes,
    /// At least one member has `instances`.
    numbered: bool,
    /// Allocations counted so far.
    seen: AtomicU64,
}

/// For each of `rules` whether it is the only one for its call site, and takes all allocations there.
pub fn alone<'a>(rules: impl Iterator<Item = &'a ObjectRule> + Clone) -> Vec<bool> {
    // With the key that `RuleGroup::of_all` has, so that the library has the code of one map.
    let mut rules_of = BTreeMap::new();
    let key = |rule: &'a ObjectRule| (rule.site(), Sizes::default());
    rules.clone().for_each(|rule| *rules_of.entry(key(rule)).or_insert(0_usize) += 1);
    let mut is_alone = |rule| *rules_of.entry(key(rule)).or_insert(0) == 1;
    let takes_all = |rule: &ObjectRule| rule.instances.is_none() && rule.sizes.is_none() && rule.global.is_none();
    rules.map(|rule| is_alone(rule) && takes_all(rule)).collect()
}

impl RuleGroup {
    /// One for each call site and range of sizes among `rules`, in the order of the file. `sizes` and `instances`
    /// that do not parse were refused with the file.
    ///
    /// In another build (not `same_build`) rules that only their addresses tell apart are told apart by the recorded
    /// size of their objects. Where the sizes are equal, too, and the places differ, no rule takes the allocations.
    pub fn of_all<'a>(rules: impl Iterator<Item = &'a ObjectRule> + Clone, same_build: bool) -> Vec<RuleGroup> {
        let names = |rule: &'a ObjectRule| rule.function.as_deref().map(compared);
        let mut by_name: BTreeMap<_, Vec<&ObjectRule>> = BTreeMap::new();
        for rule in rules.clone().filter(|r| !same_build && r.function.is_some()) {
            by_name.entry((names(rule), &rule.sizes)).or_default().push(rule);
        }
        let mut known = BTreeMap::new();
        let mut all: Vec<RuleGroup> = Vec::new();
        for (index, rule) in rules.clone().enumerate().filter(|(_, r)| r.global.is_none()) {
            let instances = rule.instances.as_deref().and_then(|text| Instances::parse(text).ok());
            let mut sizes = rule.sizes.as_deref().and_then(|text| Sizes::parse(text).ok()).unwrap_or_default();
            let same_name = by_name.get(&(names(rule), &rule.sizes)).map_or(&[][..], Vec::as_slice);
            let mut others = same_name.iter().filter(|other| other.callsite != rule.callsite).peekable();
            if others.peek().is_some() {
                if others.any(|other| other.size == rule.size && other.place != rule.place) {
                    continue;
                }
                sizes = rule.size.map_or(sizes, Sizes::exactly);
            }
            let at = *known.entry((rule.site(), sizes)).or_insert(all.len());
            if at == all.len() {
                all.push(RuleGroup { members: Vec::new(), sizes, numbered: false, seen: AtomicU64::new(0) });
            }
            if let Some(group) = all.get_mut(at) {
                group.numbered |= instances.is_some();
                group.members.push(Member { rule: index, instances });
            }
        }
        all
    }

    /// The first of its rules.
    #[inline]
    pub fn first(&self) -> usize {
        self.members.first().map_or(usize::MAX, |m| m.rule)
    }

    /// All of its rules.
    pub fn rules(&self) -> impl Iterator<Item = usize> {
        self.members.iter().map(|m| m.rule)
    }

    /// Whether `rule` is one of them.
    pub fn has(&self, rule: usize) -> bool {
        self.members.iter().any(|m| m.rule == rule)
    }

    /// Whether it must see every allocation, also those that another rule takes.
    #[inline]
    pub fn counts(&self) -> bool {
        self.numbered
    }

    /// The rule that takes every allocation of this call site, whatever its size and its number; none if that differs.
    pub fn takes_all(&self) -> Option<usize> {
        let all_sizes = self.sizes == Sizes::default();
        self.members.first().filter(|first| all_sizes && !self.numbered && first.instances.is_none()).map(|m| m.rule)
    }

    /// Whether the rule selects allocations of `size` bytes.
    #[inline]
    pub fn fits(&self, size: usize) -> bool {
        self.sizes.hold(size as u64)
    }

    /// Whether the rule selects allocations of all sizes from `low` to `high` alike.
    pub fn fits_alike(&self, low: usize, high: usize) -> bool {
        self.sizes.hold_all_or_none(low as u64, high as u64)
    }

    /// Counts an allocation of this call site, if `size` fits, and gives the rule that takes it.
    pub fn take(&self, size: usize) -> Option<usize> {
        if !self.fits(size) {
            return None;
        }
        let number = if self.numbered { self.seen.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
        let takes = |m: &&Member| m.instances.as_ref().is_none_or(|list| list.hold(number));
        self.members.iter().find(takes).map(|m| m.rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Place;

    fn rule(function: &str, instances: Option<&str>, sizes: Option<&str>) -> ObjectRule {
        let own = |text: Option<&str>| text.map(str::to_owned);
        ObjectRule {
            function: Some(vec![function.into()]),
            instances: own(instances),
            sizes: own(sizes),
            ..ObjectRule::default()
        }
    }

    #[test]
    fn rules_of_one_site_and_size_count_together() {
        let rules = [
            rule("f", Some("1-2"), None),
            rule("g", None, None),
            rule("f", Some("4-"), None),
            rule("f", Some("1"), Some("10-")),
            ObjectRule { global: Some("x".into()), ..ObjectRule::default() },
        ];
        let all = RuleGroup::of_all(rules.iter(), true);
        assert_eq!(all.iter().map(RuleGroup::first).collect::<Vec<_>>(), [0, 1, 3]);
        assert!(all[0].has(2) && !all[0].has(1) && all[0].counts() && !all[1].counts());
        assert_eq!((0..5).map(|_| all[0].take(5)).collect::<Vec<_>>(), [Some(0), Some(0), None, Some(2), Some(2)]);
        assert_eq!((all[1].take(0), all[1].take(usize::MAX)), (Some(1), Some(1)));
        assert_eq!([9, 10, 10].map(|size| all[2].take(size)), [None, Some(3), None], "other sizes do not count");
    }

    #[test]
    fn every_number_is_given_once() {
        let rules = [rule("f", Some("1-1000"), None), rule("f", Some("1001-4000"), None)];
        let all = RuleGroup::of_all(rules.iter(), true);
        let counts = std::thread::scope(|scope| {
            let count = || (0..1000).filter(|_| all[0].take(1) == Some(0)).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum::<usize>()
        });
        assert_eq!(counts, 1000);
    }

    #[test]
    fn in_another_build_the_size_tells_rules_apart_that_only_addresses_did() {
        let at = |address: &str, size, nodes: &str| ObjectRule {
            callsite: Some(vec![address.into()]),
            size: Some(size),
            place: Place { nodes: Some(nodes.into()), ..Place::default() },
            ..rule("main", None, None)
        };
        let takers = |rules: &[ObjectRule], same_build, size| -> Vec<usize> {
            RuleGroup::of_all(rules.iter(), same_build).iter().filter_map(|group| group.take(size)).collect()
        };
        let rules = [at("a+0x1", 100, "0"), at("a+0x2", 200, "1"), rule("f", None, None)];
        assert_eq!(takers(&rules, true, 100), [0, 1, 2], "addresses tell them apart");
        assert_eq!([100, 200, 300].map(|size| takers(&rules, false, size)), [vec![0, 2], vec![1, 2], vec![2]]);
        let equal = [at("a+0x1", 100, "0"), at("a+0x2", 100, "1")];
        assert_eq!(takers(&equal, false, 100), [0_usize; 0], "nobody knows which is which");
        let alike = [at("a+0x1", 100, "0"), at("a+0x2", 100, "0")];
        assert_eq!(takers(&alike, false, 100), [0, 1], "it does not matter which");
        let numbered = [("1", "0"), ("2", "1")]
            .map(|(number, nodes)| ObjectRule { instances: Some(number.into()), ..at("a+0x1", 100, nodes) });
        assert_eq!(takers(&numbered, false, 300), [0], "of one call site");
    }
}
