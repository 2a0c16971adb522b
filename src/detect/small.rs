//! Objects that no placement can speed up: smaller than a page, or with a negligible share of the cost.

use super::limits::HOT_SHARE;
use super::{ObjectView, Pattern, PatternKind};

/// The pattern of an object smaller than a page, which is the unit of placement.
pub(crate) fn small(view: &ObjectView) -> Option<Pattern> {
    (view.size < view.page_size).then(|| {
        let evidence = format!("{} bytes are less than a page of {} bytes", view.size, view.page_size);
        Pattern::new(PatternKind::Small, 1.0, evidence)
    })
}

/// The pattern of an object below [`HOT_SHARE`] of the cost.
pub(crate) fn cold(view: &ObjectView) -> Option<Pattern> {
    (view.cost_share < HOT_SHARE).then(|| {
        let evidence = format!(
            "{:.2} % of the cost is under the {:.0} % that can matter",
            100.0 * view.cost_share,
            100.0 * HOT_SHARE
        );
        Pattern::new(PatternKind::Cold, 1.0, evidence)
    })
}
