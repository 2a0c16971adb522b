//! Symbols of an ELF file on disk, read in place.
//!
//! The loader maps only the segments that a program needs to run; the symbol table and names of local symbols are only
//! in the file. One pass over the symbols looks up all wanted names. A file that cannot be read has no symbols.

use numamma_kernel::pages;
use std::borrow::Cow;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use numamma_plan::callsite::debug_file;
use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader, Sym};

use crate::matching::name_table::{self, Kind, NameTable};

type Header = elf::FileHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// One symbol with a size, addresses as in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    pub kind: Kind,
}

/// A section, and the ranges in it that no variable occupies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Half-open ranges of addresses.
    pub unoccupied: Vec<(u64, u64)>,
}

/// Largest section that is decompressed, bytes: ten times the line tables of the largest browsers.
const MAX_UNPACKED: usize = 1 << 30;

/// Names whose first bytes may be compared without rejecting any before that comparison is dropped: where all names
/// begin alike (one namespace) it rejects none.
const PREFIX_CREDIT: i32 = 1000;
/// Credit for a name that its first bytes reject: reading a whole name costs about as much as this many comparisons.
const REJECTION_CREDIT: i32 = 4;

/// A file mapped for reading; unmapped when dropped.
pub struct Elf {
    data: &'static [u8],
}

impl Elf {
    /// Maps the file; `None` if that fails or it is no 64-bit ELF file.
    pub fn open(path: &[u8]) -> Option<Elf> {
        let file = File::open(OsStr::from_bytes(path)).ok()?;
        let len = usize::try_from(file.metadata().ok()?.len()).ok().filter(|&len| len > 0)?;
        // SAFETY: a private read-only mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::syscall(libc::SYS_mmap, 0_usize, len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0_usize)
        };
        if at == -1 {
            return None;
        }
        // SAFETY: the mapping has `len` readable bytes and lives until `drop`; program files that run are not
        // truncated (ETXTBSY); truncating a loaded library breaks the running program without this mapping, too.
        let mapped = Elf { data: unsafe { core::slice::from_raw_parts(at as *const u8, len) } };
        mapped.header().is_some().then_some(mapped)
    }

    fn header(&self) -> Option<&'static Header> {
        Header::parse(self.data).ok().filter(|h| h.is_little_endian())
    }

    /// Maps the file with the symbols of the module at `path`: its debug file when strip(1) removed its own.
    pub fn with_symbols(path: &[u8]) -> Option<Elf> {
        let own = Elf::open(path)?;
        let separate = if own.has_symbols() { None } else { own.debug_file(path).filter(Elf::has_symbols) };
        Some(separate.unwrap_or(own))
    }

    /// GNU build-id.
    pub fn build_id(&self) -> Option<&'static [u8]> {
        let header = self.header()?;
        let build_id = |mut notes: NoteIterator<'static, Header>| {
            while let Ok(Some(note)) = notes.next() {
                if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
                    return Some(note.desc());
                }
            }
            None
        };
        let segments = header.program_headers(LE, self.data).ok()?;
        let of_segment = segments.iter().filter_map(|s| s.notes(LE, self.data).ok()?).find_map(build_id);
        // The segments of a separate debug file have no contents; its sections do.
        of_segment.or_else(|| {
            let sections = header.sections(LE, self.data).ok()?;
            sections.iter().filter_map(|s| s.notes(LE, self.data).ok()?).find_map(build_id)
        })
    }

    /// The symbol table and its strings: `.symtab`, else `.dynsym`.
    fn tables(&self) -> Option<(&'static [elf::Sym64<LittleEndian>], &'static [u8])> {
        let sections = self.header()?.sections(LE, self.data).ok()?;
        let table = |kind| sections.symbols(LE, self.data, kind).ok().filter(|t| !t.is_empty());
        let table = table(elf::SHT_SYMTAB).or_else(|| table(elf::SHT_DYNSYM))?;
        let strings = sections.section(table.string_section()).ok()?.data(LE, self.data).ok()?;
        Some((table.symbols(), strings))
    }

    /// Calls `visit` with every sized symbol of `kinds` and the offset of its name in the strings.
    fn for_each_symbol(
        symbols: &'static [elf::Sym64<LittleEndian>],
        kinds: impl Fn(Kind) -> bool,
        mut visit: impl FnMut(usize, Symbol),
    ) {
        for symbol in symbols {
            let kind = match symbol.st_type() {
                elf::STT_OBJECT | elf::STT_COMMON => Kind::Object,
                elf::STT_FUNC => Kind::Function,
                _ => continue,
            };
            let (address, size) = (symbol.st_value(LE), symbol.st_size(LE));
            if kinds(kind) && size != 0 && !symbol.is_undefined(LE) {
                visit(symbol.st_name(LE) as usize, Symbol { address, size, kind });
            }
        }
    }

    /// Calls `visit` with every sized variable and function.
    pub fn symbols(&self, mut visit: impl FnMut(Symbol)) {
        if let Some((symbols, _)) = self.tables() {
            Elf::for_each_symbol(symbols, |_| true, |_, symbol| visit(symbol));
        }
    }

    /// Calls `visit` with every sized function and its linkage name.
    pub fn functions(&self, mut visit: impl FnMut(&[u8], Symbol)) {
        let Some((symbols, strings)) = self.tables() else { return };
        let is_function = |kind| kind == Kind::Function;
        Elf::for_each_symbol(symbols, is_function, |at, symbol| visit(c_string(strings, at), symbol));
    }

    /// Whether `.symtab` is there, which strip(1) removes.
    fn has_symbols(&self) -> bool {
        let sections = self.header().and_then(|h| h.sections(LE, self.data).ok());
        sections.is_some_and(|s| s.symbols(LE, self.data, elf::SHT_SYMTAB).is_ok_and(|table| !table.is_empty()))
    }

    /// The separate debug file of this file, whose path is `path`: by build-id, else by `.gnu_debuglink`.
    pub fn debug_file(&self, path: &[u8]) -> Option<Elf> {
        let id = self.build_id();
        let same = |found: &Elf| id.is_none() || found.build_id() == id;
        let open = |path: PathBuf| Elf::open(path.as_os_str().as_bytes()).filter(same);
        if let Some(found) = id.and_then(debug_file::by_build_id).and_then(open) {
            return Some(found);
        }
        let link = self.contents(b".gnu_debuglink").ok()??;
        let (name, checksum) = (c_string(&link, 0), link.last_chunk::<4>()?);
        let directory = Path::new(OsStr::from_bytes(path)).parent()?;
        let mut found = debug_file::by_link(directory, Path::new(OsStr::from_bytes(name))).into_iter().filter_map(open);
        // The build-id was compared already, which saves reading many megabytes for the checksum.
        found.find(|file| id.is_some() || crc32(file.data) == u32::from_le_bytes(*checksum))
    }

    /// Address and size of a section.
    pub fn section(&self, name: &[u8]) -> Option<(u64, u64)> {
        let sections = self.header()?.sections(LE, self.data).ok()?;
        let (_, section) = sections.section_by_name(LE, name)?;
        Some((section.sh_addr(LE), section.sh_size(LE)))
    }

    /// Whether so many bytes from `address` on are data that the program may write.
    pub fn is_data(&self, address: u64, size: u64) -> bool {
        let Some(segments) = self.header().and_then(|h| h.program_headers(LE, self.data).ok()) else { return false };
        let Some(end) = address.checked_add(size) else { return false };
        segments.iter().any(|s| {
            let (start, bytes) = (s.p_vaddr(LE), s.p_memsz(LE));
            let may_write = s.p_type(LE) == elf::PT_LOAD && s.p_flags(LE).0 & elf::PF_W.0 != 0;
            may_write && start <= address && end <= start.saturating_add(bytes)
        })
    }

    /// A section with the ranges that no variable occupies.
    pub fn unoccupied(&self, name: &[u8]) -> Option<Section> {
        let (address, size) = self.section(name)?;
        let end = address.checked_add(size)?;
        let mut taken = Vec::new();
        self.symbols(|s| {
            if s.kind == Kind::Object && s.address < end && s.address.saturating_add(s.size) > address {
                taken.push((s.address, s.address.saturating_add(s.size)));
            }
        });
        taken.sort_unstable();
        let (mut unoccupied, mut at) = (Vec::new(), address);
        for (from, to) in taken.into_iter().chain([(end, end)]) {
            if from > at {
                unoccupied.push((at, from));
            }
            at = at.max(to);
        }
        Some(Section { address, size, unoccupied })
    }

    /// Contents of a section, decompressed if need be; `None` when it is missing or empty.
    ///
    /// # Errors
    /// The reason why the section cannot be read.
    pub fn contents(&self, name: &[u8]) -> Result<Option<Cow<'_, [u8]>>, &'static str> {
        let damaged = "is damaged";
        let sections = self.header().ok_or(damaged)?.sections(LE, self.data).map_err(|_| damaged)?;
        let Some((_, section)) = sections.section_by_name(LE, name) else { return Ok(None) };
        if section.sh_type(LE) == elf::SHT_NOBITS {
            return Ok(None); // `strip --only-keep-debug` leaves such sections
        }
        let data = match section.compression(LE, self.data).map_err(|_| damaged)? {
            None => Cow::Borrowed(section.data(LE, self.data).map_err(|_| damaged)?),
            Some((header, start, len)) => {
                let packed = self.data.get(start as usize..).and_then(|d| d.get(..len as usize)).ok_or(damaged)?;
                let size = usize::try_from(header.ch_size.get(LE)).map_err(|_| damaged)?;
                if header.ch_type.get(LE) != elf::ELFCOMPRESS_ZLIB {
                    return Err("is compressed, and not by zlib");
                }
                let unpacked = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(packed, size.min(MAX_UNPACKED));
                Cow::Owned(unpacked.map_err(|_| damaged)?)
            }
        };
        Ok(Some(data).filter(|d| !d.is_empty()))
    }

    /// Calls `visit` with the index in `wanted` for every symbol whose name is wanted. A function also matches by its
    /// name without the suffix of the compiler (`work.constprop.0`).
    pub fn find(&self, wanted: &NameTable<'_>, mut visit: impl FnMut(usize, Symbol)) {
        let Some((symbols, strings)) = self.tables().filter(|_| !wanted.is_empty()) else { return };
        // Both are read completely: one system call costs less than a page fault every 64 KiB.
        pages::populate_read(symbols.as_ptr() as usize, size_of_val(symbols));
        pages::populate_read(strings.as_ptr() as usize, strings.len());
        let mut credit = PREFIX_CREDIT;
        Elf::for_each_symbol(
            symbols,
            |kind| wanted.holds(kind),
            |at, symbol| {
                if credit > 0 {
                    let gain = if wanted.may_begin(strings, at) { -1 } else { REJECTION_CREDIT };
                    credit = (credit + gain).min(PREFIX_CREDIT);
                    if gain > 0 {
                        return;
                    }
                }
                let Some(name) = name_table::Name::read(strings, at) else { return };
                let found = wanted.find(&name, symbol.kind, |index| visit(index, symbol));
                if let (false, Kind::Function) = (found, symbol.kind)
                    && let Some(short) = name.before_dot()
                {
                    wanted.find(&short, symbol.kind, |index| visit(index, symbol));
                }
            },
        );
    }
}

/// The C string that begins at `start` of a string table.
fn c_string(strings: &[u8], start: usize) -> &[u8] {
    let rest = strings.get(start..).unwrap_or_default();
    CStr::from_bytes_until_nul(rest).map_or(rest, CStr::to_bytes)
}

/// CRC-32 of zlib and `.gnu_debuglink`, bit by bit: only for files without a build-id.
fn crc32(data: &[u8]) -> u32 {
    let byte =
        |crc: u32, &b: &u8| (0..8).fold(crc ^ u32::from(b), |c, _| c >> 1 ^ (c & 1).wrapping_neg() & 0xedb8_8320);
    !data.iter().fold(!0, byte)
}

impl Drop for Elf {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `open`; results of the methods are not kept beyond it.
        unsafe { numamma_kernel::sys::unmap(self.data.as_ptr().cast_mut().cast(), self.data.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_functions_of_this_program() {
        let path = std::env::current_exe().unwrap();
        let elf = Elf::open(path.as_os_str().as_bytes()).unwrap();
        let mut wanted = NameTable::default();
        wanted.insert(b"main", Kind::Function, 7);
        let mut found = Vec::new();
        elf.find(&wanted, |index, symbol| found.push((index, symbol.kind)));
        assert_eq!(found, [(7, Kind::Function)]);
        assert!(elf.section(b".data").is_some());
        assert!(Elf::open(b"/etc/passwd").is_none());
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
