//! Writes the report of a placed run, when the program ends.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io::ErrorKind;
use std::path::Path;

use numamma_hook::blocked_signal::BlockedSignal;
use numamma_hook::{errno, own_stack, sandbox, say, sys};
use numamma_kernel::output_file::{self, Pipes};
use numamma_plan::environment::REPORT_ENV;
use numamma_plan::nodes;
use numamma_plan::placement_report::{ObjectReport, PhaseReport, PlacementReport};
use numamma_plan::reason::Reason;

use super::messages;
use crate::objects::{globals, heap, heap_table, mapping_list, small_objects};
use crate::phases::{begin, exclusion};
use crate::rules::state::{self, Rule, State};

static DONE: AtomicBool = AtomicBool::new(false);

/// Checks all live objects and writes the report once, in the process that was started and not in its forks.
pub fn finish() {
    let Some(state) = state::get() else { return };
    // Once the program has confined itself, not even the process id may be asked for.
    if sandbox::entered() || sys::pid() != state.pid || DONE.swap(true, Ordering::AcqRel) {
        return;
    }
    let _errno = errno::Saved::now();
    if own_stack::run(|| finish_for(state)).is_none() {
        say!("memory is short: the report of this run could not be written");
    }
}

fn finish_for(state: &'static State) {
    match state.verbose {
        true => messages::every_rule(state),
        false => messages::missing_rules(state),
    }
    let Some(path) = &state.report else { return };
    exclusion::stop();
    globals::examine_all(state);
    heap_table::for_each(|object, _| match small_objects::owns(object.base) {
        true => small_objects::examine(state, &object),
        false => object.examine(state, object.whole(), true),
    });
    mapping_list::for_each(|piece| piece.object.examine(state, piece.part, true));
    // Every process that inherits the environment and has the name of the program writes a report; one without objects
    // does not overwrite that of another.
    let nothing = state.rules.iter().all(|r| r.counters.found.instances() == 0);
    if nothing && path.exists() {
        return;
    }
    write(path, stopped(state).as_deref(), object_reports(state), begin::report(state));
}

/// Why allocations were not placed although their rules could be followed; `None` if all that were found were placed
/// before.
fn stopped(state: &State) -> Option<String> {
    let is_missing = |rule: &Rule| {
        let count = |value: &AtomicU64| value.load(Ordering::Relaxed);
        rule.rule.global.is_none() && (rule.counters.found.instances() == 0 || count(&rule.counters.unplaced) > 0)
    };
    let why = heap::stopped().filter(|_| state.rules.iter().any(is_missing))?;
    Some(format!("{why}: nothing more was placed on the heap"))
}

/// Warns at start-up that the directory of the report does not exist.
pub fn check_directory(path: &Path) {
    if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty() && !d.exists()) {
        say!("{REPORT_ENV}: {}: no such directory, no report will be written; create it", dir.display());
    }
}

/// Writes a report that says why nothing was placed.
pub fn problem(path: &Path, why: &str) {
    write(path, Some(why), Vec::new(), Vec::new());
}

fn object_reports(state: &State) -> Vec<ObjectReport> {
    state.rules.iter().filter_map(|rule| object_report(state, rule)).collect()
}

/// The counts of one rule, with its current place.
fn object_report(state: &State, rule: &Rule) -> Option<ObjectReport> {
    let placing = rule.current_placing()?;
    let shared = rule.shares_heaps_of().filter(|_| rule.shares()).and_then(|index| state.rules.get(index));
    let shared = shared.filter(|other| !ptr::eq(*other, rule));
    let c = &rule.counters;
    let count = |value: &AtomicU64| value.load(Ordering::Relaxed);
    let reasons = Reason::ALL.iter().zip(&c.reasons).map(|(reason, pages)| (reason.word().to_owned(), count(pages)));
    let by_node = (0..).zip(&c.by_node).map(|(node, pages): (u32, _)| (node.to_string(), count(pages)));
    let nodes = placing.place.nodes.clone();
    Some(ObjectReport {
        name: rule.rule.title().into_owned(),
        policy: placing.place.policy.to_string(),
        nodes: nodes.unwrap_or_else(|| nodes::format(&messages::distinct(&placing.nodes))),
        instances: c.found.instances(),
        too_small: count(&c.too_small),
        unplaced: count(&c.unplaced),
        bytes: c.found.bytes(),
        pages_planned: count(&c.planned),
        pages_present: count(&c.present),
        pages_on_plan: count(&c.on_plan),
        pages_off_plan: count(&c.off_plan),
        pages_waiting: count(&c.waiting),
        block: count(&c.block),
        refused: count(&c.refused),
        error: count(&c.error),
        over_budget: count(&c.over_budget),
        too_brief: count(&c.too_brief),
        out_of_reach: count(&c.out_of_reach),
        mbind_calls: count(&c.mbind_calls),
        place_ns: count(&c.place_ns),
        pages_swapped: count(&c.swapped),
        pages_by_node: by_node.filter(|(_, pages)| *pages > 0).collect(),
        reasons: reasons.filter(|(_, pages)| *pages > 0).collect(),
        full_nodes: nodes::format_runs(&numbers_of(c.full_nodes.iter().map(count))),
        shares_pages_of: shared.map(|rule| rule.rule.title().into_owned()).unwrap_or_default(),
    })
}

/// The numbers of the bits that are set in `words`.
fn numbers_of(words: impl Iterator<Item = u64>) -> Vec<u32> {
    let bits =
        words.zip(0..).flat_map(|(word, i)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |b| (i, b)));
    bits.map(|(i, bit)| i * 64 + bit).collect()
}

/// Writes a temporary file and renames it, so that a reader sees a whole report or none.
fn write(path: &Path, problem: Option<&str>, objects: Vec<ObjectReport>, phases: Vec<PhaseReport>) {
    let program = String::from_utf8_lossy(numamma_hook::modules::executable()).into_owned();
    let state = state::get();
    let list = |of: fn(&State) -> &Vec<u32>| state.map_or_else(String::new, |state| nodes::format_runs(of(state)));
    let report = PlacementReport {
        pid: sys::pid() as u32,
        program,
        problem: problem.map(str::to_owned),
        all: list(|state| &state.machine.own),
        cpus: list(|state| &state.given.cpus),
        bound_memory: list(|state| &state.given.bound_memory),
        objects,
        phases,
    };
    let text = report.to_json();
    if let Err(e) = save(path, &text) {
        // The directory existed at start-up: it was removed while a child process outlived the reader of the report, so
        // no message is printed.
        if e.kind() == ErrorKind::NotFound {
            return;
        }
        say!("{}: cannot write the report: {e}; check {REPORT_ENV}", path.display());
    }
}

/// Replaces a regular file as a whole, and writes to a device or a pipe: a rename would replace /dev/null for all
/// processes.
fn save(path: &Path, text: &str) -> std::io::Result<()> {
    // Under `ulimit -f`, or without a reader, a write would end the program.
    let (_size, _pipe) = (BlockedSignal::block(libc::SIGXFSZ), BlockedSignal::block(libc::SIGPIPE));
    // A pipe without a reader must not block the program.
    output_file::write(path, text.as_bytes(), Pipes::Refuse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn bits_are_numbers() {
        assert_eq!(numbers_of([0b101, 0, 1 << 63].into_iter()), [0, 2, 191]);
    }

    #[test]
    fn only_files_are_replaced() {
        let dir = std::env::temp_dir().join(format!("numamma-report-{}", sys::pid()));
        fs::create_dir_all(&dir).unwrap();
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| dir.join(name));
        symlink(&file, &link).unwrap();
        fs::write(&file, "before").unwrap();
        save(&link, "one").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        save(&file, "two").unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), "two");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a name that ends in NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(save(&pipe, "three").is_err(), "nobody reads, and nobody waits");
        assert!(!fs::metadata(&pipe).unwrap().is_file());
        assert!(save(&dir, "four").is_err());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 3);
        fs::remove_dir_all(&dir).unwrap();
    }
}
