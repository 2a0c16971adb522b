//! The cheap unwinder: return addresses of the callers of a hook.
//!
//! Every return address has one compact [`rule::Rule`] ("the caller's frame ends at rsp + 48, its rbp was saved
//! 16 bytes below that end"), kept in a global lock-free [`cache`]; a cached frame costs a few nanoseconds.
//! On a miss [`cfi`] derives the rule from `.eh_frame`. A [`memo::Memo`] remembers whole walks. The result depends on
//! the return addresses only, so both preloads compute the same call stacks.
//!
//! The caller guarantees: the registers come from an [`crate::entry!`] stub and `high` bounds the stack that `cfa` is
//! on ([`crate::stackbounds`]); [`invalidate`] or [`invalidate_range`] is called after every dlclose. Every frame must
//! lie strictly above the one before and inside [sp, high); signal frames and assembly code without unwind data end the
//! walk. No allocation, no locks, signal-safe.

pub mod cache;
mod cfi;
pub mod memo;
pub mod rule;

use crate::entry::Caller;
use crate::{modules, own_stack};
use rule::{Base, Rule, SavedRbp};

/// Lowest address that can be code; a smaller "return address" ends the walk.
const LOWEST_CODE: usize = 1 << 16;

/// Forgets all rules: code may have been replaced by other code at the same address.
pub fn invalidate() {
    modules::forget();
    cache::clear();
}

/// Forgets the rules of code in `[start, end)`, which was unloaded.
pub fn invalidate_range(start: usize, end: usize) {
    modules::forget();
    cache::clear_range(start, end);
}

/// Is told what the result of a walk depends on; `()` ignores it.
pub trait Trace {
    /// The word at address `at` had this value.
    fn word(&mut self, at: usize, value: usize);
    /// The result depends on the caller's own rbp.
    fn rbp(&mut self);
}

impl Trace for () {
    #[inline(always)]
    fn word(&mut self, _at: usize, _value: usize) {}
    #[inline(always)]
    fn rbp(&mut self) {}
}

/// Writes the return addresses to `out`, innermost (the hook's own) first, and returns how many.
///
/// # Safety
/// `caller` describes the live calling frame, and memory in [caller.cfa, high) is readable stack; `high` = 0
/// when that is not known (then only the first address is written).
#[inline]
pub unsafe fn walk(caller: &Caller, high: usize, out: &mut [u64]) -> usize {
    // SAFETY: the caller's promise is that of `walk_traced`.
    unsafe { walk_traced(caller, high, out, &mut ()) }
}

/// [`walk`] that tells `trace` every word the result depends on.
///
/// # Safety
/// As [`walk`].
#[inline(always)]
pub unsafe fn walk_traced(caller: &Caller, high: usize, out: &mut [u64], trace: &mut impl Trace) -> usize {
    let Some(first) = out.first_mut() else { return 0 };
    *first = caller.ra as u64;
    let mut frame = Frame { ra: caller.ra, sp: caller.cfa, rbp: caller.rbp, rbp_from: RbpFrom::Register };
    for (n, slot) in out.iter_mut().enumerate().skip(1) {
        let rule = rule_of(frame.ra);
        // SAFETY: the caller's promise about [cfa, high); sp only grows from there.
        match unsafe { step(rule, &frame, high, trace) } {
            Some(next) if next.ra >= LOWEST_CODE => frame = next,
            _ => return n,
        }
        *slot = frame.ra as u64;
    }
    out.len()
}

/// The return addresses of a stack one at a time, as far as their rules are cached: without deriving any.
pub struct Known {
    frame: Frame,
    high: usize,
}

impl Known {
    /// From the frame of `caller` outwards.
    ///
    /// # Safety
    /// As [`walk`], as long as this exists.
    #[inline(always)]
    pub unsafe fn of(caller: &Caller, high: usize) -> Known {
        let frame = Frame { ra: caller.ra, sp: caller.cfa, rbp: caller.rbp, rbp_from: RbpFrom::Register };
        Known { frame, high }
    }

    /// The next return address further out; `None` at the end, and where the rule of the last one is not cached.
    #[inline(always)]
    pub fn outer(&mut self) -> Option<usize> {
        let rule = cache::get(self.frame.ra)?;
        // SAFETY: the promise of `of`; sp only grows from there.
        let next = unsafe { step(rule, &self.frame, self.high, &mut ()) };
        self.frame = next.filter(|next| next.ra >= LOWEST_CODE)?;
        Some(self.frame.ra)
    }
}

/// Bytes from the stack pointer at the return address `ra` to that of its caller, for code that a walk has passed and
/// whose unwind data need no other register.
pub fn frame_size(ra: usize) -> Option<usize> {
    cache::get(ra).filter(|rule| rule.base == Base::Rsp).map(|rule| rule.offset as usize)
}

/// The rule of a return address, from the cache or derived.
#[inline(always)]
fn rule_of(ra: usize) -> Rule {
    match cache::get(ra) {
        Some(rule) => rule,
        None => derive(ra),
    }
}

#[cold]
#[inline(never)]
fn derive(ra: usize) -> Rule {
    let generation = cache::generation();
    // Evaluating unwind data takes 8 KiB of stack.
    let Some(rule) = own_stack::run(|| cfi::rule_for(ra).unwrap_or(Rule::STOP)) else { return Rule::STOP };
    cache::put(ra, rule, generation);
    rule
}

/// Registers as they are in one frame.
struct Frame {
    ra: usize,
    sp: usize,
    rbp: usize,
    rbp_from: RbpFrom,
}

/// Where the value of rbp was read, as long as the trace was not told of it.
#[derive(Clone, Copy)]
enum RbpFrom {
    Register,
    Memory(usize),
    Told,
}

/// One frame up, or `None` at the end or when the next frame would not lie higher on this stack.
///
/// # Safety
/// [frame.sp, high) is readable (an empty range when high <= sp).
#[inline(always)]
unsafe fn step(rule: Rule, frame: &Frame, high: usize, trace: &mut impl Trace) -> Option<Frame> {
    let &Frame { sp, rbp, mut rbp_from, .. } = frame;
    let readable = |at: usize| at >= sp && at < high && high - at >= 8 && at.is_multiple_of(8);
    if rule.base == Base::Rsp && rule.rbp == SavedRbp::Kept {
        // Most frames of optimised code; the general case below would do the same for them.
        let cfa = sp.wrapping_add(rule.offset as usize);
        if cfa <= sp || cfa > high || !readable(cfa - 8) {
            return None;
        }
        // SAFETY: checked to lie in [sp, high), aligned.
        let ra = unsafe { ((cfa - 8) as *const usize).read() };
        trace.word(cfa - 8, ra);
        return Some(Frame { ra, sp: cfa, rbp, rbp_from });
    }
    if matches!(rule.base, Base::Rbp | Base::RbpIndirect) {
        match rbp_from {
            RbpFrom::Register => trace.rbp(),
            RbpFrom::Memory(at) => trace.word(at, rbp),
            RbpFrom::Told => {}
        }
        rbp_from = RbpFrom::Told;
    }
    let cfa = match rule.base {
        Base::Stop => return None,
        Base::Rsp => sp.wrapping_add(rule.offset as usize),
        Base::Rbp => rbp.wrapping_add(rule.offset as usize),
        Base::RbpIndirect => {
            let at = rbp.wrapping_sub(rule.offset as usize);
            if !readable(at) {
                return None;
            }
            // SAFETY: checked to lie in [sp, high), aligned.
            let cfa = unsafe { (at as *const usize).read() };
            trace.word(at, cfa);
            cfa
        }
    };
    if cfa <= sp || cfa > high || !readable(cfa - 8) {
        return None;
    }
    // SAFETY: checked to lie in [sp, high), aligned.
    let ra = unsafe { ((cfa - 8) as *const usize).read() };
    trace.word(cfa - 8, ra);
    let saved_at = match rule.rbp {
        SavedRbp::Kept => return Some(Frame { ra, sp: cfa, rbp, rbp_from }),
        SavedRbp::Lost => 0,
        SavedRbp::BelowCfa(offset) => cfa.wrapping_sub(offset as usize),
        SavedRbp::AtRbp => rbp,
    };
    if !readable(saved_at) {
        // With rbp = 0 the walk ends at the first frame that needs rbp.
        return Some(Frame { ra, sp: cfa, rbp: 0, rbp_from: RbpFrom::Told });
    }
    // SAFETY: checked to lie in [sp, high), aligned.
    let rbp = unsafe { (saved_at as *const usize).read() };
    Some(Frame { ra, sp: cfa, rbp, rbp_from: RbpFrom::Memory(saved_at) })
}

#[cfg(test)]
mod tests;
