//! What realloc of placed objects costs: memory, address space and copies, against the same program without the
//! library, and where in a page they begin. The programs are in tests/hostile/stress and say at their top what they do.

use std::path::PathBuf;
use std::process::Command;

use crate::common::{self, Policy, Scratch, json_file, number, object, placed, plain, run};

/// Resident KiB that the library itself may take: its code that has run, its data, what it read of the program.
const LIBRARY_KIB: f64 = 6144.0;

/// Policies of every kind: what a block needs when it is moved or cut differs between them.
const PLACES: [&str; 6] = [
    "policy = \"interleave\"",
    "policy = \"weighted-interleave\"",
    "policy = \"local\"",
    "policy = \"block\"",
    "policy = \"block-cyclic\", block = \"64KiB\"",
    "policy = \"block\", mode = \"populate\"",
];

struct Program {
    dir: Scratch,
    path: PathBuf,
}

impl Program {
    fn new(name: &str) -> Program {
        let dir = Scratch::new(&format!("resized-{name}"));
        let flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
        let path = common::compile("cc", "hostile/stress/resized.c", dir.join("resized"), &flags);
        Program { dir, path }
    }

    /// A policy that places what each of `functions` allocates; with `phase`, somewhere else from 50 ms on.
    fn policy(&self, functions: &[&str], place: &str, phase: Option<&str>) -> PathBuf {
        let mut policy = Policy::new();
        if phase.is_some() {
            policy = policy.lines("[[phase]]\nname = \"later\"\nafter = 0.05");
        }
        for function in functions {
            policy = policy.rule(&format!("function = [\"{function}\"]"), place);
            if let Some(phase) = phase {
                policy = policy.lines(&format!("phases = {{ later = {{ {phase} }} }}"));
            }
        }
        policy.write(&self.dir, "policy.toml")
    }

    /// Numbers that a run writes to standard error; nothing else may be there, and nothing may be damaged.
    fn numbers(&self, mut command: Command, argument: &str, what: &str) -> Vec<f64> {
        let ran = run(command.arg(argument)).success();
        assert_eq!(ran.stdout, "damaged 0\n", "{what}: {}", ran.stderr);
        let words = ran.stderr.split_whitespace();
        words.map(|n| n.parse().unwrap_or_else(|_| panic!("{what}: {}", ran.stderr))).collect()
    }

    /// The peak of resident memory must be that of the program without the library, under every policy.
    fn keeps_peak(&self, functions: &[&str], argument: &str, places: &[&str]) {
        let bare = self.numbers(plain(&self.path), argument, "bare");
        let phases = [None, Some("policy = \"block-cyclic\", block = \"64KiB\"")];
        for (place, phase) in places.iter().flat_map(|place| phases.map(|phase| (place, phase))) {
            let policy = self.policy(functions, place, phase);
            let seen = self.numbers(placed(&self.path, &policy), argument, place);
            assert_eq!(seen.len(), bare.len(), "{place}");
            let fits = seen.iter().zip(&bare).all(|(seen, bare)| *seen <= 1.1 * bare + LIBRARY_KIB);
            assert!(fits, "{place}, {phase:?}: {seen:?} KiB, bare {bare:?}");
        }
    }
}

/// Sizes near SIZE_MAX are refused. The number of pages of such an array wrapped around, so that realloc cut it to one
/// page; a report then asked the kernel for the pages of 2^64 bytes, and the program did not end.
#[test]
fn a_block_that_cannot_become_so_large_stays_as_it_is() {
    let dir = Scratch::new("resized-too-large");
    let flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror"];
    let program = common::compile("cc", "hostile/stress/refused.c", dir.join("refused"), &flags);
    assert_eq!(run(plain(&program)).success().stdout, "wrong 0\n");
    for place in PLACES {
        let policy = Policy::new().rule("function = [\"taken\"]", place).write(&dir, "refused.toml");
        let mut command = placed(&program, &policy);
        let ran = run(command.env("NUMAMMA_REPORT", dir.join("refused.json")));
        assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), "wrong 0\n"), "{place}: {}", ran.stderr);
    }
}

#[test]
fn a_block_that_becomes_smaller_is_cut_and_not_copied() {
    let program = Program::new("cut");
    program.keeps_peak(&["made"], "cut", &PLACES);
    for place in PLACES {
        let policy = program.policy(&["aligned", "larger"], place, None);
        assert!(program.numbers(placed(&program.path, &policy), "cut-odd", place).is_empty());
    }
}

/// The program writes to every page of 192 MiB and gives them up piece by piece.
#[test]
fn each_page_of_a_block_that_is_cut_is_checked_once() {
    let program = Program::new("checked");
    for place in
        ["policy = \"bind\", nodes = \"0\"", "policy = \"block-cyclic\", block = \"64KiB\"", "policy = \"block\""]
    {
        let policy = program.policy(&["made"], place, None);
        let report = program.dir.join("report.json");
        let mut command = placed(&program.path, &policy);
        command.env("NUMAMMA_REPORT", &report);
        program.numbers(command, "cut", place);
        let report = json_file(&report);
        let made = object(&report, "made");
        // The object of 100 bytes at the end shares a page; the array of 3 MiB after it touches that one and another.
        let present = number(made, "pages_present");
        assert!((49_152..49_152 + 8).contains(&present), "{place}: {made}");
        assert_eq!((number(made, "pages_off_plan"), number(made, "unplaced")), (0, 0), "{place}: {made}");
    }
}

/// The address space has no room for two copies, and where the kernel has put the block differs from run to run.
#[test]
fn an_array_that_grows_by_steps_fits_where_it_fits_without_the_library() {
    let program = Program::new("steps");
    program.keeps_peak(&["larger"], "steps", &PLACES);
}

/// Its parts are memory areas of their own, of which the kernel moves only one at a time.
#[test]
fn an_array_in_parts_that_grows_fits_where_it_fits_without_the_library() {
    let program = Program::new("parts");
    let bare = program.numbers(plain(&program.path), "large", "bare");
    for [first, last] in [["interleave", "block"], ["block", "interleave"], ["local", "bind"]] {
        let part = |range: &str, policy: &str| {
            let place = format!("policy = \"{policy}\", nodes = \"all\"");
            (format!("function = [\"larger\"]\nsizes = \"1MiB-\"\nrange = \"{range}\""), place)
        };
        let parts = [part("0-640KiB", first), part("640KiB-", last)];
        let policy = parts.iter().fold(Policy::new(), |policy, (object, place)| policy.rule(object, place));
        let policy = policy.write(&program.dir, "parts.toml");
        let seen = program.numbers(placed(&program.path, &policy), "large", last);
        assert!(seen[0] <= 1.1 * bare[0] + LIBRARY_KIB, "{first}, {last}: {seen:?} KiB, bare {bare:?}");
    }
}

#[test]
fn an_array_that_two_rules_place_alike_is_not_copied() {
    let program = Program::new("turns");
    program.keeps_peak(&["larger", "also_larger"], "turns", &PLACES);
}

/// Populated blocks exist before the contents come.
#[test]
fn a_block_of_another_allocator_that_grows_never_exists_twice() {
    let program = Program::new("first");
    program.keeps_peak(&["larger"], "first", &PLACES[..5]);
}

#[test]
fn strings_that_grow_stay_where_they_are() {
    let program = Program::new("strings");
    let bare = program.numbers(plain(&program.path), "strings", "bare");
    for place in ["policy = \"interleave\"", "policy = \"bind\""] {
        let policy = program.policy(&["larger"], place, None);
        let seen = program.numbers(placed(&program.path, &policy), "strings", place);
        assert!(seen[0] <= bare[0], "{place}: moved {seen:?} times, bare {bare:?}");
    }
}

#[test]
fn small_buffers_that_are_cut_give_the_rest_to_others() {
    let program = Program::new("shrunk");
    let bare = program.numbers(plain(&program.path), "shrunk", "bare");
    let policy = program.policy(&["made", "larger"], "policy = \"interleave\"", None);
    let seen = program.numbers(placed(&program.path, &policy), "shrunk", "placed");
    assert!(seen[0] <= 1.25 * bare[0] + LIBRARY_KIB, "KiB at the peak {seen:?}, bare {bare:?}");
}

/// The kernel refuses to make them larger in place and elsewhere. What was reserved for that is given back.
#[test]
fn address_space_for_blocks_that_cannot_grow_is_given_back() {
    /// Arrays that come and go too often to be placed again are glibc's, which keeps twice the largest of 16 MiB. What
    /// 21 of them would lose is ten times as much.
    const KEPT_BY_GLIBC: f64 = 32.0 * 1024.0;
    let program = Program::new("refused");
    for argument in ["locked", "data"] {
        let bare = program.numbers(plain(&program.path), argument, "bare");
        for place in PLACES {
            let policy = program.policy(&["made"], place, None);
            let seen = program.numbers(placed(&program.path, &policy), argument, place);
            let most = bare[0] + LIBRARY_KIB + KEPT_BY_GLIBC;
            assert!(seen[0] <= most, "{argument}, {place}: {seen:?} KiB more, bare {bare:?}");
        }
    }
}

#[test]
fn threads_resize_blocks_of_one_another() {
    let program = Program::new("threads");
    for (place, phase) in [(PLACES[0], None), (PLACES[4], None), (PLACES[5], None), (PLACES[0], Some(PLACES[4]))] {
        let policy = program.policy(&["larger", "smaller"], place, phase);
        assert!(program.numbers(placed(&program.path, &policy), "threads", place).is_empty());
    }
}

/// Arrays that begin at the same place of their pages share a few sets of the first-level cache. The blocks of some
/// policies begin with the array, which begins at a page then.
#[test]
fn arrays_that_are_walked_side_by_side_begin_at_different_places() {
    let dir = Scratch::new("walked_together");
    let flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror"];
    let path = common::compile("cc", "hostile/stress/walked_together.c", dir.join("walked_together"), &flags);
    let mut places: Vec<String> = PLACES.map(str::to_owned).to_vec();
    places.push("policy = \"bind\", nodes = \"0\"".to_owned());
    for place in places {
        let rules = ["site", "resize"]
            .iter()
            .fold(Policy::new(), |policy, function| policy.rule(&format!("function = [\"{function}\"]"), &place));
        let ran = run(placed(&path, rules.write(&dir, "rules.toml"))).success();
        assert_eq!(ran.stdout, "damaged 0\n", "{place}: {}", ran.stderr);
        let begins: usize = ran.messages().1.join("").trim().parse().unwrap_or_else(|_| panic!("{}", ran.stderr));
        let is_by_blocks = place.contains("block");
        // 51 arrays at 31 places at random are at 25 of them.
        assert!(if is_by_blocks { begins == 1 } else { begins >= 15 }, "{place}: {begins} places");
    }
}
