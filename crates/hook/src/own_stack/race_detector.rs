//! ThreadSanitizer sees what this library's calls of `memcpy` and the like read and write, because it has these
//! functions, but not how the library passes memory from thread to thread: it would report races that are none, and
//! change the exit status of the program. It can be told to overlook a thread for a while
//! (`sanitizer/tsan_interface.h`).

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::loaded_file;

/// Addresses of `__tsan_ignore_thread_begin` and `__tsan_ignore_thread_end`; 0 where no file has them.
static FUNCTIONS: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
const NAMES: [&core::ffi::CStr; 2] = [c"__tsan_ignore_thread_begin", c"__tsan_ignore_thread_end"];

/// Finds the functions. To be called before the program has threads.
pub fn start() {
    loaded_file::each(|file| {
        for (name, address) in NAMES.iter().zip(&FUNCTIONS) {
            file.functions(name, |function| {
                let first = address.load(Ordering::Relaxed) == 0 && !function.is_indirect;
                address
                    .store(if first { function.address } else { address.load(Ordering::Relaxed) }, Ordering::Relaxed);
            });
        }
        ControlFlow::Continue(())
    });
}

/// Whether the race detector overlooks the calling thread from now on.
pub fn overlook() -> bool {
    let both = FUNCTIONS.iter().all(|address| address.load(Ordering::Relaxed) != 0);
    both && call(&FUNCTIONS[0])
}

/// Ends what [`overlook`] began.
pub fn look() {
    call(&FUNCTIONS[1]);
}

fn call(function: &AtomicUsize) -> bool {
    let address = function.load(Ordering::Relaxed);
    if address != 0 {
        // SAFETY: the address of one of the two functions, which take and return nothing; the file that has it is one
        // that the program was started with, so that it stays loaded.
        unsafe { core::mem::transmute::<usize, extern "C" fn()>(address)() };
    }
    address != 0
}
