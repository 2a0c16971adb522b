//! The state of a program that runs already: what the kernel would have reported from its start.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use numamma_kernel::pagemap;

use super::Events;
use crate::profile::PAGE;
use crate::profile::perf::threads::RunningThread;
use crate::profile::perf::{Mapping, PerfEvent, PerfRecord};
use crate::profile::record::maps::Maps;
use crate::profile::record::touches::At;

/// Pages asked for at a time: half a MiB of answers.
const PAGES_AT_A_TIME: u64 = 1 << 16;
/// Pages asked for at most, in the smallest mappings first: 512 GiB of address space. The kernel answers a few hundred
/// million a second where nothing is present; reserved address space may have billions.
const MOST_PAGES: u64 = 1 << 27;

impl Events {
    /// Sets the start of a recording of processes that run. `threads` exist; `early` was recorded before.
    pub fn start_attached(&mut self, now_ns: u64, threads: &[RunningThread], early: Vec<PerfRecord>) {
        self.origin_ns = now_ns;
        // A program that is executed from now on is not the first one.
        self.execs = 1;
        for &RunningThread { pid, tid, .. } in threads {
            let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
            let name = name.trim_end_matches('\n').to_owned();
            let thread = self.threads.start(pid, tid, 0, name.clone(), None);
            self.space.thread_name(thread, &name);
        }
        let targets = self.targets.clone();
        self.perf.extend(early.into_iter().filter_map(|record| of_the_present(record, &targets, now_ns)));
        for pid in targets {
            let mappings = Maps::default().new_mappings(pid);
            for mapping in &mappings {
                self.space.mmap(0, pid, mapping);
            }
            self.mark_present(pid, mappings);
        }
    }

    /// Marks the pages that are in memory as touched: their first touch was before, and a fault on one of them (a hint
    /// fault of numa_balancing, a copy after a fork) is none.
    fn mark_present(&mut self, pid: u32, mut mappings: Vec<Mapping>) {
        let Ok(file) = File::open(format!("/proc/{pid}/pagemap")) else { return };
        mappings.retain(|m| m.prot != libc::PROT_NONE as u32);
        mappings.sort_by_key(|m| m.len);
        let (mut left, mut answers) = (MOST_PAGES, vec![0; PAGES_AT_A_TIME as usize * 8]);
        for mapping in mappings {
            let (mut page, end) = (mapping.addr / PAGE, (mapping.addr + mapping.len) / PAGE);
            let view = self.space.view_at(pid, mapping.addr);
            left = left.saturating_sub(end - page);
            while left > 0 && page < end {
                let bytes = &mut answers[..((end - page).min(PAGES_AT_A_TIME) * 8) as usize];
                let Ok(got @ 1..) = file.read_at(bytes, page * 8) else { break };
                let words = bytes[..got].chunks_exact(8).map(|w| w.try_into().map_or(0, u64::from_le_bytes));
                self.touches.mark_present(
                    At::of(pid, page * PAGE, view),
                    words.map(|w| pagemap::present(w) || pagemap::swapped(w)),
                );
                page += (got / 8).max(1) as u64;
            }
        }
    }

    /// Files whose code the processes run and that could not be read: deleted, or replaced by others of the same name.
    pub fn unreadable_files(&mut self) -> Vec<String> {
        let mut files = Vec::new();
        for pid in self.targets.clone() {
            let code = Maps::default().new_mappings(pid);
            let code = code.iter().filter(|m| m.prot & libc::PROT_EXEC as u32 != 0 && m.path.starts_with('/'));
            files.extend(code.filter(|m| !self.space.is_loaded(pid, m.addr)).map(|m| m.path.clone()));
        }
        files.sort();
        files.dedup();
        files
    }
}

/// A record of the time before the mappings were read, without what they show already.
fn of_the_present(record: PerfRecord, targets: &[u32], now_ns: u64) -> Option<PerfRecord> {
    let shown = record.time_ns < now_ns && targets.contains(&record.pid);
    match record.event {
        PerfEvent::Mmap(_) if shown => None,
        PerfEvent::Comm { name, .. } if shown => {
            Some(PerfRecord { event: PerfEvent::Comm { name, exec: false }, ..record })
        }
        event => Some(PerfRecord { event, ..record }),
    }
}
