//! The ELF files that are loaded.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use numamma_hook::modules;

/// Symbolic links that are followed to the file of a library; the kernel follows 40, packages use one to three.
const MAX_LINKS: usize = 8;

/// One loaded ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Path; for the program the target of /proc/self/exe.
    pub path: Vec<u8>,
    /// File name at the end of the links of the path: a profile names libz.so.1 by its mapped file, libz.so.1.2.13.
    /// Empty before [`Loaded::follow_links`], and when both names are equal.
    pub real_name: Vec<u8>,
    /// Difference between addresses in memory and in the file.
    pub bias: usize,
    /// Lowest and one past the highest address of its segments.
    pub start: usize,
    pub end: usize,
    /// The module is the program.
    pub program: bool,
    /// Writable segments: start, end of the file-backed part, end.
    pub writable: Vec<(usize, usize, usize)>,
    /// Range that is read-only once relocated.
    pub relro: (usize, usize),
    /// Hash of the build-id in memory; 0 without one.
    pub build_id: u64,
    /// Where the loader searches for what it opens.
    pub search: Search,
}

/// Where the loader searches for a library without a directory in its name that a module opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// In the places for all modules.
    Common,
    /// Also in directories of the module's own (DT_RUNPATH).
    Own,
    /// Also in directories that count for the libraries which the module loads, too (DT_RPATH).
    Inherited,
}

/// What the loader counts: modules that were ever loaded, and unloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub loaded: u64,
    pub unloaded: u64,
}

impl Counts {
    fn of(info: &libc::dl_phdr_info) -> Counts {
        Counts { loaded: info.dlpi_adds, unloaded: info.dlpi_subs }
    }

    /// As they are now. Takes the lock of the loader, as [`list`].
    pub fn now() -> Counts {
        unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
            // SAFETY: dl_iterate_phdr passes a valid info; the data is the counts of `now`.
            unsafe { *data.cast::<Counts>() = Counts::of(&*info) };
            1 // ends the walk
        }
        let mut counts = Counts::default();
        // SAFETY: the callback follows dl_iterate_phdr's contract and the counts outlive the call.
        unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut counts).cast()) };
        counts
    }
}

impl Loaded {
    /// Path without directories.
    pub fn file_name(&self) -> &[u8] {
        last_part(&self.path)
    }

    /// Whether `name` in a policy means this module: the name that the loader uses or the real name of the file.
    pub fn is_called(&self, name: &[u8]) -> bool {
        self.file_name() == name || self.real_name == name
    }

    fn of(path: &[u8], bias: usize, headers: &[libc::Elf64_Phdr], program: bool) -> Loaded {
        let writable = headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W != 0);
        let range = |h: &libc::Elf64_Phdr| range(bias, h);
        let (start, end) = extent(bias, headers);
        Loaded {
            path: path.to_vec(),
            real_name: Vec::new(),
            bias,
            start,
            end,
            program,
            writable: writable
                .map(|h| (range(h).0, range(h).0.wrapping_add(h.p_filesz as usize), range(h).1))
                .collect(),
            relro: headers.iter().find(|h| h.p_type == libc::PT_GNU_RELRO).map_or((0, 0), range),
            build_id: build_id(headers, bias),
            search: search(headers, bias),
        }
    }

    /// Sets `real_name`.
    pub fn follow_links(&mut self) {
        if !self.program && self.path.starts_with(b"/") {
            self.real_name = linked_name(&self.path).unwrap_or_default();
        }
    }
}

fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

/// File name at the end of a chain of symbolic links; `None` when `path` is no link. realpath(3) would allocate with
/// the malloc of the program, from which this function may be called.
pub fn linked_name(path: &[u8]) -> Option<Vec<u8>> {
    let mut at = Path::new(OsStr::from_bytes(path)).to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = std::fs::read_link(&at) else { break };
        at = at.parent().unwrap_or(Path::new("/")).join(target);
    }
    let name = OsString::from(at.file_name()?).into_vec();
    (name != last_part(path)).then_some(name)
}

/// One module of a [`list`].
pub enum Listed<K> {
    /// The caller knows it already.
    Known(K),
    New(Loaded),
}

/// Where the code of a module is, as far as that tells it apart from others.
#[derive(Clone, Copy, Debug)]
pub struct Extent<'a> {
    pub path: &'a [u8],
    pub start: usize,
    pub end: usize,
    pub bias: usize,
}

struct List<'a, K> {
    known: &'a mut dyn FnMut(&Extent<'_>) -> Option<K>,
    modules: Vec<Listed<K>>,
    counts: Counts,
}

/// All modules, the program first, and the counts that belong to this list. `known` says which of them the caller
/// knows. Takes the lock of the loader: see [`super::pending`] for who may call this.
pub fn list<K>(mut known: impl FnMut(&Extent<'_>) -> Option<K>) -> (Vec<Listed<K>>, Counts) {
    let mut list = List { known: &mut known, modules: Vec::new(), counts: Counts::default() };
    // SAFETY: the callback follows dl_iterate_phdr's contract and the list outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit::<K>), (&raw mut list).cast()) };
    (list.modules, list.counts)
}

unsafe extern "C" fn visit<K>(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid info; the data is the list of `list`.
    let (info, list) = unsafe { (&*info, &mut *data.cast::<List<'_, K>>()) };
    let program = list.modules.is_empty();
    list.counts = Counts::of(info);
    // SAFETY: the loader's names are null or C strings.
    let name = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
    let path = if program { modules::executable() } else { name.to_bytes() };
    let bias = info.dlpi_addr as usize;
    // SAFETY: the loader's table of program headers has dlpi_phnum entries.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let (start, end) = extent(bias, headers);
    let known = (list.known)(&Extent { path, start, end, bias });
    list.modules.push(match known {
        Some(known) => Listed::Known(known),
        None => Listed::New(Loaded::of(path, bias, headers, program)),
    });
    0
}

/// First and one past the last address of a segment.
fn range(bias: usize, header: &libc::Elf64_Phdr) -> (usize, usize) {
    let start = bias.wrapping_add(header.p_vaddr as usize);
    (start, start.wrapping_add(header.p_memsz as usize))
}

/// Lowest and one past the highest address of the segments.
fn extent(bias: usize, headers: &[libc::Elf64_Phdr]) -> (usize, usize) {
    let segments = headers.iter().filter(|h| h.p_type == libc::PT_LOAD).map(|h| range(bias, h));
    segments.fold((usize::MAX, 0), |all, (start, end)| (all.0.min(start), all.1.max(end)))
}

/// The module of code at `address`, which cannot be unloaded meanwhile. Takes no lock. `None` for generated code, for a
/// module whose program headers are not in its first page, and before glibc 2.35.
pub fn at(address: usize) -> Option<Loaded> {
    let module = modules::find(address).filter(|_| modules::asks_loader())?;
    let headers = module.headers();
    (!headers.is_empty()).then(|| Loaded::of(module.path(), module.bias, headers, module.is_program()))
}

/// The public head of glibc's `struct link_map`, to which the result of dlopen points.
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
    dynamic: usize,
}

/// An address in the module that dlopen has returned as `handle`, the module's bias and its path.
///
/// # Safety
/// `handle` was returned by dlopen and has not been closed; it is valid as long as the result is used.
pub unsafe fn opened<'a>(handle: *mut c_void) -> (usize, usize, &'a [u8]) {
    // SAFETY: the caller's promise; the loader's names are null or C strings.
    unsafe {
        let map = &*handle.cast::<LinkMap>();
        let name = if map.name.is_null() { c"" } else { CStr::from_ptr(map.name) };
        (map.dynamic, map.bias, name.to_bytes())
    }
}

/// An entry of the dynamic section, and the tags that are looked for (elf.h).
type Dynamic = (u64, u64);
const DT_NULL: u64 = 0;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// What the dynamic section of a loaded module says about searching. The loader ignores DT_RPATH beside DT_RUNPATH.
fn search(headers: &[libc::Elf64_Phdr], bias: usize) -> Search {
    let Some(dynamic) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) else { return Search::Common };
    let at = bias.wrapping_add(dynamic.p_vaddr as usize) as *const Dynamic;
    // SAFETY: a section of a module that is loaded as long as the loader's lock is held or its code runs.
    let entries = unsafe { core::slice::from_raw_parts(at, dynamic.p_memsz as usize / size_of::<Dynamic>()) };
    let tags = || entries.iter().map(|(tag, _)| *tag).take_while(|tag| *tag != DT_NULL);
    match (tags().any(|tag| tag == DT_RUNPATH), tags().any(|tag| tag == DT_RPATH)) {
        (true, _) => Search::Own,
        (false, true) => Search::Inherited,
        (false, false) => Search::Common,
    }
}

/// Type of the note with the build-id (elf.h, NT_GNU_BUILD_ID).
const BUILD_ID: u32 = 3;

/// Hash of the build-id of a loaded module; 0 without one.
fn build_id(headers: &[libc::Elf64_Phdr], bias: usize) -> u64 {
    let is_loaded = |note: &&libc::Elf64_Phdr| {
        let inside = |h: &libc::Elf64_Phdr| {
            h.p_vaddr <= note.p_vaddr
                && note.p_vaddr.saturating_add(note.p_filesz) <= h.p_vaddr.saturating_add(h.p_filesz)
        };
        let readable = headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_R != 0);
        note.p_type == libc::PT_NOTE && readable.into_iter().any(inside)
    };
    headers
        .iter()
        .filter(is_loaded)
        .find_map(|h| {
            let at = bias.wrapping_add(h.p_vaddr as usize) as *const u8;
            // SAFETY: the notes lie in the file's part of a readable segment, which stays mapped while the loader's
            // lock is held.
            let notes = unsafe { core::slice::from_raw_parts(at, h.p_filesz as usize) };
            build_id_of(notes, if h.p_align == 8 { 8 } else { 4 })
        })
        .unwrap_or(0)
}

/// Hash of the build-id among `notes`: words for the sizes of name and contents and for the type, name, contents.
fn build_id_of(mut notes: &[u8], align: usize) -> Option<u64> {
    let word = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
    loop {
        let (name, contents, kind) = (word(notes, 0)?, word(notes, 4)?, word(notes, 8)?);
        let at = (12 + name).next_multiple_of(align);
        let end = at.checked_add(contents)?;
        if kind as u32 == BUILD_ID && notes.get(12..12 + name)? == b"GNU\0" {
            // FNV-1a.
            let hash = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
            return Some(notes.get(at..end)?.iter().fold(0xcbf2_9ce4_8422_2325, hash));
        }
        notes = notes.get(end.next_multiple_of(align)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static mut VARIABLE: u8 = 1;

    fn all() -> Vec<Loaded> {
        let new = |listed| match listed {
            Listed::Known(()) => panic!("nothing is known"),
            Listed::New(module) => module,
        };
        list(|_| None).0.into_iter().map(new).collect()
    }

    #[test]
    fn known_modules_are_not_described_again() {
        let (all, counts) = list(|m| m.path.ends_with(b"libc.so.6").then_some((m.start, m.end, m.bias)));
        let known = |m: &Listed<_>| matches!(m, Listed::Known((start, end, _)) if start < end);
        assert_eq!(all.iter().filter(|m| known(m)).count(), 1);
        assert!(all.len() > 1 && counts.loaded >= all.len() as u64 && counts == Counts::now());
    }

    #[test]
    fn the_build_id_is_found_behind_other_notes() {
        let note = |name: &[u8], kind: u8, contents: &[u8]| {
            let size = |n: usize| (n as u32).to_le_bytes();
            let mut all = [size(name.len()), size(contents.len()), size(usize::from(kind))].concat();
            all.extend(name);
            all.resize(all.len().next_multiple_of(4), 0);
            all.extend(contents);
            all.resize(all.len().next_multiple_of(4), 0);
            all
        };
        let (other, id) = (note(b"Go\0\0", 3, b"x"), note(b"GNU\0", 3, &[7; 20]));
        let found = build_id_of(&[other.clone(), id.clone()].concat(), 4);
        assert!(found.is_some() && found == build_id_of(&id, 4));
        assert_ne!(found, build_id_of(&note(b"GNU\0", 3, &[8; 20]), 4));
        assert_eq!(
            (build_id_of(&other, 4), build_id_of(&id[..30], 4), build_id_of(&[0xff; 40], 4)),
            (None, None, None)
        );
        let all = all();
        let of = |name: &[u8]| all.iter().find(|m| m.file_name().starts_with(name)).map(|m| m.build_id);
        assert!(of(b"libc.so") != Some(0) && of(b"libc.so") != of(b"ld-linux"));
    }

    #[test]
    fn the_program_is_first_and_holds_its_variables() {
        let list = all();
        let here = &raw const VARIABLE as usize;
        assert!(list[0].program && list.iter().skip(1).all(|m| !m.program));
        assert_eq!(list[0].path, std::env::current_exe().unwrap().as_os_str().as_encoded_bytes());
        assert!(list[0].writable.iter().any(|&(start, _, end)| (start..end).contains(&here)));
        assert!(list.iter().any(|m| m.file_name() == b"libc.so.6"));
        // From an address without the loader's lock: the same.
        for module in [&list[0], list.iter().find(|m| m.file_name() == b"libc.so.6").unwrap()] {
            assert_eq!(at(module.start).as_ref(), Some(module));
        }
    }

    #[test]
    fn links_lead_to_the_name_of_the_file() {
        let dir = std::env::temp_dir().join(format!("numamma-links-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("libx.so.1.2.3"), b"").unwrap();
        std::os::unix::fs::symlink("libx.so.1.2.3", dir.join("libx.so.1")).unwrap();
        std::os::unix::fs::symlink(dir.join("libx.so.1"), dir.join("libx.so")).unwrap();
        let name = |file: &str| linked_name(dir.join(file).as_os_str().as_bytes());
        assert_eq!(name("libx.so").unwrap(), b"libx.so.1.2.3");
        assert_eq!(name("libx.so.1").unwrap(), b"libx.so.1.2.3");
        assert_eq!(name("libx.so.1.2.3"), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
