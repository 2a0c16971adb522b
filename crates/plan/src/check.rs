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
use crate::plan::PAGE;
use crate::policy::{Auto, Bind, Block, Mode, ObjectRule, POLICY_VERSION, Place, Policy, PolicyKind, Site, Size};
use crate::ranks::Ranks;
use crate::toml_subset;
use crate::unusable::Unusable;

mod parts;
mod phases;
mod teams;
mod words;
pub use parts::parts_of_allocations;
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
            located(text, offset, &words::plain(text, offset, e.message()))
        })?,
    };
    match check(&policy) {
        Ok(()) => Ok(policy),
        Err(fault) => Err(located(text, offset_of(text, &fault), &fault.message)),
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
    fn in_table(array: &'static str, index: usize, (key, message): KeyFault) -> Fault {
        Fault { table: Some((array, index)), key: keys(key), message }
    }
}

/// A violated rule: the path of keys, separated by dots, and the message.
type KeyFault = (&'static str, String);

fn keys(path: &str) -> Vec<String> {
    path.split('.').filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

fn refuse(key: &'static str, message: impl Into<String>) -> Result<(), KeyFault> {
    Err((key, message.into()))
}

/// Refuses the value of `key` when it could not be read.
fn readable<T>(key: &'static str, value: Option<Result<T, Unusable>>) -> Result<(), KeyFault> {
    value.transpose().map(drop).map_err(|e| (key, e.to_string()))
}

fn check(policy: &Policy) -> Result<(), Fault> {
    check_top(policy).map_err(|(key, message)| Fault { table: None, key: keys(key), message })?;
    for (index, rule) in policy.objects.iter().enumerate() {
        check_rule(rule).map_err(|fault| Fault::in_table("object", index, fault))?;
    }
    parts::check(&policy.objects).map_err(|(index, fault)| Fault::in_table("object", index, fault))?;
    phases::check(policy)
}

fn check_top(policy: &Policy) -> Result<(), KeyFault> {
    if policy.version != POLICY_VERSION {
        let message = format!("version {} is not known; this program reads version {POLICY_VERSION}", policy.version);
        return refuse("version", message);
    }
    teams::check(&policy.teams)?;
    let Some(threads) = &policy.threads else { return Ok(()) };
    if threads.count == Some(0) {
        let message =
            "`count` must be at least 1; write the number of threads, such as count = 8, or leave `count` out";
        return refuse("threads.count", message);
    }
    let Bind::Explicit(lists) = &threads.bind else { return Ok(()) };
    if lists.is_empty() {
        let message = "`bind` lists no CPUs; write one list for each thread, such as [\"0-3\", \"4-7\"]";
        return refuse("threads.bind", message);
    }
    readable("threads.bind", lists.iter().map(|list| cpus::check_syntax(list)).find(Result::is_err))
}

fn check_rule(rule: &ObjectRule) -> Result<(), KeyFault> {
    check_name(rule)?;
    check_selection(rule)?;
    parts::check_rule(rule)?;
    check_place(rule)?;
    readable("ranks", rule.ranks.as_deref().map(Ranks::parse))
}

fn check_name(rule: &ObjectRule) -> Result<(), KeyFault> {
    let by_site = rule.site().is_named();
    match &rule.global {
        Some(_) if by_site => {
            return refuse("global", "name the object by `global` or by `callsite`/`function`, not by both");
        }
        None if !by_site => {
            let message =
                "this object has no name: write global = \"...\", callsite = [...], function = [...] or line = \"...\"";
            return refuse("", message);
        }
        Some(name) if name.is_empty() => return refuse("global", "`global` is empty"),
        _ => {}
    }
    if by_site && rule.module.is_some() {
        return refuse("module", "`module` belongs to `global`; call-site frames name their module");
    }
    if by_site && rule.address.is_some() {
        return refuse("address", "`address` belongs to `global`");
    }
    check_site(rule.site())
}

/// Checks what names the call site of an object or a phase.
fn check_site(site: Site<'_>) -> Result<(), KeyFault> {
    if site.callsite.is_some_and(<[String]>::is_empty) {
        return refuse("callsite", "`callsite` is empty; write at least one frame such as \"app+0x1a2b\"");
    }
    let frames = site.callsite.unwrap_or_default();
    readable("callsite", frames.iter().map(|frame| frame.parse::<Frame>()).find(Result::is_err))?;
    if site.function.is_some_and(|list| list.iter().all(String::is_empty)) {
        return refuse("function", "`function` names no function");
    }
    readable("line", site.line.map(SourceLine::parse))
}

/// Checks the keys that select allocations of a call site.
fn check_selection(rule: &ObjectRule) -> Result<(), KeyFault> {
    for (key, value) in [("instances", &rule.instances), ("sizes", &rule.sizes)] {
        if rule.global.is_some() && value.is_some() {
            return refuse(key, format!("`{key}` is for allocations: a global exists once and has one size"));
        }
    }
    readable("instances", rule.instances.as_deref().map(Instances::parse))?;
    readable("sizes", rule.sizes.as_deref().map(Sizes::parse))
}

/// Rules that no allocation can match, each with the index of the earlier rule that matches all of them first: an
/// earlier rule of the same call site without `instances`, `sizes` and `ranks`. Not an error: a policy may be
/// assembled from parts.
pub fn shadowed(rules: &[ObjectRule]) -> Vec<(usize, usize)> {
    let mut first: BTreeMap<_, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (index, rule) in rules.iter().enumerate().filter(|(_, r)| r.global.is_none()) {
        match first.get(&rule.site()) {
            // Rules for several parts of an object take it together.
            Some(&before) if rule.range.is_none() || rules.get(before).is_none_or(|r| r.range.is_none()) => {
                found.push((index, before));
            }
            None if rule.instances.is_none() && rule.sizes.is_none() && rule.ranks.is_none() => {
                first.insert(rule.site(), index);
            }
            Some(_) | None => {}
        }
    }
    found
}

fn check_place(rule: &ObjectRule) -> Result<(), KeyFault> {
    let place = &rule.place;
    if place.block.is_some() && !place.policy.takes_block() {
        let message =
            "`block` needs policy = \"block\", \"block-cyclic\", \"random-block\", \"skew\", \"prime\" or \"map\"";
        return refuse("place.block", message);
    }
    if place.mode == Some(Mode::Populate) && !place.policy.by_blocks() {
        let message = format!(
            "mode = \"populate\" saves the mapping of each block of a block distribution; `{}` needs only one mapping",
            place.policy
        );
        return refuse("place.mode", message);
    }
    check_keys_of_policy(place)?;
    if let Some(Block::Size(Size(bytes))) = place.block
        && bytes < PAGE
    {
        let message =
            format!("a block cannot be smaller than a page, as {bytes} bytes are; write block = \"2MiB\", or \"auto\"");
        return refuse("place.block", message);
    }
    let period = rule.pattern.as_ref().and_then(|p| p.period);
    if period == Some(Size(0)) {
        let message = "a period cannot have 0 bytes; write a size such as period = \"160MiB\", or leave it out";
        return refuse("pattern.period", message);
    }
    let auto = matches!(place.block, None | Some(Block::Auto(Auto::Auto)));
    if place.policy == PolicyKind::BlockCyclic && auto && period.is_none() {
        return refuse("place", "block-cyclic needs block = \"20MiB\", or pattern.period for block = \"auto\"");
    }
    if place.policy == PolicyKind::Local && rule.global.is_some() {
        let message = "`local` is for allocations: a global exists once and has no allocating thread";
        return refuse("place.policy", message);
    }
    readable("place.nodes", place.nodes.as_deref().map(nodes::check_syntax))
}

/// Checks the keys that only one kind of policy allows or requires.
fn check_keys_of_policy(place: &Place) -> Result<(), KeyFault> {
    let random = matches!(place.policy, PolicyKind::Random | PolicyKind::RandomBlock);
    if place.seed.is_some() && !random {
        return refuse("place.seed", "`seed` needs policy = \"random\" or \"random-block\"");
    }
    if place.policy == PolicyKind::RandomBlock && !matches!(place.block, Some(Block::Size(_))) {
        return refuse("place", "random-block needs a block size such as block = \"2MiB\"");
    }
    let map = place.map.as_deref();
    if place.policy == PolicyKind::Map {
        let key = if map.is_some() { "place.map" } else { "place" };
        readable(key, Some(PageMap::parse(map.unwrap_or_default())))?;
        if matches!(place.block, Some(Block::Auto(_))) {
            return refuse("place.block", "the runs of a map count blocks of a size; write block = \"640KiB\"");
        }
    } else if map.is_some() {
        return refuse("place.map", "`map` needs policy = \"map\"");
    }
    if place.strict.is_some() && place.policy != PolicyKind::Bind {
        return refuse("place.strict", "`strict` needs policy = \"bind\": every other policy is a preference");
    }
    let nodes = place.nodes.as_deref();
    if place.policy == PolicyKind::Preferred && nodes.is_none_or(|n| n.trim().parse::<u32>().is_err()) {
        let message = "`preferred` needs one node, such as nodes = \"0\"; for several write preferred-many";
        return refuse(if nodes.is_some() { "place.nodes" } else { "place" }, message);
    }
    Ok(())
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
