//! Cache lines that threads take from each other.

use super::fix::{Fix, FixKind, Gain, Place};
use super::places::place;
use super::words::in_words;
use crate::detect::{InTurn, Roles, Shared, SharingKind, Side, in_turn, sharing};
use crate::profile::summary::{Summary, ratio};

/// The threads of a run that does not tell whether they share lines, where no fix of `list` says that they do: what is
/// not found may be there.
pub(super) fn unjudged(summary: &Summary, roles: &Roles, list: &[Fix]) -> Option<InTurn> {
    let is_shared = |fix: &Fix| matches!(fix.kind, FixKind::Pad | FixKind::PerThread);
    in_turn(summary, roles).filter(|_| !list.iter().any(is_shared))
}

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
    let others = others(worst);
    let (it, the_object) = if others.is_empty() { ("it", "the object") } else { ("them", "the objects") };
    let why = format!(
        "{} sharing: threads lose {lines} of {it} to writes of others {all} times, the worst {:.1} times per ms and thread \
         ({} writers, {} readers)",
        worst.kind.name(),
        worst.score,
        worst.writers,
        worst.readers,
    );
    let mut places: Vec<Place> = worst.sides.iter().filter_map(|side| side_place(summary, side)).collect();
    // Both sides may be one instruction of different threads.
    places.dedup();
    let named = |name: &str| summary.entries.iter().find(|e| e.name == name);
    let entry = named(object);
    let entries = || entry.into_iter().chain(others.iter().filter_map(|other| named(other)));
    let share = entries().map(|entry| ratio(entry.total.cost_ns, summary.total().cost_ns)).sum();
    let accesses = entries().map(|entry| entry.total.accesses()).sum();
    Fix {
        kind,
        object: Some(object.clone()),
        share,
        what: what(worst, &entry.map_or_else(|| object.clone(), in_words), Aligned::of(&places)),
        why,
        saves: None,
        gain: Gain::unpriced(format!(
            "not known: the model has no price for lines that threads take from each other. A line is lost {:.1} times in 100 \
             of the {accesses} accesses to {the_object}",
            100.0 * ratio(all, accesses)
        )),
        by_policy: false,
        is_hint: false,
        places,
    }
}

/// Other objects that have words of the line.
fn others(shared: &Shared) -> Vec<&str> {
    let mut names: Vec<&str> = shared.sides.iter().filter_map(|side| side.object.as_deref()).collect();
    names.dedup();
    names
}

fn what(shared: &Shared, object: &str, aligned: Aligned) -> String {
    let others = others(shared);
    if !others.is_empty() && shared.kind != SharingKind::True {
        let rest = if shared.kind == SharingKind::Mixed { "; what threads share of each remains" } else { "" };
        return format!(
            "give {object} and {} lines of their own, {} on each: they lie in one line by chance{rest}",
            others.join(" and "),
            aligned.words()
        );
    }
    let fields: Vec<&str> = shared.sides.iter().map(|side| side.field.as_str()).collect();
    let is_same = fields.windows(2).all(|pair| pair[0] == pair[1]) && shared.kind != SharingKind::True;
    let of_line = if shared.offset.is_none() { " of a line" } else { "" };
    let at = |side: &Side| match side.field.as_str() {
        // Names of this form are those of a library (C++20, 5.10).
        "" => format!("the word at byte {}{of_line}", side.offset),
        field if is_reserved(field) => format!("the word at byte {}{of_line}", side.offset),
        field if is_same => format!("`{field}` at byte {}{of_line}", side.offset),
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
            let bytes = padding.map_or(String::new(), |bytes| {
                format!(", or {bytes} bytes of padding between them with the first one at a multiple of 64 bytes")
            });
            let rest = if kind == SharingKind::Mixed { "; what they share beyond that remains" } else { "" };
            format!(
                "give the parts of {object} that different threads use lines of their own: {} on each part{bytes} \
                 ({}){rest}",
                aligned.words(),
                places.join(" and "),
            )
        }
    }
}

/// Whether the last part of a member's name is one that only libraries may use: `_M_i` of std::atomic.
fn is_reserved(field: &str) -> bool {
    let last = field.rsplit('.').next().unwrap_or(field);
    last.starts_with("__")
        || last.strip_prefix('_').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// How the language of a source aligns data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aligned {
    /// C and C++, and what is not known.
    Alignas,
    Fortran,
    Rust,
}

impl Aligned {
    /// By the names of the files.
    pub fn of(places: &[Place]) -> Aligned {
        let endings =
            || places.iter().filter_map(|place| Some(place.file.as_deref()?.rsplit_once('.')?.1.to_lowercase()));
        let is = |known: &[&str]| endings().any(|ending| known.contains(&ending.as_str()));
        if is(&["f", "for", "ftn", "f77", "f90", "f95", "f03", "f08", "f18"]) {
            Aligned::Fortran
        } else if is(&["rs"]) {
            Aligned::Rust
        } else {
            Aligned::Alignas
        }
    }

    /// What to write.
    pub fn words(self) -> &'static str {
        match self {
            Aligned::Alignas => "alignas(64)",
            Aligned::Rust => "a type with #[repr(align(64))]",
            Aligned::Fortran => {
                "a first dimension of 64 bytes, as (8, threads) of real(8), or components that fill 64 bytes,"
            }
        }
    }
}

fn side_place(summary: &Summary, side: &Side) -> Option<Place> {
    let location = summary.symbols.get(&side.ip?)?.first()?;
    Some(place(if side.write { "write" } else { "read" }, location))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(fields: [&str; 2], other: Option<&str>) -> Shared {
        let side = |field: &str, offset, object: Option<&str>| Side {
            object: object.map(str::to_owned),
            offset,
            field: field.into(),
            write: true,
            ip: None,
        };
        Shared {
            object: "x".into(),
            offset: Some(0),
            kind: SharingKind::False,
            invalidations: 1000,
            same_word: 0,
            score: 2.0,
            readers: 2,
            writers: 2,
            sides: vec![side(fields[0], 16, None), side(fields[1], 0, other)],
            padding: other.is_none().then_some(48),
        }
    }

    #[test]
    fn languages_align_in_their_own_words() {
        let of = |file: &str| {
            Aligned::of(&[Place { role: "write", function: "f".into(), file: Some(file.into()), line: None }])
        };
        assert_eq!([of("/src/a.F90"), of("lib.rs"), of("a.cpp")], [Aligned::Fortran, Aligned::Rust, Aligned::Alignas]);
        let words = what(&shared(["n", "n"], None), "x", Aligned::Fortran);
        assert!(words.contains("a first dimension of 64 bytes") && !words.contains("alignas"), "{words}");
        let atomic = super::what(&shared(["_M_i", "n._M_i"], None), "x", Aligned::Alignas);
        assert!(atomic.ends_with("(the word at byte 16 and the word at byte 0)"), "{atomic}");
    }

    #[test]
    fn the_words_say_which_parts_and_how() {
        let what = |shared: &Shared, object: &str| what(shared, object, Aligned::Alignas);
        let of_two = what(&shared(["hot", "lock"], None), "x");
        assert!(
            of_two.contains("or 48 bytes of padding between them with the first one at a multiple of 64"),
            "{of_two}"
        );
        assert!(of_two.ends_with("(`hot` and `lock`)"), "{of_two}");
        let same = what(&shared(["n", "n"], None), "x");
        assert!(same.ends_with("(`n` at byte 16 and `n` at byte 0)"), "{same}");
        let unnamed = what(&Shared { offset: None, padding: None, ..shared(["", ""], None) }, "x");
        assert!(
            unnamed
                .ends_with("alignas(64) on each part (the word at byte 16 of a line and the word at byte 0 of a line)"),
            "{unnamed}"
        );
        let objects = what(&shared(["", ""], Some("y")), "x");
        assert_eq!(objects, "give x and y lines of their own, alignas(64) on each: they lie in one line by chance");
        let flag = Shared { kind: SharingKind::True, writers: 1, ..shared(["stop", "stop"], None) };
        assert!(what(&flag, "x").starts_with("write `stop` of x less often: one thread writes it"));
    }
}
