//! Memory this process can still have: of the machine, and of the control groups it is in.
//!
//! Populating takes memory that the program may never touch, and who takes more than there is gets killed. So it is asked
//! for first; an answer serves until an eighth of it is taken.

use core::sync::atomic::{AtomicU64, Ordering};
use std::path::{Path, PathBuf};

/// Share of the available memory that stays free, and that may be taken without looking again: the numbers are
/// estimates, and other processes take memory, too.
const MARGIN: u64 = 8;

/// Where control groups are mounted: version 2, and the memory controller of version 1.
const GROUPS: [(&str, &str, [&str; 2], &str); 2] = [
    ("0::", "/sys/fs/cgroup", ["memory.max", "memory.current"], "inactive_file "),
    (":memory:", "/sys/fs/cgroup/memory", ["memory.limit_in_bytes", "memory.usage_in_bytes"], "total_inactive_file "),
];

/// Bytes that may be taken without looking again.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// Whether `bytes` more can be had. Reads a few files now and then, takes no lock.
pub fn may_take(bytes: u64) -> bool {
    let less = |left: u64| left.checked_sub(bytes);
    if LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
        return true;
    }
    let Some(available) = available() else { return true };
    let fits = bytes <= available - available / MARGIN;
    LEFT.store(available.saturating_sub(bytes) / MARGIN, Ordering::Relaxed);
    fits
}

/// Bytes that can be had without swapping; `None` when the system does not say.
fn available() -> Option<u64> {
    let text = |path: PathBuf| std::fs::read_to_string(path).ok();
    available_in(Path::new("/"), &text)
}

/// The same with files below `root`.
fn available_in(root: &Path, text: &dyn Fn(PathBuf) -> Option<String>) -> Option<u64> {
    let machine = text(root.join("proc/meminfo")).and_then(|t| field(&t, "MemAvailable:")?.checked_mul(1024));
    let own = text(root.join("proc/self/cgroup")).unwrap_or_default();
    let groups = own.lines().flat_map(|line| {
        GROUPS.into_iter().filter_map(move |(mark, mount, files, cache)| {
            let (_, path) = line.split_once(mark)?;
            Some((root.join(mount.trim_start_matches('/')), PathBuf::from(path), files, cache))
        })
    });
    let rooms = groups.flat_map(|(mount, path, files, cache)| {
        // A limit of any of the groups above counts, too. In a container the upper ones are out of sight.
        let parts: Vec<PathBuf> = path.ancestors().map(|p| p.strip_prefix("/").unwrap_or(p).to_owned()).collect();
        let room = move |part: PathBuf| {
            let dir = mount.join(part);
            let number = |file: &str| text(dir.join(file))?.trim().parse::<u64>().ok();
            let (limit, used) = (number(files[0])?, number(files[1])?);
            let cached = text(dir.join("memory.stat")).and_then(|t| field(&t, cache)).unwrap_or(0);
            Some(limit.saturating_sub(used.saturating_sub(cached)))
        };
        parts.into_iter().filter_map(room)
    });
    rooms.chain(machine).min()
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|l| l.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
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
        assert_eq!(of(one), Some(0), "over the limit already");
    }

    #[test]
    fn this_machine_has_memory_but_not_all_of_it() {
        assert!(available().unwrap() > 1 << 20);
        assert!(may_take(4096) && !may_take(1 << 50));
    }
}
