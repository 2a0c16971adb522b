//! Large variables of a program and its own libraries, read from their files without a run.
//!
//! The caller has checked that the program can be run here (`apply::target`). Libraries are searched in the program's
//! RPATH and RUNPATH (with `$ORIGIN`, ld.so(8)) and in LD_LIBRARY_PATH; the others are the system's, whose variables
//! are small, and are only listed.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf;
use object::read::elf::{ElfFile64, ProgramHeader};

use super::elf::ElfFile;
use super::module_file::ModuleFile;

/// A variable, or a section's bytes that no symbol names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticObject {
    /// Linkage name, or section name.
    pub name: String,
    /// File name of the library that holds it; none for the program itself.
    pub module: Option<String>,
    /// ELF virtual address.
    pub vaddr: u64,
    /// Bytes; of a section, those without a symbol.
    pub size: u64,
    /// A section: several variables may share it.
    pub section: bool,
    /// Not writable, or only by the loader before main.
    pub read_only: bool,
}

/// The data of a program's files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaticData {
    /// File name of the program.
    pub program: String,
    /// Its GNU build-id, hex.
    pub build_id: Option<String>,
    /// Objects of at least the requested size, largest first.
    pub objects: Vec<StaticObject>,
    /// File names of the program's own libraries that were read.
    pub libraries: Vec<String>,
    /// File names of the libraries that were not found there: the system's.
    pub system: Vec<String>,
    /// File names of modules without a symbol table.
    pub stripped: Vec<String>,
}

impl StaticData {
    /// Reads `program` and its own libraries; objects smaller than `least` bytes are left out.
    ///
    /// # Errors
    /// When the program is no ELF file of this architecture.
    pub fn read(program: &Path, least: u64) -> Result<StaticData, String> {
        let mut file = open(program)
            .ok_or_else(|| format!("{}: not a 64-bit x86_64 ELF program, or not readable", program.display()))?;
        let mut data =
            StaticData { program: file_name(program), build_id: file.elf.build_id.clone(), ..StaticData::default() };
        data.add(&mut file, None, least);
        let (mut seen, mut waiting) = (HashSet::new(), needed(&file.elf, program));
        while let Some((name, path)) = waiting.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            match path.and_then(|p| Some((open(&p)?, p))) {
                Some((mut library, path)) => {
                    data.add(&mut library, Some(name.clone()), least);
                    waiting.extend(needed(&library.elf, &path));
                    data.libraries.push(name);
                }
                None => data.system.push(name),
            }
        }
        data.objects.sort_by(|a, b| (b.size, &a.name, a.vaddr).cmp(&(a.size, &b.name, b.vaddr)));
        data.libraries.sort();
        data.system.sort();
        Ok(data)
    }

    fn add(&mut self, file: &mut ModuleFile, module: Option<String>, least: u64) {
        let mut fixed = file.elf.read_only();
        fixed.extend(relro(&file.elf));
        let globals = file.globals();
        let mut sizes = vec![0u64; globals.objects.len()];
        globals.pieces.iter().for_each(|p| sizes[p.value as usize] += p.high - p.low);
        let large = globals.objects.iter().zip(sizes).filter_map(|(o, own)| {
            let size = if o.section { own } else { o.size };
            let within = |(low, high): &(u64, u64)| (*low..*high).contains(&o.vaddr);
            (size >= least).then(|| StaticObject {
                name: o.name.clone(),
                module: module.clone(),
                vaddr: o.vaddr,
                size,
                section: o.section,
                read_only: fixed.iter().any(within),
            })
        });
        self.objects.extend(large.collect::<Vec<_>>());
        if !globals.objects.iter().any(|o| !o.section) {
            self.stripped.push(module.unwrap_or_else(|| self.program.clone()));
        }
    }
}

fn open(path: &Path) -> Option<ModuleFile> {
    ElfFile::open(path, &path.to_string_lossy()).map(ModuleFile::new)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Ranges that the loader makes read-only after relocation (PT_GNU_RELRO).
fn relro(file: &ElfFile) -> Vec<(u64, u64)> {
    let Ok(parsed) = ElfFile64::<Endianness>::parse(file.data()) else { return Vec::new() };
    let endian = parsed.endian();
    let headers = parsed.elf_program_headers().iter().filter(|h| h.p_type(endian) == elf::PT_GNU_RELRO);
    headers.filter_map(|h| Some((h.p_vaddr(endian), h.p_vaddr(endian).checked_add(h.p_memsz(endian))?))).collect()
}

/// Libraries that `file` names, each with its path if it is found through the file or LD_LIBRARY_PATH.
fn needed(file: &ElfFile, path: &Path) -> Vec<(String, Option<PathBuf>)> {
    let Ok(parsed) = ElfFile64::<Endianness>::parse(file.data()) else { return Vec::new() };
    let Ok(table) = parsed.elf_dynamic_table() else { return Vec::new() };
    let strings =
        |tag| -> Vec<&[u8]> { table.iter().filter(|d| d.tag == tag).filter_map(|d| table.string(d).ok()).collect() };
    let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let origin = absolute.parent().unwrap_or(Path::new("/")).as_os_str().as_bytes();
    // RPATH counts only where there is no RUNPATH, and LD_LIBRARY_PATH comes between them.
    let runpath = strings(elf::DT_RUNPATH);
    let rpath = if runpath.is_empty() { strings(elf::DT_RPATH) } else { Vec::new() };
    let environment = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = rpath
        .into_iter()
        .chain([environment.as_bytes()])
        .chain(runpath)
        .flat_map(|list| list.split(|b| *b == b':'))
        .filter(|dir| !dir.is_empty())
        .map(|dir| expand(dir, origin))
        .collect();
    let find = |name: &[u8]| {
        let name = OsStr::from_bytes(name);
        if name.as_bytes().contains(&b'/') {
            return Some(PathBuf::from(name)).filter(|p| p.is_file());
        }
        dirs.iter().map(|d| d.join(name)).find(|p| p.is_file())
    };
    let list = strings(elf::DT_NEEDED).into_iter();
    list.map(|n| (file_name(Path::new(OsStr::from_bytes(n))), find(n))).collect()
}

/// `$ORIGIN` or `${ORIGIN}` at the beginning is the directory of the file with the entry.
fn expand(dir: &[u8], origin: &[u8]) -> PathBuf {
    let rest = dir.strip_prefix(b"$ORIGIN").or_else(|| dir.strip_prefix(b"${ORIGIN}"));
    let bytes = rest.map_or_else(|| dir.to_vec(), |rest| [origin, rest].concat());
    PathBuf::from(OsStr::from_bytes(&bytes))
}
