//! What a person asks about a machine: its nodes and distances, and the page sizes memory comes in.
//!
//! Reads sysfs below a root that tests replace; a file that is missing leaves its fact unknown.

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::cpus::{Cache, Cpus};
use super::known::Known;
use super::measure::Measured;
use super::model::{Model, Source};
use super::{Topology, hmat, parse_list, xml};

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
    /// CPUs the kernel could bring online and has not.
    pub offline_cpus: Vec<u32>,
    /// CPUs of each package (socket).
    pub packages: Vec<Vec<u32>>,
    /// CPUs of each die, where packages have several.
    pub dies: Vec<Vec<u32>>,
    /// Cores; 0 when the kernel does not say.
    pub cores: usize,
    /// Caches, nearest first.
    pub caches: Vec<Cache>,
    /// Pairs of nodes at the smallest remote distance.
    pub links: Vec<(u32, u32)>,
    /// Latency and bandwidth of every pair.
    #[serde(flatten)]
    pub figures: Figures,
    /// What could not be measured, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// How CPUs are grouped, in full.
    #[serde(skip)]
    pub cpus: Cpus,
    /// What is known beyond distances: for a file that is read elsewhere.
    #[serde(skip)]
    pub known: (Known, Known),
}

/// Latency and bandwidth, `[from][to]` in the order of the nodes; none from nodes without CPUs and to nodes without memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Nanoseconds.
    pub latency_ns: Vec<Vec<Option<f64>>>,
    /// Bytes a second.
    pub bandwidth: Vec<Vec<Option<f64>>>,
    /// Where they come from.
    pub sources: Sources,
}

/// Where figures come from; see [`Source`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Sources {
    /// Of the latencies.
    pub latency: Source,
    /// Of the bandwidths.
    pub bandwidth: Source,
}

impl Figures {
    fn of(model: &Model) -> Figures {
        let matrix = |values: &[Vec<f64>], digits: f64| {
            let there = |i: usize, j: usize| !model.nodes[i].cpus.is_empty() && model.nodes[j].memory > 0;
            let value = |i: usize, j: usize| there(i, j).then(|| (values[i][j] * digits).round() / digits);
            (0..values.len()).map(|i| (0..values.len()).map(|j| value(i, j)).collect()).collect()
        };
        Figures {
            latency_ns: matrix(&model.latency, 10.0),
            bandwidth: matrix(&model.bandwidth, 1.0),
            sources: Sources { latency: model.latency_source, bandwidth: model.bandwidth_source },
        }
    }

    /// Largest latency over the smallest; none with fewer than two.
    pub fn factor(&self) -> Option<f64> {
        let known = || self.latency_ns.iter().flatten().flatten().copied();
        let (least, most) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
        (known().count() > 1 && least > 0.0).then_some(most / least)
    }
}

impl Machine {
    /// This machine.
    pub fn this() -> Machine {
        // SAFETY: sysconf has no preconditions.
        let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let mut machine = Machine::from_sysfs(Path::new("/sys"), u64::try_from(page_size).unwrap_or(4096));
        if machine.topology.nodes.is_empty() {
            machine.topology = Topology::this_machine();
            machine.know_again();
        }
        machine
    }

    /// Reads a directory laid out as `/sys`.
    pub fn from_sysfs(sys: &Path, page_size: u64) -> Machine {
        let read = |p: &str| fs::read_to_string(sys.join(p)).unwrap_or_default();
        let topology = Topology::from_sysfs(&sys.join("devices/system/node"));
        let online = |id: &u32| topology.nodes.iter().any(|n| n.id == *id);
        let possible = parse_list(read("devices/system/node/possible").trim());
        let running = |cpu: &u32| topology.node_of_cpu(*cpu).is_some();
        let present = parse_list(read("devices/system/cpu/present").trim());
        let all: Vec<u32> = topology.nodes.iter().flat_map(|n| n.cpus.iter().copied()).collect();
        let cpus = Cpus::read(&sys.join("devices/system/cpu"), &all);
        let known = hmat::read(&sys.join("devices/system/node"), &topology);
        Machine {
            offline_nodes: possible.into_iter().filter(|id| !online(id)).collect(),
            offline_cpus: present.into_iter().filter(|cpu| !running(cpu)).collect(),
            packages: cpus.packages.clone(),
            dies: if cpus.dies.len() > cpus.packages.len() { cpus.dies.clone() } else { Vec::new() },
            cores: cpus.cores.len(),
            caches: cpus.caches.clone(),
            links: links(&topology),
            figures: figures(&topology, &known),
            notes: Vec::new(),
            known,
            cpus,
            numa_factor: numa_factor(&topology),
            page_size,
            thp: chosen(&read("kernel/mm/transparent_hugepage/enabled")),
            thp_size: read("kernel/mm/transparent_hugepage/hpage_pmd_size").trim().parse().ok(),
            huge_pages: huge_pages(&sys.join("kernel/mm/hugepages")),
            topology,
        }
    }

    /// Takes over what was measured.
    pub fn take(&mut self, measured: Measured) {
        self.known = (measured.latency, measured.bandwidth);
        self.notes = measured.notes;
        self.figures = figures(&self.topology, &self.known);
    }

    fn know_again(&mut self) {
        let none = |source| Known::none(self.topology.nodes.len(), source);
        self.known = (none(Source::Hmat), none(Source::Hmat));
        self.figures = figures(&self.topology, &self.known);
    }

    /// The machine as an hwloc file, with what was measured or HMAT gave.
    pub fn xml(&self) -> String {
        xml::write(&self.topology, &self.cpus, Some(&self.known.0), Some(&self.known.1))
    }

    /// The facts as JSON: `nodes[{id,cpus,memory,distances}]`, `numa_factor`, page sizes, `packages`, `caches`, `links`,
    /// `latency_ns[][]`, `bandwidth[][]` and `sources`.
    ///
    /// # Errors
    /// Only what serde_json may report, which for these types is nothing.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

fn figures(topology: &Topology, known: &(Known, Known)) -> Figures {
    let mut model = Model::of(topology);
    model.know(Some(&known.0), Some(&known.1));
    Figures::of(&model)
}

/// Pairs of nodes at the smallest remote distance, which are those with a direct link on the machines whose firmware
/// tells; none where it does not.
fn links(topology: &Topology) -> Vec<(u32, u32)> {
    let nodes = &topology.nodes;
    let pairs = || (0..nodes.len()).flat_map(|i| (i + 1..nodes.len()).map(move |j| (i, j)));
    let distance = |(i, j): (usize, usize)| Some((*nodes[i].distances.get(j)?).max(*nodes[j].distances.get(i)?));
    let least = pairs().filter_map(distance).min();
    pairs().filter(|p| least.is_some() && distance(*p) == least).map(|(i, j)| (nodes[i].id, nodes[j].id)).collect()
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
