//! Reports of the apply library, and JSON of the commands.

use std::path::Path;

use serde_json::Value;

/// The JSON of a file.
pub fn json_file(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The `objects` of a report.
pub fn objects(report: &Value) -> &[Value] {
    report["objects"].as_array().unwrap_or_else(|| panic!("no objects in {report}"))
}

/// The first object whose name contains `name`.
pub fn object<'a>(report: &'a Value, name: &str) -> &'a Value {
    let is_named = |o: &&Value| o["name"].as_str().is_some_and(|n| n.contains(name));
    objects(report).iter().find(is_named).unwrap_or_else(|| panic!("no object {name} in {report:#}"))
}

/// A whole number of an object.
pub fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("no {key} in {object}"))
}
