//! A variable with known members: its accesses, pages and first touches by part.

use super::*;

const BASE: u64 = 0x40_0040;
/// Bytes of three members; the variable begins inside of a page, so that they share pages.
const A: u64 = 20 * PAGE;
const B: u64 = 20 * PAGE + 24;

fn member(name: &str, offset: u64, size: u64) -> Member {
    Member { name: name.into(), offset, size }
}

/// `accesses` are (offset, accesses, thread).
fn recorded(accesses: &[(u64, u64, ThreadId)], touches: Vec<Touch>) -> Summary {
    let global = object(0, ObjectKind::Global, "grid_", BASE, A + B + A);
    let list: Vec<Access> = accesses
        .iter()
        .flat_map(|&(offset, n, thread)| (0..n).map(move |_| access(0, thread, 1, BASE + offset)))
        .collect();
    let members = vec![member("a", 0, A), member("n", A, 24), member("b", A + 24, B - 24), member("c", A + B, A)];
    load(&[
        header(),
        Record::Modules(vec![Module { path: "/bin/app".into(), ..Module::default() }]),
        Record::Objects(vec![global]),
        Record::Accesses(list),
        Record::Touches(touches),
        stats(100),
        Record::Members(vec![Members { module: 0, vaddr: BASE, members }]),
        end(),
    ])
}

fn part<'a>(summary: &'a Summary, name: &str) -> &'a Entry {
    summary.entries.iter().find(|e| e.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn pages(e: &Entry) -> Vec<(u32, u32, u64)> {
    e.cells.iter().map(|c| (c.page, c.thread, c.counters.accesses())).collect()
}

#[test]
fn a_member_is_an_entry_of_its_own() {
    let summary = recorded(&[(0, 1, 0), (5 * PAGE, 4, 1), (A + 4 * PAGE, 2, 2), (A + B + 4 * PAGE, 1, 3)], Vec::new());
    let names: Vec<&str> = summary.entries.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["grid_.a", "grid_.b", "grid_.c"]);
    let a = part(&summary, "grid_.a");
    let own = Part { parent: "grid_".into(), parent_size: 2 * A + B, member: "a".into(), offset: 0 };
    assert_eq!((a.part.as_ref(), a.linkage.as_str(), a.vaddr), (Some(&own), "grid_", BASE));
    assert_eq!((a.instances, a.seen.len(), a.seen[0].base), (1, 1, BASE));
    assert_eq!(pages(a), [(0, 0, 1), (5, 1, 4)]);
    let b = part(&summary, "grid_.b");
    assert_eq!(b.seen[0].base % PAGE, 0, "a part begins on a page");
    assert_eq!(pages(b), [(4, 2, 2)]);
    let all: u64 = summary.entries.iter().map(|e| e.size).sum();
    assert_eq!(all, 2 * A + B, "every byte belongs to one part");
}

/// The page with the end of `a` and the beginning of `b`.
#[test]
fn a_shared_page_goes_by_cost() {
    let first_of_b = [(A - 8, 3, 0), (A + 24, 5, 1), (A + 2 * PAGE, 1, 1)];
    let summary = recorded(&first_of_b, Vec::new());
    let (a, b) = (part(&summary, "grid_.a"), part(&summary, "grid_.b"));
    assert_eq!(a.seen[0].base + a.size, b.seen[0].base);
    assert_eq!(b.part.as_ref().unwrap().offset, A - 0x40, "rounded down to the page");
    assert_eq!((pages(a), pages(b)), (vec![], vec![(0, 0, 3), (0, 1, 5), (2, 1, 1)]));
    assert_eq!((a.total.accesses(), b.total.accesses()), (0, 9));

    let summary = recorded(&[(A - 8, 6, 0), (A + 24, 5, 1), (A + 2 * PAGE, 1, 1)], Vec::new());
    let (a, b) = (part(&summary, "grid_.a"), part(&summary, "grid_.b"));
    assert_eq!(a.seen[0].base + a.size, b.seen[0].base);
    assert_eq!(b.part.as_ref().unwrap().offset, A - 0x40 + PAGE, "rounded up");
    assert_eq!((pages(a), pages(b)), (vec![(20, 0, 6), (20, 1, 5)], vec![(1, 1, 1)]));
    assert_eq!((b.vaddr, b.size), (BASE + A - 0x40 + PAGE, (B + 0x40) / PAGE * PAGE - PAGE));
}

#[test]
fn first_touches_are_divided_as_the_pages_are() {
    let touch = Touch { object: 0, addr: BASE & !(PAGE - 1), pages: 61, thread: 7, time_ns: 3 };
    let summary = recorded(&[(0, 9, 0), (A + 24, 1, 1), (A + B + PAGE, 1, 1)], vec![touch]);
    let runs = ["grid_.a", "grid_.b", "grid_.c"].map(|name| part(&summary, name).touches.as_slice());
    let sum: u32 = runs.iter().flat_map(|runs| runs.iter()).map(|t| t.pages).sum();
    assert_eq!(sum, 61);
    assert!(runs.iter().all(|runs| runs.len() == 1 && (runs[0].page, runs[0].thread) == (0, 7)), "{runs:?}");
}

/// Instances of a variable are as many as processes and loads; a damaged file may claim any number.
#[test]
fn the_parts_of_all_variables_together_are_bounded() {
    let many = |id: u32| object(id, ObjectKind::Global, &format!("g{id}"), BASE, 1000 * PART_LEAST);
    let members = (0..1000).map(|i| member("m", i * PART_LEAST, PART_LEAST)).collect();
    let summary = load(&[
        header(),
        Record::Objects((0..200).map(many).collect()),
        Record::Accesses((0..200).map(|id| access(id, 0, 1, BASE + 8)).collect()),
        Record::Members(vec![Members { module: 0, vaddr: BASE, members }]),
        end(),
    ]);
    let parts = summary.entries.iter().filter(|e| e.part.is_some()).count();
    assert!((1 << 16..=(1 << 16) + 1000).contains(&parts), "{parts}");
    assert_eq!(summary.entries.iter().map(|e| e.total.accesses()).sum::<u64>(), 200);
}

#[test]
fn pages_that_cannot_be_shared_out_leave_the_variable_whole() {
    let global = object(0, ObjectKind::Global, "grid_", BASE, 2 * A);
    let Record::Header(mut large) = header() else { unreachable!() };
    large.page_size = 1 << 16;
    let members = vec![member("a", 0, A), member("b", A, A)];
    let summary = load(&[
        Record::Header(large),
        Record::Objects(vec![global]),
        Record::Accesses(vec![access(0, 0, 1, BASE)]),
        Record::Members(vec![Members { module: 0, vaddr: BASE, members }]),
        end(),
    ]);
    assert_eq!(summary.entries.len(), 1);
    assert!(summary.entries[0].part.is_none());
}
