//! `bind-block` by where threads really are, and node lists of a process that may use a part of the machine only, on
//! four real nodes.

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile, source};
use crate::ways;

/// Name of the policy file, `threads.bind`, and the place of both objects of the program.
const POLICIES: [(&str, &str, &str); 6] = [
    ("bind-block", "\"none\"", "policy = \"bind-block\""),
    ("explicit", "[\"2\", \"0\", \"3\", \"1\"]", "policy = \"bind-block\""),
    ("scatter", "\"scatter\"", "policy = \"bind-block\""),
    ("all", "\"none\"", "policy = \"block\", block = \"1MiB\", nodes = \"all\""),
    ("relative", "\"none\"", "policy = \"block\", block = \"1MiB\", nodes = \"+1\""),
    ("numbers", "\"none\"", "policy = \"block\", block = \"1MiB\", nodes = \"0-3\""),
];

#[test]
fn threads_and_processes_bound_to_a_part_of_the_machine() {
    let Some(lab) = Lab::still(4, 1) else { return };
    let dir = Scratch::new("lab-bound");
    let mut lab = lab.options(&["--thp", "never"]);
    for (name, bind, place) in POLICIES {
        let policy = Policy::of("pinned")
            .lines(&format!("[threads]\nbind = {bind}\ncount = 4"))
            .rule("global = \"grid\"", place)
            .rule("function = [\"by_malloc\"]", place);
        lab = lab.add(policy.write(&dir, &format!("{name}.toml")));
    }
    // Lists of CPUs of several nodes, which threads that threads create take in turn as well.
    let across = Policy::of("deep").lines("[threads]\nbind = [\"0,2\", \"1,3\"]");
    let deep = compile("cc", "preloads/bound/deep.c", dir.join("deep"), &["-O2", "-g", "-pthread"]);
    lab = lab.add(across.write(&dir, "across.toml")).add(deep);
    let program = compile("cc", "preloads/bound/pinned.c", dir.join("pinned"), &["-O2", "-g", "-pthread"]);
    let said = lab.add(program).add(source("lab/bound/run.sh")).run(&["./run.sh"]).success().stdout;
    let expected = [
        // Nothing says ahead where the threads will be; the heap object sees them.
        ("seen", "0 1 2 3", "3 2 1 0"),
        ("places", "3 2 1 0", "3 2 1 0"),
        ("explicit", "2 0 3 1", "2 0 3 1"),
        ("scatter", "0 1 2 3", "0 1 2 3"),
        ("all", "2 3 2 3", "2 3 2 3"),
        ("relative", "3 3 3 3", "3 3 3 3"),
        ("numbers", "0 1 2 3", "0 1 2 3"),
        ("whole", "0 1 2 3", "0 1 2 3"),
    ];
    let (said, deep) = said.split_once("=== deep\n").unwrap_or_else(|| panic!("{said}"));
    assert_eq!(deep.trim(), "depth 3: 1 3\ndepth 2: 0 2\ndepth 1: 1 3\ndepth 0: 0 2");
    let scenes: Vec<&str> = said.split("=== ").skip(1).collect();
    assert_eq!(scenes.len(), expected.len(), "{said}");
    for ((name, grid, heap), scene) in expected.into_iter().zip(scenes) {
        assert!(scene.starts_with(&format!("{name}\n")), "{scene}");
        assert!(scene.contains(&format!("\ngrid {grid}\n")), "{scene}");
        assert!(scene.contains(&format!("\nby_malloc {heap}\n")), "{scene}");
        assert_eq!(scene.matches("\"pages_off_plan\":0").count(), 2, "the report disagrees: {scene}");
    }
}

/// Threads of the team; half of the CPUs, so that the ways put them on different nodes.
const TEAM: u64 = 4;

/// The blocks of a heap object are on the nodes of the threads, as the program itself asks the kernel for them, and
/// dealt out evenly where the kernel may move these. A global is placed before there are threads: only a plain list of
/// CPUs says where they will be.
#[test]
fn blocks_are_with_the_threads_of_a_team_in_every_way() {
    let Some(lab) = Lab::still(4, 2) else { return };
    let dir = Scratch::new("lab-bound-team");
    let place = "policy = \"bind-block\"";
    let policy = Policy::of("team").lines(&format!("[threads]\nbind = \"none\"\ncount = {TEAM}"));
    let policy = policy.rule("global = \"grid\"", place).rule("function = [\"by_malloc\"]", place);
    let team = compile("cc", "lab/bound/team.c", dir.join("team"), &["-O2", "-g", "-fopenmp"]);
    let lab = lab.options(&["--thp", "never"]).add(policy.write(&dir, "team.toml")).add(team);
    let placed = ["env", "LD_PRELOAD=libnumamma-apply.so", "NUMAMMA_POLICY=team.toml", "./team", &TEAM.to_string()];
    let text = ways::run(lab, &ways::ALL, &placed);
    for bound in ways::split(&text, &ways::ALL, 4) {
        let threads: Vec<&str> = bound.said.lines().filter_map(|l| l.strip_prefix("thread ")).collect();
        assert_eq!(threads.len() as u64, TEAM, "{}: {}", bound.way, bound.said);
        let even: Vec<String> =
            (0..TEAM).map(|t| bound.of_all(t * bound.nodes.len() as u64 / TEAM).to_string()).collect();
        let (even, own) = (even.join(" "), threads.join(" "));
        let heap = if threads.iter().all(|nodes| nodes.len() == 1) { &own } else { &even };
        let grid = if bound.way == "GOMP_CPU_AFFINITY" { &own } else { &even };
        let said = |name: &str, nodes: &str| bound.said.contains(&format!("\n{name} {nodes}\n"));
        assert!(said("by_malloc", heap) && said("grid", grid), "{}: {}", bound.way, bound.said);
    }
}

/// Name of the policy file, and its `[threads]` and teams: thread n on CPU n in all of them.
const BINDINGS: [(&str, &str); 3] = [
    ("team", "[threads]\nbind = \"compact\"\ncount = 4\n[[team]]\nopenmp = true\ncreator = true\nworkers = 4"),
    ("order", "[threads]\nbind = \"compact\"\ncount = 4"),
    ("lists", "[threads]\nbind = [\"0\", \"1\", \"2\", \"3\"]"),
];

/// Processes that a bound thread starts are not bound: what their own sched_getaffinity says is what it says without a
/// policy.
#[test]
fn processes_that_bound_threads_start_may_use_all_cpus() {
    let Some(lab) = Lab::still(4, 1) else { return };
    let dir = Scratch::new("lab-bound-children");
    let program = compile("cc", "lab/bound/children.c", dir.join("children"), &["-O2", "-g", "-fopenmp"]);
    let mut lab = lab.options(&["--timeout", "300", "--with-root", "/usr/bin/taskset"]).add(program);
    let mut command = vec!["./children.sh"];
    for (name, lines) in BINDINGS {
        lab = lab.add(Policy::new().lines(lines).write(&dir, &format!("{name}.toml")));
        command.push(name);
    }
    let said = lab.add(source("lab/bound/children.sh")).run(&command).success().stdout;
    let runs: Vec<(&str, &str)> = said.split("+++ ").filter_map(|run| run.split_once("=== out\n")).collect();
    let [bare, placed @ ..] = &runs[..] else { panic!("{said}") };
    assert_eq!(placed.len(), BINDINGS.len() + 1, "{said}");
    let unbound = ["main afterwards", "thread 0", "thread 1", "thread 2", "thread 3", "worker afterwards"];
    let expected: String = unbound.iter().map(|who| format!("{who} 0 1 2 3\n")).collect();
    assert_eq!(bare.0, format!("bare\n=== bound\n{expected}"));
    assert!(bare.1.contains("fork 0 1 2 3\n") && !bare.1.contains("failed"), "{}", bare.1);
    for (name, out) in placed {
        let bound = "main afterwards 0\nthread 0 0\nthread 1 1\nthread 2 2\nthread 3 3\nworker afterwards 3\n";
        assert!(name.ends_with(bound), "{name}");
        let differ: Vec<_> = bare.1.lines().zip(out.lines()).filter(|(bare, placed)| bare != placed).collect();
        assert!(differ.is_empty(), "{name}{differ:#?}");
        assert_eq!(out.lines().count(), bare.1.lines().count(), "{out}");
    }
}
