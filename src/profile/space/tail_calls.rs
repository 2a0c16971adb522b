//! Functions that are missing in call stacks because they left by a tail call.
//!
//! A function that ends with a call jumps to the callee, and the stack then shows the callee's code directly below the
//! function's caller. The caller's call instruction says which function it called. Where that is not the one whose
//! code the stack shows next, the tail calls in the debug information lead from the one to the other. They are
//! followed, and if there is exactly one way, its functions are returned.

use std::collections::HashSet;

use numamma_plan::callsite::demangle::function_name;
use numamma_plan::callsite::wrapper::{self, Wrapper};

use super::dwarf_calls::{Callee, DwarfCalls, sections};
use super::elf::{ElfFile, Section};
use super::modules::Modules;
use super::symbols::Namer;
use crate::profile::records::{Frame, Location, LostFrames};

/// Functions that may leave by tail calls between two frames.
const MAX_PATH: usize = 8;
/// Functions looked at on one search: a dispatcher may end in hundreds of calls.
const MAX_VISITS: usize = 256;
/// Pairs of frames searched for in one module; programs have few call sites that need it.
const MAX_PAIRS: usize = 4096;

/// What lies inside of `outer`: the frame whose code is there, or the allocator.
type Pair = (Option<Frame>, Frame);

/// The functions that are missing in `stacks`, which are lists of return addresses, innermost first.
pub fn find<'a>(modules: &mut Modules, stacks: impl Iterator<Item = &'a [Frame]>) -> Vec<LostFrames> {
    let mut pairs: HashSet<Pair> = HashSet::new();
    for stack in stacks {
        let inner = std::iter::once(None).chain(stack.iter().copied().map(Some));
        pairs.extend(inner.zip(stack.iter().copied()));
    }
    let mut pairs: Vec<Pair> = pairs.into_iter().collect();
    pairs.sort_unstable_by_key(|(inner, outer)| (*outer, *inner));
    let mut out = Vec::new();
    for group in pairs.chunk_by(|a, b| a.1.module == b.1.module) {
        let module = group[0].1.module;
        // NO_MODULE is above every module.
        if module as usize >= modules.count() {
            continue;
        }
        let file = modules.file(module);
        let plt: Vec<Section> = file.elf.sections().into_iter().filter(|s| s.name.starts_with(".plt")).collect();
        let mut broken: Vec<(Pair, u64)> = Vec::new();
        for &(inner, outer) in group {
            let Some(called) = called_by(&file.elf, outer.offset) else { continue };
            if plt.iter().any(|s| (s.low..s.high).contains(&called)) || broken.len() >= MAX_PAIRS {
                continue;
            }
            let same_module = inner.is_none_or(|f| f.module == module);
            let shown = inner.and_then(|f| file.functions().at(f.offset.saturating_sub(1)));
            if same_module && shown.is_none_or(|(low, _)| low != called) {
                broken.push(((inner, outer), called));
            }
        }
        if broken.is_empty() {
            continue;
        }
        let (namer, elf, debug) = file.namer();
        let Some(sections) = sections(debug.unwrap_or(elf)) else { continue };
        let mut search = Search { calls: DwarfCalls::new(&sections), namer };
        for ((inner, outer), called) in broken {
            let locations = search.lost(inner, called);
            if !locations.is_empty() {
                out.push(LostFrames { inner, outer, locations });
            }
        }
    }
    out
}

/// First address of the function that a direct call before `return_address` calls.
fn called_by(elf: &ElfFile, return_address: u64) -> Option<u64> {
    const CALL_RELATIVE: u8 = 0xe8; // Intel SDM, volume 2, CALL rel32
    let bytes = elf.bytes_at(return_address.checked_sub(5)?, return_address)?;
    let (&CALL_RELATIVE, distance) = bytes.split_first()? else { return None };
    let distance = i32::from_le_bytes(distance.try_into().ok()?);
    Some(return_address.wrapping_add_signed(i64::from(distance)))
}

struct Search<'a> {
    calls: DwarfCalls<'a>,
    namer: &'a Namer,
}

impl Search<'_> {
    /// The functions between the code of `inner` (or the allocator) and the caller of the function at `called`,
    /// innermost first; none where there is no way, or more than one.
    fn lost(&mut self, inner: Option<Frame>, called: u64) -> Vec<Location> {
        let goal = inner.map(|f| f.offset.saturating_sub(1));
        if let (Some(function), Some(goal)) = (self.calls.function(called), goal)
            && function.has(goal)
        {
            return Vec::new(); // in a part of the function that the compiler moved away
        }
        let mut walk = Walk { goal, path: Vec::new(), found: None, ways: 0, visits: 0 };
        walk.follow(self, called);
        let Some(path) = walk.found.filter(|_| walk.ways == 1) else { return Vec::new() };
        path.into_iter().rev().flat_map(|(_, at)| self.namer.locations(at)).collect()
    }
}

/// A search for the ways to `goal`.
struct Walk {
    goal: Option<u64>,
    /// First addresses of the functions on the way, and the jump by which each is left.
    path: Vec<(u64, u64)>,
    found: Option<Vec<(u64, u64)>>,
    ways: usize,
    visits: usize,
}

/// More ways than one.
const SEVERAL: usize = 2;

impl Walk {
    fn follow(&mut self, search: &mut Search<'_>, low: u64) {
        self.visits += 1;
        let Some(function) = search.calls.function(low) else { return };
        if self.ways >= SEVERAL || self.visits > MAX_VISITS || self.path.len() >= MAX_PATH {
            self.ways = SEVERAL;
            return;
        }
        let mut seen: Vec<&Callee> = Vec::new();
        for call in &function.tail_calls {
            if seen.contains(&&call.callee) {
                continue; // two jumps to one function are one way
            }
            seen.push(&call.callee);
            let callee = match &call.callee {
                // Where it leads is not known: perhaps to the goal.
                Callee::Unknown => {
                    self.ways = SEVERAL;
                    return;
                }
                Callee::At(low) => Some(*low),
                Callee::Named(name) => {
                    if self.goal.is_none() && is_allocator(name) {
                        self.path.push((low, call.at));
                        self.arrive();
                        self.path.pop();
                        continue;
                    }
                    search.namer.address_of(name)
                }
            };
            let Some(callee) = callee.filter(|c| *c != low && self.path.iter().all(|(on, _)| on != c)) else {
                continue;
            };
            self.path.push((low, call.at));
            let there = search.calls.function(callee).zip(self.goal).is_some_and(|(f, goal)| f.has(goal));
            match there {
                true => self.arrive(),
                false => self.follow(search, callee),
            }
            self.path.pop();
        }
    }

    fn arrive(&mut self) {
        self.ways += 1;
        self.found = Some(self.path.clone());
    }
}

fn is_allocator(linkage: &str) -> bool {
    wrapper::of_function(&function_name(linkage)) == Some(Wrapper::Library)
}
