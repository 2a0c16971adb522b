//! `numamma doctor`: what works here, tried out rather than guessed, and the command that enables the rest.

use std::process::ExitCode;

use serde::Serialize;

mod machine;
mod placing;
mod profiling;

/// Say what works on this machine and how to enable the rest
///
/// Everything is tried out as the current user. The exit status is 0 when programs can be profiled and placed here,
/// 1 when something that is needed for it does not work.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
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

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    /// What was found, one sentence without a full stop.
    found: String,
    /// The command that changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    enable: Option<String>,
}

impl Check {
    fn new(name: &'static str, state: State, found: impl Into<String>) -> Check {
        Check { name, state, found: found.into(), enable: None }
    }

    fn enable(mut self, command: impl Into<String>) -> Check {
        self.enable = Some(command.into());
        self
    }
}

#[derive(Debug, Serialize)]
struct Group {
    title: &'static str,
    checks: Vec<Check>,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let groups = [
        Group { title: "Profiling", checks: profiling::checks() },
        Group { title: "Placing", checks: placing::checks() },
        Group { title: "Machine", checks: machine::checks() },
    ];
    let printed = match args.json {
        true => match serde_json::to_string_pretty(&groups) {
            Ok(text) => super::report::print(&(text + "\n")),
            Err(e) => {
                super::say(format_args!("doctor: cannot be written as JSON: {e}"));
                return ExitCode::FAILURE;
            }
        },
        false => super::report::print(&text(&groups)),
    };
    let broken = groups.iter().flat_map(|g| &g.checks).any(|c| c.state == State::Missing);
    if broken { ExitCode::FAILURE } else { printed }
}

fn text(groups: &[Group]) -> String {
    let width = groups.iter().flat_map(|g| &g.checks).map(|c| c.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for group in groups {
        out += &format!("{}\n", group.title);
        for check in &group.checks {
            out += &format!("  {:<width$}  {:<7}  {}\n", check.name, check.state.word(), check.found);
            if let Some(command) = &check.enable {
                out += &format!("  {:<width$}  {:<7}  enable: {command}\n", "", "");
            }
        }
    }
    out
}

/// A file of one line, trimmed; none when it cannot be read.
fn line(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
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
        let expected = "Profiling\n  timer        ok       works\n  page faults  limited  half\n                        enable: sudo x\n";
        assert_eq!(text(&groups), expected);
    }
}
