//! The call sites of the policy as addresses, and the rule of an allocation.
//!
//! Allocations that the cache [`unmatched`] does not answer come here. Their return address is looked up among the
//! innermost frames of all rules, and the stack is walked only if one fits. [`rule::choose`] decides which rule takes an
//! allocation.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering, fence};

use numamma_hook::entry::Caller;
use numamma_hook::{stackbounds, unwind};
use numamma_plan::callsite::group::RuleGroup;
use numamma_plan::callsite::rule::{self, Passed};

use crate::matching::unmatched::{self, Fact};
use crate::phases::begin;

/// Frames that a rule may have, and the most that a walk returns.
const MAX_FRAMES: usize = 16;
/// Frames that the profile preload may have between the program and this library: the entry stub with its arguments on
/// the stack, the hook, and functions that were not inlined into the hook.
const PROFILER_FRAMES: usize = 4;
/// Frames that are walked first where a wrapper is the innermost one.
const INNER: usize = unmatched::NESTED + 1;

/// Return addresses that a frame of a rule stands for, as half-open ranges.
pub type Ranges = Vec<(usize, usize)>;

/// The same addresses as disjoint ascending ranges.
pub fn merged(mut ranges: Ranges) -> Ranges {
    ranges.sort_unstable();
    let mut out = Ranges::with_capacity(ranges.len());
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

/// Whether disjoint ascending ranges hold an address.
fn contains_address(ranges: &Ranges, address: usize) -> bool {
    let after = ranges.partition_point(|&(start, _)| start <= address);
    after.checked_sub(1).and_then(|i| ranges.get(i)).is_some_and(|&(_, end)| address < end)
}

/// What a call site stands for.
#[derive(Clone, Copy)]
pub enum Target {
    /// The rules that have these frames and the same sizes place what is allocated there.
    Rules(&'static RuleGroup),
    /// The phase of this index counts the allocations made there.
    Phase(usize),
}

/// The frames of rules or of a phase, innermost first.
pub struct Site {
    /// Rules or phase that the frames belong to.
    pub target: Target,
    /// The frames to match.
    pub frames: Vec<Frame>,
    /// Which inner frames of a stack are skipped before the first frame is compared.
    pub passed: Passed,
}

/// What one frame must be.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// Any return address (an unnamed function in the policy).
    Any,
    /// A return address in these ranges; no ranges while the module is not loaded.
    In(Ranges),
}

impl Frame {
    fn holds(&self, ra: usize) -> bool {
        match self {
            Frame::Any => true,
            Frame::In(ranges) => ranges.iter().any(|&(low, high)| (low..high).contains(&ra)),
        }
    }
}

/// All sites, and the addresses of the loaded modules.
#[derive(Default)]
pub struct Matcher {
    /// The site with the most frames first.
    pub sites: Vec<Site>,
    /// Start and end of the loaded modules.
    pub modules: Vec<(usize, usize)>,
    /// Start and end of the profile preload, when a placed run is profiled: its hooks call this library, and their
    /// frames are skipped.
    pub profiler: Option<(usize, usize)>,
    /// Return addresses in wrappers around the allocator: disjoint and ascending.
    pub wrappers: Ranges,
    /// Return addresses in functions from the sources of compilers' libraries: disjoint and ascending.
    pub libraries: Ranges,
    /// Return addresses at which a site may begin, including those of passed frames: disjoint and ascending; `None`:
    /// any. Set by [`publish`].
    pub begins: Option<Ranges>,
    /// Return addresses that are the innermost frame of a site: disjoint and ascending. Set by [`publish`].
    pub innermost: Ranges,
}

impl Matcher {
    fn in_profiler(&self, ra: usize) -> bool {
        self.profiler.is_some_and(|(start, end)| (start..end).contains(&ra))
    }

    fn is_passed(&self, passed: Passed, ra: usize) -> bool {
        (passed != Passed::Nothing && contains_address(&self.wrappers, ra))
            || (passed == Passed::LibrarySources && contains_address(&self.libraries, ra))
    }

    /// Whether an allocation that returns to `ra` may be one of a site.
    fn may_begin(&self, ra: usize) -> bool {
        self.begins.as_ref().is_none_or(|ranges| contains_address(ranges, ra))
    }

    /// Whether no site fits a stack whose innermost frames are `stack`: the first one that is not passed begins none.
    fn is_unmatched(&self, stack: &[u64]) -> bool {
        let innermost = |ra: &u64| contains_address(&self.innermost, *ra as usize);
        let passed = stack.iter().take_while(|ra| self.may_begin(**ra as usize)).count();
        passed < stack.len() && !stack.iter().take(passed).any(innermost)
    }

    /// Whether `address` lies in a module that was loaded when these sites were computed.
    fn knows_module_of(&self, address: usize) -> bool {
        self.modules.iter().any(|&(start, end)| (start..end).contains(&address))
    }

    /// Caches a fact, unless other sites have been published since.
    fn cache(&self, fact: Fact) {
        fact.store();
        // Pairs with the fence in `publish`: either `publish` clears this entry, or the new matcher is seen here.
        fence(Ordering::SeqCst);
        if !matcher().is_some_and(|now| ptr::eq(now, self)) {
            fact.remove();
        }
    }

    /// Caches what [`unmatched::is_unmatched`] needs to decide on a stack without a walk.
    fn cache_unmatched(&self, stack: &[u64]) {
        for ra in stack.iter().map(|&ra| ra as usize) {
            if !self.knows_module_of(ra) || self.in_profiler(ra) {
                return;
            }
            if !self.may_begin(ra) {
                return self.cache(Fact::no_rule_begins_at(ra));
            }
            match unwind::frame_size(ra).and_then(|size| Fact::frame_size(ra, size)) {
                Some(fact) => self.cache(fact),
                None => return,
            }
        }
    }

    /// Computes [`Matcher::innermost`]; `None`: any return address.
    fn innermost(&self) -> Option<Ranges> {
        let mut all = Ranges::new();
        for site in &self.sites {
            match site.frames.first()? {
                Frame::Any => return None,
                Frame::In(ranges) => all.extend(ranges),
            }
        }
        Some(merged(all))
    }

    /// Computes [`Matcher::begins`].
    fn beginnings(&self) -> Option<Ranges> {
        let mut all = self.innermost()?;
        if self.sites.iter().any(|s| s.passed != Passed::Nothing) {
            all.extend(&self.wrappers);
        }
        if self.sites.iter().any(|s| s.passed == Passed::LibrarySources) {
            all.extend(&self.libraries);
        }
        Some(merged(all))
    }

    /// Whether the frames of `site` fit a stack, innermost frame first.
    fn fits(&self, site: &Site, stack: &[u64]) -> bool {
        let holds = |frame: &Frame, ra: &u64| frame.holds(*ra as usize);
        rule::fits(&site.frames, stack, holds, |&ra| self.is_passed(site.passed, ra as usize))
    }

    /// Frames that must be known to decide on an allocation that returns to `ra`.
    fn depth(&self, ra: usize) -> usize {
        let profiler_frames = if self.in_profiler(ra) { PROFILER_FRAMES } else { 0 };
        // Skipped frames come in addition to those of a rule.
        let passed = self.sites.iter().any(|s| self.is_passed(s.passed, ra));
        let all = if passed || profiler_frames > 0 { MAX_FRAMES } else { 1 };
        self.sites.first().map_or(1, |s| s.frames.len()).max(all).clamp(1, MAX_FRAMES) + profiler_frames
    }

    /// Rule of an allocation of `size` bytes with this stack; see [`find`].
    fn choose_and_count(&self, stack: &[u64], size: usize, owner: Option<usize>) -> Option<usize> {
        let found = self.choose_rule(stack, size, owner);
        if is_new(found, owner) {
            self.counting_phases(stack).for_each(begin::allocated);
        }
        found
    }

    /// Phases that count an allocation with this stack.
    fn counting_phases(&self, stack: &[u64]) -> impl Iterator<Item = usize> {
        self.sites.iter().filter_map(move |site| match site.target {
            Target::Phase(index) if self.fits(site, stack) => Some(index),
            _ => None,
        })
    }

    fn choose_rule(&self, stack: &[u64], size: usize, owner: Option<usize>) -> Option<usize> {
        let candidates = self.sites.iter().filter_map(|site| match site.target {
            Target::Rules(group) => Some((site.frames.len(), group, site)),
            Target::Phase(_) => None,
        });
        rule::choose(candidates, size, owner, |site| self.fits(site, stack))
    }
}

/// Whether an object counts as a new allocation: an object that realloc changes and that keeps its rule `owner` does
/// not, neither for rules nor for phases.
fn is_new(found: Option<usize>, owner: Option<usize>) -> bool {
    owner.is_none() || found.is_some_and(|rule| Some(rule) != owner)
}

static MATCHER: AtomicPtr<Matcher> = AtomicPtr::new(ptr::null_mut());

/// Replaces the sites. The old ones are leaked because another thread may be reading them.
pub fn publish(mut matcher: Matcher) {
    let can_fit = |frame: &Frame| !matches!(frame, Frame::In(ranges) if ranges.is_empty());
    matcher.sites.retain(|s| (1..=MAX_FRAMES).contains(&s.frames.len()) && s.frames.iter().all(can_fit));
    matcher.sites.sort_by_key(|s| core::cmp::Reverse(s.frames.len()));
    matcher.begins = matcher.beginnings();
    matcher.innermost = matcher.innermost().unwrap_or_default();
    MATCHER.store(Box::into_raw(Box::new(matcher)), Ordering::Release);
    fence(Ordering::SeqCst);
    // A rule may now begin at a return address that was cached as unmatched.
    unmatched::clear();
}

/// What is published while nothing is to be matched.
static NONE: Matcher = Matcher {
    sites: Vec::new(),
    modules: Vec::new(),
    profiler: None,
    wrappers: Ranges::new(),
    libraries: Ranges::new(),
    begins: Some(Ranges::new()),
    innermost: Ranges::new(),
};

/// Removes all sites. Allocates nothing.
pub fn publish_none() {
    MATCHER.store(ptr::from_ref(&NONE).cast_mut(), Ordering::Release);
    fence(Ordering::SeqCst);
    unmatched::clear();
}

fn matcher() -> Option<&'static Matcher> {
    // SAFETY: null or a leaked box, published with Release.
    unsafe { MATCHER.load(Ordering::Acquire).as_ref() }
}

/// Whether no rule can begin at `ra`; caches the return address if so.
fn cache_if_unmatched(ra: usize) -> bool {
    match matcher() {
        // Start-up is not complete, so the result must not be cached.
        None => true,
        Some(m) if m.in_profiler(ra) => m.sites.is_empty(),
        Some(m) => {
            let begins = m.may_begin(ra);
            if !begins {
                m.cache(Fact::no_rule_begins_at(ra));
            }
            !begins
        }
    }
}

/// The rule that the allocation of `size` bytes by `caller` matches; phases that count its call site have counted the
/// allocation. `owner` is the rule of an object that realloc changes: the object keeps that rule, and neither rules nor
/// phases count it, unless a rule of another call site claims the object, which then counts as new.
///
/// # Safety
/// `caller` comes from an entry stub of a hook that has not returned yet.
#[cold]
#[inline(never)]
pub unsafe fn find(caller: &Caller, size: usize, owner: Option<usize>) -> Option<usize> {
    crate::matching::pending::resolve_pending_if(|| !in_known_module(caller.ra));
    if cache_if_unmatched(caller.ra) {
        return None;
    }
    let matcher = matcher()?;
    let mut stack = [0_u64; MAX_FRAMES + PROFILER_FRAMES];
    let wanted = matcher.depth(caller.ra);
    let high = if wanted > 1 { stackbounds::high_for(caller.cfa) } else { 0 };
    // SAFETY: the caller's frame is live, and `high` bounds its stack.
    let walk = |stack: &mut [u64]| unsafe { unwind::walk(caller, high, stack) };
    if wanted > INNER && !matcher.in_profiler(caller.ra) {
        let inner = walk(&mut stack[..INNER]);
        if matcher.is_unmatched(&stack[..inner]) {
            matcher.cache_unmatched(&stack[..inner]);
            return None;
        }
    }
    let depth = walk(&mut stack[..wanted]);
    let stack = &stack[..depth];
    let own = stack.iter().take_while(|&&ra| matcher.in_profiler(ra as usize)).count();
    matcher.choose_and_count(&stack[own..], size, owner)
}

/// Whether `address` lies in a module that was loaded when the sites were last computed.
pub fn in_known_module(address: usize) -> bool {
    matcher().is_none_or(|m| m.knows_module_of(address))
}

#[cfg(test)]
mod tests {
    use numamma_plan::policy::ObjectRule;

    use super::*;

    fn at(ra: usize) -> Frame {
        Frame::In(vec![(ra, ra + 1)])
    }

    /// A site for each group of rules with the given (function, instances, sizes).
    fn sites(rules: &[(&str, &str, &str)], frames: Vec<Vec<Frame>>) -> Vec<Site> {
        let some = |text: &str| Some(text.to_owned()).filter(|t| !t.is_empty());
        let rules: Vec<ObjectRule> = rules
            .iter()
            .map(|(function, instances, sizes)| ObjectRule {
                function: Some(vec![(*function).to_owned()]),
                instances: some(instances),
                sizes: some(sizes),
                ..ObjectRule::default()
            })
            .collect();
        let selections: &'static [RuleGroup] = RuleGroup::of_all(rules.iter(), true).leak();
        assert_eq!(selections.len(), frames.len());
        let site = |(selection, frames)| Site { target: Target::Rules(selection), frames, passed: Passed::Nothing };
        selections.iter().zip(frames).map(site).collect()
    }

    /// As [`publish`] sorts them.
    fn matcher(mut sites: Vec<Site>) -> Matcher {
        sites.sort_by_key(|s| core::cmp::Reverse(s.frames.len()));
        Matcher { sites, ..Matcher::default() }
    }

    #[test]
    fn ranges_that_touch_are_one() {
        assert_eq!(merged(vec![(5, 9), (1, 3), (3, 4), (6, 7), (20, 21)]), [(1, 4), (5, 9), (20, 21)]);
    }

    #[test]
    fn what_does_not_fit_by_size_or_number_lets_the_next_rule_try() {
        let rules = [("f", "2", ""), ("g", "", "100-"), ("f", "4-", ""), ("h", "", ""), ("i", "", "-50")];
        let frames = vec![vec![at(1)], vec![at(1), at(2)], vec![at(1)], vec![at(1)]];
        let m = matcher(sites(&rules, frames));
        let found = |stack: &[u64], size| m.choose_and_count(stack, size, None);
        assert_eq!(found(&[1, 2, 3], 100), Some(1), "longest frames first; it is number 1 of the others, too");
        assert_eq!(found(&[1, 2, 3], 99), Some(0), "number 2");
        assert_eq!(found(&[1, 3], 10), Some(3), "number 3 is nobody's, so the next in the file takes it");
        assert_eq!(found(&[1], 10), Some(2), "number 4");
        assert_eq!((found(&[2, 1], 10), found(&[], 10)), (None, None));
    }

    #[test]
    fn a_realloc_keeps_its_rule_and_is_no_new_instance() {
        let m = matcher(sites(&[("f", "1", ""), ("f", "2", ""), ("g", "", "")], vec![vec![at(1)], vec![at(2)]]));
        assert_eq!(m.choose_and_count(&[1], 10, None), Some(0));
        assert_eq!(m.choose_and_count(&[1], 20, Some(0)), Some(0));
        assert_eq!(m.choose_and_count(&[1], 10, None), Some(1), "the realloc was not counted");
        assert_eq!(m.choose_and_count(&[2], 10, Some(0)), Some(2), "a rule of its own call site claims the object");
        assert_eq!(m.choose_and_count(&[3], 10, Some(0)), None);
    }

    #[test]
    fn phases_count_what_rules_count() {
        let mut all = sites(&[("f", "", ""), ("g", "", "")], vec![vec![at(1), at(2)], vec![at(3)]]);
        let phase = |index, frames| Site { target: Target::Phase(index), frames, passed: Passed::Nothing };
        all.extend([phase(4, vec![at(1)]), phase(5, vec![at(1), at(2)]), phase(6, vec![at(7)])]);
        let m = matcher(all);
        let counting_phases = |stack: &[u64]| m.counting_phases(stack).collect::<Vec<_>>();
        assert_eq!(
            (counting_phases(&[1, 2]), counting_phases(&[1, 3]), counting_phases(&[2])),
            (vec![5, 4], vec![4], vec![])
        );
        assert!(is_new(m.choose_rule(&[1, 2], 9, None), None) && is_new(None, None));
        assert!(!is_new(m.choose_rule(&[1, 2], 9, Some(0)), Some(0)), "a realloc at its own call site");
        assert!(!is_new(m.choose_rule(&[7], 9, Some(0)), Some(0)), "and at one that only a phase names");
        assert!(is_new(m.choose_rule(&[3], 9, Some(0)), Some(0)), "at one of another rule it is that rule's");
    }

    #[test]
    fn frames_of_wrappers_are_passed_by_rules_for_lines() {
        let mut line = sites(&[("f", "", "")], vec![vec![at(0x100)]]);
        line[0].passed = Passed::Wrappers;
        let m = Matcher { wrappers: vec![(10, 20), (30, 40)], ..matcher(line) };
        let found = |stack: &[u64]| m.choose_and_count(stack, 1, None);
        assert_eq!((found(&[0x100]), found(&[10, 39, 0x100, 7])), (Some(0), Some(0)));
        assert_eq!((found(&[20, 0x100]), found(&[10, 29, 0x100]), found(&[10, 30])), (None, None, None));
        let m = Matcher { begins: m.beginnings(), ..m };
        assert!(m.may_begin(19) && !m.may_begin(20) && m.may_begin(0x100) && !m.may_begin(0x101));
        assert_eq!((m.depth(10), m.depth(0x100)), (MAX_FRAMES, 1));
    }

    #[test]
    fn a_stack_is_unmatched_when_its_first_frame_that_is_not_passed_begins_no_rule() {
        let mut rules = sites(&[("f", "", ""), ("g", "", "")], vec![vec![at(0x100), at(10)], vec![at(35)]]);
        rules.iter_mut().for_each(|site| site.passed = Passed::Wrappers);
        let m = Matcher { wrappers: vec![(10, 20), (30, 40)], ..matcher(rules) };
        let m = Matcher { begins: m.beginnings(), innermost: m.innermost().unwrap(), ..m };
        assert!(m.is_unmatched(&[10, 31, 0x200]) && m.is_unmatched(&[0x200]));
        assert!(!m.is_unmatched(&[10, 31]), "a frame further out may begin a rule");
        assert!(!m.is_unmatched(&[10, 0x100]) && !m.is_unmatched(&[35, 0x200]) && !m.is_unmatched(&[10, 35, 0x200]));
        assert!(!Matcher { begins: None, ..m }.is_unmatched(&[0x200]));
    }

    #[test]
    fn the_longest_rule_wins_and_the_rest_is_cached_as_unmatched() {
        let sites = sites(
            &[("a", "", ""), ("b", "", ""), ("c", "", "")],
            vec![vec![at(0x10_0000)], vec![at(0x20_0000), Frame::Any], vec![]],
        );
        let (modules, profiler) = (vec![(0x10_0000, 0x30_0000)], Some((0x40_0000, 0x50_0000)));
        publish(Matcher { sites, modules, profiler, ..Matcher::default() });
        let find = |ra: usize| {
            // SAFETY: with no readable stack the walk ends after the first frame.
            unsafe { super::find(&Caller { ra, cfa: 0, rbp: 0 }, 1, None) }
        };
        assert_eq!(find(0x10_0000), Some(0));
        assert_eq!(find(0x20_0000), None, "its second frame cannot be seen");
        assert_eq!(find(0x30_0000), None);
        assert_eq!(find(0x40_0000), None, "the program's frame cannot be seen");
        // SAFETY: nothing is passed, so no stack is read.
        let is_unmatched = |ra: usize| unsafe { unmatched::is_unmatched(ra, 0) };
        assert!(is_unmatched(0x30_0000) && !is_unmatched(0x10_0000) && !is_unmatched(0x20_0000));
        assert!(!is_unmatched(0x40_0000), "a caller in the profile preload is never cached as unmatched");
        assert!(in_known_module(0x20_0000) && !in_known_module(0x30_0000));
    }
}
