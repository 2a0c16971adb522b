//! The reports that the apply preload writes at the end of a placed run, one per process: where they are, and how those
//! of all processes of the program, such as MPI ranks, are added up.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use numamma_kernel::input_file::{self, MOST_REPORT};
use numamma_plan::placement_report::{ObjectReport, PhaseReport};

/// Adds the phases of one process to those of the others.
pub(super) fn merge_phases(all: &mut Vec<PhaseReport>, of_one: Vec<PhaseReport>) {
    for phase in of_one {
        match all.iter_mut().find(|p| p.name == phase.name) {
            Some(known) => known.add(&phase),
            None => all.push(phase),
        }
    }
}

/// The texts of all reports whose name is that of `report` with a process id for its `%p`, in the order of the ids.
pub(super) fn take_reports(report: &Path) -> Vec<String> {
    let (Some(dir), Some(name)) = (report.parent(), report.file_name().and_then(|n| n.to_str())) else {
        return Vec::new();
    };
    let Some((before, after)) = name.split_once("%p") else { return Vec::new() };
    let process = |name: &str| name.strip_prefix(before)?.strip_suffix(after)?.parse::<u32>().ok();
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<(u32, PathBuf)> =
        entries.filter_map(|e| Some((process(e.file_name().to_str()?)?, e.path()))).collect();
    files.sort_unstable();
    let take = |(_, path): (u32, PathBuf)| {
        let text = input_file::text(&path, MOST_REPORT).ok();
        // A file that cannot be removed is removed with its directory.
        let _ = fs::remove_file(&path);
        text
    };
    files.into_iter().filter_map(take).collect()
}

/// Adds the objects of one process to those of the others: two rules are the same if name, policy and nodes are. The
/// n-th of several such rules is the n-th in each process.
pub(super) fn merge(all: &mut Vec<ObjectReport>, of_one: Vec<ObjectReport>) {
    let before = all.len();
    let mut used = vec![false; before];
    for object in of_one {
        let same = |o: &ObjectReport| (&o.name, &o.policy, &o.nodes) == (&object.name, &object.policy, &object.nodes);
        match (0..before).find(|&i| !used[i] && same(&all[i])) {
            Some(i) => {
                used[i] = true;
                all[i].add(&object);
            }
            None => all.push(object),
        }
    }
}

/// A private directory for the report, removed when dropped: other users could create a predictable name in /tmp first.
#[derive(Debug)]
pub struct ReportDir(PathBuf);

impl ReportDir {
    /// Creates it.
    pub fn new() -> io::Result<ReportDir> {
        // Absolute: the program may change its directory before it writes.
        let base = std::path::absolute(std::env::temp_dir())?;
        for attempt in 0..100 {
            let dir = base.join(format!("numamma-verify-{}-{attempt}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(ReportDir(dir)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::Error::other(format!("{}: too many left-over numamma-verify directories", base.display())))
    }

    /// Name of the report files in it, one for each process.
    pub fn file(&self) -> PathBuf {
        self.0.join("report.%p.json")
    }
}

impl Drop for ReportDir {
    fn drop(&mut self) {
        // The directory may be gone already.
        let _ = fs::remove_dir_all(&self.0);
    }
}
