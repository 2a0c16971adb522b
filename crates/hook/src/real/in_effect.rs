//! Which definitions of the malloc family the program uses: those of this library, or its own.
//!
//! An executable comes before this library in the search order. One that defines `malloc` and `free` but not
//! `reallocarray` calls this library for `reallocarray` only, with blocks of its own allocator, and releases the result
//! with its own `free`. Such a call is forwarded: the C library's `reallocarray` finds its way back to the program's
//! `realloc`.
//!
//! A block may come from this library only if it also comes back to this library:
//!
//! - `free` and `realloc` in effect are this library's, so every block comes back; or
//! - the function in effect is the program's, too. Then a call that arrives here was forwarded by it (with
//!   `dlsym(RTLD_NEXT)`), so the program wraps an allocator and forwards `free` alike.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::symbol::{self, look_up, next};

/// The functions that return a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names of the manual pages
pub enum Member {
    Malloc,
    Calloc,
    Realloc,
    Reallocarray,
    Memalign,
    AlignedAlloc,
    PosixMemalign,
    Valloc,
    Pvalloc,
}

const MEMBERS: [(Member, &CStr); 9] = [
    (Member::Malloc, c"malloc"),
    (Member::Calloc, c"calloc"),
    (Member::Realloc, c"realloc"),
    (Member::Reallocarray, c"reallocarray"),
    (Member::Memalign, c"memalign"),
    (Member::AlignedAlloc, c"aligned_alloc"),
    (Member::PosixMemalign, c"posix_memalign"),
    (Member::Valloc, c"valloc"),
    (Member::Pvalloc, c"pvalloc"),
];

/// Bit of each member whose blocks come back to this library.
static RETURNING: AtomicU32 = AtomicU32::new(0);
/// `free` and `realloc` in effect are this library's.
static RELEASES: AtomicBool = AtomicBool::new(false);
/// The next malloc, realloc and malloc_usable_size belong to one allocator.
static MEASURES: AtomicBool = AtomicBool::new(false);

/// The `free` in effect: the program's, or this library's.
static FREE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

impl Member {
    /// Name of the C function.
    pub fn name(self) -> &'static str {
        MEMBERS.get(self as usize).and_then(|(_, name)| name.to_str().ok()).unwrap_or_default()
    }
}

/// free(3) as the program calls it.
///
/// # Safety
/// C's contract.
pub unsafe fn free(ptr: *mut c_void) {
    symbol::resolve();
    let found = FREE.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: C's contract, forwarded unchanged.
        return unsafe { super::free(ptr) };
    }
    // SAFETY: dlsym found a function of this prototype; C's contract, forwarded unchanged.
    unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(found)(ptr) }
}

/// Whether blocks that this library returns for `member` come back to this library when they are released or resized.
/// False before the functions are resolved.
pub fn returns(member: Member) -> bool {
    RETURNING.load(Ordering::Relaxed) & 1 << member as u32 != 0
}

/// Whether every block that a hook is given comes from the next allocator or from this library, not from an allocator
/// of the program's own.
pub fn releases() -> bool {
    RELEASES.load(Ordering::Relaxed)
}

/// Whether [`super::malloc_usable_size`] knows the blocks of the next allocator. An allocator may lack the function;
/// the C library's then reads headers that do not exist.
pub fn measures() -> bool {
    MEASURES.load(Ordering::Relaxed)
}

/// Looks up the definitions in effect, after the next ones are known.
pub(super) fn resolve() {
    let this = object_of(resolve as *mut c_void);
    let ours = |name: &CStr| {
        let found = look_up(libc::RTLD_DEFAULT, name);
        object_of(found) == this || is_entry_of_another(found)
    };
    let releases = ours(c"free") && ours(c"realloc");
    let comes_back = |name: &CStr| releases || !ours(name);
    let bits =
        MEMBERS.iter().filter(|(_, name)| comes_back(name)).fold(0, |bits, (member, _)| bits | 1 << *member as u32);
    RETURNING.store(bits, Ordering::Relaxed);
    FREE.store(look_up(libc::RTLD_DEFAULT, c"free"), Ordering::Relaxed);
    RELEASES.store(releases, Ordering::Relaxed);
    let provider = |name: &CStr| object_of(next(name));
    let malloc = provider(c"malloc");
    let same = [c"realloc", c"malloc_usable_size"].iter().all(|name| provider(name) == malloc);
    MEASURES.store(malloc.is_some() && same, Ordering::Relaxed);
}

/// Whether `function` is only an entry of a procedure linkage table. A program that is not position-independent and
/// takes the address of a function has this entry stand for it everywhere (System V ABI for x86-64, section 5.2); the
/// function itself is in another file, and calls reach it.
fn is_entry_of_another(function: *mut c_void) -> bool {
    // SAFETY: an all-zero structure is valid, and dladdr1 fills it and `symbol`; any address may be asked for.
    let (rc, symbol) = unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let mut symbol: *mut c_void = core::ptr::null_mut();
        (dladdr1(function, &raw mut info, &raw mut symbol, RTLD_DL_SYMENT), symbol.cast::<libc::Elf64_Sym>())
    };
    // SAFETY: null, or a symbol of a loaded file.
    let symbol = if rc != 0 { unsafe { symbol.as_ref() } } else { None };
    symbol.is_some_and(|symbol| symbol.st_shndx == SHN_UNDEF)
}

/// dlfcn.h: dladdr1 gives the symbol, too.
const RTLD_DL_SYMENT: libc::c_int = 1;
/// elf.h: a symbol that is defined elsewhere.
const SHN_UNDEF: u16 = 0;

unsafe extern "C" {
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: libc::c_int,
    ) -> libc::c_int;
}

/// Address of the loaded file that holds `function`.
fn object_of(function: *mut c_void) -> Option<usize> {
    // SAFETY: an all-zero structure is valid, and dladdr fills it; any address may be asked for.
    let (rc, info) = unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        (libc::dladdr(function, &raw mut info), info)
    };
    (rc != 0).then_some(info.dli_fbase as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This program exports no function of the family, so all calls that reach a hook would be forwarded ones.
    #[test]
    fn the_c_library_in_effect_measures_its_blocks() {
        super::super::resolve();
        assert!(MEMBERS.iter().all(|&(member, _)| returns(member)));
        assert!(!releases() && measures());
        assert_eq!(object_of(core::ptr::null_mut()), None);
    }

    #[test]
    fn members_have_a_bit_each() {
        assert!(MEMBERS.iter().enumerate().all(|(number, (member, _))| *member as usize == number));
        assert_eq!(Member::PosixMemalign.name(), "posix_memalign");
    }
}
