//! Runs of commands.

use std::borrow::BorrowMut;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use numamma::launch::library;

/// The command of this build.
pub const NUMAMMA: &str = env!("CARGO_BIN_EXE_numamma");

/// Variables that place or preload, which a test must not inherit.
const INHERITED: [&str; 7] = [
    "LD_PRELOAD",
    "NUMAMMA_POLICY",
    "NUMAMMA_REPORT",
    "NUMAMMA_STRICT",
    "NUMAMMA_VERBOSE",
    "NUMAMMA_GIVEN",
    "NUMAMMA_LIB",
];

/// Time between two looks at a process that runs with a time limit.
const POLL: Duration = Duration::from_micros(500);

/// A preload library of this build, `apply` or `profile`. It is looked for from the running executable, the test.
pub fn preload(kind: &str) -> PathBuf {
    library::find(kind).unwrap_or_else(|e| panic!("{e}: run cargo build --workspace"))
}

/// A program on its own.
pub fn plain(program: impl AsRef<OsStr>) -> Command {
    let mut c = Command::new(program);
    INHERITED.iter().for_each(|name| {
        c.env_remove(name);
    });
    c
}

/// A program under the apply library.
pub fn placed(program: impl AsRef<OsStr>, policy: impl AsRef<OsStr>) -> Command {
    let mut c = plain(program);
    c.env("LD_PRELOAD", preload("apply")).env("NUMAMMA_POLICY", policy);
    c
}

/// `numamma ARGS` with the preload libraries of this build.
pub fn numamma(args: &[&str]) -> Command {
    let mut c = plain(NUMAMMA);
    c.args(args).env("NUMAMMA_LIB", preload("apply").parent().expect("an absolute path"));
    c
}

/// The command with the default action of the signals that nohup, or a shell in the background, has ignored for what it
/// starts.
pub fn heeding(mut c: Command) -> Command {
    let heed = || {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: the default action.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the closure makes async-signal-safe calls only.
    unsafe { c.pre_exec(heed) };
    c
}

/// What a command wrote, and how it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// The command line, for messages.
    command: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    fn of(command: String, out: &Output) -> Ran {
        Ran { command, status: out.status, stdout: text(&out.stdout), stderr: text(&out.stderr) }
    }

    /// Exit status; none when a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Panics unless the exit status is 0.
    pub fn success(self) -> Ran {
        self.ended(0)
    }

    /// Panics unless the exit status is `code`.
    pub fn ended(self, code: i32) -> Ran {
        let Ran { command, status, stdout, stderr } = &self;
        assert!(status.code() == Some(code), "{command}: {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
        self
    }

    /// Exit status as a shell gives it: 128 + the signal for a program that was killed.
    pub fn shell_code(&self) -> Option<i32> {
        self.code().or(self.signal().map(|n| 128 + n))
    }

    /// Lines on stderr: those of NumaMMA, and the others.
    pub fn messages(&self) -> (Vec<&str>, Vec<&str>) {
        self.stderr.lines().partition(|l| l.starts_with("numamma: "))
    }

    /// What it wrote to stdout, as JSON.
    pub fn json(&self) -> serde_json::Value {
        let Ran { command, stdout, stderr, .. } = self;
        serde_json::from_str(stdout)
            .unwrap_or_else(|e| panic!("{command}: {e}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"))
    }
}

/// Runs a command to its end.
pub fn run(mut command: impl BorrowMut<Command>) -> Ran {
    let command = command.borrow_mut();
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    Ran::of(format!("{command:?}"), &out)
}

/// Waits for a process that was started before, and for the end of its piped output.
pub fn wait(child: Child) -> Ran {
    let pid = child.id();
    let out = child.wait_with_output().unwrap_or_else(|e| panic!("process {pid}: {e}"));
    Ran::of(format!("process {pid}"), &out)
}

/// Runs a command in a process group of its own, which is killed after `limit`: then the error says that it hung.
/// Output goes through files in `dir`, so that a child which outlives the command does not hold a pipe open.
pub fn run_within(mut command: impl BorrowMut<Command>, limit: Duration, dir: &Path) -> Result<Ran, String> {
    let command = command.borrow_mut();
    let (out, err) = (dir.join("stdout"), dir.join("stderr"));
    let file = |path: &Path| Stdio::from(File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
    command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&err)).process_group(0);
    let started = Instant::now();
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let read = |path: &Path| std::fs::read(path).unwrap_or_default();
    loop {
        if let Some(status) = child.try_wait().expect("it is a child of this process") {
            return Ok(Ran::of(format!("{command:?}"), &Output { status, stdout: read(&out), stderr: read(&err) }));
        }
        if started.elapsed() > limit {
            // SAFETY: the group was made for this child, which has not been waited for.
            unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
            let _ = child.wait();
            return Err(format!("{command:?} hung; it wrote {:?}", text(&read(&out))));
        }
        std::thread::sleep(POLL);
    }
}

/// Output as text; what is not UTF-8 is replaced.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether a command is in PATH or in a directory of services, which users need not have in their PATH.
pub fn exists(tool: &str) -> bool {
    let look = format!("PATH=$PATH:/usr/sbin:/sbin:$(echo /usr/lib/postgresql/*/bin); command -v {tool}");
    Command::new("sh").args(["-c", &look]).output().is_ok_and(|o| o.status.success())
}

/// Whether a tool that a test needs is there. In CI its absence is a failure, elsewhere the test says that it is
/// skipped.
pub fn needs(tools: &[&str], what: &str) -> bool {
    let Some(missing) = tools.iter().find(|tool| !exists(tool)) else { return true };
    assert!(std::env::var_os("CI").is_none(), "{missing} is missing, and CI must have it: run `make setup`");
    skipped(&format!("{what} needs {missing} (make setup installs it)"));
    false
}

/// Says that something is not tested, because this machine does not have what it takes: privileges, control groups, a
/// setting of the kernel. The line is not kept back as the output of a test that passes is.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
