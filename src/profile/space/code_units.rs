//! The function and the loop nest of every instruction that accessed memory, and how its address comes about.
//!
//! A function is what the symbols say, or a frame description entry without them: an outlined OpenMP body is a
//! function, and inlined functions belong to the one that holds them. Code outside every ELF file has the mapping that
//! holds it for a function.

use rustc_hash::FxHashMap;

use super::Space;
use super::modules::Modules;
use super::processes::process_in;
use crate::profile::PAGE;
use crate::profile::records::{AccessCode, CodeUnit, Frame, NO_MODULE};
use crate::profile::replay::{Addresses, Loops};
use crate::topology::emulator;

impl Space {
    /// Keeps the mapping of code outside every ELF file, which may be gone when the program has ended.
    pub(super) fn keep_region(&mut self, pid: u32, frame: Frame) {
        if frame.module != NO_MODULE || self.regions.contains_key(&frame.offset) {
            return;
        }
        let slot = self.find(pid);
        let mapping = slot.and_then(|s| process_in(&mut self.slots, s).kernel.get(frame.offset));
        self.regions.insert(frame.offset, mapping.map_or(frame.offset & !(PAGE - 1), |m| m.low));
    }

    /// The units of the instructions that [`Space::frame`] returned so far. Decodes code: call it when the program has
    /// ended.
    pub fn code_units(&mut self) -> Vec<CodeUnit> {
        let mut frames: Vec<Frame> = self.frames.iter().filter(|(_, call)| !**call).map(|(f, _)| *f).collect();
        frames.sort_unstable();
        let mut out = Vec::with_capacity(frames.len());
        for group in frames.chunk_by(|a, b| a.module == b.module) {
            if group[0].module == NO_MODULE {
                let region = |f: &Frame| self.regions.get(&f.offset).copied();
                out.extend(group.iter().filter_map(|f| {
                    let low = region(f)?;
                    Some(CodeUnit { frame: *f, function: low, nest: low })
                }));
            } else if (group[0].module as usize) < self.modules.count() {
                in_module(&mut self.modules, group, &mut out);
            }
        }
        out
    }
}

impl Space {
    /// A sample was charged to the instruction `frame` and taken so many bytes behind its first one.
    pub fn count_wait(&mut self, frame: Frame, bytes: u64) {
        let bytes = u8::try_from(bytes).unwrap_or(u8::MAX);
        *self.waits.entry((frame, bytes)).or_default() += 1;
    }

    /// What the instructions that were charged tell of the time of their accesses. Decodes code: call it when the
    /// program has ended.
    pub fn access_code(&mut self) -> Vec<AccessCode> {
        let mut waits: Vec<((Frame, u8), u64)> = self.waits.iter().map(|(at, n)| (*at, *n)).collect();
        waits.sort_unstable();
        let mut functions: FxHashMap<(u32, u64), Addresses> = FxHashMap::default();
        let emulated = emulator::executes_this_program();
        let mut out = Vec::new();
        for of_one in waits.chunk_by(|a, b| a.0.0 == b.0.0) {
            let frame = of_one[0].0.0;
            if (frame.module as usize) >= self.modules.count() {
                continue;
            }
            let file = self.modules.file(frame.module);
            let Some((low, high)) = file.functions().at(frame.offset) else { continue };
            let decode = || Addresses::of(low, file.elf.bytes_at(low, high).unwrap_or(&[]));
            let Some(place) = functions.entry((frame.module, low)).or_insert_with(decode).at(frame.offset) else {
                continue;
            };
            // Still at the instruction: a repeated one that is interrupted between its elements.
            let is_behind = |bytes: u8| bytes == 0 || bytes == place.length;
            // An emulator interrupts a program between blocks of code, wherever it would have waited.
            let told = |w: &&((Frame, u8), u64)| !emulated && is_behind(w.0.1);
            let all: u64 = of_one.iter().map(|w| w.1).sum();
            let behind: u64 = of_one.iter().filter(told).map(|w| w.1).sum();
            let later = if emulated { 0 } else { all - behind };
            let (address, body, gap) = (place.address, place.body, place.gap);
            out.push(AccessCode { frame, address, body, gap, behind, later });
        }
        out
    }
}

/// The units of instructions of one module, ascending.
fn in_module(modules: &mut Modules, frames: &[Frame], out: &mut Vec<CodeUnit>) {
    let file = modules.file(frames[0].module);
    let mut functions: FxHashMap<u64, Loops> = FxHashMap::default();
    for &frame in frames {
        let Some((low, high)) = file.functions().at(frame.offset) else { continue };
        let loops = functions.entry(low).or_insert_with(|| Loops::of(low, file.elf.bytes_at(low, high).unwrap_or(&[])));
        out.push(CodeUnit { frame, function: low, nest: loops.nest(frame.offset).unwrap_or(low) });
    }
}
