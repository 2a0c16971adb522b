//! First touches of a long recording: the first of each page of an object, and the last of each address, which is that
//! of all later objects there until the page faults again.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profile::ranges::Ranges;
use crate::profile::records::{NO_OBJECT, ObjectId, Touch};

/// The touches that stay, in order of time. `kept`: objects that stay; `slot_ns`: how exact times are to be.
pub(super) fn left(
    mut touches: Vec<Touch>,
    kept: &FxHashSet<ObjectId>,
    (page_shift, slot_ns): (u32, u64),
) -> Vec<Touch> {
    touches.sort_by_key(|t| t.time_ns);
    let mut first: FxHashMap<ObjectId, Ranges<()>> = FxHashMap::default();
    let mut last: Ranges<usize> = Ranges::default();
    let mut out: Vec<Touch> = Vec::new();
    for (n, touch) in touches.iter().enumerate() {
        let low = touch.addr >> page_shift;
        let high = low.saturating_add(touch.pages);
        if low >= high {
            continue;
        }
        last.cut(low, high);
        last.insert(low, high, n);
        if kept.contains(&touch.object) {
            let new = first.entry(touch.object).or_default().fill(low, high, ());
            out.extend(new.into_iter().map(|(low, high)| Touch {
                addr: low << page_shift,
                pages: high - low,
                ..*touch
            }));
        }
    }
    // What is in `out` already says the same of its pages, unless it came before another touch of them.
    let known: FxHashSet<(u64, u64)> = out.iter().map(|t| (t.addr, t.time_ns)).collect();
    for span in last.iter() {
        let Some(touch) = touches.get(span.value) else { continue };
        let addr = span.low << page_shift;
        if !known.contains(&(addr, touch.time_ns)) {
            out.push(Touch { object: NO_OBJECT, addr, pages: span.high - span.low, ..*touch });
        }
    }
    joined(out, page_shift, slot_ns)
}

/// Joins runs of pages that continue each other and were touched by one thread within `slot_ns`. In order of time.
fn joined(mut touches: Vec<Touch>, page_shift: u32, slot_ns: u64) -> Vec<Touch> {
    touches.sort_by_key(|t| (t.object, t.addr));
    let mut out: Vec<Touch> = Vec::with_capacity(touches.len());
    for touch in touches {
        match out.last_mut() {
            Some(t)
                if (t.object, t.thread) == (touch.object, touch.thread)
                    && t.addr + (t.pages << page_shift) == touch.addr
                    && t.time_ns.abs_diff(touch.time_ns) < slot_ns =>
            {
                t.pages += touch.pages;
                t.time_ns = t.time_ns.min(touch.time_ns);
            }
            _ => out.push(touch),
        }
    }
    out.sort_by_key(|t| t.time_ns);
    out
}
