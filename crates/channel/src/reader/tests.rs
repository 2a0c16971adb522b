use super::*;
use crate::writer::{Local, Writer};
use numamma_kernel::clock::monotonic_ns;

fn local() -> Local {
    // SAFETY: all zero bytes mean "no slot yet", by Local's contract.
    unsafe { std::mem::zeroed() }
}

fn alloc(writer: &Writer, n: u64) -> Record {
    Record { ticks: writer.now_after_loads(), address: n, size: n * 2, stack: 3, kind: layout::ALLOC_HEAP }
}

/// A tid that no thread has: above the largest pid_max.
const NO_THREAD: u32 = 1 << 23;

#[test]
fn events_come_out_in_order_with_increasing_times() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map);
    assert!(!channel.attached());
    writer.attach(5);
    assert!(channel.attached());
    let me = local();
    writer.claim(&me, 5, 6, |slot| channel.ring(slot));
    let before = monotonic_ns();
    let mut events = Vec::new();
    for round in 0..5 {
        for n in 1..=4000 {
            writer.push(&me, alloc(&writer, round * 4000 + n));
        }
        channel.drain(&mut events);
    }
    assert_eq!(events.len(), 20_000);
    assert!(events.is_sorted_by_key(|e| e.time_ns));
    // 1 ms: the conversion is exact to the width of one clock reading, longer when descheduled inside it.
    assert!(events[0].time_ns + 1_000_000 > before && events[19_999].time_ns < monotonic_ns() + 1_000_000);
    for (i, event) in events.iter().enumerate() {
        let n = i as u64 + 1;
        assert_eq!((event.pid, event.tid), (5, 6));
        assert_eq!(event.what, EventKind::Alloc { addr: n, size: 2 * n, stack: 3, origin: Origin::Heap });
    }
    assert_eq!(channel.lost(), 0);
}

#[test]
fn a_full_ring_drops_and_counts() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map);
    let me = local();
    writer.claim(&me, 5, 6, |slot| channel.ring(slot));
    for n in 0..RING as u64 + 10 {
        writer.push(&me, alloc(&writer, n));
    }
    assert_eq!(channel.lost(), 10);
    let mut events = Vec::new();
    channel.drain(&mut events);
    assert_eq!(events.len(), RING);
    writer.push(&me, alloc(&writer, 1));
    channel.drain(&mut events);
    assert_eq!(events.len(), RING + 1);
    assert_eq!(channel.lost(), 10);
}

#[test]
fn small_allocations_leave_room_for_arrays() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map);
    let me = local();
    writer.claim(&me, 5, 6, |slot| channel.ring(slot));
    for _ in 0..2 * RING {
        writer.push(&me, alloc(&writer, 16));
    }
    let lost = channel.lost();
    assert!(lost > RING as u64 && lost < 2 * RING as u64);
    writer.push(&me, alloc(&writer, 1 << 20));
    assert_eq!(channel.lost(), lost);
    let mut events = Vec::new();
    channel.drain(&mut events);
    assert!(matches!(events.last().unwrap().what, EventKind::Alloc { addr: 0x10_0000, .. }));
}

#[test]
fn slots_run_out_are_freed_and_reused() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map);
    let locals: Vec<Local> = (0..SLOTS).map(|_| local()).collect();
    for (i, l) in locals.iter().enumerate() {
        writer.claim(l, NO_THREAD, NO_THREAD + i as u32, |slot| channel.ring(slot));
        writer.push(l, alloc(&writer, 1));
    }
    let late = local();
    writer.claim(&late, NO_THREAD, 1, |slot| channel.ring(slot));
    writer.push(&late, alloc(&writer, 1));
    assert_eq!(channel.lost(), 1);
    // Reported as gone before its ring was read: freed in the drain.
    channel.thread_gone(NO_THREAD, NO_THREAD + 77);
    let mut events = Vec::new();
    channel.drain(&mut events);
    assert_eq!(events.len(), SLOTS);
    writer.claim(&late, NO_THREAD, 1, |slot| channel.ring(slot));
    writer.push(&late, alloc(&writer, 1));
    assert_eq!(channel.lost(), 1);
    events.clear();
    channel.drain(&mut events);
    assert_eq!(events.iter().map(|e| e.tid).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_reused_thread_id_keeps_its_new_slot() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map);
    let (old, new) = (local(), local());
    writer.claim(&old, NO_THREAD, NO_THREAD, |slot| channel.ring(slot));
    writer.claim(&new, NO_THREAD, NO_THREAD, |slot| channel.ring(slot));
    channel.thread_gone(NO_THREAD, NO_THREAD);
    assert_eq!(channel.map.slot(0).owner.load(Acquire), 0);
    assert_ne!(channel.map.slot(1).owner.load(Acquire), 0);
    // A living thread's slot is kept even if it was reported as gone.
    let (pid, me) = (std::process::id(), local());
    // SAFETY: takes no arguments.
    let tid = unsafe { libc::gettid() } as u32;
    writer.claim(&me, pid, tid, |slot| channel.ring(slot));
    channel.thread_gone(pid, tid);
    assert_ne!(channel.map.slot(0).owner.load(Acquire), 0);
}

#[test]
fn exec_abandons_the_slots_of_the_old_image() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map);
    let (old, other) = (local(), local());
    writer.claim(&old, 7, 7, |slot| channel.ring(slot));
    writer.push(&old, alloc(&writer, 1));
    writer.claim(&other, 8, 8, |slot| channel.ring(slot));
    writer.attach(7);
    let mut events = Vec::new();
    channel.drain(&mut events);
    assert_eq!(events.len(), 1);
    assert_eq!(channel.map.slot(0).owner.load(Acquire), 0);
    assert_ne!(channel.map.slot(1).owner.load(Acquire), 0);
}

#[test]
fn stacks_are_interned_once_by_many_threads() {
    let channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map);
    let stack = |n: u64| (0..1 + n % 16).map(|i| 0x1000 + n * 64 + i).collect::<Vec<u64>>();
    let ids: Vec<Vec<u32>> = std::thread::scope(|s| {
        let work = || (0..2000).map(|n| writer.intern(&stack(n))).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| s.spawn(work)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(ids.windows(2).all(|w| w[0] == w[1]));
    for (n, &id) in ids[0].iter().enumerate() {
        assert_eq!(channel.stack(id), stack(n as u64));
    }
    assert_eq!(writer.intern(&[1; 20]), writer.intern(&[1; 16]));
    assert_ne!(writer.intern(&[1; 15]), writer.intern(&[1; 16]));
    assert!(channel.stack(0).is_empty() && channel.stack(u32::MAX).is_empty());
}

#[test]
fn a_full_stack_table_gives_id_0() {
    let channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map);
    channel.map.header().next_stack.store(layout::STACKS as u32 - 1, Release);
    let last = writer.intern(&[10]);
    assert_eq!(channel.stack(last), [10]);
    assert_eq!(writer.intern(&[11]), 0);
    assert_eq!(writer.intern(&[10]), last);
}

#[test]
fn scribbled_positions_and_kinds_are_counted_not_believed() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map);
    let me = local();
    writer.claim(&me, 5, 6, |slot| channel.ring(slot));
    writer.push(&me, Record { kind: 99, ..alloc(&writer, 1) });
    let mut events = Vec::new();
    channel.drain(&mut events);
    channel.map.slot(0).head.store(1 << 60, Release);
    channel.drain(&mut events);
    assert!(events.is_empty());
    assert_eq!(channel.lost(), 2);
}

#[test]
fn the_environment_names_the_memfd() {
    let channel = Channel::create(true).unwrap();
    let env = channel.env();
    let file = std::fs::File::open(&env[0].1).unwrap();
    assert_eq!(file.metadata().unwrap().len(), TOTAL as u64);
    assert_eq!(env[1], (FOLLOW_ENV.into(), "1".into()));
}
