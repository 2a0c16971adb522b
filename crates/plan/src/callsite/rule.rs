//! How a rule or a phase names its call site, when the name fits a call stack, and which of several rules then takes
//! the allocation.

use super::frame::file_name;
use super::function::{FunctionName, is_frameless};
use super::group::RuleGroup;
use super::line::SourceLine;
use super::wrapper::{self, Wrapper};
use crate::policy::{Program, Site};

/// How the program that runs relates to the one a policy was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// The same: addresses are valid.
    Same,
    /// Another build: call sites are matched by name.
    Other,
    /// Another program.
    OtherProgram,
}

impl Build {
    /// Compares a policy's program with the one of this path and hexadecimal build-id.
    pub fn of(program: Option<&Program>, path: &[u8], build_id: Option<&str>) -> Build {
        let Some(program) = program else { return Build::Same };
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
        let same_name = file_name(&program.path).as_bytes() == name;
        let same_id = program.build_id.as_ref().map(|id| build_id.is_some_and(|b| b.eq_ignore_ascii_case(id)));
        match (same_id, same_name) {
            (Some(true), _) | (None, true) => Build::Same,
            (Some(false), true) => Build::Other,
            (_, false) => Build::OtherProgram,
        }
    }
}

/// By what a call site is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Naming<'a> {
    /// Return addresses as `module+0xaddress`, innermost first; only valid in the build they come from.
    Addresses(&'a [String]),
    /// Functions, innermost first; none: any function.
    Functions(Vec<Option<FunctionName>>),
    /// The line of the call.
    Line(SourceLine),
}

/// Frames that a call stack may have inside of those that are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// None: all frames are named.
    Nothing,
    /// Wrappers, by module and function name ([`wrapper`]).
    Wrappers,
    /// Those, and functions from the sources of compilers' libraries.
    LibrarySources,
}

impl<'a> Naming<'a> {
    /// How a rule or a phase names this call site; none for a global, and where nothing is left of it in another build.
    pub fn of(site: Site<'a>, same_build: bool) -> Option<Naming<'a>> {
        match (site.callsite, site.function, site.line) {
            (Some(frames), ..) if same_build => Some(Naming::Addresses(frames)),
            // An unnamed function matches any function. When the addresses belong to another build, a list of only
            // unnamed functions would match every allocation.
            (Some(_), Some(list), _) if list.iter().all(|name| is_unnamed(name) || is_frameless(name)) => None,
            (_, Some(list), _) => Some(Naming::Functions(functions(list))),
            (None, None, Some(line)) => SourceLine::parse(line).ok().map(Naming::Line),
            _ => None,
        }
    }

    /// Number of frames that must fit. Rules with more of them are tried first.
    pub fn frames(&self) -> usize {
        match self {
            Naming::Addresses(list) => list.len(),
            Naming::Functions(list) => list.len(),
            Naming::Line(_) => 1,
        }
    }

    /// Which inner frames of a stack are passed.
    pub fn passed(&self) -> Passed {
        match self {
            Naming::Addresses(_) => Passed::Nothing,
            Naming::Functions(_) => Passed::Wrappers,
            Naming::Line(_) => Passed::LibrarySources,
        }
    }
}

fn is_unnamed(function: &str) -> bool {
    function.is_empty() || function == "?"
}

/// The functions of a rule that have a frame, without leading functions of standard libraries if other functions
/// follow: which library functions are on the stack depends on the compiler and its flags, so matching skips them.
pub(super) fn compared(list: &[String]) -> Vec<&str> {
    let mut list: Vec<&str> = list.iter().map(String::as_str).filter(|name| !is_frameless(name)).collect();
    let is_library = |name: &&str| wrapper::of_written(name) == Some(Wrapper::Library);
    let first_own = if list.len() > 1 { list.iter().position(|name| !is_library(name)) } else { None };
    list.split_off(first_own.unwrap_or(0))
}

fn functions(list: &[String]) -> Vec<Option<FunctionName>> {
    compared(list).into_iter().map(|name| (!is_unnamed(name)).then(|| FunctionName::parse(name))).collect()
}

/// Whether `frames` of a rule fit `stack`, both innermost first: they begin at its innermost frame, or further out when
/// all frames before are passed.
pub fn fits<F, S>(frames: &[F], stack: &[S], holds: impl Fn(&F, &S) -> bool, is_passed: impl Fn(&S) -> bool) -> bool {
    let mut rest = stack;
    while frames.len() <= rest.len() && !frames.is_empty() {
        if frames.iter().zip(rest).all(|(frame, at)| holds(frame, at)) {
            return true;
        }
        match rest.split_first() {
            Some((innermost, outer)) if is_passed(innermost) => rest = outer,
            _ => return false,
        }
    }
    false
}

/// Whether an object of rule `owner` that is given another size keeps its rule: where the call site of that rule
/// `fits`, whatever other rules say. Then no group counts it.
///
/// `candidates` are rules, and what `fits` is asked about.
pub fn keeps<'a, C>(
    mut candidates: impl Iterator<Item = (&'a RuleGroup, C)>,
    owner: usize,
    fits: impl Fn(C) -> bool,
) -> bool {
    candidates.any(|(group, candidate)| group.has(owner) && fits(candidate))
}

/// The rule that takes an allocation of `size` bytes: of the rules whose call site `fits`, one with the most frames,
/// then the first in the file. Every group that fits counts the allocation, also when another one takes it.
///
/// `candidates` are number of frames, rules, and what `fits` is asked about; most frames first.
pub fn choose<'a, C>(
    candidates: impl Iterator<Item = (usize, &'a RuleGroup, C)>,
    size: usize,
    fits: impl Fn(C) -> bool,
) -> Option<usize> {
    let mut best: Option<(usize, usize)> = None;
    for (frames, group, candidate) in candidates {
        let better = |rule: usize| best.is_none_or(|(most, first)| frames == most && rule < first);
        if !better(group.first()) && !group.counts() {
            continue;
        }
        // The size first: many rules may share the frames.
        if !group.fits(size) || !fits(candidate) {
            continue;
        }
        if let Some(rule) = group.take(size).filter(|&rule| better(rule)) {
            best = Some((frames, rule));
        }
    }
    best.map(|(_, rule)| rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ObjectRule;

    fn words(list: &[&str]) -> Option<Vec<String>> {
        Some(list.iter().map(|&s| s.to_owned()).collect())
    }

    #[test]
    fn a_rule_is_named_by_addresses_then_functions_then_line() {
        let naming = |rule: &ObjectRule, same| Naming::of(rule.site(), same).map(|n| (n.frames(), n.passed()));
        let mut rule = ObjectRule { line: Some("a.c:1".into()), ..ObjectRule::default() };
        assert_eq!(naming(&rule, false), Some((1, Passed::LibrarySources)));
        rule.callsite = words(&["a+0x1", "a+0x2"]);
        assert_eq!((naming(&rule, true), naming(&rule, false)), (Some((2, Passed::Nothing)), None));
        rule.function = words(&["", "?"]);
        assert_eq!(naming(&rule, false), None, "no function has a name");
        rule.function = words(&["", "main"]);
        assert_eq!(naming(&rule, false), Some((2, Passed::Wrappers)));
        rule.function = words(&["operator new(unsigned long)", "std::f()", "main"]);
        assert_eq!(naming(&rule, false), Some((1, Passed::Wrappers)), "the library is passed in any case");
        rule.function = words(&["_Znwm", "std::f()"]);
        assert_eq!(naming(&rule, false), Some((2, Passed::Wrappers)));
        rule.function = words(&["xmalloc", "main"]);
        assert_eq!(naming(&rule, false), Some((2, Passed::Wrappers)), "a wrapper of the program is meant");
    }

    #[test]
    fn frames_begin_behind_the_frames_that_are_passed() {
        let fits = |frames: &[u8], stack: &[u8]| fits(frames, stack, |a, b| a == b, |&b| b >= 10);
        assert!(
            fits(&[1], &[1, 2]) && fits(&[1, 2], &[1, 2]) && fits(&[1], &[10, 11, 1]) && fits(&[11, 1], &[10, 11, 1])
        );
        assert!(!fits(&[2], &[1, 2]) && !fits(&[1, 2, 3], &[1, 2]) && !fits(&[], &[1]) && !fits(&[1], &[10, 2, 1]));
    }

    #[test]
    fn builds_are_told_apart_by_name_and_id() {
        let program = |id: Option<&str>| Program { path: "bin/app".into(), build_id: id.map(str::to_owned) };
        let of = |id: Option<&str>, path: &str, found| Build::of(Some(&program(id)), path.as_bytes(), found);
        assert_eq!(Build::of(None, b"x", None), Build::Same);
        assert_eq!((of(None, "/x/app", None), of(None, "app2", Some("ab"))), (Build::Same, Build::OtherProgram));
        assert_eq!((of(Some("AB"), "x", Some("ab")), of(Some("ab"), "app", None)), (Build::Same, Build::Other));
        assert_eq!(of(Some("ab"), "x", Some("cd")), Build::OtherProgram);
    }
}
