//! Objects that no placement can speed up: smaller than a page, or with a negligible share of the cost.

use super::limits::COVERED;
use super::{ObjectView, Pattern, PatternKind};

/// The pattern of an object smaller than a page, which is the unit of placement.
pub(crate) fn small(view: &ObjectView) -> Option<Pattern> {
    (view.size < view.page_size).then(|| {
        let evidence = format!("{} bytes are less than a page of {} bytes", view.size, view.page_size);
        Pattern::new(PatternKind::Small, 1.0, evidence)
    })
}

/// The pattern of an object that does not matter, nor together with others.
pub(crate) fn cold(view: &ObjectView) -> Option<Pattern> {
    (!view.hot).then(|| {
        let evidence = format!(
            "{:.2} % of the cost: objects with more have {:.0} % of the cost of all that placing can reach",
            100.0 * view.cost_share,
            100.0 * COVERED
        );
        Pattern::new(PatternKind::Cold, 1.0, evidence)
    })
}
