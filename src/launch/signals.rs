//! Signals of a process that waits for a program: those sent to it alone are forwarded with their sender, but for those
//! that the program sends itself, and the program starts with the actions, the blocked signals and the closed
//! descriptors that it would have without this process.
//!
//! What this process was started with is read before Rust's start-up, which ignores SIGPIPE ([`AT_START`]).
//! [`wait_for_children`] takes back a SIGCHLD that the parent ignores, and [`forward_signals`] unblocks what it
//! forwards: otherwise the exit status of the program would be lost, and a signal would not reach it.
//! [`restore_for_program`] undoes all of it between fork and exec.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// Signals that a parent forwards to the program it waits for, besides the real-time ones: those that a process may be
/// sent and that would end it. Not among them are the signals of errors, which say something about the process that gets
/// them, but for SIGABRT, which watchdogs send; and SIGXFSZ, see [`survive_file_limit`].
const FORWARDED: [libc::c_int; 15] = [
    libc::SIGABRT,
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCONT,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGXCPU,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
];

fn forwarded() -> impl Iterator<Item = libc::c_int> {
    FORWARDED.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

/// Signals that stop a process, besides SIGSTOP, which cannot be caught. They are forwarded, and stop this process,
/// too.
const STOPPING: [libc::c_int; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Signals that ask this process to end.
const ENDING: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Process that gets the forwarded signals; 0: none.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// The last of [`ENDING`] that arrived; 0: none.
static ENDED_BY: AtomicI32 = AtomicI32::new(0);
/// What this process was started with; empty in a process that does not run [`AT_START`].
static STARTED_WITH: OnceLock<StartedWith> = OnceLock::new();

/// Signals whose actions this process or Rust's start-up changes. Only SIG_DFL and SIG_IGN survive an exec.
const CHANGED: [libc::c_int; 3] = [libc::SIGPIPE, libc::SIGCHLD, libc::SIGXFSZ];

/// What a process inherits of signals.
struct StartedWith {
    /// In the order of [`CHANGED`].
    ignored: [bool; CHANGED.len()],
    blocked: libc::sigset_t,
    /// Which of the descriptors 0 to 2 were closed. Rust's start-up opens /dev/null for them.
    closed: [bool; 3],
}

impl StartedWith {
    fn now() -> StartedWith {
        let mut blocked = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set, and pthread_sigmask without a new one overwrites it.
        let blocked = unsafe {
            libc::sigemptyset(blocked.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), blocked.as_mut_ptr());
            blocked.assume_init()
        };
        // SAFETY: asks for a flag.
        let closed = [0, 1, 2].map(|fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0);
        StartedWith { ignored: CHANGED.map(is_ignored), blocked, closed }
    }
}

fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: an all-zero sigaction is valid, and sigaction without a new action only writes to it.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

extern "C" fn at_start() {
    STARTED_WITH.get_or_init(StartedWith::now);
}

/// Runs before `main` and before Rust's start-up.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

/// Lets this process learn how the programs that it starts end. A parent that ignores SIGCHLD hands that on, and the
/// kernel then discards the status of a child.
pub fn wait_for_children() {
    at_start();
    // SAFETY: the default action, which is to do nothing.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// The signal that asked this process to end since [`forward_signals`] or [`note_ending_signals`] was called, if one
/// did that the program has not sent itself.
pub fn asked_to_end() -> Option<i32> {
    Some(ENDED_BY.load(Ordering::SeqCst)).filter(|s| *s != 0)
}

extern "C" fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let info = unsafe { &*info };
    let child = CHILD.load(Ordering::SeqCst);
    // SAFETY: such a signal has a sender.
    let is_of_child = child > 0 && has_sender(info) && unsafe { info.si_pid() } == child;
    if ENDING.contains(&signal) && !is_of_child {
        ENDED_BY.store(signal, Ordering::SeqCst);
    }
    // SAFETY: as above.
    unsafe { send_on(signal, info) };
}

/// Forwards a signal and stops this process, as the signal would without this handler.
extern "C" fn forward_and_stop(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler. All-zero actions are valid; all calls are
    // async-signal-safe, and sigemptyset initialises the set. This thread stops where it unblocks the signal.
    unsafe {
        send_on(signal, &*info);
        let (default, mut own): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::sigaction(signal, &raw const default, &raw mut own);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
        libc::sigaction(signal, &raw const own, ptr::null_mut());
    }
}

/// Sends a signal that a process sent to this one on to the child. A program that answers the sender reaches that, if
/// it finds its process id there. Only the kernel may say that a signal comes from kill or tgkill (do_rt_sigqueueinfo
/// of kernel/signal.c), so it arrives as one of sigqueue. Async-signal-safe; errno stays.
///
/// What the child itself sends, to its parent or to its whole process group, is not sent back; nor is what this process
/// sends itself, as abort(3) does.
///
/// # Safety
/// `info` comes from the kernel.
unsafe fn send_on(signal: libc::c_int, info: &libc::siginfo_t) {
    let child = CHILD.load(Ordering::SeqCst);
    // A signal of the terminal (positive si_code) has reached the whole foreground group already, but for a hang-up.
    if child <= 0 || info.si_code > 0 && !is_for_session_leader(signal, info) {
        return;
    }
    let has_sender = has_sender(info);
    // SAFETY: such a signal has a sender. errno is this thread's. Both calls are async-signal-safe, and the child is
    // not reaped while CHILD is set.
    unsafe {
        if has_sender && (info.si_pid() == child || info.si_pid() == libc::getpid()) {
            return;
        }
        let errno = *libc::__errno_location();
        let mut queued = *info;
        queued.si_code = libc::SI_QUEUE;
        if !has_sender || libc::syscall(libc::SYS_rt_sigqueueinfo, child, signal, &raw const queued) != 0 {
            libc::kill(child, signal);
        }
        *libc::__errno_location() = errno;
    }
}

/// Whether a process sent the signal.
fn has_sender(info: &libc::siginfo_t) -> bool {
    matches!(info.si_code, libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE | libc::SI_MESGQ)
}

/// Whether the kernel sent a signal to this process alone because it leads the session of a terminal that was closed:
/// then the leader gets SIGHUP and SIGCONT, and its group only when the leader ends (tty_signal_session_leader of
/// drivers/tty/tty_jobctrl.c). Async-signal-safe.
fn is_for_session_leader(signal: libc::c_int, info: &libc::siginfo_t) -> bool {
    let is_hang_up = matches!(signal, libc::SIGHUP | libc::SIGCONT) && info.si_code == libc::SI_KERNEL;
    // SAFETY: both ask for a number and cannot fail.
    is_hang_up && unsafe { libc::getsid(0) == libc::getpid() }
}

/// Forwards signals that are sent to this process alone to `child` (0: not known yet); those of the terminal reach it
/// directly. None of them ends this process. A signal that is ignored stays ignored (nohup), as it would be for the
/// program alone; one that is blocked is blocked in the program only.
pub fn forward_signals(child: libc::pid_t) {
    CHILD.store(child, Ordering::SeqCst);
    for signal in forwarded().chain(STOPPING).filter(|s| !is_ignored(*s)) {
        let handler = if STOPPING.contains(&signal) { forward_and_stop } else { forward };
        // SAFETY: an all-zero sigaction is valid; the handlers only make async-signal-safe calls.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
    if child > 0 {
        // A signal that arrived before the child was known is handled, and so forwarded, here.
        mask_forwarded(libc::SIG_UNBLOCK);
    }
}

/// Keeps the signals that ask this process to end from ending it, for [`asked_to_end`]. One that is ignored stays so.
pub fn note_ending_signals() {
    for signal in ENDING.into_iter().filter(|s| !is_ignored(*s)) {
        // SAFETY: an all-zero sigaction is valid; the handler only makes async-signal-safe calls, and sends nothing on
        // without a child.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = forward as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

/// Forwards signals to the child that is started next. Until [`forward_signals`] is called with it they wait.
pub fn hold_signals() {
    mask_forwarded(libc::SIG_BLOCK);
    forward_signals(0);
}

fn mask_forwarded(how: libc::c_int) {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before anything reads it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in forwarded() {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(how, set.as_ptr(), ptr::null_mut());
    }
}

/// The child that gets the forwarded signals, if there is one.
pub fn child() -> Option<libc::pid_t> {
    Some(CHILD.load(Ordering::SeqCst)).filter(|pid| *pid > 0)
}

/// Stops forwarding: the child is reaped, and its process id may be given to another process.
pub fn forget_child() {
    CHILD.store(0, Ordering::SeqCst);
}

/// Makes a file size limit (`ulimit -f`) an error of this process's writes instead of its end.
/// [`restore_for_program`] takes that back.
pub fn survive_file_limit() {
    at_start();
    // SAFETY: ignoring a signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Ends this process by `signal`, without a core dump. Returns if it does not.
///
/// By system calls: the C library keeps two real-time signals for itself, and refuses them.
pub fn end_by(signal: libc::c_int) {
    /// Bytes of the kernel's set of signals, and of its `struct sigaction`.
    const SET: usize = 8;
    const ACTION: usize = 32;
    let (default, all, none) = ([0_u64; ACTION / 8], u64::MAX, 0_u64);
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: calls with numbers, and with structures of zeros of the size that the kernel reads.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, ptr::null_mut::<u64>(), SET);
        libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null_mut::<u64>(), SET);
        libc::kill(libc::getpid(), signal);
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const none, ptr::null_mut::<u64>(), SET);
    }
}

/// Whether a descriptor is open on /dev/null, and not on a pipe made for the program. Async-signal-safe.
fn is_dev_null(fd: libc::c_int) -> bool {
    // SAFETY: an all-zero stat is valid, and fstat only writes to it.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &raw mut stat) == 0 && stat.st_rdev == libc::makedev(1, 3)
    }
}

/// Gives back the actions, the blocked signals and the closed descriptors that this process was started with. To be
/// called directly before execve; async-signal-safe.
pub fn restore_for_program() {
    let Some(before) = STARTED_WITH.get() else { return };
    for (signal, ignored) in CHANGED.into_iter().zip(before.ignored) {
        let action = if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: one of the two actions without a handler.
        unsafe { libc::signal(signal, action) };
    }
    for (fd, _) in (0..).zip(before.closed).filter(|(fd, closed)| *closed && is_dev_null(*fd)) {
        // SAFETY: Rust's start-up opened it, and the program is not to have it.
        unsafe { libc::close(fd) };
    }
    // SAFETY: the set was read from the kernel.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before.blocked, ptr::null_mut()) };
}
