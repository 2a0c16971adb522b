//! A profile to export.

use numamma_kernel::terminal;

use crate::profile::records::ThreadId;
use crate::report::View;

/// A profile to export.
#[derive(Debug)]
pub struct Source<'a> {
    /// Its file as it was named.
    pub file: String,
    /// The profile with its verdicts.
    pub view: &'a View<'a>,
}

impl Source<'_> {
    /// What viewers call a thread: `rank 3, thread 2 worker`.
    pub(super) fn thread_name(&self, thread: ThreadId) -> String {
        let rank = self.view.summary.rank.map(|rank| format!("rank {rank}, ")).unwrap_or_default();
        let name = self.view.summary.threads.get(thread as usize).map_or("", |t| t.name.as_str());
        format!("{rank}thread {thread} {}", terminal::line(name))
    }
}
