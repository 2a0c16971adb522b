//! Advice and predictions for programs with teams of different sizes. Where a worker runs is written out here: worker r
//! of W is on CPU floor(8 r / W) of four nodes with two CPUs each.

use numamma_plan::machine::Thp;
use numamma_plan::policy::{Place, PolicyKind};

use super::tests::{entry, heap, numbered, profile};
use super::*;
use crate::detect::classify_all;
use crate::profile::records::{Frame, Instance, ObjectKind};
use crate::profile::summary::{Cell, Entry, TouchRun};
use crate::topology::model::Model;

const PAGE: u64 = 4096;
/// Pages of an object that divide by three and by five.
const PAGES: u64 = 15 * 1024;
/// Threads 1 to 3 are loaders and 4 to 8 solvers; main fills the objects and waits.
const LOADERS: u32 = 3;
const SOLVERS: u32 = 5;
const NODES_OF_LOADERS: [u32; 3] = [0, 1, 2];
const NODES_OF_SOLVERS: [u32; 5] = [0, 0, 1, 2, 3];

fn by_main(mut e: Entry) -> Entry {
    let run = |instance: usize, size: u64| {
        let (instance, pages) = (instance as u32, (size / PAGE) as u32);
        TouchRun { instance, page: 0, pages, thread: 0, time_ns: 0 }
    };
    e.touches = e.seen.iter().enumerate().map(|(i, seen)| run(i, seen.size)).collect();
    e
}

/// An object in slices of `workers` threads, the first of which is thread `first`.
fn sliced(name: &str, cost: u64, samples: u64, (first, workers): (u32, u32)) -> Entry {
    let size = PAGES * PAGE;
    by_main(entry(name, size, cost, samples, move |at, _| first + (at * u64::from(workers) / size) as u32))
}

fn run(entries: Vec<Entry>) -> Summary {
    let mut summary = profile(1 + LOADERS + SOLVERS, "never", numbered(entries));
    for thread in &mut summary.threads[1..] {
        let offset = if thread.id <= LOADERS { 0x100 } else { 0x200 };
        (thread.creator, thread.start_routine) = (Some(0), Some(Frame { module: 0, offset }));
    }
    summary
}

fn target(threads: u32) -> Target {
    Target::of(Model::uniform(4, 8), threads, Thp::Never)
}

fn advised(summary: &Summary, target: &Target) -> Advice {
    advise(summary, &classify_all(summary), target).unwrap()
}

fn rule<'a>(advice: &'a Advice, name: &str) -> &'a ObjectRule {
    let item = advice.items.iter().find(|i| i.name == name).unwrap_or_else(|| panic!("{advice:#?}"));
    item.rule.as_ref().unwrap_or_else(|why| panic!("{name}: {why}"))
}

/// The node of every page of an object under a rule of the policy file.
fn nodes(rule: &ObjectRule, target: &Target) -> Vec<u32> {
    let size = PAGES * PAGE;
    let plan =
        numamma_plan::plan::plan(&rule.place, rule.pattern.as_ref(), size, PAGES, PAGE, &target.ids, target.threads);
    let plan = plan.unwrap();
    let at = numamma_plan::home_node::Context { node: 0, order: 0, address: None };
    let node = |page| match plan.home(page, &at) {
        numamma_plan::home_node::Home::One(node) => node,
        other => panic!("page {page}: {other:?}"),
    };
    (0..PAGES).map(node).collect()
}

/// Part of the pages on the node of the worker whose slice they are in.
fn local(nodes: &[u32], of_workers: &[u32]) -> f64 {
    let own = |page: usize| of_workers[page * of_workers.len() / nodes.len()];
    (0..nodes.len()).filter(|page| nodes[*page] == own(*page)).count() as f64 / nodes.len() as f64
}

fn workers(advice: &Advice) -> Vec<Option<u32>> {
    advice.policy.teams.iter().map(|team| team.workers).collect()
}

/// Percentage of the accesses that a reason calls local.
fn local_of(why: &str) -> f64 {
    let before = why.split(" % of the accesses come from the node of their page").next().unwrap();
    before.rsplit([' ', ';']).next().unwrap().parse().unwrap_or_else(|_| panic!("{why}"))
}

#[test]
fn slices_lie_where_the_workers_of_their_own_team_run() {
    let summary =
        run(vec![sliced("input", 40, 6000, (1, LOADERS)), sliced("grid", 60, 10_000, (1 + LOADERS, SOLVERS))]);
    let same = target(SOLVERS);
    let advice = advised(&summary, &same);
    assert_eq!(workers(&advice), [Some(3), Some(5)]);
    for (name, of_workers) in [("input", &NODES_OF_LOADERS[..]), ("grid", &NODES_OF_SOLVERS[..])] {
        let rule = rule(&advice, name);
        let found = local(&nodes(rule, &same), of_workers);
        assert!(found > 0.99, "{name}: {found} in {rule:#?}");
        assert!(local_of(rule.why.as_ref().unwrap()) > 98.0, "{rule:#?}");
    }
}

#[test]
fn a_team_that_does_not_scale_keeps_its_number() {
    let summary =
        run(vec![sliced("input", 40, 6000, (1, LOADERS)), sliced("grid", 60, 10_000, (1 + LOADERS, SOLVERS))]);
    // Ten solvers are on CPU floor(8 r / 10).
    let more = target(10);
    let advice = advised(&summary, &more);
    assert_eq!(workers(&advice), [Some(3), Some(10)]);
    let (input, grid) = (nodes(rule(&advice, "input"), &more), nodes(rule(&advice, "grid"), &more));
    assert!(local(&input, &NODES_OF_LOADERS) > 0.99);
    assert!(local(&grid, &[0, 0, 0, 1, 1, 2, 2, 2, 3, 3]) > 0.99);
}

#[test]
fn a_map_for_other_workers_is_not_called_local() {
    // The pages of five workers: all of the first loader's are right, three fifths of the second's, two of the third's.
    let summary =
        run(vec![sliced("input", 40, 6000, (1, LOADERS)), sliced("grid", 60, 10_000, (1 + LOADERS, SOLVERS))]);
    let target = target(SOLVERS);
    let mut policy = advised(&summary, &target).policy;
    let input = policy.objects.iter_mut().find(|o| o.name.as_deref() == Some("input")).unwrap();
    input.place =
        Place { policy: PolicyKind::Map, map: Some("6144x0,3072x1,3072x2,3072x3".into()), ..Place::default() };
    let truth = local(&nodes(input, &target), &NODES_OF_LOADERS);
    policy.objects.retain(|o| o.name.as_deref() == Some("input"));
    let roles = roles(&summary);
    let world = cost::World::new(&summary, &roles, &target);
    let e = &summary.entries[0];
    let rule = &policy.objects[0];
    let placement = cost::Placement::of(&world, e, &rule.place, rule.pattern.as_ref()).unwrap();
    let demands = cost::Demands::of(&world, e, Some(&classify_all(&summary)[0]));
    let (mut all, mut near) = (0.0, 0.0);
    for demand in &demands.list {
        all += f64::from(demand.accesses);
        if placement.node(demand.instance, demand.page) == usize::from(demand.from) {
            near += f64::from(demand.accesses);
        }
    }
    assert!((near / all - truth).abs() < 0.02 && (0.66..0.68).contains(&truth), "{} instead of {truth}", near / all);
}

/// Whether malloc or mmap makes them.
#[test]
fn buffers_of_a_smaller_team_are_placed_by_number() {
    for kind in [ObjectKind::Heap, ObjectKind::Mapping] {
        let places = places_of_buffers(kind);
        let on = |number: &str, node: &str| (PolicyKind::Preferred, Some(number.to_owned()), Some(node.to_owned()));
        assert_eq!(places, [on("1", "0"), on("2", "1"), on("3", "2")], "{kind:?}");
    }
}

fn places_of_buffers(kind: ObjectKind) -> Vec<(PolicyKind, Option<String>, Option<String>)> {
    let size = PAGES * PAGE / 3;
    let mut buffers = heap(sliced("buffers", 40, 6000, (1, LOADERS)), &[0x10]);
    for cell in &mut buffers.cells {
        cell.instance = cell.thread - 1;
        cell.page %= (size / PAGE) as u32;
    }
    buffers.cells.sort_by_key(|c| (c.instance, c.page, c.thread, c.slot));
    buffers.kind = kind;
    (buffers.size, buffers.instances) = (size, u64::from(LOADERS));
    let instance = |i: u64| Instance { base: (1 + i) << 30, size, thread: Some(0), born_ns: 1 + i, died_ns: None };
    buffers.seen = (0..u64::from(LOADERS)).map(instance).collect();
    let summary = run(vec![by_main(buffers), sliced("grid", 60, 10_000, (1 + LOADERS, SOLVERS))]);
    let advice = advised(&summary, &target(SOLVERS));
    let rules = advice.policy.objects.iter().filter(|o| o.name.as_deref() == Some("buffers"));
    rules.map(|r| (r.place.policy, r.instances.clone(), r.place.nodes.clone())).collect()
}

/// Main fills what one solver each uses. It is not bound, so that its pages are on any node: also those of the first
/// solvers, which run on node 0, have a rule, and none is said to gain what it gains only with main on another node.
#[test]
fn what_a_thread_fills_that_is_not_bound_is_placed_for_every_worker() {
    let own = |worker: u32| {
        by_main(entry(&format!("own {worker}"), PAGES * PAGE, 2000, 3000, move |_, _| 1 + LOADERS + worker))
    };
    let summary = run((0..SOLVERS).map(own).collect());
    let advice = advised(&summary, &target(SOLVERS));
    assert_eq!(workers(&advice), [Some(5)]);
    let mut means = Vec::new();
    for (worker, node) in NODES_OF_SOLVERS.iter().enumerate() {
        let rule = rule(&advice, &format!("own {worker}"));
        assert_eq!(
            (rule.place.policy, rule.place.nodes.clone()),
            (PolicyKind::Bind, Some(node.to_string())),
            "{rule:#?}"
        );
        let why = rule.why.as_ref().unwrap();
        assert!(why.contains("(0 to ") && why.contains("as the thread that touches it first is not bound"), "{why}");
        let less = why.split("priced: ").nth(1).and_then(|rest| rest.split(' ').next());
        means.push(less.and_then(|less| less.parse::<f64>().ok()).unwrap_or_else(|| panic!("{why}")));
    }
    let ends = (means.iter().copied().fold(f64::MAX, f64::min), means.iter().copied().fold(0.0, f64::max));
    assert!(ends.0 > 25.0 && ends.1 - ends.0 <= 2.0, "the same for all: {means:?}");
}

/// The same objects where main is the first solver: what it fills and uses needs no rule.
#[test]
fn what_a_worker_fills_is_on_its_own_node() {
    let own = |worker: u32| by_main(entry(&format!("own {worker}"), PAGES * PAGE, 2000, 3000, move |_, _| worker));
    let mut summary = profile(4, "never", numbered((0..4).map(own).collect()));
    for thread in &mut summary.threads[1..] {
        (thread.creator, thread.start_routine) = (Some(0), Some(Frame { module: 0, offset: 0x100 }));
    }
    let advice = advised(&summary, &target(4));
    let placed: Vec<_> = advice.items.iter().filter(|i| i.rule.is_ok()).map(|i| i.name.as_str()).collect();
    assert_eq!((advice.policy.teams[0].creator, placed.contains(&"own 0")), (Some(true), false), "{advice:#?}");
    let why = rule(&advice, "own 3").why.as_ref().unwrap();
    assert!(!why.contains("not bound"), "{why}");
}

/// First the loaders work, and then the solvers as long: more threads make only the solvers' part shorter.
#[test]
fn the_time_of_each_team_is_scaled_by_its_own_size() {
    let half = |e: Entry, from: u16| {
        let cells = e.cells.iter().map(|c| Cell { slot: from + c.slot / 2, ..*c }).collect();
        Entry { cells, ..e }
    };
    let input = half(sliced("input", 500, 12_000, (1, LOADERS)), 0);
    let field = half(sliced("field", 500, 12_000, (1 + LOADERS, SOLVERS)), 32);
    let summary = run(vec![input, field]);
    let at_a_time = |threads: u32| {
        let (roles, target) = (crate::detect::roles(&summary), target(threads));
        let clock = cost::World::new(&summary, &roles, &target).clock;
        clock.slices.iter().map(|s| s.cpu_ns).sum::<f64>() / clock.running_ns()
    };
    let near = |found: f64, loaders: f64, solvers: f64| {
        let wanted = 2.0 / (1.0 / loaders + 1.0 / solvers);
        assert!((found / wanted - 1.0).abs() < 0.03, "{found} instead of {wanted}");
    };
    near(at_a_time(SOLVERS), 3.0, 5.0);
    near(at_a_time(8), 3.0, 8.0);
}
