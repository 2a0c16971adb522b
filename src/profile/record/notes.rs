//! The notes of a recording: what is missing in it, why, and what to do about that.

use std::fs::File;
use std::path::Path;

use numamma_kernel::sys::PAGE;
use numamma_kernel::terminal::shell_word;

use super::processes::Busy;
use super::switch::Switch;
use crate::launch::running::Running;
use crate::profile::perf::session::{FAULT_PAGES, Session};
use crate::profile::records::{EventCounts, Stats};

/// Share of the samples in children that are not followed from which a note says so: with a shell or a launcher around
/// the real program nearly all samples fall there, with a `system("date")` nearly none.
const NOTED_CHILD_SHARE: f64 = 0.1;

/// There is no memory to share with programs that a statically linked one starts.
pub const NO_CHANNEL: &str = "the program is statically linked, and the memory that programs which it starts would \
                              share with the recorder could not be had (a file size limit, ulimit -f?): allocations \
                              are not recorded";
/// The profile preload never attached.
pub const NOT_PRELOADED: &str = "the program did not load libnumamma-profile.so (statically linked, or it cleared \
     LD_PRELOAD): no heap call sites";

/// No process had the hooks of the `trace` sampler.
pub const NO_HOOKS: &str = "no program called the hooks of the trace sampler: nothing was counted; compile for it: \
     eval \"$(numamma trace-flags gcc)\"";

/// A program that was compiled for the `trace` sampler, or for ThreadSanitizer, was recorded by another one.
pub const HOOKED: &str = "the program was compiled with -fsanitize=thread, as for --sampler trace: it calls a hook at \
     each access, so that this is the profile of a slower program; record it with --sampler trace, or one that was \
     compiled without";

/// Whether a library is the one with these hooks.
pub fn has_hooks(path: &str) -> bool {
    file_name(path).starts_with("libtsan.so")
}

/// Files that a note names.
const MOST_FILES: usize = 3;

/// The command that records a process that runs.
pub const ATTACH: &str = "numamma profile -p PID";

/// What stands before the command in the note about programs that a launcher has started elsewhere.
const BEHIND: &str = "and are not in this profile; to record them: ";

/// What the note about child processes says that had no samples to speak of.
pub const NOT_FOLLOWED: &str = "not recorded; --follow records";

/// Other programs that a note names.
const MOST_PROGRAMS: usize = 4;

/// The commands that start the ranks of an MPI job; what follows a dot in their names says whose they are
/// (mpiexec.hydra, and Debian's mpirun.openmpi and mpirun.mpich).
const MPI_LAUNCHERS: [&str; 5] = ["mpirun", "mpiexec", "orterun", "prterun", "srun"];

fn words(argv: &[String]) -> String {
    let words: Vec<String> = argv.iter().map(|word| shell_word(word)).collect();
    words.join(" ")
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The program that was recorded of those that a command started.
pub fn chosen(chosen: &Busy, command: &[String]) -> String {
    let pids: Vec<String> = chosen.processes.iter().take(MOST_PROGRAMS).map(|p| p.pid.to_string()).collect();
    let (pids, count) = (pids.join(", "), chosen.processes.len());
    let processes = match count {
        1 => format!("process {pids}"),
        _ if count > MOST_PROGRAMS => format!("{count} processes, the first {pids}"),
        _ => format!("processes {pids}"),
    };
    let launcher = command.first().map_or("", |word| file_name(word));
    let is_mpi = launcher.split('.').next().is_some_and(|name| MPI_LAUNCHERS.contains(&name));
    let ranks = if count > 1 && is_mpi {
        let program = words(&chosen.program.argv);
        format!("; for a profile of each MPI rank: {launcher} ... numamma profile -- {program}")
    } else {
        String::new()
    };
    format!(
        "this is the profile of {} ({processes}; {:.0} % of the {}), which {} started{ranks}",
        words(&chosen.program.argv),
        100.0 * chosen.share,
        if chosen.counted.samples > 0 { "samples" } else { "page faults" },
        words(command)
    )
}

/// Other programs that a command started and that had a part of the time, each with the command that records it.
pub fn other_programs(others: &[Busy], command: &[String], profile: &Path) -> Option<String> {
    let named = others.iter().take(MOST_PROGRAMS).map(|other| {
        let name = file_name(&other.program.path);
        format!(
            "{} ({:.0} % of the samples): numamma profile --program {} -o {} -- {}",
            words(&other.program.argv),
            100.0 * other.share,
            shell_word(name),
            shell_word(&profile.with_file_name(format!("{name}.prof")).to_string_lossy()),
            words(command)
        )
    });
    let named: Vec<String> = named.collect();
    let more = others.len().saturating_sub(MOST_PROGRAMS);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| format!("also busy, and not in this profile: {}{more}", named.join("; ")))
}

/// The program that was asked for did not run.
pub fn no_such_program(wanted: &str, chosen: &Busy) -> String {
    format!("--program {wanted}: no process ran it; most of the time was in {}", words(&chosen.program.argv))
}

/// The programs of a launcher run elsewhere; `command` records them.
pub fn elsewhere(command: &str) -> String {
    let launcher = file_name(command.split(' ').next().unwrap_or(command));
    format!("the programs that {launcher} starts are processes of a daemon or of another machine, {BEHIND}{command}")
}

/// The command that records what was started elsewhere, if a note says so.
pub fn behind(notes: &[String]) -> Option<&str> {
    notes.iter().find_map(|note| Some(note.split_once(BEHIND)?.1))
}

/// None of the processes of a command was busy.
pub fn nothing_ran(processes: usize) -> Option<String> {
    let ran = if processes == 1 { "1 process ran".to_owned() } else { format!("{processes} processes ran") };
    (processes > 0).then(|| {
        format!(
            "{ran}, and none used the CPU long enough for a sample: the work is too short, or was left to a process \
             that runs on (attach to that: {ATTACH})"
        )
    })
}

/// What a recording of programs that ran before cannot have.
pub fn attached(running: &[Running]) -> Vec<String> {
    let Some(first) = running.first() else { return Vec::new() };
    let command: Vec<String> = first.argv.iter().map(|arg| shell_word(arg)).collect();
    let pids: Vec<String> = running.iter().map(|r| r.pid.to_string()).collect();
    let processes = if pids.len() == 1 { "the running process" } else { "the running processes" };
    let mut notes = vec![format!(
        "attached to {processes} {}: allocations are not known, so heap memory is [heap] and anonymous mappings \
         without call sites, and who touched a page before that is not known either; to get both, record the program \
         from its start: numamma profile -- {}",
        pids.join(", "),
        command.join(" ")
    )];
    if let Some(refused) = running.iter().find(|r| File::open(format!("/proc/{}/mem", r.pid)).is_err()) {
        notes.push(format!(
            "the memory of process {} cannot be read (kernel.yama.ptrace_scope, or it is protected): addresses that \
             depend on tables in memory, and code that was generated at run time, are not resolved; as root they are",
            refused.pid
        ));
    }
    notes
}

/// Files with code that could not be read.
pub fn unreadable(files: &[String]) -> Option<String> {
    let named = files[..files.len().min(MOST_FILES)].join(", ");
    let more = if files.len() > MOST_FILES { format!(" and {} more", files.len() - MOST_FILES) } else { String::new() };
    (!files.is_empty()).then(|| {
        format!(
            "{named}{more}: deleted or replaced since the program mapped it, and not readable through the process (as \
             root it may be): its variables and functions have no names"
        )
    })
}

/// Samples that the program did not want.
pub fn switched(switch: &Switch) -> Option<String> {
    let Switch { dropped, switched_on, .. } = *switch;
    if switch.starts_off() && switched_on == 0 {
        return Some(
            "no samples were taken: they were to start when the program calls numamma_profile(1) of numamma.h \
             (--start-paused), and it did not"
                .into(),
        );
    }
    let times = match switched_on {
        0 => String::new(),
        1 => "; it switched them on once".to_owned(),
        n => format!("; it switched them on {n} times"),
    };
    let left_out = if dropped == 1 { "1 sample was".to_owned() } else { format!("{dropped} samples were") };
    (dropped > 0).then(|| {
        format!(
            "{left_out} left out, taken while the program had switched them off (numamma_profile(0)) or not yet on{times}"
        )
    })
}

/// First touches that this recording cannot have.
pub fn first_touch(session: Option<&Session>) -> Option<String> {
    match session {
        None => {
            Some("perf events are refused here: no samples and no first touches; mappings were read from /proc".into())
        }
        Some(s) if !s.kernel_faults => Some(
            "pages first touched inside system calls (read() into a fresh buffer) are not seen as first touches: \
             kernel.perf_event_paranoid is above 1"
                .into(),
        ),
        Some(_) => None,
    }
}

/// Notes about events lost in full buffers: each kind makes another part of the report incomplete. `traced`: the
/// samples are accesses that hooks count.
pub fn lost(stats: &Stats, session: Option<&Session>, traced: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let EventCounts { mappings_lost, starts_lost, .. } = stats.events;
    if mappings_lost > 0 {
        notes.push(format!(
            "{mappings_lost} records of mappings and threads were lost, {starts_lost} of them starts of threads, \
             because the program makes them faster than the recorder could read them: accesses may be counted for what \
             lay at their address before"
        ));
    }
    if stats.lost > 0 && traced {
        notes.push(format!(
            "{} accesses were not counted, because no program has their address (they end in SIGSEGV), a signal handler \
             made them in the midst of counting, or no memory was left for counters: a larger --max-memory keeps the last",
            stats.lost
        ));
    } else if stats.lost > 0 {
        notes.push(format!(
            "{} samples were lost, because the program was sampled faster than the recorder could read: sample slower \
             with -F",
            stats.lost
        ));
    }
    if stats.faults_lost > 0 {
        let small = session.map_or(0, Session::fault_buffer) < FAULT_PAGES * PAGE;
        let what_to_do = if small {
            "the buffer is small because of the locked-memory limit: raise `ulimit -l` or kernel.perf_event_mlock_kb"
        } else {
            "the program touched memory faster than the recorder could read the faults"
        };
        notes.push(format!(
            "{} page faults were lost, so first touchers are incomplete; {what_to_do}",
            stats.faults_lost
        ));
    }
    if stats.alloc_lost > 0 {
        notes.push(format!(
            "{} allocation events were lost, small ones and frees first: counts of allocations are too low, and small \
             objects may be counted at the wrong call site; a CPU left free for the recorder, or a larger --max-memory, \
             keeps them",
            stats.alloc_lost
        ));
    }
    notes
}

/// There was no memory for counters of each instruction of a trace.
pub const MERGED: &str = "no memory was left for counters of single instructions: some accesses are counted for their \
     page and thread, and not for the instruction; a larger --max-memory tells them apart";

/// Page faults of which only some were recorded.
pub fn faults_thinned(stats: &Stats) -> Option<String> {
    let counts = &stats.events;
    let share = |ns: u64| 100.0 * (ns as f64 / stats.duration_ns.max(1) as f64).min(1.0);
    (counts.thinned_ns > 0).then(|| {
        format!(
            "the program touches new memory too fast to record each page fault: in {:.0}% of the run only one in {} was \
             recorded, and in {:.0}% none ({} were recorded in that time); first touchers there are estimated from \
             those recorded (the object says for what share of it) or unknown",
            share(counts.thinned_ns - counts.unseen_ns.min(counts.thinned_ns)),
            counts.fault_period,
            share(counts.unseen_ns),
            counts.faults_sampled
        )
    })
}

/// Allocations that were not tracked: all small ones but one in `factor`, and large ones beyond the quota of their call
/// site; `left_out` together.
pub fn thinned(factor: u32, left_out: u64) -> Option<String> {
    (factor > 1).then(|| {
        format!(
            "the program allocates so often that only one in {factor} of its small allocations (under a page) was \
             tracked, and of the large ones the first of each call site in each tenth of a second, to keep the \
             overhead down: {left_out} were left out, which the counts of the tracked ones stand for, and accesses to \
             them are counted for the heap as a whole"
        )
    })
}

/// Memory was short.
pub fn memory(limit: u64) -> String {
    format!(
        "the recording reached its limit of {} MiB of memory, so allocations were thinned and may be lost; raise it \
         with --max-memory",
        limit >> 20
    )
}

/// Child processes that are not followed: their number, and their share of all samples (0 to 1).
pub fn children(share: f64, count: u64) -> Option<String> {
    if share >= NOTED_CHILD_SHARE {
        return Some(format!(
            "{:.0}% of the samples fell into child processes, which are not part of this profile: record them with \
             `numamma profile --follow`, or one program of them with `--program NAME`",
            100.0 * share
        ));
    }
    let (processes, they) = if count == 1 { ("process", "it") } else { ("processes", "them") };
    (count > 0).then(|| format!("the program started {count} {processes}, {NOT_FOLLOWED} {they}, too"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_trace_lacks_is_not_put_down_to_a_rate() {
        let stats = Stats { lost: 3, ..Stats::default() };
        let [of_trace, of_samples] = [true, false].map(|traced| lost(&stats, None, traced).join("\n"));
        assert!(of_trace.starts_with("3 accesses were not counted") && of_trace.contains("--max-memory"), "{of_trace}");
        assert!(!of_trace.contains("-F") && of_samples.contains("sample slower with -F"), "{of_samples}");
    }
}
