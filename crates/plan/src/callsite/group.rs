//! Rules that name the same allocations, by call site and size, and differ in which instances they take.
//!
//! The rules of a group share one counter: of two threads that allocate at once one gets number 4 and the other number
//! 5, for all these rules. A rule of another call site or size has its own counter, which also counts allocations that
//! another rule takes.

use core::sync::atomic::{AtomicU64, Ordering};

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

impl RuleGroup {
    /// One for each call site and range of sizes among `rules`, in the order of the file. `sizes` and `instances`
    /// that do not parse were refused with the file.
    pub fn of_all<'a>(rules: impl Iterator<Item = &'a ObjectRule>) -> Vec<RuleGroup> {
        let mut known = std::collections::BTreeMap::new();
        let mut all: Vec<RuleGroup> = Vec::new();
        for (index, rule) in rules.enumerate().filter(|(_, r)| r.global.is_none()) {
            let sizes = rule.sizes.as_deref().and_then(|text| Sizes::parse(text).ok()).unwrap_or_default();
            let instances = rule.instances.as_deref().and_then(|text| Instances::parse(text).ok());
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
    pub fn first(&self) -> usize {
        self.members.first().map_or(usize::MAX, |m| m.rule)
    }

    /// Whether `rule` is one of them.
    pub fn has(&self, rule: usize) -> bool {
        self.members.iter().any(|m| m.rule == rule)
    }

    /// Whether it must see every allocation, also those that another rule takes.
    pub fn counts(&self) -> bool {
        self.numbered
    }

    /// Whether the rule selects allocations of `size` bytes.
    pub fn fits(&self, size: usize) -> bool {
        self.sizes.hold(size as u64)
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
        let all = RuleGroup::of_all(rules.iter());
        assert_eq!(all.iter().map(RuleGroup::first).collect::<Vec<_>>(), [0, 1, 3]);
        assert!(all[0].has(2) && !all[0].has(1) && all[0].counts() && !all[1].counts());
        assert_eq!((0..5).map(|_| all[0].take(5)).collect::<Vec<_>>(), [Some(0), Some(0), None, Some(2), Some(2)]);
        assert_eq!((all[1].take(0), all[1].take(usize::MAX)), (Some(1), Some(1)));
        assert_eq!([9, 10, 10].map(|size| all[2].take(size)), [None, Some(3), None], "other sizes do not count");
    }

    #[test]
    fn every_number_is_given_once() {
        let rules = [rule("f", Some("1-1000"), None), rule("f", Some("1001-4000"), None)];
        let all = RuleGroup::of_all(rules.iter());
        let counts = std::thread::scope(|scope| {
            let count = || (0..1000).filter(|_| all[0].take(1) == Some(0)).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum::<usize>()
        });
        assert_eq!(counts, 1000);
    }
}
