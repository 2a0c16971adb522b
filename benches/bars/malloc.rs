//! What the preloads add to a malloc and free pair, in CPU time of the thread, beside heaptrack.
//!
//! Bars: apply with a policy that does not match <= 2 ns; recording costs at most half of heaptrack's extra with a
//! stack of one frame and a fifth with twenty, with one stack and with many, and per thread no more with two threads
//! than with one. The profile preload is recorded by a channel that this process drains every millisecond, the program
//! pauses between bursts, and the share of lost events is printed: a recorder that falls behind makes recording look
//! cheap. heaptrack writes to /dev/null instead of its interpreter's pipe, and waiting for its lock is no CPU time:
//! both are in its favour. `inert` is a child of a recorded program: loaded, not recorded.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use numamma_channel::reader::Channel;

use crate::paired::{Spread, verdict};

const HEAPTRACK: &str = "/usr/lib/heaptrack/libheaptrack_preload.so";
const ROUNDS: usize = 9;
/// Enough that first touches of a ring's pages do not count.
const PAIRS: u32 = 200_000;
/// Different call stacks of the varied runs, many more than memos.
const STACKS: u32 = 1000;
/// One in 4,096 small allocations is recorded: what a program pays that allocates all the time.
const THINNED: u32 = 0xfff;
/// What a neighbour on the other hardware thread of the core may add before two threads count as worse.
const SHARED_CORE: f64 = 1.25;
const BAR_APPLY_NS: f64 = 2.0;
/// Largest share of heaptrack's extra, by depth.
const BARS: [(u32, f64); 2] = [(1, 0.5), (20, 0.2)];

#[derive(Clone, Copy, PartialEq)]
enum How {
    Plain,
    Apply,
    Inert,
    Recorded,
    Thinned,
    Heaptrack,
    Backtrace,
}

const LOADED: [(How, &str); 6] = [
    (How::Apply, "apply, no match"),
    (How::Inert, "profile, inert"),
    (How::Recorded, "profile, recorded"),
    (How::Thinned, "profile, thinned"),
    (How::Heaptrack, "heaptrack"),
    (How::Backtrace, "backtrace and lock"),
];

#[derive(Clone, Copy)]
struct Case {
    threads: u32,
    depth: u32,
    stacks: u32,
}

pub fn run() -> Result<(), String> {
    let program = crate::compile("malloc_pair")?;
    let backtrace = crate::compile_library("backtrace_preload")?;
    let policy = crate::release_dir().join("bench-nomatch.toml");
    // A rule that is looked for at every call site and matches none.
    let text = "version = 1\n[[object]]\nfunction = [\"no_such_function\"]\nplace = { policy = \"interleave\" }\n";
    std::fs::write(&policy, text).map_err(|e| format!("{}: {e}", policy.display()))?;
    let heaptrack = Path::new(HEAPTRACK).exists();
    if !heaptrack {
        println!("heaptrack is not installed ({HEAPTRACK}): its rows are left out.\n");
    }
    println!("CPU time per pair of the slowest thread, {ROUNDS} rounds in turn; `+` is over plain, round by round.\n");
    println!("| threads | depth | stacks | | ns | + min | + median | + max | lost | bar | |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let bench = Bench { program, policy, heaptrack, backtrace };
    for stacks in [1, STACKS] {
        for (depth, share) in BARS {
            let mut one_thread = None;
            for threads in [1, 2] {
                let recorded = bench.case(Case { threads, depth, stacks }, share)?;
                if let Some(first) = one_thread.replace(recorded) {
                    let ratio = recorded / first;
                    let met = verdict(ratio <= SHARED_CORE);
                    println!(
                        "| 2 over 1 | {depth} | {stacks} | recorded | | | {ratio:.2}x | | | {SHARED_CORE}x | {met} |"
                    );
                }
            }
        }
    }
    Ok(())
}

struct Bench {
    program: PathBuf,
    policy: PathBuf,
    heaptrack: bool,
    /// What a published applier does on each malloc.
    backtrace: PathBuf,
}

impl Bench {
    /// Measures and prints one case; returns what recording adds.
    fn case(&self, case: Case, share: f64) -> Result<f64, String> {
        let Case { threads, depth, stacks } = case;
        let ways: Vec<(How, &str)> =
            LOADED.into_iter().filter(|(how, _)| self.heaptrack || *how != How::Heaptrack).collect();
        let mut plain = Vec::new();
        let mut loaded: Vec<Vec<(f64, f64)>> = vec![Vec::new(); ways.len()];
        for _ in 0..ROUNDS {
            let base = self.measure(How::Plain, case)?.0;
            plain.push(base);
            for ((how, _), figures) in ways.iter().zip(&mut loaded) {
                let (ns, lost) = self.measure(*how, case)?;
                figures.push((ns - base, lost));
            }
        }
        let base = Spread::of(plain).median;
        println!("| {threads} | {depth} | {stacks} | plain | {base:.1} | | | | | | |");
        let of = |wanted: How| {
            let found = ways.iter().zip(&loaded).find(|((how, _), _)| *how == wanted);
            found.map(|(_, f)| Spread::of(f.iter().map(|x| x.0).collect()).median)
        };
        let rival = of(How::Heaptrack);
        for ((how, name), figures) in ways.iter().zip(&loaded) {
            let extra = Spread::of(figures.iter().map(|f| f.0).collect());
            let lost = Spread::of(figures.iter().map(|f| f.1).collect()).median;
            let (bar, met) = match (how, rival) {
                (How::Apply, _) => (format!("{BAR_APPLY_NS} ns"), verdict(extra.median <= BAR_APPLY_NS)),
                (How::Recorded, Some(rival)) => {
                    (format!("{:.0} ns", rival * share), verdict(extra.median <= rival * share))
                }
                _ => (String::new(), ""),
            };
            let lost = if *how == How::Recorded { format!("{:.1} %", lost * 100.0) } else { String::new() };
            println!(
                "| {threads} | {depth} | {stacks} | {name} | {:.1} | {:.1} | {:.1} | {:.1} | {lost} | {bar} | {met} |",
                base + extra.median,
                extra.min,
                extra.median,
                extra.max
            );
        }
        Ok(of(How::Recorded).unwrap_or_default())
    }

    /// Nanoseconds per pair (the slowest thread's) and share of events lost.
    fn measure(&self, how: How, case: Case) -> Result<(f64, f64), String> {
        let mut command = Command::new(&self.program);
        command.args([PAIRS, case.depth, case.threads, case.stacks].map(|n| n.to_string()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut channel = Channel::create(false).map_err(|e| e.to_string())?;
        match how {
            How::Plain => {}
            How::Apply => {
                command.env("LD_PRELOAD", crate::preload("apply")).env("NUMAMMA_POLICY", &self.policy);
            }
            How::Inert | How::Recorded | How::Thinned => {
                command.env("LD_PRELOAD", crate::preload("profile")).envs(channel.env());
            }
            How::Backtrace => {
                command.env("LD_PRELOAD", &self.backtrace);
            }
            How::Heaptrack => {
                command.env("LD_PRELOAD", HEAPTRACK).env("DUMP_HEAPTRACK_OUTPUT", "/dev/null");
            }
        }
        if how == How::Thinned {
            channel.set_thin(THINNED);
        }
        let recorded = matches!(how, How::Recorded | How::Thinned);
        if how == How::Inert {
            channel.set_target(std::process::id()); // somebody else
        }
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", self.program.display()))?;
        if recorded {
            channel.set_target(child.id());
        }
        let mut events = Vec::new();
        let mut drained = 0;
        while child.try_wait().map_err(|e| e.to_string())?.is_none() {
            if recorded {
                channel.drain(&mut events);
                drained += events.len() as u64;
                events.clear();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if recorded {
            channel.drain(&mut events);
            drained += events.len() as u64;
        }
        let output = child.wait_with_output().map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let slowest = text.lines().filter_map(|l| l.rsplit(' ').next()?.parse().ok()).fold(0.0, f64::max);
        if slowest == 0.0 {
            return Err(format!("{}: {}, no figures", self.program.display(), output.status));
        }
        if recorded && drained == 0 || how == How::Inert && channel.attached() {
            return Err("the profile preload did not record what it should, or recorded what it should not".into());
        }
        let lost = channel.lost();
        Ok((slowest, lost as f64 / (lost + drained).max(1) as f64))
    }
}
