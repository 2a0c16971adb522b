//! Advice for call sites whose functions have the same names, some of which are placed in parts or by number: what is
//! written can be read, and every rule is for the objects that it was made for.

use std::collections::BTreeSet;

use numamma_plan::check;
use numamma_plan::policy::PolicyKind;

use super::tests::{Random, entry, heap, numbered, profile, slice_of};
use super::{Advice, Given, Target, advise, predict};
use crate::detect::{classify_all, tell_apart};
use crate::profile::records::{Frame, Instance, Location, ObjectKind};
use crate::profile::summary::{Cell, Counters, Entry, Summary, TouchRun};
use crate::topology::Topology;

const PAGE: u64 = 4096;
const HALF: u64 = 8 << 20;
const THREADS: u32 = 8;
/// Of each access: the run is long enough for placing to pay.
const COST_NS: u64 = 20_000_000;

/// Who uses a piece of [`HALF`] bytes, and whether its users have touched it first.
#[derive(Clone, Copy)]
enum Use {
    Slices { by_users: bool },
    Shared,
    One { thread: u32, by_user: bool },
}

impl Use {
    fn any(r: &mut Random) -> Use {
        let own = r.below(2) == 0;
        match r.below(4) {
            0 | 1 => Use::Slices { by_users: own },
            2 => Use::Shared,
            _ => Use::One { thread: 1 + r.below(u64::from(THREADS) - 1) as u32, by_user: own },
        }
    }

    fn user(self, at: u64, r: &mut Random) -> u32 {
        match self {
            Use::Slices { .. } => slice_of(at, HALF, THREADS.into()),
            Use::Shared => r.below(THREADS.into()) as u32,
            Use::One { thread, .. } => thread,
        }
    }

    /// First touches of the piece that begins with a page.
    fn touches(self, instance: u32, first: u32) -> Vec<TouchRun> {
        let pages = (HALF / PAGE) as u32;
        let run = |page, pages, thread| TouchRun { instance, page: first + page, pages, thread, time_ns: 0 };
        match self {
            Use::Slices { by_users: true } => {
                let each = pages / THREADS;
                (0..THREADS).map(|thread| run(thread * each, each, thread)).collect()
            }
            Use::One { thread, by_user: true } => vec![run(0, pages, thread)],
            _ => vec![run(0, pages, 0)],
        }
    }
}

/// An allocation of pieces that are used one way each, at a call site of its own in `main`.
fn pieces(name: &str, site: u64, uses: &[Use]) -> Entry {
    sampled(name, site, uses, 2000)
}

/// With so many samples of each piece.
fn sampled(name: &str, site: u64, uses: &[Use], samples: u64) -> Entry {
    let size = HALF * uses.len() as u64;
    let user = |at: u64, r: &mut Random| uses[(at / HALF) as usize].user(at % HALF, r);
    let mut e = heap(entry(name, size, 10_000, samples * uses.len() as u64, user), &[site, 0x9000]);
    e.cells.iter_mut().for_each(|c| c.counters.cost_ns = COST_NS);
    e.total.cost_ns = COST_NS * e.cells.len() as u64;
    let touches = uses.iter().zip(0..).flat_map(|(u, i)| u.touches(0, i * (HALF / PAGE) as u32));
    e.touches = touches.collect();
    e
}

/// Its parts.
fn parts(e: &Entry) -> Vec<Entry> {
    let pages: Vec<u32> = (1..(e.size / HALF) as u32).map(|i| i * (HALF / PAGE) as u32).collect();
    e.divided(&pages, PAGE)
}

/// Instances of a call site that are used one way each.
fn instances(name: &str, site: u64, uses: &[Use], samples: u64) -> Entry {
    let mut e = sampled(name, site, &uses[..1], samples);
    e.seen = (0..uses.len() as u64)
        .map(|i| Instance { base: (1 + i) << 32, size: HALF, thread: Some(0), born_ns: 10 * i, died_ns: None })
        .collect();
    let of = |(u, instance): (&Use, u32)| {
        let cells = sampled(name, site, &[*u], samples).cells;
        cells.into_iter().map(move |c| Cell { instance, ..c })
    };
    e.cells = uses.iter().zip(0..).flat_map(of).collect();
    e.touches = uses.iter().zip(0..).flat_map(|(u, i)| u.touches(i, 0)).collect();
    e.instances = e.seen.len() as u64;
    e.total = Counters { reads: e.cells.len() as u64, cost_ns: COST_NS * e.cells.len() as u64, ..Counters::default() };
    e
}

/// All call sites are in `main`, at lines of their own.
fn run(entries: Vec<Entry>) -> Summary {
    let mut summary = profile(THREADS, "never", numbered(entries));
    let offsets: BTreeSet<u64> = summary
        .entries
        .iter()
        .filter_map(|e| e.site.as_ref())
        .flat_map(|s| s.frames.iter().map(|f| f.offset))
        .collect();
    for (line, offset) in (1..).zip(offsets) {
        let at = Location { function: Some("main".into()), file: Some("/src/a.c".into()), line: Some(line) };
        summary.symbols.insert(Frame { module: 0, offset }, vec![at]);
    }
    tell_apart(&mut summary);
    summary
}

/// The advice, after a check that its policy file is read back unchanged and that each of its rules finds its object.
fn checked(summary: &Summary, nodes: u32) -> Advice {
    let target = Target::new(None, None, &Topology::uniform(nodes, THREADS / nodes), THREADS, "never");
    let patterns = classify_all(summary);
    let advice = advise(summary, &patterns, &target).unwrap();
    let text = super::toml(&advice).unwrap();
    let read = check::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(read.objects, advice.policy.objects, "{text}");
    let given = [Given { name: "file".into(), policy: read }];
    let table = predict(summary, &patterns, &target, &advice, &given).unwrap();
    assert!(table.remarks.iter().all(|r| !r.contains("no object of the profile")), "{:?}\n{text}", table.remarks);
    advice
}

fn rules(advice: &Advice) -> Vec<(&str, PolicyKind, Option<&str>, Option<u64>)> {
    let of = advice.policy.objects.iter();
    let mut rules: Vec<_> =
        of.map(|r| (r.name.as_deref().unwrap(), r.place.policy, r.range.as_deref(), r.size)).collect();
    rules.sort_by_key(|r| r.0);
    rules
}

const BY_MAIN: Use = Use::Slices { by_users: false };
const LEFT: Use = Use::Slices { by_users: true };

#[test]
fn a_part_that_is_left_needs_no_rule_where_another_part_has_one() {
    let mut entries = parts(&pieces("pool", 0x100, &[BY_MAIN, LEFT]));
    entries.push(pieces("grid", 0x200, &[BY_MAIN]));
    let advice = checked(&run(entries), 4);
    let (grid, pool) = (
        ("grid", PolicyKind::Block, None, Some(HALF)),
        ("pool [0..8 MiB]", PolicyKind::Block, Some("0-8MiB"), Some(2 * HALF)),
    );
    assert_eq!(rules(&advice), [grid, pool]);
}

#[test]
fn an_object_of_which_all_parts_are_left_is_kept_apart_as_a_whole() {
    let mut entries = parts(&pieces("pool", 0x100, &[LEFT, Use::One { thread: 3, by_user: true }]));
    entries.push(pieces("grid", 0x200, &[BY_MAIN]));
    let advice = checked(&run(entries), 4);
    let (grid, pool) =
        (("grid", PolicyKind::Block, None, Some(HALF)), ("pool", PolicyKind::Default, None, Some(2 * HALF)));
    assert_eq!(rules(&advice), [grid, pool]);
}

/// A rule without a number would take those that have one.
#[test]
fn instances_that_are_left_need_no_rule_where_others_have_one() {
    let entries = vec![instances("twins", 0x100, &[LEFT, Use::Shared], 6000), sampled("grid", 0x200, &[BY_MAIN], 6000)];
    let advice = checked(&run(entries), 4);
    let found: Vec<_> = rules(&advice).iter().map(|r| (r.0, r.1)).collect();
    assert_eq!(found, [("grid", PolicyKind::Block), ("twins [instance 2 of 2]", PolicyKind::Interleave)]);
}

#[test]
fn what_is_written_can_be_read() {
    let mut r = Random(0x5EED);
    let (mut ranges, mut kept) = (0, 0);
    for _ in 0..16 {
        let mut entries = Vec::new();
        for site in 0..1 + r.below(4) {
            let uses: Vec<Use> = (0..1 + r.below(3)).map(|_| Use::any(&mut r)).collect();
            let (name, site) = (format!("at {site}"), 0x100 * (1 + site));
            match r.below(3) {
                0 => entries.push(instances(&name, site, &uses, 2000)),
                1 => entries.extend(parts(&pieces(&name, site, &uses))),
                _ => {
                    let mut mapping = pieces(&name, site, &uses);
                    mapping.kind = ObjectKind::Mapping;
                    entries.extend(parts(&mapping));
                }
            }
        }
        let advice = checked(&run(entries), 2 << r.below(2));
        let of = || advice.policy.objects.iter();
        ranges += of().filter(|rule| rule.range.is_some()).count();
        kept += of().filter(|rule| rule.place.policy == PolicyKind::Default).count();
    }
    assert!(ranges > 5 && kept > 2, "{ranges} ranges, {kept} kept apart");
}
