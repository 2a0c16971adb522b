//! From the profile to the check of every page, through each kind of launcher that programs are started with: the right
//! program, its threads without those of the launcher, every page on plan.

use serde_json::Value;

use crate::common::{Scratch, beside_others, compile, exists, json_file, needs, numamma, number, objects, root, run};

/// What runs the solver, with its arguments.
const SOLVER: &str = "./solver 60";
/// Threads of the solver that work.
const WORKERS: u64 = 2;

/// Each launcher: the tools that it needs, and its command line.
const LAUNCHERS: [(&[&str], &[&str]); 16] = [
    (&[], &["./run.sh"]),
    (&[], &["bash", "-c", "true; ./solver 60; true"]),
    (&["make"], &["make", "test"]),
    (&[], &["env", "X=1", "./run.sh"]),
    (&[], &["timeout", "100", "nice", "-n", "1", "./solver", "60"]),
    (&["taskset"], &["taskset", "-c", "0-63", "./run.sh"]),
    (&["time"], &["time", "./solver", "60"]),
    (&["numactl"], &["numactl", "--interleave=all", "./solver", "60"]),
    (&["python3"], &["python3", "-m", "start"]),
    (&["perl"], &["perl", "-e", "system('./solver 60'); 1"]),
    (&["ctest"], &["ctest"]),
    (&["fish"], &["./run.fish"]),
    (&["mpirun"], &["mpirun", "--bind-to", "none", "-n", "1", "./solver", "60"]),
    (&["mpirun"], &["mpirun", "--bind-to", "none", "-n", "1", "./run.sh"]),
    (&[], &["./static", "./run.sh"]),
    (&["octave-cli"], &["octave-cli", "--no-gui", "--eval", "system('./solver 60');"]),
];

/// Tools that `make setup` does not install: hundreds of megabytes, or one of several of their kind.
const OPTIONAL: [&str; 1] = ["octave-cli"];

/// A static program that starts its arguments.
const STARTER: &str = "#include <sys/wait.h>\n#include <unistd.h>\n\
    int main(int n, char **words) { if (!fork()) { execv(words[1], words + 1); _exit(1); } wait(0); return n < 2; }\n";

/// The solver and what starts it.
fn desk() -> Scratch {
    let dir = Scratch::new("launchers");
    let include = format!("-I{}", root().join("include").display());
    compile("cc", "cli/documents/solver.c", dir.join("solver"), &["-O2", "-g", "-pthread", &include]);
    dir.write_mode("run.sh", format!("#!/bin/sh\necho begins\n{SOLVER}\ntrue\n"), 0o755);
    dir.write_mode("run.fish", format!("#!/usr/bin/env fish\n{SOLVER}\n"), 0o755);
    dir.write("Makefile", format!("test:\n\t{SOLVER}\n"));
    dir.write("start.py", format!("import subprocess\nsubprocess.check_call('{SOLVER}'.split())\n"));
    dir.write("CTestTestfile.cmake", format!("add_test(solver {} 60)\n", dir.join("solver").display()));
    dir.write("static.c", STARTER);
    compile("cc", dir.join("static.c").to_str().unwrap(), dir.join("static"), &["-static"]);
    dir
}

/// Runs `numamma words -- launcher`, and returns what it says.
fn typed(dir: &Scratch, words: &[&str], launcher: &[&str]) -> String {
    let mut command = numamma(&[words, &["--"], launcher].concat());
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"] {
        command.env(name, "1");
    }
    run(command.current_dir(dir)).success().stderr
}

fn walk(dir: &Scratch, launcher: &[&str]) {
    let said = typed(dir, &["profile", "-F", "1000"], launcher);
    assert!(said.contains("next: `numamma report`"), "{launcher:?}: {said}");
    let report = run(numamma(&["report", "--json"]).current_dir(dir)).success().json();
    let program = report["program"].as_str().unwrap_or_default();
    assert!(program.ends_with("/solver"), "{launcher:?}: {program}: {said}");
    let workers = report["threads"].as_array().expect("threads").iter().filter(|t| t["works"] == Value::Bool(true));
    let pids: Vec<&Value> = workers.map(|thread| &thread["pid"]).collect();
    assert_eq!((pids.len() as u64, pids.first()), (WORKERS, pids.last()), "{launcher:?}: {}", report["threads"]);
    let advice = run(numamma(&["advise", "--nodes", "2", "-o", "policy.toml"]).current_dir(dir)).success().stderr;
    let policy = std::fs::read_to_string(dir.join("policy.toml")).expect("the policy");
    assert!(policy.contains(&format!("path = \"{program}\"")), "{launcher:?}: {policy}");
    assert!(policy.contains(&format!("count = {WORKERS}\n")), "{launcher:?}: {policy}\n{advice}");
    let checked = typed(dir, &["verify", "-p", "policy.toml", "-o", "checked.json"], launcher);
    let json = json_file(&dir.join("checked.json"));
    assert_eq!((&json["ok"], &json["processes"]), (&Value::Bool(true), &1.into()), "{launcher:?}: {checked}");
    let found = objects(&json);
    assert!(!found.is_empty(), "{launcher:?}: {policy}");
    for object in found {
        let (present, on) = (number(object, "pages_present"), number(object, "pages_on_plan"));
        assert!(present > 0 && present == on, "{launcher:?}: {checked}");
    }
}

#[test]
fn every_kind_of_launcher_is_looked_through() {
    let _order = beside_others();
    let dir = desk();
    for (tools, launcher) in LAUNCHERS {
        let optional = tools.iter().any(|tool| OPTIONAL.contains(tool));
        let there = if optional { exists(tools[0]) } else { needs(tools, &format!("{launcher:?}")) };
        if there {
            walk(&dir, launcher);
        }
    }
}
