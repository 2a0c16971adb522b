//! Records on their way from the threads of a program to the recorder: whole, in order, none twice, and those that are
//! lost are counted.

use loom::thread;

use crate::event::{Event, EventKind};
use crate::explore::{SWITCHES, explore};
use crate::layout::{ALLOC_HEAP, Map, Record, SMALL, Shared};
use crate::memory::Mapped;
use crate::reader::Channel;
use crate::writer::{Local, Writer};

/// A process that does not exist: beyond the largest id.
const PID: u32 = 0x7fff_0000;

/// A channel, and the memory that its writers have, too.
fn channel(chunks: usize) -> (Channel, &'static Shared) {
    let channel = Channel::with_pool(false, chunks).unwrap();
    let shared = crate::layout::current();
    (channel, shared)
}

/// The state of a thread that has not written.
fn local() -> Local {
    // SAFETY: zeros are that.
    unsafe { std::mem::zeroed() }
}

/// Record number `number` of thread `tid`: no two of them have a field in common.
fn record(tid: u32, number: u64) -> Record {
    let address = (u64::from(tid) << 16) + number * 8;
    Record { ticks: 0, address, size: address + SMALL as u64, stack: address as u32, kind: ALLOC_HEAP }
}

/// A thread of the program: writes so many records; how many it had to lose.
fn write(shared: &'static Shared, tid: u32, count: u64) -> u64 {
    let writer = Writer::new(Map(shared), Mapped(shared));
    let local = local();
    writer.claim(&local, PID, tid);
    (0..count).filter(|&number| !writer.push(&local, record(tid, number))).count() as u64
}

/// Checks that the events of a thread are its records in order, and returns how many these are.
fn check(events: &[Event], tid: u32) -> u64 {
    let mut next = 0;
    for event in events.iter().filter(|event| event.tid == tid) {
        let EventKind::Alloc { addr, size, stack, .. } = event.what else { panic!("{event:?}") };
        let number = (addr - (u64::from(tid) << 16)) / 8;
        assert!(number >= next, "{number} comes after {next}");
        let Record { address, size: whole, stack: id, .. } = record(tid, number);
        assert_eq!((addr, size, stack, event.pid), (address, whole, id, PID), "a part of a record");
        next = number + 1;
    }
    events.iter().filter(|event| event.tid == tid).count() as u64
}

pub fn run() {
    explore("records of a thread that fill 3 chunks, read meanwhile", Some(SWITCHES), || {
        let (mut channel, shared) = channel(3);
        let writer = thread::spawn(move || write(shared, 1, 5));
        let mut events = Vec::new();
        channel.drain(&mut events);
        channel.drain(&mut events);
        let lost = writer.join().unwrap();
        channel.drain(&mut events);
        assert_eq!((check(&events, 1) + lost, channel.lost()), (5, lost));
    });
    explore("records for which there are too few chunks", Some(SWITCHES), || {
        let (mut channel, shared) = channel(2);
        let writer = thread::spawn(move || write(shared, 1, 6));
        let mut events = Vec::new();
        channel.drain(&mut events);
        let lost = writer.join().unwrap();
        channel.drain(&mut events);
        assert_eq!((check(&events, 1) + lost, channel.lost()), (6, lost));
    });
    explore("records of 2 threads", Some(SWITCHES - 1), || {
        let (mut channel, shared) = channel(4);
        let writers = [1, 2].map(|tid| thread::spawn(move || write(shared, tid, 3)));
        let mut events = Vec::new();
        channel.drain(&mut events);
        let lost = writers.map(|writer| writer.join().unwrap());
        channel.drain(&mut events);
        assert_eq!([check(&events, 1) + lost[0], check(&events, 2) + lost[1]], [3, 3]);
        assert_eq!(channel.lost(), lost[0] + lost[1]);
    });
    explore("records of a thread in the slot of another one that ended", Some(SWITCHES), || {
        let (mut channel, shared) = channel(4);
        let mut events = Vec::new();
        let lost = write(shared, 1, 1) + write(shared, 2, 1); // all slots are taken
        channel.drain(&mut events);
        let writer = thread::spawn(move || write(shared, 3, 3));
        channel.thread_gone(PID, 1);
        channel.drain(&mut events);
        let later = writer.join().unwrap();
        channel.drain(&mut events);
        let arrived = [1, 2, 3].map(|tid| check(&events, tid));
        assert_eq!((arrived[0] + arrived[1] + lost, arrived[2] + later), (2, 3));
        assert_eq!(channel.lost(), lost + later);
    });
    explore("a call stack that 2 threads have", Some(SWITCHES), || {
        let (channel, shared) = channel(1);
        let intern = move |frames: [u64; 2]| Writer::new(Map(shared), Mapped(shared)).intern(&frames);
        let other = thread::spawn(move || intern([7, 8]));
        let own = [intern([7, 8]), intern([7, 9])];
        let ids = [own[0], other.join().unwrap()];
        for (id, frames) in [(ids[0], [7, 8]), (ids[1], [7, 8]), (own[1], [7, 9])] {
            assert!(id == 0 || *channel.stack(id) == frames, "the frames of {id}");
        }
        assert!(own.iter().all(|id| *id != 0) && ids[0] == ids[1]);
    });
}
