//! Calls that reach the functions of the allocators behind this library past its hooks: through dlsym with a handle or
//! with RTLD_NEXT, through dlvsym, and from libraries that are loaded with RTLD_DEEPBIND. These functions do not know a
//! placed block, and would end the program.
//!
//! Before anything is placed on the heap, the symbols of functions that take a block are made to name functions of this
//! file, in this process's copy of the symbol tables of the C library and of every other allocator behind this library.
//! What is bound or looked up from then on finds these. Each releases a placed block and forwards any other to the
//! function that the symbol named before, so that a library which wraps the allocator behind it, and looks that up with
//! RTLD_NEXT, gets what it would get without this library. The hooks themselves forward to addresses that were looked
//! up before. What was bound before, by constructors that run before that of this library, stays as it is.
//!
//! Files before this library in the order of search stay as they are: they wrap this library, and what they return may
//! be a part of a placed block, behind a header of theirs. A function of this file leaves such a part alone. Files of
//! other namespaces (dlmopen) stay as they are, too: by contract they get no block of the program's.
//!
//! Where a symbol table cannot be changed, nothing is placed on the heap.

use core::ffi::{CStr, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicPtr, Ordering};

use numamma_hook::errno;
use numamma_hook::loaded_file::{Definition, LoadedFile};
use numamma_hook::real::{self, behind};

use super::malloc::{placed_size, release};
use crate::objects::{heap, small_objects};

type Ptr = *mut c_void;
type Free = unsafe extern "C" fn(Ptr);
type Realloc = unsafe extern "C" fn(Ptr, usize) -> Ptr;
type Reallocarray = unsafe extern "C" fn(Ptr, usize, usize) -> Ptr;
type UsableSize = unsafe extern "C" fn(Ptr) -> usize;

/// What a function does with the block that it takes.
#[derive(Clone, Copy)]
enum Role {
    Free,
    Realloc,
    Reallocarray,
    UsableSize,
}

/// The function of each role that is forwarded to.
const ROLES: [(Role, &CStr); 4] = [
    (Role::Free, c"free"),
    (Role::Realloc, c"realloc"),
    (Role::Reallocarray, c"reallocarray"),
    (Role::UsableSize, c"malloc_usable_size"),
];

/// Other names of the same functions; those that take a size may ignore it.
const ALIASES: [(Role, &CStr); 5] = [
    (Role::Free, c"__libc_free"),
    (Role::Free, c"cfree"),
    (Role::Free, c"free_sized"),
    (Role::Free, c"free_aligned_sized"),
    (Role::Realloc, c"__libc_realloc"),
];

/// The functions of each allocator behind this library, as its symbols named them before.
static ORIGINALS: [[AtomicPtr<c_void>; ROLES.len()]; behind::MOST] =
    [const { [const { AtomicPtr::new(core::ptr::null_mut()) }; ROLES.len()] }; behind::MOST];

/// Finds the allocators behind this library, and changes their symbols.
pub fn start() {
    let _errno = errno::Saved::now();
    behind::find();
    let all = behind::allocators();
    if all.is_empty() {
        heap::stop("the C library's symbols are not found".to_owned());
    }
    for (index, file) in all.iter().enumerate() {
        if let Err(why) = redirect(index, file) {
            let name = String::from_utf8_lossy(file.file_name());
            heap::stop(format!("blocks may reach {name} past this library, and {why}"));
        }
    }
}

fn redirect(index: usize, file: &LoadedFile) -> Result<(), &'static str> {
    let Some(originals) = ORIGINALS.get(index) else { return Err("there are too many allocators") };
    let mut any_indirect = false;
    for (_, name) in ROLES.into_iter().chain(ALIASES) {
        file.functions(name, |function| any_indirect |= function.is_indirect);
    }
    if any_indirect {
        // The symbol names code that chooses the function, and of what was chosen nothing is known here.
        return Err("its functions are chosen at run time (IFUNC)");
    }
    // First the functions to forward to, which the loader may bind to as soon as the first symbol has changed.
    for (original, (_, name)) in originals.iter().zip(ROLES) {
        file.functions(name, |function| original.store(function.address as Ptr, Ordering::Release));
    }
    let is_known = |role: Role| originals.get(role as usize).is_some_and(|o| !o.load(Ordering::Relaxed).is_null());
    if !is_known(Role::Realloc) {
        return Err("it has no realloc"); // `reallocarray` and `realloc` forward to it
    }
    let mut changes: Vec<(Definition, usize)> = Vec::new();
    for (role, name) in ROLES.into_iter().chain(ALIASES) {
        if let Some(instead) = instead(index, role).filter(|_| is_known(role)) {
            file.functions(name, |function| changes.push((function, instead as usize)));
        }
    }
    file.redefine(&changes)
}

/// The function that stands for one of allocator `index`.
fn instead(index: usize, role: Role) -> Option<*const ()> {
    match index {
        0 => Some(instead_of::<0>(role)),
        1 => Some(instead_of::<1>(role)),
        2 => Some(instead_of::<2>(role)),
        3 => Some(instead_of::<3>(role)),
        _ => None,
    }
}

const _: () = assert!(behind::MOST == 4, "`instead` has a function for each");

fn instead_of<const INDEX: usize>(role: Role) -> *const () {
    match role {
        Role::Free => free::<INDEX> as *const (),
        Role::Realloc => realloc::<INDEX> as *const (),
        Role::Reallocarray => reallocarray::<INDEX> as *const (),
        Role::UsableSize => usable_size::<INDEX> as *const (),
    }
}

/// Bytes usable in the placed block that begins at `ptr`; `None` when none does.
fn placed(ptr: Ptr) -> Option<usize> {
    let address = ptr as usize;
    if small_objects::owns(address) && !small_objects::begins(address) { None } else { placed_size(ptr) }
}

/// Function of allocator `INDEX`. Not null where it is asked for: a symbol is changed when the original is known.
fn original<const INDEX: usize>(role: Role) -> Ptr {
    let of = ORIGINALS.get(INDEX).and_then(|originals| originals.get(role as usize));
    of.map_or(core::ptr::null_mut(), |original| original.load(Ordering::Acquire))
}

unsafe extern "C" fn free<const INDEX: usize>(ptr: Ptr) {
    // SAFETY: C's contract; the original is a function of this prototype, stored before any code could come here.
    unsafe {
        if placed(ptr).is_none() || !release(ptr) {
            transmute::<Ptr, Free>(original::<INDEX>(Role::Free))(ptr);
        }
    }
}

/// A placed block becomes one of the allocator: the library that resizes it works with that alone.
unsafe extern "C" fn realloc<const INDEX: usize>(ptr: Ptr, size: usize) -> Ptr {
    // SAFETY: as in `free`; the copy stays inside both blocks, which cannot overlap.
    unsafe {
        let forward = transmute::<Ptr, Realloc>(original::<INDEX>(Role::Realloc));
        match placed(ptr) {
            Some(known) => move_to(ptr, known, size, forward),
            None => forward(ptr, size),
        }
    }
}

/// Moves a placed block of `known` bytes to the allocator of `realloc`, with `size` bytes. For 0 bytes that allocator
/// resizes a block of its own, because C leaves open what comes of it.
///
/// # Safety
/// C's contract of realloc.
unsafe fn move_to(ptr: Ptr, known: usize, size: usize, realloc: Realloc) -> Ptr {
    // SAFETY: C's contract; the copy stays inside both blocks, which cannot overlap.
    unsafe {
        let fresh = realloc(core::ptr::null_mut(), size.max(1));
        if !fresh.is_null() {
            core::ptr::copy_nonoverlapping(ptr.cast::<u8>(), fresh.cast(), known.min(size));
        }
        if !fresh.is_null() || size == 0 {
            release(ptr);
        }
        if size == 0 && !fresh.is_null() { realloc(fresh, 0) } else { fresh }
    }
}

unsafe extern "C" fn reallocarray<const INDEX: usize>(ptr: Ptr, count: usize, size: usize) -> Ptr {
    // SAFETY: as in `realloc`.
    unsafe {
        match (placed(ptr), count.checked_mul(size)) {
            (Some(known), Some(bytes)) => {
                // The C library's calls the realloc in effect, which may be another allocator's.
                let own = transmute::<Ptr, Realloc>(original::<INDEX>(Role::Realloc));
                move_to(ptr, known, bytes, real::symbol::realloc().unwrap_or(own))
            }
            (Some(_), None) => {
                errno::set(libc::ENOMEM);
                core::ptr::null_mut()
            }
            (None, _) => transmute::<Ptr, Reallocarray>(original::<INDEX>(Role::Reallocarray))(ptr, count, size),
        }
    }
}

unsafe extern "C" fn usable_size<const INDEX: usize>(ptr: Ptr) -> usize {
    // SAFETY: as in `free`.
    let forward = || unsafe { transmute::<Ptr, UsableSize>(original::<INDEX>(Role::UsableSize))(ptr) };
    placed(ptr).unwrap_or_else(forward)
}
