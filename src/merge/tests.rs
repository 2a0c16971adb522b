//! Profiles of one program, written here: what is the same in several processes, and which processes differ.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::detect::{PatternKind, classify_all, roles};
use crate::profile::file::Writer;
use crate::profile::records::*;
use crate::topology::Topology;

const PAGE: u64 = 4096;
const PAGES: u64 = 256;
const THREADS: u32 = 4;

/// A directory that is removed with its value.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("numamma-merge-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a scratch directory");
        Dir(dir)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How a process uses the array `grid`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Grid {
    /// A quarter for each thread.
    Slices,
    /// All threads use all of it.
    Evenly,
}

/// A process.
#[derive(Debug, Clone, Copy)]
struct Run {
    rank: Option<u32>,
    /// Accesses to `grid`, each a sample.
    samples: u32,
    grid: Grid,
    /// Accesses to an array that only some processes use.
    extra: u32,
    /// Ids and addresses of another process: modules in another order, threads recorded in another, another base.
    turned: bool,
    build: &'static str,
    /// CPUs of its machine.
    cpus: u32,
    seed: u64,
}

const USUAL: Run =
    Run { rank: None, samples: 4000, grid: Grid::Slices, extra: 0, turned: false, build: "ab", cpus: 4, seed: 1 };

/// Knuth's MMIX generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Writes the profile of a process: main and three workers, `grid` allocated by main, `common` a variable.
fn write(path: &Path, run: Run) {
    let mut writer = Writer::create(path).expect("the scratch directory is writable");
    records(run).iter().for_each(|r| writer.append(r).expect("the disk has room"));
}

fn records(run: Run) -> Vec<Record> {
    let (app, libc): (ModuleId, ModuleId) = if run.turned { (1, 0) } else { (0, 1) };
    let module = |id, path: &str, build: &str| Module {
        id,
        path: path.into(),
        build_id: Some(build.into()),
        read_only: Vec::new(),
    };
    let frame = |offset| Frame { module: app, offset };
    let base = if run.turned { 0x7f11_0000_0010 } else { 0x7e00_0000_0010 };
    let pid = if run.turned { 777 } else { 500 };
    let heap = |id, site, at| Object {
        id,
        kind: ObjectKind::Heap,
        site: Some(site),
        pid,
        instance: Instance { base: at, size: PAGES * PAGE, born_ns: 5, died_ns: None, thread: Some(0) },
        ..Object::default()
    };
    let common = Object {
        id: 2,
        kind: ObjectKind::Global,
        name: "common".into(),
        module: Some(app),
        vaddr: 0x4000,
        pid,
        instance: Instance { base: base + 0x4000_0000 - 0x10, size: 16 * PAGE, ..Instance::default() },
        ..Object::default()
    };
    let thread = |id: u32| Thread {
        id,
        pid,
        tid: pid + id,
        name: "app".into(),
        start_routine: (id > 0).then(|| frame(0x900)),
        creator: (id > 0).then_some(0),
        start_ns: u64::from(id),
        ..Thread::default()
    };
    let mut out = vec![
        Record::Header(Header {
            program: Program { path: "/bin/app".into(), argv: vec!["app".into()], build_id: Some(run.build.into()) },
            host: "here".into(),
            pid,
            sampling: Sampling { sampler: "timer".into(), period_ns: 1000, ..Sampling::default() },
            page_size: PAGE,
            topology: Topology::uniform(1, run.cpus),
            allocations: true,
            ..Header::default()
        }),
        Record::Modules(vec![module(app, "/bin/app", run.build), module(libc, "/lib/libc.so.6", "cc")]),
        Record::Threads((0..THREADS).map(thread).collect()),
        Record::Sites(vec![
            CallSite { id: 0, frames: vec![frame(0x100), frame(0x200)] },
            CallSite { id: 1, frames: vec![frame(0x110), frame(0x200)] },
        ]),
        Record::Objects(vec![heap(0, 0, base), heap(1, 1, base + 0x1000_0000), common]),
    ];
    out.extend(run.rank.map(Record::Rank));
    out.push(Record::Accesses(accesses(run, base, app)));
    let location = |name: &str| vec![Location { function: Some(name.into()), file: None, line: None }];
    let symbol = |offset, name| Symbol { frame: frame(offset), locations: location(name) };
    out.push(Record::Symbols(vec![symbol(0x100, "make_grid"), symbol(0x110, "make_extra"), symbol(0x200, "main")]));
    out.push(Record::Stats(Stats {
        duration_ns: 1 << 20,
        cpu_ns: 4 << 20,
        samples: u64::from(run.samples),
        achieved: 1.0,
        ..Stats::default()
    }));
    out.push(Record::End(Ended::Exited(0)));
    out
}

fn accesses(run: Run, base: u64, app: ModuleId) -> Vec<Access> {
    let mut dice = Dice(run.seed);
    let all = u64::from(run.samples + run.samples / 4 + run.extra);
    let mut list = Vec::new();
    for i in 0..all {
        let thread = (i % u64::from(THREADS)) as u32;
        let (object, page) = match i {
            i if i < u64::from(run.samples) => {
                let slice = PAGES / u64::from(THREADS);
                let page = match run.grid {
                    Grid::Slices => u64::from(thread) * slice + dice.below(slice),
                    Grid::Evenly => dice.below(PAGES),
                };
                (0, page)
            }
            i if i < u64::from(run.samples + run.samples / 4) => (2, dice.below(16)),
            _ => (1, dice.below(PAGES)),
        };
        let addr = page * PAGE + [base, base + 0x1000_0000, base + 0x4000_0000 - 0x10][object as usize] + 0x20;
        list.push(Access {
            time_ns: dice.below(1 << 20),
            thread,
            cpu: 0,
            object,
            addr,
            size: 8,
            write: i % 2 == 0,
            certainty: Certainty::Exact,
            cost_ns: 1000,
            node: NODE_UNKNOWN,
            ip: Frame { module: app, offset: 0x1000 },
        });
    }
    list.sort_by_key(|a| a.time_ns);
    list
}

fn loaded(dir: &Dir, runs: &[Run]) -> Many {
    let files: Vec<PathBuf> = (0..runs.len()).map(|i| dir.file(&format!("r{i}.prof"))).collect();
    files.iter().zip(runs).for_each(|(file, run)| write(file, *run));
    load(&files).expect("they are of one program")
}

fn verdict(summary: &Summary, name: &str) -> crate::detect::Pattern {
    let at = summary.entries.iter().position(|e| e.name.contains(name)).unwrap_or_else(|| panic!("no {name}"));
    classify_all(summary)[at].clone()
}

/// The same program with other ids and addresses in each process.
#[test]
fn objects_and_threads_of_several_processes_are_the_same() {
    let dir = Dir::new();
    let one = loaded(&dir, &[USUAL]);
    let two = loaded(&dir, &[USUAL, Run { turned: true, ..USUAL }]);
    assert_eq!(two.whole.entries.len(), one.whole.entries.len(), "{:?}", names(&two.whole));
    assert_eq!(names(&two.whole), names(&one.whole));
    assert_eq!((two.whole.threads.len(), roles(&two.whole).workers), (4, 4));
    assert_eq!((two.whole.modules.len(), two.whole.profiles), (2, 2));
    // The same samples twice: the same cells, with twice the counters.
    for (a, b) in one.whole.entries.iter().zip(&two.whole.entries) {
        assert_eq!((a.cells.len(), 2 * a.total.accesses()), (b.cells.len(), b.total.accesses()), "{}", a.name);
        for (x, y) in a.cells.iter().zip(&b.cells) {
            assert_eq!((x.instance, x.page, x.thread, x.slot), (y.instance, y.page, y.thread, y.slot));
            assert_eq!(2 * x.counters.cost_ns, y.counters.cost_ns);
        }
    }
    assert_eq!(two.whole.total().cost_ns, 2 * one.whole.total().cost_ns);
    assert!(two.groups.is_empty() && two.outliers().is_empty());
}

fn names(summary: &Summary) -> Vec<&str> {
    summary.entries.iter().map(|e| e.name.as_str()).collect()
}

/// Eight ranks of which none shows its slices alone.
#[test]
fn many_ranks_with_few_samples_show_what_one_does_not() {
    let dir = Dir::new();
    let run = |rank| Run { rank: Some(rank), samples: 8, seed: u64::from(rank) + 7, turned: rank % 2 == 1, ..USUAL };
    assert_ne!(verdict(&loaded(&dir, &[run(0)]).whole, "grid").kind, PatternKind::Block);
    let many = loaded(&dir, &(0..8).map(run).collect::<Vec<_>>());
    let pattern = verdict(&many.whole, "grid");
    assert_eq!(pattern.kind, PatternKind::Block, "{}", pattern.evidence);
    assert_eq!(pattern.slices.len(), 4);
    assert!(many.groups.is_empty() && many.outliers().is_empty(), "{:?}", many.outliers());
}

#[test]
fn three_runs_are_surer_than_one() {
    let dir = Dir::new();
    let run = |seed| Run { samples: 60, seed, ..USUAL };
    let one = verdict(&loaded(&dir, &[run(3)]).whole, "grid");
    let three = verdict(&loaded(&dir, &[run(3), run(4), run(5)]).whole, "grid");
    assert!(three.kind == PatternKind::Block && three.figures.samples > 2.0 * one.figures.samples, "{three:?}");
    assert!(one.kind != three.kind || three.confidence > one.confidence, "{} {}", one.confidence, three.confidence);
}

#[test]
fn a_rank_that_uses_an_object_otherwise_is_a_group_of_its_own() {
    let dir = Dir::new();
    let run = |rank| Run { rank: Some(rank), samples: 2000, seed: u64::from(rank) + 1, ..USUAL };
    let mut runs: Vec<Run> = (0..6).map(run).collect();
    runs[2].grid = Grid::Evenly;
    runs[4].extra = 2000;
    let many = loaded(&dir, &runs);
    assert_eq!(many.ranks().expect("all have ranks"), [vec![0, 1, 3, 5], vec![2], vec![4]]);
    let kinds: Vec<PatternKind> = many.groups.iter().map(|g| verdict(&g.summary, "grid").kind).collect();
    assert_eq!(kinds, [PatternKind::Block, PatternKind::Random, PatternKind::Block]);
    let outliers = many.outliers();
    let found = |member, name: &str| {
        outliers.iter().find(|o| o.member == member && many.objects[o.object as usize].name.contains(name))
    };
    assert!(matches!(found(2, "grid").expect("it differs").difference, Difference::Pattern(p) if p > 0.5));
    assert!(matches!(found(4, "extra").expect("only there").difference, Difference::Share(own, 0.0) if own > 0.3));
    assert!(outliers.iter().all(|o| o.member == 2 || o.member == 4), "{outliers:?}");
    assert_eq!(many.whole.profiles, 6);
    assert_eq!(many.whole.total().cost_ns, many.groups.iter().map(|g| g.summary.total().cost_ns).sum::<u64>());
}

/// With more ways than groups there is no usual way, and all are one.
#[test]
fn processes_of_many_kinds_are_one_group() {
    let dir = Dir::new();
    let run = |rank: u32| Run { rank: Some(rank), samples: 1000, extra: 40 * 4u32.pow(rank), ..USUAL };
    let many = loaded(&dir, &(0..6).map(run).collect::<Vec<_>>());
    assert!(many.unlike && many.groups.is_empty() && many.ranks().is_none());
    assert_eq!(many.whole.profiles, 6);
}

#[test]
fn a_rank_that_waits_longer_is_named() {
    let dir = Dir::new();
    let run = |rank| Run { rank: Some(rank), samples: if rank == 3 { 9000 } else { 2000 }, ..USUAL };
    let many = loaded(&dir, &(0..5).map(run).collect::<Vec<_>>());
    let outliers = many.outliers();
    assert!(!outliers.is_empty() && outliers.iter().all(|o| o.member == 3), "{outliers:?}");
    assert!(outliers.iter().all(|o| matches!(o.difference, Difference::Cost(own, usual) if own > 4.0 * usual)));
    assert!(many.groups.is_empty(), "it may be placed like the others");
}

#[test]
fn other_programs_and_broken_files_are_named_and_left_out() {
    let dir = Dir::new();
    for rank in 0..3 {
        write(&dir.file(&format!("app.{rank}.prof")), Run { rank: Some(rank), ..USUAL });
    }
    write(&dir.file("app.10.prof"), Run { build: "other", ..USUAL });
    std::fs::write(dir.file("broken.prof"), "no profile").unwrap();
    std::fs::write(dir.file("notes.txt"), "not looked at").unwrap();
    let names = [dir.0.clone(), dir.file("app.1.prof"), dir.file("missing.prof")];
    let many = load(&names).expect("three are left");
    assert_eq!(many.members.iter().map(|m| m.rank).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
    let why: Vec<&str> = many.left_out.iter().map(|l| l.why.as_str()).collect();
    assert_eq!(why.len(), 3, "{why:?}");
    for (file, reason) in [("app.10.prof", "build-id other"), ("broken.prof", "magic"), ("missing.prof", "no such")] {
        assert!(why.iter().any(|w| w.contains(file) && w.contains(reason)), "{file}: {why:?}");
    }
    std::fs::remove_dir_all(&dir.0).unwrap();
    std::fs::create_dir_all(&dir.0).unwrap();
    let nothing = load(std::slice::from_ref(&dir.0)).expect_err("the directory is empty");
    assert!(nothing[0].why.contains(".prof"), "{nothing:?}");
}

#[test]
fn profiles_of_other_machines_are_named_and_left_out() {
    let dir = Dir::new();
    let run = |cpus| Run { cpus, ..USUAL };
    let many = loaded(&dir, &[run(8), run(4), run(4)]);
    let files: Vec<&Path> = many.members.iter().map(|m| m.file.as_path()).collect();
    assert_eq!(files, [dir.file("r1.prof"), dir.file("r2.prof")]);
    let [LeftOut { why }] = &many.left_out[..] else { panic!("{:?}", many.left_out) };
    assert!(why.contains("r0.prof: recorded on here (NUMA nodes: 1, CPUs: 8"), "{why}");
    assert!(why.contains("r1.prof on here (NUMA nodes: 1, CPUs: 4") && why.contains("--target"), "{why}");
}

/// What is said of one profile names it, what differs in numbers only is one line.
#[test]
fn notes_name_the_profiles_that_they_are_about() {
    let dir = Dir::new();
    let files: Vec<PathBuf> = (0..6).map(|rank| dir.file(&format!("r{rank}.prof"))).collect();
    for (rank, file) in (0..).zip(&files) {
        let mut all = records(Run { rank: Some(rank), ..USUAL });
        match rank {
            2 => drop(all.pop()),
            3 => *all.last_mut().expect("an end") = Record::End(Ended::Signalled(9)),
            _ => {}
        }
        let of_file = format!("{}: read twice", file.display());
        all.push(Record::Notes(vec![of_file, "seen everywhere".into(), format!("{} events were lost", 10 + rank)]));
        let mut writer = Writer::create(file).expect("the scratch directory is writable");
        all.iter().for_each(|r| writer.append(r).expect("the disk has room"));
    }
    let notes = load(&files).expect("all can be read").whole.notes;
    let of = |text: &str| notes.iter().find(|n| n.contains(text)).unwrap_or_else(|| panic!("{text}: {notes:?}"));
    assert!(of("no end record").starts_with(&format!("{} (rank 2): the recording", files[2].display())));
    assert!(of("killed by signal 9").starts_with(&format!("{} (rank 3): ", files[3].display())));
    assert_eq!(of("seen everywhere"), "seen everywhere");
    assert_eq!(of("were lost"), "all 6 profiles; the first of them: 10 events were lost");
    assert_eq!(of("read twice"), "read twice", "without the name of one file");
    assert_eq!(notes.len(), 5, "{notes:?}");
}

/// Threads of C++ without debug information are told apart by what they run, in every process.
#[test]
fn threads_of_one_call_are_told_apart_by_what_they_run() {
    let dir = Dir::new();
    let runs = [USUAL, Run { turned: true, ..USUAL }];
    let files: Vec<PathBuf> = (0..2).map(|i| dir.file(&format!("r{i}.prof"))).collect();
    for (file, run) in files.iter().zip(runs) {
        let (app, libc) = if run.turned { (1, 0) } else { (0, 1) };
        let mut all = records(run);
        for record in &mut all {
            let Record::Threads(threads) = record else { continue };
            for t in threads.iter_mut().filter(|t| t.id > 0) {
                t.start_routine = Some(Frame { module: libc, offset: 0x900 });
                t.created_at = vec![Frame { module: app, offset: 0x300 }];
            }
        }
        let class = |thread: u32| Frame { module: app, offset: 0x5000 + 0x40 * u64::from(thread % 2) };
        // The other process creates them in another order.
        let of = |thread: u32| if run.turned { thread + 1 } else { thread };
        let tasks = |thread| ThreadTask { thread, task: Task { class: class(of(thread)), function: None } };
        all.insert(3, Record::ThreadTasks((1..THREADS).map(tasks).collect()));
        let waits = |thread| ThreadWaits { thread, waits: Waits { all: 5, for_threads: 4, ..Waits::default() } };
        all.insert(4, Record::ThreadWaits((0..THREADS).map(waits).collect()));
        let mut writer = Writer::create(file).expect("the scratch directory is writable");
        all.iter().for_each(|r| writer.append(r).expect("the disk has room"));
    }
    // Two threads of one kind and one of the other in the first process, one and two in the second.
    let many = load(&files).expect("they are of one program");
    let mut kinds: Vec<_> = many.whole.threads.iter().filter_map(|t| Some(t.task?.class.offset)).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [0x5000, 0x5000, 0x5040, 0x5040], "{:?}", many.whole.threads);
    let waits = |of: fn(&Waits) -> u64| many.whole.threads.iter().filter_map(|t| t.waits.as_ref()).map(of).sum::<u64>();
    assert_eq!((waits(|w| w.all), waits(|w| w.for_threads)), (2 * 5 * 4, 2 * 4 * 4), "{:?}", many.whole.threads);
}

/// What is left of the cells when there are too many is an even part of all threads, pages and times.
#[test]
fn thinning_prefers_no_thread_and_no_page() {
    let thinning = cells::Thinning { level: 3 };
    let mut kept = [[0u32; 4]; 4];
    for n in 0..1 << 18 {
        let cell = crate::profile::summary::Cell {
            instance: 0,
            page: n >> 8,
            thread: n >> 6 & 3,
            slot: (n & 63) as u16,
            counters: Default::default(),
        };
        kept[cell.thread as usize][(cell.page >> 8) as usize % 4] += u32::from(thinning.keeps(1, &cell));
    }
    let mean = f64::from(1 << 18) / 8.0 / 16.0;
    assert!(kept.iter().flatten().all(|n| (f64::from(*n) / mean - 1.0).abs() < 0.15), "{kept:?} {mean}");
}

/// Damaged profiles, each twice: sums of them are sums of anything.
#[test]
fn damaged_profiles_never_panic() {
    crate::profile::summary::tests::forged_summaries(|summary| {
        let mut builder = groups::Builder::default();
        builder.add("a".into(), summary.clone());
        builder.add("b".into(), summary.clone());
        let many = builder.finish(Vec::new()).expect("two profiles");
        assert_eq!(many.whole.profiles, 2);
        let sum = many.whole.total().accesses();
        assert!(sum <= 2 * summary.total().accesses(), "{sum}");
        many.outliers();
    });
}
