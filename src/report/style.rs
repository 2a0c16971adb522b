//! Colours, or none; headings and the blocks under them.

use super::View;
use super::table::{Column, fit};
use super::units::{middle, wrap};

/// Wraps text in escape sequences when colours are on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint(pub bool);

impl Paint {
    fn with(self, style: anstyle::Style, text: &str) -> String {
        if self.0 { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// Headings.
    pub(super) fn bold(self, text: &str) -> String {
        self.with(anstyle::Style::new().bold(), text)
    }

    /// Text of less weight.
    pub(super) fn dim(self, text: &str) -> String {
        self.with(anstyle::Style::new().dimmed(), text)
    }

    /// One of the 256 terminal colours.
    pub(super) fn indexed(self, color: u8, text: &str) -> String {
        self.with(anstyle::Style::new().fg_color(Some(anstyle::Ansi256Color(color).into())), text)
    }
}

/// Lines of a block: `label   text`, the text wrapped under itself.
pub(super) fn labelled(out: &mut String, label: &str, text: &str, width: usize) {
    const LABEL: usize = 12;
    for (i, line) in wrap(text, width.saturating_sub(LABEL + 2)).iter().enumerate() {
        out.push_str(format!("  {:<LABEL$}{line}", if i == 0 { label } else { "" }).trim_end());
        out.push('\n');
    }
}

/// A bold line after an empty one.
pub(super) fn heading(out: &mut String, view: &View, width: usize, text: &str) {
    out.push_str(&format!("\n{}\n", Paint(view.options.color).bold(&middle(text, width))));
}

/// A table under its heading, and the names of the columns that found no room.
pub(super) fn table(out: &mut String, columns: Vec<Column>, width: usize, least_name: usize, color: bool) {
    let (table, hidden) = fit(columns, width.saturating_sub(2), least_name, color);
    indent(out, &table);
    if !hidden.is_empty() {
        let text = format!("hidden: {} (COLUMNS=200 shows them, or --json)", hidden.join(", "));
        wrap(&text, width - 2).iter().for_each(|line| out.push_str(&format!("  {}\n", Paint(color).dim(line))));
    }
}

/// Two spaces in front of every line: blocks stand under their heading.
pub(super) fn indent(out: &mut String, block: &str) {
    block.lines().for_each(|line| out.push_str(&format!("  {line}\n")));
}
