//! `numamma report`: objects, threads and first touch of a profile.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::report::{self, AccessFilter, DEFAULT_TOP, Options, Sort, View};

/// Name of a profile when none is given, as `numamma profile` writes it.
const DEFAULT_PROFILE: &str = "numamma.prof";
/// Width of a report that is not written to a terminal.
const PIPE_WIDTH: usize = 100;
/// Rows of a matrix that is not written to a terminal.
const PIPE_ROWS: usize = 24;
/// Lines of a terminal kept for what stands around a matrix.
const MATRIX_MARGIN: usize = 16;
/// Fewest and most rows of a matrix.
const MATRIX_ROWS: (usize, usize) = (8, 48);

/// Show what a profile holds: hot objects, their pattern, who touched them
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Profile to read
    #[arg(value_name = "PROF", default_value = DEFAULT_PROFILE)]
    profile: PathBuf,
    /// Order of the objects [default: cost; accesses when --access is given]
    #[arg(long, value_enum)]
    sort: Option<Sort>,
    /// Show at most N objects [default: 15, all with --json]
    #[arg(long, value_name = "N", conflicts_with = "all", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// Show every object and thread
    #[arg(long)]
    all: bool,
    /// One object in detail: its pages x threads, call stack and code (part of its name will do)
    #[arg(long, value_name = "NAME")]
    object: Option<String>,
    /// Count and classify only reads or only writes
    #[arg(long, value_enum, default_value_t = AccessFilter::All)]
    access: AccessFilter,
    /// JSON instead of text; sizes in bytes, times in seconds
    #[arg(long)]
    json: bool,
    /// Colours; auto looks at the terminal and NO_COLOR
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match render(&args) {
        Ok(text) => print(&text),
        Err(message) => {
            super::say(message);
            ExitCode::from(super::EXIT_USAGE)
        }
    }
}

fn render(args: &Args) -> Result<String, String> {
    let summary = super::load(&args.profile)?;
    let patterns = crate::detect::classify_accesses(&summary, args.access);
    let options = options(args);
    let view = View::new(&summary, &patterns, &options);
    let only = args.object.as_deref().map(|name| report::find::entry(&summary, name)).transpose()?;
    if args.json {
        return report::json::render(&view, only).map_err(|e| format!("the report cannot be written as JSON: {e}"));
    }
    Ok(match only {
        Some(entry) => report::object::render(&view, entry),
        None => report::text::render(&view),
    })
}

/// What the command line means here and now.
fn options(args: &Args) -> Options {
    let (width, height) = terminal_size();
    let by_access = args.access != AccessFilter::All;
    let default_top = if args.json { None } else { Some(DEFAULT_TOP) };
    let profile = args.profile.to_string_lossy();
    Options {
        sort: args.sort.unwrap_or(if by_access { Sort::Accesses } else { Sort::Cost }),
        top: if args.all { None } else { args.top.map(|n| n as usize).or(default_top) },
        access: args.access,
        width,
        height,
        color: match args.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => color_is_welcome(),
        },
        profile: (profile != DEFAULT_PROFILE).then(|| profile.into_owned()),
    }
}

/// <https://no-color.org>: any value but the empty one asks for no colours.
pub(super) fn color_is_welcome() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    io::stdout().is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_some_and(|t| t != "dumb")
}

/// Columns of the terminal and rows for a matrix; COLUMNS where stdout is none.
pub(super) fn terminal_size() -> (usize, usize) {
    // SAFETY: winsize is plain data for which all zeroes is a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: TIOCGWINSZ writes one winsize to the pointer, which is valid for the call; on anything but a
    // terminal it fails and writes nothing.
    let rc = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    if rc == 0 && size.ws_col > 0 {
        let rows = usize::from(size.ws_row).saturating_sub(MATRIX_MARGIN).clamp(MATRIX_ROWS.0, MATRIX_ROWS.1);
        return (size.ws_col.into(), rows);
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|c| c.trim().parse().ok()).filter(|&c| c > 0);
    (columns.unwrap_or(PIPE_WIDTH), PIPE_ROWS)
}

/// Writes data to stdout. A reader that has seen enough (`| head`) is no error.
pub(super) fn print(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            super::say(format!("stdout: {e}; the output is incomplete"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
