//! Time stamps: cheap in the program, CLOCK_MONOTONIC in the profile.
//!
//! The program stores the processor's time stamp counter where that runs at a constant rate on all CPUs
//! together (about 10 ns cheaper than clock_gettime), and the recorder converts: it measures (counter,
//! CLOCK_MONOTONIC) pairs, at least one before the program starts and one after each drain's newest
//! event, and interpolates between neighbours. The result is monotone because both clocks are.

use core::arch::x86_64::{__cpuid, _mm_lfence, _rdtsc};

use numamma_kernel::clock::monotonic_ns;

use crate::layout::{CLOCK_MONOTONIC, CLOCK_TSC};

/// CPUID leaf and EDX bit of an invariant TSC (Intel SDM vol. 3B 18.17.1, AMD APM vol. 3 E.4.6).
const POWER_LEAF: u32 = 0x8000_0007;
const INVARIANT_TSC: u32 = 1 << 8;
/// The kernel removes `tsc` from this list when the counters of the CPUs differ.
const CLOCKSOURCES: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

/// Pairs kept: a minute of a recorder that drains a hundred times a second.
const MAX_PAIRS: usize = 8192;

/// Readings per measured pair; the one with the shortest interval is used.
const TRIES: usize = 5;

/// The clock to use on this machine.
pub fn choose() -> u32 {
    let invariant = __cpuid(0x8000_0000).eax >= POWER_LEAF && __cpuid(POWER_LEAF).edx & INVARIANT_TSC != 0;
    let trusted = std::fs::read_to_string(CLOCKSOURCES).is_ok_and(|list| list.split_whitespace().any(|c| c == "tsc"));
    if invariant && trusted { CLOCK_TSC } else { CLOCK_MONOTONIC }
}

/// Time stamp of an event that need not wait for earlier instructions (a free).
#[inline(always)]
pub fn now(clock: u32) -> u64 {
    // SAFETY: every x86_64 has rdtsc.
    if clock == CLOCK_TSC { unsafe { _rdtsc() } } else { monotonic_ns() }
}

/// Time stamp that is not taken before earlier loads are done. Needed for an allocation: the allocator may just have
/// got the block from another thread, whose free must have the earlier time.
#[inline(always)]
pub fn now_after_loads(clock: u32) -> u64 {
    // SAFETY: every x86_64 has lfence.
    unsafe { _mm_lfence() };
    now(clock)
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    ticks: u64,
    ns: u64,
}

/// Converts time stamps as described at the top of the file.
pub struct Converter {
    clock: u32,
    pairs: Vec<Pair>,
}

impl Converter {
    /// Starts with one measured pair.
    pub fn new(clock: u32) -> Converter {
        let mut converter = Converter { clock, pairs: Vec::new() };
        converter.measure();
        converter
    }

    /// Measures another pair: after it, all stamps up to now convert exactly.
    pub fn measure(&mut self) {
        if self.clock == CLOCK_MONOTONIC {
            return;
        }
        let best = (0..TRIES).map(|_| bracket()).min_by_key(|&(width, _)| width);
        if let Some((_, pair)) = best {
            self.add(pair);
        }
    }

    fn add(&mut self, pair: Pair) {
        // The clock of a virtual machine may go back; the pairs must not.
        if self.pairs.last().is_none_or(|last| pair.ticks > last.ticks && pair.ns >= last.ns) {
            self.pairs.push(pair);
        }
        if self.pairs.len() > MAX_PAIRS {
            // Old stamps have been converted; a few of their pairs are kept for stamps that arrive late.
            let (mut index, half) = (0, MAX_PAIRS / 2);
            self.pairs.retain(|_| {
                index += 1;
                index > half || index % 2 == 1
            });
        }
    }

    /// CLOCK_MONOTONIC of a stamp.
    pub fn ns(&self, ticks: u64) -> u64 {
        if self.clock == CLOCK_MONOTONIC {
            return ticks;
        }
        let after = self.pairs.partition_point(|p| p.ticks <= ticks);
        let (from, to) = match after {
            // Stamps outside the pairs (before the recorder began, or after its last measurement) are rare:
            // extrapolated with the rate of the whole run.
            0 => (self.pairs.first(), self.pairs.last()),
            n if n == self.pairs.len() => (self.pairs.first(), self.pairs.last()),
            n => (self.pairs.get(n - 1), self.pairs.get(n)),
        };
        let (Some(from), Some(to)) = (from, to) else { return 0 };
        let origin = if after == self.pairs.len() { to } else { from };
        if to.ticks == from.ticks {
            return origin.ns;
        }
        let distance = i128::from(ticks) - i128::from(origin.ticks);
        let scaled = distance * i128::from(to.ns - from.ns) / i128::from(to.ticks - from.ticks);
        (i128::from(origin.ns) + scaled).max(0) as u64
    }
}

/// A pair, and the ticks between the two counter readings around the clock.
fn bracket() -> (u64, Pair) {
    let before = now_after_loads(CLOCK_TSC);
    let ns = monotonic_ns();
    let after = now_after_loads(CLOCK_TSC);
    let width = after.saturating_sub(before);
    (width, Pair { ticks: before + width / 2, ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolates_between_neighbours_and_extends_outside() {
        let mut c = Converter { clock: CLOCK_TSC, pairs: Vec::new() };
        for (ticks, ns) in [(1000, 500), (2000, 1000), (4000, 1800)] {
            c.add(Pair { ticks, ns });
        }
        assert_eq!(c.ns(1500), 750);
        assert_eq!(c.ns(3000), 1400);
        assert_eq!(c.ns(2000), 1000);
        assert_eq!(c.ns(7000), 1800 + 1300);
        assert_eq!(c.ns(700), 500 - 130);
        c.add(Pair { ticks: 3999, ns: 1900 });
        assert_eq!(c.pairs.len(), 3, "a pair that goes back is refused");
        let all: Vec<u64> = (0..8000).map(|t| c.ns(t)).collect();
        assert!(all.is_sorted());
    }

    #[test]
    fn converted_stamps_agree_with_the_clock() {
        let clock = choose();
        let mut c = Converter::new(clock);
        let mut stamps = Vec::new();
        for _ in 0..200 {
            let before = monotonic_ns();
            let stamp = now_after_loads(clock);
            stamps.push((before, stamp, monotonic_ns()));
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        c.measure();
        // 20 us: being descheduled between the readings of a pair costs that much and more on a busy machine.
        let good = stamps.iter().filter(|&&(a, s, b)| c.ns(s) + 20_000 > a && c.ns(s) < b + 20_000).count();
        assert!(good > 180, "{good} of 200");
    }
}
