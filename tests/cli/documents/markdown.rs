//! Fenced blocks, code spans, links and headings of a Markdown document.

use std::collections::BTreeSet;

/// A fenced block.
pub struct Block {
    /// What stands behind the opening fence; empty for shell commands.
    pub language: String,
    /// Lines between the fences.
    pub lines: Vec<String>,
}

/// The fenced blocks of a document, in order; panics when one is not closed.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let mut block = Block { language: language.trim().into(), lines: Vec::new() };
        loop {
            match lines.next() {
                Some("```") => break,
                Some(line) => block.lines.push(line.into()),
                None => panic!("a block of {language:?} has no end: {:?}", block.lines),
            }
        }
        blocks.push(block);
    }
    blocks
}

/// The text outside of fenced blocks: a paragraph each, joined to one line, and each row of a table.
pub fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut fenced = false;
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if line.is_empty() || line.starts_with('|') {
            paragraphs.push(line.to_owned());
        } else if !fenced {
            let last = paragraphs.last_mut().expect("there is one from the start");
            *last = format!("{last} {}", line.trim_start());
        }
    }
    paragraphs
}

/// The code spans of a paragraph.
pub fn spans(paragraph: &str) -> Vec<String> {
    paragraph.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The targets of the links outside of fenced blocks and code spans.
pub fn links(text: &str) -> Vec<String> {
    let outside = |paragraph: &String| paragraph.split('`').step_by(2).collect::<String>();
    let targets = |text: String| {
        let ends = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
        ends.collect::<Vec<String>>()
    };
    paragraphs(text).iter().map(outside).flat_map(targets).collect()
}

/// The anchors that mdBook and GitHub make of the headings: in lower case, blanks as hyphens, without other marks.
pub fn anchors(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let headings = text.lines().filter(|line| {
        fenced ^= line.starts_with("```");
        !fenced && line.starts_with('#')
    });
    let anchor = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        kept.chars()
            .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    headings.map(anchor).collect()
}
