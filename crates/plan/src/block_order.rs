//! Orders in which blocks are assigned to nodes: the formulas of MAi (Minas, INRIA RR-7051), with M nodes and block i.

/// Constants of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

/// How the index in the node list follows from the number of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Block i on node i mod M.
    #[default]
    Cyclic,
    /// Block i on node (i + floor(i / M) + 1) mod M (`skew_mapp`).
    Skew,
    /// Blocks cyclically over P virtual nodes, P the smallest prime >= M; blocks of the virtual nodes >= M are
    /// distributed cyclically over the M real nodes (`prime_mapp`).
    Prime,
    /// Every node with the same probability, from this seed: the upper 32 bits of output number i + 1 of SplitMix64,
    /// times M, divided by 2^32.
    Random(u64),
}

impl Order {
    /// Index into the node list of block `i`; `nodes` (M) is at least 1.
    pub fn node(self, i: u64, nodes: u64) -> u64 {
        let nodes = nodes.max(1);
        match self {
            Order::Cyclic => i % nodes,
            // Both operands are reduced mod M before the addition, so that it cannot overflow.
            Order::Skew => (i % nodes + i / nodes % nodes + 1) % nodes,
            Order::Prime => {
                let prime = smallest_prime(nodes);
                match i % prime {
                    real if real < nodes => real,
                    beyond => ((i / prime % nodes) * ((prime - nodes) % nodes) + beyond - nodes) % nodes,
                }
            }
            Order::Random(seed) => ((split_mix(seed, i) >> 32) * nodes) >> 32,
        }
    }
}

/// Output number `i + 1` of SplitMix64 started at `seed`.
fn split_mix(seed: u64, i: u64) -> u64 {
    let mut z = seed.wrapping_add(i.wrapping_add(1).wrapping_mul(GOLDEN));
    z = (z ^ (z >> 30)).wrapping_mul(MIX[0]);
    z = (z ^ (z >> 27)).wrapping_mul(MIX[1]);
    z ^ (z >> 31)
}

/// The smallest prime that is at least `n`; by trial division, because node counts are at most 1,024.
fn smallest_prime(n: u64) -> u64 {
    let is_prime = |p: &u64| (2..).take_while(|d| d * d <= *p).all(|d| !p.is_multiple_of(d));
    (n.max(2)..).find(is_prime).unwrap_or(n.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(order: Order, nodes: u64, count: u64) -> Vec<u64> {
        (0..count).map(|i| order.node(i, nodes)).collect()
    }

    #[test]
    fn the_formulas_of_the_report() {
        assert_eq!(first(Order::Cyclic, 3, 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(first(Order::Skew, 4, 9), [1, 2, 3, 0, 2, 3, 0, 1, 3]);
        // M = 4, P = 5: blocks 4, 9, 14, 19 are those of the virtual node and go to nodes 0, 1, 2, 3.
        assert_eq!(
            first(Order::Prime, 4, 25),
            [0, 1, 2, 3, 0, 0, 1, 2, 3, 1, 0, 1, 2, 3, 2, 0, 1, 2, 3, 3, 0, 1, 2, 3, 0]
        );
        // M = 8, P = 11: three virtual nodes beyond.
        assert_eq!(first(Order::Prime, 8, 12), [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 0]);
        assert_eq!(first(Order::Prime, 2, 5), [0, 1, 0, 1, 0], "two is prime");
        assert_eq!(first(Order::Prime, 1, 4), [0, 0, 0, 0]);
    }

    #[test]
    fn random_is_even_repeatable_and_depends_on_the_seed() {
        // Reference outputs of SplitMix64 with seed 1234567.
        assert_eq!(split_mix(1_234_567, 0), 6_457_827_717_110_365_317);
        assert_eq!(split_mix(1_234_567, 1), 3_203_168_211_198_807_973);
        let one = first(Order::Random(1), 4, 4000);
        assert_eq!(one, first(Order::Random(1), 4, 4000));
        assert_ne!(one, first(Order::Random(2), 4, 4000));
        for node in 0..4 {
            let share = one.iter().filter(|n| **n == node).count();
            assert!((850..1150).contains(&share), "{share}");
        }
    }

    #[test]
    fn nothing_overflows() {
        for order in [Order::Cyclic, Order::Skew, Order::Prime, Order::Random(u64::MAX)] {
            for nodes in [0, 1, 2, 3, 8, 1023, 1024] {
                for i in [0, 1, u64::MAX / 2, u64::MAX] {
                    assert!(order.node(i, nodes) < nodes.max(1), "{order:?} {i} {nodes}");
                }
            }
        }
    }
}
