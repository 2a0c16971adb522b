//! What a recording writes: records as they come, counters, notes, names at the end.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use numamma_channel::reader::Channel;
use numamma_channel::trace::reader::Trace;
use numamma_kernel::clock::monotonic_ns;
use numamma_kernel::output_file;

use super::process::{CpuTime, cpu_time};
use super::recorder::Recorder;
use super::{FAULT, Recorded, TRACE, faults, notes};
use crate::launch::exit::{Ended, say};
use crate::launch::held::Held;
use crate::profile::perf::attr::FAULT_PERIOD;
use crate::profile::records::{EventCounts, KernelCost, Program, Record, Stats};

/// Names are looked up while the program runs for one in so many parts of the time.
const NAMING: u32 = 20;

impl Recorder {
    /// Names the program that the process executed last.
    fn name_program(&mut self) {
        if let Some(program) = self.events.new_program() {
            let argv = if program.argv.is_empty() { &self.header.program.argv } else { &program.argv };
            self.header.program = Program { argv: argv.clone(), ..program };
            self.append_header();
        }
    }

    pub(super) fn flush(&mut self) {
        self.name_program();
        let mut records = self.events.take_records();
        let stats = self.stats();
        records.push(Record::Stats(stats));
        records.push(Record::EventCounts(stats.events));
        records.extend(self.live_names());
        self.append(&records);
        if let Some(writer) = &mut self.writer {
            self.compaction.step(&self.path, writer, stats.duration_ns);
        }
    }

    /// The names of new frames, where they are wanted and not too costly: events wait meanwhile.
    fn live_names(&mut self) -> Option<Record> {
        let begun = Instant::now();
        self.names_due.filter(|due| *due <= begun)?;
        let symbols = self.events.space.symbols();
        self.names_due = Some(begun + begun.elapsed() * NAMING);
        (!symbols.is_empty()).then_some(Record::Symbols(symbols))
    }

    fn event_counts(&self) -> EventCounts {
        let now = self.events.ended_ns.unwrap_or_else(monotonic_ns);
        let mappings_lost = self.session.as_ref().map_or(0, |s| s.lost().mappings);
        EventCounts {
            fault_ns: self.costs.fault_ns,
            fault_period: FAULT_PERIOD,
            faults_sampled: self.events.faults_sampled,
            thinned_ns: self.fault_thinning.thinned_ns(now),
            unseen_ns: self.fault_thinning.unseen_ns(now),
            mappings_lost,
            // Without losses, a thread that is seen first by something else is one whose start comes late.
            starts_lost: self.events.starts_missed().min(mappings_lost),
            idle: self.idle.counted(),
            kernel: self.kernel_cost(mappings_lost),
        }
    }

    /// None where nothing was measured, or the kernel has no events.
    fn kernel_cost(&self, mappings_lost: u64) -> Option<KernelCost> {
        let measured = self.session.is_some() && self.costs.fault_ns > 0;
        let mappings_ns = self.events.mappings.saturating_add(mappings_lost).saturating_mul(self.costs.mapping_ns);
        measured.then_some(KernelCost { faults_ns: self.faults_cost_ns, mappings_ns })
    }

    fn stats(&self) -> Stats {
        let mut stats = self.events.stats;
        let now = self.events.ended_ns.unwrap_or_else(monotonic_ns);
        stats.duration_ns = now.saturating_sub(self.start_ns);
        let program = self.cpu();
        stats.cpu_ns = program.total();
        stats.recorder_cpu_ns = cpu_time(libc::RUSAGE_SELF).total().saturating_sub(self.own_cpu_ns);
        if let Some(session) = &self.session {
            let lost = session.lost();
            stats.lost = lost.samples;
            stats.faults_lost = lost.faults;
        }
        stats.lost += self.events.tallies.trace.as_ref().map_or(0, Trace::lost);
        stats.events = self.event_counts();
        stats.alloc_lost = self.channel.as_ref().map_or(0, Channel::lost) + self.events.discarded_allocs;
        stats.faults_lost += self.events.discarded_faults;
        // The timer does not sample the kernel.
        let sampled = program.user.saturating_sub(self.unsampled.user);
        let taken = stats.samples + self.events.switch.dropped;
        let expected = sampled as f64 / self.header.sampling.period_ns.max(1) as f64;
        stats.achieved =
            if self.header.sampling.period_ns > 0 && expected >= 1.0 { taken as f64 / expected } else { 0.0 };
        stats
    }

    /// CPU time of the recorded processes.
    fn cpu(&self) -> CpuTime {
        // The time after the wait is exact but includes all children, so it is used only when all children are
        // recorded.
        let waited = cpu_time(libc::RUSAGE_CHILDREN).since(self.earlier_children);
        if waited.total() > 0 && self.events.not_followed == 0 { waited } else { self.program.cpu() }
    }

    pub(super) fn append_header(&mut self) {
        let rank = numamma_plan::ranks::this_rank().map(Record::Rank);
        let records: Vec<Record> = std::iter::once(Record::Header(self.header.clone())).chain(rank).collect();
        self.append(&records);
    }

    /// Appends records; after a failure (disk full) no more records are written and the program goes on.
    fn append(&mut self, records: &[Record]) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(e) = records.iter().try_for_each(|r| writer.append(r)) {
            say(format_args!(
                "cannot write {}: {e}; the program goes on, and the file can be read up to here",
                self.path.display()
            ));
            self.writer = None;
        }
    }

    /// The name of the file now: somebody may have moved it.
    pub(super) fn own_path(&self) -> io::Result<PathBuf> {
        let closed = || io::Error::other("it could not be written to the end");
        self.writer.as_ref().map_or_else(|| Err(closed()), |writer| output_file::name_of(writer.file(), &self.path))
    }

    /// Allocations that the program did not report, as it was asked to.
    fn left_out(&self) -> u64 {
        self.channel.as_ref().map_or(0, Channel::skipped).max(self.events.left_out)
    }

    /// Adds notes about missing data.
    fn closing_notes(&mut self) {
        self.notes.extend(notes::thinned(self.thinning.factor(), self.left_out()));
        self.notes.extend(self.saved.map(|_| notes::memory(self.events.budget.limit())));
        self.notes.extend(notes::switched(&self.events.switch));
        let traced = self.header.sampling.sampler == TRACE;
        self.notes.extend(notes::lost(&self.stats(), self.session.as_ref(), traced));
        if self.events.tallies.trace.as_ref().is_some_and(Trace::merged) {
            self.notes.push(notes::MERGED.into());
        }
        self.notes.extend(notes::faults_thinned(&self.stats()));
        self.notes.extend(notes::children(self.events.child_share(), self.events.not_followed));
    }

    /// Writes what is left. `running`: the program, if it was started for the recording and has not ended.
    pub fn finish(mut self, ended: Ended, running: Option<Held>) -> Recorded {
        self.drain();
        self.process(u64::MAX);
        if let Some(channel) = &self.channel
            && !channel.attached()
        {
            self.notes.push(notes::NOT_PRELOADED.into());
            self.header.allocations = false;
            self.append_header();
        }
        if self.header.sampling.sampler == FAULT {
            let of_preload = || self.channel.as_ref().map(|channel| faults::note(channel.faults()));
            let of_kernel = || Some(faults::note_of_balancing(self.events.stats.samples));
            self.notes.extend(if self.events.hint_faults { of_kernel() } else { of_preload() });
        }
        if self.events.tallies.trace.as_ref().is_some_and(|trace| !trace.attached()) {
            self.notes.push(notes::NO_HOOKS.into());
        }
        if self.header.sampling.sampler != TRACE && self.events.space.modules().any(notes::has_hooks) {
            self.notes.push(notes::HOOKED.into());
        }
        self.add_unseen_waits();
        let small = self.left_out().saturating_sub(self.events.left_out);
        self.events.space.share_left_out(small);
        self.closing_notes();
        self.compaction.cancel();
        // Before the one that had the time is named instead: a short run has not been written yet.
        self.name_program();
        let chosen = self.choose_program();
        self.notes.extend(self.behind().as_deref().map(notes::elsewhere));
        self.flush();
        let lines = self.events.take_shared_lines();
        let space = &mut self.events.space;
        let mut records: Vec<Record> = lines.into_iter().collect();
        records.push(Record::Symbols(space.symbols()));
        records.push(Record::Code(space.code_units()));
        records.push(Record::AccessCode(space.access_code()));
        let lost = space.lost_frames();
        if !lost.is_empty() {
            records.push(Record::LostFrames(lost));
        }
        let members = space.members();
        if !members.is_empty() {
            records.push(Record::Members(members));
        }
        if !self.notes.is_empty() {
            records.push(Record::Notes(self.notes.clone()));
        }
        records.push(Record::End(ended));
        self.append(&records);
        if let Ok(now) = self.own_path()
            && now != self.path
        {
            let (asked, now) = (std::mem::replace(&mut self.path, now.clone()), now.display());
            self.notes.push(format!("{} was moved while it was written: this recording is {now}", asked.display()));
        }
        let mut stats = self.stats();
        let (max_overhead, complete) = (self.header.sampling.max_overhead, self.writer.is_some());
        if let Some(chosen) = chosen.filter(|_| complete) {
            match self.keep_program(&chosen, stats) {
                Ok(of_program) => stats = of_program,
                Err(e) => self.notes.push(format!(
                    "{}: the processes that only started the program remain in it, because it cannot be written again: \
                     {e}",
                    self.path.display()
                )),
            }
        }
        let samples_wanted = self.header.sampling.period_ns > 0;
        let traced = [TRACE, FAULT].contains(&self.header.sampling.sampler.as_str());
        let (not_followed, path, notes) = (self.events.not_followed, self.path, self.notes);
        Recorded { samples_wanted, traced, not_followed, path, ended, running, stats, notes, max_overhead, complete }
    }
}
