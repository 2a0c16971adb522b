//! Advice and prediction for instances of one call site that are used in different ways.

use numamma_plan::policy::PolicyKind;

use super::tests::{entry, heap, numbered, profile, slice_of};
use super::{Given, Target, advise, predict};
use crate::detect::{classify_all, tell_apart};
use crate::profile::records::Instance;
use crate::profile::summary::{Cell, Counters, Entry, Summary};
use crate::topology::Topology;

const SIZE: u64 = 16 << 20;
const THREADS: u32 = 8;
/// Of each access: the run is long enough for placing to pay.
const COST_NS: u64 = 20_000_000;

fn target() -> Target {
    Target::new(None, None, &Topology::uniform(4, 2), THREADS, "never")
}

/// Two matrices of one call site in each of `steps`: the first in slices, the second used by all threads.
fn twins(steps: u32) -> Entry {
    let samples = 16_000 / u64::from(steps);
    let matrix = |number: u32| {
        let user = move |at, r: &mut super::tests::Random| match number % 2 {
            0 => slice_of(at, SIZE, THREADS.into()),
            _ => r.below(THREADS.into()) as u32,
        };
        entry("twins", SIZE, 1, samples, user).cells.into_iter().map(move |c| Cell {
            instance: number,
            counters: Counters { cost_ns: COST_NS, ..c.counters },
            ..c
        })
    };
    let mut e = heap(entry("twins", SIZE, 10_000, 0, |_, _| 0), &[0x100, 0x200]);
    let seen = |i: u64| Instance { base: i << 32, size: SIZE, thread: Some(0), born_ns: 10 * i, died_ns: None };
    e.seen = (0..2 * u64::from(steps)).map(seen).collect();
    e.instances = e.seen.len() as u64;
    e.cells = (0..2 * steps).flat_map(matrix).collect();
    e.total.reads = e.cells.len() as u64;
    e
}

/// The profile with its instances told apart.
fn apart(entry: Entry) -> Summary {
    let mut summary = profile(THREADS, "never", numbered(vec![entry]));
    tell_apart(&mut summary);
    summary
}

#[test]
fn each_group_of_instances_has_a_rule_of_its_own() {
    let summary = apart(twins(1));
    let patterns = classify_all(&summary);
    let advice = advise(&summary, &patterns, &target()).unwrap();
    let mut rules: Vec<_> = advice.policy.objects.iter().collect();
    rules.sort_by(|a, b| a.instances.cmp(&b.instances));
    let found: Vec<_> = rules.iter().map(|r| (r.instances.as_deref().unwrap(), r.place.policy)).collect();
    assert_eq!(found, [("1", PolicyKind::Block), ("2", PolicyKind::Interleave)]);
    let (name, why) = (rules[0].name.as_deref().unwrap(), rules[0].why.as_deref().unwrap());
    assert_eq!(name, "twins [instance 1 of 2]");
    assert!(why.contains("for instance 1 of 2 by the order of allocation"), "{why}");
    let text = super::toml(&advice).unwrap();
    assert_eq!(numamma_plan::check::parse(&text).unwrap().objects, advice.policy.objects, "{text}");

    // The policy read back places each of them by its own rule: the slices are local, and a quarter of the others is.
    let given = [Given { name: "file".into(), policy: advice.policy.clone() }];
    let table = predict(&summary, &patterns, &target(), &advice, &given).unwrap();
    assert!(table.remarks.iter().all(|r| !r.contains("no object of the profile")), "{:?}", table.remarks);
    let local = table.policies.iter().find(|p| p.name == "file").unwrap().local_share.unwrap();
    assert!((local - (1.0 + 0.25) / 2.0).abs() < 0.02, "{local}");
}

#[test]
fn instances_whose_order_is_not_the_programs_stay_together() {
    let entries = |e: Entry| apart(e).entries.len();
    assert_eq!(entries(twins(1)), 2);
    let mut others = twins(1);
    others.seen[1].thread = Some(3);
    assert_eq!(entries(others), 1, "two threads allocate them");
    let mut more = twins(1);
    more.instances = 3;
    assert_eq!(entries(more), 1, "one is not in the profile");
    let mut at_once = twins(1);
    at_once.seen[1].born_ns = 0;
    assert_eq!(entries(at_once), 1);
}
