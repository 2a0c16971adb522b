//! Packages, dies, cores and caches, from `/sys/devices/system/cpu/cpuN` (Documentation/admin-guide/cputopology.rst).
//!
//! Groups that the kernel does not list are left out; virtual machines often list no caches.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use numamma_kernel::lists::parse_list;
use serde::Serialize;

/// All caches of the same level, kind, size and number of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Cache {
    /// Level; 1 is nearest to the core.
    pub level: u32,
    /// `data`, `instruction` or `unified`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Bytes of each cache.
    pub size: u64,
    /// Number of CPUs that share each cache.
    pub cpus: usize,
    /// Number of such caches.
    pub count: usize,
}

/// Groups of a machine's CPUs; each group is the list of its CPUs, ascending.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cpus {
    /// Packages (sockets).
    pub packages: Vec<Vec<u32>>,
    /// Dies within packages.
    pub dies: Vec<Vec<u32>>,
    /// Cores with their hardware threads.
    pub cores: Vec<Vec<u32>>,
    /// Caches, nearest first.
    pub caches: Vec<Cache>,
    /// Bytes and CPUs of each last-level cache.
    pub last_level: Vec<(u64, Vec<u32>)>,
    /// Level, bytes and CPUs of each cache from level 2 on that holds data.
    pub outer: Vec<(u32, u64, Vec<u32>)>,
}

impl Cpus {
    /// Reads a directory laid out as `/sys/devices/system/cpu`, for the CPUs in `online`.
    pub fn read(dir: &Path, online: &[u32]) -> Cpus {
        let caches: BTreeSet<Instance> =
            online.iter().flat_map(|cpu| instances(&dir.join(format!("cpu{cpu}/cache")))).collect();
        let last = caches.iter().map(|c| c.level).max();
        Cpus {
            packages: groups(dir, online, &["package_cpus_list", "core_siblings_list"]),
            dies: groups(dir, online, &["die_cpus_list"]),
            cores: groups(dir, online, &["core_cpus_list", "thread_siblings_list"]),
            last_level: caches.iter().filter(|c| Some(c.level) == last).map(|c| (c.size, c.cpus.clone())).collect(),
            outer: caches
                .iter()
                .filter(|c| c.level > 1 && c.kind != "instruction")
                .map(|c| (c.level, c.size, c.cpus.clone()))
                .collect(),
            caches: count_equal(&caches),
        }
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Instance {
    level: u32,
    kind: String,
    size: u64,
    cpus: Vec<u32>,
}

fn instances(dir: &Path) -> Vec<Instance> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let one = |path: &Path| {
        let text = |name: &str| Some(fs::read_to_string(path.join(name)).ok()?.trim().to_owned());
        let cpus = parse_list(&text("shared_cpu_list")?);
        let size = cache_size(&text("size")?)?;
        Some(Instance { level: text("level")?.parse().ok()?, kind: text("type")?.to_lowercase(), size, cpus })
    };
    entries.filter_map(|e| one(&e.ok()?.path())).filter(|c| !c.cpus.is_empty()).collect()
}

/// Bytes of a cache size in the notation of sysfs, such as `1024K`; `None` for 0 and for text that is no size.
pub(super) fn cache_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

fn count_equal(instances: &BTreeSet<Instance>) -> Vec<Cache> {
    let mut found: Vec<Cache> = Vec::new();
    for c in instances {
        let same = |k: &&mut Cache| (k.level, &k.kind, k.size, k.cpus) == (c.level, &c.kind, c.size, c.cpus.len());
        match found.iter_mut().find(same) {
            Some(equal) => equal.count += 1,
            None => {
                found.push(Cache { level: c.level, kind: c.kind.clone(), size: c.size, cpus: c.cpus.len(), count: 1 })
            }
        }
    }
    found
}

/// The distinct CPU lists of all CPUs, ascending; each CPU's list is read from the first of the files `names` that
/// exists.
fn groups(dir: &Path, online: &[u32], names: &[&str]) -> Vec<Vec<u32>> {
    let list = |cpu: &u32| {
        let text = |name: &&str| fs::read_to_string(dir.join(format!("cpu{cpu}/topology/{name}"))).ok();
        names.iter().find_map(text).map(|t| parse_list(t.trim())).filter(|cpus| !cpus.is_empty())
    };
    online.iter().filter_map(list).collect::<BTreeSet<_>>().into_iter().collect()
}
