//! Names of frames: debug information with inlined calls, else the ELF symbol, else none.

use addr2line::{Loader, gimli};
use numamma_plan::callsite::FunctionName;
use numamma_plan::callsite::demangle::function_name;
use object::{Object, ObjectSection, ObjectSymbol};

use super::debugfile::supplementary;
use super::elf::ElfFile;
use super::functions::is_code;
use super::modules::Modules;
use crate::profile::records::{Frame, Location, Symbol};

/// Names `frames`, which are sorted; the flag marks a return address, whose call is the instruction before it.
/// Frames that have no name are left out.
pub fn name(modules: &mut Modules, frames: &[(Frame, bool)]) -> Vec<Symbol> {
    let mut out = Vec::new();
    for group in frames.chunk_by(|a, b| a.0.module == b.0.module) {
        let module = group[0].0.module;
        // NO_MODULE is above every module.
        if module as usize >= modules.count() {
            continue;
        }
        let (namer, ..) = modules.file(module).namer();
        for &(frame, call) in group {
            let locations = namer.locations(frame.offset - u64::from(call && frame.offset > 0));
            if !locations.is_empty() {
                out.push(Symbol { frame, locations });
            }
        }
    }
    out
}

/// Function symbols of one file and, when it has any, its debug information.
pub struct Namer {
    loader: Option<Loader>,
    /// (first address, one past the last, name), ascending, enclosing symbols before the ones inside.
    functions: Vec<(u64, u64, String)>,
    /// The name of a Fortran program in its source.
    program: Option<String>,
}

/// The symbol of gfortran's main program, and what it is called where no debug information has its name.
const MAIN: &str = "MAIN__";
const MAIN_PROGRAM: &str = "main_program";

/// Languages whose compilers add an underscore to the names of procedures outside of modules.
const FORTRAN: [gimli::DwLang; 5] = [
    gimli::DW_LANG_Fortran77,
    gimli::DW_LANG_Fortran90,
    gimli::DW_LANG_Fortran95,
    gimli::DW_LANG_Fortran03,
    gimli::DW_LANG_Fortran08,
];

impl Namer {
    pub fn new(elf: &ElfFile, debug: Option<&ElfFile>) -> Namer {
        let loader = load(debug.unwrap_or(elf));
        let mut namer = Namer { loader, functions: function_names(elf, debug), program: None };
        // Its parallel loops are functions that the debug information names by the symbol.
        namer.program = namer.address_of(MAIN).and_then(|at| namer.debug_locations(at)?.pop()?.function);
        namer
    }

    /// Innermost first. The outermost function is one that the symbol table has, under a name that it has, because
    /// rules are matched by symbols.
    pub fn locations(&self, vaddr: u64) -> Vec<Location> {
        let mut out = self.debug_locations(vaddr).unwrap_or_default();
        let Some(symbol) = self.symbol(vaddr).map(|name| function_name(name).into_owned()) else { return out };
        let alone = |function| Location { function: Some(function), file: None, line: None };
        if out.is_empty() && symbol == MAIN {
            out.push(alone(MAIN_PROGRAM.to_owned()));
        }
        match out.last_mut() {
            Some(outermost) => match outermost.function.as_deref().map(FunctionName::parse) {
                None => outermost.function = Some(symbol),
                // Debug information lacks the linkage name of lambdas and of what is in anonymous name spaces.
                Some(name) if FunctionName::parse(&symbol).plain().ends_with(&format!("::{}", name.plain())) => {
                    outermost.function = Some(symbol);
                }
                // gfortran's MAIN__ is the program's name in the debug information, and its stats_ is stats.
                Some(name) if !self.has_symbol(vaddr, &name) => out.push(alone(symbol)),
                Some(_) => {}
            },
            None => out.push(alone(symbol)),
        }
        out
    }

    fn debug_locations(&self, vaddr: u64) -> Option<Vec<Location>> {
        let mut out = Vec::new();
        // Damaged debug information ends the list; the ELF symbol is used then.
        let mut frames = self.loader.as_ref()?.find_frames(vaddr).ok()?;
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.as_ref().and_then(|f| Some((f.raw_name().ok()?, f.language)));
            let function = function.map(|(raw, language)| {
                let name = function_name(&raw).into_owned();
                if language.is_some_and(|l| FORTRAN.contains(&l)) { self.fortran(name) } else { name }
            });
            let file = frame.location.as_ref().and_then(|l| l.file).map(str::to_string);
            let line = frame.location.as_ref().and_then(|l| l.line);
            if function.is_some() || file.is_some() {
                out.push(Location { function, file, line });
            }
        }
        Some(out)
    }

    /// The name in the source of what has this linkage name, which is taken before `DW_AT_name`.
    fn fortran(&self, name: String) -> String {
        match name.strip_suffix('_') {
            Some(_) if name == MAIN => self.program.clone().unwrap_or_else(|| MAIN_PROGRAM.to_owned()),
            Some(own) if !own.is_empty() && !name.contains(':') => own.to_owned(),
            _ => name,
        }
    }

    fn symbol(&self, vaddr: u64) -> Option<&str> {
        self.symbols(vaddr).next()
    }

    /// Symbols of the code at an address, the nearest first.
    fn symbols(&self, vaddr: u64) -> impl Iterator<Item = &str> {
        let after = self.functions.partition_point(|f| f.0 <= vaddr);
        // Aliases and nested symbols are few: the nearest symbol that contains the address is among the last eight.
        let near = self.functions[..after].iter().rev().take(8);
        near.filter(move |f| vaddr < f.1).map(|f| f.2.as_str())
    }

    /// First address of the function with this linkage name; none where there is no or more than one.
    pub fn address_of(&self, linkage: &str) -> Option<u64> {
        let mut found = self.functions.iter().filter(|f| f.2 == linkage).map(|f| f.0);
        let first = found.next()?;
        found.all(|low| low == first).then_some(first)
    }

    fn has_symbol(&self, vaddr: u64, name: &FunctionName) -> bool {
        self.symbols(vaddr).any(|symbol| FunctionName::parse(symbol).plain() == name.plain())
    }
}

/// Largest debug information that is unpacked: bytes, or bytes for each byte of the file if that is more. Compilers
/// and dwz write sections that shrink to a third to a tenth.
const MAX_UNPACKED: u64 = 256 << 20;
const MAX_RATIO: u64 = 24;

fn load(source: &ElfFile) -> Option<Loader> {
    let object = source.object()?;
    let path = source.path_to_open()?;
    if is_too_large(source, &object) {
        return None;
    }
    let extra = supplementary(&object, &path);
    Loader::new_with_sup(&path, extra.as_deref()).ok()
}

/// Whether the debug information of a file is too large to unpack.
pub(super) fn is_too_large(source: &ElfFile, object: &object::File<'_>) -> bool {
    let unpacked = object.sections().filter_map(|s| Some(s.compressed_file_range().ok()?.uncompressed_size));
    let unpacked = unpacked.fold(0_u64, u64::saturating_add);
    unpacked > MAX_UNPACKED.max((source.data().len() as u64).saturating_mul(MAX_RATIO))
}

fn function_names(elf: &ElfFile, debug: Option<&ElfFile>) -> Vec<(u64, u64, String)> {
    let own = elf.object();
    let debug = debug.and_then(ElfFile::object);
    let mut out: Vec<(u64, u64, u8, String)> = Vec::new();
    for object in own.iter().chain(&debug) {
        for symbol in object.symbols().chain(object.dynamic_symbols()).filter(is_code) {
            let Ok(name) = symbol.name() else { continue };
            if symbol.size() > 0 && !name.is_empty() {
                let high = symbol.address().saturating_add(symbol.size());
                let rank = u8::from(!symbol.is_global()) + u8::from(symbol.is_weak());
                out.push((symbol.address(), high, rank, name.to_string()));
            }
        }
    }
    // The search goes backwards: of aliases the strongest, then the first by name, comes last.
    out.sort_by(|a, b| (a.0, b.1, b.2, &b.3).cmp(&(b.0, a.1, a.2, &a.3)));
    out.into_iter().map(|(low, high, _, name)| (low, high, name)).collect()
}
