//! Which patterns need one placement together: parts of an object, or instances of a call site, that are told apart by
//! their accesses and would be placed as if they were one.

use crate::detect::limits::STRAY_SLICES;
use crate::detect::pattern::{Pattern, PatternKind};

/// Places at which owners of pages are compared: the edges of slices are known to a hundredth of a part at best.
const PLACES: u64 = 256;

/// Whether two instances need the same placement, each from its first page on.
pub(super) fn same_use(a: &Pattern, b: &Pattern) -> bool {
    let (a, b) = (a.overall(), b.overall());
    let threads = |p: &Pattern| {
        let mut threads: Vec<u32> = p.slices.iter().map(|s| s.thread).collect();
        threads.dedup();
        threads
    };
    a.kind == b.kind
        && match a.kind {
            PatternKind::Block => threads(a) == threads(b),
            PatternKind::BlockCyclic => a.period == b.period && threads(a) == threads(b),
            PatternKind::Private => user(a) == user(b),
            PatternKind::Irregular => false,
            _ => true,
        }
}

/// Whether two parts of an object, of so many bytes, are placed by the pattern of both together as by their own.
pub(super) fn is_both(whole: &Pattern, (a, size_a): (&Pattern, u64), (b, size_b): (&Pattern, u64)) -> bool {
    a.kind == b.kind
        && whole.kind == a.kind
        && match a.kind {
            PatternKind::Block | PatternKind::BlockCyclic => {
                let of = |part: &Pattern, size: u64, before: u64| {
                    let place = |n: u64| (2 * n + 1) * (size / 2) / PLACES;
                    let same = |n: &u64| owner(part, place(*n)) == owner(whole, before + place(*n));
                    (0..PLACES).filter(same).count() as f64 / PLACES as f64
                };
                of(a, size_a, 0).min(of(b, size_b, size_a)) >= 1.0 - STRAY_SLICES
            }
            PatternKind::Private => user(a) == user(b),
            PatternKind::Phased | PatternKind::Mixed => false,
            _ => true,
        }
}

/// The thread that uses a private object.
fn user(pattern: &Pattern) -> Option<u32> {
    pattern.owners.first().map(|owner| owner.thread)
}

/// The thread whose slice a byte is in.
fn owner(pattern: &Pattern, at: u64) -> Option<u32> {
    let at = pattern.period.map_or(at, |period| at % period.max(1));
    pattern.slices.iter().find(|slice| (slice.start..slice.end).contains(&at)).map(|slice| slice.thread)
}
