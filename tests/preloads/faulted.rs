//! The `fault` sampler on programs whose uses of pages are known by construction, and that must not notice it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use numamma_kernel::userfault::Userfault;

use crate::common::{Ran, Scratch, compile, numamma, plain, run};

/// Long enough that a program finishes within its first window what it begins there.
const LONG: &str = "1s";
/// Short enough for many windows.
const SHORT: &str = "5ms";

/// Whether this kernel and user may use the sampler: what `numamma` asks, too.
fn is_refused(what: &str) -> bool {
    match Userfault::open() {
        Ok(descriptor) => {
            descriptor.close();
            false
        }
        Err(refusal) => {
            eprintln!("{what} is left out: userfaultfd is refused here: {refusal:?}");
            true
        }
    }
}

/// Reads and writes.
type Counts = (u64, u64);

struct Program {
    dir: Scratch,
    path: PathBuf,
}

impl Program {
    fn new(name: &str) -> Program {
        Program::within(name, name)
    }

    /// The program in a directory of its own.
    fn within(directory: &str, name: &str) -> Program {
        let dir = Scratch::new(&format!("faulted-{directory}"));
        let source = format!("preloads/faulted/{name}.c");
        let path = compile("gcc", &source, dir.join(name), &["-O1", "-g", "-pthread"]);
        Program { dir, path }
    }

    fn profile(&self, interval: &str, options: &[&str], args: &[&str]) -> Ran {
        let program = self.path.to_str().unwrap();
        let sampler = ["profile", "--sampler", "fault", "--interval", interval, "--max-overhead", "100"];
        run(numamma(&[&sampler, options, &["--", program], args].concat()).current_dir(&*self.dir))
    }

    fn alone(&self, args: &[&str]) -> Ran {
        run(plain(&self.path).args(args).current_dir(&*self.dir))
    }

    /// Reads and writes by object, page and thread.
    fn uses(&self) -> BTreeMap<(String, u64, u64), Counts> {
        run(numamma(&["export", "-f", "csv", "-o", "tables"]).current_dir(&*self.dir)).success();
        let rows = |name: &str, columns: &[&str]| -> Vec<Vec<String>> {
            let text = std::fs::read_to_string(self.dir.join("tables").join(name)).unwrap();
            let mut lines = text.lines();
            let names: Vec<&str> = lines.next().unwrap().split(',').collect();
            let at: Vec<usize> = columns.iter().map(|c| names.iter().position(|n| n == c).unwrap()).collect();
            lines.map(|l| at.iter().map(|&i| l.split(',').nth(i).unwrap_or("").to_owned()).collect()).collect()
        };
        let objects: BTreeMap<String, String> =
            rows("objects.csv", &["object", "name"]).into_iter().map(|r| (r[0].clone(), r[1].clone())).collect();
        let mut uses = BTreeMap::new();
        for row in rows("tallies.csv", &["object", "page", "thread", "reads", "writes"]) {
            let number = |i: usize| row[i].parse::<u64>().unwrap();
            let sum: &mut Counts = uses.entry((objects[&row[0]].clone(), number(1), number(2))).or_default();
            *sum = (sum.0 + number(3), sum.1 + number(4));
        }
        uses
    }
}

#[test]
fn each_page_used_in_a_window_is_seen_by_thread_and_kind() {
    if is_refused("what the fault sampler sees") {
        return;
    }
    let program = Program::new("uses");
    let alone = program.alone(&[]);
    let ran = program.profile(LONG, &[], &[]);
    assert_eq!((ran.code(), &ran.stdout), (Some(3), &alone.stdout), "{}", ran.stderr);
    let uses = program.uses();
    let of = |name: &str| -> BTreeMap<u64, Vec<(u64, Counts)>> {
        let mut pages: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        for ((_, page, thread), counts) in uses.iter().filter(|((object, ..), _)| object == name) {
            pages.entry(*page).or_default().push((*thread, *counts));
        }
        pages
    };
    // The sampler's own thread is none of the program's: these are numbered from the first one that it starts.
    let expected = |page| match page / 32 {
        0 => (1, (0, 1)),
        1 => (2, (1, 0)),
        _ => (3, (1, 1)),
    };
    assert_eq!(of("used"), (0..96).map(|page| (page, vec![expected(page)])).collect());
    // System calls use pages, too.
    assert_eq!(of("by_kernel"), BTreeMap::from([(0, vec![(4, (0, 1))]), (1, vec![(4, (1, 0))])]));
    let report = run(numamma(&["report"]).current_dir(&*program.dir)).success().stdout;
    assert!(report.contains("first uses of pages, "), "{report}");
    assert!(!report.contains("numamma-faults"), "{report}");
}

#[test]
fn changes_of_the_address_space_lose_nothing() {
    if is_refused("changes of the address space in windows") {
        return;
    }
    let program = Program::new("changes");
    let alone = program.alone(&[]);
    for options in [&[][..], &["--follow"]] {
        let ran = program.profile("200ms", options, &[]);
        assert_eq!((ran.code(), &ran.stdout), (Some(0), &alone.stdout), "{}", ran.stderr);
        assert!(ran.stdout.lines().all(|line| line.ends_with(" 0")), "{}", ran.stdout);
    }
}

#[test]
fn ranges_that_the_program_has_left_stay_free() {
    if is_refused("windows of a program that maps where it unmapped") {
        return;
    }
    let program = Program::new("holes");
    let ran = program.profile(SHORT, &[], &[]);
    assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), "failures 0\n"), "{}", ran.stderr);
}

#[test]
fn threads_that_share_an_address_space_keep_their_data() {
    if is_refused("many windows") {
        return;
    }
    let program = Program::new("crowd");
    let ran = program.profile(SHORT, &["--follow"], &[]);
    assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), "failures 0\n"), "{}", ran.stderr);
    let mut users: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (_, page, thread) in program.uses().into_keys().filter(|(object, ..)| object == "blocks") {
        users.entry(page / 256).or_default().push(thread);
    }
    // Threads have their numbers in the order in which they began to run, and children those after the four. The first
    // thread's block is read in them.
    let mut owners = BTreeSet::new();
    for (block, mut threads) in users {
        threads.retain(|thread| *thread <= 4);
        let owner = threads.first().copied();
        assert!(threads.iter().all(|thread| Some(*thread) == owner), "block {block}: {threads:?}");
        assert!(owner.is_none_or(|owner| owners.insert(owner)), "block {block}: {owner:?} uses another one, too");
    }
}

/// More than the sampler reads at once.
#[test]
fn many_threads_that_wait_for_pages_go_on_while_others_give_theirs_back() {
    if is_refused("windows of hundreds of threads") {
        return;
    }
    let program = Program::new("many");
    for interval in [SHORT, "60ms"] {
        let ran = program.profile(interval, &[], &[]);
        assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), "failures 0\n"), "{}", ran.stderr);
    }
}

#[test]
fn children_that_change_their_address_space_at_once_go_on() {
    if is_refused("forks in windows") {
        return;
    }
    let program = Program::new("children");
    for options in [&[][..], &["--follow"]] {
        let ran = program.profile(SHORT, options, &[]);
        assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), "failures 0\n"), "{}", ran.stderr);
    }
}

/// The kernel migrates pages, for compaction or NUMA balancing, while the sampler moves pages away. The kernel then
/// leaves some out of the number of pages that it moved, and the program found zeros in these.
#[test]
fn pages_that_the_kernel_migrates_meanwhile_keep_their_contents() {
    const ROUNDS: usize = 3;
    const AT_ONCE: usize = 3;
    const COMPACT: &str = "/proc/sys/vm/compact_memory";
    if is_refused("migration in windows") || std::fs::write(COMPACT, "1").is_err() {
        return eprintln!("migration in windows is left out: {COMPACT} cannot be written here");
    }
    let ended = AtomicBool::new(false);
    let wrong: Vec<String> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let _ = std::fs::write(COMPACT, "1");
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let all = (0..AT_ONCE).map(|number| {
            scope.spawn(move || {
                let program = Program::within(&format!("migrated-{number}"), "children");
                let runs = (0..ROUNDS).map(|_| program.profile(SHORT, &[], &[]));
                runs.filter(|ran| ran.stdout != "failures 0\n").map(|ran| ran.stdout + &ran.stderr).collect::<Vec<_>>()
            })
        });
        let all: Vec<_> = all.collect();
        let wrong = all.into_iter().flat_map(|thread| thread.join().unwrap_or(vec!["panic".into()])).collect();
        ended.store(true, Ordering::Relaxed);
        wrong
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_program_ends_as_it_does_alone() {
    if is_refused("ends of programs") {
        return;
    }
    let program = Program::new("ends");
    for how in ["at-once", "exit", "_exit", "abort", "crash", "kill", "exec", "last-thread"] {
        let (alone, ran) = (program.alone(&[how]), program.profile("100ms", &[], &[how]));
        assert_eq!((ran.code(), ran.signal()), (alone.code(), alone.signal()), "{how}: {}", ran.stderr);
    }
}

#[test]
fn the_program_outlives_the_recorder_with_its_data() {
    if is_refused("the end of the recorder") {
        return;
    }
    let program = Program::new("alone");
    let (says, ended) = (program.dir.join("says"), program.dir.join("ended"));
    let path = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let args = ["profile", "-q", "--sampler", "fault", "--interval", LONG, "--", &path(&program.path), &path(&says)];
    let mut command = numamma(&[&args[..], &[&path(&ended)]].concat());
    let mut recorder = command.current_dir(&*program.dir).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let said = |line: &str| std::fs::read_to_string(&says).is_ok_and(|text| text.lines().any(|l| l == line));
    let wait_for = |line: &str| {
        while !said(line) {
            let text = std::fs::read_to_string(&says).unwrap_or_default();
            assert!(!text.contains("hurt") || said(line), "{text}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait_for("window");
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    std::fs::write(&ended, "").unwrap();
    wait_for("hurt 0");
}

#[test]
fn a_program_that_uses_userfaultfd_itself_is_left_alone() {
    if is_refused("another user of userfaultfd") {
        return;
    }
    let program = Program::new("own");
    let ran = program.profile("200ms", &[], &[]);
    assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), "hurt 0\n"), "{}", ran.stderr);
}
