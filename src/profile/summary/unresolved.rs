//! Says when the samples do not show where the program waited.

use crate::profile::records::Stats;

/// Share of the samples from which the user is told. An object that has none of them may have all of these: with a
/// quarter it would be among the dearest, and any other object's share of the cost is up to a quarter too high.
const TOLD: f64 = 0.25;

/// A note when too many samples could not be attributed to a memory access.
pub(crate) fn note(stats: &Stats) -> Option<String> {
    let share = stats.unresolved as f64 / stats.samples.max(1) as f64;
    (share >= TOLD).then(|| {
        format!(
            "{:.0} % of the samples are unresolved, because the address of the memory access was lost: the objects' \
             shares of the cost are those of the other {:.0} %, and an object that is not in them may matter more",
            100.0 * share,
            100.0 * (1.0 - share)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_samples_is_told() {
        let stats = |unresolved| Stats { samples: 200, unresolved, ..Stats::default() };
        assert_eq!(note(&stats(49)), None);
        let told = note(&stats(194)).unwrap();
        assert!(told.starts_with("97 % of the samples are unresolved") && told.contains("the other 3 %"), "{told}");
        assert_eq!(note(&Stats::default()), None, "an imported profile has no samples");
    }
}
