//! The answer of `numamma verify` as a table with the reasons of what is off plan.

use std::io;

use numamma_plan::placement_report::{ObjectReport, PhaseReport};
use numamma_plan::policy::Size;
use numamma_plan::reason::Reason;

use super::table::{Column, fit, plain};
use super::units::{plural, printable, wrap};
use crate::apply::verify::{Outcome, Verdict, spilled};

/// Narrowest column in which names of objects still differ.
const MIN_NAME: usize = 12;

/// Table, reasons and verdict; with `columns` the table takes so many at most.
pub fn text(outcome: &Outcome, columns: Option<usize>) -> String {
    let head = ["object", "policy", "block", "nodes", "instances", "planned", "present", "on", "off", "verdict"];
    let rows = outcome.objects.iter().map(|o| {
        let c = &o.counts;
        let block = if c.block == 0 { "-".to_owned() } else { Size(c.block).to_string() };
        let pages = [c.pages_planned, c.pages_present, c.pages_on_plan, c.pages_off_plan].map(|n| n.to_string());
        let words = [c.name.clone(), c.policy.clone(), block, c.nodes.clone(), c.instances.to_string()];
        words.into_iter().chain(pages).chain([words_of(o.verdict).to_owned()]).collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let mut text = String::new();
    if !outcome.objects.is_empty() {
        let table = plain(&head, rows.iter().cloned(), 4..9).to_string();
        let fits = |columns: usize| table.lines().all(|line| line.trim_end().chars().count() <= columns);
        match columns.filter(|columns| !fits(*columns)) {
            Some(columns) => text.push_str(&narrow(&head, &rows, columns)),
            None => text.push_str(&format!("{table}\n")),
        }
    }
    for o in &outcome.objects {
        let name = printable(&o.counts.name);
        explanations(&o.counts).iter().for_each(|line| text.push_str(&format!("  {name}: {line}\n")));
    }
    for phase in &outcome.phases {
        text.push_str(&phase_text(phase));
    }
    for warning in &outcome.warnings {
        text.push_str(&format!("numamma: warning: {warning}\n"));
    }
    text.push_str(&summary(outcome));
    text
}

/// The table in `width` columns: those of least weight are left out and named.
fn narrow(head: &[&'static str], rows: &[Vec<String>], width: usize) -> String {
    // Importance of each column as [`Column::rank`] has it.
    const RANKS: [u8; 10] = [0, 5, 7, 6, 3, 4, 2, 8, 0, 0];
    let cells = |at: usize| rows.iter().map(|row| row.get(at).cloned().unwrap_or_default()).collect();
    let column =
        |(at, (head, rank)): (usize, (&&'static str, u8))| Column::new(head, (4..9).contains(&at), rank, cells(at));
    let columns = head.iter().zip(RANKS).enumerate().map(column).collect();
    let (table, hidden) = fit(columns, width.saturating_sub(1), MIN_NAME, false);
    let table: String = table.lines().map(|line| format!(" {line}\n")).collect();
    let hidden = format!("hidden: {} (COLUMNS=200 shows them, or --json)", hidden.join(", "));
    let hidden: String = wrap(&hidden, width.saturating_sub(1)).iter().map(|line| format!(" {line}\n")).collect();
    table + &hidden
}

fn summary(outcome: &Outcome) -> String {
    if let Some(problem) = &outcome.problem {
        return format!("numamma: not verified: {}", printable(problem));
    }
    let count = |v: Verdict| outcome.objects.iter().filter(|o| o.verdict == v).count();
    let off: u64 = outcome.objects.iter().map(|o| o.counts.pages_off_plan).sum();
    let present: u64 = outcome.objects.iter().map(|o| o.counts.pages_present).sum();
    if outcome.ok && outcome.objects.is_empty() {
        return "numamma: the policy places no object, so there was nothing to check".to_owned();
    }
    let of = if outcome.processes > 1 { format!(" of {} processes", outcome.processes) } else { String::new() };
    if outcome.ok && off > 0 {
        let on = present.saturating_sub(off);
        return format!(
            "numamma: {on} of {present} present pages{of} are on plan, {off} spilled to other nodes because theirs \
             were full"
        );
    }
    if outcome.ok {
        return format!("numamma: all {present} present pages{of} are on plan");
    }
    let spilled = match outcome.objects.iter().map(|o| spilled(&o.counts)).sum::<u64>() {
        0 => String::new(),
        n => format!(" ({n} spilled from full nodes)"),
    };
    let waiting: u64 = outcome.objects.iter().map(|o| o.counts.pages_waiting).sum();
    let waited = match waiting {
        0 => String::new(),
        n => format!(", {n} had not been moved yet when the program ended or gave them up"),
    };
    let missing = [(Verdict::NotFound, "not found"), (Verdict::Unplaced, "not placed")];
    let missing = missing.map(|(verdict, word)| (count(verdict) as u64, word));
    let mut faults: Vec<String> =
        missing.iter().filter(|m| m.0 > 0).map(|(n, word)| format!("{} {word}", plural(*n, "object"))).collect();
    let pages = match off {
        0 if present == 0 => String::new(),
        0 => format!("; the {present} present pages{of} are in place"),
        _ => format!("; {} of {present} present pages{of} are in place", present.saturating_sub(off)),
    };
    if off > 0 {
        faults.insert(0, format!("{} off plan{spilled}{waited}", plural(off, "page")));
    }
    format!("numamma: FAILED: {}{pages}", faults.join(", "))
}

fn words_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::OnPlan => "on plan",
        Verdict::OffPlan => "OFF PLAN",
        Verdict::Spilled => "spilled",
        Verdict::Waiting => "NOT MOVED YET",
        Verdict::NotFound => "NOT FOUND",
        Verdict::Left => "left alone",
        Verdict::Unplaced => "NOT PLACED",
    }
}

/// Why pages are off plan and objects not placed, with what to do, a line each.
fn explanations(object: &ObjectReport) -> Vec<String> {
    let advice = |reason: Reason| match reason {
        Reason::Spilled => format!("spilled ({}): {}", were_full(&object.full_nodes), reason.advice()),
        _ => reason.advice().to_owned(),
    };
    let known = Reason::ALL.iter().filter_map(|r| Some((*object.reasons.get(r.word())?, "page", advice(*r))));
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
        (object.too_brief, "left alone because they are allocated and freed too often for placing to pay".to_owned()),
        (object.out_of_reach, "read-only, of a file or shared: no policy of this process places that".to_owned()),
    ];
    let left = left.into_iter().map(|(count, why)| (count, "object", why));
    let swapped = (object.pages_swapped, "page", "swapped out, so on no node: free memory and run again".to_owned());
    let all = known.chain(left).chain([swapped]).filter(|(count, ..)| *count > 0);
    let all = all.map(|(count, word, why)| format!("{count} {word}{} {why}", if count == 1 { "" } else { "s" }));
    let with = Some(printable(&object.shares_pages_of)).filter(|name| !name.is_empty());
    let shared =
        with.map(|name| format!("its small objects share pages with those of {name}; each page counts for one"));
    all.chain(shared).collect()
}

/// `node 3 was full`, `nodes 2-3 were full`.
fn were_full(nodes: &str) -> String {
    match nodes.parse::<u32>() {
        Ok(node) => format!("node {node} was full"),
        Err(_) => format!("nodes {nodes} were full"),
    }
}

/// One line about a phase.
fn phase_text(phase: &PhaseReport) -> String {
    let name = printable(&phase.name);
    let (Some(begun), Some(how)) = (phase.begun, phase.how.as_deref().map(printable)) else {
        return format!("phase {name}: never began\n");
    };
    let often = if phase.times > 1 { format!(", {} times, last", phase.times) } else { ",".to_owned() };
    let failed = match phase.pages_not_moved {
        0 => String::new(),
        n => format!(", {n} could not be moved"),
    };
    let end = if phase.finished { "" } else { "; not finished" };
    format!(
        "phase {name}: began at {begun:.2} s{often} by {how}; {} pages ({:.1} MiB) moved{failed}, {:.3} s of work in \
         {:.3} s{end}\n",
        phase.pages_moved,
        phase.bytes as f64 / f64::from(1 << 20),
        phase.worked,
        phase.took,
    )
}
