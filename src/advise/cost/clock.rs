//! Time slices of the run: neighbouring time slots of the profile, joined until a slice has enough samples to estimate
//! the load of each node, with the number of threads that run at a time.

use rustc_hash::FxHashMap;

use crate::advise::team_sizes::TeamSizes;
use crate::detect::{Roles, roles::at_a_time};
use crate::profile::record::{FAULT, TRACE};
use crate::profile::summary::{Counters, Summary, TIME_SLOTS};

/// Parts into which the in-concert interpretation divides a slice: enough to show one of eight nodes loaded at a time.
pub(super) const WINDOWS: usize = 8;
/// Accesses per node in each window of a slice: the share of a node is then known to 10 % (one standard deviation of a
/// Poisson count of 100).
const ACCESSES_PER_NODE: f64 = 100.0;
/// Threads at a time below which a slice is serial: it does not get faster with more threads.
const SERIAL: f64 = 1.5;

/// Sizes of teams and numbers of CPUs and nodes by which a run is scaled to the target.
pub(in crate::advise) struct Scale<'a> {
    pub teams: &'a TeamSizes,
    /// CPUs and nodes of the target.
    pub cpus: u32,
    pub nodes: usize,
}

/// One slice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::advise) struct Slice {
    /// CPU time in it, ns, that charged to no access included.
    pub cpu_ns: f64,
    /// Threads that run at a time on the target; at least 1.
    pub parallel: f64,
    /// Whether one thread runs alone.
    pub serial: bool,
}

/// The slices, and the slice of each time slot.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::advise) struct Clock {
    slice_of: Vec<u16>,
    pub slices: Vec<Slice>,
    /// CPU time charged to no access, ns: part of the slices, in proportion.
    pub uncharged_ns: f64,
    /// Time in which no thread ran, ns: sleep and I/O. In profiles of earlier versions also waiting for a CPU on a busy
    /// machine.
    pub idle_ns: f64,
}

/// Sums of one slot, or of several.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    cpu_ns: f64,
    accesses: f64,
    /// With the threads of the target.
    wall_ns: f64,
    serial: bool,
}

/// What accesses are charged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Charge {
    /// The CPU time of their samples.
    Cost,
    /// All CPU time of the run, each access this part of it, ns. The fault sampler sees one use of a page by a thread
    /// in each window, which says nothing of the time that took.
    Share(f64),
    /// One, in a profile without times.
    One,
}

impl Charge {
    /// What accesses of this profile are charged.
    pub fn of(summary: &Summary) -> Charge {
        let entries = &summary.entries;
        if summary.header.sampling.sampler == FAULT {
            let uses: u64 = entries.iter().map(|e| e.total.accesses()).sum();
            return Charge::Share(summary.stats.cpu_ns as f64 / uses.max(1) as f64);
        }
        if entries.iter().any(|e| e.total.cost_ns > 0) { Charge::Cost } else { Charge::One }
    }

    /// What all accesses that were counted are charged, ns.
    pub fn to(self, counted: &Counters) -> f64 {
        match self {
            Charge::Cost => counted.cost_ns as f64,
            Charge::Share(each) => counted.accesses() as f64 * each,
            Charge::One => counted.accesses() as f64,
        }
    }
}

impl Clock {
    pub fn new(summary: &Summary, roles: &Roles, charge: Charge, scale: &Scale<'_>) -> Clock {
        let slots = slots(summary, roles, charge, scale.teams);
        let wanted = ACCESSES_PER_NODE * (scale.nodes * WINDOWS) as f64;
        let (slice_of, sums) = join(&slots, wanted);
        let total: f64 = summary.entries.iter().map(|e| charge.to(&e.total)).sum();
        let paged: f64 = sums.iter().map(|s| s.cpu_ns).sum();
        let uncharged_ns = if charge == Charge::Cost { uncharged(summary, total) } else { 0.0 };
        // The cost of entries without pages (gathers) and of samples without an access is distributed over all slices
        // in proportion.
        let stretch = if paged > 0.0 { (total + uncharged_ns) / paged } else { 0.0 };
        let most = f64::from(scale.cpus.max(1));
        let slices = sums.iter().map(|s| {
            let at_a_time = if s.wall_ns > 0.0 { s.cpu_ns / s.wall_ns } else { 1.0 };
            let parallel = if s.serial { 1.0 } else { at_a_time.clamp(1.0, most) };
            Slice { cpu_ns: s.cpu_ns * stretch, parallel, serial: s.serial }
        });
        // A traced program waits for the recorder, too.
        let is_known = charge != Charge::One && summary.header.sampling.sampler != TRACE;
        let idle_ns = if is_known { summary.idle().idle_ns as f64 } else { 0.0 };
        Clock { slice_of, slices: slices.collect(), uncharged_ns, idle_ns }
    }

    /// Slice of a time slot.
    pub fn slice_of(&self, slot: u16) -> usize {
        self.slice_of.get(usize::from(slot)).copied().unwrap_or(0).into()
    }

    /// Time in which threads run when every access is as fast as recorded, ns. On a busy machine the run takes longer,
    /// by as much as threads wait for a CPU, which says nothing of the program; what placements save is compared with
    /// this.
    pub fn running_ns(&self) -> f64 {
        self.slices.iter().map(|s| s.cpu_ns / s.parallel).sum::<f64>()
    }
}

/// CPU time of the run that is charged to no access, ns: samples without one, and system calls, but no spinning. Lost
/// samples are missing from both sides, so the CPU time counts by the part of the samples that was taken.
fn uncharged(summary: &Summary, charged: f64) -> f64 {
    let stats = &summary.stats;
    let sampled = stats.samples as f64 * summary.header.sampling.period_ns as f64;
    let ran = stats.cpu_ns as f64 * stats.achieved.clamp(0.0, 1.0);
    (sampled.max(ran) - charged - summary.spinning.cost_ns() as f64).max(0.0)
}

/// Sums by slot. Threads that spin run beside those that work, so the time of a slot is that of both; where one thread
/// works alone it is that of its work.
fn slots(summary: &Summary, roles: &Roles, charge: Charge, teams: &TeamSizes) -> Vec<Slot> {
    let mut slots = vec![Slot::default(); usize::from(TIME_SLOTS)];
    // Accesses of threads, each times as many as its team has on the target for each worker of it.
    let mut on_target = vec![0.0; slots.len()];
    let successors =
        |thread| roles.rank(thread).map_or(1.0, |rank| f64::from(teams.on_target(rank.of)) / f64::from(rank.of.max(1)));
    let mut threads: FxHashMap<(u16, u32), f64> = FxHashMap::default();
    for entry in &summary.entries {
        let counted: u64 = entry.cells.iter().map(|c| c.counters.accesses()).sum();
        let each = if counted == 0 { 0.0 } else { charge.to(&entry.total) / counted as f64 };
        for cell in &entry.cells {
            let (Some(slot), Some(place)) = (slots.get_mut(usize::from(cell.slot)), roles.place(cell.thread)) else {
                continue;
            };
            let accesses = cell.counters.accesses() as f64;
            slot.accesses += accesses;
            slot.cpu_ns += accesses * each;
            on_target[usize::from(cell.slot)] += accesses * successors(cell.thread);
            *threads.entry((cell.slot, place)).or_default() += accesses;
        }
    }
    let seen = summary.threads.len();
    let work = Crowd::by_slot(slots.len(), &threads);
    let mut spun_ns = vec![0.0; slots.len()];
    for cell in &summary.spinning.cells {
        if let (Some(spun), Some(place)) = (spun_ns.get_mut(usize::from(cell.slot)), roles.place(cell.thread)) {
            let accesses = cell.counters.accesses() as f64;
            *spun += charge.to(&cell.counters);
            *threads.entry((cell.slot, place)).or_default() += accesses;
        }
    }
    let all = Crowd::by_slot(slots.len(), &threads);
    for (i, slot) in slots.iter_mut().enumerate() {
        slot.serial = work[i].at_a_time(seen) < SERIAL;
        // The threads of a slot run side by side.
        let more = if slot.accesses > 0.0 { on_target[i] / slot.accesses } else { 1.0 };
        let side_by_side = (slot.cpu_ns + spun_ns[i]) / (all[i].at_a_time(seen) * more);
        slot.wall_ns = if slot.serial { slot.cpu_ns } else { side_by_side };
    }
    slots
}

/// Accesses of the threads of a slot, and their squares.
#[derive(Debug, Clone, Copy, Default)]
struct Crowd {
    accesses: f64,
    squares: f64,
}

impl Crowd {
    fn by_slot(slots: usize, threads: &FxHashMap<(u16, u32), f64>) -> Vec<Crowd> {
        let mut crowds = vec![Crowd::default(); slots];
        for ((slot, _), n) in threads {
            let crowd = &mut crowds[usize::from(*slot)];
            *crowd = Crowd { accesses: crowd.accesses + n, squares: crowd.squares + n * n };
        }
        crowds
    }

    fn at_a_time(self, threads: usize) -> f64 {
        at_a_time(self.accesses, self.squares, threads)
    }
}

/// Joins neighbouring slots of one kind until each slice has `wanted` accesses; a remainder goes to the slice before.
fn join(slots: &[Slot], wanted: f64) -> (Vec<u16>, Vec<Slot>) {
    let mut sums: Vec<Slot> = Vec::new();
    let mut slice_of = Vec::with_capacity(slots.len());
    let mut open: Option<bool> = None;
    let left_of_kind = |from: usize, serial: bool| -> f64 {
        let same = slots[from..].iter().take_while(|s| s.accesses == 0.0 || s.serial == serial);
        same.map(|s| s.accesses).sum()
    };
    for (i, slot) in slots.iter().enumerate() {
        let goes_on = slot.accesses == 0.0 && !sums.is_empty() || open == Some(slot.serial);
        // A remainder of this kind that does not fill a slice joins the slice before.
        let rest = open.is_none() && !sums.is_empty() && left_of_kind(i, slot.serial) < wanted;
        let joins_last = rest && sums.last().is_some_and(|s| s.serial == slot.serial);
        if !(goes_on || joins_last) {
            sums.push(Slot { serial: slot.serial, ..Slot::default() });
        }
        let Some(sum) = sums.last_mut() else { continue };
        sum.cpu_ns += slot.cpu_ns;
        sum.wall_ns += slot.wall_ns;
        sum.accesses += slot.accesses;
        open = (sum.accesses < wanted).then_some(sum.serial);
        slice_of.push((sums.len() - 1) as u16);
    }
    (slice_of, sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::Target;
    use crate::advise::cost::World;
    use crate::advise::tests::{entry, profile};
    use crate::detect::roles;
    use crate::profile::summary::{Cell, Counters, SpinCell};
    use crate::topology::Topology;

    fn slot(accesses: f64, serial: bool) -> Slot {
        Slot { cpu_ns: accesses, accesses, wall_ns: accesses, serial }
    }

    #[test]
    fn slots_are_joined_until_there_are_enough_samples_but_never_across_kinds() {
        let slots = [slot(30.0, true), slot(30.0, true), slot(60.0, false), slot(60.0, false), slot(60.0, false)];
        let (slices, sums) = join(&slots, 100.0);
        assert_eq!(slices, [0, 0, 1, 1, 1], "a serial slice stays short, the last 60 join the slice before");
        assert_eq!(sums.iter().map(|s| s.accesses).collect::<Vec<_>>(), [60.0, 180.0]);
        let (slices, _) = join(&[slot(150.0, false), slot(0.0, true), slot(120.0, false)], 100.0);
        assert_eq!(slices, [0, 0, 1], "an empty slot belongs to what came before");
    }

    /// A triangular loop: the last of eight threads has 15 parts of the work of 64, and the others spin until it is
    /// done.
    #[test]
    fn a_run_lasts_as_long_as_its_slowest_thread_when_the_others_spin() {
        let parts: Vec<u64> = (0..8).map(|t| 2 * t + 1).collect();
        let counters = |accesses| Counters { reads: accesses, cost_ns: 1000 * accesses, ..Counters::default() };
        let mut array = entry("array", 1 << 20, 0, 8, |i, _| i as u32);
        array.cells = (0..TIME_SLOTS)
            .flat_map(|slot| {
                parts.iter().zip(0..).map(move |(part, thread)| Cell {
                    instance: 0,
                    page: 0,
                    thread,
                    slot,
                    counters: counters(*part),
                })
            })
            .collect();
        array.total = counters(64 * u64::from(TIME_SLOTS));
        let mut summary = profile(8, "never", vec![array]);
        let spins = |slot| {
            parts.iter().zip(0..).map(move |(part, thread)| SpinCell { thread, slot, counters: counters(15 - part) })
        };
        summary.spinning.cells = (0..TIME_SLOTS).flat_map(spins).collect();
        let target = Target::new(Some(4), None, &Topology::uniform(4, 8), 8, "never");
        let roles = roles(&summary);
        let world = World::new(&summary, &roles, &target);
        let wall: f64 = f64::from(TIME_SLOTS) * 15.0 * 1000.0;
        let running = world.clock.running_ns();
        assert!((running / wall - 1.0).abs() < 0.05, "{running} of {wall} ns");
    }
}
