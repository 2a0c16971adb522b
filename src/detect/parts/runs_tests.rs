use super::{Nats, Run, arrays, repeats, runs};
use crate::detect::points::{Participant, Point, Points};

const EVERYBODY: Option<u16> = None;

fn nats(threads: u16) -> Nats {
    Nats { page: 1000.0_f64.ln(), owner: f64::from(threads).ln(), shares: 0.5 * (f64::from(threads) - 1.0) }
}

/// Runs of these owners and pages, one behind the other, with ten samples on each page.
fn sequence(parts: &[(Option<u16>, u32)]) -> Vec<Run> {
    let mut first = 0;
    let run = |&(owner, pages): &(Option<u16>, u32)| {
        let run = Run { owner, first, end: first + pages, weight: 10.0 * f64::from(pages) };
        first += pages;
        run
    };
    parts.iter().map(run).collect()
}

/// One slice of `pages` pages for each of `threads` threads.
fn block(threads: u16, pages: u32) -> Vec<(Option<u16>, u32)> {
    (0..threads).map(|t| (Some(t), pages)).collect()
}

#[test]
fn blocks_one_behind_the_other_are_arrays() {
    let runs = sequence(&[block(4, 50), block(4, 20), block(4, 90)].concat());
    assert_eq!(arrays(&runs, &nats(4), 16), [200, 280]);
}

#[test]
fn a_shared_array_between_blocks_is_an_array() {
    let runs = sequence(&[block(4, 50), vec![(EVERYBODY, 30)], block(4, 20)].concat());
    assert_eq!(arrays(&runs, &nats(4), 16), [200, 230]);
}

/// A period is one array, also when it ends in the middle, and when it begins there: the slices before may have
/// belonged to the array before. A run that is longer than its slice is not a part of it.
#[test]
fn slices_of_a_period_are_one_array() {
    let repeated = [block(4, 5), block(4, 5), block(4, 5), vec![(Some(0), 5), (Some(1), 2)]].concat();
    assert_eq!(arrays(&sequence(&repeated), &nats(4), 16), [0; 0]);
    assert_eq!(arrays(&sequence(&repeated[2..]), &nats(4), 16), [0; 0]);
    let mut longer = repeated[..12].to_vec();
    longer.push((Some(0), 80));
    assert_eq!(repeats(&sequence(&longer)), (4, 12));
    assert_eq!(arrays(&sequence(&longer), &nats(4), 16), [60]);
}

#[test]
fn an_array_has_the_least_pages_or_there_is_none() {
    let runs = sequence(&[(Some(0), 40), (EVERYBODY, 4), (Some(0), 40)]);
    assert_eq!(arrays(&runs, &nats(4), 16), [0; 0]);
}

/// Pages of one thread, of all, and of another thread, with eight samples on each, of which one is by the wrong thread.
#[test]
fn runs_are_the_pages_of_an_owner() {
    const THREADS: u16 = 4;
    let user = |page: u32, i: u32| match page {
        0..30 if i > 0 => 1,
        60..100 if i > 0 => 3,
        _ => ((page * 7 + i) % u32::from(THREADS)) as u16,
    };
    let mut list = Vec::new();
    for page in 0..100 {
        for thread in 0..THREADS {
            let weight = (0..8).filter(|i| user(page, *i) == thread).count() as f32;
            if weight > 0.0 {
                list.push(Point { page, thread, weight });
            }
        }
    }
    let threads = (0..u32::from(THREADS)).map(|rank| Participant { rank, weight: 200.0, share: 0.25 }).collect();
    let points = Points { pages: 100, list, threads, samples: 800.0 };
    let found: Vec<_> = runs(&points, 0.15, 6.0).iter().map(|r| (r.owner, r.first, r.end)).collect();
    assert_eq!(found, [(Some(1), 0, 30), (EVERYBODY, 30, 60), (Some(3), 60, 100)]);
}

/// A page in which one slice ends and the next one begins is no shared array.
#[test]
fn a_page_of_two_slices_belongs_to_the_first() {
    let mut list = Vec::new();
    for page in 0..40 {
        match page {
            0..20 => list.push(Point { page, thread: 0, weight: 30.0 }),
            20 => list.extend([0, 1].map(|thread| Point { page, thread, weight: 15.0 })),
            _ => list.push(Point { page, thread: 1, weight: 30.0 }),
        }
    }
    let threads = (0..2).map(|rank| Participant { rank, weight: 600.0, share: 0.5 }).collect();
    let points = Points { pages: 40, list, threads, samples: 1200.0 };
    let found: Vec<_> = runs(&points, 0.02, 5.0).iter().map(|r| (r.owner, r.first, r.end)).collect();
    assert_eq!(found, [(Some(0), 0, 21), (Some(1), 21, 40)]);
}
