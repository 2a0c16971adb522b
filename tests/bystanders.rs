//! Programs that have nothing to do with us run under both libraries as if we were not there: the same output, the same
//! words on stderr (ours left out), the same exit status or signal.
//!
//! A program that is not installed is skipped and named; most must be there.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use numamma::apply::library;

const NUMAMMA: &str = env!("CARGO_BIN_EXE_numamma");
/// Of the table, so many must have run: else the machine's setup is at fault.
const MOST: usize = 40;

/// Name and command, a line of sh with `$D` for the scratch directory.
const COMMANDS: [(&str, &str); 57] = [
    ("bash", "bash -c 'for i in 1 2 3; do echo $i | cat; done; exit 7'"),
    ("dash", "dash -c 'ls / | wc -l; false'"),
    ("perl", "perl -e 'my %h; $h{$_} = $_ * 2 for 1..100000; print scalar(keys %h), \"\\n\"; exit 5'"),
    (
        "perl",
        "perl -e 'for (1..8) { my $p = fork; if (!$p) { my @a = (1..1000); exit $_ } waitpid $p, 0; print $? >> 8, \"\\n\" }'",
    ),
    ("python3", "python3 $D/pools.py"),
    ("python3", "python3 -c 'import subprocess; print(subprocess.run([\"echo\", \"x\"], capture_output=True).stdout)'"),
    (
        "python3",
        "python3 -c 'import mmap, sys; m = mmap.mmap(-1, 1 << 24); m[5] = 7; m.resize(1 << 25); print(m[5]); sys.exit(3)'",
    ),
    ("node", "node -e 'let a = []; for (let i = 0; i < 300000; i++) a.push({i}); console.log(a.length)'"),
    (
        "node",
        "node -e 'new (require(\"worker_threads\").Worker)(\"console.log(Array(1e5).fill(1).length)\", {eval: true})'",
    ),
    ("java", "java $D/Threads.java"),
    ("gcc", "gcc -O2 -c -o $D/x.o $D/endings.c && cksum <$D/x.o"),
    ("g++", "echo '#include <map>' | g++ -O2 -x c++ -S -o - - | cksum"),
    ("gfortran", "printf 'print *, 6*7\\nend\\n' >$D/p.f90 && gfortran -o $D/p $D/p.f90 && $D/p"),
    ("clang", "clang -O2 -c -o $D/y.o $D/endings.c && cksum <$D/y.o"),
    (
        "git",
        "git --no-pager -C $D init -q repo && git -C $D/repo status --short && git -C $D/repo hash-object -w --stdin </etc/passwd",
    ),
    ("tar", "tar czf - -C $D endings.c Threads.java pools.py | tar tzf -"),
    (
        "sqlite3",
        "sqlite3 :memory: 'create table t(a, b); with recursive c(x) as (select 1 union all select x+1 from c where x < 50000) insert into t select x, x*x from c; select count(*), sum(b) from t;'",
    ),
    ("awk", "awk 'BEGIN { for (i = 0; i < 200000; i++) a[i] = i; print length(a) }'"),
    ("sed", "seq 20000 | sed -e 's/1/one/g' -n -e '$p'"),
    ("grep", "seq 20000 | grep -c 7"),
    ("find", "find $D -name '*.c' -printf '%f\\n' | sort"),
    ("sort", "seq 200000 | sort -R --random-source=/dev/zero | sort -n --parallel=4 | cksum"),
    ("xz", "seq 300000 | xz -T2 | xz -d | cksum"),
    ("gzip", "seq 300000 | gzip | gzip -d | cksum"),
    ("bzip2", "seq 100000 | bzip2 | bzip2 -d | cksum"),
    ("zstd", "seq 300000 | zstd -T2 | zstd -d | cksum"),
    ("diff", "seq 2000 >$D/a; seq 2 2001 >$D/b; diff $D/a $D/b"),
    ("patch", "seq 9 >$D/c; printf '5c5\\n< 5\\n---\\n> five\\n' | patch $D/c && cat $D/c"),
    ("dd", "dd if=/dev/zero bs=1M count=8 status=none | cksum"),
    ("od", "od -An -tx1 -N64 /etc/passwd"),
    ("bc", "echo '2^2000' | bc"),
    ("openssl", "openssl dgst -sha256 /etc/passwd"),
    ("make", "printf 'all: a b\\na b:\\n\\t@echo $@\\n' | make -s -j1 -f -"),
    ("tclsh", "echo 'for {set i 0} {$i < 50000} {incr i} {set a($i) $i}; puts [array size a]' | tclsh"),
    ("busybox", "busybox sh -c 'echo busy; exit 4'"),
    ("env", "env -i /bin/echo clean"),
    ("timeout", "timeout 0.2 sleep 5"),
    ("setarch", "setarch -R true && echo same"),
    ("nice", "nice -n 5 sh -c 'echo nice; exit 9'"),
    ("setsid", "setsid -w sh -c 'exit 8'"),
    ("xargs", "seq 100 | xargs -n 10 -P 4 echo | sort | cksum"),
    ("valgrind", "valgrind -q $D/endings return"),
    ("gdb", "gdb -nx -batch -ex run -ex 'print 6*7' $D/endings 2>&1 | grep -o 'exited with code 07\\|= 42'"),
    ("curl", "curl --version | head -n 1"),
    ("cc", "$D/endings return"),
    ("cc", "$D/endings abort"),
    ("cc", "$D/endings segv"),
    ("cc", "$D/endings kill"),
    ("cc", "$D/endings term"),
    ("cc", "$D/endings _exit"),
    ("cc", "$D/endings threads"),
    ("cc", "$D/endings fork"),
    ("cc", "$D/endings vfork"),
    ("cc", "$D/static fork"),
    ("cc", "ulimit -v 300000; $D/endings fork"),
    ("cc", "$D/endings return 2>&-"),
    ("cc", "cd /proc && $D/endings fork"),
];

fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bystanders-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a scratch directory");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bystanders");
    for name in ["pools.py", "Threads.java", "endings.c"] {
        std::fs::copy(sources.join(name), dir.join(name)).expect("sources are in the tree");
    }
    // Two call sites that every C program has, and a name that nobody has.
    let policy = "version = 1\n[[object]]\nfunction = [\"no_such_function\"]\nplace = { policy = \"block\" }\n";
    std::fs::write(dir.join("policy.toml"), policy).expect("the policy is written");
    compile(&dir, "endings", &[]);
    compile(&dir, "static", &["-static"]);
    dir
}

fn compile(dir: &Path, name: &str, flags: &[&str]) {
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-pthread", "-o"]).arg(dir.join(name)).arg(dir.join("endings.c")).args(flags);
    assert!(cc.status().expect("cc runs").success());
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
    let mut c = Command::new("bash");
    c.args(["-c", line]);
    c
}

#[test]
fn they_do_not_notice() {
    let dir = scratch("all");
    let apply = library::find("apply").expect("the library is built");
    let (mut ran, mut missing, mut different) = (0, Vec::new(), Vec::new());
    for (tool, line) in COMMANDS {
        let there = Command::new("sh").args(["-c", &format!("command -v {tool} >/dev/null")]).status();
        if !there.is_ok_and(|s| s.success()) {
            missing.push(tool);
            continue;
        }
        ran += 1;
        let bare = observe(shell(line), &dir);
        let mut placed = shell(line);
        placed.env("LD_PRELOAD", &apply).env("NUMAMMA_POLICY", dir.join("policy.toml"));
        let mut profiled = Command::new(NUMAMMA);
        profiled
            .args(["profile", "-q", "--follow", "-F", "100", "-o"])
            .arg(dir.join("x.prof"))
            .args(["--", "bash", "-c", line]);
        for (how, seen) in [("placed", observe(placed, &dir)), ("profiled", observe(profiled, &dir))] {
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
        for command in ["profile -q -o $D/s.prof", "run -p $D/policy.toml"] {
            let seen = observe(shell(&format!("{NUMAMMA} {command} -- $D/{name} fork")), &dir);
            assert_eq!(seen, bare, "{sanitizer} under {command}");
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
}
