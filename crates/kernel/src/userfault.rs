//! userfaultfd(2) as far as the `fault` sampler needs it: pages are moved out of a range and, when a thread touches
//! them, moved back. Numbers and structures are those of include/uapi/linux/userfaultfd.h and fs.h.
//!
//! The descriptor serves the memory of the process that made it (a child's after an [`Message::Fork`]). UFFDIO_MOVE
//! works on that process's own memory only, so the server is a thread of the process.

use core::ffi::{CStr, c_int, c_long, c_ulong, c_void};

use crate::{errno, sys};

const API: u64 = 0xaa;
const FEATURE_WP: u64 = 1 << 0;
const FEATURE_FORK: u64 = 1 << 1;
const FEATURE_REMAP: u64 = 1 << 2;
const FEATURE_REMOVE: u64 = 1 << 3;
const FEATURE_UNMAP: u64 = 1 << 6;
const FEATURE_THREAD_ID: u64 = 1 << 8;
const FEATURE_EXACT_ADDRESS: u64 = 1 << 11;
const FEATURE_MOVE: u64 = 1 << 16;
/// What the kernel must offer; the events tell of every change of the address space that concerns moved pages.
const FEATURES: u64 = FEATURE_WP
    | FEATURE_FORK
    | FEATURE_REMAP
    | FEATURE_REMOVE
    | FEATURE_UNMAP
    | FEATURE_THREAD_ID
    | FEATURE_EXACT_ADDRESS
    | FEATURE_MOVE;

const MODE_MISSING: u64 = 1 << 0;
const MODE_WP: u64 = 1 << 1;
const DONT_WAKE: u64 = 1 << 0;
const ALLOW_SOURCE_HOLES: u64 = 1 << 1;
const PROTECT: u64 = 1 << 0;

const FLAG_WRITE: u64 = 1 << 0;
const FLAG_PROTECTED: u64 = 1 << 1;

const READ: c_ulong = 2;
const WRITE_READ: c_ulong = 3;

/// `_IOC` of include/uapi/asm-generic/ioctl.h.
const fn request(direction: c_ulong, kind: u8, number: c_ulong, bytes: usize) -> c_ulong {
    direction << 30 | (bytes as c_ulong) << 16 | (kind as c_ulong) << 8 | number
}

const NEW: c_ulong = request(0, 0xaa, 0, 0);
const HANDSHAKE: c_ulong = request(WRITE_READ, 0xaa, 0x3f, 24);
const REGISTER: c_ulong = request(WRITE_READ, 0xaa, 0x00, 32);
const WAKE: c_ulong = request(READ, 0xaa, 0x02, 16);
const COPY: c_ulong = request(WRITE_READ, 0xaa, 0x03, 40);
const ZERO_PAGE: c_ulong = request(WRITE_READ, 0xaa, 0x04, 32);
const MOVE: c_ulong = request(WRITE_READ, 0xaa, 0x05, 40);
const WRITE_PROTECT: c_ulong = request(WRITE_READ, 0xaa, 0x06, 24);
const PAGEMAP_SCAN: c_ulong = request(WRITE_READ, b'f', 16, 96);

/// Why no descriptor can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel has no userfaultfd (ENOSYS).
    Absent,
    /// It has one without UFFDIO_MOVE (before Linux 6.8) or without one of the events.
    TooOld,
    /// CAP_SYS_PTRACE is missing, or a filter of system calls forbids it.
    NotPermitted,
    /// Another error.
    Other(c_int),
}

/// An open descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Userfault(c_int);

/// What the kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// A thread touched a page that is not there, or wrote to a protected one. It waits.
    Fault {
        /// The exact address.
        addr: usize,
        /// The thread, in its own process namespace.
        tid: u32,
        /// Whether it writes.
        write: bool,
        /// Whether the page is there and protected.
        protected: bool,
    },
    /// The process forked; the descriptor serves the child's memory.
    Fork(Userfault),
    /// `len` bytes went from one address to another.
    Remap {
        /// Old address.
        from: usize,
        /// New address.
        to: usize,
        /// Bytes.
        len: usize,
    },
    /// The contents of `start..end` are about to be discarded (madvise).
    Discard {
        /// First byte.
        start: usize,
        /// One past the last byte.
        end: usize,
    },
    /// The range `start..end` was unmapped. Other memory may be there by now, whose event may have come before.
    Unmapped {
        /// First byte.
        start: usize,
        /// One past the last byte.
        end: usize,
    },
    /// An event that was not asked for.
    Unknown,
}

/// `struct uffd_msg`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Raw {
    event: u8,
    reserved: [u8; 7],
    words: [u64; 3],
}

const _: () = assert!(size_of::<Raw>() == 32);

/// Messages read at once.
const MESSAGES: usize = 16;

/// Messages that were read.
pub struct Messages {
    raw: [Raw; MESSAGES],
    len: usize,
}

impl Messages {
    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = Message> + '_ {
        self.raw.iter().take(self.len).map(decode)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether more may wait: as many as fit were read.
    pub fn is_full(&self) -> bool {
        self.len == MESSAGES
    }
}

fn decode(raw: &Raw) -> Message {
    let [first, second, third] = raw.words;
    match raw.event {
        0x12 => Message::Fault {
            addr: second as usize,
            tid: third as u32,
            write: first & (FLAG_WRITE | FLAG_PROTECTED) != 0,
            protected: first & FLAG_PROTECTED != 0,
        },
        0x13 => Message::Fork(Userfault(first as u32 as c_int)),
        0x14 => Message::Remap { from: first as usize, to: second as usize, len: third as usize },
        0x15 => Message::Discard { start: first as usize, end: second as usize },
        0x16 => Message::Unmapped { start: first as usize, end: second as usize },
        _ => Message::Unknown,
    }
}

/// How far a call came: bytes done, and the error that stopped it.
pub type Progress = (usize, Option<c_int>);

impl Userfault {
    /// A descriptor of this process that also serves the kernel's accesses (system calls), non-blocking and
    /// close-on-exec.
    ///
    /// # Errors
    /// What is missing.
    pub fn open() -> Result<Userfault, Refusal> {
        let flags = c_long::from(libc::O_CLOEXEC | libc::O_NONBLOCK);
        // SAFETY: a system call without pointers.
        let mut fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) } as c_int;
        if fd < 0 {
            let first = errno::get();
            fd = through_device(flags).ok_or(match first {
                libc::ENOSYS => Refusal::Absent,
                libc::EPERM => Refusal::NotPermitted,
                other => Refusal::Other(other),
            })?;
        }
        let this = Userfault(fd);
        let mut api = [API, FEATURES, 0];
        if this.call(HANDSHAKE, &mut api) {
            return Ok(this);
        }
        let error = errno::get();
        this.close();
        Err(match error {
            // Events of forks take CAP_SYS_PTRACE.
            libc::EPERM => Refusal::NotPermitted,
            libc::EINVAL => Refusal::TooOld,
            other => Refusal::Other(other),
        })
    }

    /// The number of the descriptor.
    pub fn fd(self) -> c_int {
        self.0
    }

    /// Ends its service: no range is registered any more, and all threads that wait try again.
    pub fn close(self) {
        sys::close(self.0);
    }

    fn call<T>(self, number: c_ulong, argument: &mut T) -> bool {
        let pointer: *mut c_void = (argument as *mut T).cast();
        // SAFETY: each caller passes the structure that the request takes.
        unsafe { libc::syscall(libc::SYS_ioctl, c_long::from(self.0), number, pointer) == 0 }
    }

    /// Serves missing pages, and with `writes` also writes to protected ones, in a range of private anonymous memory.
    pub fn register(self, start: usize, len: usize, writes: bool) -> bool {
        let mode = if writes { MODE_MISSING | MODE_WP } else { MODE_MISSING };
        self.call(REGISTER, &mut [start as u64, len as u64, mode, 0])
    }

    /// Moves the pages of a range; pages that are not there are skipped. Both ranges are of this process and have no
    /// other pages where the pages go.
    pub fn move_pages(self, to: usize, from: usize, len: usize, wake: bool) -> Progress {
        let mode = ALLOW_SOURCE_HOLES | if wake { 0 } else { DONT_WAKE };
        self.counted(MOVE, &mut [to as u64, from as u64, len as u64, mode, 0], 4)
    }

    /// Copies a page from this process's memory to where none is.
    pub fn copy(self, to: usize, from: usize) -> Progress {
        self.counted(COPY, &mut [to as u64, from as u64, sys::PAGE as u64, 0, 0], 4)
    }

    /// Puts a page of zeros where none is.
    pub fn zero(self, page: usize, wake: bool) -> Progress {
        let mode = if wake { 0 } else { DONT_WAKE };
        self.counted(ZERO_PAGE, &mut [page as u64, sys::PAGE as u64, mode, 0], 3)
    }

    /// Makes the kernel tell of the next write to each page of a range, or not any more; in that case alone
    /// threads that wait go on.
    pub fn protect(self, start: usize, len: usize, on: bool) -> bool {
        let mode = if on { PROTECT } else { 0 };
        self.call(WRITE_PROTECT, &mut [start as u64, len as u64, mode])
    }

    /// Threads that wait for pages of the range try again.
    pub fn wake(self, start: usize, len: usize) -> bool {
        self.call(WAKE, &mut [start as u64, len as u64])
    }

    fn counted<const N: usize>(self, number: c_ulong, words: &mut [u64; N], result: usize) -> Progress {
        let done = self.call(number, words);
        let bytes = words.get(result).map_or(0, |bytes| (*bytes as i64).max(0)) as usize;
        (bytes, (!done).then(errno::get))
    }

    /// The messages that wait, faults first.
    pub fn read(self) -> Messages {
        let mut messages = Messages { raw: [Raw::default(); MESSAGES], len: 0 };
        // SAFETY: the array is writable for its length.
        let bytes = unsafe {
            libc::syscall(
                libc::SYS_read,
                c_long::from(self.0),
                messages.raw.as_mut_ptr(),
                size_of_val(&messages.raw) as c_long,
            )
        };
        messages.len = usize::try_from(bytes).unwrap_or(0) / size_of::<Raw>();
        messages
    }
}

/// A descriptor from /dev/userfaultfd, which the owner of the file may give to others.
fn through_device(flags: c_long) -> Option<c_int> {
    const PATH: &CStr = c"/dev/userfaultfd";
    let device = sys::open(PATH, libc::O_RDWR)?;
    // SAFETY: the request takes the flags as its argument.
    let fd = unsafe { libc::syscall(libc::SYS_ioctl, c_long::from(device), NEW, flags) };
    sys::close(device);
    (fd >= 0).then_some(fd as c_int)
}

/// Pages of one kind that follow each other.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    categories: u64,
}

const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO: u64 = 1 << 5;
const HUGE: u64 = 1 << 6;

impl Run {
    /// Small pages in it.
    pub fn pages(&self) -> u64 {
        (self.end - self.start) / sys::PAGE as u64
    }

    /// Whether they are transparent huge pages.
    pub fn is_huge(&self) -> bool {
        self.categories & HUGE != 0
    }
}

/// `struct pm_scan_arg`.
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    runs: u64,
    runs_len: u64,
    max_pages: u64,
    inverted: u64,
    mask: u64,
    any_of: u64,
    returned: u64,
}

const _: () = assert!(size_of::<Scan>() == 96);

impl Scan {
    fn of(start: usize, end: usize, runs: &mut [Run]) -> Scan {
        Scan {
            size: size_of::<Scan>() as u64,
            flags: 0,
            start: start as u64,
            end: end as u64,
            walk_end: 0,
            runs: runs.as_mut_ptr() as u64,
            runs_len: runs.len() as u64,
            max_pages: 0,
            inverted: 0,
            mask: 0,
            any_of: 0,
            returned: PRESENT | HUGE,
        }
    }

    /// Number of runs found; they live as long as the caller's, who still has them.
    fn search(&mut self, pagemap: c_int) -> Option<usize> {
        // SAFETY: the structure is writable, and the array that it names for its length: each caller holds it.
        let found = unsafe { libc::syscall(libc::SYS_ioctl, c_long::from(pagemap), PAGEMAP_SCAN, &raw mut *self) };
        usize::try_from(found).ok()
    }
}

/// Finds the pages of `start..end` that are in memory and not the page of zeros, with the open /proc/self/pagemap;
/// returns the number of runs and where the search stopped. Since Linux 6.7.
pub fn present_runs(pagemap: c_int, start: usize, end: usize, runs: &mut [Run]) -> Option<(usize, usize)> {
    let mut scan = Scan { inverted: ZERO, mask: PRESENT | ZERO, ..Scan::of(start, end, runs) };
    let found = scan.search(pagemap)?;
    Some((found, scan.walk_end as usize))
}

/// Whether a page has contents, in memory or swapped out, with the open /proc/self/pagemap.
pub fn has_page(pagemap: c_int, page: usize) -> bool {
    let mut run = Run::default();
    let mut scan = Scan::of(page, page + sys::PAGE, core::slice::from_mut(&mut run));
    scan.any_of = PRESENT | SWAPPED;
    scan.search(pagemap) == Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_header() {
        assert_eq!(HANDSHAKE, 0xc018_aa3f);
        assert_eq!(REGISTER, 0xc020_aa00);
        assert_eq!(MOVE, 0xc028_aa05);
        assert_eq!(PAGEMAP_SCAN, 0xc060_6610);
    }

    #[test]
    fn messages_are_decoded() {
        let raw = |event, words| Raw { event, reserved: [0; 7], words };
        let fault = Message::Fault { addr: 0x1234, tid: 7, write: false, protected: false };
        assert_eq!(decode(&raw(0x12, [0, 0x1234, 7])), fault);
        let write = Message::Fault { addr: 0x1234, tid: 7, write: true, protected: true };
        assert_eq!(decode(&raw(0x12, [2, 0x1234, 7])), write);
        assert_eq!(decode(&raw(0x14, [1, 2, 3])), Message::Remap { from: 1, to: 2, len: 3 });
        assert_eq!(decode(&raw(0x16, [1, 2, 0])), Message::Unmapped { start: 1, end: 2 });
    }
}
