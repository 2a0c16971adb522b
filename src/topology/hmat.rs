//! ACPI HMAT as the kernel exports it: latency and bandwidth of a node's memory from the nodes nearest to it.
//!
//! `nodeY/access1/initiators/` (the nearest CPUs; kernels before 5.10 have only `access0`, whose initiators may be
//! devices) holds links `nodeX` to the nearest nodes, `read_latency` in nanoseconds and `read_bandwidth` in MiB/s
//! (Documentation/admin-guide/mm/numaperf.rst). The kernel exports no other pairs of nodes.

use std::fs;
use std::path::Path;

use super::Topology;
use super::model::Source;
use super::partial_matrix::PartialMatrix;

const MIB: f64 = 1_048_576.0;

/// Reads latencies and bandwidths below `dir`, which is laid out as `/sys/devices/system/node`. Both matrices are empty
/// where the firmware has no HMAT.
pub fn read(dir: &Path, topology: &Topology) -> (PartialMatrix, PartialMatrix) {
    let n = topology.nodes.len();
    let (mut latency, mut bandwidth) = (PartialMatrix::empty(n, Source::Hmat), PartialMatrix::empty(n, Source::Hmat));
    for (to, node) in topology.nodes.iter().enumerate() {
        let classes = ["access1", "access0"].map(|class| dir.join(format!("node{}/{class}/initiators", node.id)));
        let Some(class) = classes.iter().find(|c| c.is_dir()) else { continue };
        let value =
            |name: &str| fs::read_to_string(class.join(name)).ok()?.trim().parse::<f64>().ok().filter(|v| *v > 0.0);
        for (from, _) in topology.nodes.iter().enumerate().filter(|(_, x)| class.join(format!("node{}", x.id)).exists())
        {
            latency.values[from][to] = value("read_latency");
            bandwidth.values[from][to] = value("read_bandwidth").map(|mib| mib * MIB);
        }
    }
    (latency, bandwidth)
}
