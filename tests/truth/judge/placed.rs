//! Where the pages of an object are under a policy, by formulas of this judge: it asks nothing of the libraries that it
//! judges.

use std::ops::Range;

use numamma_plan::policy::{Block, ObjectRule, Place, Policy, PolicyKind};
use numamma_plan::range::ByteRange;

use super::counts::{Counts, Object, Page};

/// Nodes that placements are judged on.
pub const NODES: u32 = 4;
const PAGE: u64 = 4096;

/// Accesses to objects on the node of the thread.
#[derive(Debug, Default, Clone, Copy)]
pub struct Local {
    pub accesses: u64,
    /// By first touch.
    pub first: u64,
    /// Under the policy; first touch where it has no rule.
    pub placed: u64,
    /// If each page were where it is accessed most.
    pub best: u64,
}

impl Local {
    pub fn share(self, part: u64) -> f64 {
        part as f64 / self.accesses.max(1) as f64
    }
}

/// Accesses of a page by node.
fn by_node(page: &Page, counts: &Counts) -> Vec<u64> {
    let mut nodes = vec![0; NODES as usize];
    page.by_thread.iter().for_each(|(thread, n)| nodes[node_of(counts, *thread) as usize] += n);
    nodes
}

/// Workers are spread over the nodes in their order; any other thread is where the program began.
fn node_of(counts: &Counts, thread: u32) -> u32 {
    counts.workers.get(&thread).map_or(0, |(worker, workers)| worker * NODES / workers.max(&1))
}

/// A rule for an object or a part of it: the pages that lie in it as a whole, and where they go.
struct Rule<'a> {
    pages: Range<u64>,
    place: &'a Place,
}

/// The rules for an object.
fn rules<'a>(policy: &'a Policy, name: &str, object: &Object) -> Vec<Rule<'a>> {
    let is_meant = |rule: &&ObjectRule| match (&rule.global, &rule.name) {
        (Some(global), _) => *global == object.linkage || *global == name,
        // The name of a part is that of the object and its range.
        (None, Some(of)) => of == name || rule.range.is_some() && of.starts_with(&format!("{name} [")),
        _ => false,
    };
    let rule = |rule: &'a ObjectRule| {
        let known = rule.member.is_none() && rule.instances.is_none() && rule.phases.is_empty();
        assert!(known, "the judge does not know such rules: {rule:?}");
        let range =
            rule.range.as_deref().map(|range| ByteRange::parse(range).unwrap_or_else(|e| panic!("{range}: {e}")));
        let bytes = range.map_or(0..object.size, |range| range.low..range.high.min(object.size));
        // A placed allocation begins a page, a variable where the linker put it. What it shares with others is no page of
        // it; two parts meet at the nearest page.
        let before = rule.address.unwrap_or(0) % PAGE;
        let nearest = |offset: u64| (before + offset + PAGE / 2) / PAGE;
        let first = if bytes.start == 0 { before.div_ceil(PAGE) } else { nearest(bytes.start) };
        let end = if bytes.end == object.size { (before + bytes.end) / PAGE } else { nearest(bytes.end) };
        Rule { pages: first..end, place: &rule.place }
    };
    policy.objects.iter().filter(is_meant).map(rule).collect()
}

/// A list of nodes: `all`, or numbers and ranges.
fn nodes(list: Option<&str>) -> Vec<u32> {
    let number = |text: &str| text.parse::<u32>().unwrap_or_else(|_| panic!("the judge does not know the node {text}"));
    match list {
        None | Some("all") => (0..NODES).collect(),
        Some(list) => list
            .split(',')
            .flat_map(|word| {
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                number(first)..=number(last)
            })
            .collect(),
    }
}

impl Rule<'_> {
    /// The node of a page; none where first touch decides.
    fn node(&self, page: u64) -> Option<u32> {
        let nodes = nodes(self.place.nodes.as_deref());
        let count = nodes.len() as u64;
        let block = match &self.place.block {
            Some(Block::Size(size)) => size.0,
            _ => ((self.pages.end - self.pages.start) * PAGE).div_ceil(count).next_multiple_of(PAGE),
        };
        let page = page - self.pages.start;
        let index = match self.place.policy {
            PolicyKind::Default | PolicyKind::Local => return None,
            PolicyKind::Interleave => page % count,
            // A page belongs to the block that has more of it.
            PolicyKind::Block | PolicyKind::BlockCyclic => (page * PAGE + PAGE / 2) / block % count,
            PolicyKind::Bind | PolicyKind::Preferred => 0,
            other => panic!("the judge does not know {other:?}"),
        };
        Some(nodes[index as usize])
    }
}

/// Judges a policy by what was counted, on the objects of `least` bytes or more. First touches are those of the program as it
/// is usually compiled: of what it only clears, a compiler may leave the first touch to the kernel.
pub fn local(counts: &Counts, usual: &Counts, policy: &Policy, least: u64) -> Local {
    let mut sum = Local::default();
    for (name, object) in counts.objects.iter().filter(|(_, object)| object.size >= least) {
        let rules = rules(policy, name, object);
        let touched = usual.objects.get(name).map(Object::by_page).unwrap_or_default();
        for ((_, page), accesses) in &object.pages {
            let by_node = by_node(accesses, counts);
            // That of the nearest page before it that has a sample.
            let toucher = touched.range(..=page).rev().find_map(|(_, page)| page.first).or(accesses.first);
            let first = by_node[toucher.map_or(0, |thread| node_of(counts, thread)) as usize];
            let rule = rules.iter().find(|rule| rule.pages.contains(page));
            let node = rule.and_then(|rule| rule.node(*page));
            sum.accesses += accesses.total();
            sum.first += first;
            sum.placed += node.map_or(first, |node| by_node[node as usize]);
            sum.best += by_node.iter().max().copied().unwrap_or(0);
        }
    }
    sum
}
