//! What a program is started with, and what is learnt of its end, whatever this process was started with: each command
//! that starts programs, compared with the program alone.

use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{
    self, NUMAMMA, Policy, Ran, Scratch, compile, heeding, leads_session, numamma, plain, preload, run, soon, source,
    terminal,
};

/// Exit status of the program, which no command uses for itself.
const STATUS: i32 = 5;

/// The commands that start programs.
const COMMANDS: [&[&str]; 7] = [
    &["profile", "-o", "t.prof"],
    &["profile", "--follow", "-o", "t.prof"],
    &["profile", "--sampler", "none", "-o", "t.prof"],
    &["run", "--policy", "p.toml"],
    &["run", "--interleave"],
    &["verify", "--policy", "p.toml"],
    &["compare", "-n", "1", "--policies", "p.toml,interleave"],
];

/// inherits.c and a policy for its global.
fn inherits(name: &str) -> Scratch {
    let dir = Scratch::new(&format!("launch-{name}"));
    compile("cc", "cli/launch/inherits.c", dir.join("inherits"), &["-O2", "-g"]);
    Policy::of("inherits").rule("global = \"zeroes\"", "policy = \"interleave\"").write(&dir, "p.toml");
    dir
}

/// `command`, started with some signals ignored and others blocked.
fn with_signals(mut command: Command, ignored: &'static [i32], blocked: &'static [i32]) -> Command {
    let set_up = move || {
        // SAFETY: async-signal-safe calls; sigemptyset initialises the set.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in blocked {
                libc::sigaddset(&raw mut set, *signal);
            }
            for signal in ignored {
                libc::signal(*signal, libc::SIG_IGN);
            }
            match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) {
                0 => Ok(()),
                e => Err(io::Error::from_raw_os_error(e)),
            }
        }
    };
    // SAFETY: the closure makes async-signal-safe calls only.
    unsafe { command.pre_exec(set_up) };
    command
}

/// What the program wrote into its file, each text once: a comparison starts it several times.
fn written(dir: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join("out")).unwrap_or_default();
    // An empty one is about to be written.
    if !text.is_empty() {
        let _ = std::fs::remove_file(dir.join("out"));
    }
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines.dedup();
    lines
}

fn program_is_started_and_awaited(name: &str, ignored: &'static [i32], blocked: &'static [i32]) {
    let dir = inherits(name);
    let words = ["./inherits", "out", "5"];
    let run = |mut command: Command, words: &[&str]| -> Ran {
        command.current_dir(&dir).args(words).stdin(Stdio::null());
        common::run(with_signals(command, ignored, blocked))
    };
    let alone = run(plain(dir.join("inherits")), &words[1..]);
    let expected = written(&dir);
    assert_eq!((alone.code(), expected.len()), (Some(STATUS), 2), "{expected:?}");
    for command in COMMANDS {
        let ran = run(numamma(command), &[&["--"], &words[..]].concat());
        assert_eq!(ran.code(), Some(STATUS), "{command:?}: {}", ran.stderr);
        assert_eq!(written(&dir), expected, "{command:?}");
    }
}

#[test]
fn a_program_starts_with_the_signals_of_a_shell() {
    program_is_started_and_awaited("plain", &[], &[]);
}

#[test]
fn a_program_starts_with_ignored_signals_and_its_status_is_known() {
    program_is_started_and_awaited("ignored", &[libc::SIGCHLD, libc::SIGPIPE, libc::SIGXFSZ, libc::SIGINT], &[]);
}

#[test]
fn a_program_starts_with_blocked_signals_and_its_status_is_known() {
    program_is_started_and_awaited("blocked", &[], &[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGUSR1, 40]);
}

/// A program that waits for a signal that is blocked gets it through the command.
#[test]
fn a_blocked_signal_is_forwarded() {
    let dir = inherits("forwarded");
    for command in [COMMANDS[0], COMMANDS[4]] {
        let mut started = numamma(command);
        started.current_dir(&dir).args(["--", "./inherits", "out", "5", "wait"]).stdin(Stdio::null());
        let mut started = with_signals(started, &[], &[libc::SIGTERM]);
        let child = started.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while written(&dir).is_empty() {
            assert!(Instant::now() < end, "{command:?} did not start the program");
            std::thread::sleep(Duration::from_millis(5));
        }
        // SAFETY: a signal to a process that this test started and has not waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
        let ran = common::wait(child);
        assert_eq!(ran.code(), Some(STATUS), "{command:?}: {}", ran.stderr);
    }
}

/// A signal of sigqueue(3) keeps its value.
#[test]
fn the_value_of_a_signal_arrives() {
    let dir = Scratch::new("launch-value");
    compile("cc", "cli/launch/value.c", dir.join("value"), &["-O2"]);
    let mut started = numamma(COMMANDS[0]);
    started.current_dir(&dir).args(["--", "./value", "ready"]).stdin(Stdio::null());
    let child = started.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while !dir.join("ready").exists() {
        assert!(Instant::now() < end, "the program did not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let value = libc::sigval { sival_ptr: 4711 as *mut libc::c_void };
    // SAFETY: a signal to a process that this test started and has not waited for.
    assert_eq!(unsafe { libc::sigqueue(child.id() as i32, libc::SIGUSR1, value) }, 0);
    let ran = common::wait(child);
    assert_eq!((ran.code(), ran.stdout.as_str()), (Some(STATUS), "value 4711\n"), "{}", ran.stderr);
}

/// Waits until `file` exists.
fn await_file(file: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    while !file.exists() {
        assert!(Instant::now() < end, "the program did not start");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program finds the sender of a signal in it, and what it sends itself does not come back.
#[test]
fn an_answer_to_a_signal_reaches_its_sender() {
    let dir = Scratch::new("launch-answers");
    compile("cc", "cli/launch/answers.c", dir.join("answers"), &["-O2", "-Wall", "-Wextra", "-Werror"]);
    Policy::of("answers").rule("global = \"answers\"", "policy = \"interleave\"").write(&dir, "p.toml");
    for command in [&[][..], COMMANDS[0], COMMANDS[3], COMMANDS[4]] {
        let _ = std::fs::remove_file(dir.join("ready"));
        let mut asking = plain(dir.join("answers"));
        asking.env("NUMAMMA_LIB", preload("apply").parent().expect("an absolute path"));
        asking.args(["ask", "ready"]).current_dir(&dir).stdin(Stdio::null());
        if !command.is_empty() {
            asking.arg(NUMAMMA).args(command).arg("--");
        }
        let ran = common::run(asking.args(["./answers", "work", "ready"]));
        let own = ran.stdout.lines().filter(|line| line.starts_with("signals") || line.starts_with("answers"));
        // Bare, the SIGUSR2 reaches the process that asks, which does not print it.
        let expected = ["signals 1, own 0", "answers 1, status 5"];
        assert_eq!(own.collect::<Vec<_>>(), expected, "{command:?}: {}", ran.stderr);
    }
}

/// A shell that sees an exit status of 130 goes on with a loop that Ctrl-C was to end, and one that sees 139 does not
/// tell of the crash.
#[test]
fn a_signal_that_ends_the_program_ends_the_command() {
    let dir = Scratch::new("launch-killed");
    compile("cc", "cli/profile/behave.c", dir.join("behave"), &["-O2", "-g"]);
    Policy::of("behave").rule("global = \"cells\"", "policy = \"interleave\"").write(&dir, "p.toml");
    let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGPIPE, libc::SIGXFSZ, 45];
    for signal in signals {
        let kill = ["kill".to_owned(), signal.to_string()];
        let bare = run(heeding(plain(dir.join("behave"))).args(&kill).current_dir(&dir));
        assert_eq!(bare.signal(), Some(signal));
        for command in &COMMANDS[..6] {
            let mut started = heeding(numamma(command));
            started.current_dir(&dir).args(["--", "./behave"]).args(&kill);
            let ran = run(&mut started);
            assert_eq!(ran.signal(), Some(signal), "{command:?}: {ran:?}");
        }
    }
}

/// A command that is stopped stops the program, and goes on with it.
#[test]
fn a_program_stops_and_goes_on_with_the_command() {
    let dir = Scratch::new("launch-stopped");
    let state = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    for command in [COMMANDS[0], COMMANDS[2]] {
        let _ = std::fs::remove_file(dir.join("pid"));
        let mut started = numamma(command);
        // A group whose parent is in another group of the session: others are not stopped.
        started.process_group(0).current_dir(&dir).stdin(Stdio::null());
        started.args(["--", "sh", "-c", "echo $$ > new; mv new pid; exec sleep 60"]);
        let child = started.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        await_file(&dir.join("pid"));
        let program = std::fs::read_to_string(dir.join("pid")).unwrap().trim().to_owned();
        let both_are = |stopped: bool| {
            let end = Instant::now() + Duration::from_secs(60);
            let are = || [&child.id().to_string(), &program].iter().all(|pid| (state(pid) == Some('T')) == stopped);
            while !are() {
                assert!(Instant::now() < end, "{command:?}: stopped {stopped}: {:?}", state(&program));
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        for (signal, stopped) in [(libc::SIGTSTP, true), (libc::SIGCONT, false), (libc::SIGTTIN, true)] {
            // SAFETY: a signal to a process that this test started and has not waited for.
            assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
            both_are(stopped);
        }
        for signal in [libc::SIGTERM, libc::SIGCONT] {
            // SAFETY: as above.
            assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        }
        let ran = common::wait(child);
        assert_eq!(ran.signal(), Some(libc::SIGTERM), "{command:?}: {}", ran.stderr);
    }
}

/// A program that wants its parent to trace it (PTRACE_TRACEME) stops for each signal, of which the parent is told.
#[test]
fn a_stop_of_the_program_is_not_its_end() {
    let dir = inherits("traced");
    compile("cc", "cli/launch/traced.c", dir.join("traced"), &["-O2"]);
    Policy::of("traced").rule("global = \"zeroes\"", "policy = \"interleave\"").write(&dir, "p.toml");
    let compare: &[&str] = &["compare", "-n", "1", "--policies", "interleave"];
    for command in [COMMANDS[0], COMMANDS[2], COMMANDS[5], compare] {
        let _ = std::fs::remove_file(dir.join("pid"));
        let mut started = numamma(command);
        started.current_dir(&dir).args(["--", "./traced"]).stdin(Stdio::null());
        let mut child = started.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        await_file(&dir.join("pid"));
        let pid: i32 = std::fs::read_to_string(dir.join("pid")).unwrap().trim().parse().unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        while !stat().contains(") t ") && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(300));
        let ended = child.try_wait().unwrap();
        // SAFETY: a signal to the program that this test has started.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        let ran = common::wait(child);
        assert_eq!(ended, None, "{command:?}: {}", ran.stderr);
        let killed = ran.signal() == Some(libc::SIGKILL) || ran.stderr.contains("killed by signal 9");
        assert!(killed, "{command:?}: {ran:?}");
    }
}

/// Of a terminal that is closed only the leader of its session is told, which is the command, without a shell.
/// `SIGCONT` follows, so that a program that is stopped is told, too.
#[test]
fn a_program_is_told_that_the_terminal_was_closed() {
    let dir = Scratch::new("launch-hung-up");
    let compare: &[&str] = &["compare", "-n", "1", "--policies", "interleave"];
    let script = "trap 'echo hup > got; exit 5' HUP; echo $$ > new; mv new pid; $1; while :; do sleep .02; done";
    for (command, stop) in [(COMMANDS[0], ":"), (COMMANDS[0], "kill -STOP $$"), (COMMANDS[4], ":"), (compare, ":")] {
        for file in ["pid", "got"] {
            let _ = std::fs::remove_file(dir.join(file));
        }
        let (person, side) = terminal();
        let mut started = numamma(command);
        started.current_dir(&dir).args(["--", "bash", "-c", script.replace("$1", stop).as_str()]);
        leads_session(started.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()), &side);
        let mut child = started.spawn().unwrap();
        drop((started, side));
        await_file(&dir.join("pid"));
        let pid = std::fs::read_to_string(dir.join("pid")).expect("the program has written it");
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        // A program that is hung up just before it stops itself would stay stopped.
        let end = Instant::now() + Duration::from_secs(20);
        while stop != ":" && !stat().contains(") T ") && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(200));
        drop(person);
        let code = soon(&mut child).code();
        assert!(dir.join("got").exists(), "{command:?}: {code:?}");
        assert!(command == compare || code == Some(STATUS), "{command:?}: {code:?}");
    }
}

/// A descriptor that is closed stays closed: the program's writes fail as they do without the command.
#[test]
fn closed_descriptors_stay_closed() {
    let dir = inherits("closed");
    let shell = |line: &str| {
        let mut command = plain("/bin/sh");
        command.env("NUMAMMA_LIB", preload("apply").parent().expect("an absolute path"));
        common::run(command.current_dir(&dir).args(["-c", line]).stdin(Stdio::null()))
    };
    let program = "sh -c 'echo hi || exit 5'";
    let alone = shell(&format!("{program} >&-"));
    assert_eq!(alone.code(), Some(STATUS), "{}", alone.stderr);
    for command in [COMMANDS[0], COMMANDS[3]] {
        let words = command.join(" ");
        let ran = shell(&format!("{NUMAMMA} {words} -- {program} >&-"));
        assert_eq!(ran.code(), Some(STATUS), "{words}: {}", ran.stderr);
    }
}

/// A parent may read what is in a pipe only when it knows that the program has ended.
#[test]
fn a_full_pipe_keeps_no_command_from_ending() {
    let dir = inherits("full-pipe");
    let (reader, mut writer) = io::pipe().expect("a pipe");
    let pipe = writer.as_raw_fd();
    // SAFETY: a system call on a descriptor that this test owns.
    let set = |flags: libc::c_int| unsafe { libc::fcntl(pipe, libc::F_SETFL, flags) };
    assert_eq!(set(libc::O_NONBLOCK), 0);
    while writer.write(&[b'x'; 4096]).is_ok_and(|written| written > 0) {}
    assert_eq!(set(0), 0);
    for command in [COMMANDS[0], COMMANDS[3]] {
        let mut started = numamma(command);
        started.current_dir(&dir).args(["--", "./inherits", "out", "5"]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = started.stderr(writer.try_clone().expect("a descriptor")).spawn().unwrap();
        let status = soon(&mut child);
        assert_eq!(status.code(), Some(STATUS), "{command:?}");
    }
    drop(reader);
}

/// Timers, limits and real-time signals that are sent to the command alone are the program's, too.
#[test]
fn signals_that_would_end_the_command_reach_the_program() {
    let dir = inherits("signals");
    let script = "trap 'echo got; exit 5' ALRM XCPU RTMIN+3; : > out; while :; do sleep .02; done";
    let command = COMMANDS[0];
    for signal in [libc::SIGALRM, libc::SIGXCPU, libc::SIGRTMIN() + 3] {
        let _ = std::fs::remove_file(dir.join("out"));
        let mut started = numamma(command);
        started.current_dir(&dir).args(["--", "bash", "-c", script]).stdin(Stdio::null());
        let child = started.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while !dir.join("out").exists() {
            assert!(Instant::now() < end, "{command:?} did not start the program");
            std::thread::sleep(Duration::from_millis(5));
        }
        // SAFETY: a signal to a process that this test started and has not waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        let ran = common::wait(child);
        assert!(ran.stdout.contains("got"), "{command:?} {signal}: {ran:?}");
        assert_eq!(ran.code(), Some(5), "{command:?} {signal}: {}", ran.stderr);
    }
}

/// Every command, given a profile and a program.
const ALL: [&[&str]; 12] = [
    &["report", "t.prof"],
    &["report", "--json", "t.prof"],
    &["advise", "t.prof"],
    &["predict", "t.prof"],
    &["doctor"],
    &["topology"],
    &["topology", "--measure"],
    &["profile", "-o", "u.prof", "--", "true"],
    &["profile", "--sampler", "none", "-o", "u.prof", "--", "true"],
    &["run", "--policy", "p.toml", "--", "true"],
    &["verify", "--policy", "p.toml", "--", "true"],
    &["compare", "-n", "1", "--policies", "p.toml,interleave", "--", "true"],
];

/// As in prefixes of Nix, Guix, Spack or EESSI. The loader would end such a program with a line for each version.
#[test]
fn a_program_with_an_older_c_library_of_its_own_is_refused_in_one_line() {
    let dir = Scratch::new("launch-own-libc");
    Policy::new().rule("function = [\"?\"]", "policy = \"interleave\"").write(&dir, "p.toml");
    let libc = dir.join("libc.so.6");
    let map = format!("-Wl,--version-script,{}", source("cli/launch/own_libc.map").display());
    let library = ["-DLIBRARY", "-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libc.so.6", &map];
    compile("cc", "cli/launch/own_libc.c", libc.clone(), &library);
    let directory = format!("-Wl,-rpath,{}", dir.display());
    // The second name is that of loaders up to glibc 2.33.
    for name in ["ld-linux-x86-64.so.2", "ld-2.2.5.so"] {
        std::fs::copy("/lib64/ld-linux-x86-64.so.2", dir.join(name)).expect("glibc's loader is there");
        let loader = format!("-Wl,--dynamic-linker,{}", dir.join(name).display());
        let linked = ["-nostdlib", "-Wl,--no-as-needed", libc.to_str().expect("UTF-8"), &directory, &loader];
        compile("cc", "cli/launch/own_libc.c", dir.join("old"), &linked);
        for command in [0, 3, 5].map(|n| COMMANDS[n]) {
            let ran = run(numamma(command).arg("--").arg("./old").current_dir(&dir)).ended(126);
            assert!(ran.stderr.contains("whose C library is too old for"), "{ran:?}");
            assert_eq!((ran.stdout.as_str(), ran.stderr.lines().count()), ("", 1), "{ran:?}");
        }
    }
}

/// Largest exit status that a command has of itself: 126 and 127 tell that the program cannot be executed. A panic
/// has 101, a signal 128 and more.
fn is_own_status(code: Option<i32>) -> bool {
    code.is_some_and(|c| c <= 2 || c == 126 || c == 127)
}

/// Neither threads nor processes, few files, no file of any length, little memory: an answer, or a reason.
#[test]
fn no_command_panics_under_limits() {
    let dir = inherits("limits");
    let mut profile = numamma(&["profile", "-o", "t.prof", "--", "./inherits", "out", "0"]);
    common::run(profile.current_dir(&dir).stdin(Stdio::null())).success();
    std::fs::set_permissions(&*dir, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    // A limit of processes does not hold for root, so the commands run as a user who has no process yet.
    // SAFETY: a system call without arguments.
    let user = (unsafe { libc::geteuid() } == 0).then(|| 1_000_000_000 + std::process::id());
    let limits = [
        ("no thread", libc::RLIMIT_NPROC, 1),
        ("no process", libc::RLIMIT_NPROC, 0),
        ("8 files", libc::RLIMIT_NOFILE, 8),
        ("3 files", libc::RLIMIT_NOFILE, 3),
        ("address space", libc::RLIMIT_AS, 200 << 20),
        ("file size", libc::RLIMIT_FSIZE, 0),
        ("data", libc::RLIMIT_DATA, 4 << 20),
        ("too little data", libc::RLIMIT_DATA, 1 << 20),
    ];
    for (name, resource, value) in limits {
        for words in ALL {
            let mut command = numamma(words);
            command.current_dir(&dir).stdin(Stdio::null());
            if let Some(user) = user {
                command.uid(user);
            }
            let limited = move || {
                let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
                // SAFETY: the limit is readable.
                let rc = unsafe { libc::setrlimit(resource, &raw const limit) };
                if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
            };
            // SAFETY: the closure makes one system call.
            unsafe { command.pre_exec(limited) };
            let ran = common::run(command);
            let fault = ran.stderr.contains("panicked") || ran.stderr.contains("memory allocation of");
            assert!(!fault && is_own_status(ran.code()), "{name}: {words:?}: {}\n{}", ran.status, ran.stderr);
            let said = ran.stdout.len() + ran.stderr.len() > 0; // doctor answers on stdout
            assert!(ran.code() == Some(0) || said, "{name}: {words:?}: no reason");
        }
    }
}
