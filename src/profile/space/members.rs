//! Members of variables from the debug information: of COMMON blocks, and of structs and classes.
//!
//! A large struct inside of a struct, or as a member of a COMMON block, is divided into its own members; arrays are not
//! divided. Units may describe one COMMON differently; the description that covers most bytes counts. What the file
//! says is not trusted: members must lie inside of the variable and do not overlap, and the work for one file is
//! bounded.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use addr2line::gimli::{self, AttributeValue, DebugInfoOffset, EndianSlice, LittleEndian, UnitOffset};

use super::dwarf_calls::sections;
use super::module_file::ModuleFile;
use crate::profile::records::{Member, PART_LEAST};

/// Bytes of debug information that are read for one file: a second's work, as for tail calls.
const MAX_READ: usize = 64 << 20;
/// Members that are kept of one variable; a person names fewer.
const MAX_MEMBERS: usize = 1 << 12;
/// Members of one variable that are looked at, of which those that overlap are left out.
const MOST_FOUND: usize = 4 * MAX_MEMBERS;
/// Entries of types that are looked at for one file.
const MAX_VISITS: usize = 1 << 18;
/// Structs inside of structs, and types that name types.
const MAX_DEPTH: usize = 16;
/// Bytes of a member's name; templates have long ones.
const MAX_NAME: usize = 256;

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Unit<'a> = Rc<gimli::Unit<Slice<'a>>>;
type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;
/// A type: its unit and its place there.
type Type<'a> = (Unit<'a>, UnitOffset);

/// A variable: first ELF virtual address and bytes.
pub type Variable = (u64, u64);

/// The members of `variables`, each list ascending by offset; empty for those that have none.
pub fn find(file: &mut ModuleFile, variables: &[Variable]) -> Vec<Vec<Member>> {
    found(file, variables, false)
}

fn found(file: &mut ModuleFile, variables: &[Variable], items: bool) -> Vec<Vec<Member>> {
    let mut best = vec![Description::default(); variables.len()];
    let (elf, debug) = file.with_debug();
    if let Some(sections) = sections(debug.unwrap_or(elf)) {
        let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
        let mut reader = Reader { dwarf, starts: Vec::new(), units: HashMap::new(), visits: 0, items };
        reader.read(variables, &mut best);
    }
    best.into_iter().map(|d| d.members).collect()
}

/// The members of one variable, and of the structs that it is an array of: `[2].hits`.
pub fn find_with_items(file: &mut ModuleFile, variable: Variable) -> Vec<Member> {
    found(file, &[variable], true).pop().unwrap_or_default()
}

/// How one unit describes a variable.
#[derive(Debug, Clone, Default)]
struct Description {
    members: Vec<Member>,
    covered: u64,
}

impl Description {
    /// The members that lie inside of a variable of `size` bytes; of those that overlap the larger ones.
    fn new(mut found: Vec<Member>, size: u64) -> Description {
        found.retain(|m| m.size > 0 && m.offset.checked_add(m.size).is_some_and(|end| end <= size));
        found.sort_by(|a, b| (b.size, a.offset, &a.name).cmp(&(a.size, b.offset, &b.name)));
        let mut kept: BTreeMap<u64, Member> = BTreeMap::new();
        for member in found {
            let end = member.offset + member.size;
            let before = kept.range(..end).next_back();
            if kept.len() < MAX_MEMBERS && before.is_none_or(|(_, b)| b.offset + b.size <= member.offset) {
                kept.insert(member.offset, member);
            }
        }
        let members: Vec<Member> = kept.into_values().collect();
        let covered = members.iter().map(|m| m.size).sum();
        Description { members, covered }
    }

    /// More bytes, then more members.
    fn is_better(&self, than: &Description) -> bool {
        (self.covered, self.members.len()) > (than.covered, than.members.len())
    }
}

struct Reader<'a> {
    dwarf: gimli::Dwarf<Slice<'a>>,
    /// Offsets of all units, ascending.
    starts: Vec<usize>,
    units: HashMap<usize, Unit<'a>>,
    visits: usize,
    /// Whether the structs of an array are divided.
    items: bool,
}

/// A COMMON block whose variables are read: its depth in the tree, and the members of each variable of the file.
type Block = (isize, BTreeMap<usize, Vec<Member>>);

impl<'a> Reader<'a> {
    fn read(&mut self, variables: &[Variable], best: &mut [Description]) {
        let mut headers = self.dwarf.units();
        let (mut own, mut bytes) = (Vec::new(), 0_usize);
        // Damage ends the list; the units before it are valid.
        while let Ok(Some(header)) = headers.next() {
            let Some(offset) = header.debug_info_offset() else { continue };
            bytes = bytes.saturating_add(header.length_including_self());
            self.starts.push(offset.0);
            if bytes <= MAX_READ {
                own.push(offset.0);
            }
        }
        for start in own {
            if let Some(unit) = self.unit(start) {
                self.read_unit(&unit, variables, best);
            }
        }
    }

    fn read_unit(&mut self, unit: &Unit<'a>, variables: &[Variable], best: &mut [Description]) {
        let mut block: Option<Block> = None;
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            let depth = entry.depth();
            if let Some((_, found)) = block.take_if(|(outer, _)| *outer >= depth) {
                keep(found, variables, best);
            }
            match entry.tag() {
                gimli::DW_TAG_common_block => block = Some((depth, BTreeMap::new())),
                gimli::DW_TAG_variable => {
                    let Some(address) = self.address(unit, entry) else { continue };
                    let holds = |(low, size): &Variable| address.checked_sub(*low).is_some_and(|at| at < *size);
                    let Some(index) = variables.iter().position(holds) else { continue };
                    let low = variables[index].0;
                    let Some((name, of)) = self.declaration(unit, entry, MAX_DEPTH) else { continue };
                    let mut members = Vec::new();
                    match &mut block {
                        Some((_, found)) => {
                            self.divide(&of, &name, address - low, 0, &mut members);
                            let known = found.entry(index).or_default();
                            if known.len() < MOST_FOUND {
                                known.append(&mut members);
                            }
                        }
                        None if address == low => {
                            if self.is_struct(&of) {
                                self.divide(&of, "", 0, 0, &mut members);
                            } else if self.items {
                                self.divide_array(&of, &mut members);
                            }
                            keep(BTreeMap::from([(index, members)]), variables, best);
                        }
                        None => {}
                    }
                }
                _ => {}
            }
        }
        keep(block.map(|b| b.1).unwrap_or_default(), variables, best);
    }

    fn unit(&mut self, start: usize) -> Option<Unit<'a>> {
        if let Some(unit) = self.units.get(&start) {
            return Some(Rc::clone(unit));
        }
        let header = self.dwarf.debug_info.header_from_offset(DebugInfoOffset(start)).ok()?;
        let unit = Rc::new(self.dwarf.unit(header).ok()?);
        self.units.insert(start, Rc::clone(&unit));
        Some(unit)
    }

    /// What an attribute refers to.
    fn referred(&mut self, near: &Unit<'a>, value: AttributeValue<Slice<'a>>) -> Option<Type<'a>> {
        match value {
            AttributeValue::UnitRef(offset) => Some((Rc::clone(near), offset)),
            AttributeValue::DebugInfoRef(offset) => {
                let after = self.starts.partition_point(|start| *start <= offset.0);
                let unit = self.unit(*self.starts.get(after.checked_sub(1)?)?)?;
                let inside = offset.to_unit_offset(&unit.header)?;
                Some((unit, inside))
            }
            _ => None,
        }
    }

    /// The address of a variable that has a fixed one.
    fn address(&self, unit: &Unit<'a>, entry: &Entry<'a>) -> Option<u64> {
        let AttributeValue::Exprloc(expression) = entry.attr_value(gimli::DW_AT_location)? else { return None };
        let mut operations = expression.operations(unit.encoding());
        let address = match operations.next().ok()?? {
            gimli::Operation::Address { address } => address,
            gimli::Operation::AddressIndex { index } => self.dwarf.address(unit, index).ok()?,
            _ => return None,
        };
        match operations.next() {
            Ok(None) => Some(address),
            Ok(Some(gimli::Operation::PlusConstant { value })) => {
                matches!(operations.next(), Ok(None)).then(|| address.checked_add(value)).flatten()
            }
            _ => None,
        }
    }

    /// Name and type of a variable, which a declaration elsewhere may have.
    fn declaration(&mut self, unit: &Unit<'a>, entry: &Entry<'a>, most: usize) -> Option<(String, Type<'a>)> {
        if let Some(of) = entry.attr_value(gimli::DW_AT_type) {
            let of = self.referred(unit, of)?;
            return Some((self.name(unit, entry).unwrap_or_default(), of));
        }
        let elsewhere = [gimli::DW_AT_specification, gimli::DW_AT_abstract_origin];
        let elsewhere = elsewhere.into_iter().find_map(|name| entry.attr_value(name))?;
        let (unit, offset) = self.referred(unit, elsewhere)?;
        let entry = unit.entry(offset).ok()?;
        if most == 0 { None } else { self.declaration(&unit, &entry, most - 1) }
    }

    fn name(&self, unit: &Unit<'a>, entry: &Entry<'a>) -> Option<String> {
        let name = self.dwarf.attr_string(unit, entry.attr_value(gimli::DW_AT_name)?).ok()?;
        let name: Cow<'_, str> = name.to_string_lossy();
        Some(name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect())
    }

    /// The type behind its other names and qualifiers.
    fn plain(&mut self, of: &Type<'a>) -> Option<Type<'a>> {
        let mut of = of.clone();
        for _ in 0..MAX_DEPTH {
            self.visits += 1;
            let entry = of.0.entry(of.1).ok().filter(|_| self.visits <= MAX_VISITS)?;
            match entry.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_atomic_type => of = self.referred(&of.0, entry.attr_value(gimli::DW_AT_type)?)?,
                _ => return Some(of),
            }
        }
        None
    }

    fn is_struct(&mut self, of: &Type<'a>) -> bool {
        let tag = self.plain(of).and_then(|(unit, offset)| Some(unit.entry(offset).ok()?.tag()));
        matches!(tag, Some(gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type))
    }

    /// Bytes of a type; none where they are not known before the program runs.
    fn size(&mut self, of: &Type<'a>, depth: usize) -> Option<u64> {
        let (unit, offset) = self.plain(of)?;
        let entry = unit.entry(offset).ok()?;
        if let Some(size) = entry.attr_value(gimli::DW_AT_byte_size) {
            return size.udata_value();
        }
        match entry.tag() {
            gimli::DW_TAG_array_type if depth <= MAX_DEPTH => {}
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                return Some(u64::from(unit.encoding().address_size));
            }
            _ => return None,
        }
        let item = self.referred(&unit, entry.attr_value(gimli::DW_AT_type)?)?;
        let mut size = self.size(&item, depth + 1)?;
        let mut tree = unit.entries_tree(Some(offset)).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            if entry.tag() == gimli::DW_TAG_subrange_type {
                size = size.checked_mul(items(&unit, entry)?)?;
            }
        }
        Some(size)
    }

    /// Adds a member of this type and name, or its own members if it is a large struct.
    fn divide(&mut self, of: &Type<'a>, name: &str, offset: u64, depth: usize, out: &mut Vec<Member>) {
        let Some(size) = self.size(of, 0) else { return };
        if depth < MAX_DEPTH && (depth == 0 && name.is_empty() || size >= 2 * PART_LEAST) && self.is_struct(of) {
            let before = out.len();
            self.divide_struct(of, name, offset, depth, out);
            // A struct around one array is called by its own name.
            if out.len() > before + 1 || depth == 0 && name.is_empty() {
                return;
            }
            out.truncate(before);
        }
        if !name.is_empty() && out.len() < MOST_FOUND {
            out.push(Member { name: name.to_owned(), offset, size });
        }
    }

    /// Adds the members of each struct of an array of one dimension, in languages that count from 0.
    fn divide_array(&mut self, of: &Type<'a>, out: &mut Vec<Member>) {
        let Some((unit, at)) = self.plain(of) else { return };
        let array = unit.entry(at).ok().filter(|entry| entry.tag() == gimli::DW_TAG_array_type);
        let Some(item) = array.and_then(|entry| self.referred(&unit, entry.attr_value(gimli::DW_AT_type)?)) else {
            return;
        };
        if lowest_index(&unit) != 0 || dimensions(&unit, at) != 1 || !self.is_struct(&item) {
            return;
        }
        let (Some(all), Some(each)) = (self.size(of, 0), self.size(&item, 0).filter(|each| *each > 0)) else { return };
        for number in 0..all / each {
            if out.len() >= MOST_FOUND || self.visits > MAX_VISITS {
                return;
            }
            self.divide_struct(&item, &format!("[{number}]"), number * each, 1, out);
        }
    }

    fn divide_struct(&mut self, of: &Type<'a>, name: &str, offset: u64, depth: usize, out: &mut Vec<Member>) {
        let Some((unit, at)) = self.plain(of) else { return };
        let Ok(mut tree) = unit.entries_tree(Some(at)) else { return };
        let Ok(root) = tree.root() else { return };
        let mut children = root.children();
        while let Ok(Some(child)) = children.next() {
            self.visits += 1;
            let entry = child.entry();
            let is_base = entry.tag() == gimli::DW_TAG_inheritance;
            let is_bits = entry.has_attr(gimli::DW_AT_bit_size);
            if self.visits > MAX_VISITS || is_bits || !(is_base || entry.tag() == gimli::DW_TAG_member) {
                continue;
            }
            // Static members have no offset, and that of a virtual base is computed.
            let at = entry.attr_value(gimli::DW_AT_data_member_location).and_then(|v| v.udata_value());
            let (Some(at), Some(of)) = (at, entry.attr_value(gimli::DW_AT_type)) else { continue };
            let (Some(at), Some(of)) = (offset.checked_add(at), self.referred(&unit, of)) else { continue };
            let own = if is_base { None } else { self.name(&unit, entry) };
            let full = match (name, own.as_deref().unwrap_or_default()) {
                (name, "") => name.to_owned(),
                ("", own) => own.to_owned(),
                (name, own) => format!("{name}.{own}"),
            };
            if !is_base && !full.is_empty() {
                self.divide(&of, &full, at, depth + 1, out);
            } else if depth < MAX_DEPTH {
                // A damaged file may have a class that is its own base.
                self.divide_struct(&of, &full, at, depth + 1, out);
            }
        }
    }
}

/// Keeps descriptions that are better than those before.
fn keep(found: BTreeMap<usize, Vec<Member>>, variables: &[Variable], best: &mut [Description]) {
    for (index, members) in found {
        let description = Description::new(members, variables[index].1);
        if description.is_better(&best[index]) {
            best[index] = description;
        }
    }
}

/// Number of dimensions of an array.
fn dimensions(unit: &gimli::Unit<Slice<'_>>, array: UnitOffset) -> usize {
    let Ok(mut tree) = unit.entries_tree(Some(array)) else { return 0 };
    let Ok(root) = tree.root() else { return 0 };
    let (mut children, mut count) = (root.children(), 0);
    while let Ok(Some(child)) = children.next() {
        count += usize::from(child.entry().tag() == gimli::DW_TAG_subrange_type);
    }
    count
}

/// Items of one dimension of an array.
fn items(unit: &gimli::Unit<Slice<'_>>, dimension: &Entry<'_>) -> Option<u64> {
    if let Some(count) = dimension.attr_value(gimli::DW_AT_count) {
        return count.udata_value();
    }
    let signed = |value: AttributeValue<Slice<'_>>| match value {
        AttributeValue::Sdata(value) => Some(value),
        other => i64::try_from(other.udata_value()?).ok(),
    };
    let upper = signed(dimension.attr_value(gimli::DW_AT_upper_bound)?)?;
    let lower = match dimension.attr_value(gimli::DW_AT_lower_bound) {
        Some(lower) => signed(lower)?,
        None => lowest_index(unit),
    };
    u64::try_from(upper.checked_sub(lower)?.checked_add(1)?).ok()
}

/// The index of the first item of an array in the language of a unit (DWARF 5, section 7.12).
fn lowest_index(unit: &gimli::Unit<Slice<'_>>) -> i64 {
    let language = unit.entry(unit.header.root_offset()).ok().and_then(|e| e.attr_value(gimli::DW_AT_language));
    match language {
        Some(AttributeValue::Language(language)) => {
            language.default_lower_bound().and_then(|low| i64::try_from(low).ok()).unwrap_or(0)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
