//! Finding the object a person means.

use numamma_kernel::terminal::line;

use crate::profile::summary::{Entry, Summary};

/// Names listed when one is ambiguous or unknown: enough to choose from, few enough to read.
const MAX_NAMES: usize = 10;

/// Characters of a listed name: names come from files, and none may flood the terminal.
const MAX_WIDTH: usize = 100;

/// Finds the entry whose display or linkage name is `wanted`, or the only one that contains it.
///
/// # Errors
/// The message for the user: candidates of an ambiguous name, near names of an unknown one.
pub fn entry<'a>(summary: &'a Summary, wanted: &str) -> Result<&'a Entry, String> {
    let accessed = || summary.entries.iter().filter(|e| e.total.accesses() > 0 || !e.touches.is_empty());
    let lower = wanted.to_lowercase();
    let steps: [&dyn Fn(&Entry) -> bool; 3] = [
        &|e| e.name == wanted || (!e.linkage.is_empty() && e.linkage == wanted),
        &|e| !wanted.is_empty() && (e.name.contains(wanted) || e.linkage.contains(wanted)),
        &|e| !wanted.is_empty() && e.name.to_lowercase().contains(&lower),
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
    let mut near: Vec<&Entry> = accessed().filter(|e| e.placeable()).collect();
    near.sort_by_key(|e| (distance(&lower, &e.name.to_lowercase()), e.id));
    let wanted = line(wanted);
    Err(match near.is_empty() {
        true => format!("--object {wanted}: the profile holds no object with accesses; `numamma report` says why"),
        false => {
            format!("--object {wanted}: no object with that name was accessed; the nearest names are:{}", list(&near))
        }
    })
}

fn list(entries: &[&Entry]) -> String {
    let mut out: String =
        entries.iter().take(MAX_NAMES).map(|e| format!("\n{}", super::units::middle(&e.name, MAX_WIDTH))).collect();
    if entries.len() > MAX_NAMES {
        out.push_str(&format!("\nand {} more", entries.len() - MAX_NAMES));
    }
    out
}

/// Edit distance of `wanted` to the best matching part of `name`: users often type only a part of a name.
fn distance(wanted: &str, name: &str) -> usize {
    let name: Vec<char> = name.chars().collect();
    let mut row = vec![0; name.len() + 1];
    for (i, w) in wanted.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, n) in name.iter().enumerate() {
            let best = (diagonal + usize::from(w != *n)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row.into_iter().min().unwrap_or(usize::MAX)
}
