use super::*;
use crate::layout::POOL_AT;
use crate::writer::{Local, Writer};

fn local() -> Local {
    // SAFETY: all zero bytes mean "no slot yet", by Local's contract.
    unsafe { std::mem::zeroed() }
}

fn alloc(writer: &Writer<Mapped>, n: u64) -> Record {
    Record { ticks: writer.now_after_loads(), address: n * 8, size: n * 2, stack: 3, kind: layout::ALLOC_HEAP }
}

/// A tid that no thread has: above the largest pid_max.
const NO_THREAD: u32 = 1 << 23;

#[test]
fn events_come_out_in_order_with_increasing_times() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map, channel.pool);
    assert!(!channel.attached());
    writer.attach(5);
    assert!(channel.attached());
    let me = local();
    writer.claim(&me, 5, 6);
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
        assert_eq!(
            event.what,
            EventKind::Alloc { addr: 8 * n, size: 2 * n, stack: 3, origin: Origin::Heap, left_out: 0, resized: false }
        );
    }
    assert_eq!(channel.lost(), 0);
}

/// Records that the first grant holds.
const GRANTED: u64 = 2048 * CHUNK as u64;

#[test]
fn a_thread_takes_a_part_of_the_memory_and_what_does_not_fit_is_counted() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map, channel.pool);
    let me = local();
    writer.claim(&me, 5, 6);
    for n in 0..GRANTED {
        writer.push(&me, alloc(&writer, n % 1000));
    }
    // Three quarters are there for small records, of which one thread takes half.
    let (lost, taken) = (channel.lost(), GRANTED / 8 * 3);
    assert!((GRANTED - taken).abs_diff(lost) < 4 * CHUNK as u64, "{lost}");
    let mut events = Vec::new();
    channel.drain(&mut events);
    assert_eq!(events.len() as u64, GRANTED - lost);
    writer.push(&me, alloc(&writer, 1));
    channel.drain(&mut events);
    assert_eq!(events.len() as u64, GRANTED - lost + 1);
    assert_eq!(channel.lost(), lost);
    // More was granted meanwhile, up to the limit and no further.
    for round in 0..8 {
        for n in 0..4 * GRANTED {
            writer.push(&me, alloc(&writer, n));
        }
        events.clear();
        channel.drain(&mut events);
        assert!(channel.memory() < (16 + 64) << 20, "round {round}: {} bytes", channel.memory());
    }
    assert_eq!(channel.memory.granted() as usize * layout::CHUNK_BYTES, POOL_BYTES);
}

#[test]
fn small_allocations_leave_room_for_arrays_and_other_threads() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map, channel.pool);
    let me = local();
    writer.claim(&me, 5, 6);
    for _ in 0..2 * GRANTED {
        writer.push(&me, alloc(&writer, 16));
    }
    let lost = channel.lost();
    assert!(lost > GRANTED && lost < 2 * GRANTED);
    writer.push(&me, alloc(&writer, 1 << 20));
    let late = local();
    writer.claim(&late, 5, 7);
    writer.push(&late, alloc(&writer, 16));
    assert_eq!(channel.lost(), lost);
    let mut events = Vec::new();
    channel.drain(&mut events);
    let large = |e: &&Event| matches!(e.what, EventKind::Alloc { addr: 0x80_0000, .. });
    assert_eq!((events.iter().filter(large).count(), events.last().unwrap().tid), (1, 7));
}

#[test]
fn many_threads_one_after_the_other_and_all_at_once_share_the_memory() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map, channel.pool);
    let mut events = Vec::new();
    for thread in 0..20_000_u32 {
        let me = local();
        writer.claim(&me, NO_THREAD, NO_THREAD + thread);
        for n in 0..150 {
            writer.push(&me, alloc(&writer, n));
        }
        if thread % 100 == 99 {
            channel.drain(&mut events);
            channel.free_ended();
            assert_eq!(events.len(), 15_000);
            events.clear();
        }
    }
    assert_eq!((channel.lost(), channel.memory.granted()), (0, 2048));
    let free = channel.map.header().free.count.load(Relaxed);
    assert_eq!(free, 2048, "every chunk came back");
    // Ten thousand at once: one page each.
    let locals: Vec<Local> = (0..10_000).map(|_| local()).collect();
    for (i, l) in locals.iter().enumerate() {
        writer.claim(l, NO_THREAD, NO_THREAD + i as u32);
        for n in 0..100 {
            writer.push(l, alloc(&writer, n));
        }
        if i % 100 == 99 {
            channel.drain(&mut events);
        }
    }
    assert_eq!((channel.lost(), events.len()), (0, 1_000_000));
    assert!(channel.memory() < 80 << 20, "{}", channel.memory());
}

#[test]
fn slots_run_out_are_freed_and_reused() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map, channel.pool);
    let locals: Vec<Local> = (0..SLOTS).map(|_| local()).collect();
    let mut events = Vec::new();
    for (i, l) in locals.iter().enumerate() {
        writer.claim(l, NO_THREAD, NO_THREAD + i as u32);
        writer.push(l, alloc(&writer, 1));
        if i % 100 == 99 && i + 200 < SLOTS {
            channel.drain(&mut events);
        }
    }
    let late = local();
    writer.claim(&late, NO_THREAD, 1);
    writer.push(&late, alloc(&writer, 1));
    assert_eq!(channel.lost(), 1);
    // Reported as gone before its records were read: freed in the drain.
    channel.thread_gone(NO_THREAD, NO_THREAD + SLOTS as u32 - 1);
    channel.drain(&mut events);
    assert_eq!(events.len(), SLOTS);
    writer.claim(&late, NO_THREAD, 1);
    writer.push(&late, alloc(&writer, 1));
    assert_eq!(channel.lost(), 1);
    events.clear();
    channel.drain(&mut events);
    assert_eq!(events.iter().map(|e| e.tid).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_reused_thread_id_keeps_its_new_slot() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map, channel.pool);
    let (old, new) = (local(), local());
    writer.claim(&old, NO_THREAD, NO_THREAD);
    writer.claim(&new, NO_THREAD, NO_THREAD);
    channel.thread_gone(NO_THREAD, NO_THREAD);
    assert_eq!(channel.map.slot(0).owner.load(Acquire), 0);
    assert_ne!(channel.map.slot(1).owner.load(Acquire), 0);
    // A living thread's slot is kept even if it was reported as gone.
    let (pid, me) = (std::process::id(), local());
    // SAFETY: takes no arguments.
    let tid = unsafe { libc::gettid() } as u32;
    writer.claim(&me, pid, tid);
    channel.thread_gone(pid, tid);
    assert_ne!(channel.map.slot(0).owner.load(Acquire), 0);
}

#[test]
fn exec_abandons_the_slots_of_the_old_image() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map, channel.pool);
    let (old, other) = (local(), local());
    writer.claim(&old, 7, 7);
    writer.push(&old, alloc(&writer, 1));
    writer.claim(&other, 8, 8);
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
    let writer = Writer::new(channel.map, channel.pool);
    let stack = |n: u64| (0..1 + n % 16).map(|i| 0x1000 + n * 64 + i).collect::<Vec<u64>>();
    let ids: Vec<Vec<u32>> = std::thread::scope(|s| {
        let work = || (0..2000).map(|n| writer.intern(&stack(n))).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| s.spawn(work)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(ids.windows(2).all(|w| w[0] == w[1]));
    for (n, &id) in ids[0].iter().enumerate() {
        assert_eq!(*channel.stack(id), stack(n as u64));
    }
    assert_eq!(writer.intern(&[1; 20]), writer.intern(&[1; 16]));
    assert_ne!(writer.intern(&[1; 15]), writer.intern(&[1; 16]));
    assert!(channel.stack(0).is_empty() && channel.stack(u32::MAX).is_empty());
}

#[test]
fn a_full_stack_table_gives_id_0() {
    let channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map, channel.pool);
    channel.map.header().next_stack.store(channel.memory.stacks() - 1, Release);
    let last = writer.intern(&[10]);
    assert_eq!(*channel.stack(last), [10]);
    assert_eq!(writer.intern(&[11]), 0);
    assert_eq!(writer.intern(&[10]), last);
}

#[test]
fn scribbled_positions_kinds_times_and_addresses_are_counted_not_believed() {
    let mut channel = Channel::create(false).unwrap();
    let writer = Writer::new(channel.map, channel.pool);
    let me = local();
    writer.claim(&me, 5, 6);
    writer.push(&me, Record { kind: 99, ..alloc(&writer, 1) });
    writer.push(&me, Record { address: 0x1001, ..alloc(&writer, 1) });
    writer.push(&me, Record { ticks: u64::MAX, ..alloc(&writer, 1) });
    let mut events = Vec::new();
    channel.drain(&mut events);
    assert_eq!(events.len(), 1);
    assert!(events[0].time_ns <= monotonic_ns(), "no event comes from the future");
    channel.map.slot(0).head.store(1 << 60, Release);
    channel.drain(&mut events);
    assert_eq!((events.len(), channel.lost()), (1, 3));
    // Freed at its end, and good for the next thread.
    channel.map.slot(0).owner.store(u64::from(NO_THREAD) << 32 | 6, Release);
    channel.free_ended();
    let next = local();
    writer.claim(&next, 5, 7);
    writer.push(&next, alloc(&writer, 1));
    channel.drain(&mut events);
    assert_eq!(events.last().unwrap().tid, 7);
}

/// A program that writes anything anywhere into the shared memory, while the recorder drains.
#[test]
fn random_bytes_all_over_the_channel_do_no_harm() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..8 {
        let mut channel = Channel::with_pool(false, 1 << 20).unwrap();
        let writer = Writer::new(channel.map, channel.pool);
        let mut events = Vec::new();
        for _ in 0..100 {
            let me = local();
            writer.claim(&me, NO_THREAD, random() as u32 | 1);
            for n in 0..random() % 500 {
                writer.push(&me, alloc(&writer, n));
            }
            let header = channel.map.header();
            for _ in 0..random() % 4 {
                let (slot, value) = (channel.map.slot(random() as usize % 64), random());
                let near = value % (2 * u64::from(channel.memory.granted()));
                match random() % 12 {
                    0 => slot.head.store(near * 20, Release),
                    1 => slot.head.store(value, Release),
                    2 => slot.first.store(near as u32, Release),
                    3 => slot.first.store(value as u32, Release),
                    4 => channel.map.link(value as u32).store(random() as u32, Release),
                    5 => channel.map.link(near as u32).store((random() % 300) as u32, Release),
                    6 => header.free.top.store(near, Release),
                    7 => header.free.count.store(value as u32, Release),
                    8 => header.high_water.store(value as u32, Release),
                    9 => header.next_stack.store(value as u32, Release),
                    10 => slot.lost.store(value, Release),
                    _ => slot.owner.store(value, Release),
                }
            }
            events.clear();
            channel.drain(&mut events);
            assert!(events.len() <= channel.memory.granted() as usize * CHUNK);
            assert!(events.iter().all(|e| e.time_ns <= monotonic_ns()));
            channel.free_ended();
            channel.thread_gone(NO_THREAD, random() as u32);
            let _ = (channel.stack(random() as u32), channel.lost(), channel.skipped(), channel.is_short());
        }
        assert!(channel.memory() < (16 << 20) + (1 << 20) + (32 << 20));
    }
}

#[test]
fn the_environment_names_the_sealed_memfd() {
    let channel = Channel::create(true).unwrap();
    let env = channel.env();
    let name = env[0].1.to_str().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(name.split(':').next().unwrap()).unwrap();
    let size = file.metadata().unwrap().len();
    assert_eq!(size, (POOL_AT + POOL_BYTES) as u64);
    assert!(file.set_len(0).is_err() && file.set_len(size * 2).is_err(), "its size is sealed");
    assert_eq!(env[1], (FOLLOW_ENV.into(), "1".into()));
}
