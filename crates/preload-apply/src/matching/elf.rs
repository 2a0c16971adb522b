//! Symbols of an ELF file on disk, read in place.
//!
//! The loader maps only what a program needs to run; names of locals and the symbol table are in the file
//! alone. One pass over the symbols serves all wanted names. A file that cannot be read has no symbols.

use numamma_kernel::pages;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};

use crate::matching::name_table::{self, Wanted};

type Header = elf::FileHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// What a wanted name may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A variable.
    Object,
    /// A function.
    Function,
}

/// One symbol with a size, addresses as in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Variable or function.
    pub kind: Kind,
}

/// Largest section that is decompressed: the line tables of the largest browsers are a tenth of it.
const MAX_UNPACKED: usize = 1 << 30;

/// Names whose beginning may be looked at in vain before it is given up: where all begin alike (one namespace) it is a waste.
const CREDIT: i32 = 1000;
/// What a name that was rejected by its beginning earns: reading it whole costs about this many looks at beginnings.
const REJECTED: i32 = 4;

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
        // truncated (ETXTBSY), libraries only by those who break running programs anyway.
        let mapped = Elf { data: unsafe { core::slice::from_raw_parts(at as *const u8, len) } };
        mapped.header().is_some().then_some(mapped)
    }

    fn header(&self) -> Option<&'static Header> {
        Header::parse(self.data).ok().filter(|h| h.is_little_endian())
    }

    /// GNU build-id.
    pub fn build_id(&self) -> Option<&'static [u8]> {
        let header = self.header()?;
        header.program_headers(LE, self.data).ok()?.iter().find_map(|segment| {
            let mut notes = segment.notes(LE, self.data).ok()??;
            while let Ok(Some(note)) = notes.next() {
                if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
                    return Some(note.desc());
                }
            }
            None
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

    /// Calls `visit` with every sized variable and function and where its name begins in the strings.
    fn each(
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
            Elf::each(symbols, |_| true, |_, symbol| visit(symbol));
        }
    }

    /// Calls `visit` with every sized function and its linkage name.
    pub fn functions(&self, mut visit: impl FnMut(&[u8], Symbol)) {
        let Some((symbols, strings)) = self.tables() else { return };
        let is_function = |kind| kind == Kind::Function;
        Elf::each(symbols, is_function, |at, symbol| {
            let name = strings.get(at..).and_then(|rest| rest.split(|&b| b == 0).next());
            visit(name.unwrap_or_default(), symbol);
        });
    }

    /// Address and size of a section.
    pub fn section(&self, name: &[u8]) -> Option<(u64, u64)> {
        let sections = self.header()?.sections(LE, self.data).ok()?;
        let (_, section) = sections.section_by_name(LE, name)?;
        Some((section.sh_addr(LE), section.sh_size(LE)))
    }

    /// Contents of a section, decompressed if need be; `None` when it is missing or empty.
    ///
    /// # Errors
    /// When it cannot be read, with the reason.
    pub fn contents(&self, name: &[u8]) -> Result<Option<Cow<'_, [u8]>>, &'static str> {
        let damaged = "is damaged";
        let sections = self.header().ok_or(damaged)?.sections(LE, self.data).map_err(|_| damaged)?;
        let Some((_, section)) = sections.section_by_name(LE, name) else { return Ok(None) };
        if section.sh_type(LE) == elf::SHT_NOBITS {
            return Ok(None); // what `strip --only-keep-debug` leaves of the rest
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

    /// Calls `visit` with the caller's index for every symbol whose name is wanted. Functions also match
    /// under their name without the compiler's suffix (`work.constprop.0`).
    pub fn find(&self, wanted: &Wanted<'_>, mut visit: impl FnMut(usize, Symbol)) {
        let Some((symbols, strings)) = self.tables().filter(|_| !wanted.is_empty()) else { return };
        // All of both will be read: one call costs less than a page fault every 64 KiB.
        pages::populate_read(symbols.as_ptr() as usize, size_of_val(symbols));
        pages::populate_read(strings.as_ptr() as usize, strings.len());
        let mut credit = CREDIT;
        Elf::each(
            symbols,
            |kind| wanted.holds(kind),
            |at, symbol| {
                if credit > 0 {
                    let gain = if wanted.may_begin(strings, at) { -1 } else { REJECTED };
                    credit = (credit + gain).min(CREDIT);
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
        let mut wanted = Wanted::default();
        wanted.insert(b"main", Kind::Function, 7);
        let mut found = Vec::new();
        elf.find(&wanted, |index, symbol| found.push((index, symbol.kind)));
        assert_eq!(found, [(7, Kind::Function)]);
        assert!(elf.section(b".data").is_some());
        assert!(Elf::open(b"/etc/passwd").is_none());
    }
}
