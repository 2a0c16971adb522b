//! `numamma report --html`: the report as a page.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use numamma_kernel::input_file;
use serde_json::Value;

use super::input::{Loaded, Profiles};
use super::output;
use super::target_options::TargetArgs;
use crate::advise::{self, Target};
use crate::detect;
use crate::launch::exit::say;
use crate::report::html::{self, Extra};
use crate::report::processes::Processes;
use crate::report::{AccessFilter, Options, Sort, View};
use crate::topology::Topology;

/// Nodes of the machine that prices are for where this one has a single node and no other is named.
const ASSUMED_NODES: u32 = 4;
/// Largest result of another command that is taken into the page.
const MOST_RESULT: u64 = 256 << 10;

/// Options of the page.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct HtmlArgs {
    /// Write the report as one HTML file with pictures, for any browser, without network; at most 5 MB
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "object", "by", "top", "all"])]
    html: Option<PathBuf>,
    /// Show the page, with xdg-open
    #[arg(long, requires = "html")]
    open: bool,
    /// Also what `compare --json`, `tune --json` or `verify --json` wrote; may be given several times
    #[arg(long, value_name = "JSON", requires = "html")]
    with: Vec<PathBuf>,
    /// Show source files below DIR, too: a few lines around allocations and accesses; may be given several times
    /// [default: the working directory]
    #[arg(long, value_name = "DIR", requires = "html")]
    source: Vec<PathBuf>,
}

impl HtmlArgs {
    /// Whether a page is wanted.
    pub fn is_given(&self) -> bool {
        self.html.is_some()
    }
}

/// What of the other options the page follows.
pub struct Wanted<'a> {
    pub profiles: &'a Profiles,
    pub target: &'a TargetArgs,
    pub access: AccessFilter,
}

/// Writes the page, and opens it where that is asked for.
///
/// # Errors
/// When an input cannot be used or the file not be written.
pub fn write(args: &HtmlArgs, wanted: &Wanted<'_>, loaded: &Loaded) -> Result<(), String> {
    let results = args.with.iter().map(|path| result(path)).collect::<Result<Vec<_>, String>>()?;
    let here = [PathBuf::from(".")];
    let sources = if args.source.is_empty() { &here[..] } else { &args.source };
    let absent = sources.iter().find(|dir| !dir.is_dir());
    if let Some(dir) = absent {
        return Err(format!("--source {}: no such directory; name one that holds the program's source", dir.display()));
    }
    let page = page(wanted, loaded, (results, sources))?;
    output::write(args.html.as_deref(), &page)?;
    if let Some(path) = args.html.as_deref().filter(|_| args.open) {
        let opened = Command::new("xdg-open").arg(path).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        if let Err(e) = opened {
            say(format_args!("{} is written, but xdg-open cannot show it: {e}; open it in a browser", path.display()));
        }
    }
    Ok(())
}

fn page(
    wanted: &Wanted<'_>,
    loaded: &Loaded,
    (results, sources): (Vec<(String, Value)>, &[PathBuf]),
) -> Result<String, String> {
    let (many, summary) = (&loaded.many, &loaded.many.whole);
    let options = Options {
        sort: if wanted.access == AccessFilter::All { Sort::Cost } else { Sort::Accesses },
        top: None,
        access: wanted.access,
        width: 100,
        height: 24,
        color: false,
        profile: wanted.profiles.words(),
    };
    let patterns = detect::classify_accesses(summary, wanted.access);
    let mut view = View::new(summary, &patterns, &options);
    let verdicts = many.groups.iter().map(|g| detect::classify_accesses(&g.summary, wanted.access)).collect();
    view.processes = Some(Processes { many, verdicts, by: None });
    let (target, is_assumed) = target(wanted.target, wanted.profiles, &view)?;
    let mut extra =
        Extra { results, sources: sources.to_vec(), target: Some((&target, is_assumed)), ..Extra::default() };
    let prediction;
    match advise::advise(summary, &patterns, &target) {
        Ok(advice) => {
            let text = advise::toml(&advice).map_err(|e| format!("the policy cannot be written as TOML: {e}"))?;
            let priced = advise::predict(summary, &patterns, &target, &advice, &[]);
            extra.missing = priced.as_ref().err().map(|e| format!("No prediction: {e}."));
            prediction = priced.ok();
            extra.prediction = prediction.as_ref();
            // What keeps it away keeps the prediction away, and is said there.
            extra.fixes = advise::fixes::fixes(summary, &patterns, &target, &advice).ok().map(|found| found.list);
            extra.advice = Some((&advice, text));
            Ok(html::render(&view, &extra))
        }
        Err(e) => {
            extra.missing = Some(format!("No advice: {e}."));
            Ok(html::render(&view, &extra))
        }
    }
}

/// The machine of the options. This one with a single node tells nothing: then one with four is assumed.
pub(super) fn target(args: &TargetArgs, profiles: &Profiles, view: &View<'_>) -> Result<(Target, bool), String> {
    let (here, threads, thp) = (Topology::this_machine(), view.roles.workers, &view.summary.header.thp);
    let is_assumed = args.target.is_none() && args.nodes.is_none() && here.nodes.len() < 2;
    let nodes = if is_assumed { Some(ASSUMED_NODES) } else { args.nodes };
    let mut target = TargetArgs { nodes, ..args.clone() }.resolve(&here, threads, thp)?;
    if let Some(only) = profiles.only() {
        super::tuned_file::correct(&mut target, only, &view.summary.header.program, true);
    }
    Ok((target, is_assumed))
}

/// A result of another command, with the name of its file.
fn result(path: &Path) -> Result<(String, Value), String> {
    let show = path.display();
    let again = "it holds what `numamma compare --json`, `tune --json` or `verify --json` printed";
    let bytes = input_file::bytes(path, MOST_RESULT).map_err(|e| format!("--with {show}: {e}; {again}"))?;
    let value = serde_json::from_slice(&bytes).map_err(|e| format!("--with {show}: it is not JSON ({e}); {again}"))?;
    Ok((show.to_string(), value))
}
