//! A machine that counts all that is mapped (vm.overcommit_memory 2), and buffers of io_uring on several nodes: a
//! placed program has the same output, and no allocation fails that does not without the library. One boot.

use std::collections::BTreeMap;

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile, source};

const POLICIES: [(&str, &str); 3] = [
    ("interleave", "policy = \"interleave\""),
    ("cyclic", "policy = \"block-cyclic\", block = \"256KiB\""),
    ("phases", "policy = \"bind\", nodes = \"0\""),
];

/// KiB that the library may have counted for itself and for what it keeps of freed arrays (docs/placing.md: 32 MiB).
const LIBRARY_KIB: u64 = 48 << 10;

fn no_allocation_fails(policies: &[(&str, &str)]) {
    let Some(lab) = Lab::still(2, 2) else { return };
    let dir = Scratch::new(&format!("lab-counted-{}", policies.len()));
    let flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
    let counted = compile("cc", "lab/counted/counted.c", dir.join("counted"), &flags);
    let ring = compile("cc", "hostile/stress/ring.c", dir.join("ring"), &flags);
    let strict = ["--sysctl", "vm.overcommit_memory=2", "--sysctl", "vm.overcommit_ratio=90"];
    let size = ["--memory-per-node", "640", "--timeout", "600"];
    let mut lab = lab.options(&strict).options(&size).add(counted).add(ring).add(source("lab/counted/run.sh"));
    for (name, place) in policies {
        let is_phased = *name == "phases";
        let phase = if is_phased { "[[phase]]\nname = \"later\"\nafter = 0.2" } else { "" };
        let later = if is_phased { "phases = { later = { policy = \"interleave\" } }" } else { "" };
        let policy = Policy::new().lines(phase).rule("function = [\"?\"]", place).lines(later);
        lab = lab.add(policy.write(&dir, &format!("{name}.toml")));
    }
    let names: Vec<&str> = ["./run.sh"].into_iter().chain(policies.iter().map(|(name, _)| *name)).collect();
    let text = lab.run(&names).success().stdout;
    assert!(text.starts_with("mode 2\n"), "{text}");
    let scenes: BTreeMap<&str, &str> = text.split("=== ").skip(1).filter_map(|scene| scene.split_once('\n')).collect();
    let [bare, ring] = ["bare", "ring bare"].map(|name| scenes[name]);
    assert!(ring.ends_with("failed 0, damaged 0\nstatus 0\n") || ring.contains("refuses"), "{text}");
    assert!(bare.ends_with("failed 0\nstatus 0\n"), "{text}");
    let lines = |scene: &str| -> Vec<String> {
        scene.lines().filter(|l| !l.starts_with("numamma: ")).map(str::to_owned).collect()
    };
    for (name, _) in policies {
        let seen = scenes[name];
        assert!(seen.ends_with("failed 0\nstatus 0\n"), "{name}: {seen}, bare {bare}");
        let few =
            numbers(seen, "blocks ").iter().zip(numbers(bare, "blocks ")).any(|(seen, bare)| *seen < bare * 9 / 10);
        assert!(
            !few && numbers(seen, "blocks ").len() == numbers(bare, "blocks ").len(),
            "{name}: {seen}, bare {bare}"
        );
        let (own, bare_own) = (numbers(seen, "counted ")[0], numbers(bare, "counted ")[0]);
        assert!(own <= bare_own + LIBRARY_KIB, "{name}: {seen}, bare {bare}");
        let seen = scenes[format!("ring {name}").as_str()];
        assert_eq!(lines(seen), lines(ring), "{name}: {text}");
    }
}

#[test]
fn no_allocation_fails_where_all_that_is_mapped_is_counted() {
    no_allocation_fails(&POLICIES[..1]);
}

#[test]
#[ignore = "long: make test-long"]
fn no_allocation_fails_where_all_that_is_mapped_is_counted_under_any_policy() {
    no_allocation_fails(&POLICIES);
}

/// The numbers behind a word.
fn numbers(scene: &str, word: &str) -> Vec<u64> {
    scene.lines().filter_map(|l| l.strip_prefix(word)?.parse().ok()).collect()
}
