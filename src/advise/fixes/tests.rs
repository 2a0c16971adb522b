use super::balance::proportional;

#[test]
fn threads_are_dealt_in_proportion_to_the_work() {
    assert_eq!(proportional(&[100, 300], 4), [1, 3]);
    assert_eq!(proportional(&[1, 1_000_000, 1], 8), [1, 6, 1], "one of each at least");
    assert_eq!(proportional(&[0, 0], 5), [1, 1]);
    // The worst load is the least that whole threads allow.
    let (work, counts) = ([50_u64, 120, 330], proportional(&[50, 120, 330], 10));
    assert_eq!(counts.iter().sum::<usize>(), 10);
    let worst = |c: &[usize]| work.iter().zip(c).map(|(w, n)| *w as f64 / *n as f64).fold(0.0, f64::max);
    for a in 1..9 {
        for b in 1..10 - a {
            assert!(worst(&counts) <= worst(&[a, b, 10 - a - b]), "{counts:?}");
        }
    }
}
