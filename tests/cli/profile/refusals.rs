//! What cannot be recorded is refused before it runs, in one line, with the status a shell would give.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::harness::*;

fn refused(out: &Ran, status: i32, words: &[&str]) {
    let text = &out.stderr;
    assert_eq!(out.code(), Some(status), "{text}");
    assert_eq!(out.stdout, "", "nothing on stdout");
    assert_eq!(text.lines().count(), 1, "one line: {text}");
    assert!(text.starts_with("numamma: "), "{text}");
    assert!(words.iter().all(|w| text.contains(w)), "{words:?} in {text}");
}

#[test]
fn programs_that_cannot_run() {
    let dir = scratch("refused");
    let program = compile(&dir, "behave", &[]);
    let bytes = std::fs::read(&program).unwrap();
    dir.write_mode("plain", &bytes, 0o644);
    dir.write_mode("setuid", &bytes, 0o4755);
    dir.write_mode("setgid", &bytes, 0o2755);
    dir.write_mode("text", "hello\n", 0o755);
    dir.write_mode("garbage", "\x7fELFgarbage", 0o755);
    dir.write_mode("lost.sh", "#!/no/such/interpreter\n", 0o755);
    // An ELF file of another machine: the header says AArch64.
    let mut foreign = bytes;
    foreign[18] = 183;
    dir.write_mode("foreign", foreign, 0o755);

    for (name, status, words) in [
        ("./missing", 127, &["./missing"][..]),
        ("no-such-program-anywhere", 127, &["PATH"]),
        ("./plain", 126, &["chmod +x"]),
        ("/tmp", 126, &["directory"]),
        ("./setuid", 126, &["setuid"]),
        ("./setgid", 126, &["setgid"]),
        ("./text", 126, &["text"]),
        ("./lost.sh", 126, &["/no/such/interpreter"]),
        ("./foreign", 126, &["foreign"]),
        ("./garbage", 126, &["ELF header cannot be read"]),
    ] {
        let out = run(profile(&dir, &[], &[name, "out", "ran"]));
        refused(&out, status, words);
        assert!(!dir.join("t.prof").exists(), "{name} leaves no profile");
    }
}

#[test]
fn options_that_make_no_sense() {
    let dir = scratch("usage");
    let program = compile(&dir, "behave", &[]);
    let with = |options: &[&str]| {
        let mut c = numamma(&["profile"]);
        c.current_dir(&dir).args(options).arg("--").arg(&program).args(["out", "ran"]);
        run(c)
    };
    refused(&with(&["-F", "100000"]), 2, &["100000", "4000"]);
    refused(&with(&["-c", "10"]), 2, &["4000"]);
    refused(&with(&["--max-overhead", "0"]), 2, &["--max-overhead"]);
    refused(&with(&["-o", "no/such/dir/t.prof"]), 2, &["no/such/dir"]);
    refused(&with(&["-o", "."]), 2, &["directory"]);
    let out = with(&["--sampler", "pebs"]);
    assert_eq!((out.code(), out.stdout.len()), (Some(2), 0));
    let none = run(numamma(&["profile"]));
    assert_eq!(none.code(), Some(2), "no program");
    assert!(std::fs::read_dir(&dir).unwrap().count() == 1, "no profile was left");
}

#[test]
fn the_output_name_is_filled_in() {
    let dir = scratch("names");
    let program = compile(&dir, "behave", &[]);
    let mut c = numamma(&["profile", "-F", RATE, "-o", "a-%r-%h-%p.prof", "--"]);
    c.current_dir(&dir).env("OMPI_COMM_WORLD_RANK", "3");
    let out = run(c.arg(&program).args(["exit", "0"])).success();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let file = std::fs::read_dir(&dir)
        .unwrap()
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .find(|n| n.ends_with(".prof"))
        .expect("a profile");
    let pid = file.strip_prefix(&format!("a-3-{}-", host.trim())).and_then(|r| r.strip_suffix(".prof"));
    let p = Profile::read(&dir.join(&file));
    assert_eq!(pid.and_then(|p| p.parse().ok()), Some(p.header().pid), "{file}");
    assert!(out.stderr.contains(&format!("numamma report {file}")), "{}", out.stderr);
}

/// A user who may lock hardly any memory gets smaller buffers, not a refusal.
#[test]
fn little_locked_memory_is_enough() {
    let dir = scratch("memlock");
    let program = compile(&dir, "behave", &[]);
    // SAFETY: plain query.
    if unsafe { libc::geteuid() } != 0 {
        return unprivileged(&dir, &program, "sh", &["-c", "ulimit -l 0; exec \"$0\" \"$@\""]);
    }
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", "ulimit -l 0; exec \"$0\" \"$@\""];
    unprivileged(&dir, &program, "setpriv", &user);
}

fn unprivileged(dir: &Path, program: &Path, wrapper: &str, args: &[&str]) {
    let out = run(plain(wrapper)
        .current_dir(dir)
        .args(args)
        .arg(NUMAMMA)
        .args(["profile", "-F", RATE, "-o", "t.prof", "--"])
        .arg(program)
        .args(["spin", "500", "read", "4194304", "exit", "6"]));
    let text = &out.stderr;
    if out.code() == Some(2) && text.contains("perf_event_paranoid") {
        return; // this kernel lets only root sample; the refusal has its own words
    }
    assert_eq!(out.code(), Some(6), "{text}");
    let p = Profile::read(&dir.join("t.prof"));
    p.check_sums();
    assert!(p.stats.samples > 50, "{:?}", p.stats);
    assert_eq!((p.stats.lost, p.stats.alloc_lost), (0, 0));
    assert!(p.heap(4 << 20).is_empty() || p.stats.faults > 0);
}

#[test]
fn a_small_stack_is_enough() {
    let dir = scratch("small-stack");
    for options in ["profile -o t.prof -- true", "report t.prof", "report --json t.prof", "topology"] {
        let command = format!("ulimit -s 64; exec {} {options}", env!("CARGO_BIN_EXE_numamma"));
        run(Command::new("bash").args(["-c", &command]).current_dir(&dir)).success();
    }
}

/// A limit of the file size (ulimit -f 0) stands for a full disk: the new profile cannot be begun.
#[test]
fn an_older_profile_outlives_a_recording_that_cannot_begin() {
    let dir = scratch("no-room");
    run(profile(&dir, &[], &["true"])).success();
    let older = std::fs::read(dir.join("t.prof")).unwrap();
    let command =
        format!("trap '' XFSZ; ulimit -f 0; exec {} profile -o t.prof -- true", env!("CARGO_BIN_EXE_numamma"));
    for _ in 0..2 {
        let out = run(Command::new("bash").args(["-c", &command]).current_dir(&dir));
        assert_eq!(out.code(), Some(2), "{}", out.stderr);
        assert!(std::fs::read(dir.join("t.prof")).unwrap() == older, "{}", out.stderr);
    }
    let names: Vec<_> = std::fs::read_dir(&*dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["t.prof"]);
}
