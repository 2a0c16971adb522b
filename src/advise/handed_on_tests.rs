//! Advice and predictions for blocks that one kind of threads touches first and another kind uses.

use numamma_plan::machine::Thp;
use numamma_plan::policy::Bind;

use super::fixes::{FixKind, fixes};
use super::tests::{entry, heap, numbered, profile};
use super::*;
use crate::detect::classify_all;
use crate::profile::records::{Frame, Instance, ObjectKind};
use crate::profile::summary::{Cell, Counters, TouchRun};
use crate::topology::model::Model;

const PAGE: u64 = 4096;
const PAGES: u32 = 512;
const BLOCKS: u32 = 32;

/// Four threads of a first kind allocate and write blocks, of which four of a second kind make 90 % of the accesses. Of
/// most blocks the first touch is not known.
fn handed_on(writes_first: impl Fn(u32) -> u32) -> Summary {
    let size = u64::from(PAGES) * PAGE;
    let mut blocks = heap(entry("blocks", size, 1000, 0, |_, _| 0), &[0x10]);
    blocks.kind = ObjectKind::Mapping;
    blocks.instances = BLOCKS.into();
    let instance = |i: u32| Instance {
        base: u64::from(1 + i) << 30,
        size,
        thread: Some(writes_first(i)),
        born_ns: u64::from(i),
        died_ns: None,
    };
    blocks.seen = (0..BLOCKS).map(instance).collect();
    let counters = |reads, writes| Counters { reads, writes, ..Counters::default() };
    let cell = |instance: u32, k: u32| {
        let is_write = k.is_multiple_of(10);
        let thread = if is_write { writes_first(instance) } else { 5 + instance % 4 };
        let counters = if is_write { counters(0, 1) } else { counters(1, 0) };
        Cell { instance, page: k * 8, thread, slot: (instance * 2 + k % 2) as u16, counters }
    };
    blocks.cells = (0..BLOCKS).flat_map(|i| (0..60).map(move |k| cell(i, k))).collect();
    blocks.total.reads = u64::from(BLOCKS) * 54;
    blocks.total.writes = u64::from(BLOCKS) * 6;
    let run = |i| TouchRun { instance: i, page: 0, pages: PAGES, thread: writes_first(i), time_ns: u64::from(i) };
    blocks.touches = (0..BLOCKS).filter(|i| i % 16 < 4).map(run).collect();
    let mut summary = profile(9, "never", numbered(vec![blocks]));
    for thread in &mut summary.threads[1..] {
        let offset = if thread.id <= 4 { 0x100 } else { 0x200 };
        (thread.creator, thread.start_routine) = (Some(0), Some(Frame { module: 0, offset }));
    }
    summary
}

fn advised(summary: &Summary) -> (Advice, Target) {
    let target = Target::of(Model::uniform(4, 8), 4, Thp::Never);
    (advise(summary, &classify_all(summary), &target).unwrap(), target)
}

fn local(prediction: &Prediction, name: &str) -> f64 {
    prediction.policies.iter().find(|price| price.name == name).and_then(|price| price.local_share).unwrap()
}

#[test]
fn blocks_that_another_kind_of_threads_touches_first_are_local_to_bound_threads_only() {
    let summary = handed_on(|block| 1 + block % 4);
    let patterns = classify_all(&summary);
    assert_eq!(patterns[0].kind, PatternKind::Private, "{}", patterns[0].evidence);
    let (advice, target) = advised(&summary);
    let why = advice.items[0].rule.as_ref().expect_err("no rule");
    assert!(why.contains("first touched by a thread of another kind"), "{why}");
    assert_eq!(advice.policy.threads.as_ref().unwrap().bind, Bind::Compact);
    assert!(advice.remarks.iter().any(|r| r.contains("threads of one kind touch first")), "{:?}", advice.remarks);
    let prediction = predict(&summary, &patterns, &target, &advice, &[]).unwrap();
    assert!(local(&prediction, "first-touch") < 0.4, "{:?}", prediction.policies);
    assert!(local(&prediction, "advised") > 0.9, "{:?}", prediction.policies);
    let list = fixes(&summary, &patterns, &target, &advice).unwrap().list;
    let fix = list.iter().find(|fix| fix.kind == FixKind::BindThreads && fix.object.is_some()).expect("a fix");
    assert!(
        fix.by_policy && fix.what.contains("let the thread that uses a block allocate and write it first"),
        "{fix:?}"
    );
}

#[test]
fn blocks_that_their_user_writes_first_are_local() {
    let summary = handed_on(|block| 5 + block % 4);
    let patterns = classify_all(&summary);
    let (advice, target) = advised(&summary);
    let why = advice.items[0].rule.as_ref().expect_err("no rule");
    assert!(why.contains("so first touch already places it"), "{why}");
    assert_eq!(advice.policy.threads.as_ref().unwrap().bind, Bind::None);
    let prediction = predict(&summary, &patterns, &target, &advice, &[]).unwrap();
    assert!(local(&prediction, "first-touch") > 0.9, "{:?}", prediction.policies);
    let list = fixes(&summary, &patterns, &target, &advice).unwrap().list;
    assert!(list.iter().all(|fix| fix.kind != FixKind::BindThreads), "{list:?}");
}
