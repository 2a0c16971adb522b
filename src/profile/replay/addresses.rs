//! How the address of every access of a function comes about: from registers that count, from a value that was loaded,
//! or from a value whose own address was loaded before. It decides how many lines can be under way at a time.
//!
//! Values are followed through the innermost loop around an instruction, in the order of its instructions, as if every
//! one were executed: a value that is overwritten only on one side of a branch counts as overwritten. Stack slots and
//! single variables at fixed addresses hold values like registers, so that code without optimisation is understood.
//! What calls return is not known.
//!
//! A register that is multiplied, shifted or XORed with itself in each turn does not count: it is a generator of random
//! numbers or a hash, and what it addresses is as far apart as what is loaded through indices. A product of registers
//! that count is a row of a matrix.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess,
    Register, UsedMemory,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::cfg::MAX_FUNCTION_BYTES;
use super::spins::spins;
use crate::profile::records::AddressKind;

/// Loads of a loop that are told apart, one bit each; of a longer loop nothing is known.
const MOST_LOADS: usize = 62;
/// The bit of values that come from a call.
const UNKNOWN: Origins = 1 << 63;
/// Times that a loop is gone through: a value may pass through that many others before it is an address.
const ROUNDS: usize = 4;
/// Instructions in a loop up to which it is followed; larger ones do not fit into any processor's window anyway.
pub(super) const MOST_INSTRUCTIONS: usize = 4_096;
/// Registers, and the flags behind them.
const FLAGS: usize = 256;

/// What is known of one instruction that accesses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessPlace {
    /// How its address comes about.
    pub address: AddressKind,
    /// Instructions of the innermost loop around it; 0 outside of loops.
    pub body: u32,
    /// Instructions from it to the next that accesses memory, itself included; 0 outside of loops.
    pub gap: u32,
    /// Bytes of the instruction.
    pub length: u8,
}

/// The accesses of one function, by address of the instruction.
#[derive(Debug, Default)]
pub struct Addresses {
    places: FxHashMap<u64, AccessPlace>,
}

impl Addresses {
    /// Of the code at `start`. Functions above the replay's limit and code that does not decode have none.
    pub fn of(start: u64, code: &[u8]) -> Addresses {
        let mut found = Addresses::default();
        if code.len() > MAX_FUNCTION_BYTES {
            return found;
        }
        let decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let all: Vec<Instruction> = decoder.into_iter().collect();
        let mut factory = InstructionInfoFactory::new();
        for i in &all {
            if accesses(factory.info(i)).next().is_some() {
                let length = i.len() as u8;
                let place = AccessPlace { address: AddressKind::Unknown, body: 0, gap: 0, length };
                found.places.insert(i.ip(), place);
            }
        }
        for body in innermost(&all) {
            found.add_loop(body, &mut factory);
        }
        for ip in spins(&all, &mut factory) {
            if let Some(place) = found.places.get_mut(&ip) {
                place.address = AddressKind::Spun;
            }
        }
        found
    }

    /// What is known of the instruction at an address; none when it accesses no memory.
    pub fn at(&self, ip: u64) -> Option<AccessPlace> {
        self.places.get(&ip).copied()
    }

    fn add_loop(&mut self, body: &[Instruction], factory: &mut InstructionInfoFactory) {
        let mut flow = Flow::new();
        for _ in 0..ROUNDS {
            body.iter().for_each(|i| flow.step(i, factory.info(i)));
        }
        let at: Vec<usize> = (0..body.len()).filter(|k| self.places.contains_key(&body[*k].ip())).collect();
        for (n, k) in at.iter().enumerate() {
            // After the last access of the body comes the first one again.
            let next = at.get(n + 1).copied().unwrap_or(body.len() + at[0]);
            let address = flow.kind(body[*k].ip());
            if let Some(place) = self.places.get_mut(&body[*k].ip()) {
                (place.address, place.body, place.gap) = (address, body.len() as u32, (next - k) as u32);
            }
        }
    }
}

/// The loops, as the indices of their first instruction and of their backward branch.
pub(super) fn loops(all: &[Instruction]) -> Vec<(usize, usize)> {
    let index = |ip: u64| all.binary_search_by_key(&ip, Instruction::ip).ok();
    let backward = |i: &Instruction| {
        let is_branch = matches!(i.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
        (is_branch && i.near_branch_target() <= i.ip()).then(|| Some((index(i.near_branch_target())?, index(i.ip())?)))
    };
    let mut spans: Vec<(usize, usize)> = all.iter().filter_map(|i| backward(i).flatten()).collect();
    spans.sort_unstable();
    spans.dedup();
    spans
}

/// Loops without another loop inside, as their instructions.
fn innermost(all: &[Instruction]) -> Vec<&[Instruction]> {
    let spans = loops(all);
    let holds_another = |s: &(usize, usize)| spans.iter().any(|o| o != s && s.0 <= o.0 && o.1 <= s.1);
    let inner = spans.iter().filter(|s| !holds_another(s) && s.1 - s.0 < MOST_INSTRUCTIONS);
    inner.map(|s| &all[s.0..=s.1]).collect()
}

/// The operands in memory that are data.
pub(super) fn accesses(info: &InstructionInfo) -> impl Iterator<Item = &UsedMemory> {
    info.used_memory().iter().filter(|m| m.access() != OpAccess::NoMemAccess)
}

pub(super) fn reads(access: OpAccess) -> bool {
    use OpAccess::{CondRead, Read, ReadCondWrite, ReadWrite};
    matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
}

pub(super) fn writes(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

/// Where a value comes from: loads in the lower bits, and above them instructions that mix bits, see [`mixes`].
type Origins = u128;

/// Where the values of a loop come from.
struct Flow {
    registers: [Origins; FLAGS + 1],
    slots: FxHashMap<(Register, u64), Origins>,
    /// By instruction: its bit, and what its address comes from.
    loads: FxHashMap<u64, (Origins, Origins)>,
    /// By instruction that mixes: its bit, and what its operands come from.
    mixers: FxHashMap<u64, (Origins, Origins)>,
    /// Operands that the loop stores to, and those of its loads.
    stored: FxHashSet<Operand>,
    operands: FxHashMap<u64, Operand>,
}

/// Base, index and displacement.
type Operand = (Register, Register, u64);

/// Bit of the first instruction that mixes; there are no more of them than loads, the others count as additions.
const FIRST_MIXER: u32 = u64::BITS;
/// The bit of values that change from turn to turn: an instruction makes them of its own last result.
const VARIES: Origins = 1 << (Origins::BITS - 1);

/// Whether an instruction makes a value of the last one at its place.
fn updates(info: &InstructionInfo) -> bool {
    let used = info.used_registers();
    let is_read = |full: Register| used.iter().any(|r| reads(r.access()) && r.register().full_register() == full);
    let in_register = used.iter().filter(|r| writes(r.access())).any(|r| is_read(r.register().full_register()));
    in_register || accesses(info).any(|m| reads(m.access()) && writes(m.access()))
}

/// Whether an instruction spreads the bits of its operands over the result. A mask or a division is no such thing: both
/// make a ring of a counter.
fn mixes(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Crc32, Imul, Mul, Mulx, Rol, Ror, Rorx, Sar, Sarx, Shl, Shlx, Shr, Shrx, Xor};
    matches!(mnemonic, Imul | Mul | Mulx | Crc32 | Xor | Rol | Ror | Rorx | Shl | Shlx | Shr | Shrx | Sar | Sarx)
}

impl Flow {
    fn new() -> Flow {
        Flow {
            registers: [0; FLAGS + 1],
            slots: FxHashMap::default(),
            loads: FxHashMap::default(),
            mixers: FxHashMap::default(),
            stored: FxHashSet::default(),
            operands: FxHashMap::default(),
        }
    }

    fn register(&self, register: Register) -> Origins {
        if register == Register::None { 0 } else { self.registers[register.full_register() as usize % FLAGS] }
    }

    /// A variable at a fixed place: a stack slot, or one of the program's.
    fn slot(memory: &UsedMemory) -> Option<(Register, u64)> {
        let fixed = memory.index() == Register::None
            && matches!(memory.base().full_register(), Register::None | Register::RSP | Register::RBP | Register::RIP);
        fixed.then(|| (memory.base().full_register(), memory.displacement()))
    }

    /// The bit of the loads of an instruction.
    fn bit(&mut self, ip: u64) -> Origins {
        let next = self.loads.len();
        let new = if next < MOST_LOADS { 1 << next } else { UNKNOWN };
        self.loads.entry(ip).or_insert((new, 0)).0
    }

    /// The origins of the result of an instruction whose operands come from `value`.
    fn mixed(&mut self, i: &Instruction, value: Origins) -> Origins {
        let next = FIRST_MIXER + self.mixers.len() as u32;
        if !mixes(i.mnemonic()) || (next + 1 == Origins::BITS && !self.mixers.contains_key(&i.ip())) {
            return value;
        }
        let (bit, operands) = self.mixers.entry(i.ip()).or_insert_with(|| (1 << next, 0));
        *operands |= value;
        value | *bit
    }

    fn step(&mut self, i: &Instruction, info: &InstructionInfo) {
        let mut value: Origins = 0;
        let is_zero = i.op_count() >= 2
            && matches!(i.mnemonic(), Mnemonic::Xor | Mnemonic::Sub | Mnemonic::Pxor | Mnemonic::Xorps)
            && i.op0_register() != Register::None
            && i.op0_register() == i.op1_register();
        if !is_zero {
            value = info
                .used_registers()
                .iter()
                .filter(|r| reads(r.access()))
                .fold(0, |v, r| v | self.register(r.register()));
            if i.rflags_read() != 0 {
                value |= self.registers[FLAGS];
            }
        }
        for memory in accesses(info) {
            let address = self.register(memory.base()) | self.register(memory.index());
            if let Some(slot) = Flow::slot(memory) {
                value |= if reads(memory.access()) { self.slots.get(&slot).copied().unwrap_or(0) } else { 0 };
                continue;
            }
            let operand = (memory.base(), memory.index(), memory.displacement());
            if writes(memory.access()) {
                self.stored.insert(operand);
            }
            self.operands.insert(i.ip(), operand);
            let bit = self.bit(i.ip());
            if let Some(load) = self.loads.get_mut(&i.ip()) {
                load.1 |= address;
            }
            value |= if reads(memory.access()) { bit | address } else { 0 };
        }
        if !is_zero {
            value = self.mixed(i, value);
            if updates(info) {
                value |= VARIES;
            }
        }
        for memory in accesses(info).filter(|m| writes(m.access())) {
            if let Some(slot) = Flow::slot(memory) {
                self.slots.insert(slot, value);
            }
        }
        for used in info.used_registers().iter().filter(|r| writes(r.access())) {
            let register = used.register().full_register() as usize % FLAGS;
            let kept = if matches!(used.access(), OpAccess::CondWrite) { self.registers[register] } else { 0 };
            self.registers[register] = value | kept;
        }
        if i.rflags_modified() != 0 {
            self.registers[FLAGS] = value;
        }
        // The stack pointer is a base that counts, whatever is pushed.
        self.registers[Register::RSP as usize] = 0;
        if matches!(i.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            use Register::{R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI};
            for lost in [RAX, RCX, RDX, RSI, RDI, R8, R9, R10, R11] {
                self.registers[lost as usize] = UNKNOWN;
            }
        }
    }

    fn kind(&self, ip: u64) -> AddressKind {
        let Some(&(_, from)) = self.loads.get(&ip) else { return AddressKind::Counted };
        if from & UNKNOWN != 0 {
            return AddressKind::Unknown;
        }
        // What lies at a place that stays the same, as the beginning of an array in a structure, stays the same as
        // well.
        let is_fixed =
            |ip: &u64, own: Origins| own == 0 && self.operands.get(ip).is_none_or(|at| !self.stored.contains(at));
        let is_loaded = || self.loads.iter().any(|(ip, (bit, own))| from & bit != 0 && !is_fixed(ip, *own));
        let feeds_itself = |(bit, own): &(Origins, Origins)| from & bit != 0 && own & bit != 0;
        if self.loads.values().any(feeds_itself) {
            AddressKind::Chained
        } else if is_loaded() || self.mixers.values().any(feeds_itself) {
            AddressKind::Loaded
        } else {
            AddressKind::Counted
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(code: &[u8]) -> Vec<(u64, AddressKind, u32, u32)> {
        let found = Addresses::of(0, code);
        let mut list: Vec<_> = found.places.iter().map(|(ip, p)| (*ip, p.address, p.body, p.gap)).collect();
        list.sort_by_key(|l| l.0);
        list
    }

    #[test]
    fn a_stream_a_gather_and_a_chain() {
        // 0: addsd xmm0,[rdi+rax*8]; 5: inc rax; 8: cmp rax,rdx; b: jne 0
        let stream = [0xf2, 0x0f, 0x58, 0x04, 0xc7, 0x48, 0xff, 0xc0, 0x48, 0x39, 0xd0, 0x75, 0xf3, 0xc3];
        assert_eq!(kinds(&stream)[0], (0, AddressKind::Counted, 4, 4));
        // 0: mov rcx,[rsi+rax*8]; 4: addsd xmm0,[rdi+rcx*8]; 9: inc rax; c: cmp rax,rdx; f: jne 0
        let gather = [
            0x48, 0x8b, 0x0c, 0xc6, 0xf2, 0x0f, 0x58, 0x04, 0xcf, 0x48, 0xff, 0xc0, 0x48, 0x39, 0xd0, 0x75, 0xef, 0xc3,
        ];
        let found = kinds(&gather);
        assert_eq!((found[0], found[1]), ((0, AddressKind::Counted, 5, 1), (4, AddressKind::Loaded, 5, 4)));
        // 0: mov rax,[rax]; 3: add rcx,[rax+8]; 7: test rax,rax; a: jne 0
        let chain = [0x48, 0x8b, 0x00, 0x48, 0x03, 0x48, 0x08, 0x48, 0x85, 0xc0, 0x75, 0xf4, 0xc3];
        let found = kinds(&chain);
        assert_eq!((found[0].1, found[1].1), (AddressKind::Chained, AddressKind::Chained));
    }

    #[test]
    fn a_generator_of_random_numbers_does_not_count() {
        // 0: imul rax,rcx; 4: add rax,r8; 7: mov rdx,rax; a: shr rdx,33; e: add qword [rdi+rdx*8],1; 13: dec rsi; 16:
        // jne 0
        let random = [
            0x48, 0x0f, 0xaf, 0xc1, 0x4c, 0x01, 0xc0, 0x48, 0x89, 0xc2, 0x48, 0xc1, 0xea, 0x21, 0x48, 0x83, 0x04, 0xd7,
            0x01, 0x48, 0xff, 0xce, 0x75, 0xe8, 0xc3,
        ];
        assert_eq!(kinds(&random)[0].1, AddressKind::Loaded);
        // The rows of a matrix: 0: mov rdx,rax; 3: imul rdx,rcx; 7: nop; a: mov rdx,rdx; d: nop; e: add qword
        // [rdi+rdx*8],1; 13: inc rax; 16: jne 0
        let rows = [
            0x48, 0x89, 0xc2, 0x48, 0x0f, 0xaf, 0xd1, 0x0f, 0x1f, 0x00, 0x48, 0x89, 0xd2, 0x90, 0x48, 0x83, 0x04, 0xd7,
            0x01, 0x48, 0xff, 0xc0, 0x75, 0xe8, 0xc3,
        ];
        assert_eq!(kinds(&rows)[0].1, AddressKind::Counted);
        // A ring: 0: inc rax; 3: and rax,rcx; 6: add qword [rdi+rax*8],1; b: dec rsi; e: jne 0
        let ring =
            [0x48, 0xff, 0xc0, 0x48, 0x21, 0xc8, 0x48, 0x83, 0x04, 0xc7, 0x01, 0x48, 0xff, 0xce, 0x75, 0xf0, 0xc3];
        assert_eq!(kinds(&ring)[0].1, AddressKind::Counted);
    }

    #[test]
    fn the_beginning_of_an_array_that_is_loaded_again_is_no_index() {
        // 0: mov rdx,[rdi]; 3: movzx ecx,byte [rdx+rax]; 7: add [rdi+8],rcx; b: inc rax; e: cmp rax,rsi; 11: jne 0
        let array = [
            0x48, 0x8b, 0x17, 0x0f, 0xb6, 0x0c, 0x02, 0x48, 0x01, 0x4f, 0x08, 0x48, 0xff, 0xc0, 0x48, 0x39, 0xf0, 0x75,
            0xed, 0xc3,
        ];
        assert_eq!(kinds(&array)[1].1, AddressKind::Counted);
        // A list whose place is in a structure: 0: mov rdx,[rdi]; 3: mov rcx,[rdx]; 6: mov [rdi],rcx; 9: dec rsi; c:
        // jne 0
        let list = [0x48, 0x8b, 0x17, 0x48, 0x8b, 0x0a, 0x48, 0x89, 0x0f, 0x48, 0xff, 0xce, 0x75, 0xf2, 0xc3];
        assert_eq!(kinds(&list)[1].1, AddressKind::Loaded);
    }

    #[test]
    fn a_chain_through_the_stack_and_a_search_by_conditional_moves() {
        // 0: mov rax,[rbp-8]; 4: mov rax,[rax]; 7: mov [rbp-8],rax; b: test rax,rax; e: jne 0
        let stack =
            [0x48, 0x8b, 0x45, 0xf8, 0x48, 0x8b, 0x00, 0x48, 0x89, 0x45, 0xf8, 0x48, 0x85, 0xc0, 0x75, 0xf0, 0xc3];
        let found: Vec<AddressKind> = kinds(&stack).iter().map(|f| f.1).take(3).collect();
        assert_eq!(found, [AddressKind::Counted, AddressKind::Chained, AddressKind::Counted]);
        // 0: cmp [rdi+rax*8],rdx; 4: cmovl rax,rcx; 8: dec rcx; b: jne 0
        let search = [0x48, 0x39, 0x14, 0xc7, 0x48, 0x0f, 0x4c, 0xc1, 0x48, 0xff, 0xc9, 0x75, 0xf3, 0xc3];
        assert_eq!(kinds(&search)[0].1, AddressKind::Chained);
    }

    #[test]
    fn what_a_call_returns_is_not_known_and_loops_are_the_innermost() {
        // 0: call 0; 5: mov rax,[rax]; 8: dec rbx; b: jne 0
        let call = [0xe8, 0xfb, 0xff, 0xff, 0xff, 0x48, 0x8b, 0x00, 0x48, 0xff, 0xcb, 0x75, 0xf3, 0xc3];
        assert_eq!(kinds(&call).iter().find(|k| k.0 == 5).unwrap().1, AddressKind::Unknown);
        let alone = [0x48, 0x8b, 0x00, 0xc3];
        assert_eq!(kinds(&alone)[0], (0, AddressKind::Unknown, 0, 0));
        assert!(Addresses::of(0, &[]).places.is_empty());
    }
}
