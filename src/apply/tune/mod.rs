//! Finding the fastest policy of a program on this machine by running it: which candidates are run again, when to stop,
//! and which one won. [`race`] decides from times alone; [`run`] makes the runs.

pub mod race;

use std::path::Path;
use std::time::{Duration, Instant};

use self::race::{Race, Stop};
use super::compare::order::Rng;
use super::compare::{Bench, Comparison, Ending, Plan};

/// How long a race may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// When the last run must have ended.
    pub until: Instant,
    /// Most timed runs of a candidate.
    pub runs: u32,
}

/// A race that has ended.
#[derive(Debug, Clone)]
pub struct Raced {
    /// The runs; its first sample is first-touch.
    pub measured: Comparison,
    /// What the runs showed.
    pub race: Race,
    /// Why no more runs were made.
    pub stop: Stop,
}

/// Runs the candidates of `plan` in rounds, each in random order, until [`Race`] knows the winner or a limit is
/// reached. Candidates that have been shown to be slower are not run again. `progress` is called as by
/// [`super::compare::measure`].
pub fn run(plan: &Plan, limits: Limits, report: &Path, mut progress: impl FnMut(u32, &str, f64)) -> Raced {
    let mut bench = Bench::new(plan, report);
    let mut race = Race::new(plan.candidates.len());
    let mut rng = Rng::new(plan.seed);
    let mut longest = Duration::ZERO;
    let (ending, stop) = loop {
        let round = race.rounds();
        if let Some(stop) = race.known() {
            break (Ending::Complete, stop);
        }
        if round > limits.runs {
            break (Ending::Complete, Stop::Runs);
        }
        let started = Instant::now();
        // Room is left for a round that takes a half more than the longest so far.
        if round > 0 && started + longest * 3 / 2 > limits.until {
            break (Ending::Complete, Stop::Budget);
        }
        match turn(&mut bench, &race, &mut rng, &mut progress, plan) {
            Ok(()) => race.judge(&times(&bench)),
            Err(ending) => break (ending, Stop::Ended),
        }
        longest = longest.max(started.elapsed());
    };
    Raced { measured: bench.finish(ending), race, stop }
}

fn times(bench: &Bench<'_>) -> Vec<Vec<f64>> {
    bench.samples().iter().map(|s| s.times.clone()).collect()
}

/// One run of each candidate that is still in the race.
fn turn(
    bench: &mut Bench<'_>,
    race: &Race,
    rng: &mut Rng,
    progress: &mut impl FnMut(u32, &str, f64),
    plan: &Plan,
) -> Result<(), Ending> {
    let mut order = race.running();
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i + 1));
    }
    for policy in order {
        let seconds = bench.run(race.rounds(), policy)?;
        progress(race.rounds(), &plan.candidates[policy].name, seconds);
    }
    Ok(())
}
