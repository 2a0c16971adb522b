//! Which of several policies is faster than the first one, from times that come in round by round.
//!
//! The times are looked at after more and more rounds, so a test at the usual level would find a difference by chance
//! sooner or later. The level of a look is therefore [`ALPHA`] / (k (k + 1)) for the k-th one, which all together give
//! [`ALPHA`] however many follow (alpha spending: Lan and DeMets, Biometrika 70, 1983), divided by the number of pairs
//! that are tested (Bonferroni). With probability 1 - [`ALPHA`], no policy is called faster or slower
//! than another that is as fast.
//!
//! A pair is tested on the rounds that both have run, as the machine may be slower in other rounds.

use crate::apply::compare::stats::{self, ALPHA, SpeedUp};

/// Ratio of times up to which two policies are taken for equally fast: what placing may cost at most.
pub const EQUAL: f64 = 1.03;
/// Rounds before the first look: fewer can never be told from chance at the level of the first look.
const FIRST_LOOK: u32 = 5;
/// Growth of the number of rounds from look to look. More looks would each have less of the level.
const GROWTH: f64 = 1.4;

/// Why no more runs were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// All others are slower than the winner.
    Known,
    /// No candidate that is left differs from another by more than [`EQUAL`].
    Equal,
    /// The number of runs.
    Runs,
    /// The time.
    Budget,
    /// A signal, or the program failed.
    Ended,
}

/// A race between policies; number 0 is the one that the others are compared with.
#[derive(Debug, Clone)]
pub struct Race {
    /// Round that comes next; 0 is the warm-up.
    next: u32,
    /// Looks so far.
    looks: u32,
    /// Round after which the next look is.
    look_at: u32,
    /// Those that are still run.
    running: Vec<usize>,
    /// By candidate: against number 0, at the last look while both ran. Later looks have less of the level, and the
    /// same times would not do for them.
    found: Vec<Option<SpeedUp>>,
    /// By candidate: at that look it was faster than number 0 beyond doubt.
    faster: Vec<bool>,
    stop: Option<Stop>,
}

impl Race {
    /// A race between `candidates` (at least 1), before the warm-up.
    pub fn new(candidates: usize) -> Race {
        let stop = (candidates < 2).then_some(Stop::Known);
        let running = (0..candidates).collect();
        let (found, faster) = (vec![None; candidates], vec![false; candidates]);
        Race { next: 0, looks: 0, look_at: FIRST_LOOK, running, found, faster, stop }
    }

    /// Number of the round that comes next; 0 is the warm-up.
    pub fn rounds(&self) -> u32 {
        self.next
    }

    /// Numbers of the candidates that run in it.
    pub fn running(&self) -> Vec<usize> {
        self.running.clone()
    }

    /// Why the race is over, when it is.
    pub fn known(&self) -> Option<Stop> {
        self.stop
    }

    /// Takes note of a round that has ended; `times` are all so far by candidate, one for each round it has run.
    pub fn judge(&mut self, times: &[Vec<f64>]) {
        if self.next == self.look_at {
            self.look(times);
            self.look_at = (f64::from(self.look_at) * GROWTH).ceil() as u32;
        }
        self.next += 1;
    }

    /// Level of a pair's test at the look of this number, from 1.
    fn level(&self, look: u32) -> f64 {
        let pairs = self.found.len() * (self.found.len() - 1) / 2;
        ALPHA / f64::from(look * (look + 1)) / pairs.max(1) as f64
    }

    fn look(&mut self, times: &[Vec<f64>]) {
        self.looks += 1;
        let level = self.level(self.looks);
        let best = best(&self.running, times);
        let compared = |base: usize, now: usize| {
            let both = times[base].len().min(times[now].len());
            stats::speed_up(&times[base][..both], &times[now][..both], level)
        };
        if self.running.contains(&0) {
            for now in self.running.iter().copied().filter(|now| *now > 0) {
                self.found[now] = compared(0, now);
                self.faster[now] = sure(self.found[now], level).is_some_and(|s| s.low > 1.0);
            }
        }
        let slower = |c: usize| sure(compared(best, c), level).is_some_and(|s| s.high < 1.0);
        self.running.retain(|c| *c == best || !slower(*c));
        let equal = |c: usize| sure(compared(best, c), level).is_some_and(|s| s.low > 1.0 / EQUAL && s.high < EQUAL);
        self.stop = match &self.running[..] {
            [_] => Some(Stop::Known),
            left if left.iter().all(|c| *c == best || equal(*c)) => Some(Stop::Equal),
            _ => None,
        };
    }

    /// The fastest of those that have been shown to be faster than number 0; number 0 when none has.
    pub fn winner(&self, times: &[Vec<f64>]) -> usize {
        let list: Vec<usize> = (1..self.faster.len()).filter(|c| self.faster[*c]).collect();
        if list.is_empty() { 0 } else { best(&list, times) }
    }

    /// Speed-up of a candidate over number 0: of the last look, or of all runs when there was none.
    pub fn speed_up(&self, candidate: usize, times: &[Vec<f64>]) -> Option<SpeedUp> {
        let both = times.first()?.len().min(times.get(candidate)?.len());
        let level = self.level(self.looks.max(1));
        self.found[candidate].or_else(|| stats::speed_up(&times[0][..both], &times[candidate][..both], level))
    }
}

/// The interval, if there are enough runs for the level.
fn sure(found: Option<SpeedUp>, level: f64) -> Option<SpeedUp> {
    // The sum of the probabilities of both sides may differ in the last digits.
    const ROUNDING: f64 = 1e-9;
    found.filter(|s| s.confidence >= 1.0 - level - ROUNDING)
}

/// The candidate with the lowest median of the rounds that all of the list have run.
fn best(list: &[usize], times: &[Vec<f64>]) -> usize {
    let rounds = list.iter().map(|c| times[*c].len()).min().unwrap_or(0);
    let median = |c: usize| stats::median(&times[c][..rounds]).unwrap_or(f64::INFINITY);
    list.iter().copied().min_by(|a, b| median(*a).total_cmp(&median(*b))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::compare::order::Rng;

    /// A race of up to `most` rounds with times that scatter by `noise` (a share) and drift, `means` apart.
    fn raced(means: &[f64], noise: f64, most: u32, rng: &mut Rng) -> (Race, Vec<Vec<f64>>) {
        let mut race = Race::new(means.len());
        let mut times = vec![Vec::new(); means.len()];
        let mut drift = 1.0;
        while race.known().is_none() && race.rounds() <= most {
            for c in race.running().into_iter().filter(|_| race.rounds() > 0) {
                // Mostly a little, now and then much: as on a machine that others use.
                let disturbed = if rng.below(20) == 0 { 1.0 + 5.0 * noise } else { 1.0 };
                times[c].push(means[c] * drift * disturbed * (1.0 + noise * (rng.unit() - 0.5)));
            }
            drift *= 1.0 + 0.02 * (rng.unit() - 0.5);
            race.judge(&times);
        }
        (race, times)
    }

    #[test]
    fn chance_makes_no_winner_however_long_the_race_is() {
        let mut rng = Rng::new(1);
        let races = 400;
        let won = (0..races)
            .filter(|_| {
                let (race, times) = raced(&[1.0; 4], 0.3, 60, &mut rng);
                race.winner(&times) != 0
            })
            .count();
        // Of 400 with probability 0.05 at most 33 win with probability 0.999 (binomial).
        assert!(won <= 33, "{won} of {races}");
    }

    #[test]
    fn a_clear_winner_is_known_after_few_runs_and_the_interval_holds_the_truth() {
        let mut rng = Rng::new(2);
        let (mut right, mut covered, mut runs) = (0, 0, 0);
        let races = 200;
        for _ in 0..races {
            let (race, times) = raced(&[1.23, 1.4, 1.0, 1.3], 0.05, 60, &mut rng);
            let winner = race.winner(&times);
            let found = race.speed_up(2, &times).unwrap();
            right += usize::from(winner == 2);
            covered += usize::from(found.low <= 1.23 && 1.23 <= found.high);
            runs += times[2].len();
        }
        assert_eq!(right, races);
        assert!(covered >= races * 95 / 100, "{covered}");
        assert!(runs / races <= 14, "{} runs each", runs / races);
    }

    #[test]
    fn what_is_equally_fast_ends_the_race_and_nothing_wins() {
        let mut rng = Rng::new(3);
        let (race, times) = raced(&[1.0, 1.0, 1.0], 0.02, 60, &mut rng);
        assert_eq!((race.known(), race.winner(&times)), (Some(Stop::Equal), 0));
        assert!(race.rounds() < 60, "{}", race.rounds());
    }

    #[test]
    fn slower_policies_are_not_run_to_the_end() {
        let mut rng = Rng::new(4);
        let (race, times) = raced(&[1.0, 2.0, 1.02], 0.1, 40, &mut rng);
        assert!(times[1].len() < times[0].len() && !race.running().contains(&1), "{race:?}");
        assert_eq!(race.winner(&times), 0);
    }

    #[test]
    fn the_last_two_may_go_on_without_number_0() {
        // 0 is out at once; 1 and 2 can hardly be told apart and use up the rounds.
        let mut rng = Rng::new(6);
        let (race, times) = raced(&[2.0, 1.0, 1.01], 0.3, 40, &mut rng);
        assert!(times[0].len() < times[1].len() && times[1].len() == 40, "{race:?}");
        assert_ne!(race.winner(&times), 0);
    }

    #[test]
    fn one_candidate_is_no_race_and_no_run_no_winner() {
        assert_eq!(Race::new(1).known(), Some(Stop::Known));
        let race = Race::new(3);
        assert_eq!(race.winner(&[Vec::new(), Vec::new(), Vec::new()]), 0);
        assert_eq!(race.speed_up(1, &[Vec::new(), Vec::new(), Vec::new()]), None);
    }
}
