//! A word of process state that a forked child reads as zero, and whether this process is such a child.
//!
//! The word lies on a page with MADV_WIPEONFORK, so every child that does not share memory (fork,
//! raw clone) starts with zero. An atfork handler would need a lock and is not called by raw clones. A vfork child
//! shares the page, and its parent waits for it, so the child may act as its parent.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use numamma_kernel::held_file;
use numamma_kernel::mappings::map_wiped_on_fork;

use crate::sys;

/// The page.
#[repr(C)]
struct Wiped {
    word: AtomicU64,
    /// 1 in the process that called [`remember_process`].
    original: AtomicU64,
    /// Id of this process; 0 before [`process`].
    process: AtomicU64,
    /// Number of this process among its ancestors; 0 before [`generation`].
    generation: AtomicU64,
}

static INACTIVE: Wiped = Wiped {
    word: AtomicU64::new(0),
    original: AtomicU64::new(0),
    process: AtomicU64::new(0),
    generation: AtomicU64::new(0),
};
/// The highest number that [`generation`] gave in this process and in its ancestors.
static GENERATIONS: AtomicU32 = AtomicU32::new(0);
static PAGE: AtomicPtr<Wiped> = AtomicPtr::new(&raw const INACTIVE as *mut Wiped);
/// The process that called [`remember_process`]; 0 before.
static PROCESS: AtomicU32 = AtomicU32::new(0);

fn page() -> &'static Wiped {
    // SAFETY: the pointer is to INACTIVE or to a page that is never unmapped.
    unsafe { &*PAGE.load(Ordering::Acquire) }
}

/// Maps the page; false when the kernel cannot wipe it on fork (before 4.14).
fn map() -> bool {
    if !core::ptr::eq(page(), &raw const INACTIVE) {
        return true;
    }
    let Some(new) = map_wiped_on_fork(sys::PAGE) else { return false };
    let unused = &raw const INACTIVE as *mut Wiped;
    // Release pairs with the Acquire of `page`; a thread that loses the race leaves one page unused.
    let _ = PAGE.compare_exchange(unused, new.cast(), Ordering::AcqRel, Ordering::Acquire);
    true
}

/// Remembers that this is the process into which the library was loaded.
pub fn remember_process() {
    if map() {
        page().original.store(1, Ordering::Relaxed);
    }
    held_file::tell_processes_by(generation);
    PROCESS.store(sys::pid(), Ordering::Relaxed);
}

/// Whether this process was forked by the one that called [`remember_process`], or by a child of it. Threads of the
/// parent may have held any lock at that moment, and do not exist here.
pub fn is_forked_child() -> bool {
    match PROCESS.load(Ordering::Relaxed) {
        0 => false,
        first if core::ptr::eq(page(), &raw const INACTIVE) => first != sys::pid(),
        _ => page().original.load(Ordering::Relaxed) == 0,
    }
}

/// Id of this process, without a system call from the second time on: a program may have confined itself since then.
pub fn process() -> u32 {
    let page = page();
    if core::ptr::eq(page, &raw const INACTIVE) {
        return sys::pid();
    }
    match page.process.load(Ordering::Relaxed) {
        0 => {
            let own = sys::pid();
            page.process.store(own.into(), Ordering::Relaxed);
            own
        }
        known => known as u32,
    }
}

/// A number, not 0, that no ancestor of this process had: what a thread of an ancestor left with its number belongs to
/// no thread here. A child that shares memory has the number of its parent. Without a system call. 1 in all processes
/// when the kernel cannot wipe a page on fork (before 4.14).
#[inline]
pub fn generation() -> u32 {
    let page = page();
    match page.generation.load(Ordering::Relaxed) {
        0 => new_generation(page),
        known => known as u32,
    }
}

#[cold]
fn new_generation(page: &Wiped) -> u32 {
    if core::ptr::eq(page, &raw const INACTIVE) {
        return 1;
    }
    let next = GENERATIONS.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
    match page.generation.compare_exchange(0, next.into(), Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => next,
        Err(first) => first as u32,
    }
}

/// The word: 0 before [`set`] and in a forked child.
#[inline(always)]
pub fn get() -> u64 {
    // SAFETY: the pointer is to INACTIVE or to a page that is never unmapped.
    unsafe { (*PAGE.load(Ordering::Relaxed)).word.load(Ordering::Relaxed) }
}

/// Sets the word for this process. False when the kernel cannot wipe a page on fork (before 4.14): the
/// word then stays 0, so that a child never records as its parent.
pub fn set(value: u64) -> bool {
    let mapped = map();
    if mapped {
        page().word.store(value, Ordering::Release);
    }
    mapped
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_forked_child_reads_zero() {
        assert!(super::set(7) && !super::is_forked_child());
        super::remember_process();
        assert!(super::get() == 7 && !super::is_forked_child());
        assert_eq!([super::process(), super::process()], [std::process::id(); 2]);
        let generation = super::generation();
        assert!(generation > 0 && generation == super::generation());
        // SAFETY: the child only reads one word and leaves by _exit.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let own = super::process() == libc::getpid() as u32;
                let same = super::generation() == generation || super::generation() != super::generation();
                let wrong = [!super::is_forked_child(), !own, same].map(i32::from);
                libc::_exit(super::get() as i32 + wrong.iter().sum::<i32>());
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0);
        }
        assert_eq!(super::get(), 7);
    }
}
