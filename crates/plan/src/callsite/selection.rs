//! Selection among the allocations of a call site: the values of `sizes` and `instances` in a rule.
//!
//! `sizes = "1MiB-64MiB"` is one range of bytes with both ends included, `instances = "1-4,7"` a list of numbers,
//! counted from 1 among the allocations that match the rest of the rule; `instances = "1-2/8"` are the first two of every
//! eight. `hold` is called for every matched allocation and does not allocate.

use crate::policy::Size;
use crate::unusable::Unusable;

/// What a range of sizes is.
const SIZES: &str = "a range of sizes; write \"1MiB-64MiB\", \"4KiB-\", \"-2MiB\" or one size such as \"640KiB\"";
/// What the ends of a range of sizes are.
const ASCENDING_SIZES: &str = "an ascending range of sizes; write the smaller size first";
/// What a list of instances is.
const INSTANCES: &str = "a list of instances; write numbers from 1 and ranges such as \"3\", \"1-4,7\", \"5-\" or, of every eight, \"1-2/8\"";
/// What each part of a list of instances is.
const ASCENDING: &str = "greater than the numbers before it; write the list in ascending order";

/// What each part of a list of instances that repeats is.
const WITHIN: &str = "among the first of those that repeat; write numbers up to the one after the stroke";

/// Sizes in bytes, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sizes {
    low: u64,
    high: u64,
}

impl Default for Sizes {
    /// All sizes.
    fn default() -> Sizes {
        Sizes { low: 0, high: u64::MAX }
    }
}

impl Sizes {
    /// Reads `1MiB-64MiB`, `4KiB-`, `-2MiB`, `640KiB`.
    ///
    /// # Errors
    /// A text of another form, or a range whose end is below its start.
    pub fn parse(text: &str) -> Result<Sizes, Unusable> {
        let bad = || Unusable::form(text.trim(), SIZES);
        let bytes = |word: &str| Size::parse(word).map(|size| size.0).ok_or_else(bad);
        let found = match text.split_once('-') {
            None => bytes(text).map(Sizes::exactly)?,
            Some((low, high)) if low.trim().is_empty() => Sizes { low: 0, high: bytes(high)? },
            Some((low, high)) if high.trim().is_empty() => Sizes { low: bytes(low)?, high: u64::MAX },
            Some((low, high)) => Sizes { low: bytes(low)?, high: bytes(high)? },
        };
        if found.low > found.high { Err(Unusable::form(text.trim(), ASCENDING_SIZES)) } else { Ok(found) }
    }

    /// Whether all sizes from `low` to `high` are in it, or none.
    pub fn hold_all_or_none(self, low: u64, high: u64) -> bool {
        (self.low <= low && high <= self.high) || high < self.low || self.high < low
    }

    /// The range of one size, in bytes.
    pub fn exactly(size: u64) -> Sizes {
        Sizes { low: size, high: size }
    }

    /// Whether the range contains `size`, in bytes.
    #[inline]
    pub fn hold(&self, size: u64) -> bool {
        (self.low..=self.high).contains(&size)
    }
}

/// Numbers of instances, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instances {
    ranges: Vec<(u64, u64)>,
    /// The numbers repeat after so many.
    every: Option<u64>,
}

impl Instances {
    /// Reads `3`, `1-4,7`, `5-`, `1-2,7/8`.
    ///
    /// # Errors
    /// A part of another form, one that is not greater than the part before it, or one beyond the number after the stroke.
    pub fn parse(text: &str) -> Result<Instances, Unusable> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        // `u64::from_str` would accept a plus sign.
        let plain = |word: &str| word.bytes().all(|b| b.is_ascii_digit());
        let number = |word: &str| word.trim().parse::<u64>().ok().filter(|n| *n > 0 && plain(word.trim()));
        let (list, every) = match text.split_once('/') {
            Some((list, every)) => (list, Some(number(every).ok_or_else(|| Unusable::form(text.trim(), INSTANCES))?)),
            None => (text, None),
        };
        for part in list.split(',').map(str::trim) {
            let bad = || Unusable::form(part, INSTANCES);
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let low = number(low).ok_or_else(bad)?;
            let high = if high.trim().is_empty() { u64::MAX } else { number(high).ok_or_else(bad)? };
            if high < low || ranges.last().is_some_and(|&(_, before)| before >= low) {
                return Err(Unusable::form(part, ASCENDING));
            }
            if every.is_some_and(|every| high > every) {
                return Err(Unusable::form(part, WITHIN));
            }
            ranges.push((low, high));
        }
        Ok(Instances { ranges, every })
    }

    /// Whether the list contains `number`.
    #[inline]
    pub fn hold(&self, number: u64) -> bool {
        let number = match (self.every, number.checked_sub(1)) {
            (Some(every), Some(before)) => before % every + 1,
            _ => number,
        };
        let after = self.ranges.partition_point(|&(low, _)| low <= number);
        after.checked_sub(1).and_then(|i| self.ranges.get(i)).is_some_and(|&(_, high)| number <= high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_sizes_include_their_ends() {
        let holds = |text: &str, size: u64| Sizes::parse(text).unwrap().hold(size);
        assert!(holds("1MiB-64MiB", 1 << 20) && holds("1MiB-64MiB", 64 << 20));
        assert!(!holds("1MiB-64MiB", (1 << 20) - 1) && !holds("1MiB-64MiB", (64 << 20) + 1));
        assert!(holds("4KiB-", u64::MAX) && !holds("4KiB-", 4095) && holds(" 4 KiB - ", 4096));
        assert!(holds("-2MiB", 0) && holds("-2MiB", 2 << 20) && !holds("-2MiB", (2 << 20) + 1));
        assert!(holds("640KiB", 640 << 10) && !holds("640KiB", 640 << 10 | 1) && holds("100", 100));
        assert!(Sizes::default().hold(0) && Sizes::default().hold(u64::MAX));
    }

    #[test]
    fn lists_of_instances_count_from_one() {
        let which = |text: &str| {
            let list = Instances::parse(text).unwrap();
            (0..12).filter(|n| list.hold(*n)).collect::<Vec<u64>>()
        };
        assert_eq!(which("3"), [3]);
        assert_eq!(which("1-4,7"), [1, 2, 3, 4, 7]);
        assert_eq!(which(" 2 , 5 - 6, 9-"), [2, 5, 6, 9, 10, 11]);
        assert_eq!(which("1-2/5"), [1, 2, 6, 7, 11]);
        assert_eq!(which("2, 4 / 4"), [2, 4, 6, 8, 10]);
        assert!(Instances::parse("5-").unwrap().hold(u64::MAX));
    }

    #[test]
    fn what_selects_nothing_is_named() {
        for bad in ["", "-", "big", "1MB-", "1MiB-2MB", "1-2-3", "1 2"] {
            let e = Sizes::parse(bad).unwrap_err().to_string();
            assert!(e.contains(&format!("`{bad}`")) && e.contains("4KiB-"), "{bad}: {e}");
        }
        assert!(Sizes::parse("2MiB-1MiB").unwrap_err().to_string().contains("`2MiB-1MiB` is not an ascending range"));
        for bad in ["", "0", "x", "1,", "-3", "1;2", "+1", "99999999999999999999"] {
            assert!(Instances::parse(bad).unwrap_err().to_string().contains("is not a list of instances"), "{bad}");
        }
        for bad in ["1/", "/4", "1/0", "1/x", "1/2/3"] {
            assert!(Instances::parse(bad).unwrap_err().to_string().contains("is not a list of instances"), "{bad}");
        }
        for bad in ["5/4", "1,3-/4"] {
            assert!(Instances::parse(bad).unwrap_err().to_string().contains("up to the one after the stroke"), "{bad}");
        }
        for bad in ["4-2", "3,1", "1-4,4", "5-,9"] {
            assert!(Instances::parse(bad).unwrap_err().to_string().contains("ascending"), "{bad}");
        }
    }
}
