//! The facts that `numamma topology` prints: nodes, distances, page sizes, packages, cores and caches.
//!
//! All of them are read from sysfs below a root that tests replace; where a file is missing, its fact is unknown.

use std::fs;
use std::path::Path;

use numamma_kernel::lists::parse_list;
use numamma_kernel::thp;
use serde::Serialize;

use super::cpus::{Cache, Cpus};
use super::measure::Measured;
use super::model::{Model, Source};
use super::partial_matrix::PartialMatrix;
use super::{Topology, emulator, hmat, xml};

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

/// The facts about one machine, as `numamma topology --json` writes them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hardware {
    /// Nodes that are online.
    #[serde(flatten)]
    pub topology: Topology,
    /// Numbers of nodes that are possible but not online.
    pub offline_nodes: Vec<u32>,
    /// Largest SLIT distance over the local one: a rough ratio of the slowest to the fastest memory.
    pub numa_factor: f64,
    /// Base page size, bytes.
    pub page_size: u64,
    /// Mode of transparent huge pages: `always`, `madvise`, `never` or `unknown`.
    pub thp: String,
    /// Size of a transparent huge page, bytes.
    pub thp_size: Option<u64>,
    /// Pools of explicit huge pages, ascending by size.
    pub huge_pages: Vec<HugePages>,
    /// CPUs that are present but not online.
    pub offline_cpus: Vec<u32>,
    /// CPUs of each package (socket).
    pub packages: Vec<Vec<u32>>,
    /// CPUs of each die; empty where no package has several.
    pub dies: Vec<Vec<u32>>,
    /// Number of cores; 0 where the kernel does not list them.
    pub cores: usize,
    /// Caches, nearest first.
    pub caches: Vec<Cache>,
    /// Whether an emulator makes the CPUs up, so that their caches say nothing.
    pub emulated: bool,
    /// Pairs of nodes at the smallest remote distance.
    pub links: Vec<(u32, u32)>,
    /// Latency and bandwidth of every pair of nodes.
    #[serde(flatten)]
    pub figures: Figures,
    /// Pairs and nodes that could not be measured, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// All groups of CPUs: packages, dies, cores and caches.
    #[serde(skip)]
    pub cpus: Cpus,
    /// Latency and bandwidth as measured, or else as HMAT gives them, without assumptions; [`Hardware::xml`] writes
    /// them.
    #[serde(skip)]
    pub sourced: (PartialMatrix, PartialMatrix),
}

/// Latency and bandwidth, `[from][to]` in the order of the nodes; none from nodes without CPUs and to nodes without
/// memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Nanoseconds.
    pub latency_ns: Vec<Vec<Option<f64>>>,
    /// Bytes a second.
    pub bandwidth: Vec<Vec<Option<f64>>>,
    /// Source of each matrix.
    pub sources: Sources,
}

/// Sources of [`Figures`].
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

    /// Largest latency over the smallest; none with fewer than two values.
    pub fn factor(&self) -> Option<f64> {
        let known = || self.latency_ns.iter().flatten().flatten().copied();
        let (least, most) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
        (known().count() > 1 && least > 0.0).then_some(most / least)
    }
}

impl Hardware {
    /// This machine.
    pub fn this() -> Hardware {
        // SAFETY: sysconf has no preconditions.
        let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let mut machine = Hardware::from_sysfs(Path::new("/sys"), u64::try_from(page_size).unwrap_or(4096));
        machine.emulated = emulator::makes_up_caches();
        if machine.topology.nodes.is_empty() {
            machine.topology = Topology::this_machine();
            machine.reset_firmware_figures();
        }
        machine
    }

    /// Reads a directory laid out as `/sys`.
    pub fn from_sysfs(sys: &Path, page_size: u64) -> Hardware {
        let read = |p: &str| fs::read_to_string(sys.join(p)).unwrap_or_default();
        let topology = Topology::from_sysfs(&sys.join("devices/system/node"));
        let online = |id: &u32| topology.nodes.iter().any(|n| n.id == *id);
        let possible = parse_list(read("devices/system/node/possible").trim());
        let running = |cpu: &u32| topology.node_of_cpu(*cpu).is_some();
        let present = parse_list(read("devices/system/cpu/present").trim());
        let all: Vec<u32> = topology.nodes.iter().flat_map(|n| n.cpus.iter().copied()).collect();
        let cpus = Cpus::read(&sys.join("devices/system/cpu"), &all);
        let sourced = hmat::read(&sys.join("devices/system/node"), &topology);
        Hardware {
            offline_nodes: possible.into_iter().filter(|id| !online(id)).collect(),
            offline_cpus: present.into_iter().filter(|cpu| !running(cpu)).collect(),
            packages: cpus.packages.clone(),
            dies: if cpus.dies.len() > cpus.packages.len() { cpus.dies.clone() } else { Vec::new() },
            cores: cpus.cores.len(),
            caches: cpus.caches.clone(),
            emulated: false,
            links: links(&topology),
            figures: figures(&topology, &[&sourced]),
            notes: Vec::new(),
            sourced,
            cpus,
            numa_factor: numa_factor(&topology),
            page_size,
            thp: thp::chosen(&read("kernel/mm/transparent_hugepage/enabled")).unwrap_or("unknown").to_owned(),
            thp_size: read("kernel/mm/transparent_hugepage/hpage_pmd_size").trim().parse().ok(),
            huge_pages: huge_pages(&sys.join("kernel/mm/hugepages")),
            topology,
        }
    }

    /// Replaces latencies and bandwidths by the measured ones. Pairs that were not measured keep the proportions that
    /// HMAT or SLIT gave.
    pub fn set_measured(&mut self, measured: Measured) {
        let firmware = std::mem::replace(&mut self.sourced, (measured.latency, measured.bandwidth));
        self.notes = measured.notes;
        if self.thp == "never" {
            self.notes.push("without transparent huge pages, latencies include walks of the page table".into());
        }
        self.figures = figures(&self.topology, &[&firmware, &self.sourced]);
    }

    /// Replaces HMAT's matrices by empty ones of the size of the current topology.
    fn reset_firmware_figures(&mut self) {
        let empty = PartialMatrix::empty(self.topology.nodes.len(), Source::Hmat);
        self.sourced = (empty.clone(), empty);
        self.figures = figures(&self.topology, &[&self.sourced]);
    }

    /// The machine as an hwloc XML file, with the measured latencies and bandwidths or those of HMAT, and without
    /// caches that an emulator makes up.
    pub fn xml(&self) -> String {
        let outer = if self.emulated { Vec::new() } else { self.cpus.outer.clone() };
        let cpus = Cpus { outer, ..self.cpus.clone() };
        xml::write(&self.topology, &cpus, Some(&self.sourced.0), Some(&self.sourced.1))
    }
}

/// The figures of a topology. `sourced` overrides the defaults; the best source comes last.
fn figures(topology: &Topology, sourced: &[&(PartialMatrix, PartialMatrix)]) -> Figures {
    let mut model = Model::of(topology);
    sourced.iter().for_each(|(latency, bandwidth)| model.overlay(Some(latency), Some(bandwidth)));
    Figures::of(&model)
}

/// Pairs of nodes at the smallest remote distance: those with a direct link, on machines whose firmware gives
/// distances; none on others.
fn links(topology: &Topology) -> Vec<(u32, u32)> {
    let nodes = &topology.nodes;
    let pairs = || (0..nodes.len()).flat_map(|i| (i + 1..nodes.len()).map(move |j| (i, j)));
    let distance = |(i, j): (usize, usize)| Some((*nodes[i].distances.get(j)?).max(*nodes[j].distances.get(i)?));
    let least = pairs().filter_map(distance).min();
    pairs().filter(|p| least.is_some() && distance(*p) == least).map(|(i, j)| (nodes[i].id, nodes[j].id)).collect()
}

/// The largest distance over the local one; 1 where the kernel gives no distance.
fn numa_factor(topology: &Topology) -> f64 {
    let largest = topology.nodes.iter().flat_map(|n| &n.distances).copied().max();
    largest.map_or(1.0, |d| f64::from(d) / LOCAL_DISTANCE)
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
