//! In which order the runs are made: every round holds each policy once, shuffled.
//!
//! When the machine gets slower or busier during the runs, all policies are affected alike. With a fully random order
//! one policy could have most of its runs in a slow period.

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014): the same order for the
/// same seed on every machine.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator; any seed is good.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0..n; 0 for n = 0. The bias of a product of 64 bits is far below what any number of runs can show.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }
}

/// `rounds` rounds of the numbers 0..`policies`, each round in an order of its own.
pub fn rounds(policies: usize, rounds: u32, seed: u64) -> Vec<Vec<usize>> {
    let mut rng = Rng::new(seed);
    let mut round = || {
        let mut order: Vec<usize> = (0..policies).collect();
        for i in (1..policies).rev() {
            order.swap(i, rng.below(i + 1));
        }
        order
    };
    (0..rounds).map(|_| round()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_policy_once_and_seeds_matter() {
        let made = rounds(4, 50, 1);
        for round in &made {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        assert_eq!(made, rounds(4, 50, 1));
        assert_ne!(made, rounds(4, 50, 2));
        // Each policy is first about as often as any other.
        let many = rounds(4, 4000, 3);
        for policy in 0..4 {
            let first = many.iter().filter(|r| r[0] == policy).count();
            assert!((880..1120).contains(&first), "{policy}: {first}");
        }
    }

    #[test]
    fn the_published_sequence() {
        // Of the reference implementation (Vigna, prng.di.unimi.it/splitmix64.c) with seed 1234567.
        let mut rng = Rng::new(1_234_567);
        assert_eq!(
            [rng.bits(), rng.bits(), rng.bits()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
