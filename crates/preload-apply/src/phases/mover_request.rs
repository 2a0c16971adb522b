//! Requests, creates and wakes the mover, the thread that moves pages. `migrate/` is what it executes.
//!
//! A request takes no lock and may come from any hook, also in a signal handler.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence};

use numamma_hook::held_signals::HeldSignals;
use numamma_hook::real::StartRoutine;
use numamma_hook::{allocating, errno, own_stack, real, sandbox, say_once, sys};
use numamma_kernel::affinity::CpuMask;
use numamma_kernel::futex;

use super::end_of_thread;
use super::exclusion::{self, POLL_NS, Shared};
use crate::held_files;
use crate::rules::state::{self, Rule};

/// Stack of the mover's thread, bytes: glibc takes thread-local storage from it. The work is done on a stack of the
/// library.
const STACK: usize = 128 << 10;

/// Wakes the mover or creates its thread. Takes no lock; signals stay blocked while a thread is created. In a program
/// that has confined itself nothing is moved.
pub fn request() {
    let Some(shared) = exclusion::shared().filter(|_| !sandbox::entered()) else { return };
    shared.requests.fetch_add(1, Ordering::SeqCst);
    if KEEPING.load(Ordering::SeqCst) {
        return; // in the allocator that is called for a stack
    }
    let pid = sys::pid();
    // A new forked child finds 0. A vforked child finds the number of its parent, whose mover works on the same memory.
    let owner = shared.pid.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Acquire).unwrap_or_else(|p| p);
    if (owner != 0 && owner != pid) || exclusion::stopped() {
        return;
    }
    if shared.running.swap(1, Ordering::SeqCst) == 1 {
        return futex::wake_all(&shared.requests);
    }
    // Pairs with the fence of `end`: either that waits for the thread, or none is created.
    fence(Ordering::SeqCst);
    if sandbox::entered() {
        shared.running.store(0, Ordering::SeqCst);
    } else if !create() {
        shared.running.store(0, Ordering::SeqCst);
        say_once!("no thread could be created to move pages between phases: only later allocations follow them");
    }
}

/// Ends the mover before the program confines itself, and returns when its thread is gone. [`sandbox::entered`] keeps
/// others from requesting it. The mover that a vforked child shares with its parent is the parent's.
pub fn end() {
    fence(Ordering::SeqCst);
    let Some(shared) = exclusion::shared().filter(|shared| shared.pid.load(Ordering::Acquire) == sys::pid()) else {
        return;
    };
    shared.requests.fetch_add(1, Ordering::SeqCst);
    futex::wake_all(&shared.requests);
    end_of_thread::wait(shared);
}

/// The program could not confine itself after [`end`].
pub fn resume() {
    if HAS_OBJECTS.load(Ordering::SeqCst) {
        request();
    }
}

/// An object of a rule with places for phases exists, or existed in a parent: until then there is nothing to move.
static HAS_OBJECTS: AtomicBool = AtomicBool::new(false);
/// A phase begins at a time, which the mover waits for.
static AWAITS_TIME: AtomicBool = AtomicBool::new(false);

/// A phase that a rule has a place for begins at a time. The mover waits for it once an object is there.
pub fn await_time() {
    AWAITS_TIME.store(true, Ordering::SeqCst);
    if HAS_OBJECTS.load(Ordering::SeqCst) {
        request();
    }
}

/// A phase has begun, for a rule or more: requests the mover if there may be something to move.
pub fn phase_began() {
    // Pairs with the fence of `placed`.
    fence(Ordering::SeqCst);
    if HAS_OBJECTS.load(Ordering::SeqCst) {
        request();
    }
}

/// An object was placed in `placing` of `rule`. Requests the mover if that is not the current one any more, since the
/// pass of a phase that began meanwhile may have missed the object, or if it is the first object and a phase begins at
/// a time.
pub fn placed(rule: &Rule, placing: usize) {
    note_object(rule);
    if rule.current_index() != placing {
        request();
    }
}

/// An object of `rule` exists.
#[inline]
pub fn note_object(rule: &Rule) {
    if rule.placings.len() > 1 && !HAS_OBJECTS.load(Ordering::Relaxed) {
        note_first();
    }
}

#[cold]
#[inline(never)]
fn note_first() {
    HAS_OBJECTS.store(true, Ordering::SeqCst);
    // Before the caller reads the current placing: a phase that begins sees the object, or the caller sees the phase.
    fence(Ordering::SeqCst);
    // In a forked child times begin no phases.
    let may_ask = AWAITS_TIME.load(Ordering::SeqCst) && !sandbox::entered();
    if may_ask && state::get().is_some_and(|state| state.pid == sys::pid()) {
        request();
    }
}

/// CPUs the process started with. The thread that begins a phase may be bound to one CPU, and the mover would compete
/// with it there.
struct InitialCpus(core::cell::UnsafeCell<Option<CpuMask>>);

// SAFETY: written before the first thread of the mover exists, read by it.
unsafe impl Sync for InitialCpus {}

static INITIAL_CPUS: InitialCpus = InitialCpus(core::cell::UnsafeCell::new(None));

/// The function that the thread executes, see [`start`].
static BODY: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Stores the function that the thread executes and the CPUs the process may use. Called before any phase can begin.
pub fn start(body: fn(&'static Shared)) {
    // SAFETY: start-up, see above.
    unsafe { *INITIAL_CPUS.0.get() = CpuMask::of_thread(0) };
    BODY.store(body as *mut (), Ordering::Release);
}

/// Creates the thread of the mover, detached.
fn create() -> bool {
    let _errno = errno::Saved::now();
    held_files::open();
    create_thread(body, libc::PTHREAD_CREATE_DETACHED).is_some()
}

/// Creates a thread, all signals blocked (glibc keeps its own two open, which setuid needs).
fn create_thread(routine: StartRoutine, detached: c_int) -> Option<libc::pthread_t> {
    let create = real::symbol::pthread_create()?;
    let _held = HeldSignals::hold_all();
    // SAFETY: all-zero attributes are initialised before they are read; the thread gets no argument.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        let mut made = None;
        if libc::pthread_attr_init(&raw mut attributes) == 0 {
            libc::pthread_attr_setdetachstate(&raw mut attributes, detached);
            // With much thread-local storage the small stack is refused.
            made = [STACK, STACK * 32].into_iter().find_map(|size| {
                libc::pthread_attr_setstacksize(&raw mut attributes, size);
                let mut thread = 0;
                let created = create(&raw mut thread, &raw const attributes, routine, core::ptr::null_mut()) == 0;
                created.then_some(thread)
            });
            libc::pthread_attr_destroy(&raw mut attributes);
        }
        made
    }
}

/// Stacks that glibc is given to keep: a mover may be created while the one before it ends.
const KEPT_STACKS: u32 = 2;
/// Whether [`keep_stacks`] has begun.
static KEPT: AtomicBool = AtomicBool::new(false);
/// Whether it is at it.
static KEEPING: AtomicBool = AtomicBool::new(false);
/// Threads of [`keep_stacks`] that run, or more when not all could be created.
static KEEPERS: AtomicU32 = AtomicU32::new(0);

/// Has glibc keep stacks for the mover. A phase may begin in an allocator, in an mmap that it makes under its lock, or
/// in a signal handler that interrupts it, and pthread_create allocates what a new stack needs: it would wait for that
/// lock forever. glibc keeps the stacks of ended threads with all that (allocatestack.c, get_cached_stack).
///
/// A process that has created a thread takes locks from then on that it does without before (`putc` takes seven times
/// as long). So this waits for the program's first thread, but for programs that are the likeliest to need it.
pub fn keep_stacks() {
    if exclusion::shared().is_none() || sandbox::entered() || KEPT.swap(true, Ordering::Relaxed) {
        return;
    }
    let _errno = errno::Saved::now();
    KEEPING.store(true, Ordering::SeqCst);
    let joinable = libc::PTHREAD_CREATE_JOINABLE;
    let threads = [(); KEPT_STACKS as usize].map(|()| create_thread(run_beside_others, joinable));
    if threads.contains(&None) {
        KEEPERS.store(KEPT_STACKS, Ordering::SeqCst);
        futex::wake_all(&KEEPERS);
    }
    // pthread_join is a point of cancellation, pthread_create, in which this may be, is none.
    own_stack::run(|| {
        for thread in threads.into_iter().flatten() {
            // SAFETY: a thread that was created joinable, once.
            unsafe { libc::pthread_join(thread, core::ptr::null_mut()) };
        }
    });
    KEEPING.store(false, Ordering::SeqCst);
    // What was requested meanwhile.
    resume();
}

/// Ends when all threads of [`keep_stacks`] are there, so that each has a stack of its own.
unsafe extern "C" fn run_beside_others(_: *mut c_void) -> *mut c_void {
    let mut seen = KEEPERS.fetch_add(1, Ordering::SeqCst) + 1;
    futex::wake_all(&KEEPERS);
    while seen < KEPT_STACKS {
        futex::wait(&KEEPERS, seen, POLL_NS);
        seen = KEEPERS.load(Ordering::SeqCst);
    }
    core::ptr::null_mut()
}

/// The thread that creates the mover may run with a real-time policy or a raised priority, which are for its own work.
fn run_as_other_work() {
    // SAFETY: the parameters are a live local; the calls concern this thread alone.
    unsafe {
        if [libc::SCHED_FIFO, libc::SCHED_RR].contains(&libc::sched_getscheduler(0)) {
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &libc::sched_param { sched_priority: 0 });
        }
        if libc::getpriority(libc::PRIO_PROCESS, 0) < 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        }
    }
}

unsafe extern "C" fn body(_: *mut c_void) -> *mut c_void {
    // SAFETY: the name is a C string shorter than 16 bytes; the mask was written before this thread existed.
    let mask = unsafe {
        libc::prctl(libc::PR_SET_NAME, c"numamma-mover".as_ptr());
        &*INITIAL_CPUS.0.get()
    };
    run_as_other_work();
    if let Some(mask) = mask {
        // If the cpuset has changed, this fails and the thread keeps the CPUs of its creator.
        let _ = mask.apply();
    }
    // SAFETY: null becomes None; otherwise `start` stored a function of this type.
    let work: Option<fn(&'static Shared)> = unsafe { core::mem::transmute(BODY.load(Ordering::Acquire)) };
    if let (Some(work), Some(shared)) = (work, exclusion::shared()) {
        end_of_thread::begin(shared);
        if allocating::run(|| work(shared)).is_none() {
            exclusion::give_up();
            end_of_thread::announce(shared);
        }
    }
    core::ptr::null_mut()
}
