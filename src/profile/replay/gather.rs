//! The addresses of a gather or scatter: its indices are in a vector register, which is not sampled, but most often
//! they were loaded from memory just before. The program's memory is read for them as it is by now; an index that has
//! changed since is seldom, and named by nothing more than [`Certainty::Page`]. Lanes that a mask leaves out are not
//! known: only when all lanes fall into one object do they count.

use super::access;
use super::cfg::Decoded;
use super::path::Path;
use super::types::{CodeSource, ReplayAccess};
use super::vector::{LARGEST, Lanes, Made};
use crate::profile::perf::Regs;
use crate::profile::records::Certainty;

/// Copies between registers that are followed.
const MOST_COPIES: usize = 4;

/// Replaces the object that a waiting gather is known by with the addresses of its lanes, the first of which carries
/// the cost. False, and `out` as it was, when these are not known.
pub(super) fn resolve(
    fun: &Decoded,
    path: &Path,
    regs: &Regs,
    code: &mut dyn CodeSource,
    out: &mut Vec<ReplayAccess>,
) -> bool {
    let certain = path.steps.len().min(path.loop_from);
    let nearest = (0..certain).find_map(|k| fun.vector(path.steps[k])?.lanes.map(|lanes| (k, lanes)));
    let Some((k, lanes)) = nearest else { return false };
    let Some(found) = accesses(fun, (path, certain), regs, (k, lanes), code) else { return false };
    let object = code.object_at(found[0].addr);
    if object.is_none() || found.iter().any(|a| code.object_at(a.addr) != object) {
        return false;
    }
    out.retain(|a| !(a.carries_cost || a.ip == found[0].ip && a.certainty == Certainty::ObjectOnly));
    out.extend(found);
    true
}

/// The accesses of the gather at step `k`; at least one.
fn accesses(
    fun: &Decoded,
    (path, certain): (&Path, usize),
    regs: &Regs,
    (k, lanes): (usize, Lanes),
    code: &mut dyn CodeSource,
) -> Option<Vec<ReplayAccess>> {
    let inst = &fun.insts[path.steps[k] as usize];
    let mem = fun.operands(inst).iter().find(|m| m.kind == super::inst::MemKind::Vsib)?;
    let base = access::base_of_lanes(mem, &path.states[k + 1], regs)?;
    let size = usize::from(lanes.index_size);
    let bytes = size * usize::from(lanes.count);
    let indices = register(fun, (path, certain), regs, (k, lanes.index, bytes), code)?;
    let made = indices[..bytes].chunks_exact(size).enumerate().map(|(lane, index)| {
        let addr = base.wrapping_add(extended(index, true).wrapping_mul(u64::from(lanes.scale)));
        ReplayAccess {
            ip: fun.start + u64::from(inst.off),
            addr,
            size: mem.size,
            write: mem.write,
            certainty: Certainty::Page,
            carries_cost: lane == 0,
            ahead: false,
        }
    });
    let found: Vec<_> = made.collect();
    (!found.is_empty()).then_some(found)
}

/// What vector register `reg` held before the instruction at step `k`: at least `bytes` bytes of it.
fn register(
    fun: &Decoded,
    (path, certain): (&Path, usize),
    regs: &Regs,
    (mut k, mut reg, bytes): (usize, u8, usize),
    code: &mut dyn CodeSource,
) -> Option<[u8; LARGEST]> {
    let mut from = 0;
    for _ in 0..MOST_COPIES {
        let writes = |&k: &usize| fun.vector(path.steps[k]).is_some_and(|v| v.written & (1 << reg) != 0);
        k = (k + 1..certain).find(writes)?;
        let vector = fun.vector(path.steps[k]).filter(|v| usize::from(v.size) >= from + bytes)?;
        match vector.made {
            Made::Opaque => return None,
            Made::Copied { src, skip } => {
                from += usize::from(skip);
                reg = src;
            }
            Made::Loaded { from: element, to, signed } => {
                let (element, to) = (usize::from(element), usize::from(to));
                let inst = &fun.insts[path.steps[k] as usize];
                let mem = fun.operands(inst).first()?;
                let addr = access::known(inst, mem, &path.states[k + 1], &path.states[k], regs)?;
                let (mut memory, mut value) = ([0; LARGEST], [0; LARGEST]);
                let bytes = memory.get_mut(..usize::from(vector.size) / to * element)?;
                if !code.memory_now(addr, bytes) {
                    return None;
                }
                for (wide, narrow) in value.chunks_exact_mut(to).zip(bytes.chunks_exact(element)) {
                    wide.copy_from_slice(&extended(narrow, signed).to_le_bytes()[..to]);
                }
                value.copy_within(from.min(LARGEST).., 0);
                return Some(value);
            }
        }
    }
    None
}

/// A little-endian integer of up to 8 bytes.
fn extended(bytes: &[u8], signed: bool) -> u64 {
    let sign = if signed && bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
    let mut all = [sign; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}
