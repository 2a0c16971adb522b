//! /proc/zoneinfo: nodes whose free memory is near the watermarks of their zones.

use std::fs;

/// A node counts as full at or below this multiple of its reserved pages (high watermark and lowmem reserve). Below
/// the low watermark allocations go to other nodes, and reclaim frees pages up to the high watermark
/// (mm/page_alloc.c, mm/vmscan.c), so the free memory of a full node stays near the high watermark.
const NEAR_WATERMARK: u64 = 2;

/// Nodes of this machine with almost no free memory, see [`parse_full_nodes`]; empty when the file cannot be read.
pub fn full_nodes() -> Vec<u32> {
    parse_full_nodes(&fs::read_to_string("/proc/zoneinfo").unwrap_or_default())
}

/// Nodes whose free pages are at most twice their reserved pages, from the text of the file.
pub fn parse_full_nodes(zoneinfo: &str) -> Vec<u32> {
    // Node, free pages and reserved pages; the zones of a node are consecutive in the file.
    let mut nodes: Vec<(u32, u64, u64)> = Vec::new();
    for line in zoneinfo.lines() {
        let mut words = line.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
        let (Some(first), Some(second)) = (words.next(), words.next()) else { continue };
        if first == "Node" {
            let node = second.parse().unwrap_or(u32::MAX);
            if nodes.last().is_none_or(|(last, ..)| *last != node) {
                nodes.push((node, 0, 0));
            }
            continue;
        }
        let Some((_, free, reserved)) = nodes.last_mut() else { continue };
        let number = |word: &str| word.parse::<u64>().unwrap_or(0);
        match first {
            "pages" if second == "free" => *free += words.next().map_or(0, number),
            "high" => *reserved += number(second),
            "protection" => *reserved += words.map(number).chain([number(second)]).max().unwrap_or(0),
            _ => {}
        }
    }
    nodes.into_iter().filter(|(_, free, reserved)| *free <= NEAR_WATERMARK * reserved).map(|(node, ..)| node).collect()
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
  per-node stats
      nr_inactive_anon 7
Node 0, zone    DMA32
  pages free     900
        high     60
        protection: (0, 0, 0, 0)
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
        assert_eq!(parse_full_nodes(ZONES), [1]);
        assert_eq!(
            parse_full_nodes(&ZONES.replace("free     900", "free     10").replace("free     1000", "free 600")),
            [0, 1]
        );
        assert_eq!(parse_full_nodes(""), [0; 0]);
        assert!(!parse_full_nodes(&fs::read_to_string("/proc/zoneinfo").unwrap()).contains(&u32::MAX));
    }
}
