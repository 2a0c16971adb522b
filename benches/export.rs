//! How fast a profile becomes a table: the tallies of 8 objects, 5 million rows as a run of hours has, as Parquet and
//! as CSV.
//!
//! Bar: 5 million rows a second of Parquet, by the CPU time of this process.
//! `cargo bench --bench export`; the files go to the temporary directory of the build. `-- --check` makes a missed bar an
//! error, `-- --rows N` takes fewer.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;

use numamma::profile::records::{Header, Instance, ObjectKind, Stats, Thread};
use numamma::profile::summary::{CallStacks, Cell, Counters, Entry, Summary, TIME_SLOTS, TouchRun};
use numamma::report::export::{Files, Format, Source};
use numamma::report::{AccessFilter, Options, Sort, View};

const ROWS: u64 = 5_000_000;
const BAR: f64 = 5e6;
const OBJECTS: u64 = 8;
const THREADS: u64 = 64;
/// Slots in which a thread accesses a page, of [`TIME_SLOTS`].
const SLOTS: u64 = 8;

/// CPU time of this process, seconds.
fn cpu_seconds() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec to the pointer, which is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// An object of which each page is used by one thread most, and by another now and then.
fn entry(id: u64, rows: u64) -> Entry {
    let cell = |i: u64| {
        let (page, turn) = (i / SLOTS, i % SLOTS);
        let by_other = page.is_multiple_of(5) && turn == 3;
        let counters = Counters {
            reads: 1 + ((i * 2_654_435_761) >> 7) % 13,
            writes: i % 3,
            remote: u64::from(by_other),
            placed: 1 + i % 3,
            cost_ns: 1_000_000 * (((i * 40_503) >> 3) % 5) + ((i * 2_654_435_761) >> 9) % 1_000_000,
        };
        let thread = (page * THREADS / (rows / SLOTS + 1) + u64::from(by_other)) % THREADS;
        let slot = turn * u64::from(TIME_SLOTS) / SLOTS + page % SLOTS;
        Cell { instance: 0, page: page as u32, thread: thread as u32, slot: slot as u16, counters }
    };
    let cells: Vec<Cell> = (0..rows).map(cell).collect();
    let mut total = Counters::default();
    cells.iter().for_each(|c| total.add(&c.counters));
    Entry {
        id: id as u32,
        kind: ObjectKind::Heap,
        name: format!("field_{id} solver.f90:{id}"),
        size: rows / SLOTS * 4096,
        instances: 1,
        seen: vec![Instance::default()],
        touches: vec![TouchRun { instance: 0, page: 0, pages: u32::MAX, thread: 0, time_ns: 0 }],
        total,
        cells,
        ..Entry::default()
    }
}

fn summary(rows: u64) -> Summary {
    Summary {
        header: Header { page_size: 4096, ..Header::default() },
        modules: Vec::new(),
        threads: (0..THREADS as u32).map(|id| Thread { id, ..Thread::default() }).collect(),
        symbols: HashMap::new(),
        stacks: CallStacks::default(),
        entries: (0..OBJECTS).map(|id| entry(id, rows / OBJECTS)).collect(),
        stays: Vec::new(),
        spinning: Default::default(),
        shared_lines: Vec::new(),
        stats: Stats { duration_ns: 3_600_000_000_000, ..Stats::default() },
        ending: None,
        rank: Some(3),
        profiles: 1,
        notes: Vec::new(),
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1)?.parse().ok());
    let rows = value("--rows").unwrap_or(ROWS) / OBJECTS * OBJECTS;
    let summary = summary(rows);
    let options = Options {
        sort: Sort::Cost,
        top: None,
        access: AccessFilter::All,
        width: 0,
        height: 0,
        color: false,
        profile: None,
    };
    let view = View::new(&summary, &[], &options);
    let source = Source { file: "job.3.prof".into(), view: &view };
    let mut kept = true;
    for (format, ending, bar) in [(Format::Parquet, "parquet", Some(BAR)), (Format::Csv, "csv", None)] {
        let path = |table: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{table}.{ending}"));
        let start = cpu_seconds();
        let mut files =
            Files::begin(format, |table| File::create(path(table)).map(BufWriter::new)).expect("a directory");
        files.add(&source).and_then(|()| files.finish()).expect("the disk has room");
        let rate = rows as f64 / (cpu_seconds() - start);
        let bytes = path("tallies").metadata().map_or(0, |m| m.len()) as f64 / rows as f64;
        let bar_words = bar.map_or(String::new(), |bar| format!(" (bar {:.1})", bar / 1e6));
        println!("{ending}: {:.2} million rows/s of CPU time{bar_words}, {bytes:.1} bytes a row", rate / 1e6);
        kept &= bar.is_none_or(|bar| rate >= bar);
        for table in numamma::report::export::schema::TABLES {
            let _ = std::fs::remove_file(path(table.name));
        }
    }
    if args.iter().any(|a| a == "--check") && !kept { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
