//! From a code address to the module it lies in.
//!
//! glibc 2.35 and later answer with `_dl_find_object`, which takes no lock, does not allocate and may be
//! called in a signal handler. On older versions `dl_iterate_phdr` is used, which takes the loader's lock.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::{real, sys};

type Ehdr = libc::Elf64_Ehdr;
type Phdr = libc::Elf64_Phdr;

/// A loaded ELF file. The memory it points to stays mapped until the module is dlclosed.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// First and one past the last address of the module's segments.
    pub start: usize,
    /// See `start`.
    pub end: usize,
    /// Added to an ELF virtual address to give the address in memory.
    pub bias: usize,
    /// Address of `.eh_frame_hdr`; 0 when there is none.
    pub eh_frame_hdr: usize,
    name: *const c_char,
    phdr: *const Phdr,
    phnum: usize,
}

/// glibc's `struct dl_find_object` on x86_64.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: *const LinkMap,
    eh_frame: usize,
    reserved: [u64; 7],
}

/// The public head of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    l_addr: usize,
    l_name: *const c_char,
}

/// The module that holds `address`, or `None` for anonymous code and plain data.
pub fn find(address: usize) -> Option<Module> {
    match real::symbol::_dl_find_object() {
        Some(find_object) => {
            // SAFETY: an all-zero result is valid and the function fills it on success.
            let mut found: DlFindObject = unsafe { core::mem::zeroed() };
            // SAFETY: any address may be asked for.
            if unsafe { find_object(address as *mut c_void, (&raw mut found).cast()) } != 0 {
                return None;
            }
            from_object(&found)
        }
        None => search(address),
    }
}

fn from_object(found: &DlFindObject) -> Option<Module> {
    // SAFETY: the loader's link map stays while the module is loaded.
    let map = unsafe { found.link_map.as_ref()? };
    // SAFETY: the loader's names are null or C strings.
    if map.l_name.is_null() || unsafe { *map.l_name } == 0 {
        return program(map, found.eh_frame);
    }
    let header = found.map_start as *const Ehdr;
    // SAFETY: map_start is the first mapped page of the module, readable as every first segment is.
    let (magic, phoff, phnum) = unsafe { ((*header).e_ident, (*header).e_phoff as usize, (*header).e_phnum as usize) };
    let has_header =
        magic.starts_with(b"\x7fELF") && phoff < sys::PAGE && phoff + phnum * size_of::<Phdr>() <= sys::PAGE;
    Some(Module {
        start: found.map_start,
        end: found.map_end,
        bias: map.l_addr,
        eh_frame_hdr: found.eh_frame,
        name: map.l_name,
        phdr: found.map_start.wrapping_add(phoff) as *const Phdr,
        phnum: if has_header { phnum } else { 0 },
    })
}

/// The program itself. glibc knows each of its segments alone when there is room between them, so the kernel's word for
/// the program headers is taken.
fn program(map: &LinkMap, eh_frame_hdr: usize) -> Option<Module> {
    // SAFETY: no preconditions.
    let (phdr, phnum) = unsafe { (libc::getauxval(libc::AT_PHDR) as *const Phdr, libc::getauxval(libc::AT_PHNUM)) };
    let (bias, name) = (map.l_addr, map.l_name);
    let mut module = Module { start: usize::MAX, end: 0, bias, eh_frame_hdr, name, phdr, phnum: phnum as usize };
    let table = module;
    for header in table.headers().iter().filter(|h| h.p_type == libc::PT_LOAD) {
        let at = bias.wrapping_add(header.p_vaddr as usize);
        module.start = module.start.min(at & !(sys::PAGE - 1));
        module.end = module.end.max(at.wrapping_add(header.p_memsz as usize));
    }
    (module.start < module.end).then_some(module)
}

struct Search {
    address: usize,
    found: Option<Module>,
}

#[cold]
fn search(address: usize) -> Option<Module> {
    let mut search = Search { address, found: None };
    // SAFETY: the callback follows dl_iterate_phdr's contract and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid info, and the data is the Search of `search`.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
    let bias = info.dlpi_addr as usize;
    let mut module = Module {
        start: usize::MAX,
        end: 0,
        bias,
        eh_frame_hdr: 0,
        name: info.dlpi_name,
        phdr: info.dlpi_phdr,
        phnum: usize::from(info.dlpi_phnum),
    };
    let mut inside = false;
    let table = module;
    for header in table.headers() {
        let at = bias.wrapping_add(header.p_vaddr as usize);
        if header.p_type == libc::PT_LOAD {
            let end = at.wrapping_add(header.p_memsz as usize);
            inside |= (at..end).contains(&search.address);
            module.start = module.start.min(at);
            module.end = module.end.max(end);
        } else if header.p_type == libc::PT_GNU_EH_FRAME {
            module.eh_frame_hdr = at;
        }
    }
    if inside {
        search.found = Some(module);
    }
    c_int::from(inside)
}

impl Module {
    /// Path as the loader recorded it; for the program itself the target of `/proc/self/exe`. May be empty.
    pub fn path(&self) -> &[u8] {
        // SAFETY: the loader's names are C strings that live as long as the module.
        let name = if self.name.is_null() { c"" } else { unsafe { CStr::from_ptr(self.name) } };
        if name.is_empty() { executable() } else { name.to_bytes() }
    }

    /// Last component of [`Module::path`]: the module's name in a call site `name+0xvaddr`.
    pub fn file_name(&self) -> &[u8] {
        let path = self.path();
        path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
    }

    /// ELF virtual address of a memory address.
    pub fn vaddr(&self, address: usize) -> usize {
        address.wrapping_sub(self.bias)
    }

    /// Program headers; empty when they are not in the first page.
    pub fn headers(&self) -> &[Phdr] {
        if self.phnum == 0 || self.phdr.is_null() {
            return &[];
        }
        // SAFETY: the loader's table, or the one in the module's first page, bounds checked at creation.
        unsafe { core::slice::from_raw_parts(self.phdr, self.phnum) }
    }

    /// One past the last file-backed byte of the segment that holds `address`, if one does.
    pub fn segment_end(&self, address: usize) -> Option<usize> {
        self.headers().iter().filter(|h| h.p_type == libc::PT_LOAD).find_map(|h| {
            let start = self.bias.wrapping_add(h.p_vaddr as usize);
            let end = start.wrapping_add(h.p_filesz as usize);
            (start..end).contains(&address).then_some(end)
        })
    }
}

/// Longest path the kernel gives for /proc/self/exe.
const PATH_MAX: usize = 4096;

struct ExePath(UnsafeCell<[u8; PATH_MAX]>);

// SAFETY: written only by racing calls of `executable` that write the same bytes before publishing the length.
unsafe impl Sync for ExePath {}

static EXE: ExePath = ExePath(UnsafeCell::new([0; PATH_MAX]));
static EXE_LEN: AtomicUsize = AtomicUsize::new(0);

/// Path of the running program (empty without /proc). Looked up once; call it at start-up.
pub fn executable() -> &'static [u8] {
    let mut len = EXE_LEN.load(Ordering::Acquire);
    if len == 0 {
        let _errno = crate::errno::Saved::now();
        let mut path = [0_u8; PATH_MAX];
        // SAFETY: `path` is writable for PATH_MAX bytes and the name is a C string.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_readlinkat,
                i64::from(libc::AT_FDCWD),
                c"/proc/self/exe".as_ptr(),
                path.as_mut_ptr(),
                PATH_MAX,
            )
        };
        len = usize::try_from(rc).unwrap_or(0);
        // SAFETY: all writers write the same path; readers wait for the Release store of its length.
        unsafe { core::ptr::copy_nonoverlapping(path.as_ptr(), EXE.0.get().cast::<u8>(), len) };
        EXE_LEN.store(len, Ordering::Release);
    }
    // SAFETY: the first `len` bytes were written before the length was published.
    unsafe { core::slice::from_raw_parts(EXE.0.get().cast::<u8>(), len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(find: fn(usize) -> Option<Module>) {
        let here = check as *const () as usize;
        let ours = find(here).unwrap();
        assert_eq!(ours.path(), std::env::current_exe().unwrap().as_os_str().as_encoded_bytes());
        assert!((ours.start..ours.end).contains(&here) && ours.eh_frame_hdr != 0);
        assert!(ours.segment_end(here).unwrap() > here);
        let libc = find(real::symbol::malloc().unwrap() as *const () as usize).unwrap();
        assert_eq!(libc.file_name(), b"libc.so.6");
        let on_stack = 0_u8;
        assert!(find(&raw const on_stack as usize).is_none());
    }

    #[test]
    fn both_lookups_find_program_and_library() {
        check(find);
        check(search);
    }
}
