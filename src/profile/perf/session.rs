//! The recorder's events on all CPUs: opened on a program that is held before its exec or on the threads of one that
//! runs, drained from outside.
//!
//! Each CPU has three buffers: one for samples, one for mappings and threads, one for page faults, so that neither a
//! burst of faults (a million a second when memory is filled) nor one of samples displaces the mappings that all other
//! records need. An event belongs to one thread and to those that it creates, so that a program that runs already needs
//! events for each of its threads ([`super::threads`]); those of one CPU share its buffers.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use numamma_kernel::lists::parse_list;
use numamma_kernel::sys::PAGE;
use perf_event_open_sys::bindings::perf_event_attr;
use perf_event_open_sys::ioctls;

use super::attr::{self, Abilities, Start};
use super::decode::{self, Source};
use super::ring::{Ring, over_limit};
use super::{PerfEvent, PerfRecord};

/// Data pages of a faults buffer where memory may be locked freely.
pub const FAULT_PAGES: usize = 512;
/// Data pages of a samples buffer from which on samples carry a piece of the stack: 80 such samples fit in 16 pages.
const PAGES_FOR_STACKS: usize = 16;
/// Data pages of the buffers of each CPU, largest first. Root gets the first sizes (2 MiB of faults are 20 ms at a
/// million a second), an ordinary user without `ulimit -l` the second, which fit the default perf_event_mlock_kb of 516
/// on every CPU; the rest is for stricter limits. All CPUs get the same, or the first ones would use up the limit.
const PAGES: [Pages; 6] =
    [pages(64, 64, FAULT_PAGES), pages(32, 16, 64), pages(16, 8, 32), pages(8, 4, 16), pages(4, 2, 4), pages(1, 1, 1)];

/// Data pages of the buffers of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pages {
    samples: usize,
    sideband: usize,
    faults: usize,
}

const fn pages(samples: usize, sideband: usize, faults: usize) -> Pages {
    Pages { samples, sideband, faults }
}

impl Pages {
    /// Bytes with the control page of each buffer.
    fn bytes(self) -> usize {
        (self.samples + self.sideband + self.faults + 3) * PAGE
    }
}

/// What to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Period of the timer, ns; 0 records mappings, threads and page faults only.
    pub period_ns: u64,
    /// Whether forked processes are recorded too.
    pub follow: bool,
    /// Bytes that the buffers of all CPUs may take, though the smallest are always tried.
    pub memory: usize,
    /// Whether samples are taken from the start, or from [`Session::start_samples`] on.
    pub samples_at_start: bool,
}

/// The events of one thread on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    wanted: Wanted,
    /// When mappings and threads are recorded from.
    sideband: Start,
    /// When page faults are.
    faults: Start,
    /// When samples are taken from.
    samples: Start,
    /// Whether faults inside system calls are recorded.
    kernel_faults: bool,
    /// Whether samples carry a piece of the stack.
    stack: bool,
    abilities: Abilities,
}

/// The events of one thread on one CPU.
#[derive(Debug)]
struct Task {
    timer: Option<OwnedFd>,
    fault: OwnedFd,
    sideband: OwnedFd,
    /// Its records are in the buffer of `sideband`.
    some_faults: OwnedFd,
}

/// Buffers and events of one CPU. Buffers first: they are unmapped before their events are closed.
#[derive(Debug)]
struct PerCpu {
    /// None without samples.
    samples: Option<Ring>,
    mappings: Ring,
    faults: Ring,
    cpu: i32,
    /// Of each thread; those of the first one own the buffers.
    tasks: Vec<Task>,
}

/// Which page faults are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    /// Each.
    All,
    /// One in [`attr::FAULT_PERIOD`] of each thread.
    Some,
    /// None.
    None,
}

/// Records dropped by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Samples.
    pub samples: u64,
    /// Mappings, names, starts and ends of threads.
    pub mappings: u64,
    /// Page faults.
    pub faults: u64,
}

/// All events of one recording.
#[derive(Debug)]
pub struct Session {
    cpus: Vec<PerCpu>,
    poll: Vec<libc::pollfd>,
    request: Request,
    /// Whether faults inside system calls are recorded too.
    pub kernel_faults: bool,
    /// Losses reported in the buffers; a loss at the very end of the run is not reported there.
    reported: Lost,
}

impl Session {
    /// Opens the events on `pid`, which must not have executed the program yet: they start with its exec.
    ///
    /// # Errors
    /// The kernel's error; [`attr::explain_refusal`] gives the message for the user.
    pub fn open(pid: libc::pid_t, wanted: Wanted) -> io::Result<Session> {
        let samples = if wanted.samples_at_start { Start::AtExec } else { Start::Enabled };
        Session::with_starts(pid, wanted, [Start::AtExec, Start::AtExec, samples])
    }

    /// Opens the events on the thread `tid`, which runs: mappings and threads are recorded at once, page faults from
    /// [`Session::record_faults`] on, samples from [`Session::start_samples`] on.
    ///
    /// # Errors
    /// The kernel's error; [`attr::explain_refused_attach`] gives the message for the user.
    pub(super) fn of_running(tid: libc::pid_t, wanted: Wanted) -> io::Result<Session> {
        Session::with_starts(tid, wanted, [Start::Opened, Start::Enabled, Start::Enabled])
    }

    fn with_starts(pid: libc::pid_t, wanted: Wanted, starts: [Start; 3]) -> io::Result<Session> {
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_else(|_| "0".into());
        let online = parse_list(online.trim());
        let Some(&first) = online.first() else {
            return Err(io::Error::other("/sys/devices/system/cpu/online lists no CPU"));
        };
        let kernel_faults = attr::open(&mut attr::faults(true), pid, first as i32).is_ok();
        let abilities = Abilities::probe(pid, first as i32);
        let [sideband, faults, samples] = starts;
        let request = Request { wanted, sideband, faults, samples, kernel_faults, stack: false, abilities };
        let mut refused = io::Error::from_raw_os_error(libc::EPERM);
        let fits = |pages: &Pages| pages.bytes() * online.len() <= wanted.memory;
        let smallest = PAGES.len() - 1;
        for (_, pages) in PAGES.into_iter().enumerate().filter(|(n, pages)| fits(pages) || *n == smallest) {
            let request = Request { stack: pages.samples >= PAGES_FOR_STACKS, ..request };
            match open_all(pid, &online, request, pages) {
                Ok(cpus) => {
                    let poll = cpus.iter().flat_map(PerCpu::poll_fds).collect();
                    return Ok(Session { cpus, poll, request, kernel_faults, reported: Lost::default() });
                }
                Err(OpenError::Buffer(e)) if over_limit(&e) => refused = no_memory(&e),
                Err(OpenError::Buffer(e) | OpenError::Event(e)) => return Err(e),
            }
        }
        Err(refused)
    }

    /// Opens the events on another thread that runs.
    ///
    /// # Errors
    /// The kernel's; then the thread has none of them.
    pub(super) fn add(&mut self, tid: libc::pid_t) -> io::Result<()> {
        // The events of mappings and threads last: a thread that is reported as new has all others.
        let parts = self.cpus.iter().map(|cpu| cpu.sampling(tid, self.request)).collect::<io::Result<Vec<_>>>()?;
        let tasks = self.cpus.iter().zip(parts).map(|(cpu, (timer, fault))| cpu.task(tid, self.request, timer, fault));
        let tasks = tasks.collect::<io::Result<Vec<_>>>()?;
        self.cpus.iter_mut().zip(tasks).for_each(|(cpu, task)| cpu.tasks.push(task));
        Ok(())
    }

    /// Waits until a buffer is half full or one of `ends` is readable, at most `timeout_ms`.
    pub fn wait(&mut self, timeout_ms: i32, ends: &[BorrowedFd<'_>]) {
        let own = self.poll.len();
        self.poll.extend(ends.iter().map(|end| poll_fd(*end)));
        // SAFETY: `poll` is a live array of the given length.
        unsafe { libc::poll(self.poll.as_mut_ptr(), self.poll.len() as libc::nfds_t, timeout_ms) };
        self.poll.truncate(own);
        // An event whose threads have all ended reports POLLHUP at every poll.
        self.poll.retain(|p| p.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) == 0);
    }

    /// Appends all records written so far; each buffer in time order, buffers one after the other.
    pub fn drain(&mut self, out: &mut Vec<PerfRecord>) {
        for cpu in &mut self.cpus {
            // First, because the faults that follow are attributed with these mappings.
            drain_ring(&mut cpu.mappings, Source::Sideband, &mut self.reported.mappings, out);
            if let Some(samples) = &mut cpu.samples {
                drain_ring(samples, Source::Timer, &mut self.reported.samples, out);
            }
            drain_ring(&mut cpu.faults, Source::Faults, &mut self.reported.faults, out);
        }
    }

    /// Bytes of all buffers.
    pub fn buffers(&self) -> usize {
        let size = |c: &PerCpu| c.faults.size() + c.mappings.size() + c.samples.as_ref().map_or(0, Ring::size);
        self.cpus.iter().map(|c| size(c) + 3 * PAGE).sum()
    }

    fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.cpus.iter().flat_map(|cpu| &cpu.tasks)
    }

    /// Records these page faults from now on, in threads that exist and in those that they create.
    pub fn record_faults(&self, which: Faults) {
        for task in self.tasks() {
            switch(&task.fault, which == Faults::All);
            switch(&task.some_faults, which == Faults::Some);
        }
    }

    /// Takes samples from now on.
    pub fn start_samples(&self) {
        self.tasks().filter_map(|task| task.timer.as_ref()).for_each(|timer| switch(timer, true));
    }

    /// Records nothing more. What was recorded can still be drained.
    pub fn stop(&self) {
        for task in self.tasks() {
            task.timer.iter().chain([&task.fault, &task.some_faults, &task.sideband]).for_each(|e| switch(e, false));
        }
    }

    /// Bytes of the faults buffers: below [`FAULT_PAGES`] pages when memory could not be locked.
    pub fn fault_buffer(&self) -> usize {
        self.cpus.iter().map(|c| c.faults.size()).min().unwrap_or(0)
    }

    /// Records that the kernel has dropped so far.
    pub fn lost(&self) -> Lost {
        // The kernel adds up the counts of an event's threads at each read: too slow for the events of many.
        if !self.request.abilities.count_lost || self.request.sideband != Start::AtExec {
            return self.reported;
        }
        let mut lost = Lost::default();
        for task in self.tasks() {
            lost.samples += task.timer.as_ref().map_or(0, lost_by);
            lost.mappings += lost_by(&task.sideband);
            lost.faults += lost_by(&task.fault) + lost_by(&task.some_faults);
        }
        lost
    }
}

/// Enables or disables an event in all threads that have it.
fn switch(event: &OwnedFd, on: bool) {
    let fd = event.as_raw_fd();
    // SAFETY: an open event; the calls take no memory. They cannot fail for an event that is open.
    unsafe { if on { ioctls::ENABLE(fd, 0) } else { ioctls::DISABLE(fd, 0) } };
}

/// Records of one event that were dropped (PERF_FORMAT_LOST).
fn lost_by(event: &OwnedFd) -> u64 {
    let mut values = [0u64; 2]; // count, lost
    // SAFETY: the array has the given size.
    let got = unsafe { libc::read(event.as_raw_fd(), values.as_mut_ptr().cast(), size_of_val(&values)) };
    if got == size_of_val(&values) as isize { values[1] } else { 0 }
}

fn no_memory(error: &io::Error) -> io::Error {
    io::Error::other(format!(
        "not even the smallest event buffers may be locked in memory ({error}); allow it with \
         `sudo sysctl kernel.perf_event_mlock_kb=516` or raise `ulimit -l`"
    ))
}

fn poll_fd(fd: BorrowedFd<'_>) -> libc::pollfd {
    libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

fn drain_ring(ring: &mut Ring, source: Source, lost: &mut u64, out: &mut Vec<PerfRecord>) {
    ring.drain(|bytes| match decode::record(bytes, source) {
        Some(PerfRecord { event: PerfEvent::Lost(count), .. }) => *lost += count,
        Some(record) => out.push(record),
        None => {}
    });
}

/// Which step was refused: a refused buffer may be accepted when smaller, a refused event never.
enum OpenError {
    Event(io::Error),
    Buffer(io::Error),
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        OpenError::Event(error)
    }
}

fn open_all(pid: libc::pid_t, online: &[u32], request: Request, pages: Pages) -> Result<Vec<PerCpu>, OpenError> {
    let mut cpus = Vec::with_capacity(online.len());
    for &cpu in online {
        match PerCpu::open(pid, cpu as i32, request, pages) {
            Ok(cpu) => cpus.push(cpu),
            // The CPU went offline after the list was read.
            Err(OpenError::Event(e)) if e.raw_os_error() == Some(libc::ENODEV) && !cpus.is_empty() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(cpus)
}

impl Request {
    fn open(&self, mut attr: perf_event_attr, start: Start, tid: libc::pid_t, cpu: i32) -> io::Result<OwnedFd> {
        start.set(&mut attr);
        attr::open(&mut self.abilities.applied(attr, self.wanted.follow), tid, cpu)
    }

    fn timer(&self, tid: libc::pid_t, cpu: i32) -> io::Result<Option<OwnedFd>> {
        let period_ns = self.wanted.period_ns;
        let open = || self.open(attr::timer(period_ns, self.stack), self.samples, tid, cpu);
        (period_ns > 0).then(open).transpose()
    }

    fn fault(&self, tid: libc::pid_t, cpu: i32) -> io::Result<OwnedFd> {
        self.open(attr::faults(self.kernel_faults), self.faults, tid, cpu)
    }

    fn sideband(&self, tid: libc::pid_t, cpu: i32) -> io::Result<OwnedFd> {
        self.open(attr::sideband(), self.sideband, tid, cpu)
    }

    fn some_faults(&self, tid: libc::pid_t, cpu: i32) -> io::Result<OwnedFd> {
        self.open(attr::some_faults(self.kernel_faults), Start::Enabled, tid, cpu)
    }
}

/// Sends the records of `event` to the buffer of `owner`, an event of the same CPU.
fn share_buffer(event: &OwnedFd, owner: &OwnedFd) -> io::Result<()> {
    // SAFETY: both descriptors are open events.
    let rc = unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), owner.as_raw_fd()) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl PerCpu {
    /// The events of the first thread, with the buffers.
    fn open(tid: libc::pid_t, cpu: i32, request: Request, pages: Pages) -> Result<PerCpu, OpenError> {
        let map = |event: &OwnedFd, pages| Ring::map_exactly(event, pages).map_err(OpenError::Buffer);
        let timer = request.timer(tid, cpu)?;
        let samples = timer.as_ref().map(|timer| map(timer, pages.samples)).transpose()?;
        let fault = request.fault(tid, cpu)?;
        let faults = map(&fault, pages.faults)?;
        let sideband = request.sideband(tid, cpu)?;
        let mappings = map(&sideband, pages.sideband)?;
        let some_faults = request.some_faults(tid, cpu)?;
        share_buffer(&some_faults, &sideband)?;
        let tasks = vec![Task { timer, fault, sideband, some_faults }];
        Ok(PerCpu { samples, mappings, faults, cpu, tasks })
    }

    /// The events of another thread: samples and page faults.
    fn sampling(&self, tid: libc::pid_t, request: Request) -> io::Result<(Option<OwnedFd>, OwnedFd)> {
        let timer = request.timer(tid, self.cpu)?;
        if let Some((timer, owner)) = timer.as_ref().zip(self.tasks[0].timer.as_ref()) {
            share_buffer(timer, owner)?;
        }
        let fault = request.fault(tid, self.cpu)?;
        share_buffer(&fault, &self.tasks[0].fault)?;
        Ok((timer, fault))
    }

    /// All events of another thread.
    fn task(&self, tid: libc::pid_t, request: Request, timer: Option<OwnedFd>, fault: OwnedFd) -> io::Result<Task> {
        let sideband = request.sideband(tid, self.cpu)?;
        share_buffer(&sideband, &self.tasks[0].sideband)?;
        let some_faults = request.some_faults(tid, self.cpu)?;
        share_buffer(&some_faults, &self.tasks[0].sideband)?;
        Ok(Task { timer, fault, sideband, some_faults })
    }

    fn poll_fds(&self) -> impl Iterator<Item = libc::pollfd> {
        let owners = self.tasks.iter().take(1);
        let events = owners.flat_map(|t| t.timer.iter().chain([&t.sideband, &t.fault]));
        events.map(|event| poll_fd(event.as_fd()))
    }
}
