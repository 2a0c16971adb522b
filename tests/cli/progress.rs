//! What a terminal shows while a command works, and that nothing else gets any of it.

use std::fs::{self, File};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::synthetic;
use crate::common::{Scratch, numamma, run, terminal};

/// Profiles at first; there are more until reading them takes [`LONG`].
const PROFILES: usize = 300;
/// Three times the time after which there is a bar.
const LONG: Duration = Duration::from_secs(3);

/// What `command`, whose stdout is `out`, writes to a terminal on stderr, and there on stdout without `out`.
fn shown(mut command: Command, out: Option<File>) -> String {
    let (mut person, side) = terminal();
    let stdout = out.map_or_else(|| Stdio::from(side.try_clone().expect("a descriptor")), Stdio::from);
    let mut child = command.stdout(stdout).stderr(Stdio::from(side)).spawn().expect("numamma starts");
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
fn a_recording_says_how_long_it_goes_on_where_the_program_prints_elsewhere() {
    let dir = Scratch::new("progress-profile");
    let profile = || {
        let mut command = numamma(&["profile", "-F", "100", "--", "sh", "-c", "echo said; sleep 2.3"]);
        command.current_dir(&dir);
        command
    };
    let text = shown(profile(), Some(File::create(dir.join("out")).expect("writable")));
    assert!(text.contains("recording: ") && text.contains(" s, "), "{text:?}");
    let last = text.rsplit("recording: ").next().unwrap_or_default();
    assert!(last.contains("\rnumamma: ") && !text.contains("said"), "the line is removed: {text:?}");
    assert_eq!(fs::read_to_string(dir.join("out")).expect("what the program printed"), "said\n");
    let text = shown(profile(), None);
    assert!(text.contains("said") && !text.contains("recording: "), "beside the program's output: {text:?}");
}

#[test]
fn reading_for_long_has_a_bar_on_a_terminal_only() {
    let dir = Scratch::new("progress-report");
    let one = synthetic::write("progress", &synthetic::lu());
    let report = || {
        let mut command = numamma(&["report", "."]);
        command.current_dir(&dir).env("TERM", "xterm");
        command
    };
    let (mut profiles, mut out) = (0, None);
    while out.is_none() {
        for i in profiles..PROFILES.max(2 * profiles) {
            fs::hard_link(&one, dir.join(format!("{i}.prof"))).expect("a link");
        }
        profiles = PROFILES.max(2 * profiles);
        let begun = Instant::now();
        out = Some(run(&mut report()).success()).filter(|_| begun.elapsed() >= LONG);
    }
    let out = out.expect("the report that took long");
    assert!(!out.stderr.contains("reading"), "{}", out.stderr);
    let text = shown(report(), Some(File::create(dir.join("out")).expect("writable")));
    assert!(text.contains(&format!("reading {profiles} profiles [")) && text.contains("% of "), "{text:?}");
    assert_eq!(fs::read_to_string(dir.join("out")).expect("the report"), out.stdout);
}
