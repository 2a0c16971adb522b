//! Lines whose users are known.

use super::*;
use crate::profile::records::SharedLine;

fn word(offset: u8, readers: u64, writers: u64) -> SharedWord {
    let count = |set: u64| if set == 0 { 0 } else { 1000 };
    SharedWord { offset, readers, writers, reads: count(readers), writes: count(writers), ..SharedWord::default() }
}

fn line(words: Vec<SharedWord>, other_words: u64, same_word: u64) -> LineOfObject {
    let line = SharedLine { object: 1, addr: 0x1040, other_words, same_word, words };
    LineOfObject { object: "x".into(), base: Some(0x1000), size: 4096, line }
}

fn judged(words: Vec<SharedWord>, other_words: u64, same_word: u64) -> Option<(SharingKind, Option<u64>)> {
    let of = line(words, other_words, same_word);
    judge(&of, &Distances::of(&[&of]), 10.0, &|_| None).map(|shared| (shared.kind, shared.padding))
}

#[test]
fn kinds_and_paddings_of_lines() {
    let counters = || (0..8).map(|n| word(8 * n, 1 << n, 1 << n)).collect::<Vec<_>>();
    assert_eq!(judged(counters(), 9000, 0), Some((SharingKind::False, Some(56))));
    assert_eq!(judged(counters(), 50, 0), None, "rare");
    // Structs of 24 bytes of which two words are used; one lies across the beginning of the line.
    let structs = vec![word(0, 1, 1), word(8, 2, 2), word(24, 2, 2), word(32, 4, 4), word(48, 4, 4), word(56, 8, 8)];
    assert_eq!(judged(structs, 9000, 0), Some((SharingKind::False, Some(40))));
    assert_eq!(judged(vec![word(0, 15, 15)], 0, 9000), Some((SharingKind::True, None)));
    // A flag that one thread writes and all read, beside a counter of another thread.
    let mixed = line(vec![word(0, 15, 1), word(8, 2, 2)], 5000, 4000);
    let begins_here = LineOfObject { base: Some(0x1040), ..mixed.clone() };
    let verdict = |of: &LineOfObject| {
        let shared = judge(of, &Distances::of(&[of]), 10.0, &|_| None).expect("shared often");
        (shared.kind, shared.padding)
    };
    assert_eq!(verdict(&begins_here), (SharingKind::Mixed, Some(56)));
    assert_eq!(verdict(&mixed), (SharingKind::Mixed, None), "the first part may have begun in the line before");
    assert_eq!(judged(vec![word(0, 1, 1)], 9000, 0), None, "one thread");
    // An atomic of four threads, each of which writes a word of its own beside it once, at its end.
    let once = |n: u8| SharedWord { offset: 8 + n, writers: 1 << n, writes: 1, ..SharedWord::default() };
    let atomic = SharedWord { reads: 0, writes: 30_000, ..word(0, 15, 15) };
    let all = [atomic].into_iter().chain((0..4).map(once)).collect();
    assert_eq!(judged(all, 12, 27_000), Some((SharingKind::True, None)));
}

#[test]
fn lines_are_reported_where_their_losses_cost_a_hundredth_of_the_time() {
    let of = |object: &str, losses| {
        let of = line((0..8).map(|n| word(8 * n, 1 << n, 1 << n)).collect(), losses, 0);
        judge(&LineOfObject { object: object.into(), ..of }, &Distances::default(), 1.0, &|_| None)
            .expect("shared often")
    };
    // A work counter beside 200 million accesses, and an object whose lines each lose little.
    let found = || vec![of("counter", 4000), of("array", 15_000), of("array", 15_000)];
    let kept = |program_ns| {
        let mut all = found();
        retain_costly(&mut all, program_ns);
        all.iter().map(|shared| shared.object.clone()).collect::<Vec<_>>()
    };
    assert_eq!(kept(2e8), ["array", "array"]);
    assert_eq!(kept(2e7).len(), 3);
    assert!(kept(4e8).is_empty());
}

#[test]
fn small_blocks_that_one_thread_writes_for_others_are_handed_on() {
    let judged = |base, writers| {
        let of = line(vec![word(0, 6, writers), word(4, 6, writers)], 0, 9000);
        judge(&LineOfObject { base, ..of }, &Distances::default(), 10.0, &|_| None).is_some()
    };
    assert!(!judged(None, 1), "a producer and its consumers");
    assert!(judged(Some(0x1000), 1), "a flag");
    assert!(judged(None, 3), "a counter");
}

#[test]
fn both_sides_are_named() {
    let words =
        vec![SharedWord { field: "a".into(), ..word(8, 0, 1) }, SharedWord { field: "b".into(), ..word(16, 2, 0) }];
    let shared = judge(&line(words, 9000, 0), &Distances::default(), 10.0, &|_| None).unwrap();
    let sides: Vec<_> = shared.sides.iter().map(|s| (s.offset, s.field.as_str(), s.write)).collect();
    assert_eq!(sides, [(0x48, "a", true), (0x50, "b", false)]);
    assert_eq!((shared.offset, shared.readers, shared.writers), (Some(0x48), 1, 1));
}

/// Offsets of the named words and padding of the first line.
fn named(lines: &[LineOfObject]) -> (Vec<u64>, Option<u64>) {
    let all: Vec<&LineOfObject> = lines.iter().collect();
    let shared = judge(&lines[0], &Distances::of(&all), 10.0, &|_| None).expect("shared often");
    (shared.sides.iter().map(|side| side.offset).collect(), shared.padding)
}

#[test]
fn the_padding_is_that_of_the_named_words() {
    let at = |addr: u64, base: u64, words: Vec<SharedWord>| {
        let mut of = line(words, 9000, 0);
        (of.line.addr, of.base) = (addr, Some(base));
        of
    };
    let often = |word: SharedWord| SharedWord { writes: 9000, ..word };
    // A lock of two threads, what it protects, and a counter of a third one; main reads both at the end.
    let lock = vec![often(word(0, 6, 6)), word(8, 7, 6), often(word(16, 9, 8))];
    assert_eq!(named(&[at(0x1000, 0x1000, lock)]), (vec![16, 0], Some(48)));
    // Sums of a thread, the last of which main reads, and the arguments of the next thread, in structs of 56 bytes.
    let sums = |thread: u64, offset: u8| [word(offset, thread, thread), often(word(offset + 8, thread | 1, thread))];
    let first = [&sums(2, 0)[..], &[word(24, 4, 0), word(40, 4, 4)]].concat();
    let second = [&sums(4, 0)[..], &[word(16, 8, 0), word(32, 8, 8)]].concat();
    let third = [&sums(8, 0)[..], &[word(8, 16, 0), word(24, 16, 16)]].concat();
    let lines = [at(0x1040, 0x1020, first), at(0x1080, 0x1020, second), at(0x10c0, 0x1020, third)];
    assert_eq!(named(&lines), (vec![40, 72], Some(8)), "across lines");
    assert_eq!(named(&lines[..1]), (vec![40, 72], None), "the first struct began in the line before");
    // Three members of different sizes.
    let members = vec![word(0, 1, 1), word(8, 2, 2), word(32, 4, 4)];
    assert_eq!(named(&[at(0x1000, 0x1000, members)]).1, None);
    // An array whose elements go round.
    let cyclic: Vec<_> = (0..16).map(|n| word(4 * n, 1 << (n % 4), 1 << (n % 4))).collect();
    assert_eq!(named(&[at(0x1040, 0x1000, cyclic)]), (vec![0x7c, 0x78], Some(60)));
}

/// Two variables of eight bytes, each with the counts of the time in which it was used more.
#[test]
fn variables_that_share_a_line_are_both_named_once() {
    let of = |object: &str, base, losses| {
        let of = line(vec![word(16, 1, 1), word(24, 2, 2)], losses, 0);
        LineOfObject { object: object.into(), base: Some(base), size: 8, ..of }
    };
    let lines = [of("rx", 0x1050, 5000), of("tx", 0x1058, 4000)];
    let joined = joined(&lines);
    assert_eq!(joined.len(), 1);
    let other = |addr: u64| (0x1058..0x1060).contains(&addr).then(|| ("tx".to_owned(), 0x1058));
    let shared = judge(&joined[0], &Distances::of(&[&joined[0]]), 10.0, &other).expect("shared often");
    let mut sides: Vec<_> = shared.sides.iter().map(|s| (s.object.as_deref(), s.offset)).collect();
    sides.sort_unstable();
    assert_eq!(sides, [(None, 0), (Some("tx"), 0)]);
    assert_eq!((shared.invalidations, shared.padding, shared.kind), (9000, None, SharingKind::False));
    // Blocks that were there one after the other.
    let later = LineOfObject { size: 64, ..of("block", 0x1050, 3000) };
    assert_eq!(super::joined(&[lines[1].clone(), later]).len(), 2);
}

#[test]
fn arguments_on_a_stack_are_handed_on() {
    let mut summary = crate::detect::roles::tests::Run::new().summary();
    summary.header.sampling.sampler = TRACE.into();
    let found = |kind, writers, summary: &mut Summary| {
        summary.entries[0].name = "x".into();
        summary.entries[0].kind = kind;
        summary.shared_lines = vec![line(vec![word(0, 15, writers), word(8, 15, writers)], 0, 90_000)];
        sharing(summary).len()
    };
    assert_eq!(found(ObjectKind::Stack, 1, &mut summary), 0, "of a parallel region");
    assert_eq!(found(ObjectKind::Stack, 3, &mut summary), 1, "a sum");
    assert_eq!(found(ObjectKind::Global, 1, &mut summary), 1, "a flag");
}

/// An array of 512 KiB whose words are all of other threads than their neighbours: in pairs of which some are 8 and
/// some 16 bytes apart, so that no distance is that of nearly all.
#[test]
fn an_object_of_thousands_of_lines_is_judged_in_time() {
    const LINES: u64 = 8192;
    let mut summary = crate::detect::roles::tests::Run::new().summary();
    summary.header.sampling.sampler = TRACE.into();
    (summary.entries[0].name, summary.entries[0].kind) = ("x".into(), ObjectKind::Global);
    let offsets = [[0, 8, 16, 24, 32, 40, 48, 56], [0, 4, 12, 16, 24, 28, 36, 40]];
    summary.shared_lines = (0..LINES)
        .map(|n| {
            let words = offsets[n as usize % 2].iter().map(|at| word(*at, 1 << (at / 4), 1 << (at / 4))).collect();
            let mut of = line(words, 900_000, 0);
            (of.line.addr, of.base, of.size) = (0x10000 + n * LINE, Some(0x10000), LINES * LINE);
            of
        })
        .collect();
    let begun = std::time::Instant::now();
    let found = sharing(&summary);
    assert_eq!(found.len() as u64, LINES);
    assert!(found.iter().all(|shared| shared.padding.is_none()));
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}
