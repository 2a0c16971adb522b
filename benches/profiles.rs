//! How fast the profiles of a large MPI job become one answer: a thousand of 10 MB each, made here as a recorder would
//! write them, under `numamma advise` and `numamma report`.
//!
//! Bars: 60 s on 2 cores, 1 GiB resident.
//! `cargo bench --bench profiles`; the files are [`DIFFERENT`] ones under a thousand names, so that disk and time to
//! make them stay small. They are read from the page cache. `-- --check` makes a missed bar an error, `-- --profiles N`
//! takes fewer.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use numamma::profile::file::Writer;
use numamma::profile::records::*;
use numamma::topology::Topology;

const PROFILES: u32 = 1000;
const DIFFERENT: u32 = 16;
const BYTES: u64 = 10 << 20;
const SECONDS_BAR: f64 = 60.0;
const MIB_BAR: f64 = 1024.0;

const PAGE: u64 = 4096;
const THREADS: u64 = 4;
/// Arrays of the program, and pages of each: 256 MiB.
const ARRAYS: u64 = 16;
const PAGES: u64 = 4096;
/// Instructions that access each array.
const CODE: u64 = 24;
/// Small objects that were allocated at other places: a program has hundreds.
const OTHERS: u64 = 300;
const RUN_NS: u64 = 60_000_000_000;
/// Accesses of one sample.
const YIELD: u64 = 4;

/// Knuth's MMIX generator: every run makes the same files.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn frame(offset: u64) -> Frame {
    Frame { module: 0, offset }
}

fn base(array: u64, slide: u64) -> u64 {
    0x7e00_0000_0010 + slide + array * (PAGES + 16) * PAGE
}

/// The records before the accesses.
fn head(rank: u32, slide: u64) -> Vec<Record> {
    let heap = |id: u64| {
        let (at, size) = if id < ARRAYS {
            (base(id, slide), PAGES * PAGE)
        } else {
            (base(ARRAYS, slide) + (id - ARRAYS) * 4 * PAGE, 2 * PAGE)
        };
        Object {
            id: id as u32,
            kind: ObjectKind::Heap,
            site: Some(id as u32),
            pid: 1000 + rank,
            instance: Instance { base: at, size, born_ns: id + 1, died_ns: None, thread: Some(0) },
            ..Object::default()
        }
    };
    let thread = |id: u32| Thread {
        id,
        pid: 1000 + rank,
        tid: 1000 + rank + id,
        name: "app".into(),
        start_routine: (id > 0).then(|| frame(0x900)),
        creator: (id > 0).then_some(0),
        start_ns: u64::from(id) * 1000,
        samples: 60_000,
        ..Thread::default()
    };
    let touches = (0..ARRAYS).flat_map(|a| {
        let slice = PAGES / THREADS;
        (0..THREADS).map(move |t| Touch {
            object: a as u32,
            addr: base(a, slide) / PAGE * PAGE + t * slice * PAGE,
            pages: slice,
            thread: t as u32,
            time_ns: 1000,
        })
    });
    vec![
        Record::Header(Header {
            program: Program { path: "/bin/app".into(), argv: vec!["app".into()], build_id: Some("ab".into()) },
            host: format!("node{}", rank / 8),
            pid: 1000 + rank,
            sampling: Sampling { sampler: "timer".into(), period_ns: 1_000_000, ..Sampling::default() },
            page_size: PAGE,
            thp: "madvise".into(),
            topology: Topology::uniform(2, 16),
            allocations: true,
            ..Header::default()
        }),
        Record::Rank(rank),
        Record::Modules(vec![Module {
            id: 0,
            path: "/bin/app".into(),
            build_id: Some("ab".into()),
            read_only: Vec::new(),
        }]),
        Record::Threads((0..THREADS as u32).map(thread).collect()),
        Record::Sites(
            (0..ARRAYS + OTHERS)
                .map(|i| CallSite { id: i as u32, frames: vec![frame(0x100 + 0x10 * i), frame(0x80)] })
                .collect(),
        ),
        Record::Objects((0..ARRAYS + OTHERS).map(heap).collect()),
        Record::Touches(touches.collect()),
    ]
}

/// Accesses of consecutive samples of the four threads: each reads arrays in its quarter, one in twenty elsewhere.
fn accesses(dice: &mut Dice, from_ns: u64, samples: u64, step_ns: u64, slide: u64) -> Vec<Access> {
    let mut list = Vec::new();
    for i in 0..samples {
        let (thread, array) = (i % THREADS, dice.below(ARRAYS));
        let slice = PAGES / THREADS;
        let stray = dice.below(20) == 0;
        let page = if stray { dice.below(PAGES) } else { thread * slice + dice.below(slice) };
        let (line, first) = (dice.below(64) * 64, dice.below(CODE - YIELD));
        for n in 0..YIELD {
            let object = if n == YIELD - 1 && dice.below(8) == 0 { ARRAYS + dice.below(OTHERS) } else { array };
            let addr = match object {
                o if o < ARRAYS => base(o, slide) / PAGE * PAGE + page * PAGE + line + 16 * n,
                o => base(ARRAYS, slide) + (o - ARRAYS) * 4 * PAGE + line,
            };
            list.push(Access {
                time_ns: from_ns + i * step_ns,
                thread: thread as u32,
                cpu: (thread * 4 + dice.below(4)) as u16,
                object: object as u32,
                addr,
                size: 8,
                write: n == 1,
                certainty: Certainty::Exact,
                cost_ns: if n == 0 { 1_000_000 } else { 0 },
                node: dice.below(2) as u8,
                ip: frame(0x10_0000 + array * 0x1000 + (first + n) * 8),
            });
        }
    }
    list
}

/// The records after the accesses.
fn tail(samples: u64) -> Vec<Record> {
    let code = || (0..ARRAYS).flat_map(|a| (0..CODE).map(move |c| (a, frame(0x10_0000 + a * 0x1000 + c * 8))));
    let location = |name: String, line| vec![Location { function: Some(name), file: Some("app.c".into()), line }];
    let sites = (0..ARRAYS + OTHERS).map(|i| Symbol {
        frame: frame(0x100 + 0x10 * i),
        locations: location(format!("make_{i}"), Some(i as u32 + 10)),
    });
    let lines = code().map(|(a, f)| Symbol { frame: f, locations: location(format!("sweep_{a}"), Some(500)) });
    let main = Symbol { frame: frame(0x80), locations: location("main".into(), Some(5)) };
    let unit = |(a, f): (u64, Frame)| {
        let function = 0x10_0000 + a * 0x1000;
        CodeUnit { frame: f, function, nest: function + (f.offset - function) / 64 * 64 }
    };
    vec![
        Record::Symbols(sites.chain(lines).chain([main]).collect()),
        Record::Code(code().map(unit).collect()),
        Record::Stats(Stats {
            duration_ns: RUN_NS,
            cpu_ns: THREADS * RUN_NS,
            samples,
            resolved: samples,
            achieved: 1.0,
            ..Stats::default()
        }),
        Record::End(Ended::Exited(0)),
    ]
}

/// Writes a profile of [`BYTES`]: accesses in chunks of about a second, as many as it takes. The time of a run is
/// filled by their number, which a first file tells.
fn write(path: &Path, rank: u32, chunks: Option<u64>) -> std::io::Result<u64> {
    const SAMPLES: u64 = 4000;
    let (mut dice, slide) = (Dice(u64::from(rank) + 1), u64::from(rank) * 7 * PAGE);
    let mut writer = Writer::create(path)?;
    head(rank, slide).iter().try_for_each(|r| writer.append(r))?;
    let mut written = 0;
    while chunks.map_or_else(|| std::fs::metadata(path).is_ok_and(|m| m.len() < BYTES), |n| written < n) {
        let step_ns = RUN_NS / (chunks.unwrap_or(60) * SAMPLES);
        let list = accesses(&mut dice, written * SAMPLES * step_ns, SAMPLES, step_ns, slide);
        writer.append(&Record::Accesses(list))?;
        written += 1;
    }
    tail(written * SAMPLES).iter().try_for_each(|r| writer.append(r))?;
    Ok(written)
}

/// Makes the directory of profiles.
fn make(dir: &Path, profiles: u32) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let name = |i: u32| dir.join(format!("numamma.{i}.prof"));
    let first = write(&name(0), 0, None)?;
    (0..DIFFERENT.min(profiles)).try_for_each(|i| write(&name(i), i, Some(first)).map(drop))?;
    let _ = std::fs::remove_file(dir.join("numamma.0.prof.old"));
    (DIFFERENT..profiles).try_for_each(|i| std::fs::hard_link(name(i % DIFFERENT), name(i)))
}

/// Seconds and peak MiB of a command; none when it failed.
fn measured(args: &[&str]) -> Option<(f64, f64)> {
    let start = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_numamma")).args(args).stdout(Stdio::null()).spawn().ok()?;
    let mut status = 0;
    // SAFETY: rusage is plain data for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call, and the child is not waited for elsewhere.
    let pid = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    let seconds = start.elapsed().as_secs_f64();
    if pid != child.id() as i32 {
        let _ = child.wait();
        return None;
    }
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)).filter(|code| *code == 0)?;
    Some((seconds, usage.ru_maxrss as f64 / 1024.0))
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let given = args.iter().position(|a| a == "--profiles").and_then(|i| args.get(i + 1)?.parse().ok());
    let profiles: u32 = given.unwrap_or(PROFILES);
    let dir = std::env::temp_dir().join(format!("numamma-bench-profiles-{}", std::process::id()));
    if let Err(e) = make(&dir, profiles) {
        eprintln!("{}: {e}", dir.display());
        let _ = std::fs::remove_dir_all(&dir);
        return ExitCode::FAILURE;
    }
    let each = std::fs::metadata(dir.join("numamma.0.prof")).map_or(0, |m| m.len()) as f64 / f64::from(1 << 20);
    println!("{profiles} profiles of {each:.1} MiB; bars: {SECONDS_BAR:.0} s, {MIB_BAR:.0} MiB");
    let path = dir.display().to_string();
    let mut missed = false;
    for command in [&["advise", "-q", "--nodes", "4"][..], &["report", "--json"], &["report", "--by", "host"]] {
        match measured(&[command, &[path.as_str()]].concat()) {
            Some((seconds, mib)) => {
                missed |= seconds > SECONDS_BAR || mib > MIB_BAR;
                println!("  {:<24} {seconds:6.1} s  {mib:6.0} MiB", command.join(" "));
            }
            None => {
                missed = true;
                println!("  {:<24} failed", command.join(" "));
            }
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
    ExitCode::from(u8::from(missed && args.iter().any(|a| a == "--check")))
}
