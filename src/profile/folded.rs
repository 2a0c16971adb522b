//! Sums of accesses: what a long recording keeps of them, and what a profile is folded from.

use crate::profile::records::{Access, Certainty, Folded, NODE_UNKNOWN};
use crate::topology::Topology;

/// Node of each CPU of the machine that recorded a profile.
#[derive(Debug)]
pub(crate) struct CpuNodes(Vec<u8>);

impl CpuNodes {
    /// Node numbers that do not fit the file's one byte count as unknown.
    pub fn of(topology: &Topology) -> CpuNodes {
        let mut nodes = vec![NODE_UNKNOWN; usize::from(u16::MAX) + 1];
        for node in &topology.nodes {
            for &cpu in &node.cpus {
                if let Some(slot) = nodes.get_mut(cpu as usize) {
                    *slot = u8::try_from(node.id).unwrap_or(NODE_UNKNOWN);
                }
            }
        }
        CpuNodes(nodes)
    }

    /// One access as a sum.
    #[inline]
    pub fn fold(&self, a: &Access) -> Folded {
        let from = self.0.get(usize::from(a.cpu)).copied().unwrap_or(NODE_UNKNOWN);
        let placed = a.node != NODE_UNKNOWN && from != NODE_UNKNOWN;
        Folded {
            time_ns: a.time_ns,
            thread: a.thread,
            object: a.object,
            addr: a.addr,
            object_only: a.certainty == Certainty::ObjectOnly,
            ip: a.ip,
            reads: u64::from(!a.write),
            writes: u64::from(a.write),
            remote: u64::from(placed && a.node != from),
            placed: u64::from(placed),
            cost_ns: u64::from(a.cost_ns),
        }
    }
}
