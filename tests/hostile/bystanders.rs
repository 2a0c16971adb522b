//! Programs that have nothing to do with NUMA run under both libraries as they run without: the same output, the same
//! lines on stderr (those of NumaMMA left out), the same exit status or signal.
//!
//! A program that is not installed is skipped and named; most must be there.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{self, NUMAMMA, Policy, Ran, Scratch, exists, needs, numamma, plain, preload, run, source};

mod commands;

use self::commands::{ALLOCATORS, COMMANDS, OPTIONAL};

/// Commands of each half of the table that must have run on every machine: with fewer, the setup of the machine is at
/// fault.
const MOST: usize = 20;
/// A function name that no program has, and the one that stands for any call site: every allocation is placed.
const POLICIES: [(&str, &str, &str); 2] =
    [("none.toml", "no_such_function", "block"), ("every.toml", "?", "interleave")];
/// `timeout` before the command line: the longest command takes a few seconds, and a deadlock is an expected failure.
const LIMITED: [&str; 6] = ["--foreground", "-k", "5", "60", "bash", "-c"];

fn scratch(name: &str) -> Scratch {
    let dir = Scratch::new(&format!("bystanders-{name}"));
    for entry in std::fs::read_dir(source("hostile/bystanders")).expect("sources are in the tree").flatten() {
        std::fs::copy(entry.path(), dir.join(entry.file_name())).expect("the scratch directory is writable");
    }
    for (file, function, place) in POLICIES {
        let key = format!("function = [\"{function}\"]");
        Policy::new().rule(&key, &format!("policy = \"{place}\"")).write(&dir, file);
    }
    dir
}

/// What the commands want to find in the scratch directory.
fn programs(dir: &Path) {
    compile(dir, "endings", &[]);
    compile(dir, "static", &["-static"]);
    build(dir, "audit.c", "audit.so", &["-shared", "-fPIC"]);
    for (name, library) in ALLOCATORS {
        // Linked even though no symbol of it is named.
        compile(dir, &format!("linked-{name}"), &["-Wl,--no-as-needed", library]);
    }
    // Somebody else's where we are root, so that the loader really distrusts its environment.
    let setuid = dir.join("setuid");
    std::fs::copy(dir.join("endings"), &setuid).expect("it was compiled");
    let _ = std::os::unix::fs::chown(&setuid, Some(65534), Some(65534));
    std::fs::set_permissions(&setuid, std::fs::Permissions::from_mode(0o4755)).expect("the file is ours");
    std::fs::create_dir_all(dir.join("closed")).expect("a directory");
    std::fs::set_permissions(dir.join("closed"), std::fs::Permissions::from_mode(0o555)).expect("it is ours");
}

fn compile(dir: &Path, name: &str, flags: &[&str]) {
    build(dir, "endings.c", name, flags);
}

fn build(dir: &Path, source: &str, name: &str, flags: &[&str]) {
    let flags = [&["-O1", "-g", "-pthread"], flags].concat();
    common::compile("cc", &format!("hostile/bystanders/{source}"), dir.join(name), &flags);
}

/// What a user sees of a run: stdout, the lines on stderr that are not of NumaMMA, and the exit status as a shell
/// gives it.
type Seen = (String, String, Option<i32>);

fn observe(mut command: Command, dir: &Path) -> Seen {
    for (name, library) in ALLOCATORS {
        command.env(name.to_uppercase(), library);
    }
    let out: Ran = run(command.stdin(Stdio::null()).env("D", dir).current_dir(dir));
    let theirs: Vec<&str> = out.messages().1.into_iter().map(neutral).collect();
    (out.stdout.clone(), theirs.join("\n"), out.shell_code())
}

/// The shell names the process that died, whose number is never the same.
fn neutral(line: &str) -> &str {
    line.split_once(": line ")
        .map_or(line, |(_, rest)| rest.trim_start_matches(|c: char| c.is_ascii_digit() || ": ".contains(c)))
}

fn shell(line: &str) -> Command {
    let mut c = plain("timeout");
    c.args(LIMITED).arg(line);
    c
}

/// Two tests, so that two CPUs share the work.
#[test]
fn the_first_half_does_not_notice() {
    do_not_notice("first", &COMMANDS[..COMMANDS.len() / 2]);
}

#[test]
fn the_second_half_does_not_notice() {
    do_not_notice("second", &COMMANDS[COMMANDS.len() / 2..]);
}

fn do_not_notice(half: &str, commands: &[(&str, &str)]) {
    let dir = scratch(half);
    programs(&dir);
    let apply = preload("apply");
    let (mut ran, mut missing, mut different) = (0, Vec::new(), Vec::new());
    for (tool, line) in commands {
        if !exists(tool) {
            missing.push(*tool);
            continue;
        }
        ran += 1;
        let bare = observe(shell(line), &dir);
        let placed = |policy: &str| {
            let mut command = shell(line);
            command.env("LD_PRELOAD", &apply).env("NUMAMMA_POLICY", dir.join(policy));
            observe(command, &dir)
        };
        let mut profiled = numamma(&["profile", "-q", "--follow", "-F", "100", "-o", "x.prof", "--", "timeout"]);
        profiled.args(LIMITED).arg(line);
        let ways = POLICIES.map(|(policy, ..)| (policy, placed(policy)));
        for (how, seen) in ways.into_iter().chain([("profiled", observe(profiled, &dir))]) {
            if seen != bare {
                different.push(format!("{how}: {line}\n  bare {bare:?}\n  then {seen:?}"));
            }
        }
    }
    eprintln!("{ran} commands ran; not installed: {missing:?}");
    assert!(different.is_empty(), "{} of {ran} commands noticed:\n{}", different.len(), different.join("\n"));
    let needed = missing.iter().find(|tool| !OPTIONAL.contains(tool));
    assert!(needed.is_none() || std::env::var_os("CI").is_none(), "{needed:?} is missing: run scripts/setup tests");
    assert!(ran >= MOST, "only {ran} of {} commands could run; missing: {missing:?}", commands.len());
}

/// gcc's AddressSanitizer refuses to start behind another preload library unless an option allows it; numamma sets it.
#[test]
fn sanitized_programs_start() {
    let dir = scratch("sanitized");
    for sanitizer in ["address", "thread", "undefined"] {
        let name = format!("with-{sanitizer}");
        compile(&dir, &name, &[&format!("-fsanitize={sanitizer}")]);
        let bare = observe(shell(&format!("$D/{name} fork")), &dir);
        assert_eq!(bare.2, Some(7), "{bare:?}");
        for command in ["profile -q -o $D/s.prof", "run -p $D/every.toml"] {
            let seen = observe(shell(&format!("{NUMAMMA} {command} -- $D/{name} fork")), &dir);
            assert_eq!(seen, bare, "{sanitizer} under {command}");
        }
    }
}

/// A loader that is not glibc's cannot take a library made for glibc, and would end the program: said beforehand.
#[test]
fn programs_of_another_c_library_are_refused_politely() {
    if !needs(&["musl-gcc"], "a program of another C library") {
        return;
    }
    let dir = scratch("musl");
    let built = observe(shell("musl-gcc -o $D/musl $D/endings.c && $D/musl fork"), &dir);
    assert_eq!(built.2, Some(7), "{built:?}");
    let seen = observe(shell(&format!("{NUMAMMA} run -p $D/every.toml -- $D/musl fork 2>&1")), &dir);
    assert_eq!(seen.2, Some(126), "{seen:?}");
    assert!(seen.0.contains("not by glibc's loader") && seen.0.lines().count() == 1, "{seen:?}");
}
