//! What a change of a single object is expected to bring: the run on the target with the rules of this object alone.

use std::cell::OnceCell;

use numamma_plan::policy::Policy;

use super::fix::{Fix, FixKind, Gain, PAYS};
use crate::advise::run_prices::run_prices;
use crate::advise::{Advice, Item, PolicyPrice, PredictError, Target};
use crate::detect::Pattern;
use crate::profile::summary::Summary;

/// Objects that are priced one by one, so that the time stays within a second for profiles of thousands of objects:
/// each price takes all others into account.
const MOST_PRICED: usize = 32;

/// Name of the advised policy in a prediction.
const ADVISED: &str = "advised";

/// What the prices of one run are made of, and that of the advised policy, which several fixes need.
pub(super) struct Pricing<'a> {
    pub summary: &'a Summary,
    pub patterns: &'a [Pattern],
    pub target: &'a Target,
    pub advice: &'a Advice,
    pub advised: OnceCell<PolicyPrice>,
}

impl Pricing<'_> {
    /// The prices of policies, in their order.
    fn of(&self, policies: &[Policy]) -> Result<Vec<PolicyPrice>, PredictError> {
        let mut all: Vec<(&str, &Policy)> = policies.iter().map(|policy| ("placed alone", policy)).collect();
        if self.advised.get().is_none() {
            // Beside others it takes next to no time.
            all.push((ADVISED, &self.advice.policy));
        }
        let mut prices = run_prices(self.summary, self.patterns, self.target, &all)?;
        if prices.len() > policies.len()
            && let Some(advised) = prices.pop()
        {
            self.advised.get_or_init(|| advised);
        }
        Ok(prices)
    }

    /// That of the advised policy.
    pub fn advised(&self) -> Result<Option<&PolicyPrice>, PredictError> {
        if self.advised.get().is_none() {
            self.of(&[])?;
        }
        Ok(self.advised.get())
    }

    /// What all placements of a list of fixes are expected to bring together, where that is more than what they bring
    /// one after the other: each alone leaves so much on one node that the others do not pay.
    pub fn only_together(&self, list: &[Fix]) -> Result<Option<Gain>, PredictError> {
        if list.iter().filter(|fix| is_placement(fix)).nth(1).is_none() {
            return Ok(None);
        }
        let all = self.advised()?.map(Gain::of);
        Ok(all.filter(|all| pay_only_together(list, all)))
    }
}

/// The fixes of all items, with the gains of those that a placement makes.
pub(super) fn priced(pricing: &Pricing<'_>, mut changed: Vec<(&Item, Vec<Fix>)>) -> Result<Vec<Fix>, PredictError> {
    changed.sort_by(|a, b| b.0.saved.total_cmp(&a.0.saved));
    let is_placed = |(item, fixes): &&(&Item, Vec<Fix>)| item.rule.is_ok() && fixes.iter().any(is_placement);
    let policy = &pricing.advice.policy;
    let alone = |(item, _): &(&Item, Vec<Fix>)| Policy { objects: item.rules().cloned().collect(), ..policy.clone() };
    let given: Vec<Policy> = changed.iter().filter(is_placed).take(MOST_PRICED).map(alone).collect();
    let prices = if given.is_empty() { Vec::new() } else { pricing.of(&given)? };
    let mut gains: Vec<Gain> = prices.iter().map(Gain::of).collect();
    let placed = changed.iter().filter(is_placed).zip(&gains);
    let others: Vec<Policy> =
        placed.filter(|(_, gain)| gain.is_loss()).map(|((item, _), _)| without(item, policy)).collect();
    if !others.is_empty() {
        let others = pricing.of(&others)?;
        for (gain, without) in gains.iter_mut().filter(|gain| gain.is_loss()).zip(&others) {
            *gain = pricing.advised()?.and_then(|all| after_others(all, without, gain)).unwrap_or(gain.clone());
        }
    }
    let mut gains = gains.into_iter();
    for (item, fixes) in &mut changed {
        if item.rule.is_err() || !fixes.iter().any(is_placement) {
            continue;
        }
        let gain =
            gains.next().unwrap_or_else(|| Gain::unpriced(format!("not priced: {MOST_PRICED} objects save more")));
        for fix in fixes.iter_mut().filter(|fix| is_placement(fix)) {
            fix.saves = gain.speedup.map(|speedup| 1.0 - 1.0 / speedup);
            fix.gain = gain.clone();
        }
        for fix in fixes.iter_mut().filter(|fix| fix.kind == FixKind::Duplicate) {
            fix.gain = of_copies(&gain);
        }
    }
    Ok(changed.into_iter().flat_map(|(_, fixes)| fixes).collect())
}

/// The advised policy without the rules of an object.
fn without(item: &Item, advised: &Policy) -> Policy {
    let mut policy = advised.clone();
    policy.objects.retain(|rule| item.rules().all(|own| own != rule));
    policy
}

/// The gain of an object whose placement alone slows the run down, because it adds to what another object has on a
/// node, and pays once that is placed. None where it does not then, either.
fn after_others(all: &PolicyPrice, without: &PolicyPrice, alone: &Gain) -> Option<Gain> {
    let more = all.speedup / without.speedup;
    (more > PAYS).then(|| {
        Gain::unpriced(format!(
            "expected {more:.2}x, after all other placements of this list: before them it slows the program down \
             ({:.2}x)",
            alone.speedup.unwrap_or(1.0)
        ))
    })
}

/// Whether all placements together bring more than one after the other do, by more than their ranges. `all` is the gain
/// of the advised policy.
fn pay_only_together(fixes: &[Fix], all: &Gain) -> bool {
    let gains = || fixes.iter().filter(|fix| is_placement(fix)).map(|fix| &fix.gain);
    let most = |gain: &Gain| Some(gain.high.or(gain.speedup)?.max(1.0));
    let one_by_one = gains().map(most).product::<Option<f64>>();
    let least = all.low.or(all.speedup);
    gains().nth(1).is_some() && one_by_one.zip(least).is_some_and(|(single, together)| together >= single * PAYS)
}

/// Whether the fix is the placement that the advice has for its object.
fn is_placement(fix: &Fix) -> bool {
    matches!(fix.kind, FixKind::ParallelFirstTouch | FixKind::Interleave)
}

/// That of a copy for each node in place of interleaving.
fn of_copies(interleaved: &Gain) -> Gain {
    let known = interleaved
        .speedup
        .filter(|_| !interleaved.is_loss())
        .map_or(String::new(), |speedup| format!(", which is expected to bring {speedup:.2}x,"));
    Gain::unpriced(format!(
        "not known: the model has no price for copies. Interleaving{known} leaves a part of the reads remote, and \
         copies none"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(name: &str, speedup: f64) -> PolicyPrice {
        let (low, high) = (Some(speedup - 0.02), Some(speedup + 0.02));
        let (local_share, busiest_node_share) = (None, None);
        PolicyPrice { name: name.into(), local_share, busiest_node_share, time: 1.0 / speedup, speedup, low, high }
    }

    fn after(advised: f64, without: f64) -> Option<String> {
        let (all, others) = (price(ADVISED, advised), price("all others placed", without));
        after_others(&all, &others, &Gain::of(&price("placed alone", 0.97))).map(|gain| gain.note)
    }

    /// The second of two vectors that are swapped, where one node has all of the first: to interleave it alone gives
    /// that node still more.
    #[test]
    fn what_alone_slows_the_program_down_is_priced_after_the_others() {
        let note = after(1.10, 1.02).expect("a gain");
        assert!(note.starts_with("expected 1.08x, after all other placements of this list"), "{note}");
        assert!(note.ends_with("before them it slows the program down (0.97x)"), "{note}");
        assert_eq!(after(1.02, 1.02), None, "nor then");
        assert_eq!(after(1.01, 1.02), None);
    }

    #[test]
    fn placements_that_gain_nothing_alone_pay_together() {
        let fix = |speedup: f64| Fix {
            kind: FixKind::Interleave,
            gain: Gain::of(&price("", speedup)),
            ..Fix::about_threads(FixKind::Interleave, Default::default(), String::new())
        };
        let together = |alone: &[f64], all: f64| {
            let fixes: Vec<Fix> = alone.iter().map(|speedup| fix(*speedup)).collect();
            pay_only_together(&fixes, &Gain::of(&price("advised", all)))
        };
        assert!(together(&[1.0, 1.0, 1.0], 1.27));
        assert!(!together(&[1.1, 1.15], 1.27), "within the ranges");
        assert!(!together(&[1.0], 1.27), "a single one");
        let unpriced = Fix { gain: Gain::unpriced("not priced"), ..fix(1.0) };
        assert!(!pay_only_together(&[fix(1.0), unpriced], &Gain::of(&price("advised", 1.27))), "not known");
    }

    #[test]
    fn a_range_wholly_below_one_is_a_loss() {
        assert!(Gain::of(&price("", 0.97)).is_loss());
        assert!(!Gain::of(&price("", 0.99)).is_loss(), "chance");
        assert!(!Gain::of(&price("", 1.03)).is_loss() && !Gain::unpriced("not known").is_loss());
    }
}
