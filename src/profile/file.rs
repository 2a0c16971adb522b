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

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use super::records::Record;

/// First bytes of every profile.
pub const MAGIC: [u8; 8] = *b"NUMAMMA\x01";
/// Version of the format this build writes and reads.
pub const VERSION: u32 = 1;
/// Bytes before the first chunk.
const HEADER: usize = 16;
const CHUNK_MAGIC: [u8; 4] = *b"CHNK";
/// Bytes of a chunk before its payload.
const CHUNK_HEADER: usize = 12;
/// Bytes that no chunk of the recorder exceeds; a larger length means a damaged or foreign file.
const MAX_CHUNK: u32 = 256 << 20;

/// Why a profile could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no such file.
    #[error("{}: no such profile; record one with `numamma profile -- ./app`, or name the file", .0.display())]
    Missing(PathBuf),
    /// Opening or reading failed.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
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
}

impl Writer {
    /// Creates `path` (an existing file is renamed to `path.old`, as perf does) and writes the file header. Only files
    /// are renamed: a device such as /dev/null or a pipe is written to, a directory is refused.
    pub fn create(path: &Path) -> io::Result<Writer> {
        let existing = std::fs::metadata(path).map(|m| m.file_type());
        if existing.as_ref().is_ok_and(|t| t.is_dir()) {
            return Err(io::Error::other("it is a directory; name a file with -o"));
        }
        if existing.is_ok_and(|t| t.is_file()) {
            let mut old = path.as_os_str().to_owned();
            old.push(".old");
            std::fs::rename(path, PathBuf::from(old))?;
        }
        let mut file = File::create(path)?;
        let mut head = [0u8; HEADER];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        file.write_all(&head)?;
        Ok(Writer { file })
    }

    /// Appends one record as one chunk. After an error (disk full) the file still reads up to the
    /// chunk before.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let plain = postcard::to_stdvec(record).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        let payload = lz4_flex::compress_prepend_size(&plain);
        let mut chunk = Vec::with_capacity(payload.len() + CHUNK_HEADER);
        chunk.extend_from_slice(&CHUNK_MAGIC);
        chunk.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        chunk.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
        chunk.extend_from_slice(&payload);
        self.file.write_all(&chunk)
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
}

impl Reader {
    /// Opens a profile and checks magic and version.
    pub fn open(path: &Path) -> Result<Reader, FileError> {
        let file = File::open(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => FileError::Missing(path.into()),
            _ => FileError::Io(path.into(), e),
        })?;
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
        Ok(Reader { input, path: path.into(), damage: None, chunks: 0 })
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
        if crc32fast::hash(&payload) != u32_at(&head, 8) {
            return Err("a chunk fails its checksum".into());
        }
        let size = u32_at(&payload, 0);
        if size > MAX_CHUNK.saturating_mul(4) {
            return Err(format!("a chunk claims {size} bytes unpacked"));
        }
        let plain = lz4_flex::decompress_size_prepended(&payload).map_err(|e| e.to_string())?;
        postcard::from_bytes(&plain).map(Some).map_err(|e| e.to_string())
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
    let mut bytes = Vec::with_capacity(len);
    input.take(len as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The little-endian number at an offset; 0 where `bytes` is too short.
fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

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
