//! hwloc's synthetic descriptions: `pack:4 numa:2 core:6`, `pack:2 [numa(memory=64GB)] [numa] core:8 pu:2`.
//!
//! A description lists levels from the outermost to the innermost, each with the number of its objects in every
//! object of the level before. NUMA nodes are a level of their own or, in brackets, attached to the level before the
//! bracket. Unlike in hwloc, a last level `pu:1` may be left out. Memory without a given size is unlimited. Nodes are
//! numbered as hwloc numbers them: those inside an object before those attached to it. Caches count where their size is
//! given: `numa:2 l3:1(size=32MiB) core:8 l2:1(size=1MiB)`. (Grammar: hwloc 2.9, "Synthetic topologies".)

use super::caches::{CacheSource, Caches};
use super::description::{DescribedNode, Description, MOST_CPUS, MOST_NODES};

/// Largest number of levels (hwloc's HWLOC_SYNTHETIC_MAX_DEPTH).
const MOST_LEVELS: usize = 128;
/// Names of levels, for messages.
const LEVELS: &str = "pack, die, numa, group, l3, l2, l1, core and pu";
/// Units of hwloc's `memory=`: decimal and binary.
const UNITS: [(&str, u64); 9] = [
    ("tib", 1 << 40),
    ("gib", 1 << 30),
    ("mib", 1 << 20),
    ("kib", 1 << 10),
    ("tb", 1_000_000_000_000),
    ("gb", 1_000_000_000),
    ("mb", 1_000_000),
    ("kb", 1_000),
    ("b", 1),
];

/// Parses a synthetic description.
///
/// # Errors
/// A message with the word that cannot be used and what to write instead.
pub fn parse(text: &str) -> Result<Description, String> {
    let levels = levels(text)?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut cpus = 1usize;
    for level in &levels[1..] {
        cpus = cpus.saturating_mul(level.count);
        if cpus > MOST_CPUS {
            return Err(format!(
                "`{}` makes more than {MOST_CPUS} CPUs, the most that Linux supports; write a smaller number",
                level.word
            ));
        }
    }
    let mut built = Built { nodes: Vec::new(), cpus: 0, numbers: vec![0; levels.len()] };
    built.add_object(&levels, 0)?;
    if let Some(level) = levels.last().filter(|l| l.kind == Kind::Pu) {
        built.renumber(level)?;
    }
    Ok(Description {
        name: words.join(" "),
        nodes: built.nodes,
        distances: None,
        latency: None,
        bandwidth: None,
        caches: Caches::of(caches(&levels), CacheSource::Described),
        numa_balancing: None,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Numa,
    Pu,
    Other,
}

/// A level. The first one stands for the whole machine and has the count 1.
struct Level<'a> {
    word: &'a str,
    kind: Kind,
    count: usize,
    indexes: Option<Vec<u32>>,
    attached: Vec<Memory<'a>>,
    /// Bytes of a cache, where they are given.
    size: Option<u64>,
}

/// A node in each object of a level.
#[derive(Clone)]
struct Memory<'a> {
    word: &'a str,
    bytes: u64,
    indexes: Option<Vec<u32>>,
    size: Option<u64>,
}

fn levels(text: &str) -> Result<Vec<Level<'_>>, String> {
    let mut levels =
        vec![Level { word: "", kind: Kind::Other, count: 1, indexes: None, attached: Vec::new(), size: None }];
    let mut has_level = false;
    let mut has_bracket = false;
    for word in words(text)? {
        if let Some(inner) = word.strip_prefix('[') {
            has_bracket = true;
            let inner = inner.strip_suffix(']').unwrap_or(inner).trim();
            let (name, attributes) = split_attributes(inner)?;
            if kind(name) != Some(Kind::Numa) {
                return Err(format!("`{word}`: only nodes can be attached; write [numa] or [numa(memory=64GB)]"));
            }
            let memory = memory(word, attributes)?;
            levels.last_mut().into_iter().for_each(|level| level.attached.push(memory.clone()));
            continue;
        }
        let level = level(word, levels.last())?;
        has_level |= level.kind == Kind::Numa;
        if level.kind == Kind::Numa && levels.iter().any(|l| l.kind == Kind::Numa) {
            return Err(format!("`{word}`: the nodes are already a level; write numa once"));
        }
        levels.push(level);
        if levels.len() > MOST_LEVELS {
            return Err(format!("`{word}`: more than {MOST_LEVELS} levels"));
        }
    }
    if levels.len() == 1 {
        return Err(format!(
            "the description names no level; write for example \"pack:2 numa:2 core:8\" (levels: {LEVELS})"
        ));
    }
    if has_level && has_bracket {
        return Err("nodes are both a level (numa:2) and attached ([numa]); hwloc accepts one or the other".into());
    }
    if !has_level && !has_bracket {
        // hwloc adds one node around the whole machine, too.
        levels[0].attached.push(Memory { word: "", bytes: u64::MAX, indexes: None, size: None });
    }
    Ok(levels)
}

/// The words of a description. Blanks separate words, except inside parentheses and brackets; a bracket begins a word.
fn words(text: &str) -> Result<Vec<&str>, String> {
    let mut found = Vec::new();
    let mut start: Option<usize> = None;
    let (mut round, mut square) = (0usize, 0usize);
    for (at, c) in text.char_indices() {
        let outside = round == 0 && square == 0;
        if outside && (c.is_whitespace() || c == '[') {
            found.extend(start.take().map(|s| &text[s..at]));
        }
        if !c.is_whitespace() || start.is_some() {
            start.get_or_insert(at);
        }
        match c {
            '(' => round += 1,
            '[' => square += 1,
            ')' if round > 0 => round -= 1,
            ']' if square > 0 && round == 0 => {
                square -= 1;
                if square == 0 {
                    found.extend(start.take().map(|s| &text[s..at + 1]));
                }
            }
            ')' | ']' => return Err(format!("`{c}` at character {} closes nothing; remove it", at + 1)),
            _ => {}
        }
    }
    if round + square > 0 {
        let word = &text[start.unwrap_or(0)..];
        return Err(format!("`{word}` is not closed: a `{}` is missing", if round > 0 { ')' } else { ']' }));
    }
    found.extend(start.map(|s| &text[s..]));
    Ok(found)
}

fn level<'a>(word: &'a str, before: Option<&Level<'_>>) -> Result<Level<'a>, String> {
    let (body, attributes) = split_attributes(word)?;
    let Some((name, count)) = body.split_once(':') else {
        return Err(format!("`{word}`: a level is a name and a number, such as core:4 (names: {LEVELS})"));
    };
    let Some(kind) = kind(name) else {
        return Err(format!("`{word}`: there is no level `{name}`; the levels are {LEVELS}"));
    };
    if before.is_some_and(|l| l.kind == Kind::Pu) {
        return Err(format!("`{word}`: nothing can be inside a pu; pu must be the last level"));
    }
    let count = match count.parse::<usize>() {
        Ok(0) => return Err(format!("`{word}`: a level needs objects; write at least 1")),
        Ok(n) => n,
        Err(_) => return Err(format!("`{word}`: `{count}` is not a number of objects, such as the 4 of core:4")),
    };
    let memory = memory(word, attributes)?;
    let (indexes, size) = (memory.indexes.clone(), memory.size);
    let attached = if kind == Kind::Numa { vec![memory] } else { Vec::new() };
    Ok(Level { word, kind, count, indexes, attached, size })
}

/// Level, size and number of CPUs of the caches whose size is given.
fn caches<'a>(levels: &'a [Level<'_>]) -> impl Iterator<Item = (u32, u64, usize)> + 'a {
    levels.iter().enumerate().filter_map(|(depth, level)| {
        let name = level.word.strip_prefix(['l', 'L'])?;
        let number = name.chars().next()?.to_digit(10)?;
        // Caches of instructions hold no data.
        let of_code = name[1..].starts_with(['i', 'I']);
        let cpus: usize = levels[depth + 1..].iter().map(|inner| inner.count).product();
        level.size.filter(|_| !of_code).map(|size| (number, size, cpus))
    })
}

/// `numa:2(memory=1GB)` as `numa:2` and `memory=1GB`.
fn split_attributes(word: &str) -> Result<(&str, &str), String> {
    let Some((body, rest)) = word.split_once('(') else { return Ok((word, "")) };
    match rest.strip_suffix(')') {
        Some(attributes) => Ok((body.trim(), attributes)),
        None => Err(format!("`{word}`: text follows the closing `)`; put a blank between words")),
    }
}

fn kind(name: &str) -> Option<Kind> {
    let name = name.to_ascii_lowercase();
    let begins = |whole: &str| name.len() >= 2 && whole.starts_with(&name);
    if ["numanode", "node"].iter().any(|w| begins(w)) {
        return Some(Kind::Numa);
    }
    if name == "pu" {
        return Some(Kind::Pu);
    }
    let cache = name.strip_prefix('l').and_then(|rest| {
        let level = rest.chars().next().filter(|c| ('1'..='5').contains(c))?;
        Some(&rest[level.len_utf8()..])
    });
    let cache = cache.is_some_and(|rest| ["", "d", "i", "u", "cache", "dcache", "icache", "ucache"].contains(&rest));
    let other = ["package", "socket", "die", "core", "group"].iter().any(|w| begins(w));
    (cache || other).then_some(Kind::Other)
}

fn memory<'a>(word: &'a str, attributes: &str) -> Result<Memory<'a>, String> {
    let mut found = Memory { word, bytes: u64::MAX, indexes: None, size: None };
    for attribute in attributes.split_whitespace() {
        match attribute.split_once('=') {
            Some(("memory", value)) => {
                found.bytes = bytes(value)
                    .ok_or_else(|| format!("`{word}`: `{value}` is not an amount of memory, such as 64GB or 64GiB"))?;
            }
            Some(("indexes", value)) => {
                let numbers: Option<Vec<u32>> = value.split(',').map(|n| n.parse().ok()).collect();
                found.indexes = Some(numbers.ok_or_else(|| {
                    format!("`{word}`: `{value}`: write the numbers one by one, as in indexes=0,2,1,3")
                })?);
            }
            Some(("size", value)) => {
                found.size = Some(
                    bytes(value)
                        .ok_or_else(|| format!("`{word}`: `{value}` is not the size of a cache, such as 32MiB"))?,
                );
            }
            // The model has no caches beside memory.
            Some(("memorysidecachesize", _)) => {}
            _ => {
                return Err(format!(
                    "`{word}`: there is no attribute `{attribute}`; the attributes are memory=, size=, indexes="
                ));
            }
        }
    }
    Ok(found)
}

fn bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (number, unit) = UNITS.iter().find_map(|(u, n)| Some((lower.strip_suffix(u)?, *n))).unwrap_or((&lower, 1));
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// The machine while it is built from the outermost level to the innermost.
struct Built {
    nodes: Vec<DescribedNode>,
    cpus: u32,
    /// Number of objects built so far of each level.
    numbers: Vec<usize>,
}

impl Built {
    /// Adds one object of a level with all objects inside it.
    fn add_object(&mut self, levels: &[Level<'_>], depth: usize) -> Result<(), String> {
        let first = self.cpus;
        match levels.get(depth + 1) {
            Some(inner) => (0..inner.count).try_for_each(|_| self.add_object(levels, depth + 1))?,
            None => self.cpus += 1,
        }
        let number = self.numbers[depth];
        self.numbers[depth] += 1;
        for memory in &levels[depth].attached {
            let id = match &memory.indexes {
                Some(list) => *list.get(number).ok_or_else(|| {
                    format!("`{}`: there are more nodes than the {} numbers of indexes=", memory.word, list.len())
                })?,
                None => self.nodes.len() as u32,
            };
            self.nodes.push(DescribedNode { id, local_cpus: (first..self.cpus).collect(), memory: memory.bytes });
            if self.nodes.len() > MOST_NODES {
                return Err(format!(
                    "`{}` makes more than {MOST_NODES} nodes, the most that Linux supports; write a smaller number",
                    memory.word
                ));
            }
        }
        Ok(())
    }

    /// Renumbers the CPUs as `pu:4(indexes=...)` says.
    fn renumber(&mut self, level: &Level<'_>) -> Result<(), String> {
        let Some(list) = &level.indexes else { return Ok(()) };
        let mut sorted = list.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != self.cpus as usize || list.len() != sorted.len() {
            return Err(format!("`{}`: {} different numbers are needed, one for each pu", level.word, self.cpus));
        }
        for node in &mut self.nodes {
            node.local_cpus.iter_mut().for_each(|cpu| *cpu = list[*cpu as usize]);
            node.local_cpus.sort_unstable();
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "synthetic_tests.rs"]
mod tests;
