//! What the preload wrote at the end of a placed run: counts per rule and per phase, of one process or of all MPI ranks.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use numamma_plan::placement_report::{ObjectReport, PhaseReport};
use numamma_plan::reason::Reason;
use serde::Serialize;

/// Outcome for one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every present page is where the plan says.
    OnPlan,
    /// At least one page is elsewhere.
    OffPlan,
    /// At least one page was not moved to the place of a phase in time, none is elsewhere.
    Waiting,
    /// Nothing of that name, or no allocation from that call site.
    NotFound,
    /// Found, but not placed: the policy leaves it alone or no instance has a whole page.
    Left,
    /// Found, but placing failed.
    Unplaced,
}

impl Verdict {
    pub(super) fn words(self) -> &'static str {
        match self {
            Verdict::OnPlan => "on plan",
            Verdict::OffPlan => "OFF PLAN",
            Verdict::Waiting => "NOT MOVED YET",
            Verdict::NotFound => "NOT FOUND",
            Verdict::Left => "left alone",
            Verdict::Unplaced => "NOT PLACED",
        }
    }
}

/// Outcome for one object.
pub(super) fn verdict(object: &ObjectReport) -> Verdict {
    if object.pages_off_plan > 0 {
        Verdict::OffPlan
    } else if object.pages_waiting > 0 {
        Verdict::Waiting
    } else if object.instances == 0 {
        Verdict::NotFound
    } else if object.unplaced > 0 {
        Verdict::Unplaced
    } else if object.pages_planned == 0 {
        Verdict::Left
    } else {
        Verdict::OnPlan
    }
}

/// Why pages are off plan and objects not placed, with what to do, a line each.
pub(super) fn explanations(object: &ObjectReport) -> Vec<String> {
    let known =
        Reason::ALL.iter().filter_map(|r| Some((*object.reasons.get(r.word())?, "page", r.advice().to_owned())));
    let refused = match i32::try_from(object.error).unwrap_or_default() {
        libc::ENOSPC => "not populated, for want of memory: leave mode = \"populate\" out".to_owned(),
        error => format!(
            "refused by the system ({}): `numamma doctor` says what it allows",
            io::Error::from_raw_os_error(error)
        ),
    };
    let left = [
        (object.refused, refused),
        (object.over_budget, "left alone because of the budget of mappings: use larger blocks".to_owned()),
        (object.out_of_reach, "read-only, of a file or shared: no policy of this process places that".to_owned()),
    ];
    let left = left.into_iter().map(|(count, why)| (count, "object", why));
    let swapped = (object.pages_swapped, "page", "swapped out, so on no node: free memory and run again".to_owned());
    let all = known.chain(left).chain([swapped]).filter(|(count, ..)| *count > 0);
    all.map(|(count, word, why)| format!("{count} {word}{} {why}", if count == 1 { "" } else { "s" })).collect()
}

/// A line for people.
pub(super) fn phase_text(phase: &PhaseReport) -> String {
    let (Some(begun), Some(how)) = (phase.begun, &phase.how) else {
        return format!("phase {}: never began\n", phase.name);
    };
    let often = if phase.times > 1 { format!(", {} times, last", phase.times) } else { ",".to_owned() };
    let failed = match phase.pages_not_moved {
        0 => String::new(),
        n => format!(", {n} could not be moved"),
    };
    let end = if phase.finished { "" } else { "; not finished" };
    format!(
        "phase {}: began at {begun:.2} s{often} by {how}; {} pages ({:.1} MiB) moved{failed}, {:.3} s of work in {:.3} s{end}\n",
        phase.name,
        phase.pages_moved,
        phase.bytes as f64 / f64::from(1 << 20),
        phase.worked,
        phase.took,
    )
}

/// Adds the phases of one process to those of the others.
pub(super) fn merge_phases(all: &mut Vec<PhaseReport>, of_one: Vec<PhaseReport>) {
    for phase in of_one {
        match all.iter_mut().find(|p| p.name == phase.name) {
            Some(known) => known.add(&phase),
            None => all.push(phase),
        }
    }
}

/// The texts of all reports whose name is that of `report` with a rank for its `%r`, in the order of the ranks.
pub(super) fn take_reports(report: &Path) -> Vec<String> {
    let (Some(dir), Some(name)) = (report.parent(), report.file_name().and_then(|n| n.to_str())) else {
        return Vec::new();
    };
    let Some((before, after)) = name.split_once("%r") else { return Vec::new() };
    let rank = |name: &str| name.strip_prefix(before)?.strip_suffix(after)?.parse::<u32>().ok();
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<(u32, PathBuf)> =
        entries.filter_map(|e| Some((rank(e.file_name().to_str()?)?, e.path()))).collect();
    files.sort_unstable();
    let take = |(_, path): (u32, PathBuf)| {
        let text = fs::read_to_string(&path).ok();
        // One that cannot be removed is removed with its directory.
        let _ = fs::remove_file(&path);
        text
    };
    files.into_iter().filter_map(take).collect()
}

/// Adds the objects of one process to those of the others: rules are the same if all of their words are. The n-th of several
/// alike is the n-th in each process.
pub(super) fn merge(all: &mut Vec<ObjectReport>, of_one: Vec<ObjectReport>) {
    let before = all.len();
    let mut used = vec![false; before];
    for object in of_one {
        let same = |o: &ObjectReport| (&o.name, &o.policy, &o.nodes) == (&object.name, &object.policy, &object.nodes);
        match (0..before).find(|&i| !used[i] && same(&all[i])) {
            Some(i) => {
                used[i] = true;
                all[i].add(&object);
            }
            None => all.push(object),
        }
    }
}

/// A private directory for the report, removed when dropped: names in /tmp can be foreseen by others.
#[derive(Debug)]
pub struct ReportDir(PathBuf);

impl ReportDir {
    /// Creates it.
    pub fn new() -> io::Result<ReportDir> {
        let base = std::env::temp_dir();
        for attempt in 0..100 {
            let dir = base.join(format!("numamma-verify-{}-{attempt}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(ReportDir(dir)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::Error::other(format!("{}: too many left-over numamma-verify directories", base.display())))
    }

    /// Name of the report files in it, one for each MPI rank.
    pub fn file(&self) -> PathBuf {
        self.0.join("report.%r.json")
    }
}

impl Drop for ReportDir {
    fn drop(&mut self) {
        // A directory that is gone already is what we want.
        let _ = fs::remove_dir_all(&self.0);
    }
}
