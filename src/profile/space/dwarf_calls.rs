//! Functions of a file with the calls by which they end (tail calls), from its DWARF.
//!
//! Only the units are read whose functions are asked about: of the others the address ranges.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use addr2line::gimli::{self, AttributeValue, DebugInfoOffset, EndianSlice, LittleEndian, UnitOffset};
use object::{Object, ObjectSection};

use super::elf::ElfFile;
use super::symbols;

/// Bytes of debug information that are read for one file: a second's work.
const MAX_READ: usize = 64 << 20;

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;

/// What a call site says of the function that it calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Callee {
    /// The function with this first address.
    At(u64),
    /// A function that is defined elsewhere, by linkage name.
    Named(String),
    /// Decided at run time.
    Unknown,
}

/// A call by which a function ends.
#[derive(Debug, Clone)]
pub struct TailCall {
    /// An address inside the jump.
    pub at: u64,
    /// Where it leads.
    pub callee: Callee,
}

/// One function with code.
#[derive(Debug, Default)]
pub struct Function {
    low: u64,
    ranges: Vec<(u64, u64)>,
    /// In the order of the debug information.
    pub tail_calls: Vec<TailCall>,
}

impl Function {
    /// Whether the code at `vaddr` is of this function.
    pub fn has(&self, vaddr: u64) -> bool {
        self.ranges.iter().any(|(low, high)| (*low..*high).contains(&vaddr))
    }
}

/// The debug information of one file, as far as it was read.
#[derive(Debug)]
pub struct DwarfCalls<'a> {
    dwarf: Dwarf<'a>,
    /// Address ranges, ascending, of the units with this offset.
    units: Vec<(u64, u64, DebugInfoOffset)>,
    /// Offsets of all units, ascending.
    starts: Vec<usize>,
    read: HashMap<usize, Rc<HashMap<u64, Rc<Function>>>>,
    bytes: usize,
}

/// The sections that [`DwarfCalls`] borrows.
pub type Sections<'a> = gimli::DwarfSections<Cow<'a, [u8]>>;

/// The debug sections of a file; none when they are damaged or too large to unpack.
pub fn sections(file: &ElfFile) -> Option<Sections<'_>> {
    let object = file.object()?;
    if symbols::is_too_large(file, &object) {
        return None;
    }
    let load = |id: gimli::SectionId| -> Result<Cow<'_, [u8]>, object::Error> {
        object.section_by_name(id.name()).map_or(Ok(Cow::Borrowed(&[][..])), |s| s.uncompressed_data())
    };
    gimli::DwarfSections::load(load).ok()
}

impl<'a> DwarfCalls<'a> {
    /// Reads the address ranges of the units.
    pub fn new(sections: &'a Sections<'_>) -> DwarfCalls<'a> {
        let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
        let (mut units, mut starts) = (Vec::new(), Vec::new());
        let mut headers = dwarf.units();
        // Damage ends the list; the units before it are valid.
        while let Ok(Some(header)) = headers.next() {
            let Some(offset) = header.debug_info_offset() else { continue };
            starts.push(offset.0);
            let Ok(unit) = dwarf.unit(header) else { continue };
            let Ok(mut ranges) = dwarf.unit_ranges(&unit) else { continue };
            while let Ok(Some(range)) = ranges.next() {
                units.push((range.begin, range.end, offset));
            }
        }
        units.sort_unstable_by_key(|u| (u.0, u.1, u.2.0));
        DwarfCalls { dwarf, units, starts, read: HashMap::new(), bytes: 0 }
    }

    /// The function that begins at `low`.
    pub fn function(&mut self, low: u64) -> Option<Rc<Function>> {
        let after = self.units.partition_point(|u| u.0 <= low);
        let &(_, _, offset) = self.units[..after].iter().rev().take(8).find(|u| low < u.1)?;
        if !self.read.contains_key(&offset.0) {
            let functions = self.functions_of(offset).unwrap_or_default();
            self.read.insert(offset.0, Rc::new(functions));
        }
        self.read.get(&offset.0)?.get(&low).cloned()
    }

    /// Functions of a unit by first address.
    fn functions_of(&mut self, offset: DebugInfoOffset) -> Option<HashMap<u64, Rc<Function>>> {
        let header = self.dwarf.debug_info.header_from_offset(offset).ok()?;
        self.bytes = self.bytes.saturating_add(header.length_including_self());
        if self.bytes > MAX_READ {
            return None;
        }
        let owner = Unit(Rc::new(self.dwarf.unit(header).ok()?));
        let unit = &*owner.0;
        let mut functions: Vec<Function> = Vec::new();
        // Functions around the entry that is read, with their depth in the tree.
        let mut around: Vec<(isize, usize)> = Vec::new();
        let mut origins: Vec<(usize, u64, Option<DebugInfoOffset>)> = Vec::new();
        let mut code_of: HashMap<DebugInfoOffset, u64> = HashMap::new();
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            let depth = entry.depth();
            while around.last().is_some_and(|(d, _)| *d >= depth) {
                around.pop();
            }
            match entry.tag() {
                gimli::DW_TAG_subprogram => {
                    let Some(function) = function(&self.dwarf, unit, entry) else { continue };
                    code_of.extend(absolute(unit, entry.offset()).map(|o| (o, function.low)));
                    for name in [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification] {
                        let Some(of) = entry.attr_value(name).and_then(|v| reference(unit, v)) else { continue };
                        code_of.insert(of, function.low);
                        // The declaration inside a class, of a function that was inlined elsewhere.
                        let declared = self.declared_by(&owner, of);
                        code_of.extend(declared.map(|d| (d, function.low)));
                    }
                    around.push((depth, functions.len()));
                    functions.push(function);
                }
                gimli::DW_TAG_call_site | gimli::DW_TAG_GNU_call_site => {
                    let Some(&(_, inside)) = around.last() else { continue };
                    let Some(at) = tail_call(&self.dwarf, unit, entry) else { continue };
                    let origin = entry
                        .attr_value(gimli::DW_AT_call_origin)
                        .or_else(|| entry.attr_value(gimli::DW_AT_abstract_origin));
                    origins.push((inside, at, origin.and_then(|v| reference(unit, v))));
                }
                _ => {}
            }
        }
        for (inside, at, origin) in origins {
            let known = origin.and_then(|o| code_of.get(&o)).map(|&low| Callee::At(low));
            let callee =
                known.or_else(|| self.linkage_name(&owner, origin?, 2).map(Callee::Named)).unwrap_or(Callee::Unknown);
            functions[inside].tail_calls.push(TailCall { at, callee });
        }
        Some(functions.into_iter().map(|f| (f.low, Rc::new(f))).collect())
    }

    /// The unit of an entry, which is `near` for most.
    fn unit_at<'u>(&self, near: &'u Unit<'a>, offset: DebugInfoOffset) -> Option<(Cow<'u, Unit<'a>>, UnitOffset)> {
        if let Some(inside) = offset.to_unit_offset(&near.0.header) {
            return Some((Cow::Borrowed(near), inside));
        }
        let after = self.starts.partition_point(|start| *start <= offset.0);
        let start = self.starts[after.checked_sub(1)?];
        let header = self.dwarf.debug_info.header_from_offset(DebugInfoOffset(start)).ok()?;
        let inside = offset.to_unit_offset(&header)?;
        Some((Cow::Owned(Unit(Rc::new(self.dwarf.unit(header).ok()?))), inside))
    }

    fn declared_by(&self, near: &Unit<'a>, offset: DebugInfoOffset) -> Option<DebugInfoOffset> {
        let (unit, inside) = self.unit_at(near, offset)?;
        let unit = &unit.0;
        reference(unit, unit.entry(inside).ok()?.attr_value(gimli::DW_AT_specification)?)
    }

    /// Linkage name of a function's entry, or of the entry that it completes.
    fn linkage_name(&self, near: &Unit<'a>, offset: DebugInfoOffset, references: u32) -> Option<String> {
        let (own, inside) = self.unit_at(near, offset)?;
        let unit = &*own.0;
        let entry = unit.entry(inside).ok()?;
        let text = |name| {
            let value = self.dwarf.attr_string(unit, entry.attr_value(name)?).ok()?;
            Some(value.to_string_lossy().into_owned())
        };
        if let Some(name) = text(gimli::DW_AT_linkage_name).or_else(|| text(gimli::DW_AT_MIPS_linkage_name)) {
            return Some(name);
        }
        let of = [gimli::DW_AT_specification, gimli::DW_AT_abstract_origin];
        let of = of.into_iter().find_map(|name| reference(unit, entry.attr_value(name)?));
        match of {
            Some(of) if references > 0 => self.linkage_name(&own, of, references - 1),
            _ => text(gimli::DW_AT_name),
        }
    }
}

/// A unit that is read.
#[derive(Clone)]
struct Unit<'a>(Rc<gimli::Unit<Slice<'a>>>);

type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

fn function<'a>(dwarf: &Dwarf<'a>, unit: &gimli::Unit<Slice<'a>>, entry: &Entry<'a>) -> Option<Function> {
    let mut ranges = Vec::new();
    let mut found = dwarf.die_ranges(unit, entry).ok()?;
    while let Ok(Some(range)) = found.next() {
        ranges.push((range.begin, range.end));
    }
    // The first range holds the entry point; cold parts follow.
    let low = ranges.first()?.0;
    Some(Function { low, ranges, tail_calls: Vec::new() })
}

/// An address inside the jump, if a call site is a tail call.
fn tail_call<'a>(dwarf: &Dwarf<'a>, unit: &gimli::Unit<Slice<'a>>, entry: &Entry<'a>) -> Option<u64> {
    let is_set = |name| matches!(entry.attr_value(name), Some(AttributeValue::Flag(true)));
    if !is_set(gimli::DW_AT_call_tail_call) && !is_set(gimli::DW_AT_GNU_tail_call) {
        return None;
    }
    let address = |name| dwarf.attr_address(unit, entry.attr_value(name)?).ok().flatten();
    let before = |after: u64| after.saturating_sub(1);
    address(gimli::DW_AT_call_pc)
        .or_else(|| address(gimli::DW_AT_call_return_pc).map(before))
        .or_else(|| address(gimli::DW_AT_low_pc).map(before))
}

fn absolute(unit: &gimli::Unit<Slice<'_>>, offset: UnitOffset) -> Option<DebugInfoOffset> {
    offset.to_debug_info_offset(&unit.header)
}

fn reference(unit: &gimli::Unit<Slice<'_>>, value: AttributeValue<Slice<'_>>) -> Option<DebugInfoOffset> {
    match value {
        AttributeValue::UnitRef(offset) => absolute(unit, offset),
        AttributeValue::DebugInfoRef(offset) => Some(offset),
        _ => None,
    }
}
