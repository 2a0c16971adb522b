//! hwloc's bitmaps: 32-bit words in hexadecimal, the highest first, such as `0x000000ff,0xffffffff`. A leading
//! `0xf...f` sets all higher bits; an empty word is 0.

use crate::topology::description::MOST_CPUS;

const WORD: usize = 32;

/// Numbers of the set bits, ascending, without those above [`MOST_CPUS`]. `None` when `text` is no bitmap.
pub fn parse(text: &str) -> Option<Vec<u32>> {
    let text = text.trim();
    let (infinite, words) = match text.strip_prefix("0xf...f") {
        Some(rest) => (true, rest.strip_prefix(',').unwrap_or(rest)),
        None => (false, text),
    };
    if words.is_empty() && !infinite {
        return None;
    }
    let mut bits = Vec::new();
    let mut above = 0;
    for (index, word) in words.split(',').rev().enumerate() {
        if words.is_empty() {
            break;
        }
        let digits = word.trim().strip_prefix("0x").unwrap_or(word.trim());
        let value = if digits.is_empty() { 0 } else { u32::from_str_radix(digits, 16).ok()? };
        let first = index.checked_mul(WORD)?;
        let set = (0..WORD).filter(|bit| value >> bit & 1 == 1).map(|bit| first + bit);
        bits.extend(set.filter(|bit| *bit < MOST_CPUS).map(|bit| bit as u32));
        above = first + WORD;
    }
    if infinite {
        bits.extend((above..MOST_CPUS).map(|bit| bit as u32));
    }
    Some(bits)
}

/// The bitmap with `bits` set.
pub fn format(bits: &[u32]) -> String {
    let words = bits.iter().max().map_or(1, |most| *most as usize / WORD + 1);
    let mut values = vec![0u32; words];
    bits.iter().for_each(|bit| values[*bit as usize / WORD] |= 1 << (*bit as usize % WORD));
    values.iter().rev().map(|v| format!("0x{v:08x}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_hwloc() {
        assert_eq!(parse("0x0000000f").unwrap(), [0, 1, 2, 3]);
        assert_eq!(parse("0x00000001,0x80000000").unwrap(), [31, 32]);
        assert_eq!(parse("0x00000001,,0x1").unwrap(), [0, 64]);
        assert_eq!(parse("0x0").unwrap(), [0u32; 0]);
        let all = parse("0xf...f,0x0").unwrap();
        assert_eq!((all.first(), all.len()), (Some(&32), MOST_CPUS - 32));
        assert_eq!(parse("0xf...f").unwrap().len(), MOST_CPUS);
        for bad in ["", "0xg", "0x1ffffffff", "1 2", "-1", "0x1;0x2"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn bitmaps_read_as_they_are_written() {
        for bits in [vec![], vec![0], vec![31, 32, 33], vec![5, 64, 300]] {
            assert_eq!(parse(&format(&bits)).unwrap(), bits);
        }
    }
}
