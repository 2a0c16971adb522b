//! Threads of the recorded processes: ids in creation order, names, lifetimes, CPUs.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::processes::ProcessId;
use super::waits;
use crate::profile::records::{Frame, Task, Thread, ThreadId, ThreadTask, ThreadWaits, Waits};

/// All threads seen, and the living one of each kernel thread id.
#[derive(Debug, Default)]
pub struct Threads {
    all: Vec<Thread>,
    changed: Vec<ThreadId>,
    dirty: Vec<bool>,
    living: FxHashMap<(u32, u32), ThreadId>,
    last_cpu: Vec<Option<u16>>,
    /// Threads with new words of what they run.
    tasks: BTreeSet<ThreadId>,
    /// Threads with new waits.
    waits: BTreeSet<ThreadId>,
    /// Threads whose start was missed.
    pub missed: u64,
}

impl Threads {
    /// The living thread `tid` of `pid`; one whose start was missed is taken as new now.
    pub fn get(&mut self, pid: u32, tid: u32, now_ns: u64) -> ThreadId {
        match self.living.get(&(pid, tid)) {
            Some(&id) => id,
            None => {
                self.missed += 1;
                self.start(pid, tid, now_ns, String::new(), None)
            }
        }
    }

    /// The thread `tid` of `pid` that lives, or else the last one that did; one that was never seen is taken as new.
    pub fn last(&mut self, pid: u32, tid: u32, now_ns: u64) -> ThreadId {
        match self.living.contains_key(&(pid, tid)) {
            true => None,
            false => self.all.iter().rfind(|thread| (thread.pid, thread.tid) == (pid, tid)).map(|thread| thread.id),
        }
        .unwrap_or_else(|| self.get(pid, tid, now_ns))
    }

    /// Whether a thread is, or was, of a process.
    pub fn is_of(&self, thread: ThreadId, pid: u32) -> bool {
        self.all.get(thread as usize).is_some_and(|t| t.pid == pid)
    }

    /// A new thread. A living thread of the same id is ended, because its end was missed.
    pub fn start(&mut self, pid: u32, tid: u32, now_ns: u64, name: String, creator: Option<ThreadId>) -> ThreadId {
        self.end(pid, tid, now_ns);
        let id = self.all.len() as ThreadId;
        self.all.push(Thread { id, pid, tid, name, creator, start_ns: now_ns, ..Thread::default() });
        self.dirty.push(false);
        self.last_cpu.push(None);
        self.living.insert((pid, tid), id);
        self.touch(id);
        id
    }

    /// Takes back the start of a thread that is not the program's. One after which others began keeps its number.
    pub fn withdraw(&mut self, pid: u32, tid: u32) {
        let last = self.all.last().map(|thread| thread.id);
        if let Some(id) = self.living.remove(&(pid, tid)).filter(|id| Some(*id) == last) {
            self.all.pop();
            self.dirty.pop();
            self.last_cpu.pop();
            self.changed.retain(|changed| *changed != id);
        }
    }

    /// Ends a thread.
    pub fn end(&mut self, pid: u32, tid: u32, now_ns: u64) {
        if let Some(id) = self.living.remove(&(pid, tid)) {
            self.all[id as usize].end_ns = Some(now_ns);
            self.touch(id);
        }
    }

    /// Ends all threads of a process but `keep_tid`, as exec does.
    pub fn end_others(&mut self, pid: u32, keep_tid: u32, now_ns: u64) {
        let others: Vec<u32> =
            self.living.keys().filter(|(p, t)| *p == pid && *t != keep_tid).map(|(_, t)| *t).collect();
        for tid in others {
            self.end(pid, tid, now_ns);
        }
    }

    /// Whether a thread lives.
    pub fn is_alive(&self, pid: u32, tid: u32) -> bool {
        self.living.contains_key(&(pid, tid))
    }

    /// Whether any thread of a process lives.
    pub fn any_alive(&self, pid: u32) -> bool {
        self.living.keys().any(|(p, _)| *p == pid)
    }

    /// Sets a thread's name.
    pub fn rename(&mut self, id: ThreadId, name: String) {
        self.all[id as usize].name = name;
        self.touch(id);
    }

    /// Sets a thread's start routine.
    pub fn set_start_routine(&mut self, id: ThreadId, routine: Frame) {
        self.all[id as usize].start_routine = Some(routine);
        self.touch(id);
    }

    /// Sets the call stack that created a thread.
    pub fn set_created_at(&mut self, id: ThreadId, frames: Vec<Frame>) {
        self.all[id as usize].created_at = frames;
        self.touch(id);
    }

    /// Takes words of the object that says what a thread runs: the first one is its virtual table, `code` and `data`
    /// say where in a module such a word points to.
    pub fn task_word(&mut self, id: ThreadId, index: u32, code: Option<Frame>, data: Option<Frame>) {
        let task = &mut self.all[id as usize].task;
        match (index, task) {
            (0, task) => *task = data.map(|class| Task { class, function: None }),
            (_, Some(task)) if task.function.is_none() => task.function = code,
            _ => {}
        }
        self.tasks.insert(id);
    }

    /// What threads run, as far as it is new or changed since the last call.
    pub fn take_tasks(&mut self) -> Vec<ThreadTask> {
        let known = |thread| Some(ThreadTask { thread, task: self.all.get(thread as usize)?.task? });
        std::mem::take(&mut self.tasks).into_iter().filter_map(known).collect()
    }

    /// The start and the waits of the living thread `tid` of `pid`; none for one that is not known.
    pub fn waits(&self, pid: u32, tid: u32) -> Option<(u64, Waits)> {
        let thread = &self.all[*self.living.get(&(pid, tid))? as usize];
        Some((thread.start_ns, thread.waits.unwrap_or_default()))
    }

    /// Sets the waits of a living thread.
    pub fn set_waits(&mut self, pid: u32, tid: u32, waits: Waits) {
        if let Some(&id) = self.living.get(&(pid, tid)) {
            self.all[id as usize].waits = Some(waits);
            self.waits.insert(id);
        }
    }

    /// Divides the waits of all threads but for those that were seen among them; the recording ends at `end_ns`.
    pub fn add_unseen_waits(&mut self, of_all: u64, end_ns: u64) {
        let row = |thread: &Thread| {
            let waits = thread.waits.unwrap_or_default();
            let life = thread.end_ns.unwrap_or(end_ns).saturating_sub(thread.start_ns);
            (life.saturating_sub(waits.seen_ns), waits)
        };
        let mut rows: Vec<(u64, Waits)> = self.all.iter().map(row).collect();
        let seen = rows.iter().map(|(_, waits)| waits.all).sum();
        waits::divide(of_all.saturating_sub(seen), &mut rows);
        for (thread, (_, waits)) in self.all.iter_mut().zip(rows) {
            thread.waits = Some(waits);
            self.waits.insert(thread.id);
        }
    }

    /// The waits of threads, as far as they are new or changed since the last call.
    pub fn take_waits(&mut self) -> Vec<ThreadWaits> {
        let known = |thread| Some(ThreadWaits { thread, waits: self.all.get(thread as usize)?.waits? });
        std::mem::take(&mut self.waits).into_iter().filter_map(known).collect()
    }

    /// Counts a sample of a thread on `cpu`.
    pub fn sampled(&mut self, id: ThreadId, cpu: u16) {
        let i = id as usize;
        self.all[i].samples += 1;
        if let Err(at) = self.all[i].cpus.binary_search(&cpu) {
            self.all[i].cpus.insert(at, cpu);
        }
        if self.last_cpu[i].is_some_and(|last| last != cpu) {
            self.all[i].migrations += 1;
        }
        self.last_cpu[i] = Some(cpu);
        self.touch(id);
    }

    /// Counts accesses of a thread, each as a sample on a CPU that is not known.
    pub fn counted(&mut self, id: ThreadId, accesses: u64) {
        self.all[id as usize].samples += accesses;
        self.touch(id);
    }

    /// A thread's name.
    pub fn name(&self, id: ThreadId) -> &str {
        &self.all[id as usize].name
    }

    /// When the first thread of some processes began and the last one ended; the end is none while one lives.
    pub fn lifetime(&self, processes: &[ProcessId]) -> (u64, Option<u64>) {
        let of = || self.all.iter().filter(|t| processes.iter().any(|p| p.began(t.pid, t.start_ns)));
        let end = of().map(|t| t.end_ns).try_fold(0, |last, end| Some(end?.max(last)));
        (of().map(|t| t.start_ns).min().unwrap_or(0), end)
    }

    fn touch(&mut self, id: ThreadId) {
        if !std::mem::replace(&mut self.dirty[id as usize], true) {
            self.changed.push(id);
        }
    }

    /// Threads that are new or changed since the last call.
    pub fn take_changed(&mut self) -> Vec<Thread> {
        let mut ids = std::mem::take(&mut self.changed);
        ids.sort_unstable();
        for &id in &ids {
            self.dirty[id as usize] = false;
        }
        ids.iter().map(|&id| self.all[id as usize].clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_after_the_end_is_of_the_thread_that_ended() {
        let mut threads = Threads::default();
        let main = threads.start(7, 7, 0, "main".into(), None);
        assert_eq!(threads.last(7, 7, 5), main);
        threads.end(7, 7, 10);
        assert_eq!(threads.last(7, 7, 11), main);
        assert_eq!((threads.all.len(), threads.missed), (1, 0));
        assert_eq!((threads.last(8, 8, 12), threads.missed), (1, 1), "never seen");
        let next = threads.start(7, 7, 20, "next".into(), None);
        assert_eq!(threads.last(7, 7, 21), next, "a new one of the same number");
    }
}
