use super::*;
use crate::stackbounds;
use std::sync::Mutex;

crate::entry! {
    /// A stand-in for a hook: walks from its caller.
    fn numamma_test_walk(out: *mut Stack) => walk_here;
}

/// Held by tests that read or clear the process-wide cache.
pub static CACHE: Mutex<()> = Mutex::new(());

#[derive(Clone, Copy)]
pub struct Stack {
    frames: [u64; 64],
    len: usize,
    bounded: bool,
}

const EMPTY: Stack = Stack { frames: [0; 64], len: 0, bounded: true };

unsafe extern "C" fn walk_here(out: *mut Stack, ra: usize, cfa: usize, rbp: usize) {
    // SAFETY: the tests pass a live Stack; the stub passes its caller's registers.
    unsafe {
        let high = if (*out).bounded { stackbounds::high_for(cfa) } else { 0 };
        (*out).len = walk(&Caller { ra, cfa, rbp }, high, &mut (*out).frames);
    }
}

#[inline(never)]
fn recurse(depth: usize, out: &mut Stack) -> usize {
    if depth == 0 {
        // SAFETY: `out` is live.
        unsafe { numamma_test_walk(out) };
        return std::hint::black_box(1);
    }
    std::hint::black_box(recurse(depth - 1, out)) + 1
}

fn inside(address: u64, f: usize) -> bool {
    (address as usize).wrapping_sub(f) < 512
}

#[test]
fn recursion_is_seen_frame_by_frame_twice() {
    let mut stack = EMPTY;
    for _ in 0..2 {
        recurse(20, &mut stack);
        assert!(stack.len > 21, "{}", stack.len);
        for (i, &address) in stack.frames[..21].iter().enumerate() {
            assert!(inside(address, recurse as *const () as usize), "frame {i}: {address:#x}");
        }
        assert!(!inside(stack.frames[21], recurse as *const () as usize));
    }
}

#[test]
fn the_walk_reaches_thread_start_and_ends_in_libc() {
    let stack = std::thread::spawn(|| {
        let mut stack = EMPTY;
        recurse(2, &mut stack);
        stack
    })
    .join()
    .unwrap();
    assert!(stack.len < 64);
    let last = modules::find(stack.frames[stack.len - 1] as usize).unwrap();
    assert_eq!(last.file_name(), b"libc.so.6");
}

#[test]
fn unknown_bounds_give_one_frame() {
    let mut stack = Stack { bounded: false, ..EMPTY };
    recurse(5, &mut stack);
    assert_eq!(stack.len, 1);
}

#[test]
fn same_frames_after_invalidation() {
    let _alone = CACHE.lock().unwrap();
    let (mut before, mut after) = (EMPTY, EMPTY);
    for (stack, clear) in [(&mut before, false), (&mut after, true)] {
        if clear {
            invalidate();
        }
        recurse(3, stack);
    }
    assert_eq!(before.frames[..4], after.frames[..4]);
}

#[test]
fn frames_never_go_down_or_leave_the_stack() {
    let memory = [0x5555_usize; 8];
    let sp = memory.as_ptr() as usize;
    let high = sp + 64;
    let try_rule = |base, offset, rbp| {
        let frame = Frame { ra: 0, sp, rbp, rbp_from: RbpFrom::Register };
        // SAFETY: [sp, high) is `memory`.
        unsafe { step(Rule { base, offset, rbp: SavedRbp::Kept }, &frame, high, &mut ()) }.is_some()
    };
    assert!(try_rule(Base::Rsp, 8, 0));
    assert!(try_rule(Base::Rsp, 64, 0));
    assert!(!try_rule(Base::Rsp, 72, 0));
    assert!(!try_rule(Base::Rsp, 0, 0));
    assert!(!try_rule(Base::Rsp, 12, 0));
    assert!(!try_rule(Base::Rbp, 16, 0));
    assert!(!try_rule(Base::Rbp, 16, usize::MAX - 8));
    assert!(try_rule(Base::Rbp, 16, sp + 16));
    assert!(!try_rule(Base::RbpIndirect, 8, sp));
    assert!(!try_rule(Base::RbpIndirect, 8, sp + 16), "0x5555 is not on the stack");
    assert!(!try_rule(Base::Stop, 8, sp));
}

/// Result of libgcc's unwinder at the same place.
static REFERENCE: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static OURS: Mutex<Vec<u64>> = Mutex::new(Vec::new());

unsafe extern "C" fn compare(_a: *const libc::c_void, _b: *const libc::c_void) -> libc::c_int {
    let mut stack = EMPTY;
    recurse(3, &mut stack);
    let mut buffer = [core::ptr::null_mut(); 64];
    // SAFETY: the buffer has room for what is asked for.
    let n = unsafe { libc::backtrace(buffer.as_mut_ptr(), 64) };
    *REFERENCE.lock().unwrap() = buffer[..n as usize].iter().map(|&p| p as u64).collect();
    *OURS.lock().unwrap() = stack.frames[..stack.len].to_vec();
    0
}

#[test]
fn agrees_with_the_system_unwinder_through_library_frames() {
    let mut items = [2_u32, 1];
    // SAFETY: two items of four bytes; the comparison does not look at them.
    unsafe { libc::qsort(items.as_mut_ptr().cast(), 2, 4, Some(compare)) };
    let (ours, reference) = (OURS.lock().unwrap(), REFERENCE.lock().unwrap());
    // Both are in `compare`, at different calls; from its caller (qsort) on they must agree to the thread's end.
    let at = ours.iter().position(|f| reference.contains(f)).expect("a common frame");
    let common = reference.iter().position(|f| *f == ours[at]).unwrap();
    assert!(at <= 5 && common <= 2, "{at} {common}");
    assert_eq!(ours[at..], reference[common..]);
}
