//! What samples of a small object tell of how threads share its lines: they have addresses, but no order, so that
//! nothing is known of how often a line is taken from a thread.

use std::collections::BTreeMap;

use super::LINE;
use crate::detect::roles::Roles;
use crate::profile::summary::{Counters, Entry, ratio};

/// Share of the accesses to a line, of a thread's to it and of all to the object, from which on they count: less may be
/// the initialisation, or a result that is read in the end.
const USES: f64 = 0.05;
/// Accesses of a thread to a line from which on these words are all that it uses: of two words that it uses alike, ten
/// samples miss one once in 500 times.
const LEAST: u64 = 10;
/// Share of the object's accesses whose addresses must be known.
const KNOWN: f64 = 0.5;

/// How threads share the lines of a small object, by samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampledSharing {
    /// Too few addresses are known, or accesses.
    Unknown,
    /// No line is written by one thread and used by another.
    Apart,
    /// Threads use the same words of such lines: padding does not help.
    SameWords,
    /// Threads use different words of a line, these two for example, bytes from the start of the object (of many small
    /// ones, of the line).
    DifferentWords(u64, u64),
}

/// Words by address, of one thread and its successors in one line.
type Words = BTreeMap<u64, Counters>;

/// How threads share the lines of an object of less than a page.
pub fn sampled_sharing(entry: &Entry, roles: &Roles) -> SampledSharing {
    let mut lines = BTreeMap::<u64, BTreeMap<Option<u32>, Words>>::new();
    for word in &entry.details.words {
        let of_line = lines.entry(word.addr & !(LINE - 1)).or_default();
        let words = of_line.entry(roles.place(word.thread)).or_default();
        words.entry(word.addr).or_default().add(&word.counters);
    }
    let accesses = |words: &Words| words.values().map(Counters::accesses).sum::<u64>();
    let of_line = |users: &BTreeMap<Option<u32>, Words>| users.values().map(accesses).sum::<u64>();
    let known: u64 = lines.values().map(of_line).sum();
    if known == 0 || ratio(known, entry.total.accesses()) < KNOWN {
        return SampledSharing::Unknown;
    }
    let (mut found, mut is_unknown) = (SampledSharing::Apart, false);
    for users in lines.values_mut() {
        let all = of_line(users);
        if ratio(all, known) < USES {
            continue;
        }
        users.retain(|_, words| ratio(accesses(words), all) >= USES);
        if users.values().any(|words| accesses(words) < LEAST) {
            is_unknown |= users.len() > 1;
            continue;
        }
        for words in users.values_mut() {
            let own = accesses(words);
            words.retain(|_, counters| ratio(counters.accesses(), own) >= USES);
        }
        match shared(&users.values().collect::<Vec<_>>()) {
            Some(Pair::Different(a, b)) => return SampledSharing::DifferentWords(offset(entry, a), offset(entry, b)),
            Some(Pair::Same) => found = SampledSharing::SameWords,
            None => {}
        }
    }
    if is_unknown && found == SampledSharing::Apart { SampledSharing::Unknown } else { found }
}

fn offset(entry: &Entry, addr: u64) -> u64 {
    let base = entry.seen.first().map(|of| of.base).filter(|base| entry.seen.len() == 1 && *base <= addr);
    base.map(|base| addr - base).filter(|at| *at < entry.size).unwrap_or(addr % LINE)
}

/// Two threads that use one line, of which one writes it.
enum Pair {
    /// They have a word in common.
    Same,
    /// They have not; the words that they use most.
    Different(u64, u64),
}

fn shared(users: &[&Words]) -> Option<Pair> {
    let writes = |words: &Words| words.values().any(|counters| counters.writes > 0);
    let most =
        |words: &Words| words.iter().max_by_key(|(_, counters)| counters.accesses()).map_or(0, |(addr, _)| *addr);
    let mut found = None;
    for (at, a) in users.iter().enumerate() {
        for b in users[at + 1..].iter().filter(|b| writes(a) || writes(b)) {
            if !a.keys().any(|addr| b.contains_key(addr)) {
                return Some(Pair::Different(most(a), most(b)));
            }
            found = Some(Pair::Same);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::records::Instance;
    use crate::profile::summary::WordUse;

    /// An object of 256 bytes at `base` with writes (address, thread, number) by four workers, and as many accesses
    /// whose address is not known.
    fn entry(uses: &[(u64, u32, u64)], unknown: u64) -> Entry {
        let counters = |writes| Counters { writes, ..Counters::default() };
        let words = uses.iter().map(|&(addr, thread, n)| WordUse { addr, thread, counters: counters(n) }).collect();
        let all = unknown + uses.iter().map(|u| u.2).sum::<u64>();
        let mut entry = Entry { size: 256, total: counters(all), ..Entry::default() };
        entry.seen.push(Instance { base: 4096, size: 256, ..Instance::default() });
        entry.details.words = words;
        entry
    }

    fn judged(uses: &[(u64, u32, u64)], unknown: u64) -> SampledSharing {
        sampled_sharing(&entry(uses, unknown), &Roles::in_order(4))
    }

    #[test]
    fn each_thread_in_a_line_of_its_own_shares_nothing() {
        let padded: Vec<_> = (0..4).map(|t| (4096 + 64 * u64::from(t), t, 300)).collect();
        assert_eq!(judged(&padded, 0), SampledSharing::Apart);
        let mut with_results = padded.clone();
        with_results.extend((1..4).map(|t| (4096 + 64 * t, 0, 2)));
        assert_eq!(judged(&with_results, 0), SampledSharing::Apart, "one thread adds the results in the end");
        assert_eq!(judged(&padded, 1201), SampledSharing::Unknown);
    }

    #[test]
    fn words_of_one_line_tell_false_sharing_from_true() {
        let side_by_side: Vec<_> = (0..4).map(|t| (4096 + 8 * u64::from(t), t, 300)).collect();
        assert_eq!(judged(&side_by_side, 100), SampledSharing::DifferentWords(0, 8));
        let one: Vec<_> = (0..4).map(|t| (4096 + 72, t, 300)).collect();
        assert_eq!(judged(&one, 0), SampledSharing::SameWords);
        let lock = [(4096, 0, 100), (4096, 1, 100), (4104, 0, 90), (4104, 1, 110)];
        assert_eq!(judged(&lock, 0), SampledSharing::SameWords);
        let mut both = one;
        both.extend([(4096 + 128, 0, 200), (4096 + 136, 1, 200)]);
        assert_eq!(judged(&both, 0), SampledSharing::DifferentWords(128, 136));
        let few: Vec<_> = (0..2).map(|t| (4096 + 8 * u64::from(t), t, 9)).collect();
        assert_eq!(judged(&few, 0), SampledSharing::Unknown);
    }

    #[test]
    fn what_is_only_read_is_shared_by_nobody() {
        let mut read = entry(&[(4096, 0, 100), (4104, 1, 100)], 0);
        for word in &mut read.details.words {
            word.counters = Counters { reads: 100, ..Counters::default() };
        }
        assert_eq!(sampled_sharing(&read, &Roles::in_order(4)), SampledSharing::Apart);
    }
}
