//! Random changes of a file.

use crate::fuzz::generate::Random;

/// Largest input that mutations make.
const LARGEST: usize = 1 << 20;

/// Numbers at which sizes, counts and indices break.
const NUMBERS: [u64; 12] =
    [0, 1, 0x7f, 0x80, 0xff, 0xffff, 1 << 16, 1 << 31, u32::MAX as u64, 1 << 40, 1 << 63, u64::MAX];

/// `data` after a few random changes; `other` is another file of the same kind.
pub fn mutate(random: &mut Random, data: &[u8], other: &[u8], words: &[&[u8]]) -> Vec<u8> {
    let mut out = data.to_vec();
    for _ in 0..1 + random.below(4) {
        let at = random.below(out.len() + 1);
        let span = random.below(64).min(out.len() - at);
        match random.below(9) {
            0 if at < out.len() => out[at] ^= 1 << random.below(8),
            1 if at < out.len() => out[at] = random.next() as u8,
            2 => _ = out.splice(at..at, random.next().to_le_bytes()),
            3 => _ = out.drain(at..at + span),
            4 => {
                let copy = out[at..at + span].to_vec();
                let times = 1 + random.below(40);
                out.splice(at..at, std::iter::repeat_n(copy, times).flatten());
            }
            5 => {
                let from = random.below(other.len() + 1);
                let part = &other[from..from + random.below(200).min(other.len() - from)];
                out.splice(at..at + span, part.iter().copied());
            }
            6 => {
                let number = random.pick(&NUMBERS).wrapping_add(random.below(3) as u64);
                let width = random.pick(&[1, 2, 4, 8]);
                let end = (at + width).min(out.len());
                out.splice(at..end, number.to_le_bytes().into_iter().take(width));
            }
            7 if !words.is_empty() => {
                let word = random.pick(words);
                out.splice(at..at + span.min(8), word.iter().copied());
            }
            _ => out.splice(at..at, random.pick(&NUMBERS).to_string().into_bytes()).for_each(drop),
        }
    }
    out.truncate(LARGEST);
    out
}
