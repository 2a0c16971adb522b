use super::*;

#[test]
fn finds_libc() {
    assert!(symbol::malloc().is_some());
    assert!(symbol::mremap().is_some());
    assert!(symbol::_exit().is_some());
    // SAFETY: plain use of the C functions.
    unsafe {
        let p = malloc(100);
        assert!(!p.is_null() && malloc_usable_size(p) >= 100);
        let p = reallocarray(p, 10, 100);
        assert!(!p.is_null());
        free(p);
        assert!(reallocarray(core::ptr::null_mut(), usize::MAX, 2).is_null());
        assert_eq!(errno::get(), libc::ENOMEM);
        let p = memalign(4096, 10);
        assert_eq!(p as usize % 4096, 0);
        free(p);
    }
}

#[test]
fn allocations_while_resolving_come_from_the_arena_and_can_leave_it() {
    resolve();
    symbol::block().resolving.set(true);
    // What `early` sees when dlsym allocates.
    let p = early(24, 16);
    symbol::block().resolving.set(false);
    assert!(bootstrap_arena::owns(p));
    // SAFETY: the block has 24 bytes; realloc takes it over.
    unsafe {
        p.cast::<u8>().write_bytes(9, 24);
        let q = realloc(p, 48);
        assert!(!bootstrap_arena::owns(q));
        assert_eq!(*q.cast::<u8>().add(23), 9);
        free(p);
        free(q);
    }
}

#[test]
fn missing_aligned_functions_fall_back() {
    let p = aligned_fallback(256, 1000);
    assert_eq!(p as usize % 256, 0);
    // SAFETY: allocated just above.
    unsafe { free(p) };
    assert!(aligned_fallback(24, 10).is_null());
}
