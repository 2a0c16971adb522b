//! The call sites of the policy in the loaded modules, and the rule of an allocation.
//!
//! Allocations that the cache [`unmatched`] does not answer come here. Where [`decided`] does not know, either, their
//! return address is looked up among the innermost frames of all rules, and the stack is walked only if one fits; the
//! [`Matcher`] decides.
//!
//! When a library comes or goes, a new matcher replaces the old one, which is freed when no thread uses it any more
//! ([`Versions`]).

use core::sync::atomic::{AtomicBool, Ordering, fence};

use numamma_hook::entry::Caller;
use numamma_hook::versions::{self, NotReplaced, Reading, Versions};
use numamma_hook::{own_stack, sandbox, stackbounds, unwind};

use crate::matching::cached::Fact;
use crate::matching::cached::decided::{self, Decision};
use crate::matching::cached::groups::Taker;
use crate::matching::cached::unmatched;
use crate::matching::matcher::{MOST, Matcher, is_new};
use crate::matching::pending;
use crate::phases::begin;
use crate::rules::state;

/// Frames that are walked first where a wrapper is the innermost one.
const INNER: usize = unmatched::NESTED + 1;

static MATCHER: Versions<Matcher> = Versions::new();

/// Removes all sites: every call site may be cached as unmatched. Without memory for that, none is cached.
pub fn publish_none() {
    loop {
        match replace(read(), Matcher::default()) {
            Err(NotReplaced::Outdated) => {}
            Ok(()) | Err(NotReplaced::NoRoom) => return unmatched::clear(),
        }
    }
}

/// The current matcher; `None` before start-up.
pub fn read() -> Option<Reading<'static, Matcher>> {
    MATCHER.read()
}

/// Replaces the matcher `old`, which this thread has read.
///
/// # Errors
/// Why the current one stays.
pub fn replace(old: Option<Reading<'static, Matcher>>, matcher: Matcher) -> Result<(), NotReplaced> {
    if old.is_none() {
        versions::start();
    }
    MATCHER.replace(old, matcher)
}

/// Makes the cache of unmatched return addresses agree with the current matcher, if another thread has just published
/// it and has not done so yet.
pub fn ensure_cache_is_right(matcher: &Matcher) {
    if matcher.is_cache_right.as_ref().is_some_and(|right| !right.load(Ordering::SeqCst)) {
        unmatched::clear();
    }
}

/// Makes the cache of unmatched return addresses agree with the matcher that this thread has just published: forgets
/// the addresses in `new` modules, where other code may have been, or `all`. `done` is the matcher's own mark.
pub fn clear_cache(all: bool, new: impl Iterator<Item = (usize, usize)>, done: Option<&AtomicBool>) {
    // Pairs with the fence in `cache`.
    fence(Ordering::SeqCst);
    match all {
        true => unmatched::clear(),
        false => new.for_each(|(start, end)| unmatched::clear_range(start, end)),
    }
    if let Some(done) = done {
        done.store(true, Ordering::SeqCst);
    }
}

/// Caches a fact that follows from `matcher`, unless that has been replaced.
fn cache(matcher: &Reading<'static, Matcher>, fact: &Fact) {
    fact.store();
    // Pairs with the fence in `clear_cache`: either that clears this entry, or the new matcher is seen here.
    fence(Ordering::SeqCst);
    if !MATCHER.is_current(matcher) {
        fact.remove();
    }
}

/// The current matcher, which knows the module of the code at `ra` if any is there.
fn current_for(ra: usize) -> Option<Reading<'static, Matcher>> {
    let matcher = MATCHER.read()?;
    if sandbox::entered() || !matcher.has_names() || matcher.module_of(ra).is_some() {
        return Some(matcher);
    }
    drop(matcher);
    pending::learn(ra);
    MATCHER.read()
}

/// Resolves the module of the code at `address`, which cannot be unloaded meanwhile, if that is not done yet.
pub fn ensure_known(address: usize) {
    current_for(address);
}

/// The current matcher, which knows the modules of all frames if `matcher` has sites that wait for one.
///
/// # Safety
/// See [`find`].
unsafe fn current_for_stack(caller: &Caller, matcher: Reading<'static, Matcher>) -> Option<Reading<'static, Matcher>> {
    if sandbox::entered() || !matcher.a_stack_waits() {
        return Some(matcher);
    }
    let mut stack = [0_u64; MOST];
    // SAFETY: the caller's frame is live, and the bound is that of its stack.
    let depth = unsafe { unwind::walk(caller, stackbounds::high_for(caller.cfa), &mut stack) };
    drop(matcher);
    stack.iter().take(depth).try_for_each(|&ra| current_for(ra as usize).map(drop))?;
    MATCHER.read()
}

/// Prepares for a library that is about to be loaded by a name that the loader must search for: addresses that are
/// cached as unmatched only because a function further out was not loaded are forgotten. They are not cached again
/// while [`pending::is_pending`].
pub fn expect_library() {
    if MATCHER.read().is_some_and(|matcher| matcher.a_stack_waits()) {
        unmatched::clear();
    }
}

/// The rule that the allocation of `size` bytes by `caller` matches; phases that count its call site have counted the
/// allocation. In a process that has confined itself only what is known without a system call is found, and placing it
/// must take none. `owner` is the rule of an object that realloc changes: the object keeps that rule, and neither rules
/// nor phases count it, unless a rule of another call site claims the object, which then counts as new.
///
/// # Safety
/// `caller` comes from an entry stub of a hook that has not returned yet.
pub unsafe fn find(caller: &Caller, size: usize, owner: Option<usize>) -> Option<usize> {
    // SAFETY: the caller's promise.
    let known = unsafe { decided::look_up(caller) };
    // SAFETY: the caller's promise.
    unsafe { find_beyond(known, caller, size, owner) }
}

/// Who takes an allocation of `size` bytes, as far as `known` says.
pub fn taker(known: Option<Decision>, size: usize) -> Taker {
    match known {
        Some(Decision::Nothing) => Taker::Nobody,
        Some(Decision::Rule(rule)) => Taker::Rule(rule),
        Some(Decision::Groups(groups)) => {
            state::get().map_or(Taker::Unknown, |state| groups.taker(&state.groups, size))
        }
        None => Taker::Unknown,
    }
}

/// As [`find`], for a caller that has asked [`decided`] already.
///
/// # Safety
/// See [`find`].
#[cold]
#[inline(never)]
pub unsafe fn find_beyond(
    known: Option<Decision>,
    caller: &Caller,
    size: usize,
    owner: Option<usize>,
) -> Option<usize> {
    match (known, owner) {
        (Some(Decision::Nothing), _) => return None,
        (Some(Decision::Rule(rule)), None) => return Some(rule),
        (Some(Decision::Rule(rule)), Some(own)) if rule == own => return Some(rule),
        (Some(Decision::Groups(groups)), _) => {
            if let Some(Ok(found)) = state::get().map(|state| groups.choose(&state.groups, size, owner)) {
                if is_new(found, owner) {
                    groups.phases(begin::allocated);
                }
                return found;
            }
        }
        // For an object of another rule the stack decides.
        _ => {}
    }
    // Without a matcher start-up is not complete, and nothing is cached.
    let mut matcher = current_for(caller.ra)?;
    let is_pending = pending::look();
    if is_pending {
        // SAFETY: the caller's promise.
        matcher = unsafe { current_for_stack(caller, matcher) }?;
    }
    if matcher.in_profiler(caller.ra) {
        if !matcher.any_site_fits() {
            return None;
        }
    } else {
        let names = matcher.names_of(caller.ra);
        let may_act = matcher.acting().may_begin(names);
        // A library that is being loaded may make more sites fit.
        if !may_act && !is_pending {
            cache(&matcher, &unmatched::no_rule_begins_at(caller.ra));
        }
        // Also a rule that leaves its objects alone takes one from the rule that placed it.
        if !may_act && (owner.is_none() || !matcher.fitting().may_begin(names)) {
            return None;
        }
    }
    if sandbox::entered() {
        return None; // what follows takes system calls
    }
    let mut stack = [0_u64; MOST];
    let wanted = matcher.depth(caller.ra);
    let high = if wanted > 1 { stackbounds::high_for(caller.cfa) } else { 0 };
    // SAFETY: the caller's frame is live, and `high` bounds its stack.
    let walk = |stack: &mut [u64]| unsafe { unwind::walk(caller, high, stack) };
    if matcher.in_profiler(caller.ra) {
        let depth = walk(&mut stack[..wanted]);
        let stack = &stack[..depth];
        let own = stack.iter().take_while(|&&ra| matcher.in_profiler(ra as usize)).count();
        return matcher.choose_and_count(&stack[own..], size, owner);
    }
    // Much of a stack, once for each call site.
    let decide = |stack: &[u64]| own_stack::run(|| matcher.decide(stack)).flatten();
    let mut depth = walk(&mut stack[..INNER.min(wanted)]);
    let mut decided = decide(&stack[..depth]);
    if decided.is_none() && depth == INNER && wanted > INNER {
        depth = walk(&mut stack[..wanted]);
        decided = decide(&stack[..depth]);
    }
    if let (Some((frames, decision)), false) = (decided, is_pending) {
        let frames = &stack[..frames];
        decided::facts(frames, decision, |fact| cache(&matcher, &fact));
        if matcher.is_unmatched(frames) {
            matcher.facts_of(frames, |fact| cache(&matcher, &fact));
        }
    }
    matcher.choose_and_count(&stack[..depth], size, owner)
}
