//! The ELF file of a module with what is read from it on demand: debug file, variables, functions.
//!
//! The file is opened when its mapping is reported, because it may be deleted or replaced later; the tables are read
//! at the first request.

use super::debugfile;
use super::elf::ElfFile;
use super::functions::Functions;
use super::globals::Globals;
use super::symbols::Namer;

/// An ELF file and its tables.
pub struct ModuleFile {
    /// The file that is mapped.
    pub elf: ElfFile,
    /// File with the symbols that were stripped from this one; none until the first search.
    debug: Option<Option<ElfFile>>,
    globals: Option<Globals>,
    functions: Option<Functions>,
    relocated: Option<Vec<(u64, u64)>>,
    namer: Option<Namer>,
}

/// Sections that only the dynamic linker writes: tables of addresses and data that becomes read-only.
const RELOCATED: [&str; 3] = [".got", ".got.plt", ".data.rel.ro"];

impl ModuleFile {
    /// A file of which no table was read yet.
    pub fn new(elf: ElfFile) -> ModuleFile {
        ModuleFile { elf, debug: None, globals: None, functions: None, relocated: None, namer: None }
    }

    /// The file, and its separate debug file when it was stripped of its symbol table and one is installed.
    pub fn with_debug(&mut self) -> (&ElfFile, Option<&ElfFile>) {
        let elf = &self.elf;
        (elf, self.debug.get_or_insert_with(|| debugfile::find(elf)).as_ref())
    }

    /// Names of the code, with the file and its separate debug file. Unpacking and indexing debug information takes
    /// most of the time that a name takes, and is done once.
    pub fn namer(&mut self) -> (&Namer, &ElfFile, Option<&ElfFile>) {
        let elf = &self.elf;
        let debug = self.debug.get_or_insert_with(|| debugfile::find(elf)).as_ref();
        (self.namer.get_or_insert_with(|| Namer::new(elf, debug)), elf, debug)
    }

    /// Variables and sections by virtual address.
    pub fn globals(&mut self) -> &Globals {
        if self.globals.is_none() {
            let (elf, debug) = self.with_debug();
            self.globals = Some(Globals::read(elf, debug));
        }
        self.globals.get_or_insert_default()
    }

    /// Virtual addresses of what only the dynamic linker writes.
    pub fn relocated(&mut self) -> &[(u64, u64)] {
        let elf = &self.elf;
        self.relocated.get_or_insert_with(|| {
            let sections = elf.sections();
            sections.iter().filter(|s| RELOCATED.contains(&s.name.as_str())).map(|s| (s.low, s.high)).collect()
        })
    }

    /// Function bounds by virtual address.
    pub fn functions(&mut self) -> &Functions {
        if self.functions.is_none() {
            let (elf, debug) = self.with_debug();
            self.functions = Some(Functions::read(elf, debug));
        }
        self.functions.get_or_insert_default()
    }
}

impl std::fmt::Debug for ModuleFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModuleFile").field("elf", &self.elf).field("debug", &self.debug).finish_non_exhaustive()
    }
}
