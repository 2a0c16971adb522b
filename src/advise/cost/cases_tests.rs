//! What the kernel does by itself, and what stays in caches: programs whose answer follows from their description.

use numamma_plan::machine::Thp;
use numamma_plan::policy::PolicyKind;

use crate::advise::tests::{Random, entry, in_sequence, numbered, profile};
use crate::advise::{Given, Prediction, Target, advise, predict};
use crate::detect::classify_all;
use crate::profile::record::{FAULT, TRACE};
use crate::profile::records::{AccessCode, AddressKind};
use crate::profile::summary::{Entry, Summary, TouchRun};
use crate::topology::caches::{Cache, CacheSource, Caches};
use crate::topology::model::Model;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const THREADS: u64 = 8;

/// Touched first by the main thread.
fn by_main(e: Entry) -> Entry {
    let run = TouchRun { instance: 0, page: 0, pages: e.size.div_ceil(PAGE) as u32, thread: 0, time_ns: 0 };
    Entry { touches: vec![run], ..e }
}

fn slices(at: u64, size: u64) -> u32 {
    (at * THREADS / size) as u32
}

/// A grid of which each thread uses an eighth, for `seconds` with all threads at work.
fn grid(seconds: u64) -> Summary {
    let e = entry("grid", 64 * MIB, 1000 * THREADS * seconds, 20_000, |at, _| slices(at, 64 * MIB));
    profile(THREADS as u32, "never", vec![by_main(e)])
}

fn target(nodes: u32, balancing: Option<bool>) -> Target {
    let mut model = Model::uniform(nodes, THREADS as u32);
    model.numa_balancing = balancing;
    Target::of(model, THREADS as u32, Thp::Never)
}

fn predicted(summary: &Summary, target: &Target) -> Prediction {
    let patterns = classify_all(summary);
    let advice = advise(summary, &patterns, target).unwrap();
    predict(summary, &patterns, target, &advice, &[]).unwrap()
}

/// Local and busiest share, and the speed-up.
fn figures(found: &Prediction, name: &str) -> (f64, f64, f64) {
    let p = found.policies.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no {name}: {found:#?}"));
    (p.local_share.unwrap(), p.busiest_node_share.unwrap(), p.speedup)
}

fn near(got: f64, truth: f64, error: f64) {
    assert!((got - truth).abs() <= error, "{got} is not {truth}");
}

/// In a second the kernel does nothing; in the next one it comes by every page once, and a page with one user moves at
/// once. Three quarters of the pages have another user than the node of main.
#[test]
fn slices_follow_their_threads_within_two_seconds() {
    for (seconds, moved) in [(1, 0.0), (2, 0.25), (4, 0.625), (100, 0.985)] {
        let found = predicted(&grid(seconds), &target(4, None));
        let (first, balanced) = (figures(&found, "first-touch"), figures(&found, "first-touch, balanced"));
        near(first.0, 0.25, 0.01);
        near(first.1, 1.0, 1e-9);
        near(balanced.0, 0.25 + 0.75 * moved, 0.03);
        near(balanced.1, 1.0 - 0.75 * moved, 0.03);
        assert_eq!((found.baseline, balanced.2), ("first-touch, balanced", 1.0));
        assert!(seconds == 1 || first.2 < 1.0, "{found:#?}");
    }
}

/// What all read settles anywhere: on all nodes alike, and not nearer to anyone.
#[test]
fn what_all_read_is_spread_and_not_local() {
    let e = entry("table", 64 * MIB, 1000 * THREADS * 1000, 40_000, |_, r| r.below(THREADS) as u32);
    let found = predicted(&profile(THREADS as u32, "never", vec![by_main(e)]), &target(4, None));
    let (local, busiest, _) = figures(&found, "first-touch, balanced");
    near(local, 0.25, 0.02);
    near(busiest, 0.25, 0.05);
}

#[test]
fn the_baseline_is_what_the_target_does() {
    let off = predicted(&grid(100), &target(4, Some(false)));
    assert_eq!(off.baseline, "first-touch");
    assert_eq!(figures(&off, "first-touch").2, 1.0);
    assert!(figures(&off, "first-touch, balanced").2 > 1.1, "{off:#?}");
    near(figures(&off, "advised").0, 1.0, 0.02);
    let one = predicted(&grid(100), &target(1, None));
    assert_eq!(one.baseline, "first-touch");
    // With balancing nothing is left to gain after the first two of a hundred seconds; without it there is.
    let on = |balancing| {
        let mut target = target(4, balancing);
        target.model.caches = caches();
        advise(&grid(100), &classify_all(&grid(100)), &target).unwrap()
    };
    let item = |advice: &crate::advise::Advice| advice.items[0].rule.clone();
    assert!(item(&on(None)).is_err_and(|why| why.contains("as good with the kernel's NUMA balancing")));
    assert_eq!(item(&on(Some(false))).unwrap().place.policy, PolicyKind::Block);
}

/// 95 % of the cost in slices of 256 MiB, 5 % in a table of 200 KiB that all threads search.
fn with_table(size: u64) -> Summary {
    let cost = 1000 * THREADS;
    let big = 256 * MIB;
    let mut table =
        in_sequence(entry("table", size, cost * 5 / 100, 4_000, |_, r: &mut Random| r.below(THREADS) as u32));
    table.details.access_code[0].address = AddressKind::Loaded;
    let grid = in_sequence(entry("grid", big, cost * 95 / 100, 20_000, move |at, _| slices(at, big)));
    profile(THREADS as u32, "never", numbered(vec![by_main(grid), by_main(table)]))
}

/// The gain from interleaving the table, next to leaving everything as it is.
fn gain(summary: &Summary, target: &Target) -> f64 {
    let patterns = classify_all(summary);
    let advice = advise(summary, &patterns, target).unwrap();
    let text = "version = 1\n[[object]]\nglobal = \"table_\"\nplace = { policy = \"interleave\" }\n";
    let given = Given { name: "mine".into(), policy: numamma_plan::check::parse(text).unwrap() };
    let found = predict(summary, &patterns, target, &advice, &[given]).unwrap();
    figures(&found, "mine").2 - 1.0
}

/// 1 MiB of L2 for each CPU and 2.75 MiB of L3 for the two CPUs of a node.
fn caches() -> Caches {
    let (second, last) = (Cache { bytes: 1 << 20, cpus: 1 }, Cache { bytes: 2_816 << 10, cpus: 2 });
    Caches { second, last, source: CacheSource::Described }
}

#[test]
fn a_table_that_stays_in_the_caches_of_its_users_gains_nothing() {
    let summary = with_table(200 << 10);
    let mut target = target(4, Some(false));
    target.model.caches = caches();
    // Three threads saturate a node, so what is taken off the node of main counts.
    target.model.bandwidth.iter_mut().flatten().for_each(|b| *b = 20e9);
    let advice = advise(&summary, &classify_all(&summary), &target).unwrap();
    let table = advice.items.iter().find(|i| i.name == "table").unwrap();
    let why = table.rule.as_ref().unwrap_err();
    assert!(why.contains("it stays in the L2 of its users: 200 KiB of 1 MiB;"), "{why}");
    near(gain(&summary, &target), 0.0, 0.001);
    // The same table on a machine whose caches hold nothing, and a large one on the same machine.
    assert!(gain(&with_table(64 * MIB), &target) > 0.01);
    for caches in [Caches::NONE, Caches::UNKNOWN] {
        target.model.caches = caches;
        assert!(gain(&summary, &target) > 0.01);
    }
}

/// 16 KiB that all threads read stay in any caches, known or not; what they write does not, and neither does anything
/// where an emulator has none.
#[test]
fn a_small_table_stays_in_caches_of_unknown_size() {
    let rule = |summary: &Summary, source: CacheSource| {
        let mut target = target(4, Some(false));
        target.model.caches = Caches { source, ..Caches::UNKNOWN };
        target.model.bandwidth.iter_mut().flatten().for_each(|b| *b = 20e9);
        let advice = advise(summary, &classify_all(summary), &target).unwrap();
        advice.items.into_iter().find(|i| i.name == "table").unwrap().rule
    };
    let read = with_table(16 << 10);
    let why = rule(&read, CacheSource::Unknown).unwrap_err();
    assert!(why.contains("in the L2 of its users: 16 KiB of 256 KiB, the least that such machines have;"), "{why}");
    assert!(rule(&read, CacheSource::Emulated).is_ok());
    let mut written = read;
    let table = written.entries.iter_mut().find(|e| e.size == 16 << 10).unwrap();
    for cell in table.cells.iter_mut().step_by(10) {
        (cell.counters.reads, cell.counters.writes) = (0, cell.counters.reads);
    }
    assert!(rule(&written, CacheSource::Unknown).is_ok());
    assert!(rule(&with_table(64 << 10), CacheSource::Unknown).is_ok());
}

/// What an emulator claims, and what nobody says, keeps nothing from being placed.
#[test]
fn unknown_caches_do_not_silence_advice() {
    let mut summary = grid(4);
    summary.entries[0] = by_main(entry("grid", MIB, 4_000 * THREADS, 20_000, |at, _| slices(at, MIB)));
    let mut target = target(4, Some(false));
    let rule = |target: &Target| advise(&summary, &classify_all(&summary), target).unwrap().items[0].rule.clone();
    assert_eq!(target.model.caches, Caches::UNKNOWN);
    assert_eq!(rule(&target).unwrap().place.policy, PolicyKind::Block);
    target.model.caches = caches();
    assert!(rule(&target).unwrap_err().contains("in the L2 of its users: 128 KiB of 1 MiB"));
}

/// Nine tenths of the CPU time are charged to no access, and then the program waits for files as long again: neither
/// gets faster. Units are an eighth of the charged time, which is how long the program takes with every access local.
#[test]
fn speed_ups_are_of_the_whole_run() {
    let mut summary = grid(1);
    let gained = |summary: &Summary| 1.0 - 1.0 / figures(&predicted(summary, &target(4, Some(false))), "advised").2;
    let alone = gained(&summary);
    let saved = alone / (1.0 - alone);
    assert!(saved > 0.5, "{saved}");
    let charged = summary.entries[0].total.cost_ns;
    summary.stats.cpu_ns = 10 * charged;
    summary.stats.achieved = 1.0;
    near(gained(&summary), saved / (saved + 1.0 + 9.0), 2e-3);
    summary.stats.duration_ns = 10 * charged + 10 * charged / THREADS;
    near(gained(&summary), saved / (saved + 1.0 + 9.0 + 10.0), 2e-3);
}

/// The fault sampler charges every use of a page one nanosecond, which is no time that anything took.
#[test]
fn uses_of_pages_share_the_cpu_time() {
    let mut summary = grid(1);
    let speed_up = |summary: &Summary| figures(&predicted(summary, &target(4, Some(false))), "advised").2;
    let expected = speed_up(&summary);
    let e = &mut summary.entries[0];
    summary.stats.cpu_ns = e.total.cost_ns;
    e.total.cost_ns = e.total.accesses();
    e.cells.iter_mut().for_each(|cell| cell.counters.cost_ns = cell.counters.accesses());
    summary.header.sampling.sampler = FAULT.into();
    summary.header.sampling.period_ns = 1;
    near(speed_up(&summary), expected, 1e-3);
}

/// Its threads sleep until the recorder has room for what they counted: that is no time of the program.
#[test]
fn a_traced_program_waits_for_the_recorder() {
    let mut summary = grid(1);
    let speed_up = |summary: &Summary| figures(&predicted(summary, &target(4, Some(false))), "advised").2;
    let charged = summary.entries[0].total.cost_ns;
    summary.stats.cpu_ns = charged;
    let expected = speed_up(&summary);
    summary.stats.duration_ns = 10 * charged;
    assert!(speed_up(&summary) < 0.9 * expected, "of a sampled one it is");
    summary.header.sampling.sampler = TRACE.into();
    near(speed_up(&summary), expected, 1e-3);
}

/// 64 threads on two nodes of 32, a private block each, all touched first by main.
fn private_blocks(address: AddressKind, (gap, behind, later): (u32, u64, u64)) -> Summary {
    let size = 512 * MIB;
    let e = entry("blocks", size, 64_000, 40_000, |at, _| (at * 64 / size) as u32);
    let mut e = in_sequence(by_main(e));
    e.details.access_code[0] = AccessCode { address, body: 8, gap, behind, later, ..e.details.access_code[0] };
    profile(64, "never", vec![e])
}

/// Time under a policy over that of blocks.
fn over_blocks(summary: &Summary, name: &str) -> f64 {
    let mut model = Model::uniform(2, 64);
    (model.numa_balancing, model.caches) = (Some(false), Caches::NONE);
    let found = predicted(summary, &Target::of(model, 64, Thp::Never));
    let time = |name: &str| found.policies.iter().find(|p| p.name == name).unwrap().time;
    time(name) / time("block-naive")
}

/// Far memory takes twice as long, so what is half far takes 1.5 times as long where no controller is full. A line of
/// 64 bytes in 85 ns for each of 64 threads is 48 GB/s, of nodes with 82 GB/s each.
#[test]
fn code_that_follows_pointers_fills_no_controller() {
    let chained = private_blocks(AddressKind::Chained, (1, 0, 0));
    near(over_blocks(&chained, "interleave"), 1.5, 0.02);
    near(over_blocks(&chained, "first-touch"), 2.0, 0.05);
    // Nothing known of the code, three lines at a time.
    let unknown = private_blocks(AddressKind::Unknown, (0, 0, 0));
    assert!(over_blocks(&unknown, "interleave") > 1.2, "{}", over_blocks(&unknown, "interleave"));
    near(over_blocks(&unknown, "first-touch"), 2.0, 0.05);
}

/// Ten lines at a time are 482 GB/s where 164 are to be had: two controllers serve what one does in half the time.
#[test]
fn code_that_streams_is_bound_by_its_controllers() {
    let streams = private_blocks(AddressKind::Counted, (1, 0, 0));
    near(over_blocks(&streams, "first-touch"), 2.0, 0.05);
    // With nine tenths of the time in arithmetic they are 48 GB/s, and a tenth of the time takes half as long again.
    let computes = private_blocks(AddressKind::Counted, (100, 190, 810));
    let waits: f64 = (190.0 - 810.0 / 99.0) / 1_000.0;
    near(over_blocks(&computes, "interleave"), 1.0 + 0.5 * waits, 0.01);
}

/// Of accesses that do not wait no share is local, and what is left out of a share is said.
#[test]
fn what_does_not_wait_is_not_taken_for_local() {
    let left_out = |code| {
        let found = predicted(&private_blocks(AddressKind::Counted, code), &target(4, None));
        found
            .remarks
            .iter()
            .any(|r| r.starts_with("100 % of the cost is at objects for which no waiting for memory was"))
    };
    assert!(left_out((10, 100, 900)));
    assert!(!left_out((10, 600, 900)));
}
