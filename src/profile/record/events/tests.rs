use super::*;
use crate::profile::perf::{Inode, Mapping};
use crate::profile::random::random;
use crate::profile::record::tallies::{MOST_SUMS, waiting};
use numamma_channel::Origin;
use numamma_channel::trace::reader::Trace;

/// What a program may write into its channel, and what the kernel may say of it meanwhile.
#[test]
fn events_of_a_program_that_lies_do_no_harm() {
    let mut random = random();
    let mut events = Events::new(&[1], true, 1_000_000, &Topology::this_machine(), true);
    events.start(0);
    let mut number = move || match random(5) {
        0 => random(1 << 16),
        1 => 0x7f00_0000_0000 + random(1 << 24),
        2 => u64::MAX - random(1 << 14),
        3 => 1 << random(64),
        _ => random(u64::MAX),
    };
    for round in 0..40_u64 {
        for _ in 0..500 {
            let (pid, tid, time_ns) = (1 + number() as u32 % 3, number() as u32 % 5, round * 1000 + number() % 1000);
            let (addr, size) = (number(), number());
            let origin = if number() % 2 == 0 { Origin::Heap } else { Origin::Mmap };
            // The channel refuses other addresses of the heap.
            let addr = if origin == Origin::Heap { addr & !7 } else { addr };
            let what = match number() % 6 {
                0 => EventKind::Free { addr, size, origin, resized: number() % 2 == 0 },
                1 => EventKind::ThreadStart {
                    start_routine: addr,
                    stack_low: size,
                    stack_high: number(),
                    created_at: number() as u32,
                },
                2 => EventKind::ThreadTask { first: number() as u32 % 8, words: [addr, number()] },
                3 => EventKind::Sampling { on: number() % 2 == 0 },
                _ => {
                    let (stack, left_out, resized) = (number() as u32, number() as u32 % 2, number() % 2 == 0);
                    EventKind::Alloc { addr, size, stack, origin, left_out, resized }
                }
            };
            events.allocs.push(Event { time_ns, pid, tid, what });
            let event = match number() % 8 {
                0 => PerfEvent::Fork { parent_pid: 1 + number() as u32 % 3, parent_tid: 1 },
                1 => PerfEvent::Exit,
                2 => PerfEvent::Comm { name: "name".into(), exec: number() % 4 == 0 },
                _ => fault(addr),
            };
            events.perf.push(PerfRecord { time_ns, pid, tid, event });
        }
        events.process(u64::MAX, None);
        events.space.thin(|addr| addr % 3 == 0);
        if round % 8 == 7 {
            events.space.forget(|addr| addr % 5 == 0);
            events.save_memory();
        }
        events.take_records();
    }
    events.space.share_left_out(number());
    events.take_records();
    assert!(events.stats.alloc_events > 0 && events.stats.faults > 0);
}

/// The parent fills a quarter, its child faults on that and on the next one.
#[test]
fn a_page_of_shared_memory_is_touched_first_once_in_all_processes() {
    let mut events = Events::new(&[1], true, 1_000_000, &Topology::this_machine(), false);
    events.start(0);
    let shared = Some(Inode { device: (0, 1), number: 5, generation: Some(1) });
    let path = "/dev/shm/a".to_owned();
    let at = |addr: u64| Mapping { addr, len: 64 * PAGE, pgoff: 0, prot: 3, path: path.clone(), shared };
    let mut time_ns = 0;
    let mut push = |events: &mut Events, pid: u32, event| {
        time_ns += 1;
        events.perf.push(PerfRecord { time_ns, pid, tid: pid, event });
    };
    push(&mut events, 1, PerfEvent::Mmap(at(0x70_0000)));
    (0..16).for_each(|page| push(&mut events, 1, fault(0x70_0000 + page * PAGE)));
    push(&mut events, 2, PerfEvent::Fork { parent_pid: 1, parent_tid: 1 });
    push(&mut events, 2, PerfEvent::Mmap(at(0x10_0000)));
    (0..32).for_each(|page| push(&mut events, 2, fault(0x10_0000 + page * PAGE)));
    (8..24).for_each(|page| push(&mut events, 2, fault(0x70_0000 + page * PAGE)));
    // When it is gone in one process, it is as touched as before for the other.
    push(&mut events, 1, PerfEvent::Mmap(Mapping { shared: None, path: "//anon".into(), ..at(0x70_0000) }));
    (0..4).for_each(|page| push(&mut events, 2, fault(0x10_0000 + page * PAGE)));
    (0..2).for_each(|page| push(&mut events, 1, fault(0x70_0000 + page * PAGE)));
    events.process(u64::MAX, None);
    let touches: Vec<_> = events.take_records().into_iter().filter_map(touches_of).flatten().collect();
    let short: Vec<_> = touches.iter().map(|t| (t.thread, t.addr, t.pages)).collect();
    assert_eq!(short, [(0, 0x70_0000, 16), (1, 0x70_0000 + 16 * PAGE, 16), (0, 0x70_0000, 2)]);
    assert_eq!(touches[0].object, touches[1].object);
    assert_ne!(touches[0].object, touches[2].object, "memory of its own");
}

fn touches_of(record: Record) -> Option<Vec<crate::profile::records::Touch>> {
    match record {
        Record::Touches(touches) => Some(touches),
        _ => None,
    }
}

fn fault(addr: u64) -> PerfEvent {
    PerfEvent::Fault { addr, ip: 0, sampled: false }
}

/// Two processes of which the second is a thread's: pages that fault again are uses, if the kernel makes them fault.
#[test]
fn a_page_that_faults_again_was_used() {
    for (hint_faults, uses) in [(false, 0), (true, 3)] {
        let mut events = Events::new(&[1], false, 1, &Topology::this_machine(), false);
        events.start(0);
        events.hint_faults = hint_faults;
        let mapping =
            Mapping { addr: 0x70_0000, len: 8 * PAGE, pgoff: 0, prot: 3, path: "//anon".into(), shared: None };
        let start = PerfEvent::Fork { parent_pid: 1, parent_tid: 1 };
        let faults = [(1, 0), (1, 1), (2, 1), (1, 1), (2, 0)].map(|(tid, page)| (tid, fault(0x70_0000 + page * PAGE)));
        let all = [(1, PerfEvent::Mmap(mapping)), (2, start)].into_iter().chain(faults);
        events.perf.extend((0..).zip(all).map(|(time_ns, (tid, event))| PerfRecord { time_ns, pid: 1, tid, event }));
        events.process(u64::MAX, None);
        assert_eq!((events.stats.samples, events.stats.faults), (uses, 5));
        let seen: Vec<_> = events.faults_seen.iter().map(|f| (f.thread, f.addr, f.writes)).collect();
        let expected = [(1, 0x70_1000, 1), (0, 0x70_1000, 1), (1, 0x70_0000, 1)];
        assert_eq!(seen, expected[..uses as usize], "what is not known counts as written");
    }
}

/// Six threads with half as many counts each as there may be sums; four end before the rest is looked at.
#[test]
fn counts_of_a_trace_are_written_before_they_are_too_many() {
    const PAGES: usize = MOST_SUMS / 2;
    let mut events = Events::new(&[1], false, 1, &Topology::this_machine(), false);
    events.start(0);
    events.tallies.trace = Some(Trace::create(false, 1 << 20).unwrap());
    events.tallies.waiting = waiting::tests::pages_of(1..7, PAGES as u32);
    events.perf = (2..6).map(|tid| PerfRecord { time_ns: 10, pid: 1, tid, event: PerfEvent::Exit }).collect();
    let (mut by_thread, mut written) = (std::collections::BTreeMap::<ThreadId, u64>::new(), 0);
    loop {
        let done = events.process(u64::MAX, None);
        assert!(events.tallies.pending() <= MOST_SUMS + PAGES, "{} sums wait", events.tallies.pending());
        for record in events.take_records() {
            let Record::Folded(sums) = record else { continue };
            sums.iter().for_each(|sum| *by_thread.entry(sum.thread).or_default() += sum.reads);
            written += 1;
        }
        if done {
            break;
        }
    }
    assert_eq!(by_thread.into_values().collect::<Vec<_>>(), [PAGES as u64; 6]);
    assert!(written >= 3, "{written}");
}
