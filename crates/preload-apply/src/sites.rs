//! Call sites: is this allocation one that the policy names?
//!
//! Most are not, and pay one load and one compare: a direct-mapped cache remembers return addresses at which
//! no rule begins. The others are looked up among the innermost frames of all rules, and only when one fits
//! is the stack walked. The longest rule that matches wins.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use numamma_hook::entry::Caller;
use numamma_hook::{stackbounds, unwind};

use crate::phases;

/// Frames a rule may have, and the walk's length.
const MAX_FRAMES: usize = 16;
/// Frames that the profile preload's hooks may have between the program and us: the entry stub with its arguments on
/// the stack, the hook, and what was not inlined into it.
const RELAY_FRAMES: usize = 4;
/// Entries of the cache: 8 KiB, a quarter of a level 1 cache; programs have tens of hot call sites.
const CACHE: usize = 1024;

static BORING: [AtomicUsize; CACHE] = [const { AtomicUsize::new(0) }; CACHE];

#[inline(always)]
fn slot(ra: usize) -> &'static AtomicUsize {
    // Low bits differ within a function, higher ones between modules.
    &BORING[(ra ^ (ra >> 10)) % CACHE]
}

/// No rule begins at return address `ra`: the fast path of every hook.
#[inline(always)]
pub fn boring(ra: usize) -> bool {
    slot(ra).load(Ordering::Relaxed) == ra
}

/// Return addresses a frame of a rule stands for: half-open ranges; an empty list matches any.
pub type Ranges = Vec<(usize, usize)>;

/// What a call site stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The rule of this index places what is allocated there.
    Rule(usize),
    /// The phase of this index counts the allocations made there.
    Phase(usize),
}

/// The frames of one rule or phase, innermost first.
pub struct Site {
    /// What it stands for.
    pub target: Target,
    /// Frames.
    pub frames: Vec<Frame>,
}

/// What one frame must be.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// Any return address (an unnamed function in the policy).
    Any,
    /// One in these ranges; none at all while its module is not loaded.
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

/// All sites, and where loaded modules lie.
pub struct Matcher {
    sites: Vec<Site>,
    /// Some of them stand for phases.
    phases: bool,
    modules: Vec<(usize, usize)>,
    /// The profile preload, when a placed run is profiled: it stands between the program and us, and its frames are not
    /// the program's.
    relay: Option<(usize, usize)>,
}

impl Matcher {
    fn is_relay(&self, ra: usize) -> bool {
        self.relay.is_some_and(|(start, end)| (start..end).contains(&ra))
    }
}

static MATCHER: AtomicPtr<Matcher> = AtomicPtr::new(ptr::null_mut());

/// Makes new sites valid. The old ones are leaked: another thread may be reading them.
pub fn publish(mut sites: Vec<Site>, modules: Vec<(usize, usize)>, relay: Option<(usize, usize)>) {
    sites.retain(|s| !s.frames.is_empty() && s.frames.len() <= MAX_FRAMES);
    sites.sort_by_key(|s| core::cmp::Reverse(s.frames.len()));
    let phases = sites.iter().any(|s| matches!(s.target, Target::Phase(_)));
    MATCHER.store(Box::into_raw(Box::new(Matcher { sites, phases, modules, relay })), Ordering::Release);
    // What was boring may be the beginning of a rule now.
    BORING.iter().for_each(|s| s.store(0, Ordering::Relaxed));
}

fn matcher() -> Option<&'static Matcher> {
    // SAFETY: null or a leaked box, published with Release.
    unsafe { MATCHER.load(Ordering::Acquire).as_ref() }
}

/// Without a policy nothing is ever interesting.
fn nothing_to_do(ra: usize) -> bool {
    match matcher() {
        // Before start-up is complete: decide nothing for later.
        None => true,
        Some(m) if m.is_relay(ra) => m.sites.is_empty(),
        Some(m) => {
            let begins = m.sites.iter().any(|s| s.frames.first().is_some_and(|f| f.holds(ra)));
            if !begins {
                slot(ra).store(ra, Ordering::Relaxed);
            }
            !begins
        }
    }
}

/// Rule that the allocation by `caller` matches; phases that count its call site have counted it.
///
/// # Safety
/// `caller` comes from an entry stub of a hook that has not returned yet.
#[cold]
#[inline(never)]
pub unsafe fn find(caller: &Caller) -> Option<usize> {
    crate::resolve::catch_up(caller.ra);
    if nothing_to_do(caller.ra) {
        return None;
    }
    let matcher = matcher()?;
    let mut stack = [0_u64; MAX_FRAMES + RELAY_FRAMES];
    let relayed = if matcher.is_relay(caller.ra) { RELAY_FRAMES } else { 0 };
    let wanted = matcher.sites.first().map_or(1, |s| s.frames.len()).clamp(1, MAX_FRAMES) + relayed;
    let high = if wanted > 1 { stackbounds::high_for(caller.cfa) } else { 0 };
    // SAFETY: the caller's frame is live, and `high` bounds its stack.
    let depth = unsafe { unwind::walk(caller, high, &mut stack[..wanted]) };
    let stack = &stack[..depth];
    let own = stack.iter().take_while(|&&ra| matcher.is_relay(ra as usize)).count();
    let stack = &stack[own..];
    let fits = |site: &&Site| {
        site.frames.len() <= stack.len() && site.frames.iter().zip(stack).all(|(f, &ra)| f.holds(ra as usize))
    };
    let mut fitting = matcher.sites.iter().filter(fits).map(|s| s.target);
    if matcher.phases {
        for target in fitting.clone() {
            if let Target::Phase(index) = target {
                phases::allocated(index);
            }
        }
    }
    fitting.find_map(|target| if let Target::Rule(index) = target { Some(index) } else { None })
}

/// Whether `address` lies in a module that was loaded when the sites were last computed.
pub fn known_module(address: usize) -> bool {
    matcher().is_none_or(|m| m.modules.iter().any(|&(start, end)| (start..end).contains(&address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_rule_wins_and_the_rest_is_boring() {
        let at = |ra: usize| Frame::In(vec![(ra, ra + 1)]);
        let sites = vec![
            Site { target: Target::Rule(0), frames: vec![at(0x10_0000)] },
            Site { target: Target::Rule(1), frames: vec![at(0x20_0000), Frame::Any] },
            Site { target: Target::Rule(2), frames: vec![] },
        ];
        publish(sites, vec![(0x10_0000, 0x30_0000)], Some((0x40_0000, 0x50_0000)));
        let call = |ra: usize| Caller { ra, cfa: 0, rbp: 0 };
        // SAFETY: with no readable stack the walk ends after the first frame.
        unsafe {
            assert_eq!(find(&call(0x10_0000)), Some(0));
            assert_eq!(find(&call(0x20_0000)), None, "its second frame cannot be seen");
            assert_eq!(find(&call(0x30_0000)), None);
            assert_eq!(find(&call(0x40_0000)), None, "the program's frame cannot be seen");
        }
        assert!(boring(0x30_0000) && !boring(0x10_0000) && !boring(0x20_0000));
        assert!(!boring(0x40_0000), "whoever calls through the profile preload is not boring for good");
        assert!(known_module(0x20_0000) && !known_module(0x30_0000));
    }
}
