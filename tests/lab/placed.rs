//! Every page of the objects of placed.c on four real nodes, with and without huge pages.

use crate::common::lab::Lab;
use crate::common::{Scratch, compile, source};

/// Block size of an object of placed.c by the formulas of the design, written down again on purpose: the
/// library must not be its own judge. `None`: not a block distribution.
fn block_of(name: &str, size: u64, huge: bool) -> Option<u64> {
    const PAGE: u64 = 4096;
    let in_use = if huge { 2 << 20 } else { PAGE };
    let up = |value: u64, unit: u64| value.div_ceil(unit) * unit;
    Some(match name {
        "block_naive" => up(size.div_ceil(4), PAGE),
        "small_blocks" => 12 << 10,
        "big_blocks" => up((5_u64 << 20).div_ceil(4), in_use),
        "odd_blocks" => 640 << 10,
        "pointers" => PAGE,
        "ordered" => up(size.div_ceil(2), PAGE),
        "heap_blocks" | "heap_grown" => up(size.div_ceil(4), in_use),
        "mapped" | "mapped_grown" => 16 << 10,
        _ => return None,
    })
}

/// Checks one line of placed.c: name, address, size, node of each page.
fn check_line(line: &str, huge: bool) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let (name, size) = (words[0], words[2].parse::<u64>().unwrap());
    let nodes: Vec<u64> = words[3..].iter().map(|n| n.parse().unwrap_or(99)).collect();
    if let Some(block) = block_of(name, size, huge) {
        let list: &[u64] = if name == "ordered" { &[3, 1] } else { &[0, 1, 2, 3] };
        for (i, &node) in nodes.iter().enumerate() {
            let expected = list[(i as u64 * 4096 / block) as usize % list.len()];
            assert_eq!(node, expected, "page {i} of {name}");
        }
    } else if let Some((_, node)) = name.split_once('@') {
        assert!(nodes.iter().all(|n| n.to_string() == node), "{line}");
    } else {
        let among = if name == "heap_turns" { 1..4 } else { 0..4 };
        for node in among.clone() {
            let share = nodes.iter().filter(|&&n| n == node).count() as u64 * (among.end - among.start);
            // Huge pages are dealt out whole, so the shares of a small object may differ by one of them.
            let slack = 4 * if huge && size >= 2 << 20 { 513 } else { 1 };
            assert!(share.abs_diff(nodes.len() as u64) <= slack, "node {node} of {name}");
        }
        assert!(nodes.iter().all(|n| among.contains(n)), "{name}");
    }
    name.to_owned()
}

fn pages_are_where_the_policy_says(thp: &str) {
    let Some(lab) = Lab::new(4, 2) else { return };
    let dir = Scratch::new(&format!("lab-placed-{thp}"));
    let program = compile("cc", "lab/placed/placed.c", dir.join("placed"), &["-O2", "-g", "-pthread"]);
    let lab = lab.options(&["--thp", thp]).add(program).add(source("lab/placed/placed.toml"));
    let out = lab.run(&["numamma", "verify", "-p", "placed.toml", "--", "./placed", "8"]).success();
    let names: Vec<String> = out.stdout.lines().map(|l| check_line(l, thp == "always")).collect();
    assert_eq!(names.len(), 14 + 8, "{names:?}");
}

#[test]
fn pages_are_where_the_policy_says_with_huge_pages() {
    pages_are_where_the_policy_says("always");
}

#[test]
fn pages_are_where_the_policy_says_without_huge_pages() {
    pages_are_where_the_policy_says("never");
}
