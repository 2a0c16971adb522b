//! The verdict on a placed run: what the preload counted, page by page, against the plan.

use std::path::Path;

use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use numamma_plan::placement_report::{ObjectReport, PhaseReport, PlacementReport};
use serde::Serialize;

pub use super::counts::{ReportDir, Verdict};
use super::counts::{explanations, merge, merge_phases, phase_text, take_reports, verdict};

/// The whole answer, as `--json` prints it.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// Program, as given.
    pub program: String,
    /// Policy file, as given.
    pub policy: String,
    /// The program's exit status (128 + signal).
    pub exit_status: u8,
    /// Processes of the program that reported: the ranks of an MPI job, else one.
    pub processes: usize,
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

/// Reads the reports written under the name [`ReportDir::file`], removes them, and judges them together; `ending` describes
/// how the program ended, `None` for a normal exit.
pub fn judge(report: &Path, program: &str, policy: &str, exit_status: u8, ending: Option<String>) -> Answer {
    let mut found: Vec<ObjectReport> = Vec::new();
    let mut phases: Vec<PhaseReport> = Vec::new();
    let mut problem = None;
    let texts = take_reports(report);
    for text in &texts {
        match serde_json::from_str::<PlacementReport>(text) {
            Ok(r) => {
                merge(&mut found, r.objects);
                merge_phases(&mut phases, r.phases);
                problem = problem.or(r.problem.map(|p| format!("nothing was placed: {p}")));
            }
            Err(e) => problem = Some(format!("the library's report cannot be read: {e}")),
        }
    }
    if texts.is_empty() {
        problem = Some(no_report(ending));
    }
    let objects: Vec<JsonObject> =
        found.into_iter().map(|counts| JsonObject { verdict: verdict(&counts), counts }).collect();
    let ok = problem.is_none() && objects.iter().all(|o| matches!(o.verdict, Verdict::OnPlan | Verdict::Left));
    let (program, policy) = (program.to_owned(), policy.to_owned());
    Answer { program, policy, exit_status, processes: texts.len(), ok, problem, objects, phases }
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
        for o in &self.objects {
            explanations(&o.counts).iter().for_each(|line| text.push_str(&format!("  {}: {line}\n", o.counts.name)));
        }
        for phase in &self.phases {
            text.push_str(&phase_text(phase));
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
            let of = if self.processes > 1 { format!(" of {} processes", self.processes) } else { String::new() };
            return format!("numamma: all {present} present pages{of} are on plan");
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
