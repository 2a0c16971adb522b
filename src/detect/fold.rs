//! Folding: pages modulo a period, cut into slices with one owner each, scored by description length.
//!
//! Null model: the thread of an access is drawn from the threads' shares. Slice model: with probability
//! 1 - q it is the owner of the slice the page falls in, else drawn as in the null model. The best cut is found
//! exactly by dynamic programming over the folded pages in O(points), whatever the number of threads: only the
//! state of a thread that appears changes, because the best score never falls. A page is folded by its middle. Where
//! the period is no whole number of pages, the pages of later repeats lie between those of earlier ones, and show the
//! edges to a part of a page.
//!
//! The gain is the log-likelihood ratio minus the cost of naming the slices' edges and owners and the period; a
//! positive gain means the pattern describes the accesses shorter than chance does. Periods are comparable
//! by gain: a multiple of the true period needs more slices, a fraction of it does not fit.

use super::points::{Point, Points};

/// One slice of the folded object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cut {
    /// Owner, index into [`Points::threads`].
    pub thread: u16,
    /// First folded page (or part of a page, [`Fit::parts`]) of the owner.
    pub first: u32,
    /// Last folded page or part of the owner.
    pub last: u32,
    /// Samples of the owner inside.
    pub matched: f64,
}

/// Best slices at one period.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fit {
    /// Period in pages; the object's page count for plain block.
    pub period: f64,
    /// Log-likelihood ratio to the null model, nats, description not paid.
    pub likelihood: f64,
    /// The same minus the description length.
    pub gain: f64,
    /// Share of the samples in a slice of their own thread, corrected for chance, 0 to 1.
    pub structure: f64,
    /// Slices in order of pages.
    pub cuts: Vec<Cut>,
    /// Parts of a page in which the slices count.
    pub parts: u32,
}

impl Fit {
    /// Threads that own a slice.
    pub fn owners(&self) -> usize {
        let mut seen: Vec<u16> = self.cuts.iter().map(|c| c.thread).collect();
        seen.sort_unstable();
        seen.dedup();
        seen.len()
    }
}

const NONE: u32 = u32::MAX;

/// Link of a chain of slices that ends in the current best of one thread.
#[derive(Clone, Copy)]
struct Link {
    thread: u16,
    first: u32,
    /// Link and last page of the slice before this one.
    before: u32,
    before_last: u32,
    /// Score at the start of the slice. The increase since then is the matched samples times the thread's gain.
    start: f64,
}

#[derive(Clone, Copy)]
struct State {
    score: f64,
    link: u32,
    last: u32,
}

/// Reusable buffers of [`Folder::fit`].
#[derive(Default)]
pub(crate) struct Folder {
    /// Points by folded page.
    folded: Vec<Point>,
    spare: Vec<Point>,
    links: Vec<Link>,
    states: Vec<State>,
    gains: Vec<f64>,
}

/// Share of noise assumed for the first cut; the second cut assumes the share that the first one found.
const FIRST_NOISE: f64 = 0.3;
/// Number of points from which the share of noise is estimated, to about a hundredth.
const NOISE_POINTS: usize = 10_000;
/// Bounds of the estimated share of noise: without the lower bound a single stray access would be nearly impossible.
const NOISE_RANGE: (f64, f64) = (0.02, 0.75);

/// Share of noise that a fit suggests.
pub(crate) fn noise_of(fit: &Fit) -> f64 {
    (1.0 - fit.structure).clamp(NOISE_RANGE.0, NOISE_RANGE.1)
}

/// Parts of a slice that are distinguished at a period of no whole number of pages, and of a page at most: an edge is
/// then misplaced by a hundredth of a slice, or the pages show it no better.
const SLICE_PARTS: f64 = 32.0;
const PAGE_PARTS: u32 = 16;
/// Repeats that a part of a page holds at least: as many as the largest factor of the multiples and fractions of a
/// period that are tried. With fewer, the parts would tell the repeats apart, and a fraction of the true period would
/// fit as well: the pages of one place of it, which belong to different threads, would lie in different parts.
const PART_REPEATS: f64 = 5.0;

/// Parts of a page at a period.
fn parts_of(points: &Points, period: f64) -> u32 {
    // Slices of less than a page cannot be placed. Parts of them would turn a period next to a whole number of pages
    // into a coordinate along the whole object.
    if unfolded(points, period) || period.fract() == 0.0 || period < points.threads() as f64 {
        return 1;
    }
    let repeats = points.used() / period;
    let wanted = (SLICE_PARTS * points.threads() as f64 / period).min(repeats / PART_REPEATS) as u32;
    // The power of two that is not larger.
    1 << wanted.clamp(1, PAGE_PARTS).ilog2()
}

/// Whether a period is no shorter than the object.
fn unfolded(points: &Points, period: f64) -> bool {
    period >= f64::from(points.pages)
}

impl Folder {
    /// Best slices of `points` folded at `period` pages (at the page count: not folded).
    pub fn fit(&mut self, points: &Points, period: f64) -> Fit {
        if points.list.len() > NOISE_POINTS {
            let noise = noise_of(&self.fit_with(&points.thinned(NOISE_POINTS), period, FIRST_NOISE));
            return self.fit_with(points, period, noise);
        }
        let first = self.fit_with(points, period, FIRST_NOISE);
        let second = self.cut(points, period, noise_of(&first), f64::NEG_INFINITY);
        second.filter(|s| s.gain >= first.gain).unwrap_or(first)
    }

    /// Best slices at an assumed share of noise, in half the time of [`Folder::fit`]; used to compare periods.
    pub fn fit_with(&mut self, points: &Points, period: f64, noise: f64) -> Fit {
        let any = self.fit_beating(points, period, noise, f64::NEG_INFINITY);
        any.unwrap_or(Fit { period, likelihood: 0.0, gain: 0.0, structure: 0.0, cuts: Vec::new(), parts: 1 })
    }

    /// Best slices at an assumed share of noise; none as soon as the gain cannot exceed `least`.
    pub fn fit_beating(&mut self, points: &Points, period: f64, noise: f64, least: f64) -> Option<Fit> {
        if !unfolded(points, period) {
            self.fold(points, period);
        }
        self.cut(points, period, noise, least)
    }

    fn fold(&mut self, points: &Points, period: f64) {
        let inverse = 1.0 / period;
        let parts = parts_of(points, period);
        let scale = f64::from(parts);
        let folded = |p: &Point| {
            let middle = f64::from(p.page) + 0.5;
            // Truncation is the floor: nothing is negative.
            let repeat = f64::from((middle * inverse + 1e-9) as u32);
            Point { page: ((middle - period * repeat).max(0.0) * scale) as u32, ..*p }
        };
        self.folded.clear();
        self.folded.extend(points.list.iter().map(folded));
        self.sort(period * scale);
    }

    /// Sorts stably by folded page (radix sort), so points of a page keep their order. The digits have 11 bits, so that
    /// the table fits in the L1 cache; there are as many digits as the period needs.
    fn sort(&mut self, period: f64) {
        const DIGIT: u32 = 11;
        let bits = u32::BITS - (period as u32).leading_zeros();
        self.spare.resize(self.folded.len(), Point { page: 0, thread: 0, weight: 0.0 });
        for shift in (0..bits).step_by(DIGIT as usize) {
            let mut starts = [0u32; 1 << DIGIT];
            let digit = |p: &Point| (p.page >> shift) as usize & ((1 << DIGIT) - 1);
            self.folded.iter().for_each(|p| starts[digit(p)] += 1);
            let mut sum = 0;
            for start in &mut starts {
                sum += std::mem::replace(start, sum);
            }
            for p in &self.folded {
                let start = &mut starts[digit(p)];
                self.spare[*start as usize] = *p;
                *start += 1;
            }
            std::mem::swap(&mut self.folded, &mut self.spare);
        }
    }

    /// Finds the best slices by dynamic programming, as the module's header describes.
    fn cut(&mut self, points: &Points, period: f64, noise: f64, least: f64) -> Option<Fit> {
        let edges = places(points, period);
        // The edges of k slices among n places and a permutation of the owners cost about k ln n.
        let price = edges.ln();
        self.gains.clear();
        self.gains.extend(points.threads.iter().map(|t| (1.0 + (1.0 - noise) / (noise * t.share.max(1e-9))).ln()));
        self.links.clear();
        self.states.clear();
        self.states.resize(points.threads(), State { score: f64::NEG_INFINITY, link: NONE, last: 0 });
        let list = if unfolded(points, period) { &points.list } else { &self.folded };
        let (gains, states) = (&self.gains[..points.threads()], &mut self.states[..points.threads()]);
        let mut best = State { score: 0.0, link: NONE, last: 0 };
        let mut next_best = best;
        let mut bin = 0;
        // Largest possible increase of the score by the remaining points, and the score below which `least` is out of
        // reach.
        let mut left: f64 = gains.iter().zip(&points.threads).map(|(gain, thread)| gain * thread.weight).sum();
        let hopeless = least - points.samples * noise.ln() - description_saved(points.threads() as f64);
        for chunk in list.chunks(CHECKED) {
            left -= chunk.iter().map(|p| gains[usize::from(p.thread)] * f64::from(p.weight)).sum::<f64>();
            for p in chunk {
                // A slice cannot end inside a page, so gains on this page count from the next page on.
                if p.page != bin {
                    (bin, best) = (p.page, next_best);
                }
                let t = usize::from(p.thread);
                let state = &mut states[t];
                let start = best.score - price;
                if start > state.score {
                    *state = State { score: start, link: self.links.len() as u32, last: bin };
                    let (before, before_last) = (best.link, best.last);
                    self.links.push(Link { thread: p.thread, first: bin, before, before_last, start });
                }
                state.score += gains[t] * f64::from(p.weight);
                state.last = bin;
                if state.score > next_best.score {
                    next_best = *state;
                }
            }
            if next_best.score + left < hopeless {
                return None;
            }
        }
        Some(self.result(points, period, noise, price, next_best))
    }

    fn result(&self, points: &Points, period: f64, noise: f64, price: f64, best: State) -> Fit {
        let mut cuts = Vec::new();
        let (mut link, mut last, mut end) = (best.link, best.last, best.score);
        while link != NONE {
            let l = self.links[link as usize];
            let matched = (end - l.start) / self.gains[usize::from(l.thread)];
            cuts.push(Cut { thread: l.thread, first: l.first, last, matched });
            (link, last, end) = (l.before, l.before_last, l.start + price);
        }
        cuts.reverse();
        let likelihood = best.score + price * cuts.len() as f64 + points.samples * noise.ln();
        let edges = places(points, period);
        let gain = likelihood - description(cuts.len() as f64, edges, points.threads() as f64);
        let inside: f64 = cuts.iter().map(|c| c.matched).sum();
        // Chance level: the owner's part of a slice whose accesses are drawn by the shares alone.
        let chance: f64 = points.threads.iter().map(|t| t.share * t.share).sum();
        let structure = ((inside / points.samples.max(1e-9) - chance) / (1.0 - chance).max(1e-9)).clamp(0.0, 1.0);
        Fit { period, likelihood, gain, structure, cuts, parts: parts_of(points, period) }
    }
}

/// Places where an edge can lie.
fn places(points: &Points, period: f64) -> f64 {
    (points.list.len() as f64).min(period * f64::from(parts_of(points, period))).max(2.0)
}

/// Number of points between two checks whether the gain can still exceed the limit.
const CHECKED: usize = 256;

/// Nats by which the description can be shorter than the price charged for the cuts: k (ln k - 1 - ln threads), at four
/// slices per thread, which is more than is ever accepted.
fn description_saved(threads: f64) -> f64 {
    2.0 + 4.0 * threads * (4.0_f64.ln() - 1.0)
}

/// Nats to name `k` slices: their edges among `edges` places and their owners among `threads`; owners that
/// appear once each are a permutation, which saves one nat per slice.
fn description(k: f64, edges: f64, threads: f64) -> f64 {
    if k < 1.0 {
        return 0.0;
    }
    let places = k * (1.0 + (edges / k).max(1.0).ln());
    let owners = if k <= threads + 1.0 { k * (threads.ln() - 1.0).max(0.0) } else { k * threads.ln() };
    places + owners
}
