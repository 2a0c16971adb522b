//! Linux as the other crates use it: NUMA system calls, and the readers of /proc and /sys files.
//!
//! System calls are made directly: libc's own functions (`mmap`, `munmap`) are hooked by the preloads, and C libraries of
//! older systems lack some of the calls. Failures are `Err(errno)` or `None` and leave the code in `errno`, as in libc; a
//! preload that must not change `errno` holds an [`errno::Saved`].
//!
//! Readers of files separate the text from where it comes from: a function takes the text and returns records, so that
//! tests and other processes' files use the same code.
//!
//! | Module | Subject |
//! | --- | --- |
//! | [`errno`], [`sys`] | error codes; mappings, files and process identifiers |
//! | [`mappings`] | reserved, aligned and fork-wiped address space |
//! | [`policy`] | mbind(2), set_mempolicy(2), get_mempolicy(2) |
//! | [`pages`] | move_pages(2), mincore(2), madvise(2) on resident and future pages |
//! | [`affinity`], [`futex`], [`clock`] | CPUs of a thread; waiting; time |
//! | [`maps`], [`smaps`], [`pagemap`] | /proc/PID/{maps,smaps,pagemap} |
//! | [`lists`], [`thp`] | lists of CPUs and nodes; the setting of transparent huge pages |
//! | [`cgroup`], [`meminfo`], [`zoneinfo`] | available memory of the process, the machine and its nodes |

pub mod affinity;
pub mod cgroup;
pub mod clock;
pub mod errno;
pub mod futex;
pub mod lists;
pub mod mappings;
pub mod maps;
pub mod meminfo;
pub mod pagemap;
pub mod pages;
pub mod policy;
pub mod smaps;
pub mod sys;
pub mod thp;
pub mod zoneinfo;

/// The result of a system call that returns 0 on success: `Err(errno)` otherwise.
fn result(rc: i64) -> Result<(), core::ffi::c_int> {
    if rc == 0 { Ok(()) } else { Err(errno::get()) }
}
