//! The memory that a recording may take: the channel, the kernel's buffers, and this process.
//!
//! The channel and the kernel's buffers get fixed parts. What this process holds (queues, live blocks, objects) is
//! measured, because it depends on the program: near the limit the recorder drops what it can do without and thins the
//! allocations, at the limit it discards new allocations and page faults, and counts them.

use numamma_kernel::cgroup;
use numamma_kernel::sys::PAGE;

/// Part of the limit for records in the channel: the queues of a drain take three times as much at most.
const CHANNEL_PART: u64 = 8;
/// Part of the limit for the kernel's buffers, whose records take three times as much when they are decoded.
const KERNEL_PART: u64 = 8;
/// Eighths of the limit for the counts of a trace: this process may take as much for those of two readings.
const TRACE_EIGHTHS: u64 = 3;
/// Part of the memory of a control group that the recorder takes at most: the program needs the rest.
const GROUP_PART: u64 = 4;
/// Least limit that is accepted, bytes: call stacks, names of frames and buffers of a small program.
pub const LEAST: u64 = 64 << 20;
/// Limit by default, bytes.
pub const DEFAULT: u64 = 512 << 20;

/// How much of the limit is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Below three quarters.
    Free,
    /// Near the limit.
    Tight,
    /// At the limit.
    Full,
}

/// The limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Budget {
    limit: u64,
    /// Memory that is not this process's own: the channel and the kernel's buffers.
    pub outside: u64,
}

impl Budget {
    /// A limit of `bytes`, less where the control group of the recorder, which is the program's, allows less.
    pub fn new(bytes: u64) -> Budget {
        let group = cgroup::within_limits().map_or(u64::MAX, |left| left / GROUP_PART);
        Budget { limit: bytes.min(group.max(LEAST)), outside: 0 }
    }

    /// Bytes of records in the channel.
    pub fn channel(&self) -> usize {
        (self.limit / CHANNEL_PART) as usize
    }

    /// Bytes of the kernel's buffers.
    pub fn kernel(&self) -> usize {
        (self.limit / KERNEL_PART) as usize
    }

    /// Bytes of counters in the program (sampler `trace`).
    pub fn trace(&self) -> u64 {
        self.limit / 8 * TRACE_EIGHTHS
    }

    /// The limit, bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// How much is used now.
    pub fn level(&self) -> Level {
        self.level_of(own_memory())
    }

    fn level_of(&self, own: u64) -> Level {
        let used = own.saturating_add(self.outside);
        match used {
            _ if used >= self.limit - self.limit / 8 => Level::Full,
            _ if used >= self.limit - self.limit / 4 => Level::Tight,
            _ => Level::Free,
        }
    }
}

/// Memory of this process that it shares with no other, bytes.
fn own_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text.split_whitespace().skip(1).map(|n| n.parse::<u64>().unwrap_or(0));
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(shared) * PAGE as u64
}

/// Gives free memory back to the kernel.
pub fn trim() {
    // SAFETY: malloc_trim has no preconditions.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_follow_all_memory() {
        let budget = Budget { limit: 512 << 20, outside: 100 << 20 };
        let level = |own: u64| budget.level_of(own << 20);
        assert_eq!(
            [level(0), level(283), level(284), level(347), level(348)],
            [Level::Free, Level::Free, Level::Tight, Level::Tight, Level::Full]
        );
        // The kernel counts nearly.
        let before = own_memory();
        let held = std::hint::black_box(vec![1_u8; 64 << 20]);
        let more = own_memory().saturating_sub(before);
        assert!((32 << 20..1 << 30).contains(&more), "{more}");
        drop(held);
    }
}
