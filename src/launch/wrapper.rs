//! Commands whose work is to start other programs: scripts, shells, make, launchers of MPI, env, time, interpreters.
//!
//! What is recorded of such a command is the program that it starts. Any program may start others; only those whose
//! name says so, and statically linked ones, are followed without being asked to, so that for all others nothing
//! changes.

use std::path::Path;

use super::executable::Executable;

/// Names of commands that start what their arguments or files say. Of an interpreter the program may be its own process
/// or one that it starts; the samples tell.
#[rustfmt::skip] // One group in a line.
const NAMES: [&str; 50] = [
    // Shells.
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "tcsh", "csh", "busybox",
    // Launchers of parallel jobs.
    "mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy", "orterun", "prterun", "srun", "aprun", "jsrun", "xargs",
    // Changes of the environment, limits and CPUs.
    "env", "time", "timeout", "nice", "ionice", "chrt", "nohup", "setsid", "stdbuf", "setarch", "numactl", "taskset",
    "hwloc-bind", "likwid-pin", "unshare", "prlimit", "choom", "setpriv", "runuser", "chroot",
    // Build and test tools.
    "make", "gmake", "ninja", "cmake", "ctest", "cargo",
    // Interpreters; those of VERSIONED besides.
    "ruby", "tclsh", "octave", "octave-cli",
];
/// Beginnings of names that a version follows: python3, python3.12, lua5.4.
const VERSIONED: [&str; 4] = ["python", "pypy", "perl", "lua"];

/// Whether the work of `program` is to start others: it is a script, or its name or that of its file says so.
pub fn starts_programs(program: &Executable) -> bool {
    let is_script = program.elf != program.path;
    let file = program.elf.canonicalize();
    is_script || is_known(&program.path) || file.is_ok_and(|file| is_known(&file))
}

/// Whether `program` is looked through without being asked to: also a statically linked one, of whose own memory
/// neither library could know anything.
pub fn may_start_programs(program: &Executable) -> bool {
    program.is_static || starts_programs(program)
}

/// Whether the file name of `path` is that of such a command.
pub fn is_known(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let versioned = |stem: &str| {
        let rest = name.strip_prefix(stem);
        rest.is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
    };
    NAMES.contains(&name) || VERSIONED.iter().any(|stem| versioned(stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_commands_that_start_others() {
        for name in
            ["/bin/sh", "/usr/bin/env", "make", "python", "perl", "python3", "/opt/x/python3.12", "mpirun", "lua5.4"]
        {
            assert!(is_known(Path::new(name)), "{name}");
        }
        for name in ["./app", "/usr/bin/shred", "pythonic", "python3-config", "makeup", "timer", ""] {
            assert!(!is_known(Path::new(name)), "{name}");
        }
    }
}
