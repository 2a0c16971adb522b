//! The directory of a recording, and those that killed processes left.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Before the process id in the name.
const PREFIX: &str = "numamma-top-";

/// A directory for temporary files of this process, which is removed with this value.
pub struct Directory {
    path: PathBuf,
    /// Locked: processes of other process id namespaces see that it is in use.
    _lock: Option<File>,
}

impl Directory {
    /// # Errors
    /// A message that names the directory for temporary files.
    pub fn create() -> Result<Directory, String> {
        let parent = std::env::temp_dir();
        remove_left(&parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        // Fails where the name is taken: nobody else's directory is written to.
        let created = DirBuilder::new().mode(0o700).create(&path);
        created.map_err(|e| format!("{}: {e}; TMPDIR names the directory for temporary files", path.display()))?;
        let _lock = locked(&path).ok();
        Ok(Directory { path, _lock })
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories of processes of this user that do not exist any more. Errors are those of other tries.
fn remove_left(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_prefix(PREFIX)?.parse::<i32>().ok()).filter(|&pid| pid > 0);
        if pid.is_some_and(is_gone) && is_own(&entry.path()) {
            // Follows no links.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_gone(pid: i32) -> bool {
    // SAFETY: signal 0 is not sent; only the process id is looked up.
    let rc = unsafe { libc::kill(pid, 0) };
    rc != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Whether it is a directory, no link, of this user, that no process has locked.
fn is_own(path: &Path) -> bool {
    // SAFETY: geteuid has no preconditions.
    let user = unsafe { libc::geteuid() };
    locked(path).and_then(|dir| dir.metadata()).is_ok_and(|m| m.uid() == user)
}

/// A directory, with its lock.
fn locked(path: &Path) -> io::Result<File> {
    let dir = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)?;
    // SAFETY: the descriptor is open; no memory is passed.
    match unsafe { libc::flock(dir.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(dir),
        _ => Err(io::Error::last_os_error()),
    }
}
