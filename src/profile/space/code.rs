//! Code bytes and function bounds for the replay.

use std::fs::File;
use std::hash::Hasher;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use rustc_hash::FxHasher;

use super::modules::LoadedModule;
use super::processes::{ProcessMemory, Space, process_in};
use crate::profile::PAGE;
use crate::profile::records::{ObjectKind, ThreadId};
use crate::profile::replay::{CodeSource, Function};

/// Set in the key of code that was read from memory.
const MEMORY_KEY: u64 = 1 << 63;
/// Pages read around an instruction outside every ELF file: its own, and the next for an instruction that crosses the
/// end.
const WINDOW_PAGES: u64 = 2;

/// Bit of an entry of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst).
const PAGE_PRESENT: u64 = 1 << 63;

/// Code of one process: from the ELF file where there is one, else from /proc/PID/mem. The key of code from memory
/// contains a hash of the code, because a JIT compiler reuses addresses.
#[derive(Debug)]
pub struct Code<'a> {
    space: &'a mut Space,
    pid: u32,
    sampled: Option<Sampled>,
    window: Vec<u8>,
}

/// The sample that code is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Sampled {
    /// When.
    pub time_ns: u64,
    /// Thread.
    pub thread: ThreadId,
    /// Its stack pointer.
    pub sp: u64,
}

impl<'a> Code<'a> {
    pub(super) fn new(space: &'a mut Space, pid: u32, sampled: Option<Sampled>) -> Code<'a> {
        Code { space, pid, sampled, window: Vec::new() }
    }

    /// Reads the process's memory as it is now. Only pages that are there: a read of any other would make the kernel
    /// bring one in, in the program's place.
    fn read_now(&mut self, addr: u64, bytes: &mut [u8]) -> Option<()> {
        let slot = self.space.find(self.pid)?;
        let serial = process_in(&mut self.space.slots, slot).serial;
        if self.space.memory.as_ref().is_none_or(|m| m.serial != serial) {
            let open = |what| File::open(format!("/proc/{}/{what}", self.pid)).ok();
            let opened = ProcessMemory { serial, memory: open("mem")?, pagemap: open("pagemap")? };
            self.space.memory = Some(opened);
        }
        let ProcessMemory { memory, pagemap, .. } = self.space.memory.as_ref()?;
        let last = addr.checked_add(bytes.len() as u64)? - 1;
        for page in addr / PAGE..=last / PAGE {
            let mut entry = [0; 8];
            pagemap.read_exact_at(&mut entry, page * 8).ok()?;
            if u64::from_le_bytes(entry) & PAGE_PRESENT == 0 {
                return None;
            }
        }
        memory.read_exact_at(bytes, addr).ok()
    }

    /// The loaded module and the bounds of the function (virtual addresses) of code in an ELF file.
    fn in_module(&mut self, ip: u64) -> Option<(u32, u64, u64)> {
        let slot = self.space.find(self.pid)?;
        let span = process_in(&mut self.space.slots, slot).loaded.get(ip)?;
        let LoadedModule { module, bias } = self.space.modules.get(span.value);
        let (low, high) = self.space.modules.file(module).functions().at(ip.wrapping_sub(bias))?;
        Some((span.value, low, high))
    }

    fn read_memory(&mut self, ip: u64) -> Option<Function<'_>> {
        let start = ip & !(PAGE - 1);
        let mut memory = File::open(format!("/proc/{}/mem", self.pid)).ok()?;
        memory.seek(SeekFrom::Start(start)).ok()?;
        self.window.clear();
        self.window.reserve((WINDOW_PAGES * PAGE) as usize);
        // An unmapped page ends the read with an error; the bytes before it are kept.
        let _ = memory.take(WINDOW_PAGES * PAGE).read_to_end(&mut self.window);
        if ip - start >= self.window.len() as u64 {
            return None;
        }
        let mut hasher = FxHasher::default();
        hasher.write_u32(self.pid);
        hasher.write(&self.window);
        Some(Function { key: hasher.finish() | MEMORY_KEY, start, code: &self.window })
    }
}

impl CodeSource for Code<'_> {
    fn function_at(&mut self, ip: u64) -> Option<Function<'_>> {
        let Some((instance, low, high)) = self.in_module(ip) else { return self.read_memory(ip) };
        let LoadedModule { module, bias } = self.space.modules.get(instance);
        let code = self.space.modules.file(module).elf.bytes_at(low, high)?;
        let start = low.wrapping_add(bias);
        (ip - start < code.len() as u64).then_some(Function { key: u64::from(instance), start, code })
    }

    fn object_at(&mut self, addr: u64) -> Option<u64> {
        let Sampled { time_ns, thread, sp } = self.sampled?;
        let object = self.space.attribute(time_ns, self.pid, thread, sp, addr);
        let known = self.space.objects.get(object).is_none_or(|o| o.kind != ObjectKind::Unknown);
        known.then_some(object.into())
    }

    fn constant(&mut self, addr: u64, bytes: &mut [u8]) -> bool {
        let mut read = || {
            let slot = self.space.find(self.pid)?;
            let span = process_in(&mut self.space.slots, slot).loaded.get(addr)?;
            let LoadedModule { module, bias } = self.space.modules.get(span.value);
            let (low, len) = (addr.wrapping_sub(bias), bytes.len() as u64);
            let high = low.checked_add(len)?;
            let file = self.space.modules.file(module);
            let within = |ranges: &[(u64, u64)]| ranges.iter().any(|r| r.0 <= low && high <= r.1);
            if within(file.relocated()) {
                return self.read_now(addr, bytes);
            }
            if !within(&file.elf.read_only()) {
                return None;
            }
            bytes.copy_from_slice(file.elf.bytes_at(low, high).filter(|b| b.len() as u64 == len)?);
            Some(())
        };
        read().is_some()
    }

    fn memory_now(&mut self, addr: u64, bytes: &mut [u8]) -> bool {
        self.read_now(addr, bytes).is_some()
    }
}
