//! Which objects a report shows and an advice places, by patterns of their names.
//!
//! A recording keeps everything: what an object costs is a share of the whole, another choice needs no other run, and
//! the names of call sites are known only when the debug information has been read.

use super::{Entry, Summary, base_name};

/// What to show: all objects that one of the patterns to include matches, or all if there is none, without those that
/// one to exclude matches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    include: Vec<String>,
    exclude: Vec<String>,
}

impl Selection {
    /// From patterns with `*` for any characters and `?` for one.
    pub fn new(include: &[String], exclude: &[String]) -> Selection {
        Selection { include: include.to_vec(), exclude: exclude.to_vec() }
    }

    /// Marks the entries that are left out. Returns the patterns that match no object that was accessed.
    pub fn apply(&self, summary: &mut Summary) -> Vec<String> {
        let patterns: Vec<&String> = self.include.iter().chain(&self.exclude).collect();
        let mut used = vec![false; patterns.len()];
        let mut left_out = Vec::with_capacity(summary.entries.len());
        for entry in &summary.entries {
            let names = names(summary, entry);
            let matched: Vec<bool> = patterns.iter().map(|p| names.iter().any(|name| matches(p, name))).collect();
            let (included, excluded) = matched.split_at(self.include.len());
            left_out.push(!(included.is_empty() || included.contains(&true)) || excluded.contains(&true));
            if entry.total.accesses() > 0 {
                used.iter_mut().zip(&matched).for_each(|(used, matched)| *used |= matched);
            }
        }
        for (entry, left_out) in summary.entries.iter_mut().zip(left_out) {
            entry.details.left_out = left_out;
        }
        patterns.into_iter().zip(used).filter(|(_, used)| !used).map(|(pattern, _)| pattern.clone()).collect()
    }
}

/// Everything that an object is called by: its names and those of the variable it is a part of, the functions and
/// source files of its call stack, its library, the file it maps.
fn names(summary: &Summary, entry: &Entry) -> Vec<String> {
    let mut names = vec![entry.name.clone(), entry.linkage.clone()];
    if let Some(part) = &entry.part {
        names.extend([part.parent.clone(), part.member.clone()]);
    }
    let module = entry.module.and_then(|id| summary.modules.get(id as usize));
    let mut files: Vec<&str> =
        module.map(|m| m.path.as_str()).into_iter().chain(entry.details.backing.as_deref()).collect();
    let steps = entry.site.as_ref().map_or(Vec::new(), |site| summary.steps(site).0);
    for step in &steps {
        names.extend(step.function().into_iter().chain(step.symbol()).map(str::to_owned));
        files.extend(step.location.and_then(|location| location.file.as_deref()));
    }
    names.extend(files.into_iter().flat_map(|file| [file.to_owned(), base_name(file).to_owned()]));
    // Functions are also called by their names without parameters.
    let bare = names.iter().filter_map(|name| Some(name.split_once('(')?.0.to_owned())).collect::<Vec<_>>();
    names.extend(bare);
    names.retain(|name| !name.is_empty());
    names
}

/// Whether a whole name matches a pattern. After a mismatch the last `*` takes one more character.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, n) = (at + 1, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name) in [
            ("grid", "grid"),
            ("gr*", "grid_"),
            ("*.c", "solver.c"),
            ("g??d*", "grid"),
            ("*a*b*", "xxaxxbxx"),
            ("*aab", "aaaab"),
            ("**", ""),
            ("main [0..1]", "main [0..1]"),
            ("*é?", "caféx"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("grid", "grid_"), ("rid", "grid"), ("g?", "g"), ("*.c", "solver.cc"), ("", "a"), ("a*b", "ac")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
        // Linear steps back, not exponential.
        assert!(!matches(&"*a".repeat(40), &"a".repeat(2000).replace('a', "ab")));
    }
}
