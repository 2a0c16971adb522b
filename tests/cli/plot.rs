//! `numamma plot`: figures as SVG and PNG, and what is said where there is nothing to draw.

use std::path::Path;

use numamma::profile::records::*;

use super::synthetic::{self, Dice, MIB, PAGE, access, header, object, thread};
use crate::common::{Ran, Scratch, numamma, run};

const VIEWS: [&str; 5] = ["matrix", "timeline", "spectrum", "gantt", "placement"];

fn plot(object: &str, view: &str, out: &Path, prof: &Path) -> Ran {
    run(numamma(&["plot", object, "--view", view, "--nodes", "4", "-o"]).arg(out).arg(prof))
}

/// The texts of an SVG, which must be well-formed.
fn texts(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).unwrap_or_else(|e| panic!("{e}: {}", &svg[..svg.len().min(2000)]));
    assert_eq!(document.root_element().attribute("role"), Some("img"));
    let text = |n: &roxmltree::Node| n.text().unwrap_or_default().trim().to_owned();
    document.descendants().filter(|n| n.has_tag_name("text") || n.has_tag_name("title")).map(|n| text(&n)).collect()
}

#[test]
fn every_view_is_drawn_with_axes_and_a_legend() {
    let dir = Scratch::new("plot-lu");
    let prof = synthetic::write("plot-lu", &synthetic::lu());
    let wanted = [
        ["accesses by page and thread", "thread", "offset in the object", "few"],
        ["accesses over time", "time of the run", "offset in the object", "thread 7"],
        ["spectrum of the threads", "period (logarithmic)", "agreement (0 to 1)", "without structure"],
        ["accesses by thread over time", "time of the run", "thread", "several threads"],
        ["first touch, use and advised placement", "of each page", "offset in the object", "node 3"],
    ];
    for (view, words) in VIEWS.iter().zip(wanted) {
        let (svg, png) = (dir.join(format!("{view}.svg")), dir.join(format!("{view}.png")));
        let ran = plot("#0", view, &svg, &prof);
        assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), ""), "{view}: {}", ran.stderr);
        let svg = std::fs::read_to_string(svg).expect("the figure");
        let texts = texts(&svg);
        for word in words {
            assert!(texts.iter().any(|t| t.contains(word)), "{view}: no '{word}' in {texts:?}");
        }
        assert!(svg.matches("<rect").count() > 20 && svg.len() < 4 << 20, "{view}: {} bytes", svg.len());
        let ran = run(numamma(&["plot", "#0", "--view", view, "--size", "640x400", "-o"]).arg(&png).arg(&prof));
        assert_eq!(ran.code(), Some(0), "{view}: {}", ran.stderr);
        let png = std::fs::read(png).expect("the figure");
        assert_eq!((&png[..8], &png[12..16]), (&b"\x89PNG\r\n\x1a\n"[..], &b"IHDR"[..]), "{view}");
        let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((number(16), number(20)), (640, 400), "{view}");
        assert!(png.len() > 3000, "{view}: {} bytes cannot hold a figure with text", png.len());
    }
}

#[test]
fn names_are_text_in_a_figure() {
    let dir = Scratch::new("plot-names");
    let name = "a<b>&\"'\u{202e}\u{1}</svg>";
    let mut dice = Dice(3);
    let accesses = (0..400_u64).map(|i| {
        let addr = 0x4000_0000 + dice.below(64 * PAGE);
        access(0, (i % 2) as u32, i * 1_000_000, addr, i % 3 == 0, true)
    });
    let records = [
        Record::Header(header()),
        Record::Threads(vec![thread(0, "a", None), thread(1, "b", None)]),
        Record::Objects(vec![object(0, ObjectKind::Mapping, name, 0x4000_0000, MIB)]),
        Record::Accesses(accesses.collect()),
    ];
    let prof = synthetic::write("plot-names", &records);
    let svg = dir.join("f.svg");
    let ran = plot("#0", "matrix", &svg, &prof);
    assert_eq!(ran.code(), Some(0), "{}", ran.stderr);
    let texts = texts(&std::fs::read_to_string(svg).expect("the figure"));
    assert!(texts.iter().any(|t| t.starts_with("a<b>&\"'\\u{202e}\\u{1}</svg>: ")), "{texts:?}");
}

#[test]
fn errors_say_what_to_try_next() {
    let dir = Scratch::new("plot-errors");
    let prof = synthetic::write("plot-errors", &synthetic::lu());
    let tried = |object: &str, view: &str, file: &str, words: &str| {
        let out = dir.join(file);
        let ran = plot(object, view, &out, &prof);
        assert!(ran.code() == Some(2) && ran.stderr.contains(words), "{:?} {}", ran.code(), ran.stderr);
        assert!(!out.exists());
    };
    tried("cvar_", "matrix", "f.pdf", "a figure is .svg or .png");
    tried("cwar_", "matrix", "f.svg", "did you mean");
    tried("#99", "matrix", "f.svg", "they go from #0");
    let one = [
        Record::Header(header()),
        Record::Threads(vec![thread(0, "a", None)]),
        Record::Objects(vec![object(0, ObjectKind::Mapping, "only", 0x4000_0000, MIB)]),
        Record::Accesses((0..50).map(|i| access(0, 0, i * 1000, 0x4000_0000 + i * PAGE, false, true)).collect()),
    ];
    let prof = synthetic::write("plot-one", &one);
    let ran = plot("only", "spectrum", &dir.join("f.svg"), &prof);
    assert!(ran.code() == Some(2) && ran.stderr.contains("--view matrix shows"), "{}", ran.stderr);
    let ran = run(numamma(&["plot", "only", "--quantity", "remote", "-o"]).arg(dir.join("f.svg")).arg(&prof));
    assert!(ran.code() == Some(2) && ran.stderr.contains("--quantity names others"), "{}", ran.stderr);
    let ran = run(numamma(&["plot", "only", "--size", "10x10", "-o"]).arg(dir.join("f.svg")).arg(&prof));
    assert!(ran.code() == Some(2) && ran.stderr.contains("as 1000x640"), "{}", ran.stderr);
}
