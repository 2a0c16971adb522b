//! The memory behind a channel, on the recorder's side: a sealed memfd whose pages are allocated before the program
//! may write to them.
//!
//! A store to a page of shared memory for which the kernel has no memory is SIGBUS. The recorder therefore allocates
//! the pages (fallocate) before it grants them, and stops when the limit, the machine or a control group has no more.
//! The seals keep everyone from cutting the file short under the program.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Relaxed, Release};

use numamma_kernel::cgroup;

use crate::layout::{
    self, CHUNK_BYTES, Frames, Header, MAX_CHUNKS, Map, POOL_AT, Pool, Record, SLOTS, STACKS, STACKS_AT, VERSION,
};

/// Chunks granted at the start: 8 MiB, enough for two thousand threads that start at once, or for a quarter of a second
/// of a million events a second.
const FIRST_CHUNKS: u32 = 2048;
/// Call stacks granted at a time: 2 MiB.
const STACKS_STEP: u32 = 16384;
/// Memory that a control group must have left after a grant, as a multiple of the grant: the program needs it more.
const LEFT_FOR_PROGRAM: u64 = 8;

/// The file and its mapping.
#[derive(Debug)]
pub struct Memory {
    fd: OwnedFd,
    inode: u64,
    base: NonNull<u8>,
    /// Bytes of the file.
    size: usize,
    /// Chunks that the file has room for.
    chunks: u32,
    granted: u32,
    stacks: u32,
    /// The kernel refused memory: it is not asked again.
    refused: bool,
}

// SAFETY: the mapping is this object's until it is dropped; no field belongs to a thread.
unsafe impl Send for Memory {}

/// The chunks in the recorder's mapping.
#[derive(Debug, Clone, Copy)]
pub struct Mapped {
    first: NonNull<u8>,
    chunks: u32,
}

// SAFETY: an address; what it points to is only accessed through raw pointers.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Pool for Mapped {
    #[inline(always)]
    fn chunk(self, index: u32) -> Option<NonNull<Record>> {
        // SAFETY: the mapping has `chunks` chunks.
        (index < self.chunks).then(|| unsafe { self.first.add(index as usize * CHUNK_BYTES).cast() })
    }
}

impl Memory {
    /// A new channel without granted chunks, whose pool has at most `pool` bytes.
    ///
    /// # Errors
    /// The message says what the kernel refused.
    pub fn create(pool: usize, clock: u32, follow: bool) -> io::Result<Memory> {
        let chunks = (pool / CHUNK_BYTES).clamp(1, MAX_CHUNKS);
        let size = POOL_AT + chunks * CHUNK_BYTES;
        let fd = create_memfd(size)?;
        let base = map_memfd(&fd, size)?;
        let inode = inode(&fd)?;
        let mut memory = Memory { fd, inode, base, size, chunks: chunks as u32, granted: 0, stacks: 0, refused: false };
        memory.allocate(0, STACKS_AT).map_err(|refusal| refusal.of_channel(STACKS_AT as u64))?;
        let header = base.cast::<Header>().as_ptr();
        // SAFETY: no other process has opened the channel yet; the first page is writable.
        unsafe {
            (*header).magic = layout::MAGIC;
            (*header).version = VERSION;
            (*header).clock = clock;
            (*header).follow = u32::from(follow);
            (*header).recorder_pid = std::process::id();
            (*header).nonce = nonce();
        }
        let map = memory.map();
        map.header().next_stack.store(1, Release); // id 0 means "not recorded"
        for slot in 0..SLOTS {
            map.slot(slot).claim.store(u64::MAX, Relaxed);
        }
        Ok(memory)
    }

    /// The part before the pool.
    pub fn map(&self) -> Map {
        // SAFETY: the mapping is longer than POOL_AT and lives as long as `self`, which outlives what the channel does
        // with the copy.
        unsafe { Map::new(self.base.as_ptr()) }
    }

    /// The chunks.
    pub fn pool(&self) -> Mapped {
        // SAFETY: the mapping reaches beyond POOL_AT.
        Mapped { first: unsafe { self.base.add(POOL_AT) }, chunks: self.chunks }
    }

    /// The file.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Its inode number.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Chunks that the program may use.
    pub fn granted(&self) -> u32 {
        self.granted
    }

    /// Ids of call stacks that may exist.
    pub fn stacks(&self) -> u32 {
        self.stacks
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> u64 {
        (STACKS_AT + self.stacks as usize * size_of::<Frames>() + self.granted as usize * CHUNK_BYTES) as u64
    }

    /// Grants more chunks and call stacks when few are left, within the limit. `free`: chunks that were free before the
    /// last ones were read.
    pub fn top_up(&mut self, free: u32) {
        let map = self.map();
        let header = map.header();
        let next = header.next_stack.load(Relaxed);
        if next.saturating_add(STACKS_STEP / 2) > self.stacks && (self.stacks as usize) < STACKS {
            let more = STACKS_STEP.min(STACKS as u32 - self.stacks);
            let at = STACKS_AT + self.stacks as usize * size_of::<Frames>();
            if self.allocate(at, more as usize * size_of::<Frames>()).is_ok() {
                self.stacks += more;
                header.stacks_granted.store(self.stacks, Release);
            }
        }
        // One thread alone gets three eighths of all chunks.
        if free <= self.granted / 4 * 3 && self.granted < self.chunks {
            let more = self.granted.max(FIRST_CHUNKS).min(self.chunks - self.granted);
            if self.allocate(POOL_AT + self.granted as usize * CHUNK_BYTES, more as usize * CHUNK_BYTES).is_ok() {
                let new = self.granted..self.granted + more;
                self.granted += more;
                header.granted.store(self.granted, Relaxed);
                // Downwards, so that the lowest one is taken first.
                new.rev().for_each(|chunk| map.put_chunk(chunk));
            }
        }
    }

    /// Allocates pages of the file.
    fn allocate(&mut self, offset: usize, len: usize) -> Result<(), Refusal> {
        if self.refused {
            return Err(Refusal::Kernel(io::ErrorKind::OutOfMemory.into()));
        }
        if let Some(left) = cgroup::within_limits().filter(|left| *left < len as u64 * LEFT_FOR_PROGRAM) {
            return Err(Refusal::Group { left });
        }
        loop {
            // SAFETY: a system call on this object's descriptor.
            let rc = unsafe { libc::fallocate(self.fd.as_raw_fd(), 0, offset as libc::off_t, len as libc::off_t) };
            if rc == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            // A forwarded signal interrupts the call, which then gives back what it had.
            if error.raw_os_error() != Some(libc::EINTR) {
                self.refused = true;
                return Err(Refusal::Kernel(error));
            }
        }
    }
}

/// Why no pages were allocated.
#[derive(Debug)]
enum Refusal {
    /// The kernel refused these, or others before.
    Kernel(io::Error),
    /// A control group has too few bytes left for them and [`LEFT_FOR_PROGRAM`].
    Group { left: u64 },
}

impl Refusal {
    /// The error of a channel that cannot begin without `bytes`.
    fn of_channel(self, bytes: u64) -> io::Error {
        match self {
            Refusal::Kernel(error) => explain("allocate shared memory", &error),
            Refusal::Group { left } => {
                let (bytes, needed) = (bytes.div_ceil(MIB), (bytes * LEFT_FOR_PROGRAM).div_ceil(MIB));
                let message = format!(
                    "the memory limit of the control group is too small: {} MiB are left, and a recording begins with \
                     {needed} MiB, of which it takes {bytes} for the channel to the program; raise the limit (memory.max, \
                     or the container's memory), or attach to the program while it runs (-p PID), which takes no channel",
                    left / MIB
                );
                io::Error::new(io::ErrorKind::OutOfMemory, message)
            }
        }
    }
}

const MIB: u64 = 1 << 20;

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this object made the mapping, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size) };
    }
}

/// A number that no other channel has.
pub(crate) fn nonce() -> [u64; 2] {
    let mut nonce = [0_u64; 2];
    // SAFETY: the array is writable for its size. Without random numbers (a seccomp filter) the clock is used.
    let got = unsafe { libc::getrandom(nonce.as_mut_ptr().cast(), size_of_val(&nonce), libc::GRND_NONBLOCK) };
    if got != size_of_val(&nonce) as isize {
        nonce = [numamma_kernel::clock::monotonic_ns(), u64::from(std::process::id())];
    }
    nonce
}

pub(crate) fn explain_last(what: &str) -> io::Error {
    explain(what, &io::Error::last_os_error())
}

fn explain(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} for the channel to the program: {error}"))
}

pub(crate) fn create_memfd(size: usize) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Where vm.memfd_noexec = 2 the kernel wants to be told that nothing in it is executed; before 6.3 it does not know
    // the flag.
    let fd = [flags | libc::MFD_NOEXEC_SEAL, flags].into_iter().map(|flags| {
        // SAFETY: the name is a C string; the result is checked.
        unsafe { libc::memfd_create(c"numamma-channel".as_ptr(), flags) }
    });
    let Some(fd) = fd.into_iter().find(|fd| *fd >= 0) else {
        return Err(explain_last("create shared memory (memfd_create)"));
    };
    // SAFETY: the descriptor is new and has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: a system call on the descriptor just created.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), size as libc::off_t) } != 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::EFBIG) {
            // The file size limit counts the whole file, although most of it is never allocated.
            let message = format!(
                "the file size limit is too small for the channel to the program, {} KiB; raise it to that or more \
                 (bash: ulimit -f {0})",
                size.div_ceil(1024)
            );
            return Err(io::Error::new(error.kind(), message));
        }
        return Err(explain("size the shared memory", &error));
    }
    // SAFETY: as above.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
        return Err(explain_last("seal the shared memory"));
    }
    Ok(fd)
}

/// The seals of a channel: nobody changes its size, or its seals.
pub const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

pub(crate) fn inode(fd: &OwnedFd) -> io::Result<u64> {
    // SAFETY: all-zero is a valid stat, and it is a live local.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    match unsafe { libc::fstat(fd.as_raw_fd(), &raw mut stat) } {
        0 => Ok(stat.st_ino),
        _ => Err(explain_last("find the inode of the shared memory")),
    }
}

pub(crate) fn map_memfd(fd: &OwnedFd, size: usize) -> io::Result<NonNull<u8>> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), size, prot, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return Err(explain_last("map the shared memory (is the address space limited, ulimit -v?)"));
    }
    NonNull::new(base.cast()).ok_or_else(|| explain_last("map the shared memory"))
}
