//! Whether the order in which a call site allocates its instances belongs to the program, so that a rule can name them
//! by their number.

use crate::profile::records::ObjectKind;
use crate::profile::summary::{Entry, Summary};

/// That it does, or the reason why not, which completes the phrase "by number, because": one thread allocates all
/// instances, no other object has their call site, and the profile contains all of them. Mappings that the program asks
/// for count as allocations do: the apply library numbers both at the call.
///
/// # Errors
/// The reason.
pub fn known_order(summary: &Summary, entry: &Entry) -> Result<(), &'static str> {
    if entry.site.is_none() {
        return Err("the profile does not say where they are allocated");
    }
    if entry.kind == ObjectKind::SmallHeap {
        return Err("they are smaller than a page and were counted together");
    }
    if !is_alone(summary, entry) {
        return Err("other allocations have the same call site");
    }
    if entry.instances != entry.seen.len() as u64 {
        return Err("the profile does not contain all of them");
    }
    let allocator = entry.seen.first().and_then(|i| i.thread);
    if allocator.is_none() || entry.seen.iter().any(|i| i.thread != allocator) {
        return Err("several threads allocate them, in an order that may change");
    }
    // Instances are in order of allocation; the order of those with equal times is unknown.
    if entry.seen.windows(2).any(|two| two[0].born_ns >= two[1].born_ns) {
        return Err("the order of their allocation is not known");
    }
    Ok(())
}

/// Whether no other object of the profile is allocated at this call site.
fn is_alone(summary: &Summary, entry: &Entry) -> bool {
    let Some(site) = &entry.site else { return false };
    let own = site.frames.get(..=summary.user_frame(site)).unwrap_or(&site.frames);
    let same = |e: &&Entry| e.site.as_ref().is_some_and(|s| s.frames.starts_with(own));
    summary.entries.iter().filter(same).count() == 1
}
