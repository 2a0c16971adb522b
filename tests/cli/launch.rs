//! What a program is started with, and what is learnt of its end, whatever this process was started with: each command
//! that starts programs, compared with the program alone.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{self, Policy, Ran, Scratch, compile, numamma, plain};

/// Exit status of the program, which no command uses for itself.
const STATUS: i32 = 5;

/// The commands that start programs.
const COMMANDS: [&[&str]; 6] = [
    &["profile", "-o", "t.prof"],
    &["profile", "--follow", "-o", "t.prof"],
    &["profile", "--sampler", "none", "-o", "t.prof"],
    &["run", "--policy", "p.toml"],
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
    let _ = std::fs::remove_file(dir.join("out"));
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
