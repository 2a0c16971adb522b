//! Advice and predictions for machines whose nodes differ, and for profiles and targets at the edge.

use numamma_plan::machine::Thp;
use numamma_plan::policy::{Bind, Block, PolicyKind, Size};

use super::cost::tests::machine;
use super::tests::{Random, busy, entry, heap, in_sequence, numbered, profile, without_caches};
use super::*;
use crate::detect::classify_all;
use crate::profile::summary::{Entry, TouchRun};
use crate::topology::model::Model;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Two nodes of four CPUs and two memory-only ones (CXL), slower and far.
fn with_cxl() -> Model {
    let (near, far) = ([85.0, 170.0, 250.0, 250.0], [170.0, 85.0, 250.0, 250.0]);
    let bandwidth: &[f64] = &[82e9, 82e9, 30e9, 30e9];
    let nodes = [(4, 8 << 30), (4, 8 << 30), (0, 64 << 30), (0, 64 << 30)];
    machine(&nodes, &[&near, &far, &[250.0; 4], &[250.0; 4]], &[bandwidth; 4])
}

fn by_main(mut e: Entry) -> Entry {
    e.touches = vec![TouchRun { instance: 0, page: 0, pages: (e.size / PAGE) as u32, thread: 0, time_ns: 0 }];
    e
}

fn slices(at: u64, whole: u64) -> u32 {
    (at % whole * 8 / whole) as u32
}

fn advised(summary: &Summary, model: Model) -> Advice {
    let target = Target::of(model, summary.threads.len() as u32, Thp::Never);
    let advice = advise(summary, &classify_all(summary), &target).unwrap();
    let text = toml(&advice).unwrap();
    let read = numamma_plan::check::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    for rule in &read.objects {
        let size = rule.size.unwrap();
        numamma_plan::plan::plan(
            &rule.place,
            rule.pattern.as_ref(),
            size,
            size / PAGE,
            PAGE,
            &target.ids,
            target.threads,
        )
        .unwrap();
    }
    advice
}

fn rule<'a>(advice: &'a Advice, name: &str) -> &'a ObjectRule {
    advice
        .items
        .iter()
        .find(|i| i.name == name)
        .and_then(|i| i.rule.as_ref().ok())
        .unwrap_or_else(|| panic!("{advice:#?}"))
}

#[test]
fn memory_only_nodes_are_left_out_where_near_ones_do() {
    let summary = profile(
        8,
        "never",
        numbered(vec![
            by_main(entry("cyclic", 64 * MIB, 50, 8000, |at, _| slices(at, 16 * MIB))),
            by_main(entry("table", 64 * MIB, 50, 8000, |_, r| r.below(8) as u32)),
        ]),
    );
    let advice = advised(&summary, with_cxl());
    let cyclic = &rule(&advice, "cyclic").place;
    assert_eq!((cyclic.block, cyclic.nodes.as_deref()), (Some(Block::Size(Size(8 * MIB))), Some("0,1")));
    let table = &rule(&advice, "table").place;
    assert_eq!((table.policy, table.nodes.as_deref()), (PolicyKind::Interleave, Some("0-1")));
}

#[test]
fn an_object_that_does_not_fit_on_its_users_node_is_not_bound_to_it() {
    let two = |memory: u64| {
        let even: &[f64] = &[82e9; 2];
        machine(&[(4, 8 << 30), (4, memory)], &[&[85.0, 170.0], &[170.0, 85.0]], &[even, even])
    };
    let summary = profile(8, "never", numbered(vec![by_main(entry("own", 64 * MIB, 50, 3000, |_, _| 6)), busy(8)]));
    let fits = rule(&advised(&summary, two(8 << 30)), "own").place.clone();
    assert_eq!((fits.policy, fits.nodes.as_deref()), (PolicyKind::Bind, Some("1")));
    let advice = advised(&summary, two(48 * MIB));
    let own = rule(&advice, "own");
    assert_ne!((own.place.policy, own.place.nodes.as_deref()), (PolicyKind::Bind, Some("1")));
    assert!(own.why.as_ref().unwrap().contains("does not fit on node 1"), "{own:#?}");
}

#[test]
fn objects_share_the_room_of_a_node() {
    let even: &[f64] = &[82e9; 2];
    let model = machine(&[(4, 8 << 30), (4, 96 * MIB)], &[&[85.0, 170.0], &[170.0, 85.0]], &[even, even]);
    let own = |name: &str, cost| by_main(entry(name, 64 * MIB, cost, 3000, |_, _| 6));
    let advice = advised(&profile(8, "never", numbered(vec![own("hot", 60), own("cooler", 40), busy(8)])), model);
    assert_eq!(rule(&advice, "hot").place.nodes.as_deref(), Some("1"));
    assert!(rule(&advice, "cooler").why.as_ref().unwrap().contains("does not fit on node 1"), "{advice:#?}");
}

#[test]
fn uneven_bandwidth_is_shared_out_by_weight() {
    let bandwidth: [&[f64]; 2] = [&[50e9, 400e9], &[50e9, 400e9]];
    let model = machine(&[(32, 8 << 30), (32, 8 << 30)], &[&[85.0, 170.0], &[170.0, 85.0]], &bandwidth);
    let table = by_main(in_sequence(entry("table", 64 * MIB, 50, 20_000, |_, r| r.below(64) as u32)));
    let advice = advised(&profile(64, "never", vec![table]), model);
    let table = rule(&advice, "table");
    assert_eq!(table.place.policy, PolicyKind::WeightedInterleave, "{table:#?}");
    assert!(table.why.as_ref().unwrap().contains("weighted_interleave"), "{table:#?}");
}

#[test]
fn what_first_touch_does_as_well_is_left_alone() {
    let mut e = entry("grid", 64 * MIB, 50, 8000, |at, _| slices(at, 64 * MIB));
    let run = |t: u32| TouchRun { instance: 0, page: t * 2048, pages: 2048, thread: t, time_ns: 0 };
    e.touches = (0..8).map(run).collect();
    let advice = advised(&profile(8, "never", vec![e]), Model::uniform(4, 8));
    assert!(advice.items[0].rule.as_ref().is_err_and(|r| r.contains("first touch is as good")), "{advice:#?}");
}

#[test]
fn a_gain_nobody_could_see_is_not_advised() {
    let mut stack = entry("stack", 8 * MIB, 9800, 20_000, |_, r| r.below(8) as u32);
    stack.kind = ObjectKind::Stack;
    // 2 % of the cost on a machine with nearly equal distances.
    let even: &[f64] = &[1e15; 2];
    let model = machine(&[(4, 8 << 30), (4, 8 << 30)], &[&[85.0, 92.0], &[92.0, 85.0]], &[even, even]);
    let table = by_main(entry("grid", 64 * MIB, 200, 8000, |at, _| slices(at, 64 * MIB)));
    let advice = advised(&profile(8, "never", numbered(vec![stack, table])), model);
    let grid = advice.items.iter().find(|i| i.name == "grid").unwrap();
    assert!(grid.rule.as_ref().is_err_and(|r| r.contains("too little to be seen")), "{grid:#?}");
}

#[test]
fn awkward_profiles_and_targets_have_an_answer_or_a_reason() {
    let mut r = Random(3);
    let random = |threads: u64| by_main(entry("a", 8 * MIB, 50, 2000, move |_, r| r.below(threads) as u32));
    let mut at_once = random(4);
    at_once.cells.iter_mut().for_each(|c| c.slot = 0);
    let mut without_pages = random(4);
    without_pages.cells.clear();
    let mut lost = heap(random(4), &[0x10]);
    lost.seen.clear();
    let mut imported = random(4);
    imported.total.cost_ns = 0;
    let profiles = [(1, random(1)), (4, at_once), (4, without_pages), (4, lost), (4, imported), (64, random(64))];
    for (threads, e) in profiles {
        let summary = profile(threads, "always", vec![e]);
        let patterns = classify_all(&summary);
        for (nodes, on_target) in [(1, 1), (1, 8), (64, 2), (64, 256), (3, 7), (1024, 4)] {
            let target = Target::of(Model::uniform(nodes, nodes * (1 + r.below(4) as u32)), on_target, Thp::Always);
            let advice = advise(&summary, &patterns, &target).unwrap();
            let found = predict(&summary, &patterns, &target, &advice, &[]).unwrap();
            assert_eq!(found.policies.len(), 6);
            assert!(found.policies.iter().all(|p| p.time.is_finite() && p.speedup >= 0.0), "{found:#?}");
            assert!(nodes > 1 || found.policies.iter().all(|p| (p.time - 1.0).abs() < 1e-9), "{found:#?}");
            assert!(nodes > 1 || found.remarks.iter().any(|r| r.contains("one node")));
            assert!(threads > 1 || found.remarks.iter().any(|r| r.contains("one thread")));
        }
    }
    let nobody = profile(0, "never", vec![random(1)]);
    let target = Target::of(Model::uniform(2, 2), 2, Thp::Never);
    let advice = advise(&profile(1, "never", vec![random(1)]), &classify_all(&nobody), &target).unwrap();
    let error = predict(&nobody, &classify_all(&nobody), &target, &advice, &[]).unwrap_err();
    assert_eq!(error, PredictError::Profile(AdviceError::NoThreads));
}

#[test]
fn a_given_policy_that_the_target_cannot_apply_is_refused_with_the_rule() {
    let summary = profile(4, "never", vec![by_main(entry("a", 8 * MIB, 50, 2000, |_, r| r.below(4) as u32))]);
    let (patterns, target) = (classify_all(&summary), Target::of(Model::uniform(2, 4), 4, Thp::Never));
    let advice = advise(&summary, &patterns, &target).unwrap();
    let given = |nodes: &str| Given {
        name: "mine.toml".into(),
        policy: numamma_plan::check::parse(&format!(
            "version = 1\n[[object]]\nglobal = \"a_\"\nplace = {{ policy = \"interleave\", nodes = \"{nodes}\" }}\n\
             [[object]]\nglobal = \"gone\"\nplace = {{ policy = \"interleave\" }}\n"
        ))
        .unwrap(),
    };
    let error = predict(&summary, &patterns, &target, &advice, &[given("0,7")]).unwrap_err().to_string();
    assert!(error.contains("mine.toml") && error.contains("a_") && error.contains("node 7"), "{error}");
    let found = predict(&summary, &patterns, &target, &advice, &[given("0-1")]).unwrap();
    let [_, _, interleave, .., mine, _] = found.policies.as_slice() else { panic!("{found:#?}") };
    assert_eq!((mine.name.as_str(), mine.time), ("mine.toml", interleave.time));
    assert!(found.remarks.iter().any(|r| r.contains("mine.toml") && r.contains("gone")), "{found:#?}");
}

/// Six threads on four nodes of two CPUs: the first two and the fourth and fifth share a node, so the nodes' parts of a
/// period are unequal.
#[test]
fn slices_that_equal_blocks_do_not_fit_get_a_page_map() {
    let near = 90.0;
    let even: &[f64] = &[82e9; 4];
    let latency: Vec<Vec<f64>> =
        (0..4).map(|i| (0..4).map(|j| if i == j { near } else { 2.0 * near }).collect()).collect();
    let latency: Vec<&[f64]> = latency.iter().map(Vec::as_slice).collect();
    let model = machine(&[(2, 8 << 30); 4], &latency, &[even; 4]);
    let user = |at: u64| (at / (MIB / 8) % 6) as u32;
    let frames = by_main(entry("frames", 24 * MIB, 50, 8000, |at, _| user(at)));
    let advice = advised(&profile(6, "never", numbered(vec![frames, busy(6)])), model.clone());
    let place = &rule(&advice, "frames").place;
    assert_eq!((place.policy, place.map.as_deref()), (PolicyKind::Map, Some("64x0,32x1,64x2,32x3")));
    assert_eq!(
        advice.policy.threads.as_ref().map(|t| &t.bind),
        Some(&Bind::Compact),
        "a map by thread needs threads that stay"
    );
    // As many threads as CPUs: blocks do.
    let user = |at: u64| (at / (MIB / 8) % 8) as u32;
    let frames = by_main(entry("frames", 24 * MIB, 50, 8000, |at, _| user(at)));
    let advice = advised(&profile(8, "never", numbered(vec![frames, busy(8)])), model);
    assert_eq!(rule(&advice, "frames").place.policy, PolicyKind::BlockCyclic);
}

/// One in 32 accesses strays into the table of the next thread: these few wait long, but delay nobody.
#[test]
fn a_few_accesses_of_others_do_not_keep_a_table_from_its_user() {
    let table = |own: u32| {
        let users = move |_: u64, r: &mut Random| if r.below(32) == 0 { (own + 1) % 4 } else { own };
        let mut table = entry(&format!("table{own}"), 64 * MIB, 3, 2000, users);
        table.touches = vec![TouchRun { instance: 0, page: 0, pages: 16 << 10, thread: 0, time_ns: 0 }];
        table
    };
    let summary = profile(4, "never", numbered((0..4).map(table).collect()));
    let advice = without_caches(4, &summary);
    for own in 1..4 {
        let place = &rule(&advice, &format!("table{own}")).place;
        assert_eq!((place.policy, place.nodes.clone()), (PolicyKind::Bind, Some(own.to_string())));
    }
}

/// Each row of tiles is divided between two threads, in many slices of each: no formula for the whole, but most of it
/// is in the block of one of its two threads.
#[test]
fn tiles_of_a_matrix_are_placed_by_blocks_where_those_are_cheapest() {
    let tile = |at: u64, _: &mut Random| (at / (64 * MIB) * 2 + at / (16 << 10) % 2) as u32;
    let summary = profile(4, "never", vec![by_main(in_sequence(entry("grid", 128 * MIB, 900, 2200, tile)))]);
    assert_eq!(classify_all(&summary)[0].kind, PatternKind::Irregular);
    let advice = advised(&summary, Model::uniform(4, 1));
    let grid = rule(&advice, "grid");
    assert_eq!(grid.place.policy, PolicyKind::Block, "{grid:#?}");
    assert!(grid.why.as_ref().unwrap().contains("52 % of the accesses come from the node of their page"), "{grid:#?}");
}
