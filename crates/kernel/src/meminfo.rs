//! /proc/meminfo and files of the same form: memory of the machine, bytes.

use std::fs;

/// Text of /proc/meminfo; empty when it cannot be read.
pub fn read() -> String {
    fs::read_to_string("/proc/meminfo").unwrap_or_default()
}

/// The field `name` (with its colon) in bytes.
pub fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| kib(line.strip_prefix(name)?))
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
        assert!(field(&read(), "MemAvailable:").is_some());
    }
}
