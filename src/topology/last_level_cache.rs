//! Size of the last-level cache: the node of an array matters only when the array does not fit in this cache.

use std::fs;
use std::path::Path;

use super::cpus::cache_size;

/// Bytes assumed where no source gives the size: the L3 of a core complex of AMD's Zen 3 and Zen 4 servers (AMD,
/// Software Optimization Guide for Family 19h). Intel's servers have 1.5 to 2 MiB per core.
pub const DEFAULT: u64 = 32 << 20;

/// [`of_sysfs`] on this machine.
pub fn of_this_machine() -> Option<u64> {
    of_sysfs(Path::new("/sys/devices/system/cpu"))
}

/// Bytes of the largest cache of the highest level below `cpu_dir`, laid out as `/sys/devices/system/cpu`. None where
/// the kernel lists no caches (virtual machines without cache information, arm64 without ACPI PPTT).
fn of_sysfs(cpu_dir: &Path) -> Option<u64> {
    let read = |p: &Path| fs::read_to_string(p).ok();
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().filter_map(|e| Some(e.ok()?.path()));
    let caches = entries(cpu_dir).flat_map(|cpu| entries(&cpu.join("cache")).collect::<Vec<_>>());
    let level_and_size = |index: &Path| {
        let level: u32 = read(&index.join("level"))?.trim().parse().ok()?;
        Some((level, cache_size(read(&index.join("size"))?.trim())?))
    };
    caches.filter_map(|index| level_and_size(&index)).max().map(|(_, size)| size)
}

/// Bytes of the largest cache of the highest level in the text of an hwloc XML file: objects of type `L3Cache`,
/// `L2Cache` ... with their `cache_size` (hwloc 2), or of type `Cache` with `depth` (hwloc 1).
pub fn of_hwloc_xml(text: &str) -> Option<u64> {
    let tags = text.split('<').filter(|t| t.starts_with("object "));
    let cache = |tag: &str| {
        let value = |key: &str| {
            let rest = &tag[tag.find(&format!(" {key}=\""))? + key.len() + 3..];
            rest.split('"').next()
        };
        let level = match value("type")? {
            "Cache" => value("depth")?.parse::<u32>().ok()?,
            kind => kind.strip_prefix('L')?.strip_suffix("Cache")?.parse().ok()?,
        };
        Some((level, value("cache_size")?.parse::<u64>().ok().filter(|s| *s > 0)?))
    };
    tags.filter_map(cache).max().map(|(_, size)| size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_sysfs() {
        assert_eq!(cache_size("32768K"), Some(32 << 20));
        assert_eq!(cache_size("1M"), Some(1 << 20));
        assert_eq!(["0K", "K", "", "12X"].map(cache_size), [None; 4]);
        assert_eq!(of_sysfs(Path::new("/nonexistent")), None);
        let root = std::env::temp_dir().join(format!("numamma-cache-{}", std::process::id()));
        for (index, level, size) in [(0, "1\n", "512K\n"), (1, "2\n", "256K\n"), (2, "2\n", "1024K\n")] {
            let dir = root.join(format!("cpu0/cache/index{index}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("level"), level).unwrap();
            fs::write(dir.join("size"), size).unwrap();
        }
        assert_eq!(of_sysfs(&root), Some(1 << 20));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn sizes_of_hwloc_files() {
        let two = r#"<topology><object type="Machine">
            <object type="L3Cache" gp_index="3" cache_size="33554432" depth="3">
            <object type="L2Cache" cache_size="1048576" depth="2">
            <object type="L1iCache" cache_size="32768" depth="1"/>"#;
        assert_eq!(of_hwloc_xml(two), Some(32 << 20));
        let one = r#"<object type="Cache" cache_size="6291456" depth="3"/>
            <object type="Cache" cache_size="65536" depth="1"/>"#;
        assert_eq!(of_hwloc_xml(one), Some(6 << 20));
        assert_eq!(of_hwloc_xml("<object type=\"Machine\"/>"), None);
    }
}
