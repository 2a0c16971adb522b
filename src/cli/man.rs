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
    let mut root = super::Cli::command();
    root.build();
    for command in root.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
        let path = man.join(format!("numamma-{}.1", command.get_name()));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            // The page of `help` itself has another name.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        let text = with_synopsis(&text, &command.render_usage().to_string());
        output_file::write(&path, text.as_bytes(), Pipes::Wait)?;
    }
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

/// A manual page with the usage of the help as its synopsis, which has `--` and the values of the options, and with the
/// line breaks of lists and commands: lines that begin with two spaces.
fn with_synopsis(page: &str, usage: &str) -> String {
    let usage = usage.trim_start_matches("Usage:").lines().map(|line| line.trim().replace('-', "\\-"));
    let usage: Vec<String> = usage.collect();
    let mut text = String::new();
    let (mut in_synopsis, mut filled) = (false, true);
    for line in page.lines() {
        let section = line.strip_prefix(".SH ");
        in_synopsis = section.map_or(in_synopsis, |name| name == "SYNOPSIS");
        let keeps = line.starts_with("  ");
        if keeps == filled && (keeps || !line.is_empty()) {
            text += if keeps { ".nf\n" } else { ".fi\n" };
            filled = !keeps;
        }
        if section == Some("SYNOPSIS") {
            text += &format!("{line}\n.nf\n{}\n.fi\n", usage.join("\n"));
        } else if !in_synopsis {
            text += &format!("{line}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synopsis_has_the_usage_and_lists_keep_their_lines() {
        let page = ".SH NAME\na\n.SH SYNOPSIS\n\\fBa\\fR [x]\n.SH DESCRIPTION\nlist:\n  b  c\n  d\nend\n";
        let expected = ".SH NAME\na\n.SH SYNOPSIS\n.nf\na [\\-\\-] P\na \\-\\-pid N\n.fi\n.SH DESCRIPTION\nlist:\n\
                        .nf\n  b  c\n  d\n.fi\nend\n";
        assert_eq!(with_synopsis(page, "Usage: a [--] P\n       a --pid N"), expected);
    }
}
