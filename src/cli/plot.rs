//! `numamma plot`: one figure of an object for a paper.

use std::path::{Path, PathBuf};

use super::html;
use super::input::{Loaded, Profiles};
use super::output;
use super::target_options::TargetArgs;
use crate::advise;
use crate::detect;
use crate::launch::exit::Failure;
use crate::report::bins::Quantity;
use crate::report::plot::{self, Kind, Wanted};
use crate::report::{AccessFilter, Options, Sort, View, find_object};

/// Draw one figure of an object as SVG or PNG: who accesses which part of it, and when
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The object: its name as `numamma report` shows it, a part of it, or its number, '#3'
    object: String,
    #[command(flatten)]
    profiles: Profiles,
    /// What to draw
    #[arg(long, value_enum, default_value_t)]
    view: Kind,
    /// The file, whose name ends in .svg or .png
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// What to count in matrix and timeline
    #[arg(long, value_enum, default_value_t)]
    quantity: Quantity,
    /// Width and height, pixels; text grows with the width
    #[arg(long, value_name = "WxH", default_value = "1000x640", value_parser = size)]
    size: (u32, u32),
    #[command(flatten, next_help_heading = "Machine of the advice, for --view placement")]
    target: TargetArgs,
}

const EXAMPLES: &str = "Examples:
  numamma plot '#0' -o matrix.svg
  numamma plot '#0' --view spectrum -o spectrum.png --size 2000x1200
  numamma plot '#0' --view placement --nodes 4 -o placement.svg";

/// Smallest and largest width and height: text has room, and memory is bounded.
const SIZES: std::ops::RangeInclusive<u32> = 320..=8000;

/// `1000x640`.
fn size(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once('x').and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
    let fits = |size: &(u32, u32)| SIZES.contains(&size.0) && SIZES.contains(&size.1);
    let (low, high) = (SIZES.start(), SIZES.end());
    numbers.filter(fits).ok_or_else(|| format!("width and height from {low} to {high} are wanted, as 1000x640"))
}

/// Runs the command.
///
/// # Errors
/// When the profile cannot be read, holds nothing to draw, or the file not be written.
pub fn run(args: Args) -> Result<u8, Failure> {
    let format = Format::of(&args.output)?;
    let loaded = args.profiles.load(true)?;
    let bytes = draw(&args, format, &loaded)?;
    output::bytes(&args.output, &bytes)?;
    Ok(loaded.status)
}

/// How a figure is written.
#[derive(Debug, Clone, Copy)]
enum Format {
    Svg,
    Png,
}

impl Format {
    fn of(path: &Path) -> Result<Format, String> {
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_lowercase();
        match ending.as_str() {
            "svg" => Ok(Format::Svg),
            "png" => Ok(Format::Png),
            _ => Err(format!("-o {}: a figure is .svg or .png; name a file that ends so", path.display())),
        }
    }
}

fn draw(args: &Args, format: Format, loaded: &Loaded) -> Result<Vec<u8>, String> {
    let summary = &loaded.many.whole;
    let options = Options {
        sort: Sort::Cost,
        top: None,
        access: AccessFilter::All,
        width: 100,
        height: 24,
        color: false,
        profile: args.profiles.words(),
    };
    let found = find_object::entry(summary, &args.object);
    let entry = found.map_err(|e| e.replacen("--object ", "object ", 1))?;
    let patterns = detect::classify_all(summary);
    let view = View::new(summary, &patterns, &options);
    let mut wanted = Wanted { view: &view, entry, kind: args.view, quantity: args.quantity, advice: None };
    let (target, advice);
    if args.view == Kind::Placement {
        target = html::target(&args.target, &args.profiles, &view)?.0;
        // Without advice the first touchers and users are drawn.
        advice = advise::advise(summary, &patterns, &target).ok();
        wanted.advice = advice.as_ref().map(|advice| (&target, advice));
    }
    let figure = plot::figure(&wanted)?;
    match format {
        Format::Svg => plot::svg(&figure, args.size).map(String::into_bytes),
        Format::Png => plot::png(&figure, args.size),
    }
}
