//! What messages and reports call the object of a rule.

use std::borrow::Cow;

use super::function::without_mark;
use super::wrapper;
use crate::policy::ObjectRule;

impl ObjectRule {
    /// The name of the object in messages and reports: the one that the rule gives, or the global, or the innermost
    /// function that is no wrapper around the allocator, or the innermost function or frame, or the line.
    pub fn name(&self) -> &str {
        if let Some(name) = self.name.as_ref().or(self.global.as_ref()) {
            return name;
        }
        let functions =
            || self.function.iter().flatten().map(|name| without_mark(name)).filter(|name| !name.is_empty());
        let several = functions().nth(1).is_some();
        functions()
            .find(|name| !several || wrapper::of_written(name).is_none())
            .or_else(|| functions().next())
            .or_else(|| self.callsite.as_ref()?.first().map(String::as_str))
            .or(self.line.as_deref())
            .unwrap_or("?")
    }

    /// [`ObjectRule::name`] with the keys that distinguish rules of one object: `make_grid, instances 1-4`.
    pub fn title(&self) -> Cow<'_, str> {
        // The name that a rule gives is that of the part.
        let range = if self.name.is_none() { &self.range } else { &None };
        let filters = [("instances", &self.instances), ("sizes", &self.sizes), ("range", range)];
        filters.into_iter().fold(Cow::Borrowed(self.name()), |title, (word, filter)| match filter {
            Some(filter) => Cow::Owned(format!("{title}, {word} {}", abridged(filter))),
            None => title,
        })
    }
}

/// Parts of a list that are shown in words.
const SHOWN: usize = 8;

/// The list with its first parts only, if it has many: `1,5,9,... (256 parts)`.
pub fn abridged(list: &str) -> Cow<'_, str> {
    match (list.split(',').count(), list.match_indices(',').nth(SHOWN - 1)) {
        (count, Some((end, _))) if count > 2 * SHOWN => Cow::Owned(format!("{},... ({count} parts)", &list[..end])),
        _ => Cow::Borrowed(list),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_abridged() {
        let list = |n: u32| (0..n).map(|i| (4 * i + 1).to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(abridged("1-4,7"), "1-4,7");
        assert_eq!(abridged(&list(16)), list(16));
        assert_eq!(abridged(&list(256)), "1,5,9,13,17,21,25,29,... (256 parts)");
    }

    #[test]
    fn a_rule_is_called_by_its_first_function_that_is_no_wrapper() {
        let name = |functions: &[&str]| {
            let function = Some(functions.iter().map(|&f| f.to_owned()).collect());
            ObjectRule { function, callsite: Some(vec!["app+0x1".into()]), ..ObjectRule::default() }.name().to_owned()
        };
        assert_eq!(
            name(&["operator new[](unsigned long)", "std::f()", "solver::grid(unsigned long)"]),
            "solver::grid(unsigned long)"
        );
        assert_eq!(name(&["_Znwm", "xmalloc", "", "table", "main"]), "table");
        assert_eq!(
            (name(&["", "xmalloc"]), name(&["_Znwm"]), name(&[""])),
            ("xmalloc".into(), "_Znwm".into(), "app+0x1".into())
        );
    }
}
