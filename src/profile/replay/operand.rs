//! What an instruction with a constant operand has waited for.
//!
//! A constant of the code, read-only data at a fixed place, is read again and again, so that it is in the first-level
//! cache where its loop matters at all. `mulpd constant(%rip), %xmm0` right behind `movupd (%rax), %xmm0` waits for the
//! load that gave its other operand: an instruction is done when all of its operands are there. So the load is charged
//! from which, within the block, a register operand comes.

use super::access;
use super::cfg::Decoded;
use super::inst::{Mem, MemKind, NO_REG, Segment};
use super::path::Path;
use super::types::CodeSource;

/// Largest constant that is looked at: a vector of 64 bytes.
const LARGEST: usize = 64;

/// The step of the load that the instruction of step `k` has waited for, where its own read is of a constant.
pub(super) fn waited_for(fun: &Decoded, path: &Path, k: usize, code: &mut dyn CodeSource) -> Option<usize> {
    let at = |k: usize| &fun.insts[path.steps[k] as usize];
    let mut wanted = at(k).reads;
    if !is_constant(access::principal(fun.operands(at(k)))?, code) {
        return None;
    }
    for j in k + 1..path.loop_from.min(path.steps.len()) {
        let inst = at(j);
        // Before its first instruction, another block may have been executed.
        if at(j - 1).leader || wanted == 0 {
            return None;
        }
        if inst.sets & wanted == 0 {
            continue;
        }
        match access::principal(fun.operands(inst)) {
            Some(mem) if mem.read && mem.kind == MemKind::Explicit && !fixed(mem) => return Some(j),
            _ => wanted = wanted & !inst.sets | inst.reads,
        }
    }
    None
}

/// Whether the place does not depend on registers.
fn fixed(mem: &Mem) -> bool {
    mem.base == NO_REG && mem.index == NO_REG && mem.segment == Segment::Flat
}

fn is_constant(mem: &Mem, code: &mut dyn CodeSource) -> bool {
    let mut bytes = [0; LARGEST];
    mem.kind == MemKind::Explicit
        && fixed(mem)
        && mem.read
        && !mem.write
        && bytes.get_mut(..usize::from(mem.size)).is_some_and(|bytes| code.constant(mem.disp, bytes))
}
