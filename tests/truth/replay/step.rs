//! Truth by single-stepping: the register file before every instruction, and what each one accesses.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, Register, UsedMemory};
use numamma::profile::perf::Regs;

use super::code::LiveCode;

/// A stretch of one thread's execution.
pub struct Trace {
    /// Registers before each instruction.
    pub regs: Vec<Regs>,
    /// The process's code, read while it was alive, and its objects.
    pub code: LiveCode,
    /// Data accesses of each instruction.
    pub accesses: Vec<Vec<TrueAccess>>,
    /// The stack above the stack pointer before each instruction, as a sample holds it.
    pub stacks: Vec<Vec<u8>>,
    #[expect(dead_code, reason = "its memory is read until it is dropped")]
    child: Stopped,
}

/// One access as it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrueAccess {
    pub addr: u64,
    /// A push, pop, call or return.
    pub stack: bool,
    /// Through fs or gs.
    pub tls: bool,
    /// A gather: the address means nothing.
    pub vsib: bool,
    /// A read at a fixed place.
    pub fixed: bool,
}

/// A stopped child, which is killed when dropped.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How long a program goes on after the trace before its memory is read for the samples.
const LATER: Duration = Duration::from_millis(50);
/// Index of rsp in [`Regs::gpr`].
const RSP: usize = 4;
/// Bytes of the stack in a sample.
const STACK_BYTES: usize = 512;

/// From where to step.
pub enum From {
    /// The program's own int3.
    Breakpoint,
    /// So long after the start, wherever it is then.
    Delay(Duration),
}

/// A program that ended within its delay is started again and stepped from this part of the delay on.
const SHORTER: f64 = 0.7;
/// A shorter delay would end in the start of the program.
const SHORTEST_DELAY: Duration = Duration::from_millis(20);

/// Steps `program args` from there to an int3, `limit` instructions or `patience`.
pub fn trace(program: &str, args: &[&str], from: From, limit: usize, patience: Duration) -> Trace {
    let mut command = Command::new(program);
    command.args(args).env("OMP_NUM_THREADS", "1").stdin(Stdio::null()).stdout(Stdio::piped());
    // SAFETY: the closure runs between fork and exec and makes one async-signal-safe system call.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let mut child = command.spawn().expect("program starts");
    let pid = child.id() as i32;
    wait_stop(pid); // exec
    request(libc::PTRACE_CONT, pid);
    if let From::Delay(d) = from {
        std::thread::sleep(d);
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
    }
    if !wait_stop(pid) {
        let _ = child.wait();
        match from {
            // The delay was chosen when the machine was busier.
            From::Delay(d) if d > SHORTEST_DELAY => {
                return trace(program, args, From::Delay(d.mul_f64(SHORTER)), limit, patience);
            }
            _ => panic!("{program} {args:?} ended before it could be stepped"),
        }
    }
    let mut code = LiveCode::of(pid);
    let memory = File::open(format!("/proc/{pid}/mem")).expect("mem of a traced child");
    let mut regs = Vec::with_capacity(limit);
    let (mut accesses, mut stacks) = (Vec::with_capacity(limit), Vec::with_capacity(limit));
    let mut decoder = TruthDecoder { memory, cache: HashMap::new(), factory: InstructionInfoFactory::new() };
    let start = Instant::now();
    while regs.len() < limit && start.elapsed() < patience {
        let r = registers(pid);
        let Some(a) = decoder.accesses(&r) else { break };
        // A repeated string instruction stops after every element, but is one step.
        match accesses.last_mut() {
            Some(before) if regs.last().is_some_and(|b: &Regs| b.ip == r.ip) && decoder.repeats(r.ip) => {
                let before: &mut Vec<TrueAccess> = before;
                before.extend(a);
            }
            _ => {
                accesses.push(a);
                stacks.push(decoder.stack(&r));
                // Samples of user code in 64-bit mode have no segment bases.
                regs.push(Regs { fs_base: 0, ..r });
            }
        }
        request(libc::PTRACE_SINGLESTEP, pid);
        if !wait_stop(pid) {
            break;
        }
    }
    code.add_mappings(pid);
    // A recorder looks at a sample when the buffer is drained: let the program go on.
    request(libc::PTRACE_CONT, pid);
    std::thread::sleep(LATER);
    // SAFETY: a signal to our own child.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    wait_stop(pid);
    code.later = File::open(format!("/proc/{pid}/mem")).ok();
    let mut printed = String::new();
    let mut pipe = child.stdout.take().expect("piped");
    // SAFETY: the descriptor is open, and so the end of what was printed is no reason to wait.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    let _ = pipe.read_to_string(&mut printed);
    code.add_objects(&printed);
    Trace { regs, code, accesses, stacks, child: Stopped(child) }
}

fn request(what: libc::c_uint, pid: i32) {
    // SAFETY: PTRACE_CONT and PTRACE_SINGLESTEP take no pointers; pid is our stopped child.
    unsafe { libc::ptrace(what, pid, 0, 0) };
}

/// Waits for the next stop; false when the process ended.
fn wait_stop(pid: i32) -> bool {
    let mut status = 0;
    // SAFETY: status is a live i32.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    libc::WIFSTOPPED(status)
}

fn registers(pid: i32) -> Regs {
    // SAFETY: user_regs_struct is plain integers, for which zero is a value.
    let mut u: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: the child is stopped and u is as large as PTRACE_GETREGS writes.
    unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &mut u) };
    Regs {
        gpr: [
            u.rax, u.rcx, u.rdx, u.rbx, u.rsp, u.rbp, u.rsi, u.rdi, u.r8, u.r9, u.r10, u.r11, u.r12, u.r13, u.r14,
            u.r15,
        ],
        ip: u.rip,
        flags: u.eflags,
        fs_base: u.fs_base,
    }
}

struct TruthDecoder {
    memory: File,
    cache: HashMap<u64, (Instruction, Vec<UsedMemory>)>,
    factory: InstructionInfoFactory,
}

impl TruthDecoder {
    /// Whether the instruction, seen before, is a string instruction with a repeat prefix.
    fn repeats(&self, ip: u64) -> bool {
        self.cache
            .get(&ip)
            .is_some_and(|(i, _)| i.is_string_instruction() && (i.has_rep_prefix() || i.has_repne_prefix()))
    }

    /// The bytes that a sample takes of the stack.
    fn stack(&self, r: &Regs) -> Vec<u8> {
        let mut bytes = vec![0; STACK_BYTES];
        let n = self.memory.read_at(&mut bytes, r.gpr[RSP]).unwrap_or(0);
        bytes.truncate(n);
        bytes
    }

    /// None at the int3 that ends the stretch.
    fn accesses(&mut self, r: &Regs) -> Option<Vec<TrueAccess>> {
        let (memory, factory) = (&self.memory, &mut self.factory);
        let (inst, mems) = self.cache.entry(r.ip).or_insert_with(|| {
            let mut bytes = [0u8; 15];
            let n = memory.read_at(&mut bytes, r.ip).unwrap_or(0);
            let inst = Decoder::with_ip(64, &bytes[..n], r.ip, DecoderOptions::NONE).decode();
            let mems = factory.info(&inst).used_memory();
            let real = |m: &&UsedMemory| !matches!(m.access(), OpAccess::None | OpAccess::NoMemAccess);
            (inst, mems.iter().filter(real).copied().collect())
        });
        if inst.mnemonic() == iced_x86::Mnemonic::Int3 {
            return None;
        }
        let operands = (0..inst.op_count()).filter(|&k| inst.op_kind(k) == iced_x86::OpKind::Memory).count();
        let value = |reg: Register, _, _| match reg {
            Register::FS => Some(r.fs_base),
            _ if reg.is_segment_register() => Some(0),
            _ if reg.is_gpr() => {
                let v = r.gpr[reg.full_register().number()];
                Some(if reg.size() == 4 { v & 0xffff_ffff } else { v })
            }
            _ => Some(0),
        };
        Some(
            mems.iter()
                .enumerate()
                .map(|(k, m)| TrueAccess {
                    addr: m.virtual_address(0, value).unwrap_or(0),
                    stack: inst.is_stack_instruction() && k >= operands,
                    tls: matches!(m.segment(), Register::FS | Register::GS),
                    vsib: m.index().is_vector_register(),
                    fixed: inst.is_ip_rel_memory_operand() && m.access() == OpAccess::Read,
                })
                .collect(),
        )
    }
}
