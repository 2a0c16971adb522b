//! The NUMA lab, for every test that needs nodes.

use std::path::Path;
use std::process::Command;

/// The lab script, to be given options and a command. It installs what `make build` made.
pub fn command() -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/lab"))
}

/// Whether the lab can run; in CI its absence is a failure, elsewhere the test says that it is skipped.
pub fn available() -> bool {
    let there = Command::new("sh")
        .args(["-c", "command -v qemu-system-x86_64 && command -v busybox"])
        .output()
        .is_ok_and(|o| o.status.success());
    assert!(there || std::env::var_os("CI").is_none(), "CI must have qemu and busybox: run `make setup`");
    if !there {
        eprintln!("SKIPPED: the NUMA lab needs qemu-system-x86 and busybox-static (make setup installs them)");
    }
    there
}
