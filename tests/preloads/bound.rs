//! Threads on explicit CPU lists, `bind-block` by where threads really are, and node lists of a process that may use a part of
//! the machine only: on this machine and on four real nodes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use numamma::launch::library;

use crate::common::lab;

const NUMAMMA: &str = env!("CARGO_BIN_EXE_numamma");

/// The program and a directory for policies, made once.
fn scratch() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bound-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preloads/bound/pinned.c");
        let mut cc = Command::new("cc");
        let done = cc.args(["-O2", "-g", "-pthread", "-o"]).arg(dir.join("pinned")).arg(source).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        dir
    })
}

/// Writes a policy for both objects of the program.
fn policy(name: &str, bind: &str, place: &str) -> PathBuf {
    let text = format!(
        "version = 1\n[program]\npath = \"pinned\"\n[threads]\nbind = {bind}\ncount = 4\n\
         [[object]]\nglobal = \"grid\"\nplace = {{ {place} }}\n\
         [[object]]\nfunction = [\"by_malloc\"]\nplace = {{ {place} }}\n"
    );
    let path = scratch().join(format!("{name}.toml"));
    std::fs::write(&path, text).unwrap();
    path
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn placed(policy: &Path, variables: &[(&str, &str)]) -> Output {
    let mut c = Command::new(scratch().join("pinned"));
    for name in ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"] {
        c.env_remove(name);
    }
    c.arg("3").env("LD_PRELOAD", library::find("apply").unwrap()).env("NUMAMMA_POLICY", policy);
    c.envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn explicit_lists_bind_threads_in_turn_and_users_go_first() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("SKIPPED: one CPU");
        return;
    }
    let two = policy("two", "[\"1\", \"0\"]", "policy = \"bind-block\"");
    let out = placed(&two, &[]);
    assert!(text(&out.stdout).starts_with("thread 0: 1\nthread 1: 0\nthread 2: 1\n"), "{out:?}");
    for variable in [("OMP_PLACES", "{0}"), ("GOMP_CPU_AFFINITY", "0-1"), ("OMP_PROC_BIND", "true")] {
        let out = placed(&two, &[variable]);
        assert!(text(&out.stdout).starts_with("thread 0: 0 1"), "{variable:?}: {out:?}");
        assert!(!text(&out.stdout).contains("thread 1: 0\n"), "{variable:?}: {out:?}");
    }
    let missing = policy("missing", "[\"0\", \"8000\"]", "policy = \"bind-block\"");
    let out = placed(&missing, &[]);
    assert!(out.status.success());
    let said = text(&out.stderr);
    assert!(said.contains("threads: bind: CPU 8000 is not there") && said.contains("running unplaced"), "{said}");
    let run = Command::new(NUMAMMA).args(["run", "--policy"]).arg(&missing).arg("--").arg("true").output().unwrap();
    assert_eq!(run.status.code(), Some(2), "{run:?}");
}

#[test]
fn four_nodes() {
    if !lab::available() {
        return;
    }
    let bind_block = "policy = \"bind-block\"";
    let all = "policy = \"block\", block = \"1MiB\", nodes = \"all\"";
    let policies = [
        policy("bind-block", "\"none\"", bind_block),
        policy("explicit", "[\"2\", \"0\", \"3\", \"1\"]", bind_block),
        policy("scatter", "\"scatter\"", bind_block),
        policy("all", "\"none\"", all),
        policy("relative", "\"none\"", &all.replace("all", "+1")),
        policy("numbers", "\"none\"", &all.replace("all", "0-3")),
    ];
    let mut c = lab::command();
    c.args(["--nodes", "4", "--cpus-per-node", "1", "--sysctl", "kernel.numa_balancing=0", "--thp", "never"]);
    for policy in &policies {
        c.arg("--add").arg(policy);
    }
    c.arg("--add").arg(scratch().join("pinned"));
    c.arg("--add").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preloads/bound/run.sh"));
    let out = c.args(["--", "./run.sh"]).output().expect("the lab runs");
    let said = text(&out.stdout);
    assert!(out.status.success(), "{said}\n{}", text(&out.stderr));
    let expected = [
        // Nothing says ahead where the threads will be; the heap object sees them.
        ("seen", "0 1 2 3", "3 2 1 0"),
        ("places", "3 2 1 0", "3 2 1 0"),
        ("explicit", "2 0 3 1", "2 0 3 1"),
        ("scatter", "0 1 2 3", "0 1 2 3"),
        ("all", "2 3 2 3", "2 3 2 3"),
        ("relative", "3 3 3 3", "3 3 3 3"),
        ("numbers", "0 1 2 3", "0 1 2 3"),
        ("whole", "0 1 2 3", "0 1 2 3"),
    ];
    let scenes: Vec<&str> = said.split("=== ").skip(1).collect();
    assert_eq!(scenes.len(), expected.len(), "{said}");
    for ((name, grid, heap), scene) in expected.into_iter().zip(scenes) {
        assert!(scene.starts_with(&format!("{name}\n")), "{scene}");
        assert!(scene.contains(&format!("\ngrid {grid}\n")), "{scene}");
        assert!(scene.contains(&format!("\nby_malloc {heap}\n")), "{scene}");
        assert_eq!(scene.matches("\"pages_off_plan\":0").count(), 2, "the report disagrees: {scene}");
    }
}
