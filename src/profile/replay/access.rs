//! From the instructions of a path to accesses, and which of them waited.

use super::cfg::Decoded;
use super::eval;
use super::flags::{self, DF, Flags};
use super::inst::{Effect, Flow, Inst, Mem, MemKind, NO_REG, RCX, Segment};
use super::operand;
use super::path::{Path, Stop};
use super::state::State;
use super::types::{CodeSource, Outcome, ReplayAccess};
use crate::profile::perf::Regs;
use crate::profile::records::Certainty;

/// Nothing is mapped below (vm.mmap_min_addr's default): an expected address there is the end of a list.
const NULL_PAGES: u64 = 64 << 10;

/// What is known of an operand's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Address {
    Known(u64),
    /// Only a base register: the indices are in a vector.
    Object(u64),
    /// Relative to fs or gs, whose base is not known.
    Tls,
    /// The registers are lost, or a vector of pointers without a base.
    Lost {
        vsib: bool,
    },
    /// A string instruction with a count of 0.
    Nothing,
}

/// Marks instructions whose accesses are already listed; O(1) per instruction over all samples.
#[derive(Debug, Default)]
pub(super) struct Marks {
    stamp: Vec<u32>,
    now: u32,
}

impl Marks {
    fn reset(&mut self, instructions: usize) {
        self.now = self.now.wrapping_add(1);
        if self.now == 0 {
            self.stamp.fill(0);
            self.now = 1;
        }
        if self.stamp.len() < instructions {
            self.stamp.resize(instructions, 0);
        }
    }

    fn first_time(&mut self, inst: u32) -> bool {
        match self.stamp.get_mut(inst as usize) {
            Some(s) => std::mem::replace(s, self.now) != self.now,
            None => false,
        }
    }
}

/// The address of `mem` from the registers before its instruction.
fn address(mem: &Mem, pre: &State, fs_base: u64) -> Address {
    let vsib = mem.kind == MemKind::Vsib;
    let segment = match mem.segment {
        Segment::Flat => 0,
        Segment::Fs if fs_base != 0 => fs_base,
        Segment::Fs | Segment::Gs => return Address::Tls,
    };
    let part = |r| match r {
        NO_REG => Some(0),
        _ if mem.addr32 => pre.narrow(r, 4),
        _ => pre.pointer(r),
    };
    if vsib && mem.base == NO_REG {
        return Address::Lost { vsib };
    }
    let (Some(base), Some(index)) = (part(mem.base), part(mem.index)) else { return Address::Lost { vsib } };
    let mut addr = mem.disp.wrapping_add(base).wrapping_add(index.wrapping_mul(u64::from(mem.scale)));
    if mem.addr32 {
        addr &= u64::from(u32::MAX);
    }
    let addr = addr.wrapping_add(segment);
    if vsib { Address::Object(addr) } else { Address::Known(addr) }
}

/// What the indices of a gather are added to.
pub(super) fn base_of_lanes(mem: &Mem, pre: &State, regs: &Regs) -> Option<u64> {
    if mem.base == NO_REG && mem.segment == Segment::Flat && !mem.addr32 {
        return Some(mem.disp);
    }
    match address(mem, pre, regs.fs_base) {
        Address::Object(base) if !mem.addr32 => Some(base),
        _ => None,
    }
}

/// The address of an operand of an instruction that has been executed: `post` is the state after it.
fn address_behind(inst: &Inst, mem: &Mem, pre: &State, post: &State, regs: &Regs) -> Address {
    if mem.kind != MemKind::Str {
        return address(mem, pre, regs.fs_base);
    }
    if let (Effect::Str { rep: true, .. }, Some(0)) = (inst.effect, pre.full(RCX)) {
        return Address::Nothing;
    }
    match address(mem, post, regs.fs_base) {
        Address::Known(p) if regs.flags & DF != 0 => Address::Known(p.wrapping_add(u64::from(mem.size))),
        Address::Known(p) => Address::Known(p.wrapping_sub(u64::from(mem.size))),
        other => other,
    }
}

/// The same for a caller that only wants to know whether it is known.
pub(super) fn known(inst: &Inst, mem: &Mem, pre: &State, post: &State, regs: &Regs) -> Option<u64> {
    match address_behind(inst, mem, pre, post, regs) {
        Address::Known(addr) => Some(addr),
        _ => None,
    }
}

/// The address of `mem` before its instruction is executed.
pub(super) fn next(mem: &Mem, pre: &State, regs: &Regs) -> Option<u64> {
    match address(mem, pre, regs.fs_base) {
        Address::Known(addr) => Some(addr),
        _ => None,
    }
}

/// The address of an operand of an instruction that is not executed yet.
fn address_ahead(inst: &Inst, mem: &Mem, pre: &State, regs: &Regs) -> Address {
    if mem.kind == MemKind::Str
        && let (Effect::Str { rep: true, .. }, Some(0)) = (inst.effect, pre.full(RCX))
    {
        return Address::Nothing;
    }
    address(mem, pre, regs.fs_base)
}

/// The access that waited.
struct Waiting {
    outcome: Outcome,
    /// The access that is charged with the time.
    carrier: Option<ReplayAccess>,
    /// Another access may have been nearer: the path does not tell.
    weak: bool,
    /// Its step, when its address is lost.
    lost: Option<usize>,
}

/// What the path tells of the sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Charged {
    pub(super) outcome: Outcome,
    /// Another access may have been the one that waited.
    pub(super) weak: bool,
    /// Step of the access that waited, when its address is lost.
    pub(super) lost: Option<usize>,
}

/// The sample and its path.
struct Scene<'a> {
    fun: &'a Decoded,
    path: &'a Path,
    regs: &'a Regs,
    ip: u32,
}

/// Lists the accesses of `path` in `out`; returns the outcome of the sample.
pub(super) fn collect(
    fun: &Decoded,
    path: &Path,
    stop: Stop,
    (ip, regs): (u32, &Regs),
    marks: &mut Marks,
    code: &mut dyn CodeSource,
    out: &mut Vec<ReplayAccess>,
) -> Charged {
    let scene = Scene { fun, path, regs, ip };
    let waiting = scene.waiting(stop, code);
    scene.list(marks, out);
    if let Some(carrier) = waiting.carrier {
        let same = |a: &&mut ReplayAccess| (a.ip, a.addr, a.write) == (carrier.ip, carrier.addr, carrier.write);
        match out.iter_mut().find(same) {
            Some(listed) => *listed = carrier,
            None => out.push(carrier),
        }
    }
    let Waiting { outcome, weak, lost, .. } = waiting;
    Charged { outcome, weak, lost }
}

impl Scene<'_> {
    fn inst(&self, idx: u32) -> &Inst {
        &self.fun.insts[idx as usize]
    }

    fn made(&self, idx: u32, mem: &Mem, addr: u64, certainty: Certainty, ahead: bool) -> ReplayAccess {
        let ip = self.fun.ip(idx);
        ReplayAccess { ip, addr, size: mem.size, write: mem.write, certainty, carries_cost: false, ahead }
    }

    /// Lists each instruction of the path once: certain ones before the sample, those after it, those of a guessed
    /// loop.
    fn list(&self, marks: &mut Marks, out: &mut Vec<ReplayAccess>) {
        marks.reset(self.fun.insts.len());
        self.list_behind(0..self.path.loop_from, Certainty::Exact, marks, out);
        for (idx, pre) in &self.path.ahead {
            let inst = self.inst(*idx);
            let resolve = |mem: &Mem| address_ahead(inst, mem, pre, self.regs);
            self.push(*idx, resolve, (Certainty::Exact, true), marks, out);
        }
        self.list_behind(self.path.loop_from..self.path.steps.len(), Certainty::Loop, marks, out);
    }

    fn list_behind(
        &self,
        range: std::ops::Range<usize>,
        certainty: Certainty,
        marks: &mut Marks,
        out: &mut Vec<ReplayAccess>,
    ) {
        for k in range {
            let idx = self.path.steps[k];
            let inst = self.inst(idx);
            let (post, pre) = (&self.path.states[k], &self.path.states[k + 1]);
            let resolve = |mem: &Mem| address_behind(inst, mem, pre, post, self.regs);
            self.push(idx, resolve, (self.at_best(certainty, k), false), marks, out);
        }
    }

    fn push(
        &self,
        idx: u32,
        resolve: impl Fn(&Mem) -> Address,
        (certainty, ahead): (Certainty, bool),
        marks: &mut Marks,
        out: &mut Vec<ReplayAccess>,
    ) {
        let mems = self.fun.operands(self.inst(idx));
        let known = |m: &Mem| matches!(resolve(m), Address::Known(_) | Address::Object(_));
        if !mems.iter().any(known) || !marks.first_time(idx) {
            return;
        }
        for mem in mems {
            match resolve(mem) {
                Address::Known(a) => out.push(self.made(idx, mem, a, certainty, ahead)),
                Address::Object(a) => out.push(self.made(idx, mem, a, Certainty::ObjectOnly, ahead)),
                Address::Tls | Address::Lost { .. } | Address::Nothing => {}
            }
        }
    }

    /// Finds the access that waited: because of skid the one just before the sampled instruction, else the nearest
    /// before it. Pushes, pops and returns hit the first-level cache: they are charged only when they are
    /// just before, or when there is no other access.
    fn waiting(&self, stop: Stop, code: &mut dyn CodeSource) -> Waiting {
        if let Some(w) = self.running_string() {
            return w;
        }
        let certain = &self.path.steps[..self.path.loop_from];
        let mut stack = None;
        for (k, &idx) in certain.iter().enumerate() {
            let mems = self.fun.operands(self.inst(idx));
            let Some(mem) = principal(mems) else { continue };
            if mem.kind == MemKind::Stack && k > 0 {
                stack = stack.or(Some((k, mem)));
                continue;
            }
            let load = operand::waited_for(self.fun, self.path, k, code);
            return match load.and_then(|k| Some((k, principal(self.fun.operands(self.inst(certain[k])))?))) {
                Some((k, mem)) => self.wait_at(k, mem),
                None => self.wait_at(k, mem),
            };
        }
        if let Some((k, mem)) = stack {
            let mut waiting = self.wait_at(k, mem);
            waiting.weak = true;
            waiting.lost = None;
            if let Some(carrier) = &mut waiting.carrier {
                carrier.certainty = Certainty::ObjectOnly;
            }
            return waiting;
        }
        let ambiguous = matches!(stop, Stop::Merge | Stop::Wrong | Stop::Limit);
        let outcome = if ambiguous { Outcome::Unresolved } else { Outcome::NoAccess };
        Waiting { outcome, carrier: None, weak: true, lost: None }
    }

    /// A repeated string instruction is interrupted between elements with IP still at the instruction, so it is the one
    /// that waits.
    fn running_string(&self) -> Option<Waiting> {
        let inst = self.inst(self.ip);
        let Effect::Str { rep: true, .. } = inst.effect else { return None };
        if self.regs.gpr[RCX as usize] == 0 {
            return None;
        }
        let mem = principal(self.fun.operands(inst))?;
        match address(mem, &self.path.states[0], self.regs.fs_base) {
            Address::Known(a) => {
                let access = self.made(self.ip, mem, a, Certainty::Exact, true);
                Some(Waiting { outcome: Outcome::Resolved, carrier: Some(charge(access)), weak: false, lost: None })
            }
            _ => None,
        }
    }

    /// Nothing is exact beyond a way that is only likely.
    fn at_best(&self, certainty: Certainty, k: usize) -> Certainty {
        if certainty == Certainty::Exact && k >= self.path.likely_from { Certainty::Page } else { certainty }
    }

    fn wait_at(&self, k: usize, mem: &Mem) -> Waiting {
        let idx = self.path.steps[k];
        let (post, pre) = (&self.path.states[k], &self.path.states[k + 1]);
        let done = |outcome, carrier: Option<ReplayAccess>| Waiting {
            outcome,
            carrier: carrier.map(charge),
            weak: false,
            lost: None,
        };
        match address_behind(self.inst(idx), mem, pre, post, self.regs) {
            Address::Known(a) => {
                let certainty = self.at_best(Certainty::Exact, k);
                done(Outcome::Resolved, Some(self.made(idx, mem, a, certainty, false)))
            }
            Address::Object(a) => done(Outcome::Vsib, Some(self.made(idx, mem, a, Certainty::ObjectOnly, false))),
            Address::Tls => done(Outcome::Tls, None),
            Address::Lost { vsib: true } => done(Outcome::Vsib, None),
            Address::Nothing => done(Outcome::NoAccess, None),
            Address::Lost { vsib: false } => match self.next_iteration(k, mem) {
                // Decided by the branches ahead: other ways would not tell more.
                Some(access) => {
                    let weak = access.certainty != Certainty::Exact;
                    Waiting { weak, lost: weak.then_some(k), ..done(Outcome::Resolved, Some(access)) }
                }
                None => Waiting { weak: true, lost: Some(k), ..done(Outcome::Unresolved, None) },
            },
        }
    }

    /// The address that the same instruction uses next: exact where the branches ahead are decided, otherwise an
    /// expected address that only names the object.
    fn next_iteration(&self, k: usize, mem: &Mem) -> Option<ReplayAccess> {
        let idx = self.path.steps[k];
        if let Some((_, pre)) = self.path.ahead.iter().find(|(i, _)| *i == idx)
            && let Address::Known(a) = address(mem, pre, self.regs.fs_base)
        {
            return Some(self.made(idx, mem, a, Certainty::Exact, true));
        }
        let addr = self.in_next_iteration(k, mem).or_else(|| self.in_next_element(k, mem))?;
        if addr < NULL_PAGES {
            return None;
        }
        Some(self.made(idx, mem, addr, Certainty::ObjectOnly, true))
    }

    /// Evaluates the path's own instructions from the sampled registers, as if the loop went the same way again.
    /// None where a branch is known to go another way.
    fn in_next_iteration(&self, k: usize, mem: &Mem) -> Option<u64> {
        let steps = &self.path.steps;
        if steps.last() != Some(&self.ip) {
            return None;
        }
        let mut state = self.path.states[0];
        let mut flags = Flags { value: self.regs.flags as u16, known: flags::ARITHMETIC };
        for pair in steps[k..].windows(2).rev() {
            let (next, s) = (pair[0], pair[1]);
            let inst = self.inst(s);
            if let Flow::Cond { cc: Some(cc), target } = inst.flow
                && flags::holds(cc, flags).is_some_and(|taken| next != s + 1 && !taken || taken && target != Some(next))
            {
                return None;
            }
            let mut post = State::UNKNOWN;
            eval::forward(inst, (&state, flags), &mut post, self.regs.flags).ok()?;
            flags = inst.flags.apply(flags, &state);
            state = post;
        }
        match address(mem, &state, self.regs.fs_base) {
            Address::Known(a) => Some(a),
            _ => None,
        }
    }

    /// `mov rax,[rax+d]` in a loop that does not load rax from elsewhere: the loaded value is the address of the next
    /// element.
    fn in_next_element(&self, k: usize, mem: &Mem) -> Option<u64> {
        let idx = self.path.steps[k];
        let inst = self.inst(idx);
        let bit = 1u16.checked_shl(u32::from(mem.base))?;
        if inst.written & bit == 0 || mem.index != NO_REG || !self.fun.in_loop(idx) {
            return None;
        }
        // A load of the base register earlier in the block means that the instruction does not follow its own pointer.
        let mut older = &self.path.steps[k..];
        while let Some((&s, rest)) = older.split_first() {
            let before = self.inst(s);
            if s != idx && before.written & bit != 0 && matches!(before.effect, Effect::Opaque | Effect::Choose { .. })
            {
                return None;
            }
            if before.leader {
                break;
            }
            older = rest;
        }
        if older.is_empty() || matches!(inst.flow, Flow::Call) {
            return None;
        }
        self.path.states[k].full(mem.base).map(|next| next.wrapping_add(mem.disp))
    }
}

fn charge(mut access: ReplayAccess) -> ReplayAccess {
    access.carries_cost = true;
    access
}

/// The operand an instruction waits for: what it reads before what it writes, the stack last.
pub(super) fn principal(mems: &[Mem]) -> Option<&Mem> {
    mems.iter().min_by_key(|m| (m.kind == MemKind::Stack, !m.read))
}
