//! Times on the command line.

use std::time::Duration;

/// Units in milliseconds; the longest names first, because `500ms` ends in `s`, too.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// `90`, `90s`, `500ms`, `10m`, `2h`: more than nothing; seconds without a unit.
///
/// # Errors
/// What to write.
pub fn parse(text: &str) -> Result<Duration, String> {
    let unit = UNITS.iter().find_map(|(name, ms)| Some((text.strip_suffix(name)?, *ms)));
    let (digits, unit) = unit.unwrap_or((text, 1000));
    let ms = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).filter(|ms| *ms > 0);
    ms.map(Duration::from_millis).ok_or_else(|| "write a time such as 500ms, 90s, 10m or 2h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_people_write_them() {
        let seconds = |text: &str| parse(text).map(|d| d.as_secs());
        assert_eq!((seconds("90"), seconds("90s"), seconds("10m"), seconds("2h")), (Ok(90), Ok(90), Ok(600), Ok(7200)));
        for text in ["", "0", "m", "-1s", "1.5h", "99999999999999999999h"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        for text in ["0ms", "ms", "1 s", "1d", "s1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
