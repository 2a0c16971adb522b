//! What each figure shows.

use super::palette::{EMPTY, OWN, SHARED, mix, of, okabe, viridis};
use super::{Axis, Figure, Key, Kind, Mark};
use crate::advise::{Advice, Target};
use crate::detect;
use crate::profile::summary::{Entry, TIME_SLOTS};
use crate::report::View;
use crate::report::bins::{Gantt, Grid, Quantity, Tile, nodes_of};
use crate::report::units::{bytes, duration, middle, printable};

/// Rows of pages and columns of threads of a figure: two pixels each where it is small. SVG has an element for each
/// cell.
const MOST: (usize, usize) = (160, 128);
/// Cells that the counters of an object are binned to first.
const TILE_CELLS: usize = 400_000;
/// Labels of an axis of threads, and names in a legend.
const MOST_TICKS: usize = 12;
/// Steps between the labels of an axis of numbers, at most.
const STEPS: f64 = 5.0;
/// Labels of periods are powers of this.
const PERIODS: f64 = 8.0;
const NAMED: usize = 8;
/// Characters of a name in a title.
const NAME: usize = 40;
/// Weakest mark, so that a single access is seen.
const FAINTEST: f64 = 0.12;

/// What is drawn of what.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The profile.
    pub view: &'a View<'a>,
    /// The object.
    pub entry: &'a Entry,
    /// The figure.
    pub kind: Kind,
    /// What is counted.
    pub quantity: Quantity,
    /// For [`Kind::Placement`].
    pub advice: Option<(&'a Target, &'a Advice)>,
}

/// The figure.
///
/// # Errors
/// What the profile does not know of the object, and what can be drawn instead.
pub fn figure(wanted: &Wanted) -> Result<Figure, String> {
    match wanted.kind {
        Kind::Spectrum => spectrum(wanted),
        Kind::Gantt => gantt(wanted),
        Kind::Matrix => Ok(matrix(wanted, &paged(wanted)?)),
        Kind::Timeline => Ok(timeline(wanted, &paged(wanted)?)),
        Kind::Placement => placement(wanted, &paged(wanted)?),
    }
}

/// An object with its counters.
struct Paged {
    tile: Tile,
    grid: Grid,
}

fn paged(wanted: &Wanted) -> Result<Paged, String> {
    let nothing = |what: &str| {
        format!(
            "nothing to draw of {}: {what}; `numamma report --object '#{}'` says what is known of it",
            middle(&wanted.entry.name, NAME),
            wanted.entry.id
        )
    };
    let tile =
        Tile::of(wanted.view, wanted.entry, TILE_CELLS).ok_or_else(|| nothing("no page of its accesses is known"))?;
    let grid = Grid::of(&tile, wanted.quantity, MOST);
    if wanted.kind != Kind::Placement && grid.by_time.iter().all(|n| *n == 0) {
        return Err(nothing(&format!("no {} were seen (--quantity names others)", wanted.quantity.words())));
    }
    Ok(Paged { tile, grid })
}

fn title(wanted: &Wanted, what: &str) -> String {
    // No control or invisible character may get into the figure, and XML allows few.
    format!("{}: {what}", printable(&middle(&wanted.entry.name, NAME)))
}

/// Labels at multiples of `step` up to `high`, and at `high` if that is not near the last of them.
fn ticks(high: f64, step: f64, is_end_labelled: bool, words: impl Fn(f64) -> String) -> Vec<(f64, String)> {
    let whole = (high / step + 1e-9).floor();
    let mut at: Vec<f64> = (0..=whole as u32).map(|i| f64::from(i) * step).collect();
    if is_end_labelled && high - whole * step > 0.4 * step {
        at.push(high);
    }
    at.into_iter().map(|at| (at, words(at))).collect()
}

/// The smallest round step (1, 2 or 5 and zeros) of which at most [`STEPS`] reach `high`.
fn decimal_step(high: f64) -> f64 {
    let least = high / STEPS;
    let ten = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|n| n * ten).find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * ten)
}

/// Offsets in the object, from the top to the bottom.
fn offsets(wanted: &Wanted, tile: &Tile) -> Axis {
    let size = tile.pages as f64 * wanted.view.summary.header.page_size as f64;
    let step = (size / STEPS).log2().ceil().exp2();
    let ticks = ticks(size, step, true, |at| bytes(at.round() as u64));
    Axis { title: "offset in the object".into(), low: size, high: 0.0, ticks }
}

fn time(wanted: &Wanted) -> Axis {
    // A run of no length has an axis all the same.
    let seconds = (wanted.view.summary.duration_ns() as f64 / 1e9).max(1e-9);
    let words = |at: f64| duration((at * 1e9).round() as u64);
    let ticks = ticks(seconds, decimal_step(seconds), false, words);
    Axis { title: "time of the run".into(), low: 0.0, high: seconds, ticks }
}

/// Groups of threads, each a step wide; `is_down` for those from the top to the bottom.
fn threads(groups: usize, per_group: usize, is_down: bool) -> Axis {
    let step = groups.div_ceil(MOST_TICKS).max(1);
    let label = |group: usize| (group as f64 + 0.5, (group * per_group).to_string());
    let ticks = (0..groups).step_by(step).map(label).collect();
    let title = if per_group > 1 { format!("thread (groups of {per_group})") } else { "thread".into() };
    let (low, high) = if is_down { (groups as f64, 0.0) } else { (0.0, groups as f64) };
    Axis { title, low, high, ticks }
}

/// Step `i` of `n` between the ends of an axis that begins at 0.
fn step(i: usize, n: usize, end: f64) -> (f64, f64) {
    (end * i as f64 / n as f64, end * (i + 1) as f64 / n as f64)
}

/// How strongly `n` of at most `most` is drawn: by the square root, for a tenth of the peak must still be seen.
fn strength(n: u64, most: u64) -> f64 {
    FAINTEST + (1.0 - FAINTEST) * (n as f64 / most.max(1) as f64).sqrt()
}

fn most(list: &[u64]) -> u64 {
    list.iter().copied().max().unwrap_or(0)
}

fn amount(quantity: Quantity, n: u64) -> String {
    if quantity == Quantity::Cost { duration(n) } else { n.to_string() }
}

fn matrix(wanted: &Wanted, Paged { tile, grid }: &Paged) -> Figure {
    let (x, y) = (threads(grid.columns, grid.per_column, false), offsets(wanted, tile));
    let top = most(&grid.by_thread);
    let seen = grid.by_thread.iter().enumerate().filter(|(_, n)| **n > 0);
    let marks = seen.map(|(i, n)| Mark::Cell {
        x: step(i % grid.columns, grid.columns, x.high),
        y: step(i / grid.columns, grid.rows, y.low),
        color: viridis(strength(*n, top)),
    });
    let marks = marks.collect();
    let per_row = bytes((y.low / grid.rows as f64).round() as u64);
    let keys = vec![
        Key::Heading(wanted.quantity.words().into()),
        Key::Heading(format!("per thread and {per_row}")),
        Key::Scale("few".into(), amount(wanted.quantity, top)),
    ];
    Figure { title: title(wanted, &format!("{} by page and thread", wanted.quantity.words())), x, y, marks, keys }
}

/// What the colours of threads mean.
fn thread_keys(columns: usize, per_column: usize) -> Vec<Key> {
    if columns > NAMED {
        let last = (columns - 1) * per_column;
        return vec![Key::Scale("thread 0".into(), format!("thread {last}"))];
    }
    let name = |first: usize| if per_column > 1 { format!("threads from {first}") } else { format!("thread {first}") };
    (0..columns).map(|c| Key::Color(of(c, columns), name(c * per_column))).collect()
}

fn timeline(wanted: &Wanted, Paged { tile, grid }: &Paged) -> Figure {
    let (x, y) = (time(wanted), offsets(wanted, tile));
    let top = most(&grid.by_time);
    let seen = grid.main.iter().enumerate().filter_map(|(i, column)| column.map(|column| (i, column)));
    let marks = seen.map(|(i, column)| Mark::Cell {
        x: step(i % grid.slots, grid.slots, x.high),
        y: step(i / grid.slots, grid.rows, y.low),
        color: mix(EMPTY, of(column, grid.columns), (0.35 + strength(grid.by_time[i], top)).min(1.0)),
    });
    let marks = marks.collect();
    let mut keys = vec![Key::Heading("thread with most".into()), Key::Heading(wanted.quantity.words().into())];
    keys.extend(thread_keys(grid.columns, grid.per_column));
    Figure { title: title(wanted, &format!("{} over time", wanted.quantity.words())), x, y, marks, keys }
}

fn spectrum(wanted: &Wanted) -> Result<Figure, String> {
    let view = wanted.view;
    let spectrum = detect::spectrum(wanted.entry, view.summary, &view.roles).ok_or_else(|| {
        format!(
            "{} has no spectrum: fewer than two threads work on pages of it; --view matrix shows which do",
            middle(&wanted.entry.name, NAME)
        )
    })?;
    let (longest, shortest) = spectrum.periods;
    let part = |period: f64| (period / longest).ln() / (shortest / longest).ln();
    let strongest = spectrum.strengths.iter().copied().fold(0.1, f32::max);
    let powers = std::iter::successors(Some(1.0), |p: &f64| Some(p * PERIODS)).take_while(|p| *p <= longest);
    let labels = powers.filter(|p| *p >= shortest).map(|p| (part(p), bytes(p.round() as u64))).collect();
    let x = Axis { title: "period (logarithmic)".into(), low: 0.0, high: 1.0, ticks: labels };
    let high = f64::from(strongest) * 1.05;
    let y = Axis {
        title: "agreement (0 to 1)".into(),
        low: 0.0,
        high,
        ticks: ticks(high, decimal_step(high), false, |v| format!("{v:.2}")),
    };
    let n = spectrum.strengths.len();
    let bar = |(i, s): (usize, &f32)| Mark::Cell { x: step(i, n, 1.0), y: (0.0, f64::from(*s)), color: okabe(0) };
    let mut marks: Vec<Mark> = spectrum.strengths.iter().enumerate().map(bar).collect();
    let mut keys = vec![Key::Color(okabe(0), "samples that agree".into())];
    let pattern = view.pattern(wanted.entry);
    if let Some(noise) = pattern.map(|p| p.figures.noise).filter(|noise| *noise > 0.0 && *noise < high) {
        marks.push(Mark::Line { from: (0.0, noise), to: (1.0, noise), color: okabe(SHARED), is_dashed: true });
        keys.push(Key::Color(okabe(SHARED), "without structure".into()));
    }
    if let Some(period) = pattern.and_then(|p| p.period) {
        let at = part(period as f64);
        marks.push(Mark::Line { from: (at, 0.0), to: (at, high), color: okabe(7), is_dashed: false });
        keys.push(Key::Color(okabe(7), format!("period {}", bytes(period))));
    }
    Ok(Figure { title: title(wanted, "spectrum of the threads over the pages"), x, y, marks, keys })
}

fn gantt(wanted: &Wanted) -> Result<Figure, String> {
    let gantt = Gantt::of(wanted.view, [wanted.entry]);
    let top = gantt.accesses.iter().map(|[own, shared]| own + shared).max().unwrap_or(0);
    if top == 0 {
        paged(wanted)?;
    }
    let (x, y) = (time(wanted), threads(gantt.groups, gantt.per_group, true));
    let slots = usize::from(TIME_SLOTS);
    let seen = gantt.accesses.iter().enumerate().filter(|(_, [own, shared])| own + shared > 0);
    let marks = seen.map(|(i, [own, shared])| {
        let kind = mix(okabe(OWN), okabe(SHARED), *shared as f64 / (own + shared) as f64);
        Mark::Cell {
            x: step(i % slots, slots, x.high),
            y: step(i / slots, gantt.groups, y.low),
            color: mix(EMPTY, kind, (0.2 + strength(own + shared, top)).min(1.0)),
        }
    });
    let marks = marks.collect();
    let keys = vec![
        Key::Heading("accesses to pages of".into()),
        Key::Color(okabe(OWN), "one thread".into()),
        Key::Color(okabe(SHARED), "several threads".into()),
        Key::Heading("(stronger: more)".into()),
    ];
    Ok(Figure { title: title(wanted, "accesses by thread over time"), x, y, marks, keys })
}

fn placement(wanted: &Wanted, Paged { tile, grid }: &Paged) -> Result<Figure, String> {
    let nodes = wanted.advice.map(|advice| nodes_of(wanted.view, wanted.entry, tile, advice)).unwrap_or_default();
    let y = offsets(wanted, tile);
    let group = |thread: u32| (thread as usize / grid.per_column).min(grid.columns - 1);
    let color = |column: usize| viridis((column as f64 + 0.5) / grid.columns as f64);
    let mut marks = Vec::new();
    let mut strip = |at: f64, row: usize, rows: usize, color| {
        marks.push(Mark::Cell { x: (at + 0.1, at + 0.9), y: step(row, rows, y.low), color });
    };
    let rows = tile.touchers.len();
    let touched = tile.touchers.iter().enumerate().filter_map(|(row, t)| t.map(|t| (row, group(t))));
    touched.for_each(|(row, column)| strip(0.0, row, rows, color(column)));
    let used = (0..grid.rows).filter_map(|row| grid.main_user(row).map(|column| (row, column)));
    used.for_each(|(row, column)| strip(1.0, row, grid.rows, color(column)));
    nodes.iter().enumerate().for_each(|(row, node)| strip(2.0, row, nodes.len(), okabe(*node as usize)));
    let mut names = vec!["first toucher", "main user"];
    let last = (grid.columns - 1) * grid.per_column;
    let mut keys = vec![Key::Heading("threads".into()), Key::Scale("0".into(), last.to_string())];
    if nodes.is_empty() {
        keys.push(Key::Heading("no advised node".into()));
        keys.push(Key::Heading("of single pages".into()));
    } else {
        names.push("advised node");
        let mut known = nodes;
        known.sort_unstable();
        known.dedup();
        keys.push(Key::Heading("advised".into()));
        keys.extend(known.iter().take(16).map(|node| Key::Color(okabe(*node as usize), format!("node {node}"))));
    }
    let ticks = names.iter().enumerate().map(|(i, name)| (i as f64 + 0.5, (*name).to_owned())).collect();
    let x = Axis { title: "of each page".into(), low: 0.0, high: names.len() as f64, ticks };
    Ok(Figure { title: title(wanted, "first touch, use and advised placement"), x, y, marks, keys })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_at_round_numbers() {
        let decimal = |high: f64| {
            let ticks = ticks(high, decimal_step(high), false, |v| format!("{v:.2}"));
            ticks.into_iter().map(|(_, words)| words).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(decimal(4.2), "0.00 1.00 2.00 3.00 4.00");
        assert_eq!(decimal(5.0), "0.00 1.00 2.00 3.00 4.00 5.00");
        assert_eq!(decimal(1.05), "0.00 0.50 1.00");
        assert_eq!(decimal(0.96), "0.00 0.20 0.40 0.60 0.80");
        let ends = |high: f64| ticks(high, 16.0, true, |v| format!("{v}")).pop().map(|(at, _)| at);
        assert_eq!((ends(56.0), ends(50.0), ends(64.0)), (Some(56.0), Some(48.0), Some(64.0)));
    }
}
