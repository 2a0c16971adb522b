//! Cases with a name: the paper's, the awkward ones, and where samples are too few.

use numamma::detect::{ObjectView, PageAccess, PatternKind, Sampling, classify, samples_needed};
use numamma::profile::summary::AccessFilter;

use super::random::Random;
use super::trace::{PAGE, SLOTS, merged};

/// A view of `pages` pages with `samples` samples; `touch` gives the pages and threads one sample sees.
pub fn traced(pages: u32, threads: u32, samples: u32, touch: impl Fn(&mut Random, &mut Vec<(u32, u32)>)) -> ObjectView {
    let mut r = Random::new(u64::from(pages) ^ u64::from(samples) << 20);
    let (mut accesses, mut seen) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        seen.clear();
        touch(&mut r, &mut seen);
        let slot = r.below(SLOTS) as u16;
        for &(page, thread) in &seen {
            accesses.push(PageAccess { instance: 0, page, thread, slot, reads: 0.0, writes: 1.0 });
        }
    }
    ObjectView {
        size: u64::from(pages) * PAGE,
        skew: 0,
        page_size: PAGE,
        threads,
        others: 0,
        instances: 1,
        cost_share: 0.5,
        hot: true,
        accesses: merged(accesses),
        rows: Vec::new(),
        filter: AccessFilter::All,
        sampling: Sampling::default(),
        by_code: Vec::new(),
    }
}

/// Systems.md: `cvar` of LU class C, 558 MiB, split every 160 MiB over 32 threads; 500 samples are enough for the
/// class, 10,000 for the exact page.
#[test]
fn lu_of_the_paper() {
    for (samples, exact) in [(500, false), (10_000, true)] {
        let cvar = traced(142_848, 32, samples, |r, seen| {
            let page = r.below(142_848) as u32;
            let thread = if r.chance(0.1) { r.below(32) as u32 } else { page % 40_960 * 32 / 40_960 };
            seen.push((page, thread));
        });
        let got = classify(&cvar);
        assert_eq!(got.kind, PatternKind::BlockCyclic, "{}", got.evidence);
        let period = got.period.unwrap_or(0) / PAGE;
        assert!(period.abs_diff(40_960) <= if exact { 0 } else { 400 }, "{period} pages");
        assert!(got.confidence > 0.8, "{}", got.confidence);
    }
}

/// A stencil: one sample sees ten accesses in three planes, the outer ones reach into the neighbour's slice.
#[test]
fn a_stencil_with_halo_is_block() {
    let got = classify(&traced(8192, 16, 400, |r, seen| {
        let page = r.below(8192) as u32;
        let thread = page * 16 / 8192;
        for plane in [0, 64, 128] {
            let at = (page + plane).saturating_sub(64).min(8191);
            seen.extend([(at, thread); 3]);
        }
    }));
    assert_eq!(got.kind, PatternKind::Block, "{}", got.evidence);
    assert_eq!(got.slices.len(), 16);
    assert!(got.slices.iter().enumerate().all(|(i, s)| s.thread == i as u32 && s.start < s.end));
}

/// A buffer of 12,000 pages of which the program needs the last 2,000: what nobody uses shows no repeat.
#[test]
fn repeats_are_counted_where_the_object_is_used() {
    let got = classify(&traced(12_000, 2, 800, |r, seen| {
        let page = r.below(2_000) as u32;
        seen.push((10_000 + page, page % 1_000 / 500));
    }));
    assert_eq!(got.kind, PatternKind::BlockCyclic, "{}", got.evidence);
    assert!(got.evidence.contains(", 2.0 times"), "{}", got.evidence);
}

/// A gather: the index array is block, the gathered one random, although samples come in bursts.
#[test]
fn a_gathered_array_is_random() {
    let got = classify(&traced(20_000, 8, 500, |r, seen| {
        let thread = r.below(8) as u32;
        (0..5).for_each(|_| seen.push((r.below(20_000) as u32, thread)));
    }));
    assert_eq!(got.kind, PatternKind::Random, "{}", got.evidence);
}

/// Dynamic scheduling: chunks of 16 pages, each time by another thread; neighbours agree for a while, but no part
/// belongs to one thread.
#[test]
fn chunks_handed_out_dynamically_are_not_slices() {
    let got = classify(&traced(16_384, 8, 3000, |r, seen| {
        let (chunk, thread) = (r.below(1024) as u32, r.below(8) as u32);
        (0..6).for_each(|_| seen.push((chunk * 16 + r.below(16) as u32, thread)));
    }));
    assert!(matches!(got.kind, PatternKind::Random | PatternKind::Unsure), "{:?} {}", got.kind, got.evidence);
}

/// A tree that one thread builds, all threads search, and one thread frees: the allocator writes into the blocks that
/// are freed, which does not make the tree a written object.
#[test]
fn a_table_released_at_the_end_is_read_shared() {
    let mut view = traced(20_000, 8, 3000, |r, seen| seen.push((r.below(20_000) as u32, r.below(8) as u32)));
    let (first, last) = (SLOTS as u16 / 10, SLOTS as u16 - 3);
    for (i, a) in view.accesses.iter_mut().enumerate() {
        let (alone, written) = (a.slot < first || a.slot >= last, a.slot < first || (a.slot >= last && i % 4 == 0));
        (a.reads, a.writes) = if written { (0.0, 1.0) } else { (1.0, 0.0) };
        a.thread = if alone { 0 } else { a.thread };
    }
    let got = classify(&view);
    assert_eq!(got.kind, PatternKind::ReadShared, "{}", got.evidence);
}

/// Hot pages common to all threads, at a period of their own, are no slices.
#[test]
fn periodic_hot_pages_are_random() {
    let got = classify(&traced(65_536, 16, 20_000, |r, seen| {
        let page = r.below(1024) as u32 * 64 + r.below(4) as u32;
        seen.push((page, r.below(16) as u32));
    }));
    assert_eq!(got.kind, PatternKind::Random, "{}", got.evidence);
}

/// The design's size for later: 256 threads over a million pages, and still seconds for thousands of objects.
#[test]
fn a_million_pages_and_256_threads() {
    let _beside = crate::common::beside_others();
    let start = std::time::Instant::now();
    let got = classify(&traced(1 << 20, 256, 30_000, |r, seen| {
        let page = r.below(1 << 20) as u32;
        let thread = if r.chance(0.2) { r.below(256) as u32 } else { (page % 70_000 * 256 / 70_000 * 77) % 256 };
        seen.push((page, thread));
    }));
    assert_eq!((got.kind, got.period), (PatternKind::BlockCyclic, Some(70_000 * PAGE)), "{}", got.evidence);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn few_samples_are_unsure_and_say_how_many_are_needed() {
    let got = classify(&traced(10_000, 16, 60, |r, seen| seen.push((r.below(10_000) as u32, r.below(16) as u32))));
    assert_eq!(got.kind, PatternKind::Unsure);
    assert!(got.evidence.contains(&format!("{:.0} needed", samples_needed(16))), "{}", got.evidence);
    let mut empty = traced(10, 2, 1, |_, _| {});
    assert_eq!(classify(&empty).kind, PatternKind::Unsure);
    empty.size = 100;
    assert_eq!(classify(&empty).kind, PatternKind::Small);
    empty.size = 10 * PAGE;
    empty.hot = false;
    assert_eq!(classify(&empty).kind, PatternKind::Cold);
}
