//! The model on cases that can be worked out by hand, and what must hold of any.

use numamma_plan::machine::Thp;
use numamma_plan::policy::{Block, Place, PolicyKind, Size};

use super::*;
use crate::advise::tests::{Random, entry, numbered, profile};
use crate::profile::summary::TouchRun;
use crate::topology::caches::Caches;
use crate::topology::model::{ModelNode, Source};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Nodes with (CPUs, bytes of memory), latencies and bandwidths [from][to].
pub(in crate::advise) fn machine(nodes: &[(u32, u64)], latency: &[&[f64]], bandwidth: &[&[f64]]) -> Model {
    let mut next = 0;
    let node = |(id, (cpus, memory)): (usize, &(u32, u64))| {
        next += cpus;
        ModelNode { id: id as u32, cpus: (next - cpus..next).collect(), memory: *memory }
    };
    Model {
        name: "made by hand".into(),
        nodes: nodes.iter().enumerate().map(node).collect(),
        latency: latency.iter().map(|r| r.to_vec()).collect(),
        bandwidth: bandwidth.iter().map(|r| r.to_vec()).collect(),
        latency_source: Source::Measured,
        bandwidth_source: Source::Measured,
        caches: Caches::NONE,
        numa_balancing: None,
    }
}

/// Two nodes with a CPU each, 100 and 200 ns.
fn pair(bandwidth: f64) -> Model {
    let b = [bandwidth; 2];
    machine(&[(1, u64::MAX), (1, u64::MAX)], &[&[100.0, 200.0], &[200.0, 100.0]], &[&b, &b])
}

fn place(policy: PolicyKind, nodes: &str) -> Place {
    Place { policy, nodes: Some(nodes.into()), ..Place::default() }
}

/// 2 threads, 64 pages, 128 ms: thread 0 works on the lower half, thread 1 on the upper one, a page at a time, both in
/// every slot; the first page is touched by thread 0, and so are all others.
fn halves() -> Summary {
    let mut e = entry("halves", 64 * PAGE, 128, 0, |_, _| 0);
    let one = crate::profile::summary::Counters { reads: 100, ..Default::default() };
    let cell = |page: u32| crate::profile::summary::Cell {
        instance: 0,
        page,
        thread: page / 32,
        slot: (page % 32) as u16,
        counters: one,
    };
    e.cells = (0..64).map(cell).collect();
    e.total.reads = 6400;
    e.touches = vec![TouchRun { instance: 0, page: 0, pages: 64, thread: 0, time_ns: 0 }];
    profile(2, "never", vec![e])
}

/// Outcome of the first entry under a placement.
fn outcome(summary: &Summary, model: Model, threads: u32, place: Option<&Place>) -> Outcome {
    let roles = Roles::in_order(summary.threads.len() as u32);
    let target = Target::of(model, threads, Thp::Never);
    let world = World::new(summary, &roles, &target);
    let e = &summary.entries[0];
    let demands = Demands::of(&world, e, None);
    let placement = match place {
        Some(place) => Placement::of(&world, e, place, None).unwrap(),
        None => Placement::first_touch(&world, e),
    };
    let spill = Spill::of(&world, &placement.bytes(), &[]);
    let mut load = Load::new(&world);
    load.add(&demands, &placement, &spill);
    load.outcome()
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-6 * b.abs(), "{a} is not {b}");
}

/// CPU time of `halves`, all of which waits, as nothing is known of its code: 1,280,000 accesses of 100 ns.
const WAIT_NS: f64 = 128e6;
/// The geometric middle of 1 and 10 lines.
const LINES: f64 = waiting::UNKNOWN_LINES;

#[test]
fn latency_by_hand() {
    let (summary, fast) = (halves(), || pair(1e15));
    let blocks = outcome(&summary, fast(), 2, Some(&place(PolicyKind::Block, "all")));
    close(blocks.time_ns, WAIT_NS / 2.0);
    assert_eq!((blocks.local_share, blocks.busiest_share), (1.0, 0.5));
    // Half of the accesses take twice as long, on both nodes alike.
    let spread = outcome(&summary, fast(), 2, Some(&place(PolicyKind::Interleave, "all")));
    close(spread.time_ns, 1.5 * WAIT_NS / 2.0);
    close(spread.local_share, 0.5);
    // The same mean, but thread 1 is always remote, and thread 0 waits for it at the end.
    let first = outcome(&summary, fast(), 2, None);
    close(first.time_ns, 2.0 * WAIT_NS / 2.0);
    assert_eq!((first.local_share, first.busiest_share), (0.5, 1.0));
    let swapped = outcome(&summary, fast(), 2, Some(&place(PolicyKind::Block, "1,0")));
    close(swapped.time_ns, 2.0 * WAIT_NS / 2.0);
    assert_eq!(swapped.local_share, 0.0);
}

#[test]
fn controllers_and_links_by_hand() {
    let summary = halves();
    let bytes = WAIT_NS / 100.0 * LINES * LINE_BYTES;
    // 1 GB/s: a byte a nanosecond. All on one node is slower than any latency.
    let first = outcome(&summary, pair(1e9), 2, None);
    close(first.time_ns, bytes);
    let blocks = outcome(&summary, pair(1e9), 2, Some(&place(PolicyKind::Block, "all")));
    close(blocks.time_ns, bytes / 2.0);
    // A slow link from node 1 to node 0 carries half of it.
    let narrow =
        machine(&[(1, u64::MAX), (1, u64::MAX)], &[&[100.0, 200.0], &[200.0, 100.0]], &[&[1e15, 1e15], &[1e8, 1e15]]);
    close(outcome(&summary, narrow, 2, None).time_ns, bytes / 2.0 * 10.0);
}

#[test]
fn sweeping_in_concert_loads_one_node_after_the_other() {
    // Both threads read all pages in order: blocks put everything on one node at a time, interleave never does.
    let mut summary = halves();
    let e = &mut summary.entries[0];
    let cells = e.cells.clone();
    let by_both = |c| [0, 1].map(|thread| crate::profile::summary::Cell { thread, slot: 0, ..c });
    e.cells = cells.into_iter().flat_map(by_both).collect();
    e.cells.sort_by_key(|c| (c.page, c.thread, c.slot));
    let bytes = WAIT_NS / 100.0 * LINES * LINE_BYTES;
    let blocks = outcome(&summary, pair(1e9), 2, Some(&place(PolicyKind::Block, "all")));
    let spread = outcome(&summary, pair(1e9), 2, Some(&place(PolicyKind::Interleave, "all")));
    close(spread.time_ns, bytes / 2.0);
    close(blocks.time_ns, (1.0 - IN_CONCERT) * bytes / 2.0 + IN_CONCERT * bytes);
    close(blocks.busiest_share, 0.5);
}

#[test]
fn a_node_without_room_spills_to_the_nearest() {
    let summary = halves();
    let size = 64.0 * PAGE as f64;
    // Node 0 takes half of the object.
    let small = machine(
        &[(1, (size / 2.0 / FREE_PART) as u64), (1, u64::MAX)],
        &[&[100.0, 200.0], &[200.0, 100.0]],
        &[&[1e15, 1e15], &[1e15, 1e15]],
    );
    let first = outcome(&summary, small, 2, None);
    assert!((first.busiest_share - 0.5).abs() < 1e-3, "{first:?}");
    assert!((first.local_share - 0.5).abs() < 1e-3, "{first:?}");
}

#[test]
fn memory_without_cpus_and_cpus_without_memory() {
    let summary = halves();
    let even: &[f64] = &[1e15; 3];
    // Node 1 has no memory: its thread's home is node 0. Node 2 is far memory.
    let odd = || {
        machine(
            &[(1, u64::MAX), (1, 0), (0, u64::MAX)],
            &[&[100.0, 150.0, 300.0], &[150.0, 100.0, 300.0], &[300.0, 300.0, 100.0]],
            &[even, even, even],
        )
    };
    let first = outcome(&summary, odd(), 2, None);
    close(first.time_ns, 1.5 * WAIT_NS / 2.0);
    assert_eq!(first.local_share, 1.0, "the nearest memory counts as local");
    let far = outcome(&summary, odd(), 2, Some(&place(PolicyKind::Bind, "2")));
    close(far.time_ns, 3.0 * WAIT_NS / 2.0);
    let all = outcome(&summary, odd(), 2, Some(&place(PolicyKind::Interleave, "all")));
    assert_eq!(all.busiest_share, 0.5, "two nodes have memory");
}

#[test]
fn more_threads_share_the_work_and_keep_their_slices() {
    let mut summary = halves();
    let patterns = crate::detect::classify_all(&summary);
    let four = |n: usize| [vec![200.0; n], vec![100.0], vec![200.0; 3 - n]].concat();
    let rows: Vec<Vec<f64>> = (0..4).map(four).collect();
    let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
    let wide: &[f64] = &[1e15; 4];
    let model = machine(&[(1, u64::MAX); 4], &rows, &[wide; 4]);
    let roles = Roles::in_order(2);
    let target = Target::of(model, 4, Thp::Never);
    summary.entries[0].touches.clear();
    let world = World::new(&summary, &roles, &target);
    let demands = Demands::of(&world, &summary.entries[0], patterns.first());
    let placement = Placement::of(&world, &summary.entries[0], &place(PolicyKind::Block, "all"), None).unwrap();
    let mut load = Load::new(&world);
    load.add(&demands, &placement, &Spill::of(&world, &placement.bytes(), &[]));
    let four = load.outcome();
    assert_eq!(patterns[0].kind, crate::detect::PatternKind::Block, "{patterns:?}");
    assert!(four.local_share > 0.95, "{four:?}");
    assert!((four.time_ns / (WAIT_NS / 4.0) - 1.0).abs() < 0.1, "{four:?}");
}

/// Whatever the object and the machine: nothing is faster than the best that is shown, shares are shares, times finite.
#[test]
fn no_candidate_beats_the_best_and_all_figures_are_figures() {
    let mut r = Random(7);
    for round in 0..60 {
        let threads = [1, 2, 3, 8, 32][r.below(5) as usize];
        let size = (1 + r.below(64)) * MIB / 4;
        let (kind, period) = (r.below(4), (1 + r.below(8)) * 16 * PAGE);
        let user = move |at: u64, r: &mut Random| match kind {
            0 => r.below(threads) as u32,
            1 => (at * threads / size) as u32,
            2 => (at % period * threads / period) as u32,
            _ => 0,
        };
        let mut e = entry("object", size, 50, 20 + r.below(3000), user);
        if r.below(2) == 0 {
            let pages = (size / PAGE) as u32;
            let run = |t: u32| {
                let (a, b) = (pages / threads as u32 * t, pages / threads as u32 * (t + 1));
                TouchRun { instance: 0, page: a, pages: b - a, thread: t, time_ns: 0 }
            };
            e.touches = (0..threads as u32).map(run).collect();
        }
        let summary = profile(threads as u32, ["never", "always"][round % 2], numbered(vec![e]));
        let patterns = crate::detect::classify_all(&summary);
        let model = random_machine(&mut r);
        let target =
            Target::of(model, 1 + r.below(64) as u32, crate::advise::target_machine::huge_pages(&summary.header.thp));
        let advice = crate::advise::advise(&summary, &patterns, &target).unwrap();
        let text = crate::advise::toml(&advice).unwrap();
        let policy = numamma_plan::check::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        for rule in &policy.objects {
            let note = rule.pattern.as_ref();
            let plan =
                numamma_plan::plan::plan(&rule.place, note, size, size / PAGE, PAGE, &target.ids, target.threads);
            assert!(plan.is_ok(), "{plan:?}\n{text}");
        }
        let given = crate::advise::Given { name: "file".into(), policy };
        let found = crate::advise::predict(&summary, &patterns, &target, &advice, &[given]).unwrap();
        let (best, rest) = found.policies.split_last().unwrap();
        let time = |name: &str| found.policies.iter().find(|p| p.name == name).map(|p| p.time).unwrap();
        assert_eq!(time(found.baseline), 1.0);
        close(time("advised"), time("file"));
        for p in rest {
            assert!(p.time.is_finite() && p.time > 0.0 && best.time <= p.time * (1.0 + 1e-9), "{found:#?}");
            assert!(p.local_share.is_none_or(|s| (0.0..=1.0 + 1e-9).contains(&s)), "{found:#?}");
        }
        for o in &found.objects {
            let (best, rest) = o.policies.split_last().unwrap();
            assert!(rest.iter().all(|p| best.time <= p.time * (1.0 + 1e-9)), "{found:#?}");
        }
    }
}

fn random_machine(r: &mut Random) -> Model {
    let n = 1 + r.below(6) as usize;
    let mut nodes: Vec<(u32, u64)> =
        (0..n).map(|_| (r.below(5) as u32, [0, 8 * MIB, u64::MAX][r.below(3) as usize])).collect();
    nodes[0] = (2, 64 * MIB);
    let latency: Vec<Vec<f64>> =
        (0..n).map(|i| (0..n).map(|j| if i == j { 90.0 } else { 100.0 + r.below(200) as f64 }).collect()).collect();
    let bandwidth: Vec<Vec<f64>> = (0..n).map(|_| (0..n).map(|_| 1e9 + r.below(100) as f64 * 1e9).collect()).collect();
    let rows = |m: &'_ [Vec<f64>]| m.to_vec();
    let (latency, bandwidth) = (rows(&latency), rows(&bandwidth));
    let latency: Vec<&[f64]> = latency.iter().map(Vec::as_slice).collect();
    let bandwidth: Vec<&[f64]> = bandwidth.iter().map(Vec::as_slice).collect();
    machine(&nodes, &latency, &bandwidth)
}

#[test]
fn a_plan_is_the_appliers() {
    let summary = halves();
    let roles = Roles::in_order(2);
    let target = Target::of(pair(1e15), 2, Thp::Never);
    let world = World::new(&summary, &roles, &target);
    let e = &summary.entries[0];
    let block = Some(Block::Size(Size(3 * PAGE)));
    let place = Place { policy: PolicyKind::BlockCyclic, block, nodes: Some("1,0".into()), ..Place::default() };
    let plan = numamma_plan::plan::plan(&place, None, e.size, 64, PAGE, &target.ids, 2).unwrap();
    let placement = Placement::of(&world, e, &place, None).unwrap();
    for page in 0..64u32 {
        let index = plan.block_node(page.into()).unwrap();
        assert_eq!(placement.node(0, page) as u32, plan.nodes[index as usize], "page {page}");
    }
}
