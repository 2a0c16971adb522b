//! `numamma topology`: this machine.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use super::output;
use crate::launch::exit::{Failure, say, show_progress};
use crate::topology::hardware::Hardware;
use crate::topology::measure::measure;

/// Seconds per pair: long enough for several runs of each kind between two disturbances of a busy machine.
const DEFAULT_SECONDS: &str = "0.5";
/// Least and most seconds per pair.
const SECONDS: std::ops::RangeInclusive<f64> = 0.01..=60.0;

/// A measurement that takes longer than this is announced with its duration, seconds.
const LONG: f64 = 10.0;

/// Show NUMA nodes, CPUs, memory, caches and distances; measure latency and bandwidth between nodes
#[derive(Debug, clap::Args)]
pub struct Args {
    /// JSON instead of text; sizes in bytes, latencies in nanoseconds, bandwidths in bytes per second
    #[arg(long, conflicts_with = "xml")]
    json: bool,
    /// An hwloc file instead of text, for lstopo and for `numamma advise --target` on another machine
    #[arg(long)]
    xml: bool,
    /// Measure latency (pointer chase) and bandwidth (streams) from the CPUs of each node to the memory of each; the
    /// machine should do nothing else meanwhile
    #[arg(long)]
    measure: bool,
    /// Time for each pair of nodes
    #[arg(long, value_name = "S", default_value = DEFAULT_SECONDS, value_parser = seconds, requires = "measure")]
    seconds: f64,
    /// Write to FILE instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number of seconds, such as 0.2".to_owned())?;
    if SECONDS.contains(&value) { Ok(value) } else { Err(format!("must be {} to {}", SECONDS.start(), SECONDS.end())) }
}

/// Runs the command.
///
/// # Errors
/// When the machine cannot be measured or the output not be written.
pub fn run(args: Args) -> Result<u8, Failure> {
    let done = text(&args).and_then(|text| output::write(args.output.as_deref(), &text));
    done.map(|()| 0).map_err(|message| Failure::of_work(format!("topology: {message}")))
}

fn text(args: &Args) -> Result<String, String> {
    let mut machine = Hardware::this();
    if args.measure {
        let time = Duration::from_secs_f64(args.seconds);
        let pairs = machine.topology.nodes.len().pow(2);
        if pairs as f64 * args.seconds > LONG {
            let seconds = pairs as f64 * args.seconds;
            say(format!("measuring {pairs} pairs of nodes, about {seconds:.0} s; --seconds S shortens it"));
        }
        // Files and pipes need no progress.
        let watched = io::stderr().is_terminal();
        let mut progress = |from: u32, to: u32| {
            if watched {
                show_progress(&format!("measuring node {from} -> node {to}"));
            }
        };
        let measured = measure(&machine.topology, &machine.cpus, time, &mut progress);
        if watched {
            show_progress("");
        }
        machine.set_measured(measured.map_err(|e| format!("--measure: {e}"))?);
        if args.xml {
            machine.notes.iter().for_each(say);
        }
    }
    if args.xml {
        return Ok(machine.xml());
    }
    if args.json {
        return output::json("this machine", &machine);
    }
    Ok(crate::report::hardware::render(&machine))
}
