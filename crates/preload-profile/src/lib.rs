//! libnumamma-profile.so: allocation and thread events of a profiled program.
//!
//! Preloaded by `numamma profile`. [`hooks`] replaces C functions; each hook enters the re-entry guard,
//! records and forwards. [`recording`] finds the recorder's channel and decides whether this process is to be recorded.
//! In every other process (children inherit LD_PRELOAD) the hooks only forward, at about a nanosecond a call.
//!
//! operator new is not hooked: it arrives through malloc, and the unwinder sees its caller. A hook of
//! operator new could not be chained to a libstdc++ that was dlopened with RTLD_LOCAL.
//!
//! The library never aborts, exits, prints, waits, changes errno on success or allocates on the program's heap.

mod channel_map;
mod fast_path;
mod faults;
mod hooks;
mod quota;
mod recording;
mod switch;
mod task;

#[global_allocator]
static PRIVATE: numamma_hook::alloc::Private = numamma_hook::alloc::Private;

#[cfg(not(test))] // build.rs has only the library linked so
numamma_hook::pass_forced_unwinding!();

/// Attaches even if the program never allocates, and before it creates threads.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    let _errno = numamma_hook::errno::Saved::now();
    numamma_hook::own_system_calls::link();
    numamma_hook::real::resolve();
    numamma_hook::cancellation::start();
    if recording::enter().is_some() {
        numamma_hook::fork_wiped::remember_process();
        numamma_hook::modules::start();
        numamma_hook::own_stack::start();
        numamma_hook::alloc::elsewhere::watch();
        numamma_hook::alloc::exhaustion::start();
        recording::start_faults(false);
    }
}
