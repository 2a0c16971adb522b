//! How numbers and text are stored in the page: variable-length integers, deflated, in base64. What is stored so holds
//! no character that HTML or JSON gives a meaning.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::report::bins::{Pictures, Places, Tile};

/// Deflates bytes (zlib format, `deflate` of DecompressionStream) and writes them in base64.
pub(super) fn deflated(bytes: &[u8]) -> String {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail; an empty stream would be seen by the tests of the page.
    let packed = encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_default();
    STANDARD.encode(packed)
}

/// Integers of seven bits to a byte, lowest first, the eighth bit set on all bytes but the last (LEB128).
#[derive(Debug, Default)]
pub(super) struct Numbers(Vec<u8>);

impl Numbers {
    /// Appends one.
    pub fn push(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    /// Appends a list without its length.
    pub fn extend(&mut self, list: impl IntoIterator<Item = u64>) {
        list.into_iter().for_each(|n| self.push(n));
    }

    /// The text for the page.
    pub fn text(&self) -> String {
        deflated(&self.0)
    }
}

/// The counters of an object; `nodes` are those of [`Tile::marked_pages`], or none. `tileOf` in store.js reads it.
pub(super) fn tile(tile: &Tile, nodes: &[u32]) -> String {
    let mut numbers = Numbers::default();
    numbers.push(tile.cells.len() as u64);
    let mut before = 0;
    for (at, _) in &tile.cells {
        numbers.push(u64::from(at[0] - before));
        before = at[0];
    }
    (1..3).for_each(|axis| numbers.extend(tile.cells.iter().map(|(at, _)| u64::from(at[axis]))));
    (0..5).for_each(|quantity| numbers.extend(tile.cells.iter().map(|(_, q)| q[quantity])));
    numbers.push(tile.touchers.len() as u64);
    numbers.extend(tile.touchers.iter().map(|t| t.map_or(0, |t| u64::from(t) + 1)));
    numbers.push(nodes.len() as u64);
    numbers.extend(nodes.iter().map(|n| u64::from(*n)));
    numbers.text()
}

/// The cartography. `picturesOf` in store.js reads it, and [`threads`].
pub(super) fn cartography(pictures: &Pictures) -> String {
    let mut numbers = Numbers::default();
    numbers.extend(pictures.owners.iter().copied());
    (0..2).for_each(|kind| numbers.extend(pictures.map.iter().map(|n| n[kind])));
    numbers.text()
}

/// The pictures of the threads: Gantt, sharing matrix, places.
pub(super) fn threads(pictures: &Pictures, places: Option<&Places>) -> String {
    let mut numbers = Numbers::default();
    (0..2).for_each(|kind| numbers.extend(pictures.gantt.accesses.iter().map(|n| n[kind])));
    numbers.extend(pictures.sharing.iter().copied());
    if let Some(places) = places {
        numbers.extend(places.at.iter().map(|n| u64::from(*n)));
        numbers.extend(places.changes.iter().map(|n| u64::from(*n)));
    }
    numbers.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_one_and_more_bytes() {
        let mut numbers = Numbers::default();
        numbers.extend([0, 127, 128, 300, u64::MAX]);
        assert_eq!(numbers.0[..6], [0, 127, 0x80, 1, 0xac, 2]);
        assert_eq!(numbers.0.len(), 6 + 10);
    }

    #[test]
    fn no_character_with_a_meaning_in_html() {
        let text = deflated(b"</script><script>alert(1)</script>");
        assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || "+/=".contains(c)), "{text}");
    }
}
