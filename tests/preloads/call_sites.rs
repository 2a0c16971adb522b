//! Which call site a function name of a rule means, in programs of several languages: one table of names for the apply
//! library, `advise` and `predict`.
//!
//! Every program is compiled twice, with other flags and a function more, so that all addresses differ. A profile of
//! the first build is advised on; the functions of the advised rules must name the same objects in the second build.
//! Each object of a program has another size, which tells it from the others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use numamma_plan::policy::ObjectRule;

use crate::common::{Policy, Scratch, alone, json_file, numamma, number, objects, placed, run, source};

/// Reads and writes of each object in a profiled run: a tenth of a second.
const ACCESSES: u64 = 20_000_000;
/// Samples per second and thread.
const RATE: &str = "4000";
const MIB: u64 = 1 << 20;

/// Functions as a rule lists them, and the size of the object that they name, MiB; 0: they name none.
type Row = (&'static str, u64);

/// Function names of tests/preloads/call_sites/all.cpp.
const CPP: &[Row] = &[
    (r#""overload(int)""#, 1),
    (r#""_Z8overloadi""#, 1),
    (r#""overload(double)", "main""#, 2),
    (r#""_Z8overloadd""#, 2),
    (r#""overload(long)""#, 0),
    (r#""solver::grid(unsigned long)""#, 3),
    (r#""operator new[](unsigned long)", "solver::grid(unsigned long)""#, 3),
    (r#""_Znam", "_ZN6solver4gridEm""#, 3),
    (r#""solver::grid""#, 3),
    (r#""_ZN6solver4gridEm""#, 3),
    (r#""grid""#, 0),
    (r#""make<double>""#, 4),
    (r#""make<float>(unsigned long)""#, 5),
    (r#""double* make<double>(unsigned long)""#, 4),
    (r#""_Z4makeIfEPT_m""#, 5),
    (r#""make<int>""#, 0),
    (r#""Mesh::Mesh(unsigned long)""#, 6),
    (r#""Mesh::Mesh""#, 6),
    (r#""_ZN4MeshC2Em""#, 6),
    (r#""(anonymous namespace)::hidden(unsigned long)""#, 7),
    (r#""(anonymous namespace)::hidden""#, 7),
    (r#""_ZN12_GLOBAL__N_16hiddenEm""#, 7),
    (r#""outer""#, 8),
    (r#""inlined""#, 0),
    (r#""main::{lambda(unsigned long)#1}::operator()""#, 9),
    (r#""main::{lambda(unsigned long)#1}::operator()(unsigned long) const""#, 9),
    (r#""_ZZ4mainENKUlmE_clEm""#, 9),
    (r#""columns""#, 10),
    (r#""columns(unsigned long)", "main""#, 10),
];

const C: &[Row] = &[
    (r#""grid_alloc""#, 1),
    (r#""grid_alloc", "main""#, 1),
    (r#""table", "main""#, 2),
    (r#""xmalloc", "table""#, 2),
    (r#""xmalloc""#, 2),
    (r#""tabl""#, 0),
];

const RUST: &[Row] = &[
    (r#""app::plain""#, 4),
    (r#""app::plain::h0123456789abcdef""#, 4),
    (r#""app::solver::Grid::new", "app::main""#, 5),
    (r#""<app::solver::Grid as app::solver::Fill>::fill""#, 6),
    (r#""app::solver::new""#, 0),
];

const FORTRAN: &[Row] = &[
    (r#""solver::setup""#, 1),
    (r#""__solver_MOD_setup""#, 1),
    (r#""__solver_MOD_setup", "MAIN__""#, 1),
    (r#""inner""#, 2),
    (r#""inner", "solver::setup""#, 2),
    (r#""setup""#, 0),
];

/// One program, built twice.
struct Program {
    dir: Scratch,
    /// Recorded, and run under the rules of the table.
    first: PathBuf,
    /// Compiled anew, with other addresses.
    second: PathBuf,
}

impl Program {
    /// Compiles tests/preloads/call_sites/<file>: with `flags` and those of either build.
    fn new(name: &str, compiler: &str, file: &str, flags: &[&str], builds: [&[&str]; 2]) -> Program {
        let dir = Scratch::new(&format!("call-sites-{name}"));
        let [first, second] = ["first", "second"].map(|build| dir.join(build).join("app"));
        for (program, build) in [&first, &second].into_iter().zip(builds) {
            std::fs::create_dir_all(program.parent().unwrap()).unwrap();
            let mut c = Command::new(compiler);
            // Only for rustc: the older mangling is an unstable option.
            c.env("RUSTC_BOOTSTRAP", "1").current_dir(&dir).args(flags).args(build).arg("-o").arg(program);
            run(c.arg(source(&format!("preloads/call_sites/{file}")))).success();
        }
        Program { dir, first, second }
    }

    /// Objects and bytes that each rule of the policy takes in a run of `program`.
    fn taken(&self, program: &Path, policy: &Path) -> Vec<(u64, u64)> {
        let report = self.dir.join("report.json");
        let _ = std::fs::remove_file(&report);
        let out = run(placed(program, policy).env("NUMAMMA_REPORT", &report)).success();
        assert_eq!(out.stdout, "ok\n", "{}", out.stderr);
        objects(&json_file(&report)).iter().map(|o| (number(o, "instances"), number(o, "bytes"))).collect()
    }

    /// A policy of one rule for these functions.
    fn rule(&self, name: &str, functions: &str, sizes: &str) -> PathBuf {
        let key = format!("function = [{functions}]\nsizes = \"{sizes}\"");
        Policy::new().rule(&key, "policy = \"interleave\"").write(&self.dir, name)
    }

    /// Both builds allocate each object of the table at the functions that it says.
    fn is_placed_by(&self, table: &[Row]) {
        for (functions, size) in table {
            let policy = self.rule("row.toml", functions, "512KiB-");
            for program in [&self.first, &self.second] {
                let expected = [(u64::from(*size > 0), size * MIB)];
                assert_eq!(self.taken(program, &policy), expected, "{functions} in {}", program.display());
            }
        }
    }

    /// `advise` makes a rule for each object of the table, whose functions name it in the second build. `predict` says
    /// which object of the profile falls under each row of the table.
    fn is_advised_as_by(&self, table: &[Row]) {
        let advice = self.dir.join("advice.toml");
        let expected: BTreeSet<u64> = table.iter().map(|row| row.1 * MIB).filter(|size| *size > 0).collect();
        let mut accesses = ACCESSES;
        // Of a thread that hardly runs on a loaded machine there may be too few samples for advice.
        let (profile, rules) = loop {
            let Some(profile) = self.profile(accesses) else { return };
            run(numamma(&["advise", "-q", "--nodes", "4", "-o"]).args([&advice, &profile])).success();
            let text = std::fs::read_to_string(&advice).unwrap();
            let rules = numamma_plan::check::parse(&text).unwrap().objects;
            let sizes = |rule: &ObjectRule| rule.size.filter(|_| rule.callsite.is_some());
            let advised: BTreeSet<u64> = rules.iter().filter_map(sizes).collect();
            if advised == expected {
                break (profile, rules);
            }
            assert!(accesses < 4 * ACCESSES, "advised {advised:?}, expected {expected:?}: {text}");
            accesses *= 2;
        };
        for rule in rules.iter().filter(|rule| rule.callsite.is_some()) {
            let functions: Vec<String> = rule.function.iter().flatten().map(|name| format!("{name:?}")).collect();
            let (functions, size) = (functions.join(", "), rule.size.unwrap());
            let policy = self.rule("advised.toml", &functions, "512KiB-");
            assert_eq!(self.taken(&self.second, &policy), [(1, size)], "{functions} in {}", self.second.display());
        }
        self.is_predicted_as(&profile, table, &advice);
    }

    /// A profile of the first build; none where the kernel forbids sampling.
    fn profile(&self, accesses: u64) -> Option<PathBuf> {
        let profile = self.dir.join("app.prof");
        let mut c = numamma(&["profile", "-q", "-F", RATE, "-o"]);
        c.arg(&profile).arg(&self.first).arg(accesses.to_string());
        let out = run(c.env("OMP_NUM_THREADS", "4").env("OMP_WAIT_POLICY", "passive"));
        if out.code() == Some(2) && out.stderr.contains("perf_event_paranoid") {
            crate::common::skipped("this kernel lets only root sample");
            return None;
        }
        assert_eq!(out.success().stdout, "ok\n");
        Some(profile)
    }

    fn is_predicted_as(&self, profile: &Path, table: &[Row], advice: &Path) {
        let mut c = numamma(&["predict", "-q", "--json", "--nodes", "4", "--policy"]);
        c.arg(advice);
        let policies: Vec<PathBuf> = (0..table.len()).map(|row| self.dir.join(format!("row-{row}.toml"))).collect();
        for (row, (functions, size)) in table.iter().enumerate() {
            // Only the object of this size falls under the rule; for a name of no function any object would.
            let sizes = if *size > 0 { format!("{size}MiB") } else { "512KiB-".into() };
            c.arg("--policy").arg(self.rule(&format!("row-{row}.toml"), functions, &sizes));
        }
        let prediction = run(c.arg(profile)).success().json();
        let remarks: Vec<&str> = prediction["remarks"].as_array().unwrap().iter().filter_map(|r| r.as_str()).collect();
        let is_idle = |policy: &Path| {
            let start = format!("{}: no object of the profile is named", policy.display());
            remarks.iter().any(|remark| remark.starts_with(&start))
        };
        assert!(!is_idle(advice), "{remarks:#?}");
        for (policy, (functions, size)) in policies.iter().zip(table) {
            assert_eq!(is_idle(policy), *size == 0, "{functions}: {remarks:#?}");
        }
    }
}

/// The table for one program.
fn check(program: &Program, table: &[Row]) {
    program.is_placed_by(table);
    let _samples = alone();
    program.is_advised_as_by(table);
}

fn cpp(name: &str) -> Program {
    let builds: [&[&str]; 2] = [&["-O2"], &["-O0", "-DPADDING"]];
    Program::new(name, "g++", "all.cpp", &["-g", "-fopenmp", "-Wl,--build-id"], builds)
}

#[test]
fn functions_of_cpp_are_named_in_every_spelling() {
    check(&cpp("cpp"), CPP);
}

fn tool(tool: &str, args: &[&str], file: &Path) {
    run(Command::new(tool).args(args).arg(file)).success();
}

#[test]
fn stripped_programs_are_matched_by_their_debug_file() {
    let program = cpp("stripped");
    // The second build has no build-id: only the link names its debug file.
    tool("objcopy", &["--remove-section=.note.gnu.build-id"], &program.second);
    for build in [&program.first, &program.second] {
        let debug = build.with_extension("debug");
        run(Command::new("objcopy").arg("--only-keep-debug").arg(build).arg(&debug)).success();
        tool("strip", &[], build);
        let policy = program.rule("unknown.toml", r#""solver::grid""#, "512KiB-");
        assert_eq!(program.taken(build, &policy), [(0, 0)], "without its debug file");
        tool("objcopy", &[&format!("--add-gnu-debuglink={}", debug.display())], build);
    }
    check(&program, CPP);
}

#[test]
fn functions_of_c_are_named_and_wrappers_are_passed() {
    check(&Program::new("c", "cc", "all.c", &["-g", "-fopenmp"], [&["-O2"], &["-O1", "-DPADDING"]]), C);
}

#[test]
fn functions_of_rust_are_named_in_both_manglings() {
    for mangling in ["v0", "legacy"] {
        let scheme = format!("-Csymbol-mangling-version={mangling}");
        let flags = ["--edition=2024", "-g", "-Zunstable-options", &scheme, "--crate-name=app"];
        let builds: [&[&str]; 2] = [&["-Copt-level=3"], &["-Copt-level=1", "--cfg=padding"]];
        let name = format!("rust-{mangling}");
        check(&Program::new(&name, "rustc", "all.rs", &flags, builds), RUST);
    }
}

#[test]
fn procedures_of_fortran_are_named_with_their_module() {
    let flags = ["-g", "-cpp", "-fopenmp", "-fno-inline"];
    check(&Program::new("fortran", "gfortran", "all.f90", &flags, [&["-O2"], &["-O1", "-DPADDING"]]), FORTRAN);
}
