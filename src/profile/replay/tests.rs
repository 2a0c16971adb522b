//! Edge cases of the replay on assembled snippets; the label `ip` marks the sampled instruction. What the processor
//! really does is compared in tests/truth/replay.rs.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use object::{Object, ObjectSection, ObjectSymbol};

mod gathers;
mod recovered;

use super::*;
use crate::profile::records::Certainty;

const START: u64 = 0x40_0000;
const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
const RBX: usize = 3;
const RSP: usize = 4;
const RSI: usize = 6;
const RDI: usize = 7;
const ZF: u64 = 0x40;
/// Leaves undefined flags, so that a test need not compute the right ones. Register rbp is lost.
const BLUR: &str = "shl ebp, cl";

struct Snippet {
    code: Vec<u8>,
    ip: u64,
    /// Memory that can be read, as 8-byte values by address; constant below [`CHANGING`].
    memory: Vec<(u64, u64)>,
}

/// From here on memory may change.
const CHANGING: u64 = 0x8000;

impl Snippet {
    fn read(&self, addr: u64, bytes: &mut [u8]) -> bool {
        bytes.chunks_mut(8).zip((addr..).step_by(8)).all(|(part, addr)| {
            let found = self.memory.iter().find(|m| m.0 == addr);
            found.is_some_and(|m| {
                part.copy_from_slice(&m.1.to_le_bytes()[..part.len()]);
                true
            })
        })
    }
}

impl CodeSource for Snippet {
    fn function_at(&mut self, ip: u64) -> Option<Function<'_>> {
        let inside = ip.wrapping_sub(START) < self.code.len() as u64;
        inside.then_some(Function { key: 0, start: START, code: &self.code })
    }

    fn object_at(&mut self, addr: u64) -> Option<u64> {
        (addr >= 0x1_0000).then_some(addr >> 16)
    }

    fn constant(&mut self, addr: u64, bytes: &mut [u8]) -> bool {
        addr < CHANGING && self.read(addr, bytes)
    }

    fn memory_now(&mut self, addr: u64, bytes: &mut [u8]) -> bool {
        self.read(addr, bytes)
    }
}

fn assemble(text: &str) -> Snippet {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("numamma-replay-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let base = std::env::temp_dir().join(name);
    let (source, out) = (base.with_extension("s"), base.with_extension("o"));
    std::fs::write(&source, format!(".intel_syntax noprefix\n.globl ip\n{text}\n")).unwrap();
    assert!(Command::new("as").arg(&source).arg("-o").arg(&out).status().unwrap().success(), "{text}");
    let bytes = std::fs::read(&out).unwrap();
    let _ = std::fs::remove_file(source);
    let _ = std::fs::remove_file(out);
    let elf = object::File::parse(&*bytes).unwrap();
    let code = elf.section_by_name(".text").unwrap().data().unwrap().to_vec();
    let ip = elf.symbols().find(|s| s.name() == Ok("ip")).unwrap().address();
    Snippet { code, ip: START + ip, memory: Vec::new() }
}

/// Replays a sample at label `ip` with the given registers.
fn run(text: &str, registers: &[(usize, u64)], flags: u64) -> (Outcome, Vec<ReplayAccess>) {
    run_with(text, registers, flags, 0)
}

fn run_with(text: &str, registers: &[(usize, u64)], flags: u64, fs_base: u64) -> (Outcome, Vec<ReplayAccess>) {
    let mut snippet = assemble(text);
    let mut regs = Regs { ip: snippet.ip, flags: flags | 0x202, fs_base, ..Regs::default() };
    for &(r, v) in registers {
        regs.gpr[r] = v;
    }
    let mut out = vec![];
    let outcome = Replayer::new().replay(&regs, &[], &mut snippet, &mut out);
    assert!(out.iter().filter(|a| a.carries_cost).count() <= 1, "{out:x?}");
    (outcome, out)
}

fn carrier(out: &[ReplayAccess]) -> ReplayAccess {
    *out.iter().find(|a| a.carries_cost).expect("an access that carries the cost")
}

/// The cost's address when one access before `ip` is expected to be exact.
fn cost(text: &str, registers: &[(usize, u64)]) -> u64 {
    let (outcome, out) = run(text, registers, 0);
    assert_eq!(outcome, Outcome::Resolved, "{text}: {out:x?}");
    let c = carrier(&out);
    assert_eq!((c.certainty, c.ahead), (Certainty::Exact, false), "{text}");
    c.addr
}

#[test]
fn invertible_changes_are_undone() {
    for (change, now, before) in [
        ("add rax, 16", 0x1010, 0x1000u64),
        ("sub rax, 16", 0x1000, 0x1010),
        ("inc rax", 0x1001, 0x1000),
        ("dec rax", 0x1000, 0x1001),
        ("neg rax", 0x1000, 0xffff_ffff_ffff_f000),
        ("not rax", 0x1000, 0xffff_ffff_ffff_efff),
        ("xor rax, 0xff", 0x10ff, 0x1000),
        ("xor rax, rbx", 0x10ff ^ 0x77, 0x10ff),
        ("add rax, rbx", 0x1077, 0x1000),
        ("sub rax, rbx", 0x1000, 0x1077),
        ("lea rax, [rax + rbx*4 + 8]", 0x1000 + 0x77 * 4 + 8, 0x1000),
        ("lea rax, [rax + rax*2]", 0x3000, 0x1000),
        ("lea rax, [rax*8]", 0x8000, 0x1000),
        ("imul rax, rax, 5", 0x5000, 0x1000),
        ("shl rax, 4", 0x10000, 0x1000),
        ("bswap rax", 0x0010_0000_0000_0000, 0x1000),
        ("xchg rax, rbx", 5, 0x77),
        ("mov rcx, rax; xor eax, eax", 0, 0x1000),
        ("lea rcx, [rax]; mov eax, 7", 7, 0x1000),
    ] {
        let text = format!("mov rdx, [rax]; {change}; {BLUR}; ip: nop");
        assert_eq!(cost(&text, &[(RAX, now), (RBX, 0x77), (RCX, 0x1000)]), before, "{change}");
    }
}

#[test]
fn partial_writes_keep_the_upper_bits_and_32_bit_writes_zero_them() {
    assert_eq!(cost("mov rcx, [rax]; add al, 0x10; shl ebp, cl; ip: nop", &[(RAX, 0x12_3405)]), 0x12_34f5);
    assert_eq!(cost("mov rcx, [rax]; dec ax; shl ebp, cl; ip: nop", &[(RAX, 0x12_ffff)]), 0x12_0000);
    assert_eq!(cost("mov rcx, [rax]; inc eax; shl ebp, cl; ip: nop", &[(RAX, 0x1001)]), 0x1000);
    let lost = |text| run(text, &[(RAX, 0x1000)], 0).0;
    assert_eq!(lost("mov rcx, [rax]; mov al, 1; ip: nop"), Outcome::Unresolved);
    assert_eq!(lost("mov rcx, [rax]; mov ah, 1; ip: nop"), Outcome::Unresolved);
    assert_eq!(lost("mov rcx, [rax]; add ah, bl; shl ebp, cl; ip: nop"), Outcome::Unresolved);
    // A result that differs from the source was there before; one that is equal may be either.
    let conditional = "mov rcx, [rax]; cmove rax, rbx; ip: nop";
    assert_eq!(cost(conditional, &[(RAX, 0x1000), (RBX, 0x77)]), 0x1000);
    assert_eq!(run(conditional, &[(RAX, 0x1000), (RBX, 0x1000)], 0).0, Outcome::Unresolved);
    // eax = ebx determines only the low half of rbx.
    assert_eq!(lost("mov rcx, [rbx]; mov eax, ebx; mov rbx, [rsp]; ip: nop"), Outcome::Resolved);
    let (_, out) = run("mov rcx, [rbx]; mov eax, ebx; mov rbx, [rsp]; ip: nop", &[(RAX, 0x1000)], 0);
    assert!(out.iter().all(|a| a.ip != START), "{out:x?}");
}

#[test]
fn forward_values_fill_what_the_way_back_lost() {
    // rax is overwritten, but it came from rbx and a constant.
    assert_eq!(cost("lea rax, [rbx+16]; mov rax, [rax]; ip: nop", &[(RBX, 0x2000)]), 0x2010);
    assert_eq!(cost("mov eax, 0x5000; mov rax, [rax+8]; ip: nop", &[]), 0x5008);
    assert_eq!(cost("movsxd rax, ebx; mov rax, [rcx+rax*8]; ip: nop", &[(RBX, 0xffff_ffff), (RCX, 0x100)]), 0xf8);
    assert_eq!(cost("mov eax, ebx; and eax, 0xf0; mov eax, [rax]; ip: nop", &[(RBX, 0x12f3)]), 0xf0);
    assert_eq!(cost("mov rax, rbx; shr rax, 4; mov rax, [rax]; ip: nop", &[(RBX, 0x1000)]), 0x100);
}

#[test]
fn addresses_of_every_form() {
    assert_eq!(cost("mov ecx, [eax+4]; ip: nop", &[(RAX, 0xdead_0000_0000_1000)]), 0x1004);
    assert_eq!(cost("mov rcx, [rip+0x10]; ip: nop", &[]), START + 7 + 0x10);
    assert_eq!(cost("lea rax, [rip+0x10]; mov rax, [rax]; ip: nop", &[]), START + 7 + 0x10);
    assert_eq!(cost("mov cl, [rsp+rbx*2-8]; ip: nop", &[(RSP, 0x7000), (RBX, 4)]), 0x7000);
    let (_, out) = run("add dword ptr [rbx], 1; ip: nop", &[(RBX, 0x10)], 0);
    assert_eq!((carrier(&out).write, carrier(&out).size), (true, 4));
}

#[test]
fn thread_local_needs_the_base() {
    let text = "mov rax, fs:[0x28]; ip: nop";
    assert_eq!(run(text, &[], 0), (Outcome::Tls, vec![]));
    let (outcome, out) = run_with(text, &[], 0, 0x7f00_0000);
    assert_eq!((outcome, carrier(&out).addr), (Outcome::Resolved, 0x7f00_0028));
}

#[test]
fn strings_are_where_their_pointers_are() {
    let regs = [(RSI, 0x1000), (RDI, 0x2000), (RCX, 64)];
    let (outcome, out) = run("ip: rep movsb", &regs, 0);
    assert_eq!((outcome, carrier(&out).addr, carrier(&out).write), (Outcome::Resolved, 0x1000, false));
    assert!(out.iter().any(|a| a.addr == 0x2000 && a.write));
    let (_, out) = run("ip: rep stosq", &regs, 0);
    assert_eq!((carrier(&out).addr, carrier(&out).write, carrier(&out).size), (0x2000, true, 8));
    // Over: the last element is one back; with a count left it cannot have been executed.
    let over = [(RSI, 0x1000), (RDI, 0x2000), (RCX, 0)];
    assert_eq!(cost("rep stosq; ip: nop", &over), 0x1ff8);
    assert_ne!(run("rep stosq; ip: nop", &regs, 0).0, Outcome::Resolved);
    // The pointer after a known count, forwards.
    let (_, out) = run("ip: rep stosq; mov rax, [rdi]", &regs, 0);
    assert!(out.iter().any(|a| a.addr == 0x2000 + 64 * 8 && !a.write), "{out:x?}");
}

#[test]
fn the_stack_gets_the_cost_only_when_just_before() {
    let regs = [(RDI, 0x3000), (RSP, 0x7000)];
    assert_eq!(cost("mov [rdi], rax; push rbx; ip: nop", &regs), 0x7000);
    assert_eq!(cost("mov [rdi], rax; push rbx; nop; ip: nop", &regs), 0x3000);
    assert_eq!(cost("pop rbx; ip: nop", &regs), 0x6ff8);
    assert_eq!(cost("mov rax, [rbp+8]; leave; nop; ip: nop", &regs), 0x6ff8 + 8);
    assert_eq!(cost("push [rdi]; ip: nop", &regs), 0x3000);
    // The caller may have had a nearer access.
    let (outcome, out) = run("push rbx; nop; ip: nop", &regs, 0);
    let c = carrier(&out);
    assert_eq!((outcome, c.addr, c.certainty), (Outcome::Resolved, 0x7000, Certainty::ObjectOnly));
}

#[test]
fn what_is_no_data_access() {
    let regs = [(RDI, 0x3000), (RAX, 0x3000)];
    for text in ["prefetcht0 [rdi]", "nop dword ptr [rdi]", "lea rax, [rdi]", "endbr64"] {
        assert_eq!(run(&format!("{text}; ip: nop"), &regs, 0), (Outcome::NoAccess, vec![]), "{text}");
    }
    // The return has read its address, whatever the function called did before.
    let (outcome, out) = run("mov rax, [rdi]; call rdx; ip: nop", &[(RDI, 0x3000), (RSP, 0x7000)], 0);
    assert_eq!(
        (outcome, carrier(&out).addr, carrier(&out).certainty),
        (Outcome::Resolved, 0x6ff8, Certainty::ObjectOnly)
    );
    assert_eq!(run("mov rax, [rdi]; call rdx; nop; ip: nop", &regs, 0).0, Outcome::NoAccess);
    assert_eq!(run("mov rax, [rdi]; syscall; ip: nop", &regs, 0).0, Outcome::NoAccess);
}

const SUM: &str = "xor eax, eax; top: add rbx, [rdi+rax*8]; add rax, 1; cmp rax, rdx; jne top; ret";

#[test]
fn a_loop_head_comes_from_the_back_edge_unless_it_is_the_entry() {
    let text = SUM.replace("top: add", "top: ip: add");
    // cmp 5, 9: carry and sign, odd parity set for 0xfc (6 bits), auxiliary carry.
    let flags = 0x1 | 0x80 | 0x4 | 0x10;
    let (outcome, out) = run(&text, &[(RAX, 5), (RDX, 9), (RDI, 0x1000)], flags);
    assert_eq!((outcome, carrier(&out).addr), (Outcome::Resolved, 0x1000 + 4 * 8));
    // On entry rax is 0 and xor left other flags than cmp 0, 9 would.
    let (outcome, out) = run(&text, &[(RAX, 0), (RDX, 9), (RDI, 0x1000)], ZF | 0x4);
    assert_eq!(outcome, Outcome::NoAccess, "{out:x?}");
    assert_eq!(out.len(), 1, "{out:x?}");
    assert_eq!((out[0].addr, out[0].ahead), (0x1000, true));
}

#[test]
fn branches_ahead_are_followed_when_decided() {
    let text = "ip: cmp rax, rdx; jne over; mov rcx, [rbx]; ret; over: mov rcx, [rdi]; ret";
    let (_, out) = run(text, &[(RAX, 1), (RDX, 1), (RBX, 0x10), (RDI, 0x20)], 0);
    assert!(out.iter().any(|a| a.addr == 0x10) && out.iter().all(|a| a.addr != 0x20), "{out:x?}");
    let text = "nop; ip: cmp qword ptr [rsi], 0; jne over; mov rcx, [rbx]; ret; over: mov rcx, [rdi]; ret";
    let (_, out) = run(text, &[(RSI, 0x30), (RBX, 0x10), (RDI, 0x20)], 0);
    assert_eq!(out.iter().map(|a| a.addr).collect::<Vec<_>>(), [0x30]);
}

#[test]
fn flags_decide_a_merge_and_otherwise_nobody_does() {
    let text = "test rcx, rcx; je zero; mov rax, [rbx]; jmp join; zero: mov rax, [rdi]; join: ip: nop";
    let at = |rcx, flags| run(text, &[(RCX, rcx), (RBX, 0x10), (RDI, 0x20)], flags);
    let (outcome, out) = at(0, ZF | 0x4);
    assert_eq!((outcome, carrier(&out).addr), (Outcome::Resolved, 0x20));
    let (outcome, out) = at(0x10, 0);
    assert_eq!((outcome, carrier(&out).addr), (Outcome::Resolved, 0x10));
    let blind =
        text.replace("test rcx, rcx", "cmp byte ptr [rsi], 0").replace("join: ip: nop", "join: inc rcx; ip: nop");
    assert_eq!(run(&blind, &[(RBX, 0x10), (RDI, 0x20)], 0).0, Outcome::Unresolved);
}

#[test]
fn a_chase_is_charged_to_the_next_node() {
    let text = "top: add rdx, [rax+8]; mov rax, [rax]; ip: test rax, rax; jne top; ret";
    let (outcome, out) = run(text, &[(RAX, 0x5000)], 0);
    let c = carrier(&out);
    assert_eq!((outcome, c.addr, c.ahead, c.certainty), (Outcome::Resolved, 0x5000, true, Certainty::Exact));
    // The end of the list: no next node, no guess.
    assert_eq!(run(text, &[(RAX, 0)], 0).0, Outcome::Unresolved);
    // Not a chase: the pointer is loaded anew each time.
    let text = "top: mov rax, [rsi]; mov rax, [rax]; ip: add rdx, rax; cmp byte ptr [rdi], 0; jne top; ret";
    assert_eq!(run(text, &[(RAX, 0x5000)], 0).0, Outcome::Unresolved);
}

/// Replays with a stack and memory; the access that is charged.
fn charged(text: &str, registers: &[(usize, u64)], stack: &[u64], memory: &[(u64, u64)]) -> Option<ReplayAccess> {
    let mut snippet = Snippet { memory: memory.to_vec(), ..assemble(text) };
    let mut regs = Regs { ip: snippet.ip, flags: 0x202, ..Regs::default() };
    registers.iter().for_each(|&(r, v)| regs.gpr[r] = v);
    let stack: Vec<u8> = stack.iter().flat_map(|v| v.to_le_bytes()).collect();
    let mut out = vec![];
    Replayer::new().replay(&regs, &stack, &mut snippet, &mut out);
    out.into_iter().find(|a| a.carries_cost)
}

/// Two ways that nothing tells apart.
const FORK: &str = "cmp byte ptr [rsi], 0; je zero; mov rax, [rbx]; jmp join; zero: mov rax, [rdi]; join: inc rcx; \
                    test edx, edx; ip: nop";

#[test]
fn ways_charge_what_they_agree_on() {
    let at = |rbx, rdi| {
        let c = charged(FORK, &[(RBX, rbx), (RDI, rdi), (RSI, 0x5_0000), (RDX, 1)], &[], &[]);
        c.map(|c| (c.certainty, c.addr >> 16))
    };
    assert_eq!(at(0x2_0010, 0x2_0020), Some((Certainty::Page, 2)), "the page");
    assert_eq!(at(0x2_0010, 0x2_3020), Some((Certainty::ObjectOnly, 2)), "the object");
    assert_eq!(at(0x2_0010, 0x3_0020), None);
}

#[test]
fn memory_of_by_now_decides_what_nothing_else_does_but_never_exactly() {
    let registers = [(RBX, 0x2_0010), (RDI, 0x3_0020), (RSI, 0x5_0000), (RDX, 1)];
    let at = |byte| charged(FORK, &registers, &[], &[(0x5_0000, byte)]).map(|c| (c.certainty, c.addr));
    assert_eq!(at(1), Some((Certainty::ObjectOnly, 0x2_0010)));
    assert_eq!(at(0), Some((Certainty::ObjectOnly, 0x3_0020)));
}

#[test]
fn the_stack_of_the_sample_gives_spilled_pointers() {
    let text = "mov rax, [rsp+8]; mov rax, [rax+16]; ip: nop";
    let c = charged(text, &[(RSP, 0x7000)], &[1, 0x2_0000], &[]).expect("a charge");
    assert_eq!((c.certainty, c.addr), (Certainty::Exact, 0x2_0010));
    // Written since: the value of before is lost, unless the register that was stored is there.
    let over = "mov rax, [rsp+8]; mov rax, [rax+16]; mov qword ptr [rsp+8], 5; nop; mov [rsp], rcx; ip: nop";
    assert_eq!(charged(over, &[(RSP, 0x7000)], &[0, 5], &[]).map(|c| c.addr), Some(0x7000));
    let text = "mov rax, [rbp+8]; mov rax, [rax+16]; mov [rbp+8], rcx; mov ecx, 0; mov rdx, [rdx]; ip: nop";
    assert_eq!(charged(text, &[(RBX, 1)], &[], &[]), None, "the pointer of before is nowhere");
}

#[test]
fn callers_are_found_by_the_return_address() {
    let text = "mov rax, [rdi]; call inner; done: ret; inner: push rbx; mov rbx, rdx; ip: nop; ret";
    let back = START + 8;
    let registers = [(RDI, 0x2_0000), (RSP, 0x7000)];
    // The whole text is one function to the replay: the call's target is not its start.
    assert_eq!(charged(text, &registers, &[7, back], &[]).map(|c| c.certainty), Some(Certainty::ObjectOnly));
    let text = "inner: push rbx; mov rbx, rdx; ip: nop; ret; mov rax, [rdi]; call inner; ret";
    let back = START + 14;
    let c = charged(text, &registers, &[7, back], &[]).expect("a charge");
    assert_eq!((c.certainty, c.addr), (Certainty::Exact, 0x2_0000), "{c:x?}");
}

#[test]
fn jump_tables_lead_to_their_cases() {
    let text =
        "cmp eax, 1; ja other; jmp [rax*8 + 0x4000]; one: mov rcx, [rbx]; ret; other: ret; two: inc ebx; ip: nop";
    // The table's second case is the label `two`, an instruction of 2 bytes before the sampled one, which leaves flags
    // that the comparison does not.
    let snippet = assemble(text);
    let memory = [(0x4000, START + 12), (0x4008, snippet.ip - 2)];
    let c = charged(text, &[(RAX, 1), (RBX, 1)], &[], &memory).expect("a charge");
    assert_eq!((c.certainty, c.addr), (Certainty::Exact, 0x4008), "{c:x?}");
}

#[test]
fn refuses_what_it_cannot_decode() {
    let mut snippet = assemble("mov eax, 0x12345678; ip: nop");
    let mut out = vec![];
    let at = |ip| Regs { ip, ..Regs::default() };
    let mut replayer = Replayer::new();
    assert_eq!(replayer.replay(&at(START + 1), &[], &mut snippet, &mut out), Outcome::Undecoded);
    assert_eq!(replayer.replay(&at(START + 0x1000), &[], &mut snippet, &mut out), Outcome::Undecoded);
    let mut huge = Snippet { code: vec![0x90; cfg::MAX_FUNCTION_BYTES + 1], ip: START, memory: Vec::new() };
    assert_eq!(Replayer::new().replay(&at(START), &[], &mut huge, &mut out), Outcome::Undecoded);
}

#[test]
fn work_is_bounded_in_code_that_is_all_merges() {
    // Every instruction is a target of undecidable branches.
    let mut text = String::new();
    for k in 0..200 {
        text += &format!("l{k}: cmp byte ptr [rsi+{k}], 1; jne l{}; jp l{};", (k * 7 + 3) % 200, (k * 13 + 5) % 200);
    }
    let started = std::time::Instant::now();
    run(&(text + "ip: nop"), &[], 0);
    assert!(started.elapsed() < std::time::Duration::from_secs(5));
}
