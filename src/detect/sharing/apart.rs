//! The parts of a line that different threads own, and the bytes that put them on lines of their own.

use super::LINE;
use crate::profile::records::SharedWord;
use crate::profile::summary::LineOfObject;

/// Share of the distances of parts that are the same for an object that is an array of parts of one size.
const REGULAR: f64 = 0.75;

/// Words in a row with the same owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    /// Address of its first used word.
    start: u64,
    /// Whether it begins there: the word before, in this line or the one before, is another part's, or there is none.
    is_start: bool,
}

/// Threads that a word belongs to: those that write it, or read it where nobody does. Others that read it, as main does
/// the results, own nothing.
fn owners(word: &SharedWord) -> u64 {
    if word.writers == 0 { word.readers } else { word.writers }
}

/// Whether two words are of different parts. A word that is read only is of the part whose threads read it.
pub(super) fn are_apart(a: &SharedWord, b: &SharedWord) -> bool {
    let (of_a, of_b) = (owners(a), owners(b));
    let is_subset = of_a & of_b == of_a || of_a & of_b == of_b;
    of_a != of_b && !(is_subset && (a.writers == 0 || b.writers == 0))
}

/// The parts of lines of one object, which are in order.
fn parts(lines: &[&LineOfObject]) -> Vec<Part> {
    let words = lines.iter().flat_map(|of| of.line.words.iter().map(|word| (*of, word)));
    let mut parts: Vec<Part> = Vec::new();
    let mut before: Option<(&LineOfObject, &SharedWord)> = None;
    for (of, word) in words {
        let (start, line) = (of.line.addr.saturating_add(word.offset.into()), of.line.addr);
        let is_start = match before {
            Some((_, last)) if !are_apart(last, word) => {
                before = Some((of, word));
                continue;
            }
            Some((at, _)) if line.saturating_sub(at.line.addr) <= LINE => true,
            // Nothing of the line is used before, or the object begins in it.
            _ => word.offset > 0 || of.base.is_some_and(|base| base >= line),
        };
        parts.push(Part { start, is_start });
        before = Some((of, word));
    }
    parts
}

/// Bytes between the parts of a line that give each a line of its own, where the first begins at a multiple of 64
/// bytes: those of an array of parts of one size, and of two parts that both begin in the line. None where the parts have
/// different sizes, so that each needs other padding. `of_object` are all lines of the object, by address.
pub(super) fn padding(of: &LineOfObject, of_object: &[&LineOfObject]) -> Option<u64> {
    let all = parts(of_object);
    let whole = all.windows(2).filter(|pair| pair[0].is_start && pair[1].is_start);
    let distances: Vec<(Part, u64)> =
        whole.filter_map(|pair| Some((pair[0], pair[1].start.checked_sub(pair[0].start)?))).collect();
    let count = |distance: u64| distances.iter().filter(|(_, d)| *d == distance).count();
    let most = distances.iter().map(|(_, distance)| *distance).max_by_key(|distance| (count(*distance), *distance));
    let regular = most.filter(|distance| count(*distance) as f64 >= REGULAR * distances.len() as f64);
    let of_two = || match parts(&[of])[..] {
        [first, _] => distances.iter().find(|(part, _)| part.start == first.start).map(|(_, distance)| *distance),
        _ => None,
    };
    let distance = regular.or_else(of_two)?;
    (distance % LINE != 0).then(|| LINE - distance % LINE)
}
