//! The ids of the threads of this process.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::held_file::{self, HeldFile, Of};

const PATH: &CStr = c"/proc/self/task";
static TASKS: HeldFile = HeldFile::new(Of::Process);
/// One more than the number of the process (see [`held_file::generation`]) of which a thread reads the directory, where
/// all threads have one position; 0 when none does.
static READER: AtomicU32 = AtomicU32::new(0);

/// Opens the directory of threads, see [`HeldFile`]: while the process has one thread.
pub fn hold() {
    TASKS.hold(PATH);
}

/// Calls `visit` with the id of each thread. False when the directory is not open and cannot be opened now, when
/// another thread reads it, and when the kernel refuses. Allocates nothing, changes errno.
pub fn for_each(visit: impl FnMut(i32)) -> bool {
    let own = held_file::generation().wrapping_add(1);
    let reader = READER.load(Ordering::Relaxed);
    // What a thread of the parent left in a forked child counts for nothing.
    if reader == own || READER.compare_exchange(reader, own, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return false;
    }
    let is_read = TASKS.descriptor(PATH).is_some_and(|directory| read(directory, visit));
    READER.store(0, Ordering::Release);
    is_read
}

/// Bytes of a directory entry before its name: inode, position, length and type (getdents(2)).
const NAME: usize = 19;

fn read(directory: i32, mut visit: impl FnMut(i32)) -> bool {
    let mut buffer = [0_u8; 1024];
    // SAFETY: takes numbers only.
    if unsafe { libc::syscall(libc::SYS_lseek, directory, 0_i64, libc::SEEK_SET) } != 0 {
        return false;
    }
    loop {
        // SAFETY: the buffer is writable for its length.
        let got = unsafe { libc::syscall(libc::SYS_getdents64, directory, buffer.as_mut_ptr(), buffer.len()) };
        let Ok(got @ 1..) = usize::try_from(got) else { return got == 0 };
        let mut entries = buffer.get(..got).unwrap_or_default();
        while let Some(length) = entries.get(16..18).map(|two| usize::from(u16::from_ne_bytes([two[0], two[1]]))) {
            let name = entries.get(NAME..length).unwrap_or_default();
            let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
            let id = core::str::from_utf8(&name[..end]).ok().and_then(|name| name.parse().ok());
            id.into_iter().for_each(&mut visit);
            entries = entries.get(length.max(1)..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn threads_are_those_of_the_directory() {
        super::TASKS.open(super::PATH);
        let listed = || {
            let names = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten().map(|of| of.file_name());
            names.filter_map(|name| name.to_str()?.parse().ok()).collect::<Vec<i32>>()
        };
        // Others of the tests begin and end meanwhile.
        let is_same = || {
            let mut found = Vec::new();
            assert!(super::for_each(|id| found.push(id)));
            found == listed()
        };
        assert!((0..100).any(|_| is_same()));
    }
}
