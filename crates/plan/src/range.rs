//! A range of bytes of an object: the value of `range` in a rule.
//!
//! `range = "40MiB-80MiB"` begins with the first number and ends before the second, so that neighbours share a number;
//! `"80MiB-"` reaches to the end of the object, `"-40MiB"` begins with it. Memory is placed by pages: both ends are
//! rounded to the nearest page of the object's memory, so that neighbours meet on a page and place every page once.

use std::fmt;

use crate::policy::{ObjectRule, Size};
use crate::unusable::Unusable;

/// What a range is.
const RANGE: &str = "a range of bytes; write \"40MiB-80MiB\", \"80MiB-\" or \"-40MiB\"";
/// What the ends of a range are.
const ASCENDING: &str = "an ascending range of bytes; write the smaller offset first";

/// Offsets of bytes of an object: from `low` to before `high`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    /// First byte.
    pub low: u64,
    /// One past the last byte; `u64::MAX` for the end of the object.
    pub high: u64,
}

impl ByteRange {
    /// Reads `40MiB-80MiB`, `80MiB-`, `-40MiB`.
    ///
    /// # Errors
    /// A text of another form, or a range that holds no byte.
    pub fn parse(text: &str) -> Result<ByteRange, Unusable> {
        let bad = || Unusable::form(text.trim(), RANGE);
        let bytes = |word: &str| Size::parse(word).map(|size| size.0).ok_or_else(bad);
        let (low, high) = text.split_once('-').ok_or_else(bad)?;
        let found = match (low.trim().is_empty(), high.trim().is_empty()) {
            (true, true) => return Err(bad()),
            (true, false) => ByteRange { low: 0, high: bytes(high)? },
            (false, true) => ByteRange { low: bytes(low)?, high: u64::MAX },
            (false, false) => ByteRange { low: bytes(low)?, high: bytes(high)? },
        };
        if found.low >= found.high { Err(Unusable::form(text.trim(), ASCENDING)) } else { Ok(found) }
    }

    /// Its bytes in an object of `size` bytes.
    pub fn bytes_of(&self, size: u64) -> u64 {
        self.high.min(size).saturating_sub(self.low)
    }

    /// Whether both hold the same byte.
    pub fn overlaps(&self, other: &ByteRange) -> bool {
        self.low < other.high && other.low < self.high
    }

    /// The range of addresses in an object of `size` bytes at `base`, from page to page of `unit` bytes, a power of
    /// two; none when it is empty. At its ends the object may reach into pages that it shares with others: these are
    /// not included.
    pub fn pages_of(&self, base: u64, size: u64, unit: u64) -> Option<(u64, u64)> {
        let end = base.checked_add(size)?;
        let (first, past) = (base.checked_next_multiple_of(unit)?, end & !(unit - 1));
        let nearest = |offset: u64| {
            let address = base.saturating_add(offset.min(size));
            (address.saturating_add(unit / 2) & !(unit - 1)).clamp(first, past.max(first))
        };
        let low = if self.low == 0 { first } else { nearest(self.low) };
        let high = if self.high >= size { past } else { nearest(self.high) };
        (low < high).then_some((low, high))
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.high {
            u64::MAX => write!(f, "{}-", Size(self.low)),
            high => write!(f, "{}-{}", Size(self.low), Size(high)),
        }
    }
}

impl ObjectRule {
    /// The part of the object that the rule places; none for all of it. A text that does not parse was refused with the
    /// file.
    pub fn bytes(&self) -> Option<ByteRange> {
        self.range.as_deref().and_then(|text| ByteRange::parse(text).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PAGE;

    #[test]
    fn ranges_are_read_as_they_are_written() {
        let range = |low, high| ByteRange { low, high };
        for (text, expected) in [
            ("40MiB-80MiB", range(40 << 20, 80 << 20)),
            ("0-24", range(0, 24)),
            (" 4 KiB - 1 GiB ", range(4096, 1 << 30)),
            ("80MiB-", range(80 << 20, u64::MAX)),
            ("-40MiB", range(0, 40 << 20)),
        ] {
            assert_eq!(ByteRange::parse(text).unwrap(), expected, "{text}");
            assert_eq!(ByteRange::parse(&expected.to_string()).unwrap(), expected);
        }
        for bad in ["", "-", "40MiB", "1-2-3", "1MB-", "a-b"] {
            let e = ByteRange::parse(bad).unwrap_err().to_string();
            assert!(e.contains("is not a range of bytes"), "{bad}: {e}");
        }
        for bad in ["2-1", "5-5", "1MiB-1024KiB"] {
            assert!(ByteRange::parse(bad).unwrap_err().to_string().contains("ascending"), "{bad}");
        }
    }

    #[test]
    fn neighbours_meet_on_a_page() {
        let range = |text: &str| ByteRange::parse(text).unwrap();
        // An object that begins 64 bytes into a page.
        let (base, size) = (0x10_0040, 100 * PAGE);
        let whole = range("0-").pages_of(base, size, PAGE).unwrap();
        assert_eq!(whole, (0x10_1000, 0x10_0000 + 100 * PAGE));
        for cut in (1..size).step_by(997) {
            let (before, behind) = (range(&format!("0-{cut}")), range(&format!("{cut}-")));
            let (before, behind) = (before.pages_of(base, size, PAGE), behind.pages_of(base, size, PAGE));
            match (before, behind) {
                (Some(a), Some(b)) => assert!((a.0, a.1, b.1) == (whole.0, b.0, whole.1), "{cut}"),
                (Some(one), None) | (None, Some(one)) => assert_eq!(one, whole, "{cut}"),
                (None, None) => panic!("{cut}"),
            }
        }
        assert_eq!(range("8KiB-12KiB").pages_of(0, 100 * PAGE, PAGE), Some((2 * PAGE, 3 * PAGE)));
        assert_eq!(range("3MiB-5MiB").pages_of(0, 8 << 20, 2 << 20), Some((4 << 20, 6 << 20)), "huge pages");
        assert_eq!(range("100-200").pages_of(0, 100 * PAGE, PAGE), None);
        assert_eq!(range("1GiB-").pages_of(0, 100 * PAGE, PAGE), None, "the object is smaller");
        assert_eq!(range("0-").pages_of(u64::MAX - 5, 100, PAGE), None);
        assert_eq!(range("0-").pages_of(64, 100, PAGE), None, "no whole page");
    }
}
