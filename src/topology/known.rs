//! Figures somebody knows of some pairs of nodes, laid over a model: better sources replace worse ones, and pairs they say
//! nothing of keep their proportion to those they do.

use super::model::{Model, Source};

/// Figures that are known of some pairs of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// `[from][to]` in the order of the nodes; nanoseconds or bytes a second.
    pub values: Vec<Vec<Option<f64>>>,
    /// Who says so.
    pub source: Source,
}

impl Known {
    /// Nothing known of any of `n` nodes.
    pub fn none(n: usize, source: Source) -> Known {
        Known { values: vec![vec![None; n]; n], source }
    }

    /// Whether anything is known.
    pub fn any(&self) -> bool {
        self.values.iter().flatten().any(Option::is_some)
    }

    fn get(&self, from: usize, to: usize) -> Option<f64> {
        let value = (*self.values.get(from)?.get(to)?)?;
        (value.is_finite() && value > 0.0).then_some(value)
    }

    /// Lays the figures over `matrix`, which holds a worse source's; false when there are none. Where a pair is not
    /// known, the matrix's own value is scaled as it was for the same memory from the node that is most alike, else as on
    /// average.
    fn lay_over(&self, matrix: &mut [Vec<f64>]) -> bool {
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
                let alike = |a: &f64| (a / old[from][to]).ln().abs();
                let nearest = column.iter().min_by(|a, b| alike(&a.0).total_cmp(&alike(&b.0)));
                let factor = nearest.map_or(mean, |(_, factor)| *factor);
                matrix[from][to] = self.get(from, to).unwrap_or(old[from][to] * factor);
            }
        }
        true
    }
}

impl Model {
    /// Replaces what the model holds by better figures. Figures for another number of nodes are left out, and so are those
    /// that are not positive.
    pub fn know(&mut self, latency: Option<&Known>, bandwidth: Option<&Known>) {
        if let Some(known) = latency.filter(|known| known.lay_over(&mut self.latency)) {
            self.latency_source = known.source;
        }
        if let Some(known) = bandwidth.filter(|known| known.lay_over(&mut self.bandwidth)) {
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
        let mut latency = Known::none(3, Source::Measured);
        (latency.values[0][0], latency.values[1][0]) = (Some(100.0), Some(150.0));
        latency.values[2][2] = Some(f64::NAN);
        model.know(Some(&latency), None);
        assert_eq!((model.latency[0][0], model.latency[1][0], model.latency[2][0]), (100.0, 150.0, 150.0));
        let mean = (100.0 / 85.0 + 150.0 / 170.0) / 2.0;
        assert!((model.latency[2][2] - 85.0 * mean).abs() < 1e-9);
        assert_eq!((model.latency_source, model.bandwidth_source), (Source::Measured, Source::Slit));
    }

    #[test]
    fn nothing_known_changes_nothing() {
        let before = Model::of(&Topology::uniform(2, 2));
        let mut model = before.clone();
        model.know(Some(&Known::none(2, Source::Hmat)), None);
        assert_eq!(model, before);
    }
}
