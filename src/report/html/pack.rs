//! How numbers and text are stored in the page: variable-length integers, deflated, in base64. What is stored so holds no
//! character that HTML or JSON gives a meaning.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;

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
