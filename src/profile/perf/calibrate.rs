//! Measures what one sample costs the program on this machine, and derives the sampling rate.
//!
//! The recorder reads the clock in a loop under a timer event like the program's; every sample shows as a
//! gap. On bare metal a sample takes 1 to 2 us, in nested virtual machines 20 to 100. The loop is the cheapest case, so
//! the figure is a lower bound and is multiplied by a safety factor.

use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use perf_event_open_sys::ioctls;

use super::attr;
use super::ring::Ring;

/// How long the spin lasts.
const SPIN: Duration = Duration::from_millis(60);
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

/// Measures the cost of one sample, nanoseconds.
///
/// # Errors
/// When the kernel refuses the event.
pub fn sample_cost_ns() -> io::Result<u64> {
    // The event counts the calling thread, until it is closed at the end of this function.
    let mut timer = attr::timer(1_000_000_000 / SPIN_HZ, true);
    timer.set_inherit(0);
    timer.set_enable_on_exec(0);
    let event = attr::open(&mut timer, 0, -1)?;
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
    fn the_rate_keeps_the_budget() {
        assert_eq!(rate_for(0.03, 0), DEFAULT_RATE);
        assert!((rate_for(0.03, 20_000) - 375.0).abs() < 1e-6);
        assert_eq!(rate_for(0.03, 1_000), RATE_RANGE.1);
        assert_eq!(rate_for(0.03, 1_000_000), RATE_RANGE.0);
    }
}
