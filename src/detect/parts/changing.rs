//! Whether the threads of the pages change in time, so that no model of a stretch describes them.

use std::collections::BTreeMap;

use crate::detect::change_points::{MOVED, change_points};
use crate::detect::limits::PHASE_SHARE;
use crate::detect::samples::{Sample, Samples};

/// Pairs of samples of one page, by weight: of all threads, and of one thread.
#[derive(Default)]
struct Pairs {
    all: f64,
    same: f64,
}

impl Pairs {
    fn agree(&self) -> f64 {
        self.same / self.all.max(f64::MIN_POSITIVE)
    }
}

/// Samples of a page in one segment of the run, of all threads and of each: their weight, and that of the pairs of each
/// with itself.
#[derive(Default)]
struct InSegment {
    all: (f64, f64),
    by_thread: BTreeMap<u16, (f64, f64)>,
}

impl InSegment {
    fn add(&mut self, sample: &Sample) {
        let weight = f64::from(sample.weight);
        for sum in [&mut self.all, self.by_thread.entry(sample.thread).or_default()] {
            sum.0 += weight;
            // A sum of several accesses stands for as many.
            sum.1 += weight.min(weight * weight);
        }
    }
}

/// True when the run has segments between which pages pass from one thread to another: two samples of a page are of one
/// thread less often when they are of two neighbouring segments than when they are of one. A change of the shares of
/// the threads alone, as where one of them gets less of a busy machine, is none. Pages that only one segment uses say
/// nothing of it; where all are so, the threads are taken to change.
pub(super) fn threads_change(samples: &Samples) -> bool {
    let ends = change_points(samples);
    let segment = |sample: &Sample| ends.partition_point(|end| *end <= sample.slot);
    let mut weights = vec![0.0; ends.len() + 1];
    samples.list.iter().for_each(|s| weights[segment(s)] += f64::from(s.weight));
    let least = PHASE_SHARE * samples.total();
    let large: Vec<usize> = (0..weights.len()).filter(|i| weights[*i] >= least && weights[*i] > 0.0).collect();
    if large.len() < 2 {
        return false;
    }
    let mut within: Vec<Pairs> = large.iter().map(|_| Pairs::default()).collect();
    let mut across: Vec<Pairs> = large.windows(2).map(|_| Pairs::default()).collect();
    for page in samples.list.chunk_by(|a, b| a.page == b.page) {
        let mut of: Vec<InSegment> = large.iter().map(|_| InSegment::default()).collect();
        for sample in page {
            if let Ok(index) = large.binary_search(&segment(sample)) {
                of[index].add(sample);
            }
        }
        for (pairs, one) in within.iter_mut().zip(&of) {
            let of_two = |(sum, squares): &(f64, f64)| sum * sum - squares;
            pairs.all += of_two(&one.all);
            pairs.same += one.by_thread.values().map(of_two).sum::<f64>();
        }
        for (pairs, two) in across.iter_mut().zip(of.windows(2)) {
            pairs.all += two[0].all.0 * two[1].all.0;
            let other = |thread| two[1].by_thread.get(thread).map_or(0.0, |sum| sum.0);
            pairs.same += two[0].by_thread.iter().map(|(thread, sum)| sum.0 * other(thread)).sum::<f64>();
        }
    }
    across.iter().zip(within.windows(2)).any(|(across, within)| {
        // What two segments with the same shares of the threads, and noise of their own, have about.
        let expected = within.iter().map(Pairs::agree).product::<f64>().sqrt();
        across.all <= 0.0 || across.agree() < (1.0 - MOVED) * expected
    })
}
