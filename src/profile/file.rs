//! The profile file, `numamma.prof`: append-only, in checked chunks.
//!
//! ```text
//! offset  size  field
//! 0       8     magic "NUMAMMA\x01"
//! 8       4     format version, little endian
//! 12      4     0
//! then chunks until the end of the file:
//! 0       4     magic "CHNK"
//! 4       4     n, bytes of payload, little endian
//! 8       4     CRC-32 of the payload
//! 12      n     payload: LZ4 block with its size in front, of one postcard-encoded `records::Record`
//! ```
//!
//! A chunk is written with one `write`; if the recorder is killed, the file holds whole chunks and at most one
//! incomplete one at the end, which the reader reports and ignores.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use numamma_kernel::output_file;

use super::records::{
    Access, AccessCode, CallSite, CodeUnit, Folded, Frame, Like, Location, LostFrames, Member, Members, Module, Object,
    Record, Resized, SharedLine, SharedWord, SiteCount, SiteFrees, Symbol, Thread, ThreadTask, ThreadWaits, Touch,
};

mod access_lists;
mod ahead;

pub(super) use self::ahead::Ahead;

/// First bytes of every profile.
pub const MAGIC: [u8; 8] = *b"NUMAMMA\x01";
/// Version of the format this build writes and reads.
pub const VERSION: u32 = 2;
/// Bytes before the first chunk.
const HEADER: usize = 16;
const CHUNK_MAGIC: [u8; 4] = *b"CHNK";
/// Bytes of a chunk before its payload.
const CHUNK_HEADER: usize = 12;
/// Most bytes of an unpacked payload. [`Writer::append`] divides longer lists.
const MAX_PLAIN: u32 = 64 << 20;
/// Most bytes of a payload in the file: LZ4 adds less than a hundredth to what cannot be compressed.
const MAX_CHUNK: u32 = MAX_PLAIN + (MAX_PLAIN >> 6);

/// Why a profile could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no such file.
    #[error("{}: no such profile; record one with `numamma profile -- ./app`, or name the file", .0.display())]
    Missing(PathBuf),
    /// Opening or reading failed.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// A pipe, a terminal or a device.
    #[error(
        "{}: not a regular file, and a profile is read more than once; write it to a file, and name that", .0.display()
    )]
    NotRegular(PathBuf),
    /// The file does not begin with the magic.
    #[error("{}: not a numamma profile (expected the magic NUMAMMA at its start)", .0.display())]
    Foreign(PathBuf),
    /// Written by another version of the format.
    #[error(
        "{}: profile format {}, this numamma reads format {VERSION}; use the numamma that recorded it or record again",
        .0.display(), .1
    )]
    Version(PathBuf, u32),
    /// Too short to hold even the header.
    #[error("{}: the profile holds no header; the recording stopped before it began", .0.display())]
    Empty(PathBuf),
}

/// Appends records to a profile.
#[derive(Debug)]
pub struct Writer {
    file: File,
    /// Bytes and chunks of the file so far.
    written: Extent,
}

/// A part of a profile from its start on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Bytes.
    pub bytes: u64,
    /// Chunks, each a record.
    pub chunks: u64,
}

fn file_header() -> [u8; HEADER] {
    let mut head = [0u8; HEADER];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head
}

impl Writer {
    /// Creates `path` (an existing file is renamed to `path.old`, as perf does) and writes the file header. Only files
    /// are renamed: a device such as /dev/null or a pipe is written to, a directory is refused; of links, see
    /// [`output_file`].
    pub fn create(path: &Path) -> io::Result<Writer> {
        Ok(Writer::begun(output_file::create_keeping_old(path, &file_header())?))
    }

    /// Writes the file header to an empty file.
    pub(super) fn on(mut file: File) -> io::Result<Writer> {
        file.write_all(&file_header())?;
        Ok(Writer::begun(file))
    }

    /// Appends to a file that holds its header, and marks it as being written.
    fn begun(file: File) -> Writer {
        output_file::mark(&file);
        Writer { file, written: Extent { bytes: HEADER as u64, chunks: 0 } }
    }

    /// What was written so far.
    pub(super) fn written(&self) -> Extent {
        self.written
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Appends what follows the extent `from` in `old`, which was read up to there.
    pub(super) fn append_rest(&mut self, old: &Writer, input: &mut File, from: Extent) -> io::Result<()> {
        input.seek(SeekFrom::Start(from.bytes))?;
        let copied = io::copy(&mut input.take(old.written.bytes - from.bytes), &mut self.file)?;
        if copied != old.written.bytes - from.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.written.bytes += copied;
        self.written.chunks += old.written.chunks - from.chunks;
        Ok(())
    }

    /// Appends one record as one chunk. After an error (disk full) the file still reads up to the
    /// chunk before.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let plain = postcard::serialize_with_flavor::<_, _, Vec<u8>>(record, Plain(Vec::new()))
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        if (plain.len() as u32 > MAX_PLAIN / 2 || decoded_size(&plain) > MAX_DECODED / 2)
            && let Some((first, second)) = record.halves()
        {
            self.append(&first)?;
            return self.append(&second);
        }
        let payload = lz4_flex::compress_prepend_size(&plain);
        let mut chunk = Vec::with_capacity(payload.len() + CHUNK_HEADER);
        chunk.extend_from_slice(&CHUNK_MAGIC);
        chunk.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        chunk.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
        chunk.extend_from_slice(&payload);
        self.file.write_all(&chunk)?;
        self.written.bytes += chunk.len() as u64;
        self.written.chunks += 1;
        Ok(())
    }
}

/// Bytes of a record. Numbers, of which most have one to three, are not copied by a call for each.
struct Plain(Vec<u8>);

impl postcard::ser_flavors::Flavor for Plain {
    type Output = Vec<u8>;

    #[inline(always)]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline(always)]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        match bytes.len() {
            0..16 => bytes.iter().for_each(|byte| self.0.push(*byte)),
            _ => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

/// Reads records one by one: an iterator that ends at the end of the file or at the first damaged chunk.
#[derive(Debug)]
pub struct Reader {
    input: BufReader<File>,
    path: PathBuf,
    /// Why reading stopped before the end of the file, for the user.
    pub damage: Option<String>,
    chunks: u64,
    /// Bytes of the file when it was opened.
    pub file_len: u64,
    /// About the bytes of memory that the last record takes.
    pub decoded: u64,
}

/// See [`bytes_read`].
static BYTES_READ: AtomicU64 = AtomicU64::new(0);

/// Bytes of profiles that this process has read so far.
pub fn bytes_read() -> u64 {
    BYTES_READ.load(Ordering::Relaxed)
}

impl Reader {
    /// Opens a profile and checks magic and version. A pipe without a writer is not waited for.
    pub fn open(path: &Path) -> Result<Reader, FileError> {
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let opened = opened.and_then(|file| file.metadata().map(|metadata| (file, metadata)));
        match opened {
            Ok((_, metadata)) if !metadata.is_file() && !metadata.is_dir() => Err(FileError::NotRegular(path.into())),
            Ok((file, _)) => Reader::of(file, path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(FileError::Missing(path.into())),
            Err(e) => Err(FileError::Io(path.into(), e)),
        }
    }

    /// Reads a profile that is open, at its start; `path` is its name.
    pub(super) fn of(file: File, path: &Path) -> Result<Reader, FileError> {
        let file_len = file.metadata().map_or(0, |m| m.len());
        let mut input = BufReader::with_capacity(1 << 20, file);
        let head = read_up_to(&mut input, HEADER).map_err(|e| FileError::Io(path.into(), e))?;
        if !head.starts_with(&MAGIC) {
            return Err(if head.is_empty() { FileError::Empty(path.into()) } else { FileError::Foreign(path.into()) });
        }
        if head.len() < HEADER {
            return Err(FileError::Empty(path.into()));
        }
        let version = u32_at(&head, 8);
        if version != VERSION {
            return Err(FileError::Version(path.into(), version));
        }
        Ok(Reader { input, path: path.into(), damage: None, chunks: 0, file_len, decoded: 0 })
    }

    fn next_record(&mut self) -> Result<Option<Record>, String> {
        let head = read_up_to(&mut self.input, CHUNK_HEADER).map_err(|e| e.to_string())?;
        if head.is_empty() {
            return Ok(None);
        }
        if head.len() < CHUNK_HEADER {
            return Err("the last chunk is cut short".into());
        }
        if head[..4] != CHUNK_MAGIC {
            return Err("a chunk does not begin with its magic".into());
        }
        let len = u32_at(&head, 4);
        if len > MAX_CHUNK {
            return Err(format!("a chunk claims {len} bytes"));
        }
        let payload = read_up_to(&mut self.input, len as usize).map_err(|e| e.to_string())?;
        if payload.len() < len as usize {
            return Err("the last chunk is cut short".into());
        }
        BYTES_READ.fetch_add((head.len() + payload.len()) as u64, Ordering::Relaxed);
        if crc32fast::hash(&payload) != u32_at(&head, 8) {
            return Err("a chunk fails its checksum".into());
        }
        let size = u32_at(&payload, 0);
        if size > MAX_PLAIN {
            return Err(format!("a chunk claims {size} bytes unpacked"));
        }
        let mut plain = lz4_flex::decompress_size_prepended(&payload).map_err(|e| e.to_string())?;
        self.decoded = decoded_size(&plain);
        if self.decoded > MAX_DECODED {
            return Err(format!("a chunk of {len} bytes would take {} MiB of memory", self.decoded >> 20));
        }
        match access_lists::decode(&plain) {
            Some(accesses) => Ok(Some(accesses)),
            None => {
                plain.extend(missing(&plain));
                postcard::from_bytes(&plain).map(Some).map_err(|e| e.to_string())
            }
        }
    }
}

impl Iterator for Reader {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.damage.is_some() {
            return None;
        }
        match self.next_record() {
            Ok(record) => {
                self.chunks += 1;
                record
            }
            Err(why) => {
                self.damage = Some(format!(
                    "{}: {why} after {} good chunks; everything before it is reported",
                    self.path.display(),
                    self.chunks
                ));
                None
            }
        }
    }
}

/// The next `len` bytes; fewer at the end of the file.
fn read_up_to(input: &mut impl Read, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len.min(1 << 20));
    input.take(len as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Most bytes of memory that one record may take, as [`decoded_size`] counts them.
const MAX_DECODED: u64 = 512 << 20;

/// An upper bound of the memory that a record takes, from its encoding: an item of a list can be encoded in a byte and
/// take a hundred bytes of memory. `plain` begins with the number of the variant of [`Record`] and, for the lists, with
/// the number of items; a list inside of an item takes the given number of bytes for each byte of its encoding.
fn decoded_size(plain: &[u8]) -> u64 {
    let (kind, rest) = varint(plain);
    let (item, nested) = match kind {
        // Header: the arguments, a byte each.
        0 => (0, size_of::<String>()),
        1 => (size_of::<Module>(), size_of::<(u64, u64)>() / 2),
        2 => (size_of::<Thread>(), size_of::<u16>()),
        3 => (size_of::<CallSite>(), size_of::<Frame>() / 2),
        4 => (size_of::<SiteCount>(), 0),
        5 => (size_of::<Object>(), 1),
        6 => (size_of::<Access>(), 0),
        7 => (size_of::<Touch>(), 0),
        8 => (size_of::<Symbol>(), size_of::<Location>().div_ceil(3)),
        11 => (size_of::<String>(), 1),
        12 => (size_of::<CodeUnit>(), 0),
        13 => (size_of::<LostFrames>(), size_of::<Location>().div_ceil(3)),
        // A member: the length of its name, its offset and its size, a byte each at least.
        14 => (size_of::<Members>(), size_of::<Member>().div_ceil(3)),
        15 => (size_of::<AccessCode>(), 0),
        16 => (size_of::<Touch>(), 0),
        18 => (size_of::<ThreadTask>(), 0),
        20 => (size_of::<Folded>(), 0),
        21 => (size_of::<Like>(), 0),
        22 => (size_of::<Resized>(), 0),
        // A word: eight fields, a byte each at least; of the name of its field a byte each.
        23 => (size_of::<SharedLine>(), size_of::<SharedWord>().div_ceil(8) + 1),
        24 => (size_of::<ThreadWaits>(), 0),
        25 => (size_of::<SiteFrees>(), 0),
        _ => (0, 1),
    };
    // A count that the encoding is too short for is refused by the decoder after as many items as there are.
    let items = varint(rest).0.min(plain.len() as u64);
    items * item as u64 + (plain.len() * nested) as u64
}

/// The variant [`Record::EventCounts`].
const EVENT_COUNTS: u64 = 17;

/// What a record of an earlier version lacks: its last fields, which are all `None`. A decoder that needs less leaves
/// what follows, as that of an earlier version does with a record of this one.
fn missing(plain: &[u8]) -> &'static [u8] {
    if varint(plain).0 == EVENT_COUNTS { &[0, 0] } else { &[] }
}

/// The number that `bytes` begin with, seven bits a byte, and what follows it.
fn varint(bytes: &[u8]) -> (u64, &[u8]) {
    let len = bytes.iter().take(10).position(|b| b & 0x80 == 0).map_or(0, |last| last + 1);
    let (own, rest) = bytes.split_at(len);
    (own.iter().rev().fold(0, |sum: u64, b| sum.wrapping_shl(7) | u64::from(b & 0x7f)), rest)
}

/// The little-endian number at an offset; 0 where `bytes` is too short.
fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::records::{AddressKind, EventCounts, Idle, KernelCost, Task};

    /// The numbers of [`decoded_size`] are those of the variants, and an estimate is never too small.
    #[test]
    fn the_memory_of_a_record_is_known_before_it_is_decoded() {
        let frame = Frame { module: 0, offset: 0 };
        let folded = Folded {
            time_ns: 0,
            thread: 0,
            object: 0,
            addr: 0,
            object_only: false,
            ip: frame,
            reads: 0,
            writes: 0,
            remote: 0,
            placed: 0,
            cost_ns: 0,
        };
        let counted = [
            (Record::Modules(vec![Module::default(); 1000]), size_of::<Module>()),
            (Record::Threads(vec![Thread::default(); 1000]), size_of::<Thread>()),
            (Record::Sites(vec![CallSite { id: 0, frames: vec![] }; 1000]), size_of::<CallSite>()),
            (Record::SiteCounts(vec![SiteCount::default(); 1000]), size_of::<SiteCount>()),
            (Record::Objects(vec![Object::default(); 1000]), size_of::<Object>()),
            (Record::Symbols(vec![Symbol { frame, locations: vec![] }; 1000]), size_of::<Symbol>()),
            (Record::Notes(vec![String::new(); 1000]), size_of::<String>()),
            (Record::Code(vec![CodeUnit { frame, function: 0, nest: 0 }; 1000]), size_of::<CodeUnit>()),
            (
                Record::LostFrames(vec![LostFrames { inner: None, outer: frame, locations: vec![] }; 1000]),
                size_of::<LostFrames>(),
            ),
            (Record::Members(vec![Members::default(); 1000]), size_of::<Members>()),
            (
                Record::AccessCode(vec![
                    AccessCode {
                        frame,
                        address: AddressKind::Loaded,
                        body: 0,
                        gap: 0,
                        behind: 0,
                        later: 0
                    };
                    1000
                ]),
                size_of::<AccessCode>(),
            ),
            (
                Record::ThreadTasks(vec![ThreadTask { thread: 0, task: Task { class: frame, function: None } }; 1000]),
                size_of::<ThreadTask>(),
            ),
            (Record::ThreadWaits(vec![ThreadWaits::default(); 1000]), size_of::<ThreadWaits>()),
            (Record::SiteFrees(vec![SiteFrees::default(); 1000]), size_of::<SiteFrees>()),
            (Record::Like(vec![Like::default(); 1000]), size_of::<Like>()),
            (Record::Resized(vec![Resized::default(); 1000]), size_of::<Resized>()),
            (Record::Folded(vec![folded; 1000]), size_of::<Folded>()),
            (
                Record::SharedLines(vec![
                    SharedLine { words: vec![SharedWord::default(); 4], ..SharedLine::default() };
                    1000
                ]),
                size_of::<SharedLine>() + 4 * size_of::<SharedWord>(),
            ),
            (
                Record::SampledTouches(vec![Touch { object: 0, addr: 0, pages: 1, thread: 0, time_ns: 0 }; 1000]),
                size_of::<Touch>(),
            ),
            (
                Record::Members(vec![Members { members: vec![Member::default(); 250], ..Members::default() }; 4]),
                size_of::<Member>(),
            ),
        ];
        for (record, item) in counted {
            let size = decoded_size(&postcard::to_stdvec(&record).unwrap());
            assert!((1000 * item as u64..3000 * item as u64).contains(&size), "{size} for {record:.40?}");
            let (first, second) = record.halves().unwrap();
            assert_ne!(first, second.halves().unwrap().0);
        }
        assert_eq!(varint(&[0x80 | 5, 1, 7]), (5 + 128, &[7][..]));
        assert_eq!((varint(&[]), varint(&[0x80; 12]).0), ((0, &[][..]), 0));
    }

    /// Earlier versions wrote no cost of the kernel's events, or no idle time either, and read what this one writes.
    #[test]
    fn counts_of_other_versions_are_read() {
        let read = |plain: &[u8]| postcard::from_bytes::<Record>(&[plain, missing(plain)].concat());
        let idle = Some(Idle { idle_ns: 300, waited_ns: 5 });
        let counts = EventCounts { fault_ns: 1000, starts_lost: 7, ..EventCounts::default() };
        let kernel = Some(KernelCost { faults_ns: 900, mappings_ns: 40 });
        let new = postcard::to_stdvec(&Record::EventCounts(EventCounts { idle, kernel, ..counts })).unwrap();
        assert_eq!(read(&new), Ok(Record::EventCounts(EventCounts { idle, kernel, ..counts })));
        let without = postcard::to_stdvec(&Record::EventCounts(EventCounts { idle, ..counts })).unwrap();
        assert_eq!(read(&without[..without.len() - 1]), Ok(Record::EventCounts(EventCounts { idle, ..counts })));
        assert!(new.starts_with(&without[..without.len() - 1]), "only what follows is new");
        let old = postcard::to_stdvec(&Record::EventCounts(counts)).unwrap();
        assert!(old.ends_with(&[0, 0]));
        assert_eq!(read(&old[..old.len() - 2]), Ok(Record::EventCounts(counts)));
        assert!(new.starts_with(&old[..old.len() - 2]), "only what follows is new");
    }

    #[test]
    fn only_files_are_renamed() {
        let dir = std::env::temp_dir().join(format!("numamma-devices-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("dir")).unwrap();
        // Not /dev/null itself: a mistake here must not replace it.
        let device = dir.join("null");
        std::os::unix::fs::symlink("/dev/null", &device).unwrap();
        Writer::create(&device).unwrap();
        assert!(device.is_symlink() && !dir.join("null.old").exists());
        assert!(Writer::create(&dir.join("dir")).unwrap_err().to_string().contains("directory"));
        assert!(dir.join("dir").is_dir());
        let file = dir.join("a.prof");
        Writer::create(&file).unwrap();
        Writer::create(&file).unwrap();
        assert!(dir.join("a.prof.old").is_file());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
