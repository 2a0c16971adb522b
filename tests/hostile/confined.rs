//! Programs that confine themselves with seccomp, to what they call themselves, and libraries that hook the end of a
//! process after ours: status and output as bare.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::{Policy, Ran, Scratch, compile, json_file, numamma, objects, placed, plain, preload, run_within};

const LIMIT: Duration = Duration::from_secs(60);

/// System calls of pthread_create and of the end of a thread in glibc, made while signals are blocked: a refusal kills
/// and cannot be reported. rt_sigprocmask, mprotect, clone, exit, set_robust_list, rseq, clone3, futex, madvise.
const OF_THREADS: [u32; 9] = [14, 10, 56, 60, 273, 334, 435, 202, 28];
/// Most system calls that a mode of confined.c may need.
const MOST_CALLS: usize = 40;

fn compiled(dir: &Path, source: &str, name: &str, flags: &[&str]) {
    let always = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
    compile("cc", &format!("hostile/stress/{source}"), dir.join(name), &[&always, flags].concat());
}

fn observe(command: &mut Command, dir: &Path) -> Ran {
    run_within(command.current_dir(dir), LIMIT, dir).unwrap_or_else(|why| panic!("{why}"))
}

fn arguments(mode: &str, entry: &str, allowed: &[u32], kill: bool) -> Vec<String> {
    let numbers = allowed.iter().map(u32::to_string);
    let kill = kill.then(|| "kill".to_owned());
    [mode, entry, "./plugin.so"].map(str::to_owned).into_iter().chain(numbers).chain(kill).collect()
}

/// The system calls that confined.c makes bare, found by trying, and the run in which all others kill.
fn bare(dir: &Path, mode: &str, entry: &str) -> (Vec<u32>, Ran) {
    let mut allowed = if mode == "thread" { OF_THREADS.to_vec() } else { Vec::new() };
    let program = dir.join("confined");
    while allowed.len() < MOST_CALLS {
        let ran = observe(plain(&program).args(arguments(mode, entry, &allowed, false)), dir);
        match ran.stdout.lines().find_map(|line| line.strip_prefix("refused ")) {
            Some(number) => allowed.push(number.parse().expect("a number")),
            None => break,
        }
    }
    // A child of a run before, which was refused what its parent waits with, may still write into the output.
    let mut killing = (0..3).map(|_| observe(plain(&program).args(arguments(mode, entry, &allowed, true)), dir));
    let is_fine = |ran: &Ran| (ran.code(), ran.stdout.as_str()) == (Some(3), "damaged 0000\n");
    let killing =
        killing.find(is_fine).unwrap_or_else(|| panic!("{mode} {entry}: not as with {allowed:?} in three runs"));
    (allowed, killing)
}

#[test]
fn a_confined_program_calls_what_it_calls_bare() {
    let dir = Scratch::new("confined");
    compiled(&dir, "confined.c", "confined", &[]);
    compiled(&dir, "cycle_plugin.c", "plugin.so", &["-shared", "-fPIC"]);
    let policy = |name: &str, function: &str| {
        let rule = format!("function = [{function}]");
        Policy::new().rule(&rule, "policy = \"interleave\"").write(&dir, name)
    };
    // The thread that moves pages has objects to move, or waits for the last phase.
    let phases = Policy::new()
        .lines("[[phase]]\nname = \"now\"\nafter = 0.000001\n[[phase]]\nname = \"late\"\nafter = 3600")
        .lines("[[phase]]\nname = \"counted\"\nallocation = 6\nfunction = [\"inner\"]")
        .rule("function = [\"?\"]", "policy = \"local\"")
        .lines("phases = { now = { policy = \"interleave\" }, late = { policy = \"block\" }, counted = { policy = \"bind\" } }")
        .write(&dir, "phases.toml");
    let policies = [
        phases,
        policy("nothing.toml", "\"no_such_function\""),
        policy("half.toml", "\"inner\", \"outer\", \"worker\""),
        policy("plugin.toml", "\"plugin_make\""),
        policy("placed.toml", "\"inner\", \"outer\""),
        policy("all.toml", "\"?\""),
    ];
    let ends = ["_exit", "_Exit", "quick_exit"];
    for mode in ["shrink", "free", "unmap", "return", "thread", "dlopen", "fork", "signal"].into_iter().chain(ends) {
        for entry in ["filter", "no_new_privs", "tsync"] {
            let (allowed, bare) = bare(&dir, mode, entry);
            let check = |seen: &Ran, how: &str, arguments: &[String]| {
                let same = (seen.shell_code(), &seen.stdout) == (bare.shell_code(), &bare.stdout);
                assert!(same, "{arguments:?} {how}:\nbare {bare:?}\nthen {seen:?}");
            };
            // First in the form that says what was refused.
            for kill in [false, true] {
                let arguments = arguments(mode, entry, &allowed, kill);
                let mut unused = plain(dir.join("confined"));
                unused.args(&arguments).env("LD_PRELOAD", preload("apply"));
                check(&observe(&mut unused, &dir), "without a policy", &arguments);
                for policy in &policies {
                    let seen = observe(placed(dir.join("confined"), policy).args(&arguments), &dir);
                    check(&seen, &policy.display().to_string(), &arguments);
                }
                if kill || entry != "filter" {
                    continue; // recording is slow to start
                }
                let mut profiled = numamma(&["profile", "-q", "-F", "100", "-o"]);
                profiled.arg(dir.join("x.prof")).args(["--", "./confined"]).args(&arguments);
                check(&observe(&mut profiled, &dir), "profiled", &arguments);
            }
        }
    }
}

#[test]
fn a_strictly_confined_program_ends_as_bare() {
    let dir = Scratch::new("confined-strictly");
    compiled(&dir, "confined.c", "confined", &[]);
    let policy = Policy::new().rule("function = [\"?\"]", "policy = \"interleave\"").write(&dir, "all.toml");
    let arguments = ["return", "strict", "none"];
    let bare = observe(plain(dir.join("confined")).args(arguments), &dir);
    assert_eq!((bare.code(), bare.stdout.as_str()), (Some(3), "damaged 0000\n"), "{bare:?}");
    let report = dir.join("strict.json");
    let seen = observe(placed(dir.join("confined"), &policy).args(arguments).env("NUMAMMA_REPORT", &report), &dir);
    assert_eq!((seen.code(), &seen.stdout), (bare.code(), &bare.stdout), "{seen:?}");
    let mut profiled = numamma(&["profile", "-q", "-F", "100", "-o"]);
    let seen = observe(profiled.arg(dir.join("x.prof")).args(["--", "./confined"]).args(arguments), &dir);
    assert_eq!((seen.code(), &seen.stdout), (bare.code(), &bare.stdout), "profiled: {seen:?}");
    // Written before the program confined itself, about what was placed until then.
    let report = json_file(&report);
    let object = &objects(&report)[0];
    assert!(object["instances"].as_u64() >= Some(1) && object["pages_off_plan"] == 0, "{object}");
}

/// What glibc keeps, as it was told, is kept of placed objects, too: each system call is the end of the process.
#[test]
fn what_glibc_was_told_to_keep_is_not_unmapped() {
    let dir = Scratch::new("told-and-strict");
    compiled(&dir, "told_and_strict.c", "told", &[]);
    let policy = Policy::new().rule("function = [\"made\"]", "policy = \"interleave\"").write(&dir, "made.toml");
    let (threshold, trim, pad) =
        (["mmap_threshold", "33554432"], ["trim_threshold", "1073741824"], ["top_pad", "67108864"]);
    for told in [[threshold, trim].concat(), pad.to_vec(), [pad, trim].concat()] {
        for size in ["200000", "4000000"] {
            let bare = observe(plain(dir.join("told")).arg(size).args(&told), &dir);
            assert_eq!((bare.code(), bare.stdout.as_str()), (Some(5), "alive\n"), "{size} {told:?}: {bare:?}");
            let seen = observe(placed(dir.join("told"), &policy).arg(size).args(&told), &dir);
            assert_eq!((seen.code(), &seen.stdout), (bare.code(), &bare.stdout), "{size} {told:?}: {seen:?}");
        }
    }
}

#[test]
fn a_later_library_sees_the_end_of_the_process() {
    let dir = Scratch::new("last-words");
    compiled(&dir, "last_words.c", "program", &["-DPROGRAM"]);
    compiled(&dir, "last_words.c", "next.so", &["-shared", "-fPIC"]);
    compiled(&dir, "last_words.c", "by_name.so", &["-shared", "-fPIC", "-DBY_NAME"]);
    let policy = Policy::new().rule("function = [\"main\"]", "policy = \"interleave\"").write(&dir, "main.toml");
    let apply = preload("apply");
    for library in ["next.so", "by_name.so"] {
        let later = dir.join(library);
        for (way, status) in [("_exit", 6), ("_Exit", 7), ("quick_exit", 8), ("exit", 9), ("fork", 6), ("vfork", 6)] {
            let bare = observe(plain(dir.join("program")).arg(way).env("LD_PRELOAD", &later), &dir);
            assert_eq!(bare.code(), Some(status), "{library} {way}: {bare:?}");
            let both = format!("{}:{}", apply.display(), later.display());
            let report = dir.join(format!("{library}-{way}.json"));
            let mut command = placed(dir.join("program"), &policy);
            command.arg(way).env("LD_PRELOAD", both).env("NUMAMMA_REPORT", &report);
            let seen = observe(&mut command, &dir);
            assert_eq!((seen.code(), &seen.stdout), (bare.code(), &bare.stdout), "{library} {way}: {seen:?}");
            assert_eq!(objects(&json_file(&report))[0]["instances"], 1, "{library} {way}");
        }
    }
}

#[test]
fn a_pipe_as_policy_is_refused_and_does_not_block() {
    let dir = Scratch::new("pipe-policy");
    let pipe = dir.join("pipe.toml");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is part of coreutils").success());
    let seen = observe(placed("echo", &pipe).arg("runs"), &dir);
    assert_eq!((seen.code(), seen.stdout.as_str()), (Some(0), "runs\n"), "{seen:?}");
    assert_eq!(seen.messages().0.len(), 1, "{seen:?}");
    assert!(seen.stderr.contains("not a regular file"), "{seen:?}");
    for command in ["run", "verify"] {
        let mut command = numamma(&[command, "-p"]);
        let seen = observe(command.arg(&pipe).args(["--", "echo", "runs"]), &dir);
        assert!(seen.code() == Some(2) && seen.stderr.contains("not a regular file"), "{seen:?}");
    }
}

/// Chromium's sandbox starts so: hooks that read thread-local storage killed the child, and the browser ended.
#[test]
fn a_child_without_thread_local_storage_ends_as_it_does_bare() {
    let dir = Scratch::new("without-tls");
    compiled(&dir, "without_tls.c", "program", &["-Wno-maybe-uninitialized"]);
    let policy = Policy::of("program")
        .lines("[[phase]]\nname = \"now\"\nafter = 0.000001")
        .rule("function = [\"main\"]", "policy = \"interleave\"")
        .lines("phases = { now = { policy = \"bind\" } }")
        .write(&dir, "without.toml");
    for what in ["_exit", "_Exit", "execve", "execv", "prctl", "mmap", "nothing"] {
        let bare = observe(plain(dir.join("program")).arg(what), &dir);
        assert!(bare.code() == Some(0) && bare.stdout.ends_with(", then 1\n"), "{bare:?}");
        let mut profiled = numamma(&["profile", "-q", "-F", "100", "-o", "x.prof", "--", "./program", what]);
        let mut without = plain(dir.join("program"));
        without.arg(what).env("LD_PRELOAD", preload("apply"));
        let mut with = placed(dir.join("program"), &policy);
        for command in [&mut without, with.arg(what), &mut profiled] {
            let seen = observe(command, &dir);
            assert_eq!((seen.code(), &seen.stdout), (bare.code(), &bare.stdout), "{what}: {seen:?}");
        }
    }
}
