//! One instruction in the terms of the replay: what it does to general-purpose registers and flags, where control
//! goes next and which memory it names.
//!
//! An instruction that no [`Effect`] describes is described only by the registers it overwrites ([`Inst::written`]), so
//! an unlisted instruction loses knowledge and never invents any.

/// General-purpose register number as in [`crate::profile::perf::Regs::gpr`].
pub(super) type Reg = u8;
/// "No register here".
pub(super) const NO_REG: Reg = 0xff;
pub(super) const RAX: Reg = 0;
pub(super) const RCX: Reg = 1;
pub(super) const RDX: Reg = 2;
pub(super) const RSP: Reg = 4;
pub(super) const RBP: Reg = 5;
pub(super) const RSI: Reg = 6;
pub(super) const RDI: Reg = 7;

/// Where control goes after the instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
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
pub(super) enum Effect {
    /// Unknown, except for [`Inst::written`].
    Opaque,
    /// `dst = base + index * scale + disp`, cut to the width: mov, lea, add, sub, inc, dec, neg, not, push,
    /// pop, leave, shl and imul by a constant. `base` is used only when there are two different registers.
    Linear { dst: Reg, width: u8, base: Reg, index: Reg, scale: i64, disp: i64 },
    /// `dst ^= src` or `dst ^= imm`.
    Xor { dst: Reg, src: Reg, imm: i64, width: u8 },
    /// Two 64-bit registers swap.
    Exchange { a: Reg, b: Reg },
    /// Byte order is reversed.
    Bswap { dst: Reg, width: u8 },
    /// movsx, movzx, movsxd, cdqe, cwde: `dst` of `to` bytes from the low `from` bytes of `src`.
    Extend { dst: Reg, to: u8, src: Reg, from: u8, signed: bool },
    /// Evaluated forward only: the operands cannot be recovered from the result.
    Binary { op: Binary, dst: Reg, src: Reg, imm: i64, width: u8 },
    /// cdq, cqo: rdx becomes the sign of rax.
    Sign { width: u8 },
    /// movs, stos, lods: the pointers advance by `elem` for each of the `rep` count (1 without).
    Str { elem: u8, rep: bool, src: bool, dst: bool },
}

/// Operators of [`Effect::Binary`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    And,
    Or,
    Shr,
    Sar,
    Imul,
}

/// How a memory operand's address is formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemKind {
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

/// One memory operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mem {
    pub(super) base: Reg,
    pub(super) index: Reg,
    pub(super) scale: u8,
    /// Bytes accessed, at most 255; for strings one element.
    pub(super) size: u8,
    pub(super) disp: u64,
    pub(super) kind: MemKind,
    pub(super) segment: Segment,
    /// 32-bit address size.
    pub(super) addr32: bool,
    pub(super) read: bool,
    pub(super) write: bool,
}

/// Segments with a base of their own in 64-bit mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Segment {
    Flat,
    Fs,
    Gs,
}

/// One decoded instruction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inst {
    /// Offset in the function.
    pub(super) off: u32,
    pub(super) flow: Flow,
    pub(super) effect: Effect,
    /// General-purpose registers written, those of `effect` included.
    pub(super) written: u16,
    /// Register written whole by a narrow operation, and how many low bits of it can be set.
    pub(super) bounded: Option<(Reg, u8)>,
    pub(super) flags: FlagOp,
    /// First of its operands in the function's operand table.
    pub(super) mem_first: u32,
    pub(super) mem_count: u8,
    /// A branch target or the instruction after a branch: control may come from elsewhere.
    pub(super) leader: bool,
}

/// Operation whose flags can be computed from its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlagKind {
    Unknown,
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
pub(super) struct FlagOp {
    pub(super) modified: u16,
    pub(super) undefined: u16,
    pub(super) cleared: u16,
    pub(super) set: u16,
    pub(super) kind: FlagKind,
    pub(super) a: Reg,
    pub(super) b: Reg,
    pub(super) imm: i64,
    pub(super) width: u8,
}
