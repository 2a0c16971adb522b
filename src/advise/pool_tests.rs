//! Advice about objects smaller than a page, which are one entry for each call site.

use numamma_plan::policy::PolicyKind;

use super::tests::{entry, heap, profile};
use super::*;
use crate::detect::{PatternKind, classify_all};
use crate::profile::records::{Instance, ObjectKind};
use crate::profile::summary::TouchRun;
use crate::topology::Topology;

const PAGE: u64 = 4096;
const SPAN: u64 = 64 << 20;

/// Records with free memory between them, so that they fill a quarter of the pages among which they lie; each thread
/// uses a quarter of them.
#[test]
fn a_pool_with_free_memory_in_it_is_judged_to_its_end() {
    let part = |at: u64| (at / (SPAN / 4)) as u32;
    let mut e = heap(entry("records", SPAN, 90, 4000, |at, _| part(at)), &[0x10]);
    (e.kind, e.size, e.instances) = (ObjectKind::SmallHeap, SPAN / 4, 16_000);
    e.seen = vec![Instance { base: PAGE << 20, thread: Some(0), ..Instance::default() }];
    let pages = (SPAN / PAGE) as u32;
    e.touches = vec![TouchRun { instance: 0, page: 0, pages, thread: 0, time_ns: 0 }];
    let summary = profile(4, "never", vec![e]);
    let patterns = classify_all(&summary);
    assert_eq!((patterns[0].kind, patterns[0].slices.len()), (PatternKind::Block, 4), "{}", patterns[0].evidence);
    let target = Target::new(Some(4), None, &Topology::uniform(1, 2), 4, &summary.header.thp);
    let advice = advise(&summary, &patterns, &target).unwrap();
    let rule = advice.items.into_iter().find(|i| i.name == "records").unwrap().rule.unwrap();
    assert_eq!(rule.place.policy, PolicyKind::Interleave, "a rule by blocks begins with each small object anew");
    assert!(rule.why.is_some_and(|why| why.contains("objects smaller than a page")));
}
