//! Memory the process can still allocate: within the limits of its control groups and the machine's available memory.

use std::path::{Path, PathBuf};

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

/// [`within_limits`] with files below `root`.
fn within_limits_in(root: &Path, text: &dyn Fn(PathBuf) -> Option<String>) -> Option<u64> {
    let own = text(root.join("proc/self/cgroup")).unwrap_or_default();
    let groups = own.lines().flat_map(|line| {
        VERSIONS.iter().filter_map(move |version| {
            let (_, path) = line.split_once(version.mark)?;
            Some((version, PathBuf::from(path)))
        })
    });
    let remaining = groups.flat_map(|(version, path)| {
        // The limits of parent groups apply as well. Inside a container they are not visible.
        let parts: Vec<PathBuf> = path.ancestors().map(|p| p.strip_prefix("/").unwrap_or(p).to_owned()).collect();
        let remaining_in = move |part: PathBuf| {
            let dir = root.join(version.mount).join(part);
            let number = |file: &str| text(dir.join(file))?.trim().parse::<u64>().ok();
            let (limit, used) = (number(version.limit)?, number(version.usage)?);
            let stat = text(dir.join("memory.stat")).unwrap_or_default();
            let cached = stat.lines().find_map(|l| l.strip_prefix(version.cache)?.trim().parse().ok()).unwrap_or(0);
            Some(limit.saturating_sub(used.saturating_sub(cached)))
        };
        parts.into_iter().filter_map(remaining_in)
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
    fn this_machine_has_memory() {
        assert!(available().unwrap() > 1 << 20);
        assert!(within_limits().is_none_or(|limit| limit >= available().unwrap()));
    }
}
