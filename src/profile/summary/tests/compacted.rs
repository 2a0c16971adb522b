//! A compacted file has the summary of the file that it was made from.

use super::*;
use crate::profile::compact::compacted;

/// Instance, page and thread, and their counters at all times.
type Use = (u32, u32, ThreadId, Counters);

/// What a detector sees of an entry: its name, instances and counters, who accesses which page of which instance how
/// much, and who touched it first.
type Seen = (String, u64, Counters, Vec<Use>, Vec<TouchRun>);

fn seen(summary: &Summary) -> Vec<Seen> {
    let of_entry = |e: &Entry| {
        let mut cells: Vec<Use> = Vec::new();
        for c in &e.cells {
            match cells.last_mut() {
                Some((i, p, t, sum)) if (*i, *p, *t) == (c.instance, c.page, c.thread) => sum.add(&c.counters),
                _ => cells.push((c.instance, c.page, c.thread, c.counters)),
            }
        }
        (e.name.clone(), e.instances, e.total, cells, e.touches.clone())
    };
    summary.entries.iter().map(of_entry).collect()
}

#[test]
fn a_compacted_file_has_the_same_summary() {
    const RUN_NS: u64 = 1 << 32;
    let mut accesses = many_accesses(20_000);
    accesses.iter_mut().for_each(|a| a.time_ns *= 20_000);
    let gather = Access { certainty: Certainty::ObjectOnly, ..access(3, 2, 77, 0x4000_0000) };
    let globals = (0..64u32)
        .map(|i| object(i, ObjectKind::Global, &format!("g{i}"), 0x1000_0000 * u64::from(i + 1), 1024 * PAGE));
    let heap = [(64, 0, Some(50)), (65, 100, None)].map(|(id, born, died)| allocation(id, 8, 4, born, died));
    let touch = |object, addr, pages, thread, time_ns| Touch { object, addr, pages, thread, time_ns };
    let touches =
        vec![touch(0, 0x1000_0000, 3, 1, 5), touch(0, 0x1000_1000, 8, 2, 6), touch(64, heap[0].instance.base, 4, 3, 7)];
    let of_heap: Vec<Access> =
        (0..4).map(|p| access(65, p, 200, heap[1].instance.base + u64::from(p) * PAGE)).collect();
    let records = vec![
        header(),
        Record::Objects(globals.chain(heap).collect()),
        Record::Touches(touches),
        Record::Accesses(accesses),
        Record::Accesses([&[gather][..], &of_heap].concat()),
        stats(RUN_NS),
        end(),
    ];
    let whole = load(&records);
    // The object that was freed without a sample stays, as one of few that are alike.
    let once = compacted(records, RUN_NS, 1 << 20);
    let twice = compacted(once.clone(), RUN_NS, 1 << 20);
    for records in [once, twice] {
        assert!(!records.iter().any(|r| matches!(r, Record::Accesses(_))));
        assert_eq!(seen(&load(&records)), seen(&whole));
    }
}
