//! Advice and prediction for parts of a variable, and for ranges of an object that is one entry.

use numamma_plan::check;
use numamma_plan::policy::Policy;

use super::tests::{entry, heap, numbered, profile, slice_of};
use super::{Given, Target, advise, predict};
use crate::detect::classify_all;
use crate::profile::summary::{Part, Summary};
use crate::topology::Topology;

const HALF: u64 = 8 << 20;

fn target() -> Target {
    Target::new(None, None, &Topology::uniform(4, 2), 8, "never")
}

fn policy(rules: &[&str]) -> Policy {
    let objects: Vec<String> = rules.iter().map(|r| format!("[[object]]\n{r}\n")).collect();
    let text = format!("version = 1\n[threads]\nbind = \"compact\"\ncount = 8\n{}", objects.concat());
    check::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Local share of the whole run under a policy.
fn local(summary: &Summary, rules: &[&str]) -> f64 {
    let patterns = classify_all(summary);
    let advice = advise(summary, &patterns, &target()).unwrap();
    let given = [Given { name: "file".into(), policy: policy(rules) }];
    let table = predict(summary, &patterns, &target(), &advice, &given).unwrap();
    assert!(table.remarks.iter().all(|r| !r.contains("no object of the profile")), "{:?}", table.remarks);
    table.policies.iter().find(|p| p.name == "file").unwrap().local_share.unwrap()
}

/// A variable of two members, each in slices.
fn members() -> Summary {
    let member = |name: &str, offset: u64| {
        let mut e = entry(&format!("g_.{name}"), HALF, 5000, 8000, |at, _| slice_of(at, HALF, 8));
        e.linkage = "g_".into();
        e.part = Some(Part { parent: "g_".into(), parent_size: 2 * HALF, member: name.into(), offset });
        e.vaddr += offset;
        e.seen[0].base += offset;
        e
    };
    profile(8, "never", numbered(vec![member("a", 0), member("b", HALF)]))
}

#[test]
fn a_member_has_a_rule_with_its_range() {
    let summary = members();
    let advice = advise(&summary, &classify_all(&summary), &target()).unwrap();
    let rules: Vec<_> = advice
        .policy
        .objects
        .iter()
        .map(|r| {
            let own = (r.name.as_deref(), r.global.as_deref(), r.member.as_deref(), r.range.as_deref());
            (own, r.size, r.address)
        })
        .collect();
    let of =
        |name, member, range| ((Some(name), Some("g_"), Some(member), Some(range)), Some(2 * HALF), Some(0x40_0000));
    assert_eq!(rules, [of("g_.a", "a", "0-8MiB"), of("g_.b", "b", "8MiB-")]);
    let text = super::toml(&advice).unwrap();
    assert_eq!(check::parse(&text).unwrap().objects, advice.policy.objects, "{text}");
    let exact = [
        "global = \"g_\"\nrange = \"0-8MiB\"\nplace = { policy = \"block\" }",
        "global = \"g_\"\nrange = \"8MiB-\"\nplace = { policy = \"block\" }",
    ];
    assert!(local(&summary, &exact) > 0.99);
}

#[test]
fn rules_for_other_bytes_than_a_member_are_priced_page_by_page() {
    let summary = members();
    // Blocks of the whole: the first member on nodes 0 and 1, of whose eight slices two are there.
    let whole = local(&summary, &["global = \"g_\"\nplace = { policy = \"block\" }"]);
    assert!((whole - 0.25).abs() < 0.02, "{whole}");
    // The third quarter of the variable is the first half of the second member: its slices 0 to 3 on nodes 0 and 1.
    let quarter = local(
        &summary,
        &[
            "global = \"g_\"\nrange = \"0-8MiB\"\nplace = { policy = \"block\" }",
            "global = \"g_\"\nrange = \"8MiB-12MiB\"\nplace = { policy = \"block\", nodes = \"0-1\" }",
            "global = \"g_\"\nrange = \"12MiB-16MiB\"\nplace = { policy = \"bind\", nodes = \"2\" }",
        ],
    );
    assert!((quarter - (0.5 + 0.25 + 0.125)).abs() < 0.02, "{quarter}");
}

#[test]
fn ranges_of_an_allocation_are_priced_page_by_page() {
    let e = entry("pool", 2 * HALF, 10_000, 16_000, |at, _| slice_of(at % HALF, HALF, 8));
    let summary = profile(8, "never", numbered(vec![heap(e, &[0x100, 0x200])]));
    let site = "callsite = [\"lu.C.x+0x100\"]";
    let part = |range: &str, place: &str| format!("{site}\nrange = \"{range}\"\nplace = {{ {place} }}");
    let both = [part("0-8MiB", "policy = \"block\""), part("8MiB-", "policy = \"block\"")];
    let both = local(&summary, &[&both[0], &both[1]]);
    assert!(both > 0.99, "{both}");
    // One half alone; the other was touched by the main thread, and an eighth of it is its own.
    let one = local(&summary, &[&part("8MiB-16MiB", "policy = \"block\"")]);
    assert!((one - (0.5 + 0.125)).abs() < 0.07, "{one}");
    let spread = local(&summary, &[&part("0-", "policy = \"interleave\"")]);
    assert!((spread - 0.25).abs() < 0.02, "{spread}");
}

/// The parts that change points show: each has a rule with its range, and the rules are those of one allocation.
#[test]
fn a_part_of_an_allocation_has_a_rule_with_its_range() {
    let e = entry("pool", 2 * HALF, 10_000, 16_000, |at, _| slice_of(at % HALF, HALF, 8));
    let cost = e.total.cost_ns / 2;
    let mut parts = heap(e, &[0x100, 0x200]).divided(&[(HALF / 4096) as u32], 4096);
    parts.iter_mut().for_each(|part| part.total.cost_ns = cost);
    let summary = profile(8, "never", numbered(parts));
    let patterns = classify_all(&summary);
    let advice = advise(&summary, &patterns, &target()).unwrap();
    let mut rules: Vec<_> = advice
        .policy
        .objects
        .iter()
        .map(|r| (r.name.as_deref().unwrap(), r.range.as_deref().unwrap(), r.member.as_deref(), r.size))
        .collect();
    rules.sort_unstable();
    let size = Some(2 * HALF);
    assert_eq!(rules, [("pool [0..8 MiB]", "0-8MiB", None, size), ("pool [8 MiB..16 MiB]", "8MiB-", None, size)]);
    let sites: Vec<_> = advice.policy.objects.iter().map(|r| &r.callsite).collect();
    assert_eq!(sites[0], sites[1]);
    let text = super::toml(&advice).unwrap();
    assert_eq!(check::parse(&text).unwrap().objects, advice.policy.objects, "{text}");
    let site = "callsite = [\"lu.C.x+0x100\"]";
    let part = |range: &str| format!("{site}\nrange = \"{range}\"\nplace = {{ policy = \"block\" }}");
    assert!(local(&summary, &[&part("0-8MiB"), &part("8MiB-")]) > 0.99);
    // A rule for one part leaves the other to first touch; one for the whole is priced as such for both.
    let one = local(&summary, &[&part("8MiB-")]);
    assert!((one - (0.5 + 0.125)).abs() < 0.07, "{one}");
    let whole = local(&summary, &[&format!("{site}\nplace = {{ policy = \"block\" }}")]);
    assert!((whole - 0.25).abs() < 0.02, "{whole}");
}
