//! Threads on explicit CPU lists, and `bind-block` by where threads really are. On four real nodes: tests/lab/bound.rs.

use std::path::Path;

use crate::common::{Policy, Ran, Scratch, compile, numamma, placed, plain, run};

/// A policy for both objects of the program.
fn policy(bind: &str) -> Policy {
    let place = "policy = \"bind-block\"";
    Policy::of("pinned")
        .lines(&format!("[threads]\nbind = {bind}\ncount = 4"))
        .rule("global = \"grid\"", place)
        .rule("function = [\"by_malloc\"]", place)
}

fn run_placed(program: &Path, policy: &Path, variables: &[(&str, &str)]) -> Ran {
    let mut c = placed(program, policy);
    for name in ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"] {
        c.env_remove(name);
    }
    run(c.arg("3").envs(variables.iter().copied()))
}

#[test]
fn explicit_lists_bind_threads_in_turn_and_users_go_first() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        crate::common::skipped("one CPU");
        return;
    }
    let dir = Scratch::new("bound");
    let program = compile("cc", "preloads/bound/pinned.c", dir.join("pinned"), &["-O2", "-g", "-pthread"]);
    let two = policy("[\"1\", \"0\"]").write(&dir, "two.toml");
    let out = run_placed(&program, &two, &[]);
    assert!(out.stdout.starts_with("thread 0: 1\nthread 1: 0\nthread 2: 1\n"), "{out:?}");
    for variable in [("OMP_PLACES", "{0}"), ("GOMP_CPU_AFFINITY", "0-1"), ("OMP_PROC_BIND", "true")] {
        let out = run_placed(&program, &two, &[variable]);
        assert!(out.stdout.starts_with("thread 0: 0 1"), "{variable:?}: {out:?}");
        assert!(!out.stdout.contains("thread 1: 0\n"), "{variable:?}: {out:?}");
    }
    let missing = policy("[\"0\", \"8000\"]").write(&dir, "missing.toml");
    let out = run_placed(&program, &missing, &[]);
    assert!(out.status.success());
    let said = out.stderr;
    assert!(
        said.contains("threads: bind: CPU 8000 is offline or not allowed") && said.contains("running unplaced"),
        "{said}"
    );
    run(numamma(&["run", "--policy"]).arg(&missing).args(["--", "true"])).ended(2);
}

/// CPUs that the program chooses for its threads stay chosen, and so do those that others inherit from them.
#[test]
fn threads_that_the_program_binds_are_left_alone() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        crate::common::skipped("one CPU");
        return;
    }
    let dir = Scratch::new("own-cpus");
    let program = compile("cc", "preloads/bound/own_cpus.c", dir.join("own_cpus"), &["-O2", "-g", "-pthread"]);
    let bare = run(&mut plain(&program)).success();
    assert!(bare.stdout.contains("worker: 1\nworker on its own CPU: 0\nhelper: 0\nmain: 1\n"), "{bare:?}");
    let team = "[[team]]\nstart = [\"own_cpus+0x0\"]\nfunction = [\"work\"]\ncreator = true\nworkers = 2";
    for (number, (bind, team)) in
        [("\"compact\"", ""), ("[\"1\", \"0\"]", ""), ("\"compact\"", team), ("[\"1\", \"0\"]", team)]
            .iter()
            .enumerate()
    {
        let lines = format!("[threads]\nbind = {bind}\n{team}");
        let policy = Policy::of("own_cpus").lines(&lines).write(&dir, &format!("{number}.toml"));
        let placed = run_placed(&program, &policy, &[]).success();
        assert_eq!(placed.stdout, bare.stdout, "{lines}");
    }
    // Main is bound to CPU 1 with the first thread and then moves to the other CPU, which is one of the lists, too.
    let bare = run(plain(&program).arg("moved")).success();
    assert!(bare.stdout.starts_with("worker: 0\n"), "{bare:?}");
    let policy = Policy::of("own_cpus").lines("[threads]\nbind = [\"1\", \"0\"]").write(&dir, "moved.toml");
    let placed = run(placed(&program, &policy).arg("moved")).success();
    assert_eq!(placed.stdout, bare.stdout);
}
