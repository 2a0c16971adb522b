//! `numamma export`: profiles for other tools.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use numamma_kernel::output_file::Replacement;

use super::input::Profiles;
use super::output;
use crate::detect;
use crate::launch::exit::{Failure, say};
use crate::report::export::{Document, Files, Format, Source};
use crate::report::{AccessFilter, Options, Sort, View};

/// Where the tables go when no directory is named.
const DEFAULT_DIRECTORY: &str = "numamma-export";

/// Each by itself: the help of the argument says otherwise for other commands.
const PROFILES: &str = "Profiles to read, or directories of *.prof; each is exported by itself, all to the same place";

/// Write profiles as tables or in the format of another tool: Parquet, CSV, JSON, flame graphs
#[derive(Debug, clap::Args)]
#[command(mut_arg("profiles", |profiles| profiles.help(PROFILES)))]
pub struct Args {
    #[command(flatten)]
    profiles: Profiles,
    /// What to write
    #[arg(short, long, value_enum)]
    format: Format,
    /// Directory of the tables [default: numamma-export], or the file [default: stdout]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When nothing can be read, or the output not be written.
pub fn run(args: Args) -> Result<u8, Failure> {
    Ok(match (args.format.file_per_table(), Document::new(args.format)) {
        (None, Some(of)) => document(&args, of)?,
        (ending, _) => tables(&args, ending.unwrap_or_default())?,
    })
}

/// Writes all of it to one file or to stdout.
fn document(args: &Args, mut document: Document) -> Result<u8, String> {
    let status = each(args, &mut |source| {
        document.add(source);
        Ok(())
    })?;
    output::write(args.output.as_deref(), &document.text())?;
    Ok(status)
}

/// Writes a file per table. They take their names when all are whole.
fn tables(args: &Args, ending: &str) -> Result<u8, String> {
    let directory = args.output.as_deref().unwrap_or(Path::new(DEFAULT_DIRECTORY));
    let named = |e: io::Error| format!("{}: cannot write it: {e}", directory.display());
    let mut replacements = Vec::new();
    let mut begun: Option<Files<BufWriter<File>>> = None;
    let status = each(args, &mut |source| {
        // Not before a profile could be read.
        let tables = match begun.take() {
            Some(tables) => tables,
            None => {
                make_directory(directory).map_err(named)?;
                let open = |table: &str| {
                    let new = Replacement::of(&directory.join(format!("{table}.{ending}")))?;
                    let file = new.file()?;
                    replacements.push(new);
                    Ok(BufWriter::new(file))
                };
                Files::begin(args.format, open).map_err(named)?
            }
        };
        begun.insert(tables).add(source).map_err(named)
    })?;
    begun.map_or(Ok(()), Files::finish).map_err(named)?;
    let written = replacements.len();
    replacements.into_iter().try_for_each(Replacement::commit).map_err(named)?;
    say(format_args!("{written} tables are in {}", directory.display()));
    Ok(status)
}

/// Calls `each` with every profile, judged as `numamma report` does. One after the other: objects keep the numbers that
/// the report of their profile has, and only one profile is in memory.
fn each(args: &Args, each: &mut dyn FnMut(&Source) -> Result<(), String>) -> Result<u8, String> {
    let options = Options {
        sort: Sort::Cost,
        top: None,
        access: AccessFilter::All,
        width: 0,
        height: 0,
        color: false,
        profile: None,
    };
    args.profiles.each(|file, summary| {
        let patterns = detect::classify_all(summary);
        let view = View::new(summary, &patterns, &options);
        each(&Source { file: file.display().to_string(), view: &view })
    })
}

fn make_directory(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(io::Error::other("it is no directory; name one")),
        done => done,
    }
}
