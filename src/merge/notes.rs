//! What the reader and the recorder said about each profile, as a few lines for all.

use std::collections::BTreeSet;

use super::Member;
use super::catalog::without_numbers;
use crate::profile::records::{Ended, Stats};
use crate::profile::summary::{Summary, unresolved_note};

/// Profiles that a line names; of more it says how many they are.
const MOST_NAMED: usize = 3;

/// The notes on profiles.
#[derive(Debug, Default)]
pub(super) struct Notes {
    lines: Vec<Line>,
    profiles: usize,
    arguments: BTreeSet<Vec<String>>,
}

/// A note on one profile or several.
#[derive(Debug)]
struct Line {
    /// The note without its numbers: notes that differ in these are one.
    kind: String,
    /// The first of them.
    text: String,
    same: bool,
    /// Files, as many as are named.
    files: Vec<String>,
    profiles: usize,
}

impl Notes {
    /// Adds what is said of a profile, and how the program ended if that was not well.
    pub fn add(&mut self, member: &Member, summary: &Summary) {
        self.profiles += 1;
        self.arguments.insert(summary.header.program.argv.iter().skip(1).cloned().collect());
        let own = unresolved_note(&summary.stats);
        for note in summary.notes.iter().filter(|note| own.as_ref() != Some(*note)) {
            // The reader names the file in some.
            let named = format!("{}: ", member.file.display());
            self.line(member, note.strip_prefix(&named).unwrap_or(note).to_owned());
        }
        match summary.ending {
            Some(Ended::Signalled(signal)) => self.line(member, format!("the program was killed by signal {signal}")),
            Some(Ended::Exited(code)) if code != 0 => {
                self.line(member, format!("the program ended with exit status {code}"));
            }
            _ => {}
        }
    }

    fn line(&mut self, member: &Member, text: String) {
        let kind = without_numbers(&text);
        let at = self.lines.iter().position(|line| line.kind == kind).unwrap_or(self.lines.len());
        if at == self.lines.len() {
            self.lines.push(Line { kind, text: text.clone(), same: true, files: Vec::new(), profiles: 0 });
        }
        let line = &mut self.lines[at];
        line.same &= line.text == text;
        line.profiles += 1;
        if line.files.len() < MOST_NAMED {
            line.files.push(member.file_and_rank());
        }
    }

    /// The lines for all together, whose counters are `stats`.
    pub fn finish(self, stats: &Stats) -> Vec<String> {
        let all = self.profiles;
        let mut out: Vec<String> = self.lines.into_iter().map(|line| line.told(all)).collect();
        out.extend(unresolved_note(stats));
        if self.arguments.len() > 1 {
            out.push(format!(
                "the profiles were recorded with {} different lists of arguments; shown are those of one",
                self.arguments.len()
            ));
        }
        out
    }
}

impl Line {
    fn told(self, all: usize) -> String {
        let Line { text, same, files, profiles, .. } = self;
        let whose = match profiles {
            n if n == all && same => return text,
            n if n == all => format!("all {all} profiles"),
            n if n <= MOST_NAMED => files.join(", "),
            n => format!("{n} of {all} profiles ({}, ...)", files.join(", ")),
        };
        // The numbers are those of one profile.
        if same { format!("{whose}: {text}") } else { format!("{whose}; the first of them: {text}") }
    }
}
