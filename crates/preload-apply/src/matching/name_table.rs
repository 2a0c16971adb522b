//! A hash table of the linkage names that a policy wants. Every symbol of every module is looked up before `main`.
//!
//! Nearly all symbols differ from all wanted names in their first eight bytes, and the rest of such a name is not read.
//! Other names are hashed eight bytes at a time while their end is searched for, and compared only if the hash is
//! wanted.

/// Slots per name: at this load three of four unwanted names meet an empty slot at once.
const SLOTS_PER_NAME: usize = 4;
/// Bits of [`NameTable::beginnings`] per slot: one in 64 unwanted beginnings is taken for a wanted one.
const BITS_PER_SLOT: usize = 16;
const NONE: u32 = u32::MAX;
const ONES: u64 = 0x0101_0101_0101_0101;
const DOTS: u64 = ONES * b'.' as u64;
/// Multiplier of the FxHash of rustc: odd, with well-mixed high bits, which choose the slot.
const FACTOR: u64 = 0x517c_c1b7_2722_0a95;

/// What a wanted name may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Object,
    Function,
}

/// A name and its hash.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    bytes: &'a [u8],
    hash: u64,
}

/// The highest bit of the lowest zero byte of `word`; zero if none is zero.
fn zero_mark(word: u64) -> u64 {
    // A borrow makes only marks above a true zero wrong, so the lowest mark is right.
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

/// The first eight bytes of a name, cut at its end or its first dot.
fn beginning(word: u64) -> u64 {
    let mark = zero_mark(word) | zero_mark(word ^ DOTS);
    let lowest = mark & mark.wrapping_neg();
    if lowest == 0 { word } else { word & (lowest >> 7).wrapping_sub(1) }
}

fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(FACTOR)
}

impl<'a> Name<'a> {
    /// The C string that begins at `start` of a string table; `None` if the table has no zero byte after it.
    #[inline(always)]
    pub fn read(strings: &'a [u8], start: usize) -> Option<Name<'a>> {
        let whole = strings.get(start..)?;
        let (mut rest, mut hash) = (whole, 0);
        let end_of = |mark: u64, rest: &[u8]| whole.len() - rest.len() + mark.trailing_zeros() as usize / 8;
        while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
            let word = u64::from_le_bytes(*chunk);
            let mark = zero_mark(word);
            if mark != 0 {
                let below = (mark >> 7).wrapping_sub(1); // the bytes before the zero
                return Some(Name { bytes: whole.get(..end_of(mark, rest))?, hash: mix(hash, word & below) });
            }
            (rest, hash) = (after, mix(hash, word));
        }
        // At the end of the table the zero byte must be part of the table, not of the padding.
        let end = rest.iter().position(|&b| b == 0)?;
        let bytes = whole.get(..whole.len() - rest.len() + end)?;
        Some(Name { bytes, hash: mix(hash, last_word(rest.get(..end)?)) })
    }

    /// A name as the policy spells it.
    pub fn new(bytes: &'a [u8]) -> Name<'a> {
        let chunks = bytes.chunks_exact(8);
        let rest = last_word(chunks.remainder());
        let hash = chunks.fold(0, |hash, c| mix(hash, last_word(c)));
        Name { bytes, hash: mix(hash, rest) }
    }

    /// The part before the first dot, if there is one.
    pub fn before_dot(&self) -> Option<Name<'a>> {
        let dot = self.bytes.iter().position(|&b| b == b'.')?;
        self.bytes.get(..dot).map(Name::new)
    }
}

/// Up to eight bytes, padded with zeroes.
fn last_word(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |word, &b| word << 8 | u64::from(b))
}

struct Entry<'a> {
    name: &'a [u8],
    kind: Kind,
    index: usize,
    /// The next entry with the same hash and name.
    next: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    hash: u64,
    first: u32,
}

/// Wanted names, each with an index that the caller chose.
#[derive(Default)]
pub struct NameTable<'a> {
    entries: Vec<Entry<'a>>,
    slots: Vec<Slot>,
    /// A bit for the beginning of each name, by its hash.
    beginnings: Vec<u64>,
    objects: bool,
    functions: bool,
}

impl<'a> NameTable<'a> {
    /// An empty table with room for `names` names.
    pub fn with_capacity(names: usize) -> NameTable<'a> {
        let mut wanted = NameTable { entries: Vec::with_capacity(names), ..NameTable::default() };
        wanted.rehash(names);
        wanted
    }

    /// Whether no name is wanted.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether any name of this kind is wanted.
    #[inline(always)]
    pub fn holds(&self, kind: Kind) -> bool {
        match kind {
            Kind::Object => self.objects,
            Kind::Function => self.functions,
        }
    }

    /// Adds a wanted name; a name may be added several times.
    pub fn insert(&mut self, name: &'a [u8], kind: Kind, index: usize) {
        self.entries.push(Entry { name, kind, index, next: NONE });
        match kind {
            Kind::Object => self.objects = true,
            Kind::Function => self.functions = true,
        }
        if self.slots.len() < self.entries.len() * SLOTS_PER_NAME {
            self.rehash(self.entries.len() * 2);
        } else {
            self.link(self.entries.len() - 1);
        }
    }

    fn rehash(&mut self, names: usize) {
        let slots = (names.max(1) * SLOTS_PER_NAME).next_power_of_two();
        self.slots = vec![Slot { hash: 0, first: NONE }; slots];
        self.beginnings = vec![0; (slots * BITS_PER_SLOT).div_ceil(64)];
        (0..self.entries.len()).for_each(|i| self.link(i));
    }

    /// Index of the word in `beginnings`, and number of the bit in that word.
    #[inline(always)]
    fn bit(&self, beginning: u64) -> (usize, u64) {
        let hash = mix(0, beginning) >> 32;
        ((hash >> 6) as usize & self.beginnings.len().wrapping_sub(1), hash & 63)
    }

    /// Whether the name at `start` of a string table, or its part before the first dot, may be wanted.
    #[inline(always)]
    pub fn may_begin(&self, strings: &[u8], start: usize) -> bool {
        let Some(chunk) = strings.get(start..).and_then(|rest| rest.first_chunk::<8>()) else { return true };
        let (word, bit) = self.bit(beginning(u64::from_le_bytes(*chunk)));
        self.beginnings.get(word).is_some_and(|bits| bits >> bit & 1 == 1)
    }

    /// Slot of `hash`, or the empty slot where it belongs. An empty slot exists because slots outnumber names.
    #[inline(always)]
    fn slot(&self, hash: u64) -> usize {
        let mask = self.slots.len().wrapping_sub(1); // an empty table has no slot to find
        let mut at = (hash >> 32) as usize & mask;
        while self.slots.get(at).is_some_and(|s| s.first != NONE && s.hash != hash) {
            at = (at + 1) & mask;
        }
        at
    }

    fn link(&mut self, index: usize) {
        let Some(name) = self.entries.get(index).map(|e| e.name) else { return };
        let hash = Name::new(name).hash;
        let (word, bit) = self.bit(beginning(last_word(name)));
        if let Some(bits) = self.beginnings.get_mut(word) {
            *bits |= 1 << bit;
        }
        let at = self.slot(hash);
        if let (Some(slot), Some(entry)) = (self.slots.get_mut(at), self.entries.get_mut(index)) {
            entry.next = slot.first;
            *slot = Slot { hash, first: index as u32 };
        }
    }

    /// Calls `visit` with every index for which `name` is wanted; true if there was one.
    #[inline(always)]
    pub fn find(&self, name: &Name<'_>, kind: Kind, visit: impl FnMut(usize)) -> bool {
        match self.slots.get(self.slot(name.hash)) {
            Some(slot) if slot.first != NONE => self.visit(slot.first, name, kind, visit),
            _ => false,
        }
    }

    fn visit(&self, first: u32, name: &Name<'_>, kind: Kind, mut visit: impl FnMut(usize)) -> bool {
        let (mut next, mut any) = (first, false);
        while let Some(entry) = self.entries.get(next as usize) {
            if entry.name == name.bytes && entry.kind == kind {
                visit(entry.index);
                any = true;
            }
            next = entry.next;
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hash_alike_wherever_they_are_read() {
        let text = b"\0a\0seven77\0eight888\0nine99999\0sixteen_bytes_16\0caf\xc3\xa9\x80\x01\0end";
        let mut at = 0;
        for word in text.split(|&b| b == 0) {
            let read = Name::read(text, at);
            if at + word.len() == text.len() {
                assert!(read.is_none(), "the last one has no end");
            } else {
                assert_eq!(read.map(|n| (n.bytes, n.hash)), Some((word, Name::new(word).hash)));
            }
            at += word.len() + 1;
        }
        assert!(Name::read(text, text.len()).is_none() && Name::read(text, usize::MAX - 20).is_none());
        assert_eq!(Name::new(b"work.constprop.0").before_dot().map(|n| n.bytes), Some(&b"work"[..]));
    }

    #[test]
    fn beginnings_pass_all_that_may_be_wanted_and_little_else() {
        let mut wanted = NameTable::default();
        assert!(!wanted.may_begin(b"anything at all\0", 0), "nothing is wanted");
        for name in ["work", "exactly8", "make_the_grid", "dotted.7", "a", ""] {
            wanted.insert(name.as_bytes(), Kind::Function, 0);
        }
        for name in ["work", "work.cold", "exactly8", "exactly8.part.0", "make_the_grid", "dotted.7", "a", "a.b", ""] {
            let text = format!("x\0{name}\0other names here");
            assert!(wanted.may_begin(text.as_bytes(), 2), "{name}");
        }
        assert!(wanted.may_begin(b"end\0", 0), "too short to tell");
        let passed = |i: &i32| wanted.may_begin(format!("{i:x}_other_name\0").as_bytes(), 0);
        assert!((0..10_000).filter(passed).count() < 1000);
    }

    #[test]
    fn every_wanted_name_is_found_under_all_its_indices_and_kinds() {
        let names: Vec<String> = (0..500).map(|i| format!("name_{i}")).collect();
        let mut wanted = NameTable::default();
        assert!(wanted.is_empty() && !wanted.find(&Name::new(b""), Kind::Object, |_| {}));
        for (i, name) in names.iter().enumerate() {
            wanted.insert(name.as_bytes(), Kind::Object, i);
            wanted.insert(name.as_bytes(), Kind::Object, 1000 + i);
        }
        wanted.insert(b"name_7", Kind::Function, 9999);
        let found = |name: &str, kind| {
            let mut all = Vec::new();
            assert_eq!(wanted.find(&Name::new(name.as_bytes()), kind, |i| all.push(i)), !all.is_empty());
            all.sort_unstable();
            all
        };
        for (i, name) in names.iter().enumerate() {
            assert_eq!(found(name, Kind::Object), [i, 1000 + i]);
        }
        assert_eq!(found("name_7", Kind::Function), [9999]);
        assert!(found("name_500", Kind::Object).is_empty() && found("name_8", Kind::Function).is_empty());
    }
}
