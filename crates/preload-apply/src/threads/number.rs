//! Numbers of threads, to spread them over shards and heaps.

use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};

static NEXT: AtomicUsize = AtomicUsize::new(1);

#[repr(C)]
struct Block {
    /// 0 until the thread is asked.
    number: Cell<usize>,
}

numamma_hook::static_tls!(fn block() -> Block, "numamma_apply_number");

/// The number of this thread: of n threads that are first asked one after another no two are equal modulo n.
#[inline]
pub fn of_this_thread() -> usize {
    let number = &block().number;
    if number.get() == 0 {
        number.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    number.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_number() {
        let own = of_this_thread();
        let other = std::thread::spawn(|| [of_this_thread(), of_this_thread()]).join().unwrap();
        assert_eq!(own, of_this_thread());
        assert!(other[0] == other[1] && other[0] != own);
    }
}
