//! Which of the placements that would gain something are advised: together they must have most of the gain, and be
//! worth it. A limit for each object alone would leave sixty arrays unplaced that save a tenth of a per cent each.

use super::item::Draft;

/// Part of the time in which the program runs that placements must save: smaller savings vanish in the variation
/// between runs.
pub(super) const WORTH: f64 = 0.002;
/// Part of the gain of all placements that the advised ones have together: the figure stated in the project's contract.
const MOST_OF_GAIN: f64 = 0.95;

/// Takes the rules of those drafts away that are not needed: the least savings, as far as each is below [`WORTH`] and
/// the others have [`MOST_OF_GAIN`], and all when they are below [`WORTH`] together. Those that are placed even so keep
/// their rules, and promise nothing.
pub(super) fn keep(drafts: &mut [Draft]) {
    let mut order: Vec<usize> = (0..drafts.len()).filter(|&i| drafts[i].item.rule.is_ok()).collect();
    order.sort_by(|a, b| drafts[*b].saved.total_cmp(&drafts[*a].saved));
    let total: f64 = order.iter().map(|&i| drafts[i].saved).sum();
    let mut covered = 0.0;
    for index in order {
        let draft = &mut drafts[index];
        let needed = total >= WORTH && (draft.saved >= WORTH || covered < MOST_OF_GAIN * total);
        covered += draft.saved;
        if needed {
            continue;
        }
        if let (Some(why), Ok(rule)) = (draft.even_so.take(), draft.item.rule.as_mut()) {
            rule.why = Some(why);
            (draft.saved, draft.item.saved) = (0.0, 0.0);
        } else {
            let why =
                if total < WORTH { "too little to be seen" } else { "and the rules here save nearly all that can be" };
            let evidence = draft.item.pattern.as_ref().map(|p| p.evidence.as_str()).unwrap_or_default();
            let saved = 100.0 * draft.saved;
            draft.item.rule = Err(format!(
                "{evidence}; over first touch the best policy would save {saved:.2} % of the running time, {why}"
            ));
            draft.item.more.clear();
        }
    }
}
