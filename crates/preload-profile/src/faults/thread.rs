//! The thread of the sampler: made by clone(2), because one of pthread_create would keep a process alive whose other
//! threads have ended, and share its descriptors.

use core::arch::asm;
use core::ffi::{c_int, c_long};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

use numamma_channel::faults::{LIMITED, THREAD_NAME, WORKS};
use numamma_channel::layout::CLOCK_TSC;
use numamma_channel::writer::{Local, Writer};
use numamma_hook::{errno, sys};
use numamma_kernel::overcommit;
use numamma_kernel::userfault::{Refusal, Userfault, has_page};

use super::apart;
use super::serve::Tell;
use super::state::{ENDED, HURRY, ROUND_TRIP_NS, STATE, STOP, Sampled, WINDOW};
use super::waiting::{LOOK_MS, MS, Waiting, monotonic_ns};
use super::window::{Room, Setting, window};
use crate::channel_map;

/// Bytes of its stack: the readers of /proc have buffers of a few thousand bytes there.
const STACK: usize = 256 << 10;
/// Most bytes between the thread pointer and errno, which follows the thread-local storage of the program.
const MOST_TLS: usize = 8 << 20;
/// Bytes at the thread pointer: glibc's struct pthread, of which this thread uses the first words.
const CONTROL: usize = 4096;
/// Times that another thread wakes it and is woken, to measure how long that takes.
const ROUNDS: usize = 32;
const MILLION: u64 = 1_000_000;

/// What the thread has for itself. All zero bytes are valid.
struct Own {
    sampled: MaybeUninit<Sampled>,
    local: MaybeUninit<Local>,
    room: MaybeUninit<Room>,
    /// Bytes of the mapping that this structure begins.
    len: usize,
}

/// The mapping; a forked child uses the copy of its parent's.
static OWN: AtomicPtr<Own> = AtomicPtr::new(core::ptr::null_mut());
/// Even: it is the other thread's turn, odd: this one's.
static TURN: AtomicU32 = AtomicU32::new(0);

/// Starts the thread.
///
/// # Errors
/// The error code of the refusal.
pub fn start(sampled: Sampled) -> Result<(), c_int> {
    let _errno = errno::Saved::now();
    let behind = tls_below().ok_or(libc::ENOMEM)?;
    let len = size_of::<Own>().next_multiple_of(sys::PAGE) + STACK + behind + CONTROL;
    let mut own = OWN.load(Acquire);
    if own.is_null() {
        own = apart::map(len).ok_or_else(errno::get)?.cast();
        OWN.store(own, Release);
    }
    // SAFETY: the mapping of `len` bytes is this library's, and no thread uses it now.
    let (stack, pointer) = unsafe {
        (*own).len = len;
        (*own).sampled.write(sampled);
        (&raw mut (*own).local).write_bytes(0, 1);
        let end = own.cast::<u8>().add(len);
        let pointer = end.sub(CONTROL).cast::<usize>();
        // The words that the ABI has at the thread pointer: itself.
        pointer.write(pointer as usize);
        pointer.add(2).write(pointer as usize);
        (end.sub(CONTROL + behind), pointer)
    };
    let cpus_known = ROUND_TRIP_NS.load(Relaxed) != 0;
    TURN.store(0, Relaxed);
    // SAFETY: the stack is a part of the mapping, and signals are blocked for the new thread, which never returns.
    let made = with_signals_blocked(|| unsafe { clone_thread(stack, pointer.cast()) });
    if made < 0 {
        return Err(-made as c_int);
    }
    if !cpus_known {
        ROUND_TRIP_NS.store(measure_round_trip().max(1), Release);
    }
    TURN.store(u32::MAX, Release);
    sys::wake_all(&TURN);
    Ok(())
}

/// Bytes below the thread pointer that hold errno.
fn tls_below() -> Option<usize> {
    let pointer: usize;
    // SAFETY: the ABI has the thread pointer at its own address.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    // SAFETY: only the address is used.
    let errno = unsafe { libc::__errno_location() } as usize;
    let below = pointer.checked_sub(errno)?.next_multiple_of(sys::PAGE);
    (below <= MOST_TLS).then_some(below)
}

fn with_signals_blocked(run: impl FnOnce() -> i64) -> i64 {
    let (all, mut before) = (u64::MAX, 0_u64);
    let how = |how: c_int, set: *const u64, old: *mut u64| {
        // SAFETY: the kernel's sets of signals have eight bytes.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, c_long::from(how), set, old, size_of::<u64>()) };
    };
    how(libc::SIG_BLOCK, &raw const all, &raw mut before);
    let result = run();
    how(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
    result
}

/// A thread of this process with that stack and thread pointer, and with descriptors of its own, that executes [`run`];
/// returns its id or the negative error code.
///
/// # Safety
/// The stack and the thread pointer belong to the new thread.
unsafe fn clone_thread(stack: *mut u8, pointer: *mut u8) -> i64 {
    let flags = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD | libc::CLONE_SYSVSEM | libc::CLONE_SETTLS;
    let result: i64;
    // SAFETY: the new thread has nothing on its stack to return to, and calls a function that does not return.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "and rsp, -16",
            "call {run}",
            "ud2",
            "2:",
            run = sym run,
            inlateout("rax") libc::SYS_clone => result,
            in("rdi") i64::from(flags),
            in("rsi") stack,
            in("rdx") 0_usize,
            in("r10") 0_usize,
            in("r8") pointer,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// The median of [`ROUNDS`], each from the wake of the thread to the wake by it.
fn measure_round_trip() -> u64 {
    let mut times = [0_u64; ROUNDS];
    for (round, time) in times.iter_mut().enumerate() {
        let begun = monotonic_ns();
        let turn = 2 * round as u32 + 1;
        TURN.store(turn, Release);
        sys::wake_all(&TURN);
        while TURN.load(Acquire) == turn {
            sys::wait_while(&TURN, turn, MS as i64);
        }
        *time = monotonic_ns() - begun;
    }
    times.sort_unstable();
    times.get(ROUNDS / 2).copied().unwrap_or(0)
}

/// Answers [`measure_round_trip`] until that is over.
fn take_turns() {
    loop {
        match TURN.load(Acquire) {
            u32::MAX => return,
            turn if turn % 2 == 0 => _ = sys::wait_while(&TURN, turn, MS as i64),
            turn => {
                TURN.store(turn + 1, Release);
                sys::wake_all(&TURN);
            }
        }
    }
}

extern "C" fn run() -> ! {
    // SAFETY: arguments without pointers; the descriptors are this thread's copies.
    unsafe { libc::syscall(libc::SYS_close_range, 0 as c_long, c_long::from(u32::MAX), 0 as c_long) };
    // SAFETY: a C string of less than 16 bytes.
    unsafe { libc::syscall(libc::SYS_prctl, c_long::from(libc::PR_SET_NAME), THREAD_NAME.as_ptr()) };
    take_turns();
    // SAFETY: the thread's own mapping, complete before the thread began; nobody else uses it while it runs.
    let own = unsafe { &mut *OWN.load(Acquire) };
    let at = (own as *mut Own as usize, own as *mut Own as usize + own.len);
    // SAFETY: written before the thread began, and zeros are valid for the others.
    let (sampled, local, room) =
        unsafe { (own.sampled.assume_init(), own.local.assume_init_ref(), own.room.assume_init_mut()) };
    let writer = Writer::new(sampled.map, channel_map::Mapped);
    writer.claim(local, sampled.pid, sys::tid());
    if let Err(errno) = sample(sampled, writer, local, room, at) {
        sampled.refuse(errno);
    }
    STATE.store(ENDED, Release);
    sys::wake_all(&STATE);
    loop {
        // SAFETY: ends this thread alone.
        unsafe { libc::syscall(libc::SYS_exit, 0 as c_long) };
    }
}

/// Windows until the recorder or the sampler ends.
fn sample(
    sampled: Sampled,
    writer: Writer<channel_map::Mapped>,
    local: &Local,
    room: &mut Room,
    own: (usize, usize),
) -> Result<(), c_int> {
    let header = sampled.map.header();
    let (pid, zero) = (c_long::from(header.recorder_pid), 0 as c_long);
    // SAFETY: arguments without pointers.
    let recorder = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, zero) } as c_int;
    if recorder < 0 {
        return Err(errno::get());
    }
    let waits = Waiting { sampled, recorder };
    let pagemap = sys::open(c"/proc/self/pagemap", libc::O_RDONLY).ok_or_else(errno::get)?;
    Userfault::open().map(Userfault::close).map_err(code)?;
    sampled.works();
    let interval_ns = header.faults.interval_ns.load(Acquire);
    let budget = u64::from(header.faults.budget_ppm.load(Relaxed)).max(1);
    let setting = Setting { sampled, pagemap, own, interval_ns, round_trip_ns: ROUND_TRIP_NS.load(Acquire) };
    let (mut number, mut next) = (0, monotonic_ns() + interval_ns);
    loop {
        while let now = monotonic_ns()
            && now < next
        {
            if waits.is_over() {
                return Ok(());
            }
            sys::wait_while(&STOP, 0, (next - now).min(LOOK_MS * MS) as i64);
        }
        if waits.is_over() {
            return Ok(());
        }
        let limited = is_limited();
        if number == 0 {
            header.faults.state.store(if limited { LIMITED } else { WORKS }, Release);
        }
        if limited || fills_all(pagemap) {
            next = monotonic_ns() + interval_ns;
            continue;
        }
        number += 1;
        let begun = monotonic_ns();
        let tsc = header.clock == CLOCK_TSC;
        WINDOW.store(1, Release);
        let went = window(&setting, room, Tell { writer, local, tsc, window: number }, &waits);
        HURRY.store(0, Relaxed);
        WINDOW.store(0, Release);
        sys::wake_all(&WINDOW);
        let went = went.map_err(code)?;
        next = begun + went.waited_ns.saturating_mul(MILLION) / budget;
    }
}

fn code(refusal: Refusal) -> c_int {
    match refusal {
        Refusal::Absent => libc::ENOSYS,
        Refusal::TooOld => libc::EOPNOTSUPP,
        Refusal::NotPermitted => libc::EPERM,
        Refusal::Other(errno) => errno,
    }
}

/// Whether what is mapped is filled and locked at once (mlockall with MCL_FUTURE), as room for pages would be.
fn fills_all(pagemap: c_int) -> bool {
    let Some(probe) = apart::map(sys::PAGE) else { return true };
    let filled = has_page(pagemap, probe as usize);
    // SAFETY: mapped above.
    unsafe { sys::unmap(probe, sys::PAGE) };
    filled
}

/// Whether room for pages counts against a limit that the program may need for itself.
fn is_limited() -> bool {
    let has_limit = |resource: c_long| {
        let mut limits = [u64::MAX; 2];
        // SAFETY: asks for a limit of this process; the kernel's structure has two words.
        let rc = unsafe { libc::syscall(libc::SYS_prlimit64, 0 as c_long, resource, 0 as c_long, limits.as_mut_ptr()) };
        rc == 0 && limits[0] != u64::MAX
    };
    has_limit(libc::RLIMIT_AS as c_long) || has_limit(libc::RLIMIT_DATA as c_long) || overcommit::is_strict()
}
