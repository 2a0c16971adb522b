//! The profile of one program of several that were recorded: of a script, a make or an mpirun, the program that it
//! started is what the user wants to see.
//!
//! Which program that is shows at the end only. Until then the file holds all processes, so that a killed recorder
//! leaves a readable profile; then it is written again with the records of the program's processes, whose threads and
//! objects are numbered and whose times count as if the program had been recorded alone.

use std::fs;
use std::io;
use std::path::Path;

use numamma_kernel::output_file::Replacement;
use rustc_hash::FxHashMap;

use super::processes::{Busy, ProcessId, is_named};
use super::recorder::Recorder;
use super::{Follow, notes};
use crate::launch::{elsewhere, executable, wrapper};
use crate::profile::file::{Reader, Writer};
use crate::profile::records::{
    Access, EventCounts, Folded, Header, Instance, KernelCost, NO_OBJECT, Object, ObjectId, Record, Stats, Thread,
    ThreadId, Touch,
};

/// Records of one program, in the order of the file that holds all.
struct OneProgram {
    processes: Vec<ProcessId>,
    /// When the program began: its times count from here.
    begin_ns: u64,
    header: Header,
    stats: Stats,
    threads: FxHashMap<ThreadId, ThreadId>,
    objects: FxHashMap<ObjectId, ObjectId>,
    /// Shared memory of which nothing shows yet that a process of the program uses it.
    shared: FxHashMap<ObjectId, Object>,
}

impl Recorder {
    /// Names the program that has the time as the one recorded. Returns it if the others are to be left out.
    pub(super) fn choose_program(&mut self) -> Option<Busy> {
        let wanted = match &self.follow {
            Follow::No => return None,
            Follow::All => None,
            Follow::Program(wanted) => wanted.clone(),
        };
        if self.events.stats.samples == 0 && self.header.sampling.period_ns > 0 {
            self.notes.extend(notes::nothing_ran(self.events.processes.count()));
            return None;
        }
        let mut busy = self.events.processes.busy(wanted.as_deref()).into_iter();
        let mut chosen = busy.next()?;
        if let Some(wanted) = wanted.as_deref().filter(|wanted| !is_named(&chosen.program, wanted)) {
            self.notes.push(notes::no_such_program(wanted, &chosen));
        }
        let command = self.command.clone();
        let named = |other: &Busy| !other.program.path.is_empty() && !wrapper::is_known(other.program.path.as_ref());
        let others: Vec<Busy> = busy.filter(named).collect();
        let is_itself = chosen.processes.iter().any(|p| p.pid == self.header.pid);
        if !is_itself && !chosen.program.path.is_empty() {
            if chosen.program.build_id.is_none() {
                let file = executable::check(chosen.program.path.as_ref());
                chosen.program.build_id = file.ok().and_then(|file| file.build_id);
            }
            self.notes.push(notes::chosen(&chosen, &command));
            self.header.program = chosen.program.clone();
            self.header.pid = chosen.processes[0].pid;
            self.append_header();
        }
        let only = matches!(self.follow, Follow::Program(_));
        self.notes.extend(notes::other_programs(&others, &command, &self.path).filter(|_| only));
        (only && chosen.processes.len() < self.events.processes.count()).then_some(chosen)
    }

    /// The command that records what was started elsewhere: the program is a launcher that does so, or nothing had any
    /// time and there was one.
    pub(super) fn behind(&self) -> Option<String> {
        let nothing_ran = self.events.stats.samples == 0 && self.header.sampling.period_ns > 0;
        let all = self.events.processes.programs().filter(|_| nothing_ran);
        std::iter::once(&self.header.program).chain(all).find_map(|program| elsewhere::behind(&program.argv))
    }

    /// Writes the finished file again with the records of a program alone, whose counters are returned. After an error
    /// the file holds all processes.
    pub(super) fn keep_program(&self, chosen: &Busy, all: Stats) -> io::Result<Stats> {
        let (begin_ns, end_ns) = self.events.lifetime(&chosen.processes);
        let end_ns = end_ns.unwrap_or(all.duration_ns);
        let mut stats = of_program(all, chosen, end_ns.saturating_sub(begin_ns));
        let (begin, end) = (self.start_ns.saturating_add(begin_ns), self.start_ns.saturating_add(end_ns));
        let share = stats.cpu_ns as f64 / all.cpu_ns.max(1) as f64;
        stats.events.idle = self.idle.counted_between(begin, end, share);
        let mut kept = OneProgram {
            processes: chosen.processes.clone(),
            begin_ns,
            header: self.header.clone(),
            stats,
            threads: FxHashMap::default(),
            objects: FxHashMap::default(),
            shared: FxHashMap::default(),
        };
        let path = fs::canonicalize(self.own_path()?)?;
        if !path.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let replacement = Replacement::of(&path)?;
        kept.write(&path, Writer::on(replacement.file()?)?)?;
        replacement.commit().map(|()| stats)
    }
}

/// The counters of a program among those of all; what is known only of all is taken in proportion to the samples.
fn of_program(all: Stats, chosen: &Busy, duration_ns: u64) -> Stats {
    let c = &chosen.counted;
    let share = if all.samples > 0 { c.samples as f64 / all.samples as f64 } else { 1.0 };
    Stats {
        duration_ns,
        cpu_ns: (all.cpu_ns as f64 * share) as u64,
        samples: c.samples,
        resolved: c.resolved,
        no_access: c.no_access,
        unresolved: c.unresolved,
        vsib: c.vsib,
        undecoded: c.undecoded,
        own: c.own,
        tls: c.tls,
        faults: c.faults,
        alloc_events: c.alloc_events,
        events: EventCounts {
            kernel: all.events.kernel.map(|KernelCost { faults_ns, mappings_ns }| KernelCost {
                faults_ns: (faults_ns as f64 * share) as u64,
                mappings_ns: (mappings_ns as f64 * share) as u64,
            }),
            ..all.events
        },
        ..all
    }
}

impl OneProgram {
    fn write(&mut self, from: &Path, mut writer: Writer) -> io::Result<()> {
        let mut reader = Reader::open(from).map_err(io::Error::other)?;
        writer.append(&Record::Header(self.header.clone()))?;
        for record in reader.by_ref().filter(|record| !matches!(record, Record::Header(_))) {
            let shared = self.shared_used_in(&record);
            if !shared.is_empty() {
                writer.append(&Record::Objects(shared))?;
            }
            if let Some(record) = self.kept(record) {
                writer.append(&record)?;
            }
        }
        reader.damage.map_or(Ok(()), |damage| Err(io::Error::other(damage)))
    }

    fn time(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.begin_ns)
    }

    /// The part of a record that is the program's; none when nothing is left of it.
    fn kept(&mut self, record: Record) -> Option<Record> {
        fn list<T>(list: Vec<T>, record: fn(Vec<T>) -> Record) -> Option<Record> {
            (!list.is_empty()).then(|| record(list))
        }
        match record {
            Record::Threads(all) => list(all.into_iter().filter_map(|t| self.thread(t)).collect(), Record::Threads),
            Record::ThreadTasks(mut all) => {
                all.retain_mut(|task| renumber(&self.threads, &mut task.thread));
                list(all, Record::ThreadTasks)
            }
            Record::ThreadWaits(mut all) => {
                all.retain_mut(|waits| renumber(&self.threads, &mut waits.thread));
                list(all, Record::ThreadWaits)
            }
            Record::Objects(all) => list(all.into_iter().filter_map(|o| self.object(o)).collect(), Record::Objects),
            Record::Accesses(mut all) => {
                all.retain_mut(|access| self.access(access));
                list(all, Record::Accesses)
            }
            Record::Folded(mut all) => {
                all.retain_mut(|folded| self.folded(folded));
                list(all, Record::Folded)
            }
            Record::Like(mut all) => {
                all.retain_mut(|like| renumber(&self.objects, &mut like.object));
                list(all, Record::Like)
            }
            Record::Resized(mut all) => {
                let objects = &self.objects;
                all.retain_mut(|r| renumber(objects, &mut r.object) && renumber(objects, &mut r.before));
                list(all, Record::Resized)
            }
            Record::SharedLines(mut all) => {
                all.retain_mut(|line| renumber(&self.objects, &mut line.object));
                list(all, Record::SharedLines)
            }
            Record::Touches(mut all) => {
                all.retain_mut(|touch| self.touch(touch));
                list(all, Record::Touches)
            }
            Record::SampledTouches(mut all) => {
                all.retain_mut(|touch| self.touch(touch));
                list(all, Record::SampledTouches)
            }
            Record::Stats(_) => Some(Record::Stats(self.stats)),
            Record::EventCounts(all) => {
                let EventCounts { idle, kernel, .. } = self.stats.events;
                Some(Record::EventCounts(EventCounts { idle, kernel, ..all }))
            }
            other => Some(other),
        }
    }

    fn thread(&mut self, mut thread: Thread) -> Option<Thread> {
        if !self.processes.iter().any(|p| p.began(thread.pid, thread.start_ns)) {
            return None;
        }
        let next = self.threads.len() as ThreadId;
        thread.id = *self.threads.entry(thread.id).or_insert(next);
        thread.creator = thread.creator.and_then(|creator| self.threads.get(&creator).copied());
        thread.start_ns = self.time(thread.start_ns);
        thread.end_ns = thread.end_ns.map(|end| self.time(end));
        Some(thread)
    }

    /// The shared memory that a record shows to be used by the program, where no record before did.
    fn shared_used_in(&mut self, record: &Record) -> Vec<Object> {
        if self.shared.is_empty() {
            return Vec::new();
        }
        let mut used: Vec<ObjectId> = match record {
            Record::Accesses(all) => self.of_threads(all.iter().map(|a| (a.thread, a.object))),
            Record::Folded(all) => self.of_threads(all.iter().map(|f| (f.thread, f.object))),
            Record::Touches(all) | Record::SampledTouches(all) => {
                self.of_threads(all.iter().map(|t| (t.thread, t.object)))
            }
            _ => Vec::new(),
        };
        used.sort_unstable();
        used.dedup();
        let objects: Vec<Object> = used.iter().filter_map(|id| self.shared.remove(id)).collect();
        objects.into_iter().map(|object| self.numbered(object)).collect()
    }

    /// Of pairs of a thread and what it uses, that of the program's threads which is shared.
    fn of_threads(&self, uses: impl Iterator<Item = (ThreadId, ObjectId)>) -> Vec<ObjectId> {
        let own = |(thread, object): &(ThreadId, ObjectId)| {
            self.threads.contains_key(thread) && self.shared.contains_key(object)
        };
        uses.filter(own).map(|(_, object)| object).collect()
    }

    fn object(&mut self, object: Object) -> Option<Object> {
        let Object { id, pid, instance: Instance { born_ns, died_ns, .. }, .. } = object;
        if pid == 0 && !self.objects.contains_key(&id) {
            self.shared.insert(id, object);
            return None;
        }
        if pid != 0 && !self.processes.iter().any(|p| p.may_have(pid, born_ns, died_ns)) {
            return None;
        }
        Some(self.numbered(object))
    }

    fn numbered(&mut self, mut object: Object) -> Object {
        let next = self.objects.len() as ObjectId;
        object.id = *self.objects.entry(object.id).or_insert(next);
        let instance = &mut object.instance;
        instance.thread = instance.thread.and_then(|thread| self.threads.get(&thread).copied());
        instance.born_ns = instance.born_ns.saturating_sub(self.begin_ns);
        instance.died_ns = instance.died_ns.map(|died| died.saturating_sub(self.begin_ns));
        object
    }

    fn access(&self, access: &mut Access) -> bool {
        access.time_ns = self.time(access.time_ns);
        renumber(&self.threads, &mut access.thread) && renumber(&self.objects, &mut access.object)
    }

    fn folded(&self, folded: &mut Folded) -> bool {
        folded.time_ns = self.time(folded.time_ns);
        renumber(&self.threads, &mut folded.thread) && renumber(&self.objects, &mut folded.object)
    }

    fn touch(&self, touch: &mut Touch) -> bool {
        touch.time_ns = self.time(touch.time_ns);
        let object = touch.object == NO_OBJECT || renumber(&self.objects, &mut touch.object);
        object && renumber(&self.threads, &mut touch.thread)
    }
}

/// Gives an id its new number; false when what it names is left out.
fn renumber(numbers: &FxHashMap<u32, u32>, id: &mut u32) -> bool {
    let new = numbers.get(id);
    new.inspect(|new| *id = **new).is_some()
}
