//! Checks of rules that place a part of an object.

use std::collections::BTreeMap;

use crate::policy::ObjectRule;
use crate::range::ByteRange;

/// A violated rule: the key, and the message.
type KeyFault = (&'static str, String);

pub(super) fn check_rule(rule: &ObjectRule) -> Result<(), KeyFault> {
    let refuse = |key, message: &str| Err((key, message.to_owned()));
    rule.range.as_deref().map(ByteRange::parse).transpose().map_err(|e| ("range", e.to_string()))?;
    if rule.member.is_some() && rule.global.is_none() {
        return refuse("member", "`member` belongs to `global`; write `range` for a part of an allocation");
    }
    if rule.member.is_some() && rule.range.is_none() {
        let message = "`member` needs `range`, the bytes of the member, such as range = \"40MiB-80MiB\": programs run \
                       without their debug information; `numamma report --object=NAME` shows them";
        return refuse("member", message);
    }
    if rule.range.is_some() && rule.global.as_deref().is_some_and(|name| name.starts_with('.')) {
        return refuse("range", "`range` is for variables and allocations; a section holds several variables");
    }
    if rule.range.is_some() && rule.global.is_none() && !rule.phases.is_empty() {
        return refuse("phases", "a part of an allocation (`range`) cannot have another place in a phase");
    }
    Ok(())
}

/// What selects the objects of a rule; rules for parts of the same objects must not overlap.
type Selected<'a> = (Option<&'a str>, Option<&'a str>, Option<u64>, Option<&'a [String]>, Option<&'a [String]>);
/// The rest of it.
type Filters<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn selected(rule: &ObjectRule) -> (Selected<'_>, Filters<'_>) {
    let site = rule.site();
    let of = (rule.global.as_deref(), rule.module.as_deref(), rule.address, site.callsite, site.function);
    (of, (site.line, rule.instances.as_deref(), rule.sizes.as_deref(), rule.ranks.as_deref()))
}

/// Refuses ranges of one object that overlap, and a rule for all of an object that has rules for parts. The fault is in
/// the rule with this index.
pub(super) fn check(rules: &[ObjectRule]) -> Result<(), (usize, KeyFault)> {
    let mut known: BTreeMap<_, Vec<(Option<ByteRange>, usize)>> = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        let range = rule.bytes();
        let others = known.entry(selected(rule)).or_default();
        for (other, before) in others.iter() {
            let message = match (range, other) {
                (Some(own), Some(other)) if own.overlaps(other) => format!(
                    "`{own}` overlaps `{other}` of the {} rule for the same object; a byte has one place",
                    ordinal(before + 1)
                ),
                (Some(_), None) | (None, Some(_)) => format!(
                    "the {} rule is for the same object, and one of the two has no `range`; write it for both",
                    ordinal(before + 1)
                ),
                _ => continue,
            };
            let key = if range.is_some() { "range" } else { "" };
            return Err((index, (key, message)));
        }
        others.push((range, index));
    }
    Ok(())
}

/// The rules with a `range` for the same allocations, one list for each call site, in the order of the file.
pub fn parts_of_allocations(rules: &[ObjectRule]) -> Vec<Vec<usize>> {
    let mut known: BTreeMap<_, usize> = BTreeMap::new();
    let mut all: Vec<Vec<usize>> = Vec::new();
    for (index, rule) in rules.iter().enumerate().filter(|(_, r)| r.global.is_none() && r.range.is_some()) {
        let at = *known.entry(selected(rule)).or_insert(all.len());
        match all.get_mut(at) {
            Some(list) => list.push(index),
            None => all.push(vec![index]),
        }
    }
    all
}

/// `1st`, `2nd`, `23rd`.
fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use crate::check::parse;

    fn faults(objects: &str) -> String {
        parse(&format!("version = 1\n{objects}")).map_or_else(|e| e.to_string(), |_| String::new())
    }

    fn rule(name: &str, rest: &str) -> String {
        format!("[[object]]\n{name}\n{rest}\nplace = {{ policy = \"interleave\" }}\n")
    }

    #[test]
    fn parts_of_one_object_do_not_overlap() {
        let of = |name: &str, ranges: &[&str]| -> String {
            ranges.iter().map(|r| rule(name, &format!("range = \"{r}\""))).collect()
        };
        let (global, site) = ("global = \"grid_\"", "function = [\"pool\"]");
        for name in [global, site] {
            assert_eq!(faults(&of(name, &["0-4MiB", "8MiB-", "4MiB-8MiB"])), "");
            let error = faults(&of(name, &["0-4MiB", "8MiB-", "4MiB-9MiB"]));
            assert!(error.starts_with("line 12, column 9: `4MiB-9MiB` overlaps `8MiB-` of the 2nd rule"), "{error}");
            let whole = of(name, &["0-4MiB"]) + &rule(name, "");
            assert!(faults(&whole).contains("the 1st rule is for the same object"), "{}", faults(&whole));
        }
        let others = of(global, &["0-4MiB"]) + &of(site, &["0-4MiB"]) + &rule("global = \"x\"", "");
        assert_eq!(faults(&others), "");
        let numbered = rule(site, "range = \"0-4MiB\"\ninstances = \"1\"");
        assert_eq!(faults(&(numbered + &rule(site, "range = \"0-2MiB\"\ninstances = \"2\""))), "");
    }

    #[test]
    fn a_member_needs_its_range() {
        let global = |rest: &str| faults(&rule("global = \"grid_\"", rest));
        assert_eq!(global("member = \"rsd\"\nrange = \"40MiB-80MiB\""), "");
        assert!(global("member = \"rsd\"").contains("`member` needs `range`"));
        assert!(global("range = \"80MiB-40MiB\"").contains("ascending"));
        assert!(global("range = \"80MiB\"").contains("is not a range of bytes"));
        assert!(faults(&rule("line = \"a.c:3\"", "member = \"x\"")).contains("`member` belongs to `global`"));
        let phased = "[[phase]]\nname = \"p\"\n".to_owned()
            + &rule("line = \"a.c:3\"", "range = \"4KiB-\"\nphases = { p = { policy = \"interleave\" } }");
        assert!(faults(&phased).contains("cannot have another place in a phase"), "{}", faults(&phased));
    }

    #[test]
    fn numbers_are_words() {
        let words = [1, 2, 3, 4, 11, 12, 13, 21, 22, 103, 111].map(super::ordinal).join(" ");
        assert_eq!(words, "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 103rd 111th");
    }
}
