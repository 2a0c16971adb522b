//! Writes packages, nodes, caches, cores, CPUs, ACPI SLIT, and measured latencies and bandwidths or those of HMAT as an
//! hwloc XML file. Assumed figures are left out, so that a reader of the file cannot mistake them for facts.

use std::fmt::Write;

use super::{bitmap, read::MEASURED};
use crate::topology::Topology;
use crate::topology::cpus::Cpus;
use crate::topology::model::Source;
use crate::topology::partial_matrix::PartialMatrix;

/// `kind` of ACPI SLIT: given by the operating system, values are latencies (HWLOC_DISTANCES_KIND_*).
const SLIT_KIND: u32 = 1 | 1 << 2;
/// `kind` of a group: made by the user, without a meaning for hwloc (HWLOC_GROUP_KIND_*).
const GROUP_KIND: u32 = 0;
/// Flags of memory attributes: lower or higher values are better, and values depend on the initiator
/// (HWLOC_MEMATTR_FLAG_*).
const LATENCY_FLAGS: u32 = 1 << 1 | 1 << 2;
const BANDWIDTH_FLAGS: u32 = 1 << 0 | 1 << 2;
const MIB: f64 = 1_048_576.0;

/// Names of the objects of caches by level, from 2 on: hwloc knows no others.
const CACHES: [&str; 4] = ["L2Cache", "L3Cache", "L4Cache", "L5Cache"];

/// The text of the file for a machine; `latency` and `bandwidth` are in the order of its nodes.
pub fn write(
    topology: &Topology,
    cpus: &Cpus,
    latency: Option<&PartialMatrix>,
    bandwidth: Option<&PartialMatrix>,
) -> String {
    let root = tree(topology, cpus);
    let mut out = Out { text: String::new(), topology, gp_index: topology.nodes.len() as u32 };
    out.text.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n");
    out.text.push_str("<topology version=\"2.0\">\n");
    let measured = [latency, bandwidth].into_iter().flatten().any(|k| k.source == Source::Measured && k.has_values());
    out.object(&root, 1, measured);
    out.distances();
    out.attribute("Latency", LATENCY_FLAGS, 1.0, latency);
    out.attribute("Bandwidth", BANDWIDTH_FLAGS, MIB, bandwidth);
    out.text.push_str("</topology>\n");
    out.text
}

/// An object with CPUs. Nodes are children of the smallest object that contains their CPUs.
struct Object {
    kind: &'static str,
    os_index: Option<u32>,
    cpus: Vec<u32>,
    /// Indices into the nodes of the topology.
    nodes: Vec<usize>,
    /// Level and bytes of a cache.
    cache: Option<(u32, u64)>,
    inside: Vec<Object>,
}

fn tree(topology: &Topology, cpus: &Cpus) -> Object {
    let object = |kind, os_index, cpus: Vec<u32>| Object {
        kind,
        os_index,
        cpus,
        nodes: Vec::new(),
        cache: None,
        inside: Vec::new(),
    };
    let cache = |(level, bytes, cpus): &(u32, u64, Vec<u32>)| {
        let kind = CACHES.get(level.checked_sub(2)? as usize)?;
        Some(Object { cache: Some((*level, *bytes)), ..object(kind, None, cpus.clone()) })
    };
    let mut all: Vec<u32> = topology.nodes.iter().flat_map(|n| n.cpus.iter().copied()).collect();
    all.sort_unstable();
    let mut root = object("Machine", Some(0), all.clone());
    let numbered = |kind, groups: &[Vec<u32>]| -> Vec<Object> {
        groups.iter().enumerate().map(|(i, g)| object(kind, Some(i as u32), g.clone())).collect()
    };
    let mut objects = numbered("Package", &cpus.packages);
    objects.extend(topology.nodes.iter().map(|n| object("Group", None, n.cpus.clone())));
    // The kernel lists the inner level first.
    objects.extend(cpus.outer.iter().rev().filter_map(cache));
    objects.extend(numbered("Core", &cpus.cores));
    objects.extend(all.iter().map(|cpu| object("PU", Some(*cpu), vec![*cpu])));
    // The sort is stable: among objects of equal size the package contains the node, and the core its CPU.
    objects.sort_by_key(|o| std::cmp::Reverse(o.cpus.len()));
    for object in objects.into_iter().filter(|o| !o.cpus.is_empty() && within(&o.cpus, &all)) {
        root.insert(object);
    }
    for (index, node) in topology.nodes.iter().enumerate() {
        // sysfs does not tell which CPUs are local to a memory-only node.
        let near = if node.cpus.is_empty() { &all } else { &node.cpus };
        root.attach(index, near);
    }
    root
}

fn within(inner: &[u32], outer: &[u32]) -> bool {
    inner.iter().all(|cpu| outer.binary_search(cpu).is_ok())
}

impl Object {
    /// Puts `object` inside the smallest object that contains its CPUs, by the first of them, as hwloc expects it. An object that overlaps another one only
    /// partly is left out, and so is a group with the same CPUs as its parent.
    fn insert(&mut self, object: Object) {
        if object.kind == "Group" && object.cpus.len() == self.cpus.len() {
            return;
        }
        match self.inside.iter_mut().find(|o| o.cpus.iter().any(|cpu| object.cpus.binary_search(cpu).is_ok())) {
            Some(outer) if within(&object.cpus, &outer.cpus) => outer.insert(object),
            Some(_) => {}
            None => {
                let at = self.inside.partition_point(|o| o.cpus.first() < object.cpus.first());
                self.inside.insert(at, object);
            }
        }
    }

    fn attach(&mut self, node: usize, near: &[u32]) {
        match self.inside.iter_mut().find(|o| o.kind != "PU" && within(near, &o.cpus)) {
            Some(inner) if self.cpus != near => inner.attach(node, near),
            _ => self.nodes.push(node),
        }
    }
}

struct Out<'a> {
    text: String,
    topology: &'a Topology,
    /// The last index in use; nodes have the first indexes, so that memory attributes can name them.
    gp_index: u32,
}

impl Out<'_> {
    fn line(&mut self, depth: usize, text: &str) {
        let _ = writeln!(self.text, "{:1$}{text}", "", 2 * depth);
    }

    fn object(&mut self, object: &Object, depth: usize, measured: bool) {
        self.gp_index += 1;
        let gp_index = self.gp_index;
        let number = object.os_index.map_or(String::new(), |i| format!(" os_index=\"{i}\""));
        let extra = match object.cache {
            // 0 is a cache of data and code (HWLOC_OBJ_CACHE_UNIFIED), as all from level 2 on are.
            Some((level, bytes)) => format!(" cache_size=\"{bytes}\" depth=\"{level}\" cache_type=\"0\""),
            None if object.kind == "Group" => format!(" kind=\"{GROUP_KIND}\" subkind=\"0\""),
            None => String::new(),
        };
        let sets = self.sets(&object.cpus);
        let head = format!("<object type=\"{}\"{number} {sets} gp_index=\"{gp_index}\"{extra}", object.kind);
        if object.kind == "PU" {
            return self.line(depth, &(head + "/>"));
        }
        self.line(depth, &(head + ">"));
        if object.kind == "Machine" {
            self.line(depth + 1, "<info name=\"Backend\" value=\"NumaMMA\"/>");
            self.line(depth + 1, &format!("<info name=\"Architecture\" value=\"{}\"/>", std::env::consts::ARCH));
            if measured {
                self.line(depth + 1, &format!("<info name=\"{MEASURED}\" value=\"1\"/>"));
            }
        }
        for &index in &object.nodes {
            let node = &self.topology.nodes[index];
            let set = bitmap::format(&[node.id]);
            let cpus = bitmap::format(&object.cpus);
            let memory = if node.memory > 0 { format!(" local_memory=\"{}\"", node.memory) } else { String::new() };
            let text = format!(
                "<object type=\"NUMANode\" os_index=\"{}\" cpuset=\"{cpus}\" complete_cpuset=\"{cpus}\" \
                 nodeset=\"{set}\" complete_nodeset=\"{set}\" gp_index=\"{}\"{memory}/>",
                node.id,
                index + 1
            );
            self.line(depth + 1, &text);
        }
        object.inside.iter().for_each(|inner| self.object(inner, depth + 1, measured));
        self.line(depth, "</object>");
    }

    fn sets(&self, cpus: &[u32]) -> String {
        let whole = cpus.len() == self.topology.cpu_count();
        let touches = |n: &&crate::topology::Node| match n.cpus.is_empty() {
            true => whole,
            false => n.cpus.iter().any(|cpu| cpus.binary_search(cpu).is_ok()),
        };
        let nodes: Vec<u32> = self.topology.nodes.iter().filter(touches).map(|n| n.id).collect();
        let (cpus, nodes) = (bitmap::format(cpus), bitmap::format(&nodes));
        let complete = format!("complete_cpuset=\"{cpus}\" complete_nodeset=\"{nodes}\"");
        let allowed = format!("allowed_cpuset=\"{cpus}\" allowed_nodeset=\"{nodes}\"");
        format!(
            "cpuset=\"{cpus}\" nodeset=\"{nodes}\" {complete}{}",
            if whole { format!(" {allowed}") } else { String::new() }
        )
    }

    /// Writes ACPI SLIT where the kernel gives all distances.
    fn distances(&mut self) {
        let nodes = &self.topology.nodes;
        if nodes.len() < 2 || nodes.iter().any(|n| n.distances.len() != nodes.len()) {
            return;
        }
        let list = |numbers: Vec<u32>| numbers.iter().map(|n| format!("{n} ")).collect::<String>();
        let indexes = list(nodes.iter().map(|n| n.id).collect());
        let values = list(nodes.iter().flat_map(|n| n.distances.iter().copied()).collect());
        let head = format!(
            "<distances2 type=\"NUMANode\" nbobjs=\"{}\" kind=\"{SLIT_KIND}\" name=\"NUMALatency\" indexing=\"os\">",
            nodes.len()
        );
        self.line(1, &head);
        self.line(2, &format!("<indexes length=\"{}\">{indexes}</indexes>", indexes.len()));
        self.line(2, &format!("<u64values length=\"{}\">{values}</u64values>", values.len()));
        self.line(1, "</distances2>");
    }

    fn attribute(&mut self, name: &str, flags: u32, unit: f64, known: Option<&PartialMatrix>) {
        let Some(known) = known.filter(|k| k.has_values()) else { return };
        self.line(1, &format!("<memattr name=\"{name}\" flags=\"{flags}\">"));
        for (from, row) in known.values.iter().enumerate() {
            let cpus = self.topology.nodes.get(from).map(|n| bitmap::format(&n.cpus)).unwrap_or_default();
            for (to, value) in row.iter().enumerate() {
                // hwloc stores whole numbers, and 0 means that there is no value.
                let Some(value) = value.map(|v| (v / unit).round().max(1.0)) else { continue };
                let target = format!("target_obj_type=\"NUMANode\" target_obj_gp_index=\"{}\"", to + 1);
                self.line(2, &format!("<memattr_value {target} value=\"{value:.0}\" initiator_cpuset=\"{cpus}\"/>"));
            }
        }
        self.line(1, "</memattr>");
    }
}
