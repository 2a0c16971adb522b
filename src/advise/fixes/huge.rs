//! Huge pages for what is accessed at random over more memory than the TLB reaches with small ones, whichever thread
//! has which part of it, and on a single node as well.
//!
//! A trace tells from where accesses begin in each page whether they are at random; other samplers from the code that
//! computes the addresses.

use std::collections::BTreeSet;

use numamma_plan::policy::Size;

use super::fix::{Fix, FixKind, Gain};
use super::places::{allocation, hottest, initialisation};
use super::words::in_words;
use crate::advise::Item;
use crate::detect::PatternKind;
use crate::profile::record::{FAULT, TRACE};
use crate::profile::records::AddressKind;
use crate::profile::summary::{Entry, Summary};

/// Size from which on huge pages may help an object that is accessed at random: ten times what the second-level TLB
/// reaches with pages of 4 KiB (1,536 entries from Skylake on, Intel 64 and IA-32 Optimization Reference Manual).
const BEYOND_TLB: u64 = 10 * 1536 * SMALL;
/// Share of the run's cost from which on accesses at random are worth a look: half of it is the most that they gain.
const WORTH: f64 = 0.05;
/// Bytes of a small page.
const SMALL: u64 = 4096;
/// Share of the accesses that must be at random: most.
const AT_RANDOM: f64 = 0.5;
/// Samples from which on they tell how the object is accessed.
const LEAST_SAMPLES: f64 = 10.0;
/// Standard deviations that chance makes of a count of samples.
const CHANCE: f64 = 3.0;
/// Most of the time of an access at random that a walk of the page tables takes: caches of the processor hold the upper
/// levels (Intel 64 and IA-32 Software Developer's Manual, volume 3, Caching Translation Information), so that it waits
/// for one entry, and that takes at most as long as the access itself.
const WALK: f64 = 0.5;

/// The fix for an object, if there is one.
pub(super) fn fix(summary: &Summary, item: &Item, entry: &Entry) -> Option<Fix> {
    let header = &summary.header;
    if header.thp == "always" || header.page_size > SMALL || entry.size < BEYOND_TLB || entry.details.backing.is_some()
    {
        return None;
    }
    let random = random_share(summary, item, entry).filter(|share| *share > AT_RANDOM)?;
    let share = random * item.share;
    if share < WORTH || !is_wide(summary, entry) {
        return None;
    }
    let first = match header.thp.as_str() {
        "never" => "set /sys/kernel/mm/transparent_hugepage/enabled to madvise, and ",
        _ => "",
    };
    let what = format!(
        "unless the program asks for them already, {first}ask for huge pages for {} before it is first written: \
         madvise(MADV_HUGEPAGE), or huge = \"want\" in the place of its rule in a policy",
        in_words(entry)
    );
    let why = format!(
        "{:.0} % of its accesses are at random, over {}: with pages of {} most of these miss the TLB, which reaches some {}; \
         transparent huge pages: {}",
        100.0 * random,
        Size(entry.size),
        Size(SMALL),
        Size(BEYOND_TLB / 10),
        header.thp
    );
    let high = 1.0 / (1.0 - WALK * share);
    let of_what = if header.sampling.sampler == TRACE { "accesses" } else { "CPU time at accesses" };
    let note = format!(
        "between 1.00x and {high:.2}x, not by the model: a walk of the page tables takes at most as long as the access \
         itself, and {:.0} % of the {of_what} are at random to the object",
        100.0 * share
    );
    Some(Fix {
        kind: FixKind::HugePages,
        object: Some(entry.name.clone()),
        share: item.share,
        what,
        why,
        saves: None,
        gain: Gain { low: Some(1.0), high: Some(high), ..Gain::unpriced(note) },
        by_policy: false,
        is_hint: true,
        places: [allocation(summary, entry), initialisation(summary, entry), hottest(summary, entry)]
            .into_iter()
            .flatten()
            .collect(),
    })
}

/// Share of the accesses that are at random; none where nothing tells.
fn random_share(summary: &Summary, item: &Item, entry: &Entry) -> Option<f64> {
    match summary.header.sampling.sampler.as_str() {
        TRACE => entry.details.page_entries.random_share(),
        FAULT => None,
        _ => {
            let is_random = |kind| matches!(kind, AddressKind::Loaded | AddressKind::Chained);
            let of_code = entry.mean_of_code(|code| f64::from(u8::from(is_random(code.address))));
            // All threads use all of it, and nothing counts up the addresses.
            let by_all = item.pattern.as_ref().is_some_and(|pattern| pattern.kind == PatternKind::Random);
            if by_all && !entry.is_swept() { Some(1.0) } else { of_code }
        }
    }
}

/// Whether more pages are accessed than the TLB reaches. Where not all accesses were counted, the samples that are on a
/// page with another one tell it: fewer pages have more of them, beyond what chance makes.
fn is_wide(summary: &Summary, entry: &Entry) -> bool {
    let seen = entry.cells.iter().map(|cell| (cell.instance, cell.page)).collect::<BTreeSet<_>>().len() as f64;
    let pages = (BEYOND_TLB / SMALL) as f64;
    if summary.header.sampling.sampler == TRACE {
        return seen > pages;
    }
    let samples = entry.cells.len() as f64;
    // Of samples at random, to so many pages.
    let again = samples - pages * -(-samples / pages).exp_m1();
    samples >= LEAST_SAMPLES && samples - seen <= again + CHANCE * again.max(1.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::tests::{entry, profile};
    use crate::detect::Pattern;
    use crate::profile::summary::PageEntries;

    /// A table of four threads, a quarter each; `random` of its 100 accesses from page to page are at random.
    fn table(bytes: u64, sampler: &str, random: u64) -> Summary {
        let mut table = entry("table", bytes, 500, 40_000, move |at, _| (4 * at / bytes) as u32);
        table.details.page_entries = PageEntries { random, all: 100 };
        let mut summary = profile(4, "madvise", vec![table]);
        summary.header.sampling.sampler = sampler.into();
        summary
    }

    fn found(summary: &Summary, share: f64) -> Option<Fix> {
        let item = Item {
            name: "table".into(),
            share,
            pattern: Some(Pattern::new(PatternKind::Block, 0.9, String::new())),
            rule: Err(String::new()),
            saved: 0.0,
            more: Vec::new(),
        };
        fix(summary, &item, &summary.entries[0])
    }

    #[test]
    fn samples_on_a_few_pages_are_no_large_table() {
        let random = |bytes: u64| {
            let mut summary = table(bytes, "timer", 0);
            let frame = crate::profile::records::Frame { module: 0, offset: 8 };
            let code = crate::profile::records::AccessCode {
                frame,
                address: AddressKind::Loaded,
                body: 9,
                gap: 9,
                behind: 9,
                later: 1,
            };
            let details = &mut summary.entries[0].details;
            let cost = crate::profile::summary::Counters { cost_ns: 9, ..Default::default() };
            (details.access_code, details.code) = (vec![code], vec![(frame, cost)]);
            summary
        };
        assert!(found(&random(256 << 20), 1.0).is_some());
        let mut narrow = random(32 << 20);
        narrow.entries[0].size = 256 << 20;
        assert_eq!(found(&narrow, 1.0), None);
        let mut swept = random(256 << 20);
        swept.entries[0].details.access_code[0].address = AddressKind::Counted;
        assert_eq!(found(&swept, 1.0), None);
    }

    #[test]
    fn what_a_trace_shows_to_be_accessed_at_random_is_found_in_any_pattern() {
        let fix = found(&table(256 << 20, TRACE, 99), 1.0).expect("a fix");
        assert_eq!((fix.gain.low, fix.gain.high.map(|high| format!("{high:.2}"))), (Some(1.0), Some("1.98".into())));
        assert!(fix.what.contains("huge = \"want\"") && fix.is_hint, "{}", fix.what);
        assert_eq!(found(&table(256 << 20, TRACE, 20), 1.0), None, "a sweep with some gathers");
        assert_eq!(found(&table(32 << 20, TRACE, 99), 1.0), None, "small");
        assert_eq!(found(&table(256 << 20, TRACE, 99), 0.01), None, "cold");
        assert_eq!(found(&table(256 << 20, FAULT, 99), 1.0), None, "no accesses");
        let mut never = table(256 << 20, TRACE, 99);
        never.header.thp = "never".into();
        assert!(found(&never, 1.0).expect("a fix").what.contains("enabled to madvise"));
        never.header.thp = "always".into();
        assert_eq!(found(&never, 1.0), None);
    }
}
