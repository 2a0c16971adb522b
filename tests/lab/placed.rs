//! Every page of the objects of placed.c on four real nodes, with and without huge pages, however the program is bound.

use crate::common::lab::Lab;
use crate::common::{Scratch, compile, source};
use crate::ways::{self, GOMP};

const CPUS_PER_NODE: u64 = 2;

/// Block size of an object of placed.c by the formulas of the design, written down again on purpose: the
/// library must not be its own judge. `nodes` is the number of nodes of the process. `None`: not a block distribution.
fn block_of(name: &str, size: u64, huge: bool, nodes: u64) -> Option<u64> {
    const PAGE: u64 = 4096;
    let in_use = if huge { 2 << 20 } else { PAGE };
    let up = |value: u64, unit: u64| value.div_ceil(unit) * unit;
    Some(match name {
        "block_naive" => up(size.div_ceil(nodes), PAGE),
        "small_blocks" => 12 << 10,
        "big_blocks" => up((5_u64 << 20).div_ceil(nodes), in_use),
        "odd_blocks" => 640 << 10,
        "pointers" => PAGE,
        "ordered" => up(size.div_ceil(2), PAGE),
        "heap_blocks" | "heap_grown" => up(size.div_ceil(nodes), in_use),
        "heap_chain" => 2 << 20,
        "mapped" | "mapped_grown" => 16 << 10,
        _ => return None,
    })
}

/// Checks one line of placed.c: name, address, size, node of each page. `own` are the nodes of the process.
fn check_line(line: &str, huge: bool, own: &[u64]) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let (name, size) = (words[0], words[2].parse::<u64>().unwrap());
    let nodes: Vec<u64> = words[3..].iter().map(|n| n.parse().unwrap_or(99)).collect();
    if let Some(block) = block_of(name, size, huge, own.len() as u64) {
        let list: &[u64] = if name == "ordered" { &[3, 1] } else { own };
        for (i, &node) in nodes.iter().enumerate() {
            let expected = list[(i as u64 * 4096 / block) as usize % list.len()];
            assert_eq!(node, expected, "page {i} of {name}");
        }
    } else if let Some((_, node)) = name.split_once('@') {
        assert!(nodes.iter().all(|n| n.to_string() == node), "{line}");
    } else {
        let among: Vec<u64> = own.iter().copied().filter(|n| name != "heap_turns" || *n != 0).collect();
        for &node in &among {
            let share = nodes.iter().filter(|&&n| n == node).count() as u64 * among.len() as u64;
            // Huge pages are dealt out whole, so the shares of a small object may differ by one of them.
            let slack = 4 * if huge && size >= 2 << 20 { 513 } else { 1 };
            assert!(share.abs_diff(nodes.len() as u64) <= slack, "node {node} of {name}");
        }
        assert!(nodes.iter().all(|n| among.contains(n)), "{name}");
    }
    name.to_owned()
}

/// One run: its name, the CPUs that it was given, the lines of placed.c, the number of warnings of verify.
fn check_run(run: &str, huge: bool) {
    let (shown, warnings) = run.trim_end().split_once("--- ").unwrap_or_else(|| panic!("{run}"));
    let mut lines = shown.lines().skip(1);
    let cpus = numamma_kernel::lists::parse_list(lines.next().expect("a list of CPUs"));
    let mut own: Vec<u64> = cpus.iter().map(|cpu| u64::from(*cpu) / CPUS_PER_NODE).collect();
    own.dedup();
    let names: Vec<String> = lines.map(|l| check_line(l, huge, &own)).collect();
    assert_eq!(names.len(), 15 + 8, "{run}");
    assert_eq!(warnings, if own.len() == 4 { "0" } else { "1" }, "{run}");
}

/// Boots once and runs the program in each of the ways of bindings.sh; in all of them, also bound on half of the nodes.
fn pages_are_where_the_policy_says(thp: &str, ways: &[&str]) {
    let Some(lab) = Lab::new(4, CPUS_PER_NODE) else { return };
    let dir = Scratch::new(&format!("lab-placed-{thp}-{}", ways.len()));
    let flags = [&["-O2", "-g", "-pthread"][..], &GOMP].concat();
    let program = compile("cc", "lab/placed/placed.c", dir.join("placed"), &flags);
    let lab = lab.options(&["--thp", thp]).add(program).add(source("lab/placed/placed.toml"));
    let (lab, here) = ways::add(lab.add(source("lab/placed/run.sh")), ways);
    let text = lab.run(&[&["./run.sh"], &here[..]].concat()).success().stdout;
    let runs: Vec<&str> = text.split("=== ").skip(1).collect();
    assert_eq!(runs.len(), here.len() + usize::from(ways.len() == ways::ALL.len()), "{text}");
    runs.iter().for_each(|run| check_run(run, thp == "always"));
}

#[test]
fn pages_are_where_the_policy_says_with_huge_pages() {
    pages_are_where_the_policy_says("always", &["unbound", "OMP_PROC_BIND=spread", "node"]);
}

#[test]
fn pages_are_where_the_policy_says_without_huge_pages() {
    pages_are_where_the_policy_says("never", &["unbound", "OMP_PROC_BIND=close", "mpirun-core"]);
}

#[test]
#[ignore = "long: make test-long"]
fn pages_are_where_the_policy_says_however_the_program_is_bound() {
    pages_are_where_the_policy_says("never", &ways::ALL);
}
