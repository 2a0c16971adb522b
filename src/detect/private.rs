//! Private: one thread has nearly all of the accesses, or each instance of a call site is used by one thread.

use std::collections::BTreeMap;

use super::limits::{PRIVATE_SAMPLES, PRIVATE_SHARE};
use super::{ObjectView, Owner, PageAccess, Pattern, PatternKind};

/// Weights of one instance.
#[derive(Default)]
struct Use {
    threads: BTreeMap<u32, f64>,
}

impl Use {
    fn total(&self) -> f64 {
        self.threads.values().sum()
    }

    fn top(&self) -> (u32, f64) {
        self.threads.iter().map(|(t, w)| (*t, *w)).max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0))
    }
}

/// The verdict when the object is private, on the accesses that vote.
pub(crate) fn private(view: &ObjectView, voting: &[PageAccess], scale: f64) -> Option<Pattern> {
    let mut whole = Use::default();
    let mut instances: BTreeMap<u32, Use> = BTreeMap::new();
    for a in voting {
        *whole.threads.entry(a.thread).or_default() += a.weight * scale;
        *instances.entry(a.instance).or_default().threads.entry(a.thread).or_default() += a.weight * scale;
    }
    let total = whole.total();
    if total <= 0.0 {
        return None;
    }
    one_thread(view, &whole, total, &instances).or_else(|| per_instance(&instances))
}

fn one_thread(view: &ObjectView, whole: &Use, total: f64, instances: &BTreeMap<u32, Use>) -> Option<Pattern> {
    let (thread, top) = whole.top();
    if top < PRIVATE_SHARE * total || (total < PRIVATE_SAMPLES && view.threads > 1) {
        return None;
    }
    let evidence = format!("thread {thread} has {:.0} % of {total:.0} samples", 100.0 * top / total);
    let mut pattern = Pattern::new(PatternKind::Private, top / total, evidence);
    pattern.owners = instances.keys().map(|&instance| Owner { instance, thread }).collect();
    Some(pattern)
}

/// Each instance by one thread. An instance with one sample agrees with any verdict, so only samples after an
/// instance's first count.
fn per_instance(instances: &BTreeMap<u32, Use>) -> Option<Pattern> {
    if instances.len() < 2 {
        return None;
    }
    let further = |weight: f64| (weight - 1.0).max(0.0);
    let seen: f64 = instances.values().map(|u| further(u.total())).sum();
    let own: f64 = instances.values().map(|u| further(u.top().1)).sum();
    if seen < PRIVATE_SAMPLES || own < PRIVATE_SHARE * seen {
        return None;
    }
    let owners: Vec<Owner> = instances.iter().map(|(&instance, u)| Owner { instance, thread: u.top().0 }).collect();
    let threads: std::collections::BTreeSet<u32> = owners.iter().map(|o| o.thread).collect();
    let evidence = format!(
        "each of {} instances is used by one thread ({:.0} % of {seen:.0} samples), {} threads in all",
        instances.len(),
        100.0 * own / seen,
        threads.len()
    );
    let mut pattern = Pattern::new(PatternKind::Private, own / seen, evidence);
    pattern.owners = owners;
    Some(pattern)
}
