//! The kernel interface of the other crates: NUMA system calls, readers of /proc and /sys files, output
//! files, and what may be written to a terminal.
//!
//! System calls go through `syscall`: the preloads hook libc's `mmap` and `munmap`, and C libraries of older systems
//! lack wrappers for newer calls. A failure is `Err(errno)` or `None` and also sets `errno`, as in libc; a preload
//! that must not change `errno` holds an [`errno::Saved`].
//!
//! A reader takes the text of a file and returns records; opening the file is a separate function, so that tests and
//! the files of other processes use the same parser.
//!
//! | Module | Subject |
//! | --- | --- |
//! | [`errno`], [`sys`] | error codes; mappings, files and process identifiers |
//! | [`mappings`], [`window`] | reserved, aligned and fork-wiped address space; mappings recognised by their address |
//! | [`policy`] | mbind(2), set_mempolicy(2), get_mempolicy(2) |
//! | [`pages`] | move_pages(2), mincore(2), madvise(2) |
//! | [`affinity`], [`futex`], [`clock`] | CPUs of a thread; futex(2); the monotonic clock |
//! | [`maps`], [`smaps`], [`pagemap`], [`lines`] | /proc/PID/{maps,smaps,pagemap}, and a reader of lines |
//! | [`userfault`] | userfaultfd(2) and the search for resident pages |
//! | [`lists`], [`thp`] | lists of CPUs and nodes; the setting of transparent huge pages |
//! | [`cgroup`], [`meminfo`], [`zoneinfo`] | available memory of the process, the machine and its nodes |
//! | [`statm`], [`own_stat`], [`overcommit`] | memory and state of this process; what is never mapped |
//! | [`held_file`], [`threads`] | files that are read while threads of the program run; the ids of these |
//! | [`input_file`], [`output_file`] | files that are read up to a limit and replaced as a whole |
//! | [`terminal`] | text that a terminal may be given |

pub mod affinity;
pub mod cgroup;
pub mod clock;
pub mod errno;
pub mod futex;
pub mod held_file;
pub mod input_file;
pub mod lines;
pub mod lists;
pub mod mappings;
pub mod maps;
pub mod meminfo;
pub mod output_file;
pub mod overcommit;
pub mod own_stat;
pub mod pagemap;
pub mod pages;
pub mod policy;
pub mod smaps;
pub mod statm;
pub mod sys;
pub mod terminal;
pub mod thp;
pub mod threads;
pub mod userfault;
pub mod window;
pub mod zoneinfo;

/// A mask with the bits of `numbers`; numbers that the mask cannot hold are left out.
fn mask_of<const WORDS: usize>(numbers: &[u32]) -> [u64; WORDS] {
    let mut mask = [0; WORDS];
    for &number in numbers {
        if let Some(word) = mask.get_mut(number as usize / 64) {
            *word |= 1 << (number % 64);
        }
    }
    mask
}

/// The result of a system call that returns 0 on success: `Err(errno)` otherwise.
fn result(rc: i64) -> Result<(), core::ffi::c_int> {
    if rc == 0 { Ok(()) } else { Err(errno::get()) }
}
