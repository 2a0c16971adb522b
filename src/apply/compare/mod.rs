//! Comparing policies by running the unmodified program under each of them.
//!
//! Each policy first has one warm-up run, which is not timed: it fills the page cache, tells whether the program works
//! under the policy, counts the pages by node and, with a policy file, what was placed. Rounds follow in which each
//! policy has one timed run, in random order. Only a thread that waits for the end runs beside the program.

pub mod candidates;
pub mod order;
pub mod outputs;
pub mod residency;
pub mod stats;
pub mod timed_run;

use std::io;
use std::path::Path;

use numamma_kernel::terminal::shell_word;

use self::candidates::Candidate;
use self::outputs::Outputs;
use self::timed_run::Finished;
use super::verify::{self, Verdict};
use crate::launch::exit::{Ended, Failure};
use crate::launch::signals;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Policies; the first is what the others are compared with.
    pub candidates: Vec<Candidate>,
    /// Timed runs of each.
    pub runs: u32,
    /// Runs of each before those; the first of them is checked.
    pub warmups: u32,
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
    /// By a signal to this process.
    Interrupted(i32),
    /// The program failed or could not be started: what happened under which policy, with the end of its stderr.
    Failed(Failure),
}

/// Everything that was measured.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// In the order of the candidates.
    pub samples: Vec<Sample>,
    /// What the reader of the comparison must know, a line each.
    pub notes: Vec<String>,
    /// How it ended.
    pub ending: Ending,
}

/// Makes the runs. `report` names a file that the apply library writes. `progress` is called after each run with the
/// number of the round (0: warm-up), the name of the policy and the time in seconds.
pub fn measure(plan: &Plan, report: &Path, mut progress: impl FnMut(u32, &str, f64)) -> Comparison {
    let mut bench = Bench::new(plan, report);
    let warm_up = (0..plan.warmups).flat_map(|_| (0..plan.candidates.len()).map(|policy| (0, policy)));
    let rounds = order::rounds(plan.candidates.len(), plan.runs, plan.seed);
    let timed = (1..).zip(rounds).flat_map(|(round, order)| order.into_iter().map(move |policy| (round, policy)));
    for (round, policy) in warm_up.chain(timed) {
        match bench.run(round, policy) {
            Ok(seconds) => progress(round, &plan.candidates[policy].name, seconds),
            Err(ending) => return bench.finish(ending),
        }
    }
    bench.finish(Ending::Complete)
}

/// Runs the candidates one at a time and keeps what was measured. Signals to this process go to the running program.
#[derive(Debug)]
pub struct Bench<'a> {
    plan: &'a Plan,
    report: &'a Path,
    samples: Vec<Sample>,
    /// Whether each has had a warm-up run.
    warmed: Vec<bool>,
    outputs: Outputs,
    notes: Vec<String>,
}

impl<'a> Bench<'a> {
    /// Nothing measured yet. `report` names a file that the apply library writes.
    pub fn new(plan: &'a Plan, report: &'a Path) -> Bench<'a> {
        signals::forward_signals(0);
        let not_yet = || Err("not run".to_owned());
        let sample = |c: &Candidate| Sample { name: c.name.clone(), times: Vec::new(), busiest: not_yet() };
        let samples: Vec<Sample> = plan.candidates.iter().map(sample).collect();
        Bench {
            plan,
            report,
            outputs: Outputs::new(samples.len()),
            warmed: vec![false; samples.len()],
            samples,
            notes: Vec::new(),
        }
    }

    /// Runs the program under the candidate of this number and returns its seconds. Round 0 is the warm-up, which is
    /// not timed.
    ///
    /// # Errors
    /// The end of the measuring: a signal, or the program failed.
    pub fn run(&mut self, round: u32, policy: usize) -> Result<f64, Ending> {
        let candidate = &self.plan.candidates[policy];
        let finished = timed_run::run(candidate.command((round == 0).then_some(self.report)), round == 0);
        if let Some(signal) = signals::asked_to_end() {
            return Err(Ending::Interrupted(signal));
        }
        let finished = finished.map_err(|e| not_started(candidate, &e))?;
        let f = judged(self.plan, candidate, round, finished)?;
        self.outputs.add(policy, &f.output);
        if round == 0 && self.warmed[policy] {
            return Ok(f.seconds);
        }
        if round == 0 {
            self.warmed[policy] = true;
            self.samples[policy].busiest = f.residency.map(|r| r.busiest_share());
            self.notes.extend(unplaced(candidate, self.report));
        } else {
            self.samples[policy].times.push(f.seconds);
        }
        Ok(f.seconds)
    }

    /// What was measured so far, in the order of the candidates.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Everything that was measured.
    pub fn finish(self, ending: Ending) -> Comparison {
        let names: Vec<&str> = self.plan.candidates.iter().map(|c| c.name.as_str()).collect();
        let notes = self.notes.into_iter().chain(self.outputs.notes(&names)).collect();
        Comparison { samples: self.samples, notes, ending }
    }
}

fn not_started(candidate: &Candidate, e: &io::Error) -> Ending {
    let program = candidate.program();
    let message = format!("{} cannot be started under {}: {e}", program.display(), candidate.name);
    Ending::Failed(Failure { message, ..Failure::of_exec(program, e) })
}

/// The run, unless it failed.
fn judged(plan: &Plan, candidate: &Candidate, round: u32, f: Finished) -> Result<Finished, Ending> {
    let killed = matches!(f.ended, Ended::Signalled(_));
    if !killed && (plan.any_status || f.ended == Ended::Exited(0)) {
        return Ok(f);
    }
    let program = candidate.program().display();
    let when = if round == 0 { "in the warm-up".to_owned() } else { format!("in run {round} of {}", plan.runs) };
    let mut message = format!("{program} {} under {} {when}", f.ended, candidate.name);
    if candidate.name != candidates::FIRST_TOUCH {
        message += ", though not under first-touch";
    }
    if !killed {
        message += "; -i compares it nevertheless";
    }
    let errors = String::from_utf8_lossy(&f.errors);
    if !errors.trim().is_empty() {
        message += &format!(". The end of its stderr:\n{}", errors.trim_end());
    }
    Err(Ending::Failed(Failure { end: Ended::with(f.ended.code()), message }))
}

/// What the policy did not place in the warm-up: times of such runs say nothing about the policy.
fn unplaced(candidate: &Candidate, report: &Path) -> Option<String> {
    if !candidate.places {
        return None;
    }
    let outcome = verify::judge(report, Ended::Exited(0), None, candidate.other_program.as_deref());
    if let Some(problem) = outcome.problem {
        return Some(format!("{}: {problem}", candidate.name));
    }
    let with = |v: Verdict| outcome.objects.iter().filter(|o| o.verdict == v).count();
    let all = outcome.objects.len();
    let problems = [
        (with(Verdict::NotFound), "not found"),
        (with(Verdict::Unplaced), "could not be placed"),
        (with(Verdict::OffPlan), "have pages off plan"),
    ];
    let parts: Vec<String> = problems.iter().filter(|(n, _)| *n > 0).map(|(n, words)| format!("{n} {words}")).collect();
    (!parts.is_empty()).then(|| {
        let name = &candidate.name;
        format!(
            "{name}: of {all} objects {}; `numamma verify --policy {}` shows which",
            parts.join(", "),
            shell_word(name)
        )
    })
}
