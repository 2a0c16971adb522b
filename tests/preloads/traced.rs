//! The `trace` sampler on programs whose accesses are known by construction: what it counts is exactly that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::{NUMAMMA, Ran, Scratch, compile, plain, preload, root, run, source};

/// The libraries of this build as they are installed, and a place for programs and profiles.
struct Tracing {
    dir: Scratch,
}

/// Reads and writes by object and page or thread.
#[derive(Debug, Default)]
struct Counts {
    by_page: BTreeMap<(String, u64, u64), (u64, u64)>,
}

impl Tracing {
    fn new(name: &str) -> Tracing {
        let dir = Scratch::new(&format!("traced-{name}"));
        let built = preload("profile");
        std::os::unix::fs::symlink(&built, dir.join("libnumamma-profile.so")).unwrap();
        let script = root().join("scripts/trace-directory");
        run(plain(script).arg(built.with_file_name("libnumamma_trace.so")).arg(dir.join("numamma-trace"))).success();
        Tracing { dir }
    }

    fn numamma(&self, args: &[&str]) -> Ran {
        // Threads of OpenMP sleep while they wait: on a busy machine they would spin for most of the time.
        let mut command = plain(NUMAMMA);
        run(command.current_dir(&*self.dir).env("NUMAMMA_LIB", &*self.dir).env("OMP_WAIT_POLICY", "passive").args(args))
    }

    /// The flags that are printed for `flags_of`.
    fn flags(&self, flags_of: &str) -> Vec<String> {
        let flags = self.numamma(&["trace-flags", flags_of]).success();
        let words = "printf '%s\\n' $CFLAGS $LDFLAGS $RUSTFLAGS";
        let script = format!("unset CFLAGS LDFLAGS RUSTFLAGS\n{}\n{words}", flags.stdout);
        let words = run(plain("sh").args(["-c", &script])).success();
        words.stdout.lines().map(str::to_owned).collect()
    }

    /// Compiles with these flags.
    fn compile(&self, flags_of: &str, compiler: &str, source: &str, more: &[&str]) -> PathBuf {
        let flags = self.flags(flags_of);
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        compile(compiler, &format!("preloads/traced/{source}"), self.dir.join("program"), &flags)
    }

    fn profile(&self, options: &[&str], program: &Path) -> (Ran, Counts) {
        let program = program.to_str().unwrap();
        let args = [&["profile", "--sampler", "trace"], options, &["--", program]].concat();
        let ran = self.numamma(&args).success();
        self.numamma(&["export", "-f", "csv", "-o", "tables"]).success();
        (ran, self.counts())
    }

    fn counts(&self) -> Counts {
        let table = |name: &str| std::fs::read_to_string(self.dir.join("tables").join(name)).unwrap();
        let (objects, tallies) = (table("objects.csv"), table("tallies.csv"));
        let rows = |text: &str, columns: &[&str]| -> Vec<Vec<String>> {
            let mut lines = text.lines();
            let names: Vec<&str> = lines.next().unwrap().split(',').collect();
            let at: Vec<usize> = columns.iter().map(|c| names.iter().position(|n| n == c).unwrap()).collect();
            lines.map(|l| at.iter().map(|&i| l.split(',').nth(i).unwrap_or("").to_owned()).collect()).collect()
        };
        // A part counts for the object that it is a part of.
        let whole = |row: &[String]| match row[2].is_empty() {
            true => (row[1].clone(), 0),
            false => (row[2].clone(), row[3].parse::<u64>().unwrap() / 4096),
        };
        let columns = ["object", "name", "parent", "offset_bytes"];
        let objects: BTreeMap<String, (String, u64)> =
            rows(&objects, &columns).into_iter().map(|r| (r[0].clone(), whole(&r))).collect();
        let mut counts = Counts::default();
        for row in rows(&tallies, &["object", "page", "thread", "reads", "writes"]) {
            let number = |i: usize| row[i].parse::<u64>().unwrap_or(0);
            let (name, first_page) = objects[&row[0]].clone();
            let key = (name, first_page + number(1), number(2));
            let sum = counts.by_page.entry(key).or_default();
            *sum = (sum.0 + number(3), sum.1 + number(4));
        }
        counts
    }
}

impl Counts {
    /// Of the object, or of those whose name begins so and goes on behind a blank: page, thread, reads, writes.
    fn pages(&self, object: &str) -> Vec<(u64, u64, u64, u64)> {
        let is = |name: &str| name == object || object.ends_with(' ') && name.starts_with(object);
        let of = self.by_page.iter().filter(|(key, _)| is(&key.0));
        of.map(|((_, page, thread), (reads, writes))| (*page, *thread, *reads, *writes)).collect()
    }

    /// By thread.
    fn threads(&self, object: &str) -> BTreeMap<u64, (u64, u64)> {
        let mut sums = BTreeMap::<u64, (u64, u64)>::new();
        for (_, thread, reads, writes) in self.pages(object) {
            let sum = sums.entry(thread).or_default();
            *sum = (sum.0 + reads, sum.1 + writes);
        }
        sums
    }

    fn total(&self, object: &str) -> (u64, u64) {
        self.threads(object).values().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }
}

/// Every page has the accesses of one thread, and four threads have a quarter each.
fn assert_quarters(counts: &Counts, object: &str, what: &str) {
    let pages = counts.pages(object);
    assert_eq!(pages.len(), 64, "{what}: {pages:?}");
    let mut threads = Vec::new();
    for (n, (page, thread, reads, writes)) in pages.into_iter().enumerate() {
        assert_eq!((page, reads, writes), (n as u64, 512 * 7, 512 * 7), "{what}");
        threads.push(thread);
    }
    let quarters: Vec<&[u64]> = threads.chunks(16).collect();
    assert!(quarters.iter().all(|q| q.iter().all(|t| *t == q[0])), "{what}: {threads:?}");
    assert_eq!(quarters.iter().map(|q| q[0]).collect::<std::collections::BTreeSet<_>>().len(), 4, "{what}");
}

#[test]
fn each_page_has_the_accesses_of_its_thread() {
    let tracing = Tracing::new("quarters");
    for (flags_of, compiler, more) in [
        ("gcc", "gcc", &["-pthread"][..]),
        ("gcc", "gcc", &["-fopenmp"]),
        ("gcc", "gcc", &["-pthread", "-O0"]),
        ("gcc", "gcc", &["-pthread", "-pipe", "-fPIC"]),
        ("gcc", "gcc", &["-pthread", "-flto"]),
        ("gcc", "gcc", &["-pthread", "-masm=intel"]),
        ("gcc", "gcc", &["-pthread", "-no-pie", "-fno-pie", "-fplt"]),
        ("clang", "clang", &["-pthread"]),
    ] {
        let what = format!("{compiler} {more:?}");
        let program = tracing.compile(flags_of, compiler, "quarters.c", more);
        let (ran, counts) = tracing.profile(&[], &program);
        assert!(!ran.stderr.contains("lost"), "{what}: {}", ran.stderr);
        assert_quarters(&counts, "main ", &what);
        // Without a recorder it runs as ever.
        run(&mut plain(&program)).success();
    }
}

/// By the standard library that comes with the compiler.
#[test]
fn a_rust_program_of_a_nightly_compiler_counts_all_of_its_accesses() {
    if !run(plain("rustc").args(["+nightly", "--version"])).status.success() {
        crate::common::skipped("sanitizers of rustc need a nightly one: rustup toolchain install nightly");
        return;
    }
    let tracing = Tracing::new("rust");
    let program = tracing.dir.join("quarters");
    let mut rustc = plain("rustc");
    rustc.args(["+nightly", "--edition", "2024", "-O", "-g", "-o"]).arg(&program).args(tracing.flags("rustc"));
    run(rustc.arg(source("preloads/traced/quarters.rs"))).success();
    let (ran, counts) = tracing.profile(&[], &program);
    assert!(!ran.stderr.contains("lost"), "{}", ran.stderr);
    let text = std::fs::read_to_string(source("preloads/traced/quarters.rs")).unwrap();
    let line = 1 + text.lines().position(|line| line.contains("aligned_alloc(4096")).unwrap();
    assert_quarters(&counts, &format!("quarters::main quarters.rs:{line}"), "rustc");
    run(&mut plain(&program)).success();
}

#[test]
fn a_program_built_for_threadsanitizer_runs_as_it_is() {
    let tracing = Tracing::new("as-it-is");
    let flags = ["-O2", "-g", "-fsanitize=thread", "-pthread"];
    let program = compile("gcc", "preloads/traced/quarters.c", tracing.dir.join("program"), &flags);
    assert_quarters(&tracing.profile(&[], &program).1, "main ", "only LD_LIBRARY_PATH");
}

/// As builds try whether a compiler works, and as one that writes its own assembler code calls it.
#[test]
fn a_program_and_code_of_the_assembler_come_through_a_pipe() {
    let tracing = Tracing::new("piped");
    let gcc = format!("gcc {}", tracing.flags("gcc").join(" "));
    let piped = format!(
        "set -e; cd {}; echo 'int answer(void); int main(void) {{ return answer(); }}' >main.c\n\
         printf '.globl answer\nanswer: mov $42, %%eax\n ret\n' | {gcc} -c -x assembler - -o answer.o\n\
         cat main.c | {gcc} -x c - -x none answer.o -o program; set +e; ./program; echo $?",
        tracing.dir.display()
    );
    let ran = run(plain("sh").args(["-c", &piped]));
    assert_eq!(ran.stdout, "42\n", "{}", ran.stderr);
}

/// As newer compilers may write names, and as a file with assembler code may extend the assembler.
#[test]
fn code_of_the_assembler_may_quote_names_and_have_a_macro_for_calls() {
    let tracing = Tracing::new("quoted");
    for (name, before, call, behind) in [
        ("quoted", "", "\"answer\"", ""),
        ("hook", "lea used(%rip), %rdi\n", "\"__tsan_read8\"\n call \"answer\"", ""),
        ("macro", ".macro call target\n callq \\target\n .endm\n", "answer", ".purgem call\n"),
    ] {
        let source = format!(
            "long used; __asm__(R\"(\n .text\nanswer: mov $42, %eax\n ret\nasked: sub $8, %rsp\n {before} call {call}\n\
             {behind} add $8, %rsp\n ret\n)\"); int asked(void); int main(void) {{ used = asked(); return used; }}\n"
        );
        let (file, program) = (tracing.dir.join(format!("{name}.c")), tracing.dir.join(name));
        std::fs::write(&file, source).unwrap();
        let flags = tracing.flags("gcc");
        for how in ["-O2", "-pipe"] {
            run(plain("gcc").args(&flags).args([how, "-std=gnu17", "-o"]).arg(&program).arg(&file)).success();
            assert_eq!(run(&mut plain(&program)).status.code(), Some(42), "{name} {how}");
        }
    }
}

#[test]
fn the_assembler_reads_what_can_be_read_once() {
    let tracing = Tracing::new("once");
    let object = tracing.dir.join("once.o").display().to_string();
    let script = format!(
        "printf '.globl once\\nonce: ret\\n' | gcc {} -x assembler -c /dev/stdin -o {object}; nm {object}",
        tracing.flags("gcc").iter().filter(|flag| flag.starts_with("-B")).cloned().collect::<String>()
    );
    let ran = run(plain("sh").args(["-c", &script])).success();
    assert!(ran.stdout.contains("T once"), "{} {}", ran.stdout, ran.stderr);
}

/// By a build that takes no LDFLAGS: the linker finds the library of the compiler.
#[test]
fn a_program_that_is_linked_without_our_flags_is_counted() {
    let tracing = Tracing::new("unlinked");
    let flags = tracing.flags("gcc");
    let ours = |flag: &&String| !flag.ends_with(".o") && !flag.starts_with("-L") && !flag.starts_with("-Wl,");
    let flags: Vec<&str> = flags.iter().filter(ours).map(String::as_str).chain(["-pthread"]).collect();
    let program = compile("gcc", "preloads/traced/quarters.c", tracing.dir.join("program"), &flags);
    assert_quarters(&tracing.profile(&[], &program).1, "main ", "no LDFLAGS");
}

/// Code that is entered where gcc's functions are not, and that changes all registers it may.
#[test]
fn functions_that_keep_the_address_of_the_lines_count_exactly() {
    let tracing = Tracing::new("kept");
    for (compiler, file) in [("g++", "kept.cpp"), ("gcc", "kept.c")] {
        let profiled = &["-O2", "-pg", "-mfentry"];
        let recorded = &["-O2", "-pg", "-mrecord-mcount", "-fno-pie", "-no-pie", "-DPROFILED"];
        for options in [&["-O2"][..], &["-O0"], &["-O3", "-fcf-protection"], profiled, recorded, &["-Os", "-pipe"]] {
            let program = tracing.compile("gcc", compiler, file, &[&["-pthread"], options].concat());
            let (ran, counts) = tracing.profile(&[], &program);
            let said = ran.stdout.split_whitespace().map(|word| word.parse::<u64>().unwrap()).collect::<Vec<_>>();
            let said = said.chunks(2).fold((0, 0), |sum, of| (sum.0 + of[0], sum.1 + of[1]));
            assert_eq!(counts.total("values"), said, "{file} {options:?}");
        }
    }
}

/// One that is ended while it looks at the functions leaves no object file with a part of them.
#[test]
fn an_awk_that_ends_early_fails_the_build() {
    let tracing = Tracing::new("ended");
    let gcc = format!("gcc {}", tracing.flags("gcc").join(" "));
    let source = source("preloads/traced/kept.c");
    let built = format!(
        "cd {}; mkdir ended; printf '#!/bin/sh\nhead -c 3000' >ended/awk; chmod +x ended/awk\n\
         PATH=$PWD/ended:$PATH {gcc} -c {} -o kept.o; echo $?; ls kept.o",
        tracing.dir.display(),
        source.display()
    );
    let ran = run(plain("sh").args(["-c", &built]));
    assert!(ran.stdout == "1\n" && ran.stderr.contains("awk ended early"), "{} {}", ran.stdout, ran.stderr);
}

#[test]
fn numbers_of_a_fortran_module() {
    let tracing = Tracing::new("fortran");
    let modules = format!("-J{}", tracing.dir.display());
    let program = tracing.compile("gfortran", "gfortran", "quarters.f90", &["-fopenmp", &modules]);
    let (_, counts) = tracing.profile(&[], &program);
    let threads: Vec<_> = counts.threads("numbers::values").into_values().collect();
    assert_eq!(threads, [(0, 110_000); 4], "{counts:?}");
}

#[test]
fn atomic_operations_are_done_and_counted() {
    let tracing = Tracing::new("atomic");
    let program = tracing.compile("gcc", "g++", "counter.cpp", &["-pthread", "-std=c++17", "-mcx16", "-latomic"]);
    let (ran, counts) = tracing.profile(&[], &program);
    assert_eq!(ran.stdout, "right\n");
    for counter in ["narrow", "half", "word", "wide"] {
        let threads = counts.threads(counter);
        let written: Vec<u64> = threads.values().map(|c| c.1).filter(|n| *n > 0).collect();
        assert_eq!(written, [100_000; 4], "{counter}: {counts:?}");
    }
    let (reads, writes) = counts.total("exchanged");
    assert!(reads >= 400_000 && writes >= 400_000, "{reads} {writes}");
    assert_eq!(run(&mut plain(&program)).success().stdout, "right\n");
}

#[test]
fn functions_for_memory_and_strings_count_what_they_access() {
    let tracing = Tracing::new("strings");
    for (compiler, more) in
        [("gcc", &["-pthread"][..]), ("gcc", &["-pthread", "-D_FORTIFY_SOURCE=2"]), ("clang", &["-pthread"])]
    {
        let program = tracing.compile(compiler, compiler, "strings.c", more);
        let (_, counts) = tracing.profile(&[], &program);
        let is = |object: &str, expected: &[(u64, u64)]| {
            let threads: Vec<_> = counts.threads(object).into_values().collect();
            assert_eq!(threads, expected, "{object}, {compiler} {more:?}: {counts:?}");
        };
        // All 16 pages of an array, two of them, and 4097 bytes, as words; main first.
        let (all, two, odd) = (8192, 1024, 513);
        is("source", &[(all, 0), (5 * (all + 2 * odd), 0)]);
        is("copied", &[(all, 0), (0, 5 * all)]);
        is("moved", &[(0, 5 * odd)]);
        is("filled", &[(1, 0), (0, 5 * all)]);
        is("constant", &[(0, 5 * two)]);
        is("compared", &[(5 * odd, 5)]);
        is("text", &[(all + odd, all + 1), (5 * (4 * all + 2 * odd), 0)]);
        is("same_text", &[(0, all + 1), (5 * all, 0)]);
        is("cut", &[(2 * odd, 0), (0, 5 * odd)]);
        is("joined", &[(all, 0), (5, 5 * (all + 1))]);
        is("assigned", &[(0, 5 * two)]);
        is("zeroed", &[(5 * two, 0)]);
        is("of_constant", &[(0, 5 * two)]);
        for (object, call) in [("filled", "memset(filled"), ("copied", "memcpy(copied")] {
            let text = std::fs::read_to_string(source("preloads/traced/strings.c")).unwrap();
            let line = 1 + text.lines().position(|line| line.contains(call)).unwrap();
            let report = tracing.numamma(&["report", &format!("--object={object}")]).success().stdout;
            assert!(report.contains(&format!("strings.c:{line}")), "{call} at {line}, {compiler} {more:?}: {report}");
        }
        assert_eq!(counts.total("by_library").1, 0, "{compiler} {more:?}: {counts:?}");
        assert!(counts.total("by_library").0 > 0, "{compiler} {more:?}: {counts:?}");
        run(&mut plain(&program)).success();
    }
}

#[test]
fn a_signal_handler_changes_no_count() {
    let tracing = Tracing::new("handler");
    let program = tracing.compile("gcc", "gcc", "handler.c", &[]);
    let (ran, counts) = tracing.profile(&[], &program);
    let calls: u64 = ran.stdout.trim().parse().unwrap();
    assert!(calls > 20, "{calls}");
    let all = counts.pages("main ");
    let each = 512 * 1000;
    let (of_main, of_handler): (Vec<_>, Vec<_>) = all.into_iter().partition(|p| p.3 >= each);
    assert_eq!(of_main.len(), 256);
    assert!(of_main.iter().all(|p| p.3 == each), "{of_main:?}");
    assert_eq!(of_handler.len(), 32);
    assert!(of_handler.iter().all(|p| p.3 == calls), "{calls}: {of_handler:?}");
}

#[test]
fn without_memory_for_each_instruction_pages_and_threads_are_counted() {
    let tracing = Tracing::new("crowd");
    let program = tracing.compile("gcc", "gcc", "crowd.c", &["-pthread"]);
    let (ran, counts) = tracing.profile(&["--max-memory", "64M"], &program);
    assert!(ran.stderr.contains("no memory was left for counters of single instructions"), "{}", ran.stderr);
    let pages = counts.pages("crowd");
    assert_eq!(pages.len(), 160 * 16);
    let own = |page: u64| pages[page as usize / 16 * 16].1;
    let writes = |page: u64| 1024 + u64::from(page.is_multiple_of(16));
    assert!(pages.iter().all(|p| (p.1, p.2, p.3) == (own(p.0), 0, writes(p.0))), "{}\n{pages:?}", ran.stderr);
}

/// The recorder gives back what threads have left before those that begin then lack it.
#[test]
fn threads_of_a_wave_count_in_the_memory_of_the_wave_before() {
    let tracing = Tracing::new("waves");
    let program = tracing.compile("gcc", "gcc", "waves.c", &["-pthread"]);
    let (ran, counts) = tracing.profile(&["--max-memory", "64M"], &program);
    assert!(!ran.stderr.contains("no memory was left"), "{}", ran.stderr);
    assert_eq!(counts.total("waves"), (0, 12 * 8 * 16 * 3072), "{}", ran.stderr);
}

#[test]
fn a_forked_child_counts_for_itself() {
    let tracing = Tracing::new("forked");
    let program = tracing.compile("gcc", "gcc", "forked.c", &[]);
    assert_eq!(tracing.profile(&["--no-follow"], &program).1.total("main ").1, 1500);
    assert_eq!(tracing.profile(&["--follow"], &program).1.total("main ").1, 1800);
}

#[test]
fn threads_that_outlive_the_main_thread_are_counted() {
    let tracing = Tracing::new("outlived");
    let program = tracing.compile("gcc", "gcc", "outlived.c", &["-pthread"]);
    assert_eq!(tracing.profile(&[], &program).1.total("outlived"), (0, 2_000_000));
}

impl Tracing {
    /// Compiles two libraries of `source` and the program that loads them, and records it. The macro of each library,
    /// and an option for it.
    fn with_libraries(&self, source: &str, libraries: [(&str, &str); 2]) -> (Ran, Counts) {
        let paths = libraries.map(|(define, more)| {
            let built = self.compile("gcc", "gcc", source, &["-fPIC", "-shared", &format!("-D{define}"), more]);
            let kept = self.dir.join(format!("{define}.so"));
            std::fs::rename(built, &kept).unwrap();
            kept.display().to_string()
        });
        let program = self.compile("gcc", "gcc", source, &["-pthread"]);
        let [first, second] = &paths;
        let ran =
            self.numamma(&["profile", "--sampler", "trace", "--", program.to_str().unwrap(), first, second]).success();
        assert!(!ran.stderr.contains("lost"), "{}", ran.stderr);
        self.numamma(&["export", "-f", "csv", "-o", "tables"]).success();
        (ran, self.counts())
    }
}

/// Threads that come and go use the code of libraries that come and go.
#[test]
fn libraries_that_are_loaded_and_closed_count_exactly() {
    let tracing = Tracing::new("plugged");
    let (_, counts) = tracing.with_libraries("plugged.c", [("PLUGIN=1", "-O2"), ("PLUGIN=2", "-O1")]);
    let mut by_page = BTreeMap::<u64, (u64, u64)>::new();
    for (page, _, reads, writes) in counts.pages("main ") {
        let sum = by_page.entry(page).or_default();
        *sum = (sum.0 + reads, sum.1 + writes);
    }
    // Two parts of 16 pages: the first half is written by both libraries, and read by the second, which reads the other
    // half, too. Three times each.
    let expected = |page: u64| if page % 16 < 8 { (3 * 512, 6 * 512) } else { (3 * 512, 0) };
    let all: Vec<_> = (0..32).map(|page| (page, expected(page))).collect();
    assert_eq!(by_page.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn a_library_at_the_address_of_another_one_counts_for_itself() {
    let tracing = Tracing::new("turns");
    let (ran, counts) = tracing.with_libraries("turns.c", [("READS", "-O2"), ("WRITES", "-O2")]);
    assert!(ran.stdout.trim().parse::<u32>().unwrap() > 100, "the addresses are others: {}", ran.stdout);
    assert_eq!(counts.total("main "), (2000, 2000));
}

#[test]
fn faults_handlers_and_filters_end_as_they_do_alone() {
    let tracing = Tracing::new("hurt");
    for (mode, times) in [("CAUGHT", 1), ("HANDLER", 4), ("CANCELLED", 2), ("ENDED", 2), ("CONFINED", 1)] {
        let program = tracing.compile("gcc", "gcc", "hurt.c", &["-pthread", &format!("-D{mode}")]);
        for _ in 0..times {
            let ran = tracing.numamma(&["profile", "-q", "--sampler", "trace", "--", program.to_str().unwrap()]);
            assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), "done\n"), "{mode}: {}", ran.stderr);
        }
    }
}

#[test]
fn a_program_without_hooks_is_refused_with_the_flags() {
    let tracing = Tracing::new("without");
    let program = compile("gcc", "preloads/traced/forked.c", tracing.dir.join("program"), &["-O2"]);
    let ran = tracing.numamma(&["profile", "--sampler", "trace", "--", program.to_str().unwrap()]);
    assert_eq!(ran.code(), Some(2));
    assert!(ran.stderr.contains("eval \"$(numamma trace-flags gcc)\""), "{}", ran.stderr);
    assert!(!tracing.dir.join("numamma.prof").exists());
}

/// Kind, padding and invalidations of the lines of each object that are reported, and the places of `numamma fixes`.
fn shared_lines(tracing: &Tracing, program: &Path) -> Vec<(String, String, Option<u64>, u64)> {
    tracing.profile(&[], program);
    let report = tracing.numamma(&["report", "--json"]).success();
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    let sharing = &report["sharing"];
    assert_eq!(
        (&sharing["sharing_score"]["threshold"], &sharing["remote_score"]["threshold"]),
        (&1.0.into(), &1500.0.into())
    );
    let lines = sharing["lines"].as_array().unwrap().iter().map(|line| {
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        (text("object"), text("kind"), line["padding"].as_u64(), line["invalidations"].as_u64().unwrap())
    });
    lines.collect()
}

#[test]
fn lines_that_two_threads_take_from_each_other() {
    let tracing = Tracing::new("lines");
    // Of 2000 turns those count after the page is known to be shared.
    for (mode, truth) in [
        (0, Some(("counters", "false", Some(56)))),
        (1, Some(("elements", "false", Some(40)))),
        (2, None),
        (3, Some(("queue", "mixed", Some(56)))),
        (4, None),
        (5, None),
        (6, Some(("shared_counter", "true", None))),
    ] {
        let mode_flag = format!("-DMODE={mode}");
        let program = tracing.compile("gcc", "gcc", "lines.c", &["-pthread", &mode_flag]);
        let found = shared_lines(&tracing, &program);
        let named = found.first().map(|(object, kind, padding, _)| (object.as_str(), kind.as_str(), *padding));
        assert_eq!(named, truth, "mode {mode}: {found:?}");
        let report = tracing.numamma(&["report", "--json"]).success().stdout;
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(
            report["threads"].as_array().unwrap().len(),
            if mode == 5 { 7 } else { 3 },
            "{:#}",
            report["threads"]
        );
        let is_exact = found.iter().all(|(.., lost)| (1980..=2000).contains(lost));
        assert!(found.len() <= 1 && (is_exact || mode == 1), "mode {mode}: {found:?}");
        let fixes = tracing.numamma(&["fixes"]).success().stdout;
        let fix = match truth {
            Some((_, "true", _)) => "per-thread, shared_counter",
            Some(_) => "pad, ",
            None => "",
        };
        assert!(fixes.contains(fix), "mode {mode}: {fixes}");
        assert!(truth.is_none() || fixes.contains("lines.c:"), "mode {mode}: {fixes}");
        assert!(truth.is_some() || !fixes.contains(" sharing: "), "mode {mode}: {fixes}");
        let sarif = tracing.numamma(&["fixes", "--sarif"]).success().stdout;
        assert_eq!(sarif.contains("sharing: threads lose"), truth.is_some(), "mode {mode}");
    }
}

#[test]
fn lines_of_an_allocation_and_of_a_fortran_module() {
    let tracing = Tracing::new("lines-elsewhere");
    let modules = format!("-J{}", tracing.dir.display());
    let of_heap = ("gcc", "g++", "lines.cpp", ["-pthread", "-std=c++17"]);
    let of_module = ("gfortran", "gfortran", "lines.f90", ["-fopenmp", &modules]);
    for ((flags_of, compiler, source, more), object) in [(of_heap, "main "), (of_module, "sums::total")] {
        let program = tracing.compile(flags_of, compiler, source, &more);
        // Threads that a busy machine runs one after the other take no line from each other.
        let mut runs = Vec::new();
        let found = (0..3).any(|_| {
            let lines = shared_lines(&tracing, &program);
            let of_object = lines.iter().find(|line| line.0.starts_with(object));
            let is_right = of_object.is_some_and(|line| line.1 == "false" && line.2 == Some(56));
            runs.push(lines);
            is_right
        });
        assert!(found, "{object}: {runs:?}");
    }
}

/// What `numamma fixes` says of a program of changes.c.
fn changes(macro_of: &str) -> Vec<serde_json::Value> {
    let tracing = Tracing::new(macro_of);
    let program = tracing.compile("gcc", "gcc", "changes.c", &["-fopenmp", "-pthread", &format!("-D{macro_of}")]);
    tracing.numamma(&["profile", "--sampler", "trace", "--", program.to_str().unwrap()]).success();
    let found = tracing.numamma(&["fixes", "--json"]).success();
    serde_json::from_str(&found.stdout).unwrap()
}

fn of_kind<'a>(found: &'a [serde_json::Value], kind: &str) -> Option<&'a serde_json::Value> {
    found.iter().find(|fix| fix["kind"] == kind)
}

#[test]
fn huge_pages_are_for_what_is_accessed_at_random() {
    let thp = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let (random, swept) = (changes("RANDOM"), changes("SWEPT"));
    assert_eq!(of_kind(&random, "huge-pages").is_some(), !thp.contains("[always]"), "{random:#?}");
    // It may be found to be of two parts, where its threads do not run at the same time.
    let is_of_table = |fix: &serde_json::Value| fix["object"].as_str().is_some_and(|name| name.starts_with("table"));
    assert!(of_kind(&random, "huge-pages").is_none_or(is_of_table), "{random:#?}");
    assert!(of_kind(&swept, "huge-pages").is_none(), "{swept:#?}");
}

#[test]
fn uneven_work_of_a_team_is_named_with_its_loop_and_equal_threads_are_not() {
    let (uneven, short) = (changes("UNEVEN"), changes("SHORT"));
    let source = std::fs::read_to_string(source("preloads/traced/changes.c")).unwrap();
    let line = 1 + source.lines().position(|line| line.contains("the loop of the team")).unwrap();
    let fix = of_kind(&uneven, "balance").unwrap_or_else(|| panic!("no balance: {uneven:#?}"));
    assert!(fix["why"].as_str().unwrap().contains("times the accesses of the mean of its 4 threads"), "{fix:#}");
    assert_eq!(fix["places"][0]["line"], line, "{fix:#}");
    assert!(of_kind(&short, "balance").is_none(), "{short:#?}");
}
