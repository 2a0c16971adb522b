//! Text for people page by page, as git shows its own.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use numamma_kernel::terminal;

use super::output;
use crate::launch::exit::Failure;

/// Where there is neither NUMAMMA_PAGER nor PAGER. The options end it where the text fits the screen, let colours pass
/// and leave the text on the screen.
const DEFAULT: &str = "less -FRX";
/// LESS, where the environment has none: the same options for a `less` that NUMAMMA_PAGER or PAGER name, as git does.
const LESS: &str = "FRX";
/// A shell's exit status when the command cannot be run, or found (POSIX).
const NOT_RUN: [i32; 2] = [126, 127];

/// Prints text as [`output::print`] does, through a pager where stdout is a terminal and `is_wanted`.
///
/// # Errors
/// When stdout cannot be written.
pub fn print(text: &str, styles: bool, is_wanted: bool) -> Result<(), Failure> {
    let command = if is_wanted && io::stdout().is_terminal() { command(|name| std::env::var_os(name)) } else { None };
    let shown = command.is_some_and(|command| through(&command, &terminal::block(text, styles)));
    if shown { Ok(()) } else { output::print(text, styles) }
}

/// The pager of the environment; none when it is empty or `cat`.
fn command(variable: impl Fn(&str) -> Option<OsString>) -> Option<OsString> {
    let named = variable("NUMAMMA_PAGER").or_else(|| variable("PAGER")).unwrap_or_else(|| DEFAULT.into());
    let is_none = matches!(named.as_bytes().trim_ascii(), b"" | b"cat");
    // A terminal that cannot move its cursor shows a pager's prompts between the lines.
    let is_dumb = variable("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    (!is_none && !is_dumb).then_some(named)
}

/// Whether a pager has shown the text.
fn through(command: &OsString, text: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        shell.env("LESS", LESS);
    }
    let Ok(mut pager) = shell.spawn() else { return false };
    // Ctrl-C is for the pager, which goes on: without this the shell would take the terminal while it is shown.
    // SAFETY: no handler is installed; the pager was started before and has the dispositions of this process.
    let before = unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    let ended = feed(&mut pager, text);
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGINT, before) };
    ended.is_ok_and(|status| !status.code().is_some_and(|code| NOT_RUN.contains(&code)))
}

/// Gives the pager all it reads, and waits for its end. One that stops reading has shown what was wanted.
fn feed(pager: &mut Child, text: &str) -> io::Result<ExitStatus> {
    if let Some(mut input) = pager.stdin.take() {
        let _ = input.write_all(text.as_bytes());
    }
    pager.wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_chooses_the_pager() {
        let with = |set: &[(&str, &str)]| {
            command(|name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value)))
                .map(|command| command.to_string_lossy().into_owned())
        };
        let term = ("TERM", "xterm");
        assert_eq!(with(&[term]).as_deref(), Some("less -FRX"));
        assert_eq!(with(&[term, ("PAGER", "more")]).as_deref(), Some("more"));
        assert_eq!(with(&[term, ("PAGER", "more"), ("NUMAMMA_PAGER", "most -x")]).as_deref(), Some("most -x"));
        assert_eq!(with(&[term, ("PAGER", "more"), ("NUMAMMA_PAGER", "")]), None);
        assert_eq!((with(&[term, ("PAGER", " cat ")]), with(&[("TERM", "dumb")]), with(&[])), (None, None, None));
    }
}
