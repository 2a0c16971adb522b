//! What a person asks about a machine: its nodes and distances, and the page sizes memory comes in.
//!
//! Reads sysfs below a root that tests replace; a file that is missing leaves its fact unknown.

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::{Topology, parse_list};

/// SLIT distance of a node to itself (ACPI specification, System Locality Information Table).
const LOCAL_DISTANCE: f64 = 10.0;

/// A pool of huge pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HugePages {
    /// Bytes of one page.
    pub size: u64,
    /// Pages in the pool.
    pub total: u64,
    /// Pages of it that are free.
    pub free: u64,
}

/// A machine as `numamma topology` shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// Nodes that are online.
    #[serde(flatten)]
    pub topology: Topology,
    /// Node numbers the kernel could bring online and has not.
    pub offline_nodes: Vec<u32>,
    /// Largest distance over the local one: how much slower, roughly, the farthest memory is.
    pub numa_factor: f64,
    /// Base page size, bytes.
    pub page_size: u64,
    /// `always`, `madvise`, `never` or `unknown`.
    pub thp: String,
    /// Size of a transparent huge page, bytes.
    pub thp_size: Option<u64>,
    /// Pools of explicit huge pages, ascending by size.
    pub huge_pages: Vec<HugePages>,
}

impl Machine {
    /// This machine.
    pub fn this() -> Machine {
        // SAFETY: sysconf has no preconditions.
        let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let mut machine = Machine::from_sysfs(Path::new("/sys"), u64::try_from(page_size).unwrap_or(4096));
        if machine.topology.nodes.is_empty() {
            machine.topology = Topology::this_machine();
        }
        machine
    }

    /// Reads a directory laid out as `/sys`.
    pub fn from_sysfs(sys: &Path, page_size: u64) -> Machine {
        let read = |p: &str| fs::read_to_string(sys.join(p)).unwrap_or_default();
        let topology = Topology::from_sysfs(&sys.join("devices/system/node"));
        let online = |id: &u32| topology.nodes.iter().any(|n| n.id == *id);
        let possible = parse_list(read("devices/system/node/possible").trim());
        Machine {
            offline_nodes: possible.into_iter().filter(|id| !online(id)).collect(),
            numa_factor: numa_factor(&topology),
            page_size,
            thp: chosen(&read("kernel/mm/transparent_hugepage/enabled")),
            thp_size: read("kernel/mm/transparent_hugepage/hpage_pmd_size").trim().parse().ok(),
            huge_pages: huge_pages(&sys.join("kernel/mm/hugepages")),
            topology,
        }
    }

    /// The facts as JSON: `nodes[{id,cpus,memory,distances}]`, `numa_factor`, page sizes.
    ///
    /// # Errors
    /// Only what serde_json may report, which for these types is nothing.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

/// The largest distance over the local one; 1 where no distance is known.
fn numa_factor(topology: &Topology) -> f64 {
    let largest = topology.nodes.iter().flat_map(|n| &n.distances).copied().max();
    largest.map_or(1.0, |d| f64::from(d) / LOCAL_DISTANCE)
}

/// The bracketed word of `always [madvise] never`.
fn chosen(text: &str) -> String {
    let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
    word.unwrap_or("unknown").to_owned()
}

fn huge_pages(dir: &Path) -> Vec<HugePages> {
    let read = |p: &Path| fs::read_to_string(p).ok().and_then(|t| t.trim().parse().ok()).unwrap_or(0);
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut pools: Vec<HugePages> = entries
        .filter_map(|e| {
            let path = e.ok()?.path();
            let kib: u64 = path.file_name()?.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let (total, free) = (read(&path.join("nr_hugepages")), read(&path.join("free_hugepages")));
            Some(HugePages { size: kib.checked_mul(1024)?, total, free })
        })
        .collect();
    pools.sort_by_key(|p| p.size);
    pools
}
