//! `numamma tune` where there is nothing to race; the race itself is tests/lab/tune.rs.

use std::process::Stdio;

use crate::common::{self, Scratch, numamma};

#[test]
fn one_node_is_nothing_to_race() {
    if numamma_plan::machine::Machine::this().memory_nodes.len() > 1 {
        return;
    }
    let dir = Scratch::new("tune-one-node");
    let mut command = numamma(&["tune", "--", "touch", "it-ran"]);
    let out = common::run(command.current_dir(&*dir).stdin(Stdio::null()));
    assert_eq!((out.code(), out.stdout.as_str()), (Some(1), ""), "{out:?}");
    for words in ["one node", "nothing to race", "numamma predict --nodes"] {
        assert!(out.stderr.contains(words), "no {words}: {}", out.stderr);
    }
    assert!(!dir.join("it-ran").exists() && !dir.join("policy.toml").exists(), "the program was run for nothing");
}

#[test]
fn a_time_that_is_none_is_refused() {
    for budget in ["0", "soon", "-5m"] {
        let out = common::run(&mut numamma(&["tune", &format!("--budget={budget}"), "--", "true"]));
        assert_eq!(out.code(), Some(2), "{out:?}");
        assert!(out.stderr.contains("90s, 10m or 2h"), "{}", out.stderr);
    }
}
