//! libtsan.so.2 of NumaMMA: the functions that gcc and clang call before every memory access of a program compiled with
//! `-fsanitize=thread`.
//!
//! It stands in the place of ThreadSanitizer's run-time library and looks for no data races: it counts. Beside a
//! recorder ([`process`]) each thread counts its accesses by page and instruction in memory that the recorder owns
//! (`numamma_channel::trace`). Without one the hooks return at once.
//!
//! [`accesses`] has the hooks of loads and stores, whose common case is ten instructions of assembly: the line of the
//! instruction in the thread's [`block`] tells the page that it accessed last, and the counter. hooks.s has the same
//! for the program itself, and inline.s for gcc in the place of the calls, with [`lines`] of its own. Every other case
//! goes to [`block::count`]; of pages that threads share, [`sharing`] sends them all there. [`atomics`] has the atomic
//! operations, which these hooks replace, [`ranges`] the copies and fills of structures, [`strings`] the C library's
//! functions for memory and strings, and [`ignored`] what ThreadSanitizer needs and a count does not.
//!
//! The library never aborts, exits, prints, changes errno or allocates on the program's heap. A thread waits only when
//! it needs memory that the recorder has not given back yet, for one second at most.

mod accesses;
mod atomics;
mod block;
mod cancellation;
mod eras;
mod ignored;
mod lines;
mod process;
mod ranges;
mod sharing;
mod strings;

#[global_allocator]
static PRIVATE: numamma_hook::alloc::Private = numamma_hook::alloc::Private;

#[cfg(not(test))] // build.rs has only the library linked so
numamma_hook::pass_forced_unwinding!();

/// Attaches before the program's first access where the loader calls this in time.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    numamma_hook::own_system_calls::link();
    if process::traced().is_some() {
        numamma_hook::alloc::elsewhere::watch();
        block::prepare();
    }
}
