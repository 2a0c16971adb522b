//! Where the pages of an object are under a policy, by formulas of this judge: it asks nothing of the libraries that it
//! judges.

use std::ops::Range;
use std::str::FromStr;

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
    /// The nodes that it names.
    nodes: Vec<u32>,
    /// Of a page map: how many pieces go to which node.
    map: Vec<(u64, u32)>,
}

/// The rules for an object.
fn rules<'a>(policy: &'a Policy, name: &str, object: &Object) -> Result<Vec<Rule<'a>>, String> {
    let is_meant = |rule: &&ObjectRule| match (&rule.global, &rule.name) {
        (Some(global), _) => *global == object.linkage || *global == name,
        // The name of a part is that of the object and its range.
        (None, Some(of)) => of == name || rule.range.is_some() && of.starts_with(&format!("{name} [")),
        _ => false,
    };
    let rule = |rule: &'a ObjectRule| {
        let known = rule.member.is_none() && rule.instances.is_none() && rule.phases.is_empty();
        if !known {
            return Err(format!("the judge does not know such rules: {rule:?}"));
        }
        let range = rule.range.as_deref().map(ByteRange::parse).transpose().map_err(|e| e.to_string())?;
        let bytes = range.map_or(0..object.size, |range| range.low..range.high.min(object.size));
        // A placed allocation begins a page, a variable where the linker put it. What it shares with others is no page
        // of it; two parts meet at the nearest page.
        let before = rule.address.unwrap_or(0) % PAGE;
        let nearest = |offset: u64| (before + offset + PAGE / 2) / PAGE;
        let first = if bytes.start == 0 { before.div_ceil(PAGE) } else { nearest(bytes.start) };
        let end = if bytes.end == object.size { (before + bytes.end) / PAGE } else { nearest(bytes.end) };
        Rule::new(first..end, &rule.place)
    };
    policy.objects.iter().filter(is_meant).map(rule).collect()
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("the judge does not know the number {text}"))
}

/// A list of nodes: `all`, or numbers and ranges.
fn nodes(list: Option<&str>) -> Result<Vec<u32>, String> {
    let mut nodes = Vec::new();
    match list {
        None | Some("all") => nodes.extend(0..NODES),
        Some(list) => {
            for word in list.split(',') {
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                nodes.extend(number::<u32>(first)?..=number(last)?);
            }
        }
    }
    Ok(nodes)
}

/// A page map: `640x0,128x3`.
fn runs(map: &str) -> Result<Vec<(u64, u32)>, String> {
    let run = |word: &str| {
        let (pieces, node) = word.split_once('x').ok_or_else(|| format!("the judge does not know the run {word}"))?;
        Ok((number(pieces)?, number(node)?))
    };
    map.split(',').map(run).collect()
}

impl<'a> Rule<'a> {
    fn new(pages: Range<u64>, place: &'a Place) -> Result<Rule<'a>, String> {
        let known = [
            PolicyKind::Default,
            PolicyKind::Local,
            PolicyKind::Interleave,
            PolicyKind::Block,
            PolicyKind::BlockCyclic,
            PolicyKind::Map,
            PolicyKind::Bind,
            PolicyKind::Preferred,
        ];
        if !known.contains(&place.policy) {
            return Err(format!("the judge does not know {:?}", place.policy));
        }
        let map = place.map.as_deref().map_or(Ok(Vec::new()), runs)?;
        Ok(Rule { pages, place, nodes: nodes(place.nodes.as_deref())?, map })
    }

    /// The node of a page; none where first touch decides.
    fn node(&self, page: u64) -> Option<u32> {
        let count = self.nodes.len() as u64;
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
            PolicyKind::Map => return self.mapped(page),
            _ => 0,
        };
        Some(self.nodes[index as usize])
    }

    /// The node that a page map says; it starts over after its last run.
    fn mapped(&self, page: u64) -> Option<u32> {
        let piece = match &self.place.block {
            Some(Block::Size(size)) => size.0,
            _ => PAGE,
        };
        let all = self.map.iter().map(|(pieces, _)| pieces).sum::<u64>().max(1);
        let mut left = (page * PAGE + PAGE / 2) / piece % all;
        let run = self.map.iter().find(|(pieces, _)| {
            let is_in = left < *pieces;
            left = left.saturating_sub(*pieces);
            is_in
        });
        run.map(|(_, node)| *node)
    }
}

/// Judges a policy by what was counted, on the objects of `least` bytes or more. First touches are those of the program
/// as it is usually compiled: of what it only clears, a compiler may leave the first touch to the kernel. Fails for a
/// rule that the judge does not know.
pub fn local(counts: &Counts, usual: &Counts, policy: &Policy, least: u64) -> Result<Local, String> {
    let mut sum = Local::default();
    for (name, object) in counts.objects.iter().filter(|(_, object)| object.size >= least) {
        let rules = rules(policy, name, object)?;
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
    Ok(sum)
}
