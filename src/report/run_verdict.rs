//! One sentence about the run itself: whether its samples are enough, and whether its machine has anything to gain.

use super::View;
use super::units::percent;
use crate::detect::{PatternKind, mostly_unpaged, short_threads};
use crate::profile::summary::{Entry, Summary};

/// Samples from which on the shares of the cost are known to within about 10 % of all: two standard deviations of a
/// half by binomial statistics.
const LEAST_SAMPLES: u64 = 100;
/// Most that a longer run is asked for; beyond it, the rate is to be raised, too.
const LONGEST: f64 = 100.0;

/// The verdict on a run.
pub(super) fn of(view: &View) -> String {
    let (s, h) = (&view.summary.stats, &view.summary.header);
    let accesses = view.total.accesses();
    if h.sampling.period_ns == 0 && accesses == 0 {
        return "no samples were asked for: allocations, mappings and first touches only".into();
    }
    if accesses == 0 {
        return "no memory accesses: the program only waited or ended at once; let it work for a few seconds".into();
    }
    let (unpaged, lacking): (Vec<_>, Vec<_>) = lacking(view).into_iter().partition(|(entry, _)| mostly_unpaged(entry));
    let cost_of = |some: &[(&Entry, f64)]| some.iter().map(|(entry, _)| view.cost_share(entry)).sum::<f64>();
    let cost = cost_of(&lacking);
    let factor = lacking.iter().map(|(_, factor)| *factor).fold(1.0, f64::max);
    let few = LEAST_SAMPLES as f64 / s.samples.max(1) as f64;
    let samples = if !unpaged.is_empty() && lacking.is_empty() {
        let objects = super::units::plural(unpaged.len() as u64, "object");
        let share = percent(cost_of(&unpaged));
        format!(
            "the pages of most accesses to {objects} ({share} of the cost) cannot be known, by a longer run neither"
        )
    } else if !lacking.is_empty() {
        let objects = super::units::plural(lacking.len() as u64, "object");
        let share = percent(cost);
        format!("too few samples for the pattern of {objects} ({share} of the cost): {}", longer(factor.max(few)))
    } else if s.samples > 0 && few > 1.0 {
        format!("few samples, so shares are rough: {}", longer(few))
    } else {
        "enough samples for the pattern of every object that matters".into()
    };
    let samples = of_short_threads(view.summary).map_or(samples.clone(), |short| format!("{short}; {samples}"));
    if h.topology.nodes.len() == 1 && view.predicted.is_none() {
        return format!(
            "{samples}; one node: nothing to gain by placement here, for a machine with four say --nodes 4 (report, \
             advise)"
        );
    }
    samples
}

fn of_short_threads(summary: &Summary) -> Option<String> {
    let short = short_threads(summary)?;
    Some(format!(
        "{} lived for {} on average, and samples come every {}: what a thread does first is hardly seen, so shares are \
         rough{}",
        super::units::plural(short.count, "thread"),
        super::units::duration(short.mean_ns),
        super::units::duration(short.period_ns),
        short.remedy()
    ))
}

/// Objects of which too few samples are known, each with the times as many that are needed.
fn lacking<'a>(view: &View<'a>) -> Vec<(&'a Entry, f64)> {
    let all = view.summary.entries.iter().filter(|e| e.placeable() && !e.details.left_out);
    let of = |entry: &'a Entry| {
        let pattern = view.pattern(entry).filter(|p| p.kind == PatternKind::Unsure)?;
        let figures = &pattern.figures;
        Some((entry, figures.needed / figures.samples.max(1.0)))
    };
    all.filter_map(of).collect()
}

fn longer(factor: f64) -> String {
    let times = factor.clamp(1.1, LONGEST);
    let digits = usize::from(times < 2.95);
    let more = if factor > LONGEST { ", and sample faster (-F)" } else { "" };
    format!("run {times:.digits$} times as long{more}")
}
