//! A streaming serde `Deserializer` for a subset of TOML: all that `advise` writes, and most policies written by hand.
//!
//! The reader feeds the `Deserialize` implementations of [`crate::policy`] from the text, so it does not repeat the
//! schema. It accepts a strict subset of TOML (tables, arrays of tables in consecutive tables, bare keys, one-line
//! strings without escapes, numbers, booleans, arrays, inline tables, comments) and refuses everything else, including
//! invalid files, without a reason. The caller ([`crate::check::parse`]) then parses the text with the `toml` crate,
//! which also gives the errors.
//!
//! The reader exists because the preload reads the policy before `main`, and all start-up work for 1,000 rules must
//! take less than 10 ms. Least time of 41 reads on one core of a Xeon at 2.5 GHz, ms:
//!
//! | 1,000 rules | bytes | this reader | `toml::from_str` | `toml_parser`, events alone |
//! | --- | --- | --- | --- | --- |
//! | globals, `block` (benches/bars/startup.rs) | 105,933 | 0.6 | 2.9 | 0.9 |
//! | globals, `block-cyclic` with a pattern | 167,933 | 0.9 | 7.1 | 1.5 |
//! | call sites with functions, line, pattern and `why`, as `advise` writes them | 397,828 | 1.8 | 12.3 | 2.2 |
//!
//! The `toml` crate builds a table with the span of every key and value before serde reads the first one. A reader on
//! the events of its lexer (`toml_parser`) would be shorter, but the events alone take longer than this reader with
//! the schema.

use std::fmt;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

/// Every decimal number with at most this many digits fits an i64.
const DECIMAL_DIGITS: usize = 18;
/// Every hexadecimal number with at most this many digits fits an i64.
const HEX_DIGITS: usize = 15;

/// The text is not in the subset, or violates the schema.
#[derive(Debug)]
pub(crate) struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not in the subset of TOML that this reader accepts")
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(_: T) -> Refused {
        Refused
    }
}

type Result<T> = std::result::Result<T, Refused>;

/// Reads a whole file; `None` when the file must be parsed with the `toml` crate.
pub(crate) fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Option<T> {
    T::deserialize(Reader::of(&mut Cursor { text, at: 0 }, Part::Document)).ok()
}

struct Cursor<'de> {
    text: &'de str,
    at: usize,
}

/// Bytes that TOML allows in comments and one-line strings.
fn printable(byte: u8) -> bool {
    byte >= b' ' && byte != 0x7f || byte == b'\t'
}

impl<'de> Cursor<'de> {
    fn rest(&self) -> &'de [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, wanted: &[u8]) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len();
        }
        found
    }

    fn need(&mut self, wanted: &[u8]) -> Result<()> {
        if self.take(wanted) { Ok(()) } else { Err(Refused) }
    }

    /// Consumes and returns the bytes up to the first for which `inside` is false.
    fn span(&mut self, inside: impl Fn(u8) -> bool) -> &'de str {
        let rest = self.rest();
        let len = rest.iter().position(|&b| !inside(b)).unwrap_or(rest.len());
        let found = self.text.get(self.at..self.at + len).unwrap_or_default();
        self.at += found.len();
        found
    }

    fn spaces(&mut self) {
        self.span(|b| b == b' ' || b == b'\t');
    }

    /// Skips spaces and an optional comment at the end of a line.
    fn trailing(&mut self) {
        self.spaces();
        if self.peek() == Some(b'#') {
            self.span(printable);
        }
    }

    fn line_end(&mut self) -> Result<()> {
        self.trailing();
        if self.peek().is_none() { Ok(()) } else { self.need(b"\n") }
    }

    /// Skips empty lines and comments.
    fn blank(&mut self) {
        self.trailing();
        while self.take(b"\n") {
            self.trailing();
        }
    }

    fn bare_key(&mut self) -> Result<&'de str> {
        let key = self.span(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if key.is_empty() { Err(Refused) } else { Ok(key) }
    }

    /// Reads `key = `.
    fn key(&mut self) -> Result<&'de str> {
        let key = self.bare_key()?;
        self.spaces();
        self.need(b"=")?;
        self.spaces();
        Ok(key)
    }

    /// Reads the line `[name]` or `[[name]]`: the name, and what follows.
    fn header(&mut self) -> Result<(&'de str, Part<'de>)> {
        self.need(b"[")?;
        let is_array = self.take(b"[");
        let name = self.bare_key()?;
        self.need(b"]")?;
        if is_array {
            self.need(b"]")?;
        }
        self.line_end()?;
        Ok((name, if is_array { Part::Tables(name) } else { Part::Table }))
    }

    /// Reads a string on one line without escapes, in single or double quotes.
    fn string(&mut self) -> Result<&'de str> {
        let quote = self.peek().filter(|b| b"\"'".contains(b)).ok_or(Refused)?;
        if self.rest().starts_with(&[quote; 3]) {
            return Err(Refused);
        }
        self.at += 1;
        let text = self.span(|b| b != quote && printable(b) && (b != b'\\' || quote == b'\''));
        self.need(&[quote])?;
        Ok(text)
    }

    fn boolean(&mut self) -> Result<bool> {
        match self.span(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Refused),
        }
    }

    fn number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        let word = self.span(|b| !b" \t\n,]}#".contains(&b));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let whole = |text: &str| digits(text) && (text.len() == 1 || !text.starts_with('0'));
        if let Some(hex) = word.strip_prefix("0x") {
            let plain = hex.len() <= HEX_DIGITS && hex.bytes().all(|b| b.is_ascii_hexdigit());
            let value = if plain { i64::from_str_radix(hex, 16).ok() } else { None };
            return visitor.visit_i64(value.ok_or(Refused)?);
        }
        if word.split_once('.').is_some_and(|(a, b)| whole(a) && digits(b)) {
            return visitor.visit_f64(word.parse().map_err(|_| Refused)?);
        }
        if !whole(word) || word.len() > DECIMAL_DIGITS {
            return Err(Refused);
        }
        visitor.visit_i64(word.parse().map_err(|_| Refused)?)
    }
}

/// What is read next.
#[derive(Clone, Copy, PartialEq)]
enum Part<'de> {
    /// The whole file: keys, then `[table]` and `[[array of tables]]`.
    Document,
    /// The keys below one header.
    Table,
    /// Consecutive tables of the array of this name, behind the header of the first one. If the array continues after
    /// another table, serde refuses its key as a duplicate.
    Tables(&'de str),
    /// A value on the right of `=`, or inside another value.
    Value,
    /// `[a, b]`, on one line or several, behind the opening bracket.
    List,
    /// `{ a = 1, b = 2 }` on one line, behind the opening brace.
    Inline,
}

/// Gives one part of the text to serde: first as a value, then as the sequence of its keys or items.
struct Reader<'c, 'de> {
    cursor: &'c mut Cursor<'de>,
    part: Part<'de>,
    /// What follows the key that was read last.
    next: Part<'de>,
    /// No key or item has been read.
    first: bool,
}

impl<'c, 'de> Reader<'c, 'de> {
    fn of(cursor: &'c mut Cursor<'de>, part: Part<'de>) -> Reader<'c, 'de> {
        Reader { cursor, part, next: Part::Value, first: true }
    }

    fn is_table(&self) -> bool {
        match self.part {
            Part::Value => self.cursor.peek() == Some(b'{'),
            part => matches!(part, Part::Document | Part::Table),
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'_, 'de> {
    type Error = Refused;

    fn deserialize_any<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value> {
        match (self.part, self.cursor.peek()) {
            (Part::Document | Part::Table, _) => visitor.visit_map(self),
            (Part::Tables(_), _) => visitor.visit_seq(&mut self),
            (_, Some(b'"' | b'\'')) => visitor.visit_borrowed_str(self.cursor.string()?),
            (_, Some(b'0'..=b'9')) => self.cursor.number(visitor),
            (_, Some(b't' | b'f')) => visitor.visit_bool(self.cursor.boolean()?),
            (_, Some(b'[')) => {
                self.cursor.at += 1;
                self.part = Part::List;
                let value = visitor.visit_seq(&mut self)?;
                // Refuses a list with items that the visitor did not read.
                self.cursor.need(b"]")?;
                Ok(value)
            }
            (_, Some(b'{')) => {
                self.cursor.at += 1;
                self.part = Part::Inline;
                visitor.visit_map(self)
            }
            _ => Err(Refused),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    /// Serde would read a struct from a list; the general parser decides whether that is valid.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        v: V,
    ) -> Result<V::Value> {
        if self.is_table() { self.deserialize_any(v) } else { Err(Refused) }
    }

    fn deserialize_enum<V: Visitor<'de>>(self, _: &'static str, _: &'static [&'static str], v: V) -> Result<V::Value> {
        v.visit_enum(BorrowedStrDeserializer::new(self.cursor.string()?))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Reader<'_, 'de> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if self.part == Part::Inline {
            self.cursor.spaces();
            if self.cursor.take(b"}") {
                return Ok(None);
            }
            if !std::mem::take(&mut self.first) {
                self.cursor.need(b",")?;
                self.cursor.spaces();
            }
        } else {
            self.cursor.blank();
        }
        let (key, next) = match (self.part, self.cursor.peek()) {
            (Part::Table, None | Some(b'[')) | (Part::Document, None) => return Ok(None),
            (Part::Document, Some(b'[')) => self.cursor.header()?,
            _ => (self.cursor.key()?, Part::Value),
        };
        self.next = next;
        seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        let value = seed.deserialize(Reader::of(self.cursor, self.next))?;
        if self.part != Part::Inline && self.next == Part::Value {
            self.cursor.line_end()?;
        }
        Ok(value)
    }
}

impl<'de> SeqAccess<'de> for &mut Reader<'_, 'de> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        let first = std::mem::take(&mut self.first);
        if let Part::Tables(_) = self.part {
            let before = self.cursor.at;
            if !first && self.cursor.header().ok().is_none_or(|(_, next)| next != self.part) {
                self.cursor.at = before; // the end of the file, or a header that the document reads
                return Ok(None);
            }
            return seed.deserialize(Reader::of(self.cursor, Part::Table)).map(Some);
        }
        self.cursor.blank();
        if !first && self.cursor.peek() != Some(b']') {
            self.cursor.need(b",")?;
            self.cursor.blank();
        }
        if self.cursor.peek() == Some(b']') {
            return Ok(None);
        }
        seed.deserialize(Reader::of(self.cursor, Part::Value)).map(Some)
    }

    /// Lets serde reserve the vector of all rules at once, instead of copying them each time the vector doubles.
    fn size_hint(&self) -> Option<usize> {
        let Part::Tables(_) = self.part else { return None };
        let more = self.cursor.text.get(self.cursor.at..).unwrap_or_default();
        Some(usize::from(self.first) + more.matches("\n[[").count())
    }
}

#[cfg(test)]
#[path = "toml_subset_tests.rs"]
mod tests;
