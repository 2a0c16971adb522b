//! An object's samples as accesses by the threads of the target: page, node of the thread, time.

use rustc_hash::FxHashMap;

use super::{WINDOWS, World};
use crate::advise::block_layout::place_in_slice;
use crate::detect::{Pattern, PatternKind, Rank};
use crate::profile::records::ThreadId;
use crate::profile::summary::Entry;

/// Fewest samples of a thread in an object from which their order gives their time within a sweep: with n samples the
/// position of the middle one is known to sqrt(0.25 / n) of the sweep (one standard deviation), which is half a window
/// here. The samples of a thread with fewer are spread over the whole slice.
const ORDERED: u32 = (WINDOWS * WINDOWS) as u32;

/// Accesses to one page by threads of one node at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::advise) struct Demand {
    /// Instance and page as in [`crate::profile::summary::Cell`].
    pub instance: u32,
    pub page: u32,
    /// Node (of the model) of the thread.
    pub from: u16,
    /// Slice and part of it, see [`bin`].
    pub bin: u16,
    /// Accesses that wait for memory.
    pub accesses: f32,
}

/// All of one object, ascending by (instance, page).
#[derive(Debug, Clone, Default)]
pub(in crate::advise) struct Demands {
    pub list: Vec<Demand>,
    /// Accesses by (bin, node of the thread).
    pub sums: FxHashMap<(u16, u16), f64>,
    /// Lines that are fetched while one of the accesses waits.
    pub lines: f64,
    /// CPU time that waits, and that computes, for each of the accesses, ns.
    pub waits_ns: f64,
    pub computes_ns: f64,
    /// Accesses that a sample stands for.
    pub per_sample: f64,
    /// CPU time by slice that these accesses waited for when they were recorded, ns.
    pub waited_ns: Vec<f64>,
}

/// Number of a part of a slice: 0 is what is spread over the whole slice, 1 to [`WINDOWS`] its windows.
pub(super) fn bin(slice: usize, part: usize) -> u16 {
    (slice * (WINDOWS + 1) + part) as u16
}

/// Bins of a run of `slices` slices.
pub(super) fn bins(slices: usize) -> usize {
    slices * (WINDOWS + 1)
}

/// Progress of one thread through its samples in the order of their pages. Samples of all slices are counted together,
/// because a slice lasts seconds and so contains whole sweeps.
#[derive(Default)]
struct Course {
    cells: u32,
    accesses: f64,
    done: f64,
}

impl Demands {
    /// The accesses of `entry` on the target. Where a team is larger or smaller there, the slices of the pattern map
    /// its workers in the profile to those on the target.
    pub fn of(world: &World<'_>, entry: &Entry, pattern: Option<&Pattern>) -> Demands {
        Demands::waiting(world, entry, pattern, world.waiting_part(entry))
    }

    /// The same as if all time that is charged to the entry waited, but for what caches hold.
    pub fn if_it_waits(world: &World<'_>, entry: &Entry, pattern: Option<&Pattern>) -> Demands {
        Demands::waiting(world, entry, pattern, world.residence(entry).memory)
    }

    /// `part` is the part of the time charged to the entry that waits for memory.
    fn waiting(world: &World<'_>, entry: &Entry, pattern: Option<&Pattern>, part: f64) -> Demands {
        let slices = world.clock.slices.len();
        let mut demands =
            Demands { waited_ns: vec![0.0; slices], lines: world.lines_in_flight(entry), ..Demands::default() };
        let counted: u64 = entry.cells.iter().map(|c| c.counters.accesses()).sum();
        if counted == 0 || !world.waits(entry) {
            return demands;
        }
        let seen = world.roles.team_of(entry);
        let per_access = world.charged(entry) * part / world.recorded_ns(entry) / counted as f64;
        let waited = world.charged(entry) * part / counted as f64;
        let computed = world.charged(entry) / counted as f64 - waited;
        demands.per_sample = per_access;
        if per_access > 0.0 {
            (demands.waits_ns, demands.computes_ns) = (waited / per_access, computed / per_access);
        }
        let mut courses: FxHashMap<User, Course> = FxHashMap::default();
        let alone = |slice: usize| world.clock.slices.get(slice).is_some_and(|s| s.serial);
        for cell in &entry.cells {
            let Some(user) = User::of(world, cell.thread, seen) else { continue };
            if alone(world.clock.slice_of(cell.slot)) {
                continue;
            }
            let course = courses.entry(user).or_default();
            course.cells += 1;
            course.accesses += cell.counters.accesses() as f64;
        }
        for cell in &entry.cells {
            let Some(user) = User::of(world, cell.thread, seen) else { continue };
            let slice = world.clock.slice_of(cell.slot);
            // Serial work stays serial on the target.
            let (from, part) = if alone(slice) {
                (user.node(world, || 0.0), 0)
            } else {
                let part = courses.get_mut(&user).map_or(0, |c| c.next(cell.counters.accesses() as f64));
                (user.node(world, || user.part(world, pattern, cell.page, cell.slot)), part)
            };
            let accesses = cell.counters.accesses() as f64 * per_access;
            demands.waited_ns[slice] += cell.counters.accesses() as f64 * waited;
            demands.push(cell.instance, cell.page, from as u16, bin(slice, part), accesses);
        }
        demands
    }

    /// Those while several threads run, and whether most of the others come before them. None where there are no
    /// others, or only others.
    pub fn in_parallel(&self, world: &World<'_>) -> Option<(Demands, bool)> {
        let slices = &world.clock.slices;
        let slice_of = |bin: u16| usize::from(bin) / (WINDOWS + 1);
        let alone = |bin: u16| slices.get(slice_of(bin)).is_some_and(|s| s.serial);
        let start = self.sums.keys().map(|(bin, _)| *bin).filter(|bin| !alone(*bin)).min()?;
        let sum = |holds: &dyn Fn(u16) -> bool| -> f64 {
            self.sums.iter().filter(|((bin, _), _)| holds(*bin)).map(|(_, accesses)| *accesses).sum()
        };
        let (serial, before) = (sum(&alone), sum(&|bin| alone(bin) && bin < start));
        let mut parallel = self.clone();
        parallel.list.retain(|d| !alone(d.bin));
        parallel.sums.retain(|(bin, _), _| !alone(*bin));
        (serial > 0.0).then_some((parallel, before > serial / 2.0))
    }

    /// CPU time by slice that computes between these accesses, ns.
    pub fn computed_ns(&self, slices: usize) -> Vec<f64> {
        let mut sums = vec![0.0; slices];
        for (&(bin, _), accesses) in &self.sums {
            sums[usize::from(bin) / (WINDOWS + 1)] += accesses * self.computes_ns;
        }
        sums
    }

    fn push(&mut self, instance: u32, page: u32, from: u16, bin: u16, accesses: f64) {
        *self.sums.entry((bin, from)).or_default() += accesses;
        let next = Demand { instance, page, from, bin, accesses: accesses as f32 };
        match self.list.last_mut() {
            Some(last) if (last.instance, last.page, last.from, last.bin) == (instance, page, from, bin) => {
                last.accesses += next.accesses;
            }
            _ => self.list.push(next),
        }
    }
}

impl Course {
    /// Window of the next accesses.
    fn next(&mut self, accesses: f64) -> usize {
        if self.cells < ORDERED || self.accesses <= 0.0 {
            return 0;
        }
        let middle = (self.done + accesses / 2.0) / self.accesses;
        self.done += accesses;
        1 + ((middle * WINDOWS as f64) as usize).min(WINDOWS - 1)
    }
}

/// A thread of the profile as a user of one object.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct User {
    /// Number where the workers of the object's team are told apart, as slices have it.
    number: u32,
    /// Position in its own team; none for a thread that does not work.
    rank: Option<Rank>,
}

impl User {
    /// `seen` are the workers of the object's team; none for a thread that the profile does not name.
    fn of(world: &World<'_>, thread: ThreadId, seen: u32) -> Option<User> {
        Some(User { number: world.roles.number(thread, seen)?, rank: world.roles.rank(thread) })
    }

    /// Node of the worker of the target that takes over at `part` of its slice. A thread that does not work is not
    /// bound, and counts where thread 0 runs.
    fn node(&self, world: &World<'_>, part: impl FnOnce() -> f64) -> usize {
        let Some(rank) = self.rank else { return world.node_of(world.teams.successor(Rank::ALONE, 0.0)) };
        let stays = world.teams.on_target(rank.of) == rank.of;
        world.node_of(world.teams.successor(rank, if stays { 0.0 } else { part() }))
    }

    /// Position of a page within its slice, 0 to 1.
    fn part(&self, world: &World<'_>, pattern: Option<&Pattern>, page: u32, slot: u16) -> f64 {
        let at = u64::from(page) * world.summary.header.page_size;
        let inside = pattern.and_then(|p| part_of_slice(p.overall(), at, self.number));
        inside.unwrap_or_else(|| scattered(page, u32::from(slot)))
    }
}

/// Position of a byte of the object within the slice of thread `rank`, see [`place_in_slice`]; none in slices of other
/// threads.
fn part_of_slice(pattern: &Pattern, at: u64, rank: u32) -> Option<f64> {
    // Runs of a page map, and rows over several instances, are not slices in thread order.
    if !matches!(pattern.kind, PatternKind::Block | PatternKind::BlockCyclic) || pattern.group.is_some() {
        return None;
    }
    let inside = pattern.period.map_or(at, |p| at % p.max(1));
    let (slice, part) = place_in_slice(&pattern.slices, inside)?;
    (slice.thread == rank).then_some(part)
}

/// A pseudo-random number in [0, 1) that depends on page and time slot only. Without slices it distributes the
/// accesses of a thread of the profile evenly over the target's threads that take over from it.
fn scattered(page: u32, slot: u32) -> f64 {
    let mixed = (u64::from(page) << 32 | u64::from(slot)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 11) as f64 / (1u64 << 53) as f64
}
