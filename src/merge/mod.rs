//! Several profiles of one program as one: the ranks of an MPI job, or several runs.
//!
//! [`load()`] reads the profiles one after another and keeps none of them: each is numbered like the others
//! ([`catalog`]), laid over them ([`sum`]) and dropped. Processes that do alike are one group, with the samples of all;
//! a process that uses its objects in another way ([`digest`]) is not mixed with them, but opens a group of its own.
//!
//! Refused: profiles of other programs or machines, and files that cannot be read. They are named, and the rest goes
//! on.

mod catalog;
mod cells;
pub mod diff;
pub mod digest;
mod files;
mod groups;
mod load;
mod notes;
mod object;
mod outliers;
mod sum;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use numamma_plan::nodes::format_runs;

use crate::profile::summary::Summary;

pub use catalog::Known;
pub use digest::{Difference, Digest};
pub use files::{LeftOut, listed};
pub use load::load;
pub use outliers::Outlier;

/// Profiles of one program.
#[derive(Debug)]
pub struct Many {
    /// All of them together.
    pub whole: Summary,
    /// The groups of processes that do alike, the largest first; empty when all do, or when they differ in more than
    /// [`MOST_GROUPS`] ways.
    pub groups: Vec<Group>,
    /// Every process, in the order of the files.
    pub members: Vec<Member>,
    /// The objects that processes are compared by.
    pub objects: Vec<Known>,
    /// Whether processes differ in more than [`MOST_GROUPS`] ways.
    pub unlike: bool,
    /// What was not read.
    pub left_out: Vec<LeftOut>,
}

/// Groups at most. Each has its own advice, and each is kept in memory.
pub const MOST_GROUPS: usize = 4;

/// Processes that do alike.
#[derive(Debug)]
pub struct Group {
    /// Their sum.
    pub summary: Summary,
    /// Indices into [`Many::members`], ascending.
    pub members: Vec<usize>,
}

/// One process.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Its profile.
    pub file: PathBuf,
    /// Its rank, if a launcher gave it one.
    pub rank: Option<u32>,
    /// Where it ran.
    pub host: String,
    /// Samples taken.
    pub samples: u64,
    /// Length of its run, ns.
    pub duration_ns: u64,
    /// What it did with its objects.
    pub digest: Digest,
}

impl Member {
    /// `rank 3`, or the name of its file.
    pub fn name(&self) -> String {
        self.rank.map_or_else(|| self.file.display().to_string(), |rank| format!("rank {rank}"))
    }

    /// `numamma.3.prof (rank 3)`, or the name of its file.
    pub fn file_and_rank(&self) -> String {
        let file = self.file.display();
        self.rank.map_or_else(|| file.to_string(), |rank| format!("{file} (rank {rank})"))
    }
}

impl Many {
    /// The ranks of each group, where every process has a rank and no rank is in two groups: only then can rules say
    /// which is which.
    pub fn ranks(&self) -> Option<Vec<Vec<u32>>> {
        let of = |group: &Group| -> Option<Vec<u32>> {
            let mut ranks = group.members.iter().map(|&m| self.members.get(m)?.rank).collect::<Option<Vec<u32>>>()?;
            ranks.sort_unstable();
            ranks.dedup();
            Some(ranks)
        };
        let ranks = self.groups.iter().map(of).collect::<Option<Vec<_>>>()?;
        let mut all: Vec<u32> = ranks.iter().flatten().copied().collect();
        all.sort_unstable();
        let several = ranks.len() > 1 && all.windows(2).all(|pair| pair[0] < pair[1]);
        several.then_some(ranks)
    }

    /// What a message calls the processes of a group: `ranks 0-2,5`, or the names of their files.
    pub fn words(&self, group: usize) -> String {
        const MOST: usize = 4;
        if let Some(ranks) = self.ranks().and_then(|all| all.into_iter().nth(group)) {
            let word = if ranks.len() == 1 { "rank" } else { "ranks" };
            return format!("{word} {}", format_runs(&ranks));
        }
        let members = self.groups.get(group).map_or(&[][..], |g| &g.members);
        let mut names: Vec<String> = members.iter().filter_map(|m| Some(self.members.get(*m)?.name())).collect();
        let more = names.len().saturating_sub(MOST);
        names.truncate(MOST);
        if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
    }

    /// The processes that differ from most others, and how.
    pub fn outliers(&self) -> Vec<Outlier> {
        outliers::of(self)
    }
}
