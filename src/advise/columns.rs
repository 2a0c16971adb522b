//! The policies that are priced, and what each does to an object.

use std::collections::HashMap;

use numamma_plan::plan::PAGE;
use numamma_plan::policy::{Bind, ObjectRule, Phase, Place, Policy, PolicyKind};
use numamma_plan::range::ByteRange;
use numamma_plan::unusable::Unusable;

use super::cost::{Piece, Placement, World};
use super::{AdviceError, matching, parts, phase_placements};
use crate::profile::summary::Entry;

/// Why there is no table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PredictError {
    /// The profile cannot be used.
    #[error(transparent)]
    Profile(AdviceError),
    /// A rule of a given policy cannot be applied on the target.
    #[error(
        "{policy}: object {object}: {reason}; the target of the prediction lacks what the policy names: \
         change --target (or --nodes), or make the policy anew with `numamma advise` and the same target"
    )]
    Rule {
        /// The policy.
        policy: String,
        /// The object.
        object: String,
        /// Why.
        reason: String,
    },
}

/// The policies that are priced besides the best page map, in the order of the table.
pub(super) enum Column<'a> {
    FirstTouch,
    /// First touch, and the kernel moves pages to their users.
    Balanced,
    All(Place),
    File {
        name: &'a str,
        policy: &'a Policy,
        used: Vec<bool>,
    },
}

impl<'a> Column<'a> {
    pub(super) fn name(&self) -> &str {
        match self {
            Column::FirstTouch => FIRST_TOUCH,
            Column::Balanced => BALANCED,
            Column::All(place) if place.policy == PolicyKind::Interleave => "interleave",
            Column::All(_) => "block-naive",
            Column::File { name, .. } => name,
        }
    }

    pub(super) fn file(name: &'a str, policy: &'a Policy) -> Column<'a> {
        Column::File { name, policy, used: vec![false; policy.objects.len()] }
    }

    /// What it does to an entry.
    pub(super) fn treatment(&self, world: &World<'_>, entry: &Entry) -> Treatment<'a> {
        let policy: &'a Policy = match self {
            Column::FirstTouch if !world.balances() => return Treatment::Unplaced,
            Column::Balanced if world.balances() => return Treatment::Unplaced,
            Column::FirstTouch | Column::Balanced | Column::All(_) => return Treatment::Own,
            Column::File { policy, .. } => policy,
        };
        let rule = |index: usize| policy.objects.get(index);
        let binds = policy.threads.as_ref().is_some_and(|threads| threads.bind != Bind::None);
        let bytes = matching::rules_of_bytes(world.summary, entry, policy)
            .map(|rules| rules.into_iter().filter_map(|(index, range)| Some((rule(index)?, range))).collect());
        let instances: Vec<_> =
            matching::rules_of(world.summary, entry, policy).into_iter().map(|index| index.and_then(rule)).collect();
        if bytes.is_none() && instances.iter().all(Option::is_none) {
            return if binds { Treatment::Bound } else { Treatment::Unplaced };
        }
        Treatment::Rules(Rules { instances, bytes, phases: &policy.phases, binds })
    }

    /// What placing the allocations of an entry costs under the rules of a file, ns. The other policies are set once
    /// for the whole process.
    pub(super) fn placing_ns(&self, world: &World<'_>, entry: &Entry) -> f64 {
        let Column::File { policy, .. } = self else { return 0.0 };
        let rules = matching::rules_of(world.summary, entry, policy);
        let placed = |rule: &usize| policy.objects.get(*rule).is_some_and(|r| r.place.policy != PolicyKind::Default);
        if rules.iter().flatten().any(placed) { world.placing_ns(entry) } else { 0.0 }
    }

    /// The placements that follow the first one, with the time slots from which they hold.
    pub(super) fn later(
        &self,
        world: &'a World<'a>,
        entry: &'a Entry,
    ) -> Result<Vec<(u16, Placement<'a>)>, PredictError> {
        let Column::File { name, policy, .. } = self else { return Ok(Vec::new()) };
        if policy.phases.is_empty() {
            return Ok(Vec::new());
        }
        // Instances with rules of their own, by number, do not share phases.
        let rules = matching::rules_of(world.summary, entry, policy);
        let same = rules.first().copied().flatten().filter(|first| rules.iter().all(|r| *r == Some(*first)));
        let Some(rule) = same.and_then(|index| policy.objects.get(index)) else { return Ok(Vec::new()) };
        let of = |(slot, place): (u16, &Place)| match Placement::of(world, entry, place, rule.pattern.as_ref()) {
            Ok(placement) => Ok((slot, placement)),
            Err(e) => {
                let (policy, object, reason) = ((*name).to_owned(), rule.title().into_owned(), e.to_string());
                Err(PredictError::Rule { policy, object, reason })
            }
        };
        phase_placements::places_by_slot(policy, rule, world.summary).into_iter().skip(1).map(of).collect()
    }

    pub(super) fn placement(&mut self, world: &'a World<'a>, entry: &'a Entry) -> Result<Placement<'a>, PredictError> {
        let failed = |policy: &str, object: &str, reason: String| PredictError::Rule {
            policy: policy.to_owned(),
            object: object.to_owned(),
            reason,
        };
        match self {
            Column::FirstTouch => Ok(Placement::first_touch(world, entry)),
            Column::Balanced => Ok(Placement::balanced(world, entry)),
            Column::All(place) => Placement::of(world, entry, place, None)
                .map_err(|e| failed("built-in policy", &entry.name, e.to_string())),
            Column::File { name, policy, used } => {
                if let Some(rules) = matching::rules_of_bytes(world.summary, entry, policy) {
                    let piece = |&(index, range): &(usize, ByteRange)| {
                        used[index] = true;
                        let rule = &policy.objects[index];
                        piece_of(world, entry, rule, range).map_err(|e| failed(name, &rule.title(), e.to_string()))
                    };
                    let pieces = rules.iter().map(piece).collect::<Result<Vec<_>, _>>()?;
                    return Ok(Placement::pieces(world, entry, pieces));
                }
                let binds = policy.threads.as_ref().is_some_and(|threads| threads.bind != Bind::None);
                let unplaced = || if binds { world.unplaced_by_bound(entry) } else { world.unplaced(entry) };
                let rules = matching::rules_of(world.summary, entry, policy);
                let mut placement = |index: Option<usize>| match index {
                    Some(index) => {
                        used[index] = true;
                        let rule = &policy.objects[index];
                        if rule.place.policy == PolicyKind::Default {
                            return Ok(unplaced());
                        }
                        Placement::of(world, entry, &rule.place, rule.pattern.as_ref())
                            .map_err(|e| failed(name, &rule.title(), e.to_string()))
                    }
                    None => Ok(unplaced()),
                };
                let first = rules.first().copied().flatten();
                if rules.iter().all(|rule| *rule == first) {
                    return placement(first);
                }
                // Each instance counts for the node of its first page, which is exact for placements on one node.
                let mut known: HashMap<Option<usize>, Placement<'_>> = HashMap::new();
                for rule in &rules {
                    if !known.contains_key(rule) {
                        known.insert(*rule, placement(*rule)?);
                    }
                }
                let node = |(instance, rule): (u32, &Option<usize>)| ((instance, 0), known[rule].node(instance, 0));
                Ok(Placement::map(world, entry, (0..).zip(&rules).map(node).collect()))
            }
        }
    }
}

/// What a rule does to the pages of an entry; `range` are the bytes of the entry's object that it places.
fn piece_of(world: &World<'_>, entry: &Entry, rule: &ObjectRule, range: ByteRange) -> Result<Piece, Unusable> {
    let page = world.summary.header.page_size.max(1);
    let own = parts::bytes_of(entry);
    let (low, high) = (range.low.max(own.low), range.high.min(own.high));
    // Pages as the apply library rounds them, which differ by a page at most where the object begins inside of one.
    let pages_of = |bytes: u64| (bytes + page / 2) / page;
    let pages = (pages_of(low - own.low), (high - own.low).div_ceil(page));
    let pages = if high < own.high { (pages.0, pages_of(high - own.low)) } else { pages };
    let before = (low - range.low) / PAGE;
    let size = range.bytes_of(parts::object_size(entry));
    Placement::piece(world, (&rule.place, rule.pattern.as_ref()), size, pages, before)
}

/// What a column does to an object. Columns that treat it alike have the same pages on the same nodes.
#[derive(Debug)]
pub(super) enum Treatment<'a> {
    /// What the target does by default.
    Unplaced,
    /// The same under a policy that binds threads.
    Bound,
    /// What rules of a policy file say.
    Rules(Rules<'a>),
    /// That of no other column.
    Own,
}
/// The rules for an object: those of its instances, or of its bytes.
#[derive(Debug, PartialEq)]
pub(super) struct Rules<'a> {
    instances: Vec<Option<&'a ObjectRule>>,
    bytes: Option<Vec<(&'a ObjectRule, ByteRange)>>,
    /// The phases of the policy, and whether it binds threads.
    phases: &'a [Phase],
    binds: bool,
}

impl Treatment<'_> {
    pub(super) fn is_like(&self, other: &Treatment<'_>) -> bool {
        use Treatment::{Bound, Rules, Unplaced};
        match (self, other) {
            (Unplaced, Unplaced) | (Bound, Bound) => true,
            (Rules(a), Rules(b)) => a == b,
            _ => false,
        }
    }
}

/// Names of the columns without a policy.
pub(super) const FIRST_TOUCH: &str = "first-touch";
pub(super) const BALANCED: &str = "first-touch, balanced";
