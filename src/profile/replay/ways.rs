//! All ways that may have led to the sampled instruction, each followed to the access before it.
//!
//! [`super::path`] stops where it cannot tell the way. Here every way that neither the registers nor the flags nor the
//! stack contradict is followed, through merges, calls and returns, to the nearest access: ways that agree on the
//! address, the page or the object still say what the sample is to be charged to. Work is bounded; ways that are not
//! followed to an end are counted.

use std::sync::Arc;

use super::access;
use super::cfg::{Cache, Decoded, Pred};
use super::eval;
use super::fill::{Sample, Slots, Steps, fill};
use super::inst::{Effect, Flow, Mem, MemKind, NO_REG, RSP, Segment};
use super::path::Tracker;
use super::state::{Contradiction, State};
use super::types::{self, CodeSource};

/// Most instructions of one way.
const MAX_STEPS: usize = 160;
/// Steps over all ways: some 60 us at most.
const MAX_WORK: u32 = 1_200;
/// Ways followed to their ends.
const MAX_ENDS: usize = 24;
/// Ways into one instruction that are followed.
const MAX_WAYS: usize = 12;
/// The same for an instruction that indirect jumps lead to, each with its own load of the target.
const MAX_JUMPS: usize = 400;
/// States that are copied in the time of a step.
const COPIES: u32 = 8;
/// Instructions before an access that are looked at for the registers it was made with.
const MAX_BEYOND: usize = 40;
/// Instructions before the end of a way in which contradictions are looked for.
const MAX_BEFORE: usize = 24;
/// Functions entered and left on one way.
const MAX_CALLS: usize = 6;
/// Conditional moves on one way of which both outcomes are followed.
const MAX_CHOICES: usize = 3;
/// Times that one way may pass an instruction: a loop without accesses.
const MAX_PASSES: usize = 2;
/// Reads of the program's memory: a system call each.
const MAX_READS: u32 = 64;
/// What a call writes and a return reads.
const RETURN_ADDRESS: Mem = Mem {
    base: RSP,
    index: NO_REG,
    scale: 1,
    size: 8,
    disp: 0,
    kind: MemKind::Stack,
    segment: Segment::Flat,
    addr32: false,
    read: true,
    write: false,
};
/// Bytes of a call or jump in a stub of the dynamic linker, with the mark for indirect branches before it.
const STUB_BYTES: u64 = 16;

/// Where a way ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// Address of the instruction of the access.
    pub(super) ip: u64,
    /// Its address; None when the registers are lost.
    pub(super) addr: Option<u64>,
    pub(super) mem: Mem,
    /// The instruction, in the sampled function.
    pub(super) inst: Option<u32>,
}

/// What following all ways has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) ends: Vec<End>,
    /// Ways whose end is not known: bounds, unknown callers, loops.
    pub(super) open: u32,
    /// A way was assumed that the code does not prove.
    pub(super) assumed: bool,
}

/// Buffers of a search.
#[derive(Debug, Default)]
pub(super) struct Ways {
    funs: Vec<Arc<Decoded>>,
    steps: Vec<(usize, u32)>,
    /// Of each step that is a conditional move and matters: whether its condition is taken to have held.
    chosen: Vec<Option<bool>>,
    states: Vec<State>,
    /// Calls and jumps by which the functions were entered whose ends the way has come through.
    origins: Vec<(usize, u32)>,
    slots: Slots,
    found: Found,
}

/// A step backwards.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// To an instruction of the same function.
    Within { inst: u32, taken: bool },
    /// The same to a conditional move whose condition held or did not.
    Chosen { inst: u32, taken: bool, held: bool },
    /// From the start of a function to what called or jumped to it.
    Entered { fun: usize, inst: u32 },
    /// As before, and the function was entered by `by`.
    EnteredVia { fun: usize, inst: u32, by: (usize, u32) },
    /// From a call's return to the end of the function that was called.
    Returned { fun: usize, inst: u32, by: (usize, u32), stub: Option<(usize, u32)> },
}

struct Search<'a, 'b> {
    w: &'a mut Ways,
    cache: &'a mut Cache,
    code: &'a mut dyn CodeSource,
    sample: Sample<'b>,
    ip: u32,
    work: u32,
    /// Memory of the program as it is by now counts, too.
    now: bool,
    /// Reads of it that are left.
    reads: u32,
}

struct Followed<'a> {
    funs: &'a [Arc<Decoded>],
    steps: &'a [(usize, u32)],
    chosen: &'a [Option<bool>],
    ip: u32,
}

impl Steps for Followed<'_> {
    fn step(&self, k: usize) -> (&Decoded, u32) {
        let (fun, inst) = self.steps[k];
        (&self.funs[fun], inst)
    }

    fn next(&self, k: usize) -> Option<u32> {
        let (fun, next) = if k == 0 { (0, self.ip) } else { self.steps[k - 1] };
        (fun == self.steps[k].0).then_some(next)
    }

    fn len(&self) -> usize {
        self.steps.len()
    }

    fn chosen(&self, k: usize) -> Option<bool> {
        self.chosen[k]
    }
}

/// The access of a way that is looked for: nearest to the sample, the stack's only when there is no other.
#[derive(Debug, Clone, Copy, Default)]
struct Sought {
    /// Step of an access whose address is not known yet.
    at: Option<(usize, Mem)>,
    stack: Option<(usize, Mem)>,
    /// Registers that its address came from, as bits.
    from: u16,
}

impl Ways {
    /// Follows all ways from the sampled instruction `ip` of `fun`. With `now` they must agree with the memory of the
    /// program as it is by now, so that what is found is not certain.
    pub(super) fn follow(
        &mut self,
        fun: &Arc<Decoded>,
        ip: u32,
        now: bool,
        sample: Sample<'_>,
        cache: &mut Cache,
        code: &mut dyn CodeSource,
    ) -> &Found {
        self.funs.clear();
        self.funs.push(Arc::clone(fun));
        self.steps.clear();
        self.chosen.clear();
        self.states.clear();
        self.states.push(State::sampled(&sample.regs.gpr));
        self.origins.clear();
        self.found = Found { assumed: now, ..Found::default() };
        let mut search = Search { w: self, cache, code, sample, ip, work: MAX_WORK, now, reads: MAX_READS };
        search.explore((0, ip), Tracker::sampled(), Sought::default());
        &self.found
    }
}

impl std::fmt::Display for Ways {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Found { ends, open, assumed } = &self.found;
        write!(f, "{open} open, assumed {assumed}, ends")?;
        ends.iter().try_for_each(|end| write!(f, " {:x}:{:x?}", end.ip, end.addr))
    }
}

impl Search<'_, '_> {
    fn explore(&mut self, from: (usize, u32), mut tracker: Tracker, mut sought: Sought) {
        let mut at = from;
        let mut ways = Vec::new();
        loop {
            if self.work == 0 || self.w.steps.len() >= MAX_STEPS || self.w.found.ends.len() >= MAX_ENDS {
                return self.end(sought);
            }
            if sought.at.is_some_and(|(k, _)| self.w.steps.len() - k > MAX_BEYOND) {
                return self.end(sought);
            }
            ways.clear();
            if self.ways(at, &mut ways).is_none() || ways.is_empty() || ways.len() > self.most(at) {
                self.beside_a_call(at);
                return self.end(sought);
            }
            self.choose(at.0, &sought, &mut ways);
            if let [way] = ways[..] {
                match self.step(way, at.0, &mut tracker) {
                    Ok(next) => at = next,
                    Err(Contradiction) => return,
                }
                if self.looping(at) {
                    return self.end(sought);
                }
                if self.access(&mut sought, &tracker) {
                    return;
                }
                continue;
            }
            return self.branch(at, &ways, tracker, sought);
        }
    }

    /// Of a conditional move that decides the address looked for, both outcomes are followed: what sets the flags comes
    /// later on the way backwards and may contradict one of them.
    fn choose(&self, f: usize, sought: &Sought, ways: &mut Vec<Way>) {
        if sought.at.is_none() || self.w.chosen.iter().flatten().count() >= MAX_CHOICES {
            return;
        }
        for k in 0..ways.len() {
            let Way::Within { inst, taken } = ways[k] else { continue };
            let Effect::Choose { dst, .. } = self.w.funs[f].insts[inst as usize].effect else { continue };
            if sought.from & (1 << dst) != 0 && self.w.states.last().is_some_and(|s| s.full(dst).is_none()) {
                ways[k] = Way::Chosen { inst, taken, held: true };
                ways.push(Way::Chosen { inst, taken, held: false });
            }
        }
    }

    /// Right behind a call or at a function's start the return address was accessed last, whatever else is not known.
    fn beside_a_call(&mut self, (f, idx): (usize, u32)) {
        let fun = &self.w.funs[f];
        let behind = idx.checked_sub(1).map(|before| fun.insts[before as usize].is_call());
        if !self.w.steps.is_empty() || behind == Some(false) {
            return;
        }
        let addr = self.sample.regs.gpr[RSP as usize].wrapping_sub(if behind.is_some() { 8 } else { 0 });
        let mem = Mem { write: behind.is_none(), read: behind.is_some(), ..RETURN_ADDRESS };
        self.w.found.ends.push(End { ip: fun.ip(idx), addr: Some(addr), mem, inst: None });
    }

    /// Most ways into an instruction that are followed.
    fn most(&self, (f, idx): (usize, u32)) -> usize {
        if self.w.funs[f].preds(idx).next().is_none() { MAX_JUMPS } else { MAX_WAYS }
    }

    fn branch(&mut self, at: (usize, u32), ways: &[Way], tracker: Tracker, sought: Sought) {
        // What one way adds to the states before the merge does not hold on the others.
        let (len, origins, states) = (self.w.steps.len(), self.w.origins.clone(), self.w.states.clone());
        for &way in ways {
            self.work = self.work.saturating_sub(1 + len as u32 / COPIES);
            let (mut t, mut s) = (tracker, sought);
            if let Ok(next) = self.step(way, at.0, &mut t) {
                if self.looping(next) {
                    self.end(s);
                } else if !self.access(&mut s, &t) {
                    self.explore(next, t, s);
                }
            }
            self.w.steps.truncate(len);
            self.w.chosen.truncate(len);
            self.w.states.clone_from(&states);
            self.w.origins.clone_from(&origins);
        }
    }

    fn looping(&self, at: (usize, u32)) -> bool {
        self.w.steps.iter().filter(|&&s| s == at).count() > MAX_PASSES
    }

    /// Looks at the step just made. True when the way has come to its end.
    fn access(&mut self, sought: &mut Sought, tracker: &Tracker) -> bool {
        let k = self.w.steps.len() - 1;
        let (f, idx) = self.w.steps[k];
        let fun = &self.w.funs[f];
        let inst = &fun.insts[idx as usize];
        match sought.at {
            Some((_, mem)) => {
                if inst.written & sought.from != 0 {
                    sought.from |= inst.effect.sources();
                }
                // Only what sets a register of the address can help.
                let needed = [mem.base, mem.index];
                if !needed.iter().any(|&r| r < 16 && inst.written & (1 << r) != 0) && !inst.leader {
                    return false;
                }
            }
            None => {
                let Some(&mem) = access::principal(fun.operands(inst)) else { return false };
                if mem.kind == MemKind::Stack && k > 0 {
                    sought.stack = sought.stack.or(Some((k, mem)));
                    return false;
                }
                sought.at = Some((k, mem));
                sought.from = [mem.base, mem.index].iter().filter(|r| **r < 16).fold(0, |all, r| all | 1 << r);
            }
        }
        let Some((k, mem)) = sought.at else { return false };
        match self.address(k, &mem) {
            Ok(Some(addr)) => {
                if self.stands(tracker) {
                    self.found(k, mem, Some(addr));
                }
                true
            }
            Ok(None) => false,
            Err(Contradiction) => true,
        }
    }

    /// Whether nothing contradicts the way on the stretch before its end, as far as there is only one: the way into a
    /// loop is told from its back-edge by what is set before it.
    fn stands(&mut self, tracker: &Tracker) -> bool {
        let mut ways = Vec::new();
        let mut tracker = *tracker;
        let (origins, assumed) = (self.w.origins.clone(), self.w.found.assumed);
        let mut refuted = false;
        self.w.found.assumed = false;
        for _ in 0..MAX_BEFORE {
            let Some(&at) = self.w.steps.last() else { break };
            ways.clear();
            let single = self.ways(at, &mut ways).is_some() && ways.len() == 1;
            if self.work == 0 || !single || self.w.found.assumed {
                break;
            }
            match self.step(ways[0], at.0, &mut tracker) {
                Ok(next) if self.looping(next) => break,
                Ok(_) => {}
                Err(Contradiction) => {
                    refuted = true;
                    break;
                }
            }
        }
        self.w.origins = origins;
        let stands = !refuted && self.fill().is_ok();
        // Other ways may have led to the stretch.
        self.w.found.assumed = assumed || !stands;
        stands
    }

    /// The address of the access at step `k`, from all that is known along the way.
    fn address(&mut self, k: usize, mem: &Mem) -> Result<Option<u64>, Contradiction> {
        self.work = self.work.saturating_sub(self.w.steps.len() as u32);
        let known = |w: &Ways, regs| {
            let (f, idx) = w.steps[k];
            access::known(&w.funs[f].insts[idx as usize], mem, &w.states[k + 1], &w.states[k], regs)
        };
        self.fill()?;
        Ok(known(self.w, self.sample.regs))
    }

    fn fill(&mut self) -> Result<(), Contradiction> {
        let (code, now, reads) = (&mut *self.code, self.now, &mut self.reads);
        let mut constant = |addr, size| {
            types::constant(code, addr, size).or_else(|| {
                *reads = reads.checked_sub(u32::from(now))?;
                if now { types::now(code, addr, size) } else { None }
            })
        };
        let Ways { funs, steps, chosen, states, slots, .. } = &mut *self.w;
        fill(&Followed { funs, steps, chosen, ip: self.ip }, states, &self.sample, &mut constant, slots)
    }

    fn found(&mut self, k: usize, mem: Mem, addr: Option<u64>) {
        let (f, idx) = self.w.steps[k];
        let ip = self.w.funs[f].ip(idx);
        // Of the sampled function only: others are not executed next.
        let inst = (f == 0).then_some(idx);
        let end = End { ip, addr, mem, inst };
        // Jumps to one place from many: their addresses count.
        let same = |e: &End| e.addr == addr && (addr.is_some() && self.w.found.assumed || e.ip == ip);
        if !self.w.found.ends.iter().any(same) {
            self.w.found.ends.push(end);
        }
    }

    /// The way ends here without an address.
    fn end(&mut self, sought: Sought) {
        match (sought.at, sought.stack) {
            (Some((k, mem)), _) => self.found(k, mem, None),
            (None, _) => self.w.found.open += 1,
        }
    }

    /// Makes a step; returns where it leads.
    fn step(&mut self, way: Way, within: usize, tracker: &mut Tracker) -> Result<(usize, u32), Contradiction> {
        self.work = self.work.saturating_sub(1);
        let mut chosen = None;
        let (at, taken) = match way {
            Way::Within { inst, taken } => ((within, inst), taken),
            Way::Chosen { inst, taken, held } => {
                chosen = Some(held);
                ((within, inst), taken)
            }
            Way::Entered { fun, inst } => ((fun, inst), true),
            Way::EnteredVia { fun, inst, .. } | Way::Returned { fun, inst, .. } => ((fun, inst), true),
        };
        let undecided = &self.w.funs[at.0].insts[at.1 as usize];
        let outcome = undecided.effect.condition().zip(chosen).or(undecided.outcome(taken));
        let inst = &chosen.map_or(*undecided, |held| undecided.decided(held));
        let post = self.w.states.last().ok_or(Contradiction)?;
        let mut pre = State::UNKNOWN;
        eval::undo(inst, &mut pre, post)?;
        tracker.equal(inst, &mut pre, self.sample.regs.flags as u16)?;
        *tracker = tracker.before(inst, &pre, outcome, self.sample.regs.flags as u16)?;
        self.w.steps.push(at);
        self.w.chosen.push(chosen);
        self.w.states.push(pre);
        match way {
            Way::Within { .. } | Way::Chosen { .. } => {}
            Way::Entered { .. } => {
                self.w.origins.pop();
            }
            Way::EnteredVia { by, .. } => self.w.origins.push(by),
            Way::Returned { by, stub, .. } => {
                self.w.origins.push(by);
                self.w.origins.extend(stub);
            }
        }
        Ok(at)
    }

    /// The ways into an instruction. None when some are not known.
    fn ways(&mut self, (f, idx): (usize, u32), out: &mut Vec<Way>) -> Option<()> {
        let fun = Arc::clone(&self.w.funs[f]);
        self.w.found.assumed |= fun.open;
        if fun.is_entered(idx) {
            return None;
        }
        for pred in fun.preds(idx) {
            match pred {
                Pred::From { inst, taken } => out.push(Way::Within { inst, taken }),
                Pred::Outside => match idx.checked_sub(1) {
                    None => self.entered(&fun, out)?,
                    Some(call) if fun.insts[call as usize].is_call() => self.returned(f, &fun, call, out)?,
                    // A system call: what came before it did not wait until here.
                    Some(_) => return None,
                },
            }
        }
        if out.is_empty() {
            // Behind a jump, and no branch leads here: the target of a jump table.
            self.w.found.assumed = true;
            out.extend(fun.indirect.iter().map(|&inst| Way::Within { inst, taken: true }));
        }
        Some(())
    }

    /// The function at an address, decoded: its number here and the instruction at the address.
    fn function(&mut self, addr: u64) -> Option<(usize, u32)> {
        if let Some(f) = self.w.funs.iter().position(|f| f.at(addr).is_some()) {
            return Some((f, self.w.funs[f].at(addr)?));
        }
        let fun = self.cache.get(addr, self.code)?;
        let idx = fun.at(addr)?;
        self.w.funs.push(fun);
        Some((self.w.funs.len() - 1, idx))
    }

    /// What called or jumped to the start of a function.
    fn entered(&mut self, fun: &Decoded, out: &mut Vec<Way>) -> Option<()> {
        if let Some(&(f, inst)) = self.w.origins.last() {
            out.push(Way::Entered { fun: f, inst });
            return Some(());
        }
        if self.w.states.last()?.full(RSP).is_none() {
            self.fill().ok()?;
        }
        let slot = self.w.states.last()?.full(RSP)?;
        let back = self.sample.on_stack(slot, 8)?;
        let at = self.call_before(back)?;
        let (caller, call) = self.function(at)?;
        let by = (caller, call);
        let Some(target) = self.w.funs[caller].target_outside(call) else {
            // A call through a pointer, or the function calls itself.
            self.w.found.assumed |= self.w.funs[caller].start != fun.start;
            out.push(Way::Entered { fun: caller, inst: call });
            return Some(());
        };
        if target == fun.start {
            out.push(Way::Entered { fun: caller, inst: call });
            return Some(());
        }
        let (other, first) = self.function(target)?;
        if let Some(jump) = stub(&self.w.funs[other], first) {
            let leads = self.slot((other, jump)).and_then(|slot| types::constant(self.code, slot, 8));
            self.w.found.assumed |= leads != Some(fun.start);
            out.push(Way::EnteredVia { fun: other, inst: jump, by });
            return Some(());
        }
        // The function called has left by a jump to this one.
        self.w.found.assumed = true;
        let jumps = self.w.funs[other].leaving.clone();
        let calls = |inst: u32| self.w.funs[other].insts[inst as usize].flow == Flow::Call;
        out.extend(
            jumps.iter().filter(|&&(inst, to)| to == fun.start && !calls(inst)).map(|&(inst, _)| Way::EnteredVia {
                fun: other,
                inst,
                by,
            }),
        );
        Some(())
    }

    /// Address of the call instruction that returns to `back`.
    fn call_before(&mut self, back: u64) -> Option<u64> {
        let fun = self.cache.get(back.checked_sub(1)?, self.code)?;
        let call = fun.at(back)?.checked_sub(1)?;
        fun.insts[call as usize].is_call().then(|| fun.ip(call))
    }

    /// The ends of the function that the call instruction `call` has called.
    fn returned(&mut self, f: usize, fun: &Decoded, call: u32, out: &mut Vec<Way>) -> Option<()> {
        if self.w.origins.len() >= MAX_CALLS {
            return None;
        }
        let target = fun.target_outside(call)?;
        self.ends(target, (f, call), out)
    }

    /// Returns of the function at `target`, which was entered by `by`.
    fn ends(&mut self, target: u64, by: (usize, u32), out: &mut Vec<Way>) -> Option<()> {
        let (mut called, mut first) = self.function(target)?;
        let jump = stub(&self.w.funs[called], first).map(|jump| (called, jump));
        if let Some(through) = jump {
            let slot = self.slot(through)?;
            let target = types::constant(self.code, slot, 8)?;
            (called, first) = self.function(target)?;
        }
        if first != 0 {
            return None;
        }
        let fun = &self.w.funs[called];
        out.extend(fun.returns.iter().map(|&inst| Way::Returned { fun: called, inst, by, stub: jump }));
        let jumps = fun.leaving.iter().any(|&(inst, _)| fun.insts[inst as usize].flow != Flow::Call);
        self.w.found.assumed |= jumps || !fun.indirect.is_empty();
        Some(())
    }

    /// Where the target of a stub's jump is stored.
    fn slot(&self, (f, jump): (usize, u32)) -> Option<u64> {
        let fun = &self.w.funs[f];
        fun.operands(&fun.insts[jump as usize]).first().map(|m| m.disp)
    }
}

/// The jump of a stub of the dynamic linker that begins at instruction `first`.
fn stub(fun: &Decoded, first: u32) -> Option<u32> {
    (first..first + 2).find(|&idx| {
        fun.insts.get(idx as usize).is_some_and(|inst| {
            let near = u64::from(inst.off) - u64::from(fun.insts[first as usize].off) < STUB_BYTES;
            let known = |m: &Mem| m.base >= 16 && m.index >= 16 && m.kind == MemKind::Explicit;
            near && inst.flow == Flow::End && fun.operands(inst).first().is_some_and(known)
        })
    })
}
