//! Writing what a command produced, and what the terminal can show.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use numamma_kernel::output_file::{self, Pipes};
use numamma_kernel::terminal;
use serde::Serialize;

use crate::launch::exit::Failure;

/// Width of a report that is not written to a terminal.
const PIPE_WIDTH: usize = 100;
/// Rows of a matrix that is not written to a terminal.
const PIPE_ROWS: usize = 24;
/// Lines of a terminal left for the text around a matrix.
const MATRIX_MARGIN: usize = 16;
/// Fewest and most rows of a matrix.
const MATRIX_ROWS: (usize, usize) = (8, 48);

/// Writes data in a format that has escapes of its own to `path`, or to stdout where there is none. The data must not
/// hold a character that [`terminal::is_shown`] refuses, see [`json`] and [`crate::advise::toml`].
///
/// # Errors
/// When the file or stdout cannot be written.
pub fn write(path: Option<&Path>, text: &str) -> Result<(), String> {
    match path {
        Some(path) => file(path, text),
        None => to_stdout(&terminal::block(text, false)),
    }
}

/// `what`, which the message of an error names, as JSON for scripts.
///
/// # Errors
/// Those of serde_json; the types that are written cause none.
pub fn json(what: &str, value: &impl Serialize) -> Result<String, String> {
    let text = serde_json::to_string_pretty(value).map_err(|e| format!("{what} cannot be written as JSON: {e}"))?;
    Ok(escaped(&text) + "\n")
}

/// JSON with escapes for what is not shown: outside of strings there is none but the line breaks of the layout, and
/// inside them serde_json leaves no raw line break.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || terminal::is_shown(c) {
            out.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out += &format!("\\u{unit:04x}"));
        }
    }
    out
}

/// Writes text for people to stdout; with `styles` the text may hold those of a report.
///
/// # Errors
/// When stdout cannot be written.
pub fn print(text: &str, styles: bool) -> Result<(), Failure> {
    to_stdout(&terminal::block(text, styles)).map_err(Failure::of_work)
}

/// Writes a file, or to a device or pipe, as [`output_file`] says.
///
/// # Errors
/// When it cannot be written.
pub fn file(path: &Path, text: &str) -> Result<(), String> {
    let written = output_file::write(path, text.as_bytes(), Pipes::Wait);
    written.map_err(|e| format!("{}: cannot write it: {e}", path.display()))
}

/// Writes a file that is no text.
///
/// # Errors
/// When it cannot be written.
pub fn bytes(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let written = output_file::write(path, bytes, Pipes::Wait);
    written.map_err(|e| format!("{}: cannot write it: {e}", path.display()))
}

/// Writes a file; an older one is kept as FILE.old.
///
/// # Errors
/// When it cannot be written.
pub fn keeping_old(path: &Path, text: &str) -> Result<(), String> {
    let written = output_file::create_keeping_old(path, text.as_bytes()).map(drop);
    written.map_err(|e| format!("{}: cannot write it: {e}", path.display()))
}

/// Writes to stdout, byte for byte, what a program printed.
///
/// # Errors
/// When it cannot be written. A reader that stops early is no error.
pub fn of_program(printed: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(printed).and_then(|()| out.flush());
    written.or_else(|e| if e.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(e) })
}

fn to_stdout(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    told(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes the help or the version that was asked for to stdout.
///
/// # Errors
/// When stdout cannot be written.
pub fn help(asked: &clap::Error) -> Result<(), String> {
    told(asked.print().and_then(|()| io::stdout().flush()))
}

/// What came of writing to stdout, as a message.
fn told(written: io::Result<()>) -> Result<(), String> {
    match written {
        // A reader that stops early (`| head`) is no error.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("stdout: {e}; the output is incomplete")),
        _ => Ok(()),
    }
}

/// <https://no-color.org>: any value but the empty one asks for no colours.
pub fn color_is_welcome() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    io::stdout().is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_some_and(|t| t != "dumb")
}

/// Columns of the terminal that `fd` is; COLUMNS where it is none, if that is set.
pub fn columns(fd: libc::c_int) -> Option<usize> {
    let of_terminal = window(fd).map(|size| usize::from(size.ws_col));
    of_terminal.or_else(|| std::env::var("COLUMNS").ok()?.trim().parse().ok()).filter(|&c| c > 0)
}

/// The size of the terminal that `fd` is.
fn window(fd: libc::c_int) -> Option<libc::winsize> {
    // SAFETY: winsize is plain data for which all zeroes is a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: TIOCGWINSZ writes one winsize to the pointer, which is valid for the call; on anything but a
    // terminal it fails and writes nothing.
    let rc = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &mut size) };
    (rc == 0 && size.ws_col > 0).then_some(size)
}

/// Columns of the terminal and rows for a matrix; COLUMNS where stdout is none.
pub fn terminal_size() -> (usize, usize) {
    if let Some(size) = window(libc::STDOUT_FILENO) {
        let rows = usize::from(size.ws_row).saturating_sub(MATRIX_MARGIN).clamp(MATRIX_ROWS.0, MATRIX_ROWS.1);
        return (size.ws_col.into(), rows);
    }
    (columns(libc::STDOUT_FILENO).unwrap_or(PIPE_WIDTH), PIPE_ROWS)
}
