//! What `all` means: the nodes that the process was given when it started, however its threads, a runtime library or
//! the program that started it are bound.
//!
//! What is expected comes from the guest's kernel alone: the CPUs and nodes that a statically linked shell may use at
//! the place where the program starts (/proc/self/status, numa_maps), the CPUs of each node in sysfs, and where the
//! pages are in /proc/self/numa_maps. Neither the plan crate nor the library's report is asked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile, exists, libomp, source};
use crate::ways::with_mpirun;

/// Least share of its equal part that a node has of the pages of an interleaved object, the neighbours in its mapping
/// included.
const LEAST_PART: f64 = 0.8;

/// Scenes whose program's children are looked at, too, in the short form of the test.
const WITH_CHILDREN: [&str; 4] = ["bind-true", "half-bind", "late", "libomp-spread"];

type Nodes = BTreeSet<u32>;

fn numbers(list: &str) -> Nodes {
    numamma_kernel::lists::parse_list(list).into_iter().collect()
}

/// The nodes that a process may have its memory on and run near to: of its CPUs, its cpuset and a strict policy.
fn given(line: &str, cpus_of: &[(u32, Nodes)]) -> Nodes {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, cpus, memory, policy] = words[..] else { panic!("{line}") };
    let (cpus, mut may) = (numbers(cpus), numbers(memory));
    if let Some(bound) = policy.strip_prefix("bind:") {
        may = &may & &numbers(bound);
    }
    let near = cpus_of.iter().filter(|(_, of_node)| !of_node.is_disjoint(&cpus)).map(|(node, _)| *node).collect();
    let both = &may & &near;
    if both.is_empty() { may } else { both }
}

/// Checks one line of given.c: who allocated, what, the policy, `N<node>=<pages>`. Returns the name.
fn check_line(line: &str, expected: &Nodes, scene: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let count = |word: &&str| {
        let (node, pages) = word.strip_prefix('N').and_then(|w| w.split_once('=')).unwrap_or_else(|| panic!("{scene}"));
        (node.parse::<u32>().expect("a node"), pages.parse::<f64>().expect("pages"))
    };
    let pages: Vec<(u32, f64)> = words.iter().skip(3).map(count).collect();
    assert_eq!(&pages.iter().map(|(node, _)| *node).collect::<Nodes>(), expected, "{line}\n{scene}");
    let all: f64 = pages.iter().map(|(_, n)| n).sum();
    assert!(all >= 256.0, "{line}\n{scene}");
    assert!(pages.iter().all(|(_, n)| n * expected.len() as f64 >= all * LEAST_PART), "{line}\n{scene}");
    format!("{} {}", words[0], words[1])
}

fn check(scene: &str, cpus_of: &[(u32, Nodes)], children: bool) {
    let name = scene.lines().next().expect("a name");
    // `inner` starts twice: the second start is that of the program.
    let start = scene.lines().rfind(|l| l.starts_with("given ")).unwrap_or_else(|| panic!("{scene}"));
    let expected = given(start, cpus_of);
    let shown = scene.lines().skip_while(|l| *l != start).skip(1).filter(|l| l.contains(" N"));
    // Nothing is left of a program that bound itself in main and then replaced itself by exec.
    let bound_in_main = (name.starts_with("late") || name.starts_with("libomp")) && !name.ends_with("node");
    let shown = shown.filter(|l| !(bound_in_main && l.starts_with("exec ")));
    let seen: BTreeSet<String> = shown.map(|line| check_line(line, &expected, scene)).collect();
    let mut wanted = vec!["main grid", "main heap"];
    if !name.starts_with("late") && !name.starts_with("raw") {
        wanted.push("team heap");
    }
    if children {
        wanted.extend(["fork heap", "fork-spawn grid", "system grid", "spawn heap", "vfork heap"]);
        wanted.extend(["thread heap", "thread-exec grid"]);
    }
    for object in wanted {
        assert!(seen.contains(object), "no {object}: {scene}");
    }
    assert!(!scene.contains("numamma:") || name == "mpi-job", "{scene}");
}

/// What `numamma verify` says where `all` is all nodes, and where it is fewer.
fn check_verified(text: &str) {
    let expected = [
        ("all", None),
        ("node", Some("`all` means nodes 1 and not 0-3: the process was started on CPUs 2-3 (")),
        (
            "memory",
            Some("`all` means nodes 1-2 and not 0-3: the process was started on CPUs 0-7, with memory bound to"),
        ),
    ];
    for (said, (name, warning)) in text.split("+++ ").zip(expected) {
        assert!(said.starts_with(&format!("{name}\n")), "{text}");
        let (_, json) = said.split_once("status 0\n").unwrap_or_else(|| panic!("{said}"));
        let answer: serde_json::Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {said}"));
        let warnings: Vec<&str> = answer["warnings"].as_array().unwrap().iter().filter_map(|w| w.as_str()).collect();
        assert_eq!(warnings.len(), usize::from(warning.is_some()), "{said}");
        assert!(warnings.iter().zip(warning).all(|(said, start)| said.starts_with(start)), "{said}");
    }
    assert_eq!(text.matches("+++ ").count(), expected.len() - 1, "{text}");
}

/// The programs, the library of one of them, and the policy.
fn files(dir: &Scratch) -> Vec<PathBuf> {
    let given = "lab/given/given.c";
    let gnu = ["-O2", "-g", "-pthread", "-fopenmp"];
    let binder = compile("cc", "lab/given/binder.c", dir.join("libbinder.so"), &["-O2", "-shared", "-fPIC"]);
    let path = binder.to_str().expect("a path in UTF-8");
    let raw = ["-O2", "-g", "-pthread", "-Wl,--no-as-needed", path, "-Wl,--as-needed", "-Wl,-rpath,/work"];
    let policy = ["global = \"grid\"", "function = [\"by_malloc\"]"]
        .iter()
        .fold(Policy::new(), |policy, key| policy.rule(key, "policy = \"interleave\", nodes = \"all\""));
    let mut files = vec![
        compile("cc", given, dir.join("given"), &gnu),
        compile("cc", given, dir.join("given-late"), &gnu[..3]),
        compile("cc", given, dir.join("given-raw"), &raw),
        compile("cc", "lab/given/under.c", dir.join("under"), &["-O2"]),
        policy.write(dir, "given.toml"),
        binder,
    ];
    if let Some(runtime) = libomp() {
        // GNU's entry points are in LLVM's runtime, too: the same program with another library.
        let link = format!("-l:{}", runtime.file_name().expect("a name").display());
        let (at, run) = (format!("-L{}", parent(&runtime)), format!("-Wl,-rpath,{}", parent(&runtime)));
        let flags =
            ["-O2", "-g", "-pthread", "-fopenmp", "-nodefaultlibs", &at, &run, &link, "-lc", "-lgcc_s", "-lgcc"];
        files.push(compile("cc", given, dir.join("given-libomp"), &flags));
    }
    files
}

fn parent(path: &Path) -> std::path::Display<'_> {
    path.parent().expect("a directory").display()
}

/// Boots, runs every scene, and checks those that ran; `children` are the scenes whose children are looked at.
fn all_is_what_the_process_was_given(children: &[&str]) {
    let Some(lab) = Lab::still(4, 2) else { return };
    let dir = Scratch::new(&format!("lab-given-{}", children.len()));
    let mut lab = lab.options(&["--thp", "never", "--timeout", "900", "--with-root", "/usr/bin/taskset"]);
    for file in files(&dir) {
        lab = lab.add(file);
    }
    lab = with_mpirun(lab).add(source("lab/given/start.sh")).add(source("lab/given/run.sh"));
    let command: Vec<&str> = ["./run.sh"].iter().chain(children).copied().collect();
    let text = lab.run(&command).success().stdout;
    let node = |line: &str| {
        let (node, cpus) = line.strip_prefix("node ")?.split_once(' ')?;
        Some((node.parse().ok()?, numbers(cpus)))
    };
    let cpus_of: Vec<(u32, Nodes)> = text.lines().map_while(node).collect();
    assert_eq!(cpus_of.len(), 4, "{text}");
    let (text, verified) = text.split_once("+++ ").unwrap_or_else(|| panic!("{text}"));
    check_verified(verified);
    let scenes: Vec<&str> = text.split("=== ").skip(1).collect();
    let of_mpi = if exists("mpirun") { 14 } else { 0 };
    let of_libomp = if libomp().is_some() { 4 } else { 0 };
    assert_eq!(scenes.len(), 26 + of_mpi + of_libomp, "{text}");
    for scene in scenes {
        let name = scene.lines().next().expect("a name");
        check(scene, &cpus_of, children.contains(&"all") || children.contains(&name));
    }
}

#[test]
fn all_is_what_the_process_was_given_however_it_is_bound() {
    all_is_what_the_process_was_given(&WITH_CHILDREN);
}

#[test]
#[ignore = "long: make test-long"]
fn children_of_every_bound_program_have_all_nodes_too() {
    all_is_what_the_process_was_given(&["all"]);
}
