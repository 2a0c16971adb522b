//! The names that the policy wants to find in files: functions, lines and return addresses of call sites. Collected
//! once at start-up and kept for the whole run.

use numamma_plan::callsite;
use numamma_plan::callsite::group::RuleGroup;
use numamma_plan::callsite::line::SourceLine;
use numamma_plan::callsite::rule::{Naming, Passed};
use numamma_plan::callsite::search::{Search, linkages};

use super::code_map::NameId;
use crate::rules::state::{Rule, State};

/// Code of wrappers around the allocator.
pub const WRAPPER: NameId = 0;
/// Code from the sources of compilers' libraries.
pub const LIBRARY: NameId = 1;
/// The names of the policy follow: functions, then lines, then addresses.
const FIRST: NameId = 2;

/// Frames that a site may have, and the most that a walk returns.
pub const MAX_FRAMES: usize = 16;

/// What a call site stands for.
#[derive(Clone, Copy)]
pub enum Target {
    /// The rules that have these frames and the same sizes place what is allocated there: the group of this index.
    Rules(usize, &'static RuleGroup),
    /// The phase of this index counts the allocations made there.
    Phase(usize),
}

/// The frames of rules or of a phase.
pub struct Site {
    /// Rules or phase that the frames belong to.
    pub target: Target,
    /// Name of each frame, innermost first; none: any return address.
    pub frames: Vec<Option<NameId>>,
    /// Which inner frames of a stack are skipped before the first frame is compared.
    pub passed: Passed,
    /// What is allocated there stays where it is, and nobody asks how much that is.
    pub is_idle: bool,
}

/// All wanted names, and the sites that consist of them.
#[derive(Default)]
pub struct Names {
    /// The site with the most frames first.
    pub sites: Vec<Site>,
    /// Wanted functions.
    pub search: Search,
    /// The linkage names of functions in C and Fortran, with the index in `search`.
    pub linkages: Vec<(String, usize)>,
    /// Wanted lines.
    pub lines: Vec<SourceLine>,
    /// Wanted return addresses: module and address in the file. None: not readable, which no file has.
    addresses: Vec<Option<(String, u64)>>,
    /// Wrappers around the allocator are wanted.
    pub passes: bool,
    /// A name says in which module it is.
    pub names_modules: bool,
}

/// Every rule group and every phase that counts allocations, with what names its call site.
fn named_sites(state: &'static State) -> impl Iterator<Item = (Target, Naming<'static>)> {
    let rules = state.groups.iter().enumerate().filter_map(|(index, group)| {
        // The rules of a group have the same call site.
        let rule = &state.rules.get(group.first())?.rule;
        Some((Target::Rules(index, group), Naming::of(rule.site(), state.same_build)?))
    });
    let phases = state.policy.phases.iter().enumerate().filter(|(_, phase)| phase.allocation.is_some());
    let phases =
        phases.filter_map(|(index, phase)| Some((Target::Phase(index), Naming::of(phase.site(), state.same_build)?)));
    rules.chain(phases)
}

/// Whether nothing is to be done or counted for what is allocated at the call site of `target`.
fn is_idle(state: &State, target: &Target) -> bool {
    let leaves_all = |rule: usize| state.rules.get(rule).is_some_and(Rule::leaves_all);
    match target {
        Target::Rules(_, group) => !state.counts() && group.rules().all(leaves_all),
        Target::Phase(_) => false,
    }
}

impl Names {
    /// The names of the accepted policy.
    pub fn of(state: &'static State) -> Names {
        let mut names = Names::default();
        let named: Vec<(Target, Naming<'static>)> = named_sites(state).collect();
        // Functions first, because the numbers of lines and addresses depend on how many there are.
        let functions: Vec<Vec<Option<usize>>> = named.iter().map(|(_, naming)| names.add_functions(naming)).collect();
        names.lines = named.iter().filter_map(|(_, naming)| line(naming).cloned()).collect();
        names.linkages = names.search.names().iter().enumerate().flat_map(of_function).collect();
        let mut lines = 0;
        for ((target, naming), functions) in named.iter().zip(functions) {
            let frames: Vec<Option<NameId>> = match naming {
                Naming::Functions(_) => functions.into_iter().map(|f| f.map(|index| names.function(index))).collect(),
                Naming::Line(_) => {
                    lines += 1;
                    vec![Some(names.line(lines - 1))]
                }
                Naming::Addresses(list) => list.iter().map(|text| Some(names.add_address(text))).collect(),
            };
            names.passes |= naming.passed() != Passed::Nothing;
            if (1..=MAX_FRAMES).contains(&frames.len()) {
                let is_idle = is_idle(state, target);
                names.sites.push(Site { target: *target, frames, passed: naming.passed(), is_idle });
            }
        }
        names.sites.sort_by_key(|site| core::cmp::Reverse(site.frames.len()));
        names.names_modules = !names.addresses.is_empty() || state.rules.iter().any(|r| r.rule.module.is_some());
        names
    }

    /// These sites, with room for numbers below 1000.
    #[cfg(test)]
    pub fn with_sites(sites: Vec<Site>) -> Names {
        let line = SourceLine::parse("a.c:1").expect("a line");
        Names { sites, lines: vec![line; 1000], ..Names::default() }
    }

    fn add_functions(&mut self, naming: &Naming<'_>) -> Vec<Option<usize>> {
        match naming {
            Naming::Functions(list) => list.iter().map(|name| name.clone().map(|n| self.search.add(n))).collect(),
            _ => Vec::new(),
        }
    }

    fn add_address(&mut self, text: &str) -> NameId {
        let frame = text.parse::<callsite::Frame>().ok();
        self.addresses.push(frame.map(|frame| (frame.module, frame.vaddr)));
        self.address(self.addresses.len() - 1)
    }

    /// Number of a function of `search`.
    pub fn function(&self, index: usize) -> NameId {
        FIRST + index as NameId
    }

    /// Number of a line of `lines`.
    pub fn line(&self, index: usize) -> NameId {
        self.function(self.search.names().len() + index)
    }

    fn address(&self, index: usize) -> NameId {
        self.line(self.lines.len() + index)
    }

    /// How many numbers there are.
    pub fn count(&self) -> usize {
        self.address(self.addresses.len()) as usize
    }

    /// Wanted return addresses with module and number.
    pub fn addresses(&self) -> impl Iterator<Item = (&str, u64, NameId)> {
        let all = self.addresses.iter().enumerate();
        all.filter_map(|(i, a)| a.as_ref().map(|(module, vaddr)| (module.as_str(), *vaddr, self.address(i))))
    }
}

fn of_function(
    (index, name): (usize, &callsite::function::FunctionName),
) -> impl Iterator<Item = (String, usize)> + use<> {
    linkages(name).map(move |linkage| (linkage, index)).collect::<Vec<_>>().into_iter()
}

fn line<'a>(naming: &'a Naming<'_>) -> Option<&'a SourceLine> {
    match naming {
        Naming::Line(line) => Some(line),
        _ => None,
    }
}
