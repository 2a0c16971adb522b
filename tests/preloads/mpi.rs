//! MPI jobs with Debian's Open MPI and MPICH: rules for some ranks only, a report and a profile for each rank, and the
//! job's own output and exit status.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::common::{
    NUMAMMA, Ran, Scratch, alone, compile, json_file, needs, numamma, number, objects, placed, plain, preload, run,
};

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

/// A directory with the program and the policy, made once. Where Open MPI is missing: none, with a message.
fn job() -> Option<&'static Scratch> {
    static DIR: OnceLock<Option<Scratch>> = OnceLock::new();
    let make = || {
        if !needs(&["mpirun", "mpicc"], "MPI") {
            return None;
        }
        let dir = Scratch::new("mpi");
        compile("mpicc", "preloads/mpi/ring.c", dir.join("ring"), &["-O2", "-g"]);
        dir.write("policy.toml", POLICY);
        Some(dir)
    };
    DIR.get_or_init(make).as_ref()
}

/// mpirun in a directory of its own below the job's.
fn mpirun(dir: &Path, name: &str) -> (Command, PathBuf) {
    let own = dir.join(name);
    std::fs::create_dir_all(&own).unwrap();
    let mut c = plain("mpirun");
    c.current_dir(&own).env("NUMAMMA_LIB", preload("apply").parent().unwrap());
    c.args(["--allow-run-as-root", "--oversubscribe", "-n", &RANKS.to_string()]);
    (c, own)
}

/// The objects of each rank's report: name and instances.
fn reports(own: &Path) -> Vec<Vec<(String, u64)>> {
    let report = |rank: usize| {
        let report = json_file(&own.join(format!("report.{rank}.json")));
        let instances = |o: &Value| {
            assert_eq!(o["pages_off_plan"], 0, "{o}");
            assert!(number(o, "pages_present") > 0, "{o}");
            (o["name"].as_str().unwrap().to_owned(), number(o, "instances"))
        };
        objects(&report).iter().map(instances).collect()
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
    let _alone = alone();
    let bare = run(mpirun(dir, "bare").0.arg(dir.join("ring")));
    assert_eq!(bare.stdout, "4 ranks, total 3152019296\n");
    let policy = dir.join("policy.toml");
    for how in ["run", "preload", "preload-all"] {
        let (mut c, own) = mpirun(dir, how);
        c.env("NUMAMMA_REPORT", "report.json");
        match how {
            "run" => c.args([NUMAMMA, "run", "--policy"]).arg(&policy).arg("--"),
            "preload" => {
                c.args(["-x", &format!("LD_PRELOAD={}", preload("apply").display())]).env("NUMAMMA_POLICY", &policy)
            }
            // mpirun and its daemons under the library, too.
            _ => c.env("LD_PRELOAD", preload("apply")).env("NUMAMMA_POLICY", &policy),
        };
        let out = run(c.arg(dir.join("ring")));
        assert_eq!(out.stdout, bare.stdout, "{how}: {}", out.stderr);
        assert!(out.status.success(), "{how}");
        // The summary comes from one rank.
        let lines: Vec<&str> = out.stderr.lines().filter(|line| line.contains("numamma:")).collect();
        let expected: &[&str] = if how == "run" { &["numamma: 3 objects placed"] } else { &[] };
        assert_eq!(lines, expected, "{how}: {}", out.stderr);
        check_reports(&own);
    }
}

/// A job that a rank ends. Debian's mpirun (4.1.4) itself crashes or hangs in one of ten aborts, bare ones too: such an
/// attempt says nothing of the program and is repeated.
fn ended(dir: &Path, name: &str, command: &[&str]) -> Ran {
    for attempt in 0..10 {
        let (mpirun, own) = mpirun(dir, &format!("{name}-{attempt}"));
        let mut c = Command::new("timeout");
        c.current_dir(own).env_remove("LD_PRELOAD").env("NUMAMMA_LIB", preload("apply").parent().unwrap());
        c.args(["-s", "KILL", "20"]).arg(mpirun.get_program()).args(mpirun.get_args());
        let out = run(c.args(command));
        if out.code().is_some_and(|code| code < 124) {
            return out;
        }
    }
    panic!("mpirun crashed ten times");
}

#[test]
fn a_rank_that_aborts_or_fails_keeps_its_status() {
    let Some(dir) = job() else { return };
    let _alone = alone();
    let ring = dir.join("ring");
    for (how, status) in [("abort", 5), ("status", 3)] {
        let bare = ended(dir, &format!("bare-{how}"), &[ring.to_str().unwrap(), how]);
        let args = [NUMAMMA, "run", "--policy", "../policy.toml", "--", ring.to_str().unwrap(), how];
        let placed = ended(dir, how, &args);
        assert_eq!(bare.code(), Some(status), "{}", bare.stderr);
        assert_eq!(placed.code(), Some(status), "{}", placed.stderr);
    }
}

#[test]
fn verbose_says_which_rules_are_for_other_ranks() {
    let Some(dir) = job() else { return };
    let _alone = alone();
    let (mut c, _) = mpirun(dir, "verbose");
    c.env("NUMAMMA_VERBOSE", "1").args([NUMAMMA, "run", "--policy", "../policy.toml", "--"]);
    let out = run(c.arg(dir.join("ring")));
    let left: Vec<String> = out.stderr.lines().filter(|l| l.contains("ranks")).map(str::to_owned).collect();
    assert_eq!(left.len(), 1, "{}", out.stderr);
    assert!(left[0].contains("numamma: make_rows: for ranks 0-1,3-, and this is rank 2: left alone"), "{left:?}");
    // Without a launcher there is no rank, and nothing for ranks.
    let mut single = placed(dir.join("ring"), dir.join("policy.toml"));
    single.env("NUMAMMA_VERBOSE", "1");
    single.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let out = run(single);
    assert!(out.stdout.starts_with("1 ranks"), "{}", out.stderr);
    assert!(out.stderr.contains("no launcher gave this process a rank"), "{}", out.stderr);
}

#[test]
fn verify_inside_and_outside_of_mpirun() {
    let Some(dir) = job() else { return };
    let _alone = alone();
    // One verdict for each rank.
    let (mut c, own) = mpirun(dir, "verify-inside");
    c.args([NUMAMMA, "verify", "--policy", "../policy.toml", "-q", "-o", "verdict.json", "--"]);
    let out = run(c.arg(dir.join("ring")));
    assert!(out.status.success(), "{}", out.stderr);
    let verdict = |name: String| json_file(&own.join(name));
    for rank in 0..RANKS {
        let v = verdict(format!("verdict.{rank}.json"));
        assert_eq!((v["ok"].clone(), v["processes"].clone()), (true.into(), 1.into()), "{v}");
        assert_eq!(v["objects"].as_array().unwrap().len(), if rank == 2 { 1 } else { 2 });
    }
    // One verdict for the job.
    let mut c = numamma(&["verify", "--policy", "../policy.toml", "-o", "job.json", "--"]);
    c.current_dir(&own).args(["mpirun", "--allow-run-as-root"]);
    let out = run(c.args(["--oversubscribe", "-n", "4"]).arg(dir.join("ring")));
    assert!(out.status.success(), "{}", out.stderr);
    assert!(out.stderr.contains("present pages of 4 processes are on plan"), "{}", out.stderr);
    let job = verdict("job.json".into());
    let instances: Vec<_> = job["objects"].as_array().unwrap().iter().map(|o| o["instances"].clone()).collect();
    assert_eq!(instances, [4, 6]);
}

#[test]
fn every_rank_has_a_profile_of_its_own() {
    let Some(dir) = job() else { return };
    let _alone = alone();
    let (mut c, own) = mpirun(dir, "profile");
    c.args([NUMAMMA, "profile", "-q", "--sampler", "none", "--"]);
    let out = run(c.arg(dir.join("ring")));
    assert!(out.status.success(), "{}", out.stderr);
    let mut names: Vec<String> =
        std::fs::read_dir(&own).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["numamma.0.prof", "numamma.1.prof", "numamma.2.prof", "numamma.3.prof"]);
    let report = |args: &[&str]| run(numamma(&["report"]).current_dir(&own).args(args));
    for name in &names {
        let out = report(&[name]);
        assert!(out.stdout.contains("exit status 0"), "{name}: {}{}", out.stdout, out.stderr);
    }
    let nameless = report(&[]);
    assert_eq!(nameless.code(), Some(2));
    assert!(nameless.stderr.contains("numamma.0.prof"), "{}", nameless.stderr);
}

/// A rank that the launcher binds to one CPU has the memory of that CPU's node for `all` and `+0`; on one node that
/// is node 0.
#[test]
fn bound_ranks_are_placed_on_their_own_nodes() {
    let Some(dir) = job() else { return };
    let _alone = alone();
    let (mut c, own) = mpirun(dir, "bound");
    c.env("NUMAMMA_REPORT", "report.json").args(["--bind-to", "core:overload-allowed"]);
    c.args([NUMAMMA, "run", "--policy", "../policy.toml", "--"]);
    let out = run(c.arg(dir.join("ring")));
    assert!(out.status.success(), "{}", out.stderr);
    check_reports(&own);
}

/// The recipe of the README under MPICH, whose launcher names ranks otherwise: a profile of each rank, ranks placed by
/// their own rules, one verdict for the job.
#[test]
fn the_ranks_of_mpich_are_recorded_and_placed() {
    if !needs(&["mpirun.mpich", "mpicc.mpich"], "MPICH") {
        return;
    }
    let _alone = alone();
    let dir = Scratch::new("mpich");
    let ring = compile("mpicc.mpich", "preloads/mpi/ring.c", dir.join("ring"), &["-O2", "-g"]);
    dir.write("policy.toml", POLICY);
    let mpirun = |args: &[&str]| {
        let mut c = plain("mpirun.mpich");
        c.current_dir(&*dir).env("NUMAMMA_LIB", preload("apply").parent().unwrap());
        run(c.args(["-n", &RANKS.to_string()]).args(args).arg(&ring)).success()
    };
    let bare = mpirun(&[]).stdout;
    assert_eq!(bare, "4 ranks, total 3152019296\n");
    let recorded = mpirun(&[NUMAMMA, "profile", "--sampler", "none", "--"]);
    assert_eq!(recorded.stdout, bare);
    // Ranks write their lines at the same time, and each line is whole.
    let lines = recorded.stderr.lines();
    let torn: Vec<&str> = lines.filter(|line| line.matches("numamma:").count() != 1).collect();
    assert!(torn.is_empty(), "{torn:?}");
    for rank in 0..RANKS {
        let report = run(numamma(&["report", &format!("numamma.{rank}.prof")]).current_dir(&*dir)).success();
        assert!(report.stdout.contains("exit status 0"), "{}", report.stdout);
    }
    let placed = mpirun(&["-genv", "NUMAMMA_REPORT", "report.json", NUMAMMA, "run", "--policy", "policy.toml", "--"]);
    assert_eq!(placed.stdout, bare);
    check_reports(&dir);
    let around = ["profile", "--sampler", "none", "-o", "all.prof", "--", "mpirun.mpich", "-n", "4"];
    let all = run(numamma(&around).current_dir(&*dir).arg(&ring)).success();
    let recipe = "for a profile of each MPI rank: mpirun.mpich ... numamma profile -- ";
    assert!(all.stderr.contains(recipe), "{}", all.stderr);
    let outside = ["verify", "--policy", "policy.toml", "--", "mpirun.mpich", "-n", "4"];
    let verdict = run(numamma(&outside).current_dir(&*dir).arg(&ring)).success();
    assert!(verdict.stderr.contains("present pages of 4 processes are on plan"), "{}", verdict.stderr);
}
