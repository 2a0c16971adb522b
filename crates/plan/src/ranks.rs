//! MPI ranks: which rank this process is, and lists of ranks such as `0-1,4` or `8-`.
//!
//! The rank is read from the environment variables of the launcher, so it is known before `main` and without linking
//! MPI.

use crate::unusable::Unusable;

/// Variables that hold the rank in the whole job; an inner launcher's variable precedes that of an outer one: Open
/// MPI's mpirun (documented under "Environment variables set for MPI applications"), MVAPICH2, Hydra of MPICH and
/// Intel MPI (PMI-1), then PMIx.
const RANK: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"];
/// Rank under srun. A batch script has this variable, too (0), so it counts only in a step with several tasks.
const SLURM_RANK: &str = "SLURM_PROCID";
const SLURM_TASKS: &str = "SLURM_STEP_NUM_TASKS";

/// The rank of this process in its MPI job; `None` when no launcher set one.
pub fn this_rank() -> Option<u32> {
    rank_from(|name| std::env::var(name).ok())
}

fn rank_from(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
    RANK.iter()
        .find_map(|name| number(name))
        .or_else(|| number(SLURM_TASKS).filter(|tasks| *tasks > 1).and_then(|_| number(SLURM_RANK)))
}

/// A list of ranks; a range may have no upper end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks(Vec<(u32, u32)>);

/// What a list of ranks is.
const LIST: &str = "a list of ranks; write numbers and ranges such as \"0-1,4\", or \"8-\" for all from 8";

impl Ranks {
    /// Reads `0`, `0-1,4` or `8-`.
    ///
    /// # Errors
    /// The part that is neither a number nor an ascending range.
    pub fn parse(text: &str) -> Result<Ranks, Unusable> {
        let range = |part: &str| {
            let number = |text: &str| text.trim().parse::<u32>().ok();
            let ends = match part.split_once('-') {
                None => number(part).map(|n| (n, n)),
                Some((from, to)) if to.trim().is_empty() => number(from).map(|n| (n, u32::MAX)),
                Some((from, to)) => number(from).zip(number(to)),
            };
            ends.filter(|(from, to)| from <= to).ok_or_else(|| Unusable::form(part.trim(), LIST))
        };
        text.split(',').map(range).collect::<Result<Vec<_>, _>>().map(Ranks)
    }

    /// Whether `rank` is listed.
    pub fn holds(&self, rank: u32) -> bool {
        self.0.iter().any(|&(from, to)| (from..=to).contains(&rank))
    }
}

/// Whether a rule for `ranks` applies in a process of rank `rank`. A rule without ranks applies in every process; a
/// rule with ranks does not apply in a process without a rank.
pub fn applies(ranks: Option<&str>, rank: Option<u32>) -> bool {
    match (ranks.map(Ranks::parse), rank) {
        (None, _) => true,
        (Some(Ok(ranks)), Some(rank)) => ranks.holds(rank),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_ranks() {
        let held = |text: &str| (0..12).filter(|r| Ranks::parse(text).unwrap().holds(*r)).collect::<Vec<_>>();
        assert_eq!(held("0"), [0]);
        assert_eq!(held(" 0-1, 4 "), [0, 1, 4]);
        assert_eq!(held("2,8-"), [2, 8, 9, 10, 11]);
        for wrong in ["", "x", "3-1", "-2", "1,,2", "4294967296", "1-2-3"] {
            assert!(Ranks::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Ranks::parse("0,b-2").unwrap_err().to_string().contains("`b-2`"));
    }

    #[test]
    fn rules_without_ranks_are_everywhere_and_with_ranks_nowhere_without_one() {
        assert!(applies(None, None) && applies(None, Some(3)));
        assert!(applies(Some("0-1"), Some(1)) && !applies(Some("0-1"), Some(2)) && !applies(Some("0-"), None));
    }

    #[test]
    fn ranks_of_launchers() {
        let rank = |set: &[(&str, &str)]| {
            rank_from(|name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(rank(&[]), None);
        assert_eq!(rank(&[("PMIX_RANK", "7"), ("OMPI_COMM_WORLD_RANK", "3")]), Some(3));
        assert_eq!(rank(&[("PMI_RANK", "2")]), Some(2));
        assert_eq!(rank(&[("MV2_COMM_WORLD_RANK", "x"), ("PMIX_RANK", "1")]), Some(1));
        // Neither a batch script nor a step of one task has a rank.
        assert_eq!(rank(&[("SLURM_PROCID", "0")]), None);
        assert_eq!(rank(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]), None);
        assert_eq!(rank(&[("SLURM_PROCID", "5"), ("SLURM_STEP_NUM_TASKS", "8")]), Some(5));
        // mpirun inside a batch script or step.
        assert_eq!(rank(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "2"), ("PMI_RANK", "1")]), Some(1));
    }
}
