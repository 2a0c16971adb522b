//! `errno` as the program left it.

/// Saves `errno` and puts it back when dropped.
pub struct Saved(i32);

impl Saved {
    /// Saves the calling thread's `errno`.
    #[inline]
    pub fn now() -> Saved {
        Saved(get())
    }
}

impl Drop for Saved {
    #[inline]
    fn drop(&mut self) {
        set(self.0);
    }
}

/// The calling thread's `errno`.
#[inline]
pub fn get() -> i32 {
    // SAFETY: glibc's accessor always returns this thread's valid errno cell.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
#[inline]
pub fn set(value: i32) {
    // SAFETY: as in `get`; the cell belongs to this thread alone.
    unsafe { *libc::__errno_location() = value }
}
