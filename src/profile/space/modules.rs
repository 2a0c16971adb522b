//! ELF files seen so far, each parsed once, and where each was loaded.
//!
//! A [`Module`] is one (path, build-id); an *instance* is a module at one load bias. Both are never forgotten, so
//! that names can be found after the process has ended; their number is bounded by the files the program used.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use numamma_kernel::maps;
use rustc_hash::FxHashMap;

use super::elf::ElfFile;
use super::module_file::ModuleFile;
use crate::profile::records::{Module, ModuleId};

/// The vdso is a few pages; anything larger is not one.
const MAX_VDSO: u64 = 1 << 20;

/// A module at a load bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LoadedModule {
    /// Module.
    pub module: ModuleId,
    /// Runtime address minus virtual address, modulo 2^64.
    pub bias: u64,
}

/// All modules and instances.
#[derive(Debug, Default)]
pub struct Modules {
    files: Vec<ModuleFile>,
    /// Module of each (path, device, inode); none when the file is refused.
    by_inode: FxHashMap<(String, u64, u64), Option<ModuleId>>,
    instances: Vec<LoadedModule>,
    by_instance: FxHashMap<LoadedModule, u32>,
    reported: usize,
}

/// A mapping as the kernel reported it.
#[derive(Debug, Clone, Copy)]
pub struct MappedFile<'a> {
    /// Process.
    pub pid: u32,
    /// First address.
    pub low: u64,
    /// One past the last.
    pub high: u64,
    /// Offset in the file, bytes.
    pub pgoff: u64,
    /// Path, with ` (deleted)` when the kernel says so.
    pub path: &'a str,
}

impl Modules {
    /// The module that `mapped` shows, opened when the file is first mapped. None when it is not an ELF file that can
    /// be read.
    pub fn open(&mut self, mapped: MappedFile<'_>) -> Option<ModuleId> {
        let name = strip_deleted(mapped.path);
        if name == "[vdso]" {
            return self.open_vdso(mapped);
        }
        for Candidate { path: candidate, same_name } in candidates(mapped) {
            let Ok(meta) = fs::metadata(&candidate) else { continue };
            if same_name && !is_mapped_content(mapped, &candidate) {
                continue;
            }
            let key = (name.to_string(), meta.dev(), meta.ino());
            if let Some(known) = self.by_inode.get(&key) {
                return *known;
            }
            let module = ElfFile::open(&candidate, name).map(|file| self.add(file));
            self.by_inode.insert(key, module);
            if module.is_some() {
                return module;
            }
        }
        None
    }

    fn open_vdso(&mut self, mapped: MappedFile<'_>) -> Option<ModuleId> {
        let key = ("[vdso]".to_string(), 0, 0);
        if let Some(known) = self.by_inode.get(&key) {
            return *known;
        }
        // The image is the same in every process.
        let image = read_memory(&format!("/proc/{}/mem", mapped.pid), mapped.low, mapped.high).or_else(own_vdso)?;
        let module = ElfFile::from_image(image, "[vdso]").map(|file| self.add(file));
        self.by_inode.insert(key, module);
        module
    }

    fn add(&mut self, file: ElfFile) -> ModuleId {
        // A copy of the same build at the same path (another inode) is the same module.
        let same = self.files.iter().map(|known| &known.elf).position(|f| {
            f.path == file.path && f.build_id == file.build_id && (f.build_id.is_some() || f.inode == file.inode)
        });
        let index = same.unwrap_or_else(|| {
            self.files.push(ModuleFile::new(file));
            self.files.len() - 1
        });
        index as ModuleId
    }

    /// The file of a module.
    pub fn file(&mut self, module: ModuleId) -> &mut ModuleFile {
        &mut self.files[module as usize]
    }

    /// Path of a module.
    pub fn path(&self, module: ModuleId) -> Option<&str> {
        self.files.get(module as usize).map(|f| f.elf.path.as_str())
    }

    /// Number of modules; ids are below it.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// Index of a module at a load bias.
    pub fn instance(&mut self, instance: LoadedModule) -> u32 {
        *self.by_instance.entry(instance).or_insert_with(|| {
            self.instances.push(instance);
            (self.instances.len() - 1) as u32
        })
    }

    /// The instance of an index.
    pub fn get(&self, instance: u32) -> LoadedModule {
        self.instances[instance as usize]
    }

    /// Modules that were not returned before.
    pub fn take_new(&mut self) -> Vec<Module> {
        let new = self.files.iter().map(|f| &f.elf).enumerate().skip(self.reported);
        let out = new
            .map(|(id, f)| Module {
                id: id as ModuleId,
                path: f.path.clone(),
                build_id: f.build_id.clone(),
                read_only: f.read_only(),
            })
            .collect();
        self.reported = self.files.len();
        out
    }
}

/// The path without the mark of unlinked files.
pub fn strip_deleted(path: &str) -> &str {
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

/// A path that may open the mapped file.
#[derive(Debug)]
struct Candidate {
    path: PathBuf,
    /// The mapped file has lost this name, so that another one may have it now: a new version that was installed.
    same_name: bool,
}

/// Paths that may open the mapped file, the most reliable first: another root directory or mount namespace changes what
/// the path means, and a deleted file is only reachable through the mapping itself or /proc/PID/exe.
fn candidates(mapped: MappedFile<'_>) -> Vec<Candidate> {
    let MappedFile { pid, low, high, path, .. } = mapped;
    let name = strip_deleted(path);
    let (process, deleted) = (PathBuf::from(format!("/proc/{pid}")), name != path);
    let mut own = Vec::new();
    if deleted {
        own.push(process.join(format!("map_files/{low:x}-{high:x}")));
        if fs::read_link(process.join("exe")).is_ok_and(|exe| exe == Path::new(path)) {
            own.push(process.join("exe"));
        }
    }
    let mut named = [PathBuf::from(name), PathBuf::from(format!("/proc/{pid}/root{name}"))];
    if !same_files(&process) {
        named.reverse();
    }
    let own = own.into_iter().map(|path| Candidate { path, same_name: false });
    own.chain(named.map(|path| Candidate { path, same_name: deleted })).collect()
}

/// Whether absolute paths name the same files in that process and in this one; true when that cannot be determined.
fn same_files(process: &Path) -> bool {
    let differs =
        |link: &str| match (fs::read_link(process.join(link)), fs::read_link(Path::new("/proc/self").join(link))) {
            (Ok(theirs), Ok(ours)) => theirs != ours,
            _ => false,
        };
    !differs("ns/mnt") && !differs("root")
}

/// Bytes compared of a file and of its mapping: a page of headers with the build-id, or of code.
const COMPARED: u64 = 4096;

/// Whether a file begins, at the offset of a mapping of code or headers, with what is mapped; false when the memory
/// cannot be read.
fn is_mapped_content(mapped: MappedFile<'_>, candidate: &Path) -> bool {
    let MappedFile { pid, low, high, pgoff, .. } = mapped;
    let compare = || {
        let memory = read_memory(&format!("/proc/{pid}/mem"), low, high.min(low.saturating_add(COMPARED)))?;
        let mut content = vec![0; memory.len()];
        let mut file = fs::File::open(candidate).ok()?;
        file.seek(SeekFrom::Start(pgoff)).ok()?;
        // The last page of a file is filled up with zeros.
        let mut got = 0;
        while let Ok(more @ 1..) = file.read(&mut content[got..]) {
            got += more;
        }
        Some(got > 0 && memory == content)
    };
    compare().unwrap_or(false)
}

/// Bytes of a process's memory, through its `mem` file; none unless all of them can be read.
fn read_memory(mem: &str, low: u64, high: u64) -> Option<Vec<u8>> {
    let len = high.checked_sub(low).filter(|len| (1..=MAX_VDSO).contains(len))?;
    let mut file = fs::File::open(mem).ok()?;
    file.seek(SeekFrom::Start(low)).ok()?;
    let mut out = vec![0; len as usize];
    file.read_exact(&mut out).ok()?;
    Some(out)
}

fn own_vdso() -> Option<Vec<u8>> {
    let text = maps::read_own();
    let vdso = maps::parse(&text).find(|m| m.path == "[vdso]")?;
    read_memory("/proc/self/mem", vdso.start as u64, vdso.end as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_parsed_once_and_the_vdso_is_a_module() {
        let mut m = Modules::default();
        let exe = fs::read_link("/proc/self/exe").unwrap();
        let path = exe.to_str().unwrap();
        let mapped = MappedFile { pid: std::process::id(), low: 0, high: 0, pgoff: 0, path };
        assert_eq!(m.open(mapped), Some(0));
        assert_eq!(m.open(mapped), Some(0));
        assert_eq!(m.open(MappedFile { path: "/etc/passwd", ..mapped }), None);
        assert_eq!(m.open(MappedFile { path: "/dev/zero", ..mapped }), None);
        let vdso = own_vdso().unwrap();
        assert!(vdso.starts_with(b"\x7fELF"));
        assert_eq!(m.open(MappedFile { path: "[vdso]", ..mapped }), Some(1));
        let new = m.take_new();
        assert_eq!(new.iter().map(|m| m.path.as_str()).collect::<Vec<_>>(), [path, "[vdso]"]);
        assert!(new[1].build_id.is_some());
        assert!(m.take_new().is_empty());
    }

    #[test]
    fn another_file_of_the_same_name_is_not_taken_for_a_deleted_one() {
        let text = maps::read_own();
        let exe = fs::read_link("/proc/self/exe").unwrap();
        let own = maps::parse(&text).find(|m| Path::new(m.path) == exe).unwrap();
        let (low, high, pgoff) = (own.start as u64, own.end as u64, own.offset as u64);
        let mapped = MappedFile { pid: std::process::id(), low, high, pgoff, path: own.path };
        assert!(is_mapped_content(mapped, &exe));
        assert!(!is_mapped_content(mapped, Path::new("/bin/sh")));
        assert!(!is_mapped_content(MappedFile { pid: u32::MAX, ..mapped }, &exe), "no memory to compare with");
        let path = format!("{} (deleted)", own.path);
        let listed = candidates(MappedFile { path: &path, ..mapped });
        let compared: Vec<bool> = listed.iter().map(|c| c.same_name).collect();
        assert_eq!(compared, [false, true, true]);
        assert!(candidates(mapped).iter().all(|c| !c.same_name));
    }

    #[test]
    fn deleted_files_lose_the_mark() {
        assert_eq!(strip_deleted("/tmp/a (deleted)"), "/tmp/a");
        assert_eq!(strip_deleted("/tmp/a"), "/tmp/a");
    }
}
