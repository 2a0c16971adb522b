//! Two uses of the same pages, such as a loop over the rows and one over the columns of a matrix: the thread of an
//! access is the owner of its page by the one or by the other description, or any thread.
//!
//! Where the first use has one owner, the second one is seen well: in a slice of a block pattern, all that its owner
//! does is noise by one thread, and what is left repeats. Without a description of both uses together, an array that
//! two loops use would be described shorter slice by slice than as a whole, and would be cut at the borders of its
//! threads.

use super::judge::{LEAST_SHARE, Model, NOISE_RANGE, Owners, Second, candidates};
use crate::detect::points::{self, Points, uniform};
use crate::detect::samples::Samples;

/// Rounds in which the shares of both uses and of the noise are estimated (expectation and maximisation). Shares that
/// are not quite the likeliest ones make the description a little longer, of a whole and of its parts alike.
const ROUNDS: usize = 16;

/// A point, and whether its thread is the owner of its page.
struct Cell {
    thread: usize,
    weight: f64,
    by_first: bool,
    by_second: bool,
}

/// The second use that saves most on top of the first one, with these nats, and the model of both; none where nothing
/// is left to describe.
pub(super) fn best(
    samples: &Samples,
    points: &Points,
    order: &[u16],
    first: &Model,
    pages: f64,
) -> Option<(f64, Model)> {
    if matches!(first.owners, Owners::Nobody) {
        return None;
    }
    let end = f64::from(points.pages);
    let stray = strays(samples, end, first);
    let left = points::collect(&stray, stray.list.iter());
    if left.threads() < 2 {
        return None;
    }
    let now = nats(&cells(points, order, &first.owners, None), first);
    let tried = candidates(&stray, &left, order, pages).into_iter().filter(|(price, _)| *price < now);
    let fitted = tried.map(|(price, second)| {
        let cells = cells(points, order, &first.owners, Some(&second));
        let model = fitted(&cells, first, Second { owners: second, price, share: first.noise / 2.0 });
        (now - nats(&cells, &model) - price, model)
    });
    fitted.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// Nats that the first use of a model with this second one saves, more than the model.
pub(super) fn more(points: &Points, order: &[u16], model: &Model, owners: Owners, price: f64) -> f64 {
    let before = model.second.as_ref();
    let now = nats(&cells(points, order, &model.owners, before.map(|s| &s.owners)), model);
    let paid = before.map_or(0.0, |s| s.price);
    let first = Model { second: None, noise: model.noise + before.map_or(0.0, |s| s.share), ..model.clone() };
    let cells = cells(points, order, &first.owners, Some(&owners));
    let both = fitted(&cells, &first, Second { owners, price, share: first.noise / 2.0 });
    now + paid - nats(&cells, &both) - price
}

/// The samples that the first use does not explain: those by others than the owner, and as many of the owner's, drawn
/// at random, as are noise. Without these each slice would lack its owner, which is a pattern of its own.
fn strays(samples: &Samples, end: f64, first: &Model) -> Samples {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    samples.only(|s| {
        let noise = first.noise * first.shares[usize::from(s.thread)].max(LEAST_SHARE);
        let own = first.owners.of(f64::from(s.page) + 0.5, end) == Some(s.thread);
        !own || uniform(&mut state) * (1.0 - first.noise + noise) < noise
    })
}

fn cells(points: &Points, order: &[u16], first: &Owners, second: Option<&Owners>) -> Vec<Cell> {
    let end = f64::from(points.pages);
    let cell = |p: &points::Point| {
        let (at, thread) = (f64::from(p.page) + 0.5, order[usize::from(p.thread)]);
        let is = |owners: &Owners| owners.of(at, end) == Some(thread);
        Cell {
            thread: usize::from(thread),
            weight: f64::from(p.weight),
            by_first: is(first),
            by_second: second.is_some_and(is),
        }
    };
    points.list.iter().map(cell).collect()
}

/// Probabilities of a cell's thread by the first use, by the second one, and by noise.
fn probabilities(cell: &Cell, model: &Model) -> [f64; 3] {
    let second = model.second.as_ref().map_or(0.0, |s| s.share);
    let of = |owned: bool, share: f64| if owned { share } else { 0.0 };
    let noise = model.noise * model.shares[cell.thread].max(LEAST_SHARE);
    [of(cell.by_first, 1.0 - model.noise - second), of(cell.by_second, second), noise]
}

/// Nats of the threads of all cells.
fn nats(cells: &[Cell], model: &Model) -> f64 {
    cells.iter().map(|c| -c.weight * probabilities(c, model).iter().sum::<f64>().ln()).sum()
}

/// The shares of two uses and of the noise that are most likely.
fn fitted(cells: &[Cell], first: &Model, second: Second) -> Model {
    let noise = (first.noise - second.share).max(NOISE_RANGE.0);
    let mut model = Model { second: Some(second), noise, ..first.clone() };
    for _ in 0..ROUNDS {
        let mut sums = [0.0; 2];
        let mut strays = vec![0.0; model.shares.len()];
        for cell in cells {
            let by = probabilities(cell, &model);
            let each = cell.weight / by.iter().sum::<f64>();
            sums[0] += by[0] * each;
            sums[1] += by[1] * each;
            strays[cell.thread] += by[2] * each;
        }
        let stray: f64 = strays.iter().sum();
        let all = (sums[0] + sums[1] + stray).max(f64::MIN_POSITIVE);
        model.noise = (stray / all).clamp(NOISE_RANGE.0, NOISE_RANGE.1);
        if let Some(second) = &mut model.second {
            second.share = (sums[1] / all).min(1.0 - model.noise);
        }
        model.shares = strays.iter().map(|s| (s / stray.max(f64::MIN_POSITIVE)).max(LEAST_SHARE)).collect();
    }
    model
}
