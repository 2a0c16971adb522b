//! Files of hwloc 2.9 (Debian 12), and damaged ones. Commands that made the files:
//!
//! ```text
//! lstopo-no-graphics -i "pack:2 numa:2 core:1 pu:2" --of xml -f even.xml
//! hwloc-annotate even.xml even.xml -- all -- distances slit.txt      name=NUMALatency, kind 5, 10 12 32 32 12 10 ...
//! lstopo-no-graphics -i "pack:2 [numa(memory=64GB)] [numa(memory=16GB)] core:2 pu:1" --of xml -f hbm.xml
//! hwloc-annotate hbm.xml hbm.xml numa:0 memattr Latency pack:0 80    and so on for the others
//! lstopo-no-graphics -i "numa:2(indexes=3,1 memory=8GB) core:3 pu:1(indexes=0,2,4,1,3,5)" --of xml -f holes.xml
//! lstopo-no-graphics -i "pack:2 numa:2 core:1 pu:2" --of xml --export-xml-flags v1 -f old.xml
//! ```

use super::{parse, write};
use crate::topology::caches::{Cache, CacheSource, Caches};
use crate::topology::cpus::Cpus;
use crate::topology::model::{Model, Source};
use crate::topology::partial_matrix::PartialMatrix;
use crate::topology::{Node, Topology};

const EVEN: &str = include_str!("../../../tests/topology/even.xml");
const HBM: &str = include_str!("../../../tests/topology/hbm.xml");
const HOLES: &str = include_str!("../../../tests/topology/holes.xml");
const OLD: &str = include_str!("../../../tests/topology/old.xml");

fn model(text: &str) -> Model {
    parse(text).and_then(|s| s.model()).unwrap_or_else(|e| panic!("{e}"))
}

fn refused(text: &str) -> String {
    parse(text).and_then(|s| s.model()).expect_err(text)
}

#[test]
fn distances_and_cpus_of_a_plain_machine() {
    let m = model(EVEN);
    assert_eq!(m.name, "pack:2 numa:2 core:1 pu:2");
    assert_eq!(m.nodes.iter().map(|n| n.cpus.clone()).collect::<Vec<_>>(), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    assert!(m.nodes.iter().all(|n| n.memory == 1 << 30));
    let of_first: Vec<f64> = m.latency[0].iter().map(|ns| (10.0 * ns / m.latency[0][0]).round()).collect();
    assert_eq!((of_first, m.latency_source), (vec![10.0, 12.0, 32.0, 32.0], Source::Slit));
}

#[test]
fn memory_attributes_of_two_kinds_of_memory() {
    let m = model(HBM);
    assert_eq!(m.nodes.iter().map(|n| n.cpus.len()).collect::<Vec<_>>(), [2, 0, 2, 0]);
    assert_eq!((m.nodes[1].memory, m.name.as_str()), (16_000_000_000, "pack:2 [numa] [numa] core:2"));
    assert_eq!((m.latency[0][0], m.latency[0][1], m.latency[2][0]), (80.0, 110.0, 130.0));
    assert_eq!((m.bandwidth[0][0], m.bandwidth[0][1]), (100_000.0 * 1_048_576.0, 400_000.0 * 1_048_576.0));
    assert_eq!((m.latency_source, m.bandwidth_source), (Source::Xml, Source::Xml));
    // The file gives no figure from the second package to its own memory; it is scaled as the first package's is.
    assert!(m.latency[2][2] < m.latency[0][2] && m.latency[2][3] > m.latency[2][2], "{:?}", m.latency);
}

#[test]
fn numbers_with_holes_and_cpus_in_turn() {
    let m = model(HOLES);
    let found: Vec<(u32, Vec<u32>)> = m.nodes.iter().map(|n| (n.id, n.cpus.clone())).collect();
    assert_eq!(found, [(1, vec![1, 3, 5]), (3, vec![0, 2, 4])]);
    assert_eq!(m.latency_source, Source::Default);
}

#[test]
fn old_files_and_others_are_refused_with_the_way_out() {
    assert!(refused(OLD).contains("hwloc 1.x; convert it with lstopo"));
    for text in ["", "pack:2", "\u{0}", "<topology version=\"2.0\">", "<a/>", "<topology version=\"9.1\"/>"] {
        let why = refused(text);
        assert!(["not an hwloc", "version 9"].iter().any(|w| why.contains(w)), "{text}: {why}");
    }
    assert!(refused("<topology version=\"2.0\"/>").contains("no NUMANode"));
    assert!(
        refused(&EVEN.replace("os_index=\"3\" cpuset=\"0x000000c0\"", "os_index=\"2\" cpuset=\"0x000000c0\""))
            .contains("number 2")
    );
    assert!(
        refused(&EVEN.replace("os_index=\"3\" cpuset=\"0x000000c0\"", "os_index=\"3000\" cpuset=\"0x0\""))
            .contains("1024")
    );
    assert!(
        refused(&EVEN.replace("cpuset=\"0x0000000c\"", "cpuset=\"0xzz\"")).contains("cpuset=\"0xzz\" cannot be read")
    );
    let short = refused(&EVEN.replace(">10 12", ">12"));
    assert!(short.contains("14 values"), "{short}");
    assert!(refused(&EVEN.replace("local_memory=\"1073741824\"", "local_memory=\"-1\"")).contains("local_memory"));
    let none = EVEN.replace(" cpuset=\"0x", " cpuset=\"0x0\" was=\"0x");
    assert!(refused(&none).contains("no CPU"), "{}", refused(&none));
    let laughs = "<!DOCTYPE l [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\"><!ENTITY c \"&b;&b;&b;&b;&b;&b;&b;&b;\">\
                  <!ENTITY d \"&c;&c;&c;&c;&c;&c;&c;&c;\"><!ENTITY e \"&d;&d;&d;&d;&d;&d;&d;&d;\">]><topology version=\"2.0\">&e;</topology>";
    refused(laughs);
    refused(&"<object>".repeat(200_000));
}

/// A file that is cut anywhere, or has any byte replaced or any attribute removed, is either parsed or refused; every
/// parsed machine has finite positive prices.
/// The parser compares each attribute of an element with all before it: 100,000 took 12 s.
#[test]
fn elements_with_very_many_attributes_are_refused() {
    let attributes: String = (0..100_000).map(|i| format!("a{i}=\">\" ")).collect();
    let text = format!("<topology version=\"2.0\"><object type=\"Machine\" {attributes}/></topology>");
    assert!(refused(&text).contains("more than 1000 attributes"));
}

#[test]
fn damaged_files_never_panic() {
    let mut state = 7u64;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n.max(1)
    };
    let mut read = 0;
    for text in [EVEN, HBM, HOLES, OLD] {
        for _ in 0..400 {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                match random(3) {
                    0 => bytes.truncate(at),
                    1 => bytes[at] = b"0123456789<>\"= ,x\xff-"[random(19)],
                    _ => {
                        let end = (at + random(80)).min(bytes.len());
                        bytes.drain(at..end);
                    }
                }
                if bytes.is_empty() {
                    break;
                }
            }
            let Ok(damaged) = String::from_utf8(bytes) else { continue };
            if let Ok(m) = parse(&damaged).and_then(|s| s.model()) {
                read += 1;
                assert!(m.latency.iter().chain(&m.bandwidth).flatten().all(|v| v.is_finite() && *v > 0.0), "{damaged}");
            }
        }
    }
    assert!(read > 50, "most changed digits leave the file valid: {read}");
}

/// Two packages, one with a memory-less node, and a memory-only node.
fn uneven() -> (Topology, Cpus) {
    let node = |id, cpus: &[u32], gib: u64, distances: &[u32]| Node {
        id,
        cpus: cpus.to_vec(),
        memory: gib << 30,
        distances: distances.to_vec(),
    };
    let nodes = vec![
        node(0, &[0, 1, 4, 5], 64, &[10, 20, 30, 17]),
        node(1, &[2, 6], 32, &[20, 10, 30, 28]),
        node(4, &[3, 7], 0, &[30, 30, 10, 28]),
        node(6, &[], 128, &[17, 28, 28, 10]),
    ];
    let cores = [[0, 4], [1, 5], [2, 6], [3, 7]].map(|c| c.to_vec()).to_vec();
    let mut outer: Vec<(u32, u64, Vec<u32>)> = cores.iter().map(|c| (2, 1 << 20, c.clone())).collect();
    outer.extend([(3, 24 << 20, vec![0, 1, 4, 5]), (3, 24 << 20, vec![2, 3, 6, 7])]);
    let cpus = Cpus { packages: vec![vec![0, 1, 4, 5], vec![2, 3, 6, 7]], cores, outer, ..Cpus::default() };
    (Topology { nodes }, cpus)
}

#[test]
fn what_is_written_is_read_again() {
    let (topology, cpus) = uneven();
    let mut latency = PartialMatrix::empty(4, Source::Measured);
    latency.values[0] = vec![Some(80.4), Some(140.0), None, Some(250.0)];
    latency.values[2][0] = Some(150.0);
    let mut bandwidth = PartialMatrix::empty(4, Source::Measured);
    bandwidth.values[0][0] = Some(90e9);
    let m = model(&write(&topology, &cpus, Some(&latency), Some(&bandwidth)));
    let nodes: Vec<_> = m.nodes.iter().map(|n| (n.id, n.cpus.clone(), n.memory)).collect();
    let wanted: Vec<_> = topology.nodes.iter().map(|n| (n.id, n.cpus.clone(), n.memory)).collect();
    assert_eq!(nodes, wanted);
    assert_eq!((m.latency[0][0], m.latency[0][1], m.latency[0][3], m.latency[2][0]), (80.0, 140.0, 250.0, 150.0));
    assert!((m.bandwidth[0][0] / 90e9 - 1.0).abs() < 1e-4);
    assert_eq!((m.latency_source, m.bandwidth_source), (Source::Measured, Source::Measured));
    let plain = model(&write(&topology, &cpus, None, None));
    assert_eq!((plain.latency_source, plain.latency.clone()), (Source::Slit, Model::of(&topology).latency));
    let (second, last) = (Cache { bytes: 1 << 20, cpus: 2 }, Cache { bytes: 24 << 20, cpus: 4 });
    assert_eq!(plain.caches, Caches { second, last, source: CacheSource::Described });
    // hwloc complains of objects that are not in the order of their first CPUs.
    let text = write(&topology, &cpus, None, None);
    let second: Vec<&str> = text.split("type=\"L2Cache\" cpuset=\"").skip(1).map(|rest| &rest[..10]).collect();
    assert_eq!(second, ["0x00000011", "0x00000022", "0x00000044", "0x00000088"]);
    // A kernel that lists no packages, cores and caches.
    let bare = model(&write(&topology, &Cpus::default(), None, None));
    assert_eq!((bare.nodes, bare.caches), (plain.nodes, Caches::UNKNOWN));
}
