//! Stacks that a program makes itself: the walk of the stack never leaves what is mapped, and allocations on the stack
//! of the main thread and of other threads are placed, whichever stack the program allocated on first.

use crate::common::{Policy, Scratch, json_file, number, objects, placed, run};
use crate::stress::{compare_under, compile, scratch};

/// The ways of the program to lay out stacks, and how often each allocates on a thread's own stack.
const WAYS: [(&str, u64); 11] = [
    ("first", 2),
    ("handler", 2),
    ("unlimited", 3),
    ("legacy", 3),
    ("fixed", 4),
    ("replaced", 3),
    ("inside", 3),
    ("thread", 4),
    ("c11", 4),
    ("deep", 903),
    ("split", 454),
];

const PLACE: &str = "policy = \"interleave\"";

/// A scratch directory with the program, and two policies with rules for stacks of several functions. `bound` also has
/// something to do when a thread starts.
fn prepare(name: &str) -> Scratch {
    let dir = scratch(name);
    compile(&dir, "fibers.c", "fibers", &[]);
    for (file, threads) in [("stacks.toml", ""), ("bound.toml", "[threads]\nbind = \"compact\"")] {
        Policy::new()
            .lines(threads)
            .rule("function = [\"grid\", \"own_stack\"]", PLACE)
            .rule("function = [\"grid\", \"work\", \"fiber_exit\", \"main\"]", PLACE)
            .write(&dir, file);
    }
    dir
}

#[test]
fn a_walk_does_not_leave_a_stack_of_the_programs_own() {
    let dir = prepare("fibers-walk");
    for (way, allocations) in WAYS {
        let stdout = compare_under(&dir, &format!("exec ./fibers {way}"), &[("stacks", PLACE), ("bound", PLACE)]);
        assert_eq!(stdout, format!("{allocations} on its own stack\n"), "{way}");
    }
}

#[test]
fn allocations_on_a_threads_own_stack_are_placed_beside_fibers() {
    let dir = prepare("fibers-placed");
    for (way, allocations) in WAYS {
        let report = dir.join(format!("{way}.json"));
        for policy in ["stacks.toml", "bound.toml"] {
            let mut command = placed(dir.join("fibers"), dir.join(policy));
            run(command.arg(way).env("NUMAMMA_REPORT", &report)).success();
            let report = json_file(&report);
            let found: Vec<u64> = objects(&report).iter().map(|object| number(object, "instances")).collect();
            assert_eq!(found, [allocations, 0], "{way} {policy}: {report}");
        }
    }
}
