//! Advice for objects by who allocates them: a main thread that no policy binds, or a worker.

use numamma_plan::policy::PolicyKind;

use super::tests::{Random, entry, heap, profile};
use super::*;
use crate::detect::classify_all;
use crate::profile::records::Frame;
use crate::profile::summary::{Entry, TouchRun};
use crate::topology::Topology;

const MIB: u64 = 1 << 20;

/// A table that main (thread 0) or a worker allocates. The workers, threads 1 to 4, start in a routine of their own and
/// use all of it, the first of them most.
fn skewed(allocator: u32) -> Summary {
    let user = |_, r: &mut Random| if r.below(10) < 7 { 1 } else { 2 + r.below(3) as u32 };
    let mut table = heap(entry("table", 64 * MIB, 900, 6000, user), &[0x10]);
    table.seen[0].thread = Some(allocator);
    // The last worker fills it, on the last node.
    table.touches = vec![TouchRun { instance: 0, page: 0, pages: (64 * MIB / 4096) as u32, thread: 4, time_ns: 0 }];
    let own = |t: u32| heap(Entry { id: t, ..entry("own", 64 * MIB, 0, 1000, move |_, _| t) }, &[0x20 + u64::from(t)]);
    let mut run = profile(5, "never", [table].into_iter().chain((1..5).map(own)).collect());
    run.threads.iter_mut().skip(1).for_each(|t| {
        (t.creator, t.start_routine) = (Some(0), Some(Frame { module: 0, offset: 0x900 }));
    });
    run
}

fn advised(allocator: u32) -> (Advice, ObjectRule) {
    let run = skewed(allocator);
    let target = Target::new(Some(4), None, &Topology::uniform(1, 2), 4, "never");
    let advice = advise(&run, &classify_all(&run), &target).unwrap();
    let rule = advice.items[0].rule.clone().unwrap_or_else(|why| panic!("{why}"));
    (advice, rule)
}

#[test]
fn what_an_unbound_main_thread_allocates_is_placed_by_name() {
    let (advice, rule) = advised(0);
    assert_eq!(advice.policy.teams.len(), 1, "{:#?}", advice.policy);
    assert_eq!((rule.place.policy, rule.place.nodes.as_deref()), (PolicyKind::Bind, Some("0")), "{rule:#?}");
    let why = rule.why.unwrap();
    assert!(why.contains("70 % of the accesses come from node 0"), "{why}");
}

#[test]
fn what_a_bound_worker_allocates_may_be_local_to_it() {
    let (_, rule) = advised(1);
    assert_eq!(rule.place.policy, PolicyKind::Local, "{rule:#?}");
    let why = rule.why.unwrap();
    assert!(why.contains("come from the node of the thread that allocates it, which is bound"), "{why}");
}
