//! The recorder's events on all CPUs: opened on the stopped program, drained from outside.
//!
//! Each CPU has three buffers: one for samples, one for mappings and threads, one for page faults, so that neither a
//! burst of faults (a million a second when memory is filled) nor one of samples displaces the mappings that all other
//! records need.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use numamma_kernel::lists::parse_list;
use numamma_kernel::sys::PAGE;
use perf_event_open_sys::ioctls;

use super::attr::{self, Abilities};
use super::decode::{self, Source};
use super::ring::{Ring, over_limit};
use super::{PerfEvent, PerfRecord};

/// Data pages of a faults buffer where memory may be locked freely.
pub const FAULT_PAGES: usize = 512;
/// Data pages of a samples buffer from which on samples carry a piece of the stack: 80 such samples fit in 16 pages.
const PAGES_FOR_STACKS: usize = 16;
/// Data pages of the buffers of each CPU, largest first. Root gets the first sizes (2 MiB of faults are 20 ms at a million
/// a second), an ordinary user without `ulimit -l` the second, which fit the default perf_event_mlock_kb of 516 on every
/// CPU; the rest is for stricter limits. All CPUs get the same, or the first ones would use up the limit.
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

/// The events to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    /// Period of the timer, ns; 0 records mappings, threads and page faults only.
    period_ns: u64,
    /// Whether forked processes are recorded too.
    follow: bool,
    /// Whether faults inside system calls are recorded.
    kernel_faults: bool,
    abilities: Abilities,
}

/// Events and buffers of one CPU. Buffers first: they are unmapped before their events are closed.
#[derive(Debug)]
struct PerCpu {
    /// None without samples.
    samples: Option<Ring>,
    mappings: Ring,
    faults: Ring,
    timer: Option<OwnedFd>,
    sideband: OwnedFd,
    fault: OwnedFd,
    /// Its records are in `mappings`.
    some_faults: OwnedFd,
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
    /// Whether faults inside system calls are recorded too.
    pub kernel_faults: bool,
    /// Whether the kernel counts dropped records.
    counted: bool,
    /// Losses reported in the buffers; a loss at the very end of the run is not reported there.
    reported: Lost,
}

impl Session {
    /// Opens the events on `pid`, which must not have executed the program yet: they start with its exec. `period_ns`
    /// is the timer's; 0 records mappings, threads and page faults only. `follow`: forked processes are recorded
    /// too. `memory`: bytes that the buffers of all CPUs may take, though the smallest are always tried.
    ///
    /// # Errors
    /// The kernel's error; [`attr::explain_refusal`] gives the message for the user.
    pub fn open(pid: libc::pid_t, period_ns: u64, follow: bool, memory: usize) -> io::Result<Session> {
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_else(|_| "0".into());
        let online = parse_list(online.trim());
        let Some(&first) = online.first() else {
            return Err(io::Error::other("/sys/devices/system/cpu/online lists no CPU"));
        };
        let kernel_faults = attr::open(&mut attr::faults(true), pid, first as i32).is_ok();
        let abilities = Abilities::probe(pid, first as i32);
        let request = Request { period_ns, follow, kernel_faults, abilities };
        let mut refused = io::Error::from_raw_os_error(libc::EPERM);
        let fits = |pages: &Pages| pages.bytes() * online.len() <= memory;
        let smallest = PAGES.len() - 1;
        for (_, pages) in PAGES.into_iter().enumerate().filter(|(n, pages)| fits(pages) || *n == smallest) {
            match open_all(pid, &online, request, pages) {
                Ok(cpus) => {
                    let poll = cpus.iter().flat_map(PerCpu::poll_fds).collect();
                    let counted = abilities.count_lost;
                    return Ok(Session { cpus, poll, kernel_faults, counted, reported: Lost::default() });
                }
                Err(OpenError::Buffer(e)) if over_limit(&e) => refused = no_memory(&e),
                Err(OpenError::Buffer(e) | OpenError::Event(e)) => return Err(e),
            }
        }
        Err(refused)
    }

    /// Waits until a buffer is half full or `end` is readable, at most `timeout_ms`.
    pub fn wait(&mut self, timeout_ms: i32, end: Option<BorrowedFd<'_>>) {
        self.poll.extend(end.map(poll_fd));
        // SAFETY: `poll` is a live array of the given length.
        unsafe { libc::poll(self.poll.as_mut_ptr(), self.poll.len() as libc::nfds_t, timeout_ms) };
        if end.is_some() {
            self.poll.pop();
        }
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

    /// Records these page faults from now on, in threads that exist and in those that they create.
    pub fn record_faults(&self, which: Faults) {
        let set = |event: &OwnedFd, on| {
            let fd = event.as_raw_fd();
            // SAFETY: an open event; the calls take no memory. They cannot fail for an event that is open.
            unsafe { if on { ioctls::ENABLE(fd, 0) } else { ioctls::DISABLE(fd, 0) } };
        };
        for cpu in &self.cpus {
            set(&cpu.fault, which == Faults::All);
            set(&cpu.some_faults, which == Faults::Some);
        }
    }

    /// Bytes of the faults buffers: below [`FAULT_PAGES`] pages when memory could not be locked.
    pub fn fault_buffer(&self) -> usize {
        self.cpus.iter().map(|c| c.faults.size()).min().unwrap_or(0)
    }

    /// Records that the kernel has dropped so far.
    pub fn lost(&self) -> Lost {
        if !self.counted {
            return self.reported;
        }
        let mut lost = Lost::default();
        for cpu in &self.cpus {
            lost.samples += cpu.timer.as_ref().map_or(0, lost_by);
            lost.mappings += lost_by(&cpu.sideband);
            lost.faults += lost_by(&cpu.fault) + lost_by(&cpu.some_faults);
        }
        lost
    }
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

impl PerCpu {
    fn open(pid: libc::pid_t, cpu: i32, request: Request, pages: Pages) -> Result<PerCpu, OpenError> {
        let open = |attr| {
            let mut attr = request.abilities.applied(attr, request.follow);
            attr::open(&mut attr, pid, cpu).map_err(OpenError::Event)
        };
        let map = |event: &OwnedFd, pages| Ring::map_exactly(event, pages).map_err(OpenError::Buffer);
        let sideband = open(attr::sideband())?;
        let mappings = map(&sideband, pages.sideband)?;
        let stack = pages.samples >= PAGES_FOR_STACKS;
        let timer = if request.period_ns > 0 { Some(open(attr::timer(request.period_ns, stack))?) } else { None };
        let samples = timer.as_ref().map(|timer| map(timer, pages.samples)).transpose()?;
        let fault = open(attr::faults(request.kernel_faults))?;
        let faults = map(&fault, pages.faults)?;
        let some_faults = open(attr::some_faults(request.kernel_faults))?;
        // SAFETY: both descriptors are open events.
        if unsafe { ioctls::SET_OUTPUT(some_faults.as_raw_fd(), sideband.as_raw_fd()) } != 0 {
            return Err(OpenError::Event(io::Error::last_os_error()));
        }
        Ok(PerCpu { samples, mappings, faults, timer, sideband, fault, some_faults })
    }

    fn poll_fds(&self) -> impl Iterator<Item = libc::pollfd> {
        let events = self.timer.iter().chain([&self.sideband, &self.fault]);
        events.map(|event| poll_fd(event.as_fd()))
    }
}
