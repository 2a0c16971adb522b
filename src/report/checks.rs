//! What `numamma doctor` found: the fields are those of its JSON, and [`text`] writes them for a terminal.

use serde::Serialize;

use super::units::{printable, wrap};

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Works.
    Ok,
    /// Works with a restriction.
    Limited,
    /// Does not work, and is needed.
    Missing,
    /// A fact, neither good nor bad.
    Info,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Limited => "limited",
            State::Missing => "missing",
            State::Info => "-",
        }
    }
}

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// The result.
    pub state: State,
    /// What was found, one sentence without a full stop.
    pub found: String,
    /// The command that changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable: Option<String>,
}

impl Check {
    /// A check without a command.
    pub fn new(name: &'static str, state: State, found: impl Into<String>) -> Check {
        Check { name, state, found: found.into(), enable: None }
    }

    /// The same check with the command that changes its result.
    pub fn enable(mut self, command: impl Into<String>) -> Check {
        self.enable = Some(command.into());
        self
    }
}

/// Checks under a title.
#[derive(Debug, Serialize)]
pub struct Group {
    /// Heading.
    pub title: &'static str,
    /// In the order of the output.
    pub checks: Vec<Check>,
}

/// Columns of what was found from which on that stands beside the check; in less it stands below.
const LEAST_BESIDE: usize = 24;

/// One line per check, and one for the command that changes its result; with `columns` wrapped to so many.
pub fn text(groups: &[Group], columns: Option<usize>) -> String {
    let width = groups.iter().flat_map(|g| &g.checks).map(|c| c.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for group in groups {
        out += &format!("{}\n", group.title);
        for check in &group.checks {
            let (name, state) = (check.name, check.state.word());
            let beside = columns.map_or(usize::MAX, |columns| columns.saturating_sub(width + 13));
            let found = printable(&check.found);
            let below = if beside < LEAST_BESIDE { 4 } else { width + 13 };
            let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(below + 1));
            let mut lines = wrap(&found, room).into_iter();
            let first = if beside < LEAST_BESIDE { None } else { lines.next() };
            out += format!("  {name:<width$}  {state:<7}  {}", first.unwrap_or_default()).trim_end();
            out.push('\n');
            lines.for_each(|line| out += &format!("{:below$}{line}\n", ""));
            if let Some(command) = &check.enable {
                out += &format!("  {:<width$}  {:<7}  enable: {}\n", "", "", printable(command));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_one_line_per_check_and_one_per_command() {
        let groups = [Group {
            title: "Profiling",
            checks: vec![
                Check::new("timer", State::Ok, "works"),
                Check::new("page faults", State::Limited, "half").enable("sudo x"),
            ],
        }];
        let expected = "Profiling\n  timer        ok       works\n  page faults  limited  half\n\
                        \x20                       enable: sudo x\n";
        assert_eq!(text(&groups, None), expected);
        let narrow =
            text(&[Group { title: "P", checks: vec![Check::new("t", State::Ok, "a word ".repeat(9))] }], Some(40));
        assert!(narrow.lines().count() > 2 && narrow.lines().all(|line| line.len() <= 40), "{narrow}");
    }
}
