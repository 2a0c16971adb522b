//! Against published tables: critical values of U (Mann and Whitney 1947, as in Siegel, Nonparametric Statistics, table
//! K), and the ranks of confidence intervals of the median (Conover, Practical Nonparametric Statistics).

use super::*;

/// Two samples without ties in which exactly `u` of the n x m pairs have a above b.
fn with_u(n: usize, m: usize, u: usize) -> (Vec<f64>, Vec<f64>) {
    let b: Vec<f64> = (0..m).map(|j| 10.0 * (j + 1) as f64).collect();
    // Each a is above as many of b as are still wanted, at most all of them.
    let mut left = u;
    let a = (0..n)
        .map(|i| {
            let over = left.min(m);
            left -= over;
            10.0 * over as f64 + 1.0 + i as f64 / 100.0
        })
        .collect();
    (a, b)
}

fn p(n: usize, m: usize, u: usize) -> f64 {
    let (a, b) = with_u(n, m, u);
    let test = mann_whitney(&a, &b).unwrap();
    assert_eq!(test.u, u as f64);
    test.p
}

#[test]
fn small_samples_have_the_published_probabilities() {
    // One-sided probabilities of Mann and Whitney's table, doubled.
    for (n, m, u, one_sided) in
        [(3, 3, 0, 0.050), (4, 4, 0, 0.014), (4, 4, 1, 0.029), (5, 5, 0, 0.004), (5, 5, 2, 0.016), (5, 5, 4, 0.048)]
    {
        let exact = p(n, m, u);
        assert!((exact - 2.0 * one_sided).abs() < 0.0011, "{n} {m} {u}: {exact}");
    }
    assert!((p(5, 5, 0) - 2.0 / 252.0).abs() < 1e-12);
    assert!((p(5, 5, 2) - 8.0 / 252.0).abs() < 1e-12);
}

#[test]
fn critical_values_at_five_per_cent_two_sided() {
    for (n, m, critical) in [
        (4, 4, 0),
        (5, 5, 2),
        (6, 6, 5),
        (7, 7, 8),
        (7, 9, 12),
        (8, 8, 13),
        (9, 9, 17),
        (10, 10, 23),
        (12, 12, 37),
        (15, 15, 64),
        (20, 20, 127),
    ] {
        assert!(p(n, m, critical) <= ALPHA, "{n} x {m}: {}", p(n, m, critical));
        assert!(p(n, m, critical + 1) > ALPHA, "{n} x {m}: {}", p(n, m, critical + 1));
    }
}

#[test]
fn the_test_is_symmetric_and_knows_ties() {
    let (a, b) = ([1.0, 2.0, 3.5, 4.0], [2.0, 2.0, 5.0, 6.0, 7.0]);
    let (ab, ba) = (mann_whitney(&a, &b).unwrap(), mann_whitney(&b, &a).unwrap());
    assert_eq!(ab.u + ba.u, 20.0);
    assert!((ab.p - ba.p).abs() < 1e-12);
    // By hand: 4 of the 20 pairs have a above b, and 2 x 1/2 for the ties of the 2.0.
    assert_eq!(ab.u, 5.0);
    // All the same: nothing can be told apart.
    assert_eq!(mann_whitney(&[1.0; 5], &[1.0; 5]).unwrap().p, 1.0);
    assert_eq!(mann_whitney(&[1.0; 50], &[1.0; 50]).unwrap().p, 1.0);
    // {1, 2} against {2, 3}: of the 6 ways to deal out ranks 1, 2.5, 2.5, 4, four are as far out as 3.5.
    assert!((mann_whitney(&[1.0, 2.0], &[2.0, 3.0]).unwrap().p - 4.0 / 6.0).abs() < 1e-12);
    assert_eq!(mann_whitney(&[], &[1.0]), None);
}

#[test]
fn the_approximation_meets_the_exact_test() {
    for u in [250, 300, 350, 440] {
        let (a, b) = with_u(30, 30, u);
        let (ranks, ties) = doubled_ranks(&a, &b);
        let exact = exact(&ranks, 30, ranks[..30].iter().sum());
        let approximate = normal(u as f64, 30, 30, &ties);
        assert!((exact - approximate).abs() < 2e-3, "{u}: {exact} {approximate}");
    }
}

#[test]
fn intervals_have_the_published_ranks() {
    for (n, k, confidence) in
        [(6, 1, 0.969), (8, 1, 0.992), (9, 2, 0.961), (10, 2, 0.979), (15, 4, 0.965), (20, 6, 0.959), (25, 8, 0.957)]
    {
        let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
        let i = median_interval(&values).unwrap();
        assert_eq!((i.low, i.high), (f64::from(k), f64::from(n + 1 - k)), "{n}");
        assert!((i.confidence - confidence).abs() < 6e-4, "{n}: {}", i.confidence);
    }
    let five = median_interval(&[3.0, 1.0, 2.0, 5.0, 4.0]).unwrap();
    assert_eq!((five.low, five.high), (1.0, 5.0));
    assert!((five.confidence - 0.9375).abs() < 1e-9);
    let one = median_interval(&[7.0]).unwrap();
    assert_eq!((one.low, one.high), (7.0, 7.0));
    assert!(one.confidence < 1e-9);
    assert_eq!(median_interval(&[]), None);
}

#[test]
fn intervals_cover_as_often_as_they_say() {
    // Exponential values by inversion of a pseudorandom generator; the median is ln 2.
    let mut rng = super::super::order::Rng::new(7);
    let (mut covered, trials) = (0, 4000);
    for _ in 0..trials {
        let values: Vec<f64> = (0..9).map(|_| -(1.0 - rng.unit()).ln()).collect();
        let i = median_interval(&values).unwrap();
        covered += u32::from(i.low <= std::f64::consts::LN_2 && std::f64::consts::LN_2 <= i.high);
    }
    let share = f64::from(covered) / f64::from(trials);
    assert!((share - 0.961).abs() < 0.012, "{share}");
}

#[test]
fn medians() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(median(&[]), None);
}

#[test]
fn runs_needed_are_enough_and_not_far_too_many() {
    assert!((smallest_p(3) - 0.1).abs() < 1e-12);
    assert!((smallest_p(5) - 2.0 / 252.0).abs() < 1e-12);
    // A standard deviation of 5 % and a difference of 3 %: Cohen's d = 0.6, 44 of each for the t test at 80 %.
    let sample: Vec<f64> = (0..100).map(|i| if i % 2 == 0 { 0.95 } else { 1.05 }).collect();
    let runs = runs_needed(&sample, &sample, 0.03).unwrap();
    assert!((44..=49).contains(&runs), "{runs}");
    assert_eq!(
        runs_needed(&[1.0; 5], &[1.0; 5], 0.03),
        Some(4),
        "no spread: as many as the test can say anything with"
    );
    assert_eq!(runs_needed(&[1.0], &[1.0], 0.03), None);
}

#[test]
fn the_speed_up_of_times_that_are_multiples() {
    let base = [1.0, 1.1, 1.2, 1.3, 1.4];
    let now = base.map(|t| t / 2.0);
    let found = speed_up(&base, &now, 0.05).unwrap();
    assert!((found.estimate - 2.0).abs() < 1e-9, "{found:?}");
    assert!(found.low < 2.0 && found.high > 2.0 && found.low > 1.4, "{found:?}");
    // Tables of U (Mann and Whitney 1947): P(U <= 2) = 4 / 252 for 5 and 5, P(U <= 3) = 7 / 252 is above 0.025.
    assert!((found.confidence - (1.0 - 2.0 * 4.0 / 252.0)).abs() < 1e-9, "{found:?}");
    let few = speed_up(&base[..2], &now[..2], 0.05).unwrap();
    assert!((few.confidence - (1.0 - 2.0 / 6.0)).abs() < 1e-9, "2 and 2 have 6 orders: {few:?}");
    assert_eq!(speed_up(&[], &now, 0.05), None);
    assert_eq!(speed_up(&[0.0], &now, 0.05), None);
}

#[test]
fn the_interval_of_the_speed_up_excludes_one_where_the_test_sees_a_difference() {
    let mut rng = crate::apply::compare::order::Rng::new(5);
    let (mut seen, mut rounds) = (0, 0);
    for (n, m, shift) in [(5, 5, 1.2), (8, 6, 1.1), (12, 12, 1.0), (40, 35, 1.05)] {
        for _ in 0..50 {
            let a: Vec<f64> = (0..n).map(|_| 1.0 + 0.3 * rng.unit()).collect();
            let b: Vec<f64> = (0..m).map(|_| (1.0 + 0.3 * rng.unit()) / shift).collect();
            let test = mann_whitney(&b, &a).unwrap();
            let found = speed_up(&a, &b, ALPHA).unwrap();
            let excluded = found.low > 1.0 || found.high < 1.0;
            // The normal approximation of the test has another correction than that of the interval.
            let sharp = n + m <= EXACT_UP_TO || (test.p - ALPHA).abs() > 0.01;
            assert!(!sharp || excluded == (test.p <= ALPHA), "{n} {m}: {test:?} {found:?}");
            (seen, rounds) = (seen + usize::from(excluded), rounds + 1);
        }
    }
    assert!(seen > 20 && seen < rounds - 20, "{seen} of {rounds}");
}
