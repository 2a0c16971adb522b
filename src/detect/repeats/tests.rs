//! Objects of which each page is seen once in a window, used by threads in ways that are known.

use super::*;
use crate::detect::{PageAccess, Sampling, classify};
use crate::profile::summary::{AccessFilter, TIME_SLOTS};

const PAGES: u32 = 4096;
const THREADS: u32 = 4;

/// The pattern of an object of which every page is read first in each of some windows by the thread that `user` says of
/// a window and a page.
fn judged(windows: u32, user: impl Fn(u32, u32) -> u32) -> Pattern {
    let slots = u32::from(TIME_SLOTS) / windows;
    let seen = |window: u32, page: u32| PageAccess {
        instance: 0,
        page,
        thread: user(window, page),
        slot: (window * slots + page * slots / PAGES) as u16,
        reads: 1.0,
        writes: 0.0,
    };
    classify(&ObjectView {
        size: u64::from(PAGES) * 4096,
        skew: 0,
        page_size: 4096,
        threads: THREADS,
        others: 0,
        instances: 1,
        cost_share: 1.0,
        hot: true,
        accesses: (0..windows).flat_map(|w| (0..PAGES).map(move |p| (w, p))).map(|(w, p)| seen(w, p)).collect(),
        rows: Vec::new(),
        filter: AccessFilter::All,
        sampling: Sampling { once: true, ..Sampling::default() },
        by_code: Vec::new(),
    })
}

/// Threads that pass over all of it: one is ahead for some pages, then another, and other ones in each window.
fn passes(window: u32, page: u32) -> u32 {
    mixed(page / (150 + 37 * window), window) % THREADS
}

fn mixed(a: u32, b: u32) -> u32 {
    let x = (a.wrapping_mul(0x9E37_79B9) ^ b.wrapping_mul(0x85EB_CA6B)).wrapping_mul(0xC2B2_AE35);
    (x ^ x >> 15).wrapping_mul(0x2C1B_3C6D) >> 8
}

fn is_placed(pattern: &Pattern) -> bool {
    matches!(pattern.kind, PatternKind::Block | PatternKind::BlockCyclic | PatternKind::Irregular)
}

#[test]
fn passes_of_all_threads_are_no_slices() {
    for windows in [1, 2, 3, 4, 8] {
        let pattern = judged(windows, passes);
        assert!(!is_placed(&pattern), "{windows}: {}: {}", pattern.kind, pattern.evidence);
    }
}

/// One thread is ahead, in the same order: a fixed pattern in a window, another in the next.
#[test]
fn slices_that_differ_from_window_to_window_are_none() {
    for block in [64, 256, 1024] {
        for windows in [4, 8] {
            let pattern = judged(windows, |window, page| (page / block + window) % THREADS);
            assert!(!is_placed(&pattern), "{block}: {}: {}", pattern.kind, pattern.evidence);
        }
    }
}

#[test]
fn what_is_too_little_says_what_to_do() {
    let pattern = judged(1, |_, page| [2, 0, 3, 1][(page / 1024) as usize]);
    assert_eq!(pattern.kind, PatternKind::Unsure, "{}", pattern.evidence);
    assert!(pattern.evidence.contains("no page was seen in a second window"), "{}", pattern.evidence);
    assert!(pattern.evidence.contains("a longer run"), "{}", pattern.evidence);
}

#[test]
fn slices_are_found_in_any_number_of_windows() {
    for windows in [1, 2, 3, 8] {
        let block = judged(windows, |_, page| page * THREADS / PAGES);
        assert_eq!(block.kind, PatternKind::Block, "{windows}: {}", block.evidence);
        assert_eq!(block.confidence > 0.5, windows > 1, "{windows}: {}: {}", block.confidence, block.evidence);
        for pages in [16, 64] {
            let cyclic = judged(windows, |_, page| page / pages % THREADS);
            assert_eq!(cyclic.kind, PatternKind::BlockCyclic, "{windows}: {}", cyclic.evidence);
            assert_eq!(cyclic.period, Some(u64::from(pages * THREADS) * 4096));
        }
        // A fifth of the first uses are of any thread.
        let noisy = judged(windows, |window, page| {
            let any = mixed(page, window);
            if any.is_multiple_of(5) { any / 5 % THREADS } else { page * THREADS / PAGES }
        });
        assert_eq!(noisy.kind, PatternKind::Block, "{windows}: {}", noisy.evidence);
    }
}

#[test]
fn owners_of_pages_take_a_second_window() {
    let pattern = |windows| judged(windows, |_, page| mixed(page / 8, 7) % THREADS);
    assert_eq!(pattern(4).kind, PatternKind::Irregular, "{}", pattern(4).evidence);
    assert!(!is_placed(&pattern(1)), "{}", pattern(1).evidence);
}
