//! Read-shared: shared without structure, and written only before many threads read it, as far as samples show: the
//! read of a read-modify-write waits, so that its write has next to no samples, and nothing says that it never comes. A
//! copy on every node would make all reads local, if there is none; no placement of a single copy can.

use super::limits::{READ_ONLY_SAMPLES, READ_ONLY_SHARE, READ_ONLY_STRAY};
use super::samples::Samples;
use super::{Pattern, PatternKind};

/// Stray writes that the search for the end of writing steps over before their share is known.
const STRAYS: f64 = 1.5;

/// The part of the run after the last write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Written {
    /// First slot from which on there are no writes, except stray ones.
    pub from: u16,
    /// Independent samples from there on.
    pub after: f64,
    /// Share of all samples from there on, 0 to 1.
    pub share: f64,
    /// Share of writes in the samples before; none without such samples.
    pub writes_before: Option<f64>,
}

/// The last part of the run in which the object is only read, when it has at least [`READ_ONLY_SHARE`] of the samples
/// and at least [`READ_ONLY_SAMPLES`]. `all` includes initialisation, but not the release of the object by one thread.
pub(crate) fn written_first(all: &Samples) -> Option<Written> {
    let mut slots: Vec<(f64, f64)> = Vec::new();
    for s in &all.list {
        let slot = usize::from(s.slot);
        if slot >= slots.len() {
            slots.resize(slot + 1, (0.0, 0.0));
        }
        slots[slot].0 += f64::from(s.weight);
        slots[slot].1 += f64::from(s.writes);
    }
    let total: f64 = slots.iter().map(|s| s.0).sum();
    let (mut after, mut writes) = (0.0, 0.0);
    let mut found = None;
    for (slot, (weight, written)) in slots.iter().enumerate().rev() {
        after += weight;
        writes += written;
        // A slot with many writes ends the read-only part, however long that part is. A stray write near the end does
        // not, once enough reads precede it.
        if writes > READ_ONLY_STRAY * after + STRAYS || (*written > STRAYS && *written > 0.1 * weight) {
            break;
        }
        if writes <= READ_ONLY_STRAY * after {
            found = Some((slot as u16, after));
        }
    }
    let (from, after) = found?;
    let before = &slots[..usize::from(from)];
    let sum = |f: &dyn Fn(&(f64, f64)) -> f64| before.iter().map(f).sum::<f64>();
    let weight = sum(&|s| s.0);
    let written = Written {
        from,
        after,
        share: after / total.max(f64::MIN_POSITIVE),
        writes_before: (weight > 0.0).then(|| sum(&|s| s.1) / weight),
    };
    (written.after >= READ_ONLY_SAMPLES && written.share >= READ_ONLY_SHARE).then_some(written)
}

/// Replaces the pattern random of an object that is only read from `written.from` on by read-shared.
pub(crate) fn read_shared(random: Pattern, written: Written) -> Pattern {
    // 95 % of the time a share of writes p leaves none in n samples only when p < 3 / n.
    let bound = 3.0 / written.after;
    let first = match written.writes_before {
        Some(w) => format!("written before ({:.0} % of the accesses until then)", 100.0 * w),
        // Some write it was, and stray ones may have been seen.
        None => "no time in which it is written was seen".into(),
    };
    let evidence = format!(
        "{}; {first} and read by all, without writes seen, in its last {:.0} samples, {:.0} % of all (under {:.1} %; a \
         write right behind a read of the same place is seldom sampled)",
        random.evidence,
        written.after,
        100.0 * written.share,
        100.0 * (bound + READ_ONLY_STRAY)
    );
    Pattern { kind: PatternKind::ReadShared, confidence: random.confidence * (1.0 - bound), evidence, ..random }
}
