//! Memory the process can still allocate: within the limits of its control groups and the machine's available memory.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::held_file::{HeldFile, Of};
use crate::meminfo;

/// Names that one version of control groups uses.
struct Version {
    /// Text before the group's path in its line of /proc/self/cgroup.
    mark: &'static str,
    /// Mount point of the memory controller, relative to the root directory.
    mount: &'static str,
    /// File with the limit, bytes.
    limit: &'static str,
    /// File with the memory in use, bytes.
    usage: &'static str,
    /// Key of memory.stat for file pages that the kernel can reclaim, bytes.
    cache: &'static str,
}

/// Version 2, and the memory controller of version 1.
const VERSIONS: [Version; 2] = [
    Version {
        mark: "0::",
        mount: "sys/fs/cgroup",
        limit: "memory.max",
        usage: "memory.current",
        cache: "inactive_file ",
    },
    Version {
        mark: ":memory:",
        mount: "sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        usage: "memory.usage_in_bytes",
        cache: "total_inactive_file ",
    },
];

/// Bytes the process can allocate without swapping and within the limits of its control groups; `None` when neither
/// /proc/meminfo nor a limit can be read.
pub fn available() -> Option<u64> {
    available_in(Path::new("/"), &read)
}

/// Bytes the process can allocate within the limits of its control groups; `None` without a limit.
pub fn within_limits() -> Option<u64> {
    within_limits_in(Path::new("/"), &read)
}

fn read(path: PathBuf) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// [`available`] with files below `root`.
fn available_in(root: &Path, text: &dyn Fn(PathBuf) -> Option<String>) -> Option<u64> {
    let machine = text(root.join("proc/meminfo")).and_then(|t| meminfo::field(&t, "MemAvailable:"));
    within_limits_in(root, text).into_iter().chain(machine).min()
}

/// Limits from which there is none: version 1 says 2^63 less a page.
const NO_LIMIT: u64 = 1 << 60;
/// Bytes that memory.stat has at most, and a number.
const LONGEST_STAT: usize = 8192;
const LONGEST_NUMBER: usize = 24;

/// A group with a limit that the process is in, to be read again and again.
pub struct Group {
    limit: u64,
    usage: GroupFile,
    stat: GroupFile,
    cache: &'static str,
}

/// A file of a group: of all processes that are forked, too.
struct GroupFile {
    path: CString,
    held: HeldFile,
}

impl GroupFile {
    /// Opens it, see [`HeldFile`].
    fn new(path: &Path) -> Option<GroupFile> {
        let file = GroupFile { path: CString::new(path.as_os_str().as_bytes()).ok()?, held: HeldFile::new(Of::Many) };
        file.held.hold(&file.path);
        Some(file)
    }

    fn contents<'a>(&self, text: &'a mut [u8]) -> Option<&'a str> {
        core::str::from_utf8(self.held.read(&self.path, text)?).ok()
    }
}

/// The groups of the process that have a limit. Their files stay open, if the process has one thread.
pub fn limited() -> Vec<Group> {
    let found = groups_in(Path::new("/"), &read).into_iter().filter_map(|(version, dir)| {
        let limit = read(dir.join(version.limit))?.trim().parse::<u64>().ok().filter(|limit| *limit < NO_LIMIT)?;
        let file = |name: &str| GroupFile::new(&dir.join(name));
        Some(Group { limit, usage: file(version.usage)?, stat: file("memory.stat")?, cache: version.cache })
    });
    found.collect()
}

impl Group {
    /// Bytes that are left, or at least `enough`; `None` when that cannot be read. Allocates nothing, and takes
    /// 10 KiB of the stack.
    pub fn left(&self, enough: u64) -> Option<u64> {
        let mut text = [0; LONGEST_NUMBER];
        let used = self.usage.contents(&mut text)?.trim().parse::<u64>().ok()?;
        let left = self.limit.saturating_sub(used);
        if left >= enough {
            return Some(left);
        }
        let mut text = [0; LONGEST_STAT];
        let cached = self.stat.contents(&mut text).map_or(0, |stat| cached(stat, self.cache));
        Some(self.limit.saturating_sub(used.saturating_sub(cached)))
    }
}

/// File pages that the kernel can reclaim, of memory.stat.
fn cached(stat: &str, key: &str) -> u64 {
    stat.lines().find_map(|l| l.strip_prefix(key)?.trim().parse().ok()).unwrap_or(0)
}

/// The groups of the process and their parents: how their files are named, and where these are.
fn groups_in(root: &Path, text: &dyn Fn(PathBuf) -> Option<String>) -> Vec<(&'static Version, PathBuf)> {
    let own = text(root.join("proc/self/cgroup")).unwrap_or_default();
    let groups = own.lines().flat_map(|line| {
        VERSIONS.iter().filter_map(move |version| {
            let (_, path) = line.split_once(version.mark)?;
            Some((version, PathBuf::from(path)))
        })
    });
    let dirs = groups.flat_map(|(version, path)| {
        // The limits of parent groups apply as well. Inside a container they are not visible.
        let parts: Vec<PathBuf> = path.ancestors().map(|p| p.strip_prefix("/").unwrap_or(p).to_owned()).collect();
        parts.into_iter().map(move |part| (version, root.join(version.mount).join(part)))
    });
    dirs.collect()
}

/// [`within_limits`] with files below `root`.
fn within_limits_in(root: &Path, text: &dyn Fn(PathBuf) -> Option<String>) -> Option<u64> {
    let remaining = groups_in(root, text).into_iter().filter_map(|(version, dir)| {
        let number = |file: &str| text(dir.join(file))?.trim().parse::<u64>().ok();
        let (limit, used) = (number(version.limit)?, number(version.usage)?);
        let stat = text(dir.join("memory.stat")).unwrap_or_default();
        Some(limit.saturating_sub(used.saturating_sub(cached(&stat, version.cache))))
    });
    remaining.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_counts() {
        let files = |set: &'static [(&'static str, &'static str)]| {
            move |path: PathBuf| {
                set.iter().find(|(name, _)| path == Path::new("/").join(name)).map(|(_, text)| (*text).to_owned())
            }
        };
        let of = |set: &'static [(&'static str, &'static str)]| available_in(Path::new("/"), &files(set));
        const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:      1000 kB\n");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[MACHINE]), Some(1_024_000));
        let two = &[
            MACHINE,
            ("proc/self/cgroup", "0::/job/step\n"),
            ("sys/fs/cgroup/job/step/memory.max", "max\n"),
            ("sys/fs/cgroup/job/step/memory.current", "100\n"),
            ("sys/fs/cgroup/job/memory.max", "5000\n"),
            ("sys/fs/cgroup/job/memory.current", "1500\n"),
            ("sys/fs/cgroup/job/memory.stat", "anon 1\nactive_file 3\ninactive_file 500\n"),
        ];
        assert_eq!(of(two), Some(4000));
        let one = &[
            MACHINE,
            ("proc/self/cgroup", "5:cpu:/\n4:memory:/hidden/by/the/container\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "3000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "4000\n"),
        ];
        assert_eq!(of(one), Some(0), "usage above the limit");
    }

    #[test]
    fn what_a_group_has_left_is_read_again() {
        let dir = std::env::temp_dir().join(format!("numamma-cgroup-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = |name: &str, text: &str| {
            std::fs::write(dir.join(name), text).unwrap();
            let file = GroupFile::new(&dir.join(name)).unwrap();
            file.held.open(&file.path);
            file
        };
        let usage = file("usage", "700\n");
        let stat = file("stat", "anon 1\ninactive_file 500\n");
        let group = Group { limit: 1000, usage, stat, cache: VERSIONS[0].cache };
        assert_eq!((group.left(300), group.left(301)), (Some(300), Some(800)), "file pages count where it is needed");
        file("usage", "2000\n");
        assert_eq!(group.left(300), Some(0));
        std::fs::remove_dir_all(&dir).unwrap();
        let unread = Group { usage: GroupFile::new(&dir.join("none")).unwrap(), ..group };
        assert_eq!(unread.left(0), None);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(available().unwrap() > 1 << 20);
        assert!(within_limits().is_none_or(|limit| limit >= available().unwrap()));
    }
}
