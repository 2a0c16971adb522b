//! Reads nodes, CPUs, caches, memory, distances and memory attributes from an hwloc XML file. Other objects (devices)
//! are ignored, and files of any processor architecture are accepted.

use std::collections::HashMap;

use roxmltree::{Document, Node as Element, ParsingOptions};

use super::bitmap;
use crate::topology::caches::{CacheSource, Caches};
use crate::topology::description::{DescribedNode, Description, MOST_NODES, cpus_of_nodes};
use crate::topology::model::Source;
use crate::topology::partial_matrix::PartialMatrix;

/// Largest number of elements and attributes: lstopo writes about 40 per CPU, and a machine has at most 8,192 CPUs.
const MOST_ELEMENTS: u32 = 4_000_000;
/// Largest number of attributes of one element: lstopo writes up to 20, and the parser compares each with all before
/// it.
const MOST_ATTRIBUTES: usize = 1_000;
/// Bits of a distance matrix's `kind`: its values are latencies, or bandwidths (HWLOC_DISTANCES_KIND_MEANS_*).
const MEANS_LATENCY: u64 = 1 << 2;
const MEANS_BANDWIDTH: u64 = 1 << 3;
/// Name of the matrix that holds ACPI SLIT.
const SLIT: &str = "NUMALatency";
/// Bytes in the unit of the memory attribute `Bandwidth`.
const MIB: f64 = 1_048_576.0;
/// Name of the `<info>` that NumaMMA writes into files with measured figures.
pub(super) const MEASURED: &str = "NumammaMeasured";
/// Name of the `<info>` with 1 where the kernel moves pages to their users by itself (the sysctl numa_balancing), or 0.
pub(super) const BALANCING: &str = "NumammaNumaBalancing";
/// The unit of ACPI SLIT: 10 is local.
const SLIT_LOCAL: f64 = 10.0;

/// Parses the text of a file.
///
/// # Errors
/// When the text is not XML, not an hwloc topology, of hwloc 1.x, or holds values that describe no machine.
pub fn parse(text: &str) -> Result<Description, String> {
    // Each attribute has a `=`; hwloc writes none between elements, where an attribute's value may hold a `>`.
    if text.split('<').any(|element| element.matches('=').count() > MOST_ATTRIBUTES) {
        return Err(format!("this is not an hwloc XML file: an element has more than {MOST_ATTRIBUTES} attributes"));
    }
    let options = ParsingOptions { allow_dtd: true, nodes_limit: MOST_ELEMENTS, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options)
        .map_err(|e| format!("this is not an hwloc XML file: {e}; write one with `lstopo m.xml`"))?;
    let root = document.root_element();
    check_version(root)?;
    let objects: Vec<Element<'_, '_>> = root.descendants().filter(|e| e.has_tag_name("object")).collect();
    let of_type = |name: &'static str| objects.iter().filter(move |o| o.attribute("type") == Some(name));
    // Before they are read: a few bytes of a file can name all CPUs.
    let count_nodes = of_type("NUMANode").count();
    if count_nodes > MOST_NODES {
        return Err(format!("the file has {count_nodes} nodes, more than Linux can number ({MOST_NODES})"));
    }
    let mut nodes = of_type("NUMANode").map(|o| node(*o)).collect::<Result<Vec<_>, String>>()?;
    nodes.sort_by_key(|n| n.described.id);
    if nodes.is_empty() {
        return Err(
            "the file has no NUMANode; write it with lstopo of hwloc 2 on the machine itself, without --restrict"
                .into(),
        );
    }
    let mut cpus = of_type("PU").map(|o| number(*o, "os_index")).collect::<Result<Vec<u32>, String>>()?;
    cpus.sort_unstable();
    for node in &mut nodes {
        node.described.local_cpus.retain(|cpu| cpus.binary_search(cpu).is_ok());
    }
    if nodes.iter().all(|n| n.described.memory == 0) {
        // A file may give no amounts of memory at all, which does not mean that the machine has none.
        nodes.iter_mut().for_each(|n| n.described.memory = u64::MAX);
    }
    let cpusets: HashMap<&str, &str> =
        objects.iter().filter_map(|o| Some((o.attribute("gp_index")?, o.attribute("cpuset")?))).collect();
    let count = |name| of_type(name).count();
    let measured = root.descendants().any(|e| e.has_tag_name("info") && e.attribute("name") == Some(MEASURED));
    let balancing = root.descendants().filter(|e| e.has_tag_name("info") && e.attribute("name") == Some(BALANCING));
    let numa_balancing = balancing.filter_map(|e| e.attribute("value")).map(|v| v != "0").next();
    let source = if measured { Source::Measured } else { Source::Xml };
    Ok(Description {
        name: synthetic_name(count("Package"), &nodes, count("Core"), cpus.len()),
        distances: matrix(root, &nodes)?,
        latency: attribute(root, &nodes, &cpusets, &["Latency", "ReadLatency"], 1.0, source)?,
        bandwidth: attribute(root, &nodes, &cpusets, &["Bandwidth", "ReadBandwidth"], MIB, source)?,
        nodes: nodes.into_iter().map(|n| n.described).collect(),
        caches: Caches::of(objects.iter().filter_map(|o| cache(*o)), CacheSource::Described),
        numa_balancing,
    })
}

fn check_version(root: Element<'_, '_>) -> Result<(), String> {
    if root.tag_name().name() != "topology" {
        return Err(format!(
            "this is XML, but <{}> is not an hwloc topology; write one with `lstopo m.xml`",
            root.tag_name().name()
        ));
    }
    match root.attribute("version").map(|v| v.split('.').next().unwrap_or(v)) {
        Some("2" | "3") => Ok(()),
        None | Some("1") => {
            Err("the file is of hwloc 1.x; convert it with lstopo of hwloc 2: `lstopo -i old.xml new.xml`".into())
        }
        Some(other) => Err(format!("the file has version {other} of the format; NumaMMA reads versions 2 and 3")),
    }
}

/// A NUMANode object of the file.
struct FileNode {
    described: DescribedNode,
    gp_index: Option<u64>,
}

fn node(object: Element<'_, '_>) -> Result<FileNode, String> {
    let id = number(object, "os_index")?;
    let local_cpus = match object.attribute("cpuset") {
        Some(text) => bitmap::parse(text).ok_or_else(|| wrong(object, "cpuset", text))?,
        None => Vec::new(),
    };
    let memory = match object.attribute("local_memory") {
        Some(text) => text.parse().map_err(|_| wrong(object, "local_memory", text))?,
        None => 0,
    };
    let gp_index = object.attribute("gp_index").and_then(|v| v.parse().ok());
    Ok(FileNode { described: DescribedNode { id, local_cpus, memory }, gp_index })
}

/// Level, size and number of CPUs of a data or unified cache: `L2Cache`, not `L1iCache`.
fn cache(object: Element<'_, '_>) -> Option<(u32, u64, usize)> {
    let level = object.attribute("type")?.strip_prefix('L')?.strip_suffix("Cache")?.parse().ok()?;
    let size = object.attribute("cache_size")?.parse().ok()?;
    Some((level, size, bitmap::parse(object.attribute("cpuset")?)?.len()))
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
    // The value may be long and contain control characters.
    let short: String = text.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("line {row}: {name}=\"{short}\" cannot be read")
}

/// The distances of the nodes: SLIT if the file has it, else any other latency matrix, scaled so that its smallest
/// local value is that of SLIT.
fn matrix(root: Element<'_, '_>, nodes: &[FileNode]) -> Result<Option<Vec<Vec<f64>>>, String> {
    let all: Vec<Element<'_, '_>> =
        root.children().filter(|e| e.has_tag_name("distances2") && e.attribute("type") == Some("NUMANode")).collect();
    let kind = |e: &Element<'_, '_>| e.attribute("kind").and_then(|k| k.parse::<u64>().ok()).unwrap_or(0);
    let slit = all.iter().find(|e| e.attribute("name") == Some(SLIT));
    let latency = all.iter().find(|e| kind(e) & MEANS_LATENCY != 0 && kind(e) & MEANS_BANDWIDTH == 0);
    let Some(found) = slit.or(latency) else { return Ok(None) };
    let values = values(*found, nodes)?;
    let local = (0..nodes.len()).map(|i| values[i][i]).fold(f64::INFINITY, f64::min);
    // Firmware without this information leaves entries at 0.
    if !local.is_finite() || !values.iter().flatten().all(|v| *v > 0.0) {
        return Ok(None);
    }
    let unit = if slit.is_some() { 1.0 } else { SLIT_LOCAL / local };
    Ok(Some(values.into_iter().map(|row| row.into_iter().map(|v| v * unit).collect()).collect()))
}

/// The values of a distance matrix, in the order of `nodes`; 0 for pairs that the matrix lacks.
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
            "line {row}: a distance matrix of {} objects has {} values; the file is damaged, write it again",
            indexes.len(),
            values.len()
        ));
    }
    let by_gp = matrix.attribute("indexing") == Some("gp");
    let position: Vec<Option<usize>> = nodes
        .iter()
        .map(|n| {
            let wanted = if by_gp { n.gp_index } else { Some(u64::from(n.described.id)) };
            indexes.iter().position(|i| Some(*i) == wanted)
        })
        .collect();
    let value = |i: usize, j: usize| match (position[i], position[j]) {
        (Some(i), Some(j)) => values[i * indexes.len() + j] as f64,
        _ => 0.0,
    };
    Ok((0..nodes.len()).map(|i| (0..nodes.len()).map(|j| value(i, j)).collect()).collect())
}

/// The values of the first memory attribute among `names` that the file has. A value counts for each node with CPUs in
/// the initiator's cpuset.
fn attribute(
    root: Element<'_, '_>,
    nodes: &[FileNode],
    cpusets: &HashMap<&str, &str>,
    names: &[&str],
    unit: f64,
    source: Source,
) -> Result<Option<PartialMatrix>, String> {
    let n = nodes.len();
    let own = cpus_of_nodes(&nodes.iter().map(|n| n.described.clone()).collect::<Vec<_>>());
    for name in names {
        let mut known = PartialMatrix::empty(n, source);
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
        if known.has_values() {
            return Ok(Some(known));
        }
    }
    Ok(None)
}

/// The cpuset from which a value holds: its own attribute, or the cpuset of the initiator object that it names.
fn initiator<'a>(value: Element<'a, '_>, cpusets: &HashMap<&str, &'a str>) -> Option<&'a str> {
    let named = || cpusets.get(value.attribute("initiator_obj_gp_index")?).copied();
    value.attribute("initiator_cpuset").or_else(named)
}

/// A synthetic description of the machine with those levels that divide evenly. Memory-only nodes are attached to the
/// nodes with CPUs, as many as divide evenly.
fn synthetic_name(packages: usize, nodes: &[FileNode], cores: usize, cpus: usize) -> String {
    let described: Vec<DescribedNode> = nodes.iter().map(|n| n.described.clone()).collect();
    let with_cpus = cpus_of_nodes(&described).iter().filter(|own| !own.is_empty()).count().max(1);
    let more = (nodes.len() - with_cpus.min(nodes.len())) / with_cpus;
    let even = |inner: usize, outer: usize| outer > 0 && inner > 0 && inner.is_multiple_of(outer);
    let outer = if even(with_cpus, packages) { packages } else { 1 };
    let mut words: Vec<String> = even(with_cpus, packages).then(|| format!("pack:{packages}")).into_iter().collect();
    if more == 0 {
        words.push(format!("numa:{}", with_cpus / outer));
    } else {
        if with_cpus > outer {
            words.push(format!("group:{}", with_cpus / outer));
        }
        words.extend((0..=more).map(|_| "[numa]".to_owned()));
    }
    if even(cores, with_cpus) && even(cpus, cores) {
        words.push(format!("core:{}", cores / with_cpus));
        words.extend((cpus > cores).then(|| format!("pu:{}", cpus / cores)));
    } else {
        words.push(format!("core:{}", cpus.div_ceil(with_cpus).max(1)));
    }
    words.join(" ")
}
