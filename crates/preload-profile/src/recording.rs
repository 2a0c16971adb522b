//! Whether, and through which channel, this process is recorded.
//!
//! The first hook call decides. It may come before libc is initialised, so the environment is read from
//! /proc/self/environ with plain system calls. In a forked child the word of [`fork_wiped`] is 0, so the child decides
//! again.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::{channel_map, fast_path, faults, quota, task};
use numamma_channel::attach::{NAME_BYTES, Name};
use numamma_channel::layout::{self, KIND_BITS, Map, Record};
use numamma_channel::writer::{Local, Writer};
use numamma_channel::{CHANNEL_ENV, MAX_FRAMES};
use numamma_hook::beside_recorder::{pid_for_recorder as recorders_pid, tid_for_recorder, variable};
use numamma_hook::entry::Caller;
use numamma_hook::errno::Saved;
use numamma_hook::reentry::ReentryGuard;
use numamma_hook::stackbounds::Bounds;
use numamma_hook::thread_start::Started;
use numamma_hook::{fork_wiped, real, sandbox, stackbounds, static_tls, sys, unwind};

static_tls!(fn local() -> Local, "numamma_profile_local");

/// No hook was called yet.
const UNDECIDED: u32 = 0;
/// Another thread is deciding.
const DECIDING: u32 = 1;
/// Recorded; `fork_wiped` holds the pid. In a forked child, which must decide again, it reads 0.
const RECORDED: u32 = 2;
/// Hooks only forward.
const INERT: u32 = 3;

static PHASE: AtomicU32 = AtomicU32::new(UNDECIDED);

/// Whether this process has another pid in the recorder's process namespace than in its own.
static NAMESPACED: AtomicBool = AtomicBool::new(false);

/// A hook call to record, in a thread that is inside no other hook.
pub struct Recording {
    writer: Writer<channel_map::Mapped>,
    local: &'static Local,
    _inside: ReentryGuard,
}

/// Enters a hook; `None` when the call must only be forwarded.
#[inline(always)]
pub fn enter() -> Option<Recording> {
    if fork_wiped::get() == 0 && (PHASE.load(Ordering::Acquire) == INERT || !decide()) {
        return None;
    }
    let inside = ReentryGuard::enter()?;
    Recording::new(inside, fork_wiped::get() as u32, 0)
}

/// Counts an allocation that is left out before the guard is entered.
#[inline(always)]
pub fn skip() {
    if local().skip() {
        tell_skipped();
    }
}

#[cold]
#[inline(never)]
fn tell_skipped() {
    let pid = fork_wiped::get() as u32;
    if pid != 0 && local().is_for(pid) {
        // SAFETY: as in `Recording::new`.
        Writer::new(unsafe { Map::new(channel_map::fixed()) }, channel_map::Mapped).tell_skipped(local());
    }
}

/// Whether hooks record in this process. Does not decide it.
pub fn active() -> bool {
    fork_wiped::get() != 0
}

/// Ends the recording of this process.
pub fn stop() {
    PHASE.store(INERT, Ordering::Release);
    fork_wiped::set(0);
}

/// Records the start of the calling thread, a new one, whose token is the id of the call stack that created it.
pub fn thread_started(started: &Started) {
    if let Some(inside) = active().then(ReentryGuard::enter).flatten() {
        local().created_at.set(started.token as u32);
        if let Some(recording) = Recording::new(inside, fork_wiped::get() as u32, started.start_routine) {
            task::words(started, |first, words| recording.task(first, words));
        }
    }
}

impl Recording {
    #[inline(always)]
    fn new(inside: ReentryGuard, pid: u32, start_routine: usize) -> Option<Recording> {
        // SAFETY: `fork_wiped` is set after the channel was mapped, and the channel is never unmapped.
        let writer = Writer::new(unsafe { Map::new(channel_map::fixed()) }, channel_map::Mapped);
        let recording = Recording { writer, local: local(), _inside: inside };
        if !recording.local.is_for(pid) {
            if sandbox::entered() {
                return None; // claiming a slot takes system calls
            }
            recording.claim_slot(pid, start_routine);
        }
        Some(recording)
    }

    /// Claims this thread's slot and records the bounds of its stack.
    #[cold]
    #[inline(never)]
    fn claim_slot(&self, pid: u32, start_routine: usize) {
        let _errno = Saved::now();
        let here = 0_u8;
        // The thread may have had no slot before.
        let start_routine = if start_routine != 0 { start_routine } else { self.local.start_routine.get() };
        self.local.start_routine.set(start_routine);
        self.writer.claim(self.local, pid, recorders_tid());
        let Bounds { low, high } = stackbounds::bounds(&raw const here as usize).unwrap_or(Bounds { low: 0, high: 0 });
        if let Some(slot) = self.local.slot() {
            faults::set_stack(slot, low, high);
        }
        self.writer.push(
            self.local,
            Record {
                ticks: self.writer.now(),
                address: start_routine as u64,
                size: low as u64,
                stack: u32::try_from((high - low) as u64 / layout::STACK_UNIT).unwrap_or(u32::MAX),
                kind: layout::THREAD_START | self.local.created_at.get() << KIND_BITS,
            },
        );
    }

    /// Two words of what tells this thread what to run.
    fn task(&self, first: usize, [address, size]: [u64; 2]) {
        let (ticks, stack) = (self.writer.now(), first as u32);
        self.writer.push(self.local, Record { ticks, address, size, stack, kind: layout::THREAD_TASK });
    }

    /// `size` bytes at `address` have just been given to `caller`; with [`layout::RESIZED`] in the kind, of the memory
    /// that [`Recording::free`] said to end before.
    #[inline(always)]
    pub fn alloc(&self, kind: u32, address: usize, size: usize, caller: &Caller) {
        let mut left_out = 0;
        let mask = self.mask();
        if mask != 0 {
            match self.thinned_alloc(kind, address, size, caller, mask) {
                Some(others) => left_out = others,
                None => return self.writer.skip(self.local),
            }
        }
        let ticks = self.writer.now_after_loads();
        let stack = self.stack(caller);
        let kind = kind | left_out << KIND_BITS;
        self.writer.push(self.local, Record { ticks, address: address as u64, size: size as u64, stack, kind });
    }

    /// The thinning that the recorder asks for, because the program allocates so often that recording everything would
    /// slow it down; 0 none.
    #[inline(always)]
    fn mask(&self) -> u32 {
        let mask = self.writer.thin();
        fast_path::set_mask(mask);
        mask
    }

    /// Whether an allocation is recorded although the recorder asks for thinning: the number of those left out before
    /// it; `None` when it is left out, too.
    #[inline(never)]
    fn thinned_alloc(&self, kind: u32, address: usize, size: usize, caller: &Caller, mask: u32) -> Option<u32> {
        let heap = kind & !layout::RESIZED == layout::ALLOC_HEAP;
        if heap && size < layout::SMALL {
            return layout::kept(address as u64, mask).then_some(0);
        }
        let (quota, epoch) = self.writer.quota();
        let Some(private) = self.local.slot().and_then(channel_map::private).filter(|_| quota != 0) else {
            return Some(0);
        };
        let len = if heap { 0 } else { size };
        match private.sites.record(caller, size, quota, epoch) {
            None if quota::leave_out(address, len) => None,
            None => Some(0),
            Some(left_out) => {
                quota::was_left_out(address, len); // a mark whose block ended unseen
                Some(left_out)
            }
        }
    }

    /// Whether the end of a block or mapping is not recorded because its allocation was not.
    #[inline(never)]
    fn thinned_free(kind: u32, address: usize, size: usize, mask: u32) -> bool {
        if kind & !layout::RESIZED != layout::FREE_HEAP {
            return quota::was_left_out(address, size);
        }
        // SAFETY: a live block of the heap is about to be freed, as C's contract of free says.
        let small = || unsafe { real::malloc_usable_size(address as *mut libc::c_void) } < layout::SMALL;
        !layout::kept(address as u64, mask) && small() || quota::was_left_out(address, 0)
    }

    /// Id of the call stack of `caller`; 0 when there is no room for it.
    #[inline(always)]
    pub fn stack(&self, caller: &Caller) -> u32 {
        let high = stackbounds::high_for(caller.cfa);
        // Without a slot the event is lost anyway.
        let Some(private) = self.local.slot().and_then(channel_map::private) else { return 0 };
        let memo = unwind::memo::choose(&private.memos, caller);
        // SAFETY: the caller is the live frame below this one, its registers come from the entry stub, and `high`
        // is the end of the stack that its cfa lies on.
        unsafe {
            if let Some(id) = memo.get(caller, high) {
                return id;
            }
            memo.walk(caller, high, &mut [0; MAX_FRAMES], |frames| self.writer.intern(frames))
        }
    }

    /// Records whether samples are wanted from now on; false when the record is lost.
    pub fn sampling(&self, on: bool) -> bool {
        let (ticks, address) = (self.writer.now_after_loads(), u64::from(on));
        self.writer.push(self.local, Record { ticks, address, size: 0, stack: 0, kind: layout::SAMPLING })
    }

    /// Records that the object at `address` ends. Called before the real function, so that a later allocation at the
    /// same address by another thread never has an earlier time.
    #[inline(always)]
    pub fn free(&self, kind: u32, address: usize, size: usize) {
        let mask = self.mask();
        if mask != 0 && Recording::thinned_free(kind, address, size, mask) {
            return;
        }
        let ticks = self.writer.now();
        self.writer.push(self.local, Record { ticks, address: address as u64, size: size as u64, stack: 0, kind });
    }
}

/// Decides whether this process is recorded; true when it is. While one thread decides, the calls of others are only
/// forwarded.
#[cold]
#[inline(never)]
fn decide() -> bool {
    let phase = PHASE.load(Ordering::Acquire);
    if phase == INERT || phase == DECIDING || sandbox::entered() {
        return false;
    }
    let Some(_inside) = ReentryGuard::enter() else { return false };
    if PHASE.compare_exchange(phase, DECIDING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return false;
    }
    let _errno = Saved::now();
    let recorded = attach(phase == RECORDED);
    PHASE.store(if recorded { RECORDED } else { INERT }, Ordering::Release);
    if recorded && phase == RECORDED {
        start_faults(true);
    }
    recorded
}

/// Attaches this process to the channel if it is to be recorded. A forked child has the channel mapped already.
fn attach(forked: bool) -> bool {
    if !forked {
        let Some(pid) = recorders_pid() else { return false };
        return open_channel(pid) && begin(pid);
    }
    // SAFETY: the channel was mapped by the parent, and is never unmapped.
    if unsafe { Map::new(channel_map::fixed()) }.header().follow == 0 {
        return false;
    }
    // A child that sees the pid of its parent as that is seen by the recorder is in the recorder's namespace. It makes
    // no call that a filter of system calls could forbid.
    let own = Some(sys::pid()).filter(|pid| *pid != 1 && !NAMESPACED.load(Ordering::Relaxed));
    if own.is_some() && local().is_for(sys::parent()) {
        return own.is_some_and(begin);
    }
    // Without /proc (chroot) it has the pid that it sees, as its parent had, unless it is the first process of a new
    // namespace.
    recorders_pid().or(own).is_some_and(begin)
}

fn begin(pid: u32) -> bool {
    NAMESPACED.store(pid != sys::pid(), Ordering::Relaxed);
    // SAFETY: the channel was mapped, and is never unmapped.
    Writer::new(unsafe { Map::new(channel_map::fixed()) }, channel_map::Mapped).attach(pid);
    fork_wiped::set(u64::from(pid))
}

/// Starts the `fault` sampler in this process, which is recorded, if the recorder wants it.
pub fn start_faults(forked: bool) {
    let pid = fork_wiped::get() as u32;
    // SAFETY: `fork_wiped` is set after the channel was mapped, and the channel is never unmapped.
    let map = unsafe { Map::new(channel_map::fixed()) };
    faults::start(map, pid, NAMESPACED.load(Ordering::Relaxed), forked);
}

fn open_channel(pid: u32) -> bool {
    let mut value = [0_u8; NAME_BYTES];
    let name = variable(CHANNEL_ENV.as_bytes(), &mut value).and_then(|text| Name::parse(text.to_bytes()));
    name.is_some_and(|name| channel_map::map(name, pid, sys::parent()))
}

/// The id of this thread in the recorder's process namespace.
fn recorders_tid() -> u32 {
    let other = if NAMESPACED.load(Ordering::Relaxed) { tid_for_recorder() } else { None };
    other.unwrap_or_else(sys::tid)
}
