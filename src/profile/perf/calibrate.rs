//! Measures what one sample, a page fault under the events for page faults and the record of a mapping cost the program
//! on this machine, and derives the sampling rate.
//!
//! The recorder reads the clock in a loop under a timer event like the program's; every sample shows as a
//! gap. On bare metal a sample takes 1 to 2 us, in nested virtual machines 20 to 100. The loop is the cheapest case, so
//! the figure is a lower bound and is multiplied by a safety factor. A page fault is charged with what it takes longer
//! than without any event: an event costs each fault something, whether that is recorded, only counted, or the event is
//! switched off.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use numamma_kernel::sys::{self, PAGE};
use perf_event_open_sys::bindings::perf_event_attr;
use perf_event_open_sys::ioctls;

use super::attr;
use super::kept;
use super::ring::Ring;

/// How long the spin lasts: 60 samples, whose median is known to a few percent. The first profile after a boot waits
/// for it.
const SPIN: Duration = Duration::from_millis(20);
/// Samples per second while calibrating: enough to outnumber the kernel's own ticks (at most 1000 a second).
const SPIN_HZ: u64 = 3000;
/// Two clock readings closer than this had no interrupt between them.
const GAP: Duration = Duration::from_nanos(800);
/// A sample costs real code more than a spinning loop (caches): up to four times as much where measured.
const SAFETY: f64 = 4.0;
/// Rates chosen automatically stay between these (samples per second and thread); 1 kHz cost 2.4 to 3.7 % where
/// measured.
pub const RATE_RANGE: (f64, f64) = (50.0, 1000.0);
/// No rate above this is accepted from the user: tens of kHz have locked up virtual machines.
pub const MAX_RATE: f64 = 4000.0;
/// Rate when calibration could not measure anything.
pub const DEFAULT_RATE: f64 = 250.0;

/// Pages touched to measure a fault: a millisecond, in which interrupts are few.
const FAULT_PAGES: usize = 256;
/// Rounds of them, without events and under each state of the events in turn. What a switched-off event costs is a
/// thirtieth of a fault.
const FAULT_ROUNDS: usize = 10;
/// Mappings made to measure the record of one.
const MAPPINGS: usize = 64;
/// Rounds of them, without and with the event in turn.
const MAPPING_ROUNDS: usize = 5;
/// What the recorder does with a page fault, nanoseconds: it takes that from the CPUs of a parallel program (CPU time
/// of the recorder over the faults of a program that does nothing else, docs/measurements.md).
pub const FAULT_RECORDER_NS: u64 = 200;

/// What an event costs the program, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Costs {
    /// A sample; 0 when the machine was too busy to tell.
    pub sample_ns: u64,
    /// The record of a page fault; 0 when the machine was too busy to tell.
    pub fault_ns: u64,
    /// A page fault while one in [`FAULT_PERIOD`] is recorded, on average; 0 as above.
    ///
    /// [`FAULT_PERIOD`]: attr::FAULT_PERIOD
    pub fault_passed_ns: u64,
    /// What a page fault takes longer because events exist, although they are switched off. The two costs above are
    /// added to this one; 0 as above.
    pub fault_off_ns: u64,
    /// The record of a mapping or of a heap that grows; 0 as above.
    pub mapping_ns: u64,
}

/// The costs as they were measured in this boot, else measured now and kept.
///
/// # Errors
/// When the kernel refuses the events.
pub fn kept_or_measured() -> io::Result<Costs> {
    // Kept figures do not help where events are refused.
    attr::open(&mut own(attr::timer(1_000_000_000, false)), 0, -1)?;
    match kept::read() {
        Some(costs) => Ok(costs),
        None => measured(),
    }
}

/// Measures the costs and keeps them for later runs.
///
/// # Errors
/// When the kernel refuses the events.
pub fn measured() -> io::Result<Costs> {
    let faults = fault_costs_ns().unwrap_or_default();
    let costs = Costs { sample_ns: sample_cost_ns()?, mapping_ns: mapping_cost_ns().unwrap_or(0), ..faults };
    kept::write(costs);
    Ok(costs)
}

/// An event of the calling thread, which is enabled by hand.
fn own(mut event: perf_event_attr) -> perf_event_attr {
    event.set_inherit(0);
    attr::Start::Enabled.set(&mut event);
    event
}

/// Measures what page faults cost, nanoseconds; 0 what other work hides. The other costs are 0.
fn fault_costs_ns() -> io::Result<Costs> {
    let mut least = [u64::MAX; 4];
    for _ in 0..FAULT_ROUNDS {
        // Closed again in each round: a switched-off event costs something, too.
        let bare = time_of_faults()?;
        let all = attr::open(&mut own(attr::faults(false)), 0, -1)?;
        let some = attr::open(&mut own(attr::some_faults(false)), 0, -1)?;
        let rings = [Ring::map(&all, 4)?, Ring::map(&some, 4)?];
        let off = time_of_faults()?;
        let under = |event: &OwnedFd| -> io::Result<u64> {
            // SAFETY: `event` is an open event.
            unsafe { ioctls::ENABLE(event.as_raw_fd(), 0) };
            let time = time_of_faults();
            // SAFETY: as above.
            unsafe { ioctls::DISABLE(event.as_raw_fd(), 0) };
            time
        };
        let now = [bare, off, under(&some)?, under(&all)?];
        drop(rings);
        least.iter_mut().zip(now).for_each(|(least, now)| *least = now.min(*least));
    }
    let each = |more: u64, less: u64| more.saturating_sub(less) / FAULT_PAGES as u64;
    let [bare, off, some, all] = least;
    let (fault_ns, fault_passed_ns, fault_off_ns) = (each(all, off), each(some, off), each(off, bare));
    Ok(Costs { fault_ns, fault_passed_ns, fault_off_ns, ..Costs::default() })
}

/// Measures what the record of a mapping costs, nanoseconds; 0 when other work hides it.
fn mapping_cost_ns() -> io::Result<u64> {
    let event = attr::open(&mut own(attr::sideband()), 0, -1)?;
    let mut ring = Ring::map(&event, 4)?;
    let (mut bare, mut recorded) = (u64::MAX, u64::MAX);
    for _ in 0..MAPPING_ROUNDS {
        bare = bare.min(time_of_mappings()?);
        // SAFETY: `event` is an open event.
        unsafe { ioctls::ENABLE(event.as_raw_fd(), 0) };
        recorded = recorded.min(time_of_mappings()?);
        // SAFETY: as above.
        unsafe { ioctls::DISABLE(event.as_raw_fd(), 0) };
        ring.drain(|_| {});
    }
    Ok(recorded.saturating_sub(bare) / MAPPINGS as u64)
}

/// Time of mapping and unmapping a page [`MAPPINGS`] times, nanoseconds.
fn time_of_mappings() -> io::Result<u64> {
    let start = Instant::now();
    for _ in 0..MAPPINGS {
        let base = sys::map_anonymous(PAGE).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the mapping just made, to which no reference exists.
        unsafe { sys::unmap(base, PAGE) };
    }
    Ok(start.elapsed().as_nanos() as u64)
}

/// Time of touching [`FAULT_PAGES`] new pages, nanoseconds.
fn time_of_faults() -> io::Result<u64> {
    let len = FAULT_PAGES * PAGE;
    let base = sys::map_anonymous(len).ok_or_else(io::Error::last_os_error)?;
    // One fault must not fill several pages.
    // SAFETY: the advice keeps the contents, and the mapping is nobody else's.
    unsafe { sys::advise(base, len, libc::MADV_NOHUGEPAGE) };
    let start = Instant::now();
    for page in 0..FAULT_PAGES {
        // SAFETY: within the mapping, which is writable and nobody else's.
        unsafe { base.cast::<u8>().add(page * PAGE).write_volatile(1) };
    }
    let time = start.elapsed().as_nanos() as u64;
    // SAFETY: the mapping made above, to which no reference exists.
    unsafe { sys::unmap(base, len) };
    Ok(time)
}

/// Measures the cost of one sample, nanoseconds.
///
/// # Errors
/// When the kernel refuses the event.
fn sample_cost_ns() -> io::Result<u64> {
    // The event counts the calling thread, until it is closed at the end of this function.
    let event = attr::open(&mut own(attr::timer(1_000_000_000 / SPIN_HZ, true)), 0, -1)?;
    let mut ring = Ring::map(&event, 16)?;
    // SAFETY: `event` is an open event.
    unsafe { ioctls::ENABLE(event.as_raw_fd(), 0) };
    let mut gaps = gaps();
    // SAFETY: as above.
    unsafe { ioctls::DISABLE(event.as_raw_fd(), 0) };
    let mut samples = 0usize;
    ring.drain(|_| samples += 1);
    gaps.sort_unstable();
    // The samples are the majority of the gaps; the median ignores ticks and time stolen by the host.
    Ok(if samples == 0 { 0 } else { gaps.get(gaps.len() / 2).copied().unwrap_or(0) })
}

fn gaps() -> Vec<u64> {
    let mut found = Vec::with_capacity(1024);
    let end = Instant::now() + SPIN;
    let mut last = Instant::now();
    while last < end {
        let now = Instant::now();
        let gap = now - last;
        if gap > GAP {
            found.push(gap.as_nanos() as u64);
        }
        last = now;
    }
    found
}

/// Samples per second and thread for an overhead of at most `max_overhead` (a fraction) at `cost_ns` a sample.
pub fn rate_for(max_overhead: f64, cost_ns: u64) -> f64 {
    if cost_ns == 0 {
        return DEFAULT_RATE;
    }
    (max_overhead / (SAFETY * cost_ns as f64 * 1e-9)).clamp(RATE_RANGE.0, RATE_RANGE.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_costs_are_measured() {
        let costs = measured().expect("perf events work where the tests run");
        // Zero is allowed: other work may hide them.
        assert!(costs.sample_ns < 10_000_000 && costs.fault_ns < 1_000_000, "{costs:?}");
        let is_seen = |of: fn(Costs) -> u64| (0..200).any(|_| fault_costs_ns().is_ok_and(|costs| of(costs) > 0));
        assert!(is_seen(|c| c.fault_ns) && is_seen(|c| c.fault_passed_ns), "a fault under an event costs something");
        assert!(is_seen(|c| c.fault_off_ns), "so does one beside an event");
        assert!((0..200).any(|_| mapping_cost_ns().is_ok_and(|ns| ns > 0)), "and the record of a mapping");
    }

    #[test]
    fn the_rate_keeps_the_budget() {
        assert_eq!(rate_for(0.03, 0), DEFAULT_RATE);
        assert!((rate_for(0.03, 20_000) - 375.0).abs() < 1e-6);
        assert_eq!(rate_for(0.03, 1_000), RATE_RANGE.1);
        assert_eq!(rate_for(0.03, 1_000_000), RATE_RANGE.0);
    }
}
