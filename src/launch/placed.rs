//! Starting a program with the apply library preloaded, after the checks that plain LD_PRELOAD cannot make.
//!
//! [`prepare`] reads the policy, checks it against this machine and the program, and finds the library;
//! [`Prepared::exec`] then replaces this process, so that what runs is exactly what plain LD_PRELOAD runs;
//! [`Prepared::spawn_and_wait`] keeps this process as a parent that forwards signals.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use numamma_plan::callsite::file_name;
use numamma_plan::environment::{POLICY_ENV, REPORT_ENV};
use numamma_plan::machine::Machine;
use numamma_plan::plan::node_list;
use numamma_plan::policy::{Policy, Program};
use numamma_plan::threads::explicit_lists;
use numamma_plan::{check, ranks};

use super::executable::Executable;
use super::exit::{Ended, Failure, wait_unreaped};
use super::invocation::Invocation;
use super::{executable, library, signals, wrapper};

/// Similarity (Jaro-Winkler) from which a word may have been meant, as in the command line's suggestions (clap_builder,
/// `suggestions::did_you_mean`).
const NEAR: f64 = 0.7;

/// A program and a policy that fit each other and this machine, ready to be started.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The program.
    pub executable: Executable,
    /// The policy, valid on this machine.
    pub policy: Policy,
    /// What the user may not expect and does not prevent the run.
    pub warning: Option<String>,
    /// How the placed program is started.
    pub invocation: Invocation,
}

/// Checks policy, program and library. `command` is the program and its arguments.
pub fn prepare(policy_path: &Path, command: &[OsString]) -> Result<Prepared, Failure> {
    let policy = read_policy(policy_path, &Machine::this()).map_err(Failure::usage)?;
    let program = command.first().ok_or_else(|| Failure::usage("no program was given"))?;
    let executable = executable::check(program)?;
    // A launcher needs no library: what it starts finds the name of the library in its environment.
    if executable.is_static && !policy.program.as_ref().is_some_and(|program| is_other(program, &executable)) {
        let names_none = policy.program.is_none();
        let or = if names_none {
            ", or name the program that it starts in the policy: [program] path = \"...\""
        } else {
            ""
        };
        return Err(Failure::cannot_execute(format!(
            "{} is statically linked: no library can be preloaded, so it cannot be placed; link it dynamically{or}. \
             `numamma profile` still works",
            executable.elf.display()
        )));
    }
    let library = library::find_for(&executable, "apply")?;
    let policy_path =
        policy_path.canonicalize().map_err(|e| Failure::usage(format!("{}: {e}", policy_path.display())))?;
    let warning = warning(&policy, &executable);
    let mut env = library::environment(&executable, &library);
    env.push((POLICY_ENV.into(), policy_path.into_os_string()));
    env.extend(absolute_report().map(|report| (REPORT_ENV.into(), report)));
    let invocation = Invocation { path: executable.path.clone(), argv: command.to_vec(), env };
    Ok(Prepared { executable, policy, warning, invocation })
}

/// The pattern of the report's name, absolute, when it is relative: the library makes it so in the processes in which
/// it is, and the program may be a static launcher. A `%` of the directory would have a meaning in the pattern.
fn absolute_report() -> Option<OsString> {
    let report = std::env::var_os(REPORT_ENV).filter(|name| !name.is_empty() && Path::new(name).is_relative())?;
    let directory = std::env::current_dir().ok()?;
    (!directory.as_os_str().as_bytes().contains(&b'%')).then(|| directory.join(report).into_os_string())
}

/// Reads a policy and checks its node lists against `machine`.
pub fn read_policy(path: &Path, machine: &Machine) -> Result<Policy, String> {
    let show = path.display();
    let text = numamma_plan::policy_file::read(path)
        .map_err(|e| format!("{show}: cannot read the policy: {e}; `numamma advise > policy.toml` writes one"))?;
    let policy = check::parse(&text).map_err(|e| format!("{show}: {e}{}", did_you_mean(&e.message)))?;
    if let Some(threads) = &policy.threads {
        explicit_lists(&threads.bind, machine).map_err(|e| format!("{show}: threads: bind: {e}"))?;
    }
    let existing = machine.memory_node_ids();
    let rank = ranks::this_rank();
    for rule in policy.objects.iter().filter(|r| ranks::applies(r.ranks.as_deref(), rank)) {
        let available = machine.available(&existing);
        let mut places = std::iter::once(&rule.place).chain(rule.phases.values());
        // How many threads there will be is not known; the nodes are the same.
        if let Some(e) = places.find_map(|place| node_list(place, available, 1).err()) {
            return Err(format!("{show}: object {}: {e}", rule.name()));
        }
    }
    Ok(policy)
}

/// The nearest of the words that a message lists for one that is not known: "unknown field `globl`, expected one of
/// ...".
fn did_you_mean(message: &str) -> String {
    let mut words = message.split('`').skip(1).step_by(2);
    let unknown = words.next().filter(|_| message.starts_with("unknown ")).unwrap_or_default();
    let near = words.map(|word| (strsim::jaro_winkler(unknown, word), word)).max_by(|a, b| a.0.total_cmp(&b.0));
    near.filter(|n| n.0 >= NEAR).map_or_else(String::new, |(_, word)| format!("; did you mean `{word}`?"))
}

/// Whether a program is neither the policy's nor another build of it.
fn is_other(program: &Program, executable: &Executable) -> bool {
    let same_build = program.build_id.is_some() && program.build_id == executable.build_id;
    !same_build && file_name(&program.path) != file_name(&executable.elf.to_string_lossy())
}

fn warning(policy: &Policy, executable: &Executable) -> Option<String> {
    let program = policy.program.as_ref()?;
    // Of another build of the same program the library itself warns when it loads. A script or launcher is expected to
    // be another program.
    (is_other(program, executable) && !wrapper::starts_programs(executable)).then(|| {
        let (path, name, elf) = (&program.path, file_name(&program.path), executable.elf.display());
        format!("the policy is for {path}, this is {elf}: only processes named {name} that it starts will be placed")
    })
}

impl Prepared {
    /// Why the program that is started is none that the policy places, if so: what a run without a report means.
    pub fn other_program(&self) -> Option<String> {
        let (path, elf) = (&self.policy.program.as_ref()?.path, self.executable.elf.display());
        let name = file_name(path);
        self.is_other_program().then(|| match wrapper::may_start_programs(&self.executable) {
            true => format!(
                "the policy is for {path}, and no process of {} was that program, or none ended by itself: it must start \
                 a program named {name}",
                self.executable.path.display()
            ),
            false => {
                format!("{elf} is not the policy's program ({path}): name that, or advise from a profile of this one")
            }
        })
    }

    fn is_other_program(&self) -> bool {
        self.policy.program.as_ref().is_some_and(|program| is_other(program, &self.executable))
    }

    /// Replaces this process by the placed program; returns only on failure.
    pub fn exec(&self) -> Failure {
        self.exec_failed(&self.invocation.exec())
    }

    fn exec_failed(&self, error: &std::io::Error) -> Failure {
        match error {
            // Not from the kernel: an argument that cannot be passed on.
            _ if error.raw_os_error().is_none() => Failure::usage(error.to_string()),
            _ => Failure::of_exec(&self.executable.path, error),
        }
    }

    /// Starts the placed program with a report file, forwards signals to it and waits until it has ended. Returns how
    /// it ended, and its process id.
    ///
    /// # Errors
    /// When it cannot be started or waited for.
    pub fn spawn_and_wait(&self, report: &Path) -> Result<(Ended, u32), Failure> {
        let mut command = self.invocation.command();
        command.env(REPORT_ENV, report);
        signals::hold_signals();
        let mut child = command.spawn().map_err(|e| self.exec_failed(&e))?;
        signals::forward_signals(child.id() as libc::pid_t);
        wait_unreaped(child.id());
        let status = child.wait();
        signals::forget_child();
        status
            .map(|s| (Ended::from(s), child.id()))
            .map_err(|e| Failure::usage(format!("cannot wait for the program: {e}")))
    }
}
