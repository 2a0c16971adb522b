//! What is known of the general-purpose registers at one instruction boundary.
//!
//! Of each register all 64 bits are known, or the low 32, or none. Knowledge is only ever added. A register may also be
//! "soft": its low half is known and its upper half assumed to be zero, which may form an address but never refute a
//! path. A value that differs from a known one means that the instruction was not executed before the sample:
//! [`Contradiction`].

use super::inst::{Reg, Source};

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

pub(super) fn mask(width: u8) -> u64 {
    u64::MAX >> (64 - 8 * u32::from(width.clamp(1, 8)))
}

pub(super) fn sign_extend(v: u64, width: u8) -> u64 {
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

    /// The low `width` bytes of an operand, when known.
    pub(super) fn operand(&self, source: Source, width: u8) -> Option<u64> {
        match source {
            Source::Reg(r) => self.narrow(r, width),
            Source::Imm(k) => Some(k as u64 & mask(width)),
        }
    }

    /// The whole register as part of an address, when known or soft.
    pub(super) fn pointer(&self, r: Reg) -> Option<u64> {
        (r < 16 && (self.full | self.soft) & (1 << r) != 0).then(|| self.val[r as usize])
    }

    /// How many registers are known, for noticing that a pass added nothing.
    pub(super) fn knowledge(&self) -> u32 {
        self.full.count_ones() + self.low.count_ones()
    }

    pub(super) fn set(&mut self, r: Reg, v: u64) -> Result<(), Contradiction> {
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

    pub(super) fn set_low(&mut self, r: Reg, v: u64) -> Result<(), Contradiction> {
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
    pub(super) fn set_soft(&mut self, r: Reg, v: u64) -> Result<(), Contradiction> {
        self.set_low(r, v)?;
        if self.full & (1 << r) == 0 && v as i32 >= 0 {
            self.soft |= 1 << r;
        }
        Ok(())
    }

    /// Result of an operation of `width` bytes: narrow ones of 4 bytes zero the upper half, those of 1 and
    /// 2 bytes keep it, so they need the old value `old`.
    pub(super) fn set_result(&mut self, r: Reg, v: u64, width: u8, old: Option<u64>) -> Result<(), Contradiction> {
        match width {
            4 | 8 => self.set(r, v & mask(width)),
            _ => match old {
                Some(old) => self.set(r, (old & !mask(width)) | (v & mask(width))),
                None => Ok(()),
            },
        }
    }

    /// Takes over what `other` knows of the registers in `keep`.
    pub(super) fn take(&mut self, other: &State, keep: u16) -> Result<(), Contradiction> {
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
