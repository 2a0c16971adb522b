//! `numamma top`: screens as text, and on a terminal of 24 lines of 80 columns.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{self, Scratch, heeding, leads_session, numamma, run, soon, terminal};

fn steps(dir: &Scratch) -> PathBuf {
    common::compile("gcc", "cli/profile/steps.c", dir.join("steps"), &["-O2", "-g", "-pthread"])
}

/// `numamma top` in a directory of its own for its files.
fn top(dir: &Scratch, args: &[&str]) -> Command {
    let mut c = numamma(&["top"]);
    c.args(args).env("TMPDIR", dir.join("")).current_dir(dir.join(""));
    c
}

fn left_behind(dir: &Scratch) -> Vec<String> {
    let names =
        std::fs::read_dir(dir.join("")).expect("the scratch directory").map(|e| e.expect("an entry").file_name());
    names.filter_map(|n| n.into_string().ok()).filter(|n| n.starts_with("numamma-top")).collect()
}

#[test]
fn screens_as_text_and_the_end_of_the_program() {
    let dir = Scratch::new("top-batch");
    let program = steps(&dir);
    let program = program.to_str().expect("a path in UTF-8");
    let ran = run(&mut top(&dir, &["--batch", "-d", "1s", "--", program, "4"])).success();
    let screens = ran.stdout.matches(" at a memory access").count();
    assert!((2..=6).contains(&screens), "{}", ran.stdout);
    assert!(ran.stdout.contains("main steps.c:"), "call sites have names while it runs:\n{}", ran.stdout);
    assert!(ran.stdout.contains("first touch by thread") && ran.stdout.contains("done\n"), "{}", ran.stdout);
    // The recorder writes once a second, where the machine is busy in two parts (samples, names): no screen shows what
    // another one has shown, where there would be 30.
    let ran = run(&mut top(&dir, &["--batch", "-d", "100ms", "--", program, "3"])).success();
    let screens = ran.stdout.matches(" at a memory access").count();
    assert!((2..=10).contains(&screens), "{}", ran.stdout);
    // After so many screens the program is ended.
    let begun = Instant::now();
    let ran = run(&mut top(&dir, &["--batch", "-d", "500ms", "-n", "1", "--", program, "60"])).success();
    assert_eq!(ran.stdout.matches(" at a memory access").count(), 1, "{}", ran.stdout);
    assert!(begun.elapsed() < Duration::from_secs(30) && !ran.stdout.contains("done"), "{}", ran.stdout);
    let ran = run(&mut top(&dir, &["--batch", "--", "sh", "-c", "exit 7"]));
    assert_eq!(ran.code(), Some(7));
    let ignoring = "trap '' PIPE CHLD; exec \"$0\" top --batch -- grep SigIgn /proc/self/status";
    let mut shell = Command::new("sh");
    let ran = run(shell.args(["-c", ignoring, common::NUMAMMA]).env("TMPDIR", dir.join(""))).success();
    let ignored = ran.stdout.lines().find_map(|l| u64::from_str_radix(l.strip_prefix("SigIgn:")?.trim(), 16).ok());
    assert_eq!(ignored.map(|mask| mask >> (libc::SIGPIPE - 1) & 1), Some(1), "{}", ran.stdout);
    let ran = run(&mut top(&dir, &["--batch", "--", "/nonexistent"]));
    assert!(ran.code() == Some(127) && ran.stderr.contains("no such file"), "{}", ran.stderr);
    assert_eq!(left_behind(&dir), [""; 0]);
}

/// Reads what appears until `wanted` was among it; all so far is in `seen`.
fn read_until(person: &mut File, seen: &mut String, wanted: &str) {
    let begun = Instant::now();
    let mut bytes = [0; 4096];
    while !seen.contains(wanted) {
        assert!(begun.elapsed() < Duration::from_secs(60), "no {wanted:?} in {seen:?}");
        let n = person.read(&mut bytes).expect("the terminal is open");
        seen.push_str(&String::from_utf8_lossy(&bytes[..n]));
    }
}

fn on_terminal(dir: &Scratch, seconds: &str) -> (Child, File) {
    let program = steps(dir);
    let (person, side) = terminal();
    let stdio = || Stdio::from(side.try_clone().expect("a descriptor is left"));
    let mut c = top(dir, &["-d", "500ms", "--", program.to_str().expect("a path in UTF-8"), seconds]);
    c.env("TERM", "xterm").stdin(stdio()).stdout(stdio()).stderr(Stdio::null());
    (c.spawn().expect("numamma starts"), person)
}

#[test]
fn keys_on_a_terminal() {
    const ENTER: &str = "\x1b[?1049h";
    const LEAVE: &str = "\x1b[?1049l";
    for quit in ["q", "\x03"] {
        let dir = Scratch::new(if quit == "q" { "top-keys" } else { "top-interrupt" });
        let (mut child, mut person) = on_terminal(&dir, "60");
        let mut seen = String::new();
        read_until(&mut person, &mut seen, "steps.c:");
        assert!(seen.contains(ENTER), "a screen of its own: {seen:?}");
        person.write_all(b"js").expect("the terminal is open");
        std::thread::sleep(Duration::from_millis(700));
        person.write_all(quit.as_bytes()).expect("the terminal is open");
        read_until(&mut person, &mut seen, LEAVE);
        let status = child.wait().expect("it ends");
        assert_eq!((status.code(), status.signal()), (Some(0), None), "{quit:?}");
        assert_eq!(left_behind(&dir), [""; 0]);
    }
    // A signal from outside, too, leaves the terminal as it was.
    let dir = Scratch::new("top-signal");
    let (mut child, mut person) = on_terminal(&dir, "60");
    let mut seen = String::new();
    read_until(&mut person, &mut seen, "steps.c:");
    // SAFETY: the child has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    read_until(&mut person, &mut seen, LEAVE);
    assert_eq!(child.wait().expect("it ends").signal(), Some(libc::SIGTERM));
    assert_eq!(left_behind(&dir), [""; 0]);
}

/// What is sent to the command is for the program, which may need time for it, and ends as it wants.
#[test]
fn a_program_that_handles_a_signal_ends_as_it_wants() {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGUSR1] {
        let dir = Scratch::new("top-handled");
        let script =
            format!("trap 'sleep 1; echo > saved; exit 7' {signal}; echo > ready; while :; do sleep 0.1; done");
        let mut c = top(&dir, &["--batch", "-d", "500ms", "--", "sh", "-c", &script]);
        c.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = heeding(c).spawn().expect("numamma starts");
        while !dir.join("ready").exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        // SAFETY: the child has not been waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
        assert_eq!(soon(&mut child).code(), Some(7), "{signal}");
        assert!(dir.join("saved").exists(), "{signal}");
        assert_eq!(left_behind(&dir), [""; 0]);
    }
}

/// Each case: whether the command leads the session of the terminal, so that it gets a SIGHUP, and whether its stderr
/// is the terminal, too.
#[test]
fn a_terminal_that_is_closed_ends_the_program() {
    for (leads, errors) in [(false, false), (false, true), (true, true)] {
        let dir = Scratch::new("top-closed");
        let (mut person, side) = terminal();
        let stdio = || Stdio::from(side.try_clone().expect("a descriptor is left"));
        let mut c = top(&dir, &["-d", "500ms", "--", "sh", "-c", "echo $$ > pid; exec \"$0\" 60"]);
        c.arg(steps(&dir)).env("TERM", "xterm").stdin(stdio()).stdout(stdio()).stderr(Stdio::null());
        if errors {
            c.stderr(stdio());
        }
        if leads {
            leads_session(&mut c, &side);
        }
        let mut child = c.spawn().expect("numamma starts");
        drop((c, side));
        read_until(&mut person, &mut String::new(), "steps.c:");
        drop(person);
        assert_eq!(soon(&mut child).signal(), Some(libc::SIGHUP), "{leads} {errors}");
        assert_eq!(left_behind(&dir), [""; 0]);
        let pid = std::fs::read_to_string(dir.join("pid")).expect("the shell started");
        // SAFETY: no signal is sent.
        let found = unsafe { libc::kill(pid.trim().parse().expect("a number"), 0) };
        assert_eq!(found, -1, "the program runs");
    }
}

#[test]
fn a_key_that_was_sent_in_part_keeps_no_signal_from_ending_the_command() {
    let dir = Scratch::new("top-part");
    let (mut child, mut person) = on_terminal(&dir, "60");
    let mut seen = String::new();
    read_until(&mut person, &mut seen, "steps.c:");
    person.write_all(b"\x1b[1").expect("the terminal is open");
    std::thread::sleep(Duration::from_millis(500));
    // SAFETY: the child has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(soon(&mut child).signal(), Some(libc::SIGTERM));
}

/// What a shell prints into a terminal while the screen is on, with `stdin` if there is one.
fn shell_on_screen(dir: &Scratch, script: &str, stdin: Option<Stdio>) -> String {
    let (mut person, side) = terminal();
    let stdio = || Stdio::from(side.try_clone().expect("a descriptor is left"));
    let mut c = top(dir, &["--", "sh", "-c", script]);
    let piped = stdin.is_some();
    c.env("TERM", "xterm").stdin(stdin.unwrap_or_else(stdio)).stdout(stdio()).stderr(stdio());
    if piped {
        // The keys come from the controlling terminal.
        leads_session(&mut c, &side);
    }
    let mut child = c.spawn().expect("numamma starts");
    drop((c, side));
    let (mut seen, mut bytes) = (Vec::new(), [0; 4096]);
    // The last descriptor of the other side is closed: EIO.
    while let Ok(n @ 1..) = person.read(&mut bytes) {
        seen.extend_from_slice(&bytes[..n]);
    }
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    String::from_utf8_lossy(&seen).into_owned()
}

#[test]
fn the_program_reads_stdin() {
    let dir = Scratch::new("top-stdin");
    let hello = || {
        std::fs::write(dir.join("hello"), "hello\n").expect("a file");
        Stdio::from(File::open(dir.join("hello")).expect("a file"))
    };
    let script = "read x; echo got [$x]";
    let ran = run(top(&dir, &["-b", "--", "sh", "-c", script]).stdin(hello())).success();
    assert!(ran.stdout.contains("got [hello]\n"), "{}", ran.stdout);
    let seen = shell_on_screen(&dir, script, Some(hello()));
    assert!(seen.contains("got [hello]"), "{seen:?}");
    let seen = shell_on_screen(&dir, script, None);
    assert!(seen.contains("got []"), "the terminal is for the keys: {seen:?}");
}

#[test]
fn much_output() {
    let dir = Scratch::new("top-output");
    let script = "seq 1000000 1400000; echo last >&2";
    let ran = run(&mut top(&dir, &["-b", "--", "sh", "-c", script])).success();
    let numbers: Vec<u32> = ran.stdout.lines().filter_map(|l| l.parse().ok()).collect();
    assert!(numbers.iter().copied().eq(1_000_000..=1_400_000), "{} lines arrived", numbers.len());
    assert!(ran.stderr.contains("last"), "{}", ran.stderr);
    // 3,200,008 bytes and 5 of stderr: a MiB from each end.
    let seen = shell_on_screen(&dir, script, None);
    let missing = format!("[{} bytes of the output are not shown]", 3_200_008 + 5 - (2 << 20));
    assert!(seen.contains("1000000\r\n1000001\r\n") && seen.contains(&missing), "{}", seen.len());
    assert!(seen.contains("1400000\r\nlast\r\n"), "{}", seen.len());
}

#[test]
fn a_full_directory_for_temporary_files() {
    let dir = Scratch::new("top-full");
    let script = r#"mount -t tmpfs -o size=16k none "$TMPDIR/full" || exit 99; export TMPDIR="$TMPDIR/full"
        "$0" top -b -- sh -c 'seq 1000000 1100000; exit 7'"#;
    std::fs::create_dir(dir.join("full")).expect("a directory");
    let mut c = Command::new("unshare");
    c.args(["-rm", "sh", "-c", script]).arg(env!("CARGO_BIN_EXE_numamma")).env("TMPDIR", dir.join(""));
    let ran = run(&mut c);
    if matches!(ran.code(), Some(1 | 99)) && ran.stdout.is_empty() {
        common::skipped(&format!("no file system can be mounted here: {}", ran.stderr));
        return;
    }
    let numbers = ran.stdout.lines().filter_map(|l| l.parse::<u32>().ok());
    assert!(numbers.eq(1_000_000..=1_100_000) && ran.code() == Some(7), "{}", ran.stderr);
    let ran = run(top(&dir, &["-b", "--", "true"]).env("TMPDIR", "/nonexistent"));
    assert!(ran.stderr.contains("/nonexistent") && ran.stderr.contains("TMPDIR"), "{}", ran.stderr);
}

#[test]
fn directories_of_processes_that_were_killed() {
    let dir = Scratch::new("top-killed");
    let mut gone = Command::new("true").spawn().expect("it starts");
    gone.wait().expect("it ends");
    let name = |pid: u32| dir.join(format!("numamma-top-{pid}"));
    std::fs::create_dir(name(gone.id())).expect("a directory");
    std::fs::write(name(gone.id()).join("top.prof"), "").expect("a file");
    std::fs::create_dir(name(std::process::id())).expect("a directory");
    std::fs::create_dir(dir.join("kept")).expect("a directory");
    let link = name(u32::MAX >> 1);
    std::os::unix::fs::symlink(dir.join("kept"), &link).expect("a link");
    run(&mut top(&dir, &["-b", "--", "true"])).success();
    assert!(!name(gone.id()).exists(), "{:?}", left_behind(&dir));
    assert!(name(std::process::id()).exists() && link.is_symlink() && dir.join("kept").exists());
}
