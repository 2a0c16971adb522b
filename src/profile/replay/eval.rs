//! Register knowledge on the two sides of one instruction: undone backwards, evaluated forwards.
//!
//! Knowledge is per register "all 64 bits", "the low 32 bits" or nothing. Both directions only ever add
//! knowledge, so they can be repeated until nothing changes. Beside it a register may be "soft": its low half
//! is known and its upper half taken as zero, which may form an address but never refute a path. A value that contradicts what is already known
//! means the instruction was not executed before the sample: [`Contradiction`].

use super::decode::{Binary, Effect, Inst, NO_REG, RAX, RCX, RDI, RDX, RSI, Reg};
use super::flags::DF;

/// The path assumed is not the one taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contradiction;

/// What is known of the general-purpose registers at one instruction boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    val: [u64; 16],
    /// All 64 bits known.
    full: u16,
    /// At least the low 32 bits known (every full one too).
    low: u16,
    /// Low 32 bits known, upper half zero if the program uses the register as a 64-bit index at all.
    soft: u16,
}

/// Results of a multiplication by a power of two are divided back only within these bounds, where the bits shifted out
/// can only have been copies of the sign: user addresses for 64 bits, 1/16 of the range for 32.
const DIVISIBLE: [i64; 2] = [1 << 47, 1 << 28];

fn mask(width: u8) -> u64 {
    u64::MAX >> (64 - 8 * u32::from(width.clamp(1, 8)))
}

fn sign_extend(v: u64, width: u8) -> u64 {
    let shift = 64 - 8 * u32::from(width.clamp(1, 8));
    (((v << shift) as i64) >> shift) as u64
}

impl State {
    /// Nothing known.
    pub(super) const UNKNOWN: State = State { val: [0; 16], full: 0, low: 0, soft: 0 };

    /// Everything known.
    pub(super) fn sampled(gpr: &[u64; 16]) -> State {
        State { val: *gpr, full: u16::MAX, low: u16::MAX, soft: 0 }
    }

    /// The whole register, when known.
    pub(super) fn full(&self, r: Reg) -> Option<u64> {
        (r < 16 && self.full & (1 << r) != 0).then(|| self.val[r as usize])
    }

    /// The low `width` bytes, when known.
    pub(super) fn narrow(&self, r: Reg, width: u8) -> Option<u64> {
        let known = if width > 4 { self.full } else { self.low };
        (r < 16 && known & (1 << r) != 0).then(|| self.val[r as usize] & mask(width))
    }

    /// The whole register as part of an address, when known or soft.
    pub(super) fn pointer(&self, r: Reg) -> Option<u64> {
        (r < 16 && (self.full | self.soft) & (1 << r) != 0).then(|| self.val[r as usize])
    }

    /// How many registers are known, for noticing that a pass added nothing.
    pub(super) fn knowledge(&self) -> u32 {
        self.full.count_ones() + self.low.count_ones()
    }

    fn set(&mut self, r: Reg, v: u64) -> Result<(), Contradiction> {
        let (bit, i) = (1u16 << r, r as usize);
        if (self.full & bit != 0 && self.val[i] != v) || (self.low & bit != 0 && self.val[i] as u32 != v as u32) {
            return Err(Contradiction);
        }
        self.val[i] = v;
        self.full |= bit;
        self.low |= bit;
        self.soft &= !bit;
        Ok(())
    }

    fn set_low(&mut self, r: Reg, v: u64) -> Result<(), Contradiction> {
        let (bit, i) = (1u16 << r, r as usize);
        if self.low & bit != 0 {
            return if self.val[i] as u32 == v as u32 { Ok(()) } else { Err(Contradiction) };
        }
        self.val[i] = v & mask(4);
        self.low |= bit;
        Ok(())
    }

    /// The low half by undoing a 32-bit operation on the register itself. Compilers use the 64-bit name of a 32-bit
    /// counter where they know it zero-extended; a negative one they would have sign-extended first.
    fn set_soft(&mut self, r: Reg, v: u64) -> Result<(), Contradiction> {
        self.set_low(r, v)?;
        if self.full & (1 << r) == 0 && v as i32 >= 0 {
            self.soft |= 1 << r;
        }
        Ok(())
    }

    /// Result of an operation of `width` bytes: narrow ones of 4 bytes zero the upper half, those of 1 and
    /// 2 bytes keep it, so they need the old value `old`.
    fn set_result(&mut self, r: Reg, v: u64, width: u8, old: Option<u64>) -> Result<(), Contradiction> {
        match width {
            4 | 8 => self.set(r, v & mask(width)),
            _ => match old {
                Some(old) => self.set(r, (old & !mask(width)) | (v & mask(width))),
                None => Ok(()),
            },
        }
    }

    /// Takes over what `other` knows of the registers in `keep`.
    fn take(&mut self, other: &State, keep: u16) -> Result<(), Contradiction> {
        let both = self.full & other.full & keep;
        let mut differ = self.low & other.low & keep;
        while differ != 0 {
            let i = differ.trailing_zeros() as usize;
            let same = if both & (1 << i) != 0 {
                self.val[i] == other.val[i]
            } else {
                self.val[i] as u32 == other.val[i] as u32
            };
            if !same {
                return Err(Contradiction);
            }
            differ &= differ - 1;
        }
        let mut new = (other.full & !self.full | other.low & !self.low) & keep;
        while new != 0 {
            let i = new.trailing_zeros() as usize;
            self.val[i] = other.val[i];
            new &= new - 1;
        }
        self.full |= other.full & keep;
        self.low |= other.low & keep;
        self.soft = (self.soft | other.soft & keep) & !self.full;
        Ok(())
    }
}

/// Adds to `pre` what `post` implies.
pub(super) fn undo(inst: &Inst, pre: &mut State, post: &State) -> Result<(), Contradiction> {
    if let Some((r, bits)) = inst.bounded
        && let Some(v) = post.full(r)
        && v >> bits != 0
    {
        return Err(Contradiction);
    }
    pre.take(post, !inst.written)?;
    match inst.effect {
        Effect::Opaque | Effect::Binary { .. } => Ok(()),
        Effect::Linear { dst, width, base, index, scale, disp } => {
            undo_linear(pre, post, Linear { dst, width, base, index, scale, disp })
        }
        Effect::Xor { dst, src, imm, width } => {
            let (Some(v), Some(s)) = (post.narrow(dst, width), operand(pre, src, imm, width)) else { return Ok(()) };
            pre.set(dst, v ^ s)
        }
        Effect::Exchange { a, b } => {
            if let Some(v) = post.full(a) {
                pre.set(b, v)?;
            }
            if let Some(v) = post.full(b) {
                pre.set(a, v)?;
            }
            Ok(())
        }
        Effect::Bswap { dst, width } => match post.narrow(dst, width) {
            Some(v) => pre.set(dst, swap(v, width)),
            None => Ok(()),
        },
        Effect::Extend { dst, to, src, from, signed } => {
            let Some(v) = post.narrow(dst, to) else { return Ok(()) };
            let extended = if signed { sign_extend(v, from) & mask(to) } else { v & mask(from) };
            if extended != v {
                return Err(Contradiction);
            }
            if from == 4 { pre.set_low(src, v) } else { Ok(()) }
        }
        Effect::Sign { width } => match (post.narrow(RAX, width), post.narrow(RDX, width)) {
            (Some(a), Some(d)) if d != sign_of(a, width) => Err(Contradiction),
            _ => Ok(()),
        },
        Effect::Str { elem, rep, src, dst } => undo_string(pre, post, elem, rep, src, dst),
    }
}

/// Adds to `post` what `pre` implies. `rflags` is the sampled RFLAGS, for the direction of strings.
pub(super) fn forward(inst: &Inst, pre: &State, post: &mut State, rflags: u64) -> Result<(), Contradiction> {
    post.take(pre, !inst.written)?;
    match inst.effect {
        Effect::Opaque => Ok(()),
        Effect::Linear { dst, width, base, index, scale, disp } => {
            let (Some(b), Some(x)) = (operand(pre, base, 0, width), operand(pre, index, 0, width)) else {
                return Ok(());
            };
            let v = b.wrapping_add(x.wrapping_mul(scale as u64)).wrapping_add(disp as u64);
            post.set_result(dst, v, width, pre.full(dst))
        }
        Effect::Xor { dst, src, imm, width } => {
            let (Some(a), Some(s)) = (pre.narrow(dst, width), operand(pre, src, imm, width)) else { return Ok(()) };
            post.set(dst, a ^ s)
        }
        Effect::Exchange { a, b } => {
            if let Some(v) = pre.full(a) {
                post.set(b, v)?;
            }
            if let Some(v) = pre.full(b) {
                post.set(a, v)?;
            }
            Ok(())
        }
        Effect::Bswap { dst, width } => match pre.narrow(dst, width) {
            Some(v) => post.set(dst, swap(v, width)),
            None => Ok(()),
        },
        Effect::Extend { dst, to, src, from, signed } => {
            let Some(v) = pre.narrow(src, from) else { return Ok(()) };
            let v = if signed { sign_extend(v, from) } else { v };
            post.set_result(dst, v, to, pre.full(dst))
        }
        Effect::Binary { op, dst, src, imm, width } => {
            let (Some(a), Some(s)) = (pre.narrow(dst, width), operand(pre, src, imm, width)) else { return Ok(()) };
            post.set(dst, binary(op, a, s, width) & mask(width))
        }
        Effect::Sign { width } => match pre.narrow(RAX, width) {
            Some(a) => post.set(RDX, sign_of(a, width)),
            None => Ok(()),
        },
        Effect::Str { elem, rep, src, dst } => {
            let count = if rep { pre.full(RCX) } else { Some(1) };
            let Some(count) = count else { return Ok(()) };
            let step = if rflags & DF != 0 { u64::from(elem).wrapping_neg() } else { u64::from(elem) };
            for (used, r) in [(src, RSI), (dst, RDI)] {
                if let (true, Some(p)) = (used, pre.full(r)) {
                    post.set(r, p.wrapping_add(count.wrapping_mul(step)))?;
                }
            }
            if rep { post.set(RCX, 0) } else { Ok(()) }
        }
    }
}

fn operand(s: &State, r: Reg, imm: i64, width: u8) -> Option<u64> {
    if r == NO_REG { Some(imm as u64 & mask(width)) } else { s.narrow(r, width) }
}

fn swap(v: u64, width: u8) -> u64 {
    if width == 8 { v.swap_bytes() } else { u64::from((v as u32).swap_bytes()) }
}

fn sign_of(v: u64, width: u8) -> u64 {
    (if sign_extend(v, width) >> 63 != 0 { u64::MAX } else { 0 }) & mask(width)
}

fn binary(op: Binary, a: u64, s: u64, width: u8) -> u64 {
    let count = (s & if width == 8 { 63 } else { 31 }) as u32;
    match op {
        Binary::And => a & s,
        Binary::Or => a | s,
        Binary::Imul => a.wrapping_mul(s),
        Binary::Shr => a >> count,
        Binary::Sar => ((sign_extend(a, width) as i64) >> count) as u64,
    }
}

struct Linear {
    dst: Reg,
    width: u8,
    base: Reg,
    index: Reg,
    scale: i64,
    disp: i64,
}

/// Solves `post[dst] = base + index * scale + disp` for the operand that is not known.
fn undo_linear(pre: &mut State, post: &State, l: Linear) -> Result<(), Contradiction> {
    let Some(v) = post.narrow(l.dst, l.width) else { return Ok(()) };
    let rest = v.wrapping_sub(l.disp as u64);
    let (unknown, value) = match (operand(pre, l.base, 0, l.width), operand(pre, l.index, 0, l.width)) {
        (Some(b), Some(x)) => {
            let expect = b.wrapping_add(x.wrapping_mul(l.scale as u64));
            return if (rest ^ expect) & mask(l.width) == 0 { Ok(()) } else { Err(Contradiction) };
        }
        (None, Some(x)) => (l.base, rest.wrapping_sub(x.wrapping_mul(l.scale as u64))),
        (Some(b), None) => match divide(rest.wrapping_sub(b) & mask(l.width), l.scale, l.width)? {
            Some(x) => (l.index, x),
            None => return Ok(()),
        },
        (None, None) => return Ok(()),
    };
    if unknown == NO_REG {
        return Ok(());
    }
    match l.width {
        8 => pre.set(unknown, value),
        4 if unknown == l.dst => pre.set_soft(unknown, value),
        4 => pre.set_low(unknown, value),
        // 1 and 2 bytes are lowered only for a register that is its own operand; the upper bits stay.
        _ if unknown == l.dst => match post.full(l.dst) {
            Some(p) => pre.set(unknown, (p & !mask(l.width)) | (value & mask(l.width))),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// `x` with `x * scale == v` at the width, where there is one: always for odd factors, within [`DIVISIBLE`] for powers
/// of two.
fn divide(v: u64, scale: i64, width: u8) -> Result<Option<u64>, Contradiction> {
    let scale = scale as u64;
    if scale == 0 {
        return Ok(None);
    }
    let shift = scale.trailing_zeros();
    let odd = ((scale as i64) >> shift) as u64;
    if v & ((1u64 << shift) - 1) != 0 {
        return Err(Contradiction);
    }
    let signed = sign_extend(v, width) as i64;
    let bound = DIVISIBLE[usize::from(width < 8)];
    if shift != 0 && !(-bound..bound).contains(&signed) {
        return Ok(None);
    }
    let quotient = (signed >> shift) as u64;
    // Newton's iteration doubles the correct bits: 3, 6, 12, 24, 48, 96.
    let mut inverse = odd;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
    }
    // With a mixed factor (6, 12, ...) the lost top bits disturb the whole product: not invertible.
    if shift != 0 && odd != 1 && odd != u64::MAX {
        return Ok(None);
    }
    Ok(Some(quotient.wrapping_mul(inverse)))
}

fn undo_string(pre: &mut State, post: &State, elem: u8, rep: bool, src: bool, dst: bool) -> Result<(), Contradiction> {
    if rep {
        // The count is gone; only that it ran out can be checked.
        return match post.full(RCX) {
            Some(0) | None => Ok(()),
            Some(_) => Err(Contradiction),
        };
    }
    for (used, r) in [(src, RSI), (dst, RDI)] {
        if let (true, Some(p)) = (used, post.full(r)) {
            pre.set(r, p.wrapping_sub(u64::from(elem)))?;
        }
    }
    Ok(())
}
