//! Programs that do what allocators and preloads fear, under policies that place all they allocate and under the
//! profile library: the same output, status and signal as bare, in bounded time and with few words.
//!
//! Each program (tests/hostile/stress) says at its top what it does, checks its own memory and prints what it found.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::fuzz::generate;
use crate::common::{self, Policy, Ran, Scratch, json_file, numamma, objects, placed, plain, preload, run, run_within};

/// Each takes under a second on an idle machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Eight threads with random calls take five seconds there.
const LONG_LIMIT: Duration = Duration::from_secs(600);
/// Lines of ours on stderr that one process may need: one for each thing that could not be done.
const WORDS: usize = 3;

/// Name and place of the policies. `?` stands for any call site.
pub const POLICIES: [(&str, &str); 4] = [
    ("interleave", "policy = \"interleave\""),
    ("cyclic", "policy = \"block-cyclic\", block = \"8KiB\""),
    ("local", "policy = \"local\""),
    ("split", "policy = \"random\", seed = 7, huge = \"split\""),
];

pub fn scratch(name: &str) -> Scratch {
    let dir = Scratch::new(&format!("stress-{name}"));
    for (name, place) in POLICIES {
        let bind = if name == "local" { "[threads]\nbind = \"compact\"" } else { "" };
        Policy::new().lines(bind).rule("function = [\"?\"]", place).write(&dir, &format!("{name}.toml"));
    }
    dir
}

pub fn compile(dir: &Path, source: &str, name: &str, flags: &[&str]) {
    let always = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
    common::compile("cc", &format!("hostile/stress/{source}"), dir.join(name), &[&always, flags].concat());
}

/// Whether two runs look the same, but for the lines of NumaMMA.
fn same(a: &Ran, b: &Ran) -> bool {
    let ended = |ran: &Ran| (ran.code(), ran.signal());
    (&a.stdout, ended(a), a.messages().1) == (&b.stdout, ended(b), b.messages().1)
}

/// Runs with a time limit: a deadlock is one of the expected failures.
fn observe(mut command: Command, dir: &Path) -> Ran {
    run_within(command.current_dir(dir), LIMIT, dir).unwrap_or_else(|why| panic!("{why}"))
}

/// `exec` so that no shell stands between the program's end and us.
fn shell(line: &str) -> Command {
    let mut c = plain("sh");
    c.args(["-c", line]);
    c
}

/// Runs the line of sh bare, under each policy and profiled, and compares. Returns the bare run's output.
fn compare(dir: &Path, line: &str) -> String {
    compare_under(dir, line, &POLICIES)
}

pub fn compare_under(dir: &Path, line: &str, policies: &[(&str, &str)]) -> String {
    let bare = observe(shell(line), dir);
    let apply = preload("apply");
    for (policy, _) in policies {
        let mut placed = shell(line);
        placed.env("LD_PRELOAD", &apply).env("NUMAMMA_POLICY", dir.join(format!("{policy}.toml")));
        let seen = observe(placed, dir);
        assert!(same(&seen, &bare), "{line} placed by {policy}:\nbare {bare:?}\nthen {seen:?}");
        assert!(seen.messages().0.len() <= WORDS, "{line} placed by {policy} says too much: {:?}", seen.stderr);
    }
    let mut profiled = numamma(&["profile", "-q", "-F", "100", "-o"]);
    profiled.arg(dir.join("x.prof")).args(["--", "sh", "-c", line]);
    let seen = observe(profiled, dir);
    assert!(same(&seen, &bare), "{line} profiled:\nbare {bare:?}\nthen {seen:?}");
    bare.stdout
}

fn check(source: &str, arguments: &[&str], expected: &str) {
    let name = source.trim_end_matches(".c");
    let dir = scratch(name);
    compile(&dir, source, name, &[]);
    for argument in arguments {
        let stdout = compare(&dir, &format!("exec ./{name} {argument}"));
        assert!(stdout.contains(expected) && !stdout.contains("DAMAGED"), "{name} {argument} proves nothing: {stdout}");
    }
}

#[test]
fn threads_fork_while_others_allocate() {
    check("fork_threads.c", &[""], "75 of 75 children ended well");
}

#[test]
fn threads_vfork_and_spawn_while_others_allocate() {
    check("vfork_exec.c", &[""], "statuses 152");
}

/// Policies under which the library has something to look for: any call site, one function, and stacks of several, one
/// of which waits for a function that no module has.
fn lock_policies(dir: &Scratch) -> [(&'static str, &'static str); 3] {
    let place = "policy = \"interleave\"";
    let stacks = ["\"allocate\", \"use_memory\"", "\"allocate\", \"no_such_function\""];
    let several = stacks.iter().fold(Policy::new(), |p, stack| p.rule(&format!("function = [{stack}]"), place));
    several.write(dir, "several.toml");
    Policy::new().rule("function = [\"allocate\"]", place).write(dir, "one.toml");
    [POLICIES[0], ("one", place), ("several", place)]
}

#[test]
fn threads_hold_the_lock_of_the_loader() {
    let dir = scratch("loader-lock");
    let policies = lock_policies(&dir);
    // The loader searches for what the second program opens in directories of the program's own, too.
    compile(&dir, "loader_lock.c", "plain", &["-ldl"]);
    compile(&dir, "loader_lock.c", "searching", &["-ldl", "-Wl,--enable-new-dtags,-rpath,/nowhere"]);
    for program in ["plain", "searching"] {
        for held in ["l", "w", "wl"] {
            let stdout = compare_under(&dir, &format!("exec ./{program} fork {held} libz.so.1"), &policies);
            assert_eq!(stdout, "150 children ended well\n", "{program} {held}");
        }
        for what in ["malloc", "map", "thread", "open", "child"] {
            let line = format!("exec ./{program} wait {what} libz.so.1 libutil.so.1");
            assert_eq!(compare_under(&dir, &line, &policies), "the callback returned\n", "{program} {what}");
        }
    }
}

/// The names are not C's, so the program may use them, and what it defines is what a library's imports are bound to.
#[test]
fn a_program_has_functions_of_its_own_with_the_names_of_system_calls() {
    let dir = scratch("own-names");
    compile(&dir, "own_names.c", "own_names", &["-fno-builtin", "-rdynamic"]);
    let stdout = compare(&dir, "exec ./own_names");
    assert_eq!(stdout, "10000000 in all, own functions called 0 times\n");
}

#[test]
fn a_library_that_must_know_what_is_unmapped_is_told() {
    let dir = scratch("told");
    compile(&dir, "told.c", "told", &["-ldl"]);
    assert_eq!(compare(&dir, "exec ./told"), "some unmapped, 0 of them in silence\n");
}

/// A function of its own with the name, which does something else, and one that takes the lock under which it frees.
#[test]
fn a_library_has_a_munmap_of_its_own() {
    let dir = scratch("own-unmap");
    for kind in ["NAMES", "LOCK"] {
        let library = format!("libown_{kind}.so");
        let flags = ["-shared", "-fPIC", "-fno-builtin", "-DLIBRARY", &format!("-D{kind}")];
        compile(&dir, "own_unmap.c", &library, &flags);
        let path = dir.join(&library).display().to_string();
        compile(&dir, "own_unmap.c", kind, &["-fno-builtin", "-Wl,--no-as-needed", &path]);
        assert_eq!(compare(&dir, &format!("exec ./{kind}")), "not zero 0, calls 0, unmapped\n", "{kind}");
    }
}

#[test]
fn two_thousand_short_threads() {
    check("short_threads.c", &[""], "threads ended: all, damaged: 0");
}

#[test]
fn a_signal_handler_that_allocates() {
    check("handler.c", &[""], "damaged 0");
}

#[test]
fn libraries_come_and_go() {
    let dir = scratch("dlopen");
    compile(&dir, "dlopen_loop.c", "dlopen_loop", &[]);
    for name in ["one.so", "two.so"] {
        compile(&dir, "plugin.c", name, &["-shared", "-fPIC"]);
    }
    assert_eq!(compare(&dir, "exec ./dlopen_loop ./one.so ./two.so"), "loaded 300 damaged 0\n");
}

/// Each library that is loaded is compared with the others once, not all of them with all: twice as many take four
/// times as long then, and eight times else. The loader alone takes four times as long, too.
#[test]
fn very_many_libraries_are_loaded() {
    const COUNT: usize = 1000;
    let dir = Scratch::new("many-libraries");
    let program = common::compile("cc", "hostile/stress/many_libraries.c", dir.join("program"), &["-O1", "-g"]);
    let source = dir.join("make.c");
    std::fs::write(&source, "#include <stdlib.h>\nvoid *make(void) { return malloc(1 << 16); }\n").expect("written");
    let first = dir.join("lib0.so");
    run(plain("cc").args(["-shared", "-fPIC", "-g", "-o"]).arg(&first).arg(&source)).success();
    (1..2 * COUNT).for_each(|n| assert!(std::fs::copy(&first, dir.join(format!("lib{n}.so"))).is_ok()));
    let rules = Policy::new().rule("function = [\"make\"]", "policy = \"interleave\"").write(&dir, "make.toml");
    let took = |count: usize| {
        let once = |_| {
            let ran = run(placed(&program, &rules).current_dir(&*dir).arg(count.to_string())).success();
            assert_eq!(ran.stdout, "damaged 0\n");
            ran.messages().1.join(" ").parse::<f64>().unwrap_or_else(|_| panic!("{}", ran.stderr))
        };
        (0..3).map(once).min_by(f64::total_cmp).expect("three runs")
    };
    let (half, all) = (took(COUNT), took(2 * COUNT));
    assert!(all <= 6.0 * half, "{COUNT} libraries {half} us, twice as many {all} us");
}

/// CPU time that a cycle of dlopen and dlclose may take longer than bare, in microseconds: 10 to 20 were measured.
const CYCLE_US: f64 = 50.0;
/// Runs of which the shortest cycle counts: others on the machine make cycles longer, never shorter.
const CYCLE_RUNS: usize = 5;
/// Bytes by which resident memory may grow over all cycles.
const CYCLE_GROWTH: i64 = 2 << 20;

/// What cycles.c prints: microseconds for a cycle, and growth.
fn cycles(ran: &Ran) -> (f64, i64) {
    let words: Vec<&str> = ran.stdout.split_whitespace().collect();
    let ["damaged", "0", "us", us, "grown", grown] = words[..] else { panic!("{ran:?}") };
    (us.parse().expect("a number"), grown.parse().expect("a number"))
}

/// The shortest cycle of a few runs of cycles.c, bare and with the library, in turn. Ends when these are close enough.
fn shortest_cycles(bare: impl Fn() -> Ran, with: impl Fn() -> Ran) -> (f64, f64) {
    let mut shortest = (f64::INFINITY, f64::INFINITY);
    for _ in 0..CYCLE_RUNS {
        let (without, (us, grown)) = (cycles(&bare()).0, cycles(&with()));
        assert!(grown < CYCLE_GROWTH, "{grown} bytes more");
        shortest = (shortest.0.min(without), shortest.1.min(us));
        if shortest.1 < shortest.0 + CYCLE_US {
            break;
        }
    }
    shortest
}

/// The largest shared library of the Rust compiler, which has hundreds of thousands of symbols and is always there.
fn large_library() -> String {
    let sysroot = common::run(plain("rustc").args(["--print", "sysroot"])).success().stdout;
    let libraries = std::fs::read_dir(Path::new(sysroot.trim()).join("lib")).expect("rustc has libraries");
    let files = libraries.flatten().filter(|e| e.file_name().to_string_lossy().contains(".so"));
    let largest = files.max_by_key(|e| e.metadata().map_or(0, |m| m.len())).expect("one of them is shared");
    largest.path().to_string_lossy().into_owned()
}

/// Rules for the three functions of cycle_plugin.c, and `more`.
fn plugin_rules(more: impl Iterator<Item = String>) -> Policy {
    let functions = ["plugin_begin", "plugin_make", "plugin_end"].map(|f| format!("\"{f}\""));
    let all = functions.into_iter().chain(more);
    all.fold(Policy::new(), |policy, f| policy.rule(&format!("function = [{f}]"), "policy = \"interleave\""))
}

fn instances(report: &Path) -> Vec<u64> {
    objects(&json_file(report)).iter().take(3).filter_map(|o| o["instances"].as_u64()).collect()
}

/// 2,000 cycles under 500 rules, and 1,000 beside a library with very many symbols: every allocation is matched, also
/// those of constructors and destructors, memory does not grow, and a cycle stays short.
#[test]
fn a_library_is_opened_and_closed_thousands_of_times() {
    let dir = scratch("cycles");
    compile(&dir, "cycles.c", "cycles", &[]);
    compile(&dir, "cycle_plugin.c", "cycle.so", &["-shared", "-fPIC"]);
    let others = (0..497).map(|i| format!("\"other_{i}\", \"main\""));
    let many = plugin_rules(others).write(&dir, "many.toml");
    let cpp = "llvm::ConstantInt::get(llvm::Type*, llvm::APInt const&)";
    let few = plugin_rules([format!("\"{cpp}\"")].into_iter()).write(&dir, "few.toml");
    let large = large_library();
    let report = dir.join("cycles.json");
    for (policy, cycles_wanted, stays) in [(many, 2000_u64, None), (few, 1000, Some(&large))] {
        let arguments = |mut command: Command| {
            command.args(["./cycle.so", &cycles_wanted.to_string()]).args(stays).env("NUMAMMA_REPORT", &report);
            command
        };
        let placed = || {
            let ran = observe(arguments(common::placed("./cycles", &policy)), &dir).success();
            assert_eq!(instances(&report), [cycles_wanted; 3], "{stays:?}");
            ran
        };
        let (bare, us) = shortest_cycles(|| observe(arguments(plain("./cycles")), &dir).success(), placed);
        assert!(us < bare + CYCLE_US, "a cycle takes {us} us, bare {bare} us, {stays:?}");
    }
}

#[test]
fn a_recorded_library_is_opened_and_closed_thousands_of_times() {
    let dir = scratch("recorded-cycles");
    compile(&dir, "cycles.c", "cycles", &[]);
    compile(&dir, "cycle_plugin.c", "cycle.so", &["-shared", "-fPIC"]);
    let bare = || observe(shell("exec ./cycles ./cycle.so 2000"), &dir).success();
    let recorded = || {
        let mut recorded = numamma(&["profile", "-q", "-F", "100", "-o"]);
        recorded.arg(dir.join("x.prof")).args(["--", "./cycles", "./cycle.so", "2000"]);
        observe(recorded, &dir).success()
    };
    let (bare, us) = shortest_cycles(bare, recorded);
    assert!(us < bare + CYCLE_US, "a cycle takes {us} us, bare {bare} us");
}

#[test]
fn libraries_of_several_threads_come_and_go_and_are_all_matched() {
    let dir = scratch("come-and-go");
    compile(&dir, "come_and_go.c", "come_and_go", &[]);
    let names: Vec<String> = (0..4).map(|i| format!("./cycle{i}.so")).collect();
    names.iter().for_each(|name| compile(&dir, "cycle_plugin.c", name, &["-shared", "-fPIC"]));
    let policy = plugin_rules(std::iter::empty()).write(&dir, "plugin.toml");
    let report = dir.join("come.json");
    let mut command = common::placed(dir.join("come_and_go"), &policy);
    command.arg("150").args(&names).env("NUMAMMA_REPORT", &report);
    let seen = observe(command, &dir).success();
    assert_eq!(seen.stdout, "loaded 600 damaged 0 forks 12\n", "{seen:?}");
    assert_eq!(instances(&report), [600; 3]);
}

#[test]
fn objects_grow_and_shrink() {
    check("realloc_walk.c", &[""], " words checked, 0 damaged");
}

/// glibc maps every array of the program anew: what it did to the mapping of one is not on the next.
#[test]
fn arrays_begin_without_what_the_program_did_to_those_before() {
    let dir = scratch("attributes");
    compile(&dir, "attributes.c", "attributes", &[]);
    let of_memory =
        ["rights", "keys", "wiped", "left-out", "advice", "shared", "hole", "moved", "locked", "locked-all"];
    for what in of_memory {
        let stdout = compare(&dir, &format!("exec ./attributes {what}"));
        assert_eq!(stdout, "rw-p\nchild 7340032\nstatus 0 parent 7340032\n", "{what}");
    }
}

#[test]
fn objects_travel_between_threads() {
    check("across.c", &[""], "damaged 0");
}

#[test]
fn a_program_ends_while_its_threads_allocate() {
    check("leave.c", &["return", "exit", "_exit", "quick_exit", "abort", "segv", "kill", "thread"], "");
}

#[test]
fn allocations_before_and_after_us() {
    check("early_late.c", &[""], "last whole");
}

/// As [`compare_under`], and also under the apply library without a policy.
pub fn compare_also_without_policy(dir: &Path, line: &str, policies: &[(&str, &str)]) -> String {
    let bare = compare_under(dir, line, policies);
    let mut loaded = shell(line);
    loaded.env("LD_PRELOAD", preload("apply"));
    let seen = observe(loaded, dir);
    assert_eq!(
        (seen.stdout.as_str(), seen.shell_code()),
        (bare.as_str(), Some(0)),
        "{line} without a policy: {seen:?}"
    );
    bare
}

#[test]
fn programs_with_an_allocator_of_their_own() {
    let dir = scratch("own-malloc");
    for variant in ["PLAIN", "MEASURES", "WRAPS", "COUNTS"] {
        compile(&dir, "own_malloc.c", variant, &["-D", variant]);
        let stdout = compare_also_without_policy(&dir, &format!("exec ./{variant}"), &POLICIES[..1]);
        assert_eq!(stdout, "own allocator used: 1\n", "{variant}");
    }
    // The same allocator in a library that stands behind ours, and lacks malloc_usable_size.
    compile(&dir, "own_malloc.c", "libown.so", &["-D", "LIBRARY", "-shared", "-fPIC"]);
    let library = dir.join("libown.so").display().to_string();
    compile(&dir, "own_malloc.c", "linked", &["-D", "LINKED", "-Wl,--no-as-needed", &library]);
    assert_eq!(compare_also_without_policy(&dir, "exec ./linked", &POLICIES[..1]), "own allocator used: 1\n");
}

/// The hooks are called before the library has started.
#[test]
fn a_constructor_allocates_before_us() {
    let dir = scratch("before-us");
    compile(&dir, "before_us.c", "libbefore.so", &["-D", "LIBRARY", "-shared", "-fPIC"]);
    let library = dir.join("libbefore.so").display().to_string();
    for (name, more) in [("before", &[][..]), ("own", &["-D", "OWN", "-fno-builtin"])] {
        compile(&dir, "before_us.c", name, &[more, &["-Wl,--no-as-needed", &library]].concat());
        let stdout = compare_also_without_policy(&dir, &format!("exec ./{name}"), &POLICIES[..1]);
        assert_eq!(stdout, "bound 4, entered again 0\n", "{name}");
    }
}

#[test]
fn blocks_released_under_other_names() {
    let dir = scratch("releases");
    compile(&dir, "releases.c", "releases", &[]);
    for argument in ["libc", "sized"] {
        let stdout = compare_also_without_policy(&dir, &format!("exec ./releases {argument}"), &POLICIES);
        assert_eq!(stdout, "damaged 0\n");
    }
}

/// More placed mappings than are tracked, each of which divides a mapping of the program.
#[test]
fn many_small_mappings() {
    let dir = scratch("small-mappings");
    compile(&dir, "small_mappings.c", "small_mappings", &[]);
    let place = "policy = \"interleave\"";
    Policy::new().rule("function = [\"matched\"]", place).write(&dir, "matched.toml");
    let stdout = compare_under(&dir, "exec ./small_mappings", &[("matched", place)]);
    assert_eq!(stdout, "failed 0, room left 1\n");
}

#[test]
fn libraries_that_call_the_c_library_past_us() {
    let dir = scratch("deep");
    compile(&dir, "deep.c", "deep", &["-rdynamic"]);
    compile(&dir, "deep_plugin.c", "deep.so", &["-shared", "-fPIC"]);
    for how in ["now", "lazy", "space"] {
        let stdout = compare_also_without_policy(&dir, &format!("exec ./deep ./deep.so {how}"), &POLICIES[..2]);
        assert_eq!(stdout, "damaged 0\n", "{how}");
    }
}

#[test]
fn limits_that_fall_while_the_program_runs() {
    check("limits.c", &["memory", "files", "mbind", "mappings"], "usable 1");
}

/// Random policies for random calls: each of the four call sites of churn.c gets a placement of its own, and the
/// program checks every promise of C. `NUMAMMA_FUZZ_SEED` chooses others. Goes on while `more` says so of the number of
/// policies tried.
fn random_calls_on(threads: u64, more: impl Fn(u64) -> bool) {
    const CALLS_PER_THREAD: u64 = 60_000;
    let dir = scratch(&format!("random-{threads}"));
    compile(&dir, "../../preloads/apply/churn.c", "churn", &[]);
    let seed: u64 = std::env::var("NUMAMMA_FUZZ_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let mut random = generate::Random(0x2545_f491_4f6c_dd1d ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let nodes = numamma_plan::machine::Machine::this().memory_node_ids();
    let mut usable = || loop {
        let place = generate::place(&mut random);
        let rule = format!("version = 1\n[[object]]\nfunction = [\"x\"]\nplace = {place}\n");
        let fits = |p: &numamma_plan::policy::Policy| {
            p.objects.iter().all(|o| numamma_plan::plan::node_list(&o.place, &nodes, 4).is_ok())
        };
        if numamma_plan::check::parse(&rule).is_ok_and(|p| fits(&p)) {
            return place;
        }
    };
    for number in (0..).take_while(|number| more(*number)) {
        let rules = ["malloc", "calloc", "realloc", "memalign"]
            .map(|f| format!("[[object]]\nfunction = [\"matched_{f}\"]\nplace = {}", usable()));
        let policy = Policy::new().lines(&rules.join("\n")).write(&dir, "random.toml");
        let report = dir.join("random.json");
        let mut command = common::placed(dir.join("churn"), &policy);
        command.args([CALLS_PER_THREAD.to_string(), threads.to_string(), (seed * 10_000 + number).to_string()]);
        command.env("NUMAMMA_STRICT", "1").env("NUMAMMA_REPORT", &report);
        let seen = run_within(command.current_dir(&dir), LONG_LIMIT, &dir).unwrap_or_else(|why| panic!("{why}"));
        let expected = format!("{} operations\n", threads * CALLS_PER_THREAD);
        assert_eq!((seen.code(), &seen.stdout), (Some(0), &expected), "{}\n{seen:?}", rules.join("\n"));
        for object in objects(&json_file(&report)) {
            let fine = object["instances"].as_u64() > Some(1000) && object["pages_off_plan"] == 0;
            assert!(fine, "{object}\n{}", rules.join("\n"));
        }
    }
}

#[test]
fn random_calls_under_random_policies() {
    random_calls_on(4, |policies| policies < 3);
}

/// Policies of the long form when no time is given.
const MANY: u64 = 24;

/// `NUMAMMA_FUZZ_SECONDS=3600 cargo test --test hostile random_calls -- --ignored` goes on for an hour.
#[test]
#[ignore = "long: make test-long"]
fn random_calls_under_many_random_policies() {
    let started = Instant::now();
    let seconds: Option<u64> = std::env::var("NUMAMMA_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
    random_calls_on(8, |policies| seconds.map_or(policies < MANY, |s| started.elapsed().as_secs() < s));
}

/// Who reads standard error only when the program has ended may have a full pipe by then: lines of the library wait for
/// nobody.
#[test]
fn a_pipe_that_nobody_reads_is_full() {
    let dir = scratch("full-pipe");
    let bad = dir.write("bad.toml", "version = \"no number\"\n");
    let missing =
        Policy::new().rule("function = [\"no_such_function\"]", "policy = \"block\"").write(&dir, "missing.toml");
    for policy in [bad, missing] {
        let (_reader, mut writer) = std::io::pipe().expect("a pipe");
        let descriptor = writer.as_raw_fd();
        let set = |flags: i32| {
            // SAFETY: a descriptor of this test.
            assert_eq!(unsafe { libc::fcntl(descriptor, libc::F_SETFL, flags) }, 0);
        };
        set(libc::O_NONBLOCK);
        while writer.write(&[b'.'; 4096]).is_ok() {}
        set(0);
        let mut child = placed("true", &policy).stderr(writer).spawn().expect("true starts");
        let end = Instant::now() + LIMIT;
        while child.try_wait().expect("it is a child").is_none() {
            if Instant::now() > end {
                child.kill().expect("it is a child");
                panic!("{}: it waits for its reader", policy.display());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(child.wait().expect("it is a child").success());
    }
}

/// Surroundings in which a process may be started.
#[test]
fn poor_surroundings() {
    let dir = scratch("poor");
    compile(&dir, "across.c", "across", &[]);
    compile(&dir, "fork_threads.c", "fork_threads", &[]);
    compile(&dir, "limits.c", "limits", &[]);
    let d = dir.display();
    let one = &POLICIES[..1];
    for start in [
        "ulimit -v 400000;",
        "ulimit -n 4;",
        "ulimit -s 256;",
        "cd /proc;",
        "cd /; umask 777;",
        "mkdir -p gone && cd gone && rmdir ../gone;",
        "unset HOME PATH;",
        "trap '' HUP INT PIPE CHLD 2>/dev/null;",
    ] {
        // A report to a place that cannot be written is one line more.
        for line in [format!("{start} exec {d}/across"), format!("{start} NUMAMMA_REPORT=report.json exec {d}/across")]
        {
            // The shell itself may write what it is told to write to, so its limit is not ours to test.
            if start.contains("-f 0") && line.contains("REPORT") {
                continue;
            }
            compare_under(&dir, &line, one);
        }
    }
    // Output to a pipe, since a file could not grow: what is written beside it must not end the program either.
    let lines =
        format!("{{ ulimit -f 0; NUMAMMA_REPORT=report.json {d}/limits mbind; echo status $?; }} 2>words | cat");
    assert_eq!(compare_under(&dir, &lines, one), "kept 1 usable 1 own file of 0 bytes\nstatus 0\n");
    for closed in ["2>&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"] {
        compare_under(&dir, &format!("exec {d}/fork_threads {closed}"), one);
    }
    assert_eq!(
        compare_under(&dir, &format!("exec {d}/limits mbind 2>&-"), one),
        "kept 1 usable 1 own file of 0 bytes\n"
    );
}
