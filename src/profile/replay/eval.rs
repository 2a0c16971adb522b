//! Carries register knowledge across one instruction: undone backwards, evaluated forwards.
//!
//! Both directions only add knowledge to a [`State`], so they can be repeated until nothing changes.

use super::flags::{self, DF, Flags};
use super::inst::{Binary, Effect, Inst, NO_REG, RAX, RCX, RDI, RDX, RSI, Reg};
use super::state::{Contradiction, State, mask, sign_extend};

/// Results of a multiplication by a power of two of 64 bits are divided back only within this bound, that of user
/// addresses, and for factors that scale an index: there the bits shifted out can only have been copies of the sign.
/// Of 32 bits they may have been anything, as in a hash.
const DIVISIBLE: i64 = 1 << 47;
/// Largest shift of an index: a power of two of a page.
const INDEX_SHIFT: u32 = 12;

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
        Effect::Opaque | Effect::Binary { .. } | Effect::Test { .. } => Ok(()),
        Effect::Linear { dst, width, base, index, scale, disp } => {
            undo_linear(pre, post, Linear { dst, width, base, index, scale, disp })
        }
        effect @ (Effect::Xor { .. } | Effect::Exchange { .. } | Effect::Bswap { .. }) => invert(effect, post, pre),
        // A result that is not the source's value was there before.
        Effect::Choose { dst, src, width, .. } => match (post.narrow(dst, width), post.narrow(src, width)) {
            (Some(v), Some(s)) if v != s && width == 8 => pre.set(dst, v),
            (Some(v), Some(s)) if v != s => pre.set_soft(dst, v),
            _ => Ok(()),
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

/// Adds to `post` what `pre` and the flags before imply. `rflags` is the sampled RFLAGS, for the direction of strings.
pub(super) fn forward(
    inst: &Inst,
    (pre, flags): (&State, Flags),
    post: &mut State,
    rflags: u64,
) -> Result<(), Contradiction> {
    post.take(pre, !inst.written)?;
    match inst.effect {
        Effect::Opaque => Ok(()),
        Effect::Linear { dst, width, base, index, scale, disp } => {
            let (Some(b), Some(x)) = (term(pre, base, width), term(pre, index, width)) else {
                return Ok(());
            };
            let v = b.wrapping_add(x.wrapping_mul(scale as u64)).wrapping_add(disp as u64);
            post.set_result(dst, v, width, pre.full(dst))
        }
        effect @ (Effect::Xor { .. } | Effect::Exchange { .. } | Effect::Bswap { .. }) => invert(effect, pre, post),
        Effect::Extend { dst, to, src, from, signed } => {
            let Some(v) = pre.narrow(src, from) else { return Ok(()) };
            let v = if signed { sign_extend(v, from) } else { v };
            post.set_result(dst, v, to, pre.full(dst))
        }
        Effect::Binary { op, dst, src, width } => {
            let (Some(a), Some(s)) = (pre.narrow(dst, width), pre.operand(src, width)) else { return Ok(()) };
            post.set(dst, binary(op, a, s, width) & mask(width))
        }
        Effect::Choose { cc, dst, src, width } => {
            let (kept, moved) = (pre.narrow(dst, width), pre.narrow(src, width));
            let chosen = match flags::holds(cc, flags) {
                Some(true) => moved,
                Some(false) => kept,
                None => kept.filter(|_| kept == moved),
            };
            chosen.map_or(Ok(()), |v| post.set_result(dst, v, width, None))
        }
        Effect::Test { cc, dst } => match flags::holds(cc, flags) {
            Some(held) => post.set_result(dst, held.into(), 1, pre.full(dst)),
            None => Ok(()),
        },
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

/// A register of a sum; 0 where there is none.
fn term(s: &State, r: Reg, width: u8) -> Option<u64> {
    if r == NO_REG { Some(0) } else { s.narrow(r, width) }
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

/// Effects that are their own inverse: `to` is the state on the other side of the instruction and knows already what
/// `from` knows of the registers that are not written.
fn invert(effect: Effect, from: &State, to: &mut State) -> Result<(), Contradiction> {
    match effect {
        Effect::Xor { dst, src, width } => match (from.narrow(dst, width), to.operand(src, width)) {
            (Some(v), Some(s)) => to.set(dst, v ^ s),
            _ => Ok(()),
        },
        Effect::Exchange { a, b } => {
            from.full(a).map_or(Ok(()), |v| to.set(b, v))?;
            from.full(b).map_or(Ok(()), |v| to.set(a, v))
        }
        Effect::Bswap { dst, width } => from.narrow(dst, width).map_or(Ok(()), |v| to.set(dst, swap(v, width))),
        _ => Ok(()),
    }
}

/// Solves `post[dst] = base + index * scale + disp` for the operand that is not known.
fn undo_linear(pre: &mut State, post: &State, l: Linear) -> Result<(), Contradiction> {
    let Some(v) = post.narrow(l.dst, l.width) else { return Ok(()) };
    let rest = v.wrapping_sub(l.disp as u64);
    let (unknown, value) = match (term(pre, l.base, l.width), term(pre, l.index, l.width)) {
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
    if shift != 0 && (width < 8 || shift > INDEX_SHIFT || !(-DIVISIBLE..DIVISIBLE).contains(&signed)) {
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
        // The count before is not known; the one after must be 0.
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
