//! `numamma profile -p`: programs that run already. They must not notice.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use numamma::profile::records::*;

use super::harness::*;

/// Bytes and parts of the arrays of `slices`.
const ARRAY: u64 = 1024 * 4096;
const PARTS: u64 = 4;

/// Starts `slices` and waits until its threads run.
fn start(mut program: Command, words: &[&str]) -> Child {
    let mut child = program.args(words).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    // A line and nothing behind it: the rest stays in the pipe.
    let mut pipe = BufReader::with_capacity("ready\n".len(), child.stdout.as_mut().unwrap());
    pipe.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

/// The program prints and returns what it does alone.
fn went_on(child: Child) {
    let out = wait(child).ended(7);
    assert_eq!(out.stdout, "done 1\n");
}

fn attach(dir: &Path, pids: &[u32], options: &[&str]) -> Command {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let mut c = numamma(&["profile", "-F", RATE, "-o", "t.prof", "-p", &pids.join(",")]);
    c.current_dir(dir).args(options).stdin(Stdio::null());
    heeding(c)
}

/// A program that is to run on ends now, as [`went_on`] says.
fn goes_on(mut child: Child) {
    assert_eq!(child.try_wait().unwrap(), None, "it runs");
    signal(child.id(), libc::SIGTERM);
    went_on(child);
}

fn signal(pid: u32, signal: libc::c_int) {
    // SAFETY: a process that a test started and has not waited for.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

/// Attaches until the program has used so many ms of CPU time more, and ends the recording with a signal.
fn attach_while_it_works(mut command: Command, pid: u32, ms: u64, end_by: libc::c_int) -> Ran {
    let mut recorder = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let mut wait_for = |ready: &dyn Fn() -> bool| {
        while !ready() && recorder.try_wait().unwrap().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    // The file is there when the events are.
    let file = command.get_current_dir().unwrap().join("t.prof");
    wait_for(&|| file.exists());
    let before = cpu_ms(pid);
    wait_for(&|| cpu_ms(pid) >= before + ms);
    signal(recorder.id(), end_by);
    wait(recorder)
}

/// CPU time that a process has used.
fn cpu_ms(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let times = stat.rsplit(')').next().unwrap_or("").split_whitespace().skip(11).take(2);
    times.filter_map(|t| t.parse::<u64>().ok()).sum::<u64>() * 10
}

fn slices(dir: &Path) -> PathBuf {
    compile(dir, "slices", &[])
}

/// Number of the threads that work on the array of a name, each of which keeps to one part of its own. The main thread
/// initialises it.
fn divided(p: &Profile, name: &str) -> usize {
    let array = p.global(name);
    assert_eq!(array.len(), 1, "one {name}");
    let base = array[0].instance.base;
    let mut part_of = std::collections::BTreeMap::new();
    let works = |id: ThreadId| p.threads[id as usize].tid != p.threads[id as usize].pid;
    for access in p.accesses_to(&array).filter(|a| works(a.thread)) {
        let part = (access.addr - base) * PARTS / ARRAY;
        assert_eq!(*part_of.entry(access.thread).or_insert(part), part, "{access:?}");
    }
    let mut parts: Vec<u64> = part_of.values().copied().collect();
    parts.sort_unstable();
    parts.dedup();
    assert_eq!(parts.len(), part_of.len(), "a part for each");
    part_of.len()
}

fn pattern(dir: &Path, file: &str) -> String {
    let mut c = numamma(&["report", file, "--json", "--object=sliced"]);
    let report = run(c.current_dir(dir)).success().json();
    report["objects"][0]["pattern"]["kind"].as_str().unwrap_or_else(|| panic!("{report}")).to_owned()
}

#[test]
fn a_running_program_shows_the_pattern_of_one_that_was_started() {
    let dir = scratch("attach");
    let program = slices(&dir);
    let child = start(plain(&program), &["600"]);
    let out = attach_while_it_works(attach(&dir, &[child.id()], &[]), child.id(), 400, libc::SIGINT).success();
    assert_eq!(out.stdout, "");
    let p = Profile::read(&dir.join("t.prof"));
    goes_on(child);
    p.check_sums();
    assert_eq!((p.ending, &p.damage), (Some(Ended::Runs), &None));
    assert_eq!(divided(&p, "sliced"), 4);
    assert_eq!(p.threads.len(), 5);
    assert!(p.threads[1..].iter().all(|t| t.samples > 0 && t.creator.is_none()), "{:?}", p.threads);
    assert!((0.2..1.5).contains(&p.stats.achieved), "each thread is sampled once: {:?}", p.stats);
    // The block on the heap is a mapping without a call site, and both the profile and the command say so.
    assert!(!p.header().allocations && p.sites.is_empty());
    assert_eq!(p.touched(&p.global("sliced"), None), 0, "all its pages were touched before");
    let told = format!("attached to the running process {}", p.header().pid);
    assert!(p.notes.iter().any(|n| n.contains(&told) && n.contains("numamma profile -- ")), "{:?}", p.notes);
    assert!(out.stderr.contains(&told), "{}", out.stderr);
    let h = p.header();
    assert_eq!((h.program.path.as_str(), h.program.argv.len()), (program.to_str().unwrap(), 2));
    assert!(h.program.build_id.is_some());

    run(profile(&dir, &["-q", "-o", "launched.prof"], &[program.to_str().unwrap(), "1.2"])).ended(7);
    let launched = Profile::read(&dir.join("launched.prof"));
    assert_eq!((divided(&launched, "sliced"), pattern(&dir, "launched.prof")), (4, pattern(&dir, "t.prof")));
    assert_eq!(pattern(&dir, "t.prof"), "block");
    let mut advise = numamma(&["advise", "t.prof", "--nodes", "2"]);
    let advised = run(advise.current_dir(&dir)).success();
    assert!(advised.stderr.contains(&told), "{}", advised.stderr);
}

#[test]
fn an_interrupt_ends_the_recording_and_not_the_program() {
    let dir = scratch("attach-interrupt");
    let program = slices(&dir);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let child = start(plain(&program), &["600"]);
        let out = attach_while_it_works(attach(&dir, &[child.id()], &[]), child.id(), 50, signal).success();
        let file = dir.join("t.prof");
        let p = Profile::read(&file);
        assert_eq!((p.ending, &p.damage), (Some(Ended::Runs), &None), "{}", out.stderr);
        std::fs::remove_file(file).unwrap();
        goes_on(child);
    }
}

#[test]
fn a_duration_ends_the_recording_and_not_the_program() {
    let dir = scratch("attach-duration");
    let child = start(plain(slices(&dir)), &["600"]);
    let started = Instant::now();
    run(attach(&dir, &[child.id()], &["--delay", "200ms", "--duration", "400ms"])).success();
    let took = started.elapsed().as_nanos() as u64;
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!((p.ending, &p.damage), (Some(Ended::Runs), &None));
    assert!(p.accesses.iter().all(|a| (200_000_000..).contains(&a.time_ns)));
    assert!((600_000_000..took).contains(&p.stats.duration_ns), "{took}: {:?}", p.stats);
    goes_on(child);
}

#[test]
fn the_end_of_the_program_ends_the_recording() {
    let dir = scratch("attach-end");
    let child = start(plain(slices(&dir)), &["0.8"]);
    run(attach(&dir, &[child.id()], &[])).success();
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!(p.ending, Some(Ended::Unknown));
    assert_eq!(divided(&p, "sliced"), 4);
    went_on(child);
    // Whatever it is doing: a process that ends while the events are opened is refused or recorded, and nothing hangs.
    for ms in 0..12 {
        let mut short = plain("sleep").arg(format!("0.{ms:03}")).spawn().unwrap();
        let out = run(attach(&dir, &[short.id()], &[]));
        assert!(matches!(out.code(), Some(0 | 2)), "{}", out.stderr);
        short.wait().unwrap();
    }
}

#[test]
fn later_threads_and_followed_children_are_recorded() {
    let dir = scratch("attach-later");
    let program = slices(&dir);
    let child = start(plain(&program), &["1.8", "late"]);
    run(attach(&dir, &[child.id()], &[])).success();
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!((divided(&p, "sliced"), p.threads.len()), (4, 5), "{:?}", p.threads);
    assert!(p.threads[3..].iter().all(|t| t.creator == Some(0) && t.start_ns > 0), "{:?}", p.threads);
    went_on(child);

    let script = format!("echo ready; sleep 0.5; {} 0.8; exit $?", program.display());
    let mut shell = plain("sh");
    shell.args(["-c", &script]);
    let child = start(shell, &[]);
    run(attach(&dir, &[child.id()], &["--follow"])).success();
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!(divided(&p, "sliced"), 4, "{:?}", p.threads);
    assert_eq!(wait(child).ended(7).stdout, "ready\ndone 1\n");
}

#[test]
fn several_processes_are_in_one_profile() {
    let dir = scratch("attach-several");
    let program = slices(&dir);
    let children = [start(plain(&program), &["1.5"]), start(plain(&program), &["0.7"])];
    let pids = [children[0].id(), children[1].id()];
    run(attach(&dir, &[pids[0], pids[1], pids[0]], &[])).success();
    let p = Profile::read(&dir.join("t.prof"));
    p.check_sums();
    assert_eq!((p.ending, p.header().pid), (Some(Ended::Unknown), pids[0]));
    for pid in pids {
        let of: Vec<&Object> = p.global("sliced").into_iter().filter(|o| o.pid == pid).collect();
        assert_eq!(of.len(), 1);
        assert!(p.accesses_to(&of).count() > 5);
    }
    children.into_iter().for_each(went_on);
}

#[test]
fn a_program_whose_file_was_replaced_keeps_its_names() {
    let dir = scratch("attach-replaced");
    let program = slices(&dir);
    let child = start(plain(&program), &["600"]);
    std::fs::remove_file(&program).unwrap();
    std::fs::copy("/bin/sh", &program).unwrap();
    attach_while_it_works(attach(&dir, &[child.id()], &[]), child.id(), 400, libc::SIGINT).success();
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!((divided(&p, "sliced"), Path::new(&p.header().program.path)), (4, program.as_path()));
    goes_on(child);
}

/// A program whose file only its own mount namespace shows, with an id that only its own PID namespace knows.
#[test]
fn a_program_in_a_container_is_found_by_its_id_outside() {
    let dir = scratch("attach-container");
    let unshare = |script: &str| {
        let mut c = plain("unshare");
        c.args(["-m", "-p", "-f", "sh", "-c", script]);
        c
    };
    if !unshare("mount -t tmpfs none /mnt").status().is_ok_and(|status| status.success()) {
        return crate::common::skipped("no namespaces can be made here");
    }
    let inside = dir.join("inside");
    std::fs::create_dir(&inside).unwrap();
    let most: u32 = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap().trim().parse().unwrap();
    let free = (most - 100..most - 1).rev().find(|pid| !Path::new(&format!("/proc/{pid}")).exists()).unwrap();
    let script = format!(
        "mount -t tmpfs none {0} && cp {1} {0}/program && echo {2} > /proc/sys/kernel/ns_last_pid; {0}/program 3 & wait $!",
        inside.display(),
        slices(&dir).display(),
        free - 1
    );
    let child = start(unshare(&script), &[]);
    let out = run(attach(&dir, &[free], &[])).ended(2);
    assert!(out.stderr.contains("another PID namespace"), "{}", out.stderr);
    let outside = out.stderr.trim().rsplit("-p ").next().unwrap().parse().expect("the id to use");
    attach_while_it_works(attach(&dir, &[outside], &[]), outside, 400, libc::SIGINT).success();
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!(divided(&p, "sliced"), 4);
    assert!(p.header().program.path.ends_with("inside/program") && !inside.join("program").exists());
    went_on(child);
}

#[test]
fn what_cannot_be_attached_to_is_refused() {
    let dir = scratch("attach-refused");
    let refused = |command: Command, words: &[&str]| {
        let out = run(command);
        let text = &out.stderr;
        assert_eq!((out.code(), out.stdout.as_str(), text.lines().count()), (Some(2), "", 1), "{text}");
        assert!(words.iter().all(|w| text.contains(w)), "{words:?} in {text}");
        assert!(!dir.join("t.prof").exists());
    };
    // The largest id is 2^22.
    refused(attach(&dir, &[1 << 23], &[]), &["no process"]);
    if std::fs::read_to_string("/proc/2/stat").is_ok_and(|stat| stat.contains("(kthreadd)")) {
        refused(attach(&dir, &[2], &[]), &["kernel"]);
    }
    let mut ended = plain("true").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    refused(attach(&dir, &[ended.id()], &[]), &["has ended"]); // a zombie
    ended.wait().unwrap();
    let child = start(plain(slices(&dir)), &["600"]);
    let thread = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let thread = thread.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).find(|tid| *tid != child.id());
    let process = format!("-p {}", child.id());
    refused(attach(&dir, &[thread.unwrap()], &[]), &["thread", &process]);
    let mut short = plain("sh");
    short.current_dir(&dir).args([
        "-c",
        "ulimit -n 24; exec \"$@\"",
        "sh",
        NUMAMMA,
        "profile",
        "-F",
        RATE,
        "-o",
        "t.prof",
    ]);
    short.args(["-p", &child.id().to_string()]);
    refused(short, &["Too many open files", "ulimit -Hn"]);
    goes_on(child);
    let headless = start(plain(slices(&dir)), &["600", "headless"]);
    while std::fs::read_link(format!("/proc/{}/exe", headless.id())).is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    refused(attach(&dir, &[headless.id()], &[]), &["main thread", "numamma profile -- "]);
    signal(headless.id(), libc::SIGTERM);
    wait(headless).success();
    for wrong in ["0", "-1", "x", "1,", ""] {
        let out = run(numamma(&["profile", "-p", wrong]));
        assert_eq!(out.code(), Some(2), "{wrong:?}: {}", out.stderr);
    }
    assert_eq!(run(numamma(&["profile", "-p", "1", "--", "true"])).code(), Some(2), "a process or a program");
}

/// Commands of another user than root, who can read what root has made.
fn as_nobody(program: &Path) -> Command {
    let mut c = plain("setpriv");
    c.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    c
}

#[test]
fn users_attach_to_their_own_programs_only() {
    // SAFETY: plain query.
    if unsafe { libc::geteuid() } != 0 {
        return crate::common::skipped("not root: there is no other user to be");
    }
    let dir = scratch("attach-user");
    std::os::unix::fs::chown(&dir, Some(65534), Some(65534)).unwrap();
    let program = slices(&dir);
    let record = |pid: u32| {
        let mut c = as_nobody(Path::new(NUMAMMA));
        c.current_dir(&dir).args(["profile", "-F", RATE, "-o", "t.prof", "-p"]).arg(pid.to_string());
        heeding(c)
    };
    let child = start(plain(&program), &["600"]);
    let out = run(record(child.id()));
    assert_eq!((out.code(), out.stderr.lines().count()), (Some(2), 1), "{}", out.stderr);
    assert!(out.stderr.contains("belongs to user 0") && out.stderr.contains("slices"), "{}", out.stderr);
    goes_on(child);
    let child = start(as_nobody(&program), &["600"]);
    let out = attach_while_it_works(record(child.id()), child.id(), 400, libc::SIGINT);
    if out.code() == Some(2) && out.stderr.contains("perf_event_paranoid") {
        return goes_on(child); // this kernel lets only root sample; the refusal has its own words
    }
    assert_eq!(out.code(), Some(0), "{}", out.stderr);
    assert_eq!(divided(&Profile::read(&dir.join("t.prof")), "sliced"), 4);
    goes_on(child);
}

#[test]
fn recordings_of_one_process_at_once_have_a_file_each() {
    let dir = scratch("attached-at-once");
    let program = compile(&dir, "slices", &["-pthread"]);
    let child = start(Command::new(&program), &["60"]);
    let all: Vec<Child> = (0..4)
        .map(|_| {
            let mut c = attach(&dir, &[child.id()], &["--duration", "1s"]);
            c.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("numamma starts")
        })
        .collect();
    let said: Vec<String> = all.into_iter().map(|one| wait(one).ended(0).stderr).collect();
    let pid = child.id();
    for name in ["t.prof".to_owned(), format!("t.{pid}.prof"), format!("t.{pid}.2.prof"), format!("t.{pid}.3.prof")] {
        let written = said.iter().filter(|said| said.contains(&format!("wrote {name}"))).count();
        assert_eq!(written, 1, "{name}: {said:#?}");
        assert!(Profile::read(&dir.join(&name)).stats.samples > 0, "{name}");
    }
    assert!(!dir.join("t.prof.old").exists());
    goes_on(child);
}
