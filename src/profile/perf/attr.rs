//! The four kernel events of the recorder.
//!
//! All carry TID, TIME and CPU in the same places behind every record (`sample_id_all`), so one decoder
//! serves them. Times are CLOCK_MONOTONIC.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use perf_event_open_sys as sys;
use sys::bindings::{self as abi, perf_event_attr};

/// Registers sampled: bits of `enum perf_event_x86_regs` (arch/x86/include/uapi/asm/perf_regs.h): AX to FLAGS and
/// R8 to R15. The segment registers between cannot be sampled for user code in 64-bit mode.
pub const REGS_MASK: u64 = 0xff_03ff;
/// Number of registers in [`REGS_MASK`].
pub const REGS_COUNT: usize = REGS_MASK.count_ones() as usize;

/// Bytes of the user stack in a sample, a multiple of 8: registers that a function has saved and its return address lie
/// within a few hundred bytes of the stack pointer.
pub const STACK_BYTES: u32 = 512;

/// What every record carries.
const COMMON: u64 = abi::PERF_SAMPLE_TID as u64 | abi::PERF_SAMPLE_TIME as u64 | abi::PERF_SAMPLE_CPU as u64;

/// Features of newer kernels; older ones refuse the bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// Threads inherit an event and forked processes do not (5.13).
    inherit_thread: bool,
    /// Lost records are counted per event (6.0).
    pub count_lost: bool,
}

impl Abilities {
    /// Finds out which of them the kernel accepts, by opening events on `pid`.
    pub fn probe(pid: libc::pid_t, cpu: i32) -> Abilities {
        let none = Abilities { inherit_thread: false, count_lost: false };
        let tries = [Abilities { inherit_thread: true, count_lost: true }, Abilities { inherit_thread: true, ..none }];
        tries.into_iter().find(|a| open(&mut a.applied(sideband(), false), pid, cpu).is_ok()).unwrap_or(none)
    }

    /// `attr` with the bits set; `follow`: forked processes inherit the event too.
    pub fn applied(self, mut attr: perf_event_attr, follow: bool) -> perf_event_attr {
        attr.set_inherit_thread(u64::from(self.inherit_thread && !follow));
        if self.count_lost {
            attr.read_format = u64::from(abi::PERF_FORMAT_LOST);
        }
        attr
    }
}

/// When an event begins to count. The threads that its thread creates get it as it is then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// When its process executes a program.
    AtExec,
    /// When it is opened.
    Opened,
    /// When it is enabled with an ioctl.
    Enabled,
}

impl Start {
    /// Sets the bits of `attr` that say so.
    pub fn set(self, attr: &mut perf_event_attr) {
        attr.set_disabled(u64::from(self != Start::Opened));
        attr.set_enable_on_exec(u64::from(self == Start::AtExec));
    }
}

/// The kernel wakes the reader at half a buffer, whatever size it gets (ring_buffer_init in
/// kernel/events/ring_buffer.c).
const WAKE_AT_HALF: u32 = 0;

fn software(config: u32, sample_type: u64) -> perf_event_attr {
    let mut attr = perf_event_attr {
        type_: abi::PERF_TYPE_SOFTWARE,
        size: size_of::<perf_event_attr>() as u32,
        config: u64::from(config),
        sample_type: sample_type | COMMON,
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.set_use_clockid(1);
    attr.set_sample_id_all(1);
    attr.set_inherit(1);
    Start::AtExec.set(&mut attr);
    attr.set_exclude_hv(1);
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = WAKE_AT_HALF;
    attr
}

/// The timer: one sample with the user registers every `period_ns` of a thread's CPU time in user mode. The kernel
/// skips samples in kernel mode. With `stack` a sample carries [`STACK_BYTES`] of the stack.
pub fn timer(period_ns: u64, stack: bool) -> perf_event_attr {
    let kinds = abi::PERF_SAMPLE_IP as u64 | abi::PERF_SAMPLE_REGS_USER as u64;
    let mut attr = software(abi::PERF_COUNT_SW_TASK_CLOCK, kinds);
    attr.__bindgen_anon_1.sample_period = period_ns;
    attr.sample_regs_user = REGS_MASK;
    if stack {
        attr.sample_type |= abi::PERF_SAMPLE_STACK_USER as u64;
        attr.sample_stack_user = STACK_BYTES;
    }
    attr.set_exclude_kernel(1);
    attr
}

/// Every page fault with its address and its instruction. `kernel`: also those taken inside system calls (needs more
/// privilege).
/// Registers are left off: with them a program that only touches pages runs 1.36 times as long, without 1.1 times.
pub fn faults(kernel: bool) -> perf_event_attr {
    let mut attr = software(abi::PERF_COUNT_SW_PAGE_FAULTS, abi::PERF_SAMPLE_IP as u64 | abi::PERF_SAMPLE_ADDR as u64);
    attr.__bindgen_anon_1.sample_period = 1;
    attr.set_exclude_kernel(u64::from(!kernel));
    attr
}

/// One in how many page faults of a thread on one CPU [`some_faults`] records. With this, a thread that does nothing
/// but fault, a million times a second where measured, makes 16,000 records a second. A prime, so that the pages that
/// are seen are no regular part of blocks and rows, which have even numbers of pages.
pub const FAULT_PERIOD: u32 = 61;

/// One in [`FAULT_PERIOD`] page faults of each thread, as [`faults`]; off until it is enabled. A period cannot be
/// changed instead: PERF_EVENT_IOC_PERIOD leaves the inherited events of other threads alone (perf_event_period in
/// kernel/events/core.c).
pub fn some_faults(kernel: bool) -> perf_event_attr {
    let mut attr = faults(kernel);
    attr.__bindgen_anon_1.sample_period = u64::from(FAULT_PERIOD);
    Start::Enabled.set(&mut attr);
    attr
}

/// No samples: mappings of code and data, names, starts and ends of threads and processes.
pub fn sideband() -> perf_event_attr {
    let mut attr = software(abi::PERF_COUNT_SW_DUMMY, 0);
    attr.__bindgen_anon_1.sample_period = 1;
    attr.set_exclude_kernel(1);
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_mmap_data(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    attr
}

/// Opens `attr` on process or thread `pid` (0: the calling thread) and one CPU. Inherited events can only be mapped
/// when they are bound to a CPU, so there is one per CPU.
pub fn open(attr: &mut perf_event_attr, pid: libc::pid_t, cpu: i32) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is initialised and says its own size; the result is checked.
    let fd = unsafe { sys::perf_event_open(attr, pid, cpu, -1, abi::PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The message for the user when the kernel refuses an event on a process that runs already.
pub fn explain_refused_attach(error: &io::Error) -> String {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let paranoid = paranoid.trim();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) if paranoid.parse::<i32>().is_ok_and(|p| p > 2) => format!(
            "the kernel refuses perf events (kernel.perf_event_paranoid is {paranoid}); allow them with \
             `sudo sysctl kernel.perf_event_paranoid=2`, or attach as root"
        ),
        Some(libc::EACCES | libc::EPERM | libc::ENOSYS) => format!(
            "perf_event_open is refused ({error}); attach as root, in a container with `--cap-add PERFMON --cap-add \
             SYS_PTRACE` or a seccomp profile that permits perf_event_open"
        ),
        Some(libc::EMFILE | libc::ENFILE) => format!(
            "{error}: four perf events are needed for each thread on each CPU; raise the hard limit of open files \
             (`ulimit -Hn`, as root)"
        ),
        _ => format!("perf_event_open failed: {error}; `numamma doctor` shows what works here"),
    }
}

/// The message for the user when the kernel refuses an event.
pub fn explain_refusal(error: &io::Error) -> String {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let paranoid = paranoid.trim();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) if paranoid.parse::<i32>().is_ok_and(|p| p > 2) => format!(
            "the kernel refuses perf events (kernel.perf_event_paranoid is {paranoid}); allow them with \
             `sudo sysctl kernel.perf_event_paranoid=2`, or record allocations and mappings only with --sampler none"
        ),
        Some(libc::EACCES | libc::EPERM | libc::ENOSYS) => format!(
            "perf_event_open is refused ({error}; kernel.perf_event_paranoid is {}); in a container allow it with \
             `--cap-add PERFMON` or a seccomp profile that permits perf_event_open, or record allocations and mappings \
             only with --sampler none",
            if paranoid.is_empty() { "not readable" } else { paranoid }
        ),
        Some(libc::EMFILE) => format!(
            "too many open files ({error}): four perf events per CPU are needed; raise the limit with `ulimit -n 4096`"
        ),
        _ => format!("perf_event_open failed: {error}; `numamma doctor` shows what works here"),
    }
}
