//! Predicts the run on the target under several policies with the cost model: first touch without and with the kernel's
//! NUMA balancing, interleave, block-naive, the advised policy, the given files, and the best placement that was found.
//! Of the first two the one that the target does by default is the baseline: its time is 1. What a policy leaves
//! unplaced is as in the baseline.
//!
//! Objects are priced one at a time, so that memory is bounded by the pages of the largest object.

use std::collections::HashMap;

use numamma_plan::plan::PAGE;
use numamma_plan::policy::{Bind, ObjectRule, Place, Policy, PolicyKind};
use numamma_plan::range::ByteRange;
use numamma_plan::unusable::Unusable;
use serde::Serialize;

use super::cost::resample::{self, Groups};
use super::cost::{Demands, Load, Outcome, PageMap, Piece, Placement, Spill, World};
use super::phase_demands::PhaseDemands;
use super::{Advice, AdviceError, Target, matching, parts, phase_placements};
use crate::detect::{Pattern, Roles, cost_shares, limits::HOT_SHARE, roles};
use crate::profile::summary::{Entry, Summary};

/// A policy file to price.
#[derive(Debug, Clone)]
pub struct Given {
    /// Name of its column in the table.
    pub name: String,
    /// The parsed policy.
    pub policy: Policy,
}

/// One policy's price.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyPrice {
    /// `first-touch`, `first-touch, balanced`, `interleave`, `block-naive`, `advised`, `best possible`, or the name of a file.
    pub name: String,
    /// Share of the priced accesses whose page is on the thread's own node, 0 to 1; none without such accesses.
    pub local_share: Option<f64>,
    /// Share of them that the busiest node's memory serves; 1 / nodes when balanced.
    pub busiest_node_share: Option<f64>,
    /// Estimated time over that of the baseline.
    pub time: f64,
    /// The inverse.
    pub speedup: f64,
    /// Lower end of the range of the speed-up: the samples leave it open within this range with a probability of 95 %.
    /// None where the samples set no lower end, or the target has too many nodes for ranges.
    pub low: Option<f64>,
    /// Upper end, in the same way.
    pub high: Option<f64>,
}

/// The prices of one object under every policy, as if only accesses to this object waited for memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ObjectPrice {
    /// Name for people.
    pub name: String,
    /// Share of the run's cost, 0 to 1.
    pub share: f64,
    /// Share of the priced waiting for memory that is for it, 0 to 1: 0 for what the target's caches hold.
    pub waiting: f64,
    /// Its pattern.
    pub pattern: &'static str,
    /// In the order of [`Prediction::policies`]; times are of the object's waiting.
    pub policies: Vec<PolicyPrice>,
}

/// The table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// Name of the target's model.
    pub target: String,
    /// First touch, first touch with the kernel's balancing, interleave, block-naive, advised, the given ones, best
    /// possible.
    pub policies: Vec<PolicyPrice>,
    /// Name of the policy whose time is 1: what the target does by default.
    pub baseline: &'static str,
    /// Objects with at least 1 % of the cost whose waiting is priced, highest share first.
    pub objects: Vec<ObjectPrice>,
    /// Share of the run's cost that is priced: all but stacks, unknown addresses and objects smaller than a page.
    pub priced_share: f64,
    /// Sources and assumptions of the model, one sentence each.
    pub inputs: Vec<String>,
    /// Limits of this prediction, one sentence each.
    pub remarks: Vec<String>,
}

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
    fn name(&self) -> &str {
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

    /// What placing the allocations of an entry costs under the rules of a file, ns. The other policies are set once
    /// for the whole process.
    fn placing_ns(&self, world: &World<'_>, entry: &Entry) -> f64 {
        let Column::File { policy, .. } = self else { return 0.0 };
        let rules = matching::rules_of(world.summary, entry, policy);
        let placed = |rule: &usize| policy.objects.get(*rule).is_some_and(|r| r.place.policy != PolicyKind::Default);
        if rules.iter().flatten().any(placed) { world.placing_ns(entry) } else { 0.0 }
    }

    /// The placements that follow the first one, with the time slots from which they hold.
    fn later(&self, world: &'a World<'a>, entry: &'a Entry) -> Result<Vec<(u16, Placement<'a>)>, PredictError> {
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

/// Prices the run. `advice` must have been made for the same profile and target.
///
/// # Errors
/// See [`PredictError`].
pub fn predict(
    summary: &Summary,
    patterns: &[Pattern],
    target: &Target,
    advice: &Advice,
    given: &[Given],
) -> Result<Prediction, PredictError> {
    if patterns.len() != summary.entries.len() {
        let e = AdviceError::Patterns { entries: summary.entries.len(), patterns: patterns.len() };
        return Err(PredictError::Profile(e));
    }
    let roles = roles(summary);
    if roles.is_empty() {
        return Err(PredictError::Profile(AdviceError::NoThreads));
    }
    let world = World::new(summary, &roles, target);
    let everywhere = |policy| Place { policy, ..Place::default() };
    let mut columns = vec![
        Column::FirstTouch,
        Column::Balanced,
        Column::All(everywhere(PolicyKind::Interleave)),
        Column::All(everywhere(PolicyKind::Block)),
        Column::file("advised", &advice.policy),
    ];
    columns.extend(given.iter().map(|g| Column::file(&g.name, &g.policy)));
    Table::fill(&world, patterns, columns)
}

/// Share of the accesses of each entry that would be remote on the target under first touch, in the order of
/// `summary.entries`; none where the model prices no accesses. From the same model as [`predict`].
///
/// # Errors
/// As [`predict`], for profiles without patterns or threads.
pub fn remote_shares(
    summary: &Summary,
    roles: &Roles,
    patterns: &[Pattern],
    target: &Target,
) -> Result<Vec<Option<f64>>, AdviceError> {
    if patterns.len() != summary.entries.len() {
        return Err(AdviceError::Patterns { entries: summary.entries.len(), patterns: patterns.len() });
    }
    if roles.is_empty() {
        return Err(AdviceError::NoThreads);
    }
    let world = World::new(summary, roles, target);
    let nothing_full = Spill::of(&world, &vec![0.0; world.nodes()], &[]);
    let share = |(entry, pattern): (&Entry, &Pattern)| {
        let mut load = Load::new(&world);
        let demands = Demands::of(&world, entry, Some(pattern));
        load.add(&demands, &Placement::first_touch(&world, entry), &nothing_full);
        let outcome = load.outcome();
        (outcome.busiest_share > 0.0).then_some(1.0 - outcome.local_share)
    };
    Ok(summary.entries.iter().zip(patterns).map(share).collect())
}

/// The table while it is filled.
struct Table<'a> {
    world: &'a World<'a>,
    columns: Vec<Column<'a>>,
    spills: Vec<Spill>,
    loads: Vec<Load<'a>>,
    best: Load<'a>,
    /// By column, and of the best: the same loads in groups of samples.
    groups: Vec<Option<Groups<'a>>>,
    waited_ns: Vec<f64>,
    /// By slice: CPU time that computes on the priced objects, ns.
    computed_ns: Vec<f64>,
    /// By column: what placing allocations, and moving pages between phases, costs.
    moving_ns: Vec<f64>,
    objects: Vec<ObjectPrice>,
    priced_share: f64,
    /// Share of the run's cost that is at objects without waiting.
    without_waiting: f64,
}

impl<'a> Table<'a> {
    fn fill(
        world: &'a World<'a>,
        patterns: &[Pattern],
        mut columns: Vec<Column<'a>>,
    ) -> Result<Prediction, PredictError> {
        let entries: Vec<&Entry> = world.summary.entries.iter().filter(|e| world.waits(e)).collect();
        let mut spills = Vec::with_capacity(columns.len());
        for column in &mut columns {
            let mut bytes = vec![0.0; world.nodes()];
            for entry in &entries {
                let own = column.placement(world, entry)?.bytes();
                bytes.iter_mut().zip(own).for_each(|(sum, b)| *sum += b);
            }
            spills.push(Spill::of(world, &bytes, &[]));
        }
        let mut table = Table {
            world,
            loads: columns.iter().map(|_| Load::new(world)).collect(),
            groups: (0..=columns.len()).map(|_| Groups::new(world)).collect(),
            moving_ns: vec![0.0; columns.len()],
            columns,
            spills,
            best: Load::new(world),
            waited_ns: vec![0.0; world.clock.slices.len()],
            computed_ns: vec![0.0; world.clock.slices.len()],
            objects: Vec::new(),
            priced_share: 0.0,
            without_waiting: 0.0,
        };
        let shares = cost_shares(world.summary);
        for ((entry, pattern), share) in world.summary.entries.iter().zip(patterns).zip(shares) {
            if world.waits(entry) && !entry.cells.is_empty() {
                table.add(entry, pattern, share)?;
            }
        }
        Ok(table.done())
    }

    fn add(&mut self, entry: &'a Entry, pattern: &Pattern, share: f64) -> Result<(), PredictError> {
        let world = self.world;
        let demands = Demands::of(world, entry, Some(pattern));
        self.waited_ns.iter_mut().zip(&demands.waited_ns).for_each(|(sum, w)| *sum += w);
        let computed = demands.computed_ns(world.clock.slices.len());
        self.computed_ns.iter_mut().zip(computed).for_each(|(sum, c)| *sum += c);
        self.priced_share += share;
        self.without_waiting += if demands.waits_ns > 0.0 { 0.0 } else { share };
        let hot = share >= HOT_SHARE;
        let mut outcomes = Vec::with_capacity(self.columns.len() + 1);
        let mut times = Vec::with_capacity(self.columns.len() + 1);
        let draws = resample::draws();
        let mut placements = Vec::with_capacity(self.columns.len());
        for (index, (column, spill)) in self.columns.iter_mut().zip(&self.spills).enumerate() {
            let placement = column.placement(world, entry)?;
            let later = column.later(world, entry)?;
            let stages = PhaseDemands::of(world, entry, pattern, &demands, (&placement, &later));
            stages.add_to(&mut self.loads[index], spill);
            if let Some(groups) = &mut self.groups[index] {
                stages.add_to(groups.load(), spill);
            }
            let moving_ns = stages.moving_ns + column.placing_ns(world, entry);
            self.moving_ns[index] += moving_ns;
            if hot {
                let mut alone = Load::new(world);
                stages.add_to(&mut alone, spill);
                let outcome = alone.outcome();
                outcomes.push(Outcome { time_ns: outcome.time_ns + moving_ns, ..outcome });
                times.push(Groups::of_one(world).map(|mut groups| {
                    stages.add_to(groups.load(), spill);
                    groups.times(&draws).into_iter().map(|time| time + moving_ns).collect()
                }));
            }
            placements.push((placement, spill));
        }
        if !hot {
            // The best placement of a cold object is not searched for; the advised one is used.
            let (placement, spill) = &placements[ADVISED];
            self.best.add(&demands, placement, spill);
            let groups = self.groups.last_mut().and_then(Option::as_mut);
            groups.into_iter().for_each(|groups| groups.load().add(&demands, placement, spill));
            return Ok(());
        }
        let map = PageMap::best(world, entry, &demands, &[]);
        let cheapest = |a: &(usize, &Outcome), b: &(usize, &Outcome)| a.1.time_ns.total_cmp(&b.1.time_ns);
        let (index, least) = outcomes.iter().enumerate().min_by(cheapest).map_or((0, outcomes[0]), |(i, o)| (i, *o));
        let all = self.groups.last_mut().and_then(Option::as_mut);
        match map.filter(|m| m.outcome.time_ns < least.time_ns) {
            Some(map) => {
                map.add_to(&mut self.best, &demands);
                all.into_iter().for_each(|groups| map.add_to(groups.load(), &demands));
                outcomes.push(map.outcome);
                times.push(Groups::of_one(world).map(|mut groups| {
                    map.add_to(groups.load(), &demands);
                    groups.times(&draws)
                }));
            }
            None => {
                let (placement, spill) = &placements[index];
                self.best.add(&demands, placement, spill);
                all.into_iter().for_each(|groups| groups.load().add(&demands, placement, spill));
                outcomes.push(least);
                times.push(times[index].clone());
            }
        }
        let policies = self.prices(&outcomes, &times, 0.0);
        // Of all waiting when it is known.
        let waiting = demands.waited_ns.iter().sum();
        let (name, pattern) = (entry.name.clone(), pattern.kind.as_str());
        self.objects.push(ObjectPrice { name, share, waiting, pattern, policies });
        Ok(())
    }

    /// Outcomes of all columns and of the best, next to the baseline; `compute_ns` is added to each. `times` are those of
    /// the replicates.
    fn prices(&self, outcomes: &[Outcome], times: &[Option<Vec<f64>>], compute_ns: f64) -> Vec<PolicyPrice> {
        let first = outcomes.get(self.baseline()).map_or(0.0, |o| o.time_ns) + compute_ns;
        let names = self.columns.iter().map(Column::name).chain([BEST]);
        let baseline = times.get(self.baseline()).and_then(Option::as_ref);
        let price = |((name, o), own): ((&str, &Outcome), &Option<Vec<f64>>)| {
            let time = if first > 0.0 { (o.time_ns + compute_ns) / first } else { 1.0 };
            let speedup = if time > 0.0 { 1.0 / time } else { 1.0 };
            let range = baseline.zip(own.as_ref()).map(|(first, own)| resample::range_of_ratio(speedup, first, own));
            PolicyPrice {
                name: name.to_owned(),
                local_share: (o.busiest_share > 0.0).then_some(o.local_share),
                busiest_node_share: (o.busiest_share > 0.0).then_some(o.busiest_share),
                time,
                speedup,
                low: range.map(|r| r.low).filter(|low| *low > 0.0),
                high: range.map(|r| r.high).filter(|high| high.is_finite()),
            }
        };
        names.zip(outcomes).zip(times).map(price).collect()
    }

    /// Index of the column of what the target does by default.
    fn baseline(&self) -> usize {
        usize::from(self.world.balances())
    }

    /// By column, and of the best: the times of the whole run, ns, in each replicate. The CPU time of a run is known; a
    /// replicate says which part of it is for what.
    fn replicates(&self) -> Vec<Option<Vec<f64>>> {
        let slices = &self.world.clock.slices;
        let others: f64 =
            slices.iter().map(|s| s.cpu_ns).sum::<f64>() - self.waited_ns.iter().chain(&self.computed_ns).sum::<f64>();
        let others = self.world.spread_others(others.max(0.0));
        let moving = self.moving_ns.iter().chain(&[0.0]);
        let of_column = |(groups, moving): (&Option<Groups<'_>>, &f64)| {
            let groups = groups.as_ref()?;
            Some(resample::draws().iter().map(|drawn| moving + self.replicate(groups, drawn, &others)).collect())
        };
        self.groups.iter().zip(moving).map(of_column).collect()
    }

    /// The time of the run in a replicate, ns; `others` is the CPU time of samples that are not priced, by group.
    fn replicate(&self, groups: &Groups<'_>, drawn: &[f64; resample::GROUPS], others: &[f64]) -> f64 {
        let slices = &self.world.clock.slices;
        let (waited, computed) = groups.cpu_ns();
        let sum = |of_groups: &[f64], slice: usize| -> f64 {
            drawn.iter().enumerate().map(|(g, times)| times * of_groups[g * slices.len() + slice]).sum()
        };
        let parts: Vec<(f64, f64)> = (0..slices.len()).map(|s| (sum(waited, s), sum(computed, s))).collect();
        let priced: f64 = parts.iter().map(|(waited, computed)| waited + computed).sum();
        let whole: f64 = slices.iter().map(|s| s.cpu_ns).sum();
        let all = priced + drawn.iter().zip(others).map(|(times, other)| times * other).sum::<f64>();
        let scale = if all > 0.0 { whole / all } else { 1.0 };
        let waited: Vec<f64> = parts.iter().map(|(waited, _)| waited * scale).collect();
        let known = parts.iter().map(|(waited, computed)| scale * (waited + computed));
        let other_ns: Vec<f64> = slices.iter().zip(known).map(|(s, known)| (s.cpu_ns - known).max(0.0)).collect();
        groups.replicate(drawn, scale).outcome_beside(&other_ns).time_ns + self.world.compute_ns(&waited)
    }

    fn done(self) -> Prediction {
        let compute_ns = self.world.compute_ns(&self.waited_ns);
        let spoken_for = self.waited_ns.iter().zip(&self.computed_ns).map(|(waited, computed)| waited + computed);
        let slices = self.world.clock.slices.iter().zip(spoken_for);
        let other_ns: Vec<f64> = slices.map(|(slice, known)| (slice.cpu_ns - known).max(0.0)).collect();
        let moved = |(load, moving): (&Load<'_>, &f64)| {
            let outcome = load.outcome_beside(&other_ns);
            Outcome { time_ns: outcome.time_ns + moving, ..outcome }
        };
        let mut outcomes: Vec<Outcome> = self.loads.iter().zip(&self.moving_ns).map(moved).collect();
        // Objects share controllers, so the best placements of single objects together need not be the best of all.
        let mut times = self.replicates();
        outcomes.push(self.best.outcome_beside(&other_ns));
        let least = (0..outcomes.len()).min_by(|a, b| outcomes[*a].time_ns.total_cmp(&outcomes[*b].time_ns));
        if let (Some(least), Some(best)) = (least, outcomes.len().checked_sub(1)) {
            outcomes[best] = outcomes[least];
            times[best] = times[least].clone();
        }
        let policies = self.prices(&outcomes, &times, compute_ns);
        let all_ns: f64 = self.waited_ns.iter().sum();
        let mut objects = self.objects;
        objects.iter_mut().for_each(|o| o.waiting = if all_ns > 0.0 { o.waiting / all_ns } else { 0.0 });
        let mut remarks = remarks(self.world);
        if self.without_waiting >= SAYS_LITTLE {
            remarks.push(format!(
                "{:.0} % of the cost is at objects for which no waiting for memory was seen: local and busiest node leave out the \
                 accesses to them, and the model has no placement that changes their time.",
                100.0 * self.without_waiting
            ));
        }
        for (column, spill) in self.columns.iter().zip(&self.spills) {
            if spill.any {
                remarks.push(format!(
                    "{}: the planned nodes lack memory for all objects; the rest is on the nearest nodes.",
                    column.name()
                ));
            }
            let Column::File { name, policy, used } = column else { continue };
            let untimed: Vec<&str> =
                policy.phases.iter().filter(|p| p.after.is_none()).map(|p| p.name.as_str()).collect();
            if !untimed.is_empty() {
                remarks.push(format!(
                    "{name}: phase {} has no start time (`after`), so the prediction leaves it out.",
                    untimed.join(", ")
                ));
            }
            let idle = policy.objects.iter().zip(used).filter(|(_, used)| !**used).map(|(rule, _)| rule.name());
            let idle: Vec<&str> = idle.collect();
            if !idle.is_empty() {
                remarks.push(format!("{name}: no object of the profile is named by its rule for {}.", idle.join(", ")));
            }
        }
        Prediction {
            target: self.world.model().name.clone(),
            policies,
            baseline: if self.world.balances() { BALANCED } else { FIRST_TOUCH },
            objects,
            priced_share: self.priced_share,
            inputs: self.world.inputs(),
            remarks,
        }
    }
}

/// Share of the run's cost at objects without waiting from which on local shares say little of the whole run: what is left
/// out must not be taken for local.
const SAYS_LITTLE: f64 = 0.1;
/// Index of the advised policy's column.
const ADVISED: usize = 4;
/// Names of the columns without a policy.
const FIRST_TOUCH: &str = "first-touch";
const BALANCED: &str = "first-touch, balanced";
/// Name of the last column.
const BEST: &str = "best possible";

fn remarks(world: &World<'_>) -> Vec<String> {
    let mut remarks = Vec::new();
    if world.target.nodes < 2 {
        remarks.push("The target has one node: all memory is local, and no policy can differ from another.".into());
    } else if world.target.portable {
        remarks.push(format!(
            "This machine has one node; the table is for {} equal nodes. Use --nodes N for another machine.",
            world.target.nodes
        ));
    }
    if world.roles.workers < 2 {
        remarks.push("The profile has one thread: the run is priced as serial, whatever the target's threads.".into());
    }
    let touched = world.summary.entries.iter().filter(|e| world.waits(e)).any(|e| !e.touches.is_empty());
    if !touched {
        remarks.push("The profile holds no first touches: the main thread is taken to touch everything first.".into());
    }
    remarks.extend(world.time_remarks());
    if world.summary.ending.is_none() {
        remarks.push("The recording was cut off; the table is based on the recorded part.".into());
    }
    remarks
}
