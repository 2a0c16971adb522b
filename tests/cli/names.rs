//! What `numamma` calls the objects of real programs: the function and line that a person would name, in every table
//! the same, and no two the same.
//!
//! The expected names are those of the programs' own sources.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{Scratch, alone, compile, compile_in, exists, json_file, numamma, placed, run, source};

/// Smallest size of the arrays of all programs; what the C library allocates is smaller.
const LARGE: u64 = 256 << 10;

/// Runs `program` under the profiler and returns the profile.
fn profile(dir: &Path, program: &Path) -> PathBuf {
    let out = program.with_extension("prof");
    let args = ["profile", "-F", "2000", "-o", out.to_str().unwrap(), "--", program.to_str().unwrap()];
    let ran = run(numamma(&args).current_dir(dir));
    assert_eq!(ran.code(), Some(0), "{ran:?}");
    out
}

fn answer(command: &str, profile: &Path, more: &[&str]) -> Value {
    let ran = run(&mut numamma(&[&[command, profile.to_str().unwrap(), "--json"], more].concat()));
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"))
}

/// Name and functions of the call stack of the large objects, by descending cost.
fn names(profile: &Path) -> Vec<(String, Vec<String>)> {
    let report = answer("report", profile, &[]);
    let all = report["objects"].as_array().expect("a list");
    let text = |v: &Value| v.as_str().expect("a text").to_owned();
    let distinct: BTreeSet<String> = all.iter().map(|o| text(&o["name"])).collect();
    assert_eq!(distinct.len(), all.len(), "two objects have one name: {report}");
    let large = all.iter().filter(|o| o["kind"] == "heap" && o["size"].as_u64() >= Some(LARGE));
    large.map(|o| (text(&o["name"]), o["callsite"].as_array().expect("a list").iter().map(text).collect())).collect()
}

/// The number of the line of a source that holds `text`, which only one line does.
fn line(source: &str, text: &str) -> usize {
    let mut lines = source.lines().enumerate().filter(|(_, l)| l.contains(text)).map(|(i, _)| i + 1);
    let found = lines.next().unwrap_or_else(|| panic!("no line has {text}"));
    assert!(lines.next().is_none(), "{text} is in two lines");
    found
}

fn only_names(profile: &Path) -> BTreeSet<String> {
    names(profile).into_iter().map(|(name, _)| name).collect()
}

fn set<const N: usize>(list: [String; N]) -> BTreeSet<String> {
    BTreeSet::from(list)
}

/// Sixty arrays of one size from one template, as a mesh code allocates its fields: every row is named by its own line.
#[test]
fn arrays_of_one_inlined_template_are_named_by_their_lines() {
    const ARRAYS: usize = 60;
    let _alone = alone();
    let dir = Scratch::new("names-mesh");
    let mut text = String::from(
        "#include <cstdio>\n#include <cstdlib>\n\
         template <class T> static inline T *allocate(long n) { T *p = (T *)malloc(n * sizeof(T)); if (!p) abort(); \
         return p; }\nstatic double *fields[60];\nint main() {\n    const long n = 1 << 15;\n",
    );
    let first = text.lines().count() + 1;
    for i in 0..ARRAYS {
        writeln!(text, "    fields[{i}] = allocate<double>(n);").unwrap();
    }
    text += "    for (int r = 0; r < 400; r++) for (double *f : fields)\n\
             \x20       for (long i = 0; i < n; i++) f[i] = f[i] * 0.5 + i;\n\
             \x20   double s = 0; for (double *f : fields) s += f[7]; printf(\"%g\\n\", s);\n}\n";
    for (name, level, inlining) in [("inlined", "-O2", "-finline-functions"), ("called", "-O2", "-fno-inline")] {
        let path = dir.join(format!("{name}.cpp"));
        std::fs::write(&path, &text).unwrap();
        let program = dir.join(name);
        let mut build = std::process::Command::new("g++");
        run(build.args([level, inlining, "-g", "-o"]).arg(&program).arg(&path)).success();
        let found = names(&profile(&dir, &program));
        let expected: BTreeSet<String> = (0..ARRAYS).map(|i| format!("main {name}.cpp:{}", first + i)).collect();
        let distinct: BTreeSet<String> = found.iter().map(|(n, _)| n.clone()).collect();
        assert!(distinct.is_subset(&expected), "{distinct:?}");
        // All but a few are sampled.
        assert!(distinct.len() >= ARRAYS * 3 / 4, "{name}: {distinct:?}");
        for (_, stack) in &found {
            assert!(stack[0].starts_with("allocate<double> "), "{stack:?}");
            assert!(stack[1].starts_with("main "), "{stack:?}");
        }
    }
}

#[test]
fn functions_that_left_by_a_tail_call_name_their_objects() {
    let _alone = alone();
    let dir = Scratch::new("names-tails");
    let text = std::fs::read_to_string(source("cli/names/tails.cpp")).unwrap();
    // clang writes no call sites for calls of the C library, so that there the last step is not known.
    let program = compile("g++", "cli/names/tails.cpp", dir.join("tails"), &["-O2", "-g"]);
    let found = names(&profile(&dir, &program));
    for (part, stack) in
        [("*make_edges(", &["make_edges", "main"][..]), ("*make_plane(", &["make_plane", "make_nodes", "main"])]
    {
        let name = format!("{} tails.cpp:{}", stack[0], line(&text, part));
        let found = found.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name}: {found:?}"));
        let functions: Vec<&str> = found.1.iter().filter_map(|step| step.split(' ').next()).collect();
        assert_eq!(functions[..stack.len()], *stack);
    }
}

#[test]
fn wrappers_that_serve_several_callers_are_passed() {
    let _alone = alone();
    let dir = Scratch::new("names-wrapped");
    let text = std::fs::read_to_string(source("cli/names/wrapped.c")).unwrap();
    let at = |function: &str, part: &str| format!("{function} wrapped.c:{}", line(&text, part));
    let expected =
        set([at("main", "hot = numbers"), at("main", "cold = numbers"), at("build_grid", "double *p = numbers")]);
    for level in ["-O0", "-O1", "-O2"] {
        let program = dir.join(format!("wrapped{level}"));
        let program = compile("gcc", "cli/names/wrapped.c", program, &[level, "-g", "-pthread", "-DROUNDS=100"]);
        let mut found = only_names(&profile(&dir, &program));
        // `cold` is used so little that a run may not show it.
        found.insert(at("main", "cold = numbers"));
        assert_eq!(found, expected, "{level}");
    }
}

#[test]
fn fortran_and_rust_arrays_are_named_by_the_procedure_that_allocates() {
    let _alone = alone();
    let dir = Scratch::new("names-languages");
    if exists("gfortran") {
        let program =
            compile_in(&dir, "gfortran", "cli/names/arrays.f90", dir.join("arrays"), &["-O1", "-g", "-fno-inline"]);
        let text = std::fs::read_to_string(source("cli/names/arrays.f90")).unwrap();
        let at = |name: &str, part: &str| format!("fields::{name} arrays.f90:{}", line(&text, part));
        let sides = at("make_sides", "allocate(left(n), right(n))");
        let expected = set([
            at("make_rho", "allocate(rho(n))"),
            at("make_flux", "allocate(flux(n))"),
            format!("{sides} #1"),
            format!("{sides} #2"),
        ]);
        assert_eq!(only_names(&profile(&dir, &program)), expected);
    }
    // Line tables have the names of inlined functions without their crate.
    for (debug, program) in [("debuginfo=2", "vectors"), ("debuginfo=line-tables-only", "vectors-lines")] {
        let program = compile("rustc", "cli/names/vectors.rs", dir.join(program), &["-O", "-C", debug]);
        let found = only_names(&profile(&dir, &program));
        let functions: BTreeSet<&str> =
            found.iter().filter_map(|name| name.split(' ').next()?.rsplit("::").next()).collect();
        let expected = ["make_force", "make_mass", "make_place"];
        assert_eq!(functions.into_iter().collect::<Vec<_>>(), expected, "{debug}: {found:?}");
        assert!(found.iter().all(|name| name.contains(" vectors.rs:")), "{debug}: {found:?}");
    }
}

/// One name in report, advise, predict and the library's report; and after a rebuild, where only function names are
/// left, a rule takes its own object and not the neighbour that had none.
#[test]
fn a_rule_has_the_name_of_the_report_and_takes_its_own_object_after_a_rebuild() {
    let _alone = alone();
    let dir = Scratch::new("names-rebuilt");
    let flags = ["-O1", "-g", "-pthread", "-DROUNDS=400"];
    let program = compile("gcc", "cli/names/wrapped.c", dir.join("wrapped"), &flags);
    let profile = profile(&dir, &program);
    let mut named = only_names(&profile);
    // `cold` is used so little that a run may not show it.
    let text = std::fs::read_to_string(source("cli/names/wrapped.c")).unwrap();
    named.insert(format!("main wrapped.c:{}", line(&text, "cold = numbers")));
    // A policy for all nodes of the machine, which is made on a machine with one node.
    let policy = run(&mut numamma(&["advise", profile.to_str().unwrap()]));
    let file = dir.join("policy.toml");
    std::fs::write(&file, &policy.stdout).unwrap();
    let rules = policy.stdout.matches("[[object]]").count();
    assert!(rules >= 2, "{policy:?}");
    let rebuilt_dir = dir.join("rebuilt");
    std::fs::create_dir(&rebuilt_dir).unwrap();
    let rebuilt = compile_in(
        &rebuilt_dir,
        "gcc",
        "cli/names/wrapped.c",
        rebuilt_dir.join("wrapped"),
        &[&flags[..], &["-DREBUILT"]].concat(),
    );
    for (build, program) in [("the same", &program), ("another", &rebuilt)] {
        let report = dir.join("report.json");
        let ran = run(placed(program, &file).env("NUMAMMA_REPORT", &report));
        assert_eq!(ran.code(), Some(0), "{ran:?}");
        let counted = json_file(&report);
        for object in counted["objects"].as_array().expect("a list") {
            assert!(named.contains(object["name"].as_str().unwrap()), "{build}: {object} {named:?}");
            assert_eq!(object["instances"], 1, "{build}: {object}\n{}", policy.stdout);
        }
    }
}
