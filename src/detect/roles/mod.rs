//! Roles of threads: of which kind each is, which slot it has among the living of its kind, and whether it is one of
//! the workers between which the data are divided.
//!
//! Two threads are of one kind when they have the same start routine and creators of the same kind; where the start
//! routine belongs to a language's runtime, they are also created at the same place in the program. A thread has the
//! lowest slot that was free in its kind, below its creator, when it started: pools that are made anew keep their
//! slots, also where threads of the last one end late because they wait for a CPU.
//!
//! Kinds of one thread each that a creator runs beside each other divide the machine as one kind does, so they are
//! numbered as one team. They stay kinds of their own, unless they run the same function: neither the stages of a
//! pipeline nor solvers of several equations are compared as if each had a part of the same work.
//!
//! Workers are told by the compute phase, the time slots in which several threads run at a time. A kind with less than
//! [`HOT_SHARE`] of that phase's accesses does not work, nor does a slot with next to none. The creator of a kind works
//! in its team if it is an OpenMP runtime's, or if its accesses are those of a worker: not next to none, and not spread
//! over the parts of all the others. The workers of a kind are numbered in
//! the order of slots, the creator first; teams that workers create inside a team divide the creator's part.

pub(super) mod activity;
mod kinds;
mod living;
mod overlap;
pub mod paths;
#[cfg(test)]
pub(super) mod tests;
mod waiting;

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use crate::profile::records::{Frame, Thread, ThreadId};
use crate::profile::summary::{Entry, Summary, TIME_SLOTS};

use super::lifetimes::{Stretches, length, life, shared_by};
use super::limits::HOT_SHARE;
use activity::Activity;
pub use activity::at_a_time;
pub(super) use kinds::is_openmp;
use kinds::{Key, Kinds, MAIN, Place};
pub use numamma_plan::teams::Rank;
use numamma_plan::threads::is_openmp_runtime;
use overlap::{Part, goes_over_all};

/// Samples of an average worker from which no sample at all means that a thread does not work (rule of three: the
/// upper 95 % limit of the mean of a Poisson count of 0 is 3).
const SAYS_IDLE: f64 = 3.0;
/// Part of the least that a worker of a triangular loop does, 1 / T of the average of T threads, below which a thread
/// is idle.
const LEAST_WORK: f64 = 0.5;
/// Part of the time of some teams in which several of them may be there, of teams that take turns: threads of one that
/// wait for a CPU to end meet those of the next.
const TURNS: f64 = 0.25;
/// Part of the accesses whose page's first toucher is known that must be to pages of threads of another kind, for an
/// object that one kind hands on to another: most.
const HANDED_ON: f64 = 0.5;
/// Accesses with a known first toucher from which on that is told.
const LEAST_KNOWN: u64 = 10;
/// What a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    /// Index into [`Roles::kinds`].
    pub kind: usize,
    /// Slot among the living of its kind, below its creator.
    pub slot: u32,
    /// Position among the workers; none for a thread that does not work.
    pub rank: Option<Rank>,
}

/// A kind of threads.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// Start routine, as far as known, with the place in the program that creates the threads where one start routine
    /// serves all threads of a language. Several of a team, see [`Roles::teams`], and where several places create one
    /// thread each that run the same function; none for main threads.
    pub origins: Vec<(Option<Frame>, Option<Frame>)>,
    /// Whether it is a team of an OpenMP runtime.
    pub openmp: bool,
    /// Kind that creates these threads, if main does not.
    pub creator: Option<usize>,
    /// Threads of this kind in the whole run.
    pub threads: u32,
    /// Slots that work, ascending; empty when the kind does not work.
    pub slots: Vec<u32>,
    /// Slots seen, working or not.
    pub width: u32,
    /// Whether the creator works in the team, as its worker 0.
    pub creator_works: bool,
    /// Share of the accesses of the compute phase, 0 to 1.
    pub share: f64,
}

impl Kind {
    /// Workers of a team of this kind, its creator included; 0 when the kind does not work.
    pub fn team(&self) -> u32 {
        if self.slots.is_empty() { 0 } else { self.slots.len() as u32 + u32::from(self.creator_works) }
    }
}

/// The roles of all threads of a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Roles {
    of_thread: Vec<Role>,
    /// Kinds; the first is that of main threads.
    pub kinds: Vec<Kind>,
    /// The same with kinds of one thread each, which divide the machine, joined: the workers of each are numbered
    /// together. In [`Kind::creator`] the index is one of these.
    pub teams: Vec<Kind>,
    /// Workers of the team with most accesses; at least 1 when there is a thread.
    pub workers: u32,
    /// Processes that work.
    pub processes: u32,
    /// Place (slot below its creator) of each thread, see [`Roles::place`].
    place_of: Vec<usize>,
    /// Number of each thread among those that do not work.
    idle: Vec<u32>,
}

impl Roles {
    /// The roles of `threads` workers in the order of their ids.
    #[cfg(test)]
    pub fn in_order(threads: u32) -> Roles {
        let role = |rank| Role { kind: MAIN, slot: rank, rank: Some(Rank { rank, of: threads }) };
        let idle = vec![0; threads as usize];
        let place_of = (0..threads as usize).collect();
        let of_thread = (0..threads).map(role).collect();
        let (kinds, teams) = Default::default();
        Roles { of_thread, kinds, teams, workers: threads, processes: 1, place_of, idle }
    }

    /// Whether the profile names no thread.
    pub fn is_empty(&self) -> bool {
        self.of_thread.is_empty()
    }

    /// What a thread is; none for a thread that the profile does not name.
    pub fn of(&self, thread: ThreadId) -> Option<Role> {
        self.of_thread.get(thread as usize).copied()
    }

    /// Position of a thread among the workers; none when it does not work.
    pub fn rank(&self, thread: ThreadId) -> Option<Rank> {
        self.of(thread)?.rank
    }

    /// A number that successive threads of one slot share, and no others.
    pub fn place(&self, thread: ThreadId) -> Option<u32> {
        self.place_of.get(thread as usize).map(|place| *place as u32)
    }

    /// Number of a thread where `of` workers are told apart: its rank among them, and from `of` on for threads that do
    /// not work.
    pub fn number(&self, thread: ThreadId, of: u32) -> Option<u32> {
        let role = self.of(thread)?;
        Some(role.rank.map_or_else(|| of + self.idle[thread as usize], |rank| rank.among(of)))
    }

    /// Number of workers of the team with most accesses to an entry; [`Roles::workers`] when no worker accesses it.
    pub fn team_of(&self, entry: &Entry) -> u32 {
        let mut by_team: FxHashMap<u32, u64> = FxHashMap::default();
        for cell in &entry.cells {
            if let Some(rank) = self.rank(cell.thread) {
                *by_team.entry(rank.of).or_default() += cell.counters.accesses();
            }
        }
        most(by_team).unwrap_or(self.workers)
    }

    /// Whether a thread is one of several of another kind than `kind`, which run beside it. A single thread is on one
    /// node, as all that it touches. Main threads, and creators of teams inside teams, may work in the teams that they
    /// create.
    pub fn is_other_kind(&self, thread: ThreadId, kind: usize) -> bool {
        let creates = |a: usize, b: usize| self.kinds.get(b).is_some_and(|k| k.creator == Some(a));
        let is_pool = |kind: usize| self.kinds.get(kind).is_some_and(|k| k.slots.len() > 1);
        let own = self.of(thread).map(|role| role.kind).filter(|own| is_pool(*own));
        own.is_some_and(|own| own != kind && own != MAIN && kind != MAIN && !creates(own, kind) && !creates(kind, own))
    }

    /// The kind that makes most accesses to an entry, where threads of other kinds have touched most of it first, as
    /// far as first touchers are known. Two such threads have numbers of their own kinds, and those of one number are
    /// on one node only where something binds them.
    pub fn user_kind_of_others(&self, entry: &Entry) -> Option<usize> {
        if self.kinds.len() < 3 {
            return None;
        }
        let kind_of = |thread: ThreadId| self.of(thread).map(|role| role.kind);
        let mut by_kind: FxHashMap<usize, u64> = FxHashMap::default();
        let (mut known, mut others) = (0, FxHashMap::<usize, u64>::default());
        for (cell, toucher) in entry.cells_and_touchers() {
            let (Some(kind), accesses) = (kind_of(cell.thread), cell.counters.accesses()) else { continue };
            *by_kind.entry(kind).or_default() += accesses;
            let Some(toucher) = toucher else { continue };
            known += accesses;
            if self.is_other_kind(toucher, kind) {
                *others.entry(kind).or_default() += accesses;
            }
        }
        let users = most(by_kind)?;
        let of_users = others.get(&users).copied().unwrap_or(0);
        (known >= LEAST_KNOWN && of_users as f64 > HANDED_ON * known as f64).then_some(users)
    }

    /// Threads that do not work.
    pub fn idlers(&self) -> u32 {
        self.of_thread.iter().filter(|role| role.rank.is_none()).count() as u32
    }
}

/// The key with most weight; of equal ones the largest.
fn most<K: Copy + Ord>(weights: FxHashMap<K, u64>) -> Option<K> {
    weights.into_iter().max_by_key(|(key, weight)| (*weight, *key)).map(|(key, _)| key)
}

/// The roles of the threads of a profile.
pub fn roles(summary: &Summary) -> Roles {
    let main_of = main_threads(&summary.threads);
    let activity = Activity::of(summary);
    let (mut kinds, rounds) = Kinds::in_rounds(summary, &main_of);
    let mut work = Work::of(summary, &activity, &kinds);
    let joined = |family: &HashMap<Key, usize>| {
        let kinds = Kinds::of(summary, &main_of, family, &rounds);
        let work = Work::of(summary, &activity, &kinds);
        (kinds, work)
    };
    let family = singles(summary, &kinds, &work);
    let alike = of_one_task(&family);
    if !alike.is_empty() {
        (kinds, work) = joined(&alike);
    }
    if family.is_empty() {
        let ranks = Ranks { kinds: &kinds, work: &work }.all();
        return finish(summary, (&kinds, &kinds), (work.kinds.clone(), work), &ranks);
    }
    let (teams, of_teams) = joined(&family);
    let ranks = Ranks { kinds: &teams, work: &of_teams }.all();
    finish(summary, (&kinds, &teams), (work.kinds, of_teams), &ranks)
}

/// The main thread of every process: the one with the process's id, else the first.
fn main_threads(threads: &[Thread]) -> HashMap<u32, ThreadId> {
    let mut found: HashMap<u32, ThreadId> = HashMap::new();
    for t in threads {
        let main = found.entry(t.pid).or_insert(t.id);
        if t.tid == t.pid && t.pid != 0 && threads.get(*main as usize).is_some_and(|m| m.tid != m.pid) {
            *main = t.id;
        }
    }
    found
}

/// Which kinds, slots and processes work.
struct Work {
    kinds: Vec<Kind>,
    /// Whether a main thread's process has enough accesses to count; by place.
    process: Vec<bool>,
    /// Slots of working processes.
    processes: Vec<u32>,
}

impl Work {
    fn of(summary: &Summary, activity: &Activity, kinds: &Kinds) -> Work {
        let of_place =
            |place: &Place, slots: &_| -> f64 { place.threads.iter().map(|t| activity.of_thread(*t, slots)).sum() };
        let by_place: Vec<f64> = kinds.places.iter().map(|p| of_place(p, &activity.compute)).collect();
        let total: f64 = by_place.iter().sum();
        let counts = |weight: f64| total <= 0.0 || weight >= HOT_SHARE * total;
        let mut list: Vec<Kind> = (0..kinds.keys.len()).map(|at| kind(summary, at, kinds)).collect();
        let by_master = with_inner_teams(kinds, &list, &by_place);
        let slots_of = |kind: usize, width: u32| {
            let mut by_slot = vec![0.0; width as usize];
            kinds.of_kind[kind].iter().for_each(|p| by_slot[kinds.places[*p].slot as usize] += by_master[*p]);
            by_slot
        };
        let least = least_of_a_worker((1..list.len()).map(|kind| slots_of(kind, list[kind].width)));
        for (kind, row) in list.iter_mut().enumerate() {
            let own = &kinds.of_kind[kind];
            let by_slot = slots_of(kind, row.width);
            row.threads = own.iter().map(|p| kinds.places[*p].threads.len() as u32).sum();
            let weight: f64 = by_slot.iter().sum();
            let own_weight: f64 = own.iter().map(|p| by_place[*p]).sum();
            row.share = if total > 0.0 { own_weight / total } else { 0.0 };
            let busy = working(&by_slot);
            if kind == MAIN || !counts(weight) || weight < least * busy.len() as f64 {
                continue;
            }
            row.slots = if total > 0.0 { busy } else { (0..row.width).collect() };
            let mut creators: Vec<usize> = own.iter().filter_map(|p| kinds.places[*p].parent).collect();
            creators.sort_unstable();
            creators.dedup();
            let team = (own.as_slice(), row.slots.len());
            let only_waits = waiting::only_waits(summary, kinds, &creators, team);
            row.creator_works = row.openmp
                || (!only_waits
                    && (total <= 0.0 || {
                        let slots = span(summary, kinds, own, activity);
                        let sum =
                            |places: &[usize]| places.iter().map(|p| of_place(&kinds.places[*p], &slots)).sum::<f64>();
                        let mean = sum(own) / row.slots.len().max(1) as f64;
                        let part_of = |thread: ThreadId| {
                            let place = *kinds.place_of.get(thread as usize)?;
                            let worker =
                                (kinds.places[place].kind == kind).then(|| Part::Worker(kinds.places[place].slot));
                            worker.or_else(|| creators.binary_search(&place).is_ok().then_some(Part::Creator))
                        };
                        !is_idle(sum(&creators), mean, row.slots.len() + 1)
                            && !goes_over_all(summary, &slots, |e| activity::is_large(summary, e), part_of)
                    }));
        }
        for (creator, team) in turns(summary, kinds, &list) {
            (list[creator].slots, list[creator].creator_works) = (Vec::new(), false);
            // Between the turns of its team it does something else.
            list[team].creator_works = false;
        }
        let mut process = vec![false; kinds.places.len()];
        let mut by_process = vec![0.0; kinds.places.len()];
        for (place, weight) in by_place.iter().enumerate() {
            by_process[root(kinds, place)] += weight;
        }
        for (place, weight) in by_process.iter().enumerate() {
            process[place] = kinds.places[place].kind == MAIN && counts(*weight) && (total > 0.0 || place == 0);
        }
        let mut processes: Vec<u32> =
            (0..process.len()).filter(|p| process[*p]).map(|p| kinds.places[p].slot).collect();
        processes.sort_unstable();
        processes.dedup();
        Work { kinds: list, process, processes }
    }
}

/// The weight of every place with that of the OpenMP teams that its threads make inside their own team, in which they
/// work as well, even where too few samples show it.
fn with_inner_teams(kinds: &Kinds, list: &[Kind], by_place: &[f64]) -> Vec<f64> {
    let mut sums = by_place.to_vec();
    for (index, place) in kinds.places.iter().enumerate().rev() {
        // A creator's place is older than the places of its threads.
        let master = place.parent.filter(|p| *p < index && kinds.places[*p].kind != MAIN);
        if let Some(master) = master.filter(|_| place.nested && list[place.kind].openmp) {
            sums[master] += sums[index];
        }
    }
    sums
}

fn kind(summary: &Summary, at: usize, kinds: &Kinds) -> Kind {
    let width = kinds.of_kind[at].iter().map(|p| kinds.places[*p].slot + 1).max().unwrap_or(0);
    let (creator, origins) = (kinds.keys[at].creator, kinds.origins[at].clone());
    let module = |routine: &Frame| summary.modules.get(routine.module as usize);
    let routines = || origins.iter().filter_map(|(routine, _)| routine.as_ref());
    let openmp = routines().filter_map(module).any(|m| is_openmp_runtime(&m.path));
    let (threads, slots, creator_works, share) = Default::default();
    Kind { origins, openmp, creator, threads, slots, width, creator_works, share }
}

/// Kinds whose threads create teams that take turns, and the kinds of these: stages of a pipeline that let one of them
/// at a time divide its work. Such a team has all of the machine while it works, so its creators are not the workers
/// between which that is divided, if they do less themselves.
fn turns(summary: &Summary, kinds: &Kinds, list: &[Kind]) -> Vec<(usize, usize)> {
    let working = list.iter().enumerate().filter(|(_, kind)| !kind.slots.is_empty() && !kind.openmp);
    let turns = working.filter_map(|(at, kind)| {
        let creator = kind.creator.filter(|creator| list[*creator].share < kind.share)?;
        take_turns(summary, kinds, &kinds.of_kind[at]).then_some((creator, at))
    });
    turns.collect()
}

/// Whether several creators have threads in these places, but mostly only one of them at a time.
fn take_turns(summary: &Summary, kinds: &Kinds, own: &[usize]) -> bool {
    let mut by_creator: HashMap<usize, Stretches> = HashMap::new();
    for place in own.iter().map(|place| &kinds.places[*place]) {
        let threads = place.threads.iter().filter_map(|t| summary.threads.get(*t as usize));
        let lives = threads.map(|t| life(t, summary.duration_ns()));
        place.parent.into_iter().for_each(|parent| by_creator.entry(parent).or_default().extend(lives.clone()));
    }
    let teams: Vec<(u64, u64)> = by_creator.values().flat_map(|lives| shared_by(1, lives.iter().copied())).collect();
    let [any, several] = [1, 2].map(|least| length(&shared_by(least, teams.iter().copied())) as f64);
    by_creator.len() > 1 && several < TURNS * any
}

/// The place of the main thread of a place's process.
fn root(kinds: &Kinds, mut place: usize) -> usize {
    // A creator's place is older than the places of its threads.
    while let Some(parent) = kinds.places[place].parent.filter(|p| *p < place) {
        place = parent;
    }
    place
}

/// The compute phase between the first start and the last end of a kind's threads.
fn span(summary: &Summary, kinds: &Kinds, own: &[usize], activity: &Activity) -> [bool; TIME_SLOTS as usize] {
    let threads =
        || own.iter().flat_map(|p| &kinds.places[*p].threads).filter_map(|t| summary.threads.get(*t as usize));
    let start = threads().map(|t| t.start_ns).min().unwrap_or(0);
    let end = threads().map(|t| t.end_ns.unwrap_or(u64::MAX)).max().unwrap_or(u64::MAX);
    activity.compute_within(start, end)
}

/// Whether a thread with `samples` does not work, when `workers` (itself included) have `mean` on average.
fn is_idle(samples: f64, mean: f64, workers: usize) -> bool {
    if samples > 0.0 { samples < LEAST_WORK * mean / workers.max(1) as f64 } else { mean >= SAYS_IDLE }
}

/// The least that a worker does: [`is_idle`] against the workers of the kind that does most. A thread that only
/// looks after the others has a few samples of large objects, too, if only by mistakes of the sampler.
fn least_of_a_worker(kinds: impl Iterator<Item = Vec<f64>>) -> f64 {
    let sum = |by_slot: &[f64]| by_slot.iter().sum::<f64>();
    let most = kinds.max_by(|a, b| sum(a).total_cmp(&sum(b))).unwrap_or_default();
    let workers = working(&most).len().max(1) as f64;
    LEAST_WORK * sum(&most) / workers / (workers + 1.0)
}

/// The slots that work.
fn working(by_slot: &[f64]) -> Vec<u32> {
    let mut slots: Vec<u32> = (0..by_slot.len() as u32).collect();
    loop {
        let mean = slots.iter().map(|s| by_slot[*s as usize]).sum::<f64>() / slots.len().max(1) as f64;
        let before = slots.len();
        slots.retain(|s| !is_idle(by_slot[*s as usize], mean, before));
        if slots.len() == before {
            return slots;
        }
    }
}

/// Kinds of one working thread at a time that a creator runs beside each other: each with a start routine of its own,
/// they divide the work as one kind does.
fn singles(summary: &Summary, kinds: &Kinds, work: &Work) -> HashMap<Key, usize> {
    let lone = |kind: &usize| work.kinds[*kind].width == 1 && work.kinds[*kind].slots.len() == 1;
    let mut by_creator: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
    for kind in (1..kinds.keys.len()).filter(lone) {
        by_creator.entry(kinds.keys[kind].creator).or_default().push(kind);
    }
    let mut family = HashMap::new();
    for (number, list) in by_creator.into_values().enumerate() {
        let life = |kind: &usize| {
            let threads = kinds.of_kind[*kind].iter().flat_map(|p| &kinds.places[*p].threads);
            let threads = threads.filter_map(|t| summary.threads.get(*t as usize));
            threads.fold((u64::MAX, 0), |(from, to), t| (from.min(t.start_ns), to.max(t.end_ns.unwrap_or(u64::MAX))))
        };
        let mut lives: Vec<((u64, u64), usize)> = list.iter().map(|kind| (life(kind), *kind)).collect();
        lives.sort_unstable();
        let mut latest = 0;
        for (i, ((start, end), kind)) in lives.iter().enumerate() {
            let next = lives.get(i + 1).map_or(u64::MAX, |((start, _), _)| *start);
            if *start < latest || next < *end {
                family.insert(kinds.keys[*kind], number);
            }
            latest = latest.max(*end);
        }
    }
    family
}

/// Of families of single threads the kinds that differ in the place that creates them only, and are known to run the
/// same function.
fn of_one_task(family: &HashMap<Key, usize>) -> HashMap<Key, usize> {
    let runs = |key: &Key, number: usize| (number, key.routine, key.task);
    let mut groups: HashMap<_, Vec<Key>> = HashMap::new();
    for (key, number) in family.iter().filter(|(key, _)| key.task.is_some()) {
        groups.entry(runs(key, *number)).or_default().push(*key);
    }
    let several = groups.into_values().filter(|keys| keys.len() > 1).enumerate();
    several.flat_map(|(number, keys)| keys.into_iter().map(move |key| (key, number))).collect()
}

/// Gives ranks to places.
struct Ranks<'a> {
    kinds: &'a Kinds,
    work: &'a Work,
}

impl Ranks<'_> {
    /// Rank of every place; none for those that do not work.
    fn all(&self) -> Vec<Option<Rank>> {
        let places = &self.kinds.places;
        // Working kinds of the threads that each place creates: its own teams, and those inside the team it works in.
        let mut outer: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut inner: HashMap<usize, Vec<usize>> = HashMap::new();
        for (index, place) in places.iter().enumerate() {
            if let Some(parent) = place.parent.filter(|_| !self.work.kinds[place.kind].slots.is_empty()) {
                let teams = if place.nested { &mut inner } else { &mut outer };
                teams.entry(parent).or_default().push(place.kind);
                // Main is no worker of its own where others work, whoever created them.
                outer.entry(root(self.kinds, index)).or_default();
            }
        }
        // The part of the work that a place's own teams divide, and as a member of a team its part there.
        let mut domain = vec![Rank::ALONE; places.len()];
        let mut member: Vec<Option<Rank>> = vec![None; places.len()];
        for (index, place) in places.iter().enumerate() {
            if place.kind == MAIN {
                let among = &self.work.processes;
                let Ok(slot) = among.binary_search(&place.slot) else { continue };
                if self.work.process[index] {
                    domain[index] = Rank::ALONE.part(slot as u32, among.len() as u32);
                    member[index] = match outer.get(&index) {
                        None => Some(domain[index]),
                        Some(teams) => self.first_of(teams, domain[index]),
                    };
                }
                continue;
            }
            let Some(parent) = place.parent.filter(|p| *p < index) else { continue };
            let kind = &self.work.kinds[place.kind];
            let whole = if place.nested { member[parent].unwrap_or(domain[parent]) } else { domain[parent] };
            domain[index] = whole;
            if let Ok(at) = kind.slots.binary_search(&place.slot) {
                let own = whole.part(at as u32 + u32::from(kind.creator_works), kind.team());
                (domain[index], member[index]) = (own, Some(own));
            }
        }
        // A member that works in a team inside its own is worker 0 of that one.
        let refined = |(index, rank): (usize, Option<Rank>)| {
            let rank = rank?;
            Some(inner.get(&index).and_then(|teams| self.first_of(teams, rank)).unwrap_or(rank))
        };
        member.into_iter().enumerate().map(refined).collect()
    }

    /// Rank of the creator of some teams as worker 0 of the one with most accesses among those that it works in.
    fn first_of(&self, teams: &[usize], whole: Rank) -> Option<Rank> {
        let own = teams.iter().map(|kind| &self.work.kinds[*kind]).filter(|kind| kind.creator_works);
        let most = own.max_by(|a, b| a.share.total_cmp(&b.share))?;
        Some(whole.part(0, most.team()))
    }
}

/// `ranks` are those of the places of teams.
fn finish(
    summary: &Summary,
    (kinds, teams): (&Kinds, &Kinds),
    (of_kinds, work): (Vec<Kind>, Work),
    ranks: &[Option<Rank>],
) -> Roles {
    let role = |(place, of_team): (&usize, &usize)| {
        let Place { kind, slot, .. } = kinds.places[*place];
        Role { kind, slot, rank: ranks[*of_team] }
    };
    let of_thread: Vec<Role> = kinds.place_of.iter().zip(&teams.place_of).map(role).collect();
    let mut by_thread = vec![0; of_thread.len()];
    for cell in summary.entries.iter().filter(|e| e.placeable()).flat_map(|e| &e.cells) {
        if let Some(sum) = by_thread.get_mut(cell.thread as usize) {
            *sum += cell.counters.accesses();
        }
    }
    let mut by_team: FxHashMap<u32, u64> = FxHashMap::default();
    for (rank, accesses) in of_thread.iter().map(|role| role.rank).zip(by_thread) {
        if let Some(rank) = rank.filter(|_| accesses > 0) {
            *by_team.entry(rank.of).or_default() += accesses;
        }
    }
    let seen = || of_thread.iter().filter_map(|role| role.rank).map(|rank| rank.of).max();
    let workers = most(by_team).or_else(seen).unwrap_or(0);
    let mut next = 0;
    let idle = of_thread.iter().map(|role| {
        let number = next;
        next += u32::from(role.rank.is_none());
        number
    });
    let idle = idle.collect();
    let processes = work.processes.len() as u32;
    let place_of = kinds.place_of.clone();
    Roles { of_thread, kinds: of_kinds, teams: work.kinds, workers, processes, place_of, idle }
}
