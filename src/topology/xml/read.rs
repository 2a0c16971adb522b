//! Reading: nodes, CPUs, memory, distances and memory attributes. What else a file holds (caches, devices) is not looked at,
//! and the architecture is of no concern: a topology is a topology.

use std::collections::HashMap;

use roxmltree::{Document, Node as Element, ParsingOptions};

use super::bitmap;
use crate::topology::known::Known;
use crate::topology::model::Source;
use crate::topology::shape::{MOST_NODES, Place, Shape, own_cpus};

/// Most elements and attributes of a file: lstopo writes about 40 for a CPU, and a machine has at most 8,192.
const MOST_ELEMENTS: u32 = 4_000_000;
/// `kind` of a distance matrix: its values mean latency, or bandwidth (HWLOC_DISTANCES_KIND_MEANS_*).
const MEANS_LATENCY: u64 = 1 << 2;
const MEANS_BANDWIDTH: u64 = 1 << 3;
/// Name of the matrix that holds ACPI SLIT.
const SLIT: &str = "NUMALatency";
/// Bytes in the unit of the memory attribute `Bandwidth`.
const MIB: f64 = 1_048_576.0;
/// Name of our own note beside measured figures.
pub(super) const MEASURED: &str = "NumammaMeasured";
/// The unit of ACPI SLIT: 10 is local.
const SLIT_LOCAL: f64 = 10.0;

/// Reads a file.
///
/// # Errors
/// When it is not XML, not a machine, of hwloc 1.x, or holds numbers that make no machine.
pub fn parse(text: &str) -> Result<Shape, String> {
    let options = ParsingOptions { allow_dtd: true, nodes_limit: MOST_ELEMENTS, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options)
        .map_err(|e| format!("it is not an hwloc XML file: {e}; write it with `lstopo m.xml`"))?;
    let root = document.root_element();
    check_version(root)?;
    let objects: Vec<Element<'_, '_>> = root.descendants().filter(|e| e.has_tag_name("object")).collect();
    let of_type = |name: &'static str| objects.iter().filter(move |o| o.attribute("type") == Some(name));
    let mut nodes = of_type("NUMANode").map(|o| node(*o)).collect::<Result<Vec<_>, String>>()?;
    nodes.sort_by_key(|n| n.place.id);
    if nodes.is_empty() {
        return Err(
            "it holds no NUMANode; write it with lstopo of hwloc 2 on the machine itself, without --restrict".into()
        );
    }
    if nodes.len() > MOST_NODES {
        return Err(format!("it holds {} nodes, more than Linux can number ({MOST_NODES})", nodes.len()));
    }
    let mut cpus = of_type("PU").map(|o| number(*o, "os_index")).collect::<Result<Vec<u32>, String>>()?;
    cpus.sort_unstable();
    for node in &mut nodes {
        node.place.near.retain(|cpu| cpus.binary_search(cpu).is_ok());
    }
    if nodes.iter().all(|n| n.place.memory == 0) {
        // Some descriptions hold no amounts at all; that is not a machine without memory.
        nodes.iter_mut().for_each(|n| n.place.memory = u64::MAX);
    }
    let cpusets: HashMap<&str, &str> =
        objects.iter().filter_map(|o| Some((o.attribute("gp_index")?, o.attribute("cpuset")?))).collect();
    let count = |name| of_type(name).count();
    let measured = root.descendants().any(|e| e.has_tag_name("info") && e.attribute("name") == Some(MEASURED));
    let source = if measured { Source::Measured } else { Source::Xml };
    Ok(Shape {
        name: words(count("Package"), nodes.len(), count("Core"), cpus.len()),
        distances: matrix(root, &nodes)?,
        latency: attribute(root, &nodes, &cpusets, &["Latency", "ReadLatency"], 1.0, source)?,
        bandwidth: attribute(root, &nodes, &cpusets, &["Bandwidth", "ReadBandwidth"], MIB, source)?,
        places: nodes.into_iter().map(|n| n.place).collect(),
    })
}

fn check_version(root: Element<'_, '_>) -> Result<(), String> {
    if root.tag_name().name() != "topology" {
        return Err(format!(
            "it is XML, but <{}> is not an hwloc topology; write it with `lstopo m.xml`",
            root.tag_name().name()
        ));
    }
    match root.attribute("version").map(|v| v.split('.').next().unwrap_or(v)) {
        Some("2" | "3") => Ok(()),
        None | Some("1") => {
            Err("it is of hwloc 1.x; convert it with lstopo of hwloc 2: `lstopo -i old.xml new.xml`".into())
        }
        Some(other) => Err(format!("it is of version {other} of the format; versions 2 and 3 are known")),
    }
}

/// A NUMANode of the file.
struct FileNode {
    place: Place,
    gp_index: Option<u64>,
}

fn node(object: Element<'_, '_>) -> Result<FileNode, String> {
    let id = number(object, "os_index")?;
    let near = match object.attribute("cpuset") {
        Some(text) => bitmap::parse(text).ok_or_else(|| wrong(object, "cpuset", text))?,
        None => Vec::new(),
    };
    let memory = match object.attribute("local_memory") {
        Some(text) => text.parse().map_err(|_| wrong(object, "local_memory", text))?,
        None => 0,
    };
    let gp_index = object.attribute("gp_index").and_then(|v| v.parse().ok());
    Ok(FileNode { place: Place { id, near, memory }, gp_index })
}

fn number(object: Element<'_, '_>, name: &str) -> Result<u32, String> {
    let kind = object.attribute("type").unwrap_or("object");
    let text = object.attribute(name).ok_or_else(|| {
        format!("line {}: a {kind} has no {name}", object.document().text_pos_at(object.range().start).row)
    })?;
    text.parse().map_err(|_| wrong(object, name, text))
}

fn wrong(element: Element<'_, '_>, name: &str, text: &str) -> String {
    let row = element.document().text_pos_at(element.range().start).row;
    // A value may be long and hold anything.
    let short: String = text.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("line {row}: {name}=\"{short}\" cannot be read")
}

/// The distances of the nodes: SLIT if the file has it, else any other latency matrix, taken as proportions.
fn matrix(root: Element<'_, '_>, nodes: &[FileNode]) -> Result<Option<Vec<Vec<f64>>>, String> {
    let all: Vec<Element<'_, '_>> =
        root.children().filter(|e| e.has_tag_name("distances2") && e.attribute("type") == Some("NUMANode")).collect();
    let kind = |e: &Element<'_, '_>| e.attribute("kind").and_then(|k| k.parse::<u64>().ok()).unwrap_or(0);
    let slit = all.iter().find(|e| e.attribute("name") == Some(SLIT));
    let latency = all.iter().find(|e| kind(e) & MEANS_LATENCY != 0 && kind(e) & MEANS_BANDWIDTH == 0);
    let Some(found) = slit.or(latency) else { return Ok(None) };
    let values = values(*found, nodes)?;
    let local = (0..nodes.len()).map(|i| values[i][i]).fold(f64::INFINITY, f64::min);
    let plain = values.iter().flatten().all(|v| *v > 0.0);
    if !plain || !local.is_finite() {
        // Firmware that leaves entries at 0 says nothing.
        return Ok(None);
    }
    let unit = if slit.is_some() { 1.0 } else { SLIT_LOCAL / local };
    Ok(Some(values.into_iter().map(|row| row.into_iter().map(|v| v * unit).collect()).collect()))
}

/// The values of a matrix, in the order of `nodes`; 0 where it says nothing of a pair.
fn values(matrix: Element<'_, '_>, nodes: &[FileNode]) -> Result<Vec<Vec<f64>>, String> {
    let numbers = |tag: &str| -> Result<Vec<u64>, String> {
        let parts = matrix.children().filter(|e| e.has_tag_name(tag));
        let text: String = parts.map(|e| format!("{} ", e.text().unwrap_or(""))).collect();
        text.split_whitespace().map(|n| n.parse().map_err(|_| wrong(matrix, tag, n))).collect()
    };
    let (indexes, values) = (numbers("indexes")?, numbers("u64values")?);
    if values.len() != indexes.len().saturating_mul(indexes.len()) {
        let row = matrix.document().text_pos_at(matrix.range().start).row;
        return Err(format!(
            "line {row}: a distance matrix of {} objects has {} values; the file is damaged",
            indexes.len(),
            values.len()
        ));
    }
    let by_gp = matrix.attribute("indexing") == Some("gp");
    let position: Vec<Option<usize>> = nodes
        .iter()
        .map(|n| {
            let wanted = if by_gp { n.gp_index } else { Some(u64::from(n.place.id)) };
            indexes.iter().position(|i| Some(*i) == wanted)
        })
        .collect();
    let value = |i: usize, j: usize| match (position[i], position[j]) {
        (Some(i), Some(j)) => values[i * indexes.len() + j] as f64,
        _ => 0.0,
    };
    Ok((0..nodes.len()).map(|i| (0..nodes.len()).map(|j| value(i, j)).collect()).collect())
}

/// A memory attribute, the first of `names` that the file has: the value for every node around an initiator's CPUs.
fn attribute(
    root: Element<'_, '_>,
    nodes: &[FileNode],
    cpusets: &HashMap<&str, &str>,
    names: &[&str],
    unit: f64,
    source: Source,
) -> Result<Option<Known>, String> {
    let n = nodes.len();
    let own = own_cpus(&nodes.iter().map(|n| n.place.clone()).collect::<Vec<_>>());
    for name in names {
        let mut known = Known::none(n, source);
        let attributes = root.children().filter(|e| e.has_tag_name("memattr") && e.attribute("name") == Some(name));
        for value in attributes.flat_map(|a| a.children()).filter(|e| e.has_tag_name("memattr_value")) {
            let gp = value.attribute("target_obj_gp_index").and_then(|v| v.parse::<u64>().ok());
            let Some(to) = nodes.iter().position(|n| n.gp_index.is_some() && n.gp_index == gp) else { continue };
            let text = value.attribute("value").unwrap_or("");
            let amount: u64 = text.parse().map_err(|_| wrong(value, "value", text))?;
            let Some(text) = initiator(value, cpusets) else { continue };
            let cpus = bitmap::parse(text).ok_or_else(|| wrong(value, "initiator_cpuset", text))?;
            for (from, own) in own.iter().enumerate() {
                if amount > 0 && own.first().is_some_and(|cpu| cpus.binary_search(cpu).is_ok()) {
                    known.values[from][to] = Some(amount as f64 * unit);
                }
            }
        }
        if known.any() {
            return Ok(Some(known));
        }
    }
    Ok(None)
}

/// The bitmap of CPUs a value is seen from: written there, or that of the object it names.
fn initiator<'a>(value: Element<'a, '_>, cpusets: &HashMap<&str, &'a str>) -> Option<&'a str> {
    let named = || cpusets.get(value.attribute("initiator_obj_gp_index")?).copied();
    value.attribute("initiator_cpuset").or_else(named)
}

/// Synthetic words for a machine, with as many levels as are even.
fn words(packages: usize, nodes: usize, cores: usize, cpus: usize) -> String {
    let even = |inner: usize, outer: usize| outer > 0 && inner > 0 && inner.is_multiple_of(outer);
    let mut words = Vec::new();
    let mut outer = 1;
    if even(nodes, packages) {
        words.push(format!("pack:{packages}"));
        outer = packages;
    }
    words.push(format!("numa:{}", nodes / outer));
    if even(cores, nodes) && even(cpus, cores) {
        words.push(format!("core:{}", cores / nodes));
        if cpus > cores {
            words.push(format!("pu:{}", cpus / cores));
        }
    } else {
        words.push(format!("core:{}", cpus.div_ceil(nodes).max(1)));
    }
    words.join(" ")
}
