//! Which processes do alike, decided while they are read.
//!
//! As many processes as fit in [`HELD`] cells are kept and compared all with all; for small profiles that is all of
//! them. Every further process is compared with the groups so far.

use std::path::PathBuf;

use super::catalog::{Catalog, Process};
use super::digest::Digest;
use super::notes::Notes;
use super::sum::Processes;
use super::{Group, LeftOut, MOST_GROUPS, Many, Member};
use crate::profile::summary::{Entry, Summary};

/// What is kept until there are groups, in cells ([`weight`]): as many as a sum keeps.
const HELD: usize = 1 << 21;

/// The processes read so far.
#[derive(Debug, Default)]
pub(super) struct Builder {
    catalog: Catalog,
    waiting: Vec<Process>,
    held: usize,
    groups: Vec<Open>,
    members: Vec<Member>,
    notes: Notes,
    unlike: bool,
}

/// A group that grows.
#[derive(Debug)]
struct Open {
    sum: Processes,
    digest: Digest,
    members: Vec<usize>,
}

impl Builder {
    /// Adds the profile of a process.
    pub fn add(&mut self, file: PathBuf, summary: Summary) {
        let process = self.catalog.translate(summary);
        let member = member(file, &process);
        self.notes.add(&member, &process.summary);
        let at = self.members.len();
        if self.groups.is_empty() {
            self.held += weight(&process.summary);
            self.waiting.push(process);
            self.members.push(member);
            if self.held > HELD {
                self.open();
            }
            return;
        }
        let group = self.group_of(&member.digest);
        self.members.push(member);
        self.join(group, at, &process);
    }

    /// The group that a process belongs to; one more than there are for a new one.
    fn group_of(&mut self, digest: &Digest) -> usize {
        if self.unlike {
            return 0;
        }
        let pools: Vec<&Digest> = self.groups.iter().map(|g| &g.digest).collect();
        match alike(digest, &pools) {
            Some(group) => group,
            None if self.groups.len() < MOST_GROUPS => self.groups.len(),
            None => {
                self.unlike = true;
                self.join_all();
                0
            }
        }
    }

    fn join(&mut self, group: usize, member: usize, process: &Process) {
        if group == self.groups.len() {
            let sum = Processes::new(process.summary.header.clone());
            self.groups.push(Open { sum, digest: Digest::default(), members: Vec::new() });
        }
        let group = &mut self.groups[group];
        group.sum.add(process, &self.catalog.symbols);
        group.digest.add(&self.members[member].digest);
        group.members.push(member);
    }

    /// Makes groups of the processes that wait.
    fn open(&mut self) {
        let digests: Vec<&Digest> = self.members.iter().map(|m| &m.digest).collect();
        let groups = clusters(&digests);
        self.unlike = groups.len() > MOST_GROUPS;
        let mut of = vec![0; digests.len()];
        if !self.unlike {
            // Each group is opened by its first process.
            let mut order: Vec<&Vec<usize>> = groups.iter().collect();
            order.sort_by_key(|group| group.first());
            order.iter().enumerate().for_each(|(at, group)| group.iter().for_each(|m| of[*m] = at));
        }
        for (member, process) in std::mem::take(&mut self.waiting).into_iter().enumerate() {
            self.join(of[member], member, &process);
        }
    }

    /// Makes one group of all.
    fn join_all(&mut self) {
        let Some((first, rest)) = self.groups.split_first_mut() else { return };
        for group in rest.iter_mut() {
            let process = group.sum.as_process();
            first.sum.absorb(&process, &self.catalog.symbols);
            first.digest.add(&group.digest);
            first.members.append(&mut group.members);
        }
        first.members.sort_unstable();
        self.groups.truncate(1);
    }

    /// All processes; none when there is none.
    pub fn finish(mut self, left_out: Vec<LeftOut>) -> Option<Many> {
        if self.groups.is_empty() {
            self.open();
        }
        let catalog = std::mem::take(&mut self.catalog);
        self.groups.sort_by_key(|g| std::cmp::Reverse(g.members.len()));
        let mut groups = Vec::new();
        let mut whole = match self.groups.len() {
            0 => return None,
            1 => self.groups.remove(0).sum.finish(&catalog),
            _ => {
                let mut whole: Option<Processes> = None;
                for Open { mut sum, members, .. } in self.groups {
                    let process = sum.as_process();
                    let whole = whole.get_or_insert_with(|| Processes::new(process.header().clone()));
                    whole.absorb(&process, &catalog.symbols);
                    groups.push(Group { summary: sum.finish(&catalog), members });
                }
                whole?.finish(&catalog)
            }
        };
        let (members, unlike, objects) = (self.members, self.unlike, catalog.known);
        whole.header.host = hosts(&members);
        whole.notes.splice(0..0, self.notes.finish(&whole.stats));
        Some(Many { whole, groups, members, objects, unlike, left_out })
    }
}

/// About the memory that a process takes, in cells: those of its objects and of their parts by code; instances, first
/// touches and threads are smaller, an object is as ten.
fn weight(summary: &Summary) -> usize {
    let of = |e: &Entry| {
        let parts = e.by_code.iter().map(|p| p.cells.len()).sum::<usize>();
        10 + e.cells.len() + parts + e.seen.len() + e.touches.len()
    };
    summary.entries.iter().map(of).sum::<usize>() + summary.threads.len()
}

/// The host of all processes, or how many more there are.
fn hosts(members: &[Member]) -> String {
    let mut hosts: Vec<&str> = members.iter().map(|m| m.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    match hosts[..] {
        [] => String::new(),
        [one] => one.to_owned(),
        [first, ref more @ ..] => format!("{first} and {} more", more.len()),
    }
}

/// What is kept of a process.
pub(super) fn member(file: PathBuf, process: &Process) -> Member {
    let summary = &process.summary;
    Member {
        file,
        rank: summary.rank,
        host: summary.header.host.clone(),
        samples: summary.stats.samples,
        duration_ns: summary.stats.duration_ns,
        digest: Digest::of(process),
    }
}

/// The first of the pools that a process does not differ from.
fn alike(digest: &Digest, pools: &[&Digest]) -> Option<usize> {
    pools.iter().position(|pool| digest.differences(pool).is_empty())
}

/// Processes in groups: each, from the one with most samples on, joins a group that it does not differ from or opens
/// one. Then each is compared again with its group without it, which shows more than a single process did.
fn clusters(digests: &[&Digest]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..digests.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(digests[i].accesses), i));
    let mut pools: Vec<Digest> = Vec::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for &i in &order {
        place(i, digests, &mut pools, &mut groups);
    }
    for &i in &order {
        let Some(own) = groups.iter().position(|g| g.contains(&i)).filter(|own| groups[*own].len() > 1) else {
            continue;
        };
        groups[own].retain(|m| *m != i);
        pools[own] = pool(digests, &groups[own]);
        if digests[i].differences(&pools[own]).is_empty() {
            groups[own].push(i);
            pools[own].add(digests[i]);
        } else {
            place(i, digests, &mut pools, &mut groups);
        }
    }
    groups.retain(|g| !g.is_empty());
    groups.iter_mut().for_each(|g| g.sort_unstable());
    groups
}

fn place(i: usize, digests: &[&Digest], pools: &mut Vec<Digest>, groups: &mut Vec<Vec<usize>>) {
    let known: Vec<&Digest> = pools.iter().collect();
    let at = alike(digests[i], &known).unwrap_or(pools.len());
    if at == pools.len() {
        pools.push(Digest::default());
        groups.push(Vec::new());
    }
    pools[at].add(digests[i]);
    groups[at].push(i);
}

fn pool(digests: &[&Digest], members: &[usize]) -> Digest {
    let mut sum = Digest::default();
    members.iter().for_each(|m| sum.add(digests[*m]));
    sum
}
