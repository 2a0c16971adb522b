//! Accesses of which only the object is known weigh in its verdict: a pattern says what is known of the others only.

use super::{Pattern, PatternKind};
use crate::profile::summary::Entry;

/// Share of the cost from which the evidence mentions accesses without a page. Patterns allow for noise, of which a
/// twentieth is not much.
const SHOWN: f64 = 0.05;

/// Share of an entry's cost (of its accesses, when none has a cost) that has no known page, where it is worth
/// mentioning.
pub fn unpaged_share(entry: &Entry) -> Option<f64> {
    Some(share(entry)).filter(|share| *share >= SHOWN)
}

/// Whether a longer run would not tell the pattern: of most of the cost only the object is known.
pub fn mostly_unpaged(entry: &Entry) -> bool {
    share(entry) > 0.5
}

fn share(entry: &Entry) -> f64 {
    let (total, lost) = (&entry.total, &entry.details.unpaged);
    let (part, whole) =
        if total.cost_ns > 0 { (lost.cost_ns, total.cost_ns) } else { (lost.accesses(), total.accesses()) };
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Lowers the confidence in a pattern by the part of the cost that it was not concluded from: that part may be of any
/// pattern.
pub(super) fn weigh(entry: &Entry, pattern: &mut Pattern) {
    if matches!(pattern.kind, PatternKind::Small | PatternKind::Cold) {
        return;
    }
    let share = share(entry);
    if pattern.kind != PatternKind::Unsure {
        pattern.confidence *= 1.0 - share;
    }
    if share < SHOWN {
        return;
    }
    let accesses = entry.details.unpaged.accesses() as f64 / entry.total.accesses().max(1) as f64;
    let rest = if pattern.kind == PatternKind::Unsure && mostly_unpaged(entry) {
        // Nor is it said how much longer to run: what a run of any length lacks are the pages.
        pattern.evidence = "not enough samples of a known page".into();
        "the pages of these accesses cannot be known"
    } else if share > 0.5 {
        "the pattern is that of the smaller rest, which may not be typical"
    } else {
        "the pattern is that of the others"
    };
    pattern.evidence += &format!(
        "; {:.0} % of its accesses, with {:.0} % of its cost, have no known page: {rest}",
        100.0 * accesses,
        100.0 * share
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::summary::{Counters, Details};

    fn entry(unpaged: u64) -> Entry {
        let counters = |cost_ns| Counters { reads: 2 * cost_ns, cost_ns, ..Counters::default() };
        let details = Details { unpaged: counters(unpaged), ..Details::default() };
        Entry { total: counters(100), details, ..Entry::default() }
    }

    fn weighed(kind: PatternKind, unpaged: u64) -> Pattern {
        let mut pattern = Pattern::new(kind, 0.9, "as found".into());
        weigh(&entry(unpaged), &mut pattern);
        pattern
    }

    #[test]
    fn a_pattern_of_a_part_is_less_sure_and_says_so() {
        let most = weighed(PatternKind::Block, 80);
        assert!((most.confidence - 0.18).abs() < 1e-9, "{}", most.confidence);
        assert!(most.evidence.contains("80 % of its accesses, with 80 % of its cost, have no known page"), "{most:?}");
        assert!(most.evidence.contains("smaller rest"));
        let some = weighed(PatternKind::Block, 10);
        assert!((some.confidence - 0.81).abs() < 1e-9 && some.evidence.contains("that of the others"), "{some:?}");
        assert_eq!(unpaged_share(&entry(10)), Some(0.1));
    }

    #[test]
    fn little_is_not_mentioned_and_small_objects_are_not_weighed() {
        let little = weighed(PatternKind::Random, 2);
        assert!(little.confidence < 0.9 && little.evidence == "as found", "{little:?}");
        assert_eq!(unpaged_share(&entry(2)), None);
        let small = weighed(PatternKind::Small, 80);
        assert!((small.confidence - 0.9).abs() < 1e-9 && small.evidence == "as found");
        let unsure = weighed(PatternKind::Unsure, 80);
        assert!((unsure.confidence - 0.9).abs() < 1e-9 && unsure.evidence.contains("no known page"));
        assert!(unsure.evidence.contains("cannot be known") && !unsure.evidence.contains("as found"), "{unsure:?}");
        assert!(weighed(PatternKind::Unsure, 10).evidence.starts_with("as found"));
    }
}
