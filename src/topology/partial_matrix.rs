//! Latencies or bandwidths that one source gives for a part of the node pairs, written over those of a model.
//!
//! A better source replaces a worse one. Pairs that the better source lacks are scaled by the ratio between the two
//! sources, so that they keep their proportion to the other pairs.

use super::model::{Model, Source};

/// A matrix over all pairs of nodes with values for a part of them.
#[derive(Debug, Clone, PartialEq)]
pub struct PartialMatrix {
    /// `[from][to]` in the order of the nodes; nanoseconds or bytes a second.
    pub values: Vec<Vec<Option<f64>>>,
    /// Source of the values.
    pub source: Source,
}

impl PartialMatrix {
    /// A matrix without values for `n` nodes.
    pub fn empty(n: usize, source: Source) -> PartialMatrix {
        PartialMatrix { values: vec![vec![None; n]; n], source }
    }

    /// Whether any pair has a value.
    pub fn has_values(&self) -> bool {
        self.values.iter().flatten().any(Option::is_some)
    }

    fn get(&self, from: usize, to: usize) -> Option<f64> {
        let value = (*self.values.get(from)?.get(to)?)?;
        (value.is_finite() && value > 0.0).then_some(value)
    }

    /// Writes the values into `matrix`, which holds those of a worse source; false when there are none to write.
    ///
    /// A pair without a value keeps the old one, scaled: by the ratio new / old of the same memory seen from the node
    /// with the most similar old value, or by the mean ratio where no node has a value for this memory.
    fn write_into(&self, matrix: &mut [Vec<f64>]) -> bool {
        let n = matrix.len();
        let old = matrix.to_vec();
        let factors: Vec<f64> = (0..n)
            .flat_map(|i| (0..n).map(move |j| (i, j)))
            .filter_map(|(i, j)| Some(self.get(i, j)? / old[i][j]))
            .collect();
        if factors.is_empty() {
            return false;
        }
        let mean = factors.iter().sum::<f64>() / factors.len() as f64;
        for to in 0..n {
            let column: Vec<(f64, f64)> =
                (0..n).filter_map(|from| Some((old[from][to], self.get(from, to)? / old[from][to]))).collect();
            for from in 0..n {
                let difference = |a: &f64| (a / old[from][to]).ln().abs();
                let nearest = column.iter().min_by(|a, b| difference(&a.0).total_cmp(&difference(&b.0)));
                let factor = nearest.map_or(mean, |(_, factor)| *factor);
                matrix[from][to] = self.get(from, to).unwrap_or(old[from][to] * factor);
            }
        }
        true
    }
}

impl Model {
    /// Replaces the model's latencies and bandwidths by those of a better source. Values of nodes that the model lacks
    /// are ignored, and so are values that are not positive.
    pub fn overlay(&mut self, latency: Option<&PartialMatrix>, bandwidth: Option<&PartialMatrix>) {
        if let Some(known) = latency.filter(|known| known.write_into(&mut self.latency)) {
            self.latency_source = known.source;
        }
        if let Some(known) = bandwidth.filter(|known| known.write_into(&mut self.bandwidth)) {
            self.bandwidth_source = known.source;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    #[test]
    fn unknown_pairs_keep_their_proportions() {
        let mut model = Model::of(&Topology::uniform(3, 6));
        let mut latency = PartialMatrix::empty(3, Source::Measured);
        (latency.values[0][0], latency.values[1][0]) = (Some(100.0), Some(150.0));
        latency.values[2][2] = Some(f64::NAN);
        model.overlay(Some(&latency), None);
        assert_eq!((model.latency[0][0], model.latency[1][0], model.latency[2][0]), (100.0, 150.0, 150.0));
        let mean = (100.0 / 85.0 + 150.0 / 170.0) / 2.0;
        assert!((model.latency[2][2] - 85.0 * mean).abs() < 1e-9);
        assert_eq!((model.latency_source, model.bandwidth_source), (Source::Measured, Source::Slit));
    }

    #[test]
    fn a_matrix_without_values_changes_nothing() {
        let before = Model::of(&Topology::uniform(2, 2));
        let mut model = before.clone();
        model.overlay(Some(&PartialMatrix::empty(2, Source::Hmat)), None);
        assert_eq!(model, before);
    }
}
