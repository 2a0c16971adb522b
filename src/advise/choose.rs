//! Chooses among the candidate placements of an object: the simplest one within [`NEAR`] of the best page map, else the
//! cheapest. Objects that first touch places equally well get no rule.

use numamma_plan::policy::{PatternNote, PolicyKind};
use numamma_plan::unusable::Unusable;

use super::cost::resample::{self, Groups, Saving};
use super::cost::{Demands, Load, Outcome, PageMap, Placement, Residence, Spill};
use super::first_touch::{FirstTouch, Open};
use super::scene::{Choice, Scene, Simplicity};
use super::together::WORTH;
use super::unseen_waiting;
use crate::detect::{Pattern, unpaged_share};
use crate::profile::summary::{Entry, duration};

/// Ratio of prices up to which two placements count as equally good: the figure stated in the project's contract.
const NEAR: f64 = 1.02;
/// Part of the waiting for memory below which caches are named as the reason for a small gain: half.
const CACHED: f64 = 0.5;
/// Part of the accesses to an object that must come from the node that holds all of it: half. Which node has a few more
/// than the others changes from run to run, and threads of the others queue at one memory controller; how long they do
/// is the least certain of all that is priced.
const MAJORITY: f64 = 0.5;

/// The placement of an object.
pub(super) struct Chosen {
    pub choice: Choice,
    /// Part of the time in which the program runs that it saves.
    pub saved: f64,
    /// Its remark where it is advised although too little shows that it saves anything, see [`unseen_waiting`]; none
    /// where it is not advised then.
    pub even_so: Option<String>,
}

/// A choice with its price.
pub(super) struct Priced {
    pub choice: Choice,
    pub outcome: Outcome,
    pub bytes: Vec<f64>,
    spills: bool,
}

/// The accesses of an object, of the whole run or of one phase, and all else that a price depends on but the placement.
pub(super) struct Subject<'a> {
    scene: &'a Scene<'a>,
    entry: &'a Entry,
    pub demands: Demands,
    note: Option<&'a PatternNote>,
    taken: &'a [f64],
}

impl<'a> Subject<'a> {
    /// `note` is the pattern from which the blocks of a rule are computed, `taken` as in [`Scene::rule`].
    pub fn new(
        scene: &'a Scene<'_>,
        entry: &'a Entry,
        pattern: &Pattern,
        note: Option<&'a PatternNote>,
        taken: &'a [f64],
    ) -> Subject<'a> {
        Subject { scene, entry, demands: Demands::of(scene.world, entry, Some(pattern)), note, taken }
    }

    /// As [`Subject::new`], as if all time that is charged to the object waited.
    pub fn if_it_waits(
        scene: &'a Scene<'_>,
        entry: &'a Entry,
        pattern: &Pattern,
        note: Option<&'a PatternNote>,
        taken: &'a [f64],
    ) -> Subject<'a> {
        let demands = Demands::if_it_waits(scene.world, entry, Some(pattern));
        Subject { scene, entry, demands, note, taken }
    }

    /// The price of a placement, the bytes it puts on each node, and whether a node is too small for its part.
    pub fn price(&self, placement: &Placement<'_>) -> (Outcome, Vec<f64>, bool) {
        let bytes = placement.bytes();
        let spill = Spill::of(self.scene.world, &bytes, self.taken);
        let mut load = Load::new(self.scene.world);
        load.add(&self.demands, placement, &spill);
        (load.outcome(), bytes, spill.any)
    }

    /// What `second` saves of the waiting under `first`, of which it is estimated to be `part`. The pages are as likely
    /// to be in each of the places `first`.
    pub fn saving(&self, first: &[Placement<'_>], second: &Placement<'_>, part: f64) -> Option<Saving> {
        let world = self.scene.world;
        let draws = resample::draws();
        let times = |placement: &Placement<'_>| {
            let mut groups = Groups::sparse(world, self.demands.list.len())?;
            groups.load().add(&self.demands, placement, &Spill::of(world, &placement.bytes(), self.taken));
            Some((groups.times(&draws), groups.taken()))
        };
        let (after, taken) = times(second)?;
        let mut before = vec![0.0; after.len()];
        for placement in first {
            let (own, _) = times(placement)?;
            before.iter_mut().zip(own).for_each(|(sum, ns)| *sum += ns / first.len() as f64);
        }
        let part = resample::range_of_part(part, &before, &after).of_more(part, 1.0 / taken);
        Some(Saving { part, open: resample::half_range(&world.waiting_by_group(self.entry)) })
    }

    /// The placement of a choice.
    pub fn placement(&self, choice: &Choice) -> Result<Placement<'a>, Unusable> {
        match &choice.numbered {
            Some(nodes) => Ok(Placement::of_instances(self.scene.world, self.entry, nodes)),
            None => Placement::of(self.scene.world, self.entry, &choice.place, self.note),
        }
    }

    /// Prices the candidates that can be planned; `placing_ns` is added to each. The second value is the node of a
    /// candidate that is too small for the object.
    pub fn price_all(&self, choices: Vec<Choice>, placing_ns: f64) -> (Vec<Priced>, Option<String>) {
        let mut priced: Vec<Priced> = Vec::new();
        let mut too_big = None;
        for choice in choices {
            if self.is_for_a_minority(&choice) {
                continue;
            }
            // The apply library refuses placements that cannot be planned, too.
            let Ok(placement) = self.placement(&choice) else { continue };
            let (outcome, bytes, spills) = self.price(&placement);
            let outcome = Outcome { time_ns: outcome.time_ns + placing_ns, ..outcome };
            if spills && choice.place.policy == PolicyKind::Bind {
                // The pages that do not fit would be on other nodes, in the order of their first touch.
                too_big = choice.place.nodes;
                continue;
            }
            priced.push(Priced { choice, outcome, bytes, spills });
        }
        (priced, too_big)
    }

    /// Whether a choice puts all pages on a node from which less than [`MAJORITY`] of the accesses come. Where the
    /// nodes' memories differ, the fastest may be worth it.
    fn is_for_a_minority(&self, choice: &Choice) -> bool {
        let world = self.scene.world;
        if choice.simplicity != Simplicity::Chosen || choice.place.policy != PolicyKind::Bind || world.uneven() {
            return false;
        }
        let is_chosen = |node: usize| choice.place.nodes == Some(world.model().nodes[node].id.to_string());
        let near = |from: u16| is_chosen(world.home(from.into()));
        let sums = || self.demands.sums.iter();
        let own: f64 = sums().filter(|((_, from), _)| near(*from)).map(|(_, accesses)| accesses).sum();
        own < MAJORITY * sums().map(|(_, accesses)| accesses).sum::<f64>()
    }

    /// The time of the cheapest of `priced`, of the best page map with `placing_ns`, and of `first`, ns.
    fn best_ns(&self, priced: &[Priced], first: Option<Outcome>, placing_ns: f64) -> f64 {
        let map = PageMap::best(self.scene.world, self.entry, &self.demands, self.taken);
        let map = map.map(|m| m.outcome.time_ns + placing_ns);
        let others = priced.iter().map(|p| p.outcome).chain(first).map(|o| o.time_ns);
        others.chain(map).fold(f64::MAX, f64::min)
    }

    /// What placing would gain while several threads run, where that is more than [`NEAR`]. When the whole run gains
    /// nothing, it is the time in which one thread works alone that would get longer.
    fn in_parallel(&self, choices: Vec<Choice>) -> Option<String> {
        let world = self.scene.world;
        let (demands, is_before) = self.demands.in_parallel(world)?;
        let parallel = Subject { demands, ..*self };
        let (first, ..) = parallel.price(&world.unplaced(self.entry));
        let (priced, _) = parallel.price_all(choices, 0.0);
        let best = priced.iter().map(|p| p.outcome.time_ns).fold(f64::MAX, f64::min);
        let (alone, record) = match is_before {
            true => {
                ("its initialisation by one thread", ", and a profile without it (`--delay`) tells what the rest gains")
            }
            false => ("what one thread does with it alone", ""),
        };
        (first.time_ns > NEAR * best).then(|| {
            format!(
                "while several threads run, placing it would mean {}, but {alone} would get slower by about as much; longer \
                 runs differ{record}",
                waiting(100.0 * (1.0 - best / first.time_ns), None)
            )
        })
    }

    /// The simplest of `choices` within [`NEAR`] of the best page map, as in [`choose`], and its time, ns. For a phase
    /// of the run, in which first touch is over and so no candidate.
    pub fn cheapest(&self, choices: Vec<Choice>) -> Option<(Choice, f64)> {
        // The placements of a phase follow that of the whole run: its allocations are mapped once.
        let (priced, _) = self.price_all(choices, 0.0);
        let best = self.best_ns(&priced, None, 0.0);
        simplest(priced, best).map(|p| (p.choice, p.outcome.time_ns))
    }
}

/// The placement to advise, with the price in its remark, or the reason to leave the object to first touch. `note` and
/// `taken` as in [`Subject::new`].
pub(super) fn choose(
    scene: &Scene<'_>,
    entry: &Entry,
    pattern: &Pattern,
    choices: Vec<Choice>,
    note: Option<&PatternNote>,
    taken: &mut [f64],
) -> Result<Chosen, String> {
    let subject = Subject::new(scene, entry, pattern, note, taken);
    let touched = FirstTouch::of(scene, entry, &subject);
    let first = touched.outcome;
    let placing_ns = scene.world.placing_ns(entry);
    let (priced, too_big) = subject.price_all(choices.clone(), placing_ns);
    let best = subject.best_ns(&priced, Some(first), placing_ns);
    let Some(chosen) = simplest(priced, best) else {
        let node = too_big.unwrap_or_default();
        return Err(format!(
            "{}; it does not fit on node {node}, and no other placement can be planned",
            pattern.evidence
        ));
    };
    let verdict = match costs_more(scene, entry, &first, &chosen.outcome, placing_ns) {
        // Where the allocations are few, it is for what they gain that they are left alone.
        Some((often, why)) => {
            let gains_nothing = || verdict(scene, (entry, pattern), &first, best, || None).err().filter(|_| !often);
            Err(gains_nothing().unwrap_or_else(|| format!("{}; {why}", pattern.evidence)))
        }
        None => {
            verdict(scene, (entry, pattern), &first, best, || subject.in_parallel(choices.clone())).and_then(|()| {
                let part = 1.0 - (chosen.outcome.time_ns - placing_ns) / first.time_ns.max(f64::MIN_POSITIVE);
                let placed = subject.placement(&chosen.choice).ok();
                let saving = placed.and_then(|placed| subject.saving(&touched.placements, &placed, part));
                with_range(
                    scene,
                    (entry, pattern),
                    (&first, &chosen.outcome, best),
                    (saving, placing_ns),
                    touched.open.as_ref(),
                )
            })
        }
    };
    let saved_ns = first.time_ns - chosen.outcome.time_ns;
    let saved = saved_ns / scene.world.clock.running_ns().max(f64::MIN_POSITIVE);
    let little = verdict.is_ok() && saved < WORTH;
    let unseen = (verdict.is_err() || little)
        .then(|| unseen_waiting::choose(scene, (entry, pattern), choices, note, taken, little))
        .flatten();
    let even_so = match unseen {
        Some((choice, bytes)) if !little || choice.place != chosen.choice.place => {
            taken.iter_mut().zip(&bytes).for_each(|(t, b)| *t += b);
            return Ok(Chosen { even_so: choice.remark.clone(), choice, saved: 0.0 });
        }
        unseen => unseen.and_then(|(choice, _)| choice.remark),
    };
    // An object that is left to first touch occupies memory as well.
    let bytes = if verdict.is_ok() { &chosen.bytes } else { &touched.bytes };
    taken.iter_mut().zip(bytes).for_each(|(t, b)| *t += b);
    let price = verdict?;
    let full =
        chosen.spills.then(|| "it does not fit on the chosen nodes, the rest goes to the nearest nodes".to_owned());
    let too_big = too_big.map(|node| format!("it does not fit on node {node}"));
    let near = near_users(entry, &chosen);
    let words = [near, chosen.choice.remark, too_big, full, Some(price)];
    let remark = words.into_iter().flatten().collect::<Vec<_>>().join("; ");
    Ok(Chosen { choice: Choice { remark: Some(remark), ..chosen.choice }, saved, even_so })
}

/// What part of the accesses a placement by threads makes local, as [`super::predict()`] counts them: the main thread
/// of a page makes not all of its accesses. Of accesses without a known page nothing is claimed.
fn near_users(entry: &Entry, chosen: &Priced) -> Option<String> {
    let (of, known) = unpaged_share(entry).map_or((1.0, ""), |unpaged| (1.0 - unpaged, " are known to"));
    let place = &chosen.choice.place;
    let from = match (place.policy, chosen.choice.simplicity) {
        (PolicyKind::Block | PolicyKind::BlockCyclic | PolicyKind::Map, _) => "the node of their page",
        (PolicyKind::Local, _) if chosen.choice.remark.is_none() => {
            "the node of the thread that allocates it, which is bound"
        }
        (PolicyKind::Bind, Simplicity::Chosen) => &format!("node {}", place.nodes.as_deref()?),
        _ => return None,
    };
    Some(format!("{:.0} % of the accesses{known} come from {from}", 100.0 * of * chosen.outcome.local_share))
}

/// The simplest within [`NEAR`] of the best, else the simplest within [`NEAR`] of the cheapest.
pub(super) fn simplest(priced: Vec<Priced>, best: f64) -> Option<Priced> {
    let cheapest = priced.iter().map(|p| p.outcome.time_ns).fold(f64::MAX, f64::min);
    // The limit is at least the price of a candidate, so that an object without samples has a result, too.
    let limit = if cheapest <= NEAR * best { NEAR * best } else { NEAR * cheapest };
    priced.into_iter().filter(|p| p.outcome.time_ns <= limit).min_by_key(|p| p.choice.simplicity)
}

/// Allocations a second from which their number is said to be the reason: fewer are rounded to none.
const OFTEN: f64 = 0.5;

/// The reason to keep first touch when a placement saves less waiting than placing every allocation takes, and whether
/// the object is allocated often.
fn costs_more(
    scene: &Scene<'_>,
    entry: &Entry,
    first: &Outcome,
    chosen: &Outcome,
    placing_ns: f64,
) -> Option<(bool, String)> {
    let saved_ns = first.time_ns - (chosen.time_ns - placing_ns);
    let turnover = scene.world.summary.turnover(entry)?;
    let pays = saved_ns <= 0.0 || saved_ns > placing_ns;
    (!pays).then(|| {
        let part = |ns: f64| 100.0 * ns / scene.world.clock.running_ns().max(f64::MIN_POSITIVE);
        let often = turnover.per_second >= OFTEN;
        let allocated = match (turnover.allocations, turnover.within_ns) {
            (1, _) => "once: placing it".to_owned(),
            (n, Some(ns)) => format!("{n} times within {}: placing every allocation", duration(ns)),
            (n, _) if often => {
                format!("{n} times, {:.0} times a second: placing every allocation", turnover.per_second)
            }
            (n, _) => format!("{n} times: placing every allocation"),
        };
        let (takes, saves) = (part(placing_ns), part(saved_ns));
        let words =
            format!("it is allocated {allocated} would take {takes:.1} % of the running time and save {saves:.1} %");
        (often, words)
    })
}

/// That the caches keep an object from gaining anything.
fn cached(residence: &Residence) -> String {
    let Residence { cache, used, size, memory, least } = *residence;
    // More than the cache holds is found in it by chance only.
    let stays = if used <= size { "stays" } else { "is mostly found" };
    format!(
        "it {stays} in the {cache} of its users: {} of {}{}; {:.0} % of the waiting for it is not for memory",
        binary(used),
        binary(size),
        if least { ", the least that such machines have" } else { "" },
        100.0 * (1.0 - memory)
    )
}

/// Bytes with a binary unit and at most one decimal: `200 KiB`, `1.5 MiB`.
fn binary(bytes: f64) -> String {
    let kib = bytes / 1024.0;
    let (value, unit) = if kib < 1024.0 { (kib, "KiB") } else { (kib / 1024.0, "MiB") };
    format!("{} {unit}", (value * 10.0).round() / 10.0)
}

/// `31 % less waiting (15 to 47 %)` from the part of the waiting that is saved, in per cent, and its range; what is
/// more is called so.
fn waiting(less: f64, range: Option<(f64, f64)>) -> String {
    let rounded = |x: f64| x.round() + 0.0;
    let is_more = rounded(less) < 0.0;
    let (value, range) = if is_more { (-less, range.map(|(low, high)| (-high, -low))) } else { (less, range) };
    // Ends that look alike say no more than the value.
    let range = range.map(|(low, high)| (rounded(low), rounded(high))).filter(|(low, high)| low != high);
    let range = range.map(|(low, high)| format!(" ({low} to {high} %)")).unwrap_or_default();
    format!("{} % {} waiting{range}", rounded(value), if is_more { "more" } else { "less" })
}

/// The remark with the price and its range, or the reason to keep first touch: the lower end does not pay for placing.
fn with_range(
    scene: &Scene<'_>,
    (entry, pattern): (&Entry, &Pattern),
    (first, chosen, best): (&Outcome, &Outcome, f64),
    (saving, placing_ns): (Option<Saving>, f64),
    open: Option<&Open>,
) -> Result<String, String> {
    let of_first = |saved_ns: f64| if first.time_ns > 0.0 { 100.0 * saved_ns / first.time_ns } else { 0.0 };
    let less = of_first(first.time_ns - chosen.time_ns);
    let range = saving.map(|Saving { part, open }| {
        // What placing takes is known, but not how much waiting that is; the two errors are independent.
        let placing = of_first(placing_ns);
        let end = |end: f64, middle: f64| (100.0 * (end - middle)).hypot(placing * open);
        let middle = (less + placing) / 100.0;
        (less - end(part.low, middle), less + end(part.high, middle))
    });
    let words = waiting(less, range);
    if range.is_some_and(|(_, high)| high <= 0.0) {
        let ideal = of_first(first.time_ns - best).round();
        let ideal =
            (ideal > 0.0).then(|| format!("; ideal placement, every page on its best node, would save {ideal} %"));
        return Err(format!(
            "{}; no placement that a rule can describe saves anything: the best means {words}{}",
            pattern.evidence,
            ideal.unwrap_or_default()
        ));
    }
    if range.is_some_and(|(low, _)| low <= 0.0) {
        return Err(format!("{}; the samples are too few to tell whether placing it pays: {words}", pattern.evidence));
    }
    if let Some(saving) = saving.filter(|saving| saving.open >= 1.0) {
        let waits = 100.0 * scene.world.stalled_part(entry);
        let most = (waits * (1.0 + saving.open)).min(100.0);
        return Err(format!(
            "{}; its samples do not tell whether it waits for memory: {waits:.1} % of the time at its accesses seems to, \
             {most:.1} % at most; {words} if it does",
            pattern.evidence
        ));
    }
    // Which node has the pages without a placement is less certain than what the samples tell.
    let words = open.map_or(words.clone(), |open| {
        let less_than = |first_ns: f64| 100.0 * (1.0 - chosen.time_ns / first_ns.max(f64::MIN_POSITIVE));
        let (low, high) = range.unwrap_or((less, less));
        let all = (low.min(less_than(open.least_ns)), high.max(less_than(open.most_ns)));
        let wider = all.0.round() < low.round() || all.1.round() > high.round();
        if open.always || wider { format!("{}, {},", waiting(less, Some(all)), open.why) } else { words }
    });
    Ok(format!(
        "priced: {words} than first touch{}, ideal placement would save {:.0} %",
        balanced(scene),
        of_first(first.time_ns - best)
    ))
}

fn balanced(scene: &Scene<'_>) -> &'static str {
    if scene.world.balances() { " with the kernel's NUMA balancing" } else { "" }
}

/// The reason to keep first touch where no placement is better by more than [`NEAR`], with what `in_parallel` adds to
/// it.
fn verdict(
    scene: &Scene<'_>,
    (entry, pattern): (&Entry, &Pattern),
    first: &Outcome,
    best: f64,
    in_parallel: impl FnOnce() -> Option<String>,
) -> Result<(), String> {
    // Waiting for the caches of its users is the same under every placement.
    let residence = scene.world.residence(entry);
    let memory = residence.memory;
    let with_caches = |time_ns: f64| memory * time_ns + (1.0 - memory) * first.time_ns;
    let as_good = first.time_ns <= NEAR * with_caches(best);
    if as_good && memory < CACHED {
        return Err(format!("{}; {}", pattern.evidence, cached(&residence)));
    }
    if scene.world.stalled_part(entry) <= 0.0 {
        return Err(format!(
            "{}; no waiting for it was seen: its samples lie where the code computes, which takes as long wherever its \
             pages are",
            pattern.evidence
        ));
    }
    let less = |time: f64| if first.time_ns > 0.0 { 100.0 * (1.0 - time / first.time_ns) } else { 0.0 };
    if as_good {
        return Err(format!(
            "{}; first touch is as good{}: ideal placement would save {:.0} % of the time spent waiting for it{}",
            pattern.evidence,
            balanced(scene),
            less(best).max(0.0),
            in_parallel().map(|words| format!("; {words}")).unwrap_or_default()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::waiting;

    #[test]
    fn what_is_more_is_not_called_a_negative_less() {
        assert_eq!(waiting(31.2, Some((15.4, 46.6))), "31 % less waiting (15 to 47 %)");
        assert_eq!(waiting(-22.0, Some((-24.0, -21.0))), "22 % more waiting (21 to 24 %)");
        assert_eq!(waiting(-0.3, Some((-1.2, 0.4))), "0 % less waiting (-1 to 0 %)");
        assert_eq!(waiting(12.0, None), "12 % less waiting");
    }
}
