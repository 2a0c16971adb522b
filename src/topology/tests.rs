//! A fake sysfs directory: 4 nodes online of 8 possible, one with memory only, one without memory.

use std::fs;
use std::path::{Path, PathBuf};

use super::hardware::{Hardware, HugePages};
use super::model::Source;

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().expect("files are below the root")).expect("the scratch directory is writable");
    fs::write(path, text).expect("the scratch directory is writable");
}

fn scratch(name: &str) -> PathBuf {
    let root = std::env::temp_dir().join(format!("numamma-topology-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).expect("the scratch directory is writable");
    root
}

/// Nodes 0, 1, 4 and 6: numbers have gaps where nodes are offline.
fn four_nodes(name: &str) -> PathBuf {
    let root = scratch(name);
    put(&root, "devices/system/node/online", "0-1,4,6\n");
    put(&root, "devices/system/node/possible", "0-7\n");
    let nodes = [
        (0, "0-3,16-19", 64, "10 20 30 17"),
        (1, "4-7", 64, "20 10 30 28"),
        (4, "8", 0, "30 30 10 28"),
        (6, "", 128, "17 28 28 10"),
    ];
    for (id, cpus, gib, distances) in nodes {
        let dir = format!("devices/system/node/node{id}");
        put(&root, &format!("{dir}/cpulist"), &format!("{cpus}\n"));
        put(&root, &format!("{dir}/distance"), &format!("{distances}\n"));
        let kib = gib << 20;
        put(
            &root,
            &format!("{dir}/meminfo"),
            &format!("Node {id} MemTotal:       {kib} kB\nNode {id} MemFree: 1 kB\n"),
        );
    }
    put(&root, "kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put(&root, "kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
    put(&root, "kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n");
    put(&root, "kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "12\n");
    put(&root, "kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "5\n");
    root
}

#[test]
fn reads_nodes_with_gaps() {
    let machine = Hardware::from_sysfs(&four_nodes("nodes"), 4096);
    let nodes = &machine.topology.nodes;
    assert_eq!(nodes.iter().map(|n| n.id).collect::<Vec<_>>(), [0, 1, 4, 6]);
    assert_eq!(nodes[0].cpus, [0, 1, 2, 3, 16, 17, 18, 19]);
    assert_eq!((nodes[2].memory, nodes[2].cpus.len()), (0, 1));
    assert_eq!((nodes[3].memory, nodes[3].cpus.len()), (128 << 30, 0));
    assert_eq!(machine.topology.node_of_cpu(17), Some(0));
    assert_eq!(machine.topology.node_of_cpu(99), None);
    assert_eq!(machine.offline_nodes, [2, 3, 5, 7]);
    assert_eq!(machine.numa_factor, 3.0);
    assert_eq!((machine.thp.as_str(), machine.thp_size), ("madvise", Some(2 << 20)));
    let pool = |size, total, free| HugePages { size, total, free };
    assert_eq!(machine.huge_pages, [pool(2 << 20, 12, 5), pool(1 << 30, 0, 0)]);
}

#[test]
fn text_names_what_is_special() {
    let text = crate::report::hardware::render(&Hardware::from_sysfs(&four_nodes("text"), 4096));
    let expected = "\
4 NUMA nodes, 13 CPUs, 256 GiB
  node 0       64 GiB   8 CPUs: 0-3,16-19
  node 1       64 GiB   4 CPUs: 4-7
  node 4    no memory   1 CPU: 8
  node 6      128 GiB   no CPUs (memory only)
  offline nodes: 2-3,5,7 (possible, but not there now)

Distances (firmware table, 10 is local)
  from\\to    0    1    4    6
        0   10   20   30   17
        1   20   10   30   28
        4   30   30   10   28
        6   17   28   28   10
NUMA factor 3.0: the farthest memory is declared that many times as far as the local
Links (pairs at the smallest remote distance): 0-6

Pages
  base size                4 KiB
  transparent huge pages   madvise (2 MiB)
  huge pages of 2 MiB      12 reserved, 5 free
  huge pages of 1 GiB      none reserved
";
    assert_eq!(text, expected);
}

#[test]
fn json_has_the_fields_scripts_use() {
    let machine = Hardware::from_sysfs(&four_nodes("json"), 4096);
    let value = serde_json::to_value(&machine).expect("it can be written");
    assert_eq!(value["nodes"][3]["memory"], 128u64 << 30);
    assert_eq!(value["nodes"][0]["distances"][2], 30);
    assert_eq!(value["numa_factor"], 3.0);
}

#[test]
fn caches_of_a_made_up_cpu_are_shown_as_claims_and_not_written() {
    let mut machine = Hardware::from_sysfs(&with_hmat("emulated"), 4096);
    let (real, file) = (crate::report::hardware::render(&machine), machine.xml());
    assert!(
        !real.contains("emulator") && file.contains("type=\"L3Cache\"") && file.contains("cache_size=\"33554432\"")
    );
    machine.emulated = true;
    let text = crate::report::hardware::render(&machine);
    assert!(text.contains("an emulator makes these CPUs up: advice and predictions take their caches as unknown"));
    assert!(text.contains("L3 cache") && !machine.xml().contains("cache_size"), "{text}");
    assert_eq!(serde_json::to_value(&machine).expect("it can be written")["emulated"], true);
}

/// The fake machine with HMAT (latency in nanoseconds, bandwidth in MiB/s), packages and caches added.
fn with_hmat(name: &str) -> PathBuf {
    let root = four_nodes(name);
    let node = |file: &str, text: &str| put(&root, &format!("devices/system/node/{file}"), text);
    // Initiators of access0 may be devices; those of access1 are CPUs.
    node("node0/access0/initiators/read_latency", "1\n");
    node("node0/access0/initiators/node0/link", "");
    node("node0/access1/initiators/read_latency", "90\n");
    node("node0/access1/initiators/read_bandwidth", "100000\n");
    node("node0/access1/initiators/node0/link", "");
    node("node6/access0/initiators/read_latency", "180\n");
    node("node6/access0/initiators/node0/link", "");
    node("node1/access1/initiators/read_latency", "0\n");
    node("node1/access1/initiators/node1/link", "");
    put(&root, "devices/system/cpu/present", "0-8,16-20\n");
    for cpu in [0, 1, 2, 3, 16, 17, 18, 19u32] {
        let dir = format!("devices/system/cpu/cpu{cpu}");
        put(&root, &format!("{dir}/topology/package_cpus_list"), "0-3,16-19\n");
        put(&root, &format!("{dir}/topology/thread_siblings_list"), &format!("{},{}\n", cpu % 16, cpu % 16 + 16));
        for (index, (level, kind, size, shared)) in [
            ("1", "Data", "48K", format!("{},{}", cpu % 16, cpu % 16 + 16)),
            ("3", "Unified", "32M", "0-3,16-19".into()),
        ]
        .into_iter()
        .enumerate()
        {
            let dir = format!("{dir}/cache/index{index}");
            for (file, text) in [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", &shared)] {
                put(&root, &format!("{dir}/{file}"), text);
            }
        }
    }
    root
}

#[test]
fn firmware_latencies_caches_and_packages() {
    let machine = Hardware::from_sysfs(&with_hmat("hmat"), 4096);
    let latency = &machine.figures.latency_ns;
    assert_eq!(
        (latency[0][0], latency[0][3], machine.figures.bandwidth[0][0]),
        (Some(90.0), Some(180.0), Some(104_857_600_000.0))
    );
    assert_eq!(latency[1][0], Some(180.0), "declared twice as far");
    assert_eq!((latency[0][2], latency[3][0]), (None, None), "node 4 has no memory, node 6 no CPUs");
    assert_eq!(machine.figures.sources.latency, Source::Hmat);
    assert_eq!((machine.offline_cpus.as_slice(), machine.cores), (&[20][..], 4));
    let text = crate::report::hardware::render(&machine);
    for wanted in [
        "offline CPUs: 20\n",
        "packages                 1\n",
        "cores                    4\n",
        "L1d cache                48 KiB per 2 CPUs\n",
        "L3 cache                 32 MiB per 8 CPUs\n",
        "Latency, nanoseconds (ACPI HMAT, rated)\n  from\\to       0       1       4       6\n        0      90",
        "\n        4     270     294       -     296\n",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    let value = serde_json::to_value(&machine).expect("it can be written");
    assert_eq!(value["latency_ns"][0][3], 180.0);
    assert_eq!(value["sources"]["bandwidth"], "hmat");
    assert_eq!(value["caches"][1]["size"], 32 << 20);
    let read = crate::topology::xml::parse(&machine.xml()).and_then(|s| s.model()).expect("the file was just written");
    assert_eq!((read.latency[0][3], read.latency_source), (180.0, Source::Xml));
}

#[test]
fn missing_files_leave_facts_unknown() {
    let machine = Hardware::from_sysfs(&scratch("nothing"), 4096);
    assert!(machine.topology.nodes.is_empty() && machine.huge_pages.is_empty());
    assert_eq!((machine.thp.as_str(), machine.numa_factor), ("unknown", 1.0));
    let root = four_nodes("missing");
    fs::remove_file(root.join("devices/system/node/node1/distance")).expect("it was written");
    let text = crate::report::hardware::render(&Hardware::from_sysfs(&root, 4096));
    assert!(text.contains("        1    ?    ?    ?    ?\n"), "{text}");
}
