//! Parts of objects in rules: which bytes a rule places, and which part it means.

use numamma_plan::policy::ObjectRule;
use numamma_plan::range::ByteRange;

use crate::profile::summary::{Entry, Part};

/// ELF address of the variable that an entry is, or is a part of.
pub(super) fn variable_address(entry: &Entry) -> u64 {
    entry.vaddr.wrapping_sub(entry.part.as_ref().map_or(0, |p| p.offset))
}

/// The bytes of a part; open where it ends with its variable.
pub(super) fn range_of(part: &Part, size: u64) -> ByteRange {
    let end = part.offset.saturating_add(size);
    ByteRange { low: part.offset, high: if end >= part.parent_size { u64::MAX } else { end } }
}

/// Bytes of the object that an entry is, or is a part of.
pub(super) fn object_size(entry: &Entry) -> u64 {
    entry.part.as_ref().map_or(entry.size, |p| p.parent_size)
}

/// The bytes of the object that an entry has.
pub(super) fn bytes_of(entry: &Entry) -> ByteRange {
    let low = entry.part.as_ref().map_or(0, |p| p.offset);
    ByteRange { low, high: low.saturating_add(entry.size) }
}

/// Whether both entries are parts of one object, or instances of one call site that their numbers tell apart.
pub(super) fn are_of_one(a: &Entry, b: &Entry) -> bool {
    if a.numbers.is_some() && b.numbers.is_some() {
        return a.kind == b.kind && a.site == b.site;
    }
    let parent = |e: &Entry| e.part.as_ref().map(|p| p.parent.clone());
    parent(a).is_some() && parent(a) == parent(b) && a.module == b.module && a.kind == b.kind && a.site == b.site
}

/// Whether the bytes that a rule places are most of an entry's: of the rules for one variable at most one holds most of
/// a part.
pub(super) fn holds_most(entry: &Entry, rule: &ObjectRule) -> bool {
    let Some(range) = rule.bytes() else { return true };
    let own = bytes_of(entry);
    let common = range.high.min(own.high).saturating_sub(range.low.max(own.low));
    2 * u128::from(common) > u128::from(entry.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_of_a_part_is_the_one_with_most_of_its_bytes() {
        let part = Part { parent: "g".into(), parent_size: 1000, member: "m".into(), offset: 100 };
        let entry = |offset, size| Entry {
            vaddr: 5000 + offset,
            size,
            part: Some(Part { offset, ..part.clone() }),
            ..Entry::default()
        };
        let (middle, end) = (entry(100, 200), entry(800, 200));
        assert_eq!((variable_address(&middle), variable_address(&end)), (5000, 5000));
        let ranges = [&middle, &end].map(|e| range_of(e.part.as_ref().unwrap(), e.size).to_string());
        assert_eq!(ranges, ["100-300", "800-"]);
        let holds = |range: Option<&str>| {
            holds_most(&middle, &ObjectRule { range: range.map(str::to_owned), ..ObjectRule::default() })
        };
        assert_eq!([None, Some("100-300"), Some("150-300"), Some("0-250")].map(holds), [true; 4]);
        assert_eq!([Some("0-100"), Some("0-200"), Some("200-"), Some("800-")].map(holds), [false; 4]);
    }
}
