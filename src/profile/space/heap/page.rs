//! The blocks of one page, found by the position of their first byte.

/// Granules of a page, and pages of a chunk.
pub(super) const SLOTS: usize = 512;
const WORDS: usize = SLOTS / 64;

/// One bit for each of [`SLOTS`] numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Bits([u64; WORDS]);

impl Bits {
    /// Whether bit `i` is set.
    pub(super) fn has(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 != 0
    }

    /// Inverts bit `i`.
    pub(super) fn flip(&mut self, i: usize) {
        self.0[i / 64] ^= 1 << (i % 64);
    }

    /// Highest set bit at or below `i`.
    pub(super) fn at_or_below(&self, i: usize) -> Option<usize> {
        let mut word = i / 64;
        let mut bits = self.0[word] & (u64::MAX >> (63 - i % 64));
        while bits == 0 {
            word = word.checked_sub(1)?;
            bits = self.0[word];
        }
        Some(word * 64 + 63 - bits.leading_zeros() as usize)
    }

    /// Lowest set bit at or above `i`.
    pub(super) fn at_or_above(&self, i: usize) -> Option<usize> {
        let mut word = i / 64;
        let mut bits = *self.0.get(word)? & (u64::MAX << (i % 64));
        while bits == 0 {
            word += 1;
            bits = *self.0.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// All set bits, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.at_or_above(0), |&i| self.at_or_above(i + 1))
    }

    /// Highest set bit.
    pub(super) fn last(&self) -> Option<usize> {
        self.at_or_below(SLOTS - 1)
    }
}

/// The blocks that start on one page.
#[derive(Debug, Clone, Default)]
pub(super) struct Page {
    pub(super) starts: Bits,
    /// Number of starts in the words before each word: the rank of a start costs one popcount.
    before: [u16; WORDS],
    /// Packed entries in address order.
    pub(super) blocks: Vec<u64>,
}

impl Page {
    /// Number of starts below `granule`: the index of its entry.
    pub(super) fn rank(&self, granule: usize) -> usize {
        let word = granule / 64;
        let lower = self.starts.0[word] & !(u64::MAX << (granule % 64));
        usize::from(self.before[word]) + lower.count_ones() as usize
    }

    /// Adds the entry of a block that starts at `granule`.
    pub(super) fn insert(&mut self, granule: usize, entry: u64) {
        let rank = self.rank(granule);
        self.blocks.insert(rank, entry);
        self.starts.flip(granule);
        for n in &mut self.before[granule / 64 + 1..] {
            *n += 1;
        }
    }

    /// Removes the block that starts at `granule`; returns its entry.
    pub(super) fn remove(&mut self, granule: usize) -> u64 {
        let rank = self.rank(granule);
        self.starts.flip(granule);
        for n in &mut self.before[granule / 64 + 1..] {
            *n -= 1;
        }
        self.blocks.remove(rank)
    }
}
