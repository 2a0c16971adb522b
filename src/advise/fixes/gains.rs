//! What a change of a single object is expected to bring: the run on the target with the rules of this object alone.

use numamma_plan::policy::Policy;

use super::fix::{Fix, FixKind, Gain};
use crate::advise::{Advice, Given, Item, PredictError, Prediction, Target, predict};
use crate::detect::Pattern;
use crate::profile::summary::Summary;

/// Objects that are priced one by one, so that the time stays within a second for profiles of thousands of objects: each
/// price takes all others into account.
const MOST_PRICED: usize = 32;

/// The fixes of all items, with the gains of those that a placement makes.
pub(super) fn priced(
    summary: &Summary,
    patterns: &[Pattern],
    target: &Target,
    advice: &Advice,
    mut changed: Vec<(&Item, Vec<Fix>)>,
) -> Result<Vec<Fix>, PredictError> {
    changed.sort_by(|a, b| b.0.saved.total_cmp(&a.0.saved));
    let is_placed = |(item, fixes): &&(&Item, Vec<Fix>)| item.rule.is_ok() && fixes.iter().any(is_placement);
    let alone = |(number, (item, _)): (usize, &(&Item, Vec<Fix>))| Given {
        name: name(number),
        policy: Policy { objects: item.rules().cloned().collect(), ..advice.policy.clone() },
    };
    let given: Vec<Given> = changed.iter().filter(is_placed).take(MOST_PRICED).enumerate().map(alone).collect();
    let prediction = match given.is_empty() {
        true => None,
        false => Some(predict(summary, patterns, target, advice, &given)?),
    };
    let mut number = 0;
    for (item, fixes) in &mut changed {
        if item.rule.is_err() || !fixes.iter().any(is_placement) {
            continue;
        }
        let gain = gain(prediction.as_ref(), number);
        number += 1;
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

/// Whether the fix is the placement that the advice has for its object.
fn is_placement(fix: &Fix) -> bool {
    matches!(fix.kind, FixKind::ParallelFirstTouch | FixKind::Interleave)
}

fn gain(prediction: Option<&Prediction>, number: usize) -> Gain {
    let priced = prediction.and_then(|p| p.policies.iter().find(|price| price.name == name(number)));
    let left_out = || Gain::unpriced(format!("not priced: {MOST_PRICED} objects save more"));
    priced.map_or_else(left_out, Gain::of)
}

/// That of a copy for each node in place of interleaving.
fn of_copies(interleaved: &Gain) -> Gain {
    let known =
        interleaved.speedup.map_or(String::new(), |speedup| format!(", which is expected to bring {speedup:.2}x,"));
    Gain::unpriced(format!(
        "not known: the model has no price for copies. Interleaving{known} leaves a part of the reads remote, and copies none"
    ))
}

fn name(number: usize) -> String {
    format!("placed alone, {number}")
}
