//! When threads are there at a time.

use crate::profile::records::Thread;

/// Stretches of time, ascending and disjoint.
pub type Stretches = Vec<(u64, u64)>;

/// The life of a thread in a run of `run_ns`.
pub fn life(thread: &Thread, run_ns: u64) -> (u64, u64) {
    let end_ns = thread.end_ns.unwrap_or(run_ns);
    (thread.start_ns, end_ns.max(thread.start_ns))
}

/// The time that at least `least` of some stretches have in common.
pub fn shared_by(least: u32, stretches: impl IntoIterator<Item = (u64, u64)>) -> Stretches {
    let mut ends: Vec<(u64, bool)> = stretches
        .into_iter()
        .filter(|(from, to)| from < to)
        .flat_map(|(from, to)| [(from, true), (to, false)])
        .collect();
    // Where one ends and another one begins at a time, the end comes first: they have nothing in common.
    ends.sort_unstable();
    let (mut now, mut begun, mut out) = (0, 0, Stretches::new());
    for (at, begins) in ends {
        match begins {
            true => {
                now += 1;
                begun = if now == least { at } else { begun };
            }
            false => {
                out.extend((now == least && begun < at).then_some((begun, at)));
                now -= 1;
            }
        }
    }
    out
}

/// Length of all of them.
pub fn length(stretches: &[(u64, u64)]) -> u64 {
    stretches.iter().map(|(from, to)| to - from).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_in_common() {
        let all = [(0, 10), (4, 6), (5, 12), (12, 14), (20, 20)];
        assert_eq!(shared_by(1, all), [(0, 12), (12, 14)]);
        assert_eq!(shared_by(2, all), [(4, 10)]);
        assert_eq!(shared_by(3, all), [(5, 6)]);
        assert_eq!(shared_by(4, all), []);
        assert_eq!(length(&shared_by(1, all)), 14);
    }
}
