//! The rule that leads from one frame to its caller's, and its packed form.
//!
//! Packed form (31 bits, the cache adds the tag):
//! ```text
//! bits  0..2   base: 0 stop, 1 rsp, 2 rbp, 3 *(rbp - offset)
//! bits  2..17  offset / 8
//! bits 17..31  rbp saved at CFA - 8 * n; 0 kept, 16383 lost
//! ```

/// Where the canonical frame address (the caller's rsp after return) comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// End of the walk: outermost frame, signal frame, or no usable unwind data.
    Stop,
    /// rsp + offset.
    Rsp,
    /// rbp + offset.
    Rbp,
    /// The word at rbp - offset: gcc's functions that realign their stack.
    RbpIndirect,
}

/// Where the caller's rbp is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedRbp {
    /// Still in rbp.
    Kept,
    /// Not recoverable.
    Lost,
    /// This many bytes below the CFA.
    BelowCfa(u32),
    /// Where rbp points; always so with [`Base::RbpIndirect`].
    AtRbp,
}

/// The rule of one return address. Offsets are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What the CFA is computed from.
    pub base: Base,
    /// See [`Base`].
    pub offset: u32,
    /// How rbp continues.
    pub rbp: SavedRbp,
}

/// Bits of a packed rule.
pub const BITS: u32 = 31;
const OFFSET_SHIFT: u32 = 2;
const OFFSET_MAX: u32 = (1 << 15) - 1;
const RBP_SHIFT: u32 = 17;
const RBP_LOST: u32 = (1 << 14) - 1;

impl Rule {
    /// The rule that ends a walk.
    pub const STOP: Rule = Rule { base: Base::Stop, offset: 0, rbp: SavedRbp::Kept };

    /// The packed form, or `None` for frames too large for it (over 256 KiB): those are derived every time.
    pub fn pack(self) -> Option<u64> {
        if !self.offset.is_multiple_of(8) || self.offset / 8 > OFFSET_MAX {
            return None;
        }
        let base = match self.base {
            Base::Stop => 0,
            Base::Rsp => 1,
            Base::Rbp => 2,
            Base::RbpIndirect => 3,
        };
        let rbp = match self.rbp {
            SavedRbp::Kept | SavedRbp::AtRbp => 0,
            SavedRbp::Lost => RBP_LOST,
            SavedRbp::BelowCfa(n) if n % 8 == 0 && n > 0 && n / 8 < RBP_LOST => n / 8,
            SavedRbp::BelowCfa(_) => return None,
        };
        Some(u64::from(base | (self.offset / 8) << OFFSET_SHIFT | rbp << RBP_SHIFT))
    }

    /// The rule a packed form stands for.
    #[inline(always)]
    pub fn unpack(bits: u64) -> Rule {
        let bits = bits as u32;
        let offset = (bits >> OFFSET_SHIFT & OFFSET_MAX) * 8;
        let saved = bits >> RBP_SHIFT & RBP_LOST;
        let rbp = match saved {
            0 => SavedRbp::Kept,
            RBP_LOST => SavedRbp::Lost,
            n => SavedRbp::BelowCfa(n * 8),
        };
        match bits & 3 {
            0 => Rule::STOP,
            1 => Rule { base: Base::Rsp, offset, rbp },
            2 => Rule { base: Base::Rbp, offset, rbp },
            _ => Rule { base: Base::RbpIndirect, offset, rbp: SavedRbp::AtRbp },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_loses_nothing() {
        let rules = [
            Rule::STOP,
            Rule { base: Base::Rsp, offset: 8, rbp: SavedRbp::Kept },
            Rule { base: Base::Rsp, offset: OFFSET_MAX * 8, rbp: SavedRbp::BelowCfa((RBP_LOST - 1) * 8) },
            Rule { base: Base::Rbp, offset: 16, rbp: SavedRbp::BelowCfa(16) },
            Rule { base: Base::Rbp, offset: 16, rbp: SavedRbp::Lost },
            Rule { base: Base::RbpIndirect, offset: 8, rbp: SavedRbp::AtRbp },
        ];
        for rule in rules {
            let packed = rule.pack().unwrap();
            assert!(packed < 1 << BITS);
            assert_eq!(Rule::unpack(packed), rule);
        }
        assert!(Rule { base: Base::Rsp, offset: 1 << 20, rbp: SavedRbp::Kept }.pack().is_none());
        assert!(Rule { base: Base::Rsp, offset: 12, rbp: SavedRbp::Kept }.pack().is_none());
    }
}
