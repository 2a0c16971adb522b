//! Figures and names formatted for reports.

use numamma_kernel::terminal;

/// Bytes with a binary unit, three significant digits or so: `558 MiB`, `1.5 KiB`, `12 B`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (n as f64, 0);
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let exact = unit == 0 || value >= 99.95 || value.fract() == 0.0;
    if exact { format!("{value:.0} {}", UNITS[unit]) } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Nanoseconds as seconds, or a smaller unit below one.
pub fn duration(ns: u64) -> String {
    let s = ns as f64 / 1e9;
    match ns {
        0 => "0 s".into(),
        1..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", s * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", s * 1e3),
        _ => format!("{s:.1} s"),
    }
}

/// A share with one decimal; what is there but rounds to nothing says so.
pub fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.0005 { "<0.1%".into() } else { format!("{:.1}%", share * 100.0) }
}

/// Shares of one whole with one decimal each, rounded so that what is printed adds up as the shares do: the
/// largest remainders are rounded up.
pub fn percents(shares: &[f64]) -> Vec<String> {
    let exact: Vec<f64> = shares.iter().map(|s| s * 1000.0).collect();
    let mut tenths: Vec<u64> = exact.iter().map(|e| e.floor() as u64).collect();
    let missing = (exact.iter().sum::<f64>().round() as u64).saturating_sub(tenths.iter().sum());
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()));
    order.into_iter().take(missing as usize).for_each(|i| tenths[i] += 1);
    let text = |(&t, &share): (&u64, &f64)| match t {
        0 if share > 0.0 => "<0.1%".into(),
        _ => format!("{}.{}%", t / 10, t % 10),
    };
    tenths.iter().zip(shares).map(text).collect()
}

/// A number with thousands separated.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `1 object`, `2 objects`.
pub fn plural(n: u64, word: &str) -> String {
    let ending = match n {
        1 => "",
        _ if word.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {word}{ending}", count(n))
}

/// Ascending numbers as numactl writes them: `0-3,5`.
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut numbers: Vec<u32> = numbers.into_iter().collect();
    numbers.dedup();
    numamma_plan::nodes::format_runs(&numbers)
}

/// `text` in one line, with escapes for what a terminal obeys or hides: names come from files.
pub fn printable(text: &str) -> String {
    terminal::line(text).into_owned()
}

/// Cuts `text` to `width` characters, taking from the middle: names often differ only at one end. The end of
/// [`telling_end`] is kept whole where there is room for it and some letters before.
pub fn middle(text: &str, width: usize) -> String {
    const GAP: &str = "..";
    let text = printable(text);
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= width {
        return text;
    }
    if width <= GAP.len() {
        return chars[..width].iter().collect();
    }
    let keep = width - GAP.len();
    let end = telling_end(&text).chars().count();
    let tail = if end > 0 && least_with_end(&text) <= width { end } else { keep / 2 };
    chars[..keep - tail].iter().copied().chain(GAP.chars()).chain(chars[chars.len() - tail..].iter().copied()).collect()
}

/// Characters that are left of a name before an end that is kept, letters and the mark that some are missing: of a
/// part, whose name is all before it, and of an object with a place in the source, which tells more than its function.
const LEAST_BEFORE_PART: usize = 8;
const LEAST_BEFORE_PLACE: usize = 4;

/// Characters that a name needs to keep its [`telling_end`]; 0 without one.
pub fn least_with_end(name: &str) -> usize {
    match telling_end(name) {
        "" => 0,
        end if end.ends_with(']') => end.chars().count() + LEAST_BEFORE_PART,
        end => end.chars().count() + LEAST_BEFORE_PLACE,
    }
}

/// The end of a name that tells most: of a part ` [40 MiB..80 MiB]`, of some instances ` [instance 1 of 2]`, else the
/// last place in the source with what follows, ` solver.c:12 (small)`. Empty for a name without one.
pub fn telling_end(name: &str) -> &str {
    let is_part = |end: &&str| end.ends_with(']') && (end.contains("..") || end.starts_with(" [instance"));
    if let Some(part) = name.rfind(" [").map(|at| &name[at..]).filter(is_part) {
        return part;
    }
    let is_added = |word: &str| word.starts_with(['(', '#']) || word.ends_with(')');
    let is_place = |word: &str| {
        let line = word.rsplit_once(':').map(|(file, line)| (file.is_empty(), line));
        line.is_some_and(|(no_file, line)| !no_file && !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut end = name.len();
    while let Some(at) = name[..end].rfind(' ') {
        let word = &name[at + 1..end];
        if is_place(word) {
            return &name[at..];
        }
        if !is_added(word) {
            break;
        }
        end = at;
    }
    ""
}

/// Cuts `text` into lines of at most `width` characters between words, longer words in the middle.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut rest: Vec<char> = printable(word).chars().collect();
        let mut last = lines.pop().unwrap_or_default();
        let used = last.chars().count();
        if used > 0 && used + 1 + rest.len() <= width {
            last.push(' ');
        } else if used > 0 {
            lines.push(std::mem::take(&mut last));
        }
        while rest.len() > width {
            let tail = rest.split_off(width);
            lines.push(last + &rest.iter().collect::<String>());
            last = String::new();
            rest = tail;
        }
        last.extend(rest);
        lines.push(last);
    }
    lines
}

/// Seconds since 1970 as `2026-11-21 08:04 UTC`.
pub fn date(unix: u64) -> String {
    // Days to year, month, day by eras of 400 years that begin on 1 March (Howard Hinnant, "chrono-compatible
    // low-level date algorithms").
    let days = unix / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let minutes = unix % 86_400 / 60;
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}
