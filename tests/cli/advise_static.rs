//! `numamma advise --static` on real programs: what it places, what it leaves out, what it refuses, and that what it
//! writes can be applied.

use std::path::{Path, PathBuf};

use crate::common::{self, Ran, Scratch, numamma, objects, plain, program, run};

fn scratch(name: &str) -> Scratch {
    Scratch::new(&format!("advise-static-{name}"))
}

/// Runs the compiler in `dir`: flags may be relative to it.
fn cc(dir: &Path, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    common::compile_in(dir, "cc", &format!("cli/advise_static/{source}"), name.into(), &[&["-O1"], flags].concat());
    dir.join(name)
}

fn numamma_in(dir: &Path, args: &[&str]) -> Ran {
    run(numamma(args).current_dir(dir))
}

/// The policy for `program`, and the objects with their placement (none: left out).
fn advice(dir: &Path, program: &str, options: &[&str]) -> (String, Vec<(String, Option<String>)>) {
    let args = |more: &[&'static str]| -> Vec<String> {
        ["advise", "--static", program].iter().chain(options).chain(more).map(|s| (*s).to_owned()).collect()
    };
    let run = |args: Vec<String>| {
        let out = numamma_in(dir, &args.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(out.status.success(), "{}", out.stderr);
        out.stdout
    };
    let policy = run(args(&[]));
    let json: serde_json::Value = serde_json::from_str(&run(args(&["--json"]))).unwrap();
    let objects = objects(&json).iter().map(|o| {
        let place = o["place"]["policy"].as_str().map(str::to_owned);
        assert_eq!(place.is_none(), o["reason"].is_string(), "{o}");
        (o["name"].as_str().unwrap().to_owned(), place)
    });
    (policy, objects.collect())
}

/// Runs `program` plainly and under the policy; verify must find every rule's object.
fn applies(dir: &Path, program: &str, arguments: &[&str], policy: &str) {
    std::fs::write(dir.join("static.toml"), policy).unwrap();
    let plain = run(plain(program).current_dir(dir).args(arguments));
    for command in ["run", "verify"] {
        let args: Vec<&str> =
            [command, "--policy", "static.toml", "--", program].into_iter().chain(arguments.iter().copied()).collect();
        let placed = numamma_in(dir, &args);
        assert_eq!(placed.status, plain.status, "{command}: {}", placed.stderr);
        assert_eq!(placed.stdout, plain.stdout, "{command}");
    }
}

fn placed(name: &str, policy: &str) -> (String, Option<String>) {
    (name.to_owned(), Some(policy.to_owned()))
}

#[test]
fn large_variables_are_placed_and_read_only_ones_are_not() {
    let dir = scratch("arrays");
    cc(&dir, "arrays.c", "arrays", &[]);
    let (policy, objects) = advice(&dir, "arrays", &["--nodes", "2", "--threads", "4", "--min-size", "2MiB"]);
    let left = |name: &str| (name.to_owned(), None);
    assert_eq!(
        objects,
        [
            placed("grid", "block"),
            placed("filled", "block"),
            left("table"),
            placed("hidden", "block"),
            left("pointers")
        ]
    );
    assert!(policy.contains("count = 4"), "{policy}");
    applies(&dir, "./arrays", &[], &policy);
    let (_, fewer) = advice(&dir, "./arrays", &["--nodes", "2", "--min-size", "16MiB"]);
    assert_eq!(fewer, [placed("grid", "block")]);
    let (policy, none) = advice(&dir, "./arrays", &["--nodes", "2", "--min-size", "1GiB"]);
    assert!(none.is_empty() && policy.contains("No object is placed"), "{policy}");
    applies(&dir, "./arrays", &[], &policy);
}

#[test]
fn stripped_programs_have_sections() {
    let dir = scratch("stripped");
    cc(&dir, "arrays.c", "stripped", &["-s"]);
    let (policy, objects) = advice(&dir, "stripped", &["--nodes", "2", "--min-size", "4MiB"]);
    assert!(objects.contains(&placed(".bss", "interleave")), "{objects:?}");
    assert!(objects.contains(&placed(".data", "interleave")), "{objects:?}");
    assert!(policy.contains("has no symbols of variables"), "{policy}");
    applies(&dir, "./stripped", &[], &policy);
}

#[test]
fn libraries_of_the_program_are_read_too() {
    let dir = scratch("library");
    std::fs::create_dir(dir.join("lib")).unwrap();
    cc(&dir, "plugin.c", "lib/libplugin.so", &["-shared", "-fPIC"]);
    let flags = ["-DWITH_LIBRARY", "-Llib", "-lplugin", "-Wl,-rpath,$ORIGIN/lib"];
    cc(&dir, "arrays.c", "linked", &flags);
    let (policy, objects) = advice(&dir, "linked", &["--nodes", "2", "--min-size", "8MiB"]);
    assert_eq!(objects, [placed("grid", "block"), placed("library_state", "block")]);
    assert!(policy.contains("module = \"libplugin.so\""), "{policy}");
    applies(&dir, "./linked", &[], &policy);
}

#[test]
fn what_cannot_be_placed_is_refused_with_the_reason() {
    let dir = scratch("refused");
    dir.write_mode("job.sh", "#!/bin/sh\n./arrays\n", 0o755);
    let program = cc(&dir, "arrays.c", "arrays", &[]);
    let mut foreign = std::fs::read(&program).unwrap();
    foreign[18..20].copy_from_slice(&[183, 0]); // e_machine of AArch64
    dir.write_mode("foreign", &foreign, 0o755);
    dir.write_mode("short", &foreign[..40], 0o755);
    cc(&dir, "arrays.c", "fixed", &["-static"]);
    for (args, words) in [
        (&["--static", "missing"][..], "missing"),
        (&["--static", "job.sh"], "is a script run by"),
        (&["--static", "foreign"], "another architecture"),
        (&["--static", "short"], "short"),
        (&["--static", "fixed"], "statically linked"),
        (&["--static", "."], "directory"),
        (&["--static", "arrays", "--min-size", "0"], "at least 1"),
        (&["--static", "arrays", "--nodes", "0"], "0"),
        (&["--static", "arrays", "x.prof"], "cannot be used with"),
        (&["--min-size", "8MiB"], "--static"),
    ] {
        let out = numamma_in(&dir, &[&["advise"], args].concat());
        assert_eq!(out.code(), Some(2), "{args:?}: {}", out.stderr);
        assert!(out.stderr.contains(words), "{args:?}: {}", out.stderr);
        assert!(out.stdout.is_empty());
    }
}

#[test]
fn the_lu_like_program_runs_placed_and_prints_the_same() {
    let program = program("lu");
    let dir = scratch("lu");
    let program = program.to_str().unwrap();
    let (policy, objects) = advice(&dir, program, &["--nodes", "2", "--min-size", "8MiB"]);
    assert_eq!(objects, [placed("cvar_", "block"), placed("cjac_", "block")]);
    applies(&dir, program, &["2", "2"], &policy);
}
