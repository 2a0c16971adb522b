//! The parts of a line that different threads own, and the bytes that put them on lines of their own.

use rustc_hash::FxHashMap;

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

/// How far the parts of an object are from each other.
#[derive(Debug, Default)]
pub(super) struct Distances {
    /// The distance of nearly all parts, if the object is an array of parts of one size.
    regular: Option<u64>,
    /// From the beginning of a part to that of the next one.
    from: FxHashMap<u64, u64>,
}

impl Distances {
    /// Those of all lines of an object, by address.
    pub(super) fn of(lines: &[&LineOfObject]) -> Distances {
        let all = parts(lines);
        let whole = all.windows(2).filter(|pair| pair[0].is_start && pair[1].is_start);
        let distances = whole.filter_map(|pair| Some((pair[0].start, pair[1].start.checked_sub(pair[0].start)?)));
        let (mut from, mut counts, mut total) = (FxHashMap::default(), FxHashMap::<u64, usize>::default(), 0_usize);
        for (start, distance) in distances {
            from.entry(start).or_insert(distance);
            *counts.entry(distance).or_default() += 1;
            total += 1;
        }
        let most = counts.into_iter().max_by_key(|(distance, count)| (*count, *distance));
        let regular = most.filter(|(_, count)| *count as f64 >= REGULAR * total as f64).map(|(distance, _)| distance);
        Distances { regular, from }
    }

    /// Bytes between the parts of a line of the object that give each a line of its own, where the first begins at a
    /// multiple of 64 bytes: those of an array of parts of one size, and of two parts that both begin in the line. None
    /// where the parts have different sizes, so that each needs other padding.
    pub(super) fn padding(&self, of: &LineOfObject) -> Option<u64> {
        let of_two = || match parts(&[of])[..] {
            [first, _] => self.from.get(&first.start).copied(),
            _ => None,
        };
        let distance = self.regular.or_else(of_two)?;
        (distance % LINE != 0).then(|| LINE - distance % LINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::random::random;
    use crate::profile::records::SharedLine;

    /// As the distances are defined, each counted by itself.
    fn padding_one_by_one(of: &LineOfObject, of_object: &[&LineOfObject]) -> Option<u64> {
        let all = parts(of_object);
        let whole = all.windows(2).filter(|pair| pair[0].is_start && pair[1].is_start);
        let distances: Vec<(u64, u64)> = whole.map(|pair| (pair[0].start, pair[1].start - pair[0].start)).collect();
        let count = |distance: u64| distances.iter().filter(|(_, d)| *d == distance).count();
        let most = distances.iter().map(|(_, distance)| *distance).max_by_key(|distance| (count(*distance), *distance));
        let regular = most.filter(|distance| count(*distance) as f64 >= REGULAR * distances.len() as f64);
        let of_two = || match parts(&[of])[..] {
            [first, _] => distances.iter().find(|(start, _)| *start == first.start).map(|(_, distance)| *distance),
            _ => None,
        };
        let distance = regular.or_else(of_two)?;
        (distance % LINE != 0).then(|| LINE - distance % LINE)
    }

    #[test]
    fn distances_that_are_counted_once_give_the_same_padding() {
        let mut random = random();
        let (mut some, mut none) = (0, 0);
        for _ in 0..3000 {
            // Words of one size mostly, so that frequent distances and ties of two are common.
            let (lines, step, odd) = (1 + random(5), 4 << random(3), 2 + random(12));
            let lines: Vec<LineOfObject> = (0..lines)
                .filter_map(|n| {
                    let offsets = (0..LINE).step_by(step).filter(|_| random(odd) > 0).collect::<Vec<u64>>();
                    let word = |offset: &u64| SharedWord {
                        offset: *offset as u8,
                        readers: if random(4) == 0 { random(8) } else { 0 },
                        writers: 1 << (random(3) + offset % 5),
                        ..SharedWord::default()
                    };
                    let words: Vec<SharedWord> = offsets.iter().map(word).collect();
                    let line = SharedLine { addr: 0x1000 + n * LINE, words, ..SharedLine::default() };
                    let base = Some(0x1000 - 8 * random(2));
                    (random(6) > 0).then(|| LineOfObject { object: "x".into(), base, size: 4096, line })
                })
                .collect();
            let all: Vec<&LineOfObject> = lines.iter().collect();
            let distances = Distances::of(&all);
            for of in &lines {
                let expected = padding_one_by_one(of, &all);
                assert_eq!(distances.padding(of), expected, "{lines:#?}");
                *(if expected.is_some() { &mut some } else { &mut none }) += 1;
            }
        }
        assert!(some > 500 && none > 500, "{some} {none}");
    }
}
