//! Advice and predictions against the meter: programs profiled here, advised and predicted for the machine that the
//! meter models, and metered on it. Prints the table of docs/measurements.md:
//! `make bench-meter`. A measurement, which `make test-long` leaves out: it takes 20 minutes, and samples differ.
//!
//! Profiles come from the lab, where every instruction takes about as long as another, or from this machine, with the
//! waiting for its caches and memory. The threads of the metered runs are where the prediction has them: OpenMP binds
//! its own, the policy binds the others, in the run without placement, too.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use numamma_plan::check;
use serde_json::Value;

use crate::common::judge;
use crate::common::lab::{self, Lab};
use crate::common::meter::{Metered, Sum, named};
use crate::common::{NUMAMMA, Tracing, program, run, source};

const NODES: u64 = 4;
const CPUS: u64 = 2;
/// The meter's own defaults (`struct model` of meter.h): ns at distance 10, GB/s of a CPU.
const MEMORY_NS: u64 = 90;
const CPU_GBPS: f64 = 6.4;
/// Of the lab: distance 20.
const REMOTE: u64 = 2;
/// The bars: percent of the lines, of the speed-up, a rank correlation, and percent between two witnesses.
const LOCAL_BELOW_BEST: f64 = 3.0;
const FROM_EVEN: f64 = 5.0;
const PREDICTED: f64 = 5.0;
const SPEEDUP: f64 = 0.10;
const ORDER: f64 = 0.9;
const WITNESSES: f64 = 2.0;

/// A program of tests/programs.
struct Case {
    name: &'static str,
    compiler: &'static str,
    /// Counted while a thread is in it.
    function: &'static str,
    /// Arguments on this machine, in the lab, under the meter, and under the trace.
    here: &'static str,
    in_lab: &'static str,
    metered: &'static str,
    traced: &'static str,
    /// Its large objects are shared by all without slices: the controllers should be even.
    shared: bool,
}

const fn case(
    name: &'static str,
    compiler: &'static str,
    function: &'static str,
    arguments: [&'static str; 4],
) -> Case {
    let [here, in_lab, metered, traced] = arguments;
    Case { name, compiler, function, here, in_lab, metered, traced, shared: false }
}

/// With caches that are as small as their arrays had to be made for the emulator.
const SMALL: [Case; 7] = [
    case("tiles", "gfortran", "sweep.0._omp_fn.0", ["3000", "60", "4", "500"]),
    case("triangle", "gcc", "multiply", ["6000", "150", "8", "3000"]),
    Case { shared: true, ..case("hashtable", "g++", "count", ["1000 8", "40 8", "6 8", "150 8"]) },
    case("pipeline", "g++", "filter", ["10000 6", "200 6", "8 6", "1000 6"]),
    Case { shared: true, ..case("particles", "g++", "move", ["6000 8", "60 8", "8 8", "400 8"]) },
    case("wavefront", "gcc", "sweep", ["2000", "60", "6", "300"]),
    case("ten", "gcc", "step", ["1500", "60", "4", "300"]),
];
/// With the caches of the modelled Xeon.
const LARGE: [Case; 2] = [
    Case { shared: true, ..case("cluster", "gcc", "work", ["400 8", "30 8", "3 8", "60 8"]) },
    case("stencil", "gfortran", "step.0._omp_fn.0", ["300", "6", "2", "60"]),
];

/// Where the trace, which counts accesses, and the meter, which counts lines, see another mix: of objects with more and
/// with fewer accesses to a line, and of the pages where two tiles meet and those within one.
const ACCESSES_ARE_NO_LINES: [(&str, &str); 4] =
    [("tiles", "witnesses"), ("pipeline", "witnesses"), ("particles", "witnesses"), ("cluster", "witnesses")];

/// The meter's machine with caches of `l2` bytes a CPU and `llc` bytes a CPU of the last level, as hwloc writes it.
fn machine(l2: u64, llc: u64) -> String {
    let set = |first: u64, count: u64| format!("cpuset=\"0x{:08x}\"", ((1u64 << count) - 1) << first);
    let mut xml = String::from("<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\">");
    xml += "<info name=\"NumammaNumaBalancing\" value=\"0\"/>";
    for node in 0..NODES {
        let cpus = set(node * CPUS, CPUS);
        let size = llc * CPUS;
        let _ = write!(
            xml,
            "<object type=\"Package\" os_index=\"{node}\" {cpus} gp_index=\"{}\"><object type=\"NUMANode\" \
             os_index=\"{node}\" {cpus} gp_index=\"{}\" local_memory=\"536870912\"/><object type=\"L3Cache\" {cpus} \
             cache_size=\"{size}\">",
            100 + node,
            200 + node
        );
        for cpu in node * CPUS..(node + 1) * CPUS {
            let own = set(cpu, 1);
            let _ = write!(
                xml,
                "<object type=\"L2Cache\" {own} cache_size=\"{l2}\"><object type=\"Core\" os_index=\"{cpu}\" {own}>\
                 <object type=\"PU\" os_index=\"{cpu}\" {own}/></object></object>"
            );
        }
        xml += "</object></object>";
    }
    xml += "</object>";
    // hwloc's unit of bandwidth is MiB/s. The meter has no links that could be full.
    let bandwidth = (CPU_GBPS * CPUS as f64 * 1e9 / f64::from(1 << 20)) as u64;
    for (name, flags, near, far) in
        [("Bandwidth", 5, bandwidth, bandwidth), ("Latency", 6, MEMORY_NS, REMOTE * MEMORY_NS)]
    {
        let _ = write!(xml, "<memattr name=\"{name}\" flags=\"{flags}\">");
        for (from, to) in (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to))) {
            let _ = write!(
                xml,
                "<memattr_value target_obj_type=\"NUMANode\" target_obj_gp_index=\"{}\" value=\"{}\" \
                 initiator_obj_gp_index=\"{}\" initiator_obj_type=\"Package\"/>",
                200 + to,
                if from == to { near } else { far },
                100 + from
            );
        }
        xml += "</memattr>";
    }
    xml + "</topology>"
}

/// Profiles programs on this machine.
fn profile_here(cases: &[Case], dir: &Path) {
    for case in cases {
        let mut profile = Command::new(NUMAMMA);
        profile.args(["profile", "-q", "-F", "1000", "-o"]).arg(dir.join(format!("{}.prof", case.name)));
        profile.arg("--").arg(program(case.name)).args(case.here.split(' ')).env("OMP_NUM_THREADS", "8");
        run(&mut profile).success();
    }
}

/// Profiles programs in the lab. False where there is none.
fn profile_in_lab(cases: &[Case], dir: &Path) -> bool {
    let Some(lab) = Lab::still(NODES, CPUS) else { return false };
    let list = dir.join("list");
    let rows: String = cases.iter().map(|c| format!("{} {}\n", c.name, c.in_lab)).collect();
    std::fs::write(&list, rows).expect("a list is written");
    let lab = lab.options(&["--thp", "never", "--timeout", "1800"]).add(source("lab/bars/profile.sh")).add(list);
    let lab = cases.iter().fold(lab, |lab, case| lab.add(program(case.name)));
    let text = lab.run(&["./profile.sh"]).success().stdout;
    for section in text.split("=== ").skip(1) {
        let (name, hexadecimal) = section.split_once('\n').expect("a profile");
        let byte = |word| u8::from_str_radix(word, 16).expect("hexadecimal");
        let bytes: Vec<u8> = hexadecimal.split_whitespace().map(byte).collect();
        std::fs::write(dir.join(format!("{name}.prof")), bytes).expect("a profile is written");
    }
    true
}

/// The prediction for a profiled program; leaves its policy and the same without objects in `dir`.
fn predicted(case: &Case, dir: &Path, machine: &Path) -> Value {
    let prof = dir.join(format!("{}.prof", case.name));
    let command = |name: &str| {
        let mut command = Command::new(NUMAMMA);
        command.args([name, "-q"]).arg(&prof).arg("--target").arg(machine);
        command
    };
    let policy = run(&mut command("advise")).success().stdout;
    let bound = policy.split("[[object]]").next().expect("a policy");
    for (kind, text) in [("placed", policy.as_str()), ("first", bound)] {
        std::fs::write(dir.join(format!("{}.{kind}.toml", case.name)), text).expect("a policy is written");
    }
    let text = run(command("predict").arg("--json")).success().stdout;
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Meters all programs in one boot; what they printed.
fn metered(cases: &[Case], dir: &Path, options: &str) -> Option<(Vec<Metered>, String)> {
    let counts = dir.join("counts.json");
    let list = dir.join("list");
    let rows: String = cases.iter().map(|c| format!("{} {} {}\n", c.name, c.function, c.metered)).collect();
    std::fs::write(&list, rows).expect("a list is written");
    let mut lab = Lab::metered(NODES, CPUS, &counts)?.options(&["--thp", "never", "--timeout", "1800"]);
    if !options.is_empty() {
        lab = lab.options(&["--meter-options", options]);
    }
    lab = lab.add(source("lab/bars/run.sh")).add(list);
    for case in cases {
        lab = lab.add(program(case.name));
        lab = ["first", "placed"].iter().fold(lab, |lab, kind| lab.add(dir.join(format!("{}.{kind}.toml", case.name))));
    }
    let text = lab.run(&["./run.sh"]).success().stdout;
    assert!(!text.contains("not placed"), "{text}");
    Some((Metered::read(&counts), text))
}

/// What a trace of the program says of the advised placement, with the first touches of the profile, of objects of
/// `least` bytes or more: smaller ones stay in the caches.
fn traced(case: &Case, tracing: &Tracing, least: u64) -> Result<judge::Local, String> {
    let extension = match case.compiler {
        "gfortran" => "f90",
        "g++" => "cpp",
        _ => "c",
    };
    let source = format!("programs/{}.{extension}", case.name);
    let program = tracing.compile_for_counts(case.compiler, &source, case.name);
    let arguments: Vec<&str> = case.traced.split(' ').collect();
    let counted = tracing.record(&format!("{}.traced", case.name), &["--sampler", "trace"], &program, &arguments);
    let usual = tracing.read(&format!("{}.prof", case.name));
    let path = tracing.dir.join(format!("{}.placed.toml", case.name));
    let policy = check::parse(&std::fs::read_to_string(path).expect("a policy")).map_err(|e| e.to_string())?;
    judge::local(&counted, &usual, &policy, least)
}

/// Ranks of values; equal ones have the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |v: f64| values.iter().filter(|x| **x < v).count() as f64;
    let equal = |v: f64| values.iter().filter(|x| **x == v).count() as f64;
    values.iter().map(|v| below(*v) + (equal(*v) - 1.0) / 2.0).collect()
}

/// Spearman's rank correlation.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len() as f64;
    let squares: f64 = ranks(a).iter().zip(ranks(b)).map(|(x, y)| (x - y) * (x - y)).sum();
    1.0 - 6.0 * squares / (n * (n * n - 1.0))
}

/// Lines of the objects that a run printed.
fn lines_of_objects(run: &Metered, text: &str) -> HashMap<String, f64> {
    let marker = format!("=== {}\n", run.name);
    let own = text.split(&marker).nth(1).expect("a run").split("=== ").next().expect("its text");
    let row = |line: &str| {
        let words: Vec<&str> = line.strip_prefix("object ")?.split(' ').collect();
        let (start, size): (u64, u64) = (words[1].parse().ok()?, words[2].parse().ok()?);
        Some((words[0].to_owned(), run.range(start..start + size).lines as f64))
    };
    own.lines().filter_map(row).collect()
}

/// A row of the table, with the bars that it misses.
fn row(
    case: &Case,
    (runs, text): (&[Metered], &str),
    prediction: &Value,
    traced: &Result<judge::Local, String>,
) -> (String, Vec<&'static str>) {
    let (first, placed) = (named(runs, &format!("{} first", case.name)), named(runs, &format!("{} placed", case.name)));
    assert!(first.complete && placed.complete, "{}", case.name);
    let (unplaced, sum): (Sum, Sum) = (first.all(), placed.all());
    let policy = |name: &str| {
        let list = prediction["policies"].as_array().expect("policies");
        list.iter().find(|p| p["name"] == name).unwrap_or_else(|| panic!("no {name}"))
    };
    let percent = |share: f64| 100.0 * share;
    let shares = |p: &Value| ["local_share", "busiest_node_share"].map(|k| percent(p[k].as_f64().unwrap_or(0.0)));
    let (advised, touched) = (policy("advised"), policy("first-touch"));
    let said = shares(advised);
    let (local, busiest) = (percent(sum.local_share()), percent(sum.busiest()));
    let best = percent(unplaced.best_local_share());
    let speedup = first.time_ns / placed.time_ns;
    let time = |p: &Value| p["time"].as_f64().expect("a time");
    let said_speedup = time(touched) / time(advised);
    let even = 100.0 / NODES as f64;
    let mut missed = Vec::new();
    let mut bar = |name, holds: bool| missed.extend((!holds).then_some(name));
    if case.shared {
        bar("placed", busiest <= even + FROM_EVEN);
    } else {
        bar("placed", local >= best - LOCAL_BELOW_BEST);
    }
    bar("local", (said[0] - local).abs() <= PREDICTED);
    bar("busiest", (said[1] - busiest).abs() <= PREDICTED);
    bar("speed-up", (said_speedup / speedup - 1.0).abs() <= SPEEDUP);
    let mut out = format!(
        "| {} | {:.1} / {:.1} | {local:.1} / {busiest:.1} | {best:.1} | {:.1} / {:.1} | {speedup:.2} | {said_speedup:.2} |",
        case.name,
        percent(unplaced.local_share()),
        percent(unplaced.busiest()),
        said[0],
        said[1],
    );
    match traced {
        Ok(traced) => {
            let [first, placed, best] = [traced.first, traced.placed, traced.best].map(|n| percent(traced.share(n)));
            let _ = write!(out, " {first:.1} / {placed:.1} / {best:.1} |");
            let agree = |a: f64, b: f64| (a - b).abs() <= WITNESSES;
            bar("witnesses", agree(first, percent(unplaced.local_share())) && agree(placed, local));
        }
        Err(why) => {
            let _ = write!(out, " {why} |");
            bar("witnesses", false);
        }
    }
    let lines = lines_of_objects(first, text);
    let priced = prediction["objects"].as_array().expect("objects");
    // Those that the prediction lists.
    let pair = |(name, lines): (&String, &f64)| {
        let is_it = |o: &&Value| o["name"].as_str().is_some_and(|n| n.trim_end_matches('_') == name);
        Some((*lines, priced.iter().find(is_it)?["waiting"].as_f64()?))
    };
    let both: Vec<(f64, f64)> = lines.iter().filter_map(pair).collect();
    if case.name == "ten" {
        let (a, b): (Vec<f64>, Vec<f64>) = both.into_iter().unzip();
        let order = correlation(&a, &b);
        let _ = write!(out, " order of {} objects {order:.2}", a.len());
        bar("order", order >= ORDER);
    }
    (out, missed)
}

/// Prints the table of the profiles that `profile` leaves in a directory, and fails for a missed bar that is not among
/// `explained`: program and bar, each with its reason in docs/measurements.md.
fn bars(profile: impl Fn(&[Case], &Path) -> bool, explained: &[(&str, &str)]) {
    let mut unexplained = Vec::new();
    println!("| program | first touch | placed | best | predicted placed | metered speed-up | predicted | traced |");
    let (small, large) = ((64 << 10, 64 << 10, "l2=64K,llc=64K"), (1 << 20, 1408 << 10, ""));
    for (cases, (l2, llc, options)) in [(&SMALL[..], small), (&LARGE[..], large)] {
        let tracing = Tracing::new("lab-bars");
        let dir = &tracing.dir;
        let described = dir.join("machine.xml");
        std::fs::write(&described, machine(l2, llc)).expect("a machine is written");
        if !profile(cases, dir) {
            return;
        }
        let predictions: Vec<Value> = cases.iter().map(|case| predicted(case, dir, &described)).collect();
        let Some((runs, text)) = metered(cases, dir, options) else { return };
        for (case, prediction) in cases.iter().zip(&predictions) {
            let (line, missed) = row(case, (&runs, &text), prediction, &traced(case, &tracing, l2 + llc));
            println!("{line} {}", missed.iter().map(|m| format!("misses {m}; ")).collect::<String>());
            unexplained.extend(missed.into_iter().map(|m| (case.name, m)).filter(|m| !explained.contains(m)));
        }
    }
    assert!(unexplained.is_empty(), "missed: {unexplained:?}");
}

/// The bar of the speed-up, which follows from how long the profiled machine waits, not the meter's.
fn speedup(case: Case) -> (&'static str, &'static str) {
    (case.name, "speed-up")
}

/// Whether nobody asked for the measurement.
fn is_left_out() -> bool {
    let left_out = std::env::var_os("NUMAMMA_METER_BARS").is_none();
    if left_out {
        crate::common::skipped("make bench-meter measures this");
    }
    left_out
}

#[test]
#[ignore = "measurement: make bench-meter"]
fn bars_with_profiles_of_the_lab() {
    if is_left_out() {
        return;
    }
    // In an emulator no instruction waits: neither the shares of objects in the lines nor times follow from samples.
    let explained = [
        ("hashtable", "placed"),
        ("pipeline", "placed"),
        ("hashtable", "local"),
        ("pipeline", "local"),
        ("particles", "local"),
        ("cluster", "local"),
        ("pipeline", "busiest"),
        ("particles", "busiest"),
        ("triangle", "busiest"),
    ];
    bars(profile_in_lab, &[&explained[..], &ACCESSES_ARE_NO_LINES, &SMALL.map(speedup), &LARGE.map(speedup)].concat());
}

#[test]
#[ignore = "measurement: make bench-meter"]
fn bars_with_profiles_of_this_machine() {
    if is_left_out() {
        return;
    }
    // What this machine's prefetchers and last-level cache hide does not wait here: its lines are not known.
    let explained = [
        ("hashtable", "placed"),
        ("pipeline", "placed"),
        ("triangle", "local"),
        ("pipeline", "local"),
        ("particles", "local"),
        ("cluster", "local"),
        ("triangle", "busiest"),
        ("hashtable", "busiest"),
    ];
    if lab::available() {
        bars(
            |cases, dir| {
                profile_here(cases, dir);
                true
            },
            &[&explained[..], &ACCESSES_ARE_NO_LINES, &SMALL.map(speedup), &LARGE.map(speedup)].concat(),
        );
    }
}
