//! Facts about processes and this machine, from /proc and the C library.

use std::fs;

/// CPU time, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// In user mode: what the timer samples.
    pub user: u64,
    /// In the kernel.
    pub system: u64,
}

impl CpuTime {
    /// Both.
    pub fn total(self) -> u64 {
        self.user + self.system
    }
}

/// CPU time of this process or its waited-for children (with theirs).
pub fn cpu_time(who: libc::c_int) -> CpuTime {
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is a live local.
    unsafe { libc::getrusage(who, &mut usage) };
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
    CpuTime { user: ns(usage.ru_utime), system: ns(usage.ru_stime) }
}

/// CPU time of a process without its children, to the clock tick, and its pages in memory; none when it has been reaped.
pub fn program_use(pid: u32) -> Option<(CpuTime, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; utime, stime and rss are the 12th, 13th and 22nd fields behind it
    // (proc(5)).
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11).map(|t| t.parse::<u64>().ok());
    // SAFETY: sysconf has no preconditions.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    let tick = 1_000_000_000 / hz;
    let cpu = CpuTime { user: fields.next()?? * tick, system: fields.next()?? * tick };
    Some((cpu, fields.nth(8)??))
}

/// Host name.
pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "unknown".into(), |h| h.trim().to_owned())
}
