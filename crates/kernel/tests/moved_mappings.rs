//! Moving a mapping, in a process of its own: beside other tests, a thread of theirs may map something where this test
//! expects nothing.

use core::ffi::c_void;

use numamma_kernel::mappings::{move_to, reserve};
use numamma_kernel::sys::{PAGE, map_anonymous, unmap};

fn is_mapped(at: usize) -> bool {
    let mut resident = 0_u8;
    // SAFETY: the kernel writes one byte for one page.
    unsafe { libc::syscall(libc::SYS_mincore, at, PAGE, &raw mut resident) == 0 }
}

#[test]
fn a_target_is_used_or_given_back() {
    let (old, new) = (2 * PAGE, 4 * PAGE);
    let start = map_anonymous(old).unwrap() as usize;
    // SAFETY: ranges that this test maps.
    unsafe {
        (start as *mut u8).write(7);
        let target = reserve(new).unwrap();
        unmap((start + PAGE) as *mut c_void, PAGE);
        assert!(!move_to(start, old, new, target), "the area is not that large");
        assert!(!is_mapped(target) && !is_mapped(target + new - PAGE) && is_mapped(start));
        let target = reserve(new).unwrap();
        assert!(move_to(start, PAGE, new, target) && !is_mapped(start));
        assert_eq!(((target as *const u8).read(), (target as *const u8).add(new - 1).read()), (7, 0));
        unmap(target as *mut c_void, new);
    }
}
