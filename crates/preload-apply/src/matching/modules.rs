//! The ELF files that are loaded.

use core::ffi::{CStr, c_int, c_void};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
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

    /// Return addresses of calls from the code at these addresses of the file. A return address lies behind its call,
    /// so the range is shifted by one byte.
    pub fn return_addresses(&self, (start, end): (u64, u64)) -> (usize, usize) {
        let at = |vaddr: u64| self.bias.wrapping_add(vaddr as usize).saturating_add(1);
        (at(start), at(end))
    }

    /// Sets `real_name`, from `before` if the module was loaded then.
    pub fn follow_links(&mut self, before: &[Loaded]) {
        if let Some(known) = before.iter().find(|m| m.start == self.start && m.path == self.path) {
            self.real_name.clone_from(&known.real_name);
        } else if !self.program && self.path.starts_with(b"/") {
            self.real_name = linked_name(&self.path).unwrap_or_default();
        }
    }
}

fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

/// File name at the end of a chain of symbolic links; `None` when `path` is no link. realpath(3) would allocate with
/// the malloc of the program, from which this function may be called.
fn linked_name(path: &[u8]) -> Option<Vec<u8>> {
    let mut at = Path::new(OsStr::from_bytes(path)).to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = std::fs::read_link(&at) else { break };
        at = at.parent().unwrap_or(Path::new("/")).join(target);
    }
    let name = OsString::from(at.file_name()?).into_vec();
    (name != last_part(path)).then_some(name)
}

/// All modules, the program first. Takes the lock of the loader: to be called only where the loader is not running on
/// this thread, or in constructors.
pub fn all() -> Vec<Loaded> {
    let mut list: Vec<Loaded> = Vec::new();
    // SAFETY: the callback follows dl_iterate_phdr's contract and the list outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut list).cast()) };
    list
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid info; the data is the list of `all`.
    let (info, list) = unsafe { (&*info, &mut *data.cast::<Vec<Loaded>>()) };
    let program = list.is_empty();
    // SAFETY: the loader's names are null or C strings.
    let name = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
    let path = if program { modules::executable() } else { name.to_bytes() }.to_vec();
    let bias = info.dlpi_addr as usize;
    let mut module = Loaded {
        path,
        real_name: Vec::new(),
        bias,
        start: usize::MAX,
        end: 0,
        program,
        writable: Vec::new(),
        relro: (0, 0),
    };
    // SAFETY: the loader's table of program headers has dlpi_phnum entries.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    for header in headers {
        let start = bias.wrapping_add(header.p_vaddr as usize);
        let end = start.wrapping_add(header.p_memsz as usize);
        match header.p_type {
            libc::PT_LOAD => {
                module.start = module.start.min(start);
                module.end = module.end.max(end);
                if header.p_flags & libc::PF_W != 0 {
                    module.writable.push((start, start.wrapping_add(header.p_filesz as usize), end));
                }
            }
            libc::PT_GNU_RELRO => module.relro = (start, end),
            _ => {}
        }
    }
    list.push(module);
    0
}

/// What tells a file apart from another one that is later found at its path: device, inode, bytes, time of the last
/// change. `None` where the path leads to no file (the vdso).
type FileIdentity = Option<(u64, u64, u64, i64, i64)>;

fn identity(path: &[u8]) -> FileIdentity {
    let file = std::fs::metadata(OsStr::from_bytes(path)).ok()?;
    Some((file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
}

/// What has been read from the files of loaded modules.
pub struct FileCache<T>(Vec<(Vec<u8>, FileIdentity, T)>);

impl<T> FileCache<T> {
    /// An empty one.
    pub const fn new() -> FileCache<T> {
        FileCache(Vec::new())
    }

    /// What the file of `module` says, by `read` if that is not known yet.
    pub fn of(&mut self, module: &Loaded, read: impl FnOnce() -> T) -> &T {
        let now = identity(&module.path);
        let is_known = |(path, file, _): &(Vec<u8>, FileIdentity, T)| *path == module.path && *file == now;
        let at = self.0.iter().position(is_known).unwrap_or_else(|| {
            self.0.retain(|(path, ..)| *path != module.path);
            self.0.push((module.path.clone(), now, read()));
            self.0.len() - 1
        });
        &self.0[at].2
    }

    /// Forgets the files of modules that are not loaded.
    pub fn keep(&mut self, modules: &[Loaded]) {
        self.0.retain(|(path, ..)| modules.iter().any(|m| m.path == *path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static mut VARIABLE: u8 = 1;

    #[test]
    fn the_program_is_first_and_holds_its_variables() {
        let list = all();
        let here = &raw const VARIABLE as usize;
        assert!(list[0].program && list.iter().skip(1).all(|m| !m.program));
        assert_eq!(list[0].path, std::env::current_exe().unwrap().as_os_str().as_encoded_bytes());
        assert!(list[0].writable.iter().any(|&(start, _, end)| (start..end).contains(&here)));
        assert!(list.iter().any(|m| m.file_name() == b"libc.so.6"));
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
