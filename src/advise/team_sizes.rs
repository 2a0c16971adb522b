//! How many workers each team of the profile has on the target.
//!
//! A number of threads that the user gives, or that is assumed for a small run, is that of the team with most accesses
//! and of teams that are as large. Any other team keeps its number: three consumers of a queue are three on any
//! machine. A team inside another one has its number for each worker of that one. The policy gives these numbers to the
//! apply library, and layouts, prices and placements by number are made for the same.

use numamma_plan::teams::Rank;

use super::Target;
use super::block_layout::extrapolate;
use crate::detect::Roles;

/// The sizes of all teams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TeamSizes {
    /// Workers of one team of each kind on the target; 0 for kinds that do not work.
    of_kind: Vec<u32>,
    /// Whether the team is one that scales with the machine, by kind.
    scales: Vec<bool>,
    /// Workers in the profile and on the target, nested teams multiplied: [`Rank::of`] of a worker here and there.
    totals: Vec<(u32, u32)>,
}

impl TeamSizes {
    pub fn of(roles: &Roles, target: &Target) -> TeamSizes {
        let (scaling, wanted) = (roles.workers, target.threads);
        let processes = roles.processes.max(1);
        let mut sizes = TeamSizes { of_kind: Vec::new(), scales: Vec::new(), totals: Vec::new() };
        // Workers of the team in the profile and on the target, by kind. A creator's kind comes before those of its
        // teams.
        let mut whole: Vec<(u32, u32)> = Vec::new();
        for kind in &roles.teams {
            let outer = kind.creator.and_then(|creator| whole.get(creator)).copied();
            let (seen_outside, outside) = outer.unwrap_or((processes, processes));
            let team = kind.team();
            let seen = seen_outside * team.max(1);
            let scales = team > 0 && seen == scaling;
            let size = match scales && seen != wanted {
                true => wanted.div_ceil(outside.max(1)).clamp(1, wanted.max(1)),
                false => team,
            };
            whole.push((seen, outside * size.max(1)));
            if team > 0 {
                sizes.totals.push((seen, outside * size));
            }
            sizes.of_kind.push(size);
            sizes.scales.push(scales);
        }
        // Processes of one thread each, and roles that have no kinds.
        sizes.totals.push((scaling, wanted));
        sizes.totals.sort_by_key(|(seen, _)| *seen);
        sizes.totals.dedup_by_key(|(seen, _)| *seen);
        sizes
    }

    /// Workers on the target of one team of a kind, an index into [`Roles::teams`].
    pub fn of_kind(&self, kind: usize) -> u32 {
        self.of_kind.get(kind).copied().unwrap_or(0)
    }

    /// Whether the size of a kind's teams follows the machine.
    pub fn scales(&self, kind: usize) -> bool {
        self.scales.get(kind).copied().unwrap_or(false)
    }

    /// Workers on the target of the team that has `seen` in the profile.
    pub fn on_target(&self, seen: u32) -> u32 {
        let found = self.totals.binary_search_by_key(&seen, |(seen, _)| *seen);
        found.map_or(seen, |at| self.totals[at].1).max(1)
    }

    /// The worker of the target that takes over from one of the profile, at `part` (0 to 1) of its slice.
    pub fn successor(&self, rank: Rank, part: f64) -> Rank {
        let of = self.on_target(rank.of);
        Rank { rank: extrapolate(rank.rank, part, rank.of, of), of }
    }

    /// The sizes of all teams of at least two workers in the profile and on the target, the largest first.
    pub fn totals(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.totals.iter().rev().copied().filter(|(seen, _)| *seen > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::roles::Kind;
    use crate::topology::model::Model;
    use numamma_plan::machine::Thp;

    fn kind(workers: u32, creator: Option<usize>) -> Kind {
        let slots = (0..workers).collect();
        let (origins, openmp, creator_works) = Default::default();
        Kind { origins, openmp, creator, threads: workers, slots, width: workers, creator_works, share: 0.5 }
    }

    /// Main, and the kinds given; `workers` are those of the team with most accesses.
    fn sizes(workers: u32, kinds: &[Kind], threads: u32) -> TeamSizes {
        let mut roles = Roles::in_order(workers);
        roles.teams = [&[kind(0, None)], kinds].concat();
        TeamSizes::of(&roles, &Target::of(Model::uniform(4, 8), threads, Thp::Never))
    }

    #[test]
    fn only_the_team_of_most_accesses_scales() {
        let loaders_and_solvers = [kind(3, None), kind(5, None)];
        let same = sizes(5, &loaders_and_solvers, 5);
        assert_eq!((same.of_kind(1), same.of_kind(2), same.on_target(3), same.on_target(5)), (3, 5, 3, 5));
        let more = sizes(5, &loaders_and_solvers, 16);
        assert_eq!((more.of_kind(1), more.of_kind(2), more.on_target(3), more.on_target(5)), (3, 16, 3, 16));
        assert_eq!((more.scales(1), more.scales(2)), (false, true));
        let loaders = sizes(3, &loaders_and_solvers, 12);
        assert_eq!((loaders.of_kind(1), loaders.of_kind(2)), (12, 5));
        // Worker 2 of 3 stays that; worker 2 of 5 has the middle of the work, and half way through it worker 8 takes
        // over.
        assert_eq!(more.successor(Rank { rank: 2, of: 3 }, 0.9), Rank { rank: 2, of: 3 });
        assert_eq!(more.successor(Rank { rank: 2, of: 5 }, 0.5), Rank { rank: 8, of: 16 });
    }

    #[test]
    fn pools_of_the_same_size_scale_together() {
        let pools = sizes(4, &[kind(4, None), kind(4, None)], 8);
        assert_eq!((pools.of_kind(1), pools.of_kind(2), pools.on_target(4)), (8, 8, 8));
        assert_eq!(pools.on_target(1), 1, "the main thread");
    }

    #[test]
    fn of_nested_teams_the_inner_ones_grow() {
        let nested = [kind(2, None), kind(4, Some(1)), kind(3, None)];
        let more = sizes(8, &nested, 16);
        assert_eq!((more.of_kind(1), more.of_kind(2), more.of_kind(3)), (2, 8, 3));
        assert_eq!((more.on_target(8), more.on_target(2)), (16, 2));
        // Two teams of the same size that make 9 are 10 workers.
        let odd = sizes(8, &nested, 9);
        assert_eq!((odd.of_kind(2), odd.on_target(8)), (5, 10));
        // The outer team has the accesses: teams inside it keep their number for each of its workers.
        let outer = sizes(2, &nested, 4);
        assert_eq!((outer.of_kind(1), outer.of_kind(2), outer.on_target(8)), (4, 4, 16));
    }
}
