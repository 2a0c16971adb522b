//! Code of a live process for the replay: function symbols of every mapped ELF file.

use std::collections::HashMap;
use std::fs;

use addr2line::gimli::{self, UnwindSection};
use numamma::profile::replay::{CodeSource, Function};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};

/// [`Function::key`] of the program itself; libraries have another.
pub const PROGRAM: u64 = 1;

struct Symbol {
    key: u64,
    start: u64,
    code: Vec<u8>,
}

/// Functions sorted by run-time address.
pub struct LiveCode {
    functions: Vec<Symbol>,
}

impl LiveCode {
    /// Reads the symbols of everything mapped executable in `pid` at the moment.
    pub fn of(pid: i32) -> LiveCode {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps of a live child");
        let mut bias: HashMap<String, u64> = HashMap::new();
        let program = fs::read_link(format!("/proc/{pid}/exe")).expect("exe of a live child");
        let mut functions = Vec::new();
        for line in maps.lines() {
            let f: Vec<&str> = line.split_whitespace().collect();
            if f.len() < 6 || !f[1].contains('x') || !f[5].starts_with('/') {
                continue;
            }
            let start = u64::from_str_radix(f[0].split('-').next().unwrap_or("0"), 16).expect("hex");
            let offset = u64::from_str_radix(f[2], 16).expect("hex");
            let Ok(bytes) = fs::read(f[5]) else { continue };
            let Ok(elf) = object::File::parse(&*bytes) else { continue };
            let holds =
                |s: &object::Segment| s.file_range().0 <= offset && offset < s.file_range().0 + s.file_range().1;
            let Some(segment) = elf.segments().find(|s| holds(s)) else { continue };
            let load = start.wrapping_sub(segment.address() + offset - segment.file_range().0);
            if bias.insert(f[5].to_string(), load).is_none() {
                let key = if program.as_os_str() == f[5] { PROGRAM } else { PROGRAM + 1 };
                collect(&elf, &bytes, load, key, &mut functions);
            }
        }
        functions.sort_by_key(|s: &Symbol| s.start);
        functions.dedup_by_key(|s| s.start);
        LiveCode { functions }
    }
}

fn collect(elf: &object::File<'_>, bytes: &[u8], load: u64, key: u64, out: &mut Vec<Symbol>) {
    let file_offset = |addr: u64| {
        elf.segments().find_map(|s| {
            let (off, len) = s.file_range();
            (addr >= s.address() && addr < s.address() + len).then(|| (off + addr - s.address()) as usize)
        })
    };
    let mut add = |start: u64, len: u64| {
        let Some(off) = file_offset(start) else { return };
        if let Some(code) = bytes.get(off..off + len as usize) {
            out.push(Symbol { key, start: load.wrapping_add(start), code: code.to_vec() });
        }
    };
    for (start, len) in unwind_ranges(elf) {
        add(start, len);
    }
    for s in elf.symbols().chain(elf.dynamic_symbols()) {
        if s.kind() != SymbolKind::Text || s.size() == 0 || s.is_undefined() {
            continue;
        }
        add(s.address(), s.size());
    }
}

/// Functions of .eh_frame: all that a stripped file has.
fn unwind_ranges(elf: &object::File<'_>) -> Vec<(u64, u64)> {
    let Some(section) = elf.section_by_name(".eh_frame") else { return Vec::new() };
    let Ok(data) = section.data() else { return Vec::new() };
    let frames = gimli::EhFrame::new(data, gimli::LittleEndian);
    let bases = gimli::BaseAddresses::default().set_eh_frame(section.address());
    let mut entries = frames.entries(&bases);
    let mut found = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        if let gimli::CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(gimli::EhFrame::cie_from_offset)
        {
            found.push((fde.initial_address(), fde.len()));
        }
    }
    found
}

impl CodeSource for LiveCode {
    fn function_at(&mut self, ip: u64) -> Option<Function<'_>> {
        let k = self.functions.partition_point(|s| s.start <= ip).checked_sub(1)?;
        let s = &self.functions[k];
        (ip < s.start + s.code.len() as u64).then_some(Function { key: s.key, start: s.start, code: &s.code })
    }
}
