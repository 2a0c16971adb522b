//! Which fixes an object has, from its rule, its pattern and its accesses.

use numamma_plan::policy::Place;

use super::*;
use crate::advise::tests::{busy, entry, in_sequence, numbered, profile};
use crate::profile::records::Frame;
use crate::profile::summary::{Cell, CodePart};

/// An object with a rule.
fn item(kind: PatternKind, policy: PolicyKind) -> Item {
    let rule = ObjectRule { place: Place { policy, ..Place::default() }, ..ObjectRule::default() };
    Item {
        name: "table".into(),
        share: 0.5,
        pattern: Some(Pattern::new(kind, 0.9, String::new())),
        rule: Ok(rule),
        saved: 0.1,
        more: Vec::new(),
    }
}

fn found(summary: &Summary, item: &Item) -> Vec<FixKind> {
    of_object(summary, &roles(summary), item, &summary.entries[0]).iter().map(|fix| fix.kind).collect()
}

/// A table that four threads use and thread 0 fills.
fn table(of: impl FnOnce(Entry) -> Entry) -> Summary {
    let mut table = entry("table", 256 << 20, 500, 4000, |_, r| r.below(4) as u32);
    let pages = (table.size / 4096) as u32;
    table.touches = vec![crate::profile::summary::TouchRun { instance: 0, page: 0, pages, thread: 0, time_ns: 0 }];
    profile(4, "madvise", numbered(vec![of(table), busy(4)]))
}

#[test]
fn initialisation_is_divided_where_the_placement_divides_the_object() {
    let summary = table(|table| table);
    let first_touch = |kind, policy| found(&summary, &item(kind, policy)).contains(&FixKind::ParallelFirstTouch);
    assert!(first_touch(PatternKind::Block, PolicyKind::Block));
    assert!(first_touch(PatternKind::BlockCyclic, PolicyKind::BlockCyclic));
    assert!(first_touch(PatternKind::Irregular, PolicyKind::Map));
    assert!(first_touch(PatternKind::Block, PolicyKind::Bind), "its users run on one node");
    assert!(!first_touch(PatternKind::ReadShared, PolicyKind::Bind), "all threads use all of it");
    assert!(!first_touch(PatternKind::Random, PolicyKind::Preferred));
}

#[test]
fn what_one_thread_fills_for_all_has_a_rule_or_a_reason() {
    let reasons = |rule: Result<ObjectRule, String>, toucher: fn(u32) -> u32| {
        let pages = (256 << 20) / 4096;
        let run = |at: u32| {
            let page = at * pages / 4;
            crate::profile::summary::TouchRun { instance: 0, page, pages: pages / 4, thread: toucher(at), time_ns: 0 }
        };
        let mut table = entry("table", 256 << 20, 500, 4000, |at, _| (at / (64 << 20)) as u32);
        table.touches = (0..4).map(run).collect();
        let summary = profile(4, "madvise", numbered(vec![table, busy(4)]));
        let item = Item { share: 0.9, rule, ..item(PatternKind::Block, PolicyKind::Block) };
        let policy = numamma_plan::check::parse("version = 1").expect("a policy");
        unplaced(&summary, &roles(&summary), &Advice { items: vec![item], policy, remarks: Vec::new() })
    };
    let no_rule = || Err("its initialisation would get slower".to_owned());
    let found = reasons(no_rule(), |_| 0);
    assert!(found.len() == 1 && found[0].ends_with(": its initialisation would get slower."), "{found:?}");
    assert_eq!(reasons(no_rule(), |part| part), [""; 0], "its users touch it first");
    assert_eq!(reasons(item(PatternKind::Block, PolicyKind::Block).rule, |_| 0), [""; 0]);
}

#[test]
fn huge_pages_are_for_what_is_accessed_at_random_and_not_in_sequence() {
    let random = item(PatternKind::Random, PolicyKind::Interleave);
    assert!(found(&table(|table| table), &random).contains(&FixKind::HugePages));
    assert!(!found(&table(in_sequence), &random).contains(&FixKind::HugePages), "slices that change hands");
}

#[test]
fn threads_need_no_node_where_most_of_the_data_is_spread() {
    let advice = |policy, bind| Advice {
        items: vec![Item { share: 0.9, ..item(PatternKind::Random, policy) }],
        policy: numamma_plan::policy::Policy {
            threads: Some(numamma_plan::policy::Threads { bind, count: None }),
            ..numamma_plan::check::parse("version = 1").expect("a policy")
        },
        remarks: Vec::new(),
    };
    assert!(is_spread(&advice(PolicyKind::Interleave, Bind::None)));
    assert!(!is_spread(&advice(PolicyKind::Interleave, Bind::Compact)), "over the nodes of some threads");
    assert!(!is_spread(&advice(PolicyKind::Block, Bind::None)));
}

/// Two threads in each of 30 rounds use a half each of what thread 0 has touched first.
#[test]
fn threads_that_are_made_anew_are_users_together() {
    let user = |at: u64, _: &mut _| (1 + 2 * (at / 4096 % 30) + u64::from(at >= 32 << 20)) as u32;
    let mut grid = entry("grid", 64 << 20, 1000, 60_000, user);
    grid.cells.iter_mut().for_each(|cell| cell.slot = ((cell.thread - 1) / 2 * 2) as u16);
    grid.touches = vec![crate::profile::summary::TouchRun {
        instance: 0,
        page: 0,
        pages: (64 << 20) / 4096,
        thread: 0,
        time_ns: 0,
    }];
    let mut summary = profile(61, "never", vec![grid]);
    let slot_ns = 1_000_000_000;
    summary.stats.duration_ns = 64 * slot_ns;
    for thread in &mut summary.threads[1..] {
        let start = u64::from((thread.id - 1) / 2 * 2) * slot_ns;
        (thread.creator, thread.start_ns, thread.end_ns) = (Some(0), start, Some(start + slot_ns));
    }
    let (roles, grid) = (roles(&summary), &summary.entries[0]);
    assert_eq!(users(&roles, grid, |c| c.accesses()), 2);
    assert!(parallel_first_touch(&roles, grid, "each half by one worker").is_some());
}

/// Thread 0 fills what four threads use; its first access is of code that has no place of its own, of which others run
/// some later.
#[test]
fn the_code_that_fills_an_object_is_found_behind_code_without_a_place() {
    let part = |function: &str, nest, uses: &[(u32, u16)]| CodePart {
        function: function.into(),
        place: format!("{function} app.c:1"),
        nest,
        cells: uses
            .iter()
            .map(|&(thread, slot)| Cell { instance: 0, page: 0, thread, slot, counters: Counters::default() })
            .collect(),
        ..CodePart::default()
    };
    let at = |offset| Some(Frame { module: 0, offset });
    let places = |filled_at: u16| {
        let by_code = vec![
            part("sweep", at(1), &[(0, 3), (1, 3), (2, 4), (3, 4)]),
            part("fill", at(2), &[(0, filled_at), (0, filled_at + 1)]),
            part("", None, &[(0, 0), (1, 5)]),
        ];
        let summary = table(|table| Entry { by_code, ..table });
        let found = places::initialisation(&summary, &summary.entries[0]);
        found.map(|place| place.function)
    };
    assert_eq!(places(1).as_deref(), Some("fill"));
    assert_eq!(places(4), None, "after the others have begun");
}
