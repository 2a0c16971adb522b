//! A decoded function: instructions, operands and the predecessors of each; and a bounded cache of decoded functions.
//!
//! Refuses functions above [`MAX_FUNCTION_BYTES`] and bytes that do not decode at the sampled address. Targets
//! of indirect jumps are not known; an instruction without a known way in has no predecessor.

use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};
use rustc_hash::FxHashMap;

use super::decode;
use super::inst::{Flow, Inst, Mem};
use super::types::Function;

/// Larger functions are refused: decoding costs 25 ms per MiB and the result about 30 bytes per byte of code.
pub(super) const MAX_FUNCTION_BYTES: usize = 512 << 10;
/// Instructions kept over all functions (about 40 MiB); the cache is emptied when they would be more.
const MAX_CACHED_INSTRUCTIONS: usize = 400_000;

/// One function, decoded.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) start: u64,
    pub(super) insts: Vec<Inst>,
    pub(super) mems: Vec<Mem>,
    /// (target, source) of every direct branch inside the function, sorted.
    branches: Vec<(u32, u32)>,
}

/// A way into an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pred {
    /// From an instruction, by its branch when `taken`.
    From { inst: u32, taken: bool },
    /// From code that is not on a path: the caller (at the function's start) or a call's return.
    Outside,
}

impl Decoded {
    /// Decodes a whole function by linear sweep; bytes that are not an instruction are skipped one by one.
    pub(super) fn new(f: &Function<'_>) -> Decoded {
        let mut decoder = Decoder::with_ip(64, f.code, f.start, DecoderOptions::NONE);
        let mut factory = InstructionInfoFactory::new();
        let mut insts: Vec<Inst> = Vec::with_capacity(f.code.len() / 4);
        let mut mems = Vec::new();
        let mut targets: Vec<(u32, u32)> = Vec::new(); // (target offset, source)
        let mut i = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut i);
            if i.is_invalid() {
                continue;
            }
            let mut inst = decode::lower(&i, (i.ip() - f.start) as u32, &mut factory, &mut mems);
            if matches!(inst.flow, Flow::Jump(_) | Flow::Cond { .. }) {
                let off = i.near_branch_target().wrapping_sub(f.start);
                if off < f.code.len() as u64 {
                    targets.push((off as u32, insts.len() as u32));
                }
            }
            inst.leader = insts.last().is_none_or(|p| p.flow != Flow::Next);
            insts.push(inst);
        }
        let mut decoded = Decoded { start: f.start, insts, mems, branches: Vec::new() };
        decoded.link(&targets);
        decoded
    }

    fn link(&mut self, targets: &[(u32, u32)]) {
        for inst in &mut self.insts {
            if let Flow::Jump(t) | Flow::Cond { target: t, .. } = &mut inst.flow {
                *t = None;
            }
        }
        for &(off, source) in targets {
            let Some(target) = self.at_offset(off) else { continue };
            self.insts[target as usize].leader = true;
            if let Flow::Jump(t) | Flow::Cond { target: t, .. } = &mut self.insts[source as usize].flow {
                *t = Some(target);
            }
            self.branches.push((target, source));
        }
        self.branches.sort_unstable();
    }

    fn at_offset(&self, off: u32) -> Option<u32> {
        self.insts.binary_search_by_key(&off, |i| i.off).ok().map(|i| i as u32)
    }

    /// The instruction that starts at `ip`.
    pub(super) fn at(&self, ip: u64) -> Option<u32> {
        u32::try_from(ip.wrapping_sub(self.start)).ok().and_then(|off| self.at_offset(off))
    }

    /// Runtime address of an instruction.
    pub(super) fn ip(&self, inst: u32) -> u64 {
        self.start + u64::from(self.insts[inst as usize].off)
    }

    /// Memory operands of an instruction.
    pub(super) fn operands(&self, inst: &Inst) -> &[Mem] {
        let first = inst.mem_first as usize;
        &self.mems[first..first + inst.mem_count as usize]
    }

    /// Every way into `inst`: falling into it first, then branches in address order.
    pub(super) fn preds(&self, inst: u32) -> impl Iterator<Item = Pred> + '_ {
        let fall = match inst.checked_sub(1) {
            None => Some(Pred::Outside),
            Some(p) => match self.insts[p as usize].flow {
                Flow::Next | Flow::Cond { .. } => Some(Pred::From { inst: p, taken: false }),
                Flow::Call => Some(Pred::Outside),
                Flow::Jump(_) | Flow::End => None,
            },
        };
        let first = self.branches.partition_point(|&(t, _)| t < inst);
        let jumps = self.branches[first..].iter().take_while(move |&&(t, _)| t == inst);
        fall.into_iter().chain(jumps.map(|&(_, s)| Pred::From { inst: s, taken: true }))
    }

    /// Whether a backward branch spans the instruction, so that it may be executed again.
    pub(super) fn in_loop(&self, inst: u32) -> bool {
        self.branches.iter().take_while(|&&(t, _)| t <= inst).any(|&(_, s)| s >= inst)
    }
}

/// Decoded functions by address space and start.
#[derive(Debug, Default)]
pub(super) struct Cache {
    functions: FxHashMap<(u64, u64), Arc<Decoded>>,
    instructions: usize,
}

impl Cache {
    /// The decoded function, None when it is too large.
    pub(super) fn get(&mut self, f: &Function<'_>) -> Option<Arc<Decoded>> {
        if let Some(d) = self.functions.get(&(f.key, f.start)) {
            return Some(Arc::clone(d));
        }
        if f.code.len() > MAX_FUNCTION_BYTES {
            return None;
        }
        let decoded = Arc::new(Decoded::new(f));
        if self.instructions + decoded.insts.len() > MAX_CACHED_INSTRUCTIONS {
            self.functions.clear();
            self.instructions = 0;
        }
        self.instructions += decoded.insts.len();
        self.functions.insert((f.key, f.start), Arc::clone(&decoded));
        Some(decoded)
    }
}
