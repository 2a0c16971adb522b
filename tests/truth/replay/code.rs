//! Code of a live process for the replay: function symbols of every mapped ELF file.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileExt;

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

/// Functions sorted by run-time address, and what lies in the rest of the memory.
pub struct LiveCode {
    functions: Vec<Symbol>,
    /// Memory of the program that does not change.
    fixed: Vec<(u64, Vec<u8>)>,
    /// Tables of the dynamic linker.
    slots: Vec<(u64, u64)>,
    /// Memory of the process, some time after the samples were taken.
    pub later: Option<fs::File>,
    /// Mappings and their files.
    mappings: Vec<(u64, u64, String)>,
    /// Objects that the program named.
    objects: Vec<(u64, u64, String)>,
}

impl LiveCode {
    /// Reads the symbols of everything mapped executable in `pid` at the moment.
    pub fn of(pid: i32) -> LiveCode {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps of a live child");
        let mut bias: HashMap<String, u64> = HashMap::new();
        let program = fs::read_link(format!("/proc/{pid}/exe")).expect("exe of a live child");
        let (mut functions, mut slots) = (Vec::new(), Vec::new());
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
                let tables = elf.sections().filter(|s| s.name().is_ok_and(|n| n.starts_with(".got")));
                slots.extend(
                    tables.map(|s| (load.wrapping_add(s.address()), load.wrapping_add(s.address() + s.size()))),
                );
            }
        }
        functions.sort_by_key(|s: &Symbol| s.start);
        functions.dedup_by_key(|s| s.start);
        let mut code =
            LiveCode { functions, fixed: Vec::new(), slots, later: None, mappings: Vec::new(), objects: Vec::new() };
        code.add_mappings(pid);
        code
    }

    /// Adds the mappings of the moment; those of a file, and neighbours without one, are one object.
    pub fn add_mappings(&mut self, pid: i32) {
        self.mappings.clear();
        self.fixed.clear();
        let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("mem of a traced child");
        for line in fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default().lines() {
            let f: Vec<&str> = line.split_whitespace().collect();
            let number = |text: &str| u64::from_str_radix(text, 16).expect("hex");
            let Some((start, end)) = f[0].split_once('-').map(|(a, b)| (number(a), number(b))) else { continue };
            let name = f.get(5).map_or_else(|| format!("{start:x}"), |n| n.to_string());
            // Read-only data, and the tables of the dynamic linker, which become read-only or change once.
            let file = name.starts_with('/');
            if file && f[1].starts_with("r--") {
                self.fixed.extend(read(&memory, start, end));
            }
            match self.mappings.last_mut() {
                Some(last) if last.1 == start && (f.len() < 6 && !last.2.starts_with('[')) => last.1 = end,
                _ => self.mappings.push((start, end, name)),
            }
        }
        self.add_slots(&memory);
    }

    fn add_slots(&mut self, memory: &fs::File) {
        self.slots.iter().for_each(|&(start, end)| self.fixed.extend(read(memory, start, end)));
    }

    /// Adds what the program printed as `object NAME ADDRESS BYTES`.
    pub fn add_objects(&mut self, printed: &str) {
        for line in printed.lines() {
            let f: Vec<&str> = line.split_whitespace().collect();
            if let ["object", name, start, bytes] = f[..]
                && let (Ok(start), Ok(bytes)) = (start.parse::<u64>(), bytes.parse::<u64>())
            {
                self.objects.push((start, start + bytes, name.to_string()));
            }
        }
    }

    /// The object at an address: one that the program named, else the mapping.
    pub fn object(&self, addr: u64) -> Option<&str> {
        let all = self.objects.iter().chain(&self.mappings);
        all.clone().find(|o| o.0 <= addr && addr < o.1).map(|o| o.2.as_str())
    }
}

fn read(memory: &fs::File, start: u64, end: u64) -> Option<(u64, Vec<u8>)> {
    let mut bytes = vec![0; (end - start) as usize];
    memory.read_exact_at(&mut bytes, start).ok().map(|()| (start, bytes))
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

    fn object_at(&mut self, addr: u64) -> Option<u64> {
        let all = self.objects.iter().chain(&self.mappings);
        all.clone().find(|o| o.0 <= addr && addr < o.1).map(|o| {
            use std::hash::{Hash, Hasher};
            let mut h = std::collections::hash_map::DefaultHasher::new();
            o.2.hash(&mut h);
            h.finish()
        })
    }

    fn constant(&mut self, addr: u64, bytes: &mut [u8]) -> bool {
        let Some((start, all)) = self.fixed.iter().find(|f| addr.wrapping_sub(f.0) < f.1.len() as u64) else {
            return false;
        };
        let at = (addr - start) as usize;
        all.get(at..at + bytes.len()).map(|b| bytes.copy_from_slice(b)).is_some()
    }

    fn memory_now(&mut self, addr: u64, bytes: &mut [u8]) -> bool {
        self.later.as_ref().is_some_and(|memory| memory.read_exact_at(bytes, addr).is_ok())
    }
}
