//! Names of frames: debug information with inlined calls, else the ELF symbol, else none.

use addr2line::Loader;
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
}

impl Namer {
    pub fn new(elf: &ElfFile, debug: Option<&ElfFile>) -> Namer {
        Namer { loader: load(debug.unwrap_or(elf)), functions: function_names(elf, debug) }
    }

    /// Innermost first. The outermost function is one that the symbol table has, under a name that it has, because
    /// rules are matched by symbols.
    pub fn locations(&self, vaddr: u64) -> Vec<Location> {
        let mut out = self.debug_locations(vaddr).unwrap_or_default();
        let Some(symbol) = self.symbol(vaddr).map(|name| function_name(name).into_owned()) else { return out };
        let alone = |function| Location { function: Some(function), file: None, line: None };
        match out.last_mut() {
            Some(outermost) => match outermost.function.as_deref().map(FunctionName::parse) {
                None => outermost.function = Some(symbol),
                // Debug information lacks the linkage name of lambdas and of what is in anonymous name spaces.
                Some(name) if FunctionName::parse(&symbol).plain().ends_with(&format!("::{}", name.plain())) => {
                    outermost.function = Some(symbol);
                }
                // gfortran's MAIN__ is the program's name in the debug information, which is the better one for people.
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
            let function =
                frame.function.as_ref().and_then(|f| f.raw_name().ok()).map(|f| function_name(&f).into_owned());
            let file = frame.location.as_ref().and_then(|l| l.file).map(str::to_string);
            let line = frame.location.as_ref().and_then(|l| l.line);
            if function.is_some() || file.is_some() {
                out.push(Location { function, file, line });
            }
        }
        Some(out)
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
