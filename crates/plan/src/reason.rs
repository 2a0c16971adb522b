//! Reasons why a page is not on its planned node, with their words in the report and advice for the user.

/// A reason; of several that apply the first counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The page belongs to a file or to shared memory.
    File,
    /// More than one process maps the page.
    Shared,
    /// The page is part of a huge page whose other parts are planned on other nodes.
    Collapsed,
    /// The plan is a preference, and the planned node had no free memory: the kernel took the page elsewhere, as it
    /// should. Not an error of the placement.
    Spilled,
    /// The plan is strict, and the planned node has almost no free memory: the page existed before it was placed.
    Full,
    /// None of the reasons above.
    Moved,
}

impl Reason {
    /// All reasons, in the order of their numbers (`as usize`).
    pub const ALL: [Reason; 6] =
        [Reason::File, Reason::Shared, Reason::Collapsed, Reason::Spilled, Reason::Full, Reason::Moved];

    /// The word of the report.
    pub fn word(self) -> &'static str {
        match self {
            Reason::File => "file",
            Reason::Shared => "shared",
            Reason::Collapsed => "collapsed",
            Reason::Spilled => "spilled",
            Reason::Full => "full",
            Reason::Moved => "moved",
        }
    }

    /// Explanation and advice; completes a sentence that begins with "3 pages".
    pub fn advice(self) -> &'static str {
        match self {
            Reason::File => {
                "of a file or of shared memory, placed by other processes: \
                 name an object that belongs to this process alone"
            }
            Reason::Shared => {
                "mapped by more than one process: the kernel moves such pages \
                 only after the other process ends or writes to them"
            }
            Reason::Collapsed => {
                "inside a huge page whose other parts belong on other nodes: \
                 write huge = \"split\" in the rule to prevent this"
            }
            Reason::Spilled => {
                "allocated elsewhere, which a placement that is a preference allows: use more nodes or place less \
                 there (numastat -m)"
            }
            Reason::Full => {
                "planned on a node with almost no free memory (numastat -m): use more nodes or place less on that node"
            }
            Reason::Moved => {
                "on another node for an unknown reason: moved later (kernel.numa_balancing, \
                 migratepages) or touched before placement"
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
