//! Resolves the names of the policy in the loaded modules: at start-up and whenever a library is loaded or unloaded.
//!
//! Any thread may do this at any time, several at once, a signal handler and a constructor inside dlopen included. No
//! thread waits: each lists the modules, prepares a new matcher, and publishes it if no other thread has published one
//! since the list was begun; else it begins again. So a matcher is never older than the list of the one before, and
//! when the hook of dlopen or dlclose returns, the current one knows what that call changed.

use std::sync::Arc;

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use numamma_hook::modules as loader;
use numamma_hook::real::own_interface;
use numamma_hook::versions::{self, NotReplaced, Reading};
use numamma_hook::{allocating, fork_wiped, sandbox, say_once, unwind};
use numamma_kernel::sys::PAGE;

use crate::matching::cached::unmatched;
use crate::matching::call_sites;
use crate::matching::facts::names::Names;
use crate::matching::facts::{Facts, Key, Variable};
use crate::matching::matcher::{Matcher, Module};
use crate::matching::modules::{self, Counts, Extent, Listed, Loaded};
use crate::matching::{pending, source_lines};
use crate::objects::{globals, heap};
use crate::rules::state::{self, State};

/// Files whose facts are kept after they were unloaded, for the next time: programs have tens of plugins.
const MOST_IDLE: usize = 64;
/// Memory that these may take together: the facts of the largest libraries (LLVM) take a megabyte.
const MOST_IDLE_BYTES: usize = 8 << 20;

/// The wanted names; null before start-up, never freed.
static NAMES: AtomicPtr<Names> = AtomicPtr::new(core::ptr::null_mut());
static LOADS: AtomicU64 = AtomicU64::new(1);

fn names() -> Option<&'static Names> {
    // SAFETY: null or a leaked box, published with Release.
    unsafe { NAMES.load(Ordering::Acquire).as_ref() }
}

/// Resolves all modules for the first time; returns the problems of lines that have no code, see
/// [`source_lines::problems`].
pub fn resolve_at_start() -> Vec<(String, bool)> {
    let Some(state) = state::get() else { return Vec::new() };
    let names: &'static Names = Box::leak(Box::new(Names::of(state)));
    NAMES.store(core::ptr::from_ref(names).cast_mut(), Ordering::Release);
    resolve_modules();
    let Some(matcher) = call_sites::read() else { return Vec::new() };
    let facts = || matcher.modules.iter().map(|m| &m.facts);
    let has_code = |line| facts().any(|f| f.code.names().binary_search(&names.line(line)).is_ok());
    source_lines::problems(&names.lines, has_code, facts().map(|f| (&f.key.path[..], &f.lines)))
}

/// Places the globals of modules that are new and publishes the call sites in all modules, if any module came or went.
pub fn resolve_modules() {
    let (Some(state), Some(names)) = (state::get(), names()) else { return };
    if is_up_to_date() {
        return;
    }
    let before = versions::depth();
    if allocating::run(|| follow_modules(state, names)).is_none() {
        versions::abandon(before);
        say_once!("memory is short: the libraries that the program loads or unloads now cannot be followed");
    }
}

/// Whether no module came or went since the current matcher was made.
fn is_up_to_date() -> bool {
    let Some(matcher) = call_sites::read().filter(|m| m.counts == Counts::now()) else { return false };
    pending::resolved(matcher.counts);
    call_sites::ensure_cache_is_right(&matcher);
    true
}

fn follow_modules(state: &'static State, names: &'static Names) {
    // Facts that this call has read, in case another thread publishes first.
    let mut read: Vec<Arc<Facts>> = Vec::new();
    loop {
        if is_up_to_date() {
            return;
        }
        let old = call_sites::read();
        let next = Next::of(state, names, old.as_deref(), &mut read);
        let counts = next.matcher.counts;
        if publish(state, old, next) {
            pending::resolved(counts);
            return;
        }
    }
}

/// Resolves the module of code at `address`, which the current matcher does not know and which cannot be unloaded
/// meanwhile. Takes no lock. Beside an allocator with an interface of its own nothing is learnt: whether the module
/// uses that would have to be asked under the lock of the loader.
pub fn learn_module(address: usize) {
    let (Some(state), Some(names)) = (state::get(), names()) else { return };
    if own_interface::is_possible() || loader::find(address).is_none() {
        return;
    }
    let before = versions::depth();
    if allocating::run(|| learn_with(state, names, address)).is_none() {
        versions::abandon(before);
    }
}

fn learn_with(state: &'static State, names: &'static Names, address: usize) {
    let mut read: Vec<Arc<Facts>> = Vec::new();
    loop {
        let old = call_sites::read();
        let Some(next) = old.as_ref().and_then(|old| Next::with(state, names, old, address, &mut read)) else { return };
        if publish(state, old, next) {
            return;
        }
    }
}

/// Replaces the matcher `old`; false if that is to be tried again with the one that another thread has published.
fn publish(state: &'static State, old: Option<Reading<'static, Matcher>>, next: Next) -> bool {
    let Next { matcher, new } = next;
    let is_gone = |module: &&Module| matcher.module_of(module.start).is_none_or(|m| m.load != module.load);
    // Before the new matcher is published: who finds that one needs to do nothing more.
    for gone in old.iter().flat_map(|old| old.modules.iter().filter(is_gone)) {
        globals::forget(gone.load);
        unwind::invalidate_range(gone.start, gone.end);
        unmatched::clear_range(gone.start, gone.end);
    }
    // Before a call site in them is matched.
    stop_at_own_interface(&new);
    // The first one replaces a matcher without sites, or none.
    let all = old.as_ref().is_none_or(|old| matcher.begins_more_than(old));
    let done = matcher.is_cache_right.clone();
    match call_sites::replace(old, matcher) {
        Ok(()) => {
            call_sites::clear_cache(all, new.iter().map(|(module, ..)| (module.start, module.end)), done.as_deref());
            new.iter().for_each(|(module, load, facts)| place_globals(state, module, *load, facts));
            true
        }
        Err(NotReplaced::Outdated) => false,
        Err(NotReplaced::NoRoom) => {
            say_once!(
                "no memory to follow the libraries that the program loads, or a thread was stopped inside an \
                 allocation; what they allocate may stay unplaced"
            );
            true
        }
    }
}

/// Stops the placing of heap objects if one of the `new` modules uses the own interface of an allocator behind this
/// library: its functions do not know placed blocks.
fn stop_at_own_interface(new: &[(Loaded, u64, Arc<Facts>)]) {
    if heap::stopped().is_some() {
        return;
    }
    let is_new = |start: usize| new.iter().any(|(module, ..)| module.start == start);
    if let Some(found) = own_interface::find(is_new) {
        heap::stop(format!("{} calls {}, which {} alone has", found.by, found.function, found.allocator));
    }
}

/// What is to be published next.
struct Next {
    matcher: Matcher,
    /// The modules that are not in the matcher before, with the number of their load.
    new: Vec<(Loaded, u64, Arc<Facts>)>,
}

impl Next {
    fn of(state: &'static State, names: &'static Names, old: Option<&Matcher>, read: &mut Vec<Arc<Facts>>) -> Next {
        let (mut list, mut counts) = modules::list(|extent| old.and_then(|old| known(old, extent)));
        let is_new = |listed: &&Listed<Module>| matches!(listed, Listed::New(_));
        let added = list.iter().filter(is_new).count() as u64;
        if let Some(old) = old
            && counts.loaded.wrapping_sub(old.counts.loaded) != added
        {
            // A module was replaced by another one at the same address and path (or loaded elsewhere, by dlmopen): all
            // files are looked at.
            (list, counts) = modules::list(|_| None);
        }
        let (mut all, mut new) = (Vec::with_capacity(list.len()), Vec::new());
        for listed in list {
            match listed {
                Listed::Known(module) => all.push(module),
                Listed::New(mut loaded) => {
                    let facts = facts_of(state, names, old, read, &mut loaded);
                    let kept = old.and_then(|old| kept(old, &loaded, &facts));
                    let load = kept.unwrap_or_else(|| LOADS.fetch_add(1, Ordering::Relaxed));
                    all.push(module_of(&loaded, load, &facts));
                    if kept.is_none() {
                        new.push((loaded, load, facts));
                    }
                }
            }
        }
        all.sort_unstable_by_key(|m| m.start);
        let idle = idle(old, &all);
        Next { matcher: Matcher::new(names, all, idle, counts), new }
    }

    /// The modules of `old` and the one of `address`; `None` if that is known or there is none.
    fn with(
        state: &'static State,
        names: &'static Names,
        old: &Matcher,
        address: usize,
        read: &mut Vec<Arc<Facts>>,
    ) -> Option<Next> {
        if old.module_of(address).is_some() {
            return None;
        }
        let mut loaded = modules::at(address)?;
        let facts = facts_of(state, names, Some(old), read, &mut loaded);
        let load = LOADS.fetch_add(1, Ordering::Relaxed);
        // What was at these addresses before is gone.
        let stays = |m: &&Module| m.end <= loaded.start || loaded.end <= m.start;
        let mut all: Vec<Module> = old.modules.iter().filter(stays).cloned().collect();
        all.push(module_of(&loaded, load, &facts));
        all.sort_unstable_by_key(|m| m.start);
        // As many modules as are counted beyond these are new when the loader is asked next.
        let counts = Counts { loaded: old.counts.loaded.wrapping_add(1), ..old.counts };
        let idle = idle(Some(old), &all);
        Some(Next { matcher: Matcher::new(names, all, idle, counts), new: vec![(loaded, load, facts)] })
    }
}

fn module_of(loaded: &Loaded, load: u64, facts: &Arc<Facts>) -> Module {
    let &Loaded { start, end, bias, program, search, .. } = loaded;
    Module { start, end, bias, load, is_program: program, search, facts: Arc::clone(facts) }
}

/// Resolves after dlopen has returned `handle`. If the module is known, the loader has loaded nothing and is not asked:
/// in a forked child a lock of it may never be released. A module that is not known has been loaded just now, and that
/// lock with it. `certain` says that no library was unloaded meanwhile whose place this one may have taken.
pub fn resolve_opened(handle: *mut c_void, certain: bool) {
    let is_known = || {
        let matcher = call_sites::read();
        // SAFETY: dlopen has just returned the handle.
        let (dynamic, bias, path) = unsafe { modules::opened(handle) };
        matcher.and_then(|m| m.module_of(dynamic).map(|m| m.bias == bias && m.facts.key.path == path)) == Some(true)
    };
    let is_child = fork_wiped::is_forked_child();
    let may_have_changed = match handle.is_null() {
        // A library whose dependencies are missing was loaded for a moment.
        true => !is_child,
        false => (!is_child && (!certain || pending::is_pending())) || !is_known(),
    };
    if may_have_changed {
        resolve_modules();
    }
}

/// How many modules of the current matcher are where they were; changes when one is unloaded.
pub fn count_present() -> usize {
    let first_page = |address: usize| address & !(PAGE - 1);
    let is_present = |m: &&Module| match loader::asks_loader() {
        true => loader::place_of(m.start).is_some_and(|p| p.start == first_page(m.start)),
        false => loader::may_be_loaded(m.start),
    };
    call_sites::read().map_or(0, |matcher| matcher.modules.iter().filter(is_present).count())
}

/// The module of `old` at these addresses.
fn known(old: &Matcher, extent: &Extent<'_>) -> Option<Module> {
    let module = old.module_of(extent.start)?;
    let found = (module.start, module.end, module.bias) == (extent.start, extent.end, extent.bias);
    (found && module.facts.key.path == extent.path).then(|| module.clone())
}

/// Number of the load if `loaded`, with the same facts, was in `old`. A library with globals to place counts as new:
/// its memory may be, too.
fn kept(old: &Matcher, loaded: &Loaded, facts: &Arc<Facts>) -> Option<u64> {
    let before = old.module_of(loaded.start)?;
    let same = (before.start, before.end, before.bias) == (loaded.start, loaded.end, loaded.bias);
    (same && Arc::ptr_eq(&before.facts, facts) && (loaded.program || facts.variables.is_empty())).then_some(before.load)
}

/// The facts of the file of `module`, read if they are not known.
fn facts_of(
    state: &'static State,
    names: &'static Names,
    old: Option<&Matcher>,
    read: &mut Vec<Arc<Facts>>,
    module: &mut Loaded,
) -> Arc<Facts> {
    if sandbox::entered() {
        // Reading the file takes system calls that the program's own dlopen does not make.
        let mut all = old.into_iter().flat_map(|old| old.modules.iter().map(|m| &m.facts).chain(&old.idle));
        let known = all.find(|facts| facts.key.path == module.path && facts.key.build_id == module.build_id);
        let without_globals = known.filter(|facts| facts.variables.is_empty()).cloned();
        return without_globals.unwrap_or_else(|| Arc::new(Facts::nothing(&module.path)));
    }
    let key = Key::of(module);
    let loaded = old.into_iter().flat_map(|old| old.modules.iter().map(|m| &m.facts));
    let idle = old.into_iter().flat_map(|old| &old.idle);
    if let Some(facts) = loaded.chain(idle).chain(read.iter()).find(|facts| facts.key == key) {
        return Arc::clone(facts);
    }
    let facts = Arc::new(Facts::read(state, names, key, module));
    read.push(Arc::clone(&facts));
    facts
}

/// The facts to keep of files that are not loaded, within the limits: the ones unloaded last.
fn idle(old: Option<&Matcher>, modules: &[Module]) -> Vec<Arc<Facts>> {
    let Some(old) = old else { return Vec::new() };
    let mut loaded: Vec<*const Facts> = modules.iter().map(|m| Arc::as_ptr(&m.facts)).collect();
    loaded.sort_unstable();
    let is_loaded = |facts: &Arc<Facts>| loaded.binary_search(&Arc::as_ptr(facts)).is_ok();
    let unloaded = old.modules.iter().map(|m| &m.facts);
    let mut all: Vec<Arc<Facts>> = old.idle.iter().chain(unloaded).filter(|f| !is_loaded(f)).cloned().collect();
    let mut bytes = 0;
    let fit = |facts: &&Arc<Facts>| {
        bytes += facts.bytes();
        bytes <= MOST_IDLE_BYTES
    };
    let keep = all.iter().rev().take(MOST_IDLE).take_while(fit).count();
    all.drain(..all.len() - keep);
    all
}

/// Places the globals of a module that was loaded.
fn place_globals(state: &'static State, module: &Loaded, load: u64, facts: &Facts) {
    let mut found = Vec::with_capacity(facts.variables.len());
    for variable in &facts.variables {
        match variable {
            Variable::Symbols(rule, symbols) => found.extend(globals::choose(state, *rule, symbols, module)),
            Variable::Section(rule, section) => found.push(globals::of_section(*rule, section, module)),
        }
    }
    if !found.is_empty() {
        globals::place_all(state, module, load, found);
    }
}
