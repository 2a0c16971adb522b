//! Accesses by which a thread waits for another: loads of one place by a loop that pauses until it changes, as in
//! spin locks and the barriers of runtimes. Their time is waiting for a thread, not for memory.
//!
//! Of a loop with a spin-wait hint (`pause`, or the timed waits of WAITPKG), these are the accesses whose innermost
//! loop it is and whose address is the same in every turn.

use std::collections::BTreeSet;

use iced_x86::{
    FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess, Register, UsedMemory,
};

use super::addresses::{MOST_INSTRUCTIONS, accesses, loops, reads, writes};

/// The addresses of these instructions of a function.
pub(super) fn spins(all: &[Instruction], factory: &mut InstructionInfoFactory) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    if !all.iter().any(pauses) {
        return found;
    }
    let spans = loops(all);
    for &(first, last) in spans.iter().filter(|s| s.1 - s.0 < MOST_INSTRUCTIONS) {
        let body = &all[first..=last];
        if !body.iter().any(pauses) {
            continue;
        }
        let mut same = Same::at_start(body, factory);
        for (k, i) in (first..).zip(body) {
            let smaller = |s: &(usize, usize)| s.0 <= k && k <= s.1 && s.1 - s.0 < last - first;
            let info = factory.info(i);
            if accesses(info).any(|m| same.waits_at(m)) && !spans.iter().any(smaller) {
                found.insert(i.ip());
            }
            same.step(i, info);
        }
    }
    found
}

fn pauses(i: &Instruction) -> bool {
    matches!(i.mnemonic(), Mnemonic::Pause | Mnemonic::Tpause | Mnemonic::Umwait)
}

/// Which registers have the same value in every turn of a loop, at one instruction of it: those that the loop does not
/// write, and after it those that an instruction makes from such registers, constants and places at such addresses.
struct Same([bool; REGISTERS]);

const REGISTERS: usize = 256;

impl Same {
    /// At the first instruction of a loop.
    fn at_start(body: &[Instruction], factory: &mut InstructionInfoFactory) -> Same {
        let mut same = Same([true; REGISTERS]);
        for i in body {
            if calls(i) {
                CALLS_CHANGE.iter().for_each(|r| same.set(*r, false));
            }
            let written = factory.info(i).used_registers().iter().filter(|r| writes(r.access()));
            written.for_each(|r| same.set(r.register(), false));
        }
        // What is found after a turn holds at the start of the next.
        body.iter().for_each(|i| same.step(i, factory.info(i)));
        same
    }

    fn step(&mut self, i: &Instruction, info: &InstructionInfo) {
        let inputs = info.used_registers().iter().filter(|r| reads(r.access())).all(|r| self.is(r.register()));
        let same = inputs && accesses(info).all(|m| self.is_place(m));
        for used in info.used_registers().iter().filter(|r| writes(r.access())) {
            let kept = used.access() != OpAccess::CondWrite || self.is(used.register());
            self.set(used.register(), same && kept);
        }
        if calls(i) {
            CALLS_CHANGE.iter().for_each(|r| self.set(*r, false));
        }
    }

    fn is(&self, register: Register) -> bool {
        matches!(register, Register::None | Register::RIP | Register::EIP)
            || self.0[register.full_register() as usize % REGISTERS]
    }

    fn set(&mut self, register: Register, same: bool) {
        // Calls and pushes leave the stack pointer where it was.
        if register.full_register() != Register::RSP {
            self.0[register.full_register() as usize % REGISTERS] = same;
        }
    }

    fn is_place(&self, m: &UsedMemory) -> bool {
        self.is(m.base()) && self.is(m.index())
    }

    /// Whether an access is to the same place in every turn, and no slot of the own stack.
    fn waits_at(&self, m: &UsedMemory) -> bool {
        m.base().full_register() != Register::RSP && self.is_place(m)
    }
}

fn calls(i: &Instruction) -> bool {
    matches!(i.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

/// What functions may change: System V AMD64 ABI, 3.2.1.
const CALLS_CHANGE: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    fn found(code: &[u8]) -> Vec<u64> {
        let all: Vec<Instruction> = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).into_iter().collect();
        spins(&all, &mut InstructionInfoFactory::new()).into_iter().collect()
    }

    #[test]
    fn a_barrier_that_reads_its_generation_spins() {
        // libgomp: 0: mov esi,[rbx]; 2: cmp edx,esi; 4: jne 0x11; 6: pause; 8: add rax,1; c: cmp rcx,rax; f: jne 0; ret
        let barrier = [
            0x8b, 0x33, 0x39, 0xf2, 0x75, 0x0b, 0xf3, 0x90, 0x48, 0x83, 0xc0, 0x01, 0x48, 0x39, 0xc1, 0x75, 0xef, 0xc3,
        ];
        assert_eq!(found(&barrier), [0]);
        // The same without the pause searches for something, or waits for a device.
        let mut without = barrier;
        without[6..8].copy_from_slice(&[0x66, 0x90]);
        assert!(found(&without).is_empty());
    }

    #[test]
    fn a_wait_of_llvm_spins() {
        // 0: lea rax,[rip+16]; 7: cmp dword [rax],0; a: je 0x11; c: call 0; 11: pause; 13: lea rcx,[rip+16];
        // 1a: mov ecx,[rcx]; 1c: cmp ecx,[rbp]; 1f: jne 0; 21: ret
        let code = [
            0x48, 0x8d, 0x05, 16, 0, 0, 0, 0x83, 0x38, 0x00, 0x74, 0x05, 0xe8, 0xef, 0xff, 0xff, 0xff, 0xf3, 0x90,
            0x48, 0x8d, 0x0d, 16, 0, 0, 0, 0x8b, 0x09, 0x3b, 0x4d, 0x00, 0x75, 0xdf, 0xc3,
        ];
        assert_eq!(found(&code), [7, 0x1a, 0x1c]);
    }

    #[test]
    fn a_flag_behind_a_pointer_spins() {
        // 0: mov rax,[rdi+8]; 4: cmp [rax],rsi; 7: je 0xd; 9: pause; b: jmp 0; d: ret
        let code = [0x48, 0x8b, 0x47, 0x08, 0x48, 0x39, 0x30, 0x74, 0x04, 0xf3, 0x90, 0xeb, 0xf3, 0xc3];
        assert_eq!(found(&code), [0, 4]);
    }

    #[test]
    fn a_lock_in_a_loop_over_an_array_is_not_the_array() {
        // 0: add rcx,[rsi+rax*8]; 4: inc rax; 7: pause; 9: cmp qword [rdi],0; d: jne 0; f: ret
        let code = [0x48, 0x03, 0x0c, 0xc6, 0x48, 0xff, 0xc0, 0xf3, 0x90, 0x48, 0x83, 0x3f, 0x00, 0x75, 0xf1, 0xc3];
        assert_eq!(found(&code), [9]);
        // A list: 0: mov rax,[rax]; 3: pause; 5: test rax,rax; 8: jne 0; a: ret
        let list = [0x48, 0x8b, 0x00, 0xf3, 0x90, 0x48, 0x85, 0xc0, 0x75, 0xf6, 0xc3];
        assert!(found(&list).is_empty());
        // An inner loop: 0: add rcx,[rdi]; 3: dec rax; 6: jne 0; 8: pause; a: cmp [rsi],rcx; d: jne 0; f: ret
        let inner = [0x48, 0x03, 0x0f, 0x48, 0xff, 0xc8, 0x75, 0xf8, 0xf3, 0x90, 0x48, 0x39, 0x0e, 0x75, 0xf1, 0xc3];
        assert_eq!(found(&inner), [0xa]);
    }
}
