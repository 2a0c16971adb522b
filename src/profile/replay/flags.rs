//! Arithmetic flags: what an instruction leaves in them and which of them a condition needs.
//!
//! The sampled flags tell paths apart: they contradict the condition of a branch that was not taken, and the flags that
//! a candidate path leaves must be the sampled ones.

use iced_x86::RflagsBits;

use super::inst::{FlagKind, FlagOp, FlagOperation, Source};
use super::state::State;

pub(super) const CF: u16 = 1 << 0;
pub(super) const PF: u16 = 1 << 2;
pub(super) const AF: u16 = 1 << 4;
pub(super) const ZF: u16 = 1 << 6;
pub(super) const SF: u16 = 1 << 7;
pub(super) const OF: u16 = 1 << 11;
/// The six flags that arithmetic writes, at their place in RFLAGS.
pub(super) const ARITHMETIC: u16 = CF | PF | AF | ZF | SF | OF;
/// Direction flag of string instructions, in RFLAGS.
pub(super) const DF: u64 = 1 << 10;

/// iced's flag bits and those of RFLAGS.
const ICED_FLAGS: [(u32, u16); 6] = [
    (RflagsBits::CF, CF),
    (RflagsBits::PF, PF),
    (RflagsBits::AF, AF),
    (RflagsBits::ZF, ZF),
    (RflagsBits::SF, SF),
    (RflagsBits::OF, OF),
];

/// iced's flag set as RFLAGS bits.
pub(super) fn from_iced(bits: u32) -> u16 {
    ICED_FLAGS.iter().filter(|(iced, _)| bits & iced != 0).fold(0, |acc, (_, x86)| acc | x86)
}

/// Values of those flags that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Flags {
    pub(super) value: u16,
    pub(super) known: u16,
}

impl FlagOp {
    /// The flags it leaves, from the registers before it; only bits it writes.
    pub(super) fn result(&self, pre: &State) -> Flags {
        if self.modified == 0 {
            return Flags::default();
        }
        let constant = Flags { value: self.set, known: self.set | self.cleared };
        let Some(FlagOperation { kind, a, b, width }) = self.operation else { return constant };
        // xor r,r and sub r,r give the same flags whatever the register holds.
        let same = b == Source::Reg(a) && matches!(kind, FlagKind::Xor | FlagKind::Sub);
        let operands = if same { Some((0, 0)) } else { pre.narrow(a, width).zip(pre.operand(b, width)) };
        let Some((a, b)) = operands else { return constant };
        let known = self.modified & !self.undefined;
        Flags { value: compute(kind, a, b, width) & known, known }
    }

    /// The flags it leaves when it compares two values.
    pub(super) fn compares(&self, kind: FlagKind, a: u64, b: u64, width: u8) -> Flags {
        let known = self.modified & !self.undefined;
        Flags { value: compute(kind, a, b, width) & known, known }
    }

    /// The flags after it, given those before.
    pub(super) fn apply(&self, before: Flags, pre: &State) -> Flags {
        self.with(before, self.result(pre))
    }

    /// The flags after it, given those before and those it leaves.
    pub(super) fn with(&self, before: Flags, new: Flags) -> Flags {
        let kept = before.known & !self.modified;
        Flags { value: (before.value & kept) | (new.value & new.known), known: kept | new.known }
    }
}

fn compute(kind: FlagKind, a: u64, b: u64, width: u8) -> u16 {
    let bits = 8 * u32::from(width.clamp(1, 8));
    let mask = u64::MAX >> (64 - bits);
    let sign = 1u64 << (bits - 1);
    let (a, b) = match kind {
        FlagKind::Inc => (a & mask, 1),
        FlagKind::Dec => (a & mask, 1),
        FlagKind::Neg => (0, a & mask),
        _ => (a & mask, b & mask),
    };
    let (r, carry, overflow) = match kind {
        FlagKind::Add | FlagKind::Inc => {
            let r = a.wrapping_add(b) & mask;
            (r, r < a, (a ^ r) & (b ^ r) & sign != 0)
        }
        FlagKind::Sub | FlagKind::Dec | FlagKind::Neg => {
            let r = a.wrapping_sub(b) & mask;
            (r, a < b, (a ^ b) & (a ^ r) & sign != 0)
        }
        FlagKind::And => (a & b, false, false),
        FlagKind::Or => (a | b, false, false),
        FlagKind::Xor => (a ^ b, false, false),
    };
    let bit = |on: bool, flag: u16| if on { flag } else { 0 };
    bit(carry, CF)
        | bit((r as u8).count_ones() & 1 == 0, PF)
        | bit((a ^ b ^ r) & 0x10 != 0, AF)
        | bit(r == 0, ZF)
        | bit(r & sign != 0, SF)
        | bit(overflow, OF)
}

/// Flags that condition `cc` (the encoding's low four bits) looks at.
pub(super) fn needed(cc: u8) -> u16 {
    match cc >> 1 {
        0 => OF,
        1 => CF,
        2 => ZF,
        3 => CF | ZF,
        4 => SF,
        5 => PF,
        6 => SF | OF,
        _ => ZF | SF | OF,
    }
}

/// Whether `cc` holds; None when a flag it needs is unknown.
pub(super) fn holds(cc: u8, flags: Flags) -> Option<bool> {
    if needed(cc) & !flags.known != 0 {
        return None;
    }
    let f = flags.value;
    let less = (f & SF != 0) != (f & OF != 0);
    let base = match cc >> 1 {
        0 => f & OF != 0,
        1 => f & CF != 0,
        2 => f & ZF != 0,
        3 => f & (CF | ZF) != 0,
        4 => f & SF != 0,
        5 => f & PF != 0,
        6 => less,
        _ => less || f & ZF != 0,
    };
    Some(base != (cc & 1 != 0))
}
