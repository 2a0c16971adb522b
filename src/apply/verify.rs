//! The verdict on a placed run: what the preload counted, page by page, against the plan.

use std::path::Path;

use numamma_plan::placement_report::{ObjectReport, PhaseReport, PlacementReport};
use numamma_plan::policy::PolicyKind;
use numamma_plan::reason::Reason;
use serde::Serialize;

use super::given::Started;
pub use super::rank_reports::ReportDir;
use super::rank_reports::{merge, merge_phases, take_reports};
use crate::launch::exit::Ended;

/// The whole answer, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Answer<'a> {
    /// Program, as given.
    pub program: &'a str,
    /// Policy file, as given.
    pub policy: &'a str,
    /// The program's exit status, as shells give it (128 + signal).
    pub exit_status: u8,
    /// What the processes reported.
    #[serde(flatten)]
    pub outcome: &'a Outcome,
}

/// What the processes of a placed run reported, judged together.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Processes of the program that reported: one, the ranks of an MPI job, or as often as a script runs it.
    pub processes: usize,
    /// Everything was found, and is on plan except pages that spilled from a full node.
    pub ok: bool,
    /// Why the run could not be checked, if so.
    pub problem: Option<String>,
    /// What the user may not expect: where `all` is fewer nodes than the machine has.
    pub warnings: Vec<String>,
    /// Objects.
    pub objects: Vec<CheckedObject>,
    /// Phases.
    pub phases: Vec<PhaseReport>,
}

/// Outcome for one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every present page is where the plan says.
    OnPlan,
    /// At least one page is elsewhere, for another reason than that its planned node was full.
    OffPlan,
    /// At least one page is elsewhere, all of them because their planned nodes were full. The placement did what the
    /// policy asks: a preference.
    Spilled,
    /// At least one page was not moved to the place of a phase in time, none is elsewhere.
    Waiting,
    /// Nothing of that name, or no allocation from that call site.
    NotFound,
    /// Found, but not placed: the policy leaves it alone or no instance has a whole page.
    Left,
    /// Found, but placing failed.
    Unplaced,
}

/// One object of the answer.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedObject {
    #[serde(flatten)]
    /// Counts of all processes.
    pub counts: ObjectReport,
    /// What became of it.
    pub verdict: Verdict,
}

/// Reads the reports written under the name [`ReportDir::file`], removes them, and judges them together. `started` is
/// what the process that was started was given, and its id; none where the nodes of `all` are not to be judged.
/// `other`: why no process of the policy's program is to be expected, if so.
pub fn judge(report: &Path, ended: Ended, started: Option<(&Started, u32)>, other: Option<&str>) -> Outcome {
    let mut found: Vec<ObjectReport> = Vec::new();
    let mut phases: Vec<PhaseReport> = Vec::new();
    let mut problem = None;
    let texts = take_reports(report);
    let mut reports = Vec::new();
    for text in &texts {
        match serde_json::from_str::<PlacementReport>(text) {
            Ok(mut r) => {
                problem = problem.or_else(|| started.and_then(|(started, pid)| started.contradicts(&r, pid)));
                let any = !r.objects.is_empty();
                merge(&mut found, std::mem::take(&mut r.objects));
                merge_phases(&mut phases, std::mem::take(&mut r.phases));
                // A process that lists its objects has placed some of them, or may have.
                let placed = if any { "" } else { "nothing was placed: " };
                problem = problem.or(r.problem.as_ref().map(|p| format!("{placed}{p}")));
                reports.push(r);
            }
            Err(e) => problem = Some(format!("the library's report cannot be read: {e}")),
        }
    }
    if texts.is_empty() {
        problem = Some(no_report(ended, other));
    }
    let objects = checked(found);
    let ok = problem.is_none() && objects.iter().all(|o| o.verdict.is_ok());
    let warnings = started.map_or_else(Vec::new, |(started, _)| started.warnings(&reports));
    Outcome { processes: texts.len(), ok, problem, warnings, objects, phases }
}

impl Verdict {
    /// Whether the placement did what the policy asks.
    fn is_ok(self) -> bool {
        matches!(self, Verdict::OnPlan | Verdict::Spilled | Verdict::Left)
    }
}

/// Pages that are not on their planned node because that was full.
pub fn spilled(object: &ObjectReport) -> u64 {
    object.reasons.get(Reason::Spilled.word()).copied().unwrap_or(0)
}

/// The objects with their verdicts: one whose small objects are all in pages that are counted for others has the verdict
/// of these.
fn checked(found: Vec<ObjectReport>) -> Vec<CheckedObject> {
    let first_of = |o: &ObjectReport| match o.shares_pages_of.as_str() {
        "" => o.name.clone(),
        first => first.to_owned(),
    };
    let of_others = |counts: &ObjectReport| {
        let shares = |o: &&ObjectReport| o.pages_planned > 0 && first_of(o) == first_of(counts);
        // Whether these have objects, too, or some that were not placed, is another matter.
        let of_pages = |o: &ObjectReport| verdict(&ObjectReport { instances: 1, unplaced: 0, ..o.clone() });
        let mut others = found.iter().filter(shares).map(of_pages);
        others.clone().find(|verdict| !verdict.is_ok()).or_else(|| others.next())
    };
    let verdicts: Vec<Verdict> = found
        .iter()
        .map(|counts| match verdict(counts) {
            Verdict::Left if counts.pages_planned == 0 && counts.too_small == 0 && counts.instances > 0 => {
                of_others(counts).unwrap_or(Verdict::Left)
            }
            own => own,
        })
        .collect();
    found.into_iter().zip(verdicts).map(|(counts, verdict)| CheckedObject { verdict, counts }).collect()
}

/// Outcome for one object.
fn verdict(object: &ObjectReport) -> Verdict {
    let spilled = spilled(object);
    if object.pages_off_plan > spilled {
        Verdict::OffPlan
    } else if object.pages_waiting > 0 {
        Verdict::Waiting
    } else if object.instances == 0 && object.policy == PolicyKind::Default.to_string() {
        Verdict::Left // nothing was to be placed
    } else if object.instances == 0 {
        Verdict::NotFound
    } else if object.unplaced > 0 {
        Verdict::Unplaced
    } else if spilled > 0 {
        Verdict::Spilled
    } else if object.pages_planned == 0 {
        Verdict::Left
    } else {
        Verdict::OnPlan
    }
}

fn no_report(ended: Ended, other: Option<&str>) -> String {
    match ended {
        _ if other.is_some() => other.unwrap_or_default().to_owned(),
        Ended::Signalled(_) | Ended::Runs => format!("the program {ended} before its pages could be checked"),
        Ended::Exited(_) | Ended::Unknown => {
            "the program ended without a report: it is not the program of the policy, or it left by a raw \
                             exit system call or by exec"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_whose_pages_are_counted_for_another_has_its_verdict() {
        let verdicts = |instances, off| {
            let of = |name: &str, instances, (planned, off), with: &str| ObjectReport {
                name: name.into(),
                instances,
                pages_planned: planned,
                pages_off_plan: off,
                shares_pages_of: with.into(),
                ..ObjectReport::default()
            };
            let found = vec![
                of("first", instances, (9, off), ""),
                of("second", 5, (0, 0), "first"),
                of("third", 5, (4, 0), "first"),
            ];
            checked(found).into_iter().map(|object| object.verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(5, 0), [Verdict::OnPlan; 3]);
        assert_eq!(verdicts(5, 1), [Verdict::OffPlan, Verdict::OffPlan, Verdict::OnPlan]);
        assert_eq!(verdicts(0, 0), [Verdict::NotFound, Verdict::OnPlan, Verdict::OnPlan]);
        let alone = ObjectReport { name: "alone".into(), instances: 3, ..ObjectReport::default() };
        assert_eq!(checked(vec![alone])[0].verdict, Verdict::Left);
    }

    #[test]
    fn only_pages_that_did_not_spill_are_an_error() {
        let of = |off, spilled, unplaced| {
            let reasons = [(Reason::Spilled.word().to_owned(), spilled)].into();
            let counts =
                ObjectReport { instances: 1, pages_planned: 9, pages_off_plan: off, ..ObjectReport::default() };
            verdict(&ObjectReport { reasons, unplaced, ..counts })
        };
        assert_eq!([of(0, 0, 0), of(5, 5, 0), of(5, 4, 0)], [Verdict::OnPlan, Verdict::Spilled, Verdict::OffPlan]);
        assert_eq!(of(5, 5, 1), Verdict::Unplaced);
        assert!(of(5, 5, 0).is_ok() && !of(5, 4, 0).is_ok() && !of(5, 5, 1).is_ok());
    }
}
