//! The verdict on a placed run: what the preload counted, page by page, against the plan.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
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
    fn words(self) -> &'static str {
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

/// The whole answer, as `--json` prints it.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// Program, as given.
    pub program: String,
    /// Policy file, as given.
    pub policy: String,
    /// The program's exit status (128 + signal).
    pub exit_status: u8,
    /// Everything was found and is on plan.
    pub ok: bool,
    /// Why the run could not be checked, if so.
    pub problem: Option<String>,
    /// Objects.
    pub objects: Vec<JsonObject>,
    /// Phases.
    pub phases: Vec<PhaseReport>,
}

/// One object of the answer.
#[derive(Debug, Clone, Serialize)]
pub struct JsonObject {
    #[serde(flatten)]
    counts: ObjectReport,
    /// What became of it.
    pub verdict: Verdict,
}

/// Reads the report and judges it; `ending` describes how the program ended, `None` for a normal exit.
pub fn judge(report: &Path, program: &str, policy: &str, exit_status: u8, ending: Option<String>) -> Answer {
    let read = fs::read_to_string(report);
    let nothing = |problem: String| (Vec::new(), Vec::new(), Some(problem));
    let (found, phases, problem) = match read {
        Ok(text) => match serde_json::from_str::<Report>(&text) {
            Ok(r) => (r.objects, r.phases, r.problem.map(|p| format!("nothing was placed: {p}"))),
            Err(e) => nothing(format!("the library's report cannot be read: {e}")),
        },
        Err(_) => nothing(no_report(ending)),
    };
    let objects: Vec<JsonObject> =
        found.into_iter().map(|counts| JsonObject { verdict: counts.verdict(), counts }).collect();
    let ok = problem.is_none() && objects.iter().all(|o| matches!(o.verdict, Verdict::OnPlan | Verdict::Left));
    Answer { program: program.to_owned(), policy: policy.to_owned(), exit_status, ok, problem, objects, phases }
}

fn no_report(ending: Option<String>) -> String {
    match ending {
        Some(how) => format!("the program {how} before its pages could be checked"),
        None => "the program ended without a report: it is not the program of the policy, or it left by a raw exit system call or by exec".to_owned(),
    }
}

impl Answer {
    /// Table and verdict for people.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header([
            "object",
            "policy",
            "block",
            "nodes",
            "instances",
            "planned",
            "present",
            "on",
            "off",
            "verdict",
        ]);
        for o in &self.objects {
            let c = &o.counts;
            let block = if c.block == 0 { "-".to_owned() } else { numamma_plan::policy::Size(c.block).to_string() };
            table.add_row([
                c.name.clone(),
                c.policy.clone(),
                block,
                c.nodes.clone(),
                c.instances.to_string(),
                c.pages_planned.to_string(),
                c.pages_present.to_string(),
                c.pages_on_plan.to_string(),
                c.pages_off_plan.to_string(),
                o.verdict.words().to_owned(),
            ]);
        }
        for column in 4..9 {
            if let Some(c) = table.column_mut(column) {
                c.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = String::new();
        if !self.objects.is_empty() {
            text.push_str(&format!("{table}\n"));
        }
        for phase in &self.phases {
            text.push_str(&phase.text());
        }
        text.push_str(&self.summary());
        text
    }

    fn summary(&self) -> String {
        if let Some(problem) = &self.problem {
            return format!("numamma: not verified: {problem}");
        }
        let count = |v: Verdict| self.objects.iter().filter(|o| o.verdict == v).count();
        let off: u64 = self.objects.iter().map(|o| o.counts.pages_off_plan).sum();
        let present: u64 = self.objects.iter().map(|o| o.counts.pages_present).sum();
        if self.ok && self.objects.is_empty() {
            return "numamma: the policy places no object, so there was nothing to check".to_owned();
        }
        if self.ok {
            return format!("numamma: all {present} present pages are on plan");
        }
        let waiting: u64 = self.objects.iter().map(|o| o.counts.pages_waiting).sum();
        let waited = match waiting {
            0 => String::new(),
            n => format!(", {n} had not been moved yet when the program ended or gave them up"),
        };
        format!(
            "numamma: {off} of {present} present pages are off plan{waited}; {} objects not found, {} not placed",
            count(Verdict::NotFound),
            count(Verdict::Unplaced)
        )
    }
}

impl PhaseReport {
    /// A line for people.
    fn text(&self) -> String {
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

    /// The report file in it.
    pub fn file(&self) -> PathBuf {
        self.0.join("report.json")
    }
}

impl Drop for ReportDir {
    fn drop(&mut self) {
        // A directory that is gone already is what we want.
        let _ = fs::remove_dir_all(&self.0);
    }
}
