//! Small files of /proc and /sys that are read again and again while the program's threads run, held open.
//!
//! A file that is opened gets the lowest descriptor that is free. Where another thread closes a descriptor and opens
//! something else in its place, or closes all that it knows of, it would get or close that of this library instead. So
//! a file is opened only while the process has one thread, and its descriptor has a high number, at which nothing is
//! opened by chance. Before each use it is looked at: the program may have closed all descriptors.

use core::ffi::{CStr, c_int, c_long};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use crate::sys;

/// Numbers from which descriptors are held, tried one after the other: below 1,024, which is the usual limit, and the
/// first number that select(2) cannot watch.
const NUMBERS: [c_int; 3] = [960, 200, 50];
/// No descriptor.
const NONE: c_int = -1;

/// Tells processes apart that have memory of their own.
static GENERATION: OnceLock<fn() -> u32> = OnceLock::new();

/// Lets `generation` tell a forked child from its parent, whose files of /proc/self it has.
pub fn tell_processes_by(generation: fn() -> u32) {
    let _ = GENERATION.set(generation);
}

/// The number of this process, 0 before [`tell_processes_by`].
pub fn generation() -> u32 {
    GENERATION.get().map_or(0, |generation| generation())
}

/// Whose file it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The process's own: a forked child must open it again.
    Process,
    /// The machine's, or that of a group of processes.
    Many,
}

/// A file that is held open.
pub struct HeldFile {
    of: Of,
    fd: AtomicI32,
    /// In which process it was opened, see [`tell_processes_by`].
    generation: AtomicU32,
    /// What the descriptor must lead to.
    identity: AtomicU64,
}

impl HeldFile {
    /// A file that is not open yet.
    pub const fn new(of: Of) -> HeldFile {
        let (fd, generation, identity) = (AtomicI32::new(NONE), AtomicU32::new(0), AtomicU64::new(0));
        HeldFile { of, fd, generation, identity }
    }

    /// Opens the file at `path`, if that is not done and the process has one thread.
    pub fn hold(&self, path: &CStr) {
        let _ = self.held(path);
    }

    /// The beginning of the file at `path`, as much as fits into `text`; `None` when it is not open and cannot be
    /// opened now. Allocates nothing, changes errno.
    pub fn read<'a>(&self, path: &CStr, text: &'a mut [u8]) -> Option<&'a [u8]> {
        self.read_at(path, text, 0)
    }

    /// As [`HeldFile::read`], from byte `offset` on.
    pub fn read_at<'a>(&self, path: &CStr, text: &'a mut [u8], offset: u64) -> Option<&'a [u8]> {
        let fd = self.held(path)?;
        let len = sys::read_at(fd, text, offset)?;
        text.get(..len)
    }

    /// Its descriptor, if it is open or can be opened now; not to be closed.
    pub fn descriptor(&self, path: &CStr) -> Option<c_int> {
        self.held(path)
    }

    /// Whether it is open now.
    pub fn is_held(&self, path: &CStr) -> bool {
        self.held(path).is_some()
    }

    fn generation(&self) -> u32 {
        if self.of == Of::Many { 0 } else { generation() }
    }

    fn held(&self, path: &CStr) -> Option<c_int> {
        let fd = self.fd.load(Ordering::Relaxed);
        let is_own = fd != NONE && identity(fd) == Some(self.identity.load(Ordering::Relaxed));
        if is_own && self.generation.load(Ordering::Relaxed) == self.generation() {
            return Some(fd);
        }
        if sys::thread_count() != Some(1) {
            return None;
        }
        if is_own {
            sys::close(fd);
        }
        self.open(path)
    }

    /// Opens it, whatever threads there are.
    pub(crate) fn open(&self, path: &CStr) -> Option<c_int> {
        let opened = open(path);
        self.identity.store(opened.and_then(identity).unwrap_or(0), Ordering::Relaxed);
        self.generation.store(self.generation(), Ordering::Relaxed);
        self.fd.store(opened.unwrap_or(NONE), Ordering::Relaxed);
        opened
    }
}

/// Opens a file under a high number.
fn open(path: &CStr) -> Option<c_int> {
    let low = sys::open(path, libc::O_RDONLY)?;
    let high = NUMBERS.iter().find_map(|&least| sys::duplicate_from(low, least));
    sys::close(low);
    high
}

/// Device and inode of an open file.
fn identity(fd: c_int) -> Option<u64> {
    // SAFETY: an all-zero stat is valid, and fstat fills it.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `stat` is writable; a closed descriptor fails with EBADF.
    let done = unsafe { libc::syscall(libc::SYS_fstat, c_long::from(fd), &raw mut stat) } == 0;
    done.then(|| stat.st_dev.rotate_left(32) ^ stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a child of its own: the process of the tests has several threads.
    fn in_child(work: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child only makes system calls and ends.
        match unsafe { libc::fork() } {
            0 => {
                let code = i32::from(!work());
                // SAFETY: ends the child.
                unsafe { libc::_exit(code) }
            }
            child => {
                let mut status = 0;
                // SAFETY: `status` is writable.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                status == 0
            }
        }
    }

    const PATH: &CStr = c"/proc/self/statm";

    #[test]
    fn a_file_is_held_at_a_high_number_until_the_program_closes_it() {
        assert!(in_child(|| {
            let file = HeldFile::new(Of::Process);
            let mut text = [0; 160];
            let lowest = sys::open(c"/dev/null", libc::O_RDONLY).unwrap_or(0);
            sys::close(lowest);
            let is_read = file.read(PATH, &mut text).is_some_and(|text| text.len() > 10);
            let high = file.fd.load(Ordering::Relaxed);
            let next = sys::open(c"/dev/null", libc::O_RDONLY);
            sys::close(high);
            let is_read_again = file.read(PATH, &mut text).is_some();
            is_read && high >= 50 && next == Some(lowest) && is_read_again
        }));
    }

    #[test]
    fn another_file_at_its_number_is_not_read() {
        assert!(in_child(|| {
            let file = HeldFile::new(Of::Process);
            file.hold(PATH);
            let fd = file.fd.load(Ordering::Relaxed);
            sys::close(fd);
            let null = sys::open(c"/dev/null", libc::O_RDONLY).unwrap_or(0);
            // Its number is taken now, and stays so.
            let taken = sys::duplicate_from(null, fd) == Some(fd);
            let mut text = [0; 160];
            let found = file.read(PATH, &mut text).is_some_and(|text| text.len() > 10);
            taken && found && file.fd.load(Ordering::Relaxed) != fd && identity(fd) == identity(null)
        }));
    }

    #[test]
    fn a_process_with_threads_opens_nothing() {
        let (enter, leave) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| (enter.wait(), leave.wait()));
            enter.wait();
            let file = HeldFile::new(Of::Process);
            assert!(file.read(PATH, &mut [0; 160]).is_none());
            leave.wait();
        });
    }
}
