//! Names of output files, expanded from a pattern so that each process of a job writes a different file.
//!
//! `%p` is the process id, `%h` the host name, `%r` the MPI rank (0 without a rank). If the process has a rank and
//! the pattern has neither `%r` nor `%p`, the rank is inserted before the last dot, so that ranks do not overwrite
//! each other's file: `numamma.prof` becomes `numamma.3.prof`. Names of devices and pipes are not changed.

use std::path::Path;

use numamma_kernel::output_file;

use crate::ranks;

/// The name of this process's file; without `pid`, `%p` remains in the name for the caller to replace.
pub fn expand(pattern: &str, pid: Option<u32>) -> String {
    let regular = is_regular(Path::new(pattern));
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").map_or("host".into(), |h| h.trim().to_owned());
    expand_with(pattern, pid, ranks::this_rank().filter(|_| regular), host)
}

/// Whether `path` is, or would become, a regular file that may be replaced. False for devices, pipes and paths that
/// lead to an open file (/dev/stdout).
pub fn is_regular(path: &Path) -> bool {
    !output_file::is_special(path) && std::fs::metadata(path).map_or(true, |m| m.is_file())
}

fn expand_with(pattern: &str, pid: Option<u32>, rank: Option<u32>, host: impl Fn() -> String) -> String {
    let mut name = match rank {
        Some(rank) if !pattern.contains("%r") && !pattern.contains("%p") => with_rank(pattern, rank),
        _ => pattern.replace("%r", &rank.unwrap_or(0).to_string()),
    };
    if name.contains("%h") {
        name = name.replace("%h", &host());
    }
    match pid {
        Some(pid) => name.replace("%p", &pid.to_string()),
        None => name,
    }
}

/// `dir/name.ext` as `dir/name.3.ext`.
fn with_rank(pattern: &str, rank: u32) -> String {
    let path = Path::new(pattern);
    match (path.extension().and_then(|e| e.to_str()), path.file_name()) {
        (Some(extension), Some(_)) => path.with_extension(format!("{rank}.{extension}")).to_string_lossy().into_owned(),
        _ => format!("{pattern}.{rank}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_get_names_of_their_own() {
        let name = |pattern: &str, rank| expand_with(pattern, Some(77), rank, || "here".into());
        assert_eq!(name("numamma.prof", None), "numamma.prof");
        assert_eq!(name("numamma.prof", Some(3)), "numamma.3.prof");
        assert_eq!(name("out.d/report", Some(3)), "out.d/report.3");
        assert_eq!(name("a.%r.prof", Some(3)), "a.3.prof");
        assert_eq!(name("a.%r.prof", None), "a.0.prof");
        assert_eq!(name("%h-%p.json", Some(3)), "here-77.json");
        assert_eq!(expand_with("a-%p.prof", None, Some(3), String::new), "a-%p.prof");
    }

    #[test]
    fn devices_keep_their_name() {
        assert_eq!(expand("/dev/null", None), "/dev/null");
        for (path, regular) in [("/dev/stdout", false), ("/proc/self/fd/1", false), ("/dev/shm/x", true), ("x", true)] {
            assert_eq!(is_regular(Path::new(path)), regular, "{path}");
        }
    }
}
