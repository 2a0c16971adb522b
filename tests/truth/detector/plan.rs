//! What is planted in a trace, drawn from a seed.

use numamma::detect::{PatternKind, samples_needed};

use super::random::Random;

/// A pattern over the pages of an object, for the whole run or a part of it.
#[derive(Debug, Clone)]
pub enum Layout {
    /// Slices in the order given, over every `period` pages (the whole object: block).
    Slices { order: Vec<u32>, edges: Vec<f64>, period: f64 },
    /// Everyone everywhere.
    Shared,
    /// One thread.
    One(u32),
    /// Every `chunk` pages have an owner.
    Owners { chunk: u32, owners: Vec<u32> },
}

/// What was planted.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub kind: PatternKind,
    pub threads: u32,
    /// Ranks of the threads that take part, in the order of their slices.
    pub order: Vec<u32>,
    /// Pages of the object; of rows, of all together.
    pub pages: u32,
    pub samples: u32,
    pub noise: f64,
    /// Whole pages.
    pub period: Option<u32>,
    pub permuted: bool,
    pub unequal: bool,
    pub initialised: bool,
    pub instances: u32,
    /// Rows of a matrix allocated one by one by thread 0.
    pub rows: Option<u32>,
    /// Patterns with the share of the run's slots at which each ends.
    pub phases: Vec<(f64, Layout)>,
    /// Share of writes.
    pub writes: f64,
    /// Accesses per sample at most, all on one page.
    pub burst: u64,
}

/// Kinds in turn; block-cyclic is the hardest and comes twice.
const KINDS: [PatternKind; 10] = [
    PatternKind::Block,
    PatternKind::BlockCyclic,
    PatternKind::Random,
    PatternKind::Private,
    PatternKind::ReadShared,
    PatternKind::BlockCyclic,
    PatternKind::Irregular,
    PatternKind::Phased,
    PatternKind::Block,
    PatternKind::Random,
];

impl Plan {
    /// The plan of a seed, of the kind whose turn it is.
    pub fn draw(seed: u64) -> (Plan, Random) {
        let kind = match seed % 100 {
            97 => PatternKind::Small,
            98 => PatternKind::Cold,
            n => KINDS[(n % 10) as usize],
        };
        Plan::of(kind, seed)
    }

    /// A plan of one kind.
    pub fn of(kind: PatternKind, seed: u64) -> (Plan, Random) {
        let mut r = Random::new(seed);
        let mut threads = r.log(2.0, 256.99) as u32;
        if r.chance(0.3) {
            threads = 1 << (1 + r.below(8));
        }
        let mut order: Vec<u32> = (0..threads).collect();
        if r.chance(0.2) && threads > 3 {
            let keep = 2 + r.below(u64::from(threads) - 2) as usize;
            r.shuffle(&mut order);
            order.truncate(keep.max(2));
            order.sort_unstable();
        }
        let permuted = r.chance(0.25);
        if permuted {
            r.shuffle(&mut order);
        }
        let pages = (r.log(64.0, 1_048_576.0) as u32).max(2 * order.len() as u32 + 2);
        let mut plan = Plan {
            seed,
            kind,
            threads,
            order,
            pages,
            samples: r.log(300.0, 100_000.0) as u32,
            noise: if r.chance(0.3) { 0.0 } else { 0.4 * r.unit() },
            period: None,
            permuted,
            unequal: r.chance(0.3),
            initialised: r.chance(0.35),
            instances: 1,
            rows: None,
            phases: Vec::new(),
            writes: 0.6 * r.unit(),
            burst: if r.chance(0.25) { 1 + r.below(6) } else { 1 },
        };
        plan.plant(&mut r);
        (plan, r)
    }

    fn plant(&mut self, r: &mut Random) {
        match self.kind {
            PatternKind::Block | PatternKind::BlockCyclic if r.chance(0.2) => self.plant_rows(r),
            PatternKind::BlockCyclic => self.plant_period(r),
            PatternKind::Private if r.chance(0.5) => self.instances = 2 + r.below(30) as u32,
            PatternKind::Random => self.writes = self.writes.max(0.05),
            PatternKind::Irregular => self.plant_owners(r),
            PatternKind::Phased => self.plant_phases(r),
            _ => {}
        }
        if self.phases.is_empty() {
            let layout = match self.kind {
                PatternKind::Block | PatternKind::BlockCyclic => self.slices(r, self.order.clone(), self.period),
                PatternKind::Private => Layout::One(self.order[0]),
                _ => Layout::Shared,
            };
            self.phases.push((1.0, layout));
        }
    }

    fn part(&self) -> u32 {
        self.order.len() as u32
    }

    fn slices(&self, r: &mut Random, order: Vec<u32>, period: Option<u32>) -> Layout {
        let mut edges: Vec<f64> = order.iter().map(|_| if self.unequal { 0.5 + r.unit() } else { 1.0 }).collect();
        let total: f64 = edges.iter().sum();
        let mut at = 0.0;
        edges.iter_mut().for_each(|w| {
            at += *w / total;
            *w = at;
        });
        Layout::Slices { order, edges, period: f64::from(period.unwrap_or(self.pages)) }
    }

    /// Slices of at least two pages, at least one and a half repeats.
    fn plant_period(&mut self, r: &mut Random) {
        let (low, high) = (f64::from(2 * self.part()), f64::from(self.pages) / 1.5);
        if low > high {
            self.kind = PatternKind::Block;
            return;
        }
        self.period = Some((r.log(low, high + 0.99) as u32).min((f64::from(self.pages) / 1.5) as u32));
    }

    /// A matrix of rows: each thread has a run of rows, or rows are dealt out a few at a time. Where threads share a
    /// row, cuts would lie inside it, so runs are whole rows.
    fn plant_rows(&mut self, r: &mut Random) {
        let part = self.part();
        let row_pages = r.log(1.0, 64.99) as u32;
        let rows = (r.log(16.0, 4096.0) as u32).max(4 * part);
        self.pages = rows * row_pages;
        self.rows = Some(rows);
        self.instances = rows;
        self.unequal = false;
        if self.kind == PatternKind::BlockCyclic {
            let most = rows * 2 / 3 / part;
            let deal = r.log(1.0, f64::from(most.max(1)) + 0.99) as u32;
            self.period = Some(deal.min(most).max(1) * part * row_pages);
            // Two pages at least are a slice.
            if self.period < Some(2 * part) {
                self.period = Some(2 * part * row_pages);
            }
        }
    }

    /// Chunks with owners drawn at random, as many as the samples can show.
    fn plant_owners(&mut self, r: &mut Random) {
        let fewest = (4 * self.part()).max(32).min(self.pages);
        let most = (self.samples / 8).clamp(fewest, self.pages.max(fewest));
        let chunks = r.log(f64::from(fewest), f64::from(most) + 0.99) as u32;
        self.samples = self.samples.max(8 * chunks).min(100_000);
        let chunk = (self.pages / chunks).max(1);
        let owners: Vec<u32> = (0..self.pages.div_ceil(chunk))
            .map(|i| if i < self.part() { i } else { r.below(u64::from(self.part())) as u32 })
            .map(|i| self.order[i as usize])
            .collect();
        let mut owners = owners;
        r.shuffle(&mut owners);
        self.phases.push((1.0, Layout::Owners { chunk, owners }));
    }

    /// Two or three phases of at least a fifth of the run, neighbours wanting different places.
    fn plant_phases(&mut self, r: &mut Random) {
        let count = 2 + r.below(2) as usize;
        let mut cuts: Vec<f64> = (1..count).map(|i| (i as f64 + 0.3 * (r.unit() - 0.5)) / count as f64).collect();
        cuts.push(1.0);
        // One thread alone at first would be initialisation, not a phase.
        let mut last = r.below(3);
        for (i, end) in cuts.into_iter().enumerate() {
            if i > 0 {
                last = (last + 1 + r.below(3)) % 4;
            }
            let mut turned = self.order.clone();
            turned.rotate_left(self.order.len() / 2);
            let layout = match last {
                0 => self.slices(r, self.order.clone(), None),
                1 => self.slices(r, turned, None),
                2 => Layout::Shared,
                _ => Layout::One(self.order[r.below(u64::from(self.part())) as usize]),
            };
            self.phases.push((end, layout));
        }
        // Every phase must have the samples that a run of its own would need.
        let needed = (6.0 * samples_needed(self.order.len())) as u32;
        self.samples = self.samples.max(needed);
        self.writes = self.writes.max(0.05);
    }

    /// Samples that a period wrong by one page would misplace, seen from the middle: from about a dozen the data can
    /// tell.
    pub fn period_is_determined(&self) -> bool {
        const ENOUGH: f64 = 12.0;
        let period = f64::from(self.period.unwrap_or(1));
        let repeats = f64::from(self.pages) / period;
        f64::from(self.samples) * (1.0 - self.noise) * self.order.len() as f64 * repeats / (4.0 * period) >= ENOUGH
    }
}
