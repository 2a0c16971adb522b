//! The NUMA lab, for every test that needs nodes.

use std::path::Path;
use std::process::Command;

use super::{Ran, needs, run, source};

/// The lab script, to be given options and a command. It installs what `make build` made.
pub fn command() -> Command {
    Command::new(source("lab/lab"))
}

/// Whether the lab can run; in CI its absence is a failure, elsewhere the test says that it is skipped.
pub fn available() -> bool {
    needs(&["qemu-system-x86_64", "busybox"], "the NUMA lab")
}

/// A machine of the lab that has not been booted.
pub struct Lab(Command);

impl Lab {
    /// A machine of `nodes` nodes with `cpus` CPUs each; none where the lab cannot run.
    pub fn new(nodes: u64, cpus: u64) -> Option<Lab> {
        let mut c = command();
        c.args(["--nodes", &nodes.to_string(), "--cpus-per-node", &cpus.to_string()]);
        available().then_some(Lab(c))
    }

    /// The same without the kernel's own moving of pages between nodes.
    pub fn still(nodes: u64, cpus: u64) -> Option<Lab> {
        Some(Lab::new(nodes, cpus)?.options(&["--sysctl", "kernel.numa_balancing=0"]))
    }

    /// Adds options of the script.
    pub fn options(mut self, options: &[&str]) -> Lab {
        self.0.args(options);
        self
    }

    /// Copies a program, script, directory or data file into the guest's working directory.
    pub fn add(mut self, path: impl AsRef<Path>) -> Lab {
        self.0.arg("--add").arg(path.as_ref());
        self
    }

    /// Boots and runs a command in the guest.
    pub fn run(mut self, command: &[&str]) -> Ran {
        run(self.0.arg("--").args(command))
    }
}
