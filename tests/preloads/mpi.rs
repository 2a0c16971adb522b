//! MPI jobs with Debian's Open MPI: rules for some ranks only, a report and a profile for each rank, and the job's own output
//! and exit status.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use numamma::launch::library;
use serde_json::Value;

const NUMAMMA: &str = env!("CARGO_BIN_EXE_numamma");
const RANKS: usize = 4;

/// `field` in every rank, `make_rows` in ranks 0, 1 and 3 only.
const POLICY: &str = r#"
version = 1
[program]
path = "ring"
[[object]]
global = "field"
place = { policy = "block", nodes = "all" }
[[object]]
function = ["make_rows"]
ranks = "0-1,3-"
place = { policy = "interleave", nodes = "+0" }
"#;

/// A directory with the program and the policy, made once; `None` says loudly that Open MPI is missing.
fn job() -> Option<&'static Path> {
    static DIR: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let there = |tool: &str| Command::new(tool).arg("--version").output().is_ok_and(|o| o.status.success());
        if !there("mpirun") || !there("mpicc") {
            assert!(std::env::var_os("CI").is_none(), "CI must have Open MPI: run `make setup`");
            eprintln!("SKIPPED: openmpi-bin and libopenmpi-dev are missing (make setup installs them)");
            return None;
        }
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mpi-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preloads/mpi/ring.c");
        let done = Command::new("mpicc").args(["-O2", "-g", "-o"]).arg(dir.join("ring")).arg(source).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::write(dir.join("policy.toml"), POLICY).unwrap();
        Some(dir)
    };
    DIR.get_or_init(make).as_deref()
}

/// mpirun in a directory of its own below the job's.
fn mpirun(dir: &Path, name: &str) -> (Command, PathBuf) {
    let own = dir.join(name);
    std::fs::create_dir_all(&own).unwrap();
    let mut c = Command::new("mpirun");
    c.current_dir(&own).env_remove("LD_PRELOAD").env("NUMAMMA_LIB", preload().parent().unwrap());
    c.args(["--allow-run-as-root", "--oversubscribe", "-n", &RANKS.to_string()]);
    (c, own)
}

fn preload() -> PathBuf {
    library::find("apply").unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The objects of each rank's report: name and instances.
fn reports(own: &Path) -> Vec<Vec<(String, u64)>> {
    let report = |rank: usize| {
        let path = own.join(format!("report.{rank}.json"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let report: Value = serde_json::from_str(&text).unwrap();
        let objects = report["objects"].as_array().unwrap().iter();
        objects
            .map(|o| {
                assert_eq!(o["pages_off_plan"], 0, "{o}");
                assert!(o["pages_present"].as_u64() > Some(0), "{o}");
                (o["name"].as_str().unwrap().to_owned(), o["instances"].as_u64().unwrap())
            })
            .collect()
    };
    let found = (0..RANKS).map(report).collect();
    let others = std::fs::read_dir(own).unwrap().map(|e| e.unwrap().file_name()).filter(|n| n == "report.json").count();
    assert_eq!(others, 0, "no rank writes under the bare name");
    found
}

fn check_reports(own: &Path) {
    let field = ("field".to_owned(), 1);
    let rows = ("make_rows".to_owned(), 2);
    let both = vec![field.clone(), rows];
    assert_eq!(reports(own), [both.clone(), both.clone(), vec![field], both]);
}

#[test]
fn every_rank_is_placed_by_its_own_rules_and_reports_under_its_own_name() {
    let Some(dir) = job() else { return };
    let bare = mpirun(dir, "bare").0.arg(dir.join("ring")).output().unwrap();
    assert_eq!(text(&bare.stdout), "4 ranks, total 3152019296\n");
    let policy = dir.join("policy.toml");
    for how in ["run", "preload", "preload-all"] {
        let (mut c, own) = mpirun(dir, how);
        c.env("NUMAMMA_REPORT", "report.json");
        match how {
            "run" => c.args([NUMAMMA, "run", "--policy"]).arg(&policy).arg("--"),
            "preload" => c.args(["-x", &format!("LD_PRELOAD={}", preload().display())]).env("NUMAMMA_POLICY", &policy),
            // mpirun and its daemons under the library, too.
            _ => c.env("LD_PRELOAD", preload()).env("NUMAMMA_POLICY", &policy),
        };
        let out = c.arg(dir.join("ring")).output().unwrap();
        assert_eq!(text(&out.stdout), text(&bare.stdout), "{how}: {}", text(&out.stderr));
        assert!(out.status.success(), "{how}");
        assert!(!text(&out.stderr).contains("numamma:"), "{how}: {}", text(&out.stderr));
        check_reports(&own);
    }
}

/// A job that a rank ends. Debian's mpirun (4.1.4) itself crashes or hangs in one of ten aborts, bare ones too: such an
/// attempt says nothing of the program and is repeated.
fn ended(dir: &Path, name: &str, command: &[&str]) -> Output {
    for attempt in 0..10 {
        let (mpirun, own) = mpirun(dir, &format!("{name}-{attempt}"));
        let mut c = Command::new("timeout");
        c.current_dir(own).env_remove("LD_PRELOAD").env("NUMAMMA_LIB", preload().parent().unwrap());
        c.args(["-s", "KILL", "20"]).arg(mpirun.get_program()).args(mpirun.get_args());
        let out = c.args(command).output().unwrap();
        if out.status.code().is_some_and(|code| code < 124) {
            return out;
        }
    }
    panic!("mpirun crashed ten times");
}

#[test]
fn a_rank_that_aborts_or_fails_keeps_its_status() {
    let Some(dir) = job() else { return };
    let ring = dir.join("ring");
    for (how, status) in [("abort", 5), ("status", 3)] {
        let bare = ended(dir, &format!("bare-{how}"), &[ring.to_str().unwrap(), how]);
        let args = [NUMAMMA, "run", "--policy", "../policy.toml", "--", ring.to_str().unwrap(), how];
        let placed = ended(dir, how, &args);
        assert_eq!(bare.status.code(), Some(status), "{}", text(&bare.stderr));
        assert_eq!(placed.status.code(), Some(status), "{}", text(&placed.stderr));
    }
}

#[test]
fn verbose_says_which_rules_are_for_other_ranks() {
    let Some(dir) = job() else { return };
    let (mut c, _) = mpirun(dir, "verbose");
    c.env("NUMAMMA_VERBOSE", "1").args([NUMAMMA, "run", "--policy", "../policy.toml", "--"]);
    let out = c.arg(dir.join("ring")).output().unwrap();
    let left: Vec<String> = text(&out.stderr).lines().filter(|l| l.contains("ranks")).map(str::to_owned).collect();
    assert_eq!(left.len(), 1, "{}", text(&out.stderr));
    assert!(left[0].contains("numamma: make_rows: for ranks 0-1,3-, and this is rank 2: left alone"), "{left:?}");
    // Without a launcher there is no rank, and nothing for ranks.
    let mut alone = Command::new(dir.join("ring"));
    alone.env("LD_PRELOAD", preload()).env("NUMAMMA_POLICY", dir.join("policy.toml")).env("NUMAMMA_VERBOSE", "1");
    alone.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let out = alone.output().unwrap();
    assert!(text(&out.stdout).starts_with("1 ranks"), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("no launcher gave this process a rank"), "{}", text(&out.stderr));
}

#[test]
fn verify_inside_and_outside_of_mpirun() {
    let Some(dir) = job() else { return };
    // One verdict for each rank.
    let (mut c, own) = mpirun(dir, "verify-inside");
    c.args([NUMAMMA, "verify", "--policy", "../policy.toml", "-q", "-o", "verdict.json", "--"]);
    let out = c.arg(dir.join("ring")).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let verdict = |name: String| -> Value { serde_json::from_slice(&std::fs::read(own.join(name)).unwrap()).unwrap() };
    for rank in 0..RANKS {
        let v = verdict(format!("verdict.{rank}.json"));
        assert_eq!((v["ok"].clone(), v["processes"].clone()), (true.into(), 1.into()), "{v}");
        assert_eq!(v["objects"].as_array().unwrap().len(), if rank == 2 { 1 } else { 2 });
    }
    // One verdict for the job.
    let mut c = Command::new(NUMAMMA);
    c.current_dir(&own).env("NUMAMMA_LIB", preload().parent().unwrap()).env_remove("LD_PRELOAD");
    c.args(["verify", "--policy", "../policy.toml", "-o", "job.json", "--", "mpirun", "--allow-run-as-root"]);
    let out = c.args(["--oversubscribe", "-n", "4"]).arg(dir.join("ring")).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("present pages of 4 processes are on plan"), "{}", text(&out.stderr));
    let job = verdict("job.json".into());
    let instances: Vec<_> = job["objects"].as_array().unwrap().iter().map(|o| o["instances"].clone()).collect();
    assert_eq!(instances, [4, 6]);
}

#[test]
fn every_rank_has_a_profile_of_its_own() {
    let Some(dir) = job() else { return };
    let (mut c, own) = mpirun(dir, "profile");
    c.args([NUMAMMA, "profile", "-q", "--sampler", "none", "--"]);
    let out = c.arg(dir.join("ring")).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let mut names: Vec<String> =
        std::fs::read_dir(&own).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["numamma.0.prof", "numamma.1.prof", "numamma.2.prof", "numamma.3.prof"]);
    let report = |args: &[&str]| Command::new(NUMAMMA).current_dir(&own).arg("report").args(args).output().unwrap();
    for name in &names {
        let out = report(&[name]);
        assert!(text(&out.stdout).contains("exit status 0"), "{name}: {}{}", text(&out.stdout), text(&out.stderr));
    }
    let nameless = report(&[]);
    assert_eq!(nameless.status.code(), Some(2));
    assert!(text(&nameless.stderr).contains("numamma.0.prof"), "{}", text(&nameless.stderr));
}

/// A rank that the launcher binds to one CPU has the memory of that CPU's node for `all` and `+0`; on one node that is node 0.
#[test]
fn bound_ranks_are_placed_on_their_own_nodes() {
    let Some(dir) = job() else { return };
    let (mut c, own) = mpirun(dir, "bound");
    c.env("NUMAMMA_REPORT", "report.json").args(["--bind-to", "core:overload-allowed"]);
    c.args([NUMAMMA, "run", "--policy", "../policy.toml", "--"]);
    let out = c.arg(dir.join("ring")).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    check_reports(&own);
}
