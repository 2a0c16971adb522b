//! Why a page is not where its plan wants it: the words of the report, and what to do about each.

/// A reason; the first that applies counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A page of a file or of shared memory.
    File,
    /// More than one process maps it.
    Shared,
    /// It is part of a huge page whose other parts are planned elsewhere.
    Collapsed,
    /// Its node has next to no free memory.
    Full,
    /// None of these.
    Moved,
}

impl Reason {
    /// All of them, in the order of their numbers (`as usize`).
    pub const ALL: [Reason; 5] = [Reason::File, Reason::Shared, Reason::Collapsed, Reason::Full, Reason::Moved];

    /// The word of the report.
    pub fn word(self) -> &'static str {
        match self {
            Reason::File => "file",
            Reason::Shared => "shared",
            Reason::Collapsed => "collapsed",
            Reason::Full => "full",
            Reason::Moved => "moved",
        }
    }

    /// What it means and what to do, to follow "3 pages".
    pub fn advice(self) -> &'static str {
        match self {
            Reason::File => {
                "of a file or of shared memory, which other processes placed: name an object that is this process's own"
            }
            Reason::Shared => {
                "mapped by more than one process: such pages do not move; they do once the other process ends or writes them"
            }
            Reason::Collapsed => {
                "inside a huge page whose other parts belong elsewhere: huge = \"split\" in the rule keeps them apart"
            }
            Reason::Full => {
                "planned on a node with next to no free memory (numastat -m): use more nodes or place less there"
            }
            Reason::Moved => {
                "elsewhere without a visible reason: moved since (kernel.numa_balancing, migratepages) or placed before us"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words_are_distinct() {
        assert!(Reason::ALL.iter().enumerate().all(|(i, r)| *r as usize == i));
        let mut words: Vec<&str> = Reason::ALL.iter().map(|r| r.word()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Reason::ALL.len());
    }
}
