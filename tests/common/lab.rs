//! The NUMA lab, for every test that needs nodes.

use std::path::Path;
use std::process::Command;

use super::{NUMAMMA, Ran, needs, run, source};

/// Names the build that the lab script installs.
const PREFIX: &str = "NUMAMMA_LAB_PREFIX";

/// The lab script, to be given options and a command. It installs this build, unless the environment names another.
pub fn command() -> Command {
    let mut lab = Command::new(source("lab/lab"));
    if std::env::var_os(PREFIX).is_none() {
        lab.env(PREFIX, Path::new(NUMAMMA).parent().expect("an absolute path"));
    }
    lab
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

    /// A still machine whose meter writes to `out`; none where qemu has no plugins.
    pub fn metered(nodes: u64, cpus: u64, out: &Path) -> Option<Lab> {
        let lab = Lab::still(nodes, cpus)?;
        let help = run(Command::new("qemu-system-x86_64").arg("-help")).stdout;
        if !help.contains("\n-plugin ") {
            assert!(std::env::var_os("CI").is_none(), "this qemu was built without plugins, and CI must have them");
            crate::common::skipped("the meter needs a qemu that was built with plugins (Debian's is)");
            return None;
        }
        Some(lab.options(&["--meter-out", out.to_str().expect("a path in UTF-8")]))
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
