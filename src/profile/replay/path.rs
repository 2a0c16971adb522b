//! The path of instructions before the sampled one, and after it.
//!
//! Backwards only certain steps are taken: a single predecessor, or the only one of several that neither the
//! sampled flags nor the sampled registers contradict. Every step carries the register knowledge back, so a wrong path
//! usually ends in a contradiction: a loop's entry sets the counter to 0 or leaves other flags than the sample has.

use super::cfg::{Decoded, Pred};
use super::eval;
use super::flags::{self, Flags};
use super::inst::{FlagKind, FlagOperation, Flow, Inst, Source};
use super::state::{Contradiction, State, mask};

/// Most instructions before the sampled one; unrolled vector loop bodies are up to about 100.
const MAX_BACK: usize = 128;
/// Instructions tried along each way into a merge, by how many trials may still be nested: loop bodies in the outer
/// trial, the next few blocks in a nested one.
const MAX_TRIAL: [usize; 2] = [24, 96];
/// Merges resolved inside a trial.
const TRIAL_DEPTH: u8 = 1;
/// Ways into one instruction that are compared; an instruction with more is a shared exit or a dispatcher.
const MAX_WAYS: usize = 8;
/// Arithmetic flags that must agree before the agreement counts as evidence: one flag alone agrees by chance.
const EVIDENCE_FLAGS: u32 = 4;
/// Branches whose flags are still to be found.
const MAX_PENDING: usize = 4;
/// Steps of a whole search, trials included: about 10 us at most, in code where every block has several predecessors.
const MAX_WORK: u32 = 500;
/// Instructions searched before a supposed loop entry.
const MAX_ENTRY: usize = 96;
/// Instructions evaluated from the sampled one on.
const MAX_AHEAD: usize = 64;

/// Conditions of je and jne, as encoded.
const CC_EQUAL: u8 = 4;
const CC_UNEQUAL: u8 = 5;

/// Why the path backwards ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The sampled instruction itself: one whole iteration of a loop.
    Loop,
    /// An instruction already on the path: an inner loop.
    Repeat,
    /// A call, the function's start, or an instruction without a known predecessor.
    Outside,
    /// Several ways into the instruction remain possible.
    Merge,
    /// The limit of instructions or of work.
    Limit,
    /// The path contradicts the sample.
    Wrong,
}

/// Knowledge of the flags along the path backwards.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tracker {
    /// Sampled flags not yet overwritten, seen backwards.
    known: u16,
    pending: [(u8, bool); MAX_PENDING],
    pending_len: u8,
    /// Instructions whose computed flags agree with the sampled ones.
    evidence: u8,
}

impl Tracker {
    /// At the sample: all arithmetic flags are known.
    pub(super) fn sampled() -> Tracker {
        Tracker { known: flags::ARITHMETIC, ..Tracker::default() }
    }

    /// Whether the way so far needs that the zero flag was set by the instruction that wrote it last.
    fn zero(&self, sampled: u16) -> bool {
        let pending = &self.pending[..self.pending_len as usize];
        self.known & sampled & flags::ZF != 0
            || pending.iter().any(|p| matches!(p, (CC_EQUAL, true) | (CC_UNEQUAL, false)))
    }

    /// What the outcome of a comparison says of its operands: they were equal.
    pub(super) fn equal(&self, inst: &Inst, pre: &mut State, sampled: u16) -> Result<(), Contradiction> {
        let Some(FlagOperation { kind, a, b, width }) = inst.flags.operation else { return Ok(()) };
        if inst.written != 0 || !matches!(width, 4 | 8) || !self.zero(sampled) {
            return Ok(());
        }
        let set = |pre: &mut State, r, v| if width == 8 { pre.set(r, v) } else { pre.set_low(r, v) };
        match (kind, b) {
            (FlagKind::And, Source::Reg(r)) if r == a => set(pre, a, 0),
            (FlagKind::Sub, Source::Imm(v)) => set(pre, a, v as u64 & mask(width)),
            (FlagKind::Sub, Source::Reg(b)) => match (pre.narrow(a, width), pre.narrow(b, width)) {
                (Some(v), None) => set(pre, b, v),
                (None, Some(v)) => set(pre, a, v),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// After one more instruction backwards, of which `pre` is known; `sampled` are the sampled flags. `outcome` is the
    /// condition that it looked at and whether it held.
    pub(super) fn before(
        &self,
        inst: &Inst,
        pre: &State,
        outcome: Option<(u8, bool)>,
        sampled: u16,
    ) -> Result<Tracker, Contradiction> {
        let mut t = *self;
        if let Some((cc, taken)) = outcome {
            match flags::holds(cc, Flags { value: sampled, known: t.known }) {
                Some(held) if held != taken => return Err(Contradiction),
                Some(_) => {}
                None if (t.pending_len as usize) < MAX_PENDING => {
                    t.pending[t.pending_len as usize] = (cc, taken);
                    t.pending_len += 1;
                }
                None => {}
            }
        }
        let modified = inst.flags.modified;
        if modified == 0 {
            return Ok(t);
        }
        let result = inst.flags.result(pre);
        let compared = result.known & t.known;
        if (result.value ^ sampled) & compared != 0 {
            return Err(Contradiction);
        }
        if compared.count_ones() >= EVIDENCE_FLAGS {
            t.evidence = t.evidence.saturating_add(1);
        }
        let kept = t.known & !modified;
        let after = Flags { value: (sampled & kept) | (result.value & result.known), known: kept | result.known };
        let mut n = 0;
        for k in 0..t.pending_len as usize {
            let (cc, way) = t.pending[k];
            if flags::holds(cc, after).is_some_and(|held| held != way) {
                return Err(Contradiction);
            }
            if flags::needed(cc) & modified == 0 {
                t.pending[n] = (cc, way);
                n += 1;
            }
        }
        t.pending_len = n as u8;
        t.known = kept;
        Ok(t)
    }
}

/// Buffers and result of a walk; reused for every sample.
#[derive(Debug, Default)]
pub(super) struct Path {
    /// Instructions before the sampled one, nearest first.
    pub(super) steps: Vec<u32>,
    /// `states[0]` is the sample, `states[k + 1]` is before `steps[k]`.
    pub(super) states: Vec<State>,
    /// Steps from here on took an ambiguous back-edge.
    pub(super) loop_from: usize,
    /// Steps from here on took a back-edge that is only much more likely than the other ways.
    pub(super) likely_from: usize,
    /// Instructions from the sampled one on, each with the registers before it.
    pub(super) ahead: Vec<(u32, State)>,
}

struct Walk<'a> {
    fun: &'a Decoded,
    path: &'a mut Path,
    ip: u32,
    sampled: u16,
    tracker: Tracker,
    /// Steps left of [`MAX_WORK`].
    work: u32,
    /// The only way into the last undecided merge that leads back to the sampled instruction.
    looping: Option<Pred>,
}

/// Finds the path before and after the sampled instruction, and the register knowledge along it.
pub(super) fn find(fun: &Decoded, ip: u32, gpr: &[u64; 16], rflags: u64, path: &mut Path) -> Stop {
    path.steps.clear();
    path.states.clear();
    path.states.push(State::sampled(gpr));
    path.likely_from = if fun.open { 0 } else { usize::MAX };
    let tracker = Tracker::sampled();
    let mut walk = Walk { fun, path, ip, sampled: rflags as u16, tracker, work: MAX_WORK, looping: None };
    let stop = walk.run();
    fill(fun, path, rflags);
    look_ahead(fun, ip, rflags, path);
    stop
}

/// One way into a merge after its trial.
#[derive(Debug, Clone, Copy)]
struct Trial {
    way: Pred,
    stop: Stop,
    evidence: bool,
}

impl Walk<'_> {
    fn run(&mut self) -> Stop {
        let stop = self.extend(MAX_BACK, TRIAL_DEPTH);
        self.path.loop_from = self.path.steps.len();
        match stop {
            Stop::Wrong => {
                self.doubt();
                Stop::Wrong
            }
            Stop::Merge => self.guess_loop(),
            other => other,
        }
    }

    /// After a contradiction: there is an unknown way into a block between it and the sample. Which one is not known,
    /// so only the sampled block is certain. The steps before the farthest such block are not part of the path.
    fn doubt(&mut self) {
        let leads = |s: u32| self.fun.insts[s as usize].leader;
        while self.path.steps.last().is_some_and(|&s| !leads(s)) {
            self.pop();
        }
        self.path.loop_from = self.path.steps.len();
        let sampled = std::iter::once(self.ip).chain(self.path.steps.iter().copied());
        let certain = sampled.take_while(|&s| !leads(s)).count();
        self.path.likely_from = self.path.likely_from.min(certain);
    }

    /// At an undecided merge: follows the only way that leads back to the sampled instruction.
    fn guess_loop(&mut self) -> Stop {
        if let Some(Pred::From { inst, taken }) = self.looping
            && self.step(inst, taken).is_ok()
            && inst != self.ip
        {
            self.extend(MAX_BACK, TRIAL_DEPTH);
        }
        Stop::Merge
    }

    fn extend(&mut self, limit: usize, depth: u8) -> Stop {
        let mut ways = [Pred::Outside; MAX_WAYS];
        while self.path.steps.len() < limit && self.work > 0 {
            let Some(n) = self.ways(&mut ways) else {
                self.looping = None;
                return Stop::Merge;
            };
            let way = match n {
                0 => return Stop::Outside,
                1 => ways[0],
                _ => match self.choose(&ways[..n], depth) {
                    Ok(way) => way,
                    Err(stop) => return stop,
                },
            };
            let Pred::From { inst, taken } = way else { return Stop::Outside };
            if taken && inst != self.ip && self.path.steps.contains(&inst) {
                return Stop::Repeat;
            }
            if self.step(inst, taken).is_err() {
                return Stop::Wrong;
            }
            if inst == self.ip {
                return Stop::Loop;
            }
        }
        Stop::Limit
    }

    /// The ways into the path's first instruction; None when there are too many.
    fn ways(&self, out: &mut [Pred; MAX_WAYS]) -> Option<usize> {
        let cur = self.path.steps.last().copied().unwrap_or(self.ip);
        let mut n = 0;
        for way in self.fun.preds(cur) {
            *out.get_mut(n)? = way;
            n += 1;
        }
        Some(n)
    }

    /// The one way into a merge that can have been taken.
    fn choose(&mut self, ways: &[Pred], depth: u8) -> Result<Pred, Stop> {
        let mut left = [Trial { way: Pred::Outside, stop: Stop::Outside, evidence: false }; MAX_WAYS];
        let mut n = 0;
        for &way in ways {
            if let Some(t) = self.trial(way, 1, 0) {
                left[n] = t;
                n += 1;
            }
        }
        if n > 1 && depth > 0 {
            let mut kept = 0;
            for i in 0..n {
                if let Some(t) = self.trial(left[i].way, MAX_TRIAL[usize::from(depth.min(1))], depth - 1) {
                    left[kept] = t;
                    kept += 1;
                }
            }
            n = kept;
        }
        match n {
            0 => Err(Stop::Wrong),
            1 => Ok(left[0].way),
            _ => self.undecided(&left[..n]),
        }
    }

    /// Takes a back-edge whose computed flags agree with the sampled ones, when no other way has such evidence: loop
    /// bodies run more often than their entries. Otherwise the merge stays undecided.
    fn undecided(&mut self, left: &[Trial]) -> Result<Pred, Stop> {
        let mut confirmed = left.iter().filter(|t| t.evidence);
        if let (Some(t), None) = (confirmed.next(), confirmed.next())
            && matches!(t.stop, Stop::Loop | Stop::Repeat)
        {
            self.path.likely_from = self.path.likely_from.min(self.path.steps.len());
            return Ok(t.way);
        }
        let mut looping = left.iter().filter(|t| t.stop == Stop::Loop);
        self.looping = match (looping.next(), looping.next()) {
            (Some(t), None) if left.iter().all(|o| o.way == t.way || self.enters(o.way)) => Some(t.way),
            _ => None,
        };
        Err(Stop::Merge)
    }

    /// Whether `way` into the current merge comes from outside the loop: the sampled instruction cannot have led to it
    /// except through the merge. Without this check two branches of one loop body would be taken for loop and entry.
    fn enters(&self, way: Pred) -> bool {
        let merge = self.path.steps.last().copied().unwrap_or(self.ip);
        let mut seen = [0u32; MAX_ENTRY];
        let (mut next, mut len) = (0, 0);
        let mut ways = vec![way];
        loop {
            for w in ways.drain(..) {
                let Pred::From { inst, .. } = w else { continue };
                if inst == merge || seen[..len].contains(&inst) {
                    continue;
                }
                if inst == self.ip || len == MAX_ENTRY {
                    return false;
                }
                seen[len] = inst;
                len += 1;
            }
            if next == len {
                return true;
            }
            ways.extend(self.fun.preds(seen[next]));
            next += 1;
        }
    }

    /// Follows `way` for up to `more` instructions and restores the path. None when the way contradicts the sample.
    fn trial(&mut self, way: Pred, more: usize, depth: u8) -> Option<Trial> {
        let Pred::From { inst, taken } = way else {
            return Some(Trial { way, stop: Stop::Outside, evidence: false });
        };
        let (len, tracker, likely_from) = (self.path.steps.len(), self.tracker, self.path.likely_from);
        let seen = inst != self.ip && self.path.steps.contains(&inst);
        let stop = if self.step(inst, taken).is_err() {
            Stop::Wrong
        } else if inst == self.ip {
            Stop::Loop
        } else if seen {
            Stop::Repeat
        } else {
            self.extend((len + more).min(MAX_BACK), depth)
        };
        let evidence = self.tracker.evidence > tracker.evidence;
        self.path.steps.truncate(len);
        self.path.states.truncate(len + 1);
        (self.tracker, self.path.likely_from) = (tracker, likely_from);
        (stop != Stop::Wrong).then_some(Trial { way, stop, evidence })
    }

    fn pop(&mut self) {
        self.path.steps.pop();
        self.path.states.pop();
    }

    /// Prepends one instruction to the path. A contradiction leaves the path unchanged.
    fn step(&mut self, idx: u32, taken: bool) -> Result<(), Contradiction> {
        self.work = self.work.saturating_sub(1);
        let inst = &self.fun.insts[idx as usize];
        let post = self.path.states.last().ok_or(Contradiction)?;
        let mut pre = State::UNKNOWN;
        eval::undo(inst, &mut pre, post)?;
        self.tracker.equal(inst, &mut pre, self.sampled)?;
        self.tracker = self.tracker.before(inst, &pre, inst.outcome(taken), self.sampled)?;
        self.path.steps.push(idx);
        self.path.states.push(pre);
        Ok(())
    }
}

/// Evaluates forwards from the path's start and backwards again until no knowledge is added. A contradiction only stops
/// this: the knowledge so far stays valid for the path. Nothing goes from the guessed or likely steps to the certain
/// ones, whose addresses would then be taken for certain, too.
fn fill(fun: &Decoded, path: &mut Path, rflags: u64) {
    const PASSES: usize = 2;
    let inst = |k: usize| &fun.insts[path.steps[k] as usize];
    for _ in 0..PASSES {
        let mut added = false;
        let mut flags = Flags::default();
        for k in (0..path.steps.len()).rev() {
            let (newer, older) = path.states.split_at_mut(k + 1);
            let before_it = flags;
            flags = inst(k).flags.apply(flags, &older[0]);
            if k == path.loop_from || k == path.likely_from {
                flags = Flags::default();
                continue;
            }
            let before = newer[k].knowledge();
            if before == 32 {
                continue;
            }
            if eval::forward(inst(k), (&older[0], before_it), &mut newer[k], rflags).is_err() {
                return;
            }
            added |= newer[k].knowledge() != before;
        }
        if !added {
            return;
        }
        for k in 0..path.steps.len() {
            let (newer, older) = path.states.split_at_mut(k + 1);
            if eval::undo(inst(k), &mut older[0], &newer[k]).is_err() {
                return;
            }
        }
    }
}

/// Evaluates from the sampled instruction as far as branches can be decided, at most one iteration of a loop.
fn look_ahead(fun: &Decoded, ip: u32, rflags: u64, path: &mut Path) {
    path.ahead.clear();
    let mut state = path.states[0];
    let mut flags = Flags { value: rflags as u16, known: flags::ARITHMETIC };
    let mut idx = ip;
    while path.ahead.len() < MAX_AHEAD {
        let Some(inst) = fun.insts.get(idx as usize) else { return };
        path.ahead.push((idx, state));
        let mut post = State::UNKNOWN;
        if eval::forward(inst, (&state, flags), &mut post, rflags).is_err() {
            return;
        }
        let taken = match inst.flow {
            Flow::Next => false,
            Flow::Jump(_) => true,
            Flow::Cond { cc, .. } => match cc.and_then(|cc| flags::holds(cc, flags)) {
                Some(taken) => taken,
                None => return,
            },
            Flow::Call | Flow::End => return,
        };
        flags = inst.flags.apply(flags, &state);
        state = post;
        idx = match inst.flow {
            Flow::Jump(t) | Flow::Cond { target: t, .. } if taken => match t {
                Some(t) => t,
                None => return,
            },
            _ => idx + 1,
        };
        if (taken || idx == ip) && path.ahead.iter().any(|&(i, _)| i == idx) {
            return;
        }
    }
}
