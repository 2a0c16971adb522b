//! Messages at exit: with NUMAMMA_VERBOSE=1 a line for every rule, else the rules that matched nothing, and with
//! NUMAMMA_SUMMARY=1 how many objects were placed.
//!
//! A policy without `[program]` is meant for one process of a process tree, and the policy does not say which. So a
//! process that matched rules names those that matched nothing. A process that matched none prints nothing, unless it
//! is the only candidate: the first process with the policy, and without children.

use std::borrow::Cow;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::OnceLock;

use core::fmt::Write as _;
use core::sync::atomic::{AtomicU64, Ordering};

use numamma_hook::say;
use numamma_plan::environment::{POLICY_ENV, VERBOSE_ENV};
use numamma_plan::nodes;
use numamma_plan::policy::{Mode, PolicyKind, Size};
use numamma_plan::ranks;

use crate::objects::heap;
use crate::place::refusals::NO_MEMORY;
use crate::rules::state::{self, Placing, Rule, State};

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Most names in the message about rules that matched nothing.
const MAX_NAMES: usize = 8;
/// Ancestors that are asked whether they read what this process writes.
const MOST_ANCESTORS: usize = 32;

/// Problems of rules that may be meant for another process; see [`hold_until_exit`].
static HELD_PROBLEMS: OnceLock<Vec<String>> = OnceLock::new();

/// Keeps problems of rules until exit, when it is known whether the rules are meant for this process.
pub fn hold_until_exit(problems: Vec<String>) {
    let _ = HELD_PROBLEMS.set(problems);
}

/// Prints a line for every rule, or a single line in a process that the policy is probably not meant for.
pub fn every_rule(state: &State) {
    if !is_meant(state) {
        let program = String::from_utf8_lossy(numamma_hook::modules::executable());
        say!("{program} (process {}): no rule found anything", state.pid);
        return;
    }
    print_held_problems();
    for rule in &state.rules {
        say!("{}: {}", rule.rule.title(), line(rule));
    }
}

/// `3 objects, 12.0 MiB; block of 4MiB on nodes 0-3; 12 mbind calls, 0.041 ms; not placed: 1 too small for pages of their own`
fn line(rule: &Rule) -> String {
    let c = &rule.counters;
    let Some(Placing { place, nodes, .. }) = rule.current_placing() else { return String::new() };
    let count = c.found.instances();
    let mut text = match count {
        0 => "not found".to_owned(),
        1 => "1 object, ".to_owned(),
        n => format!("{n} objects, "),
    };
    if count > 0 {
        text += &size(c.found.bytes());
    }
    // Writing to a String cannot fail.
    let _ = write!(text, "; {}", place.policy);
    match read(&c.block) {
        0 => {}
        block => text += &format!(" of {}", Size(block)),
    }
    if place.policy != PolicyKind::Default {
        let _ = write!(text, " on nodes {}", nodes::format(&distinct(nodes)));
    }
    if place.mode == Some(Mode::Populate) {
        text += ", populated";
    }
    let calls = read(&c.mbind_calls);
    if calls > 0 {
        let ms = read(&c.place_ns) as f64 / 1e6;
        let _ = write!(text, "; {calls} mbind call{}, {ms:.3} ms", if calls == 1 { "" } else { "s" });
    }
    let refused = match read(&c.error) {
        0 => "refused by the system".to_owned(),
        error if error == NO_MEMORY as u64 => "too large to populate".to_owned(),
        error => format!("refused by the system (error {error})"),
    };
    let left = [
        (&c.too_small, "too small for pages of their own"),
        (&c.over_budget, "over the budget of mappings"),
        (&c.too_brief, "allocated and freed too often to pay"),
        (&c.out_of_reach, "out of reach (read-only, a file or shared)"),
        (&c.refused, refused.as_str()),
    ];
    let left: Vec<String> =
        left.iter().filter(|(n, _)| read(n) > 0).map(|(n, why)| format!("{} {why}", read(n))).collect();
    if !left.is_empty() {
        let _ = write!(text, "; not placed: {}", left.join(", "));
    }
    text
}

/// The nodes of `list` without repetitions, in the order of their first occurrence.
pub fn distinct(list: &[u32]) -> Vec<u32> {
    let mut seen = Vec::new();
    for node in list {
        if !seen.contains(node) {
            seen.push(*node);
        }
    }
    seen
}

fn size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >> shift > 0 {
            return format!("{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64);
        }
    }
    format!("{bytes} bytes")
}

/// Prints in one line how many objects were placed if that is asked for, and which rules matched nothing.
pub fn missing_rules(state: &State) {
    let missing: Vec<_> = state
        .rules
        .iter()
        .filter(|r| r.placings.iter().any(|p| p.place.policy != PolicyKind::Default) && !has_instances(r))
        // Why nothing of the heap is placed has been said.
        .filter(|r| r.rule.global.is_some() || heap::stopped().is_none())
        .map(|r| r.rule.title())
        .collect();
    if (missing.is_empty() && !state.summary) || !is_meant(state) {
        return;
    }
    print_held_problems();
    match (state.summary, missing.len()) {
        (true, 0) => say!("{}", placed(state)),
        (true, 1) => say!("{}; not found: {}", placed(state), missing[0]),
        (true, n) => say!("{}; {n} rules matched nothing: {}", placed(state), listed(&missing)),
        (false, _) => say!("not found, so not placed: {}", listed(&missing)),
    }
}

/// `3 objects placed`, and how many could not be.
fn placed(state: &State) -> String {
    let sum = |of: fn(&Rule) -> u64| state.rules.iter().map(of).fold(0_u64, u64::wrapping_add);
    let left = sum(|r| read(&r.counters.too_small).wrapping_add(read(&r.counters.unplaced)));
    let placed = sum(|r| r.counters.found.instances()).saturating_sub(left);
    let objects = if placed == 1 { "object" } else { "objects" };
    match left {
        0 => format!("{placed} {objects} placed"),
        left => format!("{placed} {objects} placed, {left} not ({VERBOSE_ENV}=1 says why)"),
    }
}

/// `a; b; c and 4 more (NUMAMMA_VERBOSE=1 tells all)`
fn listed(names: &[Cow<'_, str>]) -> String {
    let (first, rest) = names.split_at(names.len().min(MAX_NAMES));
    match rest.len() {
        0 => first.join("; "),
        more => format!("{} and {more} more ({VERBOSE_ENV}=1 tells all)", first.join("; ")),
    }
}

fn print_held_problems() {
    print_problems(HELD_PROBLEMS.get().map_or(&[][..], Vec::as_slice));
}

/// Prints problems of rules, each in a line; of very many only the first.
pub fn print_problems(problems: &[String]) {
    let shown = if state::get().is_some_and(|state| state.verbose) { problems.len() } else { MAX_NAMES };
    let (first, rest) = problems.split_at(problems.len().min(shown));
    first.iter().for_each(|problem| say!("object {problem}"));
    if !rest.is_empty() {
        say!("{} more rules have such problems ({VERBOSE_ENV}=1 tells all)", rest.len());
    }
}

fn has_instances(rule: &Rule) -> bool {
    rule.counters.found.instances() > 0
}

/// Whether the policy is meant for this process, so that rules that matched nothing are reported.
fn is_meant(state: &State) -> bool {
    // SAFETY: an all-zero rusage is valid and filled by the call.
    let no_child = || unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage.ru_maxrss == 0
    };
    state.policy.program.is_some() || state.rules.iter().any(has_instances) || (no_child() && is_first())
}

/// Whether the parent of this process runs without the policy.
pub fn is_first() -> bool {
    !has_policy(numamma_kernel::sys::parent())
}

fn has_policy(process: u32) -> bool {
    let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    let is_policy = |v: &[u8]| v.strip_prefix(POLICY_ENV.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
    environment.split(|&b| b == 0).any(is_policy)
}

/// Whether another process with the policy reads what this one writes to standard error, as cmake reads `uname -m`, and
/// may take a line of this library for a part of it: a pipe that is not that of its ancestors with the policy. A
/// launcher of ranks hands on what it reads.
pub fn are_read_by_ancestor() -> bool {
    let file = |path: String| {
        let file = std::fs::metadata(path).ok()?;
        let is_pipe = file.file_type().is_fifo() || file.file_type().is_socket();
        Some((file.dev(), file.ino(), is_pipe))
    };
    let errors = file("/proc/self/fd/2".to_owned());
    if !errors.is_some_and(|(.., is_pipe)| is_pipe) || ranks::this_rank().is_some() {
        return false;
    }
    let mut process = numamma_kernel::sys::parent();
    for _ in 0..MOST_ANCESTORS {
        if !has_policy(process) {
            return false;
        }
        if let Some(theirs) = file(format!("/proc/{process}/fd/2"))
            && Some(theirs) != errors
        {
            return true;
        }
        let Some(parent) = parent_of(process) else { return false };
        process = parent;
    }
    false
}

/// Field 4 of /proc/PID/stat, behind a name that may hold anything (proc_pid_stat(5)).
fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = stat.split_at(stat.iter().rposition(|&b| b == b')')? + 1);
    std::str::from_utf8(rest).ok()?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::counters::{Counters, add};
    use numamma_plan::policy::{ObjectRule, Place};

    #[test]
    fn a_line_tells_what_where_cost_and_what_not() {
        let place = Place { policy: PolicyKind::Block, ..Place::default() };
        let (layout, homes, shared, phase, thread_nodes) = Default::default();
        let own = Placing { place: place.clone(), nodes: vec![0, 1, 0, 1], layout, homes, shared, phase, thread_nodes };
        let rule = Rule::new(ObjectRule { place, ..ObjectRule::default() }, vec![own], Counters::default());
        assert_eq!(line(&rule), "not found; block on nodes 0-1");
        let c = &rule.counters;
        (0..3).for_each(|thread| c.found.count(thread, 4 << 20));
        let values = [(&c.block, 4 << 20), (&c.mbind_calls, 2)];
        let more = [(&c.place_ns, 41_000), (&c.too_small, 1), (&c.refused, 2), (&c.error, 1)];
        values.iter().chain(&more).for_each(|(counter, value)| add(counter, *value));
        assert_eq!(
            line(&rule),
            "3 objects, 12.0 MiB; block of 4MiB on nodes 0-1; 2 mbind calls, 0.041 ms; \
             not placed: 1 too small for pages of their own, 2 refused by the system (error 1)"
        );
    }

    #[test]
    fn a_thousand_rules_are_one_short_line() {
        let names: Vec<Cow<'_, str>> = (0..1000).map(|i| format!("f, instances {i}").into()).collect();
        assert_eq!(listed(&names[..2]), "f, instances 0; f, instances 1");
        let all = listed(&names);
        assert!(
            all.ends_with("; f, instances 7 and 992 more (NUMAMMA_VERBOSE=1 tells all)") && all.len() < 300,
            "{all}"
        );
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!([0, 100, 1536, 5 << 30].map(size), ["0 bytes", "100 bytes", "1.5 KiB", "5.0 GiB"]);
    }
}
