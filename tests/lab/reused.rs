//! Memory that the program freed and that serves its next allocation: it has the placement that its rule has then, also
//! when a phase began in between.
//!
//! The guest's numa_maps is the judge. One boot, for every way to bind the program.

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile, root};
use crate::ways::{self, Bound, GOMP};

const PLACED: &str = "LD_PRELOAD=libnumamma-apply.so";
/// Page faults of an array in pages that are there: fewer than the 976 pages that one of 10 MB has more than one of
/// 6 MB. Of the 488 pages that change their node each may be met while it moves, which is a fault, too.
const NEW: i64 = 700;
const SITES: [&str; 3] = ["array", "zeroed", "row"];
/// Pages of the array.
const PAGES: u64 = 256;

/// One line that the program prints.
struct Shown<'a> {
    moment: &'a str,
    what: &'a str,
    policy: &'a str,
    /// Pages on nodes 0 and 1.
    pages: [u64; 2],
    again: u64,
}

impl Shown<'_> {
    fn parse(line: &str) -> Shown<'_> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |key: &str| words.iter().find_map(|w| w.strip_prefix(key)?.parse().ok()).expect("a number");
        let pages = [number("N0="), number("N1=")];
        Shown { moment: words[1], what: words[2], policy: words[3], pages, again: number("again=") }
    }

    /// Whether the pages are where the policy of the moment puts them; `own` are the nodes of `all`.
    fn is_right(&self, own: &[u64]) -> bool {
        let ([zero, one], all) = (self.pages, if self.what == "row" { 1 } else { PAGES });
        let even = if own == [1] { zero == 0 } else { zero.abs_diff(one) <= all / 8 + 8 };
        let place = match self.moment {
            "solve" => zero == 0 && one >= all && !self.policy.starts_with("interleave"),
            "solve-begins" => one >= all && !self.policy.starts_with("interleave"),
            "back-begins" => zero + one >= all && self.policy.starts_with("interleave"),
            _ => even && zero + one >= all && self.policy.starts_with("interleave"),
        };
        // Two allocations pass before a size counts as one that comes again.
        place && (self.what != "array" || self.again > 0)
    }
}

#[test]
fn memory_that_is_used_again_is_where_the_policy_wants_it() {
    let Some(lab) = Lab::new(2, 1) else { return };
    let dir = Scratch::new("lab-reused");
    let include = format!("-I{}", root().join("include").display());
    let flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-optimize-sibling-calls", &include];
    let program = compile("cc", "lab/reused/reused.c", dir.join("reused"), &[&flags[..], &GOMP].concat());
    let phases = "[[phase]]\nname = \"solve\"\n[[phase]]\nname = \"back\"\n";
    let place = "policy = \"interleave\" }\nphases = { solve = { policy = \"bind\", nodes = \"1\" }, \
                 back = { policy = \"interleave\" }";
    let policy = SITES
        .iter()
        .fold(Policy::new().lines(phases), |policy, site| policy.rule(&format!("function = [\"{site}\"]"), place));
    let lab = lab.add(program).add(policy.write(&dir, "reused.toml"));
    let text = ways::run(lab, &ways::ALL, &["env", PLACED, "NUMAMMA_POLICY=reused.toml", "./reused"]);
    for Bound { way, nodes, said } in ways::split(&text, &ways::ALL, 2) {
        assert!(said.contains("\ndamaged 0\n"), "{way}: {said}");
        let shown: Vec<Shown<'_>> = said.lines().filter(|l| l.starts_with("maps ")).map(Shown::parse).collect();
        assert_eq!(shown.len(), 3 + 2 * 7, "{way}: {said}");
        for shown in shown {
            assert!(shown.is_right(&nodes), "{way}: {} {}:\n{said}", shown.moment, shown.what);
        }
    }
}

/// Under policies by blocks an array takes the first pages of a larger one: those that belong to another node then are
/// moved there.
#[test]
fn an_array_in_the_pages_of_one_of_another_size_is_where_the_policy_wants_it() {
    let Some(lab) = Lab::new(2, 1) else { return };
    let dir = Scratch::new("lab-sizes");
    let flags = [&["-O1", "-g", "-Wall", "-Wextra", "-Werror"][..], &GOMP].concat();
    let program = compile("cc", "lab/reused/sizes.c", dir.join("sizes"), &flags);
    let policy = Policy::new().rule("function = [\"array\"]", "policy = \"block\"").write(&dir, "sizes.toml");
    let lab = lab.add(program).add(policy);
    let text = ways::run(lab, &ways::ALL, &["env", PLACED, "NUMAMMA_POLICY=sizes.toml", "./sizes"]);
    for Bound { way, said, .. } in ways::split(&text, &ways::ALL, 2) {
        assert!(said.ends_with("\ndamaged 0\n"), "{way}: {said}");
        let shown: Vec<&str> = said.lines().filter(|line| line.contains("again=")).collect();
        assert_eq!(shown.len(), 10, "{way}: {said}");
        for line in shown {
            let number =
                |key: &str| line.split(' ').find_map(|w| w.strip_prefix(key)?.parse::<i64>().ok()).expect("a number");
            // A page that moves while another CPU looks at it may be left where it is.
            assert!(
                number("again=") == 1 && (0..=8).contains(&number("wrong=")) && number("new=") < NEW,
                "{way}: {line}:\n{said}"
            );
        }
    }
}
