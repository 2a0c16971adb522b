//! The number of threads of this process, without a descriptor.

/// Links of /proc/self/task besides those of its subdirectories, of which each thread has one.
const OTHER_LINKS: u64 = 2;

/// Threads that live; `None` without /proc. Changes errno.
pub fn count() -> Option<u64> {
    // SAFETY: an all-zero stat is valid, and the call fills it.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the path is a C string, `stat` is writable.
    let done = unsafe {
        libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, c"/proc/self/task".as_ptr(), &raw mut stat, 0) == 0
    };
    done.then(|| stat.st_nlink.saturating_sub(OTHER_LINKS)).filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_more_is_counted() {
        let listed = || std::fs::read_dir("/proc/self/task").map_or(0, |list| list.count()) as u64;
        // Others of the tests begin and end meanwhile.
        assert!((0..100).any(|_| super::count() == Some(listed())));
        let (counted, before) = (std::sync::Barrier::new(2), super::count().unwrap_or(0));
        std::thread::scope(|scope| {
            scope.spawn(|| counted.wait());
            let more = (0..1000).any(|_| super::count().unwrap_or(0) > 1);
            counted.wait();
            assert!(before > 0 && more);
        });
    }
}
