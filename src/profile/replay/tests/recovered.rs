//! Addresses whose registers are overwritten, from values that are read again.

use super::*;

const R8: usize = 8;
/// Indices, which rdi counts, where rsi leads, and a table of 64 KiB, where rbx leads.
const INDICES: u64 = 0x9000;
const TABLE: u64 = 0x2_0000;

/// Replays a sample with memory, rdi as 4, and further registers.
fn replayed(text: &str, memory: &[(u64, u64)], registers: &[(usize, u64)]) -> (Outcome, Vec<ReplayAccess>) {
    let mut snippet = assemble(text);
    snippet.memory = memory.to_vec();
    let mut regs = Regs { ip: snippet.ip, flags: 0x202, ..Regs::default() };
    for &(r, v) in [(RSI, INDICES), (RBX, TABLE), (RDI, 4), (RSP, 0x7fff_0000)].iter().chain(registers) {
        regs.gpr[r] = v;
    }
    let mut out = vec![];
    let outcome = Replayer::new().replay(&regs, &[], &mut snippet, &mut out);
    (outcome, out)
}

/// The cost must lie that far from [`TABLE`], on a page that is not certain.
fn recovers(text: &str, memory: &[(u64, u64)], registers: &[(usize, u64)], distance: u64) {
    let (outcome, out) = replayed(text, memory, registers);
    assert_eq!(outcome, Outcome::Resolved, "{text}: {out:x?}");
    let c = carrier(&out);
    assert_eq!((c.addr.wrapping_sub(TABLE), c.certainty, c.ahead), (distance, Certainty::Page, false), "{text}");
    assert!(out.iter().all(|a| a.certainty != Certainty::ObjectOnly), "nothing is left of what was expected: {out:x?}");
}

/// No page may be named.
fn refuses(text: &str, memory: &[(u64, u64)], registers: &[(usize, u64)]) {
    let (outcome, out) = replayed(text, memory, registers);
    let named = out.iter().find(|a| a.carries_cost && a.certainty != Certainty::ObjectOnly && !a.ahead);
    assert!(named.is_none(), "{text}: {outcome:?} {out:x?}");
}

/// The fourth index.
const FOURTH: u64 = INDICES + 16;

#[test]
fn a_load_that_overwrites_its_index() {
    let memory = [(FOURTH, 0x700), (TABLE + 0x700 * 4, 99)];
    recovers("mov edx, [rsi+rdi*4]; mov edx, [rbx+rdx*4]; ip: nop", &memory, &[(RDX, 99)], 0x1c00);
    recovers("movsxd rcx, [rsi+rdi*4]; movsxd rcx, [rbx+rcx*4]; ip: nop", &memory, &[(RCX, 99)], 0x1c00);
    recovers("movzx edx, word ptr [rsi+rdi*4]; mov edx, [rbx+rdx*4]; ip: nop", &memory, &[(RDX, 99)], 0x1c00);
    let counted = &format!("mov edx, [rsi+rdi*4]; add rdi, 4; mov edx, [rbx+rdx*4]; add rax, rdx; {BLUR}; ip: nop");
    recovers(counted, &memory, &[(RDX, 99), (RDI, 8)], 0x1c00);
    // The table has changed since, but the address lies in the object that its register leads to.
    recovers(counted, &memory, &[(RDX, 98), (RDI, 8)], 0x1c00);
    // An index that was negative.
    let negative = [(FOURTH, 0xffff_fffc), (TABLE, 5)];
    recovers("movsxd rcx, [rsi+rdi*4]; mov ecx, [rbx+rcx*4+16]; ip: nop", &negative, &[(RCX, 5)], 0);
}

#[test]
fn an_index_that_is_computed_from_memory() {
    let memory = [(FOURTH, 0x700), (TABLE + 0x701 * 4, 99)];
    let combined = |op: &str| format!("mov ecx, edx; {op} ecx, [rsi+rdi*4]; mov ecx, [rbx+rcx*4]; ip: nop");
    for (op, rdx, distance) in
        [("xor", 1, 0x1c04), ("add", 1, 0x1c04), ("or", 1, 0x1c04), ("and", 0xf00, 0x1c00), ("imul", 2, 0x3800)]
    {
        recovers(&combined(op), &memory, &[(RCX, 99), (RDX, rdx)], distance);
    }
    recovers(&combined("sub"), &memory, &[(RCX, 99), (RDX, 0x702)], 8);
    let hash = "mov eax, [rsi+rdi*4]; shl eax, 2; xor eax, r8d; lea rax, [rax+rax*2]; shr rax, 1; mov eax, [rbx+rax*4]";
    recovers(&format!("{hash}; ip: nop"), &memory, &[(RAX, 99), (R8, 0)], 4 * (0x700 * 4 * 3 / 2));
    recovers("imul edx, [rsi+rdi*4], 3; mov edx, [rbx+rdx*4]; ip: nop", &memory, &[(RDX, 99)], 0x1c00 * 3);
    // From the result back: rax is what it was, combined with memory that never changes.
    let back = "mov rcx, [rax]; xor rax, [rsi]; ip: nop";
    let (_, out) = replayed(back, &[(0x1000, 0x30)], &[(RAX, TABLE ^ 0x30), (RSI, 0x1000)]);
    assert_eq!((carrier(&out).addr, carrier(&out).ip), (0x1000, START + 3), "the operand is read last");
}

#[test]
fn indices_that_are_looked_up_themselves() {
    let second = INDICES + 0x1000;
    let memory = [(FOURTH, 2), (second + 16, 0x11_0000_0500), (TABLE + 0x500 * 4, 7)];
    let chain = "mov edx, [rsi+rdi*4]; mov edx, [r8+rdx*8]; mov edx, [rbx+rdx*4]; ip: nop";
    recovers(chain, &memory, &[(RDX, 7), (R8, second)], 0x1400);
    // Sampled behind the second load: it is the one that waited.
    let (_, out) = replayed(
        "mov edx, [rsi+rdi*4]; mov edx, [r8+rdx*8]; ip: mov edx, [rbx+rdx*4]",
        &memory,
        &[(RDX, 0x500), (R8, TABLE)],
    );
    assert_eq!((carrier(&out).addr, carrier(&out).certainty), (TABLE + 16, Certainty::Page));
}

#[test]
fn values_that_may_not_be_read_again() {
    let memory = [(FOURTH, 0x700), (TABLE + 0x700 * 4, 99)];
    let gather = "mov edx, [rsi+rdi*4]; mov edx, [rbx+rdx*4]";
    // Not readable any more.
    refuses(&format!("{gather}; ip: nop"), &memory[1..], &[(RDX, 99)]);
    // Overwritten by the program itself, before the sample: by a store of the path.
    let stored = "mov edx, [rsi+rdi*4]; mov edx, [rbx+rdx*4]; mov [rsi+rdi*4], edx; ip: nop";
    let (_, out) = replayed(stored, &memory, &[(RDX, 99)]);
    assert_eq!((carrier(&out).addr, carrier(&out).write), (FOURTH, true));
    let between = "mov ecx, [rsi+rdi*4]; mov [rsi+rdi*4], r8d; mov ecx, [rbx+rcx*4]; ip: nop";
    refuses(between, &memory, &[(RCX, 99)]);
    // The index has changed since and leads into another object.
    refuses(&format!("{gather}; ip: nop"), &[(FOURTH, 0x7_0000), (TABLE + 0x7_0000 * 4, 98)], &[(RDX, 99)]);
    // It leads to no object at all.
    refuses("mov rdx, [rsi+rdi*4]; mov rdx, [rdx]; ip: nop", &[(FOURTH, 0x5000), (0x5000, 99)], &[(RDX, 99)]);
    // An instruction between them that is not followed.
    refuses("mov edx, [rsi+rdi*4]; shl edx, cl; mov edx, [rbx+rdx*4]; ip: nop", &memory, &[(RDX, 99)]);
    // More loads one after the other than are read.
    let chased = "mov rdx, [rdx]; ".repeat(12);
    refuses(&format!("mov rdx, rsi; {chased} ip: nop"), &[(INDICES, INDICES)], &[(RDX, INDICES)]);
}

#[test]
fn what_never_changes_is_exact() {
    let memory = [(0x1010, 0x700)];
    let (outcome, out) =
        replayed("mov edx, [rsi+rdi*4]; mov edx, [rbx+rdx*4]; ip: nop", &memory, &[(RDX, 99), (RSI, 0x1000)]);
    assert_eq!((outcome, carrier(&out).addr), (Outcome::Resolved, TABLE + 0x1c00));
    assert_eq!(carrier(&out).certainty, Certainty::Exact);
}

#[test]
fn a_pointer_needs_what_it_has_read_to_be_there_again() {
    let memory = [(FOURTH, TABLE + 0x40), (TABLE + 0x40, 99)];
    recovers("mov rdx, [rsi+rdi*4]; mov rdx, [rdx]; ip: nop", &memory, &[(RDX, 99)], 0x40);
    refuses("mov rdx, [rsi+rdi*4]; mov rdx, [rdx]; ip: nop", &memory, &[(RDX, 98)]);
}
