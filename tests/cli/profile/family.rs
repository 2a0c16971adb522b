//! Programs that execute others, fork, and hide behind scripts.

use std::path::Path;

use numamma::profile::records::*;

use super::harness::*;

fn script(dir: &Scratch, name: &str, text: &str) -> String {
    dir.write_mode(name, text, 0o755).to_str().unwrap().to_owned()
}

/// The profile is about `family work`, wherever it came from.
fn is_about_work(p: &Profile, program: &Path) {
    p.check_sums();
    assert_eq!(p.header().program.path, program.to_str().unwrap());
    assert_eq!(p.header().program.argv[1..], ["work"]);
    let heap = p.heap(6 << 20);
    assert_eq!(heap.len(), 1, "one block");
    assert!(p.accesses_to(&heap).count() > 50, "{:?}", p.stats);
    assert!(p.accesses_to(&p.global("table")).count() > 20, "{:?}", p.stats);
    let functions = p.functions(heap[0].site.expect("a call site"));
    assert!(functions.starts_with(&["block_of".into(), "main".into()]), "{functions:?}");
}

#[test]
fn the_program_executed_last_is_the_one_recorded() {
    let dir = scratch("exec");
    let program = compile(&dir, "family", &[]);
    let path = program.to_str().unwrap();
    let through_script = script(&dir, "start.sh", &format!("#!/bin/sh\nexec {path} \"$@\"\n"));
    for command in [
        &[path, "work"][..],
        &[path, "exec"],
        &["env", "X=1", path, "work"],
        &["taskset", "-c", "0", path, "work"],
        &["sh", "-c", &format!("exec {path} work")],
        &[&through_script, "work"],
        &["env", "-u", "HOME", &through_script, "exec"],
    ] {
        let out = run(profile(&dir, &[], command));
        assert!(out.status.success(), "{command:?}: {}", out.stderr);
        let p = Profile::read(&dir.join("t.prof"));
        is_about_work(&p, &program);
        assert_eq!(p.threads.len(), 1, "{command:?}: {:?}", p.threads);
        assert!(p.header().program.build_id.is_some());
    }
}

#[test]
fn children_are_recorded_when_followed() {
    let dir = scratch("followed");
    let program = compile(&dir, "family", &[]);
    for (what, processes) in [("fork", 2), ("deep", 3)] {
        let out = run(profile(&dir, &["--follow"], &[program.to_str().unwrap(), what]));
        assert_eq!(out.code(), Some(7), "{}", out.stderr);
        let p = Profile::read(&dir.join("t.prof"));
        p.check_sums();
        assert_eq!(p.threads.len(), processes, "{:?}", p.threads);
        let child = &p.threads[1];
        assert_ne!(child.pid, p.threads[0].pid);
        // The child works on its copy of the block: another object, of the same call site.
        let heap = p.heap(6 << 20);
        let of_child: Vec<&Object> = heap.iter().filter(|o| o.pid == child.pid).copied().collect();
        assert!(!of_child.is_empty(), "{heap:?}");
        let by_child = p.accesses_to(&of_child).filter(|a| a.thread == child.id).count();
        assert!(by_child > 50, "{by_child} accesses by the child");
        let tables = p.global("table");
        assert!(p.accesses_to(&tables).filter(|a| a.thread == 0).count() > 50);
    }
}

#[test]
fn children_are_left_alone_otherwise() {
    let dir = scratch("not-followed");
    let program = compile(&dir, "family", &[]);
    let out = run(profile(&dir, &[], &[program.to_str().unwrap(), "fork"]));
    assert_eq!(out.code(), Some(7), "{}", out.stderr);
    let p = Profile::read(&dir.join("t.prof"));
    p.check_sums();
    assert_eq!(p.threads.len(), 1);
    assert!(p.objects.iter().all(|o| o.pid == p.threads[0].pid), "{:?}", p.objects);
    assert!(out.stderr.contains("--follow"), "a hint that there were children: {}", out.stderr);
}

#[test]
fn programs_started_by_a_script_are_recorded_when_followed() {
    let dir = scratch("script");
    let program = compile(&dir, "family", &[]);
    let path = program.to_str().unwrap();
    let start = script(&dir, "start.sh", &format!("#!/bin/sh\n{path} work\n{path} work\nexit 9\n"));
    let out = run(profile(&dir, &["--follow"], &[&start]));
    assert_eq!(out.code(), Some(9), "{}", out.stderr);
    let p = Profile::read(&dir.join("t.prof"));
    p.check_sums();
    assert_eq!(p.threads.len(), 3, "{:?}", p.threads);
    let heap = p.heap(6 << 20);
    assert_eq!(heap.len(), 2, "one block in each");
    assert_ne!(heap[0].pid, heap[1].pid);
    assert!(heap.iter().all(|o| p.accesses_to(&[*o]).count() > 50));
}
