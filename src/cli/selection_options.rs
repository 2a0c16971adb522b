//! `--include` and `--exclude`: which objects are shown or placed.

use numamma_kernel::terminal::shell_word;

use crate::launch::exit::say;
use crate::merge::Many;
use crate::profile::summary::Selection;

/// Objects by patterns of their names.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SelectionArgs {
    /// Only objects with a name like this: of a variable or a part of it, a function or source file of a call site, a
    /// library, a mapped file; * stands for any characters, ? for one. May be given several times
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// All objects but those with a name like this
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
}

impl SelectionArgs {
    /// Marks what is left out, of the whole and of each group of ranks, and says which patterns match nothing.
    pub fn apply(&self, many: &mut Many) {
        let selection = Selection::new(&self.include, &self.exclude);
        for pattern in selection.apply(&mut many.whole) {
            say(format_args!(
                "no object is like {}: `numamma report --all` lists their names, and * stands for any characters",
                shell_word(&pattern)
            ));
        }
        for group in &mut many.groups {
            selection.apply(&mut group.summary);
        }
    }
}
