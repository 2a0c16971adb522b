//! Which block the hooks of a thread use: none before its first access, one until the thread ends.

use core::cell::Cell;
use core::ptr::null;
use core::sync::atomic::{AtomicI32, Ordering};

use numamma_hook::errno::Saved;
use numamma_hook::static_tls;

use super::Block;
use super::list::{free_block, give_back};
use crate::process::{self, Traced};
use crate::sharing::{Sharing, sharing};

/// A thread that is switched off has the lines of nobody so many bytes further on; no other address of lines has this bit.
pub(super) const OFF: usize = 64;

/// What the hooks of one file (this library, a program, a library of its) keep of a thread: see thread.s.
#[repr(C)]
pub struct Thread {
    block: Cell<*const Block>,
    /// The lines of nobody, of the same file: nothing is ever stored there.
    nobody: *const Block,
}

// The thread's part of this library: whether it is getting a block now.
static_tls!(fn claiming() -> Cell<bool>, "numamma_trace_claiming");

/// Destructor of the blocks of threads that end.
static KEY: AtomicI32 = AtomicI32::new(-1);

/// Makes the key whose destructor gets the block of a thread that ends; false when there is none.
pub fn prepare() -> bool {
    if KEY.load(Ordering::Relaxed) >= 0 {
        return true;
    }
    let mut key = 0;
    // SAFETY: the key is written to a live local; the destructor lives as long as the process (-z nodelete).
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0;
    if made {
        KEY.store(key as i32, Ordering::Relaxed);
    }
    made
}

/// What the hooks of this library keep of this thread.
pub(super) fn thread() -> &'static Thread {
    let thread: *const Thread;
    // SAFETY: the symbol is in this thread's static TLS block; the two instructions compute its address. The reference
    // cannot leave the thread: cells are not Sync.
    unsafe {
        core::arch::asm!(
            "mov {p}, qword ptr fs:[0]",
            "add {p}, qword ptr [rip + numamma_trace_thread@GOTTPOFF]",
            p = out(reg) thread,
            options(pure, nomem, nostack),
        );
        &*thread
    }
}

impl Thread {
    /// Lets the hooks of this file return at once.
    pub fn switch_off(&self) {
        self.block.set(self.nobody.wrapping_byte_add(OFF));
    }

    /// The block that the hooks of this file have.
    fn block(&self) -> Option<&'static Block> {
        let block = self.block.get();
        let is_none = core::ptr::eq(block, self.nobody) || block.addr() & OFF != 0;
        // SAFETY: the thread has it until its end, and blocks are never unmapped.
        if is_none { None } else { unsafe { block.as_ref() } }
    }
}

/// The block of this thread, also for the hooks of a file from now on.
#[inline]
pub(super) fn block(file: &Thread, traced: Traced) -> Option<&'static Block> {
    match file.block() {
        Some(block) if block.pid.get() == traced.pid => Some(block),
        _ => claim(file, traced),
    }
}

#[cold]
fn claim(file: &Thread, traced: Traced) -> Option<&'static Block> {
    if claiming().replace(true) {
        return None; // a signal handler, or a hook in what is called here
    }
    let _errno = Saved::now();
    let own = thread();
    // Without it a hook would have no filter to look at.
    let found = sharing();
    let block = found.and_then(|_| own.block().map_or_else(free_block, |block| Some((&raw const *block).cast_mut())));
    let claimed = block.map(|block| {
        // SAFETY: a mapped block that only this thread has.
        let claimed = unsafe { &*block };
        if let Some(sharing) = found {
            claimed.filter.set(sharing.filter()); // a forked child has lost it
        }
        if claimed.pid.replace(traced.pid) != traced.pid {
            // SAFETY: the key exists (`prepare`); the value is only read by its destructor.
            unsafe { libc::pthread_setspecific(KEY.load(Ordering::Relaxed) as libc::pthread_key_t, block.cast()) };
            claimed.number.set(found.map_or(0, Sharing::new_thread));
        }
        own.block.set(block);
        if !core::ptr::eq(own, file) && claimed.remember(file) {
            file.block.set(block);
        }
        claimed
    });
    claiming().set(false);
    claimed
}

/// Destructor: the thread ends; hooks of other destructors claim another block.
unsafe extern "C" fn thread_ends(block: *mut libc::c_void) {
    let _errno = Saved::now();
    let thread = thread();
    thread.block.set(thread.nobody);
    let list: *mut Block = block.cast();
    // SAFETY: the value of the key is the block of this thread.
    let block = unsafe { &*list };
    block.pid.set(0);
    block.forget_files();
    block.forget_lines();
    block.busy.set(false);
    // SAFETY: no hook of this thread is in the block any more, and no line has a counter of its tables.
    let tables = unsafe { [(*block.table.get()).take(), (*block.previous.get()).take()] };
    if let Some(traced) = process::traced() {
        // SAFETY: as above.
        tables.into_iter().flatten().for_each(|table| unsafe { table.end(traced.map) });
    }
    give_back(list);
}

impl Block {
    /// Notes that the hooks of a file have the address of this block; false when there is no room for it, and they do not
    /// get it.
    fn remember(&self, file: &Thread) -> bool {
        let is = |place: &&Cell<*const Thread>| core::ptr::eq(place.get(), file);
        let place = self.files.iter().find(is).or_else(|| self.files.iter().find(|place| place.get().is_null()));
        place.is_some_and(|place| {
            place.set(file);
            true
        })
    }

    fn forget_files(&self) {
        for file in self.files.iter().map(|place| place.replace(null())) {
            // SAFETY: static TLS of the thread that ends, which nobody takes back before.
            if let Some(file) = unsafe { file.as_ref() } {
                file.block.set(file.nobody);
            }
        }
    }
}
