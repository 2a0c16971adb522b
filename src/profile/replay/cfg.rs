//! A decoded function: instructions, operands and the predecessors of each; and a bounded cache of decoded functions.
//!
//! Refuses functions above [`MAX_FUNCTION_BYTES`] and bytes that do not decode at the sampled address. Targets
//! of indirect jumps are not known; an instruction without a known way in has no predecessor.

use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory};
use rustc_hash::FxHashMap;

use super::decode;
use super::inst::{Copied, Effect, Flow, Inst, Mem, NO_REG};
use super::types::{self, CodeSource, Function};
use super::vector::{self, Vector};

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
    /// What instructions do to vector registers, by index of the instruction; empty in a function without gathers.
    vectors: Vec<(u32, Vector)>,
    /// (target, source) of every direct branch inside the function, sorted.
    branches: Vec<(u32, u32)>,
    /// Calls and branches that leave the function, and their targets as run-time addresses; ascending.
    pub(super) leaving: Vec<(u32, u64)>,
    /// Returns.
    pub(super) returns: Vec<u32>,
    /// Jumps to an address in a register or in memory whose table was not found.
    pub(super) indirect: Vec<u32>,
    /// Some of these lead to places inside of the function, which may be any.
    pub(super) open: bool,
    /// Instructions to which other functions jump, ascending; the first one is not counted.
    entered: Vec<u32>,
}

/// How far before and behind a function others are looked at that may jump into it, bytes: functions written in
/// assembler that share code lie beside each other (the variants of memmove in glibc: 144 bytes).
const NEAR: u64 = 1 << 10;
/// Functions begin at multiples of this.
const ALIGNMENT: u64 = 16;
/// Larger functions do not share code, bytes.
const MAX_SHARING: usize = 8 << 10;

/// Entries of a jump table that are read at most.
const MAX_TABLE: u64 = 1024;
/// Instructions before a jump in which its table is looked for.
const TABLE_SEARCH: u32 = 200;

/// A jump table: 4 bytes relative to its start for each case, or 8 bytes with the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Table {
    at: u64,
    relative: bool,
}

/// A way into an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pred {
    /// From an instruction, by its branch when `taken`.
    From { inst: u32, taken: bool },
    /// From code that is not on a path: the caller (at the function's start), a call's return, or another function's
    /// jump.
    Outside,
}

impl Decoded {
    /// Decodes a whole function by linear sweep; bytes that are not an instruction are skipped one by one.
    pub(super) fn new(f: &Function<'_>) -> Decoded {
        let mut decoder = Decoder::with_ip(64, f.code, f.start, DecoderOptions::NONE);
        let mut factory = InstructionInfoFactory::new();
        let mut insts: Vec<Inst> = Vec::with_capacity(f.code.len() / 4);
        let mut mems = Vec::new();
        let mut vectors: Vec<(u32, Vector)> = Vec::new();
        let mut targets: Vec<(u32, u32)> = Vec::new(); // (target offset, source)
        let (mut leaving, mut returns, mut indirect) = (Vec::new(), Vec::new(), Vec::new());
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
                } else {
                    leaving.push((insts.len() as u32, i.near_branch_target()));
                }
            }
            match i.flow_control() {
                FlowControl::Call => leaving.push((insts.len() as u32, i.near_branch_target())),
                FlowControl::Return => returns.push(insts.len() as u32),
                FlowControl::IndirectBranch => indirect.push(insts.len() as u32),
                _ => {}
            }
            vectors.extend(vector::lower(&i).map(|v| (insts.len() as u32, v)));
            inst.leader = insts.last().is_none_or(|p| p.flow != Flow::Next);
            insts.push(inst);
        }
        if vectors.iter().all(|(_, v)| v.lanes.is_none()) {
            vectors = Vec::new();
        }
        let branches = Vec::new();
        let mut decoded = Decoded {
            start: f.start,
            insts,
            mems,
            vectors,
            branches,
            leaving,
            returns,
            indirect,
            open: false,
            entered: Vec::new(),
        };
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

    /// Adds the places to which other functions jump: neighbours, and functions that this one jumps to, such as its
    /// cold part, which leads back.
    fn add_entries(&mut self, bytes: u64, code: &mut dyn CodeSource) {
        let (start, end) = (self.start, self.start.saturating_add(bytes));
        let near = (0..NEAR / ALIGNMENT).map(|k| k * ALIGNMENT);
        let (first, behind) = (start & !(ALIGNMENT - 1), end.checked_next_multiple_of(ALIGNMENT).unwrap_or(end));
        let before = near.clone().map(|k| first.wrapping_sub(ALIGNMENT + k));
        let jumped_to = self.leaving.iter().filter(|(idx, _)| !self.insts[*idx as usize].is_call()).map(|l| l.1);
        let places: Vec<u64> = before.chain(near.map(|k| behind.wrapping_add(k))).chain(jumped_to).collect();
        let (mut seen, mut entered): (Vec<u64>, Vec<u32>) = (Vec::new(), Vec::new());
        for place in places {
            let Some(other) = code.function_at(place) else { continue };
            let is_apart = other.start >= end || other.start.saturating_add(other.code.len() as u64) <= start;
            if !is_apart || other.code.len() > MAX_SHARING || seen.contains(&other.start) {
                continue;
            }
            seen.push(other.start);
            let jumps = jumps(&other).filter(|target| (start + 1..end).contains(target));
            entered.extend(jumps.filter_map(|target| self.at_offset((target - start) as u32)));
        }
        entered.sort_unstable();
        entered.dedup();
        entered.iter().for_each(|&idx| self.insts[idx as usize].leader = true);
        self.entered = entered;
    }

    /// Whether another function jumps to this instruction, which is not the first one.
    pub(super) fn is_entered(&self, inst: u32) -> bool {
        self.entered.binary_search(&inst).is_ok()
    }

    /// Adds the branches of jump tables in read-only data.
    fn add_tables(&mut self, code: &mut dyn CodeSource) {
        let mut left = Vec::new();
        for jump in std::mem::take(&mut self.indirect) {
            let mut targets: Vec<u32> = match self.table(jump) {
                Some(table) => (0..MAX_TABLE).map_while(|k| self.case(table, k, code)).flatten().collect(),
                None => Vec::new(),
            };
            targets.sort_unstable();
            targets.dedup();
            if targets.is_empty() {
                left.push(jump);
            }
            for target in targets {
                self.insts[target as usize].leader = true;
                self.branches.push((target, jump));
            }
        }
        self.indirect = left;
        self.branches.sort_unstable();
        let orphan = |&idx: &u32| self.insts[idx as usize].leader && self.preds(idx).next().is_none();
        self.open = !self.indirect.is_empty() && (0..self.insts.len() as u32).any(|idx| orphan(&idx));
    }

    /// Where a jump table leads in case `k`, inside of the function or elsewhere in the code (its cold part); None
    /// behind the table's end.
    fn case(&self, table: Table, k: u64, code: &mut dyn CodeSource) -> Option<Option<u32>> {
        let target = if table.relative {
            let offset = types::constant(code, table.at.wrapping_add(4 * k), 4)? as u32 as i32;
            table.at.wrapping_add(offset as u64)
        } else {
            types::constant(code, table.at.wrapping_add(8 * k), 8)?
        };
        let inside = self.at(target);
        (inside.is_some() || code.function_at(target).is_some_and(|f| f.start != self.start)).then_some(inside)
    }

    /// The table that an indirect jump goes by: `jmp [table + r*8]`, or a load from `[table + r*4]` or `[table + r*8]`
    /// into the register that it jumps to.
    fn table(&self, jump: u32) -> Option<Table> {
        let operand = |inst: &Inst| self.operands(inst).iter().find(|m| m.read && m.index != NO_REG).copied();
        let inst = &self.insts[jump as usize];
        let (from, mem, relative) = match operand(inst) {
            Some(mem) => (jump, mem, false),
            None => {
                let before = (jump.saturating_sub(TABLE_SEARCH / 8)..jump).rev();
                let loads = |idx: &u32| {
                    let inst = &self.insts[*idx as usize];
                    matches!(inst.copied, Some(Copied::Load { size: 4 | 8, to: 8, .. })) && operand(inst).is_some()
                };
                let idx = before.into_iter().find(loads)?;
                let mem = operand(&self.insts[idx as usize])?;
                (idx, mem, mem.scale == 4)
            }
        };
        if mem.base == NO_REG {
            return Some(Table { at: mem.disp, relative });
        }
        let sets = |idx: &u32| self.insts[*idx as usize].written & 1u16.checked_shl(mem.base.into()).unwrap_or(0) != 0;
        let setter = (from.saturating_sub(TABLE_SEARCH)..from).rev().find(sets)?;
        match self.insts[setter as usize].effect {
            Effect::Linear { base: NO_REG, index: NO_REG, disp, .. } => {
                Some(Table { at: (disp as u64).wrapping_add(mem.disp), relative })
            }
            _ => None,
        }
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

    /// Where a call or branch goes when that is outside of the function and known.
    pub(super) fn target_outside(&self, inst: u32) -> Option<u64> {
        self.leaving.binary_search_by_key(&inst, |l| l.0).ok().map(|k| self.leaving[k].1)
    }

    /// What an instruction does to vector registers, in a function with gathers.
    pub(super) fn vector(&self, inst: u32) -> Option<&Vector> {
        let found = self.vectors.binary_search_by_key(&inst, |v| v.0).ok()?;
        Some(&self.vectors[found].1)
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
        let entered = self.is_entered(inst).then_some(Pred::Outside);
        fall.into_iter().chain(jumps.map(|&(_, s)| Pred::From { inst: s, taken: true })).chain(entered)
    }

    /// Whether a backward branch spans the instruction, so that it may be executed again.
    pub(super) fn in_loop(&self, inst: u32) -> bool {
        self.branches.iter().take_while(|&&(t, _)| t <= inst).any(|&(_, s)| s >= inst)
    }
}

/// Where the direct jumps of a function lead.
fn jumps<'a>(f: &Function<'a>) -> impl Iterator<Item = u64> + use<'a> {
    let mut decoder = Decoder::with_ip(64, f.code, f.start, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode())).filter_map(|i| {
        let jumps = matches!(i.flow_control(), FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch);
        jumps.then(|| i.near_branch_target())
    })
}

/// Decoded functions by address space and start.
#[derive(Debug, Default)]
pub(super) struct Cache {
    functions: FxHashMap<(u64, u64), Arc<Decoded>>,
    instructions: usize,
}

impl Cache {
    /// The decoded function that holds `ip`, None when it is too large or its code is not known.
    pub(super) fn get(&mut self, ip: u64, code: &mut dyn CodeSource) -> Option<Arc<Decoded>> {
        let f = code.function_at(ip)?;
        let place = (f.key, f.start);
        if let Some(d) = self.functions.get(&place) {
            return Some(Arc::clone(d));
        }
        if f.code.len() > MAX_FUNCTION_BYTES {
            return None;
        }
        let (mut decoded, bytes) = (Decoded::new(&f), f.code.len() as u64);
        decoded.add_entries(bytes, code);
        decoded.add_tables(code);
        let decoded = Arc::new(decoded);
        if self.instructions + decoded.insts.len() > MAX_CACHED_INSTRUCTIONS {
            self.functions.clear();
            self.instructions = 0;
        }
        self.instructions += decoded.insts.len();
        self.functions.insert(place, Arc::clone(&decoded));
        Some(decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mov rax, [rbx]; inc rax; ret
    const FIRST: [u8; 7] = [0x48, 0x8b, 0x03, 0x48, 0xff, 0xc0, 0xc3];
    const FIRST_START: u64 = 0x1000;
    /// Jumps to the `inc` of the first one.
    const SECOND: [u8; 2] = [0xeb, 0xf1];
    const SECOND_START: u64 = 0x1010;

    struct Two(&'static [(u64, &'static [u8])]);

    impl CodeSource for Two {
        fn function_at(&mut self, ip: u64) -> Option<Function<'_>> {
            let holds = |&&(start, code): &&(u64, &[u8])| (start..start + code.len() as u64).contains(&ip);
            self.0.iter().find(holds).map(|&(start, code)| Function { key: 0, start, code })
        }
    }

    #[test]
    fn a_jump_of_another_function_is_a_way_in() {
        let ways = |code: &'static [(u64, &'static [u8])]| {
            let decoded = Cache::default().get(FIRST_START, &mut Two(code)).expect("code");
            decoded.preds(1).collect::<Vec<_>>()
        };
        let falls = Pred::From { inst: 0, taken: false };
        assert_eq!(ways(&[(FIRST_START, &FIRST)]), [falls]);
        assert_eq!(ways(&[(FIRST_START, &FIRST), (SECOND_START, &SECOND)]), [falls, Pred::Outside]);
    }
}
