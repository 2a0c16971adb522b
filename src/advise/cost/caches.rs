//! Which part of the waiting for an object is for memory: the rest is for the caches of the target, wherever its pages
//! are.
//!
//! A line that is used again before the thread has used as many other lines as the cache holds is still there (least
//! recently used). With the rates at which a thread uses the lines of all its objects, the time T in which a cache is
//! filled follows from `sum of W (1 - exp(-r T / W)) = C`, and a line of an object is found again with the probability
//! `1 - exp(-r T / W)`, or, by a thread that goes through W in sequence, if `r T >= W` (Che, Tung and Wang,
//! "Hierarchical Web Caching Systems", IEEE JSAC 20, 2002; Fricker, Robert and Roberts, "A Versatile and Accurate
//! Approximation for LRU Cache Performance", ITC 24, 2012). W are the lines of the object that the thread uses, r the
//! lines a second, C the lines of the cache.
//!
//! The rates follow from the CPU time charged to each object and from the time that one line takes, which depends on
//! where it is found. The search for both starts with everything in memory, so what the samples do not show to be in a
//! cache is priced as memory. So are objects with too few samples to show how much of them is used: they are taken to
//! be used as a whole. First misses are left out: a run uses what is in its caches far more often than once.
//!
//! Where nobody says the sizes of the caches, they are taken to be the smallest that there are, for small objects that
//! are only read: with all else that a thread uses beside them.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{LINE_BYTES, World};
use crate::detect::limits::{READ_ONLY_SAMPLES, READ_ONLY_STRAY};
use crate::profile::summary::Entry;
use crate::topology::caches::{ANYWHERE, CacheSource, Caches};

/// Time of a line from the second level and from the last one, ns: 14, and 50 to 70 cycles (Intel 64 and IA-32
/// Optimization Reference Manual, Skylake Server, table of cache parameters) of some 3.5 GHz and 3 GHz.
const SECOND_NS: f64 = 4.0;
const LAST_NS: f64 = 20.0;
/// Rounds of the search for rates and hits; after ten the hits of a table that shares a cache with a stream change by
/// less than 1 %.
const ROUNDS: usize = 12;
/// Halvings of an interval: a double has no more digits.
const HALVINGS: usize = 50;
/// Standard deviations by which the number of pages seen again is taken to be too high, so that chance does not make an
/// object small (97.5 % of a normal distribution lie above).
const DEVIATIONS: f64 = 2.0;

/// Where the target's threads find the lines of an entry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::advise) struct Residence {
    /// Part of the waiting that is for memory, 0 to 1.
    pub memory: f64,
    /// The cache in which more of the lines are found than in the other.
    pub cache: &'static str,
    /// Bytes of the entry that those who share one such cache use.
    pub used: f64,
    /// Bytes of the cache.
    pub size: f64,
    /// Whether that is the least that such caches have, and not known.
    pub least: bool,
}

impl Residence {
    /// Nothing is known to be in a cache.
    pub const MEMORY: Residence = Residence { memory: 1.0, cache: "L2", used: 0.0, size: 0.0, least: false };
}

/// Sums over the threads that use an entry, by the CPU time charged to them.
#[derive(Clone, Copy, Default)]
struct Sums {
    charged: f64,
    memory: f64,
    /// Of the second level and of the last: part of the lines found there, and the lines that compete for it.
    found: [f64; 2],
    lines: [f64; 2],
}

/// What one thread does with one object.
struct Use {
    entry: usize,
    /// CPU time charged, ns.
    charged: f64,
    /// Lines of the object that the thread uses, and that all threads use.
    own: f64,
    all: f64,
    /// Lines in flight: so many lines take the time of one.
    flight: f64,
    /// The thread goes through them in sequence, again and again.
    sweeps: bool,
    /// Part of its lines found in the second level, and of the others in the last.
    second: f64,
    last: f64,
}

/// One level as one thread sees it.
struct Level {
    lines: f64,
    /// Threads that share it.
    threads: f64,
}

/// Where the lines of each entry are found, by its id; [`Residence::MEMORY`] holds for entries that are not in the map.
pub(super) fn residences(world: &World<'_>) -> FxHashMap<u32, Residence> {
    let least = world.model().caches.source == CacheSource::Unknown;
    let caches = if least { Caches::LEAST } else { world.model().caches };
    let cpus = world.model().nodes.iter().map(|n| n.cpus.len()).sum::<usize>().max(1) as f64;
    let level = |cache: crate::topology::caches::Cache| {
        let sharing = (f64::from(world.target.threads) * f64::from(cache.cpus) / cpus).ceil();
        let threads = sharing.clamp(1.0, f64::from(cache.cpus.max(1)));
        Level { lines: cache.bytes as f64 / LINE_BYTES, threads }
    };
    let (second, last) = (level(caches.second), level(caches.last));
    if second.lines + last.lines <= 0.0 {
        return FxHashMap::default();
    }
    let entries = &world.summary.entries;
    let mut sums = vec![Sums::default(); entries.len()];
    for uses in uses(world).values_mut() {
        search(uses, &second, &last, world.local_ns);
        uses.iter().for_each(|used| sums[used.entry].add(used, [&second, &last], world.local_ns));
    }
    let mut found: FxHashMap<u32, Residence> = FxHashMap::default();
    for (entry, sums) in entries.iter().zip(sums) {
        let one = match least {
            true if !fits_anywhere(world, entry) => Residence::MEMORY,
            _ => Residence { least, ..sums.residence([&second, &last]) },
        };
        // Entries of one id, which only profiles made by hand have, are priced as the one with most misses.
        found.entry(entry.id).and_modify(|r| *r = if one.memory > r.memory { one } else { *r }).or_insert(one);
    }
    found
}

/// Whether an object fits into any cache, and threads do not take its lines from each other: while several threads run
/// it is only read.
fn fits_anywhere(world: &World<'_>, entry: &Entry) -> bool {
    let is_shared = |slot: u16| world.clock.slices.get(world.clock.slice_of(slot)).is_some_and(|slice| !slice.serial);
    let cells = entry.cells.iter().filter(|cell| is_shared(cell.slot));
    let (all, writes) = cells.fold((0, 0), |sum, c| (sum.0 + c.counters.accesses(), sum.1 + c.counters.writes));
    entry.size.saturating_mul(entry.instances.max(1)) <= ANYWHERE
        && all as f64 >= READ_ONLY_SAMPLES
        && writes as f64 <= READ_ONLY_STRAY * all as f64
}

impl Sums {
    fn add(&mut self, used: &Use, levels: [&Level; 2], memory_ns: f64) {
        let (time, memory) = used.time_ns(memory_ns);
        self.charged += used.charged;
        self.memory += used.charged * memory / time;
        for (i, part) in [used.second, (1.0 - used.second) * used.last].into_iter().enumerate() {
            self.found[i] += used.charged * part;
            self.lines[i] += used.charged * levels[i].lines_of(used);
        }
    }

    fn residence(&self, levels: [&Level; 2]) -> Residence {
        if self.charged <= 0.0 {
            return Residence::MEMORY;
        }
        let i = usize::from(self.found[1] > self.found[0]);
        Residence {
            memory: self.memory / self.charged,
            cache: ["L2", "last-level cache"][i],
            used: self.lines[i] / self.charged * LINE_BYTES,
            size: levels[i].lines * LINE_BYTES,
            least: false,
        }
    }
}

impl Level {
    /// Lines of an object that the threads which share the cache use: all of them do the same.
    fn lines_of(&self, used: &Use) -> f64 {
        (self.threads * used.own).min(used.all).max(1.0)
    }
}

impl Use {
    /// Time of one line and the part of it that is for memory, ns.
    fn time_ns(&self, memory_ns: f64) -> (f64, f64) {
        let missed = (1.0 - self.second) * (1.0 - self.last) * memory_ns;
        (self.second * SECOND_NS + (1.0 - self.second) * self.last * LAST_NS + missed, missed)
    }
}

/// Finds the rates and the hits of one thread that agree.
fn search(uses: &mut [Use], second: &Level, last: &Level, memory_ns: f64) {
    for _ in 0..ROUNDS {
        let rates: Vec<f64> = uses.iter().map(|u| u.charged * u.flight / u.time_ns(memory_ns).0).collect();
        for (level, is_last) in [(second, false), (last, true)] {
            let flow = |(u, rate): (&Use, &f64)| Flow {
                lines: level.lines_of(u),
                rate: level.threads * rate,
                sweeps: u.sweeps,
            };
            let flows: Vec<Flow> = uses.iter().zip(&rates).map(flow).collect();
            let time = fills_in(&flows, level.lines);
            for (used, flow) in uses.iter_mut().zip(flows) {
                let found = flow.found(time);
                if is_last {
                    used.last = found;
                } else {
                    used.second = found;
                }
            }
        }
    }
}

/// The use of so many lines at a rate.
struct Flow {
    lines: f64,
    rate: f64,
    sweeps: bool,
}

impl Flow {
    /// Different lines used in a time.
    fn different(&self, time: f64) -> f64 {
        if self.sweeps {
            return self.lines.min(self.rate * time);
        }
        self.lines * (1.0 - (-self.rate * time / self.lines).exp())
    }

    /// Part of the lines found in a cache that fills in a time. A sweep comes back to a line when it has been through
    /// all others, so it finds all or none.
    fn found(&self, time: f64) -> f64 {
        match (time.is_finite(), self.sweeps) {
            (false, _) => 1.0,
            (true, true) => f64::from(u8::from(self.rate * time >= self.lines)),
            (true, false) => self.different(time) / self.lines,
        }
    }
}

/// Time in which `capacity` lines are filled; infinite when all fits.
fn fills_in(flows: &[Flow], capacity: f64) -> f64 {
    if flows.iter().map(|f| f.lines).sum::<f64>() <= capacity {
        return f64::INFINITY;
    }
    let filled = |time: f64| flows.iter().map(|f| f.different(time)).sum::<f64>();
    let rate: f64 = flows.iter().map(|f| f.rate).sum();
    if capacity <= 0.0 || rate <= 0.0 {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, capacity / rate);
    while filled(high) < capacity && high.is_finite() {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if filled(middle) < capacity { low = middle } else { high = middle }
    }
    high
}

/// The uses of every thread, by place of the thread.
fn uses(world: &World<'_>) -> FxHashMap<u32, Vec<Use>> {
    let mut by_thread: FxHashMap<u32, Vec<Use>> = FxHashMap::default();
    for (index, entry) in world.summary.entries.iter().enumerate() {
        let counted: u64 = entry.cells.iter().map(|c| c.counters.accesses()).sum();
        if counted == 0 {
            continue;
        }
        let each = world.charged(entry) / counted as f64;
        let sets = WorkingSets::of(world, entry);
        for (thread, seen) in &sets.by_thread {
            by_thread.entry(*thread).or_default().push(Use {
                entry: index,
                charged: seen.accesses * each,
                own: sets.own(seen),
                all: sets.all,
                flight: world.lines_in_flight(entry),
                sweeps: entry.is_swept(),
                second: 0.0,
                last: 0.0,
            });
        }
    }
    by_thread
}

/// Samples of a thread in an object.
#[derive(Default)]
struct Seen {
    accesses: f64,
    cells: f64,
    pages: FxHashSet<(u32, u32)>,
}

/// How much of an object each thread uses.
struct WorkingSets {
    by_thread: FxHashMap<u32, Seen>,
    /// Lines of the object, and those that all threads use together.
    whole: f64,
    all: f64,
    lines_per_page: f64,
    /// Mean number of threads that use the same line.
    overlap: f64,
    /// Workers of the team that uses it on the target, for one in the profile.
    growth: f64,
}

impl WorkingSets {
    fn of(world: &World<'_>, entry: &Entry) -> WorkingSets {
        let mut by_thread: FxHashMap<u32, Seen> = FxHashMap::default();
        let mut pages: FxHashSet<(u32, u32)> = FxHashSet::default();
        for cell in &entry.cells {
            let Some(place) = world.roles.place(cell.thread) else { continue };
            let seen = by_thread.entry(place).or_default();
            seen.accesses += cell.counters.accesses() as f64;
            seen.cells += 1.0;
            seen.pages.insert((cell.instance, cell.page));
            pages.insert((cell.instance, cell.page));
        }
        let lines_per_page = world.summary.header.page_size.max(1) as f64 / LINE_BYTES;
        let whole = (entry.size as f64 * entry.instances.max(1) as f64 / LINE_BYTES).max(1.0);
        let all = used(entry.cells.len() as f64, pages.len() as f64, lines_per_page, whole);
        let team = world.roles.team_of(entry).max(1);
        let growth = f64::from(world.teams.on_target(team)) / f64::from(team);
        let mut sets = WorkingSets { by_thread, whole, all, lines_per_page, overlap: 1.0, growth };
        let sum: f64 = sets.by_thread.values().map(|seen| sets.seen_lines(seen)).sum();
        sets.overlap = (sum / all).clamp(1.0, sets.by_thread.len().max(1) as f64);
        sets
    }

    fn seen_lines(&self, seen: &Seen) -> f64 {
        used(seen.cells, seen.pages.len() as f64, self.lines_per_page, self.whole)
    }

    /// Lines that such a thread of the target uses: slices become smaller with more threads, what all use does not.
    fn own(&self, seen: &Seen) -> f64 {
        let lines = self.seen_lines(seen);
        let users = self.by_thread.len() as f64;
        if users < 2.0 {
            return lines;
        }
        let on_target = (users * self.growth).max(1.0);
        let overlap = 1.0 + (self.overlap - 1.0) * (on_target - 1.0) / (users - 1.0);
        lines * (overlap / on_target) / (self.overlap / users)
    }
}

/// Lines of an object that are used, from samples on `pages` different pages: as many as make it likely to see so many
/// pages again, and all of the object where none was.
fn used(samples: f64, pages: f64, lines_per_page: f64, whole: f64) -> f64 {
    let again = samples - pages;
    let again = again - DEVIATIONS * again.sqrt();
    let most = (whole / lines_per_page).max(pages);
    if again <= 0.0 {
        return whole;
    }
    // Of n samples on P pages P (1 - exp(-n / P)) different ones are seen.
    let samples = pages + again;
    let different = |all: f64| all * (1.0 - (-samples / all).exp());
    let (mut low, mut high) = (pages, most);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if different(middle) < pages { low = middle } else { high = middle }
    }
    (high * lines_per_page).min(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_seen_again_say_how_many_there_are() {
        // 64 lines a page. 1,000 draws of 100 pages see all of them, ten times.
        let few = used(1_000.0, 100.0, 64.0, 1e6);
        assert!((few / 6_400.0 - 1.0).abs() < 0.01, "{few}");
        // 100 draws of 100 different pages say nothing.
        assert_eq!(used(100.0, 100.0, 64.0, 1e6), 1e6);
        // 1,000 draws of 1,000 pages see 632 of them, so 368 again; less two deviations 330.
        let some = used(1_000.0, 632.0, 64.0, 1e6) / 64.0;
        assert!((1_000.0..1_150.0).contains(&some), "{some}");
        assert_eq!(used(100.0, 10.0, 64.0, 320.0), 320.0, "never more than there is");
    }

    #[test]
    fn a_cache_fills_in_the_time_that_its_lines_take() {
        let flow = |lines, rate, sweeps| Flow { lines, rate, sweeps };
        // A stream that never returns: 1,000 lines at one a nanosecond.
        assert!((fills_in(&[flow(1e12, 1.0, false)], 1_000.0) - 1_000.0).abs() < 1.0);
        assert!(fills_in(&[flow(400.0, 5.0, false), flow(600.0, 1.0, true)], 1_000.0).is_infinite());
        assert_eq!(fills_in(&[flow(10.0, 1.0, false)], 0.0), 0.0);
        // Half of 100 lines at random after 100 ln 2; a sweep has been at half of them after 50.
        assert!((fills_in(&[flow(100.0, 1.0, false)], 50.0) - 100.0 * 2f64.ln()).abs() < 1e-6);
        assert!((fills_in(&[flow(100.0, 1.0, true)], 50.0) - 50.0).abs() < 1e-6);
        assert_eq!([flow(100.0, 1.0, true).found(99.0), flow(100.0, 1.0, true).found(101.0)], [0.0, 1.0]);
    }

    fn one(charged: f64, own: f64, all: f64) -> Use {
        Use { entry: 0, charged, own, all, flight: 1.0, sweeps: false, second: 0.0, last: 0.0 }
    }

    #[test]
    fn a_small_table_stays_in_a_cache_beside_a_stream_and_a_large_one_does_not() {
        let (second, last) = (Level { lines: 16_384.0, threads: 1.0 }, Level { lines: 180_224.0, threads: 8.0 });
        let part = |table: f64| {
            let mut uses = [one(5.0, table, table), one(95.0, 1e8, 8e8)];
            search(&mut uses, &second, &last, 85.0);
            let parts = uses.each_ref().map(|u| u.time_ns(85.0)).map(|(all, memory)| memory / all);
            assert!(parts[1] > 0.95, "the stream: {parts:?}");
            parts[0]
        };
        assert!(part(3_200.0) < 0.01, "200 KiB: {}", part(3_200.0));
        assert!(part(1e6) > 0.9, "64 MB: {}", part(1e6));
    }
}
