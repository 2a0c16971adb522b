//! Minas' choice on machines whose answer is known, and what is left alone.

use numamma_plan::machine::Thp;

use super::*;

fn object(name: &str, size: u64) -> StaticObject {
    StaticObject { name: name.into(), module: None, vaddr: 0x4000, size, section: false, read_only: false }
}

fn data(objects: Vec<StaticObject>) -> StaticData {
    StaticData { program: "app".into(), objects, ..StaticData::default() }
}

/// A machine with these SLIT distances between its nodes, four CPUs each.
fn machine(distances: &[&[u32]]) -> Target {
    let nodes = distances.len() as u32;
    let mut topology = crate::topology::Topology::uniform(nodes, 4 * nodes);
    for (node, row) in topology.nodes.iter_mut().zip(distances) {
        (node.distances, node.memory) = (row.to_vec(), 1 << 30);
    }
    Target::of(Model::of(&topology), 8, Thp::Never)
}

fn choice(target: &Target) -> PolicyKind {
    advise(&data(vec![object("a", 1 << 26)]), target, None).policy.objects[0].place.policy
}

#[test]
fn a_small_factor_or_many_links_spread_and_the_others_make_blocks() {
    assert_eq!(choice(&machine(&[&[10, 12], &[12, 10]])), PolicyKind::Interleave);
    assert_eq!(choice(&machine(&[&[10, 21], &[21, 10]])), PolicyKind::Block);
    // A ring of four has two links a node, six nodes of which each sees all others have five.
    let ring: [&[u32]; 4] = [&[10, 16, 22, 16], &[16, 10, 16, 22], &[22, 16, 10, 16], &[16, 22, 16, 10]];
    assert_eq!(choice(&machine(&ring)), PolicyKind::Block);
    let row = |own: usize| (0..6).map(|i| if i == own { 10 } else { 16 }).collect::<Vec<u32>>();
    let rows: Vec<Vec<u32>> = (0..6).map(row).collect();
    let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
    assert_eq!(choice(&machine(&rows)), PolicyKind::Interleave);
    // The links between eight assumed nodes are not known.
    assert_eq!(choice(&Target::of(Model::uniform(8, 48), 48, Thp::Never)), PolicyKind::Block);
}

#[test]
fn blocks_bind_threads_and_say_so() {
    let target = machine(&[&[10, 21], &[21, 10]]);
    let objects = vec![object("a", 1 << 26), StaticObject { section: true, ..object(".bss", 1 << 25) }];
    let advice = advise(&data(objects), &target, Some(8));
    let threads = advice.policy.threads.clone().unwrap();
    assert_eq!((threads.bind, threads.count), (Bind::Compact, Some(8)));
    assert_eq!(advice.policy.objects[1].place.policy, PolicyKind::Interleave, "nameless bytes are not cut into slices");
    assert_eq!(advice.policy.objects[1].address, None);
    let text = emit::toml(&advice).unwrap();
    assert_eq!(numamma_plan::check::parse(&text).unwrap(), advice.policy, "{text}");
    assert!(text.contains("NUMA factor 2.10"), "{text}");
}

#[test]
fn what_cannot_be_placed_is_a_comment_with_its_reason() {
    let fixed = StaticObject { read_only: true, ..object("table", 1 << 26) };
    let advice = advise(&data(vec![fixed]), &machine(&[&[10, 21], &[21, 10]]), None);
    assert_eq!(advice.policy.objects.len(), 0);
    assert_eq!(advice.policy.threads.clone().unwrap().bind, Bind::None);
    assert!(emit::toml(&advice).unwrap().contains("# table, 67108864 bytes, not placed: it is read-only"));
    let one = advise(&data(vec![object("a", 1 << 26)]), &machine(&[&[10]]), None);
    assert!(one.items[0].rule.as_ref().unwrap_err().contains("one node"));
    let value = emit::json(&one);
    assert_eq!(value["objects"][0]["size"], 1 << 26);
    assert!(value["objects"][0]["share"].is_null());
}

#[test]
fn blocks_avoid_nodes_without_cpus() {
    let mut target = machine(&[&[10, 21, 24], &[21, 10, 24], &[24, 24, 10]]);
    target.model.nodes[2].cpus.clear();
    let advice = advise(&data(vec![object("a", 1 << 26)]), &target, None);
    assert_eq!(advice.policy.objects[0].place.nodes.as_deref(), Some("0,1"));
}

#[test]
fn block_naive_is_a_slice_for_each_node() {
    let fixed = StaticObject { read_only: true, ..object("table", 1 << 26) };
    let rules = block_naive(&[object("a", 1 << 26), fixed]);
    assert_eq!(rules.len(), 1);
    assert_eq!((rules[0].place.policy, rules[0].place.block), (PolicyKind::Block, None));
}
