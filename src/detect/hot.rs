//! Which objects matter. Hot means together: of sixty arrays with half a per cent of the cost each none would matter
//! alone, and a variable shared by all threads, which no placement helps, must not make all others look cold.

use super::limits::{COVERED, HOT_SHARE};
use super::view::cost_shares;
use crate::profile::summary::{Entry, Summary};

/// Whether each entry of `summary` is worth a verdict, in their order: those with [`HOT_SHARE`] of the run's cost, and
/// the dearest of what a placement can reach until they have [`COVERED`] of its cost.
pub fn hot(summary: &Summary) -> Vec<bool> {
    let shares = cost_shares(summary);
    let page = summary.header.page_size.max(1);
    let reached = |entry: &Entry| entry.placeable() && entry.size >= page && !entry.is_read_only(&summary.modules);
    let mut order: Vec<usize> =
        (0..shares.len()).filter(|&i| shares[i] > 0.0 && reached(&summary.entries[i])).collect();
    order.sort_by(|a, b| shares[*b].total_cmp(&shares[*a]));
    let mut missing = COVERED * order.iter().map(|&i| shares[i]).sum::<f64>();
    let mut hot: Vec<bool> = shares.iter().map(|share| *share >= HOT_SHARE).collect();
    for index in order {
        if missing <= 0.0 {
            break;
        }
        hot[index] = true;
        missing -= shares[index];
    }
    hot
}
