//! `numamma generate-docs`: manual pages and shell completions from the command line's own table, for `make install`.
//! Hidden, as only `make install` needs it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::Shell;
use numamma_kernel::output_file::{self, Pipes};

use crate::launch::exit::Failure;

/// Write the manual pages and shell completions under a directory, laid out as in share/
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory to write to; created if it does not exist
    directory: PathBuf,
}

/// Where each shell searches, below share/.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/numamma"),
    (Shell::Zsh, "zsh/site-functions/_numamma"),
    (Shell::Fish, "fish/vendor_completions.d/numamma.fish"),
];

/// Runs the command.
///
/// # Errors
/// When a file cannot be written.
pub fn run(args: Args) -> Result<u8, Failure> {
    generate(&args.directory)
        .map(|()| 0)
        .map_err(|e| Failure::usage(format!("cannot write the documentation in {}: {e}", args.directory.display())))
}

fn generate(directory: &Path) -> io::Result<()> {
    let man = directory.join("man/man1");
    fs::create_dir_all(&man)?;
    clap_mangen::generate_to(super::Cli::command(), &man)?;
    for (shell, path) in COMPLETIONS {
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut super::Cli::command(), "numamma", &mut text);
        output_file::write(&path, &text, Pipes::Wait)?;
    }
    Ok(())
}
