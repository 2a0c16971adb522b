//! The policies that can be compared, and how the program is started under each.
//!
//! - `first-touch`: the bare program.
//! - `interleave`: the pages of the process go round robin to the nodes with memory, as `numactl --interleave=all` does
//!   (set_mempolicy(2), inherited over exec).
//! - `block-naive`: every object of the policy files that are compared too, cut into one block per node (block = size /
//!   nodes), with the thread binding of the first of the files, so that only the blocks differ. Without
//!   a policy file: the program's large variables, and its threads are left alone.
//! - `advised`: the policy file [`ADVISED_FILE`], which the caller has written.
//! - a policy file: as `numamma run` starts it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use numamma_kernel::policy::{Mode, TaskPolicy};
use numamma_kernel::terminal::shell_word;
use numamma_plan::environment::{POLICY_ENV, REPORT_ENV};
use numamma_plan::machine::Machine;
use numamma_plan::policy::{ObjectRule, POLICY_VERSION, Place, Policy, PolicyKind, Program, Size};

use crate::advise::unprofiled;
use crate::launch::executable::{self, Executable};
use crate::launch::exit::Failure;
use crate::launch::invocation::Invocation;
use crate::launch::placed::{self, Prepared};
use crate::profile::space::static_data::StaticData;
use crate::topology::last_level_cache;

/// Names of policies that are not files, and need none.
pub const WORDS: [&str; 3] = [FIRST_TOUCH, INTERLEAVE, BLOCK_NAIVE];
/// The bare program.
pub const FIRST_TOUCH: &str = "first-touch";
/// Every page of the program round robin over the nodes.
pub const INTERLEAVE: &str = "interleave";
const BLOCK_NAIVE: &str = "block-naive";
/// What is advised for the program.
pub const ADVISED: &str = "advised";
/// Name of its policy, in the directory of temporary files.
pub const ADVISED_FILE: &str = "advised.toml";

/// A policy under which the program can be run.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Name of a policy or of a policy file, as typed.
    pub name: String,
    /// Whether the apply library is preloaded.
    pub places: bool,
    /// See [`Prepared::other_program`].
    pub other_program: Option<String>,
    /// The program, with the apply library for a policy file.
    invocation: Invocation,
    /// The memory policy that the process starts with.
    memory_policy: Option<TaskPolicy>,
}

/// The candidates, and what the user must know of them.
#[derive(Debug, Clone)]
pub struct Candidates {
    /// first-touch first, then in the order of the command line.
    pub list: Vec<Candidate>,
    /// One line each.
    pub notes: Vec<String>,
}

/// Checks everything that can be checked before the first run. `asked`: names of policies and policy files; `explicit`:
/// the user typed them, so that one which cannot be used is an error instead of left out. `dir` takes temporary files.
///
/// # Errors
/// The reason and the exit status: a policy that does not exist or does not fit, a program that cannot be run.
pub fn prepare(asked: &[String], explicit: bool, command: &[OsString], dir: &Path) -> Result<Candidates, Failure> {
    let program = command.first().ok_or_else(|| Failure::usage("no program was given"))?;
    let executable = executable::check(program)?;
    let asked = checked(asked).map_err(Failure::usage)?;
    let mut out = Candidates { list: Vec::new(), notes: Vec::new() };
    let invocation = Invocation { path: executable.path.clone(), argv: command.to_vec(), env: Vec::new() };
    let bare =
        Candidate { name: FIRST_TOUCH.to_owned(), places: false, other_program: None, invocation, memory_policy: None };
    let placed = |p: Prepared| {
        let other_program = p.other_program();
        Candidate { places: true, other_program, invocation: p.invocation, ..bare.clone() }
    };
    out.list.push(bare.clone());
    let files: Vec<&String> = asked.iter().filter(|name| !WORDS.contains(&name.as_str())).collect();
    let prepared = files.iter().map(|f| placed::prepare(&file(f, dir), command)).collect::<Result<Vec<_>, _>>()?;
    for (file, p) in files.iter().zip(&prepared) {
        out.notes.extend(p.warning.iter().map(|w| format!("{file}: {w}")));
    }
    let policies: Vec<&Policy> = prepared.iter().map(|p| &p.policy).collect();
    for name in &asked {
        let made = match name.as_str() {
            FIRST_TOUCH => continue,
            INTERLEAVE => interleave().map(|policy| Candidate { memory_policy: Some(policy), ..bare.clone() }),
            BLOCK_NAIVE => naive(&executable, &policies, &mut out.notes)
                .and_then(|policy| write(&policy, dir))
                .and_then(|path| placed::prepare(&path, command).map_err(|e| e.message))
                .map(placed),
            _ => {
                let found = files.iter().position(|f| *f == name).and_then(|i| prepared.get(i)).cloned();
                found.map(placed).ok_or_else(|| format!("{name}: not prepared"))
            }
        };
        match made {
            Ok(candidate) => out.list.push(Candidate { name: name.clone(), ..candidate }),
            Err(reason) if explicit => return Err(Failure::usage(format!("{name}: {reason}"))),
            Err(reason) => out.notes.push(format!("{name} is left out: {reason}")),
        }
    }
    Ok(out)
}

/// Similarity from which a word may have been meant, as for names of objects.
const NEAR: f64 = 0.8;

/// The policy file of a name.
fn file(name: &str, dir: &Path) -> PathBuf {
    if name == ADVISED { dir.join(ADVISED_FILE) } else { name.into() }
}

/// The word that was mistyped, by similarity (Jaro-Winkler); files have an ending.
fn meant(name: &str) -> Option<&'static str> {
    let similarity = |word: &str| strsim::jaro_winkler(name, word);
    let nearest = WORDS.into_iter().chain([ADVISED]).max_by(|a, b| similarity(a).total_cmp(&similarity(b)))?;
    (!name.contains('.') && similarity(nearest) >= NEAR).then_some(nearest)
}

/// The names, after a check that each stands once and is known or a file.
fn checked(asked: &[String]) -> Result<Vec<String>, String> {
    let mut seen: Vec<String> = Vec::new();
    for name in asked.iter().map(|n| n.trim()).filter(|n| !n.is_empty()) {
        if seen.iter().any(|s| s == name) {
            return Err(format!("--policies names {name} twice; once is enough, -n sets the number of runs"));
        }
        if !WORDS.contains(&name) && name != ADVISED && !Path::new(name).exists() {
            if let Some(word) = meant(name) {
                let words = WORDS.join(", ");
                return Err(format!(
                    "--policies: there is no policy file {name}; did you mean {word}? The words are {words}, {ADVISED}"
                ));
            }
            return Err(format!(
                "--policies: there is no policy file {name}; `numamma advise -o {}` writes one, and the words are \
                 {}, {ADVISED}",
                shell_word(name),
                WORDS.join(", ")
            ));
        }
        seen.push(name.to_owned());
    }
    if seen.is_empty() {
        return Err(format!(
            "--policies names no policy; write some of {}, {ADVISED} or policy files",
            WORDS.join(", ")
        ));
    }
    Ok(seen)
}

/// All nodes with memory, after the kernel has accepted the policy in a thread of its own: a memory policy belongs to a
/// thread.
fn interleave() -> Result<TaskPolicy, String> {
    let policy = TaskPolicy::of(Mode::Interleave, &Machine::this().memory_node_ids());
    let thread = std::thread::Builder::new().spawn(move || set(&policy)).map_err(|e| {
        format!(
            "the kernel could not be asked for set_mempolicy: no thread: {e}; raise the limit of processes (ulimit -u)"
        )
    })?;
    match thread.join() {
        Ok(Ok(())) => Ok(policy),
        Ok(Err(e)) => Err(format!(
            "the kernel refuses set_mempolicy: {e}; in a container try docker run --cap-add SYS_NICE (`numamma doctor` \
             says more)"
        )),
        Err(_) => Err("the kernel could not be asked for set_mempolicy".to_owned()),
    }
}

/// Only makes a system call and reads errno, so it may be called between fork and exec.
fn set(policy: &TaskPolicy) -> io::Result<()> {
    policy.set().map_err(io::Error::from_raw_os_error)
}

/// The policy of block-naive.
fn naive(executable: &Executable, files: &[&Policy], notes: &mut Vec<String>) -> Result<Policy, String> {
    let mut objects: Vec<ObjectRule> = Vec::new();
    for rule in files.iter().flat_map(|p| &p.objects) {
        let same = |r: &ObjectRule| {
            r.global == rule.global
                && r.module == rule.module
                && r.callsite == rule.callsite
                && r.function == rule.function
        };
        if rule.place.policy != PolicyKind::Default && !objects.iter().any(same) {
            let place = Place { policy: PolicyKind::Block, nodes: Some("all".into()), ..Place::default() };
            objects.push(ObjectRule { place, pattern: None, why: None, ..rule.clone() });
        }
    }
    if let Some(first) = files.first() {
        if objects.is_empty() {
            return Err("the policy files place no object".to_owned());
        }
        return Ok(Policy { objects, ..(*first).clone() });
    }
    if executable.is_static {
        return Err("the program is statically linked, so nothing can be preloaded to place its variables".to_owned());
    }
    let least = last_level_cache::of_this_machine().unwrap_or(last_level_cache::DEFAULT);
    let data = StaticData::read(&executable.elf, least)?;
    let objects = unprofiled::block_naive(&data.objects);
    if objects.is_empty() {
        return Err(format!(
            "{} has no variable of at least {} (the last-level cache) to cut into blocks; name a policy file, whose \
             objects it takes",
            data.program,
            Size(least)
        ));
    }
    let names: Vec<&str> = objects.iter().map(ObjectRule::name).collect();
    notes.push(format!("block-naive cuts these large variables into a block per node: {}", names.join(" ")));
    let program = Some(Program { path: data.program, build_id: data.build_id });
    Ok(Policy {
        version: POLICY_VERSION,
        program,
        machine: None,
        threads: None,
        teams: Vec::new(),
        phases: Vec::new(),
        objects,
    })
}

fn write(policy: &Policy, dir: &Path) -> Result<PathBuf, String> {
    let path = dir.join("block-naive.toml");
    let text = toml::to_string(policy).map_err(|e| format!("its policy cannot be written: {e}"))?;
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

impl Candidate {
    /// The program, to be spawned under the policy. `report`: the file that the apply library writes.
    pub fn command(&self, report: Option<&Path>) -> Command {
        let mut command = self.invocation.command();
        if !self.places {
            // An apply library that the user preloads must not place anything here.
            command.env_remove(POLICY_ENV);
        }
        match report {
            Some(path) if self.places => command.env(REPORT_ENV, path),
            _ => command.env_remove(REPORT_ENV),
        };
        let policy = self.memory_policy;
        // All candidates have a closure: std starts a process with one in another way, which takes another time.
        // SAFETY: `set` makes one system call and allocates nothing; the closure owns the policy.
        unsafe { command.pre_exec(move || policy.as_ref().map_or(Ok(()), set)) };
        command
    }

    /// The file that execve is given.
    pub fn program(&self) -> &Path {
        &self.invocation.path
    }
}
