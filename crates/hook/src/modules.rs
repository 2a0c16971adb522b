//! From a code address to the module it lies in.
//!
//! glibc 2.35 and later answer with `_dl_find_object`, which takes no lock, does not allocate and may be
//! called in a signal handler. For older versions [`mapped`] answers. `dl_iterate_phdr` would take a lock of the
//! loader, for which no hook may wait: another thread may hold it while it waits for this one, or may have held it when
//! this process was forked.

mod mapped;

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::{errno, real, sandbox, sys};

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
    l_ld: usize,
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

fn ask(find_object: FindObject, address: usize) -> Option<DlFindObject> {
    // SAFETY: an all-zero result is valid and the function fills it on success; any address may be asked for.
    unsafe {
        let mut found: DlFindObject = core::mem::zeroed();
        (find_object(address as *mut c_void, (&raw mut found).cast()) == 0).then_some(found)
    }
}

/// The module that holds `address`, or `None` for anonymous code and plain data. It must not be unloaded meanwhile, as
/// no module is to which a live frame returns.
pub fn find(address: usize) -> Option<Module> {
    match real::symbol::_dl_find_object() {
        Some(find_object) => from_object(&ask(find_object, address)?),
        None => mapped::find(address),
    }
}

/// Where a module is in memory, and what tells it apart from another one that is loaded there later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First address.
    pub start: usize,
    /// One past the last address.
    pub end: usize,
    eh_frame_hdr: usize,
    map: usize,
}

/// Where the module is that holds `address` at this moment, which another thread may be unloading. `None` also unless
/// [`asks_loader`].
pub fn place_of(address: usize) -> Option<Place> {
    let found = ask(real::symbol::_dl_find_object()?, address)?;
    let DlFindObject { map_start: start, map_end: end, eh_frame: eh_frame_hdr, link_map, .. } = found;
    Some(Place { start, end, eh_frame_hdr, map: link_map as usize })
}

/// Address of the dynamic section of the module that dlopen has returned as `handle`; `None` for null.
///
/// # Safety
/// `handle` is null or was returned by dlopen and has not been closed.
pub unsafe fn dynamic_section(handle: *mut c_void) -> Option<usize> {
    // SAFETY: the caller's promise: a handle is a link map.
    unsafe { handle.cast::<LinkMap>().as_ref() }.map(|map| map.l_ld)
}

/// Whether [`find`] asks the loader, and so knows of each module, where it is and how it is called.
pub fn asks_loader() -> bool {
    real::symbol::_dl_find_object().is_some()
}

/// Whether the module of `address`, which was loaded once, may still be so.
pub fn may_be_loaded(address: usize) -> bool {
    if asks_loader() || sandbox::entered() {
        return !asks_loader() || place_of(address).is_some();
    }
    let _errno = errno::Saved::now();
    let (page, mut resident) = (address & !(sys::PAGE - 1), 0_u8);
    // SAFETY: any page may be asked for; the result is a byte for each. The call fails if nothing is mapped there.
    unsafe { libc::syscall(libc::SYS_mincore, page, sys::PAGE, &raw mut resident) == 0 }
}

/// To be called when the library is loaded: prepares [`find`].
pub fn start() {
    if !asks_loader() {
        mapped::start();
    }
}

/// Forgets which modules were found where: one was unloaded.
pub(crate) fn forget() {
    mapped::forget();
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

impl Module {
    /// Whether this is the program itself; to be asked only if [`asks_loader`].
    pub fn is_program(&self) -> bool {
        // SAFETY: the loader's names are C strings that live as long as the module.
        self.name.is_null() || unsafe { *self.name } == 0
    }

    /// Path as the loader recorded it; for the program itself the target of `/proc/self/exe`. May be empty. To be asked
    /// only if [`asks_loader`].
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

    #[test]
    fn program_and_libraries_are_found() {
        let here = executable as *const () as usize;
        let ours = find(here).unwrap();
        assert_eq!(ours.path(), std::env::current_exe().unwrap().as_os_str().as_encoded_bytes());
        assert!((ours.start..ours.end).contains(&here) && ours.eh_frame_hdr != 0 && ours.is_program());
        assert!(ours.segment_end(here).unwrap() > here);
        let libc = find(real::symbol::malloc().unwrap() as *const () as usize).unwrap();
        assert!(libc.file_name() == b"libc.so.6" && !libc.is_program());
        let on_stack = 0_u8;
        assert!(find(&raw const on_stack as usize).is_none() && place_of(here).is_some());
    }
}
