//! What instructions do to vector registers, as far as the indices of a gather follow from it: loads from memory, with
//! or without widening, copies of a register and of its upper half. Everything else loses what the register held.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// Bytes of the largest vector register.
pub(super) const LARGEST: usize = 64;

/// What an instruction puts into a vector register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// Not known.
    Opaque,
    /// Elements of `from` bytes from memory, extended to `to` bytes.
    Loaded { from: u8, to: u8, signed: bool },
    /// Another register, from byte `skip` on.
    Copied { src: u8, skip: u8 },
}

/// A gather or scatter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lanes {
    /// Vector register of the indices.
    pub(super) index: u8,
    /// Bytes of an index: 4 or 8, signed.
    pub(super) index_size: u8,
    pub(super) scale: u8,
    pub(super) count: u8,
}

/// An instruction that has to do with vector registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Vector {
    /// Registers that it writes, a bit each.
    pub(super) written: u32,
    pub(super) made: Made,
    /// Bytes of the register that `made` describes, from the lowest on.
    pub(super) size: u8,
    pub(super) lanes: Option<Lanes>,
}

fn number(r: Register) -> Option<u8> {
    if r.is_vector_register() { u8::try_from(r.number()).ok() } else { None }
}

fn bit(r: Register) -> u32 {
    number(r).map_or(0, |n| 1 << n)
}

/// `None` for an instruction that writes no vector register and has no vector of indices.
pub(super) fn lower(i: &Instruction) -> Option<Vector> {
    let lanes = lanes(i);
    let destination =
        if i.op_count() > 0 && i.op_kind(0) == OpKind::Register { i.op0_register() } else { Register::None };
    let mut written = bit(destination);
    if lanes.is_some() && i.op_count() > 2 && i.op_kind(2) == OpKind::Register {
        written |= bit(i.op2_register()); // the mask of an AVX2 gather becomes zero
    }
    // A call may change them all (System V ABI), and so do these.
    if i.is_call_near()
        || i.is_call_near_indirect()
        || matches!(i.mnemonic(), Mnemonic::Vzeroupper | Mnemonic::Vzeroall)
    {
        written = u32::MAX;
    }
    let (made, size) = match i.mnemonic() {
        _ if lanes.is_some() || i.has_op_mask() => (Made::Opaque, 0),
        Mnemonic::Vperm2i128 | Mnemonic::Vperm2f128 => (half(i), HALF),
        _ => (made(i), destination.size() as u8),
    };
    (written != 0 || lanes.is_some()).then_some(Vector { written, made, size, lanes })
}

fn lanes(i: &Instruction) -> Option<Lanes> {
    use Mnemonic as M;
    let (index_size, element) = match i.mnemonic() {
        M::Vgatherdps | M::Vpgatherdd | M::Vscatterdps | M::Vpscatterdd => (4, 4),
        M::Vgatherdpd | M::Vpgatherdq | M::Vscatterdpd | M::Vpscatterdq => (4, 8),
        M::Vgatherqps | M::Vpgatherqd | M::Vscatterqps | M::Vpscatterqd => (8, 4),
        M::Vgatherqpd | M::Vpgatherqq | M::Vscatterqpd | M::Vpscatterqq => (8, 8),
        _ => return None,
    };
    let data = (0..2).find(|&op| i.op_kind(op) == OpKind::Register).map(|op| i.op_register(op).size())?;
    let index = i.memory_index();
    let count = (data / element).min(index.size() / index_size);
    let scale = i.memory_index_scale() as u8;
    Some(Lanes { index: number(index)?, index_size: index_size as u8, scale, count: count as u8 })
}

fn made(i: &Instruction) -> Made {
    use Mnemonic as M;
    let widened = |from, to, signed| Made::Loaded { from, to, signed };
    let from_memory = i.op_count() > 1 && i.op_kind(1) == OpKind::Memory && !i.is_broadcast();
    let source = if i.op_count() > 1 && i.op_kind(1) == OpKind::Register { number(i.op1_register()) } else { None };
    match (i.mnemonic(), source) {
        (
            M::Movdqu
            | M::Movdqa
            | M::Movups
            | M::Movaps
            | M::Movupd
            | M::Movapd
            | M::Lddqu
            | M::Vlddqu
            | M::Vmovdqu
            | M::Vmovdqa
            | M::Vmovups
            | M::Vmovaps
            | M::Vmovupd
            | M::Vmovapd
            | M::Vmovdqu32
            | M::Vmovdqu64
            | M::Vmovdqa32
            | M::Vmovdqa64,
            source,
        ) => match source {
            Some(src) => Made::Copied { src, skip: 0 },
            None if from_memory => widened(1, 1, false),
            None => Made::Opaque,
        },
        (M::Pmovsxdq | M::Vpmovsxdq, None) if from_memory => widened(4, 8, true),
        (M::Pmovzxdq | M::Vpmovzxdq, None) if from_memory => widened(4, 8, false),
        (M::Pmovsxwd | M::Vpmovsxwd, None) if from_memory => widened(2, 4, true),
        (M::Pmovzxwd | M::Vpmovzxwd, None) if from_memory => widened(2, 4, false),
        (M::Pmovsxwq | M::Vpmovsxwq, None) if from_memory => widened(2, 8, true),
        (M::Pmovzxwq | M::Vpmovzxwq, None) if from_memory => widened(2, 8, false),
        (M::Pmovzxbd | M::Vpmovzxbd, None) if from_memory => widened(1, 4, false),
        (M::Pmovzxbq | M::Vpmovzxbq, None) if from_memory => widened(1, 8, false),
        (M::Vextracti128 | M::Vextractf128, Some(src)) => upper(i, src, 16),
        (M::Vextracti32x4 | M::Vextracti64x2 | M::Vextractf32x4 | M::Vextractf64x2, Some(src)) => upper(i, src, 16),
        (M::Vextracti64x4 | M::Vextracti32x8 | M::Vextractf64x4 | M::Vextractf32x8, Some(src)) => upper(i, src, 32),
        _ => Made::Opaque,
    }
}

/// Bytes of a half of the registers that vperm2i128 works on.
const HALF: u8 = 16;

/// The lower half of what vperm2i128 makes of one register.
fn half(i: &Instruction) -> Made {
    let same = i.op_kind(2) == OpKind::Register && i.op2_register() == i.op1_register();
    match (number(i.op1_register()), i.try_immediate(3)) {
        // Bit 3 makes the half zero, bit 1 is the source, bit 0 its half (Intel SDM, VPERM2I128).
        (Some(src), Ok(choice)) if same && choice & 8 == 0 => Made::Copied { src, skip: HALF * (choice & 1) as u8 },
        _ => Made::Opaque,
    }
}

/// The part of `bytes` bytes of `src` that the constant operand chooses.
fn upper(i: &Instruction, src: u8, bytes: u8) -> Made {
    let part = i.try_immediate(2).unwrap_or(u64::MAX);
    match u8::try_from(part).ok().and_then(|part| part.checked_mul(bytes)) {
        Some(skip) if usize::from(skip) < LARGEST && i.op_kind(0) == OpKind::Register => Made::Copied { src, skip },
        _ => Made::Opaque,
    }
}
