//! Attributes what the hooks of the program have counted.

use numamma_channel::trace::layout::SITES;
use numamma_channel::trace::lines::SharedLine;
use numamma_channel::trace::reader::{Owner, Place, Trace};
use numamma_channel::{Event, EventKind, Origin};
use numamma_kernel::clock::monotonic_ns;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Events;
use crate::profile::perf::{PerfEvent, PerfRecord};
use crate::profile::record::shared_lines;
use crate::profile::record::tallies::MOST_SUMS;
use crate::profile::record::tallies::waiting::Waiting;
use crate::profile::records::{Frame, Member, Record, ThreadId};

/// What was looked up for the counts that are attributed in one go, between which nothing changes.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Number of that go.
    number: u64,
    /// Of the last count, by process and kernel thread id.
    thread: Option<((u32, u32), ThreadId)>,
    /// By [`Place::site`]: threads have a count for each page of an instruction.
    frames: Vec<KnownFrame>,
}

/// With number 0 that of no instruction.
#[derive(Debug, Clone, Copy)]
struct KnownFrame {
    number: u64,
    pid: u32,
    frame: Frame,
}

impl Known {
    fn begin(&mut self) {
        self.number += 1;
        self.thread = None;
    }

    fn frame(&mut self, pid: u32, place: Place, find: impl FnOnce() -> Frame) -> Frame {
        let number = self.number;
        if self.frames.is_empty() {
            self.frames = vec![KnownFrame { number: 0, pid: 0, frame: Frame { module: 0, offset: 0 } }; SITES];
        }
        let known = &mut self.frames[place.site()];
        if (known.number, known.pid) != (number, pid) {
            *known = KnownFrame { number, pid, frame: find() };
        }
        known.frame
    }
}

impl Events {
    /// Reads the counts when that is due: an event after which an object is not known any more makes it so.
    pub(super) fn read_tallies(&mut self, last: bool) {
        if self.tallies.trace.is_none() {
            return;
        }
        let ends = |e: &Event| matches!(e.what, EventKind::Free { .. } | EventKind::Sampling { .. });
        let execs = |r: &PerfRecord| matches!(r.event, PerfEvent::Comm { exec: true, .. });
        let exits = |r: &PerfRecord| matches!(r.event, PerfEvent::Exit).then_some((r.pid, r.tid));
        if last || self.perf.iter().any(execs) || self.tallies.is_due(self.allocs.iter().any(ends)) {
            return self.tallies.read();
        }
        let gone: FxHashSet<(u32, u32)> = self.perf.iter().filter_map(exits).collect();
        // Threads that need larger tables may wait for the memory.
        if !gone.is_empty() || self.tallies.trace.as_ref().is_some_and(Trace::is_short) {
            self.tallies.read_of(|owner| gone.contains(&(owner.pid, owner.tid)));
        }
    }

    /// Before an event: attributes what was counted in memory whose object ends by it.
    pub(super) fn tally_before(&mut self, event: &Event, time: u64) {
        let (pid, range) = match event.what {
            EventKind::Free { addr, size, origin: Origin::Mmap, .. } => (event.pid, Some((addr, size))),
            EventKind::Free { addr, origin: Origin::Heap, .. } => {
                (event.pid, self.space.block(event.pid, addr).map(|(low, high)| (low, high - low)))
            }
            EventKind::Sampling { .. } => (event.pid, Some((0, u64::MAX))),
            _ => return,
        };
        if let Some((addr, len)) = range.filter(|_| self.tallies.trace.is_some()) {
            self.attribute_from(time, |waiting, with| waiting.take(pid, (addr, len), event.time_ns, with));
            let lines = self.tallies.lines.take(pid, (addr, len), event.time_ns);
            self.attribute_lines(&lines, time);
        }
    }

    /// A thread or, with `tid` 0, the program of a process ended: what it counted is known.
    pub(super) fn tally_end(&mut self, pid: u32, tid: u32, time_ns: u64) {
        let Some(trace) = &mut self.tallies.trace else { return };
        trace.gone(pid, tid, time_ns);
        let time = self.relative(time_ns);
        self.attribute_from(time, |waiting, with| match tid {
            0 => waiting.take(pid, (0, u64::MAX), time_ns, with),
            tid => waiting.take_thread(pid, tid, time_ns, with),
        });
        if tid == 0 {
            let lines = self.tallies.lines.take(pid, (0, u64::MAX), time_ns);
            self.attribute_lines(&lines, time);
        }
    }

    /// Attributes what was read before `until_ns`, now that the events before that time are processed. False when the
    /// sums are to be written first.
    pub(super) fn tally_rest(&mut self, until_ns: u64) -> bool {
        if self.tallies.trace.is_none() {
            return true;
        }
        let end = self.ended_ns.unwrap_or_else(monotonic_ns);
        let time = self.relative(until_ns.min(end));
        let mut more = true;
        while more && !self.tallies.is_full() {
            let room = MOST_SUMS - self.tallies.pending();
            self.attribute_from(time, |waiting, with| more = waiting.take_until(until_ns, room, with));
        }
        if more {
            return false;
        }
        let lines = self.tallies.lines.take_until(until_ns);
        self.attribute_lines(&lines, time);
        true
    }

    /// A line belongs to the object of its word that was used most.
    fn attribute_lines(&mut self, lines: &[SharedLine], time: u64) {
        for line in lines {
            if !self.wanted(line.pid) || !self.switch.is_on(line.pid) {
                continue;
            }
            let (pid, addr) = (line.pid, shared_lines::most_used(line));
            // The last counts are read when all threads have ended.
            let thread = self.threads.last(pid, pid, time);
            let object = self.space.attribute(time, pid, thread, 0, addr);
            let place = shared_lines::line_of(self.space.address_in(object, pid, addr));
            let space = &mut self.space;
            self.tallies.lines.add(object, place, line, |ip| space.frame(pid, ip));
        }
    }

    /// The record of the lines that threads share. Reads debug information: call it when the program has ended.
    pub fn take_shared_lines(&mut self) -> Option<Record> {
        let space = &mut self.space;
        let mut members = FxHashMap::default();
        self.tallies.lines.record(|object, addr| {
            let known = members.entry(object).or_insert_with(|| space.members_of(object));
            let within =
                |member: &&Member| addr.checked_sub(known.0 + member.offset).is_some_and(|at| at < member.size);
            known.1.iter().find(within).map_or_else(String::new, |member| member.name.clone())
        })
    }

    /// Attributes what `take` takes.
    fn attribute_from(&mut self, time: u64, take: impl FnOnce(&mut Waiting, &mut dyn FnMut(&Owner, Place, u64))) {
        let mut waiting = std::mem::take(&mut self.tallies.waiting);
        let mut known = std::mem::take(&mut self.known);
        known.begin();
        take(&mut waiting, &mut |owner, place, count| self.attribute(owner, place, count, time, &mut known));
        self.known = known;
        self.tallies.waiting = waiting;
    }

    fn attribute(&mut self, owner: &Owner, of: Place, count: u64, time: u64, known: &mut Known) {
        let &Owner { pid, tid, until_ns, .. } = owner;
        if !self.wanted(pid) || !self.switch.is_on(pid) {
            return;
        }
        let Some(trace) = &self.tallies.trace else { return };
        let tally = trace.tally(owner, of, count);
        let thread = match known.thread {
            Some((of, thread)) if of == (pid, tid) => thread,
            _ => self.threads.get(pid, tid, time),
        };
        known.thread = Some(((pid, tid), thread));
        self.threads.counted(thread, count);
        self.count(pid, |stats| {
            stats.samples += count;
            stats.resolved += count;
        });
        let object = self.space.attribute(time, pid, thread, 0, tally.addr);
        let place = (object, self.space.address_in(object, pid, tally.addr));
        let frame = known.frame(pid, of, || self.space.frame(pid, tally.ip));
        let time = time.min(self.relative(until_ns));
        self.tallies.add(time, thread, place, frame, &tally);
    }
}
