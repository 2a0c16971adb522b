//! The address of an access that is known to have waited, but whose registers are overwritten since, most often by the
//! access itself: `mov edx, [rcx+rdx*4]`.
//!
//! Where such a register came from is followed back along the certain path, through arithmetic, to loads whose own
//! addresses are known, chains of them included. What they have loaded is read again: from the sample's copy of the
//! stack, from memory that never changes, or from the program's memory as it is by now. The last may be other than it
//! was, so that what follows from it is named by nothing more than [`Certainty::Page`], as for gathers; and it counts
//! only when the access would read again what it has read, or when it falls into the object that the rest of its
//! address leads to. Refused: values that an instruction of the path has overwritten, and more than [`MOST_READS`].

use super::access;
use super::cfg::{Decoded, Pred};
use super::eval;
use super::fill::{self, Sample};
use super::flags::{self, Flags};
use super::inst::{Compared, Copied, Effect, FlagOperation, Inst, Mem, MemKind, NO_REG, RSP, Reg, Segment, Source};
use super::path::Path;
use super::state::{State, mask, sign_extend};
use super::types::{self, CodeSource, ReplayAccess};
use crate::profile::records::Certainty;

/// Values that are read again for one sample: each is two system calls, of half a microsecond, where the program's
/// memory is read. An index that is itself looked up takes two or three.
const MOST_READS: u32 = 8;

/// Charges the sample to the access at step `k` of the path, in place of one that was only expected. False, and `out`
/// as it was, when its address does not follow.
pub(super) fn resolve(
    (fun, path): (&Decoded, &Path),
    k: usize,
    sample: Sample<'_>,
    code: &mut dyn CodeSource,
    out: &mut Vec<ReplayAccess>,
) -> bool {
    let certain = path.steps.len().min(path.loop_from);
    let (steps, states) = (path.steps[..certain].to_vec(), path.states[..=certain].to_vec());
    let told = Told::default();
    let mut recovery = Recovery { fun, steps, states, sample, code, reads: MOST_READS, told };
    let Some((mem, addr)) = recovery.address(k).filter(|(mem, addr)| recovery.stands(k, mem, *addr)) else {
        return false;
    };
    let uncertain = recovery.told.now || recovery.told.doubtful || k >= path.likely_from;
    out.retain(|a| !a.carries_cost);
    out.push(ReplayAccess {
        ip: fun.ip(path.steps[k]),
        addr,
        size: mem.size,
        write: mem.write,
        certainty: if uncertain { Certainty::Page } else { Certainty::Exact },
        carries_cost: true,
        ahead: false,
    });
    true
}

/// Instructions before the sample that are looked at: a certain path, and half as many.
const MOST_STEPS: usize = 192;
/// Bytes below the stack pointer that a function may use (System V ABI for AMD64, 3.2.2). A sample has no copy of them.
const RED_ZONE: u64 = 128;

/// Charges the sample to the object that the known part of a lost address leads to, as for gathers: the register beside
/// the lost index. False, and `out` as it was, where there is none.
pub(super) fn by_base(
    (fun, path): (&Decoded, &Path),
    k: usize,
    code: &mut dyn CodeSource,
    out: &mut Vec<ReplayAccess>,
) -> bool {
    let inst = &fun.insts[path.steps[k] as usize];
    let Some(mem) = access::principal(fun.operands(inst)).filter(|m| m.kind == MemKind::Explicit) else { return false };
    let Some(addr) = known_part(mem, &path.states[k + 1]).filter(|addr| code.object_at(*addr).is_some()) else {
        return false;
    };
    out.retain(|a| !a.carries_cost);
    out.push(ReplayAccess {
        ip: fun.ip(path.steps[k]),
        addr,
        size: mem.size,
        write: mem.write,
        certainty: Certainty::ObjectOnly,
        carries_cost: true,
        ahead: false,
    });
    true
}

/// An address without its lost registers, if that leads anywhere: a pointer, or a fixed place.
fn known_part(mem: &Mem, pre: &State) -> Option<u64> {
    let (base, index) = (pre.pointer(mem.base), pre.pointer(mem.index));
    if mem.addr32 || mem.segment != Segment::Flat || mem.base != NO_REG && base.is_none() && index.is_none() {
        return None;
    }
    let index = index.unwrap_or(0).wrapping_mul(u64::from(mem.scale));
    Some(mem.disp.wrapping_add(base.unwrap_or(0)).wrapping_add(index))
}

struct Recovery<'a> {
    fun: &'a Decoded,
    /// The certain part of the path, and as far beyond it as there is only one way.
    steps: Vec<u32>,
    states: Vec<State>,
    sample: Sample<'a>,
    code: &'a mut dyn CodeSource,
    /// Values that may still be read.
    reads: u32,
    told: Told,
}

/// What the values that were read are of.
#[derive(Default)]
struct Told {
    /// The program's memory by now.
    now: bool,
    /// Its stack by now, which other calls write soon.
    short_lived: bool,
    /// A store to an unknown address may have overwritten what was read.
    doubtful: bool,
}

impl<'a> Recovery<'a> {
    fn inst(&self, k: usize) -> &'a Inst {
        &self.fun.insts[self.steps[k] as usize]
    }

    /// The access of step `k` and its address.
    fn address(&mut self, k: usize) -> Option<(Mem, u64)> {
        let fun = self.fun;
        let mem = *access::principal(fun.operands(self.inst(k))).filter(|m| m.kind == MemKind::Explicit)?;
        let sources = self.sources(k, &mem)?;
        let mut pre = self.states[sources.last()? + 1];
        let mut flags = Flags::default();
        for j in (k + 1..=*sources.last()?).rev() {
            let mut post = self.states[j];
            eval::forward(self.inst(j), (&pre, flags), &mut post, self.sample.regs.flags).ok()?;
            let compared = if sources.contains(&j) { self.compared(j, &pre, &post) } else { None };
            flags = match compared {
                Some(left) => self.inst(j).flags.with(flags, left),
                None => self.inst(j).flags.apply(flags, &pre),
            };
            if sources.contains(&j) {
                self.load(j, &mut pre, &mut post)?;
            }
            pre = post;
        }
        let addr = access::known(self.inst(k), &mem, &pre, &self.states[k], self.sample.regs)?;
        Some((mem, addr))
    }

    /// The steps that the lost registers of an address come from, nearest first. None when the path begins later.
    fn sources(&mut self, k: usize, mem: &Mem) -> Option<Vec<usize>> {
        let mut needed = lost_of_address(mem, &self.states[k + 1]);
        // Flags that a conditional move looks at, until the instruction that sets them.
        let mut condition = 0;
        let mut found = Vec::new();
        for j in k + 1.. {
            if needed == 0 && condition == 0 {
                break;
            }
            if j == self.steps.len() {
                self.extend()?;
            }
            let inst = self.inst(j);
            let (writes, decides) = (inst.written & needed != 0, inst.flags.modified & condition != 0);
            if !writes && !decides {
                continue;
            }
            needed &= !inst.written;
            if decides {
                condition &= !inst.flags.modified;
                needed |= self.lost_of_flags(inst, &self.states[j + 1])?;
            }
            if writes {
                condition |= inst.effect.condition().map_or(0, flags::needed);
                needed |= self.lost_operands(inst, &self.states[j + 1])?;
            }
            found.push(j);
        }
        (!found.is_empty()).then_some(found)
    }

    /// One step further back, where only one instruction can have been before. A path ends after one iteration of a
    /// loop, in the middle of which it may have begun.
    fn extend(&mut self) -> Option<()> {
        let mut ways = self.fun.preds(*self.steps.last()?);
        let (Some(Pred::From { inst, .. }), None, true) = (ways.next(), ways.next(), self.steps.len() < MOST_STEPS)
        else {
            return None;
        };
        let mut pre = State::UNKNOWN;
        eval::undo(&self.fun.insts[inst as usize], &mut pre, self.states.last()?).ok()?;
        self.steps.push(inst);
        self.states.push(pre);
        Some(())
    }

    /// The registers that the result of an instruction is computed from and that are not known before it. None when
    /// the result cannot be computed.
    fn lost_operands(&self, inst: &Inst, pre: &State) -> Option<u16> {
        let lost = |r: Reg, width: u8| if r == NO_REG || pre.narrow(r, width).is_some() { 0 } else { 1u16 << r };
        let of = |source: Source, width: u8| match source {
            Source::Reg(r) => lost(r, width),
            Source::Imm(_) => 0,
        };
        let operands = self.fun.operands(inst);
        if let Some(Copied::Load { .. }) = inst.copied {
            return Some(lost_of_address(operands.iter().find(|m| m.read)?, pre));
        }
        if let Some(c) = inst.combined {
            return Some(lost_of_address(operands.first()?, pre) | of(c.with, c.width));
        }
        Some(match inst.effect {
            Effect::Linear { dst, width, base, index, .. } => {
                lost(base, width) | lost(index, width) | if width < 4 { lost(dst, 8) } else { 0 }
            }
            Effect::Xor { dst, src, width } | Effect::Binary { dst, src, width, .. } => {
                lost(dst, width) | of(src, width)
            }
            Effect::Exchange { a, b } => lost(a, 8) | lost(b, 8),
            Effect::Bswap { dst, width } => lost(dst, width),
            Effect::Extend { src, from, .. } => lost(src, from),
            Effect::Choose { dst, src, width, .. } => lost(dst, width) | lost(src, width),
            Effect::Test { dst, .. } => lost(dst, 8),
            Effect::Sign { .. } | Effect::Str { .. } | Effect::Opaque => return None,
        })
    }

    /// The registers that the flags follow from and that are not known. None when the flags cannot be computed.
    fn lost_of_flags(&self, inst: &Inst, pre: &State) -> Option<u16> {
        let lost = |source: Source, width: u8| match source {
            Source::Reg(r) if pre.narrow(r, width).is_none() => 1u16 << r,
            _ => 0,
        };
        if let Some(Compared { with, width, .. }) = inst.compared {
            return Some(lost_of_address(self.fun.operands(inst).first()?, pre) | lost(with, width));
        }
        let FlagOperation { a, b, width, .. } = inst.flags.operation?;
        Some(lost(Source::Reg(a), width) | lost(b, width))
    }

    /// The flags that step `j` leaves, which compares memory.
    fn compared(&mut self, j: usize, pre: &State, post: &State) -> Option<Flags> {
        let inst = self.inst(j);
        let Compared { kind, with, width, first } = inst.compared?;
        let addr = access::known(inst, self.fun.operands(inst).first()?, pre, post, self.sample.regs)?;
        let (value, with) = (self.value(j, addr, width)?, pre.operand(with, width)?);
        let (a, b) = if first { (value, with) } else { (with, value) };
        Some(inst.flags.compares(kind, a, b, width))
    }

    /// What step `j` puts into its register from memory; nothing for one that does not read memory.
    fn load(&mut self, j: usize, pre: &mut State, post: &mut State) -> Option<()> {
        let fun = self.fun;
        let inst = self.inst(j);
        let operands = fun.operands(inst);
        if let Some(Copied::Load { dst, size, to, signed }) = inst.copied {
            let mem = operands.iter().find(|m| m.read)?;
            let addr = access::known(inst, mem, pre, post, self.sample.regs)?;
            let value = self.value(j, addr, size)?;
            return post.set(dst, if signed { sign_extend(value, size) & mask(to) } else { value }).ok();
        }
        if let Some(combined) = inst.combined {
            let addr = access::known(inst, operands.first()?, pre, post, self.sample.regs)?;
            let value = self.value(j, addr, combined.width)?;
            return fill::combine(combined, value, (pre, post)).ok();
        }
        Some(())
    }

    /// The integer that step `j` has read at an address.
    fn value(&mut self, j: usize, addr: u64, size: u8) -> Option<u64> {
        for s in 0..j {
            let inst = self.inst(s);
            for mem in self.fun.operands(inst).iter().filter(|m| m.write && m.segment == Segment::Flat) {
                let (pre, post) = (&self.states[s + 1], &self.states[s]);
                match access::known(inst, mem, pre, post, self.sample.regs) {
                    Some(at) if fill::overlap(at, mem.size, addr, size) => return None,
                    Some(_) => {}
                    None => self.told.doubtful = true,
                }
            }
        }
        if self.sample.near(addr) {
            let below = self.sample.regs.gpr[usize::from(RSP)].wrapping_sub(addr);
            return match self.sample.on_stack(addr, size) {
                None if (1..=RED_ZONE).contains(&below) => {
                    self.told.short_lived = true;
                    self.read(addr, size)
                }
                copy => copy,
            };
        }
        types::constant(self.code, addr, size).or_else(|| self.read(addr, size))
    }

    /// The program's memory as it is by now.
    fn read(&mut self, addr: u64, size: u8) -> Option<u64> {
        self.reads = self.reads.checked_sub(1)?;
        self.told.now = true;
        types::now(self.code, addr, size)
    }

    /// Whether the address is that of an object, and, where it follows from memory that may have changed, whether it
    /// is confirmed: by the value found there or by what is known of the address without that memory.
    fn stands(&mut self, k: usize, mem: &Mem, addr: u64) -> bool {
        if !self.told.now {
            return true;
        }
        let object = self.code.object_at(addr);
        let by_base = !self.told.short_lived && self.of_object(k, mem) == object;
        object.is_some() && (by_base || self.reads_again(k, addr))
    }

    /// Whether the load of step `k` would leave in its register, or in what was computed from it, what is there.
    fn reads_again(&mut self, k: usize, addr: u64) -> bool {
        let Some(Copied::Load { dst, size, to, signed }) = self.inst(k).copied else { return false };
        if self.sample.near(addr) {
            return false;
        }
        let Some(value) = self.read(addr, size) else { return false };
        let left = |value| if signed { sign_extend(value, size) & mask(to) } else { value };
        // Where another value would fit as well, nothing is confirmed.
        self.fits(k, dst, left(value)) && !self.fits(k, dst, left(value ^ 1))
    }

    /// Whether a register may have held a value after step `k`.
    fn fits(&self, k: usize, register: Reg, value: u64) -> bool {
        let mut state = self.states[k];
        let mut flags = Flags::default();
        let mut steps = (0..k).rev();
        state.set(register, value).is_ok()
            && steps.all(|j| {
                let mut post = self.states[j];
                let fits = eval::forward(self.inst(j), (&state, flags), &mut post, self.sample.regs.flags).is_ok();
                flags = self.inst(j).flags.apply(flags, &state);
                state = post;
                fits
            })
    }

    /// The object that the known part of the address lies in.
    fn of_object(&mut self, k: usize, mem: &Mem) -> Option<u64> {
        known_part(mem, &self.states[k + 1]).and_then(|addr| self.code.object_at(addr))
    }
}

/// The registers of an address that are not known.
fn lost_of_address(mem: &Mem, pre: &State) -> u16 {
    let lost = |r: Reg| match r {
        NO_REG => 0,
        _ if mem.addr32 && pre.narrow(r, 4).is_some() => 0,
        _ if pre.pointer(r).is_some() => 0,
        _ => 1 << r,
    };
    lost(mem.base) | lost(mem.index)
}
