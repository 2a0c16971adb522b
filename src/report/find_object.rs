//! Finding the object a person means.

use numamma_kernel::terminal::line;

use crate::profile::summary::{Entry, Summary};

/// Names listed when one is ambiguous or unknown: enough to choose from, few enough to read.
const MAX_NAMES: usize = 10;

/// Characters of a listed name: names come from files, and none may flood the terminal.
const MAX_WIDTH: usize = 100;

/// Similarity (Jaro-Winkler) from which a name may have been meant; the command line suggests options from 0.7 on.
const NEAR: f64 = 0.8;

/// Finds the entry whose display or linkage name is `wanted`, or the only one that contains it; or by its number, `#3`.
///
/// # Errors
/// The message for the user: candidates of an ambiguous name, near names of an unknown one.
pub fn entry<'a>(summary: &'a Summary, wanted: &str) -> Result<&'a Entry, String> {
    let accessed = || summary.entries.iter().filter(|e| e.total.accesses() > 0 || !e.touches.is_empty());
    let number = wanted.strip_prefix('#').and_then(|number| number.parse::<u32>().ok());
    if let Some(entry) = accessed().find(|e| number == Some(e.id)) {
        return Ok(entry);
    }
    if let Some(number) = number {
        let last = accessed().map(|e| e.id).max();
        let known = last.map_or("there is none".to_owned(), |last| format!("they go from #0 to #{last}"));
        return Err(format!("--object #{number}: no object with that number was accessed; {known}"));
    }
    // Tables cut long names in the middle.
    let (head, tail) = wanted.split_once("..").unwrap_or((wanted, "\0"));
    let lower = wanted.to_lowercase();
    let steps: [&dyn Fn(&Entry) -> bool; 4] = [
        &|e| e.name == wanted || (!e.linkage.is_empty() && e.linkage == wanted),
        &|e| !wanted.is_empty() && (e.name.contains(wanted) || e.linkage.contains(wanted)),
        &|e| !wanted.is_empty() && e.name.to_lowercase().contains(&lower),
        &|e| e.name.len() >= head.len() + tail.len() && e.name.starts_with(head) && e.name.ends_with(tail),
    ];
    for matches in steps {
        let found: Vec<&Entry> = accessed().filter(|e| matches(e)).collect();
        match found[..] {
            [] => {}
            [only] => return Ok(only),
            // The same variable name in several modules, or the large and small objects of one call site.
            [first, ..] if found.iter().all(|e| e.name == first.name) => return Ok(first),
            _ => {
                return Err(format!(
                    "--object {}: several objects have that in their name:{}",
                    line(wanted),
                    list(&found)
                ));
            }
        }
    }
    let wanted = line(wanted);
    let hot: Vec<&Entry> = accessed().filter(|e| e.placeable()).collect();
    if hot.is_empty() {
        return Err(format!("--object {wanted}: the profile holds no object with accesses; `numamma report` says why"));
    }
    let mut near: Vec<(f64, &Entry)> = hot.iter().map(|e| (similarity(&lower, &e.name.to_lowercase()), *e)).collect();
    near.retain(|(similarity, _)| *similarity >= NEAR);
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.id.cmp(&b.1.id)));
    let near: Vec<&Entry> = near.into_iter().map(|(_, e)| e).collect();
    let none = format!("--object {wanted}: no object with that name was accessed");
    Err(match near.is_empty() {
        true => format!("{none}; the hottest are:{}", list(&hottest(hot))),
        false => format!("{none}; did you mean:{}", list(&near)),
    })
}

/// Those of `hot` that samples were attributed to, for what was only touched, such as the sections of all libraries, is
/// not hot; all where there are none.
fn hottest(hot: Vec<&Entry>) -> Vec<&Entry> {
    let accessed: Vec<&Entry> = hot.iter().filter(|e| e.total.accesses() > 0).copied().collect();
    if accessed.is_empty() { hot } else { accessed }
}

fn list(entries: &[&Entry]) -> String {
    let mut out: String = entries
        .iter()
        .take(MAX_NAMES)
        .map(|e| format!("\n#{} {}", e.id, super::units::middle(&e.name, MAX_WIDTH)))
        .collect();
    if entries.len() > MAX_NAMES {
        out.push_str(&format!("\nand {} more", entries.len() - MAX_NAMES));
    }
    out
}

/// How much `wanted` is like a name, or like a word of it: users often type only a part.
fn similarity(wanted: &str, name: &str) -> f64 {
    let words = name.split(|c: char| !c.is_alphanumeric() && c != '_').chain([name]);
    words.map(|word| strsim::jaro_winkler(wanted, word)).fold(0.0, f64::max)
}
