//! Private: one thread has nearly all of the accesses, or each instance of a call site is used by one thread.

use super::confidence;
use super::limits::{PRIVATE_SAMPLES, PRIVATE_SHARE};
use super::pattern;
use super::samples::{Sample, Samples};
use super::{Owner, Pattern, PatternKind};

/// The pattern when the object is private, by the samples that count.
pub(crate) fn private(samples: &Samples, threads_of_run: u32) -> Option<Pattern> {
    one_thread(samples, threads_of_run).or_else(|| per_instance(samples))
}

fn one_thread(samples: &Samples, threads_of_run: u32) -> Option<Pattern> {
    let mut sums = vec![0.0; samples.threads()];
    samples.list.iter().for_each(|s| sums[usize::from(s.thread)] += f64::from(s.weight));
    let total: f64 = sums.iter().sum();
    let (thread, top) = sums.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
    if total <= 0.0 || top < PRIVATE_SHARE * total || (total < PRIVATE_SAMPLES && threads_of_run > 1) {
        return None;
    }
    let thread = samples.ranks[thread];
    let name = pattern::thread_name(thread, threads_of_run);
    let evidence = format!("{name} has {:.0} % of {total:.0} samples", 100.0 * top / total);
    let mut pattern =
        Pattern::new(PatternKind::Private, confidence::private(top, total), evidence).explained(total, top / total);
    pattern.owners = instances(samples).map(|list| Owner { instance: list[0].instance, thread }).collect();
    Some(pattern)
}

/// Samples of one instance after the other.
pub(crate) fn instances(samples: &Samples) -> impl Iterator<Item = &[Sample]> {
    samples.list.chunk_by(|a, b| a.instance == b.instance)
}

/// Thread with most weight on an instance, its weight, and the weight of all threads. `sums` is a buffer of one zero
/// per thread, and zero again afterwards.
pub(crate) fn main_user(list: &[Sample], sums: &mut [f64]) -> (u16, f64, f64) {
    let mut total = 0.0;
    for s in list {
        sums[usize::from(s.thread)] += f64::from(s.weight);
        total += f64::from(s.weight);
    }
    let mut best = (0, 0.0);
    for s in list {
        let sum = std::mem::take(&mut sums[usize::from(s.thread)]);
        if sum > best.1 {
            best = (s.thread, sum);
        }
    }
    (best.0, best.1, total)
}

/// The pattern when each instance is used by one thread. A single sample always comes from one thread, so only the
/// samples after an instance's first one count.
fn per_instance(samples: &Samples) -> Option<Pattern> {
    let mut sums = vec![0.0; samples.threads()];
    let further = |weight: f64| (weight - 1.0).max(0.0);
    let (mut seen, mut own) = (0.0, 0.0);
    let mut owners: Vec<Owner> = Vec::new();
    for list in instances(samples) {
        let (thread, top, total) = main_user(list, &mut sums);
        seen += further(total);
        own += further(top);
        owners.push(Owner { instance: list[0].instance, thread: samples.ranks[usize::from(thread)] });
    }
    if owners.len() < 2 || seen < PRIVATE_SAMPLES || own < PRIVATE_SHARE * seen {
        return None;
    }
    let mut threads: Vec<u32> = owners.iter().map(|o| o.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    let evidence = format!(
        "each of {} instances is used by one thread ({:.0} % of {seen:.0} samples), {} threads in all",
        owners.len(),
        100.0 * own / seen,
        threads.len()
    );
    let mut pattern =
        Pattern::new(PatternKind::Private, confidence::private(own, seen), evidence).explained(seen, own / seen);
    pattern.owners = owners;
    Some(pattern)
}
