use super::*;

/// The address of a block that glibc maps in a page.
const MAPPED: u64 = 16;

/// A stage of an array that grows by realloc at one call site, of `pages` pages from page `first` on.
fn stage(id: ObjectId, (first, pages): (u64, u64), died_ns: Option<u64>) -> Object {
    let mut object = allocation(id, first, pages, u64::from(id) * 10, died_ns);
    object.instance.base = first * PAGE + MAPPED;
    (object.instance.thread, object.site) = (Some(id), Some(0));
    object
}

fn grown(stages: Vec<Object>, touches: Vec<Touch>, accesses: Vec<Access>) -> Summary {
    let calls = (1..stages.len() as u32).map(|n| Resized { object: n, before: n - 1, calls: 3 });
    let frames = vec![Frame { module: 0, offset: 8 }];
    let count = SiteCount { site: 0, instances: 1, bytes: 1, peak_bytes: 1, max_size: 8 * PAGE };
    load(&[
        header(),
        Record::Sites(vec![CallSite { id: 0, frames }]),
        Record::SiteCounts(vec![count]),
        Record::Objects(stages),
        Record::Resized(calls.collect()),
        Record::Accesses(accesses),
        Record::Touches(touches),
        end(),
    ])
}

#[test]
fn the_stages_of_an_array_are_one_instance() {
    let stages = vec![stage(0, (100, 2), Some(10)), stage(1, (200, 4), Some(20)), stage(2, (400, 8), None)];
    let touch = |object, page: u64, pages, thread, time_ns| Touch { object, addr: page * PAGE, pages, thread, time_ns };
    let touches =
        vec![touch(0, 100, 2, 0, 1), touch(1, 202, 2, 1, 11), touch(2, 404, 4, 2, 21), touch(2, 401, 1, 3, 22)];
    let accesses = vec![
        access(0, 0, 1, 101 * PAGE),
        access(1, 1, 11, 201 * PAGE + 8),
        access(2, 5, 21, 401 * PAGE),
        access(2, 6, 22, 407 * PAGE),
    ];
    let summary = grown(stages, touches, accesses);
    assert_eq!(summary.entries.len(), 1);
    let entry = &summary.entries[0];
    assert_eq!((entry.instances, entry.seen.len(), entry.details.resizes), (1, 1, 6));
    let instance = Instance { base: 400 * PAGE + MAPPED, size: 8 * PAGE, born_ns: 0, died_ns: None, thread: Some(0) };
    assert_eq!(entry.seen[0], instance);
    let cells: Vec<(u32, u32)> = entry.cells.iter().map(|c| (c.page, c.thread)).collect();
    assert_eq!(cells, [(1, 0), (1, 1), (1, 5), (7, 6)]);
    // mremap takes pages along; one that faults again is a new one.
    let touched: Vec<(u32, u32, u32)> = entry.touches.iter().map(|t| (t.page, t.pages, t.thread)).collect();
    assert_eq!(touched, [(0, 1, 0), (1, 1, 3), (2, 2, 1), (4, 4, 2)]);
    let turnover = summary.turnover(entry).unwrap();
    assert_eq!((turnover.allocations, turnover.kept_share, turnover.resizes), (1, 1.0, 6.0));
}

/// A block of the heap that cannot be extended is copied: its pages are those of the copy.
#[test]
fn a_copy_has_other_pages() {
    let mut stages = vec![stage(0, (100, 2), Some(10)), stage(1, (200, 4), None)];
    stages[0].instance.base += 32;
    let touches = vec![Touch { object: 0, addr: 100 * PAGE, pages: 2, thread: 0, time_ns: 1 }];
    let one = |page: u64| vec![access(1, 5, 21, page * PAGE)];
    let entry = &grown(stages.clone(), touches.clone(), one(201)).entries[0];
    assert_eq!((entry.seen.len(), entry.touches.len()), (1, 0));
    stages[1].instance.base = stages[0].instance.base;
    let entry = &grown(stages, touches, one(101)).entries[0];
    assert_eq!(entry.touches.iter().map(|t| (t.page, t.pages)).collect::<Vec<_>>(), [(0, 2)], "it grew in place");
}

/// Only earlier stages were used: before the array was made smaller.
#[test]
fn what_is_used_before_it_shrinks_is_the_same_array() {
    let stages = vec![stage(0, (100, 8), Some(10)), stage(1, (100, 2), None)];
    let summary = grown(stages, Vec::new(), vec![access(0, 3, 5, 107 * PAGE), access(0, 4, 6, 100 * PAGE + 16)]);
    let entry = &summary.entries[0];
    assert_eq!((entry.seen.len(), entry.instances, entry.size), (1, 1, 8 * PAGE));
    assert_eq!(entry.cells.iter().map(|c| (c.instance, c.page)).collect::<Vec<_>>(), [(0, 0), (0, 7)]);
}
