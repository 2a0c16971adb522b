//! Tracks which phase of the policy holds, and begins phases: at a time, at an allocation, or by a call from the
//! program.
//!
//! Each beginning of a phase has a number (*ticket*), so that every rule sees them in one order without a lock, also
//! from a signal handler or inside an allocation. From its beginning on, allocations go to the place that their rule
//! has for the phase; the mover (`migrate/`) moves existing objects. Rules without a place for the phase keep their
//! place.
//!
//! In a forked child the current phase goes on, and further phases begin by calls and allocations, not by times.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use numamma_kernel::clock::monotonic_ns;

use numamma_hook::{errno, loaded_file, sandbox, say, say_once, sys};
use numamma_plan::placement_report::PhaseReport;
use numamma_plan::policy::Phase;

use super::{exclusion, mover_request};
use crate::rules::counters::add;
use crate::rules::state::{self, State};

/// What began a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    Time,
    Allocation,
    Call,
}

impl Trigger {
    fn word(self) -> &'static str {
        match self {
            Trigger::Time => "time",
            Trigger::Allocation => "allocation",
            Trigger::Call => "call",
        }
    }
}

/// Statistics of one phase.
#[derive(Default)]
pub struct Statistics {
    /// Number of times the phase began.
    begun: AtomicU64,
    /// Nanoseconds from the start of the program to the first beginning.
    first_ns: AtomicU64,
    /// Nanoseconds from the start of the program to the last beginning.
    last_ns: AtomicU64,
    /// Ticket of the last beginning.
    ticket: AtomicU64,
    /// What began the phase last: [`Trigger`] as a number.
    how: AtomicU64,
    /// Allocations of the call site of the phase so far, until one began it.
    allocations: AtomicU64,
    /// No further allocation can begin the phase.
    counted: AtomicBool,
    /// The time of the phase has passed.
    due: AtomicBool,
    /// Objects of the phase are still to be moved.
    unfinished: AtomicBool,
    /// Pages that were moved to another node, 4 KiB each.
    pub moved: AtomicU64,
    /// Pages that could not be moved, 4 KiB each.
    pub failed: AtomicU64,
    /// Time that the mover worked for the phase, ns.
    pub worked_ns: AtomicU64,
    /// Time from the beginning of the phase, the last one that was finished, until all pages were moved, ns.
    took_ns: AtomicU64,
}

/// All phases, in the order of the policy, and when the program started.
struct Phases {
    statistics: Vec<Statistics>,
    start_ns: u64,
    tickets: AtomicU64,
}

static PHASES: AtomicPtr<Phases> = AtomicPtr::new(core::ptr::null_mut());

fn phases() -> Option<&'static Phases> {
    // SAFETY: null or a leaked box, published with Release.
    unsafe { PHASES.load(Ordering::Acquire).as_ref() }
}

/// Called at start-up before anything is placed: begins the phases without a condition, and has the mover wait
/// for those that begin at a time.
pub fn start(state: &'static State) {
    let declared = &state.policy.phases;
    if declared.is_empty() {
        return;
    }
    let statistics = declared.iter().map(|_| Statistics::default()).collect();
    let all = Phases { statistics, start_ns: monotonic_ns(), tickets: AtomicU64::new(0) };
    PHASES.store(Box::into_raw(Box::new(all)), Ordering::Release);
    if !(0..declared.len()).any(|index| has_place(state, index)) {
        return; // no rule has a place for a phase
    }
    if !exclusion::start() {
        say!("phases need Linux 4.14 (MADV_WIPEONFORK): they only concern later allocations, nothing is moved");
    }
    begin_due();
    let timed = declared.iter().enumerate().any(|(i, p)| p.after.is_some_and(|s| s > 0.0) && has_place(state, i));
    if timed {
        mover_request::await_time();
    }
}

/// Whether a rule has a place for a phase.
fn has_place(state: &State, phase: usize) -> bool {
    state.rules.iter().any(|rule| rule.placings.iter().any(|placing| placing.phase == Some(phase)))
}

/// Whether a phase that a rule has a place for begins by a call, and the program or a library that was loaded with it
/// makes such calls, which may be in a signal handler.
pub fn may_be_called(state: &State) -> bool {
    let by_call = |(index, phase): (usize, &Phase)| {
        phase.after.is_none() && phase.allocation.is_none() && has_place(state, index)
    };
    state.policy.phases.iter().enumerate().any(by_call) && loaded_file::any_uses(c"numamma_phase")
}

/// Begins a phase, unless the program has confined itself: then nothing new is placed, and nothing moved.
fn begin(index: usize, how: Trigger) {
    if sandbox::entered() {
        return;
    }
    let (Some(state), Some(phases)) = (state::get(), phases()) else { return };
    let Some(found) = phases.statistics.get(index) else { return };
    let ticket = phases.tickets.fetch_add(1, Ordering::AcqRel) + 1;
    let now = monotonic_ns().saturating_sub(phases.start_ns);
    if found.begun.fetch_add(1, Ordering::Relaxed) == 0 {
        found.first_ns.store(now, Ordering::Relaxed);
    }
    found.how.store(how as u64, Ordering::Relaxed);
    let mut any_rule = false;
    for rule in &state.rules {
        any_rule |= rule.begin_phase(index, ticket);
    }
    if any_rule {
        found.last_ns.store(now, Ordering::Relaxed);
    }
    found.ticket.fetch_max(ticket, Ordering::AcqRel);
    if state.verbose && any_rule {
        let name = state.policy.phases.get(index).map_or("?", |p| p.name.as_str());
        say!("phase {name} begins at {:.3} s ({})", now as f64 / 1e9, how.word());
    }
    if any_rule {
        found.unfinished.store(true, Ordering::Release);
        mover_request::phase_began();
    }
}

/// Begins the phases whose time has passed; returns the nanoseconds until the next one.
pub fn begin_due() -> Option<u64> {
    let (state, phases) = (state::get()?, phases()?);
    let now = monotonic_ns().saturating_sub(phases.start_ns);
    let mut next: Option<u64> = None;
    let mut order: Vec<(u64, usize)> = Vec::new();
    for (index, phase) in state.policy.phases.iter().enumerate() {
        if let Some(after) = phase.after {
            // Saturates: a time beyond 580 years never comes.
            order.push(((after * 1e9) as u64, index));
        }
    }
    order.sort_unstable();
    for (at, index) in order {
        let Some(found) = phases.statistics.get(index) else { continue };
        if at > now {
            next = next.or(Some(at - now));
        } else if !found.due.swap(true, Ordering::AcqRel) {
            begin(index, Trigger::Time);
        }
    }
    next
}

/// Whether phase `index` counts the allocations of its call site: the one with the number in the policy has not been
/// made.
#[inline]
pub fn counts(index: usize) -> bool {
    phases().and_then(|p| p.statistics.get(index)).is_none_or(|found| !found.counted.load(Ordering::Relaxed))
}

/// Counts an allocation at the call site of phase `index`. The allocation with the number in the policy begins the
/// phase before it is placed.
pub fn allocated(index: usize) {
    let wanted = state::get().and_then(|s| s.policy.phases.get(index)?.allocation);
    let Some(found) = phases().and_then(|p| p.statistics.get(index)).filter(|_| counts(index)) else { return };
    let count = found.allocations.fetch_add(1, Ordering::Relaxed) + 1;
    if wanted.is_none_or(|wanted| count >= wanted) {
        found.counted.store(true, Ordering::Relaxed);
    }
    if wanted == Some(count) {
        begin(index, Trigger::Allocation);
    }
}

/// Called by the program to begin phase `name`; see `include/numamma.h`. Names that are not in the policy are ignored.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numamma_phase(name: *const c_char) {
    let Some(state) = state::get() else { return };
    if name.is_null() {
        return;
    }
    let _errno = errno::Saved::now();
    // SAFETY: not null, so a C string by the contract.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    match state.policy.phases.iter().position(|p| p.name.as_bytes() == name) {
        Some(index) => begin(index, Trigger::Call),
        None if state.verbose => {
            say_once!("numamma_phase(\"{}\"): the policy has no phase of that name", String::from_utf8_lossy(name));
        }
        None => {}
    }
}

/// Statistics of the phase that brought the current place of rule `index`.
pub fn of_rule(state: &'static State, index: usize) -> Option<&'static Statistics> {
    phases()?.statistics.get(state.rules.get(index)?.current_placing()?.phase?)
}

/// Ticket of the last beginning of a phase.
pub fn last_ticket() -> u64 {
    phases().map_or(0, |p| p.tickets.load(Ordering::Acquire))
}

/// Marks phases up to `ticket` as finished. A phase that holds for no rule any more stays unfinished.
pub fn mark_finished(state: &'static State, ticket: u64) {
    let Some(phases) = phases() else { return };
    let now = monotonic_ns().saturating_sub(phases.start_ns);
    for (index, found) in phases.statistics.iter().enumerate() {
        let holds = || state.rules.iter().any(|r| r.current_placing().and_then(|p| p.phase) == Some(index));
        if found.ticket.load(Ordering::Acquire) <= ticket && found.unfinished.load(Ordering::Acquire) && holds() {
            found.unfinished.store(false, Ordering::Release);
            add(&found.took_ns, now.saturating_sub(found.last_ns.load(Ordering::Relaxed)));
        }
    }
}

/// The phases, for the report.
pub fn report(state: &State) -> Vec<PhaseReport> {
    let statistics = phases().map_or(&[][..], |p| &p.statistics);
    let phase = |(phase, found): (&Phase, &Statistics)| {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let seconds = |ns: &AtomicU64| load(ns) as f64 / 1e9;
        let begun = load(&found.begun) > 0;
        let how =
            [Trigger::Time, Trigger::Allocation, Trigger::Call].into_iter().find(|h| *h as u64 == load(&found.how));
        PhaseReport {
            name: phase.name.clone(),
            times: load(&found.begun),
            begun: begun.then(|| seconds(&found.first_ns)),
            how: how.filter(|_| begun).map(|how| how.word().to_owned()),
            pages_moved: load(&found.moved),
            pages_not_moved: load(&found.failed),
            bytes: load(&found.moved) * sys::PAGE as u64,
            worked: seconds(&found.worked_ns),
            took: seconds(&found.took_ns),
            finished: begun && !found.unfinished.load(Ordering::Relaxed),
        }
    };
    state.policy.phases.iter().zip(statistics).map(phase).collect()
}
