//! One policy for processes that differ: advice for each group of ranks, put together with `ranks` in the rules; of
//! runs without ranks, which a rule cannot tell apart, the advice for those in which the object costs most.

use numamma_plan::nodes::format_runs;
use numamma_plan::policy::{ObjectRule, Phase, Policy};

use super::{Advice, Item, NOTHING};

/// The advice of a group whose cost is a part of that of all: shares are then of all.
pub fn of_group(mut advice: Advice, part: f64) -> Advice {
    advice.items.iter_mut().for_each(|item| item.share *= part);
    advice
}

/// The advice of several groups of ranks as one, each by [`of_group`]. Of an object that all groups place alike there
/// is one rule; else each group has its own, with its ranks. What is not about objects is that of the first group, the
/// largest: its ranks include all that were not profiled, so that the policy also serves a larger job.
pub fn for_ranks(groups: Vec<(Vec<u32>, Advice)>) -> Advice {
    let lists = lists(&groups);
    let mut groups = groups.into_iter();
    let Some((_, first)) = groups.next() else { return none() };
    let others: Vec<Advice> = groups.map(|(_, advice)| advice).collect();
    let names = names(&first, &others);
    let mut policy = first.policy.clone();
    let mut remarks = first.remarks.clone();
    add_remarks(&mut remarks, &lists, &policy, &others);
    others.iter().for_each(|advice| add_phases(&mut policy.phases, &advice.policy.phases));
    let policy_phases = policy.phases.clone();
    let (mut items, mut rest): (Vec<Item>, Vec<Item>) = (Vec::new(), Vec::new());
    let all: Vec<&Advice> = std::iter::once(&first).chain(&others).collect();
    for name in names {
        let of = |advice: &&Advice| {
            let found = advice.items.iter().find(|i| i.pattern.is_some() && i.name == name).cloned();
            found.map(|item| with_known_phases(item, &policy_phases, &advice.policy.phases))
        };
        let own: Vec<(usize, Item)> = all.iter().enumerate().filter_map(|(at, a)| Some((at, of(a)?))).collect();
        let alike = own.len() == all.len() && own.windows(2).all(|pair| places_alike(&pair[0].1, &pair[1].1));
        let share = own.iter().map(|(_, item)| item.share).sum();
        match own.first().filter(|_| alike) {
            Some((_, item)) => items.push(Item { share, ..item.clone() }),
            None => items.extend(own.into_iter().map(|(at, item)| of_ranks(item, &lists[at]))),
        }
    }
    rest.extend(first.items.into_iter().filter(|i| i.pattern.is_none()));
    items.append(&mut rest);
    put_together(policy, items, remarks)
}

/// The advice of several groups of runs as one, each by [`of_group`]: of each object that of the group in which it
/// costs most, of two alike the larger one. What is not about objects is that of the first group, the largest. Objects
/// that are placed for another group have its name.
pub fn for_runs(groups: Vec<(String, Advice)>) -> Advice {
    let mut groups = groups.into_iter();
    let Some((_, mut all)) = groups.next() else { return none() };
    // By the names that objects have in their own group.
    let mut known: Vec<String> = all.items.iter().map(|i| i.name.clone()).collect();
    for (who, advice) in groups {
        add_phases(&mut all.policy.phases, &advice.policy.phases);
        for item in advice.items.into_iter().filter(|i| i.pattern.is_some()) {
            let mut own = with_known_phases(item, &all.policy.phases, &advice.policy.phases);
            let name = own.name;
            own.name = format!("{name} ({who})");
            match known.iter().position(|k| *k == name) {
                Some(at) if all.items[at].share >= own.share => {}
                Some(at) => all.items[at] = own,
                None => {
                    let at = all.items.iter().position(|i| i.pattern.is_none()).unwrap_or(all.items.len());
                    known.insert(at, name);
                    all.items.insert(at, own);
                }
            }
        }
    }
    put_together(all.policy, all.items, all.remarks)
}

/// The advice with the rules of its items, and without the remark that there are none if there are.
fn put_together(mut policy: Policy, items: Vec<Item>, mut remarks: Vec<String>) -> Advice {
    policy.objects = items.iter().flat_map(Item::rules).cloned().collect();
    if !policy.objects.is_empty() {
        remarks.retain(|remark| remark != NOTHING);
    }
    Advice { policy, items, remarks }
}

/// An advice without anything, of no groups.
fn none() -> Advice {
    let policy = Policy {
        version: numamma_plan::policy::POLICY_VERSION,
        program: None,
        machine: None,
        threads: None,
        teams: Vec::new(),
        phases: Vec::new(),
        objects: Vec::new(),
    };
    Advice { policy, items: Vec::new(), remarks: Vec::new() }
}

/// The ranks of each group as a rule lists them: those of the first group are all that are in no other.
fn lists(groups: &[(Vec<u32>, Advice)]) -> Vec<String> {
    let mut others: Vec<u32> = groups.iter().skip(1).flat_map(|(ranks, _)| ranks).copied().collect();
    others.sort_unstable();
    others.dedup();
    let closed = groups.iter().skip(1).map(|(ranks, _)| format_runs(ranks));
    std::iter::once(all_but(&others)).chain(closed).collect()
}

/// All ranks but some, ascending: `0,2-6,8-`.
fn all_but(others: &[u32]) -> String {
    let mut runs: Vec<String> = Vec::new();
    let mut from = 0;
    for &other in others {
        match other.checked_sub(from) {
            None | Some(0) => {}
            Some(1) => runs.push(from.to_string()),
            Some(_) => runs.push(format!("{from}-{}", other - 1)),
        }
        from = other.saturating_add(1);
    }
    runs.push(format!("{from}-"));
    runs.join(",")
}

/// The names of the objects with a verdict in any group, in the order of the groups.
fn names(first: &Advice, others: &[Advice]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for item in std::iter::once(first).chain(others).flat_map(|a| &a.items).filter(|i| i.pattern.is_some()) {
        if !names.contains(&item.name) {
            names.push(item.name.clone());
        }
    }
    names
}

/// Whether two groups place an object alike: by rules that differ in no more than what they tell the reader.
fn places_alike(a: &Item, b: &Item) -> bool {
    let bare = |rule: &ObjectRule| ObjectRule {
        name: None,
        size: None,
        pattern: None,
        why: None,
        line: rule.line.clone().filter(|_| rule.callsite.is_none() && rule.function.is_none()),
        ..rule.clone()
    };
    a.rule.is_ok() == b.rule.is_ok() && a.rules().map(bare).eq(b.rules().map(bare))
}

/// An item for some ranks only.
fn of_ranks(mut item: Item, ranks: &str) -> Item {
    item.rule.iter_mut().chain(&mut item.more).for_each(|rule| rule.ranks = Some(ranks.to_owned()));
    item.name = format!("{} (ranks {ranks})", item.name);
    item
}

/// Adds the phases that are not there yet. Of two with one name the first stays.
fn add_phases(phases: &mut Vec<Phase>, more: &[Phase]) {
    for phase in more {
        if !phases.iter().any(|p| p.name == phase.name) {
            phases.push(phase.clone());
        }
    }
}

/// An item that moves only in phases that the policy has as its own advice means them. One whose phase begins at
/// another time than that of the same name in the policy stays where it is.
fn with_known_phases(mut item: Item, policy: &[Phase], own: &[Phase]) -> Item {
    let named = |phases: &[Phase], name: &str| phases.iter().find(|p| p.name == name).cloned();
    let known = |name: &str| named(policy, name).is_some() && named(policy, name) == named(own, name);
    item.rule.iter_mut().chain(&mut item.more).for_each(|rule| rule.phases.retain(|name, _| known(name)));
    item
}

fn add_remarks(remarks: &mut Vec<String>, lists: &[String], policy: &Policy, others: &[Advice]) {
    let some = lists.get(1..).unwrap_or_default().join("; ");
    remarks.push(format!(
        "Some objects are used in another way by these ranks than by the others: {some}. Rules with `ranks` are for \
         these ranks only, and their `why` counts in parts of the cost of these."
    ));
    let differ = others.iter().any(|a| (&a.policy.threads, &a.policy.teams) != (&policy.threads, &policy.teams));
    if differ {
        remarks.push(format!(
            "Threads are bound in all ranks as is best for ranks {}: a policy cannot bind them by rank.",
            lists.first().map_or("", String::as_str)
        ));
    }
    for remark in others.iter().flat_map(|a| &a.remarks) {
        if !remarks.contains(remark) && remark.contains("cut off") {
            remarks.push(remark.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Pattern, PatternKind};
    use numamma_plan::policy::{Place, PolicyKind};

    fn item(name: &str, policy: Option<PolicyKind>) -> Item {
        let place = |policy| ObjectRule {
            global: Some(name.into()),
            place: Place { policy, ..Place::default() },
            why: Some("as measured".into()),
            ..ObjectRule::default()
        };
        Item {
            name: name.into(),
            share: 0.5,
            pattern: Some(Pattern::new(PatternKind::Random, 0.9, String::new())),
            rule: policy.map(place).ok_or_else(|| "one thread".to_owned()),
            saved: 0.0,
            more: Vec::new(),
        }
    }

    fn advice(items: Vec<Item>) -> Advice {
        Advice { items, ..none() }
    }

    #[test]
    fn only_what_differs_has_ranks() {
        let all = item("grid", Some(PolicyKind::Block));
        let usual = advice(vec![all.clone(), item("table", Some(PolicyKind::Interleave))]);
        let mut other = all;
        other.rule.as_mut().unwrap().why = Some("seen elsewhere".into());
        let rank_0 = advice(vec![other, item("table", Some(PolicyKind::Local)), item("root", Some(PolicyKind::Local))]);
        let groups = vec![((1..8).collect(), of_group(usual, 0.8)), (vec![0], of_group(rank_0, 0.2))];
        let Advice { policy, items, .. } = for_ranks(groups);
        let shares: Vec<f64> = items.iter().map(|i| i.share).collect();
        assert!(shares.iter().zip([0.5, 0.4, 0.1, 0.1]).all(|(a, b): (_, f64)| (a - b).abs() < 1e-9), "{shares:?}");
        let rules: Vec<_> =
            policy.objects.iter().map(|r| (r.global.as_deref().unwrap(), r.ranks.as_deref(), r.place.policy)).collect();
        assert_eq!(
            rules,
            [
                ("grid", None, PolicyKind::Block),
                ("table", Some("1-"), PolicyKind::Interleave),
                ("table", Some("0"), PolicyKind::Local),
                ("root", Some("0"), PolicyKind::Local),
            ]
        );
    }

    #[test]
    fn an_object_that_some_ranks_leave_alone_is_placed_in_the_others_only() {
        let placed = advice(vec![item("table", Some(PolicyKind::Interleave))]);
        let policy = for_ranks(vec![(vec![0, 1, 3], placed), (vec![2], advice(vec![item("table", None)]))]).policy;
        assert_eq!(policy.objects[0].ranks.as_deref(), Some("0-1,3-"));
        assert_eq!(policy.objects.len(), 1);
    }

    #[test]
    fn runs_that_differ_are_placed_as_most() {
        let mut most = advice(vec![item("grid", Some(PolicyKind::Block)), item("table", None)]);
        most.remarks = vec![NOTHING.into()];
        let other = advice(vec![
            item("grid", Some(PolicyKind::Interleave)),
            item("table", Some(PolicyKind::Local)),
            item("extra", Some(PolicyKind::Interleave)),
        ]);
        let Advice { policy, items, remarks } =
            for_runs(vec![("a".into(), most), ("b".into(), other.clone()), ("c".into(), other)]);
        assert_eq!(items.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["grid", "table", "extra (b)"]);
        assert!(remarks.is_empty(), "there are rules: {remarks:?}");
        let rules: Vec<_> = policy.objects.iter().map(|r| (r.global.as_deref().unwrap(), r.place.policy)).collect();
        assert_eq!(rules, [("grid", PolicyKind::Block), ("extra", PolicyKind::Interleave)]);
        assert!(policy.objects.iter().all(|r| r.ranks.is_none()));
    }

    #[test]
    fn an_object_is_placed_for_the_runs_in_which_it_costs_most() {
        let most = advice(vec![item("grid", Some(PolicyKind::Block)), item("table", None)]);
        let mut most = of_group(most, 0.6);
        most.items[1].share = 0.01;
        let other = advice(vec![item("table", Some(PolicyKind::Interleave)), item("grid", Some(PolicyKind::Local))]);
        let all = for_runs(vec![("a, b".into(), most), ("c".into(), of_group(other, 0.4))]);
        assert_eq!(all.items.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["grid", "table (c)"]);
        let rules: Vec<_> = all.policy.objects.iter().map(|r| r.place.policy).collect();
        assert_eq!(rules, [PolicyKind::Block, PolicyKind::Interleave]);
    }

    #[test]
    fn all_ranks_but_some() {
        assert_eq!([all_but(&[]), all_but(&[0]), all_but(&[1, 3, 4])], ["0-", "1-", "0,2,5-"]);
    }
}
