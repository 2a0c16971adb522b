//! Colours, or none.

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
    for (i, line) in super::units::wrap(text, width.saturating_sub(LABEL + 2)).iter().enumerate() {
        out.push_str(format!("  {:<LABEL$}{line}", if i == 0 { label } else { "" }).trim_end());
        out.push('\n');
    }
}
