//! The module of an address for glibc before 2.35: from /proc/self/maps and the header in memory, without the loader.
//!
//! The address must be one that the loader cannot unload meanwhile, such as the return address of a live frame. Modules
//! that were found are kept in a table, so that the file is read about once for each of them.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering, fence};

use numamma_kernel::maps;

use super::{Ehdr, Module, Phdr};
use crate::{errno, sandbox, sys};

/// Modules that are kept. Most programs have some tens.
const SLOTS: usize = 256;
/// Words of an entry: start, end, bias, `.eh_frame_hdr`, program headers, their number, generation.
const WORDS: usize = 7;

/// One module. The number is odd while a thread writes; a reader that sees another number afterwards has read nothing.
struct Slot {
    number: AtomicUsize,
    words: [AtomicUsize; WORDS],
}

static TABLE: [Slot; SLOTS] =
    [const { Slot { number: AtomicUsize::new(0), words: [const { AtomicUsize::new(0) }; WORDS] } }; SLOTS];
/// Entries of an earlier generation do not count. Begins with 1, the empty entries have 0.
static GENERATION: AtomicUsize = AtomicUsize::new(1);

impl Slot {
    fn read(&self) -> Option<[usize; WORDS]> {
        let number = self.number.load(Ordering::Acquire);
        let words = core::array::from_fn(|i| self.words.get(i).map_or(0, |word| word.load(Ordering::Relaxed)));
        fence(Ordering::Acquire);
        (number.is_multiple_of(2) && self.number.load(Ordering::Relaxed) == number).then_some(words)
    }

    /// Writes unless another thread does: in a forked child that thread may not exist, and the slot stays unused.
    fn write(&self, words: [usize; WORDS]) {
        let number = self.number.load(Ordering::Relaxed);
        let odd = number | 1;
        if odd == number || self.number.compare_exchange(number, odd, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        fence(Ordering::Release);
        self.words.iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        self.number.store(number.wrapping_add(2), Ordering::Release);
    }
}

fn keep(module: &Module, generation: usize) {
    let Module { start, end, bias, eh_frame_hdr, phdr, phnum, .. } = *module;
    if let Some(slot) = TABLE.get((start / sys::PAGE) % SLOTS) {
        slot.write([start, end, bias, eh_frame_hdr, phdr as usize, phnum, generation]);
    }
}

/// The module of an address that cannot be unloaded meanwhile. It has no name.
#[cold]
pub fn find(address: usize) -> Option<Module> {
    let generation = GENERATION.load(Ordering::Acquire);
    let kept = TABLE.iter().filter_map(Slot::read).find_map(|words| {
        let [start, end, bias, eh_frame_hdr, phdr, phnum, of] = words;
        let name = core::ptr::null();
        let module = || Module { start, end, bias, eh_frame_hdr, name, phdr: phdr as *const Phdr, phnum };
        (of == generation && (start..end).contains(&address)).then(module)
    });
    if kept.is_some() || sandbox::entered() {
        return kept;
    }
    let _errno = errno::Saved::now();
    let found = from_maps(address)?;
    keep(&found, generation);
    Some(found)
}

/// Forgets all entries.
pub fn forget() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// Keeps the modules that the process starts with: to be called when the library is loaded.
pub fn start() {
    // SAFETY: the callback follows dl_iterate_phdr's contract and takes no data.
    unsafe { libc::dl_iterate_phdr(Some(visit), core::ptr::null_mut()) };
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, _data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid info.
    let info = unsafe { &*info };
    let module = described(info.dlpi_addr as usize, info.dlpi_phdr, usize::from(info.dlpi_phnum));
    keep(&module, GENERATION.load(Ordering::Relaxed));
    0
}

/// The module with these program headers.
fn described(bias: usize, phdr: *const Phdr, phnum: usize) -> Module {
    let name = core::ptr::null();
    let mut module = Module { start: usize::MAX, end: 0, bias, eh_frame_hdr: 0, name, phdr, phnum };
    let table = module;
    for header in table.headers() {
        let at = bias.wrapping_add(header.p_vaddr as usize);
        match header.p_type {
            libc::PT_LOAD => {
                module.start = module.start.min(at);
                module.end = module.end.max(at.wrapping_add(header.p_memsz as usize));
            }
            libc::PT_GNU_EH_FRAME => module.eh_frame_hdr = at,
            _ => {}
        }
    }
    module
}

fn from_maps(address: usize) -> Option<Module> {
    let mut inode = 0;
    maps::for_each_own(|m| inode = if m.contains(address) { m.inode } else { inode });
    if inode == 0 {
        return None; // no file's: generated code
    }
    // The header is where the file begins: the last such mapping that is not above the address.
    let mut base = None;
    maps::for_each_own(|m| {
        let begins = m.inode == inode && m.offset == 0 && m.start <= address && m.prot & libc::PROT_READ != 0;
        base = if begins { Some(m.start) } else { base };
    });
    let base = base?;
    let header = base as *const Ehdr;
    // SAFETY: the first page of the file that holds `address`. The caller says that its module is not unloaded.
    let (magic, phoff, phnum) =
        unsafe { ((*header).e_ident, (*header).e_phoff as usize, usize::from((*header).e_phnum)) };
    if !magic.starts_with(b"\x7fELF") || phoff.checked_add(phnum * size_of::<Phdr>())? > sys::PAGE {
        return None;
    }
    let phdr = base.wrapping_add(phoff) as *const Phdr;
    let first = described(0, phdr, phnum);
    let module = described(base.wrapping_sub(first.start & !(sys::PAGE - 1)), phdr, phnum);
    (module.start..module.end).contains(&address).then_some(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(module: &Module) -> [usize; 5] {
        [module.start & !(sys::PAGE - 1), module.end, module.bias, module.eh_frame_hdr, module.phnum]
    }

    /// The loader's answer, the one from the maps, and the one from the table.
    #[test]
    fn modules_are_found_as_the_loader_finds_them() {
        let malloc = crate::real::symbol::malloc().unwrap() as *const () as usize;
        for address in [find as *const () as usize, malloc] {
            let known = words(&super::super::find(address).unwrap());
            assert_eq!(words(&from_maps(address).unwrap()), known);
            forget();
            assert_eq!(words(&find(address).unwrap()), known, "from the maps");
            assert_eq!(words(&find(address + 1).unwrap()), known, "kept");
            forget();
            start();
            assert_eq!(words(&find(address).unwrap()), known, "from the start");
        }
        let on_stack = 0_u8;
        assert!(find(&raw const on_stack as usize).is_none());
    }
}
