//! Cache lines that threads take from each other.

use super::fix::{Fix, FixKind, Gain, Place};
use super::places::place;
use super::words::in_words;
use crate::detect::{Shared, SharingKind, Side, sharing};
use crate::profile::summary::{Summary, ratio};

/// A fix for each object and kind of sharing.
pub(super) fn fixes(summary: &Summary) -> Vec<Fix> {
    let lines = sharing(summary);
    let is_true = |shared: &Shared| shared.kind == SharingKind::True;
    let mut out: Vec<Fix> = Vec::new();
    let mut done: Vec<(&str, bool)> = Vec::new();
    for shared in &lines {
        let key = (shared.object.as_str(), is_true(shared));
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        let same: Vec<&Shared> = lines.iter().filter(|s| (s.object.as_str(), is_true(s)) == key).collect();
        out.push(fix(summary, shared, &same));
    }
    out
}

/// `worst` is the line with most invalidations of `same`.
fn fix(summary: &Summary, worst: &Shared, same: &[&Shared]) -> Fix {
    let object = &worst.object;
    let kind = if worst.kind == SharingKind::True { FixKind::PerThread } else { FixKind::Pad };
    let all: u64 = same.iter().map(|s| s.invalidations).sum();
    let lines = if same.len() == 1 { "a cache line".to_owned() } else { format!("{} cache lines", same.len()) };
    let why = format!(
        "{} sharing: threads lose {lines} of it to writes of others {all} times, the worst {:.1} times per ms and thread \
         ({} writers, {} readers)",
        worst.kind.name(),
        worst.score,
        worst.writers,
        worst.readers,
    );
    let entry = summary.entries.iter().find(|e| e.name == *object);
    let share = entry.map_or(0.0, |entry| ratio(entry.total.cost_ns, summary.total().cost_ns));
    let accesses = entry.map_or(0, |entry| entry.total.accesses());
    Fix {
        kind,
        object: Some(object.clone()),
        share,
        what: what(worst, &entry.map_or_else(|| object.clone(), in_words)),
        why,
        saves: None,
        gain: Gain::unpriced(format!(
            "not known: the model has no price for lines that threads take from each other. A line is lost {:.1} times in 100 \
             of the {accesses} accesses to the object",
            100.0 * ratio(all, accesses)
        )),
        by_policy: false,
        is_hint: false,
        places: worst.sides.iter().filter_map(|side| side_place(summary, side)).collect(),
    }
}

fn what(shared: &Shared, object: &str) -> String {
    let at = |side: &Side| match side.field.as_str() {
        "" => format!("the word at byte {}", side.offset),
        field => format!("`{field}`"),
    };
    let places: Vec<String> = shared.sides.iter().map(at).collect();
    match (shared.kind, shared.padding) {
        (SharingKind::True, _) if shared.writers == 1 => format!(
            "write {} of {object} less often: one thread writes it, others read it, and padding does not help",
            places.first().map_or("the word", |place| place),
        ),
        (SharingKind::True, _) => format!(
            "let each thread add up in a variable of its own and join them at the end, or write {} of {object} less often: \
             all threads use this word, and padding does not help",
            places.first().map_or("it", |place| place),
        ),
        (kind, padding) => {
            let bytes = padding.map_or(String::new(), |bytes| format!(", {bytes} bytes of padding behind each part"));
            let rest = if kind == SharingKind::Mixed { "; what they share beyond that remains" } else { "" };
            format!(
                "give the parts of {object} that different threads use lines of their own: alignas(64) on each part{bytes} \
                 ({}){rest}",
                places.join(" and "),
            )
        }
    }
}

fn side_place(summary: &Summary, side: &Side) -> Option<Place> {
    let location = summary.symbols.get(&side.ip?)?.first()?;
    Some(place(if side.write { "write" } else { "read" }, location))
}
