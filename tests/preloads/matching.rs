//! Which allocation a rule means, and what the library tells about every rule, on real programs compiled here.
//!
//! The library's report says which rule took how many objects; where pages are is the lab's business.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use numamma_plan::policy::Policy;
use serde_json::Value;

use crate::common::{self, Ran, Scratch, json_file, numamma, number, objects, placed, preload, run};

/// A directory for the programs of these tests, made once.
fn scratch() -> &'static Scratch {
    static DIR: OnceLock<Scratch> = OnceLock::new();
    DIR.get_or_init(|| Scratch::new("matching"))
}

/// Compiles tests/preloads/matching/<file> with `compiler` to <name>.
fn compile(compiler: &str, file: &str, name: &str, flags: &[&str]) -> PathBuf {
    common::compile(compiler, &format!("preloads/matching/{file}"), scratch().join(name), flags)
}

/// A policy of whole rules: key and place in one text.
fn policy(name: &str, rules: &[&str]) -> PathBuf {
    let rules: String = rules.iter().map(|rule| format!("[[object]]\n{rule}\n")).collect();
    scratch().write(name, format!("version = 1\n{rules}"))
}

/// Runs it and returns the objects of the report.
fn report(mut c: Command) -> (Ran, Vec<Value>) {
    let file = scratch().join(format!("report-{:?}.json", std::thread::current().id()));
    // Of an earlier run of this thread, if any.
    let _ = std::fs::remove_file(&file);
    let out = run(c.env("NUMAMMA_REPORT", &file));
    assert!(file.exists(), "no report: {out:?}");
    let objects = objects(&json_file(&file)).to_vec();
    (out, objects)
}

/// Objects and KiB of every rule.
fn taken(objects: &[Value]) -> Vec<(u64, u64)> {
    objects.iter().map(|o| (number(o, "instances"), number(o, "bytes") / 1024)).collect()
}

const C: &[&str] = &["-O2", "-g", "-pthread"];

#[test]
fn rules_take_allocations_by_size_and_number() {
    let program = compile("cc", "sites.c", "sites", C);
    let place = "place = { policy = \"bind\" }";
    let of = |function: &str, more: &str| format!("function = [{function}]\n{more}\n{place}");
    let rules = [
        of("\"make\"", "sizes = \"16KiB-32KiB\""),
        of("\"make\"", "instances = \"1,7-8\""),
        of("\"make\"", "sizes = \"80KiB\""),
        of("\"make\", \"outer\"", "sizes = \"-1MiB\""),
        of("\"make\"", "instances = \"9-\""),
        of("\"grow\"", "instances = \"2\""),
        of("\"grow\"", "instances = \"1\""),
    ];
    let policy = policy("sites.toml", &rules.each_ref().map(String::as_str));
    let (out, objects) = report(placed(&program, &policy));
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("ok\n", ""));
    // make: 16, 24, 32 KiB | numbers 1, 7 and 8: 8, 56 and 64 KiB | 80 KiB | 640 KiB from outer | number 9: 72 KiB,
    // while 10 and 11 are taken by others. grow: the one that grows stays number 1, so the other one is
    // number 2.
    assert_eq!(taken(&objects), [(3, 72), (3, 128), (1, 80), (1, 640), (1, 72), (1, 40), (1, 100)]);
    assert_eq!(objects[1]["name"], "make, instances 1,7-8");
    assert!(objects.iter().all(|o| number(o, "pages_off_plan") == 0 && number(o, "pages_planned") > 0), "{objects:?}");
    // It is copied once and then grows with its pages. The smallest shares its pages with the head of its heap, and the
    // others do not begin with their first page.
    let (present, own) = (number(&objects[6], "pages_present"), 25 * (1 + 5));
    assert!((own..=own + 3).contains(&present), "{}", objects[6]);
}

#[test]
fn threads_share_the_numbers() {
    let program = compile("cc", "sites.c", "sites_threads", C);
    let of = |list: &str| {
        format!("function = [\"make\"]\ninstances = \"{list}\"\nplace = {{ policy = \"bind\", nodes = \"0\" }}")
    };
    let policy = policy("threads.toml", &[&of("1-123"), &of("124-700"), &of("701-")]);
    let mut c = placed(&program, &policy);
    c.arg("8");
    let (out, objects) = report(c);
    assert_eq!((out.code(), out.stderr.as_str()), (Some(0), ""));
    assert_eq!(taken(&objects), [(123, 123 * 64), (577, 577 * 64), (100, 100 * 64)]);
}

#[test]
fn a_rule_that_can_take_nothing_is_named_at_start() {
    let program = compile("cc", "sites.c", "sites_twice", C);
    let rule = "function = [\"make\"]\nplace = { policy = \"bind\" }";
    let policy = policy("twice.toml", &[rule, rule]);
    let (out, objects) = report(placed(&program, &policy));
    assert_eq!(out.stdout, "ok\n");
    assert!(out.stderr.contains("object 2 (make) can take no allocation: object 1"), "{}", out.stderr);
    assert_eq!(taken(&objects)[1], (0, 0));
}

/// Runs a program under one rule for each line of `file`; KiB that each rule took.
fn by_lines(program: &Path, file: &str, lines: &[u32]) -> Vec<(u64, u64)> {
    let rule = |line: &u32| format!("line = \"{file}:{line}\"\nsizes = \"64KiB-\"\nplace = {{ policy = \"bind\" }}");
    let rules: Vec<String> = lines.iter().map(rule).collect();
    let name = format!("{}.toml", program.file_name().unwrap().to_str().unwrap());
    let policy = policy(&name, &rules.iter().map(String::as_str).collect::<Vec<_>>());
    let (out, objects) = report(placed(program, &policy));
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("ok\n", ""), "{}", program.display());
    assert_eq!(objects[0]["name"], format!("{file}:{}, sizes 64KiB-", lines[0]));
    taken(&objects)
}

#[test]
fn lines_of_c_name_their_calls() {
    let expected = [(1, 300), (1, 100), (1, 200), (1, 400), (3, 1500)];
    let variants: [(&str, &str, &[&str]); 6] = [
        ("cc", "lines_4", &["-O2", "-gdwarf-4"]),
        ("cc", "lines_5", &["-O0", "-gdwarf-5"]),
        ("cc", "lines_z", &["-O2", "-g", "-gz=zlib"]),
        ("cc", "lines_nopie", &["-O1", "-g", "-no-pie"]),
        ("clang", "lines_clang4", &["-O1", "-gdwarf-4"]),
        ("clang", "lines_clang5", &["-O0", "-gdwarf-5"]),
    ];
    for (compiler, name, flags) in variants {
        let program = compile(compiler, "lines.c", name, &[flags, &["-fno-builtin"]].concat());
        for file in ["lines.c", "matching/lines.c"] {
            assert_eq!(by_lines(&program, file, &[7, 11, 12, 14, 15]), expected, "{name}");
        }
    }
}

#[test]
fn lines_of_other_languages_are_found_behind_their_libraries() {
    for (compiler, name, flags) in
        [("g++", "lines_new", &["-O0", "-g"]), ("clang++", "lines_new_clang", &["-O0", "-gdwarf-5"])]
    {
        let program = compile(compiler, "lines.cpp", name, flags);
        let taken = by_lines(&program, "lines.cpp", &[10, 11, 12, 13]);
        assert_eq!(taken, [(1, 100), (1, 200), (1, 100), (1, 300)], "{name}");
    }
    let program = compile("g++", "lines.cpp", "lines_new_fast", &["-O2", "-g"]);
    assert_eq!(by_lines(&program, "lines.cpp", &[10, 11]), [(1, 100), (1, 200)]);
    for flags in [["-O0", "-g"], ["-O2", "-gdwarf-4"]] {
        let program = compile("gfortran", "lines.f90", &format!("lines_fortran{}", flags[0]), &flags);
        assert_eq!(by_lines(&program, "lines.f90", &[4, 5]), [(1, 200), (1, 100)], "{flags:?}");
    }
    let program = compile("rustc", "lines.rs", "lines_rust", &["-g"]);
    assert_eq!(by_lines(&program, "lines.rs", &[2, 3, 4]), [(1, 100), (1, 200), (1, 300)]);
}

#[test]
fn a_line_without_code_is_told_with_what_to_do() {
    let with = compile("cc", "lines.c", "lines_with", &["-O0", "-g"]);
    let without = compile("cc", "lines.c", "lines_without", &["-O0", "-s"]);
    let packed = compile("clang", "lines.c", "lines_packed", &["-O0", "-g"]);
    let squeezed = Command::new("objcopy").arg("--compress-debug-sections=zstd").arg(&packed).status().unwrap();
    let mut cases = vec![
        (&with, "lines.c:1", "nearest ones with code: 7", None),
        (&with, "nowhere.c:11", "no loaded module has code of nowhere.c", None),
        (&without, "lines.c:11", "compile with -g", Some(78)),
    ];
    if squeezed.success() {
        cases.push((&packed, "lines.c:11", "compressed, and not by zlib", Some(78)));
    }
    for (program, line, says, strict) in cases {
        let policy = policy("no-line.toml", &[&format!("line = \"{line}\"\nplace = {{ policy = \"bind\" }}")]);
        let out = run(placed(program, &policy));
        let said = &out.stderr;
        assert_eq!((out.code(), out.stdout.as_str()), (Some(0), "ok\n"));
        assert!(said.contains(line) && said.contains(says) && said.contains("not found"), "{said}");
        assert_eq!(said.lines().count(), 2, "{said}");
        let out = run(placed(program, &policy).env("NUMAMMA_STRICT", "1"));
        assert_eq!(out.code(), Some(strict.unwrap_or(0)), "{line}: {}", out.stderr);
        assert_eq!(out.stdout.is_empty(), strict.is_some());
        assert!(out.stderr.contains(says), "{}", out.stderr);
    }
    let rules: Vec<String> = (0..100).map(|n| format!("line = \"{n}.c:1\"\nplace = {{ policy = \"bind\" }}")).collect();
    let policy = policy("no-lines.toml", &rules.iter().map(String::as_str).collect::<Vec<_>>());
    let said = run(placed(&with, &policy)).stderr;
    assert!(said.contains("92 more rules have such problems") && said.lines().count() == 10, "{said}");
}

/// Debugging information that a distribution cut off and installed beside the program's build-id.
#[test]
fn separate_debugging_information_is_found_by_build_id() {
    let program = compile("cc", "lines.c", "lines_cut", &["-O0", "-g", "-Wl,--build-id=0xfeedc0de00112233"]);
    let dir = Path::new("/usr/lib/debug/.build-id/fe");
    let file = dir.join("edc0de00112233.debug");
    let tool = |args: &[&std::ffi::OsStr]| assert!(Command::new("objcopy").args(args).status().unwrap().success());
    if std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&file, b"")).is_err() {
        common::skipped(&format!("{} cannot be written", dir.display()));
        return;
    }
    tool(&["--only-keep-debug".as_ref(), "--compress-debug-sections=zlib".as_ref(), program.as_ref(), file.as_ref()]);
    tool(&["--strip-all".as_ref(), program.as_ref()]);
    let taken = std::panic::catch_unwind(|| by_lines(&program, "lines.c", &[11, 15]));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(taken.unwrap(), [(1, 100), (3, 1500)]);
}

#[test]
fn strictly_nothing_starts_that_cannot_be_placed() {
    let program = compile("cc", "sites.c", "sites_strict", C);
    let rule = |place: &str| format!("function = [\"make\"]\nplace = {{ {place} }}");
    let cases = [
        (rule("policy = \"bind\", nodes = \"0,1023\""), "node 1023 does not exist"),
        (rule("policy = \"bindd\""), "`bindd`"),
        (
            rule("policy = \"bind\"").replace("function", "instances = \"0\"\nfunction"),
            "`0` is not a list of instances",
        ),
        ("sizes = \"1MiB\"\nglobal = \"x\"\nplace = { policy = \"bind\" }".into(), "`sizes` is for allocations"),
    ];
    let mut policies: Vec<(PathBuf, &str)> = cases
        .iter()
        .enumerate()
        .map(|(i, (rule, says))| (policy(&format!("strict-{i}.toml"), &[rule]), *says))
        .collect();
    policies.push(("/nonexistent/policy.toml".into(), "cannot read the policy"));
    policies.push((scratch().to_path_buf(), "cannot read the policy"));
    for (policy, says) in policies {
        let out = run(placed(&program, &policy));
        assert_eq!((out.code(), out.stdout.as_str()), (Some(0), "ok\n"), "{}", out.stderr);
        let out = run(placed(&program, &policy).env("NUMAMMA_STRICT", "1"));
        let said = &out.stderr;
        assert_eq!((out.code(), out.stdout.as_str()), (Some(78), ""), "{said}");
        assert!(said.contains(says) && said.contains("not started") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn verbose_tells_what_every_rule_did() {
    let program = compile("cc", "sites.c", "sites_verbose", C);
    let rules = [
        "function = [\"make\"]\nsizes = \"64KiB-\"\nplace = { policy = \"block-cyclic\", block = \"16KiB\" }",
        "function = [\"make\"]\ninstances = \"1\"\nplace = { policy = \"interleave\" }",
        "function = [\"nothing\"]\nplace = { policy = \"bind\" }",
    ];
    let policy = policy("verbose.toml", &rules);
    let mut c = placed(&program, &policy);
    c.env("NUMAMMA_VERBOSE", "1");
    let (out, objects) = report(c);
    let said = &out.stderr;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    // 64, 72, 80 and 640 KiB.
    let calls = number(&objects[0], "mbind_calls");
    assert!((4..=54).contains(&calls), "{said}");
    let start = "numamma: make, sizes 64KiB-: 4 objects, 856.0 KiB; block-cyclic of 16KiB on nodes ";
    assert!(lines[0].starts_with(start), "{said}");
    assert!(lines[0].contains(&format!("; {calls} mbind calls, 0.")) && lines[0].ends_with(" ms"), "{said}");
    assert!(lines[1].starts_with("numamma: make, instances 1: 1 object, 8.0 KiB; interleave on nodes "), "{said}");
    assert!(lines[1].contains("; 1 mbind call, "), "{said}");
    assert!(lines[2].starts_with("numamma: nothing: not found; bind on nodes "), "{said}");
    assert!(number(&objects[0], "place_ns") > 0 && number(&objects[2], "place_ns") == 0);
    assert_eq!(objects[0]["reasons"], serde_json::json!({}));
}

/// Without `[program]` a policy reaches every process that a script starts, and it is meant for one of them.
#[test]
fn only_processes_that_may_be_meant_name_what_they_did_not_find() {
    let program = compile("cc", "sites.c", "sites_script", C);
    let rule = |function: &str| format!("function = [\"{function}\"]\nplace = {{ policy = \"bind\" }}");
    let both = policy("script.toml", &[&rule("make"), &rule("no_such")]);
    let said = |program: &Path, args: &[&str], verbose: &str| {
        let out = run(placed(program, &both).args(args).env("NUMAMMA_VERBOSE", verbose));
        assert_eq!(out.code(), Some(0), "{}", out.stderr);
        out.stderr
    };
    let sh = Path::new("/bin/sh");
    assert_eq!(said(sh, &["-c", "ls / >/dev/null; true | cat; exit 0"], "0"), "");
    let script = format!("ls / >/dev/null; {}; exit 0", program.display());
    assert_eq!(said(sh, &["-c", &script], "0"), "numamma: not found, so not placed: no_such\n");
    assert_eq!(said(Path::new("/bin/true"), &[], "0"), "numamma: not found, so not placed: make; no_such\n");
    // The shell and the program; ls closes its stderr before it ends.
    let verbose = said(sh, &["-c", &script], "1");
    assert_eq!(verbose.matches("numamma: no_such: not found").count(), 1, "{verbose}");
    assert_eq!(verbose.matches(": no rule found anything").count(), 1, "{verbose}");
    // Without lines in the shell and its children only the first process says so.
    let line = policy("script-line.toml", &["line = \"sites.c:1\"\nplace = { policy = \"bind\" }"]);
    let out = run(placed(sh, &line).args(["-c", "ls / >/dev/null; /bin/true; exit 0"]));
    assert_eq!(out.stderr.lines().count(), 1, "{}", out.stderr);
    let named = policy("script-named.toml", &[&rule("no_such")]);
    let text_of = std::fs::read_to_string(&named).unwrap();
    std::fs::write(&named, text_of.replacen("[[object]]", "[program]\npath = \"sites_script\"\n[[object]]", 1))
        .unwrap();
    let out = run(placed(sh, &named).args(["-c", &script]));
    assert_eq!(out.stderr, "numamma: not found, so not placed: no_such\n");
}

/// A shell reads what its command writes, as cmake reads `uname -m`; where it reads standard output alone, or standard
/// error goes where its own does, the line is for the user.
#[test]
fn nothing_is_said_where_another_process_with_the_policy_reads_it() {
    let program = compile("cc", "sites.c", "sites_read", C);
    let rule = |function: &str| format!("function = [\"{function}\"]\nplace = {{ policy = \"bind\" }}");
    let both = policy("read.toml", &[&rule("make"), &rule("no_such")]);
    let (line, program) = ("numamma: not found, so not placed: no_such\n", program.display());
    let said = |script: &str, verbose: &str| {
        let mut command = placed(Path::new("/bin/bash"), &both);
        let out = run(command.args(["-c", script]).env("NUMAMMA_VERBOSE", verbose)).success();
        (out.stdout, out.stderr)
    };
    let alone = said(&format!("{program}; true"), "0");
    assert_eq!(alone.1, line);
    assert_eq!(said(&format!("x=$({program} 2>&1); echo \"$x\""), "0"), (alone.0.clone(), String::new()));
    assert_eq!(said(&format!("x=$(sh -c '{program}; true' 2>&1); echo \"$x\""), "0"), (alone.0.clone(), String::new()));
    assert_eq!(said(&format!("x=$({program}); echo \"$x\""), "0").1, line);
    assert!(said(&format!("x=$({program} 2>&1); echo \"$x\""), "1").0.contains("no_such: not found"));
    let both_to_one = said(&format!("{{ bash -c '{program}; true'; }} 2>&1 | cat"), "0");
    assert!(!both_to_one.0.contains("numamma"), "{both_to_one:?}");
    // The pipe is that of the first process, too.
    let mut command = Command::new("/bin/bash");
    let script =
        format!("LD_PRELOAD=\"$PRELOAD\" NUMAMMA_POLICY={} bash -c '{program}; true' 2>&1 | cat", both.display());
    let out = run(command.args(["-c", &script]).env("PRELOAD", preload("apply"))).success();
    assert!(out.stdout.contains(line), "{out:?}");
}

/// What `numamma run` asks for: one line, from the processes that the policy is meant for.
#[test]
fn a_summary_is_one_line_and_says_what_was_left() {
    let program = compile("cc", "sites.c", "sites_summary", C);
    let rule = |function: &str| format!("function = [\"{function}\"]\nplace = {{ policy = \"bind\" }}");
    for (rules, line) in [
        (vec![rule("make")], " placed\n"),
        (vec![rule("make"), rule("no_such")], " placed; not found: no_such\n"),
        (vec![rule("none"), rule("no_such")], "numamma: 0 objects placed; 2 rules matched nothing: none; no_such\n"),
    ] {
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let policy = policy("summary.toml", &rules);
        let out = run(placed(&program, &policy).env("NUMAMMA_SUMMARY", "1"));
        assert_eq!(out.code(), Some(0), "{}", out.stderr);
        assert!(out.stderr.ends_with(line) && out.stderr.lines().count() == 1, "{}", out.stderr);
        let placed = out.stderr.trim_start_matches("numamma: ").split(' ').next().and_then(|n| n.parse::<u64>().ok());
        assert_eq!(placed > Some(0), line.starts_with(" placed"), "{}", out.stderr);
    }
}

#[test]
fn what_the_kernel_refuses_later_is_counted_with_its_error() {
    let program = compile("cc", "sealed.c", "sealed", C);
    let policy = policy("sealed.toml", &["function = [\"make\"]\nplace = { policy = \"bind\" }"]);
    let mut c = numamma(&["verify", "--json", "-p"]);
    c.arg(&policy).arg("--").arg(&program);
    let out = run(c.env("NUMAMMA_VERBOSE", "1"));
    let (said, stdout) = (&out.stderr, &out.stdout);
    assert_eq!(out.code(), Some(1), "{said}");
    let answer: Value = serde_json::from_str(stdout.strip_prefix("ok\n").expect("the program's own output")).unwrap();
    let object = &answer["objects"][0];
    assert_eq!((number(object, "instances"), number(object, "unplaced"), number(object, "refused")), (3, 2, 2));
    assert_eq!(number(object, "error"), 1);
    // Its pages, and those of the head of its heap.
    assert!((25..=27).contains(&number(object, "pages_on_plan")), "{object}");
    assert!(said.contains("make: 2 objects refused by the system (Operation not permitted"), "{said}");
    assert!(
        said.contains("; 3 mbind calls, ") && said.contains("not placed: 2 refused by the system (error 1)"),
        "{said}"
    );
}

/// The policy for four nodes from a profile of a real run of the program.
fn advised(source: &str, name: &str) -> (String, Policy) {
    let program = compile("cc", source, name, C);
    let profile = scratch().join(format!("{name}.prof"));
    let numamma = |args: &[&str], more: &[&Path]| run(numamma(args).args(more)).success().stdout;
    assert_eq!(numamma(&["profile", "-q", "-F", "1000", "-o"], &[&profile, &program]), "ok\n");
    let advice = numamma(&["advise", "--nodes", "4"], &[&profile]);
    let policy = numamma_plan::check::parse(&advice).unwrap();
    (advice, policy)
}

fn by_number(policy: &Policy) -> Vec<(Option<&str>, Option<&str>)> {
    policy.objects.iter().map(|o| (o.instances.as_deref(), o.place.nodes.as_deref())).collect()
}

/// The main thread allocates for its workers, so each buffer gets its node by number.
#[test]
fn buffers_of_workers_are_advised_by_number() {
    let (advice, policy) = advised("workers.c", "workers");
    let expected = [("1-2", "0"), ("3-4", "1"), ("5-6", "2"), ("7-8", "3")].map(|(a, b)| (Some(a), Some(b)));
    assert_eq!(by_number(&policy), expected, "{advice}");
    assert!(policy.objects[0].why.as_ref().is_some_and(|why| why.contains("only right with 8 threads")), "{advice}");
}

/// Of many patches in a row each thread works on every fourth.
#[test]
fn patches_whose_users_alternate_are_advised_by_number() {
    let (advice, policy) = advised("patches.c", "patches");
    let expected = [("1/4", "0"), ("2/4", "1"), ("3/4", "2"), ("4/4", "3")].map(|(a, b)| (Some(a), Some(b)));
    assert_eq!(by_number(&policy), expected, "{advice}");
    assert!(advice.contains("1/4 on node 0, 2/4 on node 1"), "{advice}");
}
