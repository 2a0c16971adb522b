//! Describes the sources and assumptions of the model for the report.

use super::World;
use super::clock::Charge;
use super::waiting::{FILL_BUFFERS, UNKNOWN_LINES};
use crate::detect::short_threads;
use crate::topology::caches::CacheSource;
use crate::topology::model::Source;

fn source(source: Source) -> &'static str {
    match source {
        Source::Measured => "measured by `numamma topology --measure`",
        Source::Hmat => "from ACPI HMAT",
        Source::Xml => "from the hwloc XML file",
        Source::Slit => "documented defaults scaled by the SLIT distances",
        Source::Default => "documented defaults with distances 10 and 20",
    }
}

/// Which baseline is 1, and why.
fn balancing(world: &World<'_>) -> String {
    let by = match world.model().numa_balancing {
        Some(_) => "as the kernel's setting says",
        None => "the default of kernels with several nodes",
    };
    match (world.nodes(), world.balances()) {
        (..2, _) => "NUMA balancing: none on one node".into(),
        (_, true) => format!("NUMA balancing: on ({by}), so first touch with it is 1.00x"),
        (_, false) => "NUMA balancing: off (as the kernel's setting says), so first touch without it is 1.00x".into(),
    }
}

/// Sizes of the caches, or why none are used.
fn caches(world: &World<'_>) -> String {
    let caches = world.model().caches;
    let by = match caches.source {
        CacheSource::Kernel => "as the kernel lists them",
        CacheSource::Described => "as described",
        CacheSource::Unknown => {
            return "caches: sizes not known, so nothing is taken to stay in them but what is only read and has at most \
                    32 KiB; give them with --target, as in \"numa:2 l3:1(size=32MiB) core:8 l2:1(size=1MiB)\""
                .into();
        }
        CacheSource::Emulated => {
            return "caches: made up by an emulator, so nothing is taken to stay in them".into();
        }
    };
    format!(
        "caches: {} KiB of the second level for {}, {} KiB of the last for {} ({by})",
        caches.second.bytes >> 10,
        crate::advise::plural(caches.second.cpus as usize, "CPU"),
        caches.last.bytes >> 10,
        crate::advise::plural(caches.last.cpus as usize, "CPU"),
    )
}

/// `85` or `85 to 170`, in a unit that `scale` converts to.
fn range(values: impl Iterator<Item = f64>, scale: f64) -> String {
    let (low, high) = values.fold((f64::MAX, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    let (low, high) = (low * scale, high * scale);
    if high - low < 0.5 { format!("{high:.0}") } else { format!("{low:.0} to {high:.0}") }
}

/// Part of the recording without a running thread from which that is said: it hides as much of every gain. The same
/// part of the time in which threads could run, that they waited for a CPU.
const MOSTLY_RUNS: f64 = 0.1;

/// `5`, `5 and 3`, `5, 3 and 2`.
fn list(numbers: impl Iterator<Item = u32>) -> String {
    let words: Vec<String> = numbers.map(|n| n.to_string()).collect();
    match words.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => words.concat(),
    }
}

impl World<'_> {
    /// Workers of the teams in the profile and on the target; of the only worker where there is no team.
    fn sizes_of_teams(&self) -> Vec<(u32, u32)> {
        let teams: Vec<(u32, u32)> = self.teams.totals().collect();
        if teams.is_empty() { vec![(self.roles.workers, self.target.threads)] } else { teams }
    }

    /// What makes the times of the profile less sure: that no thread ran for a good part of it, that threads waited for
    /// a CPU, or that they ended before they were sampled.
    pub fn time_remarks(&self) -> Vec<String> {
        let profiles = f64::from(self.summary.profiles.max(1));
        let (idle, all) = (self.clock.idle_ns / 1e9 / profiles, self.summary.duration_ns() as f64 / 1e9);
        let (scale, unit) = if all < 1.0 { (1e3, "ms") } else { (1.0, "s") };
        let decimals = usize::from(all >= 1.0);
        let time = |seconds: f64| format!("{:.decimals$} {unit}", seconds * scale);
        let stats = &self.summary.stats;
        let mut remarks = Vec::new();
        if idle > MOSTLY_RUNS * all {
            let of = format!("{} of the {}", time(idle), time(all));
            remarks.push(match stats.events.idle {
                Some(_) => format!(
                    "No thread of the program ran for {of}: it slept, or waited for files or devices. Predicted times \
                     count this as time that no placement shortens."
                ),
                None => format!(
                    "No thread of the program had a CPU for {of}: it slept, waited for files, or waited \
                     for a CPU on a busy machine. Predicted times count this as time that no placement shortens. If \
                     the machine was busy, profile again on an idle one."
                ),
            });
        }
        let waited = self.summary.idle().waited_ns as f64 / 1e9;
        let ran = stats.cpu_ns as f64 / 1e9;
        if waited > MOSTLY_RUNS * (waited + ran) {
            remarks.push(format!(
                "The threads of the program ran for {} and waited for a CPU for {}, all together: the machine was busy, \
                 or there were more threads than CPUs. Predicted times leave the waiting out.",
                time(ran),
                time(waited)
            ));
        }
        remarks.extend(short_threads(self.summary).map(|short| short.remark()));
        remarks
    }

    /// Whether the sizes of the target's caches are known.
    pub fn knows_caches(&self) -> bool {
        self.model().caches.source != CacheSource::Unknown
    }

    /// A sentence per input.
    pub fn inputs(&self) -> Vec<String> {
        let model = self.model();
        let pairs = || self.thread_nodes.iter().flat_map(|c| self.memory.iter().map(move |m| (*c, *m)));
        let own = self.memory.iter().map(|m| model.bandwidth[*m][*m]);
        // Folds from 0.0: the sum of no floats is -0.0, which would be printed with its sign.
        let serial = self.clock.slices.iter().filter(|s| s.serial).fold(0.0, |sum, s| sum + s.cpu_ns);
        let all = self.clock.slices.iter().fold(0.0, |sum, s| sum + s.cpu_ns);
        let mut inputs = vec![
            format!(
                "latency: {} ns ({})",
                range(pairs().map(|(c, m)| model.latency[c][m]), 1.0),
                source(model.latency_source)
            ),
            format!("bandwidth of a node: {} GB/s ({})", range(own, 1e-9), source(model.bandwidth_source)),
            format!(
                "threads: {} workers recorded, {} on {} of the target in the order of their numbers; {:.0} % of the CPU \
                 time serial",
                list(self.sizes_of_teams().iter().map(|(seen, _)| *seen)),
                list(self.sizes_of_teams().iter().map(|(_, size)| *size)),
                crate::advise::plural(self.thread_nodes.len(), "node"),
                if all > 0.0 { 100.0 * serial / all } else { 0.0 }
            ),
            format!(
                "waiting and cache lines under way: from the code of {:.0} % of the CPU time at accesses",
                100.0 * self.known_code()
            ),
            format!(
                "assumed: all CPU time at accesses of other code waits, with {UNKNOWN_LINES:.0} lines under way; time \
                 slices are priced twice, with accesses mixed evenly and with all threads going through their parts at one \
                 pace, and the prices averaged"
            ),
        ];
        let swept = self.swept_lines();
        if swept > FILL_BUFFERS {
            inputs.push(format!(
                "{swept:.0} lines under way in sweeps: so many the CPUs of a node need to reach its measured bandwidth"
            ));
        }
        inputs.push(caches(self));
        if self.clock.uncharged_ns > 0.0 && all > 0.0 {
            inputs.push(format!(
                "{:.0} % of the CPU time is at no access and stays as it is",
                100.0 * self.clock.uncharged_ns / all
            ));
        }
        inputs.push(balancing(self));
        if self.target.waiting != 1.0 {
            inputs.push(format!(
                "waiting for memory: {:.2} times what the samples say, as times measured on this machine show",
                self.target.waiting
            ));
        }
        match self.charge {
            Charge::Cost => {}
            Charge::Share(_) => inputs.push(
                "the fault sampler takes no times: every use of a page by a thread in a window has the same share of the \
                 CPU time, and all of it is taken for waiting, so that gains are upper bounds"
                    .into(),
            ),
            Charge::One => inputs.push("the profile has no times: every access counts the same".into()),
        }
        inputs
    }
}
