//! `numamma_profile()`, which the header numamma.h calls.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU8, Ordering};

use numamma_hook::errno::Saved;

use crate::recording;

/// The process has said nothing yet, or it was lost.
const NOTHING: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// What the process said last. A call that repeats it is left out: in a loop such calls would fill the channel. A child
/// inherits it, as the recorder lets it inherit what it means.
static SAID: AtomicU8 = AtomicU8::new(NOTHING);

/// The program wants samples from now on, unless `on` is 0. Does nothing in a process that is not recorded.
#[unsafe(no_mangle)]
pub extern "C" fn numamma_profile(on: c_int) {
    let _errno = Saved::now();
    let Some(recording) = recording::enter() else { return };
    let mut said = if on == 0 { OFF } else { ON };
    // The load keeps threads that repeat themselves from writing to one cache line.
    if SAID.load(Ordering::SeqCst) == said || SAID.swap(said, Ordering::SeqCst) == said {
        return;
    }
    loop {
        if !recording.sampling(said == ON) {
            return SAID.store(NOTHING, Ordering::SeqCst);
        }
        // Another thread may have said otherwise since, and have recorded it before: then the last record is this
        // thread's, and what was said last is recorded once more.
        let last = SAID.load(Ordering::SeqCst);
        if last == said || last == NOTHING {
            return;
        }
        said = last;
    }
}
