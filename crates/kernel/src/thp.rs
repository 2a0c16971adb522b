//! Transparent huge pages: /sys/kernel/mm/transparent_hugepage.

use std::fs;

/// The setting of this machine: `always`, `madvise` or `never`; `None` on a kernel without transparent huge pages.
pub fn setting() -> Option<String> {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    chosen(&text).map(str::to_owned)
}

/// The word in brackets of a setting's text, such as `always [madvise] never`.
pub fn chosen(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_brackets_is_chosen() {
        assert_eq!(chosen("[always] madvise never\n"), Some("always"));
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!((chosen("always madvise never"), chosen("")), (None, None));
    }
}
