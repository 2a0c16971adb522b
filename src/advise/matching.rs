//! Which rule of a policy file an object of a profile falls under: globals by linkage name and module, allocations by
//! [`numamma_plan::callsite`], as in the apply library, on the frames and names that the profile recorded.

use std::cmp::Reverse;

use numamma_plan::callsite::group::RuleGroup;
use numamma_plan::callsite::rule::{self, Build, Naming, Passed};
use numamma_plan::callsite::selection::Instances;
use numamma_plan::callsite::{self, FunctionName, wrapper};
use numamma_plan::check;
use numamma_plan::policy::{ObjectRule, Policy};
use numamma_plan::range::ByteRange;

use super::parts;
use crate::profile::records::{CallSite, ObjectKind};
use crate::profile::summary::{Entry, Summary, base_name};

/// Index of the rule for each instance of `entry`, in order of birth; one for an entry without instances. The
/// profile may have seen fewer allocations than the library counts.
pub(super) fn rules_of(summary: &Summary, entry: &Entry, policy: &Policy) -> Vec<Option<usize>> {
    let header = &summary.header;
    let build = Build::of(policy.program.as_ref(), header.program.path.as_bytes(), header.program.build_id.as_deref());
    let same_build = build == Build::Same;
    let instances = entry.seen.len().max(1);
    if matches!(entry.kind, ObjectKind::Global | ObjectKind::Section) {
        let rule = policy.objects.iter().position(|rule| is_global(summary, entry, rule, same_build));
        return vec![rule; instances];
    }
    let Some(site) = &entry.site else { return vec![None; instances] };
    let stack = frames_of(summary, site);
    let groups = RuleGroup::of_all(policy.objects.iter(), same_build);
    let fitting = groups.iter().filter_map(|group| {
        let naming = Naming::of(policy.objects.get(group.first())?.site(), same_build)?;
        fits(&naming, &stack).then(|| (naming.frames(), group, ()))
    });
    let mut fitting: Vec<_> = fitting.collect();
    fitting.sort_by_key(|(frames, ..)| Reverse(*frames));
    let rule_of = |size: u64| rule::choose(fitting.iter().copied(), size as usize, |()| true);
    if entry.part.is_some() {
        let first = rule_of(parts::object_size(entry));
        let same = first.map(|first| rules_of_one(policy, first)).unwrap_or_default();
        let own = same.into_iter().find(|index| parts::holds_most(entry, &policy.objects[*index]));
        return vec![own; instances];
    }
    if let Some(numbers) = &entry.numbers {
        // Every allocation of the call site counts.
        let own = Instances::parse(&numbers.in_policy()).ok();
        let mut sizes = entry.seen.iter().map(|instance| instance.size);
        let rule_of_number = |number: u64| {
            let is_own = own.as_ref().is_some_and(|own| own.hold(number));
            let size = if is_own { sizes.next() } else { None };
            let rule = rule_of(size.unwrap_or(entry.size));
            is_own.then_some(rule)
        };
        return (1..=numbers.all).filter_map(rule_of_number).collect();
    }
    match entry.seen.as_slice() {
        [] => vec![rule_of(entry.size)],
        seen => seen.iter().map(|instance| rule_of(instance.size)).collect(),
    }
}

/// The rules for the parts of the allocations of a rule; itself when it is for all of their bytes.
fn rules_of_one(policy: &Policy, rule: usize) -> Vec<usize> {
    let parts = check::parts_of_allocations(&policy.objects);
    parts.into_iter().find(|list| list.contains(&rule)).unwrap_or_else(|| vec![rule])
}

/// The rules that place bytes of an entry other than by a rule for exactly these, with the bytes of the object that
/// each places, ascending; none where [`rules_of`] says all.
pub(super) fn rules_of_bytes(summary: &Summary, entry: &Entry, policy: &Policy) -> Option<Vec<(usize, ByteRange)>> {
    let whole = ByteRange { low: 0, high: u64::MAX };
    let mut found: Vec<(usize, ByteRange)> = Vec::new();
    if entry.kind == ObjectKind::Global {
        let header = &summary.header;
        let program = header.program.path.as_bytes();
        let build = Build::of(policy.program.as_ref(), program, header.program.build_id.as_deref());
        let rules = policy.objects.iter().enumerate();
        let own = rules.filter(|(_, rule)| is_variable(summary, entry, rule, build == Build::Same));
        found.extend(own.map(|(index, rule)| (index, rule.bytes().unwrap_or(whole))));
    } else if let Some(first) = rules_of(summary, entry, policy).first().copied().flatten() {
        let bytes = |index: usize| Some((index, policy.objects.get(index)?.bytes().unwrap_or(whole)));
        found.extend(rules_of_one(policy, first).into_iter().filter_map(bytes));
    }
    let own = parts::bytes_of(entry);
    found.retain(|(_, range)| range.overlaps(&own));
    found.sort_by_key(|(_, range)| range.low);
    let exact =
        |(_, range): &(usize, ByteRange)| range.low == own.low && range.high.min(parts::object_size(entry)) == own.high;
    let divides = entry.part.is_some() || found.iter().any(|(_, range)| *range != whole);
    (divides && !found.is_empty() && !(found.len() == 1 && exact(&found[0]))).then_some(found)
}

/// Whether a rule takes the allocations of a call stack in another build of the program, whatever their sizes.
pub(super) fn takes_when_rebuilt(summary: &Summary, rule: &ObjectRule, site: &CallSite) -> bool {
    Naming::of(rule.site(), false).is_some_and(|naming| fits(&naming, &frames_of(summary, site)))
}

fn is_global(summary: &Summary, entry: &Entry, rule: &ObjectRule, same_build: bool) -> bool {
    is_variable(summary, entry, rule, same_build) && parts::holds_most(entry, rule)
}

/// Whether a rule is for the variable that an entry is, or is a part of.
fn is_variable(summary: &Summary, entry: &Entry, rule: &ObjectRule, same_build: bool) -> bool {
    let Some(global) = &rule.global else { return false };
    let named = match entry.kind {
        ObjectKind::Section => entry.name.split(" of ").next() == Some(global),
        _ => *global == entry.linkage || (entry.linkage.is_empty() && *global == entry.name),
    };
    let module = entry.module.and_then(|m| summary.modules.get(m as usize)).map(|m| base_name(&m.path));
    let wanted = rule.module.as_deref().unwrap_or_else(|| base_name(&summary.header.program.path));
    let placed = !same_build || rule.address.is_none_or(|a| a == parts::variable_address(entry));
    named && placed && module.is_none_or(|m| m == wanted)
}

/// One recorded frame of a call stack.
struct StackFrame<'a> {
    address: Option<callsite::Frame>,
    /// The function that the code is in; inlined ones have no code of their own.
    function: Option<FunctionName>,
    /// The source line of the call and its file.
    line: Option<(&'a str, u64)>,
    wrapper: bool,
    library_source: bool,
}

fn frames_of<'a>(summary: &'a Summary, site: &CallSite) -> Vec<StackFrame<'a>> {
    let frame = |frame| {
        let locations = summary.symbols.get(frame).map(Vec::as_slice).unwrap_or_default();
        let module = summary.modules.get(frame.module as usize).map(|m| base_name(&m.path));
        let in_library = module.is_some_and(|m| wrapper::is_library_module(m.as_bytes()));
        let function = locations.last().and_then(|l| l.function.as_deref());
        let innermost = locations.iter().find(|l| l.file.is_some());
        let outer_file = locations.iter().rev().find_map(|l| l.file.as_deref());
        StackFrame {
            address: module.map(|m| callsite::Frame { module: m.to_owned(), vaddr: frame.offset }),
            function: function.map(FunctionName::parse),
            line: innermost.and_then(|l| Some((l.file.as_deref()?, u64::from(l.line?)))),
            wrapper: function.is_some_and(|f| wrapper::is_passed(in_library, f)),
            library_source: in_library || outer_file.is_some_and(|file| wrapper::is_library_source(file.as_bytes())),
        }
    };
    site.frames.iter().map(frame).collect()
}

fn fits(naming: &Naming<'_>, stack: &[StackFrame<'_>]) -> bool {
    let passed = naming.passed();
    let is_passed = |at: &StackFrame<'_>| {
        (passed != Passed::Nothing && at.wrapper) || (passed == Passed::LibrarySources && at.library_source)
    };
    match naming {
        Naming::Addresses(list) => {
            let frames: Vec<Option<callsite::Frame>> = list.iter().map(|text| text.parse().ok()).collect();
            rule::fits(&frames, stack, |frame, at| frame.is_some() && *frame == at.address, is_passed)
        }
        Naming::Functions(list) => rule::fits(
            list,
            stack,
            |name, at| name.as_ref().is_none_or(|n| at.function.as_ref().is_some_and(|f| n.means(f))),
            is_passed,
        ),
        Naming::Line(line) => {
            let holds = |at: &StackFrame<'_>| at.line.is_some_and(|(file, n)| line.is(file, n));
            rule::fits(&[()], stack, |(), at| holds(at), is_passed)
        }
    }
}
