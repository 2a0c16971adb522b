//! The thread of the mover: made when there is something to move or a time to wait for, ended when there is not.
//!
//! A thread that slept for ever would keep a program alive whose threads all ended by pthread_exit. What it does when it is awake:
//! [`crate::migrate`].

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};
use numamma_kernel::affinity::CpuMask;
use numamma_kernel::{clock, futex};

use numamma_hook::{errno, real, say, sys};

use crate::gate::{self, Shared};
use crate::matching::resolve;
use crate::migrate::Mover;
use crate::state::{self, State};
use crate::steps::Pace;
use crate::{heap, phases, table};

/// Stack of the mover, bytes: it needs some 40 KiB, and glibc takes thread-local storage from it.
const STACK: usize = 256 << 10;
/// Longest sleep between two looks whether the program still runs, ns.
pub const LOOK_NS: u64 = 500_000_000;
/// Sleep before variables of libraries are tried again that could not be touched because a library was being unloaded, ns.
const RETRY_NS: u64 = 10_000_000;
/// How often that is tried: for a second.
const TRIES: u32 = 100;

/// There may be something to move: wakes the mover or creates it. Takes no lock; signals stay blocked while a thread is made.
pub fn request() {
    let Some(shared) = gate::shared() else { return };
    shared.requests.fetch_add(1, Ordering::SeqCst);
    let pid = sys::pid();
    // A new forked child finds 0; a vforked one finds its parent's number, whose mover looks after the same memory.
    let owner = shared.pid.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Acquire).unwrap_or_else(|p| p);
    if (owner != 0 && owner != pid) || gate::stopped() {
        return;
    }
    if shared.running.swap(1, Ordering::SeqCst) == 1 {
        futex::wake_all(&shared.requests);
    } else if !create() {
        shared.running.store(0, Ordering::SeqCst);
        static SAID: AtomicBool = AtomicBool::new(false);
        if !SAID.swap(true, Ordering::Relaxed) {
            say!("no thread could be created to move pages between phases: only later allocations follow them");
        }
    }
}

/// CPUs the process started with: the thread that begins a phase may be bound to one, where the mover would be in its way.
struct AtStart(core::cell::UnsafeCell<Option<CpuMask>>);

// SAFETY: written before the first thread of the mover exists, read by it.
unsafe impl Sync for AtStart {}

static AT_START: AtStart = AtStart(core::cell::UnsafeCell::new(None));

/// Remembers the CPUs the process may use; before any phase can begin.
pub fn start() {
    // SAFETY: start-up, see above.
    unsafe { *AT_START.0.get() = CpuMask::of_thread(0) };
}

/// Creates the thread, detached, all signals blocked (glibc keeps its own two open, which setuid needs).
fn create() -> bool {
    let Some(create) = real::symbol::pthread_create() else { return false };
    let _errno = errno::Saved::now();
    // SAFETY: all-zero sets and attributes are initialised before they are read; the thread gets no argument.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = core::mem::zeroed();
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let mut made = false;
        if libc::pthread_attr_init(&raw mut attributes) == 0 {
            libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
            // With much thread-local storage the small stack is refused.
            for size in [STACK, STACK * 32] {
                libc::pthread_attr_setstacksize(&raw mut attributes, size);
                let mut thread = 0;
                made = create(&raw mut thread, &raw const attributes, body, core::ptr::null_mut()) == 0;
                if made {
                    break;
                }
            }
            libc::pthread_attr_destroy(&raw mut attributes);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
        made
    }
}

unsafe extern "C" fn body(_: *mut c_void) -> *mut c_void {
    // SAFETY: the name is a C string shorter than 16 bytes; the mask was written before this thread existed.
    let mask = unsafe {
        libc::prctl(libc::PR_SET_NAME, c"numamma-mover".as_ptr());
        &*AT_START.0.get()
    };
    if let Some(mask) = mask {
        let _ = mask.apply();
    }
    if let (Some(shared), Some(state)) = (gate::shared(), state::get()) {
        run(shared, state);
    }
    core::ptr::null_mut()
}

fn run(shared: &'static Shared, state: &'static State) {
    if shared.mover.load(Ordering::Acquire) == 0 {
        // In a forked child an object may still be marked by its parent's mover.
        table::for_each(|placed| {
            if placed.moving
                && let Some(marked) = table::begin_step(placed.address)
                && !table::end_step(&marked, &marked)
            {
                heap::discard(&marked);
            }
        });
        shared.mover.store(1, Ordering::Release);
    }
    let (mut pace, mut tries) = (Pace::default(), 0);
    loop {
        // Not inside a step, so that nobody who holds the loader's lock waits for this thread.
        resolve::catch_up_now();
        let seen = shared.requests.load(Ordering::SeqCst);
        let ticket = phases::last_ticket();
        let (looked_ns, again) = (clock::monotonic_ns(), Cell::new(false));
        let mut mover = Mover { state, shared, seen, pace, looked_ns, again, ended: false };
        mover.policies();
        mover.pages();
        let (interrupted, again) = (mover.interrupted(), mover.again.get());
        pace = mover.pace;
        if again && !interrupted && tries < TRIES {
            tries += 1;
            futex::wait(&shared.requests, seen, RETRY_NS);
            continue;
        }
        tries = 0;
        if !interrupted && !again {
            phases::finished(state, ticket);
        }
        if !another(shared, state, seen) {
            return;
        }
    }
}

/// Waits for the next request after `seen`; false when the thread shall end.
fn another(shared: &Shared, state: &State, seen: u32) -> bool {
    loop {
        if gate::stopped() {
            return false;
        }
        // A forked child has the times of its parent behind it.
        let next = if sys::pid() == state.pid { phases::begin_due() } else { None };
        if shared.requests.load(Ordering::SeqCst) != seen {
            return true;
        }
        if let Some(ns) = next.filter(|_| !program_ended()) {
            futex::wait(&shared.requests, seen, ns.min(LOOK_NS));
            continue;
        }
        shared.running.store(0, Ordering::SeqCst);
        // Who asked before that relied on this thread; who asks after it makes another.
        let late = shared.requests.load(Ordering::SeqCst) != seen;
        return late && shared.running.swap(1, Ordering::SeqCst) == 0;
    }
}

/// Main thread and all others have ended by pthread_exit: the process ends with this thread.
pub fn program_ended() -> bool {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold anything; the state follows, and as the 18th field the number of threads.
    let mut fields = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    let zombie = fields.next() == Some("Z");
    let threads = fields.nth(16).and_then(|n| n.parse::<u32>().ok());
    zombie && threads.is_some_and(|n| n <= 2)
}
