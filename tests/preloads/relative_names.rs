//! Names relative to the directory in which a program was started, in processes that it starts elsewhere.

use std::path::Path;

use crate::common::{Scratch, compile, json_file, numamma, plain, preload, run};

/// A directory with a program, the library and a policy for one of its variables, and a directory to go to.
fn prepared(name: &str) -> Scratch {
    let dir = Scratch::new(name);
    compile("cc", "hostile/fuzz/tiny.c", dir.join("tiny"), &["-O1", "-g", "-pthread"]);
    std::fs::create_dir(dir.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(preload("apply"), dir.join("apply.so")).unwrap();
    dir.write("policy.toml", "version = 1\n[program]\npath = \"tiny\"\n[[object]]\nglobal = \"zeroes\"\nplace = { policy = \"interleave\" }\n");
    dir
}

const GO: &str = "cd elsewhere; ../tiny; status=$?; test -z \"$SHOW\" || printenv $SHOW; exit $status";

#[test]
fn children_in_another_directory_are_placed_as_strictly() {
    let dir = prepared("relative");
    let shell = |preload: &Path| {
        let mut command = plain("sh");
        command.current_dir(&dir).args(["-c", GO]).env("LD_PRELOAD", preload).env("NUMAMMA_POLICY", "policy.toml");
        command
    };
    for library in [preload("apply").as_path(), Path::new("./apply.so")] {
        let out = run(shell(library).env("NUMAMMA_STRICT", "1").env("NUMAMMA_REPORT", "report.json")).ended(5);
        assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("173 2\n", ""), "{library:?}");
        // The report is where it was asked for, not where the child went.
        let report = json_file(&dir.join("report.json"));
        assert!(report["objects"][0]["instances"].as_u64() == Some(1), "{report}");
        std::fs::remove_file(dir.join("report.json")).unwrap();
        assert_eq!(std::fs::read_dir(dir.join("elsewhere")).unwrap().count(), 0);
    }
    // Names that are absolute, and a name that leads nowhere, stay as they are.
    let shown = |name: &str, value: &str| {
        let out = run(shell(&preload("apply")).env(name, value).env("SHOW", name)).ended(5);
        out.stdout.lines().last().unwrap_or_default().to_owned()
    };
    let absolute = dir.join("policy.toml");
    assert_eq!(shown("NUMAMMA_POLICY", "policy.toml"), absolute.to_str().unwrap());
    assert_eq!(shown("NUMAMMA_POLICY", absolute.to_str().unwrap()), absolute.to_str().unwrap());
    assert_eq!(shown("NUMAMMA_POLICY", "none.toml"), "none.toml");
    assert_eq!(shown("LD_LIBRARY_PATH", "x:y"), "x:y");
}

/// The program that the commands start is static: no library of ours is in it that could make the name absolute.
#[test]
fn commands_hand_on_absolute_names_of_policies() {
    let dir = prepared("relative-run");
    let source = "preloads/relative_names/away.c";
    let away = compile("cc", source, dir.join("away"), &["-O1", "-g", "-static"]);
    std::fs::create_dir(dir.join("policies")).unwrap();
    std::fs::rename(dir.join("policy.toml"), dir.join("policies/policy.toml")).unwrap();
    std::os::unix::fs::symlink("policies/policy.toml", dir.join("link.toml")).unwrap();
    let absolute = dir.join("policies/policy.toml").canonicalize().unwrap();
    let expected = format!("{}\n173 2\n", absolute.display());
    for name in ["policies/policy.toml", "./elsewhere/../policies/policy.toml", "link.toml"] {
        for strict in [None, Some("1")] {
            let report = dir.join("report.json");
            let mut command = numamma(&["run", "-q", "--policy", name, "--"]);
            command.current_dir(&dir).arg(&away).args(["elsewhere", "../tiny"]).env("NUMAMMA_REPORT", "report.json");
            let out = run(command.envs(strict.map(|strict| ("NUMAMMA_STRICT", strict)))).ended(5);
            assert_eq!((&*out.stdout, &*out.stderr), (&*expected, ""), "{name}, strict {strict:?}");
            assert_eq!(json_file(&report)["objects"][0]["instances"], 1, "{name}, strict {strict:?}");
            std::fs::remove_file(report).unwrap();
        }
        let mut verify = numamma(&["verify", "--policy", name, "-o", "report.json", "--"]);
        let out = run(verify.current_dir(&dir).arg(&away).args(["elsewhere", "../tiny"])).ended(5);
        assert!(out.stdout.starts_with(&expected), "{name}: {out:?}");
        assert_eq!(json_file(&dir.join("report.json"))["objects"][0]["instances"], 1, "{name}: {out:?}");
    }
    assert_eq!(std::fs::read_dir(dir.join("elsewhere")).unwrap().count(), 0);
}

/// A `%` of a directory must not become the pattern of a report.
#[test]
fn a_directory_with_a_percent_sign() {
    let dir = prepared("relative-%p");
    let mut command = plain("./tiny");
    command.current_dir(&dir).env("LD_PRELOAD", preload("apply")).env("NUMAMMA_POLICY", "policy.toml");
    run(command.env("NUMAMMA_REPORT", "report.json")).ended(5);
    assert!(dir.join("report.json").exists());
}
