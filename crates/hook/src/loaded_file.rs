//! The dynamic symbols of loaded files, read where the loader mapped them.
//!
//! Only files with DT_GNU_HASH are seen, which every linker writes by default since 2006. Nothing here calls dlsym or
//! dlopen, so nothing waits for a lock but that of dl_iterate_phdr, which a thread may take again.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::sys::PAGE;

type Segment = libc::Elf64_Phdr;
type Symbol = libc::Elf64_Sym;
type Relocation = libc::Elf64_Rela;

/// An entry of the dynamic section: tag and value.
type Dynamic = (u64, usize);
const DT_NULL: u64 = 0;
const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_JMPREL: u64 = 23;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// Bytes of the header of DT_GNU_HASH.
const HASH_HEADER: usize = 16;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;

/// A loaded file. Valid while the file is loaded: in [`each`], or for good if the program was started with the file.
#[derive(Clone, Copy, Debug)]
pub struct LoadedFile {
    bias: usize,
    name: *const c_char,
    segments: *const Segment,
    segment_count: usize,
    symbols: *const Symbol,
    strings: *const c_char,
    /// DT_GNU_HASH: numbers of buckets, of symbols before the first that is hashed, and of words of the filter.
    hash: *const u32,
    /// Address and number of the relocations of data, and of calls.
    relocations: [(*const Relocation, usize); 2],
}

/// A function that a file defines.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    symbol: *mut Symbol,
    /// Address of its code; for an indirect function that of its resolver.
    pub address: usize,
    /// The loader calls the function at `address` to find the code (STT_GNU_IFUNC).
    pub is_indirect: bool,
}

/// Whether one of the loaded files uses the symbol `name` of another one.
pub fn any_uses(name: &CStr) -> bool {
    let mut found = false;
    each(|file| {
        file.uses(|used| {
            found = used == name;
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

/// Calls `visit` with every file of this namespace in the order in which the loader searches those that the program was
/// started with. The files stay loaded meanwhile.
pub fn each<F: FnMut(LoadedFile) -> ControlFlow<()>>(mut visit: F) {
    unsafe extern "C" fn step<F: FnMut(LoadedFile) -> ControlFlow<()>>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid info; the data is the closure of `each`, which nothing else uses now.
        let (info, visit) = unsafe { (&*info, &mut *visit.cast::<F>()) };
        LoadedFile::of(info).map_or(0, |file| c_int::from(visit(file).is_break()))
    }
    // SAFETY: the callback follows dl_iterate_phdr's contract and the closure outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(step::<F>), (&raw mut visit).cast()) };
}

impl LoadedFile {
    fn of(info: &libc::dl_phdr_info) -> Option<LoadedFile> {
        let bias = info.dlpi_addr as usize;
        let (segments, segment_count) = (info.dlpi_phdr, usize::from(info.dlpi_phnum));
        // SAFETY: the loader's table of program headers has dlpi_phnum entries.
        let all = unsafe { core::slice::from_raw_parts(segments, segment_count) };
        let dynamic = all.iter().find(|s| s.p_type == libc::PT_DYNAMIC)?;
        let mut entry = bias.wrapping_add(dynamic.p_vaddr as usize) as *const Dynamic;
        const WANTED: [u64; 7] = [DT_SYMTAB, DT_STRTAB, DT_GNU_HASH, DT_RELA, DT_JMPREL, DT_RELASZ, DT_PLTRELSZ];
        let mut found = [0; WANTED.len()];
        // SAFETY: the dynamic section of a loaded file ends with an entry of tag DT_NULL.
        while let (tag, value) = unsafe { entry.read() }
            && tag != DT_NULL
        {
            let slot = WANTED.iter().position(|wanted| *wanted == tag);
            if let Some(place) = slot.and_then(|slot| found.get_mut(slot)) {
                let is_size = tag == DT_RELASZ || tag == DT_PLTRELSZ;
                // The loader has made an address of the offset, unless the section is read-only.
                *place = if !is_size && value < bias { bias.wrapping_add(value) } else { value };
            }
            entry = entry.wrapping_add(1);
        }
        let [symbols, strings, hash, data, calls, data_bytes, calls_bytes] = found;
        let table = |at: usize, bytes: usize| {
            (at as *const Relocation, if at == 0 { 0 } else { bytes / size_of::<Relocation>() })
        };
        [symbols, strings, hash].iter().all(|address| *address != 0).then_some(LoadedFile {
            bias,
            name: info.dlpi_name,
            segments,
            segment_count,
            symbols: symbols as *const _,
            strings: strings as *const _,
            hash: hash as *const _,
            relocations: [table(data, data_bytes), table(calls, calls_bytes)],
        })
    }

    fn segments(&self) -> &[Segment] {
        // SAFETY: the loader's table of program headers of a loaded file.
        unsafe { core::slice::from_raw_parts(self.segments, self.segment_count) }
    }

    fn segment_of(&self, address: usize) -> Option<&Segment> {
        self.segments().iter().find(|s| {
            let start = self.bias.wrapping_add(s.p_vaddr as usize);
            s.p_type == libc::PT_LOAD && (start..start.wrapping_add(s.p_memsz as usize)).contains(&address)
        })
    }

    /// Whether `address` lies in a segment of the file.
    pub fn contains(&self, address: usize) -> bool {
        self.segment_of(address).is_some()
    }

    /// Lowest address of its segments.
    pub fn start(&self) -> usize {
        let loaded = self.segments().iter().filter(|s| s.p_type == libc::PT_LOAD);
        loaded.map(|s| self.bias.wrapping_add(s.p_vaddr as usize)).min().unwrap_or(self.bias)
    }

    /// Path without directories; that of the executable for the program itself.
    pub fn file_name(&self) -> &[u8] {
        // SAFETY: the loader's names are null or C strings that live as long as the file is loaded.
        let name = if self.name.is_null() { c"" } else { unsafe { CStr::from_ptr(self.name) } };
        let path = if name.is_empty() { crate::modules::executable() } else { name.to_bytes() };
        path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
    }

    /// Calls `visit` with every version of the function `name` that the file defines.
    pub fn functions(&self, name: &CStr, mut visit: impl FnMut(Definition)) {
        let hash = name.to_bytes().iter().fold(5381_u32, |h, &c| h.wrapping_mul(33).wrapping_add(u32::from(c)));
        // SAFETY: the hash table of a loaded file: header, filter, buckets, chains. A chain ends at an odd word.
        unsafe {
            let [buckets, first, filter] = [0, 1, 2].map(|i| self.hash.add(i).read());
            let bucket = self.hash.byte_add(HASH_HEADER + filter as usize * size_of::<u64>());
            let chains = bucket.add(buckets as usize);
            let mut index = bucket.add((hash % buckets.max(1)) as usize).read();
            while index >= first.max(1) {
                let word = chains.add((index - first) as usize).read();
                let symbol = self.symbols.add(index as usize);
                let function = matches!((*symbol).st_info & 15, STT_FUNC | STT_GNU_IFUNC) && (*symbol).st_shndx != 0;
                if function && word | 1 == hash | 1 && self.name_of(&*symbol) == name {
                    let address = self.bias.wrapping_add((*symbol).st_value as usize);
                    let is_indirect = (*symbol).st_info & 15 == STT_GNU_IFUNC;
                    visit(Definition { symbol: symbol.cast_mut(), address, is_indirect });
                }
                if word & 1 == 1 {
                    return;
                }
                index += 1;
            }
        }
    }

    /// Whether the file defines a function `name`.
    pub fn defines(&self, name: &CStr) -> bool {
        let mut found = false;
        self.functions(name, |_| found = true);
        found
    }

    fn name_of(&self, symbol: &Symbol) -> &CStr {
        // SAFETY: a symbol's name lies in the string table, which ends with NUL.
        unsafe { CStr::from_ptr(self.strings.add(symbol.st_name as usize)) }
    }

    /// Calls `visit` with the name of every symbol that the file uses and does not define, once for each use.
    pub fn uses(&self, mut visit: impl FnMut(&CStr) -> ControlFlow<()>) {
        for (table, count) in self.relocations {
            for index in 0..count {
                // SAFETY: the relocations of a loaded file, and the symbols that they name; tables of aligned entries.
                let symbol = unsafe {
                    let of = ((*table.add(index)).r_info >> 32) as usize;
                    if of == 0 {
                        continue;
                    }
                    &*self.symbols.add(of)
                };
                if symbol.st_shndx == 0 && visit(self.name_of(symbol)).is_break() {
                    return;
                }
            }
        }
    }

    /// Makes each of the symbols name the function at the address beside it, in the memory of this process: what is
    /// bound or looked up from now on finds that function.
    ///
    /// # Errors
    /// Why the symbols stay as they are.
    pub fn redefine(&self, changes: &[(Definition, usize)]) -> Result<(), &'static str> {
        let at = |change: &(Definition, usize)| change.0.symbol as usize;
        let (Some(first), Some(last)) = (changes.iter().map(at).min(), changes.iter().map(at).max()) else {
            return Ok(());
        };
        let start = first & !(PAGE - 1);
        let length = last + size_of::<Symbol>() - start;
        let segment = self.segment_of(first).filter(|s| s.p_flags & libc::PF_W == 0);
        let rights = match segment.map(|s| s.p_flags & (libc::PF_R | libc::PF_X)) {
            Some(libc::PF_R) => libc::PROT_READ,
            // Threads may run code of these pages meanwhile.
            Some(flags) if flags == libc::PF_R | libc::PF_X => libc::PROT_READ | libc::PROT_EXEC,
            _ => return Err("its symbols are where they are not expected"),
        };
        // SAFETY: pages of the symbol table, which are private to this process and keep the rights that they have.
        let protect = |rights: c_int| unsafe { libc::syscall(libc::SYS_mprotect, start, length, rights) == 0 };
        if !protect(rights | libc::PROT_WRITE) {
            return Err("its symbols cannot be changed");
        }
        for (definition, address) in changes {
            // SAFETY: a symbol of the loaded file; the field is aligned in a table of aligned entries.
            let value = unsafe { AtomicU64::from_ptr(&raw mut (*definition.symbol).st_value) };
            // One store: a thread that looks the symbol up sees the old or the new function.
            value.store(address.wrapping_sub(self.bias) as u64, Ordering::Release);
        }
        protect(rights);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<LoadedFile> {
        let mut files = Vec::new();
        each(|file| {
            files.push(file);
            ControlFlow::Continue(())
        });
        files
    }

    fn c_library() -> LoadedFile {
        *all().iter().find(|file| file.file_name() == b"libc.so.6").unwrap()
    }

    #[test]
    fn functions_are_found_where_the_loader_finds_them() {
        let library = c_library();
        for name in [c"free", c"realloc", c"malloc_usable_size", c"getpid"] {
            let mut found = Vec::new();
            library.functions(name, |function| found.push(function.address));
            // SAFETY: a name that ends in NUL.
            let known = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
            assert!(found.contains(&known) && library.contains(known), "{name:?} {found:x?} {known:x}");
        }
        assert!(!library.defines(c"no_such_function") && !library.contains(&raw const library as usize));
    }

    #[test]
    fn uses_are_the_functions_of_others() {
        let program = all()[0];
        assert_eq!(program.file_name(), std::env::current_exe().unwrap().file_name().unwrap().as_encoded_bytes());
        let used = |file: &LoadedFile, wanted: &CStr| {
            let mut found = false;
            file.uses(|name| {
                found |= name == wanted;
                ControlFlow::Continue(())
            });
            found
        };
        assert!(used(&program, c"dl_iterate_phdr") && !used(&program, c"no_such_function"));
        assert!(!used(&c_library(), c"dl_iterate_phdr"), "it defines that function");
    }
}
