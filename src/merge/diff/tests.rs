//! Differences of runs whose truth is known.

use super::side::Accesses;
use super::*;
use crate::merge::diff::condition::Condition;

/// Numbers that look random and are the same every time (Knuth's MMIX generator).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn even(&mut self) -> f64 {
        self.below(1 << 30) as f64 / (1u64 << 30) as f64
    }

    /// How often an event of probability `p` happens in `n` trials.
    pub fn hits(&mut self, p: f64, n: u32) -> f64 {
        (0..n).filter(|_| self.even() < p).count() as f64
    }
}

/// A program by its truth: for each object its share of the samples, of its accesses the remote ones and those by
/// others. The rest of the samples has no access.
type Truth = [(f64, f64, f64)];

const PERIOD_S: f64 = 0.004;
const PROGRAM: [(f64, f64, f64); 5] =
    [(0.4, 0.75, 0.8), (0.25, 0.5, 0.05), (0.1, 0.7, 1.0), (0.05, 0.0, 0.3), (0.01, 0.9, 0.9)];

/// What the sampler sees of a program in so many samples.
fn drawn(truth: &Truth, samples: u32, dice: &mut Dice) -> Side {
    let mut counts = vec![(0.0, 0.0, 0.0); truth.len()];
    for _ in 0..samples {
        let mut at = dice.even();
        for (count, (share, remote, others)) in counts.iter_mut().zip(truth) {
            at -= share;
            if at < 0.0 {
                *count = (count.0 + 1.0, count.1 + dice.hits(*remote, 1), count.2 + dice.hits(*others, 1));
                break;
            }
        }
    }
    let of = |(n, remote, others): (f64, f64, f64)| Accesses {
        remote: Proportion::share(remote, n),
        by_others: Proportion::share(others, n),
    };
    let sum = counts.iter().fold((0.0, 0.0, 0.0), |s, c| (s.0 + c.0, s.1 + c.1, s.2 + c.2));
    let cost_ns = |n: f64| (n * PERIOD_S * 1e9) as u64;
    let object = |c: &(f64, f64, f64)| Object { cost_ns: cost_ns(c.0), samples: c.0, accesses: of(*c) };
    Side {
        samples: f64::from(samples),
        charged: sum.0,
        cost_ns: cost_ns(sum.0),
        whole: of(sum),
        objects: counts.iter().map(object).collect(),
        ..Side::default()
    }
}

fn difference(a: Side, b: Side) -> Difference {
    let row = |i: usize| Row {
        name: format!("object {i}"),
        old_name: Some(format!("object {i}")),
        kind: ObjectKind::Heap,
        placeable: true,
        sizes: (Some(1 << 20), Some(1 << 20)),
        pair: Pair { before: Some(i), after: Some(i), by: pairs::By::Identity },
        compared: side::compared(&a, &b, a.objects.get(i), b.objects.get(i)),
    };
    let rows = (0..a.objects.len()).map(row).collect();
    Difference::new(a, b, rows, Vec::new())
}

fn sure(d: &Difference) -> usize {
    let all = d.rows.iter().map(|row| row.compared).chain([d.run]);
    all.flat_map(|c| c.figures()).filter(|figure| d.is_sure(figure)).count()
}

/// The same program at two rates: in 19 of 20 draws no figure of any object may differ.
#[test]
fn thinned_samples_of_one_program_are_no_difference() {
    for (first, second) in [(2000, 2000), (2000, 100), (60, 60), (400, 3000)] {
        let (mut dice, runs) = (Dice(u64::from(first + second)), 400);
        let differs = |_: &u32| {
            let (a, b) = (drawn(&PROGRAM, first, &mut dice), drawn(&PROGRAM, second, &mut dice));
            sure(&difference(a, b)) > 0
        };
        let wrong = (0..runs).filter(differs).count();
        // Of 400 draws with probability 0.05 at most 33 differ with probability 0.999 (binomial).
        assert!(wrong <= 33, "{wrong} of {runs} with {first} and {second} samples");
    }
}

#[test]
fn a_change_of_placement_is_seen_and_the_rest_is_not() {
    let mut dice = Dice(3);
    let mut placed = PROGRAM;
    placed[0].1 = 0.1;
    placed[0].2 = 0.0;
    let (mut seen, runs) = (0, 100);
    for _ in 0..runs {
        let d = difference(drawn(&PROGRAM, 1000, &mut dice), drawn(&placed, 1000, &mut dice));
        let first = d.rows.iter().find(|row| row.name == "object 0").expect("a row for each object");
        let both = d.is_sure(&first.compared.remote) && d.is_sure(&first.compared.by_others);
        seen += u32::from(both && d.is_sure(&d.run.by_others) && !d.is_sure(&first.compared.cost));
    }
    assert!(seen >= 95, "{seen} of {runs}");
}

/// The truth changes by as much as the condition allows: then it is fulfilled by chance in one draw of 40.
#[test]
fn a_condition_holds_by_chance_in_one_draw_of_forty() {
    let mut worse = PROGRAM;
    worse[0].2 = 0.9;
    let condition: Condition = "object 0:by_others > +10pp".parse().expect("a condition");
    let relative: Condition = "object 0:by_others > +12.5%".parse().expect("a condition");
    let (mut dice, runs) = (Dice(11), 1000);
    let (mut points, mut ratios, mut less) = (0, 0, 0);
    for _ in 0..runs {
        let d = difference(drawn(&PROGRAM, 600, &mut dice), drawn(&worse, 600, &mut dice));
        let row = d.rows.iter().find(|row| row.name == "object 0");
        points += u32::from(condition.judge(&d, row).fulfilled);
        ratios += u32::from(relative.judge(&d, row).fulfilled);
        less += u32::from("object 0:by_others > +2pp".parse::<Condition>().unwrap().judge(&d, row).fulfilled);
    }
    // One in 40 is 25; 42 and more of 1000 have a probability of 0.001.
    assert!((5..42).contains(&points) && (5..42).contains(&ratios) && less > 500, "{points} {ratios} {less}");
}

#[test]
fn nothing_is_said_of_no_samples() {
    let none = || drawn(&PROGRAM, 0, &mut Dice(1));
    let d = difference(none(), drawn(&PROGRAM, 500, &mut Dice(1)));
    assert!(d.is_too_small() && sure(&d) == 0);
    let judged = "by_others > +0pp".parse::<Condition>().unwrap().judge(&d, None);
    assert_eq!((judged.change, judged.fulfilled), (None, false));
}

#[test]
fn what_is_gone_has_no_cost_any_more() {
    let mut without = PROGRAM;
    without[1].0 = 0.0;
    let mut dice = Dice(2);
    let d = difference(drawn(&PROGRAM, 1000, &mut dice), drawn(&without, 1000, &mut dice));
    let gone = d.rows.iter().find(|row| row.name == "object 1").expect("a row for each object");
    let change = gone.compared.cost.points().expect("a share of both sides");
    assert!(change.high < -0.25 && gone.compared.remote.points().is_none(), "{gone:?}");
    assert_eq!(gone.compared.cost.relative().map(|r| r.value), Some(-1.0));
}
