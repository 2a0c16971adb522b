//! Opens the channel that the environment names, if it still is that channel.
//!
//! The path leads through /proc to a descriptor of the recorder. A program that outlives its recorder (a daemon, a
//! shell that was left in the background) hands the variable on, and the process id may by then be another program's,
//! whose descriptor may be a pipe, a terminal or somebody's file. So the path is first opened with O_PATH, which
//! reaches no driver, takes nothing out of a pipe and never waits. Only a file of the right inode and size is opened
//! for reading, only one with the seals of a channel is read, and only one with the number from the environment is
//! mapped.
//!
//! No allocation, no locks; `errno` is the caller's to save.

use core::ffi::{CStr, c_int, c_long};

use numamma_kernel::sys;

use crate::layout::chunks_in;
use crate::memory::SEALS;
use crate::trace::layout::FILE_BYTES;
use crate::writer::ROLE_BYTES;

/// Bytes of the longest `/proc/<pid>/fd/<n>`, and its end.
const PATH_BYTES: usize = 40;
/// Bytes of the longest name of a channel: the path, an inode, two numbers and their separators.
pub const NAME_BYTES: usize = PATH_BYTES + 21 + 17 + 17;

/// What the environment says about the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    path: [u8; PATH_BYTES],
    inode: u64,
    /// The number in the channel's header.
    pub nonce: [u64; 2],
}

impl Name {
    /// Reads the value of [`crate::CHANNEL_ENV`]; `None` unless it has exactly the form that a recorder writes.
    pub fn parse(text: &[u8]) -> Option<Name> {
        let mut parts = text.split(|&b| b == b':');
        let path = parts.next()?;
        let inode = number(parts.next()?, 10)?;
        let nonce = [number(parts.next()?, 16)?, number(parts.next()?, 16)?];
        if parts.next().is_some() {
            return None;
        }
        let (pid, fd) = split_once(path.strip_prefix(b"/proc/")?, b"/fd/")?;
        number(pid, 10).and(number(fd, 10))?;
        let mut name = Name { path: [0; PATH_BYTES], inode, nonce };
        // The last byte stays 0.
        name.path.get_mut(..path.len()).filter(|_| path.len() < PATH_BYTES)?.copy_from_slice(path);
        Some(name)
    }

    /// Opens the channel for reading and writing; the caller closes it. `None` when there is another file, or none.
    pub fn open(&self) -> Option<Open> {
        self.open_sized(chunks_in)
    }

    /// The same for the memory of a trace.
    pub fn open_trace(&self) -> Option<Open> {
        self.open_sized(|bytes| (bytes == FILE_BYTES as u64).then_some(0))
    }

    fn open_sized(&self, chunks_in: impl Fn(u64) -> Option<usize>) -> Option<Open> {
        let found = sys::open(CStr::from_bytes_until_nul(&self.path).ok()?, libc::O_PATH)?;
        let chunks =
            inode_and_size(found).filter(|(inode, _)| *inode == self.inode).and_then(|(_, size)| chunks_in(size));
        // Through the descriptor: what is opened is the file that was looked at.
        let fd = chunks.and_then(|_| {
            let path = own_path(found);
            sys::open(CStr::from_bytes_until_nul(&path).ok()?, libc::O_RDWR | libc::O_NONBLOCK | libc::O_NOCTTY)
        });
        sys::close(found);
        let (fd, chunks) = (fd?, chunks?);
        let mut header = [0; ROLE_BYTES];
        if sealed(fd) && read_start(fd, &mut header) {
            return Some(Open { fd, chunks, header });
        }
        sys::close(fd);
        None
    }
}

/// An open file of the inode, size and seals of the channel. Whether it is the channel, [`crate::writer::role`] says.
#[derive(Debug, Clone, Copy)]
pub struct Open {
    /// The descriptor.
    pub fd: c_int,
    /// Chunks in the file; 0 of a trace.
    pub chunks: usize,
    /// Its first bytes.
    pub header: [u8; ROLE_BYTES],
}

fn split_once<'t>(text: &'t [u8], separator: &[u8]) -> Option<(&'t [u8], &'t [u8])> {
    let at = text.windows(separator.len()).position(|w| w == separator)?;
    Some((text.get(..at)?, text.get(at + separator.len()..)?))
}

/// A number without sign, blanks or prefix.
fn number(text: &[u8], radix: u32) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, &byte| {
        let digit = char::from(byte).to_digit(radix)?;
        sum.checked_mul(u64::from(radix))?.checked_add(u64::from(digit))
    })
}

/// `/proc/thread-self/fd/<fd>` as a C string: /proc/self shows no descriptors once the main thread has ended.
fn own_path(fd: c_int) -> [u8; PATH_BYTES] {
    const PREFIX: &[u8] = b"/proc/thread-self/fd/";
    let mut path = [0; PATH_BYTES];
    let (head, tail) = path.split_at_mut(PREFIX.len());
    head.copy_from_slice(PREFIX);
    let digits = fd.checked_ilog10().unwrap_or(0);
    let mut left = fd;
    for cell in tail.iter_mut().take(digits as usize + 1).rev() {
        *cell = b'0' + (left % 10) as u8;
        left /= 10;
    }
    path
}

/// Inode and size of a regular file.
fn inode_and_size(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: all-zero is a valid stat.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: on x86_64 the kernel's structure is libc's; it is a live local.
    let rc = unsafe { libc::syscall(libc::SYS_fstat, c_long::from(fd), &raw mut stat) };
    (rc == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG).then_some((stat.st_ino, stat.st_size as u64))
}

/// Whether nobody can change the size of the file; only shared memory has seals.
fn sealed(fd: c_int) -> bool {
    // SAFETY: a query about a descriptor.
    let seals = unsafe { libc::syscall(libc::SYS_fcntl, c_long::from(fd), c_long::from(libc::F_GET_SEALS)) };
    seals >= 0 && seals & c_long::from(SEALS) == c_long::from(SEALS)
}

fn read_start(fd: c_int, header: &mut [u8; ROLE_BYTES]) -> bool {
    // SAFETY: the array is writable for its length.
    let rc = unsafe {
        libc::syscall(libc::SYS_pread64, c_long::from(fd), header.as_mut_ptr(), ROLE_BYTES as c_long, 0 as c_long)
    };
    rc == ROLE_BYTES as c_long
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Channel;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    fn name_of(channel: &Channel) -> String {
        channel.env()[0].1.to_str().unwrap().to_owned()
    }

    #[test]
    fn only_the_exact_form_is_a_name() {
        let name = Name::parse(b"/proc/17/fd/3:99:ff:0").unwrap();
        assert_eq!((&name.path[..13], name.path[13], name.inode, name.nonce), (&b"/proc/17/fd/3"[..], 0, 99, [255, 0]));
        for text in [
            "",
            "/proc/17/fd/3",
            "/proc/17/fd/3:9:1",
            "/proc/17/fd/3:9:1:2:3",
            "/proc/17/fd/:9:1:2",
            "/dev/tty:9:1:2",
            "/proc/1/../fd/3:9:1:2",
            "/proc/17/fd/3/x:9:1:2",
            "/proc/17/fd/3:+9:1:2",
            "/proc/17/fd/3:9:1ffffffffffffffff:2",
            "/proc/99999999999999999999/fd/3:9:1:2",
            "/proc/0000000000000000000017/fd/000000000000000003:9:1:2",
        ] {
            assert_eq!(Name::parse(text.as_bytes()), None, "{text}");
        }
        for fd in [0, 7, 10, 1023, 1_048_575, i32::MAX] {
            let path = own_path(fd);
            assert_eq!(
                CStr::from_bytes_until_nul(&path).unwrap().to_str().unwrap(),
                format!("/proc/thread-self/fd/{fd}")
            );
        }
    }

    #[test]
    fn the_channel_is_opened_and_nothing_else() {
        let channel = Channel::create(true).unwrap();
        let text = name_of(&channel);
        let name = Name::parse(text.as_bytes()).unwrap();
        let open = name.open().unwrap();
        sys::close(open.fd);
        assert!(Name { inode: name.inode + 1, ..name }.open().is_none());
        // A pipe with bytes in it, a sealed file of another size, an unsealed one of the same size: opened in place of
        // the channel with their own inodes, and left alone.
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, b"bytes").unwrap();
        let memfd = |size: libc::off_t, seals: c_int| {
            // SAFETY: system calls on a new descriptor, which becomes owned.
            unsafe {
                let fd = libc::memfd_create(c"other".as_ptr(), libc::MFD_ALLOW_SEALING);
                assert!(libc::ftruncate(fd, size) == 0 && libc::fcntl(fd, libc::F_ADD_SEALS, seals) == 0);
                OwnedFd::from_raw_fd(fd)
            }
        };
        let size = crate::layout::POOL_AT as libc::off_t + 4096;
        let good = memfd(size, SEALS);
        for (fd, opened) in [
            (reader.as_raw_fd(), false),
            (memfd(4096, SEALS).as_raw_fd(), false),
            (memfd(size, 0).as_raw_fd(), false),
            (good.as_raw_fd(), true),
        ] {
            let inode = std::fs::metadata(format!("/proc/thread-self/fd/{fd}"))
                .map_or(0, |m| std::os::unix::fs::MetadataExt::ino(&m));
            let other = format!("/proc/{}/fd/{fd}:{inode}:1:2", std::process::id());
            let found = Name::parse(other.as_bytes()).unwrap().open();
            assert_eq!(found.is_some(), opened, "{other}");
            found.into_iter().for_each(|open| sys::close(open.fd));
        }
        drop(writer);
        let mut left = String::new();
        std::io::Read::read_to_string(&mut { reader }, &mut left).unwrap();
        assert_eq!(left, "bytes");
    }
}
