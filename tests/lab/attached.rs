//! Shared memory in blocks stays one mapping, and a System V segment keeps its count of users, by which programs tell
//! that they are the last. The pages are on the nodes of the plan, whoever touches them first.

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile};

const PAGES: usize = 256;
/// 64 KiB in base pages.
const BLOCK: usize = 16;
const NODES: usize = 4;

#[test]
fn shared_memory_in_blocks_is_one_mapping_with_one_user() {
    let Some(lab) = Lab::new(NODES as u64, 1) else { return };
    let dir = Scratch::new("lab-attached");
    let program = compile("cc", "lab/attached/attached.c", dir.join("attached"), &["-O2", "-g"]);
    let blocks = "policy = \"block-cyclic\", block = \"64KiB\"";
    let policy = Policy::of("attached")
        .lines("[[phase]]\nname = \"soon\"\nafter = 0.2")
        .rule("function = [\"by_shmat\"]", blocks)
        .rule("function = [\"by_memfd\"]", blocks)
        .rule("function = [\"by_phase\"]", "policy = \"bind\", nodes = \"1\"")
        .lines("phases = { soon = { policy = \"block-cyclic\", block = \"64KiB\" } }")
        .write(&dir, "p.toml");
    let text =
        lab.add(program).add(policy).run(&["numamma", "run", "--policy", "p.toml", "./attached"]).success().stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    for (line, name) in lines.iter().zip(["segment", "file", "phased"]) {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[..3], [name, "1", "1"], "name, attachments and mappings: {text}");
        let nodes: Vec<usize> = words[3..].iter().map(|n| n.parse().unwrap_or(usize::MAX)).collect();
        let planned: Vec<usize> = (0..PAGES).map(|page| page / BLOCK % NODES).collect();
        assert_eq!(nodes, planned, "{name}");
    }
    assert_eq!(lines[3], "last: 1", "{text}");
}
