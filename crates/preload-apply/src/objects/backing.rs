//! The kind of memory that a mapping has, which decides whether and in which units it can be placed.
//!
//! Private anonymous memory takes the policy of its range. Shared memory (tmpfs: shared anonymous mappings, shm_open,
//! memfd_create, shmat) takes the policy of the object, which holds for every process that maps it. hugetlb pages come
//! whole. Files on disk live in the page cache, where no policy reaches them.

use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};

use numamma_hook::{allocating, own_stack};
use numamma_kernel::sys::PAGE;
use numamma_kernel::{meminfo, smaps};

/// The default huge page of x86_64, when /proc/meminfo does not say.
const DEFAULT_HUGE: usize = 2 << 20;

/// Kinds of memory that can be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Private anonymous memory of base pages.
    Private,
    /// Memory of tmpfs, shared.
    Shared,
    /// hugetlb pages, private or shared.
    Huge,
    /// Private anonymous memory that cannot be written yet: address space reserved for later.
    Reserved,
}

/// The kind of memory of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    pub kind: Kind,
    /// Logarithm of the page size in bytes.
    pub shift: u32,
    /// Pages may exist already.
    pub resident: bool,
    /// Of a heap object: the program may have changed the mapping, see [`super::released::changing`].
    pub changed: bool,
    /// Of a heap object: how much of it the program is expected to touch.
    pub touched: Touched,
}

/// How much of a heap object the program is expected to touch, and what its pages in memory tell when it is freed, see
/// `released/touched.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched(u8);

/// What the pages in memory of an object tell when it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Nothing: some may have been in memory before the program touched it.
    Any = 0,
    /// What was touched of it: none was in memory before.
    New = 1,
    /// Whether the same pages were touched as of the one before: those of that one were in memory.
    Again = 2,
    /// Nothing, although none was in memory before: enough of its size are looked at.
    Lost = 3,
}

impl Touched {
    pub const PARTS: u8 = 63;
    /// All pages, as far as is known.
    pub const ALL: Touched = Touched(Touched::PARTS);
    /// Where [`Pages`] is.
    const SHIFT: u32 = 6;

    /// `parts` of [`Touched::PARTS`] parts.
    pub fn part(parts: u8) -> Touched {
        Touched(parts.min(Touched::PARTS))
    }

    pub fn with(self, pages: Pages) -> Touched {
        Touched(self.parts() | (pages as u8) << Touched::SHIFT)
    }

    pub fn pages(self) -> Pages {
        match self.0 >> Touched::SHIFT {
            1 => Pages::New,
            2 => Pages::Again,
            3 => Pages::Lost,
            _ => Pages::Any,
        }
    }

    fn parts(self) -> u8 {
        self.0 & Touched::PARTS
    }

    /// Whether all pages are touched.
    pub fn is_all(self) -> bool {
        self.parts() == Touched::PARTS
    }

    /// The part of `bytes` that is touched.
    pub fn of(self, bytes: usize) -> usize {
        if self.is_all() { bytes } else { bytes / usize::from(Touched::PARTS) * usize::from(self.parts()) }
    }

    /// It as eight bits, for [`Touched::from_bits`].
    pub fn bits(self) -> u8 {
        self.0
    }

    pub fn from_bits(bits: u8) -> Touched {
        Touched(bits)
    }
}

impl Backing {
    /// Private anonymous memory without any page yet.
    pub const PRIVATE: Backing = Backing {
        kind: Kind::Private,
        shift: PAGE.trailing_zeros(),
        resident: false,
        changed: false,
        touched: Touched::ALL,
    };

    /// Bytes of a page.
    pub fn unit(self) -> usize {
        1 << self.shift
    }

    /// The backing of a mapping made with these arguments of mmap(2); the error says why it cannot be placed.
    pub fn of_mmap(prot: c_int, flags: c_int, fd: c_int) -> Result<Backing, &'static str> {
        if flags & libc::MAP_GROWSDOWN != 0 {
            return Err("a mapping that grows down is left alone");
        }
        let filled = flags & (libc::MAP_POPULATE | libc::MAP_LOCKED) != 0;
        let shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
        if flags & libc::MAP_ANONYMOUS == 0 {
            return Backing::of_file(fd, shared, filled);
        }
        if flags & libc::MAP_HUGETLB != 0 {
            let shift = match (flags >> libc::MAP_HUGE_SHIFT) & libc::MAP_HUGE_MASK {
                0 => default_huge().trailing_zeros(),
                shift => shift as u32,
            };
            return Ok(Backing { kind: Kind::Huge, shift, resident: filled, ..Backing::PRIVATE });
        }
        let kind = match (shared, prot & libc::PROT_WRITE != 0) {
            (true, _) => Kind::Shared,
            (false, true) => Kind::Private,
            (false, false) => Kind::Reserved,
        };
        Ok(Backing { kind, resident: filled, ..Backing::PRIVATE })
    }

    fn of_file(fd: c_int, shared: bool, filled: bool) -> Result<Backing, &'static str> {
        // SAFETY: all-zero structures are valid, and the kernel fills them; a bad descriptor is an error.
        let (stat, fs) = unsafe {
            let (mut stat, mut fs): (libc::stat, libc::statfs) = (core::mem::zeroed(), core::mem::zeroed());
            if libc::syscall(libc::SYS_fstat, fd, &raw mut stat) != 0
                || libc::syscall(libc::SYS_fstatfs, fd, &raw mut fs) != 0
            {
                return Err("its file cannot be looked at");
            }
            (stat, fs)
        };
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err("a mapping of a device is left alone");
        }
        let resident = filled || stat.st_blocks > 0;
        match fs.f_type {
            libc::HUGETLBFS_MAGIC if (fs.f_bsize as u64).is_power_of_two() => {
                let shift = (fs.f_bsize as u64).trailing_zeros();
                Ok(Backing { kind: Kind::Huge, shift, resident, ..Backing::PRIVATE })
            }
            libc::TMPFS_MAGIC if shared => Ok(Backing { kind: Kind::Shared, resident, ..Backing::PRIVATE }),
            libc::TMPFS_MAGIC => Err("a private mapping of shared memory is left alone"),
            _ => Err("a mapping of a file on disk stays in the page cache, where no policy reaches it"),
        }
    }

    /// System V shared memory attached at `address`. Its pages may be huge, which only smaps shows.
    pub fn of_shmat(address: usize) -> Backing {
        let shift = kernel_page(address).unwrap_or(PAGE).trailing_zeros();
        let kind = if shift > Backing::PRIVATE.shift { Kind::Huge } else { Kind::Shared };
        Backing { kind, shift, resident: true, ..Backing::PRIVATE }
    }

    /// The backing of a mapping of the program as one word for [`Backing::unpack`].
    pub fn pack(self) -> usize {
        (self.shift as usize) << 4 | usize::from(self.resident) << 2 | self.kind as usize
    }

    /// See [`Backing::pack`].
    pub fn unpack(word: usize) -> Backing {
        let kind = match word & 3 {
            0 => Kind::Private,
            1 => Kind::Shared,
            2 => Kind::Huge,
            _ => Kind::Reserved,
        };
        Backing { kind, shift: (word >> 4) as u32 & 63, resident: word & 4 != 0, ..Backing::PRIVATE }
    }
}

/// Bytes of the system's default huge page.
fn default_huge() -> usize {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    let known = KNOWN.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let read = || meminfo::field(&meminfo::read(), "Hugepagesize:").map(|bytes| bytes as usize);
    let Some(found) = allocating::run(read) else { return DEFAULT_HUGE };
    let found = found.filter(|b| b.is_power_of_two()).unwrap_or(DEFAULT_HUGE);
    KNOWN.store(found, Ordering::Relaxed);
    found
}

/// Bytes of the pages of the mapping that holds `address`, by /proc/self/smaps.
fn kernel_page(address: usize) -> Option<usize> {
    let find = || {
        let mut found = None;
        smaps::for_each_own(|m| {
            found = Some(m).filter(|m| (m.start..m.end).contains(&address));
            found.is_none()
        });
        found
    };
    own_stack::run(find).flatten().map(|m| m.page_bytes).filter(|bytes| bytes.is_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn kinds_of_memory_by_arguments_of_mmap() {
        let of_mmap = |flags, fd| Backing::of_mmap(libc::PROT_READ | libc::PROT_WRITE, flags, fd);
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        assert_eq!(of_mmap(anonymous, -1), Ok(Backing::PRIVATE));
        assert_eq!(Backing::of_mmap(libc::PROT_NONE, anonymous, -1).map(|b| b.kind), Ok(Kind::Reserved));
        let shared = of_mmap(libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1).unwrap();
        assert_eq!((shared.kind, shared.unit(), shared.resident), (Kind::Shared, PAGE, false));
        let huge = of_mmap(anonymous | libc::MAP_HUGETLB | 30 << libc::MAP_HUGE_SHIFT, -1).unwrap();
        assert_eq!((huge.kind, huge.unit()), (Kind::Huge, 1 << 30));
        assert_eq!(of_mmap(anonymous | libc::MAP_HUGETLB, -1).unwrap().unit(), default_huge());
        // SAFETY: a name that ends in NUL.
        let fd = unsafe { libc::memfd_create(c"numamma-test".as_ptr(), 0) };
        assert_eq!(of_mmap(libc::MAP_SHARED, fd).map(|b| b.kind), Ok(Kind::Shared));
        assert!(of_mmap(libc::MAP_PRIVATE, fd).is_err());
        // SAFETY: the descriptor was opened above.
        unsafe { libc::close(fd) };
        let zero = std::fs::File::open("/dev/zero").unwrap();
        assert!(of_mmap(libc::MAP_SHARED, zero.as_raw_fd()).unwrap_err().contains("device"));
        let exe = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(of_mmap(libc::MAP_PRIVATE, exe.as_raw_fd()).unwrap_err().contains("page cache"));
        assert!(of_mmap(libc::MAP_SHARED, -1).is_err());
    }

    #[test]
    fn pages_of_a_mapping_and_words() {
        let local = 0_u8;
        assert_eq!(kernel_page(&raw const local as usize), Some(PAGE));
        assert_eq!(kernel_page(0), None);
        for backing in [Backing::PRIVATE, Backing { kind: Kind::Huge, shift: 30, resident: true, ..Backing::PRIVATE }] {
            assert_eq!(Backing::unpack(backing.pack()), backing);
        }
    }
}
