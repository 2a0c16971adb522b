//! The recorder's events on all CPUs: opened on the stopped program, drained from outside.
//!
//! Each CPU has two buffers: one for samples, mappings and threads, one for page faults, so that a burst of faults (a
//! million a second when memory is filled) cannot displace the mappings that all other records need.

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
/// Data pages of the samples and the faults buffer of each CPU, largest first. Root gets the first pair (2 MiB of
/// faults are 20 ms at a million a second), an ordinary user without `ulimit -l` the second, which fits the default
/// perf_event_mlock_kb of 516 on every CPU; the rest is for stricter limits. All CPUs get the same, or the first ones
/// would use up the limit.
const PAGES: [(usize, usize); 6] = [(64, FAULT_PAGES), (32, 64), (16, 32), (8, 16), (4, 4), (1, 1)];

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
    samples: Ring,
    faults: Ring,
    sideband: OwnedFd,
    timer: Option<OwnedFd>,
    fault: OwnedFd,
}

/// Records dropped by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Samples; where the kernel does not count by event, everything lost in the buffers that samples share with
    /// mappings and threads.
    pub samples: u64,
    /// Mappings, names, starts and ends of threads.
    pub mappings: u64,
    /// In the faults buffers.
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
        let fits = |&(samples, faults): &(usize, usize)| (samples + faults + 2) * PAGE * online.len() <= memory;
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
            drain_ring(&mut cpu.samples, Source::Timer, &mut self.reported.samples, out);
            drain_ring(&mut cpu.faults, Source::Faults, &mut self.reported.faults, out);
        }
    }

    /// Bytes of all buffers.
    pub fn buffers(&self) -> usize {
        self.cpus.iter().map(|c| c.faults.size() + c.samples.size() + 2 * PAGE).sum()
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
            lost.faults += lost_by(&cpu.fault);
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

fn open_all(
    pid: libc::pid_t,
    online: &[u32],
    request: Request,
    pages: (usize, usize),
) -> Result<Vec<PerCpu>, OpenError> {
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
    fn open(pid: libc::pid_t, cpu: i32, request: Request, pages: (usize, usize)) -> Result<PerCpu, OpenError> {
        let open = |attr| {
            let mut attr = request.abilities.applied(attr, request.follow);
            attr::open(&mut attr, pid, cpu).map_err(OpenError::Event)
        };
        let sideband = open(attr::sideband())?;
        let samples = Ring::map_exactly(&sideband, pages.0).map_err(OpenError::Buffer)?;
        let stack = pages.0 >= PAGES_FOR_STACKS;
        let timer = if request.period_ns > 0 { Some(open(attr::timer(request.period_ns, stack))?) } else { None };
        if let Some(timer) = &timer {
            // SAFETY: both descriptors are open events.
            if unsafe { ioctls::SET_OUTPUT(timer.as_raw_fd(), sideband.as_raw_fd()) } != 0 {
                return Err(OpenError::Event(io::Error::last_os_error()));
            }
        }
        let fault = open(attr::faults(request.kernel_faults))?;
        let faults = Ring::map_exactly(&fault, pages.1).map_err(OpenError::Buffer)?;
        Ok(PerCpu { samples, faults, sideband, timer, fault })
    }

    /// Any event of a buffer wakes its poller; the timer shares a buffer with the sideband, so one of them is enough.
    fn poll_fds(&self) -> [libc::pollfd; 2] {
        [poll_fd(self.timer.as_ref().unwrap_or(&self.sideband).as_fd()), poll_fd(self.fault.as_fd())]
    }
}
