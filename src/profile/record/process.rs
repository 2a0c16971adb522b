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
    let usage = usage(who);
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
    CpuTime { user: ns(usage.ru_utime), system: ns(usage.ru_stime) }
}

/// Times that the waited-for children of this process (with theirs) gave their CPU away by themselves.
pub fn waits_of_children() -> u64 {
    usage(libc::RUSAGE_CHILDREN).ru_nvcsw as u64
}

fn usage(who: libc::c_int) -> libc::rusage {
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is a live local.
    unsafe { libc::getrusage(who, &mut usage) };
    usage
}

/// What /proc says of a process.
struct Seen {
    /// CPU time without its children, to the clock tick.
    cpu: CpuTime,
    /// When it began, in clock ticks since boot: with its id this tells it from all others.
    start_ticks: u64,
    /// Page faults without those of its children.
    faults: u64,
    /// Pages in memory.
    resident: u64,
}

impl Seen {
    /// The process that has an id now; none when it has been reaped.
    fn now(pid: u32) -> Option<Seen> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything; minflt, majflt, utime, stime, starttime and rss are the 8th, 10th,
        // 12th, 13th, 20th and 22nd fields behind it (proc(5)).
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let number = |nth: usize| fields.get(nth - 1)?.parse::<u64>().ok();
        // SAFETY: sysconf has no preconditions.
        let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
        let tick = 1_000_000_000 / hz;
        let cpu = CpuTime { user: number(12)? * tick, system: number(13)? * tick };
        let faults = number(8)?.saturating_add(number(10)?);
        Some(Seen { cpu, start_ticks: number(20)?, faults, resident: number(22)? })
    }
}

/// CPU time, page faults and resident memory of the recorded processes since the recording began, without their
/// children.
#[derive(Debug, Default)]
pub struct ProgramUse {
    processes: Vec<ProcessUse>,
}

#[derive(Debug, Default)]
struct ProcessUse {
    pid: u32,
    /// See [`Seen::start_ticks`]; none before it was seen.
    start_ticks: Option<u64>,
    /// CPU time before the recording.
    before: CpuTime,
    now: CpuTime,
    /// The same of page faults.
    faults_before: u64,
    faults: u64,
    resident: u64,
    /// It has been reaped.
    gone: bool,
}

impl ProgramUse {
    /// From now on.
    pub fn begin(pids: &[u32]) -> ProgramUse {
        let of = |pid: &u32| {
            let seen = Seen::now(*pid);
            let before = seen.as_ref().map(|s| s.cpu).unwrap_or_default();
            let start_ticks = seen.as_ref().map(|s| s.start_ticks);
            let (faults, resident) = seen.map_or((0, 0), |s| (s.faults, s.resident));
            ProcessUse {
                pid: *pid,
                start_ticks,
                before,
                now: before,
                faults_before: faults,
                faults,
                resident,
                gone: false,
            }
        };
        ProgramUse { processes: pids.iter().map(of).collect() }
    }

    /// Takes processes that began since the last look.
    pub fn add(&mut self, pids: Vec<u32>) {
        for pid in pids {
            // One that had the id has ended.
            self.processes.iter_mut().filter(|known| known.pid == pid).for_each(ProcessUse::end);
            self.processes.push(ProcessUse { pid, ..ProcessUse::default() });
        }
    }

    /// Looks again. What ended keeps the CPU time that it had last.
    pub fn update(&mut self) {
        self.processes.iter_mut().filter(|process| !process.gone).for_each(ProcessUse::update);
    }

    /// Those that have not ended as of the last look.
    pub fn living(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().filter(|process| !process.gone).map(|process| process.pid)
    }

    /// CPU time as of the last look.
    pub fn cpu(&self) -> CpuTime {
        self.processes
            .iter()
            .map(|p| p.now.since(p.before))
            .fold(CpuTime::default(), |sum, one| CpuTime { user: sum.user + one.user, system: sum.system + one.system })
    }

    /// Page faults as of the last look.
    pub fn faults(&self) -> u64 {
        self.processes.iter().map(|p| p.faults.saturating_sub(p.faults_before)).sum()
    }

    /// Pages in memory as of the last look.
    pub fn resident(&self) -> u64 {
        self.processes.iter().map(|p| p.resident).sum()
    }
}

impl ProcessUse {
    fn update(&mut self) {
        let is_same = |seen: &Seen| self.start_ticks.is_none_or(|start| start == seen.start_ticks);
        match Seen::now(self.pid).filter(is_same) {
            Some(seen) => {
                (self.now, self.faults) = (seen.cpu, seen.faults);
                (self.resident, self.start_ticks) = (seen.resident, Some(seen.start_ticks));
            }
            None => self.end(),
        }
    }

    fn end(&mut self) {
        (self.gone, self.resident) = (true, 0);
    }
}

/// Host name.
pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "unknown".into(), |h| h.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_uses_under_the_same_id_is_not_counted() {
        let own = std::process::id();
        let mut program = ProgramUse::begin(&[own]);
        program.update();
        assert!(program.resident() > 0);
        // The start time that is remembered is another one now: the process counts as one that got the id later.
        let process = &mut program.processes[0];
        process.start_ticks = process.start_ticks.map(|ticks| ticks - 1);
        let before = program.cpu();
        program.update();
        assert_eq!((program.resident(), program.cpu(), program.processes[0].gone), (0, before, true));
        // A new process with the id of one that ended is another one.
        program.add(vec![own]);
        program.update();
        assert_eq!((program.processes[0].gone, program.processes[1].gone), (true, false));
        program.add(vec![own]);
        assert!(program.processes[1].gone);
    }
}
