//! Every policy on every kind of object, page by page on real nodes: 2, 4 and 8 of them, Linux 6.1 and 6.12, huge pages
//! always and never.
//!
//! Where a page should be is computed here by the published formulas, written down again on purpose: neither the plan
//! crate nor the library's own check is its judge. The library's report must agree.

use serde_json::Value;

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile, source};

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
const KINDS: [&str; 15] = [
    "in_bss",
    "in_data",
    "by_malloc",
    "by_calloc",
    "by_realloc",
    "by_steps",
    "by_reallocarray",
    "by_memalign",
    "by_posix_memalign",
    "by_mmap",
    "by_shared",
    "by_shm",
    "by_shmat",
    "by_hugetlb",
    "by_small",
];
/// Shared memory has base pages whatever huge pages are set to (shmem_enabled is `never`).
const SHARED: [&str; 3] = ["by_shared", "by_shm", "by_shmat"];
/// Policies for objects of less than a page: those that do not follow the object's own offsets.
const FOR_SMALL: [&str; 7] =
    ["default", "bind", "preferred", "preferred-many", "interleave", "weighted-interleave", "local"];
/// Threads of the policies with `bind-block`.
const THREADS: u64 = 6;
const SEED: u64 = 7;
/// Whole pages that the small objects of kinds.c fill at least: 30,000 of 100 bytes.
const SMALL_PAGES: usize = 730;

/// Name of the policy file and its placement.
const PLACES: [(&str, &str); 20] = [
    ("default", r#"policy = "default""#),
    ("bind", r#"policy = "bind", nodes = "1""#),
    ("preferred", r#"policy = "preferred", nodes = "1""#),
    ("preferred-many", r#"policy = "preferred-many", nodes = "0-1""#),
    ("interleave", r#"policy = "interleave""#),
    ("weighted-interleave", r#"policy = "weighted-interleave""#),
    ("block", r#"policy = "block""#),
    ("block-fixed", r#"policy = "block", block = "300KiB", nodes = "1,0""#),
    ("block-cyclic", r#"policy = "block-cyclic", block = "640KiB""#),
    ("odd-block", r#"policy = "block-cyclic", block = 150001"#),
    ("bind-block", r#"policy = "bind-block""#),
    ("skew", r#"policy = "skew""#),
    ("skew-block", r#"policy = "skew", block = "64KiB""#),
    ("prime", r#"policy = "prime""#),
    ("random", r#"policy = "random", seed = 7"#),
    ("random-block", r#"policy = "random-block", block = "128KiB", seed = 7"#),
    ("map", r#"policy = "map", map = "100x1,28x0""#),
    ("split", r#"policy = "skew", huge = "split""#),
    ("want", r#"policy = "block", huge = "want""#),
    ("local", r#"policy = "local""#),
];

fn policies(dir: &Scratch) {
    std::fs::create_dir_all(dir.join("policies")).expect("a directory for the policies");
    for (name, place) in PLACES {
        let mut policy = Policy::of("kinds").lines(&format!("[threads]\nbind = \"none\"\ncount = {THREADS}"));
        for kind in KINDS {
            let global = kind.starts_with("in_");
            if global && name == "local" {
                continue; // globals have no allocating thread
            }
            let key = if global { format!("global = \"{kind}\"") } else { format!("function = [\"{kind}\"]") };
            policy = policy.rule(&key, place);
        }
        policy.write(dir, &format!("policies/{name}.toml"));
    }
}

/// An object as the program showed it.
struct Shown {
    name: String,
    address: u64,
    size: u64,
    /// Node of each whole page.
    nodes: Vec<i64>,
}

impl Shown {
    fn parse(line: &str) -> Shown {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("odd line {line}"));
        let nodes = words[3..].iter().flat_map(|run| {
            let parts: Vec<i64> = run.split(':').map(|n| n.parse().expect("a number")).collect();
            std::iter::repeat_n(parts[2], parts[1] as usize)
        });
        Shown { name: words[0].into(), address: number(words[1]), size: number(words[2]), nodes: nodes.collect() }
    }
}

/// The situation a run was in.
struct Scene<'a> {
    nodes: u64,
    thp: &'a str,
    huge: bool,
    weights: bool,
    /// Node of the CPU the program was bound to.
    home: u64,
}

fn up(value: u64, unit: u64) -> u64 {
    value.div_ceil(unit) * unit
}

/// SplitMix64, output number i + 1, from its authors' paper.
fn split_mix(seed: u64, i: u64) -> u64 {
    let mut z = seed.wrapping_add((i + 1).wrapping_mul(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D049BB133111EB);
    z ^ (z >> 31)
}

/// Node of block `i` of m: in turn over a prime number of nodes; what falls beyond the real ones is dealt out in turn.
fn prime(m: u64, i: u64) -> u64 {
    let prime = [0, 0, 2, 3, 5, 5, 7, 7, 11][m as usize];
    let beyond = (0..i).filter(|j| j % prime >= m).count() as u64;
    if i % prime < m { i % prime } else { beyond % m }
}

impl Scene<'_> {
    /// Node of page `page` of an object; none: judged by [`Scene::turns`].
    fn node(&self, policy: &str, shown: &Shown, page: u64) -> Option<Vec<u64>> {
        let (m, size) = (self.nodes, shown.size);
        let shared = SHARED.contains(&&*shown.name);
        if shown.name == "by_hugetlb" {
            return self.node_of_hugetlb(policy, size, page / 512);
        }
        let unit = if self.huge && size >= HUGE && !shared { HUGE } else { PAGE };
        let at = page * PAGE;
        let skew = |i: u64| (i + i / m + 1) % m;
        Some(vec![match policy {
            "bind" | "preferred" => 1,
            "preferred-many" => return Some(vec![0, 1]),
            "block" => at / up(size.div_ceil(m), unit) % m,
            "want" => {
                let unit = if self.thp != "never" && size >= HUGE && !shared { HUGE } else { PAGE };
                at / up(size.div_ceil(m), unit) % m
            }
            "block-fixed" => [1, 0][(at / (300 << 10)) as usize % 2],
            "block-cyclic" => at / (640 << 10) % m,
            // A page goes with the block that has its middle.
            "odd-block" => (at + PAGE / 2) / 150_001 % m,
            "bind-block" => at / up(size.div_ceil(THREADS), unit) % THREADS * m / THREADS,
            "skew" => skew(at / unit),
            "split" => skew(page),
            "skew-block" => skew(at / (64 << 10)),
            "prime" => prime(m, at / unit),
            "random" => ((split_mix(SEED, at / unit) >> 32) * m) >> 32,
            "random-block" => ((split_mix(SEED, at / (128 << 10)) >> 32) * m) >> 32,
            "map" => u64::from(page % 128 < 100),
            "local" | "default" => self.home,
            _ => return None,
        }])
    }

    /// Node of hugetlb page `i`: every block is rounded up to whole ones.
    fn node_of_hugetlb(&self, policy: &str, size: u64, i: u64) -> Option<Vec<u64>> {
        let m = self.nodes;
        let slice = |parts: u64| up(size.div_ceil(parts), HUGE) / HUGE;
        Some(vec![match policy {
            "bind" | "preferred" => 1,
            "preferred-many" => return Some(vec![0, 1]),
            "block" | "want" => i / slice(m) % m,
            "block-fixed" => [1, 0][i as usize % 2],
            "block-cyclic" | "odd-block" => i % m,
            "bind-block" => i / slice(THREADS) % THREADS * m / THREADS,
            "skew" | "split" | "skew-block" => (i + i / m + 1) % m,
            "prime" => prime(m, i),
            "random" | "random-block" => ((split_mix(SEED, i) >> 32) * m) >> 32,
            // 32 pieces of 4 pages, each of them now a huge page.
            "map" => u64::from(i % 32 < 25),
            "local" | "default" => self.home,
            _ => return None,
        }])
    }

    /// Interleaving by the kernel: the pages take turns from an offset of the kernel's choice, 4 KiB or 2 MiB at a
    /// time.
    fn turns(&self, policy: &str, shown: &Shown) -> Result<(), String> {
        let m = self.nodes;
        let mut order: Vec<u64> = (0..m).collect();
        if policy == "weighted-interleave" && self.weights {
            order.splice(0..1, [0, 0, 0]);
        }
        let first = shown.address.div_ceil(PAGE);
        let huge = shown.name == "by_hugetlb" || self.huge && !SHARED.contains(&&*shown.name);
        let fits = |offset: u64, page_shift: u64, pages: &[(u64, i64)]| {
            pages.iter().all(|(p, node)| order[((p >> page_shift) + offset) as usize % order.len()] as i64 == *node)
        };
        let present = |page: &(u64, i64)| page.1 >= 0;
        let all: Vec<(u64, i64)> = (first..).zip(shown.nodes.iter().copied()).filter(present).collect();
        // Whether a huge page goes on beyond the object's ends cannot be seen from its own pages: either will do.
        let fit = [false, true].map(|ends_are_huge| {
            let is_huge = |block: u64| {
                let inside = |p: u64| shown.nodes.get(p.checked_sub(first)? as usize).copied();
                let nodes: Vec<i64> = (block * 512..block * 512 + 512).filter_map(inside).collect();
                huge && nodes.iter().all(|n| *n == nodes[0] && *n >= 0) && (nodes.len() == 512 || ends_are_huge)
            };
            let (huge, small): (Vec<_>, Vec<_>) = all.iter().copied().partition(|p| is_huge(p.0 / 512));
            let any = |shift, pages: &[(u64, i64)]| (0..order.len() as u64).any(|offset| fits(offset, shift, pages));
            any(0, &small) && any(9, &huge)
        });
        if fit.contains(&true) { Ok(()) } else { Err("its pages are not in turn".into()) }
    }

    fn check(&self, policy: &str, shown: &Shown) -> u64 {
        // Small objects lie in several mappings with other addresses between them.
        let present = shown.nodes.iter().filter(|n| **n >= 0).count();
        let wanted = if shown.name == "by_small" { SMALL_PAGES } else { shown.nodes.len() };
        assert!(present >= wanted, "{policy} {}: {present} pages of {wanted}", shown.name);
        if policy.ends_with("interleave") {
            self.turns(policy, shown).unwrap_or_else(|why| {
                panic!("{policy} {} at {:#x}: {why}: {:?}", shown.name, shown.address, &shown.nodes)
            });
            return present as u64;
        }
        for (page, node) in shown.nodes.iter().enumerate().filter(|(_, node)| **node >= 0) {
            let expected = self.node(policy, shown, page as u64).expect("a formula for every policy");
            assert!(
                expected.contains(&(*node as u64)),
                "{policy} {} page {page} of {} on {} nodes (huge pages {}): on {node}, expected {expected:?}",
                shown.name,
                shown.nodes.len(),
                self.nodes,
                self.huge
            );
        }
        present as u64
    }
}

/// Boots a machine of `nodes` nodes once and checks every policy on every kind of object. `way`: see run.sh.
fn run(nodes: u64, kernel: &str, way: u32) {
    let Some(lab) = Lab::still(nodes, 1) else { return };
    let dir = Scratch::new(&format!("lab-policies-{nodes}-{kernel}"));
    policies(&dir);
    let flags = ["-O2", "-g", "-Wl,--no-as-needed", "-lgomp"];
    let program = compile("cc", "lab/policies/kinds.c", dir.join("kinds"), &flags);
    let lab = lab.options(&["--kernel", kernel, "--timeout", "400"]);
    let lab = lab.add(program).add(dir.join("policies"));
    let lab = lab.add(source("lab/bindings.sh")).add(source("lab/policies/run.sh"));
    let text = lab.run(&["./run.sh", &way.to_string()]).success().stdout;
    let mut pages = 0;
    let runs: Vec<&str> = text.split("=== ").skip(1).collect();
    // With madvise only the policy that asks for huge pages differs.
    assert_eq!(runs.len(), 2 * PLACES.len() + 1, "{text}");
    for one in runs {
        pages += check_run(one, nodes, kernel);
    }
    eprintln!("{nodes} nodes, Linux {kernel}: {pages} pages where the formulas say");
}

/// One program run: its lines, then the library's report. The number of pages checked.
fn check_run(text: &str, nodes: u64, kernel: &str) -> u64 {
    let (shown, report) = text.split_once("--- report\n").expect("a report section");
    let (head, lines) = shown.split_once('\n').expect("a head line");
    let words: Vec<&str> = head.split(' ').collect();
    let (thp, policy) = (words[0], words[1]);
    let home = words[2].parse::<u64>().expect("a CPU number");
    let scene = Scene { nodes, thp, huge: thp == "always", weights: kernel == "6.12", home };
    let (said, objects): (Vec<&str>, Vec<&str>) = lines.lines().partition(|l| l.starts_with("numamma: "));
    let (rounded, said): (Vec<&str>, Vec<&str>) = said.into_iter().partition(|l| l.contains("(hugetlb)"));
    let small_blocks =
        ["block-fixed", "block-cyclic", "odd-block", "skew-block", "random-block", "map"].contains(&policy);
    assert_eq!(rounded.len(), usize::from(small_blocks), "{policy}: {rounded:?}");
    let fallback = policy == "weighted-interleave" && !scene.weights;
    assert_eq!(said.len(), usize::from(fallback), "{policy}: {said:?}");
    assert!(!fallback || said[0].contains("6.9"), "{said:?}");
    assert_eq!(objects.len(), KINDS.len(), "{text}");
    let objects: Vec<Shown> = objects.into_iter().map(Shown::parse).collect();
    let placed = |s: &&Shown| match policy {
        "local" => !s.name.starts_with("in_"),
        // The loader touches .data and OpenMP's runtime the first page of the heap before the program binds itself.
        "default" => !["in_data", "by_small"].contains(&s.name.as_str()),
        _ => s.name != "by_small" || FOR_SMALL.contains(&policy),
    };
    let pages = objects.iter().filter(placed).map(|shown| scene.check(policy, shown)).sum();
    let report: Value = serde_json::from_str(report).unwrap_or_else(|e| panic!("{policy}: {e}: {report}"));
    for o in crate::common::objects(&report) {
        assert_eq!(o["pages_off_plan"], 0, "{thp} {policy}: the report disagrees with the formulas: {o}");
        let small = o["name"] == "by_small" && !FOR_SMALL.contains(&policy);
        assert!(policy == "default" || small || o["pages_present"].as_u64() > Some(0), "{thp} {policy}: {o}");
    }
    pages
}

#[test]
#[ignore = "long: make test-long"]
fn four_nodes_linux_6_1() {
    run(4, "6.1", 0);
}

#[test]
#[ignore = "long: make test-long"]
fn four_nodes_linux_6_12() {
    run(4, "6.12", 1);
}

#[test]
fn two_nodes_linux_6_1() {
    run(2, "6.1", 2);
}

#[test]
#[ignore = "long: make test-long"]
fn two_nodes_linux_6_12() {
    run(2, "6.12", 3);
}

#[test]
#[ignore = "long: make test-long"]
fn eight_nodes_linux_6_1() {
    run(8, "6.1", 4);
}

#[test]
#[ignore = "long: make test-long"]
fn eight_nodes_linux_6_12() {
    run(8, "6.12", 5);
}
