//! One mapped ring buffer of the kernel.
//!
//! The kernel writes at `data_head`, the recorder reads at `data_tail` (perf_event_open(2), "MMAP layout"). The kernel
//! overwrites no record: when the buffer is full it drops records and reports their number in a PERF_RECORD_LOST.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use numamma_kernel::sys::PAGE;
use perf_event_open_sys::bindings::perf_event_mmap_page;

/// Bytes of a record header: type u32, misc u16, size u16.
pub const HEADER: usize = 8;

/// A mapped buffer; unmapped on drop.
#[derive(Debug)]
pub struct Ring {
    base: *mut perf_event_mmap_page,
    /// Data bytes, a power of two.
    size: usize,
    /// A record that wraps around the end is put together here.
    joined: Vec<u8>,
}

impl Ring {
    /// Maps the buffer of `fd` with at most `pages` data pages (a power of two), with fewer when the locked-memory
    /// limit requires it.
    ///
    /// # Errors
    /// When not even one page can be mapped.
    pub fn map(fd: &OwnedFd, pages: usize) -> io::Result<Ring> {
        let mut pages = pages.next_power_of_two();
        loop {
            match Ring::map_exactly(fd, pages) {
                Err(e) if pages > 1 && over_limit(&e) => pages /= 2,
                other => return other,
            }
        }
    }

    /// Maps the buffer of `fd` with `pages` data pages (a power of two).
    ///
    /// # Errors
    /// [`over_limit`] is true of the error when a smaller buffer may work.
    pub fn map_exactly(fd: &OwnedFd, pages: usize) -> io::Result<Ring> {
        let len = PAGE * (pages + 1);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping at an address of the kernel's choice; the result is checked.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, prot, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring { base: base.cast(), size: PAGE * pages, joined: Vec::new() })
    }

    /// Data bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Calls `each` with every record (header included) written so far and frees their space.
    pub fn drain(&mut self, mut each: impl FnMut(&[u8])) {
        // SAFETY: the first page of the mapping is the control page, mapped until drop; the kernel writes data_head.
        let head = unsafe { AtomicU64::from_ptr(&raw mut (*self.base).data_head) }.load(Ordering::Acquire);
        // SAFETY: as above; only this thread writes data_tail.
        let tail_cell = unsafe { AtomicU64::from_ptr(&raw mut (*self.base).data_tail) };
        let mut tail = tail_cell.load(Ordering::Relaxed);
        while head.wrapping_sub(tail) >= HEADER as u64 {
            let header = self.bytes(tail, HEADER);
            let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
            if size < HEADER || size as u64 > head.wrapping_sub(tail) {
                tail = head; // no kernel writes this; skipping the buffer avoids an endless loop
                break;
            }
            each(self.bytes(tail, size));
            tail = tail.wrapping_add(size as u64);
        }
        // Release: the records have been read before the kernel may overwrite them.
        tail_cell.store(tail, Ordering::Release);
    }

    fn bytes(&mut self, at: u64, len: usize) -> &[u8] {
        let offset = (at as usize) & (self.size - 1);
        // SAFETY: the data pages follow the control page; [offset, offset + len) is below data_head and above
        // data_tail, so the kernel does not write it now, and is cut at the end of the mapping.
        let data = unsafe { std::slice::from_raw_parts(self.base.cast::<u8>().add(PAGE), self.size) };
        if offset + len <= self.size {
            return &data[offset..offset + len];
        }
        self.joined.clear();
        self.joined.extend_from_slice(&data[offset..]);
        self.joined.extend_from_slice(&data[..len - (self.size - offset)]);
        &self.joined
    }
}

/// Whether an error means that the buffer is too large: EPERM above perf_event_mlock_kb and RLIMIT_MEMLOCK, ENOMEM when
/// memory is short.
pub fn over_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM))
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `map_exactly` mapped this length, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.size + PAGE) };
    }
}
