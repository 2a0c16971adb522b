//! What a file says about the wanted [`names`]: code of call sites and wrappers ([`code_map`]), variables of rules.
//!
//! All of it depends on the file alone, not on the address where it is mapped, so a file is read once, also when it is
//! loaded and unloaded again and again.

pub mod code_map;
pub mod names;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use numamma_plan::callsite;
use numamma_plan::callsite::wrapper;

use code_map::{CodeMap, NameId};
use names::{LIBRARY, Names, WRAPPER};

use super::elf::{Elf, Section, Symbol};
use super::modules::Loaded;
use super::name_table::{Kind, NameTable};
use super::source_lines::{self, Read};
use crate::rules::state::State;

/// File names of the profile preload: installed, and in a cargo target directory.
const PROFILE_PRELOADS: [&[u8]; 2] = [b"libnumamma-profile.so", b"libnumamma_preload_profile.so"];

/// What tells a file apart from another one at the same path: device, inode, bytes, time of the last change. `None`
/// where the path leads to no file (the vdso).
type FileIdentity = Option<(u64, u64, u64, i64, i64)>;

/// What a file is recognised by when it is loaded again.
#[derive(PartialEq, Eq)]
pub struct Key {
    /// Path as the loader knows it: the names in a policy mean it.
    pub path: Vec<u8>,
    program: bool,
    file: FileIdentity,
    /// Hash of the build-id of the code in memory.
    pub build_id: u64,
}

impl Key {
    /// The key of a module that is loaded now.
    pub fn of(module: &Loaded) -> Key {
        let file = std::fs::metadata(OsStr::from_bytes(&module.path)).ok();
        let file = file.map(|f| (f.dev(), f.ino(), f.size(), f.mtime(), f.mtime_nsec()));
        Key { path: module.path.clone(), program: module.program, file, build_id: module.build_id }
    }
}

/// Where a variable of a rule is, as addresses in the file.
pub enum Variable {
    /// The symbols with the name that a rule gives.
    Symbols(usize, Vec<Symbol>),
    /// The section that a rule names.
    Section(usize, Section),
}

/// What is known of a file.
pub struct Facts {
    pub key: Key,
    /// Code of the wanted names.
    pub code: CodeMap,
    /// Variables of rules, in the order of the rules.
    pub variables: Vec<Variable>,
    /// What its line table says about the wanted lines; their code is in `code`.
    pub lines: Read,
    /// The file is the profile preload.
    pub is_profiler: bool,
}

impl Facts {
    /// Reads the file of `module`. Nothing that a rule may name is in the preloads.
    pub fn read(state: &State, names: &Names, key: Key, module: &mut Loaded) -> Facts {
        let is_profiler = PROFILE_PRELOADS.contains(&module.file_name());
        if is_profiler || is_this_library(module) {
            return Facts { key, is_profiler, ..Facts::nothing(&[]) };
        }
        if names.names_modules {
            module.follow_links();
        }
        let mut code: Vec<(u64, u64, NameId)> = Vec::new();
        let variables = read_symbols(state, names, module, &mut code);
        let lines = read_lines(names, module, &mut code);
        for (name, vaddr, id) in names.addresses() {
            if is_module(state, callsite::file_name(name), module) {
                code.push((vaddr, vaddr.saturating_add(1), id));
            }
        }
        Facts { key, code: CodeMap::of(code), variables, lines, is_profiler }
    }

    /// Of a file at `path` that is not read.
    pub fn nothing(path: &[u8]) -> Facts {
        let key = Key { path: path.to_vec(), program: false, file: None, build_id: 0 };
        Facts { key, code: CodeMap::default(), variables: Vec::new(), lines: Ok(None), is_profiler: false }
    }

    /// Memory that the facts take.
    pub fn bytes(&self) -> usize {
        size_of::<Facts>() + self.key.path.capacity() + self.code.bytes()
    }
}

/// Whether `module` is the library of this code; not the program, which it is in unit tests.
fn is_this_library(module: &Loaded) -> bool {
    !module.program && (module.start..module.end).contains(&(is_this_library as *const () as usize))
}

/// Return addresses of calls in code from `start` to `end`: a return address lies behind its call, so the range is
/// shifted by one byte.
fn returns((start, end): (u64, u64), name: NameId) -> (u64, u64, NameId) {
    (start.saturating_add(1), end.saturating_add(1), name)
}

fn extent(symbol: Symbol) -> (u64, u64) {
    (symbol.address, symbol.address.saturating_add(symbol.size))
}

/// Why a symbol is looked for.
#[derive(Clone, Copy)]
enum Purpose {
    /// The index of a rule for a global.
    Global(usize),
    /// The index of a function in a `Search`.
    Function(usize),
}

fn read_symbols(state: &State, names: &Names, module: &Loaded, code: &mut Vec<(u64, u64, NameId)>) -> Vec<Variable> {
    let mut purposes: Vec<Purpose> = Vec::new();
    let mut wanted = NameTable::default();
    let mut sections: Vec<(usize, &str)> = Vec::new();
    for (index, rule) in state.rules.iter().enumerate() {
        let Some(name) = rule.rule.global.as_deref() else { continue };
        if !module_matches(state, rule.rule.module.as_deref(), module) {
            continue;
        }
        if name.starts_with('.') {
            sections.push((index, name));
        } else {
            if wanted.is_empty() {
                wanted = NameTable::with_capacity(state.rules.len());
            }
            wanted.insert(name.as_bytes(), Kind::Object, purposes.len());
            purposes.push(Purpose::Global(index));
        }
    }
    for (linkage, index) in &names.linkages {
        wanted.insert(linkage.as_bytes(), Kind::Function, purposes.len());
        purposes.push(Purpose::Function(*index));
    }
    let is_library = wrapper::is_library_module(module.file_name());
    let searches = !names.search.names().is_empty() && (!is_library || names.search.names_library());
    if purposes.is_empty() && sections.is_empty() && !searches && !names.passes {
        return Vec::new();
    }
    // The debug files of runtime libraries have many symbols, and no function that a rule would name.
    let elf = if is_library { Elf::open(&module.path) } else { Elf::with_symbols(&module.path) };
    let Some(elf) = elf else { return Vec::new() };
    let mut globals: Vec<(usize, Symbol)> = Vec::new();
    elf.find(&wanted, |purpose, symbol| match purposes.get(purpose) {
        Some(Purpose::Global(rule)) => globals.push((*rule, symbol)),
        Some(Purpose::Function(index)) => code.push(returns(extent(symbol), names.function(*index))),
        None => {}
    });
    if searches || names.passes {
        elf.functions(|linkage, symbol| {
            if searches {
                names.search.find(linkage, |index| code.push(returns(extent(symbol), names.function(index))));
            }
            if names.passes && wrapper::is_passed_linkage(is_library, linkage) {
                code.push(returns(extent(symbol), WRAPPER));
            }
        });
    }
    globals.extend(by_address(state, module, &elf, &purposes, &globals));
    globals.sort_by_key(|&(rule, _)| rule);
    let of_rule = |same: &[(usize, Symbol)]| {
        let &(rule, _) = same.first()?;
        Some(Variable::Symbols(rule, same.iter().map(|&(_, symbol)| symbol).collect()))
    };
    let symbols = globals.chunk_by(|a, b| a.0 == b.0).filter_map(of_rule);
    let sections =
        sections.iter().filter_map(|&(r, name)| Some(Variable::Section(r, elf.unoccupied(name.as_bytes())?)));
    symbols.chain(sections).collect()
}

/// Variables of `purposes` that no symbol of the program names, where the policy has their address in this very build:
/// strip(1) removes symbols and leaves the build-id.
fn by_address(
    state: &State,
    module: &Loaded,
    elf: &Elf,
    purposes: &[Purpose],
    found: &[(usize, Symbol)],
) -> Vec<(usize, Symbol)> {
    let has_id = state.policy.program.as_ref().is_some_and(|program| program.build_id.is_some());
    if !(module.program && state.same_build && has_id) {
        return Vec::new();
    }
    let missing = purposes.iter().filter_map(|purpose| match *purpose {
        Purpose::Global(rule) if found.iter().all(|&(other, _)| other != rule) => Some(rule),
        _ => None,
    });
    let placed = missing.filter_map(|index| {
        let rule = &state.rules.get(index)?.rule;
        let symbol = Symbol { address: rule.address?, size: rule.size?, kind: Kind::Object };
        elf.is_data(symbol.address, symbol.size).then_some((index, symbol))
    });
    placed.collect()
}

fn read_lines(names: &Names, module: &Loaded, code: &mut Vec<(u64, u64, NameId)>) -> Read {
    if names.lines.is_empty() {
        return Ok(None);
    }
    if wrapper::is_library_module(module.file_name()) {
        code.push((0, u64::MAX, LIBRARY));
        return Ok(None);
    }
    let mut lines = source_lines::read(&module.path, &names.lines);
    if let Ok(Some(lines)) = &mut lines {
        code.extend(core::mem::take(&mut lines.library_functions).iter().map(|&range| returns(range, LIBRARY)));
        for (index, found) in lines.found.iter_mut().enumerate() {
            code.extend(core::mem::take(&mut found.code).iter().map(|&range| returns(range, names.line(index))));
        }
    }
    lines
}

/// Whether a rule with this module name means `module`; without a name the rule means the program.
fn module_matches(state: &State, wanted: Option<&str>, module: &Loaded) -> bool {
    match wanted {
        None => module.program,
        Some(name) => is_module(state, callsite::file_name(name), module),
    }
}

/// The program may have been renamed since the policy was made, so the name in the policy also means the program.
fn is_module(state: &State, name: &str, module: &Loaded) -> bool {
    let programs_name = || state.policy.program.as_ref().map(|p| callsite::file_name(&p.path));
    module.is_called(name.as_bytes()) || (module.program && programs_name() == Some(name))
}
