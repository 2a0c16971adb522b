//! Writes the advice as TOML (the policy file), as JSON and as a short table for the terminal.

use numamma_plan::policy::{ObjectRule, Policy};
use serde::Serialize;

use super::{Advice, Item};

/// Order of the keys of an `[[object]]`, as in the documentation; inline tables keep a rule in few lines.
const KEYS: [&str; 14] = [
    "global",
    "module",
    "address",
    "callsite",
    "function",
    "line",
    "instances",
    "sizes",
    "ranks",
    "size",
    "pattern",
    "place",
    "phases",
    "why",
];
/// Order of the keys of its inline tables.
const INNER_KEYS: [&str; 10] =
    ["kind", "period", "confidence", "policy", "block", "nodes", "seed", "map", "huge", "mode"];

/// The policy file. Objects that are not placed are comments among the rules.
///
/// # Errors
/// When a value cannot be written as TOML (integers beyond 63 bits).
pub fn toml(advice: &Advice) -> Result<String, toml::ser::Error> {
    let head = Policy { objects: Vec::new(), ..advice.policy.clone() };
    let mut out = String::new();
    for remark in &advice.remarks {
        comment(&mut out, remark);
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out += &toml::to_string(&head)?;
    for item in &advice.items {
        out.push('\n');
        match &item.rule {
            Ok(rule) => {
                comment(&mut out, &item.name);
                out += &object(rule)?;
                for rule in &item.more {
                    out.push('\n');
                    out += &object(rule)?;
                }
            }
            Err(reason) => comment(&mut out, &format!("{}{}: {reason}", percent(item.share), titled(item))),
        }
    }
    Ok(out)
}

pub(super) fn object(rule: &ObjectRule) -> Result<String, toml::ser::Error> {
    let table = toml::Table::try_from(rule)?;
    let mut out = String::from("[[object]]\n");
    for key in KEYS {
        match table.get(key) {
            Some(toml::Value::Table(phases)) if key == "phases" => {
                let places =
                    phases.iter().filter_map(|(name, p)| Some(format!("{name} = {{ {} }}", inline(p.as_table()?))));
                out += &format!("{key} = {{ {} }}\n", places.collect::<Vec<_>>().join(", "));
            }
            Some(toml::Value::Table(inner)) => out += &format!("{key} = {{ {} }}\n", inline(inner)),
            Some(value) => out += &format!("{key} = {value}\n"),
            None => {}
        }
    }
    debug_assert!(table.keys().all(|k| KEYS.contains(&k.as_str())), "a key of the schema is not written");
    Ok(out)
}

fn inline(table: &toml::Table) -> String {
    debug_assert!(table.keys().all(|k| INNER_KEYS.contains(&k.as_str())), "a key of the schema is not written");
    let pairs = INNER_KEYS.iter().filter_map(|k| Some(format!("{k} = {}", table.get(*k)?)));
    pairs.collect::<Vec<_>>().join(", ")
}

fn titled(item: &Item) -> String {
    match &item.pattern {
        Some(pattern) => format!("{}, {}", item.name, pattern.kind),
        None => item.name.clone(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} % of the cost: ", 100.0 * share)
}

/// Appends one comment line. Control characters are replaced, because a line break in a program's name would end the
/// comment.
pub(super) fn comment(out: &mut String, text: &str) {
    let clean: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    out.push_str("# ");
    out.push_str(clean.trim_end());
    out.push('\n');
}

/// Any advice as JSON, whatever it says of each object.
#[derive(Serialize)]
pub(super) struct JsonAdvice<'a, T> {
    pub(super) remarks: &'a [String],
    pub(super) objects: Vec<T>,
    pub(super) policy: &'a Policy,
}

#[derive(Serialize)]
struct JsonItem<'a> {
    name: &'a str,
    share: f64,
    pattern: Option<&'a crate::detect::Pattern>,
    place: Option<&'a numamma_plan::policy::Place>,
    reason: Option<&'a str>,
}

/// The advice as JSON: every object with share, pattern and placement or reason, and the policy.
///
/// # Errors
/// As [`serde_json::to_string_pretty`].
pub fn json(advice: &Advice) -> serde_json::Result<String> {
    let objects = advice
        .items
        .iter()
        .map(|i| JsonItem {
            name: &i.name,
            share: i.share,
            pattern: i.pattern.as_ref(),
            place: i.rule.as_ref().ok().map(|r| &r.place),
            reason: i.rule.as_ref().err().map(String::as_str),
        })
        .collect();
    serde_json::to_string_pretty(&JsonAdvice { remarks: &advice.remarks, objects, policy: &advice.policy })
}

/// A line per object for the terminal: share, class, placement, name.
pub fn summary_lines(advice: &Advice) -> Vec<String> {
    let rows: Vec<[String; 4]> = advice
        .items
        .iter()
        .map(|i| {
            let kind = i.pattern.as_ref().map_or("-", |p| p.kind.as_str()).to_owned();
            let place = match (&i.rule, i.more.is_empty()) {
                (Ok(rule), true) => placement(rule),
                (Ok(rule), false) => format!("{} by number", rule.place.policy),
                (Err(_), _) => "not placed".to_owned(),
            };
            let name: String = i.name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
            [format!("{:5.1} %", 100.0 * i.share), kind, place, name]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
    let (kind, place) = (width(1), width(2));
    rows.iter().map(|r| format!("{}  {:kind$}  {:place$}  {}", r[0], r[1], r[2], r[3])).collect()
}

fn placement(rule: &ObjectRule) -> String {
    use numamma_plan::policy::Block;
    let block = match rule.place.block {
        Some(Block::Size(size)) => format!(" of {size}"),
        Some(Block::Auto(_)) => " of auto".into(),
        None => String::new(),
    };
    let nodes = rule.place.nodes.as_deref().filter(|n| *n != "all").map(|n| format!(" on {n}")).unwrap_or_default();
    format!("{}{block}{nodes}", rule.place.policy)
}
