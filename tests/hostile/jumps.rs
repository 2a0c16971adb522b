//! Calls of the mmap family beside placed mappings: those that a signal handler leaves by siglongjmp, and those of
//! areas that no rule places. tests/hostile/stress/jumps.c says at its top what it does.

use crate::memory::Program;

/// The number that `argument` makes the program write: bare, then placed. The larger or smaller of three runs, as
/// `better` says: a machine that is busy for a while makes neither so.
fn numbers(argument: &str, better: fn(f64, f64) -> f64) -> [f64; 2] {
    let jumps = Program::new("jumps");
    let rules = jumps.policy("matched.toml", &["matched".to_owned()], "policy = \"interleave\"");
    let run = || [jumps.bare(argument)[0], jumps.placed(&rules, argument)[0]];
    let first = run();
    (0..2).fold(first, |[bare, placed], _| {
        let [next_bare, next_placed] = run();
        [better(bare, next_bare), better(placed, next_placed)]
    })
}

/// What a handler interrupts is not left half done: the list of placed mappings stays as short as what is mapped. Half
/// as many calls end as bare; a twelfth did where entries of the list were lost.
#[test]
fn calls_that_a_handler_leaves_do_not_hinder_later_ones() {
    let [bare, placed] = numbers("calls", f64::max);
    assert!(placed >= bare / 5.0, "{placed} calls came to their end, {bare} bare");
}

/// Six times as much was measured where each call searched the list.
#[test]
fn areas_beside_many_placed_ones_are_mapped_as_fast_as_bare() {
    let [bare, placed] = numbers("beside 5000", f64::min);
    assert!(placed <= 2.5 * bare, "{placed} us, {bare} us bare");
}
