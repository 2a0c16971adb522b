//! /proc/thread-self/schedstat: how long the calling thread ran, and waited for a CPU (sched-stats.rst of the kernel).

use crate::sys;

/// Bytes that the file has at most: three numbers of up to twenty digits.
const LONGEST: usize = 3 * 21;

/// Time that the calling thread has waited for a CPU since it began, ns; `None` when the file cannot be read: without
/// /proc, or where the kernel does not count that. Allocates nothing.
pub fn waited_ns() -> Option<u64> {
    let fd = sys::open(c"/proc/thread-self/schedstat", libc::O_RDONLY)?;
    let mut text = [0; LONGEST];
    let len = sys::read(fd, &mut text);
    sys::close(fd);
    parse(text.get(..len?)?)
}

/// The second number.
fn parse(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_time_waited() {
        assert_eq!(parse(b"1200 345 6\n"), Some(345));
        assert_eq!([&b""[..], b"1200", b"1200 x 6"].map(parse), [None; 3]);
        let before = waited_ns();
        assert!(waited_ns() >= before);
    }
}
