//! Writes an advice as TOML (the policy file) and as JSON.

use numamma_kernel::terminal;
use numamma_plan::policy::{ObjectRule, Policy};
use serde::Serialize;
use serde_json::{Value, json};
use toml::ser::{Error, ValueSerializer};

use super::Advice;
use super::item::Item;
use super::toml_escapes::escaped;

/// What an advice says of one object.
pub trait Advised {
    /// Its rules, or a comment with the reason why it has none.
    ///
    /// # Errors
    /// When a value cannot be written as TOML (integers beyond 63 bits).
    fn toml(&self) -> Result<String, Error>;

    /// Its placement, or the reason why it has none, with what is known of the object.
    fn json(&self) -> Value;
}

/// The policy file. Objects that are not placed are comments among the rules.
///
/// # Errors
/// When a value cannot be written as TOML (integers beyond 63 bits).
pub fn toml<T: Advised>(advice: &Advice<T>) -> Result<String, Error> {
    let head = Policy { objects: Vec::new(), ..advice.policy.clone() };
    let mut out: String = advice.remarks.iter().map(|remark| comment(remark)).collect();
    if !out.is_empty() {
        out.push('\n');
    }
    out += &toml::to_string(&head)?;
    for item in &advice.items {
        out.push('\n');
        out += &item.toml()?;
    }
    Ok(escaped(&out))
}

/// The advice as JSON: the remarks, every object, and the policy.
pub fn json<T: Advised>(advice: &Advice<T>) -> Value {
    let objects: Vec<Value> = advice.items.iter().map(T::json).collect();
    json!({ "remarks": advice.remarks, "objects": objects, "policy": without_nulls(&advice.policy) })
}

impl Advised for Item {
    fn toml(&self) -> Result<String, Error> {
        if let Err(reason) = &self.rule {
            let kind = self.pattern.as_ref().map(|p| format!(", {}", p.kind.words())).unwrap_or_default();
            let text = comment(&format!("{:.1} % of the cost: {}{kind}: {reason}", 100.0 * self.share, self.name));
            return Ok(text + &self.toml_rules()?);
        }
        Ok(comment(&self.name) + &self.toml_rules()?)
    }

    fn json(&self) -> Value {
        let mut row = json!({
            "name": self.name,
            "share": self.share,
            "pattern": self.pattern,
            "place": self.rule.as_ref().ok().map(|r| without_nulls(&r.place)),
            "reason": self.rule.as_ref().err(),
        });
        if let Some(ranks) = self.rule.as_ref().ok().and_then(|rule| rule.ranks.as_ref()) {
            row["ranks"] = json!(ranks);
        }
        row
    }
}

impl Item {
    fn toml_rules(&self) -> Result<String, Error> {
        let rules = self.rules().map(object).collect::<Result<Vec<_>, _>>()?;
        Ok(rules.join("\n"))
    }
}

/// An `[[object]]` with inline tables, which keep a rule in few lines. The keys are in the order of the schema: JSON
/// objects keep it, while the tables of the crate `toml` are sorted.
pub(super) fn object(rule: &ObjectRule) -> Result<String, Error> {
    let fields = without_nulls(rule);
    let mut out = String::from("[[object]]\n");
    for (key, value) in fields.as_object().into_iter().flatten() {
        out += &format!("{key} = ");
        value.serialize(ValueSerializer::new(&mut out))?;
        out.push('\n');
    }
    Ok(out)
}

/// A part of a policy without the keys that have no value: TOML has no null.
pub(super) fn without_nulls(part: &impl Serialize) -> Value {
    fn remove(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|_, value| !value.is_null());
                fields.values_mut().for_each(remove);
            }
            Value::Array(items) => items.iter_mut().for_each(remove),
            _ => {}
        }
    }
    // The types of a policy can all be written as JSON.
    let mut value = serde_json::to_value(part).unwrap_or_default();
    remove(&mut value);
    value
}

/// One comment line: a line break in a program's name would end the comment.
pub(super) fn comment(text: &str) -> String {
    format!("# {}\n", terminal::line(text).trim_end())
}
