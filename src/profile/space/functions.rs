//! Function bounds of an ELF file by virtual address.
//!
//! In order: symbols with a size, call frame information (`.eh_frame`, which survives strip), symbols without a
//! size up to the next symbol, and as a last resort a window of the section.

use addr2line::gimli::{self, UnwindSection};
use object::{Object, ObjectSection, ObjectSymbol, SymbolFlags, elf};

use super::elf::{ElfFile, Section};
use crate::profile::PAGE;

/// Bounds of all functions of one file.
#[derive(Debug, Default)]
pub struct Functions {
    /// Symbols with a size, ascending and disjoint (the enclosing one of nested symbols).
    sized: Vec<(u64, u64)>,
    /// Frame description entries, ascending and disjoint.
    frames: Vec<(u64, u64)>,
    /// Starts of code symbols without a size, ascending.
    starts: Vec<u64>,
    code: Vec<Section>,
}

impl Functions {
    /// Reads symbols (of the debug file too, when there is one) and `.eh_frame`.
    pub fn read(file: &ElfFile, debug: Option<&ElfFile>) -> Functions {
        let mut out = Functions::default();
        let Some(object) = file.object() else { return out };
        out.code = file.sections().into_iter().filter(|s| s.executable).collect();
        let debug = debug.and_then(ElfFile::object);
        for s in object.symbols().chain(object.dynamic_symbols()) {
            out.add_symbol(&s);
        }
        for s in debug.iter().flat_map(|d| d.symbols()) {
            out.add_symbol(&s);
        }
        out.frames = frame_entries(&object);
        flatten(&mut out.sized);
        flatten(&mut out.frames);
        out.starts.sort_unstable();
        out.starts.dedup();
        out
    }

    fn add_symbol<'d>(&mut self, symbol: &impl ObjectSymbol<'d>) {
        if !is_code(symbol) {
            return;
        }
        let low = symbol.address();
        let Some(section) = self.code.iter().find(|s| s.low <= low && low < s.high) else { return };
        match symbol.size() {
            0 => self.starts.push(low),
            size => self.sized.push((low, low.saturating_add(size).min(section.high))),
        }
    }

    /// The function that holds `vaddr`; none outside the code sections of the file.
    pub fn at(&self, vaddr: u64) -> Option<(u64, u64)> {
        if let Some(found) = find(&self.sized, vaddr).or_else(|| find(&self.frames, vaddr)) {
            return Some(found);
        }
        let section = self.code.iter().find(|s| s.low <= vaddr && vaddr < s.high)?;
        let after = self.starts.partition_point(|&s| s <= vaddr);
        let low = after.checked_sub(1).map(|i| self.starts[i]).filter(|&s| s >= section.low);
        let mut next = self.starts.get(after).copied().unwrap_or(section.high).min(section.high);
        if let Some(&(start, _)) = self.sized.get(self.sized.partition_point(|f| f.0 <= vaddr)) {
            next = next.min(start);
        }
        match low {
            Some(low) => Some((low, next)),
            // No start is known: two pages of code; linear decoding finds instruction boundaries there.
            None => {
                let page = vaddr & !(PAGE - 1);
                Some((page.max(section.low), (page + 2 * PAGE).min(next)))
            }
        }
    }
}

/// STT_FUNC, STT_GNU_IFUNC or untyped, and defined.
pub fn is_code<'d>(symbol: &impl ObjectSymbol<'d>) -> bool {
    let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { return false };
    symbol.section_index().is_some()
        && matches!(st_info.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_NOTYPE)
}

fn find(ranges: &[(u64, u64)], vaddr: u64) -> Option<(u64, u64)> {
    let found = ranges[..ranges.partition_point(|r| r.0 <= vaddr)].last()?;
    (vaddr < found.1).then_some(*found)
}

/// Sorts the ranges and drops those that begin inside an earlier one.
fn flatten(ranges: &mut Vec<(u64, u64)>) {
    ranges.sort_unstable_by(|a, b| (a.0, b.1).cmp(&(b.0, a.1)));
    let mut end = 0;
    ranges.retain(|r| {
        let keep = r.0 < r.1 && r.0 >= end;
        if keep {
            end = r.1;
        }
        keep
    });
}

fn frame_entries(object: &object::File<'_>) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let Some(section) = object.section_by_name(".eh_frame") else { return out };
    let Ok(data) = section.uncompressed_data() else { return out };
    let eh_frame = gimli::EhFrame::new(&data, gimli::LittleEndian);
    let mut bases = gimli::BaseAddresses::default().set_eh_frame(section.address());
    if let Some(text) = object.section_by_name(".text") {
        bases = bases.set_text(text.address());
    }
    if let Some(got) = object.section_by_name(".got") {
        bases = bases.set_got(got.address());
    }
    let mut entries = eh_frame.entries(&bases);
    // A damaged section ends the list; the entries before the damage are valid.
    while let Ok(Some(entry)) = entries.next() {
        if let gimli::CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(gimli::EhFrame::cie_from_offset)
        {
            out.push((fde.initial_address(), fde.initial_address().saturating_add(fde.len())));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_and_repeated_ranges_become_the_enclosing_one() {
        let mut r = vec![(20, 30), (10, 20), (12, 14), (10, 15), (30, 30), (29, 40)];
        flatten(&mut r);
        assert_eq!(r, [(10, 20), (20, 30)]);
    }

    #[test]
    fn symbols_without_size_end_at_the_next_one() {
        let text = Section { name: ".text".into(), low: 0x1000, high: 0x1100, executable: true };
        let f = Functions {
            sized: vec![(0x1080, 0x10a0)],
            frames: vec![(0x10b0, 0x10c0)],
            starts: vec![0x1010, 0x1050],
            code: vec![text],
        };
        assert_eq!(f.at(0x1020), Some((0x1010, 0x1050)));
        assert_eq!(f.at(0x1060), Some((0x1050, 0x1080)));
        assert_eq!(f.at(0x1090), Some((0x1080, 0x10a0)));
        assert_eq!(f.at(0x10b4), Some((0x10b0, 0x10c0)));
        assert_eq!(f.at(0x1004), Some((0x1000, 0x1010)));
        assert_eq!(f.at(0x1100), None);
    }
}
