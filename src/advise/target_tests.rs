//! Targets of every shape: what is assumed of threads is what the applier does, and no policy is made that it would
//! refuse.

use numamma_plan::machine::{Machine, Node, Thp};
use numamma_plan::policy::{Bind, Block, PolicyKind, Size, Threads};
use numamma_plan::teams::Rank;
use numamma_plan::threads::bound_node;
use numamma_plan::{check, nodes};

use super::tests::{entry, profile, slice_of};
use super::{Target, advise, toml};
use crate::detect::classify_all;
use crate::topology::model::Model;
use crate::topology::{synthetic, xml};

/// Even, uneven, one node, 64 nodes, memory-only and memory-less nodes, holes in the numbers, CPUs in turn.
const MACHINES: [&str; 11] = [
    "pack:4 numa:2 core:6",
    "numa:1 core:4",
    "core:3",
    "numa:64 core:1",
    "numa:3 core:1",
    "pack:2 [numa] [numa] core:2",
    "[numa] [numa] pack:2 core:2",
    "pack:2 [numa(memory=1GB)] l3:2 [numa(memory=0)] core:2",
    "pack:2 [numa(indexes=9,2)] core:3 pu:2(indexes=0,2,4,6,8,10,1,3,5,7,9,11)",
    "pack:3 [numa(memory=1MB)] die:2 [numa] core:1",
    "numa:256 core:2",
];

fn machines() -> Vec<(String, Model)> {
    let parse = |text: &str| synthetic::parse(text).and_then(|s| s.model()).unwrap_or_else(|e| panic!("{text}: {e}"));
    let mut all: Vec<(String, Model)> = MACHINES.iter().map(|text| ((*text).to_owned(), parse(text))).collect();
    for (name, text) in [
        ("hbm.xml", include_str!("../../tests/topology/hbm.xml")),
        ("holes.xml", include_str!("../../tests/topology/holes.xml")),
    ] {
        all.push((name.to_owned(), xml::parse(text).and_then(|s| s.model()).unwrap_or_else(|e| panic!("{name}: {e}"))));
    }
    // Not equal: six CPUs on one node, two on the other, none on a third.
    let mut uneven = parse("numa:2 core:4");
    let moved: Vec<u32> = uneven.nodes[1].cpus.drain(..2).collect();
    uneven.nodes[0].cpus.extend(moved);
    all.push(("uneven".into(), uneven));
    all
}

/// The machine as the applier would see it.
fn as_applied(model: &Model) -> Machine {
    let node = |i: &usize| Node { id: model.nodes[*i].id, cpus: model.nodes[*i].cpus.clone() };
    Machine {
        memory_nodes: model.memory_nodes().iter().map(node).collect(),
        own: model.memory_nodes().iter().map(|i| model.nodes[*i].id).collect(),
        cpu_nodes: model.cpu_nodes().iter().map(node).collect(),
        online: model.nodes.iter().flat_map(|n| n.cpus.clone()).collect(),
        thp: Thp::Never,
        max_map_count: 65_530,
    }
}

#[test]
fn threads_are_where_the_applier_binds_them() {
    for (name, model) in machines() {
        let machine = as_applied(&model);
        for threads in [1, 2, 3, 5, 8, 48, 63, 100, 1000] {
            let target = Target::of(model.clone(), threads, Thp::Never);
            let bind = Threads { bind: Bind::Compact, count: Some(threads) };
            for thread in (0..threads).chain([threads, u32::MAX]) {
                let node = &model.nodes[target.node_of(Rank { rank: thread, of: threads })];
                assert_eq!(Some(node.id), bound_node(&bind, thread, &machine), "{name}, thread {thread} of {threads}");
                assert!(!node.cpus.is_empty(), "{name}");
                let home = target.ids[target.home_of(Rank { rank: thread, of: threads }) as usize];
                assert!(node.memory == 0 || home == node.id, "{name}: its own memory is the nearest");
            }
        }
        let target = Target::of(model.clone(), 8, Thp::Never);
        assert_eq!(target.ids, machine.memory_node_ids(), "{name}");
        assert_eq!(target.nodes as usize, target.ids.len(), "{name}");
    }
}

#[test]
fn a_thread_of_a_memory_less_node_goes_to_the_nearest_memory() {
    let model = synthetic::parse("pack:2 [numa] die:2 [numa(memory=0)] core:2").and_then(|s| s.model()).unwrap();
    let target = Target::of(model, 8, Thp::Never);
    // Nodes 0 and 1 have the CPUs of the first package, node 2 its memory; 3, 4 and 5 are those of the second.
    assert_eq!(target.ids, [2, 5]);
    assert_eq!((0..8).map(|t| target.home_of(Rank { rank: t, of: 8 })).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn no_policy_is_made_that_apply_would_refuse() {
    const MIB: u64 = 1 << 20;
    for (name, model) in machines() {
        for threads in [1, 2, 7, 48] {
            let summary = profile(
                8,
                "always",
                vec![
                    entry("blocks", 64 * MIB, 50, 2000, |at, _| slice_of(at, 64 * MIB, 8)),
                    entry("cycles", 64 * MIB, 50, 2000, |at, _| slice_of(at, 16 * MIB, 8)),
                    entry("anyhow", 8 * MIB, 50, 2000, |_, r| r.below(8) as u32),
                    entry("mine", 8 * MIB, 50, 2000, |_, _| 3),
                ],
            );
            let target = Target::of(model.clone(), threads, Thp::Always);
            let advice = advise(&summary, &classify_all(&summary), &target).unwrap_or_else(|e| panic!("{name}: {e}"));
            let text = toml(&advice).unwrap_or_else(|e| panic!("{name}: {e}"));
            let policy = check::parse(&text).unwrap_or_else(|e| panic!("{name}, {threads} threads: {e}\n{text}"));
            for rule in &policy.objects {
                let list = rule.place.nodes.as_deref().unwrap_or("all");
                let found = nodes::parse(list, &target.ids);
                assert!(found.is_ok(), "{name}, {threads} threads: {list}: {found:?}\n{text}");
            }
        }
    }
}

/// Two nodes with CPUs and two with memory only: blocks for two nodes go to those two.
#[test]
fn blocks_cut_for_the_nodes_with_cpus_do_not_go_to_all() {
    const MIB: u64 = 1 << 20;
    let model = synthetic::parse("pack:2 [numa] [numa] core:4").and_then(|s| s.model()).unwrap();
    let summary = profile(8, "never", vec![entry("cycles", 64 * MIB, 50, 2000, |at, _| slice_of(at, 16 * MIB, 8))]);
    let advice = advise(&summary, &classify_all(&summary), &Target::of(model, 8, Thp::Never)).unwrap();
    let place = &advice.policy.objects[0].place;
    let for_two = place.block == Some(Block::Size(Size(8 * MIB)));
    assert!(!for_two || place.nodes.as_deref() == Some("0,2"), "{place:?}");
    assert_eq!(place.policy == PolicyKind::BlockCyclic, place.block.is_some());
}
