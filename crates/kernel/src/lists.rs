//! Lists of CPUs and nodes as the kernel prints them, and the lists in /proc/PID/status.

/// Most numbers of a list: eight times the CPUs that Linux can be built for.
const MOST: usize = 1 << 16;

/// The numbers of a list such as `0-3,5`, in the order of the text, up to [`MOST`]; a part that is neither a number nor
/// a range is skipped.
pub fn parse_list(text: &str) -> Vec<u32> {
    text.split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?)
        })
        .flatten()
        .take(MOST)
        .collect()
}

/// CPUs that the cpuset and the affinity allow, from the text of /proc/PID/status; `None` when that line is missing.
pub fn allowed_cpus(status: &str) -> Option<Vec<u32>> {
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(parse_list)
}

/// Nodes that the cpuset allows memory on, from the text of /proc/PID/status; `None` when that line is missing.
pub fn allowed_nodes(status: &str) -> Option<Vec<u32>> {
    status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:")).map(parse_list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel() {
        assert_eq!(parse_list("0-3,5\n"), [0, 1, 2, 3, 5]);
        assert_eq!(parse_list(""), [0u32; 0]);
        assert_eq!(parse_list("7,x,9"), [7, 9]);
        assert_eq!(parse_list("0-4294967295,0-4294967295").len(), MOST);
    }

    #[test]
    fn lists_of_a_process() {
        let status = "Name:\tx\nCpus_allowed_list:\t0-1,8\nMems_allowed_list:\t0-1,3\n";
        assert_eq!(allowed_cpus(status), Some(vec![0, 1, 8]));
        assert_eq!(allowed_nodes(status), Some(vec![0, 1, 3]));
        assert_eq!((allowed_cpus("Name:\tx\n"), allowed_nodes("")), (None, None));
    }
}
