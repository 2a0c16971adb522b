//! A reader's directory with their programs, and an installation beside it.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use crate::common::{NUMAMMA, Ran, Scratch, compile, needs, plain, preload, root, run, run_within, source};

/// Time that one line of a document may take; on an idle machine each takes less than 5 s.
const LIMIT: Duration = Duration::from_secs(120);

/// The script that `./run.sh` is: most of the time is that of `app`.
const SCRIPT: &str = "#!/bin/sh\n./solver 5\n./app\n";

/// `bin` and `lib` as `make install` lays them out, `work` for the reader.
pub struct Desk(Scratch);

impl Desk {
    /// `name` must differ from that of every other test.
    pub fn new(name: &str) -> Desk {
        let dir = Scratch::new(name);
        for sub in ["bin", "lib", "work"] {
            std::fs::create_dir(dir.join(sub)).expect("the scratch directory is writable");
        }
        // A hard link, since the command looks for its libraries from the place where its file really is.
        std::fs::hard_link(NUMAMMA, dir.join("bin/numamma")).expect("it is below the same target directory");
        for kind in ["apply", "profile"] {
            symlink(preload(kind), dir.join(format!("lib/libnumamma-{kind}.so"))).expect("there is none yet");
        }
        let traced = [preload("profile").with_file_name("libnumamma_trace.so"), dir.join("lib/numamma-trace")];
        run(plain(root().join("scripts/trace-directory")).args(&traced)).success();
        let include = format!("-I{}", root().join("include").display());
        let flags = ["-O2", "-g", "-pthread", &include];
        let solver = compile("cc", "cli/documents/solver.c", dir.join("work/solver"), &flags);
        for name in ["app", "lu"] {
            std::fs::copy(&solver, dir.join("work").join(name)).expect("the scratch directory is writable");
        }
        dir.write_mode("work/run.sh", SCRIPT, 0o755);
        Desk(dir)
    }

    /// Runs the lines of one block, each in a shell of its own, and returns what they print. A block with MPI, or a
    /// line for fish, is for machines that have it.
    ///
    /// # Errors
    /// Which line failed, and how.
    pub fn run_block(&self, lines: &[String]) -> Result<String, String> {
        let mpi = |line: &String| line.contains("mpirun ");
        if lines.iter().any(mpi) && !needs(&["mpirun"], &format!("the block of {:?}", lines[0])) {
            return Ok(String::new());
        }
        let can_run = |line: &&String| !line.starts_with("fish ") || needs(&["fish"], &format!("the line {line:?}"));
        lines.iter().filter(can_run).map(|line| self.run(line)).collect()
    }

    fn run(&self, line: &str) -> Result<String, String> {
        let mut shell = self.shell();
        match line.contains("$FIRST") {
            true => shell.arg(source("cli/documents/attach.sh")).arg(line),
            false => shell.args(["-euo", "pipefail", "-c", line]),
        };
        let ran = run_within(shell, LIMIT, &self.0)?;
        let Ran { status, stdout, stderr, .. } = &ran;
        println!("$ {line}\n{stdout}{stderr}");
        // The loader goes on without a library that it does not find.
        match status.success() && !stderr.contains("cannot be preloaded") {
            true => Ok(format!("{stdout}{stderr}")),
            false => Err(format!("{line}: {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")),
        }
    }

    /// A shell after the installation, as its last lines say.
    fn shell(&self) -> Command {
        let own = |sub: &str| self.0.join(sub).display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = plain("bash");
        shell.current_dir(self.0.join("work")).env("PATH", format!("{}:{path}", own("bin")));
        shell.env("LD_LIBRARY_PATH", own("lib"));
        // A policy that cannot be applied fails the line, instead of leaving the program as it is.
        shell.env("NUMAMMA_STRICT", "1");
        // Open MPI starts as root, and more ranks than CPUs, only when told so.
        let mpi = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"];
        mpi.iter().for_each(|name| {
            shell.env(name, "1");
        });
        shell
    }
}
