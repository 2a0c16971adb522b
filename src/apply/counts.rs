//! What the preload wrote at the end of a placed run: counts per rule and per phase, of one process or of all MPI ranks.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use numamma_plan::reason::Reason;
use serde::{Deserialize, Serialize};

/// What the preload wrote at the program's end.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct Report {
    /// Process that wrote it.
    pub pid: u32,
    /// Program that was placed.
    pub program: String,
    /// Why nothing was placed, if so.
    pub problem: Option<String>,
    /// One per rule of the policy.
    pub objects: Vec<ObjectReport>,
    /// One per phase of the policy.
    #[serde(default)]
    pub phases: Vec<PhaseReport>,
}

/// What became of one rule: all its instances together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ObjectReport {
    /// Name of the global, or the innermost frame or function of the call site.
    pub name: String,
    /// Distribution, as in the policy file.
    pub policy: String,
    /// Nodes, as in the policy file.
    pub nodes: String,
    /// Objects found: globals with this name, allocations from this call site.
    pub instances: u64,
    /// Instances too small to be placed (less than a whole page).
    pub too_small: u64,
    /// Instances that could not be placed and were left to the system.
    pub unplaced: u64,
    /// Bytes of all instances.
    pub bytes: u64,
    /// Whole pages that have a planned node.
    pub pages_planned: u64,
    /// Of these, pages that existed when they were checked (touched and not swapped out).
    pub pages_present: u64,
    /// Of these, pages on their planned node.
    pub pages_on_plan: u64,
    /// And pages elsewhere.
    pub pages_off_plan: u64,
    /// And pages that still waited to be moved to the place of a phase when the program ended or gave them up.
    #[serde(default)]
    pub pages_waiting: u64,
    /// Block size in use in bytes, 0 when there is none.
    pub block: u64,
    /// Instances that the kernel refused to place, and the last error it gave.
    #[serde(default)]
    pub refused: u64,
    /// See `refused`.
    #[serde(default)]
    pub error: u64,
    /// Instances for which the budget of mappings was used up.
    #[serde(default)]
    pub over_budget: u64,
    /// Instances that no policy reaches: read-only data, files, shared memory.
    #[serde(default)]
    pub out_of_reach: u64,
    /// Calls of mbind for the rule.
    #[serde(default)]
    pub mbind_calls: u64,
    /// Time spent placing, ns.
    #[serde(default)]
    pub place_ns: u64,
    /// Planned pages that were swapped out.
    #[serde(default)]
    pub pages_swapped: u64,
    /// Pages off plan by reason, in the words of [`Reason`].
    #[serde(default)]
    pub reasons: BTreeMap<String, u64>,
}

/// What happened in one phase of the policy, all times it began together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PhaseReport {
    /// As in the policy file.
    pub name: String,
    /// How often it began.
    pub times: u64,
    /// Seconds from the program's start to the first time; none when it never began.
    pub begun: Option<f64>,
    /// What began it last: `time`, `allocation` or `call`.
    pub how: Option<String>,
    /// Pages of 4 KiB that were brought to another node for it.
    pub pages_moved: u64,
    /// Pages that should have been and could not.
    pub pages_not_moved: u64,
    /// Bytes of the pages that were moved.
    pub bytes: u64,
    /// Seconds that the moving thread worked for it.
    pub worked: f64,
    /// Seconds from its beginnings until all was moved, rests included.
    pub took: f64,
    /// Everything was moved; not when the program ended or another phase began before.
    pub finished: bool,
}

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

impl ObjectReport {
    /// Adds what another process counted under the same rule.
    pub(super) fn add(&mut self, other: &ObjectReport) {
        for (sum, more) in [
            (&mut self.instances, other.instances),
            (&mut self.too_small, other.too_small),
            (&mut self.unplaced, other.unplaced),
            (&mut self.bytes, other.bytes),
            (&mut self.pages_planned, other.pages_planned),
            (&mut self.pages_present, other.pages_present),
            (&mut self.pages_on_plan, other.pages_on_plan),
            (&mut self.pages_off_plan, other.pages_off_plan),
            (&mut self.pages_waiting, other.pages_waiting),
            (&mut self.pages_swapped, other.pages_swapped),
            (&mut self.refused, other.refused),
            (&mut self.over_budget, other.over_budget),
            (&mut self.out_of_reach, other.out_of_reach),
            (&mut self.mbind_calls, other.mbind_calls),
            (&mut self.place_ns, other.place_ns),
        ] {
            *sum += more;
        }
        for (reason, pages) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += pages;
        }
        self.error = if other.error == 0 { self.error } else { other.error };
        self.block = self.block.max(other.block);
    }

    /// Outcome.
    pub fn verdict(&self) -> Verdict {
        if self.pages_off_plan > 0 {
            Verdict::OffPlan
        } else if self.pages_waiting > 0 {
            Verdict::Waiting
        } else if self.instances == 0 {
            Verdict::NotFound
        } else if self.unplaced > 0 {
            Verdict::Unplaced
        } else if self.pages_planned == 0 {
            Verdict::Left
        } else {
            Verdict::OnPlan
        }
    }
}

impl ObjectReport {
    /// Why pages are off plan and objects not placed, with what to do, a line each.
    pub(super) fn explanations(&self) -> Vec<String> {
        let known =
            Reason::ALL.iter().filter_map(|r| Some((*self.reasons.get(r.word())?, "page", r.advice().to_owned())));
        let refused = match i32::try_from(self.error).unwrap_or_default() {
            libc::ENOSPC => "not populated, for want of memory: leave mode = \"populate\" out".to_owned(),
            error => format!(
                "refused by the system ({}): `numamma doctor` says what it allows",
                io::Error::from_raw_os_error(error)
            ),
        };
        let left = [
            (self.refused, refused),
            (self.over_budget, "left alone because of the budget of mappings: use larger blocks".to_owned()),
            (self.out_of_reach, "read-only, of a file or shared: no policy of this process places that".to_owned()),
        ];
        let left = left.into_iter().map(|(count, why)| (count, "object", why));
        let swapped = (self.pages_swapped, "page", "swapped out, so on no node: free memory and run again".to_owned());
        let all = known.chain(left).chain([swapped]).filter(|(count, ..)| *count > 0);
        all.map(|(count, word, why)| format!("{count} {word}{} {why}", if count == 1 { "" } else { "s" })).collect()
    }
}

impl PhaseReport {
    /// Adds the same phase of another process; times are the longest.
    pub(super) fn add(&mut self, other: &PhaseReport) {
        self.times += other.times;
        self.begun = match (self.begun, other.begun) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.how = self.how.take().or_else(|| other.how.clone());
        self.pages_moved += other.pages_moved;
        self.pages_not_moved += other.pages_not_moved;
        self.bytes += other.bytes;
        self.worked += other.worked;
        self.took = self.took.max(other.took);
        self.finished &= other.finished;
    }

    /// A line for people.
    pub(super) fn text(&self) -> String {
        let (Some(begun), Some(how)) = (self.begun, &self.how) else {
            return format!("phase {}: never began\n", self.name);
        };
        let often = if self.times > 1 { format!(", {} times, last", self.times) } else { ",".to_owned() };
        let failed = match self.pages_not_moved {
            0 => String::new(),
            n => format!(", {n} could not be moved"),
        };
        let end = if self.finished { "" } else { "; not finished" };
        format!(
            "phase {}: began at {begun:.2} s{often} by {how}; {} pages ({:.1} MiB) moved{failed}, {:.3} s of work in {:.3} s{end}\n",
            self.name,
            self.pages_moved,
            self.bytes as f64 / f64::from(1 << 20),
            self.worked,
            self.took,
        )
    }
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
