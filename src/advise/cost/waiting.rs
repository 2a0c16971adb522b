//! How much of the CPU time charged to an object waits, and how many lines are under way meanwhile, from the code that
//! makes the accesses.
//!
//! *Waiting*: a sample lies right behind an instruction that waits, and anywhere in code that computes. So the samples
//! charged to an access that lie at later instructions tell what an instruction takes without waiting; so much of those
//! right behind the access is issue, too, and the rest is waiting.
//!
//! *Lines*: an address that registers count up is known long before the access, so a core fetches as many lines as it
//! has buffers. An address that the loop loads is known as soon as that load is done, for as many turns of the loop as
//! the core looks ahead. An address that is loaded through a loaded address is known when the one before has arrived, so
//! one line is under way.

use super::World;
use super::resample::{GROUPS, mixed, spread};
use crate::profile::records::{AccessCode, AddressKind};
use crate::profile::summary::Entry;

/// Line fill buffers of the first-level data cache, the most lines that a core fetches at a time: 10 (Intel 64 and IA-32
/// Optimization Reference Manual, Sandy Bridge to Skylake; 12 from Ice Lake on).
const FILL_BUFFERS: f64 = 10.0;
/// Instructions that a core looks ahead: entries of the reorder buffer (224: same manual, Skylake; Zen 2 has the same
/// number by AMD's Software Optimization Guide for Family 17h).
const WINDOW: f64 = 224.0;
/// Lines of code of which nothing is known: the geometric middle of the bounds, 1 and [`FILL_BUFFERS`].
pub(super) const UNKNOWN_LINES: f64 = 3.162_277_66;
/// Part of the time charged to code of which nothing is known that waits: the upper bound.
pub(super) const UNKNOWN_WAITING: f64 = 1.0;

/// Lines under way while an access waits.
fn lines(code: &AccessCode) -> f64 {
    match code.address {
        AddressKind::Unknown => UNKNOWN_LINES,
        AddressKind::Counted => FILL_BUFFERS,
        AddressKind::Loaded => (WINDOW / f64::from(code.body.max(1))).clamp(1.0, FILL_BUFFERS),
        AddressKind::Chained => 1.0,
    }
}

/// Part of the samples charged to an access that wait; none where every instruction accesses memory, or outside of
/// loops.
fn waiting(code: &AccessCode) -> Option<f64> {
    let others = f64::from(code.gap.checked_sub(1).filter(|others| *others > 0)?);
    let (behind, later) = (code.behind as f64, code.later as f64);
    let all = behind + later;
    (all > 0.0).then(|| (behind - later / others).max(0.0) / all)
}

/// The mean of a figure over the instructions that access an entry, by cost; none where no instruction has it.
fn mean(entry: &Entry, figure: impl Fn(&AccessCode) -> Option<f64>) -> Option<f64> {
    let (mut sum, mut weights) = (0.0, 0.0);
    for code in &entry.details.access_code {
        let counters = entry.details.code.iter().find(|(frame, _)| *frame == code.frame).map(|(_, c)| c);
        if let (Some(value), Some(counters)) = (figure(code), counters) {
            sum += value * counters.cost_ns as f64;
            weights += counters.cost_ns as f64;
        }
    }
    (weights > 0.0).then(|| sum / weights)
}

impl World<'_> {
    /// Lines that are fetched while one access to an entry waits.
    pub fn lines_in_flight(&self, entry: &Entry) -> f64 {
        mean(entry, |code| Some(lines(code))).unwrap_or(UNKNOWN_LINES)
    }

    /// What a random group of the samples tells of [`World::stalled_part`], over what all of them tell: the places of
    /// samples behind an access are a draw, too. 1 where all time is taken to wait.
    pub(super) fn waiting_by_group(&self, entry: &Entry) -> [f64; GROUPS] {
        let (mut sums, mut weights) = ([0.0; GROUPS], 0.0);
        for (index, code) in entry.details.access_code.iter().enumerate() {
            let counters = entry.details.code.iter().find(|(frame, _)| *frame == code.frame).map(|(_, c)| c);
            let (Some(part), Some(counters)) = (waiting(code).filter(|part| *part > 0.0), counters) else { continue };
            let (behind, later) = (code.behind as f64, code.later as f64);
            let scale = counters.cost_ns as f64 * GROUPS as f64 / (behind + later);
            let seed = mixed(u64::from(entry.id), !(index as u64));
            let (near, far) = (spread(seed, behind, behind), spread(!seed, later, later));
            let others = f64::from(code.gap) - 1.0;
            sums.iter_mut().zip(near).zip(far).for_each(|((s, n), f)| *s += scale * (n - f / others));
            weights += counters.cost_ns as f64 * part;
        }
        if weights > 0.0 { sums.map(|sum| sum / weights) } else { [1.0; GROUPS] }
    }

    /// Whether most accesses to an entry go through it in sequence.
    pub fn is_swept(&self, entry: &Entry) -> bool {
        let counted = |code: &AccessCode| Some(f64::from(u8::from(code.address == AddressKind::Counted)));
        mean(entry, counted).is_some_and(|share| share > 0.5)
    }

    /// Part of the CPU time charged to an entry that waits, for memory or for a cache.
    pub fn stalled_part(&self, entry: &Entry) -> f64 {
        mean(entry, waiting).unwrap_or(UNKNOWN_WAITING)
    }

    /// Share of the charged CPU time of which the code is known, 0 to 1.
    pub fn known_code(&self) -> f64 {
        let (mut known, mut all) = (0.0, 0.0);
        for entry in self.summary.entries.iter().filter(|e| self.waits(e)) {
            all += self.charged(entry);
            known += if mean(entry, waiting).is_some() { self.charged(entry) } else { 0.0 };
        }
        if all > 0.0 { known / all } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::records::Frame;

    fn code(address: AddressKind, body: u32, gap: u32, behind: u64, later: u64) -> AccessCode {
        AccessCode { frame: Frame { module: 0, offset: 0 }, address, body, gap, behind, later }
    }

    #[test]
    fn lines_by_the_way_to_the_address() {
        let of = |address, body| lines(&code(address, body, 1, 0, 0));
        assert_eq!(of(AddressKind::Chained, 4), 1.0);
        assert_eq!(of(AddressKind::Counted, 400), 10.0, "prefetched");
        assert_eq!(of(AddressKind::Loaded, 5), 10.0, "45 turns are looked ahead, but there are 10 buffers");
        assert_eq!(of(AddressKind::Loaded, 56), 4.0);
        assert_eq!(of(AddressKind::Loaded, 1_000), 1.0);
        assert!((UNKNOWN_LINES * UNKNOWN_LINES - FILL_BUFFERS).abs() < 1e-6);
    }

    #[test]
    fn waiting_is_what_lies_right_behind_beyond_an_instruction_s_share() {
        let of = |gap, behind, later| waiting(&code(AddressKind::Counted, 20, gap, behind, later));
        // Ten instructions that each take 1 of 10: nothing waits.
        assert_eq!(of(10, 100, 900), Some(0.0));
        assert_eq!(of(10, 1_000, 0), Some(1.0));
        // 9 instructions take 100 each, and so does the tenth; 500 of 1,500 wait.
        assert_eq!(of(10, 600, 900), Some(500.0 / 1_500.0));
        assert_eq!((of(1, 10, 0), of(0, 10, 5), of(5, 0, 0)), (None, None, None));
    }
}
