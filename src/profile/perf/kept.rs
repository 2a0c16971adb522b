//! The calibration of this machine, kept from one run to the next: measuring it takes longer than starting a program.
//!
//! One file per host in `$XDG_RUNTIME_DIR/numamma`, or `$XDG_CACHE_HOME/numamma` (`~/.cache/numamma`) without it. Its
//! first line names what the figures depend on: the boot, the kernel, the CPU and the version of numamma. A file is
//! only believed in a directory of the user of this process, when it is a file of that user that nobody else may write,
//! when its first line is right, its figures are possible and it is no older than [`MOST_AGE`]. Anything else is
//! measured anew without a word: the file saves time, nothing depends on it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use numamma_kernel::output_file::{self, Pipes};

use super::calibrate::Costs;

/// The load of a virtual machine's host, which the figures depend on as well, changes in the course of a day.
const MOST_AGE: Duration = Duration::from_secs(24 * 3600);
/// Bytes of the file that are read; it has some 200.
const MOST_BYTES: u64 = 4096;
/// A sample costs between a fifth of the 1 us of bare metal and ten times the 100 us of nested virtual machines.
const SAMPLE_NS: std::ops::RangeInclusive<u64> = 200..=1_000_000;
/// The same for the record of a page fault: 0.1 to 1 us where measured.
const FAULT_NS: std::ops::RangeInclusive<u64> = 20..=50_000;
/// The most that a fault costs which is not recorded, and the record of a mapping: 0.1 and 1 us where measured.
const MOST_NS: u64 = 50_000;

/// The kept costs, when they are those of this machine since its last boot.
pub fn read() -> Option<Costs> {
    read_in(&directory()?, &key()?)
}

/// Keeps `costs` for later runs, where a file can be written.
pub fn write(costs: Costs) {
    if let (Some(directory), Some(key)) = (directory(), key()) {
        write_in(&directory, &key, costs);
    }
}

fn read_in(directory: &Path, key: &str) -> Option<Costs> {
    own_directory(directory).then_some(())?;
    // Nonblocking: opening a pipe would wait for its writer.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(file_in(directory)).ok()?;
    let text = trusted_text(&file)?;
    let (kept_for, figures) = text.split_once('\n')?;
    let mut figures = figures.strip_suffix('\n')?.split(' ').map(|n| n.parse::<u64>().ok());
    let mut next = || figures.next()?;
    let costs = Costs {
        sample_ns: next()?,
        fault_ns: next()?,
        fault_passed_ns: next()?,
        fault_off_ns: next()?,
        mapping_ns: next()?,
    };
    (kept_for == key && figures.next().is_none() && is_possible(costs)).then_some(costs)
}

/// Zeros are what other work hid, and would hide for a day; only what a switched-off event costs may be so little.
fn is_possible(costs: Costs) -> bool {
    SAMPLE_NS.contains(&costs.sample_ns)
        && FAULT_NS.contains(&costs.fault_ns)
        && [costs.fault_passed_ns, costs.mapping_ns].iter().all(|ns| (1..=MOST_NS).contains(ns))
        && costs.fault_off_ns <= MOST_NS
}

/// The text of a file of this user that nobody else may write and that is not old.
fn trusted_text(mut file: &File) -> Option<String> {
    let meta = file.metadata().ok()?;
    let own = meta.is_file() && meta.uid() == user() && meta.mode() & 0o022 == 0 && meta.len() <= MOST_BYTES;
    // A time in the future gives an error.
    let young = meta.modified().ok()?.elapsed().is_ok_and(|age| age <= MOST_AGE);
    let mut text = String::new();
    (own && young).then(|| file.read_to_string(&mut text).ok())??;
    Some(text)
}

fn write_in(directory: &Path, key: &str, costs: Costs) {
    if !is_possible(costs) {
        return;
    }
    // The parent is made as well, as the specification of base directories asks for.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    if made.is_ok() && own_directory(directory) {
        let Costs { sample_ns, fault_ns, fault_passed_ns, fault_off_ns, mapping_ns } = costs;
        let text = format!("{key}\n{sample_ns} {fault_ns} {fault_passed_ns} {fault_off_ns} {mapping_ns}\n");
        // An error is none of the user's business: the next run measures again.
        let _ = output_file::write(&file_in(directory), text.as_bytes(), Pipes::Refuse);
    }
}

/// Whether `directory` itself, not a link to it, belongs to this user, and nobody else may change it.
fn own_directory(directory: &Path) -> bool {
    fs::symlink_metadata(directory).is_ok_and(|m| m.is_dir() && m.uid() == user() && m.mode() & 0o022 == 0)
}

fn user() -> u32 {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() }
}

fn directory() -> Option<PathBuf> {
    let base = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = || base("XDG_CACHE_HOME").or_else(|| cache_of(base("HOME")?));
    Some(base("XDG_RUNTIME_DIR").or_else(cache)?.join("numamma"))
}

/// The cache in a home directory. None where that does not exist, as in many containers: it is not ours to make.
fn cache_of(home: PathBuf) -> Option<PathBuf> {
    home.is_dir().then(|| home.join(".cache"))
}

/// One file per host: a home directory may be shared by many.
fn file_in(directory: &Path) -> PathBuf {
    let host = fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.');
    let mut name = OsString::from("calibration-");
    name.push(std::ffi::OsStr::from_bytes(&host.iter().copied().filter(plain).collect::<Vec<u8>>()));
    directory.join(name)
}

/// What the costs depend on, in one line.
fn key() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let (boot, kernel) = (boot.trim(), kernel.trim());
    Some(format!("numamma {} boot {boot} kernel {kernel} cpu {}", env!("CARGO_PKG_VERSION"), cpu_model()?))
}

/// Model of the first CPU. Only the first page of the file is read: the kernel asks every CPU that is printed.
fn cpu_model() -> Option<String> {
    let mut start = vec![0; 4096];
    let read = File::open("/proc/cpuinfo").ok()?.read(&mut start).ok()?;
    let start = String::from_utf8_lossy(&start[..read]).into_owned();
    let line = start.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::SystemTime;

    use super::*;

    const COSTS: Costs =
        Costs { sample_ns: 14_000, fault_ns: 700, fault_passed_ns: 70, fault_off_ns: 50, mapping_ns: 900 };

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("numamma-kept-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir.join("cache/numamma")
    }

    #[test]
    fn costs_are_kept_for_one_boot_and_machine() {
        let dir = scratch("same");
        assert_eq!(read_in(&dir, "a"), None, "nothing there");
        write_in(&dir, "a", COSTS);
        assert_eq!(read_in(&dir, "a"), Some(COSTS));
        assert_eq!(read_in(&dir, "b"), None, "another boot");
        write_in(&dir, "b", Costs { sample_ns: 0, ..COSTS });
        write_in(&dir, "b", Costs { fault_passed_ns: 0, ..COSTS });
        assert_eq!(read_in(&dir, "a"), Some(COSTS), "what could not be measured is not kept");
        write_in(&dir, "b", COSTS);
        assert_eq!((read_in(&dir, "a"), read_in(&dir, "b")), (None, Some(COSTS)), "replaced");
        let unseen = Costs { fault_off_ns: 0, ..COSTS };
        write_in(&dir, "b", unseen);
        assert_eq!(read_in(&dir, "b"), Some(unseen), "a switched-off event may cost nothing");
        let file = file_in(&dir);
        let yesterday = SystemTime::now() - MOST_AGE - Duration::from_secs(60);
        File::options().write(true).open(&file).unwrap().set_modified(yesterday).unwrap();
        assert_eq!(read_in(&dir, "b"), None, "old");
        assert!(key().is_some_and(|key| !key.contains('\n') && key.contains("boot ")), "{:?}", key());
        fs::remove_dir_all(dir.ancestors().nth(2).unwrap()).unwrap();
    }

    #[test]
    fn a_home_that_is_not_there_has_no_cache() {
        let home = scratch("home").join("nonexistent");
        assert_eq!(cache_of(home.clone()), None);
        fs::create_dir_all(&home).unwrap();
        assert_eq!(cache_of(home.clone()), Some(home.join(".cache")));
        fs::remove_dir_all(home.ancestors().nth(3).unwrap()).unwrap();
    }

    #[test]
    fn nothing_is_believed_that_another_may_have_written() {
        let dir = scratch("others");
        write_in(&dir, "k", COSTS);
        let file = file_in(&dir);
        let broken = [
            "",
            "k",
            "k\n",
            "k\n14000\n",
            "k\n14000 700\n",
            "k\n14000 700 70 50 900",
            "k\n14000 700 70 50 900 1\n",
            "k\n1 700 70 50 900\n",
            "k\n14000 -1 70 50 900\n",
            "k\n14000 700 70 50 900000\n",
            "k\n14000 700 0 50 900\n",
            "k\n14000 700 70 50 0\n",
        ];
        for text in broken {
            fs::write(&file, text).unwrap();
            assert_eq!(read_in(&dir, "k"), None, "{text:?}");
        }
        fs::write(&file, format!("k\n14000 700 70 50 900{}\n", " ".repeat(5000))).unwrap();
        assert_eq!(read_in(&dir, "k"), None, "long");
        write_in(&dir, "k", COSTS);
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for (path, mode, good) in [(&file, 0o666, 0o600), (&dir, 0o777, 0o700)] {
            set(path, mode);
            assert_eq!(read_in(&dir, "k"), None, "{mode:o}");
            set(path, good);
            assert_eq!(read_in(&dir, "k"), Some(COSTS));
        }
        // Links lead nowhere, and a pipe is not waited for.
        let real = dir.join("real");
        fs::rename(&file, &real).unwrap();
        symlink(&real, &file).unwrap();
        assert_eq!(read_in(&dir, "k"), None);
        fs::remove_file(&file).unwrap();
        let name = CString::new(file.as_os_str().as_bytes()).unwrap();
        // SAFETY: a name that ends in NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert_eq!(read_in(&dir, "k"), None);
        write_in(&dir, "k", COSTS);
        let link = dir.with_file_name("link");
        symlink(&dir, &link).unwrap();
        assert_eq!(read_in(&link, "k"), None);
        // Only root can give a file away.
        fs::remove_file(&file).unwrap();
        write_in(&dir, "k", COSTS);
        if std::os::unix::fs::chown(&file, Some(12_345), None).is_ok() {
            assert_eq!(read_in(&dir, "k"), None);
        }
        fs::remove_dir_all(dir.ancestors().nth(2).unwrap()).unwrap();
    }
}
