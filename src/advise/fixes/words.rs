//! An object in a sentence.

use crate::profile::records::ObjectKind;
use crate::profile::summary::Entry;

/// A variable by its name, and what a call site allocates in words: the name of such an object is that of the place, as
/// in `the block that main grid.c:72 allocates`.
pub(super) fn in_words(entry: &Entry) -> String {
    let name = &entry.name;
    let is_allocated = matches!(entry.kind, ObjectKind::Heap | ObjectKind::SmallHeap | ObjectKind::Mapping);
    // Of a part the name says which.
    if !is_allocated || entry.site.is_none() || entry.part.is_some() || entry.numbers.is_some() {
        return name.clone();
    }
    let (place, size) = match name.rsplit_once(" (").filter(|(_, size)| size.ends_with("B)")) {
        Some((place, size)) => (place, format!(" ({size}")),
        None => (name.as_str(), String::new()),
    };
    let blocks = if entry.instances == 1 { "block" } else { "blocks" };
    format!("the {blocks} that {place} allocates{size}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::tests::{entry, heap};

    #[test]
    fn a_call_site_is_no_object() {
        let named = |name: &str| heap(entry(name, 1 << 27, 1, 0, |_, _| 0), &[0x10]);
        assert_eq!(in_words(&named("main tri.c:11 (128MiB)")), "the block that main tri.c:11 allocates (128MiB)");
        assert_eq!(in_words(&named("main tri.c:11")), "the block that main tri.c:11 allocates");
        let many = Entry { instances: 320, ..named("grab pc.c:10") };
        assert_eq!(in_words(&many), "the blocks that grab pc.c:10 allocates");
        assert_eq!(in_words(&entry("grid", 1 << 27, 1, 0, |_, _| 0)), "grid");
    }
}
