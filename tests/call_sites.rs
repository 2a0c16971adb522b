//! Which call site a function name of a rule means, in programs of all languages: every spelling takes its object.
//!
//! The placement report says which rule took how many objects. The addresses of the program are never in the policy, so
//! every rule is matched by name.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use numamma::launch::library;
use serde_json::Value;

/// A directory for this run's programs, made once.
fn scratch() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("call-sites-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    })
}

fn ran(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Compiles tests/call_sites/<source> to <name>.
fn compile(compiler: &str, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/call_sites").join(source);
    let out = scratch().join(name);
    ran(Command::new(compiler).env("RUSTC_BOOTSTRAP", "1").args(flags).arg("-o").arg(&out).arg(source));
    out
}

/// Objects and MiB that each rule of the policy took in a run of `program`.
fn taken(program: &Path, policy: &Path) -> Vec<(u64, u64)> {
    let report = scratch().join(format!("report-{:?}.json", std::thread::current().id()));
    let _ = std::fs::remove_file(&report);
    let preload = library::find("apply").unwrap();
    let mut run = Command::new(program);
    run.env("LD_PRELOAD", preload).env("NUMAMMA_POLICY", policy).env("NUMAMMA_REPORT", &report);
    assert_eq!(ran(&mut run).trim(), "ok");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&report).unwrap()).unwrap();
    let number = |object: &Value, key: &str| object[key].as_u64().unwrap_or_else(|| panic!("no {key} in {object}"));
    let objects = report["objects"].as_array().unwrap();
    objects.iter().map(|o| (number(o, "instances"), number(o, "bytes") >> 20)).collect()
}

/// Runs `program` once for each (list of functions, MiB) and checks that a rule with these functions takes one object
/// of this size; 0 MiB: that it takes none.
fn assert_named(program: &Path, table: &[(&str, u64)]) {
    for (functions, size) in table {
        let policy = scratch().join(format!("{}.toml", program.file_name().unwrap().to_str().unwrap()));
        let rule = format!(
            "version = 1\n[[object]]\nfunction = [{functions}]\nsizes = \"512KiB-\"\nplace = {{ policy = \"interleave\" }}\n"
        );
        std::fs::write(&policy, rule).unwrap();
        assert_eq!(taken(program, &policy), [(u64::from(*size > 0), *size)], "{functions} in {}", program.display());
    }
}

/// Function names of tests/call_sites/all.cpp and the MiB that each allocates.
const CPP: &[(&str, u64)] = &[
    (r#""overload(int)""#, 1),
    (r#""_Z8overloadi""#, 1),
    (r#""overload(double)", "main""#, 2),
    (r#""overload(long)""#, 0),
    (r#""solver::grid(unsigned long)""#, 3),
    (r#""operator new[](unsigned long)", "solver::grid(unsigned long)""#, 3),
    (r#""solver::grid""#, 3),
    (r#""grid""#, 0),
    (r#""make<double>""#, 4),
    (r#""make<float>(unsigned long)""#, 5),
    (r#""double* make<double>(unsigned long)""#, 4),
    (r#""make<int>""#, 0),
    (r#""Mesh::Mesh(unsigned long)""#, 6),
    (r#""_ZN4MeshC2Em""#, 6),
    (r#""(anonymous namespace)::hidden(unsigned long)""#, 7),
    (r#""outer""#, 8),
    (r#""main::{lambda(unsigned long)#1}::operator()""#, 9),
];

#[test]
fn functions_of_cpp_are_named_in_every_spelling() {
    for (compiler, flags) in [("g++", "-O2"), ("g++", "-O0")] {
        assert_named(&compile(compiler, "all.cpp", &format!("cpp{flags}"), &[flags]), CPP);
    }
}

#[test]
fn stripped_programs_are_matched_by_their_debug_file() {
    for (name, id) in [("stripped-id", "-Wl,--build-id"), ("stripped-none", "-Wl,--build-id=none")] {
        let program = compile("g++", "all.cpp", name, &["-O2", "-g", id]);
        let debug = scratch().join(format!("{name}.debug"));
        ran(Command::new("objcopy").arg("--only-keep-debug").arg(&program).arg(&debug));
        ran(Command::new("strip").arg(&program));
        assert_named(&program, &[(r#""solver::grid""#, 0)]);
        let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
        link.push(&debug);
        ran(Command::new("objcopy").arg(link).arg(&program));
        assert_named(&program, &CPP[..6]);
    }
}

#[test]
fn functions_of_c_are_named_and_wrappers_are_passed() {
    let table = [
        (r#""grid_alloc""#, 1),
        (r#""table", "main""#, 2),
        (r#""xmalloc", "table""#, 2),
        (r#""xmalloc""#, 2),
        (r#""tabl""#, 0),
    ];
    assert_named(&compile("cc", "all.c", "c", &["-O2"]), &table);
}

#[test]
fn functions_of_rust_are_named_in_both_manglings() {
    let both = [
        (r#""app::plain""#, 1),
        (r#""app::plain::h0123456789abcdef""#, 1),
        (r#""app::solver::Grid::new", "app::main""#, 2),
        (r#""<app::solver::Grid as app::solver::Fill>::fill""#, 3),
        (r#""app::solver::new""#, 0),
    ];
    for mangling in ["v0", "legacy"] {
        let scheme = format!("symbol-mangling-version={mangling}");
        let flags = ["--edition=2024", "-O", "-Zunstable-options", "-C", &scheme, "--crate-name=app"];
        assert_named(&compile("rustc", "all.rs", &format!("rust-{mangling}"), &flags), &both);
    }
}

#[test]
fn procedures_of_fortran_are_named_with_their_module() {
    let program = compile("gfortran", "all.f90", "fortran", &["-O2", "-fno-inline"]);
    assert_named(&program, &[(r#""solver::setup""#, 1), (r#""__solver_MOD_setup""#, 1), (r#""inner""#, 2)]);
}

/// The rules of a shipped policy place something in the C++ program it names.
#[test]
fn the_policy_for_streamcluster_places_both_of_its_objects() {
    let program = compile("g++", "streamcluster.cpp", "streamcluster", &["-O2"]);
    let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/streamcluster.toml");
    assert!(taken(&program, &policy).iter().all(|(objects, _)| *objects == 1), "{:?}", taken(&program, &policy));
}
