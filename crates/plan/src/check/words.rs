//! What the `toml` crate says, in words for people who write a policy by hand.

/// Arrays of tables at the top of a policy.
const TABLES: [&str; 3] = ["object", "phase", "team"];
/// Single tables at the top of a policy.
const SINGLE: [&str; 3] = ["program", "machine", "threads"];

/// The message for what the crate found at the byte `offset` of `text`.
pub(super) fn plain(text: &str, offset: usize, message: &str) -> String {
    if text.trim().is_empty() {
        return "the file is empty, as an `advise` that fails leaves it; a policy begins with `version = 1`".to_owned();
    }
    let (before, behind) = text.split_at_checked(offset).unwrap_or((text, ""));
    let line = before.rsplit('\n').next().unwrap_or("").to_owned() + behind.lines().next().unwrap_or("");
    let header = line.trim().trim_start_matches('[').split([']', '.']).next().unwrap_or("").trim();
    let is_header = line.trim_start().starts_with('[') && TABLES.contains(&header);
    if is_header && (message.contains("duplicate key") || message.contains("expected a sequence")) {
        return format!("there may be several tables of this name; write [[{header}]]");
    }
    if line.trim_start().starts_with("[[") && SINGLE.contains(&header) {
        return format!("there is one table of this name; write [{header}]");
    }
    if message == "missing field `version`" {
        return "a policy begins with the version of its words, which is missing: version = 1".to_owned();
    }
    if message == "missing field `place`" {
        return "this object has no place: write place = { policy = \"interleave\" }".to_owned();
    }
    if message.contains("expected struct Place") {
        return "a place is a table: place = { policy = \"interleave\" }".to_owned();
    }
    let key = line.split('=').next().unwrap_or("").trim();
    if message == "duplicate key" && !key.is_empty() && !line.trim_start().starts_with('[') {
        return format!("{key} is given twice in this table; begin another one with its header, such as [[object]]");
    }
    let value = behind.split([',', '}', '\n', '#']).next().unwrap_or("").trim();
    let is_word = value.starts_with(|c: char| c.is_ascii_alphabetic()) && !value.contains(['"', '\'', '=']);
    let unquoted = message.starts_with("invalid") || message.contains("must be quoted");
    if is_word && unquoted || message.contains("missing value") {
        let value = if value.is_empty() { "interleave" } else { value };
        return format!("words need quotes: \"{value}\"");
    }
    message.to_owned()
}
