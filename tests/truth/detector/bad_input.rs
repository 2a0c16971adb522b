//! Views that no profile should hold: an answer, never a panic.

use numamma::detect::{ObjectView, PageAccess, Pattern, PatternKind, Row, Sampling, classify};
use numamma::profile::summary::AccessFilter;

use super::trace::PAGE;

fn at(page: u32, thread: u32, slot: u16) -> PageAccess {
    PageAccess { instance: page % 7, page, thread, slot, reads: 1.0, writes: 1.0 }
}

fn view(size: u64, threads: u32, accesses: Vec<PageAccess>) -> ObjectView {
    ObjectView {
        size,
        skew: 0,
        page_size: PAGE,
        threads,
        others: 0,
        instances: 1,
        cost_share: 0.5,
        hot: true,
        accesses,
        rows: Vec::new(),
        filter: AccessFilter::All,
        sampling: Sampling::default(),
        by_code: Vec::new(),
    }
}

/// Classifies and checks what every verdict must keep.
fn sane(view: &ObjectView) -> Pattern {
    let got = classify(view);
    assert!((0.0..=1.0).contains(&got.confidence) && !got.evidence.is_empty(), "{got:?}");
    assert!(got.slices.windows(2).all(|w| w[0].end <= w[1].start) || got.period.is_some(), "{got:?}");
    assert!(got.slices.iter().all(|s| s.start <= s.end && s.thread < view.threads), "{got:?}");
    assert!(got.segments.iter().all(|s| s.first_slot < s.end_slot && s.start_s <= s.end_s), "{got:?}");
    assert!(got.evidence.len() < 2000 && !got.evidence.contains("NaN") && !got.evidence.contains("inf"), "{got:?}");
    got
}

#[test]
fn no_threads_and_one_thread() {
    let accesses: Vec<PageAccess> = (0..5000).map(|i| at(i % 100, 0, (i % 64) as u16)).collect();
    assert_eq!(sane(&view(100 * PAGE, 0, accesses.clone())).kind, PatternKind::Unsure);
    assert_eq!(sane(&view(100 * PAGE, 1, accesses)).kind, PatternKind::Private);
    assert_eq!(sane(&view(100 * PAGE, 1, Vec::new())).kind, PatternKind::Unsure);
}

#[test]
fn ranks_at_or_above_the_number_of_threads_do_not_count() {
    let wild = (0..5000).map(|i| at(i % 100, if i % 2 == 0 { u32::MAX } else { 4 + i }, (i % 64) as u16));
    let good = (0..5000).map(|i| at(i % 100, (i % 100) / 25, (i / 100) as u16));
    let got = sane(&view(100 * PAGE, 4, wild.chain(good).collect()));
    assert_eq!(got.kind, PatternKind::Block, "{}", got.evidence);
}

#[test]
fn accesses_outside_the_object_and_odd_weights_do_not_count() {
    let mut accesses: Vec<PageAccess> = (0..5000).map(|i| at(i % 100, (i % 100) / 25, (i / 100) as u16)).collect();
    accesses.extend((0..5000).map(|i| at(100 + i, i % 4, 3)));
    accesses.extend((0..50).map(|i| PageAccess { page: u32::MAX, slot: u16::MAX, ..at(i, 0, 0) }));
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -5.0, 0.0] {
        accesses.extend((0..50).map(|i| PageAccess { reads: odd, writes: 0.0, ..at(i, 0, 0) }));
    }
    let got = sane(&view(100 * PAGE, 4, accesses));
    assert_eq!(got.kind, PatternKind::Block, "{}", got.evidence);
}

#[test]
fn sizes_and_times_of_zero_and_without_end() {
    let accesses: Vec<PageAccess> = (0..5000).map(|i| at(i % 100, i % 4, 0)).collect();
    assert_eq!(sane(&view(0, 4, accesses.clone())).kind, PatternKind::Small);
    // All in one slot: a run of no length.
    sane(&view(100 * PAGE, 4, accesses.clone()));
    for size in [u64::MAX, 1 << 50, PAGE] {
        sane(&view(size, 4, accesses.clone()));
        sane(&view(size, u32::MAX, accesses.clone()));
    }
    for page_size in [0, 1, 1 << 30, u64::MAX] {
        sane(&ObjectView { page_size, skew: u64::MAX, ..view(1 << 30, 4, accesses.clone()) });
    }
    for (duration_s, rate_hz) in [(f64::NAN, f64::NAN), (f64::INFINITY, -1.0), (-1.0, 1e300)] {
        let sampling = Sampling { duration_s, rate_hz, once: false };
        classify(&ObjectView { sampling, ..view(100 * PAGE, 64, accesses[..50].to_vec()) });
    }
}

#[test]
fn a_million_instances() {
    let _beside = crate::common::beside_others();
    let start = std::time::Instant::now();
    let instance =
        |i: u32| PageAccess { instance: i, page: 0, thread: i / 250_000, slot: (i % 64) as u16, ..at(0, 0, 0) };
    let mut million = view(PAGE, 4, (0..1_000_000).map(instance).collect());
    million.rows = vec![Row { size: PAGE, allocator: Some(0) }; 1_000_000];
    let got = sane(&million);
    assert_eq!((got.kind, got.group), (PatternKind::Block, Some(1_000_000)), "{}", got.evidence);
    million.rows = vec![Row { size: u64::MAX, allocator: None }; 3];
    sane(&million);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn one_page_and_one_access() {
    for threads in [1, 2, 64] {
        sane(&view(PAGE, threads, vec![at(0, 0, 0)]));
        sane(&view(PAGE, threads, (0..4000).map(|i| at(0, i % threads, (i % 64) as u16)).collect()));
        sane(&view(2 * PAGE, threads, (0..4000).map(|i| at(i % 2, i % threads, (i % 64) as u16)).collect()));
    }
}
