//! The CPUs that a program was given, handed on to the programs that it starts.
//!
//! A child inherits the CPUs of the thread that forked it. Where an OpenMP runtime has bound that thread, the child
//! starts on one core, which neither the user nor a launcher intended. Therefore the library writes what the process
//! was given into [`GIVEN_ENV`], and a child uses that in place of its own affinity when it is a part of it and
//! - equal to the affinity that the constructors of the earlier program had left the main thread with, or
//! - equal to that of a thread of the program that wrote the variable, an ancestor which has an OpenMP runtime loaded,
//!   and a variable that binds OpenMP threads is set. (The runtime is loaded or binds threads only after main began.)
//!
//! Not covered: a program that is bound after main began and then replaces itself by exec without a fork; nothing is
//! left of it that could be asked.
//!
//! Every other affinity was set on purpose by a program that runs another (taskset, numactl, mpirun, srun): it is what
//! the child was given.

use core::ffi::c_char;
use std::env;
use std::ffi::CString;
use std::fs;
use std::iter;

use numamma_kernel::affinity::{CpuMask, MAX_CPUS};
use numamma_kernel::sys;
use numamma_plan::environment::GIVEN_ENV;
use numamma_plan::nodes;

use crate::threads::binding;

/// Parts of the names of OpenMP runtimes: GNU, LLVM, Intel.
const RUNTIMES: [&str; 3] = ["/libgomp", "/libomp", "/libiomp5"];

/// Bound of the walk to the writer of the variable.
const MOST_ANCESTORS: usize = 16;

/// The value of [`GIVEN_ENV`]: `process:given:before_main`, the last two as lists of CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandedOn {
    /// Id of the process that wrote the variable.
    pub process: u32,
    /// CPUs that it was given.
    pub given: Vec<u32>,
    /// CPUs of its main thread when the constructors had run.
    pub before_main: Vec<u32>,
}

impl HandedOn {
    fn parse(text: &str) -> Option<HandedOn> {
        let mut parts = text.split(':');
        let process = parts.next()?.parse().ok()?;
        let (given, before_main) = (ascending(parts.next()?)?, ascending(parts.next()?)?);
        parts.next().is_none().then_some(HandedOn { process, given, before_main })
    }

    fn text(&self) -> String {
        format!("{}:{}:{}", self.process, nodes::format_runs(&self.given), nodes::format_runs(&self.before_main))
    }

    /// Whether a process inherited the CPUs `at_exec` by accident; `of_ancestor` says whether [`HandedOn::process`] is
    /// an ancestor of which an OpenMP runtime has bound one thread to just these CPUs.
    fn is_accident(&self, at_exec: &[u32], of_ancestor: impl Fn() -> bool) -> bool {
        let part = at_exec.len() < self.given.len() && at_exec.iter().all(|cpu| self.given.binary_search(cpu).is_ok());
        part && (at_exec == self.before_main || of_ancestor())
    }
}

/// The numbers of a list of ascending CPUs; `None` for any other text. Anybody may have written the environment, so the
/// numbers are bounded before a range is expanded.
fn ascending(list: &str) -> Option<Vec<u32>> {
    let mut cpus: Vec<u32> = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last as usize >= MAX_CPUS || cpus.last().is_some_and(|&before| first <= before) {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The CPUs this process was given, when it started on the CPUs `at_exec`; true when these were inherited by accident.
pub fn given_cpus(at_exec: Vec<u32>) -> (Vec<u32>, bool) {
    match env::var(GIVEN_ENV).ok().as_deref().and_then(HandedOn::parse) {
        Some(from) if from.is_accident(&at_exec, || bound_by_ancestor(from.process, &at_exec)) => (from.given, true),
        _ => (at_exec, false),
    }
}

/// Whether `process` is an ancestor of this one, runs OpenMP threads that it was told to bind, and one of them may use
/// just `cpus`.
fn bound_by_ancestor(process: u32, cpus: &[u32]) -> bool {
    if !binding::is_asked_of_openmp() || !ancestors().any(|ancestor| ancestor == process) {
        return false;
    }
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    if !RUNTIMES.iter().any(|name| maps.contains(name)) {
        return false;
    }
    let mask = CpuMask::of(cpus);
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut ids = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.any(|id| CpuMask::of_thread(id) == Some(mask))
}

/// The parent, its parent and so on. Processes between this one and the writer of the variable are forks of the writer
/// and programs that the library is not loaded in (a static shell), so there are few.
fn ancestors() -> impl Iterator<Item = u32> {
    let parent = |&process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok().filter(|&id| id != 0)
    };
    iter::successors(Some(sys::parent()), parent).take(MOST_ANCESTORS)
}

unsafe extern "C" {
    /// environ(7).
    static mut environ: *mut *mut c_char;
}

/// Writes the variable for the programs that this process will start.
///
/// The list of variables is replaced by a longer one, which is never freed. setenv(3) is not called, because a program
/// may define its own that is not ready yet: bash keeps its variables by such functions.
pub fn export(given: &HandedOn) {
    let Ok(ours) = CString::new(format!("{GIVEN_ENV}={}", given.text())) else { return };
    let name = &ours.as_bytes()[..=GIVEN_ENV.len()];
    // SAFETY: runs in the constructor, before main; `environ` is null or a list of strings that ends with null, and a
    // list that replaces it stays for the life of the process.
    unsafe {
        let mut list: Vec<*mut c_char> = Vec::new();
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            if !core::ffi::CStr::from_ptr(*at).to_bytes().starts_with(name) {
                list.push(*at);
            }
            at = at.add(1);
        }
        list.extend([ours.into_raw(), core::ptr::null_mut()]);
        environ = list.leak().as_mut_ptr();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_read_as_it_was_written() {
        let sent = HandedOn { process: 7, given: (0..8).collect(), before_main: vec![0, 4] };
        assert_eq!(sent.text(), "7:0-7:0,4");
        assert_eq!(HandedOn::parse(&sent.text()), Some(sent));
        for bad in
            ["", "7", "7:0-7", "x:0-7:0", "7::0", "7:0:0:0", "7:0-4294967295:0", "7:8192:0", "7:3,1:0", "7:0-3,3:0"]
        {
            assert_eq!(HandedOn::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_what_a_runtime_bound_is_an_accident() {
        let from = HandedOn { process: 7, given: vec![0, 1, 2, 3], before_main: vec![0] };
        let accident = |at_exec: &[u32], parent: bool| from.is_accident(at_exec, || parent);
        assert!(accident(&[0], false) && accident(&[0], true));
        assert!(accident(&[2], true));
        assert!(!accident(&[2], false), "taskset -c 2");
        assert!(!accident(&[0, 1, 2, 3], true) && !accident(&[4], true) && !accident(&[0, 4], true));
        let unbound = HandedOn { process: 7, given: vec![0, 1], before_main: vec![0, 1] };
        assert!(!unbound.is_accident(&[0], || false) && !unbound.is_accident(&[0, 1], || true));
    }
}
