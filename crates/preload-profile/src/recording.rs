//! Whether, and through which channel, this process is recorded.
//!
//! The first hook call decides. It may come before libc is initialised, so the environment is read from
//! /proc/self/environ with plain system calls. In a forked child the word of [`fork_wiped`] is 0, so the child decides
//! again.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::{channel_map, fast_path};
use numamma_channel::layout::{self, Map, Record};
use numamma_channel::writer::{Local, ROLE_BYTES, Role, Writer, role};
use numamma_channel::{CHANNEL_ENV, MAX_FRAMES};
use numamma_hook::entry::Caller;
use numamma_hook::errno::Saved;
use numamma_hook::reentry::ReentryGuard;
use numamma_hook::stackbounds::Bounds;
use numamma_hook::{fork_wiped, real, stackbounds, static_tls, sys, unwind};

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

/// A hook call to record, in a thread that is inside no other hook.
pub struct Recording {
    writer: Writer,
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
    Some(Recording::new(inside, fork_wiped::get() as u32, 0))
}

/// Whether hooks record in this process. Does not decide it.
pub fn active() -> bool {
    fork_wiped::get() != 0
}

/// Records the start of the calling thread, a new one.
pub fn thread_started(start_routine: usize) {
    if let Some(inside) = active().then(ReentryGuard::enter).flatten() {
        Recording::new(inside, fork_wiped::get() as u32, start_routine);
    }
}

impl Recording {
    #[inline(always)]
    fn new(inside: ReentryGuard, pid: u32, start_routine: usize) -> Recording {
        // SAFETY: `fork_wiped` is set after the channel was mapped, and the channel is never unmapped.
        let writer = Writer::new(unsafe { Map::new(channel_map::fixed()) });
        let recording = Recording { writer, local: local(), _inside: inside };
        if !recording.local.is_for(pid) {
            recording.claim_slot(pid, start_routine);
        }
        recording
    }

    /// Claims this thread's slot and records the bounds of its stack.
    #[cold]
    #[inline(never)]
    fn claim_slot(&self, pid: u32, start_routine: usize) {
        let _errno = Saved::now();
        let here = 0_u8;
        self.writer.claim(self.local, pid, sys::tid(), channel_map::ring);
        let Bounds { low, high } = stackbounds::bounds(&raw const here as usize).unwrap_or(Bounds { low: 0, high: 0 });
        self.writer.push(
            self.local,
            Record {
                ticks: self.writer.now(),
                address: start_routine as u64,
                size: low as u64,
                stack: u32::try_from((high - low) as u64 / layout::STACK_UNIT).unwrap_or(u32::MAX),
                kind: layout::THREAD_START,
            },
        );
    }

    /// `size` bytes at `address` have just been given to `caller`.
    #[inline(always)]
    pub fn alloc(&self, kind: u32, address: usize, size: usize, caller: &Caller) {
        if self.thinned_out(kind, address, || size < layout::SMALL) {
            return;
        }
        let ticks = self.writer.now_after_loads();
        let stack = self.stack(caller);
        self.writer.push(self.local, Record { ticks, address: address as u64, size: size as u64, stack, kind });
    }

    /// Whether the block is left out at the recorder's request, because the program allocates so often that recording
    /// all blocks would slow it down.
    #[inline(always)]
    fn thinned_out(&self, kind: u32, address: usize, small: impl FnOnce() -> bool) -> bool {
        let mask = self.writer.thin();
        fast_path::set_mask(mask);
        let heap = kind == layout::ALLOC_HEAP || kind == layout::FREE_HEAP;
        mask != 0 && heap && !layout::kept(address as u64, mask) && small()
    }

    /// Id of the call stack of `caller`.
    #[inline(always)]
    fn stack(&self, caller: &Caller) -> u32 {
        let high = stackbounds::high_for(caller.cfa);
        // Without a slot the event is lost anyway.
        let Some(memos) = self.local.slot().and_then(channel_map::memos) else { return 0 };
        let memo = unwind::memo::choose(memos, caller);
        // SAFETY: the caller is the live frame below this one, its registers come from the entry stub, and `high`
        // is the end of the stack that its cfa lies on.
        unsafe {
            if let Some(id) = memo.get(caller, high) {
                return id;
            }
            memo.walk(caller, high, &mut [0; MAX_FRAMES], |frames| self.writer.intern(frames))
        }
    }

    /// Records that the object at `address` ends. Called before the real function, so that a later allocation at the
    /// same address by another thread never has an earlier time.
    #[inline(always)]
    pub fn free(&self, kind: u32, address: usize, size: usize) {
        // SAFETY: a live block of the heap is about to be freed, as C's contract of free says.
        let small = || unsafe { real::malloc_usable_size(address as *mut libc::c_void) } < layout::SMALL;
        if self.thinned_out(kind, address, small) {
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
    if phase == INERT || phase == DECIDING {
        return false;
    }
    let Some(_inside) = ReentryGuard::enter() else { return false };
    if PHASE.compare_exchange(phase, DECIDING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return false;
    }
    let _errno = Saved::now();
    let recorded = attach(phase == RECORDED);
    PHASE.store(if recorded { RECORDED } else { INERT }, Ordering::Release);
    recorded
}

/// Attaches this process to the channel if it is to be recorded. A forked child has the channel mapped already.
fn attach(forked: bool) -> bool {
    let pid = sys::pid();
    if !forked && !open_channel(pid) {
        return false;
    }
    // SAFETY: the channel was mapped above or by the parent, and is never unmapped.
    let map = unsafe { Map::new(channel_map::fixed()) };
    if forked && map.header().follow == 0 {
        return false;
    }
    Writer::new(map).attach(pid);
    fork_wiped::set(u64::from(pid))
}

fn open_channel(pid: u32) -> bool {
    let mut path = [0_u8; channel_map::PATH_BYTES];
    let Some(name) = variable(CHANNEL_ENV.as_bytes(), &mut path) else { return false };
    let Some(fd) = sys::open(name, libc::O_RDWR) else { return false };
    let mut header = [0_u8; ROLE_BYTES];
    let complete = sys::read(fd, &mut header) == Some(ROLE_BYTES);
    let recorded = complete && role(&header, pid, sys::parent()) == Role::Record && channel_map::map(fd, &path);
    sys::close(fd);
    recorded
}

/// Value of an environment variable this process was started with, as a C string in `value`; `None` when it
/// is not set, empty or too long.
fn variable<'a>(name: &[u8], value: &'a mut [u8]) -> Option<&'a CStr> {
    let fd = sys::open(c"/proc/self/environ", libc::O_RDONLY)?;
    let mut search = Search { name, matched: 0, failed: false, len: 0, done: false };
    let mut buffer = [0_u8; 512];
    while let Some(n @ 1..) = sys::read(fd, &mut buffer) {
        for &byte in buffer.iter().take(n) {
            search.feed(byte, value);
        }
        if search.done {
            break;
        }
    }
    sys::close(fd);
    if search.done { CStr::from_bytes_until_nul(value).ok() } else { None }
}

/// Finds `NAME=value\0` in an environment block, byte by byte.
struct Search<'n> {
    name: &'n [u8],
    /// Bytes of `name` and the `=` seen in this entry.
    matched: usize,
    failed: bool,
    len: usize,
    done: bool,
}

impl Search<'_> {
    fn feed(&mut self, byte: u8, value: &mut [u8]) {
        if self.done {
            return;
        }
        let in_value = self.matched > self.name.len();
        match byte {
            0 if in_value && !self.failed && self.len > 0 => self.done = true,
            0 => (self.matched, self.failed, self.len) = (0, false, 0),
            _ if self.failed => {}
            // The last byte of the buffer stays 0, so a value that fills it is refused.
            _ if in_value => match value.split_last_mut().and_then(|(_, room)| room.get_mut(self.len)) {
                Some(cell) => {
                    *cell = byte;
                    self.len += 1;
                }
                None => {
                    value.fill(0);
                    self.failed = true;
                }
            },
            _ if byte == *self.name.get(self.matched).unwrap_or(&b'=') => self.matched += 1,
            _ => self.failed = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(block: &[u8], name: &[u8]) -> Option<Vec<u8>> {
        let mut value = [0_u8; 8];
        let mut search = Search { name, matched: 0, failed: false, len: 0, done: false };
        for &byte in block {
            search.feed(byte, &mut value);
        }
        search.done.then(|| CStr::from_bytes_until_nul(&value).unwrap().to_bytes().to_vec())
    }

    #[test]
    fn variables_are_found_exactly() {
        let block = b"AB=1\0A=\0ABC=2=3\0XA=9\0LONG=12345678\0SEVEN=1234567\0";
        assert_eq!(find(block, b"AB").unwrap(), b"1");
        assert_eq!(find(block, b"ABC").unwrap(), b"2=3");
        assert_eq!(find(block, b"A"), None);
        assert_eq!(find(block, b"LONG"), None);
        assert_eq!(find(block, b"SEVEN").unwrap(), b"1234567");
        assert_eq!(find(block, b"B"), None);
    }
}
