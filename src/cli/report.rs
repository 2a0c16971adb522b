//! `numamma report`: objects, threads and first touch of a profile.

use super::html::{self, HtmlArgs};
use super::input::{Loaded, Profiles};
use super::output::{self, color_is_welcome, terminal_size};
use super::pager;
use super::selection_options::SelectionArgs;
use super::target_options::TargetArgs;
use crate::advise::{self, AdviceError};
use crate::launch::exit::Failure;
use crate::report::processes::{By, Processes};
use crate::report::{self, AccessFilter, DEFAULT_TOP, Options, Predicted, Sort, View};
use crate::topology::Topology;

/// Show what a profile holds: hot objects, their pattern, which threads touched them
#[derive(Debug, clap::Args)]
#[command(after_long_help = crate::report::glossary::REPORT)]
pub struct Args {
    #[command(flatten)]
    profiles: Profiles,
    /// Also the objects by rank, host or thread
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "object")]
    by: Option<By>,
    /// Order of the objects [default: cost; accesses when --access is given]
    #[arg(long, value_enum)]
    sort: Option<Sort>,
    /// Show at most N objects [default: 15, all with --json]
    #[arg(long, value_name = "N", conflicts_with = "all", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// Show every object and thread
    #[arg(long)]
    all: bool,
    /// One object in detail: its pages x threads, call stack and code. Part of its name will do, as the table shows it,
    /// or its number, '#3'
    #[arg(long, value_name = "NAME")]
    object: Option<String>,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Count and classify only reads or only writes
    #[arg(long, value_enum, default_value_t = AccessFilter::All)]
    access: AccessFilter,
    /// JSON instead of text; sizes in bytes, times in seconds
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    html: HtmlArgs,
    /// Colours; auto looks at the terminal and NO_COLOR
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,
    /// Print all at once: else a terminal gets it through $NUMAMMA_PAGER, $PAGER or `less -FRX`
    #[arg(long)]
    no_pager: bool,
    #[command(flatten, next_help_heading = "Predicted remote share")]
    target: TargetArgs,
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

/// Prints the report of one profile as the command does with no option but --no-pager: a program ran before it.
///
/// # Errors
/// Those of [`run`].
pub fn of_profile(path: &std::path::Path) -> Result<u8, Failure> {
    run(Args {
        profiles: Profiles::of(path),
        by: None,
        sort: None,
        top: None,
        all: false,
        object: None,
        selection: SelectionArgs::default(),
        access: AccessFilter::All,
        json: false,
        html: HtmlArgs::default(),
        color: Color::Auto,
        no_pager: true,
        target: TargetArgs::default(),
    })
}

/// Runs the command.
///
/// # Errors
/// When the profile cannot be read or stdout not be written.
pub fn run(args: Args) -> Result<u8, Failure> {
    let options = options(&args);
    let mut loaded = args.profiles.load(true)?;
    args.selection.apply(&mut loaded.many);
    if args.html.is_given() {
        html::write(
            &args.html,
            &html::Wanted { profiles: &args.profiles, target: &args.target, access: args.access },
            &loaded,
        )?;
        return Ok(loaded.status);
    }
    let is_paged = !args.no_pager && !args.json;
    pager::print(&render(&args, &options, &loaded)?, options.color && !args.json, is_paged)?;
    Ok(loaded.status)
}

fn render(args: &Args, options: &Options, loaded: &Loaded) -> Result<String, String> {
    let (many, summary) = (&loaded.many, &loaded.many.whole);
    let patterns = crate::detect::classify_accesses(summary, args.access);
    let mut view = View::new(summary, &patterns, options);
    let verdicts = many.groups.iter().map(|g| crate::detect::classify_accesses(&g.summary, args.access)).collect();
    view.processes = Some(Processes { many, verdicts, by: args.by });
    if args.target.is_given() {
        let target = args.target.resolve(&Topology::this_machine(), view.roles.workers, &summary.header.thp)?;
        let named = |e: AdviceError| format!("{}: {e}", args.profiles.name());
        let remote_shares = advise::remote_shares(summary, &view.roles, &patterns, &target).map_err(named)?;
        view.predicted = Some(Predicted { target: target.model.name.clone(), remote_shares });
    }
    let only = args.object.as_deref().map(|name| report::find_object::entry(summary, name)).transpose()?;
    if args.json {
        return output::json("the report", &report::json::render(&view, only));
    }
    Ok(match only {
        Some(entry) => report::object_details::render(&view, entry),
        None => report::overview::render(&view),
    })
}

/// The options of the command line, with the defaults of this terminal.
fn options(args: &Args) -> Options {
    let (width, height) = terminal_size();
    let by_access = args.access != AccessFilter::All;
    let default_top = if args.json { None } else { Some(DEFAULT_TOP) };
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
        profile: args.profiles.words(),
    }
}
