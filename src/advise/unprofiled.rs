//! A policy without a run: Minas' MApp heuristic (Ribeiro et al., INRIA RR-7051, 2009) on large shared arrays.
//!
//! An array at least as large as the last-level cache is interleaved where contention matters (a small NUMA factor, or
//! many links), and divided into one block per node, with bound threads, where latency matters (a high NUMA factor and
//! few links). The heuristic uses no information about the program's accesses: its authors measured a loss of 0 to 25 %
//! against the best manual placement.

use numamma_plan::policy::{
    Bind, MachineNote, ObjectRule, POLICY_VERSION, Place, Policy, PolicyKind, Program, Threads,
};
use serde_json::{Value, json};

use super::emit::{self, Advised};
use super::{Advice, Target};
use crate::profile::space::static_data::{StaticData, StaticObject};
use crate::topology::model::{Model, Source};

/// NUMA factor from which it is high: the middle of the factors 1.2 to 1.5 of Minas' machines.
pub const HIGH_NUMA_FACTOR: f64 = 1.35;
/// Links of a node up to which they are few: the three HyperTransport links of an Opteron, of which the larger
/// machine of Minas' evaluation is made.
pub const FEW_LINKS: usize = 3;
/// Ratio to the smallest remote latency up to which a node counts as equally near: SLIT distances are whole tenths of
/// the local one, and measured latencies scatter by several per cent.
const AS_NEAR: f64 = 1.05;

/// An object with its rule or the reason why it has none.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The object.
    pub object: StaticObject,
    /// The rule, or why there is none.
    pub rule: Result<ObjectRule, String>,
}

/// Advice on every object that is large enough, largest first.
pub type StaticAdvice = Advice<Verdict>;

/// The properties of a machine that the heuristic uses.
#[derive(Debug, Clone, Copy, PartialEq)]
struct NumaFacts {
    nodes: usize,
    factor: f64,
    /// Largest number of links of a node; none when the model has no figures for single pairs.
    links: Option<usize>,
}

impl NumaFacts {
    fn of(model: &Model) -> NumaFacts {
        let remote = |from: usize| (0..model.nodes.len()).filter(move |to| *to != from).map(move |to| (from, to));
        let latency = |(from, to): (usize, usize)| model.latency[from][to];
        let nearest = (0..model.nodes.len()).flat_map(remote).map(latency).fold(f64::INFINITY, f64::min) * AS_NEAR;
        let links = |from: usize| remote(from).filter(|pair| latency(*pair) <= nearest).count();
        let known = model.latency_source != Source::Default;
        NumaFacts {
            nodes: model.nodes.len(),
            factor: model.numa_factor(),
            links: known.then(|| (0..model.nodes.len()).map(links).max().unwrap_or(0)),
        }
    }

    fn blocks(self) -> bool {
        self.factor >= HIGH_NUMA_FACTOR && self.links.is_none_or(|l| l <= FEW_LINKS)
    }

    /// The reason in words.
    fn why(self) -> String {
        let high = self.factor >= HIGH_NUMA_FACTOR;
        let factor = format!(
            "NUMA factor {:.2} {} {HIGH_NUMA_FACTOR}",
            self.factor,
            if high { "is at least" } else { "is below" }
        );
        let links = match self.links {
            None => "links are not known".to_owned(),
            Some(n) => {
                let many = if n > FEW_LINKS { "more than" } else { "at most" };
                format!("{n} link{} a node, {many} {FEW_LINKS}", if n == 1 { "" } else { "s" })
            }
        };
        if !high {
            return format!("{factor}: contention matters more than latency");
        }
        match self.blocks() {
            true => format!("{factor} and {links}: latency matters"),
            false => format!("{factor}, but {links}: contention matters"),
        }
    }
}

/// Places the objects of `data` on `target`. `threads` is what the program will run with, if that is known.
pub fn advise(data: &StaticData, target: &Target, threads: Option<u32>) -> StaticAdvice {
    let facts = NumaFacts::of(&target.model);
    let items: Vec<Verdict> =
        data.objects.iter().map(|o| Verdict { object: o.clone(), rule: rule(o, target, facts) }).collect();
    let rules: Vec<ObjectRule> = items.iter().filter_map(|v| v.rule.as_ref().ok().cloned()).collect();
    let blocks = rules.iter().any(|r| r.place.policy == PolicyKind::Block);
    let remarks = remarks(data, target, threads, &rules, blocks);
    let threads = Threads { bind: if blocks { Bind::Compact } else { Bind::None }, count: threads.filter(|_| blocks) };
    let policy = Policy {
        version: POLICY_VERSION,
        program: Some(Program { path: data.program.clone(), build_id: data.build_id.clone() }),
        machine: Some(MachineNote { topology: target.topology.clone() }),
        threads: Some(threads),
        teams: Vec::new(),
        phases: Vec::new(),
        objects: rules,
    };
    Advice { policy, items, remarks }
}

fn rule(object: &StaticObject, target: &Target, facts: NumaFacts) -> Result<ObjectRule, String> {
    if object.read_only {
        return Err("it is read-only: its pages are the file's in the page cache, where no policy reaches them".into());
    }
    if target.nodes < 2 {
        return Err("the target has one node with memory".into());
    }
    // Several variables may share a section without names, so that its blocks need not match the slices of threads.
    let blocks = facts.blocks() && !object.section;
    let policy = if blocks { PolicyKind::Block } else { PolicyKind::Interleave };
    let why = match object.section {
        true => "bytes without a symbol, perhaps of several arrays: interleaved page by page, because blocks need the \
                 start of each array"
            .to_owned(),
        false => format!("{}, hence {}", facts.why(), if blocks { "a block per node" } else { "page by page" }),
    };
    Ok(ObjectRule {
        place: Place { policy, nodes: Some(if blocks { near_cpus(target) } else { "all".into() }), ..Place::default() },
        why: Some(why),
        ..named(object)
    })
}

/// A rule with the object's name only.
fn named(object: &StaticObject) -> ObjectRule {
    ObjectRule {
        global: Some(object.name.clone()),
        module: object.module.clone(),
        address: (!object.section).then_some(object.vaddr),
        size: Some(object.size),
        ..ObjectRule::default()
    }
}

/// Nodes for blocks that threads work on: not the memory-only ones (CXL, HBM), where no thread runs.
fn near_cpus(target: &Target) -> String {
    let nodes = &target.model.nodes;
    let memory = nodes.iter().filter(|n| n.memory > 0);
    let near: Vec<String> = memory.clone().filter(|n| !n.cpus.is_empty()).map(|n| n.id.to_string()).collect();
    if near.is_empty() || near.len() == memory.count() { "all".into() } else { near.join(",") }
}

/// The rules of block-naive, the policy that cuts each object of `objects` into one block per node of the machine it
/// runs on; no rule for read-only ones.
pub fn block_naive(objects: &[StaticObject]) -> Vec<ObjectRule> {
    let place = Place { policy: PolicyKind::Block, nodes: Some("all".into()), ..Place::default() };
    objects.iter().filter(|o| !o.read_only).map(|o| ObjectRule { place: place.clone(), ..named(o) }).collect()
}

fn remarks(
    data: &StaticData,
    target: &Target,
    threads: Option<u32>,
    rules: &[ObjectRule],
    blocks: bool,
) -> Vec<String> {
    let mut remarks = vec![
        "Made without a run, by Minas' heuristic for large shared arrays: it uses their sizes and the machine, not the \
         accesses. `numamma profile` and `numamma advise` use the accesses; `numamma compare` measures."
            .to_owned(),
    ];
    if target.model.latency_source == Source::Default && target.nodes > 1 {
        remarks.push(format!(
            "The target's latencies are not known: a NUMA factor of {:.2} is assumed.",
            target.model.numa_factor()
        ));
    }
    if rules.is_empty() {
        remarks.push("No object is placed.".into());
    }
    for name in &data.stripped {
        remarks.push(format!(
            "{name} has no symbols of variables, so its sections are taken as a whole; a build that is not stripped \
             gives each array its own rule."
        ));
    }
    if blocks {
        remarks.push(match threads {
            Some(n) => {
                format!("Blocks rely on threads that stay on their nodes, hence bind = \"compact\" for {n} threads.")
            }
            None => "Blocks rely on threads that stay on their nodes, hence bind = \"compact\"; if the program has \
                     another number of threads than the machine has CPUs, give --threads T."
                .to_owned(),
        });
    }
    if !data.libraries.is_empty() {
        remarks.push(format!("Libraries whose objects are included: {}.", data.libraries.join(", ")));
    }
    if !data.system.is_empty() {
        remarks.push(format!("Libraries of the system, whose objects are left out: {}.", data.system.join(", ")));
    }
    remarks
}

impl Advised for Verdict {
    fn toml(&self) -> Result<String, toml::ser::Error> {
        let o = &self.object;
        match &self.rule {
            Ok(rule) => emit::object(rule),
            Err(reason) => Ok(emit::comment(&format!("{}, {} bytes, not placed: {reason}", o.name, o.size))),
        }
    }

    fn json(&self) -> Value {
        json!({
            "name": self.object.name,
            "module": self.object.module,
            "size": self.object.size,
            // The share of the cost is unknown without a run.
            "share": null,
            "place": self.rule.as_ref().ok().map(|r| emit::without_nulls(&r.place)),
            "reason": self.rule.as_ref().err(),
        })
    }
}

#[cfg(test)]
#[path = "unprofiled_tests.rs"]
mod tests;
