//! From names in the policy to addresses in the loaded modules: at start-up, and again when libraries come
//! or go.

use numamma_plan::callsite;
use numamma_plan::policy::Phase;
use numamma_plan::source::SourceLine;

use crate::matching::call_sites::{self, Frame, Matcher, Site, Target};
use crate::matching::elf::{Elf, Kind, Symbol};
use crate::matching::modules::{self, Loaded};
use crate::matching::name_table::Wanted;
use crate::matching::pending;
use crate::matching::source_lines::{self, Sources};
use crate::objects::globals;
use crate::rules::state::{self, State};

/// File names of the profile preload: installed, and in a cargo target directory.
const PROFILE_PRELOADS: [&[u8]; 2] = [b"libnumamma-profile.so", b"libnumamma_preload_profile.so"];

/// Looks at all modules; places the globals of those that are new, and finds the call sites anew.
pub fn now() {
    at_start();
}

/// The same, with what to tell about lines that have no code; see [`Sources::problems`].
pub fn at_start() -> Vec<(String, bool)> {
    let Some(state) = state::get() else { return Vec::new() };
    if !pending::begin() {
        return Vec::new();
    }
    let problems = resolve(state);
    pending::end();
    problems
}

/// Modules whose globals have been placed, by path and bias, guarded by [`pending::begin`].
struct Seen(core::cell::UnsafeCell<Vec<Loaded>>);

// SAFETY: only `resolve` touches it, and `pending::begin` lets one thread at a time in.
unsafe impl Sync for Seen {}

static SEEN: Seen = Seen(core::cell::UnsafeCell::new(Vec::new()));

/// How a rule or a phase names its call site.
struct Named<'a> {
    callsite: Option<&'a Vec<String>>,
    function: Option<&'a Vec<String>>,
}

fn named(state: &State, target: Target) -> Option<Named<'_>> {
    Some(match target {
        Target::Rules(selection) => {
            // Its rules agree on that.
            let rule = &state.rules.get(selection.first())?.rule;
            Named { callsite: rule.callsite.as_ref(), function: rule.function.as_ref() }
        }
        Target::Phase(index) => {
            let phase = state.policy.phases.get(index)?;
            Named { callsite: phase.callsite.as_ref(), function: phase.function.as_ref() }
        }
    })
}

/// The line that names the call site of `target`, where nothing else does.
fn line(state: &State, target: Target) -> Option<SourceLine> {
    match target {
        Target::Rules(selection) => selection.line().cloned(),
        Target::Phase(index) => {
            let text = state.policy.phases.get(index)?.line_alone()?;
            SourceLine::parse(text).ok()
        }
    }
}

/// Everything that names a call site.
fn targets(state: &'static State) -> impl Iterator<Item = Target> {
    let counting = |(index, phase): (usize, &Phase)| phase.allocation.map(|_| Target::Phase(index));
    state.selections.iter().map(Target::Rules).chain(state.policy.phases.iter().enumerate().filter_map(counting))
}

/// What a name is wanted for.
enum Purpose<'a> {
    Global(usize),
    Function(&'a str),
}

fn resolve(state: &'static State) -> Vec<(String, bool)> {
    let mut modules = modules::all();
    // SAFETY: this thread is between `pending::begin` and `pending::end`.
    let seen = unsafe { &mut *SEEN.0.get() };
    modules.iter_mut().for_each(|m| m.follow_links(seen));
    for gone in seen.iter().filter(|old| !modules.contains(old)) {
        globals::forget(gone.start, gone.end);
    }
    let mut functions: Vec<(&str, usize, usize)> = Vec::new();
    for module in &modules {
        let is_new = !seen.contains(module);
        look_into(state, module, is_new, &mut functions);
    }
    let lines: Vec<_> = targets(state).filter_map(|t| line(state, t)).collect();
    // SAFETY: this thread is between `pending::begin` and `pending::end`.
    let Sources { calls, wrappers, problems } = unsafe { source_lines::find(&lines, &modules) };
    let mut calls = calls.into_iter();
    let sites = targets(state).filter_map(|target| match line(state, target) {
        Some(_) => Some(Site { target, frames: vec![Frame::In(calls.next()?)], wrapped: true }),
        None => site(state, target, &modules, &functions),
    });
    let sites = sites.collect();
    let relay = modules.iter().find(|m| PROFILE_PRELOADS.contains(&m.file_name())).map(|m| (m.start, m.end));
    let places = modules.iter().map(|m| (m.start, m.end)).collect();
    call_sites::publish(Matcher { sites, modules: places, relay, wrappers, begins: None });
    *seen = modules;
    problems
}

/// One pass over the symbols of `module`: places its globals if it is new, collects wanted functions.
fn look_into<'a>(state: &'static State, module: &Loaded, is_new: bool, functions: &mut Vec<(&'a str, usize, usize)>)
where
    'static: 'a,
{
    let mut purposes: Vec<Purpose<'static>> = Vec::new();
    let mut wanted = Wanted::default();
    let mut want = |name: &'static str, kind: Kind, purpose: Purpose<'static>| {
        if wanted.is_empty() {
            wanted = Wanted::with_capacity(state.rules.len());
        }
        wanted.insert(name.as_bytes(), kind, purposes.len());
        purposes.push(purpose);
    };
    let mut sections: Vec<(usize, &'static str)> = Vec::new();
    for (index, rule) in state.rules.iter().enumerate() {
        match rule.rule.global.as_deref() {
            Some(name) if is_new && belongs(state, rule.rule.module.as_deref(), module) => {
                if name.starts_with('.') {
                    sections.push((index, name));
                } else {
                    want(name, Kind::Object, Purpose::Global(index));
                }
            }
            _ => {}
        }
    }
    for names in targets(state).filter(|t| by_function(state, *t)).filter_map(|t| named(state, t)?.function) {
        names.iter().filter(|n| !unnamed(n)).for_each(|n| want(n, Kind::Function, Purpose::Function(n)));
    }
    if purposes.is_empty() && sections.is_empty() {
        return;
    }
    let Some(elf) = Elf::open(&module.path) else { return };
    let mut globals: Vec<(usize, Symbol)> = Vec::with_capacity(purposes.len());
    elf.find(&wanted, |purpose, symbol| match purposes.get(purpose) {
        Some(Purpose::Global(rule)) => globals.push((*rule, symbol)),
        Some(Purpose::Function(name)) => {
            // Return addresses lie after the call: the last one may be one past the function's end.
            let start = module.bias.wrapping_add(symbol.address as usize);
            functions.push((name, start + 1, start.saturating_add(symbol.size as usize) + 1));
        }
        None => {}
    });
    globals.sort_by_key(|&(rule, _)| rule);
    let mut found = Vec::with_capacity(globals.len());
    for same in globals.chunk_by(|a, b| a.0 == b.0) {
        let Some(&(rule, _)) = same.first() else { continue };
        let candidates = same.iter().map(|&(_, symbol)| symbol).collect();
        found.extend(globals::choose(state, rule, candidates, module));
    }
    found.extend(sections.iter().filter_map(|&(rule, name)| globals::remainder(rule, name.as_bytes(), &elf, module)));
    globals::place_all(state, module, found);
}

/// Whether a rule for `wanted` (a file name; the program when absent) means `module`.
fn belongs(state: &State, wanted: Option<&str>, module: &Loaded) -> bool {
    match wanted {
        None => module.program,
        Some(name) => is_module(state, callsite::file_name(name), module),
    }
}

/// The program may have been renamed since the policy was made: it also answers to the policy's name for it.
fn is_module(state: &State, name: &str, module: &Loaded) -> bool {
    let programs_name = || state.policy.program.as_ref().map(|p| callsite::file_name(&p.path));
    module.is_called(name.as_bytes()) || (module.program && programs_name() == Some(name))
}

/// Addresses of another build mean nothing: then, or without addresses, functions identify the call site.
fn by_function(state: &State, target: Target) -> bool {
    named(state, target).is_some_and(|n| n.function.is_some() && (n.callsite.is_none() || !state.same_build))
}

fn unnamed(function: &str) -> bool {
    function.is_empty() || function == "?"
}

/// Where the allocations of `target` are made.
fn site(state: &State, target: Target, modules: &[Loaded], functions: &[(&str, usize, usize)]) -> Option<Site> {
    let named = named(state, target)?;
    let frames = if by_function(state, target) {
        // Addresses of another build say nothing, and without any name beside them nothing is left of the rule. Functions alone,
        // none of which has a name, mean every allocation.
        if named.callsite.is_some() && named.function.into_iter().flatten().all(|name| unnamed(name)) {
            return None;
        }
        let ranges =
            |name: &String| functions.iter().filter(|(n, ..)| n == name).map(|&(_, low, high)| (low, high)).collect();
        let frame = |name: &String| if unnamed(name) { Frame::Any } else { Frame::In(ranges(name)) };
        named.function.into_iter().flatten().map(frame).collect()
    } else if state.same_build {
        named.callsite?.iter().map(|text| at_address(state, text, modules)).collect()
    } else {
        return None;
    };
    Some(Site { target, frames, wrapped: false })
}

fn at_address(state: &State, text: &str, modules: &[Loaded]) -> Frame {
    let Ok(frame) = text.parse::<callsite::Frame>() else { return Frame::In(Vec::new()) };
    let here = modules.iter().filter(|m| is_module(state, &frame.module, m));
    Frame::In(here.map(|m| m.bias.wrapping_add(frame.vaddr as usize)).map(|ra| (ra, ra.saturating_add(1))).collect())
}
