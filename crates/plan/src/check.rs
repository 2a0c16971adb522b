//! Parsing and validation of a policy file: syntax, schema, and the rules that a schema cannot express.
//!
//! Every error has a line, a column and the offending word; the error for an unknown word lists the allowed words.
//! Validation does not depend on the machine: whether a node exists is checked when a plan is made.

use std::collections::BTreeMap;
use std::fmt;

use toml::de::DeTable;

use crate::callsite::Frame;
use crate::callsite::line::SourceLine;
use crate::callsite::selection::{Instances, Sizes};
use crate::cpus;
use crate::nodes;
use crate::page_map::PageMap;
use crate::policy::{Auto, Bind, Block, Mode, ObjectRule, POLICY_VERSION, Place, Policy, PolicyKind};
use crate::ranks::Ranks;
use crate::toml_subset;

mod phases;
pub use phases::MOST_PHASES;

/// An error at a place in a policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong and what to write instead; one line.
    pub message: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for PolicyError {}

/// Reads and validates a policy file.
pub fn parse(text: &str) -> Result<Policy, PolicyError> {
    let policy = match toml_subset::read(text) {
        Some(policy) => policy,
        None => toml::from_str(text).map_err(|e| {
            let offset = e.span().map_or(0, |s| s.start);
            located(text, offset, e.message())
        })?,
    };
    match fault(&policy) {
        None => Ok(policy),
        Some(fault) => Err(located(text, offset_of(text, &fault), &fault.message)),
    }
}

impl std::str::FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        parse(text)
    }
}

/// A violated rule in a file that satisfies the schema.
struct Fault {
    /// Array of tables (`object`, `phase`) and the index in it; `None` for the top of the file.
    table: Option<(&'static str, usize)>,
    /// Path of keys to the offending value; empty when a key is missing.
    key: Vec<String>,
    message: String,
}

impl Fault {
    fn at(array: &'static str, index: usize, key: &[&str], message: String) -> Fault {
        Fault { table: Some((array, index)), key: key.iter().map(|k| (*k).to_owned()).collect(), message }
    }

    fn top(key: &[&str], message: String) -> Fault {
        Fault { table: None, key: key.iter().map(|k| (*k).to_owned()).collect(), message }
    }
}

fn fault(policy: &Policy) -> Option<Fault> {
    if policy.version != POLICY_VERSION {
        let message = format!("version {} is not known; this program reads version {POLICY_VERSION}", policy.version);
        return Some(Fault::top(&["version"], message));
    }
    if policy.threads.as_ref().is_some_and(|t| t.count == Some(0)) {
        let message =
            "`count` must be at least 1; write the number of threads, such as count = 8, or leave `count` out"
                .to_owned();
        return Some(Fault::top(&["threads", "count"], message));
    }
    if let Some(message) = policy.threads.as_ref().and_then(|t| bind_fault(&t.bind)) {
        return Some(Fault::top(&["threads", "bind"], message));
    }
    let object = policy.objects.iter().enumerate().find_map(|(index, rule)| {
        let (key, message) = rule_fault(rule)?;
        Some(Fault::at("object", index, key, message))
    });
    object.or_else(|| phases::phase_fault(policy))
}

fn bind_fault(bind: &Bind) -> Option<String> {
    let Bind::Explicit(lists) = bind else { return None };
    if lists.is_empty() {
        return Some("`bind` lists no CPUs; write one list for each thread, such as [\"0-3\", \"4-7\"]".to_owned());
    }
    lists.iter().find_map(|list| cpus::check_syntax(list).err()).map(|e| e.to_string())
}

type KeyFault = (&'static [&'static str], String);

fn rule_fault(rule: &ObjectRule) -> Option<KeyFault> {
    name_fault(rule).or_else(|| selection_fault(rule)).or_else(|| place_fault(rule)).or_else(|| ranks_fault(rule))
}

fn name_fault(rule: &ObjectRule) -> Option<KeyFault> {
    let by_line = rule.line_alone().is_some();
    let by_site = rule.callsite.is_some() || rule.function.is_some() || by_line;
    match (&rule.global, by_site) {
        (Some(_), true) => {
            return Some((&["global"], "name the object by `global` or by `callsite`/`function`, not by both".into()));
        }
        (None, false) => {
            return Some((
                &[],
                "this object has no name: write global = \"...\", callsite = [...], function = [...] or line = \"...\""
                    .into(),
            ));
        }
        (Some(name), false) if name.is_empty() => return Some((&["global"], "`global` is empty".into())),
        _ => {}
    }
    if by_site && rule.module.is_some() {
        return Some((&["module"], "`module` belongs to `global`; call-site frames name their module".into()));
    }
    if by_site && rule.address.is_some() {
        return Some((&["address"], "`address` belongs to `global`".into()));
    }
    if let Some(fault) = site_fault(rule.callsite.as_deref(), rule.function.as_deref()) {
        return Some(fault);
    }
    None
}

fn ranks_fault(rule: &ObjectRule) -> Option<KeyFault> {
    let fault = rule.ranks.as_deref().map(Ranks::parse)?.err()?;
    Some((&["ranks"], fault.to_string()))
}

fn mode_fault(rule: &ObjectRule) -> Option<KeyFault> {
    let place = &rule.place;
    let message = format!(
        "mode = \"populate\" saves the mapping of each block of a block distribution; `{}` needs only one mapping",
        place.policy.word()
    );
    (place.mode == Some(Mode::Populate) && !place.policy.by_blocks()).then_some((&["place", "mode"], message))
}

/// The first fault in the frames or functions that name the call site of an object or a phase.
fn site_fault(callsite: Option<&[String]>, function: Option<&[String]>) -> Option<KeyFault> {
    if callsite.is_some_and(<[String]>::is_empty) {
        return Some((&["callsite"], "`callsite` is empty; write at least one frame such as \"app+0x1a2b\"".into()));
    }
    if let Some(Err(e)) = callsite.into_iter().flatten().map(|f| f.parse::<Frame>()).find(Result::is_err) {
        return Some((&["callsite"], e.to_string()));
    }
    let nameless = function.is_some_and(|f| f.iter().all(String::is_empty));
    nameless.then(|| (&["function"][..], "`function` names no function".into()))
}

/// The first fault in the keys that select allocations of a call site.
fn selection_fault(rule: &ObjectRule) -> Option<KeyFault> {
    let filters: [(&'static [&'static str], _); 2] =
        [(&["instances"], rule.instances.is_some()), (&["sizes"], rule.sizes.is_some())];
    if let (Some(_), Some((key, _))) = (&rule.global, filters.iter().find(|f| f.1)) {
        let message = format!("`{}` is for allocations: a global exists once and has one size", key[0]);
        return Some((key, message));
    }
    if let Some(Err(e)) = rule.instances.as_deref().map(Instances::parse) {
        return Some((&["instances"], e.to_string()));
    }
    if let Some(Err(e)) = rule.sizes.as_deref().map(Sizes::parse) {
        return Some((&["sizes"], e.to_string()));
    }
    if let Some(Err(e)) = rule.line_alone().map(SourceLine::parse) {
        return Some((&["line"], e.to_string()));
    }
    None
}

/// Rules that no allocation can match, each with the index of the earlier rule that matches all of them first: an
/// earlier rule of the same call site without `instances`, `sizes` and `ranks`. Not an error: a policy may be
/// assembled from parts.
pub fn shadowed(rules: &[ObjectRule]) -> Vec<(usize, usize)> {
    let mut first = BTreeMap::new();
    let mut found = Vec::new();
    for (index, rule) in rules.iter().enumerate().filter(|(_, r)| r.global.is_none()) {
        let site = (&rule.callsite, &rule.function, rule.line_alone());
        match first.get(&site) {
            Some(&before) => found.push((index, before)),
            None if rule.instances.is_none() && rule.sizes.is_none() && rule.ranks.is_none() => {
                first.insert(site, index);
            }
            None => {}
        }
    }
    found
}

fn place_fault(rule: &ObjectRule) -> Option<KeyFault> {
    let place = &rule.place;
    if place.block.is_some() && !place.policy.takes_block() {
        let message =
            "`block` needs policy = \"block\", \"block-cyclic\", \"random-block\", \"skew\" or \"prime\"".to_owned();
        return Some((&["place", "block"], message));
    }
    if let Some(fault) = mode_fault(rule) {
        return Some(fault);
    }
    if let Some(fault) = extra_fault(place) {
        return Some(fault);
    }
    if place.block == Some(Block::Size(crate::policy::Size(0))) {
        return Some((
            &["place", "block"],
            "a block cannot have 0 bytes; write a size such as block = \"2MiB\", or \"auto\"".into(),
        ));
    }
    let period = rule.pattern.as_ref().and_then(|p| p.period);
    if period.is_some_and(|p| p.0 == 0) {
        return Some((
            &["pattern", "period"],
            "a period cannot have 0 bytes; write a size such as period = \"160MiB\", or leave it out".into(),
        ));
    }
    let auto = matches!(place.block, None | Some(Block::Auto(Auto::Auto)));
    if place.policy == PolicyKind::BlockCyclic && auto && period.is_none() {
        let message = "block-cyclic needs block = \"20MiB\", or pattern.period for block = \"auto\"".to_owned();
        return Some((&["place"], message));
    }
    if place.policy == PolicyKind::Local && rule.global.is_some() {
        let message = "`local` is for allocations: a global exists once and has no allocating thread".to_owned();
        return Some((&["place", "policy"], message));
    }
    if let Some(Err(e)) = place.nodes.as_deref().map(nodes::check_syntax) {
        return Some((&["place", "nodes"], e.to_string()));
    }
    None
}

/// The first fault in the keys that only one kind of policy allows.
fn extra_fault(place: &Place) -> Option<KeyFault> {
    let random = matches!(place.policy, PolicyKind::Random | PolicyKind::RandomBlock);
    if place.seed.is_some() && !random {
        return Some((&["place", "seed"], "`seed` needs policy = \"random\" or \"random-block\"".into()));
    }
    if place.policy == PolicyKind::RandomBlock && !matches!(place.block, Some(Block::Size(_))) {
        return Some((&["place"], "random-block needs a block size such as block = \"2MiB\"".into()));
    }
    match (&place.map, place.policy == PolicyKind::Map) {
        (Some(_), false) => return Some((&["place", "map"], "`map` needs policy = \"map\"".into())),
        (map, true) => {
            if let Err(e) = PageMap::parse(map.as_deref().unwrap_or_default()) {
                return Some((if map.is_some() { &["place", "map"] } else { &["place"] }, e.to_string()));
            }
        }
        (None, false) => {}
    }
    if place.policy == PolicyKind::Preferred && place.nodes.as_deref().is_none_or(|n| n.trim().parse::<u32>().is_err())
    {
        let message = "`preferred` needs one node, such as nodes = \"0\"; for several write preferred-many".to_owned();
        return Some((if place.nodes.is_some() { &["place", "nodes"] } else { &["place"] }, message));
    }
    None
}

/// Byte offset of the offending value, or of the innermost table around it that exists.
fn offset_of(text: &str, fault: &Fault) -> usize {
    let Ok(root) = DeTable::parse(text) else { return 0 };
    let Some((array, index)) = fault.table else {
        return find(root.get_ref(), &fault.key).unwrap_or(0);
    };
    let tables = root.get_ref().get(array).and_then(|o| o.get_ref().as_array());
    let Some(table) = tables.and_then(|o| o.get(index)) else { return 0 };
    let inner = table.get_ref().as_table().and_then(|inner| find(inner, &fault.key));
    inner.unwrap_or(table.span().start)
}

fn find(table: &DeTable<'_>, key: &[String]) -> Option<usize> {
    let (first, rest) = key.split_first()?;
    let value = table.get(first.as_str())?;
    let inner = value.get_ref().as_table().and_then(|t| find(t, rest));
    Some(inner.unwrap_or(value.span().start))
}

fn located(text: &str, offset: usize, message: &str) -> PolicyError {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    // Messages of the `toml` crate may have several lines; a `PolicyError` has one.
    PolicyError { line, column, message: message.split('\n').map(str::trim).collect::<Vec<_>>().join("; ") }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
