//! Call stacks as the programmer wrote them: every frame with the calls that the compiler inlined into it, and with
//! the functions that left by a tail call.

use std::collections::{HashMap, HashSet};

use numamma_plan::callsite::wrapper;

use super::identity::base_name;
use crate::profile::records::{Frame, Location, Module, NO_MODULE};

/// Functions that tail calls removed between two frames: the inner one, none for the allocator, and the outer one.
pub type LostTable = HashMap<(Option<Frame>, Frame), Vec<Location>>;

/// What is known of the call stacks besides the names of their frames.
#[derive(Debug, Clone, Default)]
pub struct CallStacks {
    /// See [`LostTable`].
    pub lost: LostTable,
    /// Functions that serve several callers with memory; see [`super::wrappers`].
    pub wrappers: HashSet<String>,
}

/// How a function is on a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// With a return address into its own code.
    Called,
    /// Its code was inlined into that of its caller.
    Inlined,
    /// It left by a tail call.
    TailCalled,
}

/// One function of a call stack.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// Index of the frame that it belongs to.
    pub index: usize,
    /// That frame.
    pub frame: Frame,
    /// Function, file and line, as far as known.
    pub location: Option<&'a Location>,
    /// How it is on the stack.
    pub how: How,
    /// The symbol of its code, where that is another name than the one of the debug information (`MAIN__`, `stats_`).
    symbol: Option<&'a str>,
}

impl<'a> Step<'a> {
    /// Its name.
    pub fn function(&self) -> Option<&'a str> {
        self.location.and_then(|l| l.function.as_deref())
    }

    /// The name under which a symbol table has it.
    pub fn symbol(&self) -> Option<&'a str> {
        self.symbol.or(self.function())
    }
}

/// What names are made from.
#[derive(Debug, Clone, Copy)]
pub struct NameTables<'a> {
    /// Modules by id.
    pub modules: &'a [Module],
    /// Names of frames.
    pub symbols: &'a HashMap<Frame, Vec<Location>>,
    /// More about the stacks.
    pub stacks: &'a CallStacks,
}

/// The functions of a frame, innermost first, and the symbol of the last one, where that is another name: the recorder
/// adds it as a location without a place.
pub fn functions(locations: &[Location]) -> (&[Location], Option<&str>) {
    match locations {
        [own @ .., alias] if !own.is_empty() && alias.file.is_none() && alias.line.is_none() => {
            (own, alias.function.as_deref())
        }
        _ => (locations, None),
    }
}

/// The function that a frame's code is in, under its name in the source.
pub fn outermost(locations: &[Location]) -> Option<&Location> {
    functions(locations).0.last()
}

impl<'a> NameTables<'a> {
    /// All functions of a stack, innermost first.
    pub fn steps(&self, frames: &[Frame]) -> Vec<Step<'a>> {
        let mut out = Vec::with_capacity(frames.len());
        let mut inner = None;
        for (index, &frame) in frames.iter().enumerate() {
            let lost = self.stacks.lost.get(&(inner, frame)).map_or(&[][..], Vec::as_slice);
            let step = |location, how| Step { index, frame, location, how, symbol: None };
            out.extend(lost.iter().map(|l| step(Some(l), How::TailCalled)));
            let (own, symbol) = functions(self.symbols.get(&frame).map_or(&[][..], Vec::as_slice));
            let (outermost, inlined) = own.split_last().map_or((None, &[][..]), |(last, rest)| (Some(last), rest));
            out.extend(inlined.iter().map(|l| step(Some(l), How::Inlined)));
            out.push(Step { symbol, ..step(outermost, How::Called) });
            inner = Some(frame);
        }
        out
    }

    /// Whether a step is code of a runtime or standard library or named like an allocator. Debug information with only
    /// line tables has the functions of Rust's library without their crate; then the source file shows it.
    pub fn is_known_wrapper(&self, step: &Step<'_>) -> bool {
        let module = self.modules.get(step.frame.module as usize);
        let in_library = step.frame.module != NO_MODULE
            && step.how != How::TailCalled
            && module.is_some_and(|m| wrapper::is_library_module(base_name(&m.path).as_bytes()));
        let file = step.location.and_then(|l| l.file.as_deref());
        in_library
            || step.function().is_some_and(|f| wrapper::of_function(f).is_some())
            || file.is_some_and(|path| wrapper::is_library_source(path.as_bytes()))
    }

    /// Index of the innermost step that is no wrapper known by its name; 0 where all are.
    pub fn innermost_own(&self, steps: &[Step<'_>]) -> usize {
        steps.iter().position(|s| !self.is_known_wrapper(s)).unwrap_or(0)
    }

    /// Index of the step that names the object: the innermost one that is no wrapper; 0 where all are.
    pub fn naming_step(&self, steps: &[Step<'_>]) -> usize {
        let learned = |s: &Step<'_>| s.function().is_some_and(|f| self.stacks.wrappers.contains(f));
        steps.iter().position(|s| !self.is_known_wrapper(s) && !learned(s)).unwrap_or_else(|| self.innermost_own(steps))
    }
}
