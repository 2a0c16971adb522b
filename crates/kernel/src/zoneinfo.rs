//! /proc/zoneinfo: nodes whose free memory is near the watermarks of their zones, and nodes that had no page for an
//! allocation.

use std::fs;

/// A node counts as full at or below this multiple of its reserved pages (high watermark and lowmem reserve). Below
/// the low watermark allocations go to other nodes, and reclaim frees pages up to the high watermark
/// (mm/page_alloc.c, mm/vmscan.c), so the free memory of a full node stays near the high watermark.
const NEAR_WATERMARK: u64 = 2;

/// Memory of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// Number of the node.
    pub node: u32,
    /// Free pages.
    pub free: u64,
    /// Pages that the kernel keeps free.
    pub reserved: u64,
    /// Allocations, since boot and of all processes, that should have gone to this node and went to another one
    /// (`numa_foreign`). 0 where the kernel does not count them (vm.numa_stat=0).
    pub foreign: u64,
}

impl NodeMemory {
    /// Whether the node has almost no free memory.
    pub fn is_full(&self) -> bool {
        self.free <= NEAR_WATERMARK * self.reserved
    }
}

/// The nodes of this machine; empty when the file cannot be read.
pub fn nodes() -> Vec<NodeMemory> {
    parse(&fs::read_to_string("/proc/zoneinfo").unwrap_or_default())
}

/// The nodes, from the text of the file, in which the zones of a node are consecutive.
pub fn parse(zoneinfo: &str) -> Vec<NodeMemory> {
    let mut nodes: Vec<NodeMemory> = Vec::new();
    for line in zoneinfo.lines() {
        let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| !w.is_empty());
        let (Some(first), Some(second)) = (words.next(), words.next()) else { continue };
        if first == "Node" {
            let node = second.parse().unwrap_or(u32::MAX);
            if nodes.last().is_none_or(|last| last.node != node) {
                nodes.push(NodeMemory { node, ..NodeMemory::default() });
            }
            continue;
        }
        let Some(now) = nodes.last_mut() else { continue };
        let number = |word: &str| word.parse::<u64>().unwrap_or(0);
        match first {
            "pages" if second == "free" => now.free += words.next().map_or(0, number),
            "high" => now.reserved += number(second),
            "protection" => now.reserved += words.map(number).chain([number(second)]).max().unwrap_or(0),
            "numa_foreign" => now.foreign += number(second),
            _ => {}
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONES: &str = "\
Node 0, zone      DMA
  pages free     1000
        boost    0
        min      10
        low      12
        high     15
        protection: (0, 100, 300, 300)
      numa_foreign 5
  per-node stats
      nr_inactive_anon 7
Node 0, zone    DMA32
  pages free     900
        high     60
        protection: (0, 0, 0, 0)
      numa_foreign 7
      high:  9
Node 1, zone   Normal
  pages free     90
        min      40
        high     60
        protection: (0, 0, 0, 0)
    pagesets
";

    #[test]
    fn nodes_near_their_watermarks_are_full() {
        let full = |text: &str| parse(text).iter().filter(|n| n.is_full()).map(|n| n.node).collect::<Vec<_>>();
        assert_eq!(full(ZONES), [1]);
        assert_eq!(full(&ZONES.replace("free     900", "free     10").replace("free     1000", "free 600")), [0, 1]);
        assert_eq!(full(""), [0; 0]);
        assert!(!nodes().is_empty() && nodes().iter().all(|n| n.node != u32::MAX));
    }

    #[test]
    fn refused_allocations_add_up_over_the_zones_of_a_node() {
        assert_eq!(parse(ZONES).iter().map(|n| n.foreign).collect::<Vec<_>>(), [12, 0]);
    }
}
