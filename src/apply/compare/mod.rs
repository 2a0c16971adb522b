//! Comparing policies by running the unmodified program under each of them.
//!
//! One warm-up each, not counted: it fills the page cache, tells whether the program works at all under the policy, counts
//! the pages by node and, with a policy file, what was placed. Then rounds in which each policy has one run, in random
//! order. Nothing runs beside the program but a thread that waits for its end.

pub mod candidates;
pub mod child;
pub mod order;
pub mod outputs;
pub mod residency;
pub mod stats;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use self::candidates::Candidate;
use self::child::Finished;
use self::outputs::Outputs;
use super::verify::{self, Verdict};
use crate::launch::exit;
use crate::launch::placed as launch;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Policies; the first is what the others are compared with.
    pub candidates: Vec<Candidate>,
    /// Timed runs of each.
    pub runs: u32,
    /// Of the order.
    pub seed: u64,
    /// An exit status other than 0 is no failure.
    pub any_status: bool,
}

/// What was measured of one policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The policy.
    pub name: String,
    /// Seconds of each timed run, in order of the rounds.
    pub times: Vec<f64>,
    /// Share of the node with most of the program's pages, 0 to 1, or why it is not known.
    pub busiest: Result<f64, String>,
}

/// How the measuring ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// All runs were made.
    Complete,
    /// By a signal to us.
    Interrupted(i32),
    /// The program failed or could not be started: the reason, and the exit status that says so.
    Failed {
        /// What happened, under which policy, and what the program said.
        message: String,
        /// For our own exit.
        exit: u8,
    },
}

/// All that was measured.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// In the order of the candidates.
    pub samples: Vec<Sample>,
    /// What the reader must know, a line each.
    pub notes: Vec<String>,
    /// How it ended.
    pub ending: Ending,
}

/// What has just happened, for people who wait.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// 0 for the warm-up.
    pub round: u32,
    /// Policy of the run.
    pub name: &'a str,
    /// Its time.
    pub seconds: f64,
}

/// Makes the runs. `report` is a path the library may write to.
pub fn measure(plan: &Plan, report: &Path, mut progress: impl FnMut(Progress<'_>)) -> Comparison {
    launch::forward_signals(0);
    let not_yet = || Err("not run".to_owned());
    let mut samples: Vec<Sample> = plan
        .candidates
        .iter()
        .map(|c| Sample { name: c.name.clone(), times: Vec::new(), busiest: not_yet() })
        .collect();
    let mut outputs = Outputs::new(samples.len());
    let mut notes = Vec::new();
    let warm_up = (0..samples.len()).map(|policy| (0, policy));
    let rounds = order::rounds(samples.len(), plan.runs, plan.seed);
    let timed = (1..).zip(rounds).flat_map(|(round, order)| order.into_iter().map(move |policy| (round, policy)));
    let mut ending = Ending::Complete;
    for (round, policy) in warm_up.chain(timed) {
        let candidate = &plan.candidates[policy];
        let finished = child::run(candidate.command((round == 0).then_some(report)), round == 0);
        if let Some(signal) = launch::asked_to_end() {
            ending = Ending::Interrupted(signal);
            break;
        }
        let f = match finished.map_err(|e| not_started(candidate, &e)).and_then(|f| judged(plan, candidate, round, f)) {
            Ok(f) => f,
            Err(failed) => {
                ending = failed;
                break;
            }
        };
        progress(Progress { round, name: &candidate.name, seconds: f.seconds });
        outputs.add(policy, &f.output);
        if round == 0 {
            samples[policy].busiest = f.residency.map(|r| r.busiest_share());
            notes.extend(unplaced(candidate, report));
        } else {
            samples[policy].times.push(f.seconds);
        }
    }
    let names: Vec<&str> = plan.candidates.iter().map(|c| c.name.as_str()).collect();
    notes.extend(outputs.notes(&names));
    Comparison { samples, notes, ending }
}

fn not_started(candidate: &Candidate, e: &io::Error) -> Ending {
    let program = candidate.program().to_string_lossy();
    let exit = match e.kind() {
        io::ErrorKind::NotFound => exit::EXIT_NOT_FOUND,
        _ => exit::EXIT_CANNOT_EXECUTE,
    };
    Ending::Failed { message: format!("{program} cannot be started under {}: {e}", candidate.name), exit }
}

/// The run, unless it failed.
fn judged(plan: &Plan, candidate: &Candidate, round: u32, f: Finished) -> Result<Finished, Ending> {
    let failed = f.status.signal().is_some() || (!plan.any_status && !f.status.success());
    if !failed {
        return Ok(f);
    }
    let program = candidate.program().to_string_lossy();
    let when = if round == 0 { "in the warm-up".to_owned() } else { format!("in run {round} of {}", plan.runs) };
    let mut message = format!("{program} {} under {} {when}", ended(f.status), candidate.name);
    if candidate.name != candidates::FIRST_TOUCH {
        message += ", though not under first-touch";
    }
    if f.status.signal().is_none() {
        message += "; -i compares it nevertheless";
    }
    let errors = String::from_utf8_lossy(&f.errors);
    if !errors.trim().is_empty() {
        message += &format!(". Its last words:\n{}", errors.trim_end());
    }
    Err(Ending::Failed { message, exit: launch::exit_code(f.status) })
}

fn ended(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("was killed by signal {signal}"),
        None => format!("exited with status {}", status.code().unwrap_or(-1)),
    }
}

/// What a policy did not do in the warm-up: its time would say nothing of the policy.
fn unplaced(candidate: &Candidate, report: &Path) -> Option<String> {
    if !candidate.places() {
        return None;
    }
    let answer = verify::judge(report, "", "", 0, None);
    if let Some(problem) = answer.problem {
        return Some(format!("{}: {problem}", candidate.name));
    }
    let with = |v: Verdict| answer.objects.iter().filter(|o| o.verdict == v).count();
    let all = answer.objects.len();
    let parts: Vec<String> = [
        (Verdict::NotFound, "not found"),
        (Verdict::Unplaced, "could not be placed"),
        (Verdict::OffPlan, "have pages off plan"),
    ]
    .into_iter()
    .filter(|(v, _)| with(*v) > 0)
    .map(|(v, words)| format!("{} {words}", with(v)))
    .collect();
    (!parts.is_empty()).then(|| {
        let name = &candidate.name;
        format!("{name}: of {all} objects {}; `numamma verify --policy {name}` shows which", parts.join(", "))
    })
}
