//! What the other accesses of a loop tell of one whose next instruction accesses memory, too, see [`super::waiting`].

use rustc_hash::FxHashMap;

use crate::profile::records::{AccessCode, Frame};
use crate::profile::summary::Entry;

/// Bytes of an instruction at most (15 on x86_64: Intel 64 and IA-32 Architectures Software Developer's Manual, volume
/// 2, section 2.3.11).
const MOST_BYTES: u64 = 15;

/// The samples of one loop at instructions behind its accesses, which do not wait, and how many such instructions it
/// has.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Turn {
    /// Tells one loop from another.
    pub seed: u64,
    pub later: f64,
    pub others: f64,
}

/// The loops of the accesses whose next instruction accesses memory, too, by instruction: what a turn of the loop takes
/// without waiting is known from the other accesses of the loop only, as all of its instructions run equally often.
#[derive(Debug, Default)]
pub(super) struct Turns(FxHashMap<Frame, Turn>);

impl Turns {
    pub fn of(entries: &[Entry]) -> Turns {
        let mut all: Vec<&AccessCode> = entries.iter().flat_map(|e| &e.details.access_code).collect();
        all.retain(|code| code.body > 0 && code.gap > 0);
        all.sort_unstable_by_key(|code| code.frame);
        all.dedup_by_key(|code| code.frame);
        let mut found = FxHashMap::default();
        let mut rest = all.as_slice();
        while let Some(first) = rest.first() {
            let (own, next) = rest.split_at(members(first, rest));
            let mut turn = Turn { seed: first.frame.offset, ..Turn::default() };
            for code in own {
                turn.later += code.later as f64;
                turn.others += f64::from(code.gap - 1);
            }
            if turn.others > 0.0 {
                found.extend(own.iter().filter(|code| code.gap == 1).map(|code| (code.frame, turn)));
            }
            rest = next;
        }
        Turns(found)
    }

    /// The loop of an instruction; none of one that has later samples of its own.
    pub fn at(&self, frame: Frame) -> Option<Turn> {
        self.0.get(&frame).copied()
    }
}

/// How many of the accesses `rest`, in the order of their addresses, are in the loop of the first one: an access is at
/// most as far from the one before as the instructions between them are long, and the loop has no more than its own.
fn members(first: &AccessCode, rest: &[&AccessCode]) -> usize {
    let mut gaps = first.gap;
    let follows = |pair: &[&AccessCode]| {
        let (before, code) = (pair[0], pair[1]);
        let reach = before.frame.offset.saturating_add(MOST_BYTES * u64::from(before.gap));
        gaps = gaps.saturating_add(code.gap);
        code.frame.module == before.frame.module
            && code.body == before.body
            && code.frame.offset <= reach
            && gaps <= first.body
    };
    1 + rest.windows(2).map(follows).take_while(|follows| *follows).count()
}
