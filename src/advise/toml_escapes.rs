//! TOML without characters that a terminal obeys or a reader cannot see.
//!
//! The crate `toml` escapes what TOML demands: C0 and DEL in basic strings. C1 and bidirectional controls may stand raw
//! in every string and comment. [`escaped`] writes them as `\\uXXXX`, so that names are still the same, and strings
//! with line breaks on one line.

use numamma_kernel::terminal::{self, is_shown};

/// `toml`, a valid file, with the same values and without a character that is not shown; line breaks remain between
/// lines only.
pub(super) fn escaped(toml: &str) -> String {
    if toml.chars().all(|c| c == '\n' || is_shown(c)) && !toml.contains("\"\"\"") && !toml.contains("'''") {
        return toml.to_owned();
    }
    let mut out = String::with_capacity(toml.len());
    let mut rest = toml;
    while let Some(c) = rest.chars().next() {
        let token = match c {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => string_length(rest, c),
            _ => c.len_utf8(),
        };
        let (text, behind) = rest.split_at(token);
        match c {
            '#' => out += &terminal::line(text),
            '"' | '\'' => out += &string(text, c),
            '\n' => out.push(c),
            _ => out += &terminal::line(text),
        }
        rest = behind;
    }
    out
}

/// Bytes of the string in quotes that `text` begins with.
fn string_length(text: &str, quote: char) -> usize {
    let long = quote.to_string().repeat(3);
    let delimiter = if text.starts_with(&long) { &long[..] } else { &long[..1] };
    let mut at = delimiter.len();
    while at < text.len() {
        let rest = &text[at..];
        if quote == '"' && rest.starts_with('\\') {
            at += 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
        } else if rest.starts_with(delimiter) {
            // Up to two quotes may stand directly before the closing delimiter of a long string.
            let quotes = rest.bytes().take_while(|b| *b == quote as u8).count();
            return at + if delimiter.len() == 3 { quotes.min(5) } else { 1 };
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// A string on one line with escapes where it has line breaks or characters that are not shown, else as it is.
fn string(text: &str, quote: char) -> String {
    if text.chars().all(is_shown) {
        return text.to_owned();
    }
    let long = text.len() >= 6 && text.as_bytes()[..3].iter().all(|b| *b == quote as u8);
    let edge = if long { 3 } else { 1 };
    let inner = text.get(edge..text.len().saturating_sub(edge)).unwrap_or_default();
    // The first line break of a long string does not belong to it.
    let inner = if long { inner.strip_prefix('\n').unwrap_or(inner) } else { inner };
    let mut out = String::from('"');
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            // Escapes of a basic string remain.
            '\\' if quote == '"' => out.extend([Some(c), chars.next()].into_iter().flatten()),
            '"' | '\\' => out.extend(['\\', c]),
            _ if is_shown(c) => out.push(c),
            _ if c as u32 > 0xffff => out += &format!("\\U{:08X}", c as u32),
            _ => out += &format!("\\u{:04X}", c as u32),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_are_the_same_and_everything_is_shown() {
        let names = [
            "plain",
            "a\nb",
            "\x1b]0;x\x07",
            "\u{202e}x\u{9b}",
            "\u{e0041}",
            "it's \u{200b}",
            "\"q\" \u{85}",
            "\\ \u{2028} \\",
            "\n\n[[object]]\nglobal = \"x\"",
            "''' \"\"\" \u{feff}\n",
            "\"\"\n",
            "''\n\"",
            "# \u{202e}",
            "\t",
            "\r\n\\",
        ];
        for name in names {
            let table = toml::Table::from_iter([
                ("key".to_owned(), toml::Value::String(name.to_owned())),
                (name.to_owned(), toml::Value::Array(vec![name.into(), 7.into()])),
            ]);
            let text = toml::to_string(&table).unwrap();
            let clean = escaped(&text);
            assert!(clean.chars().all(|c| c == '\n' || is_shown(c)), "{text:?}\n{clean:?}");
            assert_eq!(clean.lines().count(), 2, "{text:?}\n{clean:?}");
            assert_eq!(clean.parse::<toml::Table>().unwrap(), table, "{text:?}\n{clean:?}");
        }
        assert_eq!(escaped("# a\u{202e}b\nx = 1\n"), "# a\\u{202e}b\nx = 1\n");
    }
}
