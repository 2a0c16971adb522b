//! Programs that have little stack or memory left, under policies that place all they allocate: what runs bare runs
//! placed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use super::stress::{POLICIES, scratch};
use crate::common::{self, Policy, Ran, Scratch, numamma, placed, plain, preload, run, source};

/// Bytes of stack that a hook may take beyond the real call.
const STACK: usize = 2048;

/// Lines that a process without memory may print: one for each thing that could not be done.
const LINES: usize = 6;

/// Functions that end the process: [`a_process_leaves_with_little_stack`] measures them, and others of the C library.
const LEAVING: [&str; 2] = ["_exit", "_Exit"];

const FLAGS: [&str; 6] = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];

fn compile(dir: &Path, source: &str, name: &str, flags: &[&str]) {
    common::compile("cc", &format!("hostile/stress/{source}"), dir.join(name), &[&FLAGS, flags].concat());
}

/// Without lazy binding, which takes 3 KiB of stack at the first call of each function.
fn bound(command: &mut Command) -> &mut Command {
    command.env("LD_BIND_NOW", "1")
}

/// The lines `name bytes` of a run.
fn bytes(ran: &Ran) -> BTreeMap<String, usize> {
    let line = |line: &str| line.split_once(' ').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
    ran.stdout.lines().filter_map(line).collect()
}

/// Policies with a placement for each code path.
fn stack_policies(dir: &Scratch) -> Vec<std::path::PathBuf> {
    let text = std::fs::read_to_string(source("hostile/stress/stack_calls.h")).expect("it was compiled");
    let line = text.lines().position(|l| l.starts_with("CALL(malloc_page")).expect("a call") + 1;
    let (any, line) = ("function = [\"?\"]".to_owned(), format!("line = \"stack_calls.h:{line}\""));
    let threads = "[threads]\nbind = \"compact\"";
    let teams = ["nothing", "in_thread"].map(|f| format!("[[team]]\nfunction = [\"{f}\"]\nworkers = 2")).join("\n");
    let phases = "[[phase]]\nname = \"late\"\nallocation = 3\nfunction = [\"malloc_page\"]\n\
        [[phase]]\nname = \"early\"\nafter = 0.01";
    let (block, block_cyclic) = ("policy = \"block\"", "policy = \"block-cyclic\", block = \"8KiB\"");
    let moved = |first: &str, late: &str| {
        format!("{first} }}\nphases = {{ late = {{ {late} }}, early = {{ policy = \"local\" }}")
    };
    let interleave = "policy = \"interleave\"";
    let list = [
        ("interleave", "", &any, interleave),
        ("weighted", "", &any, "policy = \"weighted-interleave\""),
        ("cyclic", "", &any, block_cyclic),
        ("populate", "", &any, "policy = \"block-cyclic\", block = \"8KiB\", mode = \"populate\""),
        ("map", "", &any, "policy = \"map\", block = \"8KiB\", map = \"2x0,1x0\""),
        ("split", "", &any, "policy = \"block-cyclic\", block = \"640KiB\", huge = \"split\""),
        ("strict", "", &any, "policy = \"bind\", nodes = \"0\", strict = true"),
        ("local", threads, &any, "policy = \"local\""),
        ("bound", threads, &any, "policy = \"bind-block\""),
        ("teams", &format!("{threads}\n{teams}"), &any, "policy = \"bind-block\""),
        ("phases", phases, &any, &moved(interleave, block)),
        ("phases-from-blocks", phases, &any, &moved(block_cyclic, interleave)),
        ("line", "", &line, interleave),
        ("deep", "", &"function = [\"?\", \"used\"]".to_owned(), interleave),
    ];
    let policy = |lines: &str, site: &str, place: &str| Policy::new().lines(lines).rule(site, place);
    let ranges = policy("", &format!("{any}\nrange = \"0-32KiB\""), interleave)
        .rule(&format!("{any}\nrange = \"32KiB-\""), block_cyclic)
        .write(dir, "ranges.toml");
    let write = |(name, lines, site, place): (&str, &str, &String, &str)| {
        policy(lines, site, place).write(dir, &format!("{name}.toml"))
    };
    list.into_iter().map(write).chain([ranges]).collect()
}

#[test]
fn hooks_take_little_stack() {
    let dir = Scratch::new("stack-use");
    compile(&dir, "stack_use.c", "stack_use", &[]);
    compile(&dir, "plugin.c", "plugin.so", &["-shared", "-fPIC"]);
    let program = dir.join("stack_use");
    let plugin = dir.join("plugin.so");
    let bare = bytes(&run(bound(plain(&program).arg(&plugin))).success());
    assert!(bare.len() > 400, "{bare:?}");
    let within = |ran: &Ran, what: &str| {
        let seen = bytes(ran);
        assert_eq!(seen.len(), bare.len(), "{what}: {ran:?}");
        let too_much: Vec<String> = seen
            .into_iter()
            .filter(|(call, n)| *n > bare[call] + STACK)
            .map(|(call, n)| format!("{call} takes {n} bytes of stack, bare {}", bare[&call]))
            .collect();
        assert!(too_much.is_empty(), "{what}: {too_much:#?}");
    };
    for policy in stack_policies(&dir) {
        for report in ["", "report.json"] {
            let mut command = placed(&program, &policy);
            command.current_dir(&dir).arg(&plugin).env("NUMAMMA_REPORT", report).env("NUMAMMA_VERBOSE", "1");
            let ran = run(bound(&mut command)).success();
            assert!(!ran.stderr.contains("running unplaced"), "{}", ran.stderr);
            within(&ran, &format!("{} {report}", policy.display()));
        }
    }
    let mut profiled = numamma(&["profile", "-q", "-o"]);
    profiled.arg(dir.join("x.prof")).arg("--").arg(&program).arg(&plugin);
    within(&run(bound(&mut profiled)).success(), "profiled");
}

/// Functions that a library of this build defines for the program.
fn exported(kind: &str) -> BTreeSet<String> {
    let listed = run(Command::new("nm").args(["--dynamic", "--defined-only", "--format=posix"]).arg(preload(kind)));
    listed.success().stdout.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
}

/// A hook that is added later needs a call in stack_calls.h.
#[test]
fn every_hook_has_a_call_that_is_measured() {
    let dir = Scratch::new("stack-calls");
    compile(&dir, "stack_use.c", "stack_use", &[]);
    let text = run(plain(dir.join("stack_use")).arg("calls")).success().stdout;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name_before = |text: &'_ str| text.rsplit(|c| !is_name(c)).next().map(str::to_owned);
    let mut called: BTreeSet<String> = text.split('(').filter_map(name_before).collect();
    called.extend(LEAVING.map(str::to_owned));
    for kind in ["apply", "profile"] {
        let hooks = exported(kind);
        assert!(hooks.contains("malloc") && hooks.len() > 15, "{kind}: {hooks:?}");
        let missing: Vec<&String> = hooks.iter().filter(|name| !called.contains(*name)).collect();
        assert!(missing.is_empty(), "{kind}: the stack that {missing:?} take is not measured");
    }
}

#[test]
fn a_process_leaves_with_little_stack() {
    let dir = Scratch::new("stack-leave");
    compile(&dir, "stack_use.c", "stack_use", &[]);
    let program = dir.join("stack_use");
    let policy = Policy::new().rule("function = [\"?\"]", "policy = \"interleave\"").write(&dir, "policy.toml");
    for how in LEAVING.into_iter().chain(["quick_exit", "exit", "crash"]) {
        let ended = |mut command: Command, room: usize| {
            run(bound(command.args(["leave", how, &room.to_string()])).current_dir(&dir)).code() == Some(7)
        };
        let needed = (0..).map(|step| step * 64).find(|&room| ended(plain(&program), room)).expect("it fits at last");
        let report = dir.join(format!("{how}.json"));
        let mut command = placed(&program, &policy);
        command.env("NUMAMMA_REPORT", &report);
        assert!(ended(command, needed + STACK), "{how} with {needed} bytes and {STACK} more");
        assert!(report.exists(), "{how} writes the report");
    }
}

#[test]
fn hooks_are_no_points_of_cancellation() {
    let dir = Scratch::new("cancelled");
    compile(&dir, "cancelled.c", "cancelled", &[]);
    let policy =
        Policy::new().rule("function = [\"?\"]", "policy = \"bind\", nodes = \"0\"").write(&dir, "policy.toml");
    let mut command = placed(dir.join("cancelled"), &policy);
    let ran = run(command.env("NUMAMMA_REPORT", dir.join("report.json"))).success();
    assert_eq!(ran.stdout, "freed 100 cancelled 1\n");
}

/// glibc's functions are system calls there, from which a thread is unwound without harm. A frame of Rust on the way
/// aborted the process, also without a policy.
#[test]
fn threads_with_asynchronous_cancellation_are_cancelled_in_calls_that_change_mappings() {
    let dir = Scratch::new("cancelled-at-once");
    compile(&dir, "cancelled_at_once.c", "cancelled_at_once", &[]);
    let program = dir.join("cancelled_at_once");
    let rule = |name: &str, place: &str| {
        Policy::new().rule("function = [\"map\"]", &format!("policy = \"{place}\"")).write(&dir, name)
    };
    let policies = [rule("interleave.toml", "interleave"), rule("block.toml", "block")];
    for how in ["mapped", "resized", "protected", "advised", "locked", "attached", "controlled", "computed"] {
        let of_both = ["apply", "profile"].map(|kind| {
            let mut command = plain(&program);
            command.env("LD_PRELOAD", preload(kind));
            command
        });
        for mut command in policies.iter().map(|policy| placed(&program, policy)).chain(of_both) {
            let ran = run(command.arg(how));
            assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), "cancelled 100\n"), "{how}: {command:?}: {ran:?}");
        }
        let mut recorded = numamma(&["profile", "-q", "-o", "cancelled.prof", "--"]);
        let ran = run(recorded.arg(&program).arg(how).current_dir(&dir));
        assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), "cancelled 100\n"), "{how}: recorded: {ran:?}");
    }
}

/// The thread is unwound through the hook that was interrupted: Rust's frames aborted the process.
#[test]
fn threads_end_in_handlers_that_have_interrupted_a_hook() {
    let dir = Scratch::new("ended-in-handler");
    compile(&dir, "ended_in_handler.c", "ended_in_handler", &[]);
    let program = dir.join("ended_in_handler");
    let policy = |name: &str, place: &str| {
        let place = format!("policy = \"{place}\"");
        Policy::new().rule("function = [\"map\"]", &place).write(&dir, &format!("{name}.toml"))
    };
    let policies = [policy("interleave", "interleave"), policy("block", "block")];
    for how in ["exit", "cancel"] {
        let mut unmatched = plain(&program);
        unmatched.env("LD_PRELOAD", preload("apply"));
        let mut recorded = numamma(&["profile", "-q", "-o", "ended.prof", "--"]);
        recorded.arg(&program).current_dir(&dir);
        for mut command in policies.iter().map(|policy| placed(&program, policy)).chain([unmatched, recorded]) {
            let ran = run(command.arg(how));
            assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), "ended 300\n"), "{command:?}: {ran:?}");
        }
    }
}

/// The program's function would call the hook that calls it.
#[test]
fn a_function_of_the_program_that_sets_the_type_of_cancellation_is_left_to_the_program() {
    let dir = Scratch::new("own-cancel-type");
    compile(&dir, "own_cancel_type.c", "own_cancel_type", &["-rdynamic"]);
    let program = dir.join("own_cancel_type");
    let policy = Policy::new().rule("function = [\"map\"]", "policy = \"interleave\"").write(&dir, "policy.toml");
    let mut recorded = numamma(&["profile", "-q", "-o", "own.prof", "--"]);
    recorded.arg(&program).current_dir(&dir);
    for mut command in [placed(&program, &policy), recorded] {
        let ran = run(&mut command);
        assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), "calls 1 old 0\n"), "{command:?}: {ran:?}");
    }
}

/// With every allocation placed, that of pthread_create included, the thread would be the first to call glibc's malloc.
#[test]
fn a_thread_that_is_cancelled_does_not_set_up_the_heap_of_glibc() {
    let dir = Scratch::new("cancelled-early");
    compile(&dir, "cancelled_early.c", "cancelled_early", &[]);
    for place in ["policy = \"interleave\"", "policy = \"bind\", nodes = \"0\""] {
        let policy = Policy::new().rule("function = [\"?\"]", place).write(&dir, "policy.toml");
        let ran = run(placed(dir.join("cancelled_early"), &policy)).success();
        assert_eq!(ran.stdout, "freed 1 cancelled 1\n", "{place}");
    }
}

/// 200 call sites of `exhausted.c` with a rule each, and as many rules that match nothing.
fn many_rules(dir: &Scratch) -> std::path::PathBuf {
    let places = ["policy = \"interleave\"", "policy = \"block\"", "policy = \"local\""];
    let rule = |policy: Policy, n: usize, name: &str| {
        policy.rule(&format!("function = [\"{name}_{n}\"]"), places[n % places.len()])
    };
    let sites = (100..300).fold(Policy::new(), |policy, n| rule(policy, n, "site"));
    (0..200).fold(sites, |policy, n| rule(policy, n, "other")).write(dir, "many.toml")
}

fn exhausted(name: &str) -> Scratch {
    let dir = Scratch::new(name);
    compile(&dir, "exhausted.c", "exhausted", &[]);
    compile(&dir, "plugin.c", "plugin.so", &["-shared", "-fPIC"]);
    dir
}

/// Runs `exhausted` under `policy` as it runs bare; `change` sets the environment of the placed run.
fn as_bare(dir: &Scratch, mode: &str, policy: &Path, change: impl FnOnce(&mut Command)) -> Ran {
    let start = |mut command: Command| {
        command.current_dir(dir).args([mode, "./plugin.so"]);
        command
    };
    let bare = run(start(plain(dir.join("exhausted"))));
    assert!(bare.stdout.ends_with("sites 200 damaged 0\n"), "{bare:?}");
    let mut command = start(placed(dir.join("exhausted"), policy));
    change(&mut command);
    let seen = run(command);
    assert_eq!((&seen.stdout, seen.status), (&bare.stdout, bare.status), "{seen:?}");
    assert!(seen.messages().0.len() <= LINES && seen.messages().1.is_empty(), "{}", seen.stderr);
    seen
}

#[test]
fn programs_without_address_space_left_run_as_bare() {
    let dir = exhausted("address-space");
    let any = "function = [\"?\"]";
    let block = Policy::new().rule(any, "policy = \"block-cyclic\", block = \"8KiB\"").write(&dir, "block.toml");
    let interleave = Policy::new().rule(any, "policy = \"interleave\"").write(&dir, "interleave.toml");
    for policy in [&many_rules(&dir), &block, &interleave] {
        for report in ["", "report.json"] {
            as_bare(&dir, "fill", policy, |c| _ = c.env("NUMAMMA_REPORT", report));
        }
    }
    let mut profiled = numamma(&["profile", "-q", "-o", "x.prof", "--", "./exhausted", "fill", "./plugin.so"]);
    let ran = run(profiled.current_dir(&dir));
    assert!(ran.stdout.ends_with("sites 200 damaged 0\n"), "{ran:?}");
}

/// Heaps of small objects take more address space than glibc's: extents with one object stay.
#[test]
fn rows_fit_into_the_address_space_that_they_need() {
    let dir = Scratch::new("near-limit");
    compile(&dir, "near_limit.c", "near_limit", &[]);
    let good = "failed 0 damaged 0\n";
    assert_eq!(run(plain(dir.join("near_limit"))).stdout, good);
    for place in ["interleave", "local", "block"] {
        let rule = format!("policy = \"{place}\"");
        let policy = Policy::new().rule("function = [\"?\"]", &rule).write(&dir, "rows.toml");
        let ran = run(placed(dir.join("near_limit"), &policy));
        assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), good), "{place}: {ran:?}");
    }
}

/// Lets the memory of the library end after a number of its allocations, and lets a single allocation fail: at
/// `samples` numbers from 0 to what the run needs.
fn memory_ends(samples: u64) {
    let dir = exhausted(&format!("memory-ends-{samples}"));
    let policy = Policy::new().lines("[threads]\nbind = \"compact\"\n[[phase]]\nname = \"late\"\nafter = 0.001");
    let place = "policy = \"interleave\" }\nphases = { late = { policy = \"block\" }";
    let policies = [many_rules(&dir), policy.rule("function = [\"?\"]", place).write(&dir, "phases.toml")];
    for policy in &policies {
        let after = |allocations: String| {
            as_bare(&dir, "all", policy, |command| {
                command.env("NUMAMMA_REPORT", "report.json").env("NUMAMMA_TEST_ALLOCATIONS", allocations);
            })
        };
        let is_short = |n: u64| after(n.to_string()).stderr.contains("memory is short");
        let needed = (4..40).map(|bits| 1 << bits).find(|&n| !is_short(n)).expect("the allocations end");
        assert!(needed > 1 << 6, "{}: no allocation failed", policy.display());
        for sample in 0..samples {
            let n = needed * sample / samples + sample % 7;
            after(n.to_string());
            after(format!("{n}+"));
        }
    }
}

#[test]
fn memory_ends_at_some_allocations() {
    memory_ends(24);
}

/// The same for the library that records: it asks for little memory of its own.
#[test]
fn memory_of_a_recorded_program_ends() {
    let dir = exhausted("memory-recorded");
    let bare = run(plain(dir.join("exhausted")).current_dir(&dir).args(["all", "./plugin.so"]));
    for allocations in ["0", "1", "3", "10", "100", "0+", "2+", "20+"] {
        let mut command = numamma(&["profile", "-q", "-o", "x.prof", "--", "./exhausted", "all", "./plugin.so"]);
        let ran = run(command.current_dir(&dir).env("NUMAMMA_TEST_ALLOCATIONS", allocations));
        assert_eq!((&ran.stdout, ran.status), (&bare.stdout, bare.status), "{allocations}: {ran:?}");
    }
}

#[test]
#[ignore = "long: make test-long"]
fn memory_ends_at_many_allocations() {
    memory_ends(1500);
}

/// C++ programs live on when new fails. A placed one has nearly as many blocks before that, of every size.
#[test]
fn new_fails_where_it_fails_without_the_library() {
    let dir = scratch("bad-alloc");
    let flags = [&FLAGS[..], &["-std=c++17"]].concat();
    let program = common::compile("c++", "hostile/stress/bad_alloc.cpp", dir.join("bad_alloc"), &flags);
    let blocks = |mut command: Command, name: &str| -> Vec<f64> {
        let ran = run(command.current_dir(&dir).arg("counts")).success();
        let (ours, others) = ran.messages();
        assert_eq!(ran.stdout, "handler called 5 times, failed 0, damaged 0\n", "{name}: {}", ran.stderr);
        assert!(others.is_empty() && ours.len() <= LINES, "{name}: {}", ran.stderr);
        let text = std::fs::read_to_string(dir.join("counts")).expect("the program wrote it");
        text.split_whitespace().map(|n| n.parse().expect("a number")).collect()
    };
    let bare = blocks(plain(&program), "bare");
    assert_eq!(bare.len(), 24);
    for (name, _) in POLICIES {
        let seen = blocks(placed(&program, dir.join(format!("{name}.toml"))), name);
        let has_enough = seen.iter().zip(&bare).all(|(seen, bare)| *seen >= 0.9 * bare - 1.0);
        assert!(seen.len() == bare.len() && has_enough, "{name}: {seen:?} blocks, bare {bare:?}");
    }
    let mut profiled = numamma(&["profile", "-q", "-F", "100", "-o", "x.prof", "--"]);
    profiled.arg(&program);
    blocks(profiled, "profiled");
}
