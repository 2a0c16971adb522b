//! Compacting a file while it is recorded: when to begin, the thread, and the change to the new file.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use numamma_kernel::output_file::Replacement;

use super::Compacted;
use super::cells::Coarseness;
use crate::profile::file::{Extent, Reader, Writer};

/// By default a file is compacted when it has grown by so many bytes, and at least doubled: some million accesses,
/// which is what is kept of it.
pub const COMPACT_AT: u64 = 64 << 20;
/// Bytes of memory for a sum of accesses: 72, and 8 to 16 in the slots of their table; a list that grows has room for
/// more.
const CELL_BYTES: u64 = 128;
/// Lowest priority (setpriority(2)): the program and the recorder come first.
const NICE: libc::c_int = 19;

/// The compactions of one recording.
#[derive(Debug)]
pub struct Compaction {
    /// Bytes of the file after the last.
    compacted: u64,
    /// Bytes by which a file grows at least between two; none after one failed, and where the user wants all accesses.
    least: Option<u64>,
    /// Bytes of memory that one may take.
    memory: u64,
    /// Of the sums in the file.
    coarseness: Option<Coarseness>,
    running: Option<Running>,
}

/// A file that was written anew.
#[derive(Debug)]
struct Written {
    replacement: Replacement,
    writer: Writer,
    coarseness: Option<Coarseness>,
}

#[derive(Debug)]
struct Running {
    thread: JoinHandle<io::Result<Written>>,
    cancelled: Arc<AtomicBool>,
    /// The file, for reading, and what of it is compacted.
    input: File,
    from: Extent,
}

impl Compaction {
    /// Of a recording that may take `memory` bytes for it; `least` as [`COMPACT_AT`], none for no compaction.
    pub fn new(least: Option<u64>, memory: u64) -> Compaction {
        Compaction { compacted: 0, least, memory, coarseness: None, running: None }
    }

    /// Whether one is under way.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Bytes of the file after the last one.
    #[cfg(test)]
    pub fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Goes on with the compaction of the file at `path`, to be called after records were appended; `run_ns`: the
    /// length of the run so far. After a failure the file is as it was, and is not compacted again.
    pub fn step(&mut self, path: &Path, writer: &mut Writer, run_ns: u64) {
        match self.running.take() {
            Some(running) if !running.thread.is_finished() => self.running = Some(running),
            Some(running) => match running.finish(path, writer) {
                Ok((bytes, coarseness)) => (self.compacted, self.coarseness) = (bytes, coarseness),
                Err(_) => self.least = None,
            },
            None if self.least.is_some_and(|least| writer.written().bytes >= self.compacted * 2 + least) => {
                let cells = usize::try_from(self.memory / CELL_BYTES).unwrap_or(usize::MAX);
                let compacted = Compacted::new(run_ns, cells, self.coarseness.take());
                match Running::start(path, writer, compacted) {
                    Ok(running) => self.running = Some(running),
                    Err(_) => self.least = None,
                }
            }
            None => {}
        }
    }

    /// Ends a compaction that has not ended; the file stays as it is.
    pub fn cancel(&mut self) {
        self.least = None;
        if let Some(running) = self.running.take() {
            running.cancelled.store(true, Ordering::Relaxed);
            // What the thread had made is removed when it is dropped.
            drop(running.thread.join());
        }
    }
}

impl Running {
    fn start(path: &Path, writer: &Writer, compacted: Compacted) -> io::Result<Running> {
        let input = File::open(path)?;
        let (read, written) = (input.metadata()?, writer.file().metadata()?);
        if !written.is_file() || (read.dev(), read.ino()) != (written.dev(), written.ino()) {
            return Err(io::Error::other("the file was moved"));
        }
        let from = writer.written();
        let cancelled = Arc::new(AtomicBool::new(false));
        let (whole, stop, place) = (input.try_clone()?, cancelled.clone(), path.to_owned());
        let work = move || {
            // SAFETY: takes numbers; 0 is the calling thread. A refusal changes nothing.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
            compact(&place, whole, from, compacted, &stop)
        };
        let thread = thread::Builder::new().name("numamma-compact".into()).spawn(work)?;
        Ok(Running { thread, cancelled, input, from })
    }

    /// Puts the new file in the place of the old one; returns its bytes without what was recorded meanwhile, and how
    /// coarse its sums are.
    fn finish(mut self, path: &Path, writer: &mut Writer) -> io::Result<(u64, Option<Coarseness>)> {
        let done = self.thread.join().map_err(|_| io::Error::other("the thread panicked"))?;
        let Written { replacement, writer: mut new, coarseness } = done?;
        let compacted = new.written().bytes;
        let (now, old) = (std::fs::symlink_metadata(path).or_else(|_| self.input.metadata())?, self.input.metadata()?);
        if !now.is_symlink() && (now.dev(), now.ino()) != (old.dev(), old.ino()) {
            return Err(io::Error::other("the file was moved"));
        }
        new.append_rest(writer, &mut self.input, self.from)?;
        replacement.commit()?;
        *writer = new;
        Ok((compacted, coarseness))
    }
}

/// Reads the first part of a file and writes what is left of it.
fn compact(path: &Path, input: File, from: Extent, mut compacted: Compacted, stop: &AtomicBool) -> io::Result<Written> {
    let go_on = || -> io::Result<()> {
        if stop.load(Ordering::Relaxed) { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    };
    let mut reader = Reader::of(input, path).map_err(|e| io::Error::other(e.to_string()))?;
    for record in reader.by_ref().take(usize::try_from(from.chunks).unwrap_or(usize::MAX)) {
        go_on()?;
        compacted.take(record);
    }
    if let Some(damage) = reader.damage {
        return Err(io::Error::other(damage));
    }
    let coarseness = compacted.coarseness();
    let replacement = Replacement::of(path)?;
    let mut writer = Writer::on(replacement.file()?)?;
    for record in compacted.into_records() {
        go_on()?;
        writer.append(&record)?;
    }
    Ok(Written { replacement, writer, coarseness })
}
