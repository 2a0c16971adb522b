//! What a run of hours costs: accesses of 256 threads appended and compacted as a recorder does, then `numamma report` and
//! `numamma advise` on the file.
//!
//! Bars: with 300 million samples of 5 accesses and a million allocations the memory is at most 1 GiB, the file 200 MB,
//! `report` takes 2 s and `advise` 10 s on 2 cores. `cargo bench --bench long_run`; `-- --millions N` takes fewer samples.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use numamma::profile::compact::{COMPACT_AT, Compaction};
use numamma::profile::file::Writer;
use numamma::profile::record::DEFAULT_MEMORY;
use numamma::profile::records::*;
use numamma::topology::Topology;

const MILLIONS: u64 = 300;
const PAGE: u64 = 4096;
const THREADS: u64 = 256;
const ARRAYS: u64 = 32;
/// Pages of an array: 64 MiB.
const PAGES: u64 = 16_384;
const YIELD: u64 = 5;
const RUN_NS: u64 = 36_000_000_000_000;
const ALLOCATIONS: u64 = 1_000_000;
/// Samples that the recorder has when it writes.
const PER_FLUSH: u64 = 50_000;

/// Knuth's MMIX generator: every run makes the same file.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn base(array: u64) -> u64 {
    0x7e00_0000_0000 + array * (PAGES + 16) * PAGE
}

fn heap(id: u64, site: u32, at: u64, pages: u64, life: (u64, Option<u64>)) -> Object {
    let instance = Instance { base: at, size: pages * PAGE, born_ns: life.0, died_ns: life.1, thread: Some(0) };
    Object { id: id as u32, kind: ObjectKind::Heap, site: Some(site), pid: 1, instance, ..Object::default() }
}

fn frame(offset: u64) -> Frame {
    Frame { module: 0, offset }
}

fn head() -> Vec<Record> {
    let thread = |id| Thread {
        id,
        pid: 1,
        tid: 1 + id,
        name: "app".into(),
        start_routine: (id > 0).then(|| frame(0x900)),
        creator: (id > 0).then_some(0),
        ..Thread::default()
    };
    vec![
        Record::Header(Header {
            program: Program { path: "/bin/app".into(), argv: vec!["app".into()], build_id: Some("ab".into()) },
            host: "node".into(),
            pid: 1,
            sampling: Sampling { sampler: "timer".into(), period_ns: 1_000_000, ..Sampling::default() },
            page_size: PAGE,
            thp: "madvise".into(),
            topology: Topology::uniform(8, 32),
            allocations: true,
            ..Header::default()
        }),
        Record::Modules(vec![Module { path: "/bin/app".into(), build_id: Some("ab".into()), ..Module::default() }]),
        Record::Threads((0..THREADS as u32).map(thread).collect()),
        Record::Sites((0..=ARRAYS).map(|i| CallSite { id: i as u32, frames: vec![frame(0x100 + 16 * i)] }).collect()),
        Record::Objects((0..ARRAYS).map(|a| heap(a, a as u32, base(a), PAGES, (1, None))).collect()),
    ]
}

/// Samples of all threads from a time on: each thread sweeps its part of every array, one access in twenty is
/// elsewhere.
fn accesses(dice: &mut Dice, from_ns: u64, step_ns: u64) -> Vec<Access> {
    let mut list = Vec::with_capacity((PER_FLUSH * YIELD) as usize);
    for i in 0..PER_FLUSH {
        let (thread, array, part) = (dice.below(THREADS), dice.below(ARRAYS), PAGES / THREADS);
        let page = if dice.below(20) == 0 { dice.below(PAGES) } else { thread * part + dice.below(part) };
        let (line, first) = (dice.below(64) * 64, dice.below(16));
        list.extend((0..YIELD).map(|n| Access {
            time_ns: from_ns + i * step_ns,
            thread: thread as u32,
            cpu: thread as u16,
            object: array as u32,
            addr: base(array) + page * PAGE + line,
            size: 8,
            write: n == 1,
            certainty: Certainty::Exact,
            cost_ns: if n == 0 { 1_000_000 } else { 0 },
            node: (page * 8 / PAGES) as u8,
            ip: frame(0x10_0000 + array * 0x1000 + (first + n) * 8),
        }));
    }
    list
}

/// Objects that a step allocates, touches and frees.
fn brief(from: u64, count: u64, now: u64) -> [Record; 2] {
    let at = |id: u64| 0x7000_0000_0000 + id % 64 * 16 * PAGE;
    let ids = || (from..from + count).map(|n| ARRAYS + n);
    let touch = |id| Touch { object: id as u32, addr: at(id), pages: 8, thread: 0, time_ns: now };
    let objects = ids().map(|id| heap(id, ARRAYS as u32, at(id), 8, (now, Some(now + 1000))));
    [Record::Objects(objects.collect()), Record::Touches(ids().map(touch).collect())]
}

/// Writes the file; returns the seconds that took and its largest size.
fn write(path: &Path, samples: u64) -> std::io::Result<(f64, u64)> {
    let (mut dice, mut made, mut largest) = (Dice(1), Duration::ZERO, 0);
    let flushes = samples.div_ceil(PER_FLUSH);
    let step_ns = RUN_NS / (flushes * PER_FLUSH);
    let mut writer = Writer::create(path)?;
    let mut compaction = Compaction::new(Some(COMPACT_AT), DEFAULT_MEMORY / 4);
    let start = Instant::now();
    head().iter().try_for_each(|r| writer.append(r))?;
    for n in 0..flushes {
        let generating = Instant::now();
        let now = n * PER_FLUSH * step_ns;
        let list = accesses(&mut dice, now, step_ns);
        let (from, until) = (ALLOCATIONS * n / flushes, ALLOCATIONS * (n + 1) / flushes);
        made += generating.elapsed();
        brief(from, until - from, now).iter().try_for_each(|r| writer.append(r))?;
        writer.append(&Record::Accesses(list))?;
        writer.append(&Record::Stats(Stats { duration_ns: now, samples, resolved: samples, ..Stats::default() }))?;
        compaction.step(path, &mut writer, now);
        // A recording takes hours for what is made here in seconds, so there a compaction has time.
        while compaction.is_running() {
            std::thread::sleep(Duration::from_millis(1));
            compaction.step(path, &mut writer, now);
        }
        largest = largest.max(std::fs::metadata(path)?.len());
    }
    compaction.cancel();
    writer.append(&Record::End(Ended::Exited(0)))?;
    Ok(((start.elapsed() - made).as_secs_f64(), largest))
}

/// Seconds of a command; none when it failed.
fn measured(args: &[&str]) -> Option<f64> {
    let start = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_numamma"))
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    child.wait().ok()?.success().then(|| start.elapsed().as_secs_f64())
}

/// Largest resident memory of this process so far, MiB.
fn peak_mib() -> f64 {
    // SAFETY: rusage is plain data for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid for the call.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    usage.ru_maxrss as f64 / 1024.0
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let given = args.iter().position(|a| a == "--millions").and_then(|i| args.get(i + 1)?.parse().ok());
    let samples = given.unwrap_or(MILLIONS) * 1_000_000;
    let path = std::env::temp_dir().join(format!("numamma-bench-long-{}.prof", std::process::id()));
    let name = path.display().to_string();
    let code = match write(&path, samples) {
        Err(e) => {
            eprintln!("{name}: {e}");
            ExitCode::FAILURE
        }
        Ok((seconds, largest)) => {
            let accesses = (samples * YIELD) as f64 / 1e6;
            println!(
                "{} million samples, {accesses:.0} million accesses: written in {seconds:.1} s ({:.1} million a second), \
                 {:.0} MiB at most; largest file {:.0} MB (bar 200), memory bar 1024 MiB",
                samples / 1_000_000,
                accesses / seconds,
                peak_mib(),
                largest as f64 / 1e6
            );
            for (command, bar) in [("report", 2.0), ("advise", 10.0)] {
                match measured(&[command, &name]) {
                    Some(seconds) => println!("{command}: {seconds:.2} s (bar {bar})"),
                    None => println!("{command}: failed"),
                }
            }
            ExitCode::SUCCESS
        }
    };
    let _ = std::fs::remove_file(&path);
    code
}
