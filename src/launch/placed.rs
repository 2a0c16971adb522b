//! Starting a program with the apply library preloaded, after the checks that plain LD_PRELOAD cannot make.
//!
//! [`prepare`] reads the policy, checks it against this machine and the target, and finds the library;
//! [`Prepared::exec`] then replaces this process, so that what runs is exactly what plain LD_PRELOAD runs;
//! [`Prepared::spawn_and_wait`] keeps this process as a parent that forwards signals.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

use numamma_plan::callsite::file_name;
use numamma_plan::environment::{POLICY_ENV, REPORT_ENV};
use numamma_plan::machine::Machine;
use numamma_plan::policy::Policy;
use numamma_plan::threads::explicit_lists;
use numamma_plan::{check, nodes, ranks};

use super::exit::Failure;
use super::{library, target};

/// Signals a parent passes on to the program it waits for.
const FORWARDED: [libc::c_int; 7] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGCONT];

/// Everything that is needed to start.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The program.
    pub target: target::Target,
    /// The policy, valid on this machine.
    pub policy: Policy,
    /// What may surprise the user but does not prevent the run.
    pub warnings: Vec<String>,
    policy_path: PathBuf,
    library: PathBuf,
    command: Vec<OsString>,
}

/// Checks policy, target and library. `command` is the program and its arguments.
pub fn prepare(policy_path: &Path, command: &[OsString]) -> Result<Prepared, Failure> {
    let policy = read_policy(policy_path, &Machine::this()).map_err(Failure::usage)?;
    let program = command.first().ok_or_else(|| Failure::usage("no program was given"))?;
    let target = target::check(program)?;
    if target.is_static {
        return Err(Failure::cannot_execute(format!(
            "{} is statically linked: no library can be preloaded, so it cannot be placed; link it dynamically. `numamma profile` still works",
            target.elf.display()
        )));
    }
    let library = library::find("apply").map_err(|e| Failure::usage(e.to_string()))?;
    let policy_path =
        policy_path.canonicalize().map_err(|e| Failure::usage(format!("{}: {e}", policy_path.display())))?;
    let warnings = surprises(&policy, &target);
    Ok(Prepared { target, policy, warnings, policy_path, library, command: command.to_vec() })
}

/// Reads a policy and checks its node lists against `machine`.
pub fn read_policy(path: &Path, machine: &Machine) -> Result<Policy, String> {
    let show = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|e| format!("{show}: cannot read the policy: {e}; `numamma advise > policy.toml` writes one"))?;
    let policy = check::parse(&text).map_err(|e| format!("{show}: {e}"))?;
    if let Some(threads) = &policy.threads {
        explicit_lists(&threads.bind, machine).map_err(|e| format!("{show}: threads: bind: {e}"))?;
    }
    let existing = machine.memory_node_ids();
    let rank = ranks::this_rank();
    for rule in policy.objects.iter().filter(|r| ranks::applies(r.ranks.as_deref(), rank)) {
        let available = machine.available(&existing);
        let lists = std::iter::once(&rule.place).chain(rule.phases.values()).filter_map(|p| p.nodes.as_deref());
        if let Some(e) = lists.filter_map(|list| nodes::parse(list, available).err()).next() {
            return Err(format!("{show}: object {}: {e}", rule.name()));
        }
    }
    Ok(policy)
}

fn surprises(policy: &Policy, target: &target::Target) -> Vec<String> {
    let Some(program) = &policy.program else { return Vec::new() };
    let elf = target.elf.to_string_lossy();
    let same_build = program.build_id.is_some() && program.build_id == target.build_id;
    if same_build {
        return Vec::new();
    }
    if file_name(&program.path) != file_name(&elf) {
        return vec![format!(
            "the policy is for {}, this is {elf}: only processes named {} that it starts will be placed",
            program.path,
            file_name(&program.path)
        )];
    }
    Vec::new() // another build of the same program: the library itself says so when it loads
}

impl Prepared {
    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut env = library::environment(&self.target, &self.library);
        env.push((POLICY_ENV, self.policy_path.clone().into_os_string()));
        env
    }

    /// Replaces this process by the placed program; returns only on failure.
    pub fn exec(&self) -> Failure {
        let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        for (key, value) in self.environment() {
            environment.retain(|(k, _)| k != key);
            environment.push((key.into(), value));
        }
        let environment: Vec<OsString> = environment
            .into_iter()
            .map(|(mut pair, value)| {
                pair.push("=");
                pair.push(value);
                pair
            })
            .collect();
        let (Some(path), Some(argv), Some(envp)) =
            (c_string(self.target.path.as_os_str()), c_strings(&self.command), c_strings(&environment))
        else {
            return Failure::usage("an argument holds a NUL byte");
        };
        // Not std's exec: that one also empties the signal mask, which plain LD_PRELOAD would not.
        // SAFETY: the arrays end in a null pointer and all strings outlive the call. Rust's start-up ignores
        // SIGPIPE, which the program must not inherit.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::execve(path.as_ptr(), pointers(&argv).as_ptr(), pointers(&envp).as_ptr());
        }
        self.exec_failed(&std::io::Error::last_os_error())
    }

    fn exec_failed(&self, error: &std::io::Error) -> Failure {
        Failure::of_exec(&self.target.path, error)
    }

    /// The placed program, ready to be spawned.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.target.path);
        command.arg0(&self.command[0]).args(&self.command[1..]).envs(self.environment());
        command
    }

    /// Starts the placed program with a report file, forwards signals to it and waits for its end.
    pub fn spawn_and_wait(&self, report: &Path) -> Result<ExitStatus, Failure> {
        let mut command = self.command();
        command.env(REPORT_ENV, report);
        forward_signals(0);
        let mut child = command.spawn().map_err(|e| self.exec_failed(&e))?;
        CHILD.store(child.id() as i32, Ordering::SeqCst);
        let status = child.wait();
        forget_child();
        status.map_err(|e| Failure::usage(format!("cannot wait for the program: {e}")))
    }
}

/// The status a shell would report: the program's own, or 128 + signal.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap_or(1);
    (code & 0xff) as u8
}

static CHILD: AtomicI32 = AtomicI32::new(0);
/// The last of [`ENDING`] that came; 0: none.
static ENDED_BY: AtomicI32 = AtomicI32::new(0);
/// Signals by which somebody asks this process to end.
const ENDING: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// The signal that asked this process to end since [`forward_signals`] took over, if one did.
pub fn asked_to_end() -> Option<i32> {
    Some(ENDED_BY.load(Ordering::SeqCst)).filter(|s| *s != 0)
}

extern "C" fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // What the terminal sends (positive si_code) it has sent to the whole foreground group already.
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let by_process = unsafe { (*info).si_code } <= 0;
    if ENDING.contains(&signal) {
        ENDED_BY.store(signal, Ordering::SeqCst);
    }
    let child = CHILD.load(Ordering::SeqCst);
    if by_process && child > 0 {
        // SAFETY: kill is async-signal-safe and the child is not reaped while CHILD is set.
        unsafe { libc::kill(child, signal) };
    }
}

/// Signals that somebody sends to this process alone go on to `child` (0: not known yet); those of the terminal
/// reach it by themselves. None of them ends this process.
pub fn forward_signals(child: libc::pid_t) {
    CHILD.store(child, Ordering::SeqCst);
    for signal in FORWARDED {
        // SAFETY: an all-zero sigaction is valid; the handler only makes async-signal-safe calls. A signal that
        // is ignored stays ignored (nohup), as it would be for the program alone.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut now) != 0 || now.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = forward as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// The child is gone: its number may soon be somebody else's.
pub fn forget_child() {
    CHILD.store(0, Ordering::SeqCst);
}

fn c_string(text: &OsStr) -> Option<CString> {
    CString::new(text.as_bytes()).ok()
}

fn c_strings(list: &[OsString]) -> Option<Vec<CString>> {
    list.iter().map(|s| c_string(s)).collect()
}

fn pointers(list: &[CString]) -> Vec<*const libc::c_char> {
    list.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}
