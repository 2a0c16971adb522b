//! Objects that no placement can help: smaller than a page, or hardly used.

use super::limits::HOT_SHARE;
use super::{ObjectView, Pattern, PatternKind};

/// Under a page: pages are the unit of placement.
pub(crate) fn small(view: &ObjectView) -> Option<Pattern> {
    (view.size < view.page_size).then(|| {
        let evidence = format!("{} bytes are less than a page of {} bytes", view.size, view.page_size);
        Pattern::new(PatternKind::Small, 1.0, evidence)
    })
}

/// Too little cost to matter.
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
