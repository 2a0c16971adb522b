//! From `.eh_frame` to a [`Rule`]: the slow path, a few microseconds once per return address.
//!
//! The module's `.eh_frame_hdr` (sorted table as every current linker writes it) names the frame description;
//! `gimli` evaluates it with its storage on the stack (about 5 KiB), without allocation. Rules other than
//! "CFA = rsp/rbp + n, return address at CFA - 8" and gcc's realigned frames are refused.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, NativeEndian, Register, RegisterRule, UnwindContext,
    UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow, X86_64,
};

use super::rule::{Base, Rule, SavedRbp};
use crate::modules::{self, Module};

type Reader = EndianSlice<'static, NativeEndian>;

/// Fixed storage: x86_64 has 17 registers with rules, and compilers nest remember_state once or twice.
struct OnStack;

impl UnwindContextStorage<usize> for OnStack {
    type Rules = [(Register, RegisterRule<usize>); 24];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

/// Version, and encodings of the header's fields: only the table encoding matters for the search
/// (DW_EH_PE_datarel | DW_EH_PE_sdata4), the others for its position.
const VERSION: u8 = 1;
const PCREL_SDATA4: u8 = 0x1b;
const UDATA4: u8 = 0x03;
const DATAREL_SDATA4: u8 = 0x3b;
/// Bytes before the table, and of one table row.
const HEADER: usize = 12;
const ROW: usize = 8;

/// The rule of a return address, or `None` when there is no unwind data of a supported form.
pub fn rule_for(ra: usize) -> Option<Rule> {
    let pc = ra - 1; // inside the call instruction: the return address may belong to the next function
    let module = modules::find(pc)?;
    let (eh_frame, fde) = fde_of(&module, pc)?;
    let end = module.segment_end(eh_frame)?;
    // SAFETY: [eh_frame, end) is file-backed read-only data of a loaded module. It stays mapped while a
    // frame of the module is on the stack, and `ra` is the return address of such a frame.
    let bytes: &'static [u8] = unsafe { core::slice::from_raw_parts(eh_frame as *const u8, end - eh_frame) };
    let section = EhFrame::new(bytes, NativeEndian);
    let bases = BaseAddresses::default().set_eh_frame(eh_frame as u64);
    let offset = fde.checked_sub(eh_frame)?.into();
    let fde = section.fde_from_offset(&bases, offset, EhFrame::cie_from_offset).ok()?;
    if fde.is_signal_trampoline() {
        return None;
    }
    let mut context: UnwindContext<usize, OnStack> = UnwindContext::new_in();
    let row = fde.unwind_info_for_address(&section, &bases, &mut context, pc as u64).ok()?;
    rule_of_row(row, &section)
}

/// Reads the little-endian word at `at`.
///
/// # Safety
/// Four bytes at `at` are readable.
unsafe fn word(at: usize) -> i32 {
    // SAFETY: the caller's promise; the table may be unaligned.
    unsafe { (at as *const i32).read_unaligned() }
}

/// Addresses of `.eh_frame` and of the frame description that may cover `pc`.
fn fde_of(module: &Module, pc: usize) -> Option<(usize, usize)> {
    let header = module.eh_frame_hdr;
    if header == 0 {
        return None;
    }
    // SAFETY: the loader found this section in a mapped segment; it has at least its fixed header.
    let (encodings, frame_offset, rows) =
        unsafe { ((header as *const [u8; 4]).read(), word(header + 4), word(header + 8) as u32 as usize) };
    if encodings != [VERSION, PCREL_SDATA4, UDATA4, DATAREL_SDATA4] || rows == 0 {
        return None;
    }
    let table = header + HEADER;
    if module.segment_end(header).is_none_or(|end| table + rows * ROW > end) {
        return None;
    }
    let eh_frame = (header + 4).wrapping_add_signed(frame_offset as isize);
    // First row that begins after pc; the one before it covers pc if any does.
    let (mut low, mut high) = (0, rows);
    while low < high {
        let middle = low.midpoint(high);
        // SAFETY: middle < rows, and the table was checked to lie in its segment.
        let begins = header.wrapping_add_signed(unsafe { word(table + middle * ROW) } as isize);
        if begins <= pc { low = middle + 1 } else { high = middle }
    }
    let row = low.checked_sub(1)?;
    // SAFETY: row < rows, as above.
    let fde = header.wrapping_add_signed(unsafe { word(table + row * ROW + 4) } as isize);
    Some((eh_frame, fde))
}

fn rule_of_row(row: &UnwindTableRow<usize, OnStack>, section: &EhFrame<Reader>) -> Option<Rule> {
    // Undefined return address: the outermost frame of a thread.
    if row.register(X86_64::RA) != Some(RegisterRule::Offset(-8)) {
        return None;
    }
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let base = match *register {
                X86_64::RSP => Base::Rsp,
                X86_64::RBP => Base::Rbp,
                _ => return None,
            };
            let rbp = match row.register(X86_64::RBP) {
                None | Some(RegisterRule::SameValue) => SavedRbp::Kept,
                Some(RegisterRule::Offset(n)) if n < 0 => {
                    u32::try_from(n.unsigned_abs()).map_or(SavedRbp::Lost, SavedRbp::BelowCfa)
                }
                Some(_) => SavedRbp::Lost,
            };
            Some(Rule { base, offset: u32::try_from(*offset).ok()?, rbp })
        }
        CfaRule::Expression(expression) => realigned(row, *expression, section),
    }
}

/// gcc's frame that realigns the stack: CFA = *(rbp - n), caller's rbp = *rbp.
fn realigned(
    row: &UnwindTableRow<usize, OnStack>,
    cfa: UnwindExpression<usize>,
    section: &EhFrame<Reader>,
) -> Option<Rule> {
    /// DW_OP_breg6 is rbp plus a signed LEB128 number.
    const BREG_RBP: u8 = gimli::DW_OP_breg6.0;
    const DEREF: u8 = gimli::DW_OP_deref.0;
    let Some(RegisterRule::Expression(rbp)) = row.register(X86_64::RBP) else { return None };
    if rbp.get(section).ok()?.0.slice() != [BREG_RBP, 0] {
        return None;
    }
    let offset = match *cfa.get(section).ok()?.0.slice() {
        [BREG_RBP, n, DEREF] if n & 0x80 == 0 => i64::from((n << 1) as i8 >> 1),
        [BREG_RBP, low, high, DEREF] if low & 0x80 != 0 && high & 0x80 == 0 => {
            i64::from(low & 0x7f) | i64::from((high << 1) as i8 >> 1) << 7
        }
        _ => return None,
    };
    let below = u32::try_from(-offset).ok()?;
    Some(Rule { base: Base::RbpIndirect, offset: below, rbp: SavedRbp::AtRbp })
}
