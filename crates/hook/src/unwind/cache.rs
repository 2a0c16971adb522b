//! Rules by return address: direct-mapped, lock-free, one word per entry.
//!
//! ```text
//! bits  0..31  packed rule
//! bits 31..64  tag: return address >> 14 (user addresses have 47 bits)
//! ```
//! A word is self-contained, so plain relaxed loads and stores suffice; a lost race costs one more derivation of the
//! rule.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::rule::{self, Rule};

/// Entries; 2^14 words are 128 KiB of .bss, of which only the used lines are touched.
const INDEX_BITS: u32 = 14;
const ENTRIES: usize = 1 << INDEX_BITS;
/// Groups that are cleared together; a group is eight cache lines.
const GROUPS: usize = 256;
const GROUP: usize = ENTRIES / GROUPS;
/// Bits of a user-space address on x86_64 with four-level page tables.
const ADDRESS_BITS: u32 = 47;

const _: () = assert!(rule::BITS + ADDRESS_BITS - INDEX_BITS == 64);

static TABLE: [AtomicU64; ENTRIES] = [const { AtomicU64::new(0) }; ENTRIES];
/// A bit for each group of entries that has been written: most programs use a few groups.
static USED: [AtomicU64; GROUPS / 64] = [const { AtomicU64::new(0) }; GROUPS / 64];
static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// Entry of an address. The low bits are only xored with bits of the tag, so index and tag together name
/// exactly one address.
#[inline(always)]
fn index(ra: usize) -> usize {
    (ra ^ ra >> INDEX_BITS ^ ra >> (2 * INDEX_BITS)) & (ENTRIES - 1)
}

#[inline(always)]
fn tag(ra: usize) -> u64 {
    (ra >> INDEX_BITS) as u64
}

/// The cached rule of a return address.
#[inline(always)]
pub fn get(ra: usize) -> Option<Rule> {
    let word = TABLE[index(ra)].load(Ordering::Relaxed);
    (word >> rule::BITS == tag(ra)).then(|| Rule::unpack(word))
}

/// Number to read before deriving a rule and to hand to [`put`].
pub fn generation() -> usize {
    GENERATION.load(Ordering::Acquire)
}

/// Caches a rule derived in `generation`, unless [`clear`] came in between.
pub fn put(ra: usize, rule: Rule, generation: usize) {
    let Some(packed) = rule.pack() else { return };
    if ra >> ADDRESS_BITS != 0 || tag(ra) == 0 {
        return;
    }
    let entry = &TABLE[index(ra)];
    let group = index(ra) / GROUP;
    let (used, bit) = (&USED[group / 64], 1 << (group % 64));
    // SeqCst here and in `forget`: either its sweep comes after these stores, or the load sees its increment.
    if used.load(Ordering::SeqCst) & bit == 0 {
        used.fetch_or(bit, Ordering::SeqCst);
    }
    entry.store(tag(ra) << rule::BITS | packed, Ordering::SeqCst);
    if GENERATION.load(Ordering::SeqCst) != generation {
        entry.store(0, Ordering::Relaxed);
    }
}

/// Forgets everything.
pub fn clear() {
    forget(|_| true);
}

/// Forgets the rules of addresses in `[start, end)`, and those that are being derived now.
pub fn clear_range(start: usize, end: usize) {
    // Some addresses before and after the range have the same tag; their rules are derived again.
    let tags = tag(start)..=tag(end.saturating_sub(1));
    forget(|word| tags.contains(&(word >> rule::BITS)));
}

fn forget(is_wanted: impl Fn(u64) -> bool) {
    GENERATION.fetch_add(1, Ordering::SeqCst);
    for (group, entries) in TABLE.chunks_exact(GROUP).enumerate() {
        if USED[group / 64].load(Ordering::SeqCst) >> (group % 64) & 1 == 0 {
            continue;
        }
        for entry in entries {
            let word = entry.load(Ordering::SeqCst);
            if word != 0 && is_wanted(word) {
                entry.store(0, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::{Base, SavedRbp};
    use super::*;

    #[test]
    fn an_entry_answers_for_its_own_address_only() {
        let _alone = super::super::tests::CACHE.lock().unwrap();
        let rule = Rule { base: Base::Rsp, offset: 48, rbp: SavedRbp::Kept };
        let ra = 0x7123_4567_89ab;
        assert_eq!(ra >> ADDRESS_BITS, 0);
        put(ra, rule, generation());
        assert_eq!(get(ra), Some(rule));
        for bit in 0..47 {
            assert_eq!(get(ra ^ 1 << bit), None, "bit {bit}");
        }
        put(ra, rule, generation().wrapping_sub(1));
        assert_eq!(get(ra), None, "a rule derived before a clear is not kept");
        put(1 << 47 | ra, rule, generation());
        assert_eq!(get(1 << 47 | ra), None);
        put(ra, rule, generation());
        clear_range(ra + (1 << INDEX_BITS), ra + (2 << INDEX_BITS));
        clear_range(ra - (2 << INDEX_BITS), ra - (1 << INDEX_BITS));
        assert_eq!(get(ra), Some(rule));
        clear_range(ra - 5, ra + 1);
        assert_eq!(get(ra), None);
    }
}
