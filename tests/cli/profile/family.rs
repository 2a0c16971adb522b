//! Programs that execute others, fork, and hide behind scripts.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use numamma::profile::records::*;

use super::harness::*;

fn script(dir: &Scratch, name: &str, text: &str) -> String {
    dir.write_mode(name, text, 0o755).to_str().unwrap().to_owned()
}

/// All objects are those of the first thread's process, and memory that processes share.
fn are_of_one_process(p: &Profile) {
    assert!(p.objects.iter().all(|o| o.pid == p.threads[0].pid || o.pid == 0), "{:?}", p.objects);
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
    are_of_one_process(&p);
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

/// `family` under another name, to be busy beside it.
fn copied(dir: &Path, program: &Path, name: &str) -> String {
    let copy = dir.join(name);
    std::fs::copy(program, &copy).expect("the scratch directory is writable");
    copy.to_str().unwrap().to_owned()
}

#[test]
fn through_a_wrapper_the_program_that_has_the_time_is_recorded() {
    let dir = scratch("wrapper");
    let program = compile(&dir, "family", &[]);
    let path = program.to_str().unwrap();
    let start = script(&dir, "start.sh", &format!("#!/bin/sh\ntrue | cat\n{path} work\nexit 9\n"));
    let inner = script(&dir, "outer.sh", &format!("#!/bin/bash\n{start}; true\n"));
    dir.write("Makefile", format!("run:\n\t@{path} work\n"));
    for (command, code) in [
        (&[start.as_str()][..], 9),
        (&[&inner], 0),
        (&["sh", "-c", &format!("{path} work; true")], 0),
        (&["make", "--no-print-directory", "-C", dir.to_str().unwrap(), "run"], 0),
        (&["timeout", "100", path, "work"], 0),
    ] {
        let out = run(profile(&dir, &[], command));
        assert_eq!(out.code(), Some(code), "{command:?}: {}", out.stderr);
        let p = Profile::read(&dir.join("t.prof"));
        is_about_work(&p, &program);
        assert_eq!(p.threads.len(), 1, "the wrapper is no thread of the program: {command:?}: {:?}", p.threads);
        assert_eq!((p.threads[0].id, p.threads[0].start_ns, p.threads[0].creator), (0, 0, None));
        are_of_one_process(&p);
        assert!(p.header().program.build_id.is_some() && p.header().pid == p.threads[0].pid);
        assert!(out.stderr.contains("family work (process "), "{command:?}: {}", out.stderr);
        assert!(!out.stderr.contains("also busy"), "{}", out.stderr);
    }
    let advice = run(numamma(&["advise", "t.prof", "--nodes", "2"]).current_dir(&dir)).success().stdout;
    assert!(advice.contains(&format!("path = \"{path}\"")), "{advice}");
    let left: Vec<_> =
        std::fs::read_dir(&*dir).unwrap().filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
    assert!(!left.iter().any(|name| name.ends_with(".part")), "{left:?}");
}

/// A recording through a wrapper that has begun and waits for the file `go` before the work.
fn begun(dir: &Scratch, program: &Path) -> std::process::Child {
    let _ = std::fs::remove_file(dir.join("go"));
    let wait = format!("while [ ! -e go ]; do sleep 0.02; done; {} work; true", program.display());
    let mut c = profile(dir, &[], &["sh", "-c", &wait]);
    let child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("numamma starts");
    let end = Instant::now() + Duration::from_secs(20);
    while !dir.join("t.prof").exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

fn ended(dir: &Scratch, child: std::process::Child) -> String {
    dir.write("go", "");
    let out = child.wait_with_output().expect("numamma ends");
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stderr).expect("text")
}

#[test]
fn two_recordings_of_one_name_have_a_file_each() {
    let dir = scratch("one-name");
    let program = compile(&dir, "family", &[]);
    let first = begun(&dir, &program);
    let second = run(profile(&dir, &[], &[program.to_str().unwrap(), "work"])).success().stderr;
    let own = second.split("another recording; this one is ").nth(1).expect("a name").lines().next().unwrap();
    assert!(own.starts_with("t.") && own.ends_with(".prof") && second.contains(&format!("wrote {own}")), "{second}");
    let before = std::fs::read(dir.join(own)).unwrap();
    let said = ended(&dir, first);
    assert!(said.contains("wrote t.prof"), "{said}");
    is_about_work(&Profile::read(&dir.join("t.prof")), &program);
    is_about_work(&Profile::read(&dir.join(own)), &program);
    assert!(std::fs::read(dir.join(own)).unwrap() == before && !dir.join("t.prof.old").exists());
    // The name is free again.
    run(profile(&dir, &[], &[program.to_str().unwrap(), "work"])).success();
    assert!(dir.join("t.prof.old").exists());
}

/// A shell replaces itself by its last command, which so has children that ended long ago.
#[test]
fn children_that_ended_before_the_recording_are_not_its_own() {
    let dir = scratch("earlier-children");
    let program = compile(&dir, "family", &[]);
    let path = program.to_str().unwrap();
    let script = format!("for i in 1 2 3 4; do {path} work; done; exec \"$@\"");
    let recording = profile(&dir, &[], &[path, "work"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh"]).arg(recording.get_program()).args(recording.get_args());
    let variables = recording.get_envs().filter_map(|(name, value)| Some((name, value?)));
    run(shell.envs(variables).current_dir(&*dir).stdin(Stdio::null())).success();
    let stats = Profile::read(&dir.join("t.prof")).stats;
    assert!(stats.cpu_ns <= stats.duration_ns + stats.duration_ns / 2, "one thread: {stats:?}");
}

#[test]
fn a_file_that_is_moved_while_it_is_written_stays_the_recording() {
    let dir = scratch("moved");
    let program = compile(&dir, "family", &[]);
    let recording = begun(&dir, &program);
    std::fs::rename(dir.join("t.prof"), dir.join("mine.prof")).unwrap();
    dir.write("t.prof", "of somebody else");
    let said = ended(&dir, recording);
    assert!(said.contains("t.prof was moved") && said.contains("mine.prof"), "{said}");
    assert_eq!(std::fs::read_to_string(dir.join("t.prof")).unwrap(), "of somebody else");
    let p = Profile::read(&dir.join("mine.prof"));
    is_about_work(&p, &program);
    assert_eq!(p.threads.len(), 1, "the program alone");
}

#[test]
fn only_the_wrapper_is_recorded_where_that_is_asked_for() {
    let dir = scratch("no-follow");
    let program = compile(&dir, "family", &[]);
    let start = script(&dir, "start.sh", &format!("#!/bin/sh\n{} work\nexit 9\n", program.display()));
    let out = run(profile(&dir, &["--no-follow"], &[&start]));
    assert_eq!(out.code(), Some(9), "{}", out.stderr);
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!((p.threads.len(), p.header().program.path.as_str()), (1, start.as_str()));
    assert!(p.heap(6 << 20).is_empty());
}

#[test]
fn several_busy_programs_are_named_and_each_can_be_recorded() {
    let dir = scratch("several");
    let program = compile(&dir, "family", &[]);
    let (path, other) = (program.to_str().unwrap(), copied(&dir, &program, "other"));
    let start = script(&dir, "start.sh", &format!("#!/bin/sh\n{other} work\n{path} work\n{path} work\n"));
    let out = run(profile(&dir, &[], &[&start]));
    let p = Profile::read(&dir.join("t.prof"));
    p.check_sums();
    assert_eq!((p.header().program.path.as_str(), p.threads.len()), (path, 2), "{}", out.stderr);
    let command = format!("numamma profile --program other -o other.prof -- {start}");
    assert!(out.stderr.contains(&command) && p.notes.iter().any(|n| n.contains(&command)), "{}", out.stderr);
    run(profile(&dir, &["--program", "other"], &[&start])).success();
    let p = Profile::read(&dir.join("t.prof"));
    p.check_sums();
    assert_eq!((p.header().program.path.as_str(), p.threads.len()), (other.as_str(), 1));
    let out = run(profile(&dir, &["--program", "nosuch"], &[&start]));
    assert!(out.stderr.contains("--program nosuch: no process ran it"), "{}", out.stderr);
}

#[test]
fn a_wrapper_of_nothing_busy_says_what_to_do() {
    let dir = scratch("idle");
    // A rate at which a start alone gets no sample.
    let profile = |command: &[&str]| {
        let mut c = numamma(&["profile", "-F", "1", "-o", "t.prof", "--"]);
        c.current_dir(&dir).args(command);
        c
    };
    let out = run(profile(&["sh", "-c", "sleep 0.1; true"])).success();
    assert!(out.stderr.contains("numamma profile -p PID"), "{}", out.stderr);
    let out = run(profile(&["sleep", "0.1"])).success();
    assert!(out.stderr.contains("no sample was taken") && out.stderr.contains("-p PID"), "{}", out.stderr);
}
