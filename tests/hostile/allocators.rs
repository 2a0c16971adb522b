//! Blocks that reach an allocator past our hooks, and programs that use what an allocator has beside the functions of
//! C: the same output, status and signal as bare, as in [`super::stress`].

use std::path::Path;
use std::time::Duration;

use super::stress::{POLICIES, compare_also_without_policy, compare_under, compile, scratch};
use crate::common::{self, Policy, json_file, numamma, objects, plain};

/// A preload library of the test, before and behind ours.
const BOTH_ORDERS: [&str; 2] =
    ["LD_PRELOAD=${LD_PRELOAD:+$LD_PRELOAD:}./wrapper.so", "LD_PRELOAD=./wrapper.so${LD_PRELOAD:+:$LD_PRELOAD}"];

const LIMIT: Duration = Duration::from_secs(60);
const SHARED: [&str; 2] = ["-shared", "-fPIC"];

fn by_name(dir: &Path) {
    compile(dir, "by_name.c", "wrapper.so", &[&SHARED[..], &["-DWRAPPER"]].concat());
    compile(dir, "by_name.c", "libbehind.so", &[&SHARED[..], &["-DLIBRARY"]].concat());
    let library = dir.join("libbehind.so").display().to_string();
    compile(dir, "by_name.c", "by_name", &["-Wl,--no-as-needed", &library]);
}

#[test]
fn blocks_for_functions_that_are_looked_up_by_name() {
    let dir = scratch("by-name");
    by_name(&dir);
    for how in ["file libc.so.6", "version", "next"] {
        let stdout = compare_also_without_policy(&dir, &format!("exec ./by_name {how}"), &POLICIES);
        assert_eq!(stdout, "damaged 0\n", "{how}");
    }
    let stdout = compare_also_without_policy(&dir, "exec ./by_name", &POLICIES[..1]);
    assert_eq!(stdout, "error 1, free is free 1, none 1, wrapped 0, damaged 0\n");
}

/// A library that puts a header before each block and looks the next functions up with RTLD_NEXT, late. Behind ours its
/// own functions, by handle, get blocks that are not its own. Before ours it gives out parts of blocks of ours.
#[test]
fn blocks_beside_another_preload_library_in_both_orders() {
    let dir = scratch("by-name-wrapped");
    by_name(&dir);
    Policy::new().rule("function = [\"block\"]", "policy = \"interleave\"").write(&dir, "block.toml");
    let policies = [POLICIES[0], POLICIES[2], ("block", "")];
    for preload in BOTH_ORDERS {
        let stdout = compare_under(&dir, &format!("{preload} exec ./by_name file ./wrapper.so"), &policies);
        assert_eq!(stdout, "damaged 0\n", "{preload}");
        let stdout = compare_under(&dir, &format!("{preload} exec ./by_name"), &policies);
        assert_eq!(stdout, "error 0, free is free 1, none 1, wrapped 1, damaged 0\n", "{preload}");
    }
}

/// ctypes, as programs in Python free what a library returned.
#[test]
fn blocks_for_ctypes() {
    if !common::needs(&["python3"], "ctypes") {
        return;
    }
    let dir = scratch("ctypes");
    let line = "exec python3 -c 'import ctypes; c = ctypes.CDLL(\"libc.so.6\"); m = ctypes.CDLL(None).malloc\n\
                m.restype = c.realloc.restype = ctypes.c_void_p; c.free.argtypes = [ctypes.c_void_p]\n\
                c.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]\n\
                for n in 100, 5000, 200000: c.free(m(n)); c.free(c.realloc(m(n), 2 * n))\n\
                print(\"freed\")'";
    assert_eq!(compare_under(&dir, line, &POLICIES[..1]), "freed\n");
}

/// An allocator behind ours, with functions of its own for blocks; programs that use these, and one that does not.
#[test]
fn an_allocator_whose_own_functions_are_used() {
    let dir = scratch("own-interface");
    compile(&dir, "own_malloc.c", "libown.so", &[&SHARED[..], &["-DLIBRARY"]].concat());
    let library = dir.join("libown.so").display().to_string();
    let linked = ["-Wl,--no-as-needed", &library];
    compile(&dir, "own_interface.c", "plain", &linked);
    compile(&dir, "own_interface.c", "plugin.so", &[&SHARED[..], &["-DPLUGIN"]].concat());
    compile(&dir, "own_interface.c", "direct", &[&linked[..], &["-DDIRECT"]].concat());
    compile(&dir, "own_interface.c", "weak", &[&linked[..], &["-DWEAK"]].concat());
    compile(&dir, "own_interface.c", "alone", &["-DWEAK"]);
    let policy = Policy::new().rule("function = [\"block\"]", "policy = \"interleave\"").write(&dir, "block.toml");
    let block = [("block", "")];
    // The rest of the line, and the share of the 33 blocks that is placed.
    for (line, stdout, placed) in [
        ("plain", "11111111111 wrong 0\n", 33),
        ("plain ./plugin.so", "11111111111 wrong 0\n", 11),
        ("direct", "11111111111 wrong 0\n", 0),
        ("weak", "11111111111 wrong 0\n", 0),
        ("alone", "00000000000 wrong 11\n", 33), // the C library's realloc(p, 0) returns null
    ] {
        assert_eq!(compare_also_without_policy(&dir, &format!("exec ./{line}"), &block), stdout, "{line}");
        let report = dir.join("own.json");
        let mut words = line.split(' ');
        let mut command = common::placed(dir.join(words.next().unwrap_or_default()), &policy);
        command.current_dir(&dir).args(words).env("NUMAMMA_REPORT", &report);
        let seen = common::run(command).success();
        let object = objects(&json_file(&report))[0].clone();
        assert_eq!(object["instances"], 33, "{line}: {object}");
        let unplaced = object["unplaced"].as_u64().unwrap_or_default();
        assert_eq!(33 - unplaced, placed, "{line}: {object}");
        let told = seen.stderr.contains("which libown.so alone has: nothing more is placed on the heap");
        assert_eq!(told, placed < 33, "{line}: {seen:?}");
    }
    let mut strict = common::placed(dir.join("direct"), &policy);
    let seen = common::run(strict.env("NUMAMMA_STRICT", "1")).ended(78);
    assert!(seen.stdout.is_empty() && seen.stderr.contains("direct calls own_"), "{seen:?}");
}

/// The checks of the sanitizers' runtimes, which need every block to be their own: leaks, races, reads behind the end.
#[test]
fn a_sanitizers_runtime() {
    let dir = scratch("sanitizer");
    let place = "policy = \"interleave\"";
    let policy = Policy::new().rule("function = [\"block\"]", place).rule("global = \"table\"", place);
    let policy = policy.write(&dir, "block.toml");
    let compilers = ["cc", "clang"].into_iter().filter(|c| *c == "cc" || common::needs(&["clang"], "its sanitizers"));
    for (compiler, sanitizer) in compilers.flat_map(|c| ["address", "leak", "thread"].map(|s| (c, s))) {
        let name = format!("{compiler}-{sanitizer}");
        let flags = ["-g", "-O1", "-pthread", &format!("-fsanitize={sanitizer}")];
        let mut command = plain(compiler);
        command.args(flags).arg(common::source("hostile/stress/sanitized.c")).arg("-o").arg(dir.join(&name));
        if !common::run(command).status.success() {
            common::skipped(&format!("{compiler} has no runtime for {sanitizer}"));
            continue;
        }
        let env = "export ASAN_OPTIONS=verify_asan_link_order=0;";
        let stdout = compare_under(&dir, &format!("{env} exec ./{name}"), &[("block", "")]);
        assert_eq!(stdout, "sum 4000, different 0\n", "{name}");
        let mut verify = numamma(&["verify", "--policy"]);
        let seen = common::run(verify.arg(&policy).arg("--").arg(dir.join(&name)));
        let (told, all) =
            ("has a sanitizer's runtime, which must know every block", seen.stdout.clone() + &seen.stderr);
        assert_eq!(all.matches(told).count(), 2, "by the program and by verify, {name}: {seen:?}");
        assert!(all.contains("on plan"), "the global, {name}: {seen:?}");
    }
}

/// ThreadSanitizer sees the copies that the libraries make, and not how they pass memory from thread to thread.
#[test]
fn a_race_detector_sees_no_race_in_the_libraries() {
    let dir = scratch("races");
    let policy = Policy::new().rule("function = [\"?\"]", "policy = \"interleave\"").write(&dir, "any.toml");
    compile(&dir, "many_sizes.c", "many_sizes", &["-g", "-O1", "-pthread", "-fsanitize=thread"]);
    let program = dir.join("many_sizes");
    for _ in 0..3 {
        let profile = common::run(numamma(&["profile", "-q", "-o"]).arg(dir.join("p.prof")).arg("--").arg(&program));
        let placed = common::run(&mut common::placed(&program, &policy));
        for seen in [profile, placed].map(|ran| ran.ended(8)) {
            assert!(seen.stdout == "fine\n" && !seen.stderr.contains("data race"), "{seen:?}");
        }
    }
}

/// jemalloc and tcmalloc as part of the program: its functions come before ours, and what they map is placed.
#[test]
fn an_allocator_that_is_linked_to_the_program() {
    let dir = scratch("linked");
    compile(&dir, "linked.c", "plain", &[]);
    let bare = compare_under(&dir, "exec ./plain", &POLICIES[..1]);
    assert_eq!(bare, "malloc is the program's 0, damaged 0\n");
    let archives = ["libjemalloc.a", "libjemalloc_pic.a", "libtcmalloc_minimal.a", "libtcmalloc.a"];
    for archive in archives.into_iter().filter(|archive| is_there(archive)) {
        // tcmalloc alone is in C++, and walks stacks.
        let libraries: &[&str] = if archive == "libtcmalloc.a" { &["-lunwind", "-llzma"] } else { &[] };
        let file = format!("-l:{archive}");
        let always = ["-fno-builtin", file.as_str()];
        // Whether libraries are bound to the functions of the program. Where they are not, theirs are glibc's, which
        // tcmalloc, that has libstdc++ free its blocks, does not survive without us either.
        for (line, shown) in [("used", "-g"), ("shown", "-rdynamic"), ("hidden own", "-Wl,--exclude-libs,ALL")] {
            if shown.contains("exclude") && archive.contains("tcmalloc") {
                continue;
            }
            let flags = [&always[..], libraries, &["-lstdc++", "-lm", "-ldl", shown]].concat();
            let name = line.split(' ').next().unwrap_or_default();
            compile(&dir, "linked.c", name, &flags);
            let stdout = compare_also_without_policy(&dir, &format!("exec ./{line}"), &POLICIES);
            assert_eq!(stdout, "malloc is the program's 1, damaged 0\n", "{archive}, {line}");
        }
    }
}

/// Whether the compiler finds an archive; its Debian package is installed by `make setup`.
fn is_there(archive: &str) -> bool {
    let found = common::run(plain("cc").arg(format!("-print-file-name={archive}"))).success().stdout;
    let is_there = found.starts_with('/');
    assert!(
        is_there || std::env::var_os("CI").is_none(),
        "{archive} is missing, and CI must have it: run `make setup`"
    );
    if !is_there {
        eprintln!("SKIPPED: a program with {archive} (make setup installs it)");
    }
    is_there
}

/// An allocator that chooses its functions when the program starts.
#[test]
fn an_allocator_with_indirect_functions() {
    let dir = scratch("indirect");
    compile(&dir, "indirect.c", "libindirect.so", &[&SHARED[..], &["-DLIBRARY", "-fno-builtin"]].concat());
    let library = dir.join("libindirect.so").display().to_string();
    compile(&dir, "indirect.c", "indirect", &["-fno-builtin", "-Wl,--no-as-needed", &library]);
    let bare = "5 blocks, damaged 0, released by name 2\n";
    assert_eq!(compare_also_without_policy(&dir, "exec ./indirect ./libindirect.so 2>/dev/null", &POLICIES), bare);
}

/// The thread that moves pages is created there, and pthread_create allocates.
#[test]
fn a_phase_that_begins_inside_an_allocator_does_not_wait_for_it() {
    let dir = scratch("phase-inside");
    compile(&dir, "own_allocator.c", "own_allocator", &[]);
    compile(&dir, "phase_in_handler.c", "phase_in_handler", &[]);
    let of_chunks = Policy::of("own_allocator")
        .lines("[[phase]]\nname = \"soon\"\nafter = 0.1")
        .rule("function = [\"map_chunk\"]", "policy = \"interleave\"")
        .lines("phases = { soon = { policy = \"block\" } }")
        .write(&dir, "chunks.toml");
    let by_call = Policy::of("phase_in_handler")
        .lines("[[phase]]\nname = \"odd\"\n[[phase]]\nname = \"even\"")
        .rule("function = [\"grab\"]", "policy = \"interleave\"")
        .lines("phases = { odd = { policy = \"block\" }, even = { policy = \"bind\" } }")
        .write(&dir, "called.toml");
    for (program, policy, times, stdout) in
        [("own_allocator", &of_chunks, 1, "done\n"), ("phase_in_handler", &by_call, 3, "done 0\n")]
    {
        for _ in 0..times {
            let ran = common::run_within(&mut common::placed(dir.join(program), policy), LIMIT, &dir);
            let ran = ran.unwrap_or_else(|why| panic!("{program}: {why}"));
            assert_eq!((ran.code(), ran.stdout.as_str(), ran.stderr.as_str()), (Some(42), stdout, ""), "{program}");
        }
    }
}
