//! Kernel events: what `perf_event_open(2)` delivers, decoded.
//!
//! [`attr`] describes the events, [`ring`] maps one buffer, [`decode`] reads one record, [`session`] holds the events
//! of all CPUs, [`calibrate`] measures the cost of a sample. Record layouts: perf_event_open(2) and
//! include/uapi/linux/perf_event.h.

pub mod attr;
pub mod calibrate;
pub mod decode;
pub mod ring;
pub mod session;

/// General-purpose registers of a sample in the order of `enum perf_event_x86_regs`
/// (arch/x86/include/uapi/asm/perf_regs.h), by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Regs {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 .. r15: numbered as in the instruction encoding.
    pub gpr: [u64; 16],
    /// Instruction pointer.
    pub ip: u64,
    /// RFLAGS.
    pub flags: u64,
    /// FS base when known, else 0: without it TLS accesses cannot be resolved.
    pub fs_base: u64,
}

/// A timer sample with the user registers. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegSample {
    /// Time, ns.
    pub time_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// CPU.
    pub cpu: u16,
    /// User registers; none when the sample hit the kernel without user context.
    pub regs: Option<Regs>,
}

/// A decoded record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PerfRecord {
    /// Timer sample.
    Sample(RegSample),
    /// Page fault: `addr` was touched for the first time (or again after the kernel took the page away).
    Fault {
        /// Time, ns.
        time_ns: u64,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// CPU.
        cpu: u16,
        /// Address.
        addr: u64,
    },
    /// New mapping (PERF_RECORD_MMAP2, also data mappings). `path` is `//anon`, `[heap]`, a file, ...
    Mmap {
        /// Time, ns.
        time_ns: u64,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// Address.
        addr: u64,
        /// Bytes.
        len: u64,
        /// Offset in the file, bytes.
        pgoff: u64,
        /// PROT_* bits.
        prot: u32,
        /// File, `[heap]`, `//anon`, ...
        path: String,
    },
    /// Name change, or exec when `exec`.
    Comm {
        /// Time, ns.
        time_ns: u64,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// New name.
        name: String,
        /// Whether exec changed the name.
        exec: bool,
    },
    /// New thread (pid == parent_pid) or process.
    Fork {
        /// Time, ns.
        time_ns: u64,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// Process that created it.
        parent_pid: u32,
        /// Thread that created it.
        parent_tid: u32,
    },
    /// A thread ended.
    Exit {
        /// Time, ns.
        time_ns: u64,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
    },
    /// The kernel dropped records because a buffer was full.
    Lost {
        /// Number of records.
        count: u64,
    },
}

impl PerfRecord {
    /// Time of the record; 0 for [`PerfRecord::Lost`].
    pub fn time_ns(&self) -> u64 {
        match self {
            PerfRecord::Sample(s) => s.time_ns,
            PerfRecord::Fault { time_ns, .. }
            | PerfRecord::Mmap { time_ns, .. }
            | PerfRecord::Comm { time_ns, .. }
            | PerfRecord::Fork { time_ns, .. }
            | PerfRecord::Exit { time_ns, .. } => *time_ns,
            PerfRecord::Lost { .. } => 0,
        }
    }
}
