//! The list of `numamma fixes` as text, and as SARIF for tools of code review.

use serde_json::{Value, json};

use super::prediction;
use super::units::{printable, wrap};
use crate::advise::fixes::{Fix, FixKind, Gain, Place};

/// The format of static analysis results that GitHub, GitLab and editors read (OASIS SARIF 2.1.0).
const SARIF: &str = "2.1.0";
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// All fixes in lines of at most `columns` characters; gains are those on `machine`. `together` is the gain of all
/// placements where they pay only together.
pub fn text(fixes: &[Fix], together: Option<&Gain>, machine: &str, columns: usize) -> String {
    if fixes.is_empty() {
        return format!("Nothing to change was found in this profile, for {}.\n", printable(machine));
    }
    let mut out = format!("What to change in the source, with gains predicted for {}\n", printable(machine));
    for (number, fix) in fixes.iter().enumerate() {
        let mut title = vec![fix.kind.id().to_owned()];
        title.extend(fix.object.as_deref().map(printable));
        if fix.share > 0.0 {
            title.push(format!("{:.1} % of the cost", 100.0 * fix.share));
        }
        title.extend(fix.by_policy.then(|| "done by the policy, too".to_owned()));
        title.extend(fix.is_hint.then(|| "a hint".to_owned()));
        out.push_str(&format!("{}. {}\n", number + 1, title.join(", ")));
        for (word, text) in [("what", &fix.what), ("why", &fix.why), ("gain", &gain(&fix.gain, machine))] {
            let lines = wrap(&printable(text), columns.saturating_sub(INDENT));
            for (i, line) in lines.iter().enumerate() {
                out.push_str(&format!("   {:5}{line}\n", if i == 0 { word } else { "" }));
            }
        }
        for place in &fix.places {
            out.push_str(&format!("   at   {}\n", printable(&self::place(place))));
        }
    }
    if let Some(all) = together {
        let words = format!("The placements of this list pay only together: for all of them {}", gain(all, machine));
        wrap(&printable(&words), columns).iter().for_each(|line| out.push_str(&format!("{line}\n")));
    }
    out
}

/// A paragraph behind the list.
pub fn remark(words: &str, columns: usize) -> String {
    wrap(&printable(words), columns).iter().map(|line| format!("{line}\n")).collect()
}

/// `expected 1.08x (1.05 to 1.12) on numa:2 core:4`, or what is known instead.
pub fn gain(gain: &Gain, machine: &str) -> String {
    match gain.speedup {
        Some(speedup) => format!("expected {} on {machine}", prediction::range(speedup, gain.low, gain.high)),
        None => gain.note.clone(),
    }
}

/// Columns before the text of a fix.
const INDENT: usize = 8;

/// `use: solve, grid.c:120`.
pub fn place(place: &Place) -> String {
    let at = match (&place.file, place.line) {
        (Some(file), Some(line)) => format!(", {file}:{line}"),
        (Some(file), None) => format!(", {file}"),
        _ => String::new(),
    };
    format!("{}: {}{at}", place.role, if place.function.is_empty() { "?" } else { &place.function })
}

/// A log with one run; gains are those on `machine`. A fix without a source line is located in the `program`: readers
/// leave out results without a location.
pub fn sarif(fixes: &[Fix], machine: &str, program: &str) -> Value {
    let rules: Vec<Value> = FixKind::ALL
        .iter()
        .map(|kind| json!({ "id": kind.id(), "shortDescription": { "text": kind.about() } }))
        .collect();
    json!({
        "$schema": SCHEMA,
        "version": SARIF,
        "runs": [{
            "tool": { "driver": { "name": "NumaMMA", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "results": fixes.iter().map(|fix| result(fix, machine, program)).collect::<Vec<_>>(),
        }],
    })
}

fn result(fix: &Fix, machine: &str, program: &str) -> Value {
    let mut located = fix.places.iter().filter_map(|place| Some((place, location(place)?)));
    let of_program = || json!({ "physicalLocation": { "artifactLocation": { "uri": uri(program) } } });
    let first = located.next().map_or_else(of_program, |(_, at)| at);
    let others = located.map(|(place, mut at)| {
        at["message"] = json!({ "text": self::place(place) });
        at
    });
    json!({
        "ruleId": fix.kind.id(),
        "ruleIndex": FixKind::ALL.iter().position(|kind| *kind == fix.kind),
        "level": if fix.is_hint || fix.by_policy { "note" } else { "warning" },
        "message": { "text": format!("{}. {}. Gain: {}", fix.what, fix.why, gain(&fix.gain, machine)) },
        "locations": [first],
        "relatedLocations": others.collect::<Vec<_>>(),
        "properties": { "gain": fix.gain, "target": machine, "byPolicy": fix.by_policy, "isHint": fix.is_hint },
    })
}

fn location(place: &Place) -> Option<Value> {
    let region = json!({ "startLine": place.line.filter(|line| *line > 0)? });
    let uri = uri(place.file.as_deref()?);
    Some(json!({ "physicalLocation": { "artifactLocation": { "uri": uri }, "region": region } }))
}

/// A file name as a URI reference (RFC 3986).
fn uri(file: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
    let text: String =
        file.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect();
    if text.starts_with('/') { format!("file://{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_uris() {
        assert_eq!(uri("/src/a b.c"), "file:///src/a%20b.c");
        assert_eq!(uri("lu/ssor.f90"), "lu/ssor.f90");
    }
}
