//! Events on the threads of programs that run.
//!
//! A thread that is created while this goes on has the events if its creator had them, and the kernel then reports it
//! as new; otherwise it is found in the next list of threads. A thread that is created in the few microseconds in which
//! its creator has events on some CPUs only is found in that list as well and has events twice on those CPUs, so that
//! its samples there count double.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::time::Duration;

use super::session::{Session, Wanted};
use super::{PerfEvent, PerfRecord};

/// A thread is in the list a moment before it is reported as new (copy_process in kernel/fork.c).
const REPORTED_WITHIN: Duration = Duration::from_millis(1);
/// Lists that are read at most: a program may create threads all the time, each soon reported.
const MOST_LISTS: usize = 64;

/// A thread that ran before the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunningThread {
    /// Process.
    pub pid: u32,
    /// When it was started, clock ticks since the boot.
    pub start_ticks: u64,
    /// Thread.
    pub tid: u32,
}

/// Events on the threads of `pids`, those threads in the order of their starts, and what was recorded meanwhile.
#[derive(Debug)]
pub struct Attached {
    /// The events.
    pub session: Session,
    /// Threads that were given the events; those that the threads created since are reported by `early`.
    pub threads: Vec<RunningThread>,
    /// What the buffers held when the last thread was found.
    pub early: Vec<PerfRecord>,
}

/// Opens events on all threads of `pids`.
///
/// # Errors
/// The kernel's: ESRCH when none of the processes exists, else [`super::attr::explain_refused_attach`] gives the
/// message for the user.
pub fn attach(pids: &[u32], wanted: Wanted) -> io::Result<Attached> {
    raise_file_limit();
    let mut session: Option<Session> = None;
    let (mut known, mut threads, mut early) = (HashSet::new(), Vec::new(), Vec::new());
    for _ in 0..MOST_LISTS {
        let mut new = unknown(pids, &known);
        if let Some(session) = session.as_mut().filter(|_| !new.is_empty()) {
            std::thread::sleep(REPORTED_WITHIN);
            session.drain(&mut early);
            known.extend(early.iter().filter(|r| matches!(r.event, PerfEvent::Fork { .. })).map(|r| (r.pid, r.tid)));
            new.retain(|t| !known.contains(&(t.pid, t.tid)));
        }
        if new.is_empty() {
            break;
        }
        for thread in new {
            known.insert((thread.pid, thread.tid));
            let tid = thread.tid as libc::pid_t;
            let opened = match &mut session {
                Some(session) => session.add(tid),
                None => Session::of_running(tid, wanted).map(|opened| session = Some(opened)),
            };
            match opened {
                Ok(()) => threads.push(thread),
                // It ended meanwhile.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                Err(e) => return Err(e),
            }
        }
    }
    let mut session = session.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    session.drain(&mut early);
    Ok(Attached { session, threads, early })
}

/// The threads that are not known yet, each process's in the order of their starts.
fn unknown(pids: &[u32], known: &HashSet<(u32, u32)>) -> Vec<RunningThread> {
    let of = |pid: u32| {
        let list = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
        let tids = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let new = tids.filter(|tid| !known.contains(&(pid, *tid)));
        let mut threads: Vec<_> = new.filter_map(|tid| running_thread(pid, tid)).collect();
        // The first thread has the process's id, and ids of others may have begun anew below it.
        threads.sort_by_key(|t| (t.tid != pid, *t));
        threads
    };
    pids.iter().flat_map(|pid| of(*pid)).collect()
}

fn running_thread(pid: u32, tid: u32) -> Option<RunningThread> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    // The start is the 20th field behind the name in parentheses (proc(5)).
    let start_ticks = stat.rsplit(')').next()?.split_whitespace().nth(19)?.parse().ok()?;
    Some(RunningThread { pid, start_ticks, tid })
}

/// Raises the soft limit of open files to the hard one.
fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is a live local; a refused limit changes nothing.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
