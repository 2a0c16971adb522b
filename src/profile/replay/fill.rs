//! Carries knowledge along a path in both directions: registers through instructions, and values through the stack.
//!
//! A load of a stack slot that was not written since has the value that the sample's copy of the stack has, or that
//! another instruction of the path has stored or loaded there. Only the thread's own stack is treated so: other memory
//! may be changed by other threads. A store to an unknown address may have hit any slot.

use super::access;
use super::cfg::Decoded;
use super::eval;
use super::flags::{self, Flags};
use super::inst::{Combined, Compared, Copied, Flow, Inst, Mem, Reg, Segment, Source};
use super::state::{Contradiction, State, mask, sign_extend};
use crate::profile::perf::Regs;

/// Addresses this near the stack pointer are the thread's stack.
const REACH: u64 = 64 << 10;
/// Passes over a path; the last ones seldom add anything.
const PASSES: usize = 3;
/// Slots that are remembered of a path; those beyond are only not known.
const MAX_SLOTS: usize = 64;

/// A sample: its registers and the bytes from the stack pointer on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample<'a> {
    pub(super) regs: &'a Regs,
    pub(super) stack: &'a [u8],
}

impl Sample<'_> {
    /// A value of the stack at the sample.
    pub(super) fn on_stack(&self, addr: u64, size: u8) -> Option<u64> {
        let at = usize::try_from(addr.wrapping_sub(self.regs.gpr[4])).ok()?;
        let mut value = [0; 8];
        let bytes = self.stack.get(at..at.checked_add(usize::from(size))?)?;
        value.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(value))
    }

    /// Whether an address is of the thread's stack.
    pub(super) fn near(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.regs.gpr[4].wrapping_sub(REACH)) < 2 * REACH
    }
}

/// What is known of the stack at one place of a path.
#[derive(Debug, Default)]
pub(super) struct Slots {
    known: Vec<(u64, u8, u64)>,
    /// Written between there and the sample, so that the sample's copy does not hold.
    dead: Vec<(u64, u8)>,
    /// The sample's copy does not hold at all.
    blind: bool,
}

/// Whether two ranges of bytes have one in common.
pub(super) fn overlap(a: u64, size: u8, b: u64, other: u8) -> bool {
    a < b.saturating_add(other.into()) && b < a.saturating_add(size.into())
}

impl Slots {
    fn clear(&mut self, blind: bool) {
        self.known.clear();
        self.dead.clear();
        self.blind = blind;
    }

    fn get(&self, sample: &Sample<'_>, addr: u64, size: u8) -> Option<u64> {
        if let Some(slot) = self.known.iter().find(|s| s.0 == addr && s.1 >= size) {
            return Some(slot.2 & mask(size));
        }
        if self.blind || self.dead.iter().any(|d| overlap(d.0, d.1, addr, size)) {
            return None;
        }
        sample.on_stack(addr, size)
    }

    /// A value in memory: of the stack, or elsewhere one that has not changed since.
    fn value(
        &self,
        sample: &Sample<'_>,
        addr: u64,
        size: u8,
        constant: &mut dyn FnMut(u64, u8) -> Option<u64>,
    ) -> Option<u64> {
        if sample.near(addr) {
            return self.get(sample, addr, size);
        }
        if size > 8 || self.dead.iter().any(|d| overlap(d.0, d.1, addr, size)) {
            return None;
        }
        constant(addr, size)
    }

    fn learn(&mut self, addr: u64, size: u8, value: u64) {
        self.known.retain(|s| !overlap(s.0, s.1, addr, size) || s.1 > size);
        if self.known.len() < MAX_SLOTS && self.known.iter().all(|s| !overlap(s.0, s.1, addr, size)) {
            self.known.push((addr, size, value & mask(size)));
        }
    }

    fn forget(&mut self, addr: u64, size: u8) {
        self.known.retain(|s| !overlap(s.0, s.1, addr, size));
        if self.dead.len() < MAX_SLOTS {
            self.dead.push((addr, size));
        } else {
            self.blind = true;
        }
    }
}

/// One step of a path: its function and instruction.
pub(super) trait Steps {
    fn step(&self, k: usize) -> (&Decoded, u32);
    /// The instruction that follows step `k` in the same function.
    fn next(&self, k: usize) -> Option<u32>;
    fn len(&self) -> usize;
    /// Whether the condition of step `k`, a conditional move, is taken to have held.
    fn chosen(&self, k: usize) -> Option<bool>;
}

/// Step `k` as what it is taken to have done.
fn decided(steps: &dyn Steps, k: usize) -> Inst {
    let (fun, idx) = steps.step(k);
    let inst = fun.insts[idx as usize];
    steps.chosen(k).map_or(inst, |held| inst.decided(held))
}

/// Adds what follows to the states of a path. A contradiction means that the path was not taken; the knowledge so far
/// stays.
pub(super) fn fill(
    steps: &dyn Steps,
    states: &mut [State],
    sample: &Sample<'_>,
    constant: &mut dyn FnMut(u64, u8) -> Option<u64>,
    slots: &mut Slots,
) -> Result<(), Contradiction> {
    for pass in 0..PASSES {
        let mut added = false;
        slots.clear(false);
        for k in 0..steps.len() {
            let (fun, _) = steps.step(k);
            let inst = &decided(steps, k);
            let (newer, older) = states.split_at_mut(k + 1);
            let (post, pre) = (&mut newer[k], &mut older[0]);
            let before = pre.knowledge() + post.knowledge();
            if pass > 0 {
                eval::undo(inst, pre, post)?;
            }
            through_memory(fun, inst, (pre, post), sample, constant, slots, false)?;
            added |= pre.knowledge() + post.knowledge() != before;
        }
        slots.clear(true);
        let mut flags = Flags::default();
        for k in (0..steps.len()).rev() {
            let (fun, idx) = steps.step(k);
            let condition = fun.insts[idx as usize].effect.condition();
            let inst = &decided(steps, k);
            let (newer, older) = states.split_at_mut(k + 1);
            let (post, pre) = (&mut newer[k], &mut older[0]);
            let before = post.knowledge();
            branch(inst, idx, steps.next(k), flags)?;
            if let (Some(held), Some(cc)) = (steps.chosen(k), condition)
                && flags::holds(cc, flags).is_some_and(|holds| holds != held)
            {
                return Err(Contradiction);
            }
            eval::forward(inst, (pre, flags), post, sample.regs.flags)?;
            flags = match compared(fun, inst, (pre, post), sample, constant, slots) {
                Some(left) => inst.flags.with(flags, left),
                None => inst.flags.apply(flags, pre),
            };
            through_memory(fun, inst, (pre, post), sample, constant, slots, true)?;
            added |= post.knowledge() != before;
        }
        if (flags.value ^ sample.regs.flags as u16) & flags.known != 0 {
            return Err(Contradiction);
        }
        if !added {
            break;
        }
    }
    Ok(())
}

/// Whether a branch can have led to the instruction `next`.
fn branch(inst: &Inst, idx: u32, next: Option<u32>, flags: Flags) -> Result<(), Contradiction> {
    let (Flow::Cond { cc: Some(cc), target }, Some(next)) = (inst.flow, next) else { return Ok(()) };
    let taken = next != idx + 1;
    if target == Some(idx + 1) || flags::holds(cc, flags).is_none_or(|held| held == taken) {
        return Ok(());
    }
    Err(Contradiction)
}

/// The flags that a comparison with memory leaves, where the memory is known.
fn compared(
    fun: &Decoded,
    inst: &Inst,
    (pre, post): (&State, &State),
    sample: &Sample<'_>,
    constant: &mut dyn FnMut(u64, u8) -> Option<u64>,
    slots: &Slots,
) -> Option<Flags> {
    let Compared { kind, with, width, first } = inst.compared?;
    let mem = fun.operands(inst).first()?;
    let addr = access::known(inst, mem, pre, post, sample.regs)?;
    let value = slots.value(sample, addr, width, constant)?;
    let with = pre.operand(with, width)?;
    let (a, b) = if first { (value, with) } else { (with, value) };
    Some(inst.flags.compares(kind, a, b, width))
}

/// What the memory operands of one instruction add, and what they do to the slots.
fn through_memory(
    fun: &Decoded,
    inst: &Inst,
    (pre, post): (&mut State, &mut State),
    sample: &Sample<'_>,
    constant: &mut dyn FnMut(u64, u8) -> Option<u64>,
    slots: &mut Slots,
    forward: bool,
) -> Result<(), Contradiction> {
    let mems = fun.operands(inst);
    let at = |mem: &Mem, pre: &State, post: &State| access::known(inst, mem, pre, post, sample.regs);
    if let (Some(Copied::Load { dst, size, to, signed }), Some(mem)) = (inst.copied, mems.iter().find(|m| m.read))
        && let Some(addr) = at(mem, pre, post)
    {
        let near = sample.near(addr);
        match (slots.value(sample, addr, size, constant), loaded(post, dst, size, to)) {
            (Some(v), _) => {
                let v = if signed { sign_extend(v, size) & mask(to) } else { v };
                post.set(dst, v)?;
            }
            (None, Some(v)) if near => slots.learn(addr, size, v),
            _ => {}
        }
    }
    if let (Some(combined), Some(mem)) = (inst.combined, mems.first())
        && let Some(addr) = at(mem, pre, post)
        && let Some(v) = slots.value(sample, addr, combined.width, constant)
    {
        combine(combined, v, (pre, post))?;
    }
    for mem in mems.iter().filter(|m| m.write && m.segment == Segment::Flat) {
        let Some(addr) = at(mem, pre, post) else {
            slots.clear(true);
            continue;
        };
        match inst.copied {
            Some(Copied::Store { src, size }) if forward => {
                slots.forget(addr, mem.size);
                if let Some(v) = pre.operand(src, size).filter(|_| sample.near(addr)) {
                    slots.learn(addr, size, v);
                }
            }
            Some(Copied::Store { src: Source::Reg(r), size }) => {
                if let Some(v) = slots.get(sample, addr, size).filter(|_| sample.near(addr)) {
                    match size {
                        8 => pre.set(r, v)?,
                        4 => pre.set_low(r, v)?,
                        _ => {}
                    }
                }
                slots.forget(addr, mem.size);
            }
            _ => slots.forget(addr, mem.size),
        }
    }
    Ok(())
}

/// What a value of memory tells of the register that it is combined with, before and after.
pub(super) fn combine(c: Combined, memory: u64, (pre, post): (&mut State, &mut State)) -> Result<(), Contradiction> {
    if let Some(with) = pre.operand(c.with, c.width) {
        return post.set(c.dst, c.result(with, memory) & mask(c.width));
    }
    match (post.narrow(c.dst, c.width).and_then(|v| c.operand(v, memory)), c.width) {
        (Some(v), 8) => pre.set(c.dst, v),
        (Some(v), _) => pre.set_soft(c.dst, v & mask(c.width)),
        (None, _) => Ok(()),
    }
}

/// The value that a load has left in its register, when the register tells all of its bytes.
fn loaded(post: &State, dst: Reg, size: u8, to: u8) -> Option<u64> {
    if size > to { None } else { post.narrow(dst, size) }
}
