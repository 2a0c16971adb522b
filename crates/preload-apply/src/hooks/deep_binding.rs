//! Libraries that are loaded with RTLD_DEEPBIND: they find the C library's `free` before that of this library, and it
//! would end the program at a placed block.
//!
//! Before the first such library is loaded, the symbols of the C library that take a block are made to name functions
//! of this file, in this process's copy of its symbol table. The loader then binds whatever it binds later to these:
//! the library, what it depends on and its constructors, at once or lazily, and what they look up with dlsym. Each
//! releases a placed block and forwards any other to the C library, as without this library. Symbols that were bound
//! before, and those of programs that use no RTLD_DEEPBIND, stay as they are.
//!
//! Where the symbol table cannot be changed, no further block is placed.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use numamma_hook::{errno, real, say};
use numamma_kernel::sys::PAGE;

use super::malloc::{placed_size, release};
use crate::rules::state;

type Ptr = *mut c_void;

/// A function of the C library that takes a block.
struct Taker {
    name: &'static CStr,
    /// What the symbol names from now on.
    instead: *const (),
    /// The C library's function.
    original: AtomicPtr<c_void>,
}

// SAFETY: `instead` is the address of a function, which no thread changes.
unsafe impl Sync for Taker {}

const fn taker(name: &'static CStr, instead: *const ()) -> Taker {
    Taker { name, instead, original: AtomicPtr::new(core::ptr::null_mut()) }
}

/// `free` and `realloc` come first, because [`free`] and [`realloc`] forward to them. In glibc the other names of each
/// are the same function; those that take a size ignore it.
static TAKERS: [Taker; 8] = [
    taker(c"free", free as *const ()),
    taker(c"realloc", realloc as *const ()),
    taker(c"malloc_usable_size", usable_size as *const ()),
    taker(c"__libc_free", free as *const ()),
    taker(c"__libc_realloc", realloc as *const ()),
    taker(c"cfree", free as *const ()),
    taker(c"free_sized", free as *const ()),
    taker(c"free_aligned_sized", free as *const ()),
];

/// A thread is changing the symbol table, or has done so.
static BEGUN: AtomicBool = AtomicBool::new(false);
static DONE: AtomicBool = AtomicBool::new(false);
/// Yields while another thread changes the symbol table, which takes microseconds.
const MOST_YIELDS: u32 = 10_000;
/// The symbol table could not be changed.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether blocks may be freed by a library that this library cannot reach.
pub fn out_of_reach() -> bool {
    REFUSED.load(Ordering::Relaxed)
}

/// Called before a library is loaded with `flags`.
pub fn before_loading(flags: c_int) {
    if flags & libc::RTLD_DEEPBIND == 0 || DONE.load(Ordering::Acquire) || state::get().is_none() {
        return;
    }
    let _errno = errno::Saved::now();
    if BEGUN.swap(true, Ordering::AcqRel) {
        // Bounded: a child that was forked meanwhile has no other thread.
        for _ in 0..MOST_YIELDS {
            if DONE.load(Ordering::Acquire) {
                return;
            }
            // SAFETY: takes no arguments.
            unsafe { libc::sched_yield() };
        }
        return;
    }
    if let Err(why) = redirect() {
        REFUSED.store(true, Ordering::Relaxed);
        say!("a library is loaded with RTLD_DEEPBIND, and {why}: nothing more is placed on the heap");
    }
    DONE.store(true, Ordering::Release);
}

/// Changes the symbols of the C library.
fn redirect() -> Result<(), &'static str> {
    let library = Library::of_c().ok_or("the C library's symbols are not found")?;
    // First the functions to forward to, which the loader may bind to as soon as the first symbol has changed.
    for taker in &TAKERS {
        library.symbols(taker.name, |symbol| {
            // SAFETY: a symbol of the loaded library.
            let value = unsafe { (*symbol).st_value } as usize;
            taker.original.store((library.base + value) as Ptr, Ordering::Release);
        });
    }
    if TAKERS.iter().take(3).any(|taker| taker.original.load(Ordering::Relaxed).is_null()) {
        return Err("its libc lacks free, realloc or malloc_usable_size");
    }
    TAKERS.iter().try_for_each(|taker| {
        let mut done = Ok(());
        library.symbols(taker.name, |symbol| done = done.and(library.write(symbol, taker.instead as usize)));
        done
    })
}

fn original(index: usize) -> *mut c_void {
    TAKERS.get(index).map_or(core::ptr::null_mut(), |taker| taker.original.load(Ordering::Acquire))
}

unsafe extern "C" fn free(ptr: Ptr) {
    // SAFETY: C's contract; the address is that of the C library's free, stored before any code could come here.
    unsafe {
        if !release(ptr) {
            core::mem::transmute::<Ptr, unsafe extern "C" fn(Ptr)>(original(0))(ptr);
        }
    }
}

/// A placed block becomes one of the C library: the library that resizes it works with that alone.
unsafe extern "C" fn realloc(ptr: Ptr, size: usize) -> Ptr {
    // SAFETY: as in `free`; the copy stays inside both blocks, which cannot overlap.
    unsafe {
        let forward = core::mem::transmute::<Ptr, unsafe extern "C" fn(Ptr, usize) -> Ptr>(original(1));
        let Some(known) = placed_size(ptr) else { return forward(ptr, size) };
        let fresh = if size == 0 { core::ptr::null_mut() } else { forward(core::ptr::null_mut(), size) };
        if !fresh.is_null() {
            core::ptr::copy_nonoverlapping(ptr.cast::<u8>(), fresh.cast(), known.min(size));
        }
        if !fresh.is_null() || size == 0 {
            release(ptr);
        }
        fresh
    }
}

unsafe extern "C" fn usable_size(ptr: Ptr) -> usize {
    // SAFETY: as in `free`.
    let forward = || unsafe { core::mem::transmute::<Ptr, unsafe extern "C" fn(Ptr) -> usize>(original(2))(ptr) };
    placed_size(ptr).unwrap_or_else(forward)
}

/// The loaded C library.
struct Library {
    base: usize,
    segments: &'static [libc::Elf64_Phdr],
    symbols: *const libc::Elf64_Sym,
    strings: *const c_char,
    /// DT_GNU_HASH: numbers of buckets, of symbols before the first that is hashed, and of words of the filter.
    hash: *const u32,
}

/// An entry of the dynamic section: tag and value.
type Dynamic = (u64, usize);
const DT_NULL: u64 = 0;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// Bytes of the header of DT_GNU_HASH.
const HASH_HEADER: usize = 16;
const STT_FUNC: u8 = 2;

impl Library {
    fn of_c() -> Option<Library> {
        unsafe extern "C" {
            fn gnu_get_libc_version() -> *const c_char;
        }
        // SAFETY: an all-zero structure is valid, and dladdr fills it; any address may be asked for. A loaded library
        // begins with its header, and its first page holds the program headers.
        let (base, segments) = unsafe {
            let mut info: libc::Dl_info = core::mem::zeroed();
            if libc::dladdr(gnu_get_libc_version as *const c_void, &raw mut info) == 0 {
                return None;
            }
            let header = info.dli_fbase.cast::<libc::Elf64_Ehdr>();
            let (at, count) = ((*header).e_phoff as usize, usize::from((*header).e_phnum));
            if at + count * size_of::<libc::Elf64_Phdr>() > PAGE {
                return None;
            }
            (
                info.dli_fbase as usize,
                core::slice::from_raw_parts(info.dli_fbase.byte_add(at).cast_const().cast(), count),
            )
        };
        let segments: &[libc::Elf64_Phdr] = segments;
        let dynamic = segments.iter().find(|s| s.p_type == libc::PT_DYNAMIC)?;
        let (mut entry, mut found) = ((base + dynamic.p_vaddr as usize) as *const Dynamic, [0; 3]);
        // SAFETY: the dynamic section ends with an entry of tag DT_NULL.
        while let (tag, value) = unsafe { entry.read() }
            && tag != DT_NULL
        {
            let slot = [DT_SYMTAB, DT_STRTAB, DT_GNU_HASH].iter().position(|wanted| *wanted == tag);
            if let Some(place) = slot.and_then(|slot| found.get_mut(slot)) {
                // The loader has made an address of the offset, unless the section is read-only.
                *place = if value < base { base + value } else { value };
            }
            entry = entry.wrapping_add(1);
        }
        let [symbols, strings, hash] = found;
        let complete = found.iter().all(|address| *address != 0);
        complete.then_some(Library {
            base,
            segments,
            symbols: symbols as *const _,
            strings: strings as *const _,
            hash: hash as *const _,
        })
    }

    /// Calls `visit` with every function `name` that the library defines.
    fn symbols(&self, name: &CStr, mut visit: impl FnMut(*mut libc::Elf64_Sym)) {
        let hash = name.to_bytes().iter().fold(5381_u32, |h, &c| h.wrapping_mul(33).wrapping_add(u32::from(c)));
        // SAFETY: the hash table of a loaded library: header, filter, buckets, chains. A chain ends at an odd word.
        unsafe {
            let [buckets, first, filter] = [0, 1, 2].map(|i| self.hash.add(i).read());
            let bucket = self.hash.byte_add(HASH_HEADER + filter as usize * size_of::<u64>());
            let chains = bucket.add(buckets as usize);
            let mut index = bucket.add((hash % buckets.max(1)) as usize).read();
            while index >= first {
                let word = chains.add((index - first) as usize).read();
                let symbol = self.symbols.add(index as usize);
                let function = (*symbol).st_info & 15 == STT_FUNC && (*symbol).st_shndx != 0;
                if function
                    && word | 1 == hash | 1
                    && CStr::from_ptr(self.strings.add((*symbol).st_name as usize)) == name
                {
                    visit(symbol.cast_mut());
                }
                if word & 1 == 1 {
                    return;
                }
                index += 1;
            }
        }
    }

    /// Makes `symbol` name the function at `address`.
    fn write(&self, symbol: *mut libc::Elf64_Sym, address: usize) -> Result<(), &'static str> {
        // SAFETY: a symbol of the loaded library; the field is aligned in a table of aligned entries.
        let value = unsafe { AtomicU64::from_ptr(&raw mut (*symbol).st_value) };
        let at = value.as_ptr() as usize;
        let inside = |s: &&libc::Elf64_Phdr| {
            let start = self.base + s.p_vaddr as usize;
            s.p_type == libc::PT_LOAD && (start..start + s.p_memsz as usize).contains(&at)
        };
        if self.segments.iter().find(inside).is_none_or(|s| s.p_flags != libc::PF_R) {
            return Err("the symbols of the C library are in its code");
        }
        let protect = |rights: c_int| {
            // SAFETY: the page of the symbol, of a segment that is only read, so that no thread runs or writes in it.
            unsafe { libc::syscall(libc::SYS_mprotect, at & !(PAGE - 1), PAGE, rights) == 0 }
        };
        if !protect(libc::PROT_READ | libc::PROT_WRITE) {
            return Err("the symbols of the C library cannot be changed");
        }
        // One store: a thread that looks the symbol up sees the old or the new function.
        value.store(address.wrapping_sub(self.base) as u64, Ordering::Release);
        protect(libc::PROT_READ);
        Ok(())
    }
}

type Dlmopen = unsafe extern "C" fn(libc::c_long, *const c_char, c_int) -> Ptr;

extern "C" fn no_dlmopen(_space: libc::c_long, _name: *const c_char, _flags: c_int) -> Ptr {
    core::ptr::null_mut()
}

unsafe extern "C" fn choose_dlmopen(_space: libc::c_long, _name: *const c_char, flags: c_int) -> Dlmopen {
    before_loading(flags);
    real::symbol::dlmopen().unwrap_or(no_dlmopen)
}

/// dlmopen(3): jumps to the real function with arguments and return address unchanged, as `dlopen` does.
///
/// # Safety
/// C's contract of dlmopen.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlmopen(space: libc::c_long, name: *const c_char, flags: c_int) -> Ptr {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx", // rsp is a multiple of 16 now, as the ABI wants it at the call
        ".cfi_adjust_cfa_offset 8",
        "call {choose}",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        choose = sym choose_dlmopen,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_defines_what_takes_blocks() {
        let library = Library::of_c().unwrap();
        for name in [c"free", c"realloc", c"malloc_usable_size", c"getpid"] {
            let mut found = Vec::new();
            // SAFETY: a symbol of the loaded library.
            library.symbols(name, |symbol| found.push(library.base + unsafe { (*symbol).st_value } as usize));
            // SAFETY: a name that ends in NUL.
            let known = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
            assert!(found.contains(&known), "{name:?} {found:x?} {known:x}");
        }
        library.symbols(c"no_such_function", |_| panic!("it was found"));
    }
}
