//! Resolves the names of the policy to addresses in the loaded modules: at start-up and whenever a library is loaded or
//! unloaded.

use numamma_hook::{own_stack, say_once};
use numamma_plan::callsite::line::SourceLine;
use numamma_plan::callsite::rule::{Naming, Passed};
use numamma_plan::callsite::search::{Search, linkages};
use numamma_plan::callsite::{self, wrapper};

use crate::matching::call_sites::{self, Frame, Matcher, Ranges, Site, Target};
use crate::matching::elf::{Elf, Symbol};
use crate::matching::modules::{self, FileCache, Loaded};
use crate::matching::name_table::{Kind, NameTable};
use crate::matching::pending;
use crate::matching::source_lines::{self, Sources};
use crate::matching::wrappers;
use crate::objects::globals;
use crate::rules::state::{self, State};

/// File names of the profile preload: installed, and in a cargo target directory.
const PROFILE_PRELOADS: [&[u8]; 2] = [b"libnumamma-profile.so", b"libnumamma_preload_profile.so"];

/// Places the globals of modules that are new and recomputes the addresses of all call sites.
pub fn resolve_modules() {
    resolve_at_start();
}

/// As [`resolve_modules`]; returns the problems of lines that have no code, see [`Sources::problems`].
pub fn resolve_at_start() -> Vec<(String, bool)> {
    let Some(state) = state::get() else { return Vec::new() };
    if !pending::begin_resolving() {
        return Vec::new();
    }
    let problems = own_stack::run(|| resolve_for(state));
    if problems.is_none() {
        // The sites may be those of an unloaded library.
        call_sites::publish_none();
        say_once!("memory is short: the loaded libraries cannot be read, so nothing more is placed");
    }
    pending::end_resolving();
    problems.unwrap_or_default()
}

/// What is known of the loaded modules.
struct Known {
    /// Modules whose globals have been placed.
    seen: Vec<Loaded>,
    wrappers: FileCache<wrappers::FileRanges>,
    lines: FileCache<source_lines::Read>,
}

struct Guarded(core::cell::UnsafeCell<Known>);

// SAFETY: only `resolve_for` touches it, and `pending::begin_resolving` lets one thread at a time in.
unsafe impl Sync for Guarded {}

static KNOWN: Guarded = Guarded(core::cell::UnsafeCell::new(Known {
    seen: Vec::new(),
    wrappers: FileCache::new(),
    lines: FileCache::new(),
}));

/// Every rule group and every phase that counts allocations, with what names its call site.
fn named_sites(state: &'static State) -> impl Iterator<Item = (Target, Naming<'static>)> {
    let rules = state.groups.iter().filter_map(|group| {
        // The rules of a group have the same call site.
        let rule = &state.rules.get(group.first())?.rule;
        Some((Target::Rules(group), Naming::of(rule.site(), state.same_build)?))
    });
    let phases = state.policy.phases.iter().enumerate().filter(|(_, phase)| phase.allocation.is_some());
    let phases =
        phases.filter_map(|(index, phase)| Some((Target::Phase(index), Naming::of(phase.site(), state.same_build)?)));
    rules.chain(phases)
}

/// Why a symbol is looked for.
#[derive(Clone, Copy)]
enum Purpose {
    /// The index of a rule for a global.
    Global(usize),
    /// The index of a function in a [`Search`].
    Function(usize),
}

fn resolve_for(state: &'static State) -> Vec<(String, bool)> {
    let mut modules = modules::all();
    // SAFETY: this thread is between `pending::begin_resolving` and `pending::end_resolving`.
    let Known { seen, wrappers, lines } = unsafe { &mut *KNOWN.0.get() };
    modules.iter_mut().for_each(|m| m.follow_links(seen));
    for gone in seen.iter().filter(|old| !modules.contains(old)) {
        globals::forget(gone.start, gone.end);
    }
    let named: Vec<(Target, Naming<'static>)> = named_sites(state).collect();
    let functions = Functions::of(&named);
    let mut code = vec![Ranges::new(); functions.search.names().len()];
    for module in &modules {
        let is_new = !seen.contains(module);
        read_symbols(state, module, is_new, &functions, &mut code);
    }
    let wanted: Vec<SourceLine> = named.iter().filter_map(|(_, naming)| line(naming).cloned()).collect();
    let Sources { calls, libraries, problems } = source_lines::find(lines, &wanted, &modules);
    let wrappers = match named.iter().any(|(_, naming)| naming.passed() != Passed::Nothing) {
        true => wrappers::find(wrappers, &modules),
        false => Ranges::new(),
    };
    let mut calls = calls.into_iter();
    let sites = named.iter().zip(&functions.of_site).map(|((target, naming), own)| {
        let frames = match naming {
            Naming::Addresses(list) => list.iter().map(|text| at_address(state, text, &modules)).collect(),
            Naming::Functions(_) => own.iter().map(|name| in_function(*name, &code)).collect(),
            Naming::Line(_) => vec![Frame::In(calls.next().unwrap_or_default())],
        };
        Site { target: *target, frames, passed: naming.passed() }
    });
    let sites = sites.collect();
    let profiler = modules.iter().find(|m| PROFILE_PRELOADS.contains(&m.file_name())).map(|m| (m.start, m.end));
    let places = modules.iter().map(|m| (m.start, m.end)).collect();
    call_sites::publish(Matcher { sites, modules: places, profiler, wrappers, libraries, ..Matcher::default() });
    *seen = modules;
    problems
}

fn line<'a>(naming: &'a Naming<'_>) -> Option<&'a SourceLine> {
    match naming {
        Naming::Line(line) => Some(line),
        _ => None,
    }
}

/// The functions that name call sites.
struct Functions {
    search: Search,
    /// There is something to search for.
    searches: bool,
    /// One of them may be in a runtime library.
    names_library: bool,
    /// Their linkage names in C and Fortran, with the index in `search`.
    linkages: Vec<(String, usize)>,
    /// For each site the indices of its functions; `None` stands for any function.
    of_site: Vec<Vec<Option<usize>>>,
}

impl Functions {
    fn of(named: &[(Target, Naming<'static>)]) -> Functions {
        let mut search = Search::default();
        let mut indices = |naming: &Naming<'_>| match naming {
            Naming::Functions(list) => list.iter().map(|name| name.clone().map(|n| search.add(n))).collect(),
            _ => Vec::new(),
        };
        let of_site = named.iter().map(|(_, naming)| indices(naming)).collect();
        let linkages = |(index, name)| linkages(name).map(move |linkage| (linkage, index));
        let linkages = search.names().iter().enumerate().flat_map(linkages).collect();
        let (searches, names_library) = (!search.names().is_empty(), search.names_library());
        Functions { search, searches, names_library, linkages, of_site }
    }
}

fn in_function(name: Option<usize>, code: &[Ranges]) -> Frame {
    name.map_or(Frame::Any, |index| Frame::In(code.get(index).cloned().unwrap_or_default()))
}

/// Reads the symbols of `module`: places its globals if it is new, adds the code of wanted functions to `code`.
fn read_symbols(state: &'static State, module: &Loaded, is_new: bool, functions: &Functions, code: &mut [Ranges]) {
    let mut purposes: Vec<Purpose> = Vec::new();
    let mut wanted = NameTable::default();
    let mut sections: Vec<(usize, &'static str)> = Vec::new();
    for (index, rule) in state.rules.iter().enumerate() {
        match rule.rule.global.as_deref() {
            Some(name) if is_new && module_matches(state, rule.rule.module.as_deref(), module) => {
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
            _ => {}
        }
    }
    for (linkage, index) in &functions.linkages {
        wanted.insert(linkage.as_bytes(), Kind::Function, purposes.len());
        purposes.push(Purpose::Function(*index));
    }
    let is_library = wrapper::is_library_module(module.file_name());
    let searches = functions.searches && (!is_library || functions.names_library);
    if purposes.is_empty() && sections.is_empty() && !searches {
        return;
    }
    // The debug files of runtime libraries have many symbols, and no function that a rule would name.
    let elf = if is_library { Elf::open(&module.path) } else { Elf::with_symbols(&module.path) };
    let Some(elf) = elf else { return };
    let mut globals: Vec<(usize, Symbol)> = Vec::with_capacity(purposes.len());
    let mut found = |index: usize, symbol: Symbol| {
        if let Some(ranges) = code.get_mut(index) {
            ranges.push(module.return_addresses((symbol.address, symbol.address.saturating_add(symbol.size))));
        }
    };
    elf.find(&wanted, |purpose, symbol| match purposes.get(purpose) {
        Some(Purpose::Global(rule)) => globals.push((*rule, symbol)),
        Some(Purpose::Function(index)) => found(*index, symbol),
        None => {}
    });
    if searches {
        elf.functions(|linkage, symbol| functions.search.find(linkage, |index| found(index, symbol)));
    }
    globals.sort_by_key(|&(rule, _)| rule);
    let mut found = Vec::with_capacity(globals.len());
    for same in globals.chunk_by(|a, b| a.0 == b.0) {
        let Some(&(rule, _)) = same.first() else { continue };
        let candidates = same.iter().map(|&(_, symbol)| symbol).collect();
        found.extend(globals::choose(state, rule, candidates, module));
    }
    found.extend(sections.iter().filter_map(|&(rule, name)| globals::unoccupied(rule, name.as_bytes(), &elf, module)));
    globals::place_all(state, module, found);
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

fn at_address(state: &State, text: &str, modules: &[Loaded]) -> Frame {
    let Ok(frame) = text.parse::<callsite::Frame>() else { return Frame::In(Vec::new()) };
    let here = modules.iter().filter(|m| is_module(state, &frame.module, m));
    Frame::In(here.map(|m| m.bias.wrapping_add(frame.vaddr as usize)).map(|ra| (ra, ra.saturating_add(1))).collect())
}
