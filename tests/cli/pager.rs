//! The pager of `numamma report`: on a terminal only, and never in the way of the report.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use super::synthetic;
use crate::common::{numamma, run, terminal};

/// What appears on a terminal.
fn shown(prof: &Path, more: &[&str], environment: &[(&str, &str)]) -> String {
    let (mut person, side) = terminal();
    let mut command = numamma(&["report"]);
    command.args(more).arg(prof).env("TERM", "xterm").env_remove("PAGER").env_remove("NUMAMMA_PAGER");
    command.envs(environment.iter().copied()).stdout(Stdio::from(side)).stderr(Stdio::null());
    let mut child = command.spawn().expect("numamma starts");
    drop(command);
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    // A terminal that no program holds any more ends with an error.
    while let Ok(n) = person.read(&mut bytes) {
        text.push_str(&String::from_utf8_lossy(&bytes[..n]));
    }
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{text}");
    text
}

#[test]
fn a_terminal_gets_the_report_through_the_pager() {
    let prof = synthetic::write("pager", &synthetic::lu());
    let sed = ("NUMAMMA_PAGER", "sed s/^/paged:/");
    let paged = |text: &str| text.contains("cvar_") && text.lines().all(|line| line.starts_with("paged:"));
    let plain = |text: &str| text.contains("cvar_") && !text.contains("paged:");
    let text = shown(&prof, &[], &[sed]);
    assert!(paged(&text), "{text}");
    let text = shown(&prof, &[], &[("PAGER", "sed s/^/paged:/")]);
    assert!(paged(&text), "{text}");
    for (more, environment) in [
        (&["--no-pager"][..], sed),
        (&["--json"], sed),
        (&[], ("NUMAMMA_PAGER", "")),
        (&[], ("NUMAMMA_PAGER", "cat")),
        (&[], ("NUMAMMA_PAGER", "/no/such/pager")),
    ] {
        let text = shown(&prof, more, &[environment, ("PAGER", "sed s/^/paged:/")]);
        assert!(plain(&text), "{more:?} {environment:?}: {text}");
    }
    let text = shown(&prof, &[], &[("NUMAMMA_PAGER", "head -n 1")]);
    assert_eq!(text.lines().count(), 1, "a pager that stops early: {text}");
}

#[test]
fn a_pipe_gets_the_report_itself() {
    let prof = synthetic::write("pager-pipe", &synthetic::lu());
    let with = run(numamma(&["report"]).arg(&prof).env("NUMAMMA_PAGER", "sed s/^/paged:/").env("TERM", "xterm"));
    let without = run(numamma(&["report", "--no-pager"]).arg(&prof));
    assert!(with.stdout.contains("cvar_"), "{}", with.stderr);
    assert_eq!(with.stdout, without.stdout);
}
