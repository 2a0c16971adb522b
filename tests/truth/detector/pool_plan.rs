//! Blocks of memory that hold several arrays, drawn from a seed.

use numamma::detect::{CodeAccesses, ObjectView, PageAccess, PatternKind, Sampling};
use numamma::profile::summary::AccessFilter;

use super::plan::Layout;
use super::random::Random;
use super::trace::{PAGE, SLOTS, merged};

/// One array of a block.
#[derive(Debug, Clone)]
pub struct Array {
    pub kind: PatternKind,
    pub pages: u32,
    layout: Layout,
    /// Samples per page.
    pub density: f64,
    /// Number of the function that uses it.
    pub function: usize,
    writes: f64,
    /// Pages of a slice.
    slice: f64,
}

/// What was planted.
#[derive(Debug, Clone)]
pub struct Pool {
    pub threads: u32,
    pub arrays: Vec<Array>,
    pub noise: f64,
    /// Thread 0 fills the block before the others use it.
    initialised: bool,
}

const KINDS: [PatternKind; 5] =
    [PatternKind::Block, PatternKind::BlockCyclic, PatternKind::Random, PatternKind::ReadShared, PatternKind::Private];

/// Samples per page from which a page on the wrong side of its boundary has more samples than chance explains: of a
/// page that two threads share, one in four thousand shows one of them only.
const ENOUGH: f64 = 12.0;
/// Noise up to which that is so.
const CLEAN: f64 = 0.2;
/// Ratio of the lengths of two slices that are different.
const OTHER_SLICES: f64 = 1.5;

impl Pool {
    /// Two to eight arrays of 16 to 2,000 pages; in half of the blocks each array has a function of its own.
    pub fn draw(seed: u64) -> (Pool, Random) {
        let mut r = Random::new(seed);
        let threads = r.log(2.0, 32.99) as u32;
        let (count, by_code) = (2 + r.below(7) as usize, r.chance(0.5));
        let density = r.log(2.0, 40.0);
        let arrays = (0..count).map(|i| array(&mut r, threads, density, if by_code { i } else { 0 })).collect();
        let noise = if r.chance(0.3) { 0.0 } else { 0.3 * r.unit() };
        let initialised = r.chance(0.35);
        (Pool { threads, arrays, noise, initialised }, r)
    }

    /// The first pages of all arrays but the first, each with whether the samples show it to the page.
    pub fn boundaries(&self) -> Vec<(u32, bool)> {
        let mut at = 0;
        let of = |two: &[Array]| {
            at += two[0].pages;
            (at, self.is_determined(&two[0], &two[1]))
        };
        self.arrays.windows(2).map(of).collect()
    }

    /// Whether two neighbours differ by what the samples can show: by the function, the class, or the length of their
    /// slices, with enough samples on a page and little noise. Left out are neighbours that are one array as well as
    /// two: slices of about one length by one function are slices of a period, two arrays of one thread each are an
    /// array in two slices, and two that all threads use at random by one function do not differ. Left in are those
    /// whose pages next to the boundary happen to have the same thread, which nothing but the slices behind them can
    /// show.
    fn is_determined(&self, a: &Array, b: &Array) -> bool {
        let sliced = |a: &Array| matches!(a.kind, PatternKind::Block | PatternKind::BlockCyclic | PatternKind::Private);
        let longer = (a.slice / b.slice).max(b.slice / a.slice);
        let differ = match (sliced(a), sliced(b)) {
            _ if a.function != b.function => true,
            (true, true) => a.kind != b.kind || longer >= OTHER_SLICES,
            _ => a.kind != b.kind,
        };
        let private = a.kind == PatternKind::Private && b.kind == a.kind && a.function == b.function;
        differ && !private && self.noise <= CLEAN && a.density.min(b.density) >= ENOUGH
    }

    /// The block as the detectors see it.
    pub fn view(&self, r: &mut Random) -> ObjectView {
        let first_slot = if self.initialised { 2 + r.below(20) } else { 0 };
        let functions = self.arrays.iter().map(|a| a.function + 1).max().unwrap_or(1);
        let mut by_code = vec![Vec::new(); functions];
        let order: Vec<u32> = (0..self.threads).collect();
        let mut first = 0;
        for a in &self.arrays {
            for _ in 0..(f64::from(a.pages) * a.density) as u32 {
                let page = r.below(u64::from(a.pages)) as u32;
                let any = r.below(u64::from(self.threads)) as u32;
                let noise = if a.kind == PatternKind::Private { self.noise.min(0.05) } else { self.noise };
                let thread = if r.chance(noise) { any } else { a.layout.user(page, &order, r) };
                let slot = (first_slot + r.below(SLOTS - first_slot)) as u16;
                let writes = f32::from(u8::from(r.chance(a.writes)));
                let access = PageAccess { instance: 0, page: first + page, thread, slot, reads: 1.0 - writes, writes };
                by_code[a.function].push(access);
            }
            first += a.pages;
        }
        if self.initialised {
            let filled = |_| PageAccess {
                instance: 0,
                page: r.below(u64::from(first)) as u32,
                thread: 0,
                slot: r.below(first_slot) as u16,
                reads: 0.0,
                writes: 1.0,
            };
            let filled: Vec<PageAccess> = (0..2 * first).map(filled).collect();
            by_code[0].extend(filled);
        }
        let named = |(n, accesses): (usize, &Vec<PageAccess>)| CodeAccesses {
            function: format!("f{n}"),
            place: String::new(),
            accesses: merged(accesses.clone()),
        };
        ObjectView {
            size: u64::from(first) * PAGE,
            skew: 0,
            page_size: PAGE,
            threads: self.threads,
            others: 0,
            instances: 1,
            cost_share: 0.5,
            hot: true,
            accesses: merged(by_code.concat()),
            rows: Vec::new(),
            filter: AccessFilter::All,
            sampling: Sampling { duration_s: 10.0, rate_hz: 250.0, once: false },
            by_code: if functions > 1 { by_code.iter().enumerate().map(named).collect() } else { Vec::new() },
        }
    }
}

fn array(r: &mut Random, threads: u32, density: f64, function: usize) -> Array {
    let kind = KINDS[r.below(KINDS.len() as u64) as usize];
    let pages = (r.log(16.0, 2000.0) as u32).max(4 * threads);
    let density = density * (0.5 + r.unit());
    let order: Vec<u32> = (0..threads).collect();
    let slices = |period: f64| {
        let edges = (1..=threads).map(|i| f64::from(i) / f64::from(threads)).collect();
        Layout::Slices { order: order.clone(), edges, period }
    };
    let period = match kind {
        PatternKind::BlockCyclic => (r.log(f64::from(2 * threads), f64::from(pages) / 1.5) as u32).max(2 * threads),
        _ => pages,
    };
    let layout = match kind {
        PatternKind::Block | PatternKind::BlockCyclic => slices(f64::from(period)),
        PatternKind::Private => Layout::One(r.below(u64::from(threads)) as u32),
        _ => Layout::Shared,
    };
    let writes = if kind == PatternKind::ReadShared { 0.0 } else { 0.3 };
    Array { kind, pages, layout, density, function, writes, slice: f64::from(period) / f64::from(threads) }
}
