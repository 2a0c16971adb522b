//! First touches of memory that the program used before.
//!
//! A page that an allocator gives out again does not fault, so the allocation has no first touch of its own: its pages
//! are where the first toucher of the memory put them, under whatever object that happened. An allocation without any
//! first touch gets those of its addresses, unless its own may have been among the page faults that were not recorded.

use super::entries::Layout;
use super::types::TouchRun;
use crate::profile::ranges::Ranges;
use crate::profile::records::{ObjectKind, ThreadId, Touch};

/// Pages of one allocation that are looked up. They bound the memory that a profile of many allocations takes, and show
/// one part for each of up to as many threads.
const LOOKED_UP: u64 = 16;

/// An allocation without first touches of its own.
struct Reused {
    born_ns: u64,
    entry: usize,
    instance: u32,
}

/// Adds the first touches of reused memory. Those of every entry are sorted; the order stays. `thinned`: the time in
/// which not all page faults were recorded.
pub(super) fn inherit(layout: &mut Layout, touches: &[Touch], thinned: std::ops::RangeInclusive<u64>) {
    let mut reused = untouched(layout);
    reused.retain(|r| !thinned.contains(&r.born_ns));
    reused.sort_unstable_by_key(|r| r.born_ns);
    let mut touches: Vec<&Touch> = touches.iter().collect();
    touches.sort_by_key(|t| t.time_ns);
    let mut touches = touches.into_iter().peekable();
    let mut by_page: Ranges<ThreadId> = Ranges::default();
    for r in reused {
        // Of two touches of a page the later one counts: the memory was returned to the kernel between them.
        while let Some(touch) = touches.next_if(|t| t.time_ns <= r.born_ns) {
            let low = touch.addr >> layout.page_shift;
            let high = low.saturating_add(touch.pages);
            if low < high {
                by_page.cut(low, high);
                by_page.insert(low, high, touch.thread);
            }
        }
        let entry = &mut layout.entries[r.entry];
        let instance = &entry.seen[r.instance as usize];
        let first = instance.base >> layout.page_shift;
        let end = instance.base.saturating_add(instance.size.max(1) - 1) >> layout.page_shift;
        entry.touches.extend(runs(&by_page, first, end - first + 1, &r));
    }
    for entry in &mut layout.entries {
        entry.touches.sort_by_key(|t| (t.instance, t.page));
    }
}

fn untouched(layout: &Layout) -> Vec<Reused> {
    let heap = layout.entries.iter().enumerate().filter(|(_, e)| e.kind == ObjectKind::Heap);
    heap.flat_map(|(index, entry)| {
        let has_touch = |i: u32| entry.touches.binary_search_by_key(&i, |t| t.instance).is_ok();
        let instances = entry.seen.iter().zip(0..).filter(move |(_, i)| !has_touch(*i));
        instances.map(move |(seen, instance)| Reused { born_ns: seen.born_ns, entry: index, instance })
    })
    .collect()
}

/// The first touchers of an allocation's pages from `first` on, in runs as long as neighbours agree.
fn runs(by_page: &Ranges<ThreadId>, first: u64, pages: u64, reused: &Reused) -> Vec<TouchRun> {
    let parts = pages.min(LOOKED_UP);
    let edge = |part: u64| (u128::from(pages) * u128::from(part) / u128::from(parts)) as u64;
    let mut out: Vec<TouchRun> = Vec::new();
    for part in 0..parts {
        let (low, high) = (edge(part), edge(part + 1));
        let Some(span) = by_page.get(first.saturating_add(low + (high - low) / 2)) else { continue };
        let (Ok(page), Ok(pages)) = (u32::try_from(low), u32::try_from(high - low)) else { break };
        match out.last_mut() {
            Some(last) if last.thread == span.value && last.page.checked_add(last.pages) == Some(page) => {
                last.pages = last.pages.saturating_add(pages).min(u32::MAX - last.page);
            }
            _ => out.push(TouchRun {
                instance: reused.instance,
                page,
                pages: pages.min(u32::MAX - page),
                thread: span.value,
                time_ns: reused.born_ns,
            }),
        }
    }
    out
}
