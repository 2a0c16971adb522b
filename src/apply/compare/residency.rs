//! On which nodes the pages of a running program are, from `/proc/PID/numa_maps` (Documentation/filesystems/proc.rst).
//!
//! Counted is the memory a placement can reach: anonymous pages, private copies of file pages, and shared memory. Pages
//! of program files in the page cache are not.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Page size where a line does not say (`kernelpagesize_kB` came with Linux 3.16).
const PAGE_KIB: u64 = 4;
/// Beginnings of the `file=` names of memory that only looks like a file.
const SHARED_MEMORY: [&str; 5] = ["/dev/zero", "/dev/shm/", "/SYSV", "/memfd:", "/anon_hugepage"];

/// Bytes by node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Residency {
    /// Node number to bytes.
    pub nodes: BTreeMap<u32, u64>,
}

impl Residency {
    /// Of the process and what it has started. Memory that two of them share counts for each.
    ///
    /// # Errors
    /// Why the kernel does not say.
    pub fn of(pid: u32) -> Result<Residency, String> {
        let mut sum = Residency::default();
        let path = format!("/proc/{pid}/numa_maps");
        sum.add(&fs::read_to_string(&path).map_err(|e| reason(&path, &e))?);
        for child in children(pid) {
            // One that has just ended has no pages any more.
            if let Ok(more) = Residency::of(child) {
                more.nodes.into_iter().for_each(|(node, bytes)| *sum.nodes.entry(node).or_default() += bytes);
            }
        }
        Ok(sum)
    }

    fn add(&mut self, numa_maps: &str) {
        for line in numa_maps.lines() {
            let value = |key: &str| line.split(' ').find_map(|w| w.strip_prefix(key));
            let of_a_file = value("file=").is_some_and(|f| !SHARED_MEMORY.iter().any(|s| f.starts_with(s)));
            let page = value("kernelpagesize_kB=").and_then(|k| k.parse().ok()).unwrap_or(PAGE_KIB);
            let anonymous: Option<u64> = value("anon=").and_then(|n| n.parse().ok());
            let on: Vec<(u32, u64)> = line.split(' ').filter_map(node_pages).collect();
            let all: u64 = on.iter().map(|(_, pages)| pages).sum();
            // A private file mapping does not say on which node its copied pages are: in proportion.
            let (kept, of) = if of_a_file { (anonymous.unwrap_or(0).min(all), all) } else { (1, 1) };
            for (node, pages) in on {
                let bytes = u128::from(pages) * u128::from(kept) * u128::from(page * 1024) / u128::from(of.max(1));
                *self.nodes.entry(node).or_default() += bytes as u64;
            }
        }
        self.nodes.retain(|_, bytes| *bytes > 0);
    }

    /// Bytes on all nodes.
    pub fn total(&self) -> u64 {
        self.nodes.values().sum()
    }

    /// Share of the node with most of it, 0 to 1; 0 when there is nothing.
    pub fn busiest_share(&self) -> f64 {
        let most = self.nodes.values().copied().max().unwrap_or(0);
        if most == 0 { 0.0 } else { most as f64 / self.total() as f64 }
    }
}

/// `N3=17`.
fn node_pages(word: &str) -> Option<(u32, u64)> {
    let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
    Some((node.parse().ok()?, pages.parse().ok()?))
}

/// Processes that `pid` has started and that still run; none where the kernel does not list them.
pub(super) fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.filter_map(|t| fs::read_to_string(t.ok()?.path().join("children")).ok());
    lists.flat_map(|l| l.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<_>>()).collect()
}

fn reason(path: &str, e: &io::Error) -> String {
    if !Path::new("/proc/self/numa_maps").exists() {
        return "this kernel is built without NUMA and has no /proc/PID/numa_maps".to_owned();
    }
    match e.kind() {
        io::ErrorKind::NotFound => "it ended before its pages could be counted".to_owned(),
        _ => format!("{path}: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let mut r = Residency::default();
        r.add(
            "55d0 default file=/usr/bin/app mapped=6 active=0 N0=6 kernelpagesize_kB=4\n\
             55d6 default file=/usr/bin/app anon=2 dirty=2 mapped=4 N0=3 N1=1 kernelpagesize_kB=4\n\
             55e0 interleave:0-1 anon=100 dirty=100 N0=50 N1=50 kernelpagesize_kB=4\n\
             55f0 default heap anon=10 dirty=10 active=0 N2=10 kernelpagesize_kB=4\n\
             6000 default file=/dev/shm/x dirty=4 N1=4 kernelpagesize_kB=4\n\
             7000 bind:1 file=/anon_hugepage\\040(deleted) huge anon=1 dirty=1 N1=1 kernelpagesize_kB=2048\n\
             7100 default file=/dev/shm2 mapped=1 N0=1 kernelpagesize_kB=4\n\
             nonsense N=x Nq=1\n",
        );
        let page = 4096;
        assert_eq!(r.nodes[&0], 50 * page + 3 * page / 2);
        assert_eq!(r.nodes[&1], 54 * page + page / 2 + (2 << 20));
        assert_eq!(r.nodes[&2], 10 * page);
        assert!((r.busiest_share() - r.nodes[&1] as f64 / r.total() as f64).abs() < 1e-12);
        assert_eq!(Residency::default().busiest_share(), 0.0);
    }

    #[test]
    fn of_this_process() {
        match Residency::of(std::process::id()) {
            Ok(r) => assert!(r.total() > 0 && r.busiest_share() > 0.0),
            Err(reason) => assert!(reason.contains("without NUMA"), "{reason}"),
        }
        assert!(Residency::of(u32::MAX).is_err());
    }
}
