//! Shared memory in blocks stays one mapping, and a System V segment keeps its count of users, by which programs tell
//! that they are the last. The pages are on the nodes of the plan, whoever touches them first, and however the program
//! is bound.

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile};
use crate::ways::{self, Bound, GOMP};

const PAGES: u64 = 256;
/// 64 KiB in base pages.
const BLOCK: u64 = 16;
const NODES: u64 = 4;

#[test]
fn shared_memory_in_blocks_is_one_mapping_with_one_user() {
    let Some(lab) = Lab::new(NODES, 1) else { return };
    let dir = Scratch::new("lab-attached");
    let program = compile("cc", "lab/attached/attached.c", dir.join("attached"), &[&["-O2", "-g"][..], &GOMP].concat());
    let blocks = "policy = \"block-cyclic\", block = \"64KiB\"";
    let policy = Policy::of("attached")
        .lines("[[phase]]\nname = \"soon\"\nafter = 0.2")
        .rule("function = [\"by_shmat\"]", blocks)
        .rule("function = [\"by_memfd\"]", blocks)
        .rule("function = [\"by_phase\"]", "policy = \"bind\", nodes = \"1\"")
        .lines("phases = { soon = { policy = \"block-cyclic\", block = \"64KiB\" } }")
        .write(&dir, "p.toml");
    let placed = ["numamma", "run", "--policy", "p.toml", "./attached"];
    let text = ways::run(lab.add(program).add(policy), &ways::ALL, &placed);
    for bound in ways::split(&text, &ways::ALL, NODES) {
        check(&bound);
    }
}

fn check(bound: &Bound<'_>) {
    let (way, text) = (bound.way, bound.said);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{way}: {text}");
    for (line, name) in lines.iter().zip(["segment", "file", "phased"]) {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[..3], [name, "1", "1"], "{way}: name, attachments and mappings: {text}");
        let nodes: Vec<u64> = words[3..].iter().map(|n| n.parse().unwrap_or(u64::MAX)).collect();
        let planned: Vec<u64> = (0..PAGES).map(|page| bound.of_all(page / BLOCK)).collect();
        assert_eq!(nodes, planned, "{way}: {name}");
    }
    assert_eq!(lines[3], "last: 1", "{way}: {text}");
}
