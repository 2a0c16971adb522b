//! Fenced blocks and code spans of a Markdown document.

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
