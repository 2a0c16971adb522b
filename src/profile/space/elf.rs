//! One mapped ELF file: identity, load bias, and its bytes by virtual address.
//!
//! Refused: anything but 64-bit little-endian x86-64 programs and shared objects.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use object::{Object, ObjectSection, ObjectSegment, SectionFlags, SectionKind, SegmentFlags, elf};

use crate::profile::PAGE;

/// A PT_LOAD segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadSegment {
    /// First virtual address.
    pub vaddr: u64,
    /// Bytes in memory.
    pub memory_size: u64,
    /// Offset of its bytes in the file.
    pub offset: u64,
    /// Bytes in the file; the rest of the memory is zero.
    pub file_size: u64,
    /// PF_X is set.
    pub executable: bool,
    /// PF_W is set.
    pub writable: bool,
}

/// A section that occupies memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Name.
    pub name: String,
    /// First virtual address.
    pub low: u64,
    /// One past the last.
    pub high: u64,
    /// SHF_EXECINSTR is set.
    pub executable: bool,
}

#[derive(Debug)]
enum Bytes {
    /// With the file kept open when its path goes through a process that will end.
    Mapped(Mmap, Option<File>),
    Owned(Vec<u8>),
}

/// An ELF file.
#[derive(Debug)]
pub struct ElfFile {
    /// Path as the program sees it.
    pub path: String,
    /// Path by which this process opened it.
    opened: PathBuf,
    /// Device and inode; none for images from memory.
    pub inode: Option<(u64, u64)>,
    /// Hex GNU build-id.
    pub build_id: Option<String>,
    /// PT_LOAD segments in file order.
    pub segments: Vec<LoadSegment>,
    bytes: Bytes,
}

/// Maps a file for reading.
fn map(file: &File) -> Option<Mmap> {
    // SAFETY: the mapping is private and read-only and is only read as bytes that are checked on the way. Another
    // process that changes the file can garble names; one that truncates it in place can kill this process
    // with SIGBUS, which linkers and package managers avoid (they write a new file and rename it).
    unsafe { Mmap::map(file) }.ok()
}

impl ElfFile {
    /// Opens `opened`, which the program knows as `path`. None when it is not a regular file, not readable or refused.
    pub fn open(opened: &Path, path: &str) -> Option<ElfFile> {
        // Before opening: an open has side effects on devices.
        if !std::fs::metadata(opened).ok()?.is_file() {
            return None;
        }
        let file = File::open(opened).ok()?;
        let meta = file.metadata().ok()?;
        let mapped = map(&file)?;
        let bytes = Bytes::Mapped(mapped, opened.starts_with("/proc").then_some(file));
        Self::parse(bytes, opened.into(), path, Some((meta.dev(), meta.ino())))
    }

    /// An image that was read from memory, such as the vdso.
    pub fn from_image(image: Vec<u8>, path: &str) -> Option<ElfFile> {
        Self::parse(Bytes::Owned(image), path.into(), path, None)
    }

    fn parse(bytes: Bytes, opened: PathBuf, path: &str, inode: Option<(u64, u64)>) -> Option<ElfFile> {
        let object = object::File::parse(as_slice(&bytes)).ok()?;
        if object.architecture() != object::Architecture::X86_64
            || !object.is_64()
            || !matches!(object.kind(), object::ObjectKind::Executable | object::ObjectKind::Dynamic)
        {
            return None;
        }
        let build_id = object.build_id().ok().flatten().map(hex);
        let segments = object.segments().map(segment).collect();
        drop(object);
        let path = path.to_string();
        Some(ElfFile { path, opened, inode, build_id, segments, bytes })
    }

    /// The whole file.
    pub fn data(&self) -> &[u8] {
        as_slice(&self.bytes)
    }

    /// Parsed view. None only for a file that was changed after it was opened.
    pub fn object(&self) -> Option<object::File<'_>> {
        object::File::parse(self.data()).ok()
    }

    /// A path that opens exactly this file, for readers that take paths. None when the file was replaced since.
    pub fn path_to_open(&self) -> Option<PathBuf> {
        match &self.bytes {
            Bytes::Mapped(_, Some(file)) => Some(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))),
            Bytes::Mapped(_, None) => {
                let now = std::fs::metadata(&self.opened).ok().map(|m| (m.dev(), m.ino()));
                (now.is_some() && now == self.inode).then(|| self.opened.clone())
            }
            Bytes::Owned(_) => None,
        }
    }

    /// Load bias of a mapping of `pgoff` (file offset, bytes) at `addr`: runtime address minus virtual address, modulo
    /// 2^64. Segments need not start on a page; only executable ones identify a load, because the dynamic linker first
    /// maps the whole extent of a library at offset 0 and programs map ELF files as plain data. Libraries without any
    /// code count with their first segment.
    pub fn bias(&self, addr: u64, pgoff: u64, executable: bool) -> Option<u64> {
        let has_code = self.segments.iter().any(|s| s.executable);
        if has_code && !executable {
            return None;
        }
        let segment = self.segments.iter().find(|s| {
            (s.executable || !has_code) && s.offset & !(PAGE - 1) <= pgoff && pgoff < s.offset + s.file_size.max(1)
        })?;
        let vaddr = segment.vaddr.wrapping_add(pgoff).wrapping_sub(segment.offset);
        Some(addr.wrapping_sub(vaddr))
    }

    /// Page-aligned bounds of all segments, virtual addresses.
    pub fn extent(&self) -> Option<(u64, u64)> {
        let low = self.segments.iter().map(|s| s.vaddr).min()? & !(PAGE - 1);
        let high = self.segments.iter().filter_map(|s| s.vaddr.checked_add(s.memory_size)).max()?;
        let high = high.checked_add(PAGE - 1)? & !(PAGE - 1);
        (low < high).then_some((low, high))
    }

    /// First page, as virtual address, that holds no byte of the file: where anonymous memory (.bss) begins.
    pub fn bss_start(&self) -> Option<u64> {
        let bss = self.segments.iter().filter(|s| s.memory_size > s.file_size);
        bss.map(|s| (s.vaddr + s.file_size + PAGE - 1) & !(PAGE - 1)).min()
    }

    /// Bytes of `low..high` (virtual addresses) limited to the part that one segment has in the file.
    pub fn bytes_at(&self, low: u64, high: u64) -> Option<&[u8]> {
        let s = self.segments.iter().find(|s| s.vaddr <= low && low - s.vaddr < s.file_size)?;
        let skip = low - s.vaddr;
        let len = (high.checked_sub(low)?).min(s.file_size - skip);
        let start = usize::try_from(s.offset.checked_add(skip)?).ok()?;
        self.data().get(start..start.checked_add(usize::try_from(len).ok()?)?)
    }

    /// Virtual addresses that the program may not write: (first, one past the last) of every segment without PF_W.
    pub fn read_only(&self) -> Vec<(u64, u64)> {
        let fixed = self.segments.iter().filter(|s| !s.writable);
        fixed.filter_map(|s| Some((s.vaddr, s.vaddr.checked_add(s.memory_size)?))).collect()
    }

    /// Sections that occupy memory at their own addresses (TLS templates without bytes do not), ascending.
    pub fn sections(&self) -> Vec<Section> {
        let Some(object) = self.object() else { return Vec::new() };
        let mut out: Vec<Section> = object
            .sections()
            .filter_map(|s| {
                let SectionFlags::Elf { sh_flags, .. } = s.flags() else { return None };
                if !sh_flags.contains(elf::SHF_ALLOC) || s.kind() == SectionKind::UninitializedTls || s.size() == 0 {
                    return None;
                }
                let high = s.address().checked_add(s.size())?;
                let name = String::from_utf8_lossy(s.name_bytes().ok()?).into_owned();
                Some(Section { name, low: s.address(), high, executable: sh_flags.contains(elf::SHF_EXECINSTR) })
            })
            .collect();
        out.sort_by_key(|s| (s.low, s.high));
        out
    }
}

fn as_slice(bytes: &Bytes) -> &[u8] {
    match bytes {
        Bytes::Mapped(map, _) => map,
        Bytes::Owned(v) => v,
    }
}

fn segment<'d>(s: impl ObjectSegment<'d>) -> LoadSegment {
    let (offset, file_size) = s.file_range();
    let has = |flag| matches!(s.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.contains(flag));
    let (executable, writable) = (has(elf::PF_X), has(elf::PF_W));
    LoadSegment { vaddr: s.address(), memory_size: s.size(), offset, file_size, executable, writable }
}

/// Lower-case hex, as build-ids are written.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(vaddr: u64, memory_size: u64, offset: u64, file_size: u64, executable: bool) -> LoadSegment {
        LoadSegment { vaddr, memory_size, offset, file_size, executable, writable: !executable }
    }

    fn file(segments: Vec<LoadSegment>) -> ElfFile {
        ElfFile {
            path: "x".into(),
            opened: "x".into(),
            inode: None,
            build_id: None,
            segments,
            bytes: Bytes::Owned(Vec::new()),
        }
    }

    #[test]
    fn bias_of_position_independent_and_fixed_programs() {
        let pie = file(vec![load(0, 0x600, 0, 0x600, false), load(0x1000, 0x2345, 0x1000, 0x2345, true)]);
        assert_eq!(pie.bias(0x5555_0000_1000, 0x1000, true), Some(0x5555_0000_0000));
        assert_eq!(pie.bias(0x5555_0000_2000, 0x2000, true), Some(0x5555_0000_0000), "split by mprotect");
        assert_eq!(pie.bias(0x5555_0000_0000, 0, false), None, "mapped as data");
        let fixed = file(vec![load(0x400000, 0x600, 0, 0x600, false), load(0x401000, 0x100, 0x1000, 0x100, true)]);
        assert_eq!(fixed.bias(0x401000, 0x1000, true), Some(0));
    }

    #[test]
    fn bias_when_segments_do_not_start_on_a_page() {
        // As lld lays them out: file pages are shared, virtual addresses move on.
        let f = file(vec![load(0x200040, 0x700, 0x40, 0x700, false), load(0x201740, 0x900, 0x740, 0x900, true)]);
        assert_eq!(f.bias(0x7f00_0000_1000, 0, true), Some(0x7f00_0000_1000 - 0x201000));
        assert_eq!(f.extent(), Some((0x200000, 0x203000)));
    }

    #[test]
    fn bss_begins_after_the_last_file_page() {
        let f = file(vec![load(0x1000, 0x100, 0x1000, 0x100, true), load(0x3df0, 0x5000, 0x2df0, 0x250, false)]);
        assert_eq!(f.bss_start(), Some(0x5000));
    }
}
