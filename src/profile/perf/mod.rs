//! Kernel events: what `perf_event_open(2)` delivers, decoded.
//!
//! [`attr`] describes the events, [`ring`] maps one buffer, [`decode`] reads one record, [`session`] holds the events
//! of all CPUs, [`threads`] opens them on threads that run, [`calibrate`] measures the cost of events, [`kept`] keeps
//! it for later runs. Record layouts: perf_event_open(2) and include/uapi/linux/perf_event.h.

pub mod attr;
pub mod calibrate;
pub mod decode;
pub mod kept;
pub mod ring;
pub mod session;
pub mod threads;

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

/// What a sample holds of its thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserState {
    /// Registers.
    pub regs: Regs,
    /// The stack from the stack pointer on; empty when it was not sampled.
    pub stack: Box<[u8]>,
}

/// A decoded record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfRecord {
    /// CLOCK_MONOTONIC, ns.
    pub time_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// What happened.
    pub event: PerfEvent,
}

/// What a record reports of its thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PerfEvent {
    /// Timer sample.
    Sample {
        /// CPU.
        cpu: u16,
        /// User registers and stack, apart because most records are page faults; none of a 32-bit program or without
        /// user context.
        user: Option<Box<UserState>>,
    },
    /// Page fault: this address was touched for the first time, or again after the kernel took the page away or made it
    /// fault (NUMA balancing).
    Fault {
        /// The address.
        addr: u64,
        /// The instruction, of the kernel where a system call touched the page.
        ip: u64,
        /// It stands for [`attr::FAULT_PERIOD`] faults of its thread.
        sampled: bool,
    },
    /// New mapping (PERF_RECORD_MMAP2, also data mappings).
    Mmap(Mapping),
    /// Name change, or exec when `exec`.
    Comm {
        /// New name.
        name: String,
        /// Whether exec changed the name.
        exec: bool,
    },
    /// The thread is new, and its process too unless `parent_pid` is the same.
    Fork {
        /// Process that created it.
        parent_pid: u32,
        /// Thread that created it.
        parent_tid: u32,
    },
    /// The thread ended.
    Exit,
    /// The kernel dropped this many records because a buffer was full.
    Lost(u64),
}

/// A mapping of a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the file, bytes.
    pub pgoff: u64,
    /// PROT_* bits.
    pub prot: u32,
    /// File, `[heap]`, `//anon`, ...
    pub path: String,
    /// What it shows, where it is a shared mapping (MAP_SHARED) of a file or of memory that the kernel keeps as one.
    pub shared: Option<Inode>,
}

/// Identity of a file, or of shared memory, which the kernel keeps as a file without a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inode {
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// Number on the device.
    pub number: u64,
    /// Tells files apart that had the same number one after the other; none where the kernel did not say (/proc).
    pub generation: Option<u64>,
}
