use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// Starts the stacks before the test program has threads, as the constructor of a library does. A test that did so
/// would let two threads take one stack: what was taken before is not known afterwards.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn constructor() {
        start();
    }
    constructor
};

/// Uses `depth` times 1 KiB of stack.
#[inline(never)]
fn descend(depth: usize) -> usize {
    let room = std::hint::black_box([depth as u8; 1000]);
    if depth == 0 { room.len() } else { descend(depth - 1) + usize::from(room[999] != depth as u8) }
}

#[test]
fn work_gets_a_stack_of_its_own_size_and_returns_its_result() {
    let here = 0_u8;
    let elsewhere = run(|| {
        let there = 0_u8;
        assert!(descend(200) == 1000);
        &raw const there as usize
    });
    assert!(elsewhere.unwrap().abs_diff(&raw const here as usize) > BYTES);
    assert_eq!(run(|| run(|| 5)), Some(Some(5)), "directly where the thread is on such a stack already");
    assert!(inside().is_none());
}

#[test]
fn work_that_is_abandoned_or_panics_has_no_result_and_leaves_the_stack_usable() {
    for round in 0..200 {
        assert_eq!(
            run(|| {
                abandon();
                1
            }),
            None
        );
        let panics = run(|| assert!(round == usize::MAX, "on purpose, in a unit test"));
        assert_eq!(panics, None);
        assert_eq!(run(|| round), Some(round));
    }
    abandon(); // does nothing elsewhere
}

#[test]
fn errno_survives_and_signals_wait_until_the_work_breathes() {
    static SEEN: AtomicU32 = AtomicU32::new(0);
    extern "C" fn handler(_signal: c_int) {
        assert!(inside().is_none(), "a handler runs on the program's stack");
        assert_eq!(run(|| descend(100)), Some(1000), "and may run work of its own");
        SEEN.fetch_add(1, Ordering::SeqCst);
    }
    // SAFETY: the handler calls only functions for signal handlers; the test sends the signal to its own thread.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as usize) };
    errno::set(33);
    let seen = run(|| {
        // SAFETY: as above.
        unsafe { libc::raise(libc::SIGUSR1) };
        let before = SEEN.load(Ordering::SeqCst);
        breathe();
        let between = SEEN.load(Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { libc::raise(libc::SIGUSR1) };
        (before, between, SEEN.load(Ordering::SeqCst))
    });
    assert_eq!(seen, Some((0, 1, 1)));
    assert_eq!(SEEN.load(Ordering::SeqCst), 2);
    assert_eq!(errno::get(), 33);
}

#[test]
fn threads_do_not_share_a_stack() {
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            scope.spawn(move || {
                for round in 0..2000 {
                    let found = run(|| {
                        let mark = std::hint::black_box([thread * 10_000 + round; 64]);
                        std::thread::yield_now();
                        mark.iter().all(|m| *m == thread * 10_000 + round)
                    });
                    assert_ne!(found, Some(false));
                }
            });
        }
    });
}

#[test]
fn a_forked_child_has_the_stacks_of_the_other_threads() {
    let (go, stop) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run(|| {
                go.wait();
                stop.wait();
            })
        });
        go.wait();
        // SAFETY: the child runs only code of this module, which neither locks nor allocates, and leaves by _exit.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                let all = (0..).map_while(|_| pool::take(core::ptr::null())).count();
                libc::_exit(all as i32);
            }
            let mut status = 0;
            libc::waitpid(child, &raw mut status, 0);
            status
        };
        stop.wait();
        assert_eq!(libc::WEXITSTATUS(status), 64);
    });
}

#[test]
fn without_a_free_stack_the_work_is_left_out() {
    // SAFETY: the child runs only code of this module, which neither locks nor allocates, and leaves by _exit.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            while pool::take(core::ptr::null()).is_some() {}
            libc::_exit(i32::from(run(|| 1).is_some()));
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        assert_eq!(status, 0);
    }
}
