//! Output files, written so that a link that someone else made leads nowhere, and a reader sees a whole file or none.
//!
//! The name given on a command line or in the environment may be in a directory where others can write, such as /tmp,
//! and the writer may be root. So:
//!
//! - A file is made under an unpredictable name beside the one asked for (`O_EXCL`, `O_NOFOLLOW`) and renamed over it;
//!   an existing file gives its permission bits to the new one. On a full disk the existing file stays.
//! - A symbolic link as the last part of the name is followed if it belongs to the user of this process or to root, and
//!   refused otherwise. All later steps are relative to the directory that was opened for that check.
//! - A device, a terminal or a pipe is written to, never replaced; so are the names in /dev and /proc, which lead to
//!   open files. A directory or a block device is refused.
//!
//! The directories of the path are followed as they are: who may replace one of them decides where the file goes.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Links in a row, as many as the kernel follows (MAXSYMLINKS of include/linux/namei.h).
const MAX_LINKS: usize = 40;
/// Names tried for a temporary file; each has 64 random bits.
const MAX_NAMES: usize = 16;
/// Permission bits of a new file, before the umask.
const NEW_FILE: u32 = 0o666;

/// Whether a pipe without a reader is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipes {
    /// Until a reader opens it.
    Wait,
    /// An error at once.
    Refuse,
}

/// Writes `data` to `path`: replaces a file as a whole, writes to anything else.
///
/// # Errors
/// Why nothing was written; after an error of a device or pipe a part may have been.
pub fn write(path: &Path, data: &[u8], pipes: Pipes) -> io::Result<()> {
    let place = match find(path)? {
        Found::Special(path) => return open_special(&path, pipes)?.write_all(data),
        Found::Place(place) => place,
    };
    match place.replace(data) {
        // A directory that may not be changed can hold a file that may be.
        Err(e) if place.mode.is_some() && is_refusal(&e) => {
            let file = place.open(libc::O_WRONLY | libc::O_NONBLOCK, 0)?;
            if !file.metadata()?.is_file() {
                return Err(e);
            }
            file.set_len(0)?;
            (&file).write_all(data)
        }
        done => done,
    }
}

/// Opens a new file at `path` that begins with `begin`; an existing one is renamed to `path.old`, which is replaced.
/// Anything but a file is opened as it is. The new file is marked as being written, see [`mark`].
///
/// # Errors
/// Why there is no such file now; then the files that exist are as they were. Of the kind [`io::ErrorKind::WouldBlock`]
/// if another process writes the existing one.
pub fn create_keeping_old(path: &Path, begin: &[u8]) -> io::Result<File> {
    let place = match find(path)? {
        Found::Special(path) => {
            let mut file = open_special(&path, Pipes::Wait)?;
            return file.write_all(begin).map(|()| file);
        }
        Found::Place(place) => place,
    };
    let (mut file, temporary) = place.temporary()?;
    // Before it has its name: of several that begin at once, the second one sees the mark of the first.
    mark(&file);
    let done = file.write_all(begin).and_then(|()| place.publish(&temporary));
    if done.is_err() {
        place.remove(&temporary);
    }
    done.map(|()| file)
}

/// Marks a file as being written, until it is closed everywhere. Where the file system has no locks it is not marked.
pub fn mark(file: &File) {
    // SAFETY: the descriptor is open. A refusal changes nothing.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
}

/// The name under which an open file is found now: `path`, or the one that it was given since.
///
/// # Errors
/// When it has no name any more, or none that this process sees.
pub fn name_of(file: &File, path: &Path) -> io::Result<PathBuf> {
    let own = file.metadata()?;
    let is_own = |name: &PathBuf| {
        std::fs::metadata(name).is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino()))
    };
    let asked = Some(path.to_owned()).filter(is_own);
    let now = || std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok().filter(is_own);
    asked.or_else(now).ok_or_else(|| io::Error::other("it was removed, or moved to where this process does not see it"))
}

/// A new file that takes the place of another one when it is whole. Without [`Replacement::commit`] it is removed.
#[derive(Debug)]
pub struct Replacement {
    place: Place,
    file: File,
    /// Its name, where the file system has no files without one.
    temporary: Option<CString>,
}

impl Replacement {
    /// A new, empty file beside the file at `path`, with its permission bits.
    ///
    /// # Errors
    /// Why there can be none; also where `path` is anything but a file.
    pub fn of(path: &Path) -> io::Result<Replacement> {
        let Found::Place(place) = find(path)? else { return Err(io::Error::other("it is no file")) };
        let unnamed =
            open_at(Some(&place.dir), &c_string(OsStr::new("."))?, libc::O_TMPFILE | libc::O_WRONLY, NEW_FILE);
        let (file, temporary) = match unnamed {
            Ok(fd) => (File::from(fd), None),
            // EISDIR: a kernel or file system without O_TMPFILE (open(2)).
            Err(_) => place.temporary().map(|(file, name)| (file, Some(name)))?,
        };
        let new = Replacement { place, file, temporary };
        new.place.keep_mode(&new.file)?;
        Ok(new)
    }

    /// The file, for writing.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// Why it could not; then the old file is still there.
    pub fn commit(mut self) -> io::Result<()> {
        if self.temporary.is_none() {
            self.temporary = Some(self.place.link(&self.file)?);
        }
        if let Some(name) = &self.temporary {
            self.place.rename(name, &self.place.name)?;
        }
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            self.place.remove(name);
        }
    }
}

/// Whether `path` is a name in /dev or /proc, which leads to a device or an open file.
pub fn is_special(path: &Path) -> bool {
    ["/dev/", "/proc/"].iter().any(|dir| path.starts_with(dir)) && !path.starts_with("/dev/shm")
}

fn is_refusal(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EROFS))
}

/// A name in an open directory, where a file is or can be made.
#[derive(Debug)]
struct Place {
    dir: OwnedFd,
    name: CString,
    /// Permission bits of the file that exists.
    mode: Option<u32>,
}

enum Found {
    Place(Place),
    /// Exists and is no file.
    Special(PathBuf),
}

/// Follows the links at the end of `path` that may be followed.
fn find(path: &Path) -> io::Result<Found> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        if is_special(&path) {
            return Ok(Found::Special(path));
        }
        let name = path.file_name().ok_or_else(is_directory)?.to_owned();
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let dir = open_directory(parent)?;
        let name = c_string(&name)?;
        let Some(status) = status(&dir, &name)? else { return Ok(Found::Place(Place { dir, name, mode: None })) };
        match status.st_mode & libc::S_IFMT {
            libc::S_IFREG => return Ok(Found::Place(Place { dir, name, mode: Some(status.st_mode & 0o777) })),
            libc::S_IFDIR => return Err(is_directory()),
            libc::S_IFLNK => {
                // SAFETY: asks for a number.
                let own = unsafe { libc::geteuid() };
                if status.st_uid != own && status.st_uid != 0 {
                    let what = "is a symbolic link of another user";
                    return Err(io::Error::other(format!("it {what} (uid {}); name the file itself", status.st_uid)));
                }
                path = parent.join(read_link(&dir, &name)?);
            }
            _ => return Ok(Found::Special(path)),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

fn is_directory() -> io::Error {
    io::Error::other("it is a directory; name a file")
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the name holds a NUL byte"))
}

/// Opens `name` in `dir`, the working directory without one.
fn open_at(dir: Option<&OwnedFd>, name: &CString, flags: libc::c_int, mode: u32) -> io::Result<OwnedFd> {
    let dir = dir.map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd);
    // SAFETY: the name ends in NUL and outlives the call; the directory is open.
    let fd = unsafe { libc::openat(dir, name.as_ptr(), flags | libc::O_CLOEXEC, mode) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    open_at(None, &c_string(path.as_os_str())?, libc::O_PATH | libc::O_DIRECTORY, 0)
}

/// What is at `name`, without following it; none when there is nothing.
fn status(dir: &OwnedFd, name: &CString) -> io::Result<Option<libc::stat>> {
    let mut status = MaybeUninit::uninit();
    // SAFETY: the name ends in NUL, and the kernel fills the structure on success.
    let rc = unsafe { libc::fstatat(dir.as_raw_fd(), name.as_ptr(), status.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW) };
    if rc == 0 {
        // SAFETY: filled by the call, which succeeded.
        return Ok(Some(unsafe { status.assume_init() }));
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) }
}

fn read_link(dir: &OwnedFd, name: &CString) -> io::Result<OsString> {
    // Not on the stack: this runs at the end of a program, on whatever stack is left.
    let mut target = vec![0_u8; libc::PATH_MAX as usize];
    // SAFETY: the buffer is writable for its length, and the name ends in NUL.
    let n = unsafe { libc::readlinkat(dir.as_raw_fd(), name.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    Ok(OsStr::from_bytes(&target[..n]).to_owned())
}

/// Opens a device, a terminal, a pipe, or an open file by its name in /dev or /proc.
fn open_special(path: &Path, pipes: Pipes) -> io::Result<File> {
    let in_dev = is_special(path);
    let wait = if pipes == Pipes::Wait { 0 } else { libc::O_NONBLOCK };
    // Between the look and here a file may have taken the name: it is neither followed nor written to.
    let follow = if in_dev { 0 } else { libc::O_NOFOLLOW };
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_NOCTTY | wait | follow;
    let file = File::from(open_at(None, &c_string(path.as_os_str())?, flags, 0)?);
    let kind = file.metadata()?.mode() & libc::S_IFMT;
    match kind {
        libc::S_IFBLK => Err(io::Error::other("it is a block device; name a file")),
        libc::S_IFREG if !in_dev => Err(io::Error::other("it was replaced meanwhile; try again")),
        _ => Ok(file),
    }
}

impl Place {
    fn open(&self, flags: libc::c_int, mode: u32) -> io::Result<File> {
        open_at(Some(&self.dir), &self.name, flags | libc::O_NOFOLLOW, mode).map(File::from)
    }

    fn rename(&self, from: &CString, to: &CString) -> io::Result<()> {
        let dir = self.dir.as_raw_fd();
        // SAFETY: both names end in NUL and outlive the call; the directory is open.
        let rc = unsafe { libc::renameat(dir, from.as_ptr(), dir, to.as_ptr()) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Whether a process has marked the file.
    fn is_being_written(&self) -> bool {
        let Ok(file) = self.open(libc::O_RDONLY | libc::O_NONBLOCK, 0) else { return false };
        // SAFETY: the descriptor is open; the lock ends when it is closed.
        let rc = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) };
        rc != 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
    }

    /// Gives a new file the name, and what has it the name with `.old`, unless that is being written.
    fn publish(&self, new: &CString) -> io::Result<()> {
        let old = c_string(OsStr::from_bytes(&[self.name.as_bytes(), b".old"].concat()))?;
        for _ in 0..MAX_NAMES {
            if status(&self.dir, &self.name)?.is_some() {
                if self.is_being_written() {
                    return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process is writing it"));
                }
                self.rename(&self.name, &old)?;
            }
            match self.rename_to_free(new) {
                // Another process was faster.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                done => return done,
            }
        }
        Err(io::Error::from_raw_os_error(libc::EEXIST))
    }

    /// Renames to the name, if nothing has it.
    fn rename_to_free(&self, from: &CString) -> io::Result<()> {
        let dir = self.dir.as_raw_fd();
        // SAFETY: both names end in NUL and outlive the call; the directory is open.
        let rc = unsafe { libc::renameat2(dir, from.as_ptr(), dir, self.name.as_ptr(), libc::RENAME_NOREPLACE) };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            _ if rc == 0 => Ok(()),
            // File systems without it, kernels before 3.15 and sandboxes (renameat2(2)).
            Some(libc::EINVAL | libc::ENOSYS | libc::EPERM) => self.rename(from, &self.name),
            _ => Err(error),
        }
    }

    fn replace(&self, data: &[u8]) -> io::Result<()> {
        let (mut file, temporary) = self.temporary()?;
        let kept = self.keep_mode(&file);
        let done = kept.and_then(|()| file.write_all(data)).and_then(|()| self.rename(&temporary, &self.name));
        if done.is_err() {
            self.remove(&temporary);
        }
        done
    }

    /// Gives a new file the permission bits of the one that exists.
    fn keep_mode(&self, file: &File) -> io::Result<()> {
        let Some(mode) = self.mode else { return Ok(()) };
        // SAFETY: the descriptor is open.
        let rc = unsafe { libc::fchmod(file.as_raw_fd(), mode) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Removes a file that was made here.
    fn remove(&self, name: &CString) {
        // SAFETY: the name ends in NUL; the directory is open.
        unsafe { libc::unlinkat(self.dir.as_raw_fd(), name.as_ptr(), 0) };
    }

    /// Gives a file without a name one in the directory.
    fn link(&self, file: &File) -> io::Result<CString> {
        let from = c_string(OsStr::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))?;
        for _ in 0..MAX_NAMES {
            let name = temporary_name()?;
            let (dir, follow) = (self.dir.as_raw_fd(), libc::AT_SYMLINK_FOLLOW);
            // SAFETY: both names end in NUL and outlive the call; the directory is open.
            if unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), dir, name.as_ptr(), follow) } == 0 {
                return Ok(name);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(error);
            }
        }
        Err(io::Error::from_raw_os_error(libc::EEXIST))
    }

    /// A new file beside the one asked for.
    fn temporary(&self) -> io::Result<(File, CString)> {
        for _ in 0..MAX_NAMES {
            let name = temporary_name()?;
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
            match open_at(Some(&self.dir), &name, flags, NEW_FILE) {
                Ok(fd) => return Ok((File::from(fd), name)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::Error::from_raw_os_error(libc::EEXIST))
    }
}

fn temporary_name() -> io::Result<CString> {
    c_string(OsStr::new(&format!(".numamma-{:016x}.tmp", random()?)))
}

fn random() -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    // SAFETY: the buffer is writable for its length.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if n == bytes.len() as isize { Ok(u64::from_ne_bytes(bytes)) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("numamma-output-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_replaced_and_keep_their_permissions() {
        let dir = scratch("files");
        let file = dir.join("file");
        write(&file, b"one", Pipes::Wait).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(&file, dir.join("hard")).unwrap();
        write(&file, b"two", Pipes::Wait).unwrap();
        assert_eq!((fs::read(&file).unwrap(), fs::read(dir.join("hard")).unwrap()), (b"two".into(), b"one".into()));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        create_keeping_old(&file, b"th").unwrap().write_all(b"ree").unwrap();
        create_keeping_old(&dir.join("new"), b"").unwrap();
        assert_eq!(
            (fs::read(dir.join("file.old")).unwrap(), fs::read(&file).unwrap()),
            (b"two".into(), b"three".into())
        );
        assert_eq!(names(&dir), ["file", "file.old", "hard", "new"]);
        let limit = write(Path::new("/dev/full"), b"x", Pipes::Wait).unwrap_err();
        assert_eq!(limit.raw_os_error(), Some(libc::ENOSPC));
        for odd in [&dir, Path::new("/"), Path::new("."), &dir.join("..")] {
            assert!(write(odd, b"x", Pipes::Wait).unwrap_err().to_string().contains("directory"), "{odd:?}");
        }
        assert!(write(&dir.join("none/x"), b"x", Pipes::Wait).is_err());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_that_is_written_is_known_and_found_again() {
        let dir = scratch("marked");
        let (path, moved) = (dir.join("file"), dir.join("moved"));
        let file = create_keeping_old(&path, b"one").unwrap();
        let again = |path: &Path| create_keeping_old(path, b"two").map(drop).map_err(|e| e.kind());
        assert_eq!(again(&path), Err(io::ErrorKind::WouldBlock));
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(name_of(&file, &path).unwrap(), path);
        fs::rename(&path, &moved).unwrap();
        fs::write(&path, "of another").unwrap();
        assert_eq!(name_of(&file, &path).unwrap(), moved.canonicalize().unwrap());
        assert_eq!((again(&moved), again(&path)), (Err(io::ErrorKind::WouldBlock), Ok(())));
        assert_eq!(names(&dir), ["file", "file.old", "moved"]);
        fs::remove_file(&moved).unwrap();
        assert!(name_of(&file, &path).is_err());
        drop(file);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn own_links_are_followed_and_others_refused() {
        let dir = scratch("links");
        let [file, link, chain, dangling, theirs] =
            ["file", "link", "chain", "dangling", "theirs"].map(|n| dir.join(n));
        fs::write(&file, "kept").unwrap();
        symlink("file", &link).unwrap();
        symlink(&link, &chain).unwrap();
        symlink("made", &dangling).unwrap();
        write(&chain, b"one", Pipes::Wait).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"one");
        write(&dangling, b"two", Pipes::Wait).unwrap();
        assert_eq!(fs::read(dir.join("made")).unwrap(), b"two");
        create_keeping_old(&link, b"").unwrap();
        assert_eq!(fs::read(dir.join("file.old")).unwrap(), b"one");
        assert!(link.is_symlink() && chain.is_symlink() && dangling.is_symlink());
        symlink("loop", dir.join("loop")).unwrap();
        assert!(write(&dir.join("loop"), b"x", Pipes::Wait).is_err());
        symlink("/dev/null", dir.join("null")).unwrap();
        write(&dir.join("null"), b"x", Pipes::Wait).unwrap();
        create_keeping_old(&dir.join("null"), b"").unwrap();
        // Only root can make a link of another user.
        symlink(dir.join("stolen"), &theirs).unwrap();
        if lchown(&theirs, Some(12_345), None).is_ok() {
            for refused in [write(&theirs, b"x", Pipes::Wait).err(), create_keeping_old(&theirs, b"").err()] {
                assert!(refused.is_some_and(|e| e.to_string().contains("another user (uid 12345)")));
            }
            assert!(!dir.join("stolen").exists());
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn pipes_are_written_to_and_nobody_waits_who_must_not() {
        let dir = scratch("pipes");
        let pipe = dir.join("pipe");
        let name = c_string(pipe.as_os_str()).unwrap();
        // SAFETY: a name that ends in NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert_eq!(write(&pipe, b"x", Pipes::Refuse).unwrap_err().raw_os_error(), Some(libc::ENXIO));
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        write(&pipe, b"for the reader", Pipes::Wait).unwrap();
        assert_eq!(reader.join().unwrap(), b"for the reader");
        assert_eq!(names(&dir), ["pipe"]);
        fs::remove_dir_all(&dir).unwrap();
    }
}
