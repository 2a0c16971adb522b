//! Keeps the tracking of allocations within the overhead the user allowed.
//!
//! Recording an allocation costs the program tens of nanoseconds. Programs that allocate millions of times a second
//! would be slowed down far beyond the bound, so when their rate shows that, only one in 2^k small allocations (under a
//! page) is reported from then on. Of the large ones and of mappings, which are what can be placed, each call site may
//! report so many in each [`EPOCH`]: all of those that are few, and some of those that are many.

use std::time::Duration;

use numamma_channel::layout::kept;
use numamma_channel::reader::Channel;

use crate::profile::space::Space;

/// CPU time of one event, nanoseconds: 25 in the program, about half of what a malloc and free pair costs more under
/// the profile preload (`make bench`, section malloc), and 75 in the recorder (samples of it while it recorded the test
/// program `linked`). A parallel program uses all CPUs, so CPU time used by the recorder is lost to the program.
const EVENT_NS: f64 = 100.0;
/// Part of the allowed overhead that allocation tracking may use; the rest is for sampling.
const SHARE: f64 = 0.5;
/// Events that may come at once, as the CPU time over which they would be allowed: all
/// allocations of a data structure built at the start should be recorded. 600,000 events at the default bound, 60 ms.
const CREDIT_NS: u64 = 4_000_000_000;
/// A rate is judged after this long at least, and after this many events.
const WINDOW: Duration = Duration::from_millis(5);
const WINDOW_EVENTS: u64 = 10_000;
/// Large allocations of a call site that are reported in an epoch at the first step; each further step halves it.
const FIRST_QUOTA: u32 = 2048;
/// Time after which each call site may report large allocations again.
const EPOCH: Duration = Duration::from_millis(100);
/// At least one in 2^12 is recorded, so that every frequent call site appears.
const MAX_BITS: u32 = 12;

/// Watches the rate of events.
#[derive(Debug)]
pub struct Thinning {
    /// Events allowed per nanosecond of the program's CPU time.
    allowed: f64,
    bits: u32,
    events: u64,
    since_ns: u64,
    cpu_ns: u64,
    epoch_ns: u64,
}

impl Thinning {
    /// For a bound of the overhead (a fraction).
    pub fn new(max_overhead: f64) -> Thinning {
        Thinning { allowed: max_overhead * SHARE / EVENT_NS, bits: 0, events: 0, since_ns: 0, cpu_ns: 0, epoch_ns: 0 }
    }

    /// Takes the number of all events so far, reported and lost, and the program's CPU time (ns). When there are too
    /// many, it raises the thinning and returns true.
    pub fn watch(&mut self, now_ns: u64, events: u64, cpu: u64, channel: &Channel, space: &mut Space) -> bool {
        if self.bits > 0 && u128::from(now_ns.saturating_sub(self.epoch_ns)) >= EPOCH.as_nanos() {
            self.epoch_ns = now_ns;
            channel.new_epoch();
        }
        if self.since_ns == 0 {
            (self.since_ns, self.events) = (now_ns, events);
            return false;
        }
        let (elapsed, new) = (now_ns.saturating_sub(self.since_ns), events.saturating_sub(self.events));
        if u128::from(elapsed) < WINDOW.as_nanos() || new < WINDOW_EVENTS {
            return false;
        }
        // CPU time has ticks of 10 ms: a short window counts as at least one CPU.
        let used = cpu.saturating_sub(self.cpu_ns).max(elapsed);
        (self.since_ns, self.events, self.cpu_ns) = (now_ns, events, cpu);
        if (events as f64) < self.allowed * (cpu + CREDIT_NS) as f64 {
            return false;
        }
        let more = bits_for(new as f64 / used as f64, self.allowed).min(MAX_BITS - self.bits);
        self.raise(more, channel, space)
    }

    /// Thins once more because memory is short, and forgets the blocks that would not have been recorded.
    pub fn save_memory(&mut self, channel: &Channel, space: &mut Space) {
        self.raise((MAX_BITS - self.bits).min(1), channel, space);
        let mask = (1 << self.bits) - 1;
        space.forget(|addr| kept(addr, mask));
    }

    fn raise(&mut self, more: u32, channel: &Channel, space: &mut Space) -> bool {
        if more == 0 {
            return false;
        }
        self.bits += more;
        let mask = (1 << self.bits) - 1;
        channel.set_quota((FIRST_QUOTA >> self.bits).max(1));
        channel.set_thin(mask);
        space.thin(|addr| kept(addr, mask));
        true
    }

    /// One in how many small allocations is reported.
    pub fn factor(&self) -> u32 {
        1 << self.bits
    }
}

/// Halvings that bring `rate` under `allowed`.
fn bits_for(rate: f64, allowed: f64) -> u32 {
    if rate <= allowed { 0 } else { (rate / allowed).log2().ceil() as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halvings_until_it_fits() {
        assert_eq!(bits_for(1.0, 2.0), 0);
        assert_eq!(bits_for(2.1, 2.0), 1);
        assert_eq!(bits_for(64.0, 1.0), 6);
    }

    #[test]
    fn a_thinner_choice_is_a_part_of_the_thicker_one() {
        let blocks: Vec<u64> = (0..200_000u64).map(|i| 0x7f00_0000_0000 + i * 48).collect();
        for bits in 0..8 {
            let (wide, narrow) = ((1 << bits) - 1, (1 << (bits + 1)) - 1);
            let some = blocks.iter().filter(|a| kept(**a, narrow)).count();
            assert!(blocks.iter().all(|a| !kept(*a, narrow) || kept(*a, wide)));
            let expected = blocks.len() >> (bits + 1);
            assert!(some.abs_diff(expected) < expected / 4, "{some} of {expected}");
        }
    }
}
