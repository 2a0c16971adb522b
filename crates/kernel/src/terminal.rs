//! Text from outside as a terminal and a reader must get it.
//!
//! Names come from ELF files, profiles, policies, command lines and the kernel, and any of them may have been written
//! by a stranger. A terminal obeys control characters, bidirectional controls change the order in which a reader sees
//! the characters of a line, and invisible characters make two different names look alike. [`is_shown`] is false for
//! all of these. What is printed goes through [`Line`] or [`block`]; a command that is shown for copying is made of
//! words from [`shell_word`].

use core::fmt::{self, Write};
use std::borrow::Cow;

/// Whether `c` is displayed as itself, and neither obeyed, nor invisible, nor able to reorder what stands beside it.
pub fn is_shown(c: char) -> bool {
    let hidden = match c {
        // The case of most names, decided at once.
        ' '..='~' => return true,
        // C0, DEL, C1.
        _ if c.is_control() => true,
        // Soft hyphen, grapheme joiner; the Arabic, Syriac, Kaithi and Egyptian format characters of category Cf.
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' => true,
        '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' => true,
        // Letters without a glyph: Hangul fillers, Khmer inherent vowels, Mongolian selectors.
        '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{3164}' | '\u{ffa0}' => true,
        // Zero width and directional marks, line and paragraph separator, embeddings and overrides.
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        // Word joiner, invisible operators, isolates, deprecated controls.
        '\u{2060}'..='\u{206f}' => true,
        // Variation selectors, byte order mark, interlinear annotation, shorthand and musical format controls.
        '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' => true,
        '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' => true,
        // Tags and the other default-ignorable characters of plane 14.
        '\u{e0000}'..='\u{e0fff}' => true,
        _ => false,
    };
    !hidden
}

/// Displays text in one line: what is not shown becomes an escape of Rust's, such as `\n` or `\u{1b}`.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a>(pub &'a str);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_escaped(f, self.0)
    }
}

/// Writes `text` as [`Line`] displays it.
///
/// # Errors
/// Those of `out`.
pub fn write_escaped(out: &mut impl Write, text: &str) -> fmt::Result {
    let mut rest = text;
    while let Some(at) = rest.find(|c| !is_shown(c)) {
        let (shown, hidden) = rest.split_at(at);
        out.write_str(shown)?;
        let mut chars = hidden.chars();
        for c in chars.next().into_iter().flat_map(char::escape_default) {
            out.write_char(c)?;
        }
        rest = chars.as_str();
    }
    out.write_str(rest)
}

/// The text of [`Line`].
pub fn line(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_shown) { Cow::Borrowed(text) } else { Cow::Owned(Line(text).to_string()) }
}

/// Several lines as they may be written to a terminal: line breaks stay, and with `styles` the sequences of
/// [`STYLES`]; everything else that is not shown is escaped.
pub fn block(text: &str, styles: bool) -> Cow<'_, str> {
    if text.chars().all(|c| c == '\n' || is_shown(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let style = if styles && c == '\x1b' { style_length(rest) } else { 0 };
        let (part, behind) = rest.split_at(style.max(c.len_utf8()));
        if style > 0 || c == '\n' || is_shown(c) {
            out.push_str(part);
        } else {
            out.extend(c.escape_default());
        }
        rest = behind;
    }
    Cow::Owned(out)
}

/// Select Graphic Rendition sequences that reports use: reset, bold, dim, and one of 256 colours before its number.
pub const STYLES: [&str; 4] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[38;5;"];

/// Bytes of the sequence of [`STYLES`] that `text` begins with, 0 without one.
fn style_length(text: &str) -> usize {
    let Some(style) = STYLES.iter().find(|style| text.starts_with(**style)) else { return 0 };
    if style.ends_with('m') {
        return style.len();
    }
    let digits = text[style.len()..].bytes().take_while(u8::is_ascii_digit).count();
    let ends = text.as_bytes().get(style.len() + digits) == Some(&b'm');
    if (1..=3).contains(&digits) && ends { style.len() + digits + 1 } else { 0 }
}

/// `text` as one word of a command for a POSIX shell, quoted where it must be. With characters that are not shown the
/// word is `$'...'`, which bash, zsh, ksh and POSIX.1-2024 shells read.
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    if text.chars().all(is_shown) {
        return format!("'{}'", text.replace('\'', r"'\''"));
    }
    let mut word = String::from("$'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => word.extend(['\\', c]),
            _ if is_shown(c) => word.push(c),
            // Three octal digits always end the escape, whatever follows.
            _ => c.encode_utf8(&mut [0; 4]).bytes().for_each(|b| word += &format!("\\{b:03o}")),
        }
    }
    word + "'"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything a terminal or a reader could be deceived by, and what looks harmless beside it.
    const HOSTILE: &str = "a\x1b]0;x\x07\u{9b}31m\r\n\t\u{202e}b\u{200b}\u{2028}\u{feff}\u{e0041}'\"`$;\\ é 漢";

    #[test]
    fn nothing_hidden_remains_and_nothing_shown_changes() {
        for text in [Line(HOSTILE).to_string(), block(HOSTILE, true).replace('\n', ""), shell_word(HOSTILE)] {
            assert!(text.chars().all(is_shown), "{text:?}");
        }
        assert_eq!(line("a é 漢 ü <T&>::f(int)[3]"), "a é 漢 ü <T&>::f(int)[3]");
        assert_eq!(line("a\nb\x1b[1m\u{202e}"), r"a\nb\u{1b}[1m\u{202e}");
        assert!(matches!(line("plain"), Cow::Borrowed(_)) && matches!(block("a\nb", false), Cow::Borrowed(_)));
    }

    #[test]
    fn only_the_styles_of_reports_pass() {
        let own = "\x1b[1mx\x1b[0m \x1b[38;5;240my\x1b[0m\n";
        assert_eq!(block(own, true), own);
        assert_eq!(block("\x1b[1mx", false), r"\u{1b}[1mx");
        for other in
            ["\x1b[8m", "\x1b[31m", "\x1b[38;5;m", "\x1b[38;5;1234m", "\x1b[38;5;1;7m", "\x1b[2J", "\x1b", "\x1bc"]
        {
            assert_eq!(block(other, true), other.replace('\x1b', r"\u{1b}"), "{other:?}");
        }
    }

    /// bash reads each word as the text that it was made of.
    #[test]
    fn a_shell_reads_the_word_as_the_text() {
        for text in
            ["", "a-b", "a b", "it's", "$(touch x)`;&|<>*?[~#!", "-x", HOSTILE, "\x01\u{32}7", "a\\", "é\u{200b}"]
        {
            let word = shell_word(text);
            let out = std::process::Command::new("bash").args(["-c", &format!("printf %s {word}")]).output();
            let Ok(out) = out else { return };
            assert_eq!(String::from_utf8_lossy(&out.stdout), text, "{word}");
        }
    }
}
