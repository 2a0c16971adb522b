//! Lowers decoded x86 instructions to [`Inst`].
//!
//! The caller must hand over 64-bit x86 instructions.

use iced_x86::{CodeSize, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::flags;
use super::inst::{
    Binary, Combined, Compared, Copied, Effect, FlagKind, FlagOp, FlagOperation, Flow, Inst, Mem, MemKind, NO_REG,
    Operator, RAX, RBP, RCX, RSP, Reg, Segment, Source,
};

/// Number of a general-purpose register, whatever its width; None for others.
fn gpr(r: Register) -> Option<Reg> {
    if r.is_gpr() { u8::try_from(r.full_register().number()).ok() } else { None }
}

/// Like [`gpr`] for registers whose low bits start at bit 0: not ah, bh, ch, dh.
fn low_gpr(r: Register) -> Option<Reg> {
    if matches!(r, Register::AH | Register::BH | Register::CH | Register::DH) { None } else { gpr(r) }
}

fn source(i: &Instruction, op: u32) -> Option<Source> {
    match i.op_kind(op) {
        OpKind::Register => low_gpr(i.op_register(op)).map(Source::Reg),
        OpKind::Memory => None,
        _ => i.try_immediate(op).ok().map(|v| Source::Imm(v as i64)),
    }
}

/// Destination: register and width in bytes.
fn destination(i: &Instruction) -> Option<(Reg, u8)> {
    if i.op_count() == 0 || i.op_kind(0) != OpKind::Register {
        return None;
    }
    let r = i.op_register(0);
    low_gpr(r).map(|n| (n, r.size() as u8))
}

/// Decodes into an [`Inst`] and appends its memory operands. Branch targets stay unresolved
/// (`Some(u32::MAX)`): the caller fills them in when all instruction starts are known.
pub(super) fn lower(i: &Instruction, off: u32, factory: &mut InstructionInfoFactory, mems: &mut Vec<Mem>) -> Inst {
    let info = factory.info(i);
    let mut written = 0u16;
    for r in info.used_registers() {
        let writes =
            !matches!(r.access(), OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
        if let (true, Some(n)) = (writes, gpr(r.register())) {
            written |= 1 << n;
        }
    }
    if i.mnemonic() == Mnemonic::Syscall {
        written |= 1 << RAX; // by the kernel
    }
    let effect = effect(i);
    let mem_first = mems.len() as u32;
    lower_memory(i, info, effect, mems);
    let bounded = destination(i).filter(|(r, _)| written & (1 << r) != 0).and_then(|(r, width)| match i.mnemonic() {
        Mnemonic::Movzx if width >= 4 => Some((r, 8 * source_size(i))),
        _ if width == 4 => Some((r, 32)),
        _ => None,
    });
    Inst {
        off,
        flow: flow(i),
        effect,
        written,
        reads: registers(info, |access| !matches!(access, OpAccess::Write | OpAccess::CondWrite)),
        sets: registers(info, |access| !matches!(access, OpAccess::Read | OpAccess::CondRead)),
        bounded,
        flags: flag_op(i),
        compared: compared(i),
        copied: copied(i),
        combined: combined(i),
        mem_first,
        mem_count: (mems.len() as u32 - mem_first) as u8,
        leader: false,
    }
}

/// Registers of an instruction as bits, those with such an access.
fn registers(info: &iced_x86::InstructionInfo, accessed: impl Fn(OpAccess) -> bool) -> u64 {
    let number = |r: Register| match gpr(r) {
        Some(n) => Some(u32::from(n)),
        None if r.is_vector_register() => Some(16 + r.full_register().number() as u32),
        None => None,
    };
    let used = info.used_registers().iter().filter(|r| r.access() != OpAccess::NoMemAccess && accessed(r.access()));
    used.filter_map(|r| number(r.register())).fold(0, |all, n| all | 1u64.checked_shl(n).unwrap_or(0))
}

fn compared(i: &Instruction) -> Option<Compared> {
    let kind = match i.mnemonic() {
        Mnemonic::Cmp => FlagKind::Sub,
        Mnemonic::Test => FlagKind::And,
        _ => return None,
    };
    let first = i.op_kind(0) == OpKind::Memory;
    if !first && i.op_kind(1) != OpKind::Memory {
        return None;
    }
    let with = source(i, u32::from(first))?;
    Some(Compared { kind, with, width: i.memory_size().size() as u8, first })
}

fn copied(i: &Instruction) -> Option<Copied> {
    use Mnemonic as M;
    let whole = |r: Register| if r.size() == 8 { gpr(r) } else { None };
    match i.mnemonic() {
        M::Push if i.stack_pointer_increment() == -8 && i.op_kind(0) != OpKind::Memory => {
            Some(Copied::Store { src: source(i, 0)?, size: 8 })
        }
        M::Pop if i.op_kind(0) == OpKind::Register => {
            whole(i.op0_register()).map(|dst| Copied::Load { dst, size: 8, to: 8, signed: false })
        }
        M::Leave => Some(Copied::Load { dst: RBP, size: 8, to: 8, signed: false }),
        M::Mov if i.op_kind(0) == OpKind::Memory => {
            Some(Copied::Store { src: source(i, 1)?, size: i.memory_size().size() as u8 })
        }
        M::Mov | M::Movzx | M::Movsx | M::Movsxd if i.op_count() == 2 && i.op_kind(1) == OpKind::Memory => {
            let (dst, to) = destination(i).filter(|(_, to)| *to >= 4)?;
            let signed = matches!(i.mnemonic(), M::Movsx | M::Movsxd);
            Some(Copied::Load { dst, size: i.memory_size().size() as u8, to, signed })
        }
        _ => None,
    }
}

fn combined(i: &Instruction) -> Option<Combined> {
    let op = match i.mnemonic() {
        Mnemonic::Add => Operator::Add,
        Mnemonic::Sub => Operator::Sub,
        Mnemonic::Xor => Operator::Xor,
        Mnemonic::And => Operator::And,
        Mnemonic::Or => Operator::Or,
        Mnemonic::Imul => Operator::Imul,
        _ => return None,
    };
    if i.op_count() < 2 || i.op_kind(1) != OpKind::Memory {
        return None;
    }
    let (dst, width) = destination(i).filter(|(_, width)| *width >= 4)?;
    let with = if i.op_count() == 3 { source(i, 2)? } else { Source::Reg(dst) };
    Some(Combined { op, dst, with, width })
}

fn source_size(i: &Instruction) -> u8 {
    match i.op_kind(1) {
        OpKind::Register => i.op_register(1).size() as u8,
        _ => i.memory_size().size() as u8,
    }
}

fn flow(i: &Instruction) -> Flow {
    match i.flow_control() {
        FlowControl::Next => Flow::Next,
        FlowControl::UnconditionalBranch => Flow::Jump(Some(u32::MAX)),
        FlowControl::ConditionalBranch => Flow::Cond { cc: condition(i), target: Some(u32::MAX) },
        FlowControl::Call | FlowControl::IndirectCall => Flow::Call,
        FlowControl::Interrupt | FlowControl::XbeginXabortXend => Flow::Call,
        FlowControl::IndirectBranch | FlowControl::Return | FlowControl::Exception => Flow::End,
    }
}

fn lower_memory(i: &Instruction, info: &iced_x86::InstructionInfo, effect: Effect, mems: &mut Vec<Mem>) {
    let has_operand = (0..i.op_count()).any(|k| i.op_kind(k) == OpKind::Memory);
    let elem = string_element(i);
    for (k, m) in info.used_memory().iter().enumerate() {
        let (read, write) = match m.access() {
            OpAccess::Read | OpAccess::CondRead => (true, false),
            OpAccess::Write | OpAccess::CondWrite => (false, true),
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
            OpAccess::None | OpAccess::NoMemAccess => continue,
        };
        let kind = if m.index().is_vector_register() {
            MemKind::Vsib
        } else if elem.is_some() {
            MemKind::Str
        } else if (i.is_stack_instruction() || matches!(effect, Effect::Linear { dst: RSP, .. }))
            && (!has_operand || k > 0)
        {
            MemKind::Stack
        } else {
            MemKind::Explicit
        };
        let size = elem.unwrap_or_else(|| m.memory_size().size().clamp(1, 255) as u8);
        mems.push(Mem {
            base: gpr(m.base()).unwrap_or(NO_REG),
            index: gpr(m.index()).unwrap_or(NO_REG),
            scale: m.scale() as u8,
            size,
            disp: m.displacement(),
            kind,
            segment: match m.segment() {
                Register::FS => Segment::Fs,
                Register::GS => Segment::Gs,
                _ => Segment::Flat,
            },
            addr32: m.address_size() == CodeSize::Code32,
            read,
            write,
        });
    }
}

/// Element size of a string instruction that moves its pointers, None for all others.
fn string_element(i: &Instruction) -> Option<u8> {
    i.is_string_instruction().then(|| i.memory_size().size().clamp(1, 8) as u8)
}

fn string_effect(i: &Instruction, elem: u8) -> Effect {
    use Mnemonic as M;
    let rep = i.has_rep_prefix() || i.has_repne_prefix();
    // A 32-bit address size and a compare with early exit are rare: their registers are only marked as written.
    let wide = !(0..i.op_count()).any(|k| matches!(i.op_kind(k), OpKind::MemoryESEDI | OpKind::MemorySegESI));
    let (src, dst) = match i.mnemonic() {
        M::Movsb | M::Movsw | M::Movsd | M::Movsq => (true, true),
        M::Stosb | M::Stosw | M::Stosd | M::Stosq => (false, true),
        // lods also writes rax, which Str does not: it stays in `written` and is lost.
        M::Lodsb | M::Lodsw | M::Lodsd | M::Lodsq => (true, false),
        _ => return Effect::Opaque,
    };
    if wide { Effect::Str { elem, rep, src, dst } } else { Effect::Opaque }
}

fn effect(i: &Instruction) -> Effect {
    if let Some(elem) = string_element(i) {
        return string_effect(i, elem);
    }
    if let Some(e) = implicit_effect(i) {
        return e;
    }
    let Some((dst, width)) = destination(i) else { return Effect::Opaque };
    let own = |scale: i64, disp: i64| Effect::Linear { dst, width, base: NO_REG, index: dst, scale, disp };
    let constant = |disp: i64| Effect::Linear { dst, width, base: NO_REG, index: NO_REG, scale: 0, disp };
    use Mnemonic as M;
    match i.mnemonic() {
        M::Inc => return own(1, 1),
        M::Dec => return own(1, -1),
        M::Neg => return own(-1, 0),
        M::Not => return own(-1, -1),
        M::Bswap if width >= 4 => return Effect::Bswap { dst, width },
        M::Lea => return lea(i, dst, width),
        M::Imul if i.op_count() == 3 => {
            return match (source(i, 1), i.try_immediate(2)) {
                (Some(Source::Reg(r)), Ok(k)) if width >= 4 => {
                    Effect::Linear { dst, width, base: NO_REG, index: r, scale: k as i64, disp: 0 }
                }
                _ => Effect::Opaque,
            };
        }
        _ if i.op_count() == 1 && width == 1 => {
            return condition(i).map_or(Effect::Opaque, |cc| Effect::Test { cc, dst });
        }
        _ if i.op_count() != 2 => return Effect::Opaque,
        _ => {}
    }
    let Some(src) = source(i, 1) else { return Effect::Opaque };
    if width < 4 && !matches!((i.mnemonic(), &src), (M::Add | M::Sub, Source::Imm(_))) {
        return Effect::Opaque;
    }
    match (i.mnemonic(), src) {
        (M::Mov, Source::Imm(k)) => constant(k),
        (M::Mov, Source::Reg(r)) => Effect::Linear { dst, width, base: NO_REG, index: r, scale: 1, disp: 0 },
        (M::Add, Source::Imm(k)) => own(1, k),
        (M::Sub, Source::Imm(k)) => own(1, k.wrapping_neg()),
        (M::Add, Source::Reg(r)) if r == dst => own(2, 0),
        (M::Add, Source::Reg(r)) => Effect::Linear { dst, width, base: dst, index: r, scale: 1, disp: 0 },
        (M::Sub | M::Xor, Source::Reg(r)) if r == dst => constant(0),
        (M::Sub, Source::Reg(r)) => Effect::Linear { dst, width, base: dst, index: r, scale: -1, disp: 0 },
        (M::Xor, src) => Effect::Xor { dst, src, width },
        (M::Or, Source::Imm(-1)) => constant(-1),
        (M::Shl | M::Sal, Source::Imm(k)) if (k as u8) & 63 < 8 * width => own(1i64 << (k & 63), 0),
        (M::Xchg, Source::Reg(r)) if width == 8 => Effect::Exchange { a: dst, b: r },
        (M::Movsx | M::Movsxd | M::Movzx, Source::Reg(src)) => {
            Effect::Extend { dst, to: width, src, from: source_size(i), signed: i.mnemonic() != M::Movzx }
        }
        (m, src) => conditional(i, dst, width, src).unwrap_or_else(|| binary(m, dst, width, src)),
    }
}

/// cmovcc between registers.
fn conditional(i: &Instruction, dst: Reg, width: u8, src: Source) -> Option<Effect> {
    let (Source::Reg(src), Some(cc)) = (src, condition(i)) else { return None };
    Some(Effect::Choose { cc, dst, src, width })
}

/// The condition that an instruction looks at, as encoded.
fn condition(i: &Instruction) -> Option<u8> {
    (i.condition_code() as u8).checked_sub(1) // ConditionCode: None = 0, then the encoding's order
}

fn binary(m: Mnemonic, dst: Reg, width: u8, src: Source) -> Effect {
    let op = match m {
        Mnemonic::And => Binary::And,
        Mnemonic::Or => Binary::Or,
        Mnemonic::Imul => Binary::Imul,
        Mnemonic::Shr => Binary::Shr,
        Mnemonic::Sar => Binary::Sar,
        _ => return Effect::Opaque,
    };
    // A shift by cl is not evaluated: shifts have constant sources here.
    if matches!(op, Binary::Shr | Binary::Sar) && matches!(src, Source::Reg(_)) {
        return Effect::Opaque;
    }
    Effect::Binary { op, dst, src, width }
}

/// Instructions with implicit register operands.
fn implicit_effect(i: &Instruction) -> Option<Effect> {
    use Mnemonic as M;
    let extend = |to, from| Effect::Extend { dst: RAX, to, src: RAX, from, signed: true };
    let counter = |disp| Effect::Linear { dst: RCX, width: 8, base: NO_REG, index: RCX, scale: 1, disp };
    Some(match i.mnemonic() {
        M::Cdqe => extend(8, 4),
        M::Cwde => extend(4, 2),
        M::Cqo => Effect::Sign { width: 8 },
        M::Cdq => Effect::Sign { width: 4 },
        M::Loop | M::Loope | M::Loopne => counter(-1),
        M::Leave => Effect::Linear { dst: RSP, width: 8, base: NO_REG, index: RBP, scale: 1, disp: 8 },
        M::Pop if i.op_kind(0) == OpKind::Register && gpr(i.op0_register()) == Some(RSP) => Effect::Opaque,
        M::Push | M::Pop | M::Pushfq | M::Popfq | M::Call | M::Ret => {
            let disp = i64::from(i.stack_pointer_increment());
            Effect::Linear { dst: RSP, width: 8, base: NO_REG, index: RSP, scale: 1, disp }
        }
        _ => return None,
    })
}

fn lea(i: &Instruction, dst: Reg, width: u8) -> Effect {
    let disp = i.memory_displacement64() as i64;
    let scale = i64::from(i.memory_index_scale());
    let addr32 = i.memory_base().is_gpr32() || i.memory_index().is_gpr32();
    if width < 4 {
        return Effect::Opaque;
    }
    // The address is cut to 32 bits before it is zero-extended: the same as a 32-bit result.
    let width = if addr32 { 4 } else { width };
    let form = |base, index, scale| Effect::Linear { dst, width, base, index, scale, disp };
    if i.is_ip_rel_memory_operand() {
        return form(NO_REG, NO_REG, 0); // the displacement is already the absolute address
    }
    match (gpr(i.memory_base()), gpr(i.memory_index())) {
        (None, None) => form(NO_REG, NO_REG, 0),
        (Some(b), None) => form(NO_REG, b, 1),
        (None, Some(x)) => form(NO_REG, x, scale),
        (Some(b), Some(x)) if b == x => form(NO_REG, b, scale + 1),
        (Some(b), Some(x)) => form(b, x, scale),
    }
}

fn flag_op(i: &Instruction) -> FlagOp {
    FlagOp {
        modified: flags::from_iced(i.rflags_modified()),
        undefined: flags::from_iced(i.rflags_undefined()),
        cleared: flags::from_iced(i.rflags_cleared()),
        set: flags::from_iced(i.rflags_set()),
        operation: flag_operation(i),
    }
}

fn flag_operation(i: &Instruction) -> Option<FlagOperation> {
    use Mnemonic as M;
    let kind = match i.mnemonic() {
        M::Add => FlagKind::Add,
        M::Sub | M::Cmp => FlagKind::Sub,
        M::And | M::Test => FlagKind::And,
        M::Or => FlagKind::Or,
        M::Xor => FlagKind::Xor,
        M::Inc => FlagKind::Inc,
        M::Dec => FlagKind::Dec,
        M::Neg => FlagKind::Neg,
        _ => return None,
    };
    let (a, width) = destination(i)?;
    let b = if i.op_count() == 2 { source(i, 1)? } else { Source::Imm(0) };
    Some(FlagOperation { kind, a, b, width })
}
