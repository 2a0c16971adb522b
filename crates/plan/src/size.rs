//! Sizes in a policy file: bytes as an integer, or text with a binary unit; and block sizes, which may also be `auto`.

use serde::{Deserialize, Serialize};

use crate::unusable::Unusable;

/// Block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Block {
    /// A fixed size.
    Size(Size),
    /// Computed at start-up from the pattern, the node count and the page size in use.
    Auto(Auto),
}

/// The word `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Auto {
    /// `"auto"`
    #[serde(rename = "auto")]
    Auto,
}

/// Reads a size as bytes or as text, and `auto` as `None` if `auto` is allowed. Written by hand, because serde's
/// error for an untagged enum does not name the wrong word.
struct Visitor {
    auto: bool,
}

impl serde::de::Visitor<'_> for Visitor {
    type Value = Option<Size>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.auto {
            true => "a block size such as 4096, \"640KiB\" or \"20MiB\", or \"auto\"",
            false => "a number of bytes such as 4096, \"640KiB\" or \"20MiB\"",
        })
    }

    fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<Option<Size>, E> {
        u64::try_from(v).map(|v| Some(Size(v))).map_err(|_| E::custom("a size cannot be negative"))
    }

    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<Option<Size>, E> {
        Ok(Some(Size(v)))
    }

    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Option<Size>, E> {
        let what = match self.auto {
            true if v == "auto" => return Ok(None),
            true => "a block size; write \"auto\", or bytes or a binary unit such as \"640KiB\"",
            false => "a size; write bytes or a binary unit such as \"640KiB\" or \"20MiB\"",
        };
        Size::parse(v).map(Some).ok_or_else(|| E::custom(Unusable::form(v, what)))
    }
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Block, D::Error> {
        Ok(d.deserialize_any(Visitor { auto: true })?.map_or(Block::Auto(Auto::Auto), Block::Size))
    }
}

/// A number of bytes, written as an integer or as `"20MiB"`, `"640KiB"`, `"4096"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Size(pub u64);

#[cfg(test)]
#[path = "size_schema_tests.rs"]
mod schema;

impl Size {
    /// Reads `20MiB`, `640 KiB`, `4096`, `2M` (binary units).
    pub fn parse(text: &str) -> Option<Size> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..digits].parse().ok()?;
        let shift = match text[digits..].trim() {
            "" | "B" => 0,
            "K" | "KiB" => 10,
            "M" | "MiB" => 20,
            "G" | "GiB" => 30,
            _ => return None,
        };
        number.checked_mul(1 << shift).map(Size)
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 != 0 && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Size, D::Error> {
        // `None` stands for `auto`, which this visitor refuses.
        Ok(d.deserialize_any(Visitor { auto: false })?.unwrap_or_default())
    }
}
