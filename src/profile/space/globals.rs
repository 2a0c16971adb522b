//! Variables of an ELF file by virtual address, and the bytes of its sections outside all variables.
//!
//! Symbols overlap (aliases, symbols inside others). One answer per byte is chosen the same way every time: global
//! symbols before weak before local ones, larger before smaller, then by address and name.

use object::{Object, ObjectSymbol, SymbolFlags, elf};

use super::elf::{ElfFile, Section};
use crate::profile::ranges::Ranges;

/// A variable or section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataObject {
    /// Linkage name, or section name.
    pub name: String,
    /// First virtual address.
    pub vaddr: u64,
    /// Bytes, including those that belong to another object.
    pub size: u64,
    /// A section: only its bytes outside all variables belong to it.
    pub section: bool,
}

/// All data of one file.
#[derive(Debug, Default)]
pub struct Globals {
    /// Variables and sections.
    pub objects: Vec<DataObject>,
    /// The bytes of each, by index into `objects`.
    pub pieces: Ranges<u32>,
}

/// A symbol before overlaps are resolved.
#[derive(Debug, Clone)]
struct Candidate {
    rank: u8,
    low: u64,
    high: u64,
    name: String,
}

impl Globals {
    /// Reads `.symtab` of the file, else of its debug file, else `.dynsym`.
    pub fn read(file: &ElfFile, debug: Option<&ElfFile>) -> Globals {
        let sections = file.sections();
        let data: Vec<&Section> = sections.iter().filter(|s| !s.executable).collect();
        let mut candidates = Vec::new();
        let own = file.object();
        let other = debug.and_then(ElfFile::object);
        let tables = own.iter().chain(&other);
        for object in tables {
            candidates.extend(object.symbols().filter_map(|s| candidate(&s, &data)));
            if !candidates.is_empty() {
                break;
            }
        }
        if candidates.is_empty()
            && let Some(object) = &own
        {
            candidates.extend(object.dynamic_symbols().filter_map(|s| candidate(&s, &data)));
        }
        Globals::build(candidates, &sections)
    }

    fn build(mut candidates: Vec<Candidate>, sections: &[Section]) -> Globals {
        candidates.sort_by(|a, b| {
            let size = |c: &Candidate| c.high - c.low;
            (a.rank, size(b), a.low, &a.name).cmp(&(b.rank, size(a), b.low, &b.name))
        });
        let mut out = Globals::default();
        for c in candidates {
            out.add(DataObject { name: c.name, vaddr: c.low, size: c.high - c.low, section: false });
        }
        for s in sections {
            out.add(DataObject { name: s.name.clone(), vaddr: s.low, size: s.high - s.low, section: true });
        }
        out
    }

    /// Adds an object with those of its bytes that belong to no other one, if there are any.
    fn add(&mut self, object: DataObject) {
        let index = self.objects.len() as u32;
        if !self.pieces.fill(object.vaddr, object.vaddr + object.size, index).is_empty() {
            self.objects.push(object);
        }
    }
}

/// A symbol that names data: STT_OBJECT, STT_COMMON, or untyped with a size (assembly), inside a data section.
fn candidate<'d>(symbol: &impl ObjectSymbol<'d>, data: &[&Section]) -> Option<Candidate> {
    let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { return None };
    if !matches!(st_info.st_type(), elf::STT_OBJECT | elf::STT_COMMON | elf::STT_NOTYPE) || symbol.size() == 0 {
        return None;
    }
    let low = symbol.address();
    let high = low.checked_add(symbol.size())?;
    let after = data.partition_point(|s| s.low <= low);
    let section = data.get(after.checked_sub(1)?)?;
    // An undefined or absolute symbol has no bytes here; a size beyond the section's end is wrong.
    if symbol.section_index().is_none() || high > section.high {
        return None;
    }
    let rank = match st_info.st_bind() {
        elf::STB_GLOBAL | elf::STB_GNU_UNIQUE => 0,
        elf::STB_WEAK => 1,
        _ => 2,
    };
    let name = String::from_utf8_lossy(symbol.name_bytes().ok()?).into_owned();
    (!name.is_empty()).then_some(Candidate { rank, low, high, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn c(rank: u8, low: u64, high: u64, name: &str) -> Candidate {
        Candidate { rank, low, high, name: name.into() }
    }

    fn at(g: &Globals, vaddr: u64) -> &str {
        g.pieces.get(vaddr).map_or("-", |p| g.objects[p.value as usize].name.as_str())
    }

    #[test]
    fn one_name_per_byte_whatever_the_order_of_symbols() {
        let section = Section { name: ".bss".into(), low: 0x100, high: 0x200, executable: false };
        let mut symbols = vec![
            c(0, 0x110, 0x150, "big"),
            c(0, 0x110, 0x150, "alias"),
            c(2, 0x100, 0x120, "local"),
            c(0, 0x120, 0x128, "inside"),
            c(1, 0x180, 0x190, "weak"),
        ];
        let check = |g: &Globals| {
            assert_eq!([at(g, 0x110), at(g, 0x124), at(g, 0x14f)], ["alias"; 3]);
            assert_eq!(at(g, 0x10f), "local");
            assert_eq!([at(g, 0x150), at(g, 0x17f), at(g, 0x190), at(g, 0x1ff)], [".bss"; 4]);
            assert_eq!(at(g, 0x188), "weak");
            assert_eq!(at(g, 0x200), "-");
            assert_eq!(g.pieces.locate(0x200), Err((0x200, u64::MAX)));
        };
        check(&Globals::build(symbols.clone(), std::slice::from_ref(&section)));
        symbols.reverse();
        check(&Globals::build(symbols, &[section]));
    }

    #[test]
    fn a_section_full_of_variables_has_no_remainder() {
        let section = Section { name: ".data".into(), low: 0x100, high: 0x110, executable: false };
        let g = Globals::build(vec![c(0, 0x100, 0x110, "all")], &[section]);
        assert_eq!(g.objects.len(), 1);
    }
}
