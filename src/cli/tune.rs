//! `numamma tune`: profile, advise, race the candidates on this machine, keep the winner.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use numamma_kernel::terminal::shell_word;
use numamma_plan::machine::Machine;
use numamma_plan::policy::Bind;

use super::compare::machine_notes;
use super::output::{self, print};
use super::target_options::TargetArgs;
use super::tuned_file;
use crate::advise::{self, Advice, Correction, Measured, PolicyPrice, Prediction, Target};
use crate::apply::compare::candidates::{self, Candidates, INTERLEAVE};
use crate::apply::compare::timed_run;
use crate::apply::compare::{Ending, Plan};
use crate::apply::tune::{self, Limits, Raced};
use crate::apply::verify::ReportDir;
use crate::detect::{self, Pattern};
use crate::launch::exit::{Ended, Failure, say};
use crate::launch::invocation::with_signals_at_start;
use crate::profile::summary::Summary;
use crate::report::tuning::{Row, Tuned};
use crate::topology::Topology;

/// Find the fastest policy of a program on this machine by running it, write it
///
/// Profiles the program once, makes the policy that `numamma advise` makes, and
/// runs the program under each candidate in turn until it is known which is
/// fastest:
///   first-touch         the bare program, with which the others are compared
///   interleave          every page of the program round robin over the nodes,
///                       as numactl --interleave=all
///   advised             the advised policy, with its binding of threads
///   advised, unbound    the same objects, threads left alone (or `advised,
///                       bound`, if the advice leaves them alone)
///
/// A candidate that is slower beyond doubt is not run again. The race ends when
/// all but one are slower, when none differs from another by more than 3 %, or at
/// --budget or --runs. The level of the tests counts every look at the times:
/// with a probability of 95 % nothing that is as fast as first-touch is called
/// faster.
///
/// The winner is written to policy.toml, with the predicted speed-up beside the
/// measured one. Nothing is written when no policy is faster than first touch.
///
/// The program's stdout is not shown, only compared between candidates. Its stdin
/// is empty unless it is redirected from a file, which every run then reads from
/// the beginning. Ctrl-C ends it and shows what was measured.
///
/// Exit status: 0 when the race was run to its end, 1 where there is nothing to
/// race (one node with memory) or the budget allows no timed run, the program's
/// own if it failed (128 + signal), 2 if the command line cannot be used.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, override_usage = "numamma tune [OPTIONS] [--] PROGRAM [ARGS]...")]
pub struct Args {
    /// Time that all of it may take, such as 90s, 10m or 2h
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = super::time_option::parse)]
    budget: Duration,
    /// Most timed runs of each candidate
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// File for the winner; an older one is kept as FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "policy.toml")]
    output: PathBuf,
    /// Use this profile instead of recording numamma.prof
    #[arg(long, value_name = "PROF")]
    profile: Option<PathBuf>,
    /// Draw the order of runs again as in an earlier race [default: another each time; it is printed]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Print JSON instead of the table; times in seconds, shares from 0 to 1
    #[arg(long)]
    json: bool,
    /// Go on even if the program exits with a status other than 0 (a signal is always a failure)
    #[arg(short, long)]
    ignore_status: bool,
    /// Print nothing but errors and the result
    #[arg(short, long)]
    quiet: bool,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<OsString>,
}

/// Where a profile is recorded.
const PROFILE: &str = "numamma.prof";
/// Variables by which a user binds the threads of an OpenMP program; the apply library then leaves them alone.
const BINDERS: [&str; 4] = ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"];

/// Runs the command.
///
/// # Errors
/// When the program or the profile cannot be used, or the program failed.
pub fn run(args: Args) -> Result<Ended, Failure> {
    let started = Instant::now();
    something_to_race()?;
    let dir = ReportDir::new().map_err(|e| Failure::usage(format!("cannot make a directory for policies: {e}")))?;
    let report = dir.file();
    let own = report.parent().unwrap_or(&report).to_owned();
    let profile = match &args.profile {
        Some(profile) => profile.clone(),
        None => recorded(&args)?,
    };
    let entrants = Entrants::prepare(&args, &profile, &own)?;
    let seed = args.seed.unwrap_or_else(clock);
    let notes: Vec<String> = machine_notes(memory_nodes()).into_iter().chain(entrants.notes.clone()).collect();
    if !args.quiet {
        notes.iter().for_each(say);
        let names: Vec<&str> = entrants.candidates.iter().map(|c| c.name.as_str()).collect();
        say(format!("racing {}; --seed {seed}", names.join(" / ")));
    }
    let plan = Plan {
        candidates: entrants.candidates.clone(),
        runs: args.runs,
        warmups: 1,
        seed,
        any_status: args.ignore_status,
    };
    let limits = Limits { until: started + args.budget, runs: args.runs };
    let mut raced = tune::run(&plan, limits, &report, |round, policy, seconds| {
        if !args.quiet {
            let round = if round == 0 { "warm-up".to_owned() } else { format!("run {round}") };
            let left = limits.until.saturating_duration_since(Instant::now()).as_secs();
            say(format!("{round}: {policy} {seconds:.3} s ({left} s of the budget left)"));
        }
    });
    if !args.quiet {
        raced.measured.notes.iter().for_each(say);
    }
    raced.measured.notes.splice(0..0, notes);
    conclude(&args, &entrants, &raced, &profile, seed)
}

/// The budget was used up before a timed run.
fn nothing_timed(args: &Args, profile: &Path) -> Failure {
    let budget = args.budget.as_secs();
    Failure::of_work(format!(
        "the profile and the warm-up runs left too little of the budget of {budget} s for a timed run of each candidate, \
         so nothing was compared and no policy was written; give more (--budget {}s), or keep the profile (--profile {})",
        4 * budget.max(15),
        shell_word(&profile.to_string_lossy())
    ))
}

fn memory_nodes() -> usize {
    let machine = Machine::this();
    let existing = machine.memory_node_ids();
    let own = numamma_plan::nodes::parse("all", machine.available(&existing));
    own.map_or(existing.len(), |nodes| nodes.len())
}

fn something_to_race() -> Result<(), Failure> {
    if memory_nodes() > 1 {
        return Ok(());
    }
    let machine = Machine::this().memory_nodes.len();
    let what = if machine > 1 { "this process may use one node's memory only" } else { "this machine has one node" };
    Err(Failure::of_work(format!(
        "{what}: every policy places all pages there, so there is nothing to race. Run `numamma tune` on the machine \
         with several nodes; here `numamma profile` and `numamma predict --nodes 4` say what policies would bring there"
    )))
}

fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs())
}

/// Records a profile in [`PROFILE`], as `numamma profile` does.
fn recorded(args: &Args) -> Result<PathBuf, Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure::of_work(format!("the program cannot be profiled: {e}"));
    if !args.quiet {
        say(format!("profiling the program once, in {PROFILE}"));
    }
    let mut command = Command::new(std::env::current_exe().map_err(|e| failed(&e))?);
    command.args(["profile", "--quiet", "--output", PROFILE, "--"]).args(&args.command);
    with_signals_at_start(&mut command);
    crate::launch::signals::forward_signals(0);
    let finished = timed_run::run(command, false).map_err(|e| failed(&e))?;
    if let Some(signal) = crate::launch::signals::asked_to_end() {
        let message = format!("stopped by signal {signal} while it profiled the program");
        return Err(Failure { end: Ended::Signalled(signal), message });
    }
    if finished.ended != Ended::Exited(0) && !(args.ignore_status && matches!(finished.ended, Ended::Exited(_))) {
        let errors = String::from_utf8_lossy(&finished.errors);
        let message = format!("while it was profiled, the program {}\n{}", finished.ended, errors.trim_end());
        return Err(Failure { end: Ended::with(finished.ended.code()), message });
    }
    Ok(PROFILE.into())
}

/// Who takes part, and what the model says of them.
struct Entrants {
    candidates: Vec<candidates::Candidate>,
    /// The text of the policy file of each candidate; none for those without.
    policies: Vec<Option<Advice>>,
    model: Model,
    notes: Vec<String>,
}

/// What the candidates' prices come from.
struct Model {
    summary: Summary,
    patterns: Vec<Pattern>,
    target: Target,
    advice: Advice,
}

impl Model {
    /// The prices when the program waits `waiting` times as long for memory as its samples say.
    fn predict(&self, waiting: f64) -> Result<Prediction, Failure> {
        let target = Target { waiting, ..self.target.clone() };
        advise::predict(&self.summary, &self.patterns, &target, &self.advice, &[])
            .map_err(|e| Failure::of_work(e.to_string()))
    }

    /// Whether another placement is advised when the program waits `waiting` times as long.
    fn advises_otherwise(&self, waiting: f64) -> bool {
        let target = Target { waiting, ..self.target.clone() };
        let places = |advice: &Advice| -> Vec<String> {
            advice.policy.objects.iter().map(|rule| format!("{} {:?}", rule.title(), rule.place)).collect()
        };
        let other = advise::advise(&self.summary, &self.patterns, &target);
        other.is_ok_and(|other| places(&other) != places(&self.advice))
    }
}

impl Entrants {
    fn prepare(args: &Args, profile: &Path, dir: &Path) -> Result<Entrants, Failure> {
        let summary = super::input::load(profile, args.quiet)?;
        let threads = detect::roles(&summary).workers;
        let target = TargetArgs::default().resolve(&Topology::this_machine(), threads, &summary.header.thp)?;
        let patterns = detect::classify_all(&summary);
        let named = |e: &dyn std::fmt::Display| format!("{}: {e}", profile.display());
        let advice = advise::advise(&summary, &patterns, &target).map_err(|e| named(&e))?;
        let mut advised = vec![("advised".to_owned(), advice.clone())];
        advised.extend(rebound(&advice, &summary, &target));
        if advice.policy.objects.is_empty() {
            // Without a placement only the binding is left.
            advised.retain(|(_, a)| a.policy.threads.as_ref().is_some_and(|t| t.bind != Bind::None));
        }
        Entrants::of(args, advised, Model { summary, patterns, target, advice }, dir)
    }

    fn of(args: &Args, advised: Vec<(String, Advice)>, model: Model, dir: &Path) -> Result<Entrants, Failure> {
        let mut asked = vec![INTERLEAVE.to_owned()];
        for (index, (_, advice)) in advised.iter().enumerate() {
            let path = dir.join(format!("candidate-{index}.toml"));
            output::file(&path, &toml(advice)?)?;
            asked.push(path.to_string_lossy().into_owned());
        }
        let Candidates { list, notes } = candidates::prepare(&asked, false, &args.command, dir)?;
        let mut entrants = Entrants { candidates: list, policies: Vec::new(), model, notes };
        for candidate in &mut entrants.candidates {
            let found = asked[1..].iter().position(|path| *path == candidate.name).map(|index| &advised[index]);
            if let Some((name, _)) = found {
                candidate.name.clone_from(name);
            }
            entrants.policies.push(found.map(|(_, advice)| advice.clone()));
        }
        Ok(entrants)
    }
}

/// The advice with threads bound where it leaves them alone, or left alone where it binds them; none when the user's
/// environment binds them.
fn rebound(advice: &Advice, summary: &Summary, target: &Target) -> Option<(String, Advice)> {
    if BINDERS.iter().any(|name| std::env::var_os(name).is_some()) {
        return None;
    }
    let bound = advice.policy.threads.as_ref().is_some_and(|t| t.bind != Bind::None);
    let name = if bound { "advised, unbound" } else { "advised, bound" };
    Some((name.to_owned(), advise::with_binding(advice, summary, target, !bound)))
}

fn toml(advice: &Advice) -> Result<String, Failure> {
    advise::toml(advice).map_err(|e| Failure::of_work(format!("the policy cannot be written as TOML: {e}")))
}

/// The price of a candidate.
fn price(prediction: &Prediction, candidate: &str) -> Option<PolicyPrice> {
    // Binding is not priced: the threads of the target are where the policy would bind them.
    let column = candidate.split(',').next().unwrap_or(candidate);
    prediction.policies.iter().find(|p| p.name == column).cloned()
}

/// What the measured speed-ups say of the model: see [`Correction`].
fn correction(model: &Model, rows: &[Row]) -> Result<Option<Correction>, Failure> {
    let mut known: Vec<(&Row, Measured)> = Vec::new();
    for row in rows {
        let bare = |name: &str| name.split(',').next().unwrap_or(name).to_owned();
        // The same objects with other threads have the same price; the first of them counts.
        let again = known.iter().any(|(other, _)| bare(&other.name) == bare(&row.name));
        if let (Some(s), Some(_), false) = (row.speedup, &row.predicted, again) {
            known.push((row, Measured { speedup: s.estimate, low: s.low, high: s.high }));
        }
    }
    let measured: Vec<Measured> = known.iter().map(|(_, m)| *m).collect();
    let runs = rows.iter().map(|r| r.times.len() as u32).sum();
    Correction::fit(&model.target, &measured, runs, |waiting| {
        let prediction = model.predict(waiting)?;
        Ok(known.iter().map(|(row, _)| price(&prediction, &row.name).map_or(1.0, |p| p.speedup)).collect())
    })
}

fn conclude(args: &Args, entrants: &Entrants, raced: &Raced, profile: &Path, seed: u64) -> Result<Ended, Failure> {
    let model = &entrants.model;
    let prediction = model.predict(1.0)?;
    let samples = &raced.measured.samples;
    let times: Vec<Vec<f64>> = samples.iter().map(|s| s.times.clone()).collect();
    let rows = samples.iter().enumerate().map(|(index, sample)| {
        let speed_up = if index == 0 { None } else { raced.race.speed_up(index, &times) };
        Row::of(sample, speed_up, price(&prediction, &sample.name))
    });
    let mut rows: Vec<Row> = rows.collect();
    let correction = correction(model, &rows)?;
    let explained = correction.as_ref().filter(|c| c.explains());
    if let Some(correction) = explained {
        let corrected = model.predict(correction.waiting)?;
        rows.iter_mut().for_each(|row| row.corrected = price(&corrected, &row.name));
    }
    tuned_file::keep(explained, profile, &model.summary.header.program)?;
    let winner = raced.race.winner(&times);
    let mut tuned = Tuned {
        command: args.command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        profile: profile.display().to_string(),
        budget_s: args.budget.as_secs(),
        seed,
        stop: raced.stop,
        winner: samples[winner].name.clone(),
        policy: entrants.policies[winner].is_some().then(|| args.output.display().to_string()),
        notes: raced.measured.notes.clone(),
        candidates: rows,
        advises_otherwise: explained.is_some_and(|c| model.advises_otherwise(c.waiting)),
        correction,
        sentence: String::new(),
    };
    tuned.sentence = tuned.in_one_sentence();
    if let Some(advice) = &entrants.policies[winner] {
        let mut advice = advice.clone();
        advice.remarks.insert(0, tuned.remark());
        output::keeping_old(&args.output, &toml(&advice)?)?;
    }
    let some = samples.iter().any(|s| !s.times.is_empty());
    if args.json {
        print(&output::json("the race", &tuned)?, false)?;
    } else if some {
        print(&tuned.text(), false)?;
    }
    match &raced.measured.ending {
        Ending::Complete if !some => Err(nothing_timed(args, profile)),
        Ending::Complete => Ok(Ended::with(0)),
        Ending::Interrupted(signal) => {
            say(format!("stopped by signal {signal}"));
            Ok(Ended::Signalled(*signal))
        }
        Ending::Failed(failure) => Err(failure.clone()),
    }
}
