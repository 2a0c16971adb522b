//! A machine that executes loop nests: threads take iterations by a schedule, every iteration takes time, and a clock
//! interrupts each thread now and then. What an interrupt sees are the bytes that the loop body uses at that point.

use numamma::detect::{CodeAccesses, ObjectView, PageAccess, Row, Sampling};
use numamma::profile::summary::{AccessFilter, TIME_SLOTS};

use crate::detector::random::Random;
use crate::detector::trace::merged;

pub const PAGE: u64 = 4096;

/// How the iterations of a parallel loop are given to the threads of a team.
#[derive(Clone, Debug)]
pub enum Schedule {
    /// One contiguous part for each thread, the last ones smaller (as `schedule(static)`).
    Static,
    /// Chunks of so many iterations in turn.
    Chunks(u64),
    /// Chunks of so many iterations, each for the thread that is free first.
    Dynamic(u64),
    /// As dynamic, with chunks that become smaller.
    Guided(u64),
    /// Chunks that any thread may take at any time.
    Tasks(u64),
    /// One thread of the team runs all.
    Alone(u64),
    /// Chunks of so many iterations with fixed owners, as a partitioner assigns them.
    Owned(u64, Vec<u64>),
}

/// A byte of the array that an iteration uses.
pub struct Use {
    pub byte: u64,
    pub write: bool,
}

/// What the body uses at a fraction (0 to 1) of an iteration of the parallel loop, in a step of the outermost loop.
pub type Body = Box<dyn Fn(&mut Random, u64, u64, f64, &mut Vec<Use>) + Sync + Send>;

/// A parallel loop of a function.
pub struct Nest {
    pub function: &'static str,
    pub iterations: u64,
    pub schedule: Schedule,
    /// Time of an iteration.
    pub work: Box<dyn Fn(u64) -> f64 + Sync + Send>,
    pub body: Body,
    /// Part of the program's steps that run it, 0 to 1.
    pub active: (f64, f64),
    /// Pages that an iteration uses, at most.
    pub reach: u64,
}

/// Disturbances.
#[derive(Clone, Debug, Default)]
pub struct Noise {
    /// Share of samples that come from a random place of the array.
    pub stray: f64,
    /// Share of samples that are charged to the page after the right one.
    pub skid: f64,
    /// Share of samples lost, by thread: up to this.
    pub lost: f64,
    /// Share of uses of a few pages that all threads share (counters, locks).
    pub hot: f64,
    /// How many times as long a loop takes while other programs keep the caches and the memory busy, at most; each
    /// stretch of the run has its own factor for each loop.
    pub busy: f64,
}

/// Stretches of a run on a busy machine.
const STRETCHES: u64 = 12;

/// A program with one array.
pub struct Program {
    pub bytes: u64,
    pub threads: u64,
    /// Rank of each member of the team.
    pub ranks: Vec<u32>,
    pub steps: u64,
    pub nests: Vec<Nest>,
    pub samples: u64,
    pub noise: Noise,
    /// Whether the main thread fills the array first.
    pub filled: bool,
}

/// Iterations (first, end) of one thread, in the order in which it runs them.
type Share = Vec<(u64, u64)>;

impl Nest {
    /// Iterations of every thread in one step.
    fn shares(&self, threads: u64, r: &mut Random) -> Vec<Share> {
        let n = self.iterations;
        let mut shares: Vec<Share> = vec![Vec::new(); threads as usize];
        match &self.schedule {
            Schedule::Static => {
                let each = n.div_ceil(threads);
                (0..threads).for_each(|t| shares[t as usize].push(((t * each).min(n), ((t + 1) * each).min(n))));
            }
            Schedule::Alone(thread) => shares[(thread % threads) as usize].push((0, n)),
            Schedule::Chunks(chunk) => {
                for (i, first) in (0..n).step_by(*chunk as usize).enumerate() {
                    shares[i % threads as usize].push((first, (first + chunk).min(n)));
                }
            }
            Schedule::Owned(chunk, owners) => {
                for (i, first) in (0..n).step_by(*chunk as usize).enumerate() {
                    let owner = owners[i % owners.len()] % threads;
                    shares[owner as usize].push((first, (first + chunk).min(n)));
                }
            }
            Schedule::Tasks(chunk) => {
                let mut chunks: Vec<u64> = (0..n).step_by(*chunk as usize).collect();
                r.shuffle(&mut chunks);
                for first in chunks {
                    shares[r.below(threads) as usize].push((first, (first + chunk).min(n)));
                }
            }
            Schedule::Dynamic(least) | Schedule::Guided(least) => {
                let mut free: Vec<f64> = (0..threads).map(|_| r.unit()).collect();
                let mut first = 0;
                while first < n {
                    let chunk = match self.schedule {
                        Schedule::Guided(_) => ((n - first) / (2 * threads)).max(*least),
                        _ => *least,
                    };
                    let end = (first + chunk).min(n);
                    let next = (0..free.len()).min_by(|a, b| free[*a].total_cmp(&free[*b])).unwrap_or(0);
                    // Caches, interrupts and memory make equal iterations take unequal times.
                    free[next] += (self.work)(first) * (end - first) as f64 * (0.7 + 0.6 * r.unit());
                    shares[next].push((first, end));
                    first = end;
                }
            }
        }
        shares
    }
}

impl Program {
    fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE)
    }

    fn runs_in(&self, nest: &Nest, step: u64) -> bool {
        let at = (step as f64 + 0.5) / self.steps as f64;
        nest.active.0 <= at && at < nest.active.1
    }

    /// Runs the program and returns what the profile of the array would hold.
    pub fn profile(&self, r: &mut Random) -> ObjectView {
        let sums: Vec<Vec<f64>> = self.nests.iter().map(prefix).collect();
        let total: f64 = (0..self.steps)
            .flat_map(|s| self.nests.iter().zip(&sums).filter(move |(n, _)| self.runs_in(n, s)))
            .map(|(_, sums)| sums.last().copied().unwrap_or(0.0))
            .sum();
        let period = total / self.samples as f64;
        let lost: Vec<f64> = (0..self.threads).map(|_| self.noise.lost * r.unit()).collect();
        let mut clock: Vec<f64> = (0..self.threads).map(|_| period * r.unit()).collect();
        let slower = self.slower(r);
        let mut seen: Vec<(f64, usize, PageAccess)> = Vec::new();
        let mut wall = 0.0;
        if self.filled {
            wall = self.fill(period, &mut seen, r);
        }
        let mut uses = Vec::new();
        for step in 0..self.steps {
            let stretch = (step * STRETCHES / self.steps) as usize;
            for (index, nest) in self.nests.iter().enumerate().filter(|(_, n)| self.runs_in(n, step)) {
                let slower = slower[index][stretch];
                let mut longest = 0.0f64;
                for (thread, share) in nest.shares(self.threads, r).into_iter().enumerate() {
                    let mut done = 0.0;
                    for (first, end) in share {
                        let before = sums[index][first as usize];
                        let work = slower * (sums[index][end as usize] - before);
                        while clock[thread] < work {
                            let at = before + clock[thread] / slower;
                            let i = sums[index].partition_point(|s| *s <= at).saturating_sub(1) as u64;
                            let part = (at - sums[index][i as usize]) / (nest.work)(i).max(f64::MIN_POSITIVE);
                            if !r.chance(lost[thread]) {
                                uses.clear();
                                (nest.body)(r, step, i, part.clamp(0.0, 0.999_999), &mut uses);
                                self.see(r, &uses, (wall + done + clock[thread], index + 1, thread), &mut seen);
                            }
                            clock[thread] += period * (0.5 + r.unit());
                        }
                        clock[thread] -= work;
                        done += work;
                    }
                    longest = longest.max(done);
                }
                wall += longest;
            }
        }
        self.view(seen, wall)
    }

    /// Factors of the time that each loop takes in each stretch of the run.
    fn slower(&self, r: &mut Random) -> Vec<Vec<f64>> {
        if self.noise.busy <= 1.0 {
            return vec![vec![1.0; STRETCHES as usize]; self.nests.len()];
        }
        let of_loop = |_: &Nest| (0..STRETCHES).map(|_| r.log(1.0, self.noise.busy)).collect();
        self.nests.iter().map(of_loop).collect()
    }

    /// The main thread writes the array from its first byte to its last; returns the time that takes.
    fn fill(&self, period: f64, seen: &mut Vec<(f64, usize, PageAccess)>, r: &mut Random) -> f64 {
        let samples = 1 + self.samples / 20;
        for k in 0..samples {
            let page = (self.pages() * k / samples) as u32;
            let access = PageAccess { instance: 0, page, thread: 0, slot: 0, reads: 0.0, writes: 1.0 };
            seen.push((period * (k as f64 + r.unit()), 0, access));
        }
        period * samples as f64
    }

    fn see(
        &self,
        r: &mut Random,
        uses: &[Use],
        (time, function, thread): (f64, usize, usize),
        seen: &mut Vec<(f64, usize, PageAccess)>,
    ) {
        let pages = self.pages();
        let stray = r.chance(self.noise.stray);
        let hot = r.chance(self.noise.hot);
        for u in uses.iter().filter(|u| u.byte < self.bytes) {
            let page = match u.byte / PAGE {
                _ if stray => r.below(pages),
                _ if hot => pages / 3 + r.below(2),
                page if r.chance(self.noise.skid) => page + 1,
                page => page,
            };
            let (reads, writes) = if u.write { (0.0, 1.0) } else { (1.0, 0.0) };
            let page = page.min(pages - 1) as u32;
            seen.push((
                time,
                function,
                PageAccess { instance: 0, page, thread: self.ranks[thread], slot: 0, reads, writes },
            ));
        }
    }

    fn view(&self, seen: Vec<(f64, usize, PageAccess)>, wall: f64) -> ObjectView {
        let slots = f64::from(TIME_SLOTS);
        let placed = |(time, function, a): (f64, usize, PageAccess)| {
            (function, PageAccess { slot: ((time / wall * slots) as u16).min(TIME_SLOTS - 1), ..a })
        };
        let all: Vec<(usize, PageAccess)> = seen.into_iter().map(placed).collect();
        let mut names: Vec<&str> = vec!["fill"];
        names.extend(self.nests.iter().map(|n| n.function));
        let of = |name: &str| {
            let own = all.iter().filter(|(f, _)| names[*f] == name).map(|(_, a)| *a);
            CodeAccesses { function: name.into(), place: name.into(), accesses: merged(own.collect()) }
        };
        let mut distinct = names.clone();
        distinct.dedup();
        let by_code: Vec<CodeAccesses> = distinct.iter().map(|n| of(n)).filter(|c| !c.accesses.is_empty()).collect();
        ObjectView {
            size: self.bytes,
            skew: 0,
            page_size: PAGE,
            threads: self.ranks.iter().max().map_or(1, |m| m + 1),
            others: 0,
            instances: 1,
            cost_share: 0.5,
            hot: true,
            accesses: merged(all.into_iter().map(|(_, a)| a).collect()),
            rows: vec![Row { size: self.bytes, allocator: Some(0) }],
            filter: AccessFilter::All,
            sampling: Sampling { duration_s: 10.0, rate_hz: 250.0, once: false },
            by_code: if by_code.len() > 1 { by_code } else { Vec::new() },
        }
    }

    /// Rank of the thread that uses each page most in `function`, by running all of its iterations; none for pages that
    /// it does not use. Schedules that differ from step to step have no owners.
    pub fn owners(&self, function: &str, r: &mut Random) -> Vec<Option<u32>> {
        let pages = self.pages() as usize;
        let mut counts = vec![0u32; pages * self.threads as usize];
        let mut uses = Vec::new();
        for nest in self.nests.iter().filter(|n| n.function == function) {
            let points = 4 * nest.reach + 4;
            for (thread, share) in nest.shares(self.threads, r).into_iter().enumerate() {
                for i in share.iter().flat_map(|s| s.0..s.1) {
                    for k in 0..points {
                        uses.clear();
                        (nest.body)(r, 0, i, (k as f64 + 0.5) / points as f64, &mut uses);
                        for u in uses.iter().filter(|u| u.byte < self.bytes) {
                            counts[(u.byte / PAGE) as usize * self.threads as usize + thread] += 1;
                        }
                    }
                }
            }
        }
        let owner = |of_page: &[u32]| {
            let (best, most) = of_page.iter().enumerate().max_by_key(|(_, n)| **n)?;
            (*most > 0).then(|| self.ranks[best])
        };
        counts.chunks(self.threads as usize).map(owner).collect()
    }
}

/// Work before every iteration, and of all.
fn prefix(nest: &Nest) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums = vec![0.0];
    for i in 0..nest.iterations {
        sum += (nest.work)(i);
        sums.push(sum);
    }
    sums
}
