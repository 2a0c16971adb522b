//! A word of process state that a forked child reads as zero.
//!
//! The word lies alone on a page with MADV_WIPEONFORK, so every child that does not share memory (fork,
//! raw clone) starts with zero. An atfork handler would need a lock and is not called by raw clones. A vfork child
//! shares the page, and its parent waits for it, so the child may act as its parent.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use numamma_kernel::mappings::map_wiped_on_fork;

use crate::sys;

static INACTIVE: AtomicU64 = AtomicU64::new(0);
static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(&raw const INACTIVE as *mut AtomicU64);

/// The word: 0 before [`set`] and in a forked child.
#[inline(always)]
pub fn get() -> u64 {
    // SAFETY: the pointer is to INACTIVE or to a page that is never unmapped.
    unsafe { (*WORD.load(Ordering::Relaxed)).load(Ordering::Relaxed) }
}

/// Sets the word for this process. False when the kernel cannot wipe a page on fork (before 4.14): the
/// word then stays 0, so that a child never records as its parent.
pub fn set(value: u64) -> bool {
    let mut word = WORD.load(Ordering::Acquire);
    if core::ptr::eq(word, &raw const INACTIVE) {
        let Some(page) = map_wiped_on_fork(sys::PAGE) else { return false };
        // Release pairs with the Acquire above; a thread that loses the race leaves one page unused.
        match WORD.compare_exchange(word, page.cast(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => word = page.cast(),
            Err(other) => word = other,
        }
    }
    // SAFETY: `word` is a live page, see `get`.
    unsafe { (*word).store(value, Ordering::Release) };
    true
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_forked_child_reads_zero() {
        assert!(super::set(7));
        assert_eq!(super::get(), 7);
        // SAFETY: the child only reads one word and leaves by _exit.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(super::get() as i32);
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0);
        }
        assert_eq!(super::get(), 7);
    }
}
