//! The rooms of the house in their order. This list is the one place that says which room may import which.

use crate::rules::Room;

const fn room(name: &'static str, folder: &'static str, knows: &'static [&'static str]) -> Room {
    Room { name, folder, knows }
}

/// From the bottom up: a room may import rooms that stand before it, and says which.
pub const ROOMS: &[Room] = &[
    room("kernel", "crates/kernel/src", &[]),
    room("plan", "crates/plan/src", &["kernel"]),
    room("channel", "crates/channel/src", &["kernel"]),
    room("hook", "crates/hook/src", &["kernel"]),
    room("preload-profile", "crates/preload-profile/src", &["kernel", "channel", "hook"]),
    room("trace", "crates/trace/src", &["kernel", "channel", "hook"]),
    room("preload-apply", "crates/preload-apply/src", &["kernel", "plan", "hook"]),
    room("topology", "src/topology", &["kernel"]),
    room("launch", "src/launch", &["kernel", "plan"]),
    room("profile", "src/profile", &["kernel", "plan", "channel", "launch", "topology"]),
    room("detect", "src/detect", &["plan", "profile"]),
    room("merge", "src/merge", &["plan", "profile", "detect"]),
    room("advise", "src/advise", &["kernel", "plan", "topology", "profile", "detect"]),
    room("apply", "src/apply", &["kernel", "plan", "topology", "launch", "profile", "advise"]),
    room("report", "src/report", &["kernel", "plan", "topology", "profile", "detect", "merge", "advise", "apply"]),
    room(
        "cli",
        "src/cli",
        &["kernel", "plan", "channel", "topology", "launch", "profile", "detect", "merge", "advise", "apply", "report"],
    ),
    room("main", "src/", &["cli"]),
];

/// Folders of this root hold at most so many files.
pub const SMALL_FOLDERS: &[(&str, usize)] = &[("crates/preload-apply/src", 10)];

/// Rules that are not kept yet. An entry that is no longer needed fails the test, so that it is removed.
pub const EXCEPTIONS: &[&str] = &[];
