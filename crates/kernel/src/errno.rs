//! The calling thread's `errno`, and a guard that restores it.

/// A saved `errno`, which is restored on drop.
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
    // SAFETY: glibc's accessor always returns a valid pointer to this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
#[inline]
pub fn set(value: i32) {
    // SAFETY: as in `get`; no other thread accesses this thread's errno.
    unsafe { *libc::__errno_location() = value }
}
