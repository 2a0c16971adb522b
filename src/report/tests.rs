//! Figures and names, and reports of damaged profiles.

use super::units::*;
use super::{AccessFilter, Options, Sort, View, json, object_details, overview};
use crate::profile::summary::tests::forged_summaries;

#[test]
fn reports_of_damaged_profiles_never_panic() {
    let options = Options {
        sort: Sort::Cost,
        top: None,
        access: AccessFilter::All,
        width: 80,
        height: 10,
        color: false,
        profile: None,
    };
    forged_summaries(|summary| {
        let view = View::new(summary, &[], &options);
        assert!(!overview::render(&view).is_empty());
        assert!(json::render(&view, None).is_object());
        summary.entries.iter().for_each(|e| assert!(!object_details::render(&view, e).is_empty()));
    });
}

#[test]
fn figures() {
    let sizes = [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (585_105_408, "558 MiB"),
        (1 << 41, "2 TiB"),
    ];
    sizes.iter().for_each(|(n, text)| assert_eq!(bytes(*n), *text));
    assert_eq!((percent(0.0), percent(0.0001), percent(0.5816)), ("0.0%".into(), "<0.1%".into(), "58.2%".into()));
    assert_eq!((count(0), count(999), count(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
    assert_eq!((duration(999), duration(12_340_000_000)), ("999 ns".into(), "12.3 s".into()));
    assert_eq!(date(0), "1970-01-01 00:00 UTC");
    assert_eq!(date(951_827_696), "2000-02-29 12:34 UTC");
    assert_eq!(ranges([0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
}

#[test]
fn printed_shares_add_up() {
    let thirds = percents(&[1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]);
    assert_eq!(thirds, ["33.4%", "33.3%", "33.3%"]);
    assert_eq!(percents(&[0.99999, 0.00001, 0.0]), ["100.0%", "<0.1%", "0.0%"]);
    assert_eq!(percents(&[]), [""; 0]);
}

#[test]
fn long_names_keep_both_ends() {
    assert_eq!(middle("exchange_boundary_values", 12), "excha..alues");
    assert_eq!(middle("short", 5), "short");
    assert_eq!(middle("äöüäöüäöü", 5), "äö..ü");
    assert_eq!(middle("abc", 2), "ab");
    // The range tells the parts of an object apart.
    assert_eq!(middle("main application.c:16 [0..15708 KiB]", 26), "main appl.. [0..15708 KiB]");
    // A name cannot send escape sequences to the terminal.
    assert_eq!(middle("a\x1b[31mb", 20), r"a\u{1b}[31mb");
    for width in 0..30 {
        assert!(middle("exchange_boundary_values", width).chars().count() <= width);
    }
}

#[test]
fn wrapped_lines_fit_and_lose_nothing() {
    let text = "one two three averyverylongword_that_has_no_space x";
    for width in 8..60 {
        let lines = wrap(text, width);
        assert!(lines.iter().all(|l| l.chars().count() <= width), "{width}: {lines:?}");
        let letters = |s: &str| s.chars().filter(|c| *c != ' ').collect::<String>();
        assert_eq!(letters(&lines.concat()), letters(text));
    }
}
