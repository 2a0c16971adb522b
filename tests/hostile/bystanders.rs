//! Programs that have nothing to do with us run under both libraries as if we were not there: the same output, the same
//! words on stderr (ours left out), the same exit status or signal.
//!
//! A program that is not installed is skipped and named; most must be there.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use numamma::launch::library;

mod commands;

use self::commands::{ALLOCATORS, COMMANDS, OPTIONAL};

const NUMAMMA: &str = env!("CARGO_BIN_EXE_numamma");
/// Of the table, so many must have run wherever we are: else the machine's setup is at fault.
const MOST: usize = 40;
/// A name that nobody has, and one that stands for any call site: every allocation is placed.
const POLICIES: [(&str, &str, &str); 2] =
    [("none.toml", "no_such_function", "block"), ("every.toml", "?", "interleave")];
/// The longest command takes a few seconds; a hang is one of the things this is about.
const SECONDS: &str = "60";

fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bystanders-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a scratch directory");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile/bystanders");
    for entry in std::fs::read_dir(sources).expect("sources are in the tree").flatten() {
        std::fs::copy(entry.path(), dir.join(entry.file_name())).expect("the scratch directory is writable");
    }
    for (file, function, place) in POLICIES {
        let text =
            format!("version = 1\n[[object]]\nfunction = [\"{function}\"]\nplace = {{ policy = \"{place}\" }}\n");
        std::fs::write(dir.join(file), text).expect("the policy is written");
    }
    dir
}

/// What the commands want to find in the scratch directory.
fn programs(dir: &Path) {
    compile(dir, "endings", &[]);
    compile(dir, "static", &["-static"]);
    build(dir, "audit.c", "audit.so", &["-shared", "-fPIC"]);
    for (name, library) in ALLOCATORS {
        // Linked even though no symbol of it is named.
        compile(dir, &format!("linked-{name}"), &["-Wl,--no-as-needed", library]);
    }
    // Somebody else's where we are root, so that the loader really distrusts its environment.
    let setuid = dir.join("setuid");
    std::fs::copy(dir.join("endings"), &setuid).expect("it was compiled");
    let _ = std::os::unix::fs::chown(&setuid, Some(65534), Some(65534));
    std::fs::set_permissions(&setuid, std::fs::Permissions::from_mode(0o4755)).expect("the file is ours");
    std::fs::create_dir_all(dir.join("closed")).expect("a directory");
    std::fs::set_permissions(dir.join("closed"), std::fs::Permissions::from_mode(0o555)).expect("it is ours");
}

fn compile(dir: &Path, name: &str, flags: &[&str]) {
    build(dir, "endings.c", name, flags);
}

fn build(dir: &Path, source: &str, name: &str, flags: &[&str]) {
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-pthread", "-o"]).arg(dir.join(name)).arg(dir.join(source)).args(flags);
    assert!(cc.status().expect("cc runs").success(), "{source}: run scripts/setup tests");
}

/// What a user sees of a run.
#[derive(Debug, PartialEq)]
struct Seen {
    stdout: String,
    stderr: String,
    code: Option<i32>,
    signal: Option<i32>,
}

/// `exec` so that no shell stands between the command's end and us where the line is one command.
fn observe(mut command: Command, dir: &Path) -> Seen {
    for (name, library) in ALLOCATORS {
        command.env(name.to_uppercase(), library);
    }
    let out = command.stdin(Stdio::null()).env("D", dir).current_dir(dir).output().expect("the command starts");
    let words = String::from_utf8_lossy(&out.stderr);
    let theirs: Vec<&str> = words.lines().filter(|l| !l.starts_with("numamma: ")).map(neutral).collect();
    Seen {
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: theirs.join("\n"),
        code: out.status.code(),
        signal: out.status.signal(),
    }
}

/// The shell names the process that died, whose number is never the same.
fn neutral(line: &str) -> &str {
    line.split_once(": line ")
        .map_or(line, |(_, rest)| rest.trim_start_matches(|c: char| c.is_ascii_digit() || ": ".contains(c)))
}

fn shell(line: &str) -> Command {
    let mut c = Command::new("timeout");
    c.args(["--foreground", "-k", "5", SECONDS, "bash", "-c", line]);
    c
}

/// Services live in directories that users need not have in their PATH.
fn there(tool: &str) -> bool {
    let look = format!("PATH=$PATH:/usr/sbin:$(echo /usr/lib/postgresql/*/bin); command -v {tool}");
    Command::new("sh").args(["-c", &look]).output().is_ok_and(|o| o.status.success())
}

#[test]
fn they_do_not_notice() {
    let dir = scratch("all");
    programs(&dir);
    let apply = library::find("apply").expect("the library is built");
    let (mut ran, mut missing, mut different) = (0, Vec::new(), Vec::new());
    for (tool, line) in COMMANDS {
        if !there(tool) {
            missing.push(*tool);
            continue;
        }
        ran += 1;
        let bare = observe(shell(line), &dir);
        let placed = |policy: &str| {
            let mut command = shell(line);
            command.env("LD_PRELOAD", &apply).env("NUMAMMA_POLICY", dir.join(policy));
            observe(command, &dir)
        };
        let mut profiled = Command::new(NUMAMMA);
        profiled.args(["profile", "-q", "--follow", "-F", "100", "-o"]).arg(dir.join("x.prof")).args([
            "--",
            "timeout",
            "--foreground",
            "-k",
            "5",
            SECONDS,
            "bash",
            "-c",
            line,
        ]);
        let ways = POLICIES.map(|(policy, ..)| (policy, placed(policy)));
        for (how, seen) in ways.into_iter().chain([("profiled", observe(profiled, &dir))]) {
            // A shell that was killed by a signal: the recorder ends with 128 + that, as shells do.
            let code = |s: &Seen| s.code.or(s.signal.map(|n| 128 + n));
            if (&seen.stdout, &seen.stderr, code(&seen)) != (&bare.stdout, &bare.stderr, code(&bare)) {
                different.push(format!("{how}: {line}\n  bare {bare:?}\n  then {seen:?}"));
            }
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
    eprintln!("{ran} commands ran; not installed: {missing:?}");
    assert!(different.is_empty(), "{} of {ran} commands noticed:\n{}", different.len(), different.join("\n"));
    let needed = missing.iter().find(|tool| !OPTIONAL.contains(tool));
    assert!(needed.is_none() || std::env::var_os("CI").is_none(), "{needed:?} is missing: run scripts/setup tests");
    assert!(ran >= MOST, "only {ran} of {} commands could run; missing: {missing:?}", COMMANDS.len());
}

/// gcc's AddressSanitizer refuses to start behind another library unless told; we tell it.
#[test]
fn sanitized_programs_start() {
    let dir = scratch("sanitized");
    for sanitizer in ["address", "thread", "undefined"] {
        let name = format!("with-{sanitizer}");
        compile(&dir, &name, &[&format!("-fsanitize={sanitizer}")]);
        let bare = observe(shell(&format!("$D/{name} fork")), &dir);
        assert_eq!(bare.code, Some(7), "{bare:?}");
        for command in ["profile -q -o $D/s.prof", "run -p $D/every.toml"] {
            let seen = observe(shell(&format!("{NUMAMMA} {command} -- $D/{name} fork")), &dir);
            assert_eq!(seen, bare, "{sanitizer} under {command}");
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
}

/// A loader that is not glibc's cannot take a library made for glibc, and would end the program: said beforehand.
#[test]
fn programs_of_another_c_library_are_refused_politely() {
    if !there("musl-gcc") {
        assert!(std::env::var_os("CI").is_none(), "musl-gcc is missing: run scripts/setup tests");
        eprintln!("SKIPPED: musl-gcc is missing (scripts/setup tests installs it)");
        return;
    }
    let dir = scratch("musl");
    let built = observe(shell("musl-gcc -o $D/musl $D/endings.c && $D/musl fork"), &dir);
    assert_eq!(built.code, Some(7), "{built:?}");
    let seen = observe(shell(&format!("{NUMAMMA} run -p $D/every.toml -- $D/musl fork 2>&1")), &dir);
    assert_eq!(seen.code, Some(126), "{seen:?}");
    assert!(seen.stdout.contains("not by glibc's loader") && seen.stdout.lines().count() == 1, "{seen:?}");
    let _ = std::fs::remove_dir_all(&dir);
}
