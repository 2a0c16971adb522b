//! Descriptions that hwloc accepts (compared by hand with `lstopo-no-graphics -i "..."` of hwloc 2.9), and invalid
//! ones.

use super::parse;
use crate::topology::caches::{Cache, CacheSource, Caches};
use crate::topology::model::{Model, Source};

fn model(text: &str) -> Model {
    parse(text).and_then(|s| s.model()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn nodes(text: &str) -> Vec<(u32, Vec<u32>, u64)> {
    model(text).nodes.into_iter().map(|n| (n.id, n.cpus, n.memory)).collect()
}

const GB: u64 = 1_000_000_000;

#[test]
fn the_machine_of_the_paper() {
    let m = model("pack:4  numa:2 core:6");
    assert_eq!((m.nodes.len(), m.name.as_str()), (8, "pack:4 numa:2 core:6"));
    assert!(m.nodes.iter().all(|n| n.cpus.len() == 6 && n.memory == u64::MAX));
    assert_eq!(m.nodes[7].cpus, [42, 43, 44, 45, 46, 47]);
    assert_eq!((m.latency_source, m.numa_factor()), (Source::Default, 2.0));
}

#[test]
fn words_and_their_short_forms() {
    for text in ["numa:2 core:4 pu:2", "NUMANode:2 Core:4 PU:2", "node:2 l3:1 l2:4 l1d:1 pu:2", "socket:2 [numa] pu:8"]
    {
        let found = nodes(text);
        assert_eq!(found.len(), 2, "{text}");
        assert_eq!(found[1].1, (8..16).collect::<Vec<u32>>(), "{text}");
    }
    assert_eq!(nodes("pack:2 core:4"), [(0, (0..8).collect(), u64::MAX)], "no nodes: one around the machine");
}

#[test]
fn attached_memory_and_its_numbers() {
    let found = nodes("pack:2 [numa(memory=8GB)] [numa(memory=64GiB)] core:2");
    assert_eq!(found, [(0, vec![0, 1], 8 * GB), (1, vec![], 64 << 30), (2, vec![2, 3], 8 * GB), (3, vec![], 64 << 30)]);
    // hwloc numbers nodes inside an object before those attached to it.
    let inside = nodes("pack:2[numa(memory=3)] l2:2(size=65536) core:1 [numa] pu:1");
    assert_eq!(inside.iter().map(|n| n.1.len()).collect::<Vec<_>>(), [1, 1, 0, 1, 1, 0]);
    assert_eq!(inside[2].2, 3);
    let m = model("pack:2 [numa] [numa] core:2");
    assert_eq!((m.latency[0][1] / m.latency[0][0], m.latency[0][3] / m.latency[0][0]), (1.3, 2.3));
    assert_eq!(nodes("numa:2(memory=4TB indexes=3,1) core:1"), [(1, vec![1], 4000 * GB), (3, vec![0], 4000 * GB)]);
    assert_eq!(nodes("numa:2 pu:2(indexes=0,2,1,3)")[1].1, [1, 3]);
}

#[test]
fn errors_name_the_word() {
    let cases = [
        ("", "names no level"),
        ("numa:0", "`numa:0`"),
        ("pack:2 foo:3", "`foo:3`: there is no level `foo`"),
        ("pack:2 core", "`core`: a level is a name and a number"),
        ("2 3 2", "`2`"),
        ("numa:x", "`x` is not a number"),
        ("numa:-1", "`-1` is not a number"),
        ("numa:2 numa:2", "already"),
        ("numa:2 [numa] core:1", "one or the other"),
        ("pu:2 core:2", "`core:2`: nothing can be inside a pu"),
        ("pack:2 [core] pu:1", "only nodes"),
        ("pack:2 [numa(memory=lots)] pu:1", "`lots` is not an amount"),
        ("pack:2 [numa(colour=red)] pu:1", "`colour=red`"),
        ("pack:2 [numa(memory=1GB) pu:1", "is not closed"),
        ("pack:2] pu:1", "closes nothing"),
        ("numa:2(memory=1GB)x core:2", "closing `)`"),
        ("numa:2000 core:1", "more than 1024 nodes"),
        ("numa:2 core:99999999999", "more than 8192 CPUs"),
        ("numa:4294967296 core:4294967296", "more than 8192 CPUs"),
        ("numa:2(indexes=1,1) core:1", "number 1"),
        ("numa:2(indexes=1) core:1", "more nodes than the 1 numbers"),
        ("numa:2(indexes=0,5000) core:1", "Linux can number"),
        ("numa:2(memory=0) core:1", "no node with memory"),
        ("numa:2 pu:2(indexes=0,0,1,2)", "4 different numbers"),
        ("numa:2 pu:2(indexes=2*4:1*2)", "one by one"),
        ("core:4(", "not closed"),
        ("Ünï:2", "there is no level"),
    ];
    for (text, wanted) in cases {
        let message = parse(text).and_then(|s| s.model()).expect_err(text);
        assert!(message.contains(wanted), "{text}: {message}");
    }
}

/// Any text is either parsed or refused, and every parsed machine has finite positive prices.
#[test]
fn nothing_panics() {
    let pieces = [
        "numa",
        "pack",
        ":",
        "2",
        "(",
        ")",
        "[",
        "]",
        " ",
        "memory=",
        "indexes=",
        ",",
        "1GB",
        "pu",
        "é",
        "\0",
        "0",
        "core:3",
        "99999999999999999999",
    ];
    let mut state = 1u64;
    let mut read = 0usize;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..12 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
        }
        if let Ok(m) = parse(&text).and_then(|s| s.model()) {
            read += 1;
            assert!(m.latency.iter().chain(&m.bandwidth).flatten().all(|v| v.is_finite() && *v > 0.0), "{text}");
        }
        // A valid description with one random word inserted.
        let cut = text.char_indices().nth(6).map_or(text.len(), |(at, _)| at);
        read += usize::from(parse(&format!("pack:2 {} core:2", &text[..cut])).and_then(|s| s.model()).is_ok());
    }
    let many = "pack:1 ".repeat(200);
    assert!(parse(&many).unwrap_err().contains("more than 128 levels"));
    assert!(read > 0, "at least one random word should be valid");
}

#[test]
fn caches_count_where_their_size_is_given() {
    let caches = |text: &str| parse(text).unwrap().model().unwrap().caches;
    let found = caches("numa:2 l3:1(size=32MiB) core:8 l2:1(size=1MiB) l1d:1(size=32KiB) pu:2");
    let (second, last) = (Cache { bytes: 1 << 20, cpus: 2 }, Cache { bytes: 32 << 20, cpus: 16 });
    assert_eq!(found, Caches { second, last, source: CacheSource::Described });
    let two = caches("numa:2 core:8 L2Cache:1(size=2MB)");
    assert_eq!((two.second, two.last.bytes), (Cache { bytes: 2_000_000, cpus: 1 }, 0));
    for unknown in ["numa:2 core:8", "numa:2 l3:1 core:8 l2:1", "numa:2 core:8 l2i:1(size=1MiB)"] {
        assert_eq!(caches(unknown), Caches::UNKNOWN, "{unknown}");
    }
    assert!(parse("numa:2 l2:1(size=big) core:8").unwrap_err().contains("`big` is not the size of a cache"));
}
