//! Programs drawn from a seed, each with what its loops say about the array: the class, the period, and the functions
//! whose loops give the threads their parts.

use numamma::detect::PatternKind;

use super::machine::{Body, Nest, Noise, PAGE, Program, Schedule, Use};
use crate::detector::random::Random;

/// What is known of a program by construction.
pub struct Truth {
    /// The classes that are right; several where the words overlap.
    pub kinds: Vec<PatternKind>,
    /// Bytes after which the distribution repeats.
    pub period: Option<u64>,
    /// The function whose schedule says which thread owns each page.
    pub owners: Option<&'static str>,
    /// Of a mixed object: function, class, period.
    pub functions: Vec<(&'static str, PatternKind, Option<u64>)>,
}

pub struct Scene {
    pub name: &'static str,
    pub program: Program,
    pub truth: Truth,
}

/// Draws a program of one kind.
type Draw = fn(&mut Random) -> Scene;

const DRAWS: [(&str, Draw); 20] = [
    ("rows", rows),
    ("rows in chunks", chunks),
    ("rows of every plane", planes),
    ("columns", columns),
    ("lower triangle", triangle),
    ("triangle in chunks", triangle_chunks),
    ("stencil", stencil),
    ("gather", gather),
    ("dynamic", dynamic),
    ("guided", guided),
    ("tasks", tasks),
    ("tiles", tiles),
    ("partition", partition),
    ("one thread", one_thread),
    ("wavefront", wavefront),
    ("moving window", window),
    ("long phases", long_phases),
    ("alternating sweeps", alternating),
    ("product and update", product_and_update),
    ("serial check", serial_check),
];

impl Scene {
    pub fn draw(seed: u64) -> (Scene, Random) {
        let mut r = Random::new(seed);
        let (name, draw) = DRAWS[(seed % DRAWS.len() as u64) as usize];
        let mut scene = draw(&mut r);
        scene.name = name;
        (scene, r)
    }
}

/// A team of 2 to 48 threads; one in three has permuted ranks.
fn team(r: &mut Random) -> (u64, Vec<u32>) {
    let threads = r.log(2.0, 48.99) as u64;
    let mut ranks: Vec<u32> = (0..threads as u32).collect();
    if r.chance(0.3) {
        r.shuffle(&mut ranks);
    }
    (threads, ranks)
}

fn noise(r: &mut Random) -> Noise {
    let some = |r: &mut Random, most: f64| if r.chance(0.5) { 0.0 } else { most * r.unit() };
    Noise { stray: some(r, 0.25), skid: some(r, 0.05), lost: some(r, 0.3), hot: some(r, 0.08), busy: 1.0 }
}

/// A program without loops; `bytes` is the array.
fn program(r: &mut Random, bytes: u64, threads: u64, ranks: Vec<u32>) -> Program {
    Program {
        bytes,
        threads,
        ranks,
        steps: 40 + r.below(200),
        nests: Vec::new(),
        samples: r.log(1000.0, 30_000.0) as u64,
        noise: noise(r),
        filled: r.chance(0.6),
    }
}

fn nest(function: &'static str, iterations: u64, schedule: Schedule, reach: u64, body: Body) -> Nest {
    // All nests take the same time unless they say otherwise.
    let each = 1.0 / iterations as f64;
    Nest { function, iterations, schedule, work: Box::new(move |_| each), body, active: (0.0, 1.0), reach }
}

fn scene(program: Program, kinds: &[PatternKind], period: Option<u64>, owners: Option<&'static str>) -> Scene {
    let truth = Truth { kinds: kinds.to_vec(), period, owners, functions: Vec::new() };
    Scene { name: "", program, truth }
}

/// Bytes of a row: whole elements of 8 bytes, and often whole pages.
fn row_bytes(r: &mut Random, least: u64, most: u64) -> u64 {
    let bytes = r.log(least as f64, most as f64) as u64;
    if r.chance(0.6) { bytes.div_ceil(PAGE) * PAGE } else { bytes / 8 * 8 }
}

/// `for row (parallel): for column`: reads and writes a whole row from its first byte to its last.
fn row_body(row: u64) -> Body {
    Box::new(move |r, _, i, at, uses| {
        uses.push(Use { byte: i * row + (at * row as f64) as u64, write: r.chance(0.5) });
    })
}

fn pages_of(bytes: u64) -> u64 {
    bytes / PAGE + 2
}

fn rows(r: &mut Random) -> Scene {
    let (threads, ranks) = team(r);
    let row = row_bytes(r, 512, 65_536);
    let count = (threads * (1 + r.below(64)) + r.below(threads)).max((2 * threads * PAGE).div_ceil(row));
    let mut p = program(r, row * count, threads, ranks);
    p.nests.push(nest("rows", count, Schedule::Static, pages_of(row), row_body(row)));
    scene(p, &[PatternKind::Block], None, Some("rows"))
}

fn chunks(r: &mut Random) -> Scene {
    let (threads, ranks) = team(r);
    let row = row_bytes(r, 2048, 65_536);
    let chunk = (1 + r.below(4)).max((2 * PAGE).div_ceil(row));
    let count = threads * chunk * (3 + r.below(12)) + r.below(threads * chunk);
    let mut p = program(r, row * count, threads, ranks);
    p.nests.push(nest("rows", count, Schedule::Chunks(chunk), pages_of(row), row_body(row)));
    scene(p, &[PatternKind::BlockCyclic], Some(threads * chunk * row), Some("rows"))
}

/// Parallel over the rows of a plane, for all planes.
fn planes_nest(function: &'static str, row: u64, rows: u64, planes: u64) -> Nest {
    let body: Body = Box::new(move |r, _, j, at, uses| {
        let place = at * planes as f64;
        let plane = place as u64;
        let byte = (plane * rows + j) * row + (place.fract() * row as f64) as u64;
        uses.push(Use { byte, write: r.chance(0.5) });
    });
    nest(function, rows, Schedule::Static, planes * pages_of(row), body)
}

/// Rows, their number in a plane, and planes.
fn grid(r: &mut Random, threads: u64) -> (u64, u64, u64) {
    let row = row_bytes(r, 1024, 16_384);
    let rows = (threads * (1 + r.below(5)) + r.below(threads)).max((2 * threads * PAGE).div_ceil(row));
    (row, rows, 3 + r.below(20))
}

fn planes(r: &mut Random) -> Scene {
    let (threads, ranks) = team(r);
    let (row, rows, planes) = grid(r, threads);
    let mut p = program(r, row * rows * planes, threads, ranks);
    p.nests.push(planes_nest("planes", row, rows, planes));
    scene(p, &[PatternKind::BlockCyclic], Some(row * rows), Some("planes"))
}

/// Parallel over the columns of every row, in cache lines.
fn columns_nest(function: &'static str, row: u64, rows: u64) -> Nest {
    let body: Body = Box::new(move |r, _, line, at, uses| {
        let byte = (at * rows as f64) as u64 * row + line * 64;
        uses.push(Use { byte, write: r.chance(0.5) });
    });
    nest(function, row / 64, Schedule::Static, rows, body)
}

fn columns(r: &mut Random) -> Scene {
    let (threads, ranks) = team(r);
    let row = (2 + r.below(4)) * threads * PAGE;
    let rows = 4 + r.below(60);
    let mut p = program(r, row * rows, threads, ranks);
    p.nests.push(columns_nest("columns", row, rows));
    scene(p, &[PatternKind::BlockCyclic], Some(row), Some("columns"))
}

/// A lower triangle: row i has i + 1 elements of those in a row, and takes as long.
fn triangular(row: u64, count: u64, schedule: Schedule) -> Nest {
    let body: Body = Box::new(move |r, _, i, at, uses| {
        let used = row as f64 * (i + 1) as f64 / count as f64;
        uses.push(Use { byte: i * row + (at * used) as u64, write: r.chance(0.5) });
    });
    Nest { work: Box::new(|i| (i + 1) as f64), ..nest("triangle", count, schedule, pages_of(row), body) }
}

fn triangle(r: &mut Random) -> Scene {
    let (threads, ranks) = team(r);
    let row = row_bytes(r, 4096, 32_768);
    let count = threads * (2 + r.below(24)) + r.below(threads);
    let mut p = program(r, row * count, threads, ranks);
    p.nests.push(triangular(row, count, Schedule::Static));
    scene(p, &[PatternKind::Block], None, Some("triangle"))
}

fn triangle_chunks(r: &mut Random) -> Scene {
    let (threads, ranks) = team(r);
    let row = row_bytes(r, 8192, 32_768);
    let chunk = 1 + r.below(3);
    let count = threads * chunk * (3 + r.below(10)) + r.below(threads);
    let mut p = program(r, row * count, threads, ranks);
    p.nests.push(triangular(row, count, Schedule::Chunks(chunk)));
    scene(p, &[PatternKind::BlockCyclic], Some(threads * chunk * row), Some("triangle"))
}

/// Seven points: a sample sees the planes above and below as well.
fn stencil(r: &mut Random) -> Scene {
    let (threads, ranks) = team(r);
    let plane = row_bytes(r, 8192, 131_072);
    let count = threads * (3 + r.below(8)) + r.below(threads);
    let mut p = program(r, plane * count, threads, ranks);
    let body: Body = Box::new(move |_, _, k, at, uses| {
        let byte = k * plane + (at * plane as f64) as u64;
        uses.extend(
            [byte, byte.saturating_sub(plane), byte + plane, byte + 8, byte + 1024]
                .map(|byte| Use { byte, write: false }),
        );
    });
    p.nests.push(nest("stencil", count, Schedule::Static, pages_of(plane), body));
    // Reads only, and each part by its thread: the slices are what a placement needs.
    scene(p, &[PatternKind::Block], None, Some("stencil"))
}

/// Every iteration uses a few random places.
fn gather_nest(function: &'static str, bytes: u64, writes: f64) -> Nest {
    let body: Body = Box::new(move |r, _, _, _, uses| {
        for _ in 0..1 + r.below(4) {
            uses.push(Use { byte: r.below(bytes), write: r.chance(writes) });
        }
    });
    nest(function, 1000, Schedule::Static, 1, body)
}

fn gather(r: &mut Random) -> Scene {
    let (threads, ranks) = team(r);
    let bytes = r.log(64.0, 40_000.0) as u64 * PAGE;
    let mut p = program(r, bytes, threads, ranks);
    let writes = if r.chance(0.5) { 0.0 } else { 0.1 + 0.4 * r.unit() };
    p.nests.push(gather_nest("gather", bytes, writes));
    scene(p, if writes > 0.0 { &[PatternKind::Random] } else { &[PatternKind::ReadShared] }, None, None)
}

/// Rows that any thread may take, in every step another one.
fn scheduled(r: &mut Random, schedule: fn(u64) -> Schedule) -> Scene {
    let (threads, ranks) = team(r);
    let row = row_bytes(r, 2048, 65_536);
    let count = threads * (8 + r.below(24));
    let chunk = 1 + r.below(2);
    let mut p = program(r, row * count, threads, ranks);
    p.nests.push(nest("rows", count, schedule(chunk), pages_of(row), row_body(row)));
    scene(p, &[PatternKind::Random], None, None)
}

fn dynamic(r: &mut Random) -> Scene {
    scheduled(r, Schedule::Dynamic)
}

fn guided(r: &mut Random) -> Scene {
    scheduled(r, Schedule::Guided)
}

fn tasks(r: &mut Random) -> Scene {
    scheduled(r, Schedule::Tasks)
}

/// A matrix in tiles, a grid of threads high and wide.
fn tiles(r: &mut Random) -> Scene {
    let (high, wide) = (2 + r.below(5), 2 + r.below(5));
    let threads = high * wide;
    let ranks: Vec<u32> = (0..threads as u32).collect();
    let tile = (1 + r.below(3)) * PAGE;
    let (row, rows) = (wide * tile, high * (8 + r.below(40)));
    let mut p = program(r, row * rows, threads, ranks);
    // A tile row is an iteration; its owner is that of the tile.
    let owners: Vec<u64> = (0..rows * wide).map(|i| (i / wide * high / rows) * wide + i % wide).collect();
    let body: Body = Box::new(move |r, _, i, at, uses| {
        uses.push(Use { byte: i * tile + (at * tile as f64) as u64, write: r.chance(0.5) });
    });
    p.nests.push(nest("tiles", rows * wide, Schedule::Owned(1, owners), pages_of(tile), body));
    scene(p, &[PatternKind::Irregular], None, Some("tiles"))
}

/// An unstructured mesh: a partitioner gave every cluster of elements to a thread.
fn partition(r: &mut Random) -> Scene {
    let (threads, ranks) = team(r);
    let threads = threads.max(3);
    let ranks = if ranks.len() < 3 { (0..3).collect() } else { ranks };
    let cluster = row_bytes(r, 8192, 32_768);
    let count = threads * (6 + r.below(10));
    let mut owners: Vec<u64> = (0..count).map(|i| i % threads).collect();
    r.shuffle(&mut owners);
    let mut p = program(r, cluster * count, threads, ranks);
    p.samples = p.samples.max(12 * count);
    p.nests.push(nest("mesh", count, Schedule::Owned(1, owners), pages_of(cluster), row_body(cluster)));
    scene(p, &[PatternKind::Irregular], None, Some("mesh"))
}

fn one_thread(r: &mut Random) -> Scene {
    let (threads, ranks) = team(r);
    let row = row_bytes(r, 512, 65_536);
    let count = 4 + r.below(400);
    let mut p = program(r, (row * count).max(2 * PAGE), threads, ranks);
    // One thread is all there is: what is stray comes from this thread as well.
    p.nests.push(nest("own", count, Schedule::Alone(r.below(threads)), pages_of(row), row_body(row)));
    scene(p, &[PatternKind::Private], None, None)
}

/// Threads own columns and go through the rows one after the other, each a row behind its neighbour.
fn wavefront(r: &mut Random) -> Scene {
    let (threads, ranks) = team(r);
    let row = (2 + r.below(3)) * threads * PAGE;
    let rows = 4 + r.below(40);
    let mut p = program(r, row * rows, threads, ranks);
    let part = row / threads;
    let body: Body = Box::new(move |r, _, thread, at, uses| {
        let place = at * rows as f64;
        // The front has not reached the thread's first rows at the start of a sweep.
        let line = (place as u64 + rows - thread % rows) % rows;
        uses.push(Use {
            byte: line * row + thread * part + (place.fract() * part as f64) as u64,
            write: r.chance(0.5),
        });
    });
    p.nests.push(nest("front", threads, Schedule::Static, rows * pages_of(part), body));
    scene(p, &[PatternKind::BlockCyclic], Some(row), Some("front"))
}

/// A window moves over the array; in every step the threads divide it anew.
fn window(r: &mut Random) -> Scene {
    let (threads, ranks) = team(r);
    let bytes = r.log(500.0, 20_000.0) as u64 * PAGE;
    let mut p = program(r, bytes, threads, ranks);
    p.steps = 200;
    let (steps, width) = (p.steps, bytes / (3 + r.below(5)));
    let rounds = 1 + r.below(3);
    let body: Body = Box::new(move |r, step, i, at, uses| {
        let start = (bytes - width) as f64 * ((step * rounds) as f64 / steps as f64).fract();
        let inside = (i as f64 + at) / 1024.0 * width as f64;
        uses.push(Use { byte: (start + inside) as u64, write: r.chance(0.5) });
    });
    p.nests.push(nest("window", 1024, Schedule::Static, 1, body));
    // Every page has all threads in turn: no thread keeps it, and what changes, changes all the time.
    scene(p, &[PatternKind::Random, PatternKind::Phased], None, None)
}

/// Sweeps along the rows for a long time, then along the columns.
fn long_phases(r: &mut Random) -> Scene {
    let (threads, ranks) = team(r);
    let row = (2 + r.below(3)) * threads * PAGE;
    let rows = threads * (2 + r.below(5));
    let mut p = program(r, row * rows, threads, ranks);
    let change = 0.35 + 0.3 * r.unit();
    let first = nest("along rows", rows, Schedule::Static, pages_of(row), row_body(row));
    p.nests.push(Nest { active: (0.0, change), ..first });
    p.nests.push(Nest { active: (change, 1.0), ..columns_nest("along columns", row, rows) });
    scene(p, &[PatternKind::Phased], None, None)
}

/// One run in two of programs whose loops alternate is on a busy machine: how long each loop takes changes.
fn on_a_machine_that_may_be_busy(mut scene: Scene, r: &mut Random) -> Scene {
    if r.chance(0.5) {
        scene.program.noise.busy = 1.5 + 4.5 * r.unit();
    }
    scene
}

/// The same sweeps, in every step both.
fn alternating(r: &mut Random) -> Scene {
    let mut scene = long_phases(r);
    scene.program.nests.iter_mut().for_each(|n| n.active = (0.0, 1.0));
    scene.program.steps = scene.program.steps.max(100);
    let row = scene.program.nests[1].iterations * 64;
    scene.truth = Truth {
        kinds: vec![PatternKind::Mixed],
        period: None,
        owners: None,
        functions: vec![
            ("along rows", PatternKind::Block, None),
            ("along columns", PatternKind::BlockCyclic, Some(row)),
        ],
    };
    on_a_machine_that_may_be_busy(scene, r)
}

/// A vector that one function reads everywhere and another updates in parts.
fn product_and_update(r: &mut Random) -> Scene {
    let mut scene = rows(r);
    let p = &mut scene.program;
    let part = nest("update", p.nests[0].iterations, Schedule::Static, 1, row_body(p.bytes / p.nests[0].iterations));
    let mut product = gather_nest("product", p.bytes, 0.0);
    let each = (0.4 + r.unit()) / product.iterations as f64;
    product.work = Box::new(move |_| each);
    p.nests = vec![product, part];
    p.steps = p.steps.max(100);
    scene.truth = Truth {
        kinds: vec![PatternKind::Mixed],
        period: None,
        owners: None,
        functions: vec![("product", PatternKind::Random, None), ("update", PatternKind::Block, None)],
    };
    on_a_machine_that_may_be_busy(scene, r)
}

/// Parts of all threads, and in every step a check of the whole array by the main thread.
fn serial_check(r: &mut Random) -> Scene {
    let mut scene = rows(r);
    let p = &mut scene.program;
    let row = p.bytes / p.nests[0].iterations;
    let mut check = nest("check", p.nests[0].iterations, Schedule::Alone(0), 1, row_body(row));
    let each = (0.3 + 0.3 * r.unit()) / check.iterations as f64;
    check.work = Box::new(move |_| each);
    p.nests.push(check);
    p.steps = p.steps.max(100);
    scene.truth = Truth {
        kinds: vec![PatternKind::Mixed],
        period: None,
        owners: None,
        functions: vec![("rows", PatternKind::Block, None), ("check", PatternKind::Private, None)],
    };
    on_a_machine_that_may_be_busy(scene, r)
}
