//! What placed arrays do to the memory that a program uses beside them: its allocator's, and what it maps itself. The
//! program is tests/hostile/stress/beside.c and says at its top what it does.

use std::path::PathBuf;

use crate::common::Policy;
use crate::memory::Program;

/// A policy that places what `made` and `larger` allocate.
fn two_rules(program: &Program, made: &str, larger: &str) -> PathBuf {
    let rule = |policy: Policy, (function, place): (&str, &str)| {
        policy.rule(&format!("function = [\"{function}\"]"), &format!("policy = \"{place}\""))
    };
    let rules = [("made", made), ("larger", larger)];
    rules.into_iter().fold(Policy::new(), rule).write(&program.dir, "two.toml")
}

/// glibc maps large blocks, and realloc of such a block leaves its thresholds as they are (M_MMAP_THRESHOLD in
/// mallopt(3)): what no rule places is mapped and unmapped as before, also where the library copies what glibc would
/// let the kernel move.
#[test]
fn realloc_of_a_placed_array_leaves_the_bounds_of_glibc() {
    let beside = Program::new("beside");
    for (made, larger) in [("interleave", "block"), ("local", "local")] {
        let policy = two_rules(&beside, made, larger);
        for how in ["copied", "doubled", "shrunk", "foreign"] {
            beside.compare(&policy, how);
        }
    }
}

/// realloc of a block to nothing is a free.
#[test]
fn a_placed_array_that_realloc_frees_raises_the_bounds_of_glibc() {
    let beside = Program::new("beside");
    let policy = two_rules(&beside, "interleave", "interleave");
    let (bare, seen) = (beside.bare("nothing"), beside.placed(&policy, "nothing"));
    // 220,000 where each step maps its blocks anew.
    assert!(seen[0] <= 1.3 * bare[0] + 1_000.0, "page faults {seen:?}, bare {bare:?}");
}

/// Memory that the library does not provide, in whatever way the program asks for it.
fn what_is_kept_does_not_stand_beside_other_memory(place: &str) {
    let beside = Program::new("beside");
    let policy = two_rules(&beside, place, place);
    for how in ["mapped", "once", "extended", "committed", "mallocs", "callocs", "threads", "strings", "grown"] {
        beside.compare(&policy, how);
    }
}

#[test]
fn what_is_kept_does_not_stand_beside_mappings_and_small_blocks_that_no_rule_places() {
    what_is_kept_does_not_stand_beside_other_memory("interleave");
}

#[test]
#[ignore = "long: make test-long"]
fn what_is_kept_of_blocks_does_not_stand_beside_mappings_and_small_blocks_that_no_rule_places() {
    what_is_kept_does_not_stand_beside_other_memory("block");
}

#[test]
fn what_is_kept_serves_again_where_a_step_maps_and_allocates_little_else() {
    /// Pages of the mapping of each of 200 steps, and of the four arrays.
    const MAPPED: f64 = 200.0 * 245.0;
    const ARRAYS: f64 = 4.0 * MAPPED;
    let beside = Program::new("beside");
    for place in ["interleave", "block"] {
        let policy = two_rules(&beside, place, place);
        let seen = beside.placed(&policy, "scratch");
        assert!(seen[0] <= MAPPED + ARRAYS / 10.0, "{place}: page faults {seen:?}, bare {:?}", beside.bare("scratch"));
        beside.compare(&policy, "scratch");
    }
}
