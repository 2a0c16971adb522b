//! /proc/meminfo and /sys/devices/system/node/nodeN/meminfo: memory of the machine and of a node, bytes.

use std::fs;

/// Text of /proc/meminfo; empty when the file cannot be read.
pub fn read() -> String {
    fs::read_to_string("/proc/meminfo").unwrap_or_default()
}

/// The field `name` (with its colon) in bytes, from the text of the machine's file or of a node's file, in which every
/// line begins with `Node N `.
pub fn field(text: &str, name: &str) -> Option<u64> {
    let of_machine =
        |line: &'_ str| line.strip_prefix("Node ").and_then(|l| l.split_once(' ')).map_or(0, |(n, _)| n.len() + 6);
    text.lines().find_map(|line| kib(line.get(of_machine(line)..)?.strip_prefix(name)?))
}

/// `  2048 kB` in bytes.
pub(crate) fn kib(text: &str) -> Option<u64> {
    text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_bytes() {
        let text = "MemTotal: 9 kB\nHugePages_Total: 3\nHugepagesize:    2048 kB\n";
        assert_eq!(
            ["Hugepagesize:", "MemFree:", "HugePages_Total:"].map(|f| field(text, f)),
            [Some(2 << 20), None, None]
        );
        let node = "Node 12 MemTotal:       9 kB\nNode 12 MemFree: 2 kB\n";
        assert_eq!(
            (field(node, "MemFree:"), field(node, "MemTotal:"), field("Node ", "")),
            (Some(2048), Some(9216), None)
        );
        assert!(field(&read(), "MemAvailable:").is_some());
    }
}
