//! The outcome of `numamma tune` as a table, as JSON and in one sentence.

use serde::Serialize;

use super::comparison::seconds;
use super::prediction::speedup;
use super::table::plain;
use super::units::percent;
use crate::advise::{Correction, PolicyPrice};
use crate::apply::compare::Sample;
use crate::apply::compare::stats::{self, SpeedUp};
use crate::apply::tune::race::{EQUAL, Stop};

/// One candidate. Times in seconds, shares from 0 to 1.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Name of the candidate.
    pub name: String,
    /// Every timed run, in order.
    pub times: Vec<f64>,
    /// Median of them.
    pub time: Option<f64>,
    /// Over first-touch, from the rounds that both have run; null for first-touch.
    pub speedup: Option<SpeedUp>,
    /// What the model of this machine said of it before the race.
    pub predicted: Option<PolicyPrice>,
    /// The same with [`Tuned::correction`].
    pub corrected: Option<PolicyPrice>,
    /// Share of the node with most of the program's pages, in the warm-up run.
    pub busiest_node_share: Option<f64>,
}

/// The outcome.
#[derive(Debug, Clone, Serialize)]
pub struct Tuned {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The profile that the policies were made from.
    pub profile: String,
    /// Time that was allowed.
    pub budget_s: u64,
    /// Seed of the order.
    pub seed: u64,
    /// Why no more runs were made.
    #[serde(serialize_with = "stop")]
    pub stop: Stop,
    /// Name of the fastest candidate; first-touch when none was shown to be faster.
    pub winner: String,
    /// The file it was written to; null when no policy file won.
    pub policy: Option<String>,
    /// What the reader must know, a line each.
    pub notes: Vec<String>,
    /// A row for each, first-touch first.
    pub candidates: Vec<Row>,
    /// What the times say of the model; null when they do not contradict it.
    pub correction: Option<Correction>,
    /// Whether the corrected model advises other placements than those that were raced.
    pub advises_otherwise: bool,
    /// The outcome for people.
    pub sentence: String,
}

fn stop<S: serde::Serializer>(stop: &Stop, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match stop {
        Stop::Known => "known",
        Stop::Equal => "equal",
        Stop::Runs => "runs",
        Stop::Budget => "budget",
        Stop::Ended => "ended",
    })
}

impl Row {
    /// The runs of one candidate with what is known of it.
    pub fn of(sample: &Sample, speedup: Option<SpeedUp>, predicted: Option<PolicyPrice>) -> Row {
        Row {
            name: sample.name.clone(),
            times: sample.times.clone(),
            time: stats::median(&sample.times),
            speedup,
            predicted,
            corrected: None,
            busiest_node_share: sample.busiest.as_ref().ok().copied(),
        }
    }
}

/// `1.23x (1.19 to 1.27)`.
fn measured(speedup: &SpeedUp) -> String {
    format!("{:.2}x ({:.2} to {:.2})", speedup.estimate, speedup.low, speedup.high)
}

impl Tuned {
    fn row(&self, name: &str) -> Option<&Row> {
        self.candidates.iter().find(|r| r.name == name)
    }

    /// Timed runs of the winner and of first-touch.
    fn runs(&self) -> usize {
        let base = self.candidates.first().map_or(0, |r| r.times.len());
        let winner = self.row(&self.winner).map_or(0, |r| r.times.len());
        if self.candidates.first().is_some_and(|r| r.name == self.winner) {
            self.candidates.iter().map(|r| r.times.len()).sum()
        } else {
            base + winner
        }
    }

    /// `policy.toml: 1.23x (1.19 to 1.27) over first touch in 14 runs`, or that no difference was seen and why.
    pub fn in_one_sentence(&self) -> String {
        let won = self.row(&self.winner).and_then(|r| r.speedup.as_ref());
        let runs = self.runs();
        if let Some(speedup) = won {
            let name = self.policy.as_deref().unwrap_or("numactl --interleave=all");
            return format!("{name}: {} over first touch in {runs} runs", measured(speedup));
        }
        let equal = 100.0 * (EQUAL - 1.0);
        let why = match self.stop {
            Stop::Known => "first touch is the fastest",
            Stop::Equal => {
                return format!("no difference seen in {runs} runs: none is {equal:.0} % faster than another");
            }
            Stop::Runs => "more runs (--runs) would show smaller differences",
            Stop::Budget => "a larger --budget would show smaller differences",
            Stop::Ended => "the race was not finished",
        };
        format!("no difference seen in {runs} runs in favour of a policy: {why}")
    }

    /// The measured beside the predicted speed-up, for the policy file.
    pub fn remark(&self) -> String {
        let row = self.row(&self.winner);
        let predicted = row.and_then(|r| r.predicted.as_ref()).map(|p| format!("; predicted {}", speedup(p)));
        let (winner, sentence) = (&self.winner, &self.sentence);
        format!("Measured by numamma tune ({winner}): {sentence}{}.", predicted.unwrap_or_default())
    }

    /// The table and the sentence for the terminal.
    pub fn text(&self) -> String {
        let head = ["candidate", "runs", "median", "speed-up", "predicted", "corrected", "busiest node"];
        let or_dash = |v: Option<String>| v.unwrap_or_else(|| "-".to_owned());
        let cells = |r: &Row| {
            vec![
                r.name.clone(),
                r.times.len().to_string(),
                or_dash(r.time.map(seconds)),
                or_dash(r.speedup.as_ref().map(measured)),
                or_dash(r.predicted.as_ref().map(speedup)),
                or_dash(r.corrected.as_ref().map(speedup)),
                or_dash(r.busiest_node_share.map(percent)),
            ]
        };
        let table = plain(&head, self.candidates.iter().map(cells), 1..7);
        let mut out: String = table.to_string().lines().map(|line| line.trim_end().to_owned() + "\n").collect();
        let level = self.candidates.iter().find_map(|r| r.speedup).map_or(0.0, |s| s.confidence);
        if level > 0.0 {
            out +=
                &format!("intervals: {:.1} % each, so that all looks at all pairs together have 95 %\n", 100.0 * level);
        }
        out += &format!("\n{}\n", self.sentence);
        self.correction.iter().for_each(|c| out += &self.words(c));
        out
    }

    /// The correction for people.
    fn words(&self, correction: &Correction) -> String {
        let (factor, left) = (correction.waiting, 100.0 * correction.left);
        let file = format!("{}.tuned", self.profile);
        if !correction.explains() {
            return format!(
                "The predictions are up to {left:.0} % from the times, however long the program waits for memory: the \n\
                 difference comes from something that they do not know.\n"
            );
        }
        let mut words = if factor > 0.0 {
            format!("The program waits {factor:.2} times as long for memory as its samples say: ")
        } else {
            "The program does not wait for memory as its samples say: ".to_owned()
        };
        words += &format!("with that the predictions\nare within {left:.0} % of the times. ");
        words += &format!("advise and predict use it on this machine from now on ({file}).\n");
        if self.advises_otherwise {
            let profile = &self.profile;
            words += &format!("With it other placements are advised; next: numamma advise {profile}\n");
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned(winner: &str, policy: Option<&str>, stop: Stop) -> Tuned {
        let sample = |name: &str, times: &[f64]| Sample { name: name.into(), times: times.into(), busiest: Ok(0.25) };
        let found = SpeedUp { estimate: 1.234, low: 1.187, high: 1.271, confidence: 0.999 };
        let price = PolicyPrice {
            name: "advised".into(),
            local_share: None,
            busiest_node_share: None,
            time: 0.8,
            speedup: 1.25,
            low: None,
            high: None,
        };
        let mut tuned = Tuned {
            command: vec!["./app".into()],
            profile: "numamma.prof".into(),
            budget_s: 600,
            seed: 1,
            stop,
            winner: winner.into(),
            policy: policy.map(str::to_owned),
            notes: Vec::new(),
            candidates: vec![
                Row::of(&sample("first-touch", &[1.23; 7]), None, None),
                Row::of(&sample("interleave", &[1.5; 7]), None, None),
                Row::of(&sample("advised", &[1.0; 7]), Some(found), Some(price)),
            ],
            correction: None,
            advises_otherwise: false,
            sentence: String::new(),
        };
        tuned.sentence = tuned.in_one_sentence();
        tuned
    }

    #[test]
    fn one_sentence_says_how_it_ended() {
        let won = tuned("advised", Some("policy.toml"), Stop::Known);
        assert_eq!(won.sentence, "policy.toml: 1.23x (1.19 to 1.27) over first touch in 14 runs");
        assert!(won.remark().ends_with("in 14 runs; predicted 1.25x."), "{}", won.remark());
        let text = won.text();
        assert!(text.contains("1.23x (1.19 to 1.27)") && text.contains("25.0%") && text.contains("99.9 %"), "{text}");
        assert!(!text.contains("waits"), "{text}");
        let correction = Correction { machine: "m".into(), waiting: 0.62, left: 0.04, runs: 21 };
        let corrected = Tuned { correction: Some(correction), advises_otherwise: true, ..won }.text();
        for words in ["waits 0.62 times as long", "within 4 % of", "(numamma.prof.tuned)", "next: numamma advise"] {
            assert!(corrected.contains(words), "{corrected}");
        }
        for (stop, words) in [
            (Stop::Equal, "no difference seen in 21 runs: none is 3 % faster"),
            (Stop::Budget, "a larger --budget"),
            (Stop::Runs, "more runs (--runs)"),
            (Stop::Known, "first touch is the fastest"),
        ] {
            let none = tuned("first-touch", None, stop).sentence;
            assert!(none.starts_with("no difference seen in 21 runs") && none.contains(words), "{none}");
        }
    }
}
