//! Programs that do what allocators and preloads fear, under policies that place all they allocate and under the profile
//! library: the same output, status and signal as bare, in bounded time and with few words.
//!
//! Each program (tests/hostile/stress) says at its top what it does, checks its own memory and prints what it found.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use numamma::launch::library;

use super::fuzz::generate;

const NUMAMMA: &str = env!("CARGO_BIN_EXE_numamma");
/// Each takes under a second on an idle machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Lines of ours on stderr that one process may need: one for each thing that could not be done.
const WORDS: usize = 3;

/// Name and place of the policies. `?` stands for any call site.
const POLICIES: [(&str, &str); 4] = [
    ("interleave", "policy = \"interleave\""),
    ("cyclic", "policy = \"block-cyclic\", block = \"8KiB\""),
    ("local", "policy = \"local\""),
    ("split", "policy = \"random\", seed = 7, huge = \"split\""),
];

fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stress-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a scratch directory");
    for (name, place) in POLICIES {
        let bind = if name == "local" { "[threads]\nbind = \"compact\"\n" } else { "" };
        let text = format!("version = 1\n{bind}[[object]]\nfunction = [\"?\"]\nplace = {{ {place} }}\n");
        std::fs::write(dir.join(format!("{name}.toml")), text).expect("the policy is written");
    }
    dir
}

fn compile(dir: &Path, source: &str, name: &str, flags: &[&str]) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile/stress").join(source);
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(dir.join(name)).arg(from).args(flags);
    assert!(cc.status().expect("cc runs").success(), "{source}");
}

/// What came of a run; `words` are the lines on stderr.
#[derive(Debug)]
struct Seen {
    stdout: String,
    code: Option<i32>,
    signal: Option<i32>,
    theirs: Vec<String>,
    ours: Vec<String>,
}

impl Seen {
    fn same(&self, other: &Seen) -> bool {
        // The recorder ends with 128 + the signal, as shells do.
        let code = |s: &Seen| s.code.or(s.signal.map(|n| 128 + n));
        (&self.stdout, code(self), &self.theirs) == (&other.stdout, code(other), &other.theirs)
    }
}

/// Runs in a group of its own, which is killed when the time is over: a deadlock is one of the expected failures.
fn observe(mut command: Command, dir: &Path) -> Seen {
    use std::os::unix::process::CommandExt;
    let (out, err) = (dir.join("out"), dir.join("err"));
    let file = |path: &Path| Stdio::from(std::fs::File::create(path).expect("the scratch directory is writable"));
    command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&err)).current_dir(dir).process_group(0);
    let started = Instant::now();
    let mut child = command.spawn().expect("the program starts");
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break status;
        }
        if started.elapsed() > LIMIT {
            // SAFETY: the group was made for this child, which has not been waited for.
            unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
            let _ = child.wait();
            panic!("{command:?} hung; it wrote {:?}", std::fs::read_to_string(&out));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
    let (ours, theirs) = read(&err).lines().map(str::to_owned).partition(|l| l.starts_with("numamma: "));
    Seen { stdout: read(&out), code: status.code(), signal: status.signal(), theirs, ours }
}

/// `exec` so that no shell stands between the program's end and us.
fn shell(line: &str) -> Command {
    let mut c = Command::new("sh");
    c.args(["-c", line]);
    c
}

/// Runs the line of sh bare, under each policy and profiled, and compares. Returns the bare run's output.
fn compare(dir: &Path, line: &str) -> String {
    compare_under(dir, line, &POLICIES)
}

fn compare_under(dir: &Path, line: &str, policies: &[(&str, &str)]) -> String {
    let bare = observe(shell(line), dir);
    let apply = library::find("apply").expect("the library is built");
    for (policy, _) in policies {
        let mut placed = shell(line);
        placed.env("LD_PRELOAD", &apply).env("NUMAMMA_POLICY", dir.join(format!("{policy}.toml")));
        let seen = observe(placed, dir);
        assert!(seen.same(&bare), "{line} placed by {policy}:\nbare {bare:?}\nthen {seen:?}");
        assert!(seen.ours.len() <= WORDS, "{line} placed by {policy} says too much: {:?}", seen.ours);
    }
    let mut profiled = Command::new(NUMAMMA);
    profiled.args(["profile", "-q", "-F", "100", "-o"]).arg(dir.join("x.prof")).args(["--", "sh", "-c", line]);
    let seen = observe(profiled, dir);
    assert!(seen.same(&bare), "{line} profiled:\nbare {bare:?}\nthen {seen:?}");
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
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn threads_fork_while_others_allocate() {
    check("fork_threads.c", &[""], "75 of 75 children ended well");
}

#[test]
fn threads_vfork_and_spawn_while_others_allocate() {
    check("vfork_exec.c", &[""], "statuses 152");
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
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn objects_grow_and_shrink() {
    check("realloc_walk.c", &[""], " words checked, 0 damaged");
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

#[test]
fn limits_that_fall_while_the_program_runs() {
    check("limits.c", &["memory", "files", "mbind", "mappings"], "usable 1");
}

/// Random policies for random calls: each of the four call sites of churn.c gets a placement of its own, and the program
/// checks every promise of C. `NUMAMMA_FUZZ_SEED` chooses others.
#[test]
fn random_calls_under_random_policies() {
    const POLICIES: usize = 12;
    const CALLS_PER_THREAD: u64 = 60_000;
    let dir = scratch("random");
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
    for number in 0..POLICIES {
        let rules = ["malloc", "calloc", "realloc", "memalign"]
            .map(|f| format!("[[object]]\nfunction = [\"matched_{f}\"]\nplace = {}\n", usable()));
        let (policy, report) = (dir.join("random.toml"), dir.join("random.json"));
        std::fs::write(&policy, format!("version = 1\n{}", rules.concat())).expect("the policy is written");
        let mut command = Command::new(dir.join("churn"));
        command.args([CALLS_PER_THREAD.to_string(), "4".into(), (seed * 100 + number as u64).to_string()]);
        command.env("LD_PRELOAD", library::find("apply").expect("the library is built"));
        command.env("NUMAMMA_POLICY", &policy).env("NUMAMMA_STRICT", "1").env("NUMAMMA_REPORT", &report);
        let seen = observe(command, &dir);
        let expected = format!("{} operations\n", 4 * CALLS_PER_THREAD);
        assert_eq!((seen.code, &seen.stdout), (Some(0), &expected), "{}\n{seen:?}", rules.concat());
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&report).expect("the report")).expect("JSON");
        for object in report["objects"].as_array().expect("objects") {
            assert!(
                object["instances"].as_u64() > Some(1000) && object["pages_off_plan"] == 0,
                "{object}\n{}",
                rules.concat()
            );
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
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
    let _ = std::fs::remove_dir_all(&dir);
}
