//! One instruction in the terms of the replay: what it does to general-purpose registers and flags, where control
//! goes next and which memory it names.
//!
//! An instruction that no [`Effect`] describes is described only by the registers it overwrites ([`Inst::written`]), so
//! an unlisted instruction loses knowledge and never invents any.

/// General-purpose register number as in [`crate::profile::perf::Regs::gpr`].
pub type Reg = u8;
/// "No register here".
pub const NO_REG: Reg = 0xff;
pub const RAX: Reg = 0;
pub const RCX: Reg = 1;
pub const RDX: Reg = 2;
pub const RSP: Reg = 4;
pub const RBP: Reg = 5;
pub const RSI: Reg = 6;
pub const RDI: Reg = 7;

/// A second operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Reg(Reg),
    Imm(i64),
}

/// Where control goes after the instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The next instruction.
    Next,
    /// The target: an instruction index, or None when it leaves the function.
    Jump(Option<u32>),
    /// The target when condition `cc` (the encoding's 0..15) holds, else the next instruction.
    /// `cc` is None for `loop` and `jrcxz`, whose condition is not in the flags.
    Cond { cc: Option<u8>, target: Option<u32> },
    /// The next instruction, after code outside the function: calls and system calls.
    Call,
    /// The target is not known, or there is none: ret, indirect jump, ud2.
    End,
}

/// What happens to registers, where it can be evaluated or undone. Widths are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Unknown, except for [`Inst::written`].
    Opaque,
    /// `dst = base + index * scale + disp`, cut to the width: mov, lea, add, sub, inc, dec, neg, not, push,
    /// pop, leave, shl and imul by a constant. `base` is used only when there are two different registers.
    Linear { dst: Reg, width: u8, base: Reg, index: Reg, scale: i64, disp: i64 },
    /// `dst ^= src`.
    Xor { dst: Reg, src: Source, width: u8 },
    /// Two 64-bit registers swap.
    Exchange { a: Reg, b: Reg },
    /// Byte order is reversed.
    Bswap { dst: Reg, width: u8 },
    /// movsx, movzx, movsxd, cdqe, cwde: `dst` of `to` bytes from the low `from` bytes of `src`.
    Extend { dst: Reg, to: u8, src: Reg, from: u8, signed: bool },
    /// Evaluated forward only: the operands cannot be recovered from the result.
    Binary { op: Binary, dst: Reg, src: Source, width: u8 },
    /// cmovcc between registers: `dst = src` where condition `cc` holds. The upper half of `dst` is cleared by 4 bytes
    /// in either case.
    Choose { cc: u8, dst: Reg, src: Reg, width: u8 },
    /// setcc: the lowest byte of `dst` is 1 where condition `cc` holds, else 0.
    Test { cc: u8, dst: Reg },
    /// cdq, cqo: rdx becomes the sign of rax.
    Sign { width: u8 },
    /// movs, stos, lods: the pointers advance by `elem` for each of the `rep` count (1 without).
    Str { elem: u8, rep: bool, src: bool, dst: bool },
}

impl Effect {
    /// The condition that decides the result, as encoded.
    pub fn condition(&self) -> Option<u8> {
        match self {
            Effect::Choose { cc, .. } | Effect::Test { cc, .. } => Some(*cc),
            _ => None,
        }
    }

    /// The registers that the result is computed from, as bits; none where that is not known.
    pub fn sources(&self) -> u16 {
        let bit = |r: Reg| 1u16.checked_shl(r.into()).unwrap_or(0);
        match *self {
            Effect::Linear { base, index, .. } => bit(base) | bit(index),
            Effect::Xor { dst, src, .. } | Effect::Binary { dst, src, .. } => {
                bit(dst) | if let Source::Reg(src) = src { bit(src) } else { 0 }
            }
            Effect::Extend { src, .. } => bit(src),
            Effect::Choose { dst, src, .. } => bit(dst) | bit(src),
            _ => 0,
        }
    }
}

/// Operators of [`Effect::Binary`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    And,
    Or,
    Shr,
    Sar,
    Imul,
}

/// How a memory operand's address is formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemKind {
    /// An operand written in the instruction.
    Explicit,
    /// The stack slot of push, pop, call, ret, enter or leave.
    Stack,
    /// A vector of indices: only the base is in the sampled registers.
    Vsib,
    /// A pointer of a string instruction, which advances: the address before is the register, the last
    /// address after is one element back.
    Str,
}

impl Inst {
    /// A conditional move as what it does when its condition holds, or does not.
    pub fn decided(mut self, held: bool) -> Inst {
        if let Effect::Choose { dst, src, width, .. } = self.effect {
            let index = if held { src } else { dst };
            self.effect = Effect::Linear { dst, width, base: NO_REG, index, scale: 1, disp: 0 };
        }
        self
    }

    /// The condition that a branch looked at, and whether it held.
    pub fn outcome(&self, taken: bool) -> Option<(u8, bool)> {
        match self.flow {
            Flow::Cond { cc: Some(cc), .. } => Some((cc, taken)),
            _ => None,
        }
    }

    /// A call of a function, not of the kernel.
    pub fn is_call(&self) -> bool {
        self.flow == Flow::Call && matches!(self.effect, Effect::Linear { dst: RSP, .. })
    }
}

/// One memory operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mem {
    pub base: Reg,
    pub index: Reg,
    pub scale: u8,
    /// Bytes accessed, at most 255; for strings one element.
    pub size: u8,
    pub disp: u64,
    pub kind: MemKind,
    pub segment: Segment,
    /// 32-bit address size.
    pub addr32: bool,
    pub read: bool,
    pub write: bool,
}

/// Segments with a base of their own in 64-bit mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    Flat,
    Fs,
    Gs,
}

/// A comparison (cmp or test) of memory with a register or a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compared {
    pub kind: FlagKind,
    pub with: Source,
    pub width: u8,
    /// Memory is the first operand.
    pub first: bool,
}

/// A copy between a register and memory, by the instruction's first operand of that kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// `size` bytes to the register, extended to `to` bytes.
    Load { dst: Reg, size: u8, to: u8, signed: bool },
    /// The low `size` bytes of a register, or a constant.
    Store { src: Source, size: u8 },
}

/// A register computed from memory, by the instruction's first operand of that kind: `dst = with op memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Combined {
    pub op: Operator,
    pub dst: Reg,
    /// `dst` itself, or a constant.
    pub with: Source,
    /// Bytes: 4 or 8.
    pub width: u8,
}

/// Operators of [`Combined`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Add,
    Sub,
    Xor,
    And,
    Or,
    Imul,
}

impl Combined {
    /// The result of the operation on `with` and `memory`.
    pub fn result(&self, with: u64, memory: u64) -> u64 {
        match self.op {
            Operator::Add => with.wrapping_add(memory),
            Operator::Sub => with.wrapping_sub(memory),
            Operator::Xor => with ^ memory,
            Operator::And => with & memory,
            Operator::Or => with | memory,
            Operator::Imul => with.wrapping_mul(memory),
        }
    }

    /// What `with` was, where the result tells.
    pub fn operand(&self, result: u64, memory: u64) -> Option<u64> {
        match self.op {
            Operator::Add => Some(result.wrapping_sub(memory)),
            Operator::Sub => Some(result.wrapping_add(memory)),
            Operator::Xor => Some(result ^ memory),
            Operator::And | Operator::Or | Operator::Imul => None,
        }
    }
}

/// One decoded instruction.
#[derive(Debug, Clone, Copy)]
pub struct Inst {
    /// Offset in the function.
    pub off: u32,
    pub flow: Flow,
    pub effect: Effect,
    /// General-purpose registers written, those of `effect` included.
    pub written: u16,
    /// General-purpose (bits 0 to 15) and vector registers (from bit 16 on) that it reads, those of addresses included.
    pub reads: u64,
    /// The same that it writes.
    pub sets: u64,
    /// Register written whole by a narrow operation, and how many low bits of it can be set.
    pub bounded: Option<(Reg, u8)>,
    pub flags: FlagOp,
    /// What it compares with memory.
    pub compared: Option<Compared>,
    /// What it copies from or to memory, where nothing else happens to the value.
    pub copied: Option<Copied>,
    /// What it computes from memory.
    pub combined: Option<Combined>,
    /// First of its operands in the function's operand table.
    pub mem_first: u32,
    pub mem_count: u8,
    /// A branch target or the instruction after a branch: control may come from elsewhere.
    pub leader: bool,
}

/// Operation whose flags can be computed from its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagKind {
    Add,
    Sub,
    And,
    Or,
    Xor,
    Inc,
    Dec,
    Neg,
}

/// What an instruction does to the flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlagOp {
    pub modified: u16,
    pub undefined: u16,
    pub cleared: u16,
    pub set: u16,
    /// What the flags follow from, where that can be computed.
    pub operation: Option<FlagOperation>,
}

/// An operation on a register of `width` bytes; those with one operand do not use `b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlagOperation {
    pub kind: FlagKind,
    pub a: Reg,
    pub b: Source,
    pub width: u8,
}
