//! Parts of objects: the members of a COMMON block, of a struct and of a class, from the profile to the node of every
//! page, on four real nodes with two CPUs each. Where the pages belong is written here by hand; where they are the
//! kernel says (`/proc/PID/numa_maps`, move_pages(2)).

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile, number, object, objects, program, source};
use crate::ways::{self, Bound, GOMP};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const NODES: u64 = 4;
/// Pages of a part that may be elsewhere: its first and last page may belong to a neighbour, and a slice may end a page
/// beside the boundary of its block.
const STRAY: u64 = 2 + NODES;

/// Text between `=== name` and the next marker.
fn section<'a>(text: &'a str, name: &str) -> &'a str {
    let marker = format!("=== {name}\n");
    let from = text.find(&marker).unwrap_or_else(|| panic!("no section {name} in:\n{text}")) + marker.len();
    let rest = &text[from..];
    &rest[..rest.find("\n=== ").map_or(rest.len(), |end| end + 1)]
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Profiles, places and verifies the program `file`, which is called `name` in the guest; it is placed and verified
/// with the second `arguments`, in each of `ways`.
fn run(lab: Lab, file: &Path, ways: &[&str], [arguments, short]: [&str; 2]) -> String {
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
    let (lab, ways) = ways::add(lab.options(&["--timeout", "500"]).add(file), ways);
    let lab = lab.add(source("lab/parts/run.sh")).add(source("lab/parts/placed.sh"));
    lab.run(&["./run.sh", &ways.join(" "), "8", name, arguments, short]).success().stdout
}

/// One row of numa_maps.
#[derive(Clone)]
struct Row {
    start: u64,
    /// Pages on each node.
    nodes: Vec<u64>,
}

fn rows(text: &str) -> Vec<Row> {
    let row = |line: &str| {
        let mut words = line.strip_prefix("maps ")?.split_whitespace();
        let start = u64::from_str_radix(words.next()?, 16).ok()?;
        let mut nodes = vec![0; NODES as usize];
        for word in words {
            let Some((node, pages)) = word.strip_prefix('N').and_then(|w| w.split_once('=')) else { continue };
            nodes[node.parse::<usize>().ok()?] = pages.parse().ok()?;
        }
        Some(Row { start, nodes })
    };
    text.lines().filter_map(row).collect()
}

/// Pages on each node of every quarter of `[start, start + size)`; a row of several nodes that crosses a quarter counts
/// for the one with its first page.
fn quarters(rows: &[Row], start: u64, size: u64) -> [[u64; NODES as usize]; NODES as usize] {
    let mut out = [[0; NODES as usize]; NODES as usize];
    for row in rows {
        let mut at = row.start;
        for (node, pages) in row.nodes.iter().enumerate() {
            for _ in 0..*pages {
                if (start..start + size).contains(&at) {
                    out[((at - start) * NODES / size) as usize][node] += 1;
                }
                at += PAGE;
            }
        }
    }
    out
}

/// What the placed program printed in one of the ways. Its output is that of the run without a policy; the rules of the
/// policy for one member place all of its pages, and no rule has pages elsewhere.
fn check_placed<'a>(bound: &Bound<'a>, placed: &[&str]) -> &'a str {
    let (said, verify) = bound.said.split_once("--- verify\n").unwrap_or_else(|| panic!("{}", bound.said));
    assert!(said.ends_with("--- same output\n"), "{}: {said}", bound.way);
    let verify = json(verify);
    for member in placed {
        let o = object(&verify, member);
        assert!(number(o, "pages_present") > 0 && number(o, "pages_off_plan") == 0, "{}: {o}", bound.way);
    }
    said
}

/// The kernel moves nothing by itself here, as in the next test: how much it has moved when a run ends, and so how much
/// a rule still gains, depends on how fast the host emulates.
fn members_of_a_common_block(ways: &[&str]) {
    let Some(lab) = Lab::still(4, 2) else { return };
    let text = run(lab, &program("sparse"), ways, ["40", "2"]);
    let (report, policy) = (json(section(&text, "report")), section(&text, "policy"));
    for (member, kinds) in [("val", &["block"][..]), ("col", &["block"]), ("x", &["random", "read-shared"])] {
        let o = object(&report, &format!("csr_.{member}"));
        let kind = o["pattern"]["kind"].as_str().unwrap();
        assert!(kinds.contains(&kind), "{member}: {kind}: {}", o["pattern"]);
        assert_eq!((o["parent"].as_str(), o["member"].as_str()), (Some("csr_"), Some(member)));
        assert!(policy.contains(&format!("member = \"{member}\"")), "{policy}");
    }
    ways::split(&text, ways, NODES).iter().for_each(check_sparse);
}

#[test]
#[ignore = "long: make test-long"]
fn members_of_a_common_block_in_three_ways() {
    members_of_a_common_block(&["unbound", "OMP_PROC_BIND=spread", "mpirun-numa"]);
}

#[test]
#[ignore = "long: make test-ways"]
fn members_of_a_common_block_in_each_way() {
    members_of_a_common_block(&ways::ALL);
}

/// The node of a slice where threads take them in reverse order. The advice has `nodes = "3,2,1,0"` for these: the
/// nodes by their numbers, also for a process that was given one of them.
fn reversed(slice: u64) -> u64 {
    NODES - 1 - slice
}

/// Whether as many of `all` pages are on each node that the process was given; `on` says how many are on a node.
fn is_even(bound: &Bound<'_>, all: u64, on: impl Fn(usize) -> u64) -> bool {
    let share = |node: &u64| on(*node as usize).abs_diff(all / bound.nodes.len() as u64) <= all / 20;
    bound.nodes.iter().all(share)
}

fn check_sparse(bound: &Bound<'_>) {
    let placed = check_placed(bound, &["csr_.val", "csr_.col", "csr_.x"]);
    let (way, rows) = (bound.way, rows(placed));
    let mut seen = 0;
    for line in placed.lines().filter_map(|l| l.strip_prefix("array ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, start, size] = words[..] else { panic!("odd line {line}") };
        let (start, size) = (u64::from_str_radix(start, 16).expect("hex"), size.parse::<u64>().expect("bytes"));
        let found = quarters(&rows, start, size);
        let all: u64 = found.iter().flatten().sum();
        match name {
            "val" | "col" => {
                seen += 1;
                let right: u64 = (0..NODES).map(|q| found[q as usize][bound.of_all(q) as usize]).sum();
                assert!(all > size / PAGE - 2 && all - right <= STRAY, "{way}: {name}: {found:?}\n{placed}");
            }
            "x" => {
                seen += 1;
                let even = is_even(bound, all, |node| found.iter().map(|q| q[node]).sum());
                assert!(even, "{way}: {name}: {found:?}\n{placed}");
            }
            _ => {}
        }
    }
    assert_eq!(seen, 3, "{way}: {placed}");
}

/// About two samples for each page: an edge is known to a page or two.
const NEAR: u64 = 2 * PAGE;
/// A boundary that is wrong by so much moves the three edges inside of an array, and blocks are whole pages.
const MOVED: u64 = STRAY + 2 * NEAR / PAGE + NODES;

/// Arrays that a stripped program carves out of one allocation: told apart by the profile, each placed by a rule of its
/// own, every page where that rule says.
fn arrays_of_one_allocation_without_debug_information(ways: &[&str]) {
    let Some(lab) = Lab::new(4, 2) else { return };
    let dir = Scratch::new(&format!("lab-pool-{}", ways.len()));
    let flags = [&["-O1", "-s", "-pthread"][..], &GOMP].concat();
    let file = compile("cc", "lab/parts/pool.c", dir.join("pool"), &flags);
    let text = run(lab, &file, ways, ["8 1000", "8 10"]);
    let (report, policy) = (json(section(&text, "report")), section(&text, "policy"));
    let mut parts: Vec<&Value> = objects(&report).iter().filter(|o| !o["parent"].is_null()).collect();
    parts.sort_by_key(|o| number(o, "offset"));
    assert_eq!(parts.len(), 3, "{report:#}\n{policy}");
    let planted = [(0, &["block"][..]), (6 * MIB, &["read-shared", "random"]), (11 * MIB, &["block"])];
    for (part, (offset, kinds)) in parts.iter().zip(planted) {
        assert!(number(part, "offset").abs_diff(offset) <= NEAR, "{offset}: {part:#}\n{policy}");
        assert!(kinds.contains(&part["pattern"]["kind"].as_str().expect("a class")), "{offset}: {part:#}");
        let name = part["name"].as_str().expect("a name");
        assert!(name.starts_with(&format!("{} [", part["parent"].as_str().expect("a name"))), "{name}");
    }
    let names: Vec<&str> = parts.iter().filter_map(|o| o["name"].as_str()).collect();
    ways::split(&text, ways, NODES).iter().for_each(|bound| check_pool(bound, &names, policy));
}

#[test]
#[ignore = "long: make test-long"]
fn arrays_of_one_allocation_in_three_ways() {
    arrays_of_one_allocation_without_debug_information(&["unbound", "OMP_PROC_BIND=true", "node"]);
}

#[test]
#[ignore = "long: make test-ways"]
fn arrays_of_one_allocation_in_each_way() {
    arrays_of_one_allocation_without_debug_information(&ways::ALL);
}

fn check_pool(bound: &Bound<'_>, names: &[&str], policy: &str) {
    let placed = check_placed(bound, names);
    let (way, rows) = (bound.way, rows(placed));
    let one_node = |row: &&Row| row.nodes.iter().filter(|n| **n > 0).count() == 1;
    let whole: Vec<Row> = rows.iter().filter(one_node).cloned().collect();
    let mut seen = 0;
    for line in placed.lines().filter_map(|l| l.strip_prefix("array ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, start, size] = words[..] else { panic!("odd line {line}") };
        let (start, size) = (u64::from_str_radix(start, 16).expect("hex"), size.parse::<u64>().expect("bytes"));
        let found = quarters(&rows, start, size);
        let all: u64 = found.iter().flatten().sum();
        assert!(all + 2 > size / PAGE, "{way}: {name}: {found:?}\n{placed}");
        // Where the pages of a row of several nodes are, numa_maps does not say: no slice may have any.
        let sure = quarters(&whole, start, size);
        let elsewhere =
            |home: &dyn Fn(u64) -> u64| all - (0..NODES).map(|q| sure[q as usize][home(q) as usize]).sum::<u64>();
        let right = match name {
            "field" => elsewhere(&|q| bound.of_all(q)) <= MOVED,
            "back" => elsewhere(&reversed) <= MOVED,
            _ => is_even(bound, all, |node| found.iter().map(|q| q[node]).sum()),
        };
        assert!(right, "{way}: {name}: {found:?}\n{placed}\n{policy}");
        seen += 1;
    }
    assert_eq!(seen, 3, "{way}: {placed}");
}

/// Members that are placed.
const FIELDS: [&str; 6] = ["mesh.up", "mesh.down", "plain.up", "plain.down", "mesh.table", "plain.table"];

fn members_of_a_struct_and_of_a_class(ways: &[&str]) {
    let Some(lab) = Lab::still(4, 2) else { return };
    let dir = Scratch::new(&format!("lab-fields-{}", ways.len()));
    let flags = [&["-O2", "-g", "-fno-optimize-sibling-calls", "-std=c++17", "-pthread"][..], &GOMP].concat();
    let file = compile("c++", "programs/fields.cpp", dir.join("fields"), &flags);
    let text = run(lab, &file, ways, ["8 60", "8 2"]);
    let (report, policy) = (json(section(&text, "report")), section(&text, "policy"));
    for name in FIELDS {
        assert!(policy.contains(&format!("name = \"{name}\"")), "{name}\n{policy}");
        assert_eq!(object(&report, name)["parent"].as_str(), name.split('.').next());
    }
    ways::split(&text, ways, NODES).iter().for_each(|bound| check_fields(bound, policy));
}

#[test]
fn members_of_a_struct_and_of_a_class_in_two_ways() {
    members_of_a_struct_and_of_a_class(&["unbound", "OMP_PROC_BIND=true"]);
}

#[test]
#[ignore = "long: make test-long"]
fn members_of_a_struct_and_of_a_class_in_four_ways() {
    members_of_a_struct_and_of_a_class(&["unbound", "OMP_PLACES=cores", "taskset", "mpirun-core"]);
}

#[test]
#[ignore = "long: make test-ways"]
fn members_of_a_struct_and_of_a_class_in_each_way() {
    members_of_a_struct_and_of_a_class(&ways::ALL);
}

fn check_fields(bound: &Bound<'_>, policy: &str) {
    let placed = check_placed(bound, &FIELDS);
    let way = bound.way;
    let mut seen = 0;
    for line in placed.lines().filter_map(|l| l.strip_prefix("pages ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, offset) = (words[0], words[1].parse::<u64>().expect("bytes"));
        let nodes: Vec<u64> = words[2..].iter().map(|w| w.parse().expect("a node")).collect();
        let size = 400_000 * 8;
        let slice = |page: u64| (offset + page * PAGE) * NODES / size;
        let wrong = |home: &dyn Fn(u64) -> u64| (0..).zip(&nodes).filter(|(page, node)| home(*page) != **node).count();
        let stray = match name.rsplit('.').next() {
            Some("up") => wrong(&|page| bound.of_all(slice(page))),
            Some("down") => wrong(&|page| reversed(slice(page))),
            _ => {
                let on = |node: usize| nodes.iter().filter(|n| **n == node as u64).count() as u64;
                assert!(is_even(bound, nodes.len() as u64, on), "{way}: {name}: {nodes:?}");
                0
            }
        };
        let of = nodes.len();
        assert!(stray as u64 <= STRAY, "{way}: {name}: {stray} pages of {of} are elsewhere: {nodes:?}\n{policy}");
        seen += 1;
    }
    assert_eq!(seen, 6, "{way}: {placed}");
}

/// Ranges of one allocation and of one mapping: each part has its place, the rest is where its thread touched it first,
/// also after realloc and after a hole was cut.
#[test]
fn parts_of_an_allocation_and_of_a_mapping() {
    let Some(lab) = Lab::new(4, 2) else { return };
    let dir = Scratch::new("lab-arena");
    let part = |range: &str| format!("function = [\"make_pool\"]\nrange = \"{range}\"");
    let of_map = |range: &str| format!("function = [\"make_map\"]\nrange = \"{range}\"");
    let policy = Policy::of("arena")
        .rule(&part("11MiB-"), "policy = \"bind\", nodes = \"3\"")
        .rule(&part("0-4MiB"), "policy = \"bind\", nodes = \"1\"")
        .rule(&part("4MiB-8MiB"), "policy = \"block\", nodes = \"2,3\", block = \"2MiB\"")
        .rule(&of_map("-1MiB"), "policy = \"bind\", nodes = \"2\"")
        .rule(&of_map("4MiB-8MiB"), "policy = \"block-cyclic\", nodes = \"3,1\", block = \"64KiB\"");
    // Without policy a page may be hidden from move_pages, and moved, for NUMA balancing.
    let placed = "echo 0 > /proc/sys/kernel/numa_balancing
        export NUMAMMA_POLICY=arena.toml NUMAMMA_REPORT=arena.json
        LD_PRELOAD=libnumamma-apply.so ./arena; echo status $?; cat arena.json";
    let program = compile_with_gomp(&dir, "arena");
    let lab = lab.add(program).add(policy.write(&dir, "arena.toml"));
    let text = ways::run(lab, &ways::ALL, &["sh", "-c", placed]);
    ways::split(&text, &ways::ALL, NODES).iter().for_each(check_arena);
}

/// A program of tests/programs as its Makefile compiles it, but with GNU's OpenMP runtime.
fn compile_with_gomp(dir: &Scratch, name: &str) -> PathBuf {
    let flags = [&["-O2", "-g", "-fno-optimize-sibling-calls"][..], &GOMP].concat();
    compile("cc", &format!("programs/{name}.c"), dir.join(name), &flags)
}

fn check_arena(bound: &Bound<'_>) {
    let (way, text) = (bound.way, bound.said);
    assert!(text.contains("\ndone\nstatus 0\n"), "{way}: {text}");
    // What no rule places is on the node of the thread, where that is known.
    let pool = |page: u64| match (page * PAGE) >> 20 {
        0..4 => Some(1),
        4..6 => Some(2),
        6..8 => Some(3),
        8..11 => bound.home(),
        _ => Some(3),
    };
    let map = |page: u64| match (page * PAGE) >> 20 {
        0 => Some(2),
        4..8 => Some([3, 1][(page / 16 % 2) as usize]),
        _ => bound.home(),
    };
    let mut seen = 0;
    for line in text.lines().filter(|l| l.starts_with(char::is_alphabetic)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, first, pages, node] = words[..] else { continue };
        let (first, pages): (u64, u64) = (first.parse().expect("page"), pages.parse().expect("pages"));
        for page in first..first + pages {
            let expected = if matches!(name, "map" | "cut") { map(page) } else { pool(page) };
            assert!(expected.is_none_or(|e| node == e.to_string()), "{way}: {name} page {page}\n{text}");
            seen += 1;
        }
    }
    let mib = [12, 20, 10, 12, 12, 9].iter().sum::<u64>();
    assert_eq!(seen, mib * (MIB / PAGE), "{way}: {text}");
    let report = json(&text[text.find("\n{").expect("a report")..]);
    for o in report["objects"].as_array().expect("objects") {
        assert!(number(o, "pages_present") > 0 && number(o, "pages_off_plan") == 0, "{way}: {o}");
    }
}

/// Pages of the variable on a node.
fn pages(text: &str, node: &str) -> u64 {
    let own = text.lines().filter(|l| l.starts_with("big_global ") && l.ends_with(&format!(" {node}")));
    own.map(|l| l.split(' ').nth(2).expect("pages").parse::<u64>().expect("pages")).sum()
}

/// A variable of another size than the rule was made for is left alone, with one line.
#[test]
fn a_variable_of_another_size_is_not_placed() {
    let Some(lab) = Lab::new(4, 2) else { return };
    let dir = Scratch::new("lab-other-size");
    let size = |range: &str, size: u64| format!("global = \"big_global\"\nrange = \"{range}\"\nsize = {size}");
    let policy = Policy::of("pagenodes")
        .rule(&size("1MiB-2MiB", 9 << 20), "policy = \"bind\", nodes = \"3\"")
        .rule(&size("2MiB-", (9 << 20) + 8), "policy = \"bind\", nodes = \"2\"");
    let placed = "NUMAMMA_POLICY=size.toml LD_PRELOAD=libnumamma-apply.so ./pagenodes 2>&1";
    let lab = lab.add(compile_with_gomp(&dir, "pagenodes")).add(policy.write(&dir, "size.toml"));
    let text = ways::run(lab, &ways::ALL, &["sh", "-c", placed]);
    for bound in ways::split(&text, &ways::ALL, NODES) {
        let (way, text) = (bound.way, bound.said);
        let said = text.lines().filter(|l| l.contains("of a variable of 9437192 bytes, and this one has 9437184"));
        assert_eq!(said.count(), 1, "{way}: {text}");
        // Of what no rule places nothing is on nodes 2 and 3, if the kernel cannot move the thread there.
        if bound.home().is_some() {
            assert!(pages(text, "3").abs_diff(MIB / PAGE) <= 1 && pages(text, "2") == 0, "{way}: {text}");
        }
    }
}
