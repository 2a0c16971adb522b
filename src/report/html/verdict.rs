//! The run in one paragraph: what costs, what can be placed, what it will bring.

use super::Extra;
use crate::report::View;
use crate::report::units::{percent, plural};

/// Part of the cost that the named objects reach.
const MOST_OF_IT: f64 = 0.8;

/// The paragraph.
pub(super) fn of(view: &View, extra: &Extra) -> String {
    let mut parts = vec![objects(view)];
    if let Some((advice, _)) = &extra.advice {
        let placed: Vec<_> = advice.items.iter().filter(|i| i.rule.is_ok()).collect();
        let share = placed.iter().fold(0.0, |sum, i| sum + i.share);
        parts.push(match placed.len() {
            0 => "The advice places none of them: the list says why for each.".to_owned(),
            n => format!("The advice places {} with {} of the cost.", plural(n as u64, "object"), percent(share)),
        });
    }
    parts.extend(expected(extra));
    parts.extend(extra.missing.clone());
    parts.join(" ")
}

fn objects(view: &View) -> String {
    let shown: Vec<f64> =
        view.ranked().iter().filter(|e| e.placeable()).map(|e| view.cost_share(e)).filter(|s| *s > 0.0).collect();
    let all: f64 = shown.iter().sum();
    let (mut sum, mut count) = (0.0, 0);
    for share in &shown {
        if count > 0 && sum >= MOST_OF_IT * all {
            break;
        }
        sum += share;
        count += 1;
    }
    if count == 0 {
        return "No object was seen to cost anything.".into();
    }
    let verb = if count == 1 { "has" } else { "have" };
    format!("{} {verb} {} of the CPU time at memory accesses.", plural(count, "object"), percent(sum))
}

fn expected(extra: &Extra) -> Option<String> {
    let (target, is_assumed) = extra.target?;
    let advised = extra.prediction?.policies.iter().find(|p| p.name == "advised")?;
    let baseline = extra.prediction?.baseline;
    let range = match (advised.low, advised.high) {
        (Some(low), Some(high)) => {
            let [low, high] = [low, high].map(|end| format!("{end:.2}x"));
            if low == high { low } else { format!("{low} to {high}") }
        }
        (Some(low), None) => format!("at least {low:.2}x"),
        _ => format!("{:.2}x", advised.speedup),
    };
    let assumed = if is_assumed {
        ", a machine that is assumed as the one here has a single node (--nodes, --target name another)"
    } else {
        ""
    };
    Some(format!("Expected speed-up over {baseline}: {range} on {}{assumed}.", target.model.name))
}
