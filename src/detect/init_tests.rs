//! A thread that is alone with an object: at first, in a part of every step, or because it has more to do.

use super::*;
use crate::detect::{CodeAccesses, Sampling, classify};
use crate::profile::summary::AccessFilter;

const PAGES: u32 = 4096;
const THREADS: u32 = 4;
/// Time slots of a step, and of its part with all threads.
const STEP: u16 = 6;
const TOGETHER: u16 = 3;

/// xorshift64*.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as u32 % n
    }
}

/// The slice of a thread of blocks.
fn slice(thread: u32, dice: &mut Dice) -> u32 {
    (thread * PAGES + dice.below(PAGES)) / THREADS
}

fn anywhere(_: u32, dice: &mut Dice) -> u32 {
    dice.below(PAGES)
}

/// Steps from slot `from` on in which all threads use the pages that `together` says, and then thread 0 those of
/// `alone`, by the function of that number. Before the steps thread 0 fills all pages.
fn steps(from: u16, together: fn(u32, &mut Dice) -> u32, alone: fn(u32, &mut Dice) -> u32, code: usize) -> ObjectView {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let mut by_code = vec![CodeAccesses::default(); 2];
    by_code.iter_mut().enumerate().for_each(|(n, c)| c.function = format!("f{n}"));
    for slot in 0..60 {
        let filled = slot < from;
        let is_alone = !filled && (slot - from) % STEP >= TOGETHER;
        for thread in 0..if filled || is_alone { 1 } else { THREADS } {
            for _ in 0..25 {
                let page = match (filled, is_alone) {
                    (true, _) => anywhere(thread, &mut dice),
                    (_, true) => alone(thread, &mut dice),
                    _ => together(thread, &mut dice),
                };
                let access = PageAccess { instance: 0, page, thread, slot, reads: 1.0, writes: 0.0 };
                by_code[if is_alone { code } else { 0 }].accesses.push(access);
            }
        }
    }
    ObjectView {
        size: u64::from(PAGES) * 4096,
        skew: 0,
        page_size: 4096,
        threads: THREADS,
        others: 0,
        instances: 1,
        cost_share: 0.5,
        hot: true,
        accesses: by_code.iter().flat_map(|c| c.accesses.clone()).collect(),
        rows: Vec::new(),
        filter: AccessFilter::All,
        sampling: Sampling::default(),
        by_code: if code > 0 { by_code } else { Vec::new() },
    }
}

/// The slots that do not count.
fn dropped(view: &ObjectView) -> Vec<u16> {
    let serial = serial_slots(view, &Samples::of(view));
    let dropped = serial.map(|s| s.dropped).unwrap_or_default();
    dropped.iter().zip(0..).filter(|(dropped, _)| **dropped).map(|(_, slot)| slot).collect()
}

#[test]
fn the_thread_with_most_to_do_is_no_initialisation() {
    for view in [steps(0, anywhere, anywhere, 0), steps(0, slice, slice, 0)] {
        assert!(dropped(&view).is_empty(), "{:?}", dropped(&view));
        assert!(!classify(&view).evidence.contains("initialisation"), "{}", classify(&view).evidence);
    }
}

#[test]
fn what_it_fills_before_is() {
    for view in [steps(8, anywhere, anywhere, 0), steps(8, slice, slice, 0)] {
        assert_eq!(dropped(&view), (0..8).collect::<Vec<u16>>());
    }
}

#[test]
fn other_work_alone_does_not_count() {
    // All pages in place of a slice, and other code.
    for view in [steps(8, slice, anywhere, 0), steps(8, anywhere, anywhere, 1)] {
        let found = dropped(&view);
        assert!(found.len() > 30, "{found:?}");
    }
}
