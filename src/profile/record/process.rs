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

    /// What came after `before`.
    pub fn since(self, before: CpuTime) -> CpuTime {
        CpuTime { user: self.user.saturating_sub(before.user), system: self.system.saturating_sub(before.system) }
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
fn program_use(pid: u32) -> Option<(CpuTime, u64)> {
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

/// CPU time and resident memory of the recorded processes since the recording began, without their children.
#[derive(Debug, Default)]
pub struct ProgramUse {
    processes: Vec<ProcessUse>,
}

#[derive(Debug)]
struct ProcessUse {
    pid: u32,
    /// CPU time before the recording.
    before: CpuTime,
    now: CpuTime,
    resident: u64,
    /// It has been reaped.
    gone: bool,
}

impl ProgramUse {
    /// From now on.
    pub fn begin(pids: &[u32]) -> ProgramUse {
        let of = |pid: &u32| {
            let (before, resident) = program_use(*pid).unwrap_or_default();
            ProcessUse { pid: *pid, before, now: before, resident, gone: false }
        };
        ProgramUse { processes: pids.iter().map(of).collect() }
    }

    /// Takes processes that began since the last look.
    pub fn add(&mut self, pids: Vec<u32>) {
        let new =
            |pid| ProcessUse { pid, before: CpuTime::default(), now: CpuTime::default(), resident: 0, gone: false };
        self.processes.extend(pids.into_iter().map(new));
    }

    /// Looks again. What ended keeps the CPU time that it had last.
    pub fn update(&mut self) {
        for process in self.processes.iter_mut().filter(|process| !process.gone) {
            let now = program_use(process.pid);
            if now.is_none() {
                (process.gone, process.resident) = (true, 0);
            }
            // Less than before is that of another process, which got the id.
            if let Some((cpu, resident)) = now.filter(|(cpu, _)| cpu.total() >= process.now.total()) {
                (process.now, process.resident) = (cpu, resident);
            }
        }
    }

    /// CPU time as of the last look.
    pub fn cpu(&self) -> CpuTime {
        self.processes
            .iter()
            .map(|p| p.now.since(p.before))
            .fold(CpuTime::default(), |sum, one| CpuTime { user: sum.user + one.user, system: sum.system + one.system })
    }

    /// Pages in memory as of the last look.
    pub fn resident(&self) -> u64 {
        self.processes.iter().map(|p| p.resident).sum()
    }
}

/// Host name.
pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "unknown".into(), |h| h.trim().to_owned())
}
